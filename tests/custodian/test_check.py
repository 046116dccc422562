"""The custodian's own look at a table: what it counts, that it says whom it is for, and that it costs nothing."""

from __future__ import annotations

import csv
import gzip
import inspect
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpglm
from dpglm.custodian.check import WARNING, Check, ColumnCheck
from dpglm.custodian.tables import BATCH_ROWS

SCHEMA: dict[str, Any] = {
    "dataset": {"name": "flaws", "rows": 8},
    "columns": {
        "x": {"type": "numeric", "lower": 0, "upper": 10},
        "visits": {"type": "count", "upper": 5, "fill": 0},
        "kind": {"type": "categorical", "levels": ["a", "b", "c"], "fill": "a"},
        "code": {"type": "binary", "levels": [0, 1], "fill": 0},
        "alive": {"type": "binary", "levels": [False, True], "fill": False},
    },
}
# One column a flaw or two: missing, no number, not finite, below, above, no such level, other case, stray blank.
TEXTS: dict[str, list[str | None]] = {
    "x": ["5", None, "abc", "-1", "11", "NaN", "inf", "1e999"],
    "visits": ["2", None, "5", "-1", "9", "x", "6", "1"],
    "kind": ["a", None, "b", "z", "z", "A", " a", "b"],
    "code": ["0", None, "1", "2", "1.0", "yes", "01", "0"],
    "alive": ["True", None, "false", "TRUE", "2", "no", "true", "false"],
}
EXPECTED = (
    ColumnCheck(
        "x", 1, 4, below=1, above=1, unknown=(("abc", 1), ("NaN", 1), ("inf", 1), ("1e999", 1)), empty_levels=(),
        has_fill=False, has_levels=False,
    ),
    ColumnCheck("visits", 1, 1, below=1, above=2, unknown=(("x", 1),), empty_levels=(), has_levels=False),
    ColumnCheck("kind", 1, 4, 0, 0, unknown=(("z", 2), ("A", 1), (" a", 1)), empty_levels=("c",)),
    ColumnCheck("code", 1, 2, 0, 0, unknown=(("2", 1), ("yes", 1)), empty_levels=()),
    ColumnCheck("alive", 1, 2, 0, 0, unknown=(("2", 1), ("no", 1)), empty_levels=()),
)  # fmt: skip


def as_csv(folder: Path, name: str = "flaws.csv") -> Path:
    path = folder / name
    with (gzip.open if name.endswith(".gz") else open)(path, "wt", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t" if ".tsv" in name else ",")
        writer.writerow(TEXTS)
        writer.writerows([["" if cell is None else cell for cell in row] for row in zip(*TEXTS.values(), strict=True)])
    return path


def as_parquet(folder: Path) -> Path:
    pq.write_table(pa.table(TEXTS), folder / "flaws.parquet")
    return folder / "flaws.parquet"


TABLES: dict[str, Callable[[Path], Any]] = {
    "csv": as_csv,
    "tsv": lambda folder: as_csv(folder, "flaws.tsv"),
    "csv.gz": lambda folder: str(as_csv(folder, "flaws.csv.gz")),
    "parquet": as_parquet,
    "pandas": lambda _: pd.DataFrame(TEXTS),
    "pandas objects": lambda _: pd.DataFrame(TEXTS, dtype=object),
    "polars": lambda _: pl.DataFrame(TEXTS),
    "arrow": lambda _: pa.table(TEXTS),
    "arrow dictionaries": lambda _: pa.table({name: pa.array(TEXTS[name]).dictionary_encode() for name in TEXTS}),
    "arrow chunks": lambda _: pa.concat_tables([pa.table(TEXTS).slice(row, 1) for row in range(8)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(TABLES))
def test_every_flaw_is_counted_the_same_in_every_kind_of_table(kind: str, tmp_path: Path) -> None:
    result = dpglm.check(TABLES[kind](tmp_path), SCHEMA)
    assert result == Check(rows=8, declared_rows=8, columns=EXPECTED, counted=3)
    assert not result.ok
    assert [column.changed for column in result.columns] == [7, 5, 5, 3, 3]


def test_numbers_that_are_numbers_are_counted_too() -> None:
    table = pa.table(
        {
            "x": [5.0, None, math.nan, -1.0, 11.0, math.inf, 0.0, 10.0],
            "visits": [0, 5, 6, -1, None, 1, 2, 3],
            "kind": ["a", "b", "c"] * 2 + [None, "c"],
            "code": [0, 1, 2, None, 1, 0, 1, -1],
            "alive": [True, False, None, True, True, True, True, True],
        }
    )
    x, visits, kind, code, alive = dpglm.check(table, SCHEMA).columns
    assert (x.missing, x.unreadable, x.below, x.above) == (1, 2, 1, 1)
    assert (visits.missing, visits.unreadable, visits.below, visits.above) == (1, 0, 1, 1)
    assert (kind.missing, kind.unreadable, kind.empty_levels) == (1, 0, ())
    assert (code.missing, code.unreadable, code.unknown) == (1, 2, (("2", 1), ("-1", 1)))
    assert (alive.missing, alive.unreadable) == (1, 0)


def good_table(rows: int = 8) -> pa.Table:
    cells = {"x": 5.0, "visits": 2, "kind": "a", "code": 1, "alive": True}
    return pa.table({name: [cell] * rows for name, cell in cells.items()})


def test_a_table_without_flaws_is_ok() -> None:
    result = dpglm.check(good_table(), SCHEMA)
    assert result.ok
    assert all(column.changed == 0 for column in result.columns)
    # A level without rows may be right, so it is shown and not counted.
    assert result.columns[2].empty_levels == ("b", "c")


@pytest.mark.parametrize("rows", [0, 7, 9])
def test_another_number_of_rows_is_counted_not_raised(rows: int) -> None:
    result = dpglm.check(good_table(rows), SCHEMA)
    assert (result.rows, result.declared_rows, result.ok) == (rows, 8, False)


def test_counts_add_up_over_batches() -> None:
    rows = 2 * BATCH_ROWS + 3
    table = pa.table({"x": [11.0] * rows, "kind": ["z"] * rows})
    schema = {"dataset": SCHEMA["dataset"], "columns": {name: SCHEMA["columns"][name] for name in ("x", "kind")}}
    x, kind = dpglm.check(table, schema).columns
    assert x.above == rows
    assert kind.unknown == (("z", rows),)
    assert kind.empty_levels == ("a", "b", "c")


def test_at_most_five_unknown_texts_are_shown_the_most_frequent_first_and_cut() -> None:
    texts = [f"text {number}" for number in range(40)] + ["frequent"] * 9 + ["long" * 50] * 3
    schema = {"dataset": SCHEMA["dataset"], "columns": {"kind": SCHEMA["columns"]["kind"]}}
    unknown = dpglm.check(pa.table({"kind": texts}), schema).columns[0].unknown
    assert len(unknown) == 5
    assert unknown[:2] == (("frequent", 9), (("long" * 50)[:60], 3))


def test_a_level_that_is_empty_text_is_a_level() -> None:
    schema = {
        "dataset": SCHEMA["dataset"],
        "columns": {"kind": {"type": "binary", "levels": ["", "x"], "fill": "x"}},
    }
    column = dpglm.check(pa.table({"kind": ["", "x", "y", None]}), schema).columns[0]
    assert (column.missing, column.unreadable, column.unknown) == (1, 1, (("y", 1),))


def test_a_torn_csv_line_is_a_row_of_missing_cells(tmp_path: Path) -> None:
    path = tmp_path / "torn.csv"
    path.write_text("x,visits,kind,code,alive\n1,1,a,1,true\n1,1\n1,1,a,1,true,9,9\n")
    result = dpglm.check(path, SCHEMA)
    assert result.rows == 3
    assert [column.missing for column in result.columns] == [2] * 5


def test_codes_that_a_frame_holds_as_numbers_are_said() -> None:
    schema = {
        "dataset": SCHEMA["dataset"],
        "columns": {"u": {"type": "categorical", "levels": ["01", "02", "2A"], "fill": "2A"}},
    }
    codes = pd.DataFrame({"u": [1, 2, 1]})
    decimals = pa.table({"u": pa.array([Decimal(1), Decimal(2), Decimal(1)])})
    for frame in (
        codes, codes.astype(float), codes.astype("Int64"), codes.astype("category"), codes.astype("Int64[pyarrow]"),
        pa.Table.from_pandas(codes), pa.table({"u": pa.array([1, 2, 1]).dictionary_encode()}), decimals,
    ):  # fmt: skip
        with pytest.warns(
            UserWarning, match=r"^column = u: the frame holds numbers, and levels are written as '01'"
        ) as said:
            result = dpglm.check(frame, schema)
        assert "\n" not in str(said[0].message)
        assert result.columns[0].changed == 0
    for texts in (pd.DataFrame({"u": ["01", "02"]}), pd.DataFrame({"u": ["01", "02"]}).astype("category")):
        dpglm.check(texts, schema)  # says nothing: warnings are errors here


# Whom it is for


def test_text_and_json_say_that_they_must_not_be_published() -> None:
    result = dpglm.check(pa.table(TEXTS), SCHEMA)
    assert str(result).splitlines()[0] == WARNING
    assert "not private. Do not publish" in WARNING
    data = json.loads(json.dumps(result.to_dict()))
    assert data["warning"] == WARNING
    assert data["ok"] is False
    assert data["columns"][2]["unknown"] == [["z", 2], ["A", 1], [" a", 1]]


def test_the_text_shows_the_counts_by_column() -> None:
    lines = str(dpglm.check(pa.table(TEXTS), SCHEMA)).splitlines()
    assert lines[1] == "rows: 8 (declared: 8)"
    assert lines[2].split() == ["column", "missing", "unreadable", "below", "above"]
    assert lines[3].split() == ["x", "1", "4", "1", "1"]
    assert lines[4].split() == [
        "cannot",
        "be",
        "read:",
        "'abc'",
        "(1),",
        "'NaN'",
        "(1),",
        "'inf'",
        "(1),",
        "'1e999'",
        "(1)",
    ]
    assert lines[5].split() == ["visits", "1", "1", "1", "2"]
    assert "no such level: 'z' (2), 'A' (1), ' a' (1)" in lines[8]
    assert "no rows of level: c" in lines[9]


def test_a_large_share_of_changed_cells_is_flagged_with_the_share() -> None:
    """From a fifth of the cells on; below that, it may be the table's flaws and not the schema's."""
    schema = {"dataset": {"name": "flaws", "rows": 100}, "columns": {"x": SCHEMA["columns"]["x"]}}
    for flaws, flagged in ((0, False), (19, False), (20, True), (99, True)):
        for cell in (None, 11.0, -1.0, math.nan):
            result = dpglm.check(
                pa.table({"x": pa.array([cell] * flaws + [5.0] * (100 - flaws), pa.float64())}), schema
            )
            line = f"LOOK AT x: {flaws} % of its cells would be clamped, or their rows would not count"
            assert (line in str(result).splitlines()) == flagged
            assert ("LOOK AT" in str(result)) == flagged
            assert result.to_dict()["shares"] == {"x": flaws / 100}
            assert result.matching_nothing == ()


def test_a_column_that_matches_nothing_is_named() -> None:
    """An outcome that is coded 0 and 1 where the schema says no and yes: a release would see its fill in every row."""
    schema = {
        "dataset": {"name": "flaws", "rows": 4},
        "columns": {
            "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
            "x": SCHEMA["columns"]["x"],
            "visits": SCHEMA["columns"]["visits"],
        },
    }
    with pytest.warns(UserWarning, match="column = sick: the frame holds numbers, and levels are written as 'no'"):
        nothing = dpglm.check(
            pa.table({"sick": [0, 1, 1, 0], "x": ["a", None, "", "b"], "visits": ["1", "", "", ""]}), schema
        )
    assert nothing.matching_nothing == ("sick", "x")
    assert not nothing.ok
    assert json.loads(json.dumps(nothing.to_dict()))["matching_nothing"] == ["sick", "x"]
    lines = str(nothing).splitlines()
    assert "LOOK AT sick: no cell can be read as the schema declares it" in lines
    assert "LOOK AT visits: 75 % of its cells would be clamped or filled" in lines
    clamped = dpglm.check(pa.table({"sick": ["no"] * 4, "x": [99.0] * 4, "visits": [0] * 4}), schema)
    assert clamped.matching_nothing == ()  # numbers of another unit: flagged, and read
    empty = dpglm.check(pa.table({"sick": pa.array([], pa.string()), "x": [], "visits": []}), schema)
    assert empty.matching_nothing == ()


def test_the_docstring_says_so_too() -> None:
    assert "Not private" in inspect.getdoc(dpglm.check)


def test_it_spends_nothing(tmp_path: Path) -> None:
    dataset = dpglm.Schema.from_dict(SCHEMA).dataset
    ledger = dpglm.Ledger.create(tmp_path / "flaws.ledger", dataset, epsilon=1.0, delta=1e-6)
    before = (tmp_path / "flaws.ledger").read_bytes()
    dpglm.check(as_csv(tmp_path), SCHEMA)
    assert list(inspect.signature(dpglm.check).parameters) == ["table", "schema"]  # there is no way to name a ledger
    assert (tmp_path / "flaws.ledger").read_bytes() == before
    assert ledger.entries() == ()
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("flaws.ledger-")) == [
        "flaws.csv",
        "flaws.ledger",
    ]


@pytest.mark.parametrize("kind", ["schema", "path", "dict"])
def test_a_schema_may_be_given_as_for_a_release(kind: str, tmp_path: Path) -> None:
    schema = dpglm.Schema.from_dict(SCHEMA)
    (tmp_path / "flaws.toml").write_text(schema.to_toml(), encoding="utf-8")
    given = {"schema": schema, "path": tmp_path / "flaws.toml", "dict": SCHEMA}[kind]
    assert dpglm.check(pa.table(TEXTS), given).columns == EXPECTED


def test_ids_of_several_rows_lead_to_a_question_and_declared_ones_are_counted() -> None:
    columns = {"x": {"type": "numeric", "lower": 0, "upper": 10, "fill": 5}}
    table = pd.DataFrame({"patient_id": ["1", "2", "02", "3", "3", "3", None], "x": np.arange(7.0)})
    dataset = {"name": "visits", "unit": "one patient"}
    found = dpglm.check(table, {"dataset": {**dataset, "rows": 7}, "columns": columns})
    assert "LOOK AT patient_id: 7 rows have 3 values of it, one up to 3 times" in str(found)
    assert "declare unit_column = 'patient_id'" in str(found)
    declared = {"dataset": {**dataset, "unit_column": "patient_id", "units": 3}, "columns": columns}
    assert "units: 3 (declared: 3), by patient_id; one has up to 3 rows" in str(dpglm.check(table, declared))
    assert dpglm.check(table, declared).ok
    declared["dataset"]["units"] = 4
    assert not dpglm.check(table, declared).ok
    apart = dpglm.check(table.assign(patient_id=range(7)), {"dataset": {**dataset, "rows": 7}, "columns": columns})
    assert "patient_id" not in str(apart)
    assert "paid" not in str(
        dpglm.check(
            table.rename(columns={"patient_id": "paid"}), {"dataset": {**dataset, "rows": 7}, "columns": columns}
        )
    )
