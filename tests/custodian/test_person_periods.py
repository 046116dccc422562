"""Person-periods, against one person at a time; the same from every container; a person's rows are theirs alone."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpglm
from dpglm.custodian import person_periods as module
from dpglm.custodian.tables import open_table
from dpglm.errors import InputError
from dpglm.periods import Periods, periods_of
from dpglm.schema import Column, Dataset

BREAKS = (0.0, 90.0, 180.0, 365.0)
SCHEMA = dpglm.Schema.from_dict(
    {
        "dataset": {"name": "people", "rows": 60, "unit": "one person"},
        "columns": {
            "days": {"type": "numeric", "lower": 0, "upper": 2000},
            "died": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
            "age": {"type": "numeric", "lower": 0, "upper": 120},
            "arm": {"type": "categorical", "levels": ["a", 1, "b"], "fill": "a"},
        },
    }
)
NAMES = {"unit": "id", "time": "days", "event": "died"}


def people(size: int = 60, seed: int = 1) -> pd.DataFrame:
    """Times at the breaks, at the middles, beyond, before, missing and unreadable."""
    rng = np.random.default_rng(seed)
    odd: list[Any] = [0, 90, 45, 44.999, 180, 135, 365, 366, 1e9, -3, None, "x", "nan", "90", True, 272.5]
    days = [odd[n % len(odd)] if n % 2 else float(rng.uniform(0, 400)) for n in range(size)]
    died = [("no", "yes", "yes", None, "no", "unknown")[n % 6] for n in range(size)]
    ages = [None if n % 7 == 0 else float(n) for n in range(size)]
    arms = [("a", "1", 1, "b", "c", None)[n % 6] for n in range(size)]
    frame = pd.DataFrame({"age": ages, "id": [f"p{n}" for n in range(size)], "noise": range(size)})
    return frame.assign(days=pd.Series(days, dtype=object), died=died, arm=pd.Series(arms, dtype=object))


def made(table: Any, **more: Any) -> module.PersonPeriods:
    return dpglm.person_periods(table, schema=SCHEMA, breaks=BREAKS, **{**NAMES, **more})


def rows_of(table: Any, **more: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in made(table, **more)().read_all().to_pylist()]


def number(cell: Any) -> float | None:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def slow(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """One person at a time, one period at a time."""
    found = []
    for person in frame.to_dict("records"):
        time, died = number(person["days"]), {"no": 0, "yes": 1}.get(person["died"])
        arm = {"a": "a", "1": "1", 1: "1", "b": "b"}.get(person["arm"])
        rest = (number(person["age"]), arm)
        own: list[tuple[Any, ...]] = []
        for low, high in pairwise(BREAKS):
            if time is None or died is None or time <= low:
                continue
            ends_here = time <= high
            if ends_here and not died and time < (low + high) / 2:
                continue
            own.append((f"{low:g} to {high:g}", "yes" if ends_here and died else "no"))
        own = own or [("0 to 90", None)]
        found += [(person["id"].encode(), *each, *rest) for each in own]
    return found


def test_rows_are_those_of_one_person_and_period_after_the_other() -> None:
    frame = people()
    told = rows_of(frame)
    assert told == slow(frame)
    assert len({row[0] for row in told}) == len(frame)  # every person has a row
    assert {row[2] for row in told} == {"yes", "no", None}


@pytest.mark.parametrize("container", ["arrow", "stream", "function", "csv", "parquet", "categories"])
def test_every_container_gives_the_same_rows(container: str, tmp_path: Path) -> None:
    frame = people().map(lambda cell: None if cell is None or cell != cell else str(cell))
    wanted, table = rows_of(frame), pa.Table.from_pandas(frame)
    if container == "csv":
        frame.to_csv(tmp_path / "people.csv", index=False)
    if container == "parquet":
        frame.to_parquet(tmp_path / "people.parquet")
    given: Any = {
        "arrow": table, "stream": table.to_reader(max_chunksize=7), "function": lambda: table.to_reader(11),
        "csv": tmp_path / "people.csv", "parquet": str(tmp_path / "people.parquet"),
        "categories": frame.astype("category"),
    }[container]  # fmt: skip
    periods = made(given)
    for _ in range(3):  # a release passes several times
        assert [tuple(row.values()) for row in periods().read_all().to_pylist()] == wanted


def test_pieces_of_a_table_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = rows_of(people())
    monkeypatch.setattr(module, "BATCH_ROWS", 12)  # four persons at a time
    assert rows_of(people()) == wanted


def test_another_person_changes_nothing_but_their_own_rows() -> None:
    frame, before = people(), rows_of(people())
    for position in (0, 17, 59):
        for other in people(seed=2).to_dict("records")[:20]:
            changed = pd.DataFrame(
                [*frame.to_dict("records")[:position], other, *frame.to_dict("records")[position + 1 :]]
            )
            after = rows_of(changed)
            name = frame["id"][position].encode()
            own = [row for row in before if row[0] == name]
            start = before.index(own[0])
            count = len(after) - len(before) + len(own)
            assert after[:start] == before[:start]
            assert after[start + count :] == before[start + len(own) :]
            assert {row[0] for row in after[start : start + count]} == {other["id"].encode()}


def test_types_do_not_depend_on_cells() -> None:
    """So that neither does the way through the code of a release."""
    plain = pd.DataFrame({"id": [1, 2], "days": [3.0, 400.0], "died": ["no", "yes"], "age": [1, 2], "arm": ["a", "b"]})
    assert made(plain)().schema == made(people())().schema
    empty = made(people().iloc[:0])()
    assert empty.schema == made(people())().schema
    assert empty.read_all().num_rows == 0


def test_persons_have_one_name_whatever_its_type() -> None:
    base = {"days": [100.0, 400.0, 10.0], "died": ["no", "yes", "yes"], "age": [1, 2, 3], "arm": ["a", "b", "a"]}
    units = [
        pa.array([7, 8, 7]), pa.array(["7", "8", "7"]), pa.array([b"7", b"8", b"7"]),
        pa.array(["7", "8", "7"]).dictionary_encode(), pa.RunEndEncodedArray.from_arrays([1, 2, 3], ["7", "8", "7"]),
    ]  # fmt: skip
    for unit in units:
        told = rows_of(pa.table({"id": unit, **base}))
        assert [row[0] for row in told] == [b"7", b"8", b"8", b"8", b"7"]
    nameless = rows_of(pa.table({"id": pa.array([[1], [2], [3]]), **base}))
    assert {row[0] for row in nameless} == {None}


@pytest.mark.parametrize(
    ("time", "event", "number", "happened"),
    [
        (0.0, 1, 0, False), (1e-9, 1, 1, True), (90.0, 1, 1, True), (90.1, 1, 2, True), (365.0, 1, 3, True),
        (365.1, 1, 3, False), (90.0, 0, 1, False), (44.9, 0, 0, False), (45.0, 0, 1, False), (134.9, 0, 1, False),
        (135.0, 0, 2, False), (1e9, 0, 3, False), (np.nan, 1, 0, False), (100.0, -1, 0, False),
    ],
)  # fmt: skip
def test_who_is_at_risk(time: float, event: int, number: int, happened: bool) -> None:
    """The event ends a period; who is censored in a period counts from its middle on."""
    told = Periods(BREAKS).at_risk(np.array([time]), np.array([event]))
    assert [each[0] for each in told] == [number, happened]


def test_hazards_are_right_where_people_are_censored_within_periods() -> None:
    """With half of a period as the rule; counting all or none of those who were censored in it is off by far more."""
    rng = np.random.default_rng(4)
    event, censored = rng.exponential(10.0, 10**6), rng.exponential(8.0, 10**6)
    number, happened = Periods((0.0, 2.0, 4.0)).at_risk(np.minimum(event, censored), (event <= censored).astype(int))
    share = (happened & (number == 1)).sum() / (number >= 1).sum()
    right = 1 - math.exp(-2 / 10)
    assert share == pytest.approx(right, rel=0.012)
    followed = np.minimum(event, censored) > 2
    all_of_them = (happened & (number == 1)).sum() / 10**6
    none_of_them = (happened & (number == 1)).sum() / ((happened & (number == 1)) | followed).sum()
    assert abs(all_of_them / right - 1) > 0.07
    assert abs(none_of_them / right - 1) > 0.07


def test_labels_name_their_periods() -> None:
    for breaks in ([0, 1, 2], [-1, 0, 0.5], [1e-7, 1, 1e9], [0, 30.25, 365.25], np.array([0.0, 90.0, 180.0])):
        periods = Periods.between(breaks)
        assert Periods.of_levels(periods.labels[::-1]) == periods
    for levels in (
        ["0 to 1", "2 to 3"],
        ["0 to 1"],
        ["a", "b"],
        ["1 to 0", "0 to 1"],
        [1, 2],
        ["0 to 1", "1 to 2", "x"],
    ):
        assert Periods.of_levels(levels) is None
    one = Column("p", "categorical", None, levels=("1 to 2", "0 to 1"))
    other = Column("q", "categorical", None, levels=("a", "b"))
    assert periods_of([other, one]) == (one, Periods((0.0, 1.0, 2.0)))
    assert periods_of([one, Column("r", "categorical", None, levels=("0 to 1", "1 to 2"))]) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"breaks": [0, 90]}, "must be a list of 3 to 501 numbers"),
        ({"breaks": [0, 90, 90]}, "must increase"),
        ({"breaks": [0, 1, math.nan]}, "must be a list of 3"),
        ({"breaks": "0 90 180"}, "must be a list of 3"),
        ({"breaks": [0, 1e9, 1e9 + 1e-6]}, "need more digits"),
        ({"time": "died"}, "must be a numeric column"),
        ({"time": "dayz"}, "did you mean 'days'"),
        ({"event": "arm"}, "must be a binary column"),
        ({"period": "age"}, "is a column already"),
        ({"unit": "person"}, "is not in the table"),
        ({"unit": 3}, "must be the name of a column"),
        ({"schema": {}}, "must be a Schema"),
    ],
)
def test_mistakes_are_said_before_rows_are_read(changed: dict[str, Any], said: str) -> None:
    def never() -> Any:
        def unread() -> Any:
            raise AssertionError("a row was read")
            yield

        return pa.RecordBatchReader.from_batches(pa.Table.from_pandas(people().astype(str)).schema, unread())

    arguments = {"schema": SCHEMA, "breaks": BREAKS, **NAMES, **changed}
    with pytest.raises(InputError, match=said):
        dpglm.person_periods(never, **arguments)


@pytest.mark.skipif("unit_column" not in Dataset.__annotations__, reason="schemas do not declare units yet")
def test_the_schema_makes_the_person_the_unit() -> None:
    schema = dpglm.person_period_schema(SCHEMA, breaks=BREAKS, **NAMES)
    declared = schema.to_dict()
    assert declared["dataset"]["unit_column"] == "id"
    assert declared["dataset"]["units"] == 60
    assert "rows" not in declared["dataset"]
    assert [*declared["columns"]] == ["period", "died", "age", "arm"]
    assert schema.columns["died"].fill is None  # who is not known to be at risk does not count
    assert schema.columns["period"].levels == Periods(BREAKS).labels
    assert dpglm.Schema.from_dict(declared) == schema


def test_a_release_reads_it_as_any_table() -> None:
    source = open_table(made(people()), [Column("period", "categorical", "0 to 90", levels=Periods(BREAKS).labels)])
    assert source.repeatable() is source
    assert not source.passes_once
    assert [sum(batch.num_rows for batch in source.batches()) for _ in range(2)] == [len(slow(people()))] * 2
