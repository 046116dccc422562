"""Several rows a person: what all rows of one person can do together, that they come together, and the estimates."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpglm
from dpglm.custodian import bounded_rows, by_looks, grouping, tables, units
from dpglm.custodian.bounded_rows import bounded_units, look_sums, on_grid, standard_rows
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.grouping import GroupedSource
from dpglm.custodian.look_plan import look_noise
from dpglm.custodian.noise import OperatingSystemNoise
from dpglm.custodian.passes import exact_sums
from dpglm.custodian.profile_counts import profile_counts
from dpglm.custodian.survey_counts import table_counts
from dpglm.custodian.tables import open_table
from dpglm.custodian.units import STEPS, units_of
from dpglm.errors import BudgetError, InputError, SurveyError
from dpglm.formula import Design, build_design
from dpglm.looks.coding import standard_design
from dpglm.looks.survey import most_answers
from dpglm.looks.survey import units_of as paid_units
from dpglm.looks.viewpoint import Viewpoint
from dpglm.protection import Protection
from dpglm.release_file import read_release
from seeded_noise import SeededNoise
from trust import chain
from trust.questions import asked, most_units, squared_change
from trust.viewpoints import any_viewpoint

COLUMNS: dict[str, Any] = {
    "y": {"type": "numeric", "lower": -20, "upper": 20},
    "visits": {"type": "count", "upper": 50},
    "sick": {"type": "binary", "levels": ["no", "yes"]},
    "x": {"type": "numeric", "lower": -10, "upper": 10},
    "g": {"type": "categorical", "levels": ["p", "q", "r"], "missing": "level"},
}
OUTCOMES = {"linear": "y", "poisson": "visits", "logistic": "sick"}
PEOPLE = 400


def schema(people: int | None = PEOPLE) -> dict[str, Any]:
    counted = {"neighbours": "added-or-removed"} if people is None else {"units": people}
    return {"dataset": {"name": "panel", "unit": "one person", "unit_column": "id", **counted}, "columns": COLUMNS}


def design_of(family: str, people: int | None = PEOPLE) -> Design:
    return build_design(f"{OUTCOMES[family]} ~ x + g", dpglm.Schema.from_dict(schema(people)), family)


def panel(people: int = PEOPLE, seed: int = 2, most: int = 9) -> pd.DataFrame:
    """Rows of a person all over the table, correlated within the person."""
    numbers = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), numbers.integers(1, most + 1, people))
    x, own = numbers.normal(size=people)[who], numbers.normal(size=people)[who]
    y = 0.5 * x + own + 0.5 * numbers.normal(size=len(who))
    table = pd.DataFrame(
        {
            "id": who, "y": y, "visits": numbers.poisson(np.exp(0.3 * own)), "sick": np.where(y > 0, "yes", "no"),
            "x": x, "g": numbers.choice(["p", "q", "r"], len(who)),
        }
    )  # fmt: skip
    return table.sample(frac=1, random_state=3).reset_index(drop=True)


def person(rows: int, **cells: Any) -> pa.Table:
    """One person with so many rows; a function of the row's number, or a value, for each column."""
    given = {"y": "3", "visits": "2", "sick": "yes", "x": "1", "g": "q"} | cells
    names = {"id": pa.array(["7"] * rows)}
    for name, cell in given.items():
        names[name] = pa.array([cell(n) if callable(cell) else cell for n in range(rows)], pa.string())
    return pa.table(names)


PERSONS = {
    "nobody": person(0),
    "one row": person(1, y="20", visits="50", x="10"),
    "one row, opposite": person(1, y="-20", visits="0", sick="no", x="10"),
    "two rows": person(2, x=lambda n: ("10", "-10")[n], y=lambda n: ("20", "-20")[n]),
    "two rows, one of which does not count": person(2, x=lambda n: ("10", None)[n]),
    "fifty rows": person(50, y=lambda n: str(n - 25), x=lambda n: str(n / 5 - 5), g=lambda n: "pqr?"[n % 4]),
    "fifty rows alike": person(50, y="-20", visits="0", sick="no", x="-10"),
    "ten thousand rows": person(10_000, y="20", visits="50", x="10"),
    "ten thousand rows of all kinds": person(10_000, y=lambda n: str(n % 41 - 20), x=lambda n: str(n % 21 - 10)),
    "no cells": person(3, y=None, visits=None, sick=None, x=None, g=None),
}  # fmt: skip


def sums_of(table: Any, design: Design, step: Callable[[pa.RecordBatch], Any]) -> Any:
    checked = replace(design, schema=dpglm.Schema.from_dict({**schema(None)}))  # of any number of people
    return exact_sums(GroupedSource(open_table(table, design.source_columns)), checked, step)


def coded(design: Design) -> Design:
    data = schema(PEOPLE)
    try:
        made = build_release(panel(), Request(design.formula, data, design.family.name, 8.0, 1e-2), SeededNoise(4))
    except SurveyError as stopped:
        made = stopped.release
    assert made.survey_record is not None
    return standard_design(design, made.survey_record.survey)


# What a person can do


@pytest.mark.parametrize("family", OUTCOMES)
@pytest.mark.parametrize("people", [PEOPLE, None])
def test_no_person_moves_an_answer_by_more_than_the_question_states_and_some_do(
    family: str, people: int | None
) -> None:
    design, numbers = design_of(family, people), np.random.default_rng(5)
    counts = {name: sums_of(table, design, partial(table_counts, design=design)) for name, table in PERSONS.items()}
    pairs = itertools.combinations(counts, 2) if people else [("nobody", name) for name in counts if name != "nobody"]
    pairs = [pair for pair in pairs if people is None or "nobody" not in pair]
    questions = asked(design, lambda question: tuple(numbers.normal(0, 30, len(question.ranges))), 30.0)
    assert sum(question.units for question in questions) <= paid_units(design) <= most_units(design)
    left, reached = sorted(most_answers(design)), []
    for question in sorted(questions, key=lambda each: -each.units):
        left.remove(next(each for each in left if each[0] >= question.units and each[1] >= len(question.ranges)))
        worst = max(squared_change(question, counts[one], counts[other]) for one, other in pairs)
        assert worst <= question.squared_change
        reached.append(worst / question.squared_change)
    assert max(reached) == 1
    assert sum(share > Fraction(9, 10) for share in reached) >= 6
    view, standard = on_grid(any_viewpoint(5, False, numbers)), coded(design)
    profile = {n: sums_of(t, design, partial(profile_counts, design=standard, view=view)) for n, t in PERSONS.items()}
    for one, other in pairs:
        for mine, theirs in zip(profile[one].cells, profile[other].cells, strict=True):
            moved = Fraction(int(((mine - theirs).astype(object) ** 2).sum()), STEPS**2)
            assert moved <= design.schema.dataset.protection.cells_changed


def squared_move(one: Any, other: Any, noise: Any, size: int) -> Fraction:
    total = Fraction(0)
    for block, mine, theirs, stddev in zip(one.blocks, one.values, other.values, noise.grid_stddevs, strict=True):
        square = sum(
            c * (a - b) ** 2 for c, a, b in zip(block.multiplicities(size).tolist(), mine, theirs, strict=True)
        )
        total += Fraction(square) / Fraction(stddev) ** 2
    return total


@pytest.mark.parametrize("family", OUTCOMES)
@pytest.mark.parametrize("people", [PEOPLE, None])
def test_no_person_moves_a_look_by_more_than_its_mu_whatever_their_rows(family: str, people: int | None) -> None:
    design = design_of(family, people)
    standard, numbers, worst = coded(design), np.random.default_rng(11), Fraction(0)
    size = len(standard.coefficient_names)
    protection = design.schema.dataset.protection
    small = {name: table for name, table in PERSONS.items() if "ten" not in name}
    for number in range(16):
        view, noise = (
            on_grid(any_viewpoint(size, False, numbers)),
            look_noise(1.0, size, (0.02, 0.2)[number % 2], protection),
        )
        among = PERSONS if number < 1 else small
        sums = {n: sums_of(t, design, partial(look_sums, design=standard, view=view)) for n, t in among.items()}
        pairs = [("nobody", n) for n in sums] if people is None else list(itertools.combinations(sums, 2))
        for one, other in pairs:
            worst = max(worst, squared_move(sums[one], sums[other], noise, size) / Fraction(noise.mu) ** 2)
    assert Fraction(85 if people else 99, 100) < worst <= 1


@pytest.mark.parametrize(("y", "x"), [(1.0, 0.05), (1.0, 1.0), (0.1, 3.0)])
def test_the_cost_is_the_largest_over_scores_and_informations_of_any_direction(y: float, x: float) -> None:
    """Opposite scores and perpendicular informations at once, which rows of one line cannot have: 4.55 against 4.30."""
    cost = Protection(several_rows=True).squared_mu(y, x)
    rng = np.random.default_rng(1)
    worst = 0.0
    for number in range(3_000):
        s, t = rng.normal(size=(2, 3))
        s, t = s / np.linalg.norm(s), (-s if number % 2 else t) / np.linalg.norm(s if number % 2 else t)
        q, r = np.diag([1.0, 0, 0]), np.diag([0, 1.0, 0]) if number % 3 else np.diag([0.5, 0.5, 0])
        squares = np.outer(s, s) - np.outer(t, t)
        moved = y * ((s - t) ** 2).sum() + y / 2 * (squares**2).sum() + x * ((q - r) ** 2).sum()
        worst = max(worst, moved)
    assert worst <= cost * (1 + 1e-12)
    assert worst > 0.99 * cost
    assert Protection().squared_mu(1.0, 0.3) < Protection(several_rows=True).squared_mu(1.0, 0.3)


def test_a_person_of_one_row_is_that_row_and_scores_of_few_rows_add_up() -> None:
    design = design_of("linear")
    standard = coded(design)
    view = on_grid(Viewpoint((0.0,) * 5, tuple(map(tuple, np.eye(5).tolist())), 900.0, 9e5, 1.0, 3.0))
    by_person = {
        name: sums_of(table, design, partial(look_sums, design=standard, view=view)) for name, table in PERSONS.items()
    }
    alone = replace(
        standard, schema=replace(standard.schema, dataset=replace(standard.schema.dataset, unit_column=None))
    )
    for name in ("one row", "one row, opposite"):
        (batch,) = open_table(PERSONS[name], design.table_columns).batches()
        assert np.abs(np.array(look_sums(batch, alone, view).values[0]) - by_person[name].values[0]).max() <= 2
    (batch,) = open_table(PERSONS["two rows"], design.table_columns).batches()
    assert np.abs(np.array(look_sums(batch, alone, view).values[0]) - by_person["two rows"].values[0]).max() <= 4
    assert not any(map(any, by_person["no cells"].values))


# Rows come together


def test_the_same_integers_whatever_the_order_the_batches_the_container_and_the_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a person in several batches and files; also where the table is too large to be grouped in memory."""
    table, design = panel(60), design_of("logistic")
    standard, view = coded(design), on_grid(any_viewpoint(5, False, np.random.default_rng(3)))
    steps = [
        partial(table_counts, design=design), partial(profile_counts, design=standard, view=view),
        partial(look_sums, design=standard, view=view),
    ]  # fmt: skip
    shuffled = table.sample(frac=1, random_state=9)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(3):
        shuffled.iloc[number::3].to_csv(folder / f"{number}.csv", index=False)
    pq.write_table(pa.Table.from_pandas(shuffled), tmp_path / "t.parquet", row_group_size=11)
    spelled = shuffled.assign(
        id=[(f"{who:03d}", str(who), f"{who}.0", f" {who}")[n % 4] for n, who in enumerate(shuffled["id"])]
    )
    arrow = pa.Table.from_pandas(table)
    tables_: list[Any] = [
        table, shuffled, folder, tmp_path / "t.parquet", spelled, pl.from_pandas(shuffled), table.astype({"id": float}),
        pa.Table.from_batches(arrow.to_batches(max_chunksize=7)), table.astype({"id": "category", "g": "category"}),
        pd.concat([shuffled, shuffled.iloc[:5].assign(id=None)]), table.astype({"id": object}),
    ]  # fmt: skip
    found = [[sums_of(each, design, step).to_json() for step in steps] for each in tables_]
    monkeypatch.setattr(grouping, "HELD_ROWS", 50)
    monkeypatch.setattr(tables, "BATCH_ROWS", 40)
    monkeypatch.setattr(grouping, "BATCH_ROWS", 16)
    found += [[sums_of(each, design, step).to_json() for step in steps] for each in (arrow, folder)]
    assert all(each == found[0] for each in found[1:])
    assert found[0][0]["rows"] == table["id"].nunique()
    assert not list(Path(grouping.tempfile.gettempdir()).glob("dpglm-*/63"))


def test_ids_that_are_other_people_stay_apart() -> None:
    keys = grouping.unit_keys(
        pa.array(["1", "01", "1.0", " 1 ", "-1", "1.5", "a", "A", "9" * 20, "9" * 19 + "8", "", None, "true"])
    )
    told = [None if key is None else bytes(key) for key in keys.to_pylist()]
    assert len(set(told[:4])) == 1
    assert told[12] == told[0]  # as levels compare
    assert told[10] is told[11] is None
    assert len(set(told[3:10])) == 7
    long = grouping.unit_keys(pa.array([2**53, 2**53 + 1, -(2**60)], pa.int64())).to_pylist()
    assert len(set(long)) == 3
    assert grouping.unit_keys(pa.array([float(2**53)])).to_pylist() == [long[0]]


# A release


def replaced_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """One person of three rows, and in their place one of four hundred."""
    first = panel(PEOPLE - 1)
    one = pd.DataFrame([{"id": 9_999, "y": 20.0, "visits": 50, "sick": "yes", "x": 10.0, "g": "p"}] * 3)
    other = pd.DataFrame([{"id": -4, "y": -20.0, "visits": 0, "sick": "no", "x": 10.0, "g": "q"}] * 400)
    return tuple(pd.concat([first, rows]).sample(frac=1, random_state=n) for n, rows in enumerate((one, other)))  # type: ignore[return-value]


@pytest.mark.parametrize("family", OUTCOMES)
def test_a_release_shows_nothing_but_noise_of_which_person_was_in_the_table(family: str) -> None:
    both = replaced_tables()
    request = Request(f"{OUTCOMES[family]} ~ x + g", schema(), family, 4.0, 1e-3)
    first = chain.transcript(both[0], request, OperatingSystemNoise())
    other = chain.replayed(both[1], request, first)
    total = sum(chain.squared_moves(first, other), Fraction(0))
    assert Fraction(1, 50) < total / Fraction(first.release.privacy.mu) ** 2 <= 1
    one, two = (json.loads(each.release.to_json()) for each in (first, other))
    for facts in (one, two):
        for key in ("release_id", "publication_time", "checksum"):
            facts.pop(key)
        facts["survey"].pop("release_id")
    assert one == two


def test_names_of_people_that_no_cell_can_be_read_as_are_missing_in_every_container() -> None:
    """Typed or as objects: an identifier of 128 bits, a list. Arrow refuses to look such columns up."""
    names = [uuid.UUID(int=number) for number in range(3)]
    typed = pa.array([name.bytes for name in names], pa.uuid())
    for cells in (typed, pa.array([[1], [2]]), grouping.cell_text(names[0])):
        array = cells if isinstance(cells, pa.Array) else pa.array([cells], pa.binary())
        assert grouping.unit_keys(array).null_count == len(array)


def test_bugs_that_let_a_person_count_for_several_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    both = replaced_tables()
    request = Request("y ~ x", schema(), "linear", 4.0, 1e-3)

    def caught() -> bool:
        try:
            first = chain.transcript(both[0], request, OperatingSystemNoise())
            other = chain.replayed(both[1], request, first)
            total = sum(chain.squared_moves(first, other), Fraction(0))
        except (AssertionError, InputError, StopIteration):
            return True
        return total > Fraction(first.release.privacy.mu) ** 2

    assert not caught()
    real_units, real_cells, real_bounded = units_of, units.cell_counts, bounded_units

    def by_row(rows: Any, design: Any, view: Any, of: Any) -> Any:
        """Each row bounded by itself, and added up."""
        score, information = bounded_rows.bounded_vectors(rows, design, view)
        return of.sum(score.astype(np.int64)).astype(float), information

    def loose(rows: Any, design: Any, view: Any, of: Any) -> Any:
        return real_bounded(rows, design, view, of)[0], bounded_rows.bounded_vectors(rows, design, view)[1]

    def whole(cells: Any, size: int, _: Any, counts: Any) -> Any:
        return real_cells(cells, size, None, counts)

    def batches(self: GroupedSource) -> Any:
        """Rows as they come: a person in several batches is several."""
        for batch in self._source.batches():
            yield from grouping.in_order([grouping.with_keys(batch.slice(0, 500))])
            yield from grouping.in_order([grouping.with_keys(batch.slice(500))])

    bugs: dict[str, tuple[Any, str, Any]] = {
        "rows bounded one by one": (bounded_rows, "bounded_units", by_row),
        "information bounded row by row": (bounded_rows, "bounded_units", loose),
        "every row of a person counted": (by_looks.table_counts.__globals__, "cell_counts", whole),
        "people in pieces": (GroupedSource, "batches", batches),
        "a look as of parallel vectors, twice the noise's worth": (
            Protection, "squared_mu", lambda self, y, x: (4 * y + 2 * x) / 40
        ),
    }  # fmt: skip
    assert real_units is units_of
    for name, (target, attribute, value) in bugs.items():
        with monkeypatch.context() as patched:
            if isinstance(target, dict):
                patched.setitem(target, attribute, value)
            else:
                patched.setattr(target, attribute, value)
            assert caught(), name


def test_intervals_know_that_rows_of_a_person_are_alike_and_the_file_says_who_is_protected(tmp_path: Path) -> None:
    table = panel(3_000, most=15)
    declared = dpglm.Schema.from_dict(schema(3_000))
    book = dpglm.Ledger.create(tmp_path / "panel.ledger", declared.dataset, epsilon=9.0, delta=1e-5)
    made = build_release(table, Request("y ~ x", declared, "linear", 6.0, 1e-6, ledger=book), SeededNoise(1))
    naive_schema = {**schema(), "dataset": {"name": "rows", "rows": len(table)}}
    naive = build_release(table, Request("y ~ x", naive_schema, "linear", 6.0, 1e-6), SeededNoise(1))
    x = np.column_stack([np.ones(len(table)), table["x"]])
    bread = np.linalg.inv(x.T @ x)
    exact = bread @ (x.T @ table["y"])
    scores = pd.DataFrame(x * (table["y"].to_numpy() - x @ exact)[:, None]).groupby(table["id"].to_numpy()).sum()
    errors = np.sqrt(np.diag(bread @ (scores.T @ scores).to_numpy() @ bread))
    summary, other = (dpglm.fit(each, seed=1).summary() for each in (made, naive))
    assert (abs(summary["mean"] - exact) < 4 * summary["sd"]).all()
    assert ((0.9 * errors < summary["sd"]) & (summary["sd"] < 2.5 * errors)).all()
    assert (other["sd"] < 0.6 * errors).all()  # as if rows were people
    assert made.survey_record is not None
    assert made.survey_record.survey.mean_rows == pytest.approx(8.0, rel=0.15)
    assert read_release(made.to_json()) == made
    facts = json.loads(made.to_json())
    assert facts["dataset"] == {
        "id": "panel",
        "name": "panel",
        "units": 3_000,
        "unit_column": "id",
        "rows_are_public": False,
    }
    assert facts["privacy_loss"]["neighbouring_relation"] == book.neighbouring_relation == "replace-one-unit"
    words = replace(made, private=True).statement
    assert "3,000 units of 'panel'; one unit is one person" in words
    assert "Replacing any one unit, with all of its rows, by any other" in words
    rows = {"dataset": {"name": "panel", "unit": "one person", "rows": len(table)}, "columns": COLUMNS}
    with pytest.raises(BudgetError, match="neighbouring relation"):
        build_release(table, Request("y ~ x", rows, "linear", 1.0, 1e-6, ledger=book), SeededNoise(1))


def test_the_number_of_people_is_checked_where_it_is_public_and_rows_without_an_id_belong_to_nobody() -> None:
    table = panel()
    nameless = pd.concat([table, table.iloc[:40].assign(id=np.nan)])
    request = Request("y ~ x", schema(PEOPLE + 1), "linear", 1.0, 1e-6)
    for each in (table, nameless):
        with pytest.raises(InputError, match=r"dataset.units = 401: the table has 400 units"):
            build_release(each, request, SeededNoise(1))
    private = build_release(panel(3_000), Request("y ~ x", schema(None), "linear", 3.0, 1e-6), SeededNoise(1))
    assert abs(private.num_rows - 3_000) < 1_000
    assert read_release(private.to_json()) == private


REFUSED = [
    ({"rows": 5}, "is private where units have several"), ({"unit_column": 3}, "printable text"),
    ({"units": 0}, "must be a whole number of units"), ({"units": None}, "must be a whole number of units"),
    ({"unit_column": None, "rows": 5}, "belongs to a dataset with a unit_column"),
    ({"neighbours": "added-or-removed"}, "is private where neighbours"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "rule"), REFUSED)
def test_a_dataset_that_contradicts_itself_is_refused(change: dict[str, Any], rule: str) -> None:
    dataset = {**schema()["dataset"], **change}
    with pytest.raises(InputError, match=rule):
        dpglm.Schema.from_dict({"dataset": dataset, "columns": COLUMNS})


def test_moments_and_predictors_that_are_ids_are_refused() -> None:
    declared = dpglm.Schema.from_dict(schema())
    assert dpglm.Schema.from_dict(declared.to_dict()) == declared
    with pytest.raises(InputError, match="moments protect one replaced row"):
        dpglm.release(
            panel(), "y ~ x", schema=declared, family="linear", epsilon=1, delta=1e-6, ledger=None, method="moments"
        )  # fmt: skip
    columns = {**COLUMNS, "id": {"type": "numeric", "lower": 0, "upper": 9}}
    with pytest.raises(InputError, match="also used in the regression"):
        build_design("y ~ x + id", dpglm.Schema.from_dict({**schema(), "columns": columns}), "linear")


def test_vectors_that_were_too_long_would_be_zero() -> None:
    """The last wall: whatever the formulas give, a person's lengths are checked in integers."""
    design = design_of("linear")
    standard = coded(design)
    source = GroupedSource(open_table(PERSONS["ten thousand rows"], design.source_columns))
    for scale in (1e-6, 1.0, 1e6, 1e150, 1e300):
        view = replace(
            any_viewpoint(5, False, np.random.default_rng(1)), score_bound=1 / scale, information_bound=1 / scale
        )
        for batch in source.batches():
            of = units_of(batch, design)
            assert of is not None
            score, information = bounded_units(standard_rows(batch, standard), standard, on_grid(view), of)
            assert (score**2).sum(axis=0).max() <= 4**20
            assert of.sum((information.astype(np.int64) ** 2).sum(axis=0)).max() <= 4**20
