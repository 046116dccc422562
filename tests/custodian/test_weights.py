"""Weights: what a row may weigh does not change what it may move, and estimates are the population's."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpglm
from dpglm.custodian.bounded_rows import bounded_vectors, look_sums, on_grid, standard_rows
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.look_plan import look_noise
from dpglm.custodian.tables import open_table
from dpglm.errors import InputError, SurveyError
from dpglm.formula import Design, build_design
from dpglm.looks.coding import standard_design
from dpglm.looks.survey import most_answers, units_of
from dpglm.looks.viewpoint import Viewpoint
from dpglm.release_file import read_release
from people import CELLS
from seeded_noise import SeededNoise
from trust.questions import asked, counts_of, most_units, squared_change
from trust.viewpoints import any_viewpoint

COLUMNS: dict[str, Any] = {
    "score": {"type": "numeric", "lower": -30, "upper": 30},
    "a": {"type": "numeric", "lower": -10, "upper": 10},
    "w": {"type": "numeric", "lower": 0, "upper": 5},
    "share": {"type": "numeric", "lower": -1, "upper": 1},
    "size": {"type": "count"},
    "kind": {"type": "binary", "levels": [0, 1]},
}
ROWS = [
    ("30", "10", "5"),
    ("-30", "10", "5"),
    ("30", "-10", "5e9"),
    ("1", "0.3", "0"),
    ("2", "1", None),
    ("2", "1", "2"),
]


def schema(rows: int = 300) -> dpglm.Schema:
    return dpglm.Schema.from_dict({"dataset": {"name": "t", "rows": rows, "unit": "one person"}, "columns": COLUMNS})


def people(rows: int = 300) -> pd.DataFrame:
    numbers = np.random.default_rng(1)
    a = numbers.normal(size=rows)
    return pd.DataFrame({"score": a + numbers.normal(size=rows), "a": a, "w": numbers.uniform(0, 5, rows)})


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table(
        {name: pa.array(cells, pa.string()) for name, cells in zip(COLUMNS, zip(*rows, strict=True), strict=False)}
    )


def designs(rows: int = 1) -> tuple[Design, Design]:
    """As declared, and in standard units."""
    design = build_design("score ~ a", schema(rows), "linear", weights="w")
    made = build_release(people(), Request("score ~ a", schema(), "linear", 5.0, 1e-2, weights="w"), SeededNoise(2))
    assert made.survey_record is not None
    return design, standard_design(design, made.survey_record.survey)


def test_no_weights_move_an_answer_or_a_look_by_more_than_it_costs_and_some_do() -> None:
    """At their bound, beyond it, zero and missing."""
    design, coded = designs()
    numbers = np.random.default_rng(3)
    counts = [counts_of(table_of([row]), design) for row in ROWS]
    questions = asked(design, lambda question: tuple(numbers.normal(0, 30, len(question.ranges))), 30.0)
    assert sum(question.units for question in questions) <= units_of(design) <= most_units(design)
    left = sorted(most_answers(design))
    reached = {}
    for question in sorted(questions, key=lambda each: -each.units):
        left.remove(next(each for each in left if each[0] >= question.units and each[1] >= len(question.ranges)))
        worst = max(squared_change(question, one, other) for one, other in itertools.combinations(counts, 2))
        assert worst <= question.squared_change
        reached[question.ranges] = worst
    assert reached[((5, 5),)] == 1  # what rows weigh
    batches = [next(iter(open_table(table_of([row]), design.table_columns).batches())) for row in ROWS]
    size, worst_look = len(coded.coefficient_names), Fraction(0)
    for number in range(60):
        noise, view = look_noise(1.0, size, (0.02, 0.2)[number % 2]), on_grid(any_viewpoint(size, False, numbers))
        sums = [look_sums(batch, coded, view) for batch in batches]
        for one, other in itertools.combinations(sums, 2):
            moved = Fraction(0)
            for block, mine, theirs, stddev in zip(
                one.blocks, one.values, other.values, noise.grid_stddevs, strict=True
            ):
                multiplicities = block.multiplicities(size).tolist()
                square = sum(c * (a - b) ** 2 for c, a, b in zip(multiplicities, mine, theirs, strict=True))
                moved += Fraction(square) / Fraction(stddev) ** 2
            worst_look = max(worst_look, moved / Fraction(noise.mu) ** 2)
    assert Fraction(9, 10) < worst_look <= 1


def test_a_row_of_weight_two_is_two_rows_where_nothing_is_bounded_and_no_longer_where_it_is() -> None:
    design, coded = designs()
    rows = [("1", "0.5", "2"), ("1", "0.5", "1"), ("1", "0.5", "0"), ("30", "-10", "5"), ("30", "-10", "1e9")]
    (batch,) = open_table(table_of(rows), design.table_columns).batches()
    view = on_grid(Viewpoint((0.0, 0.0), ((1.0, 0.0), (0.0, 1.0)), 40.0, 400.0, 1.0, 6.0))
    score, information = bounded_vectors(standard_rows(batch, coded), coded, view)
    np.testing.assert_allclose(score[:, 0], 2 * score[:, 1], atol=2)
    np.testing.assert_allclose(information[:, 0], np.sqrt(2) * information[:, 1], atol=2)
    assert not score[:, 2].any()
    assert not information[:, 2].any()
    assert (score[:, 3] == score[:, 4]).all()  # clamped to the bound of weights
    short = on_grid(Viewpoint((0.0, 0.0), ((1.0, 0.0), (0.0, 1.0)), 0.01, 0.01, 1.0, 6.0))
    lengths = [
        np.sqrt((vectors[:, [0, 1, 3]] ** 2).sum(axis=0))
        for vectors in bounded_vectors(standard_rows(batch, coded), coded, short)
    ]
    assert all((length <= 2**20).all() for length in lengths)


def test_estimates_are_the_populations_their_errors_robust_and_the_file_says_what_rows_weigh() -> None:
    (cell,) = (cell for cell in CELLS if (cell.name, cell.family) == ("weights", "linear"))
    table = cell.draw(np.random.default_rng(5), "linear")
    columns = {name: {"type": "numeric", "lower": -50, "upper": 50} for name in "yxz"} | {"w": COLUMNS["w"]}
    declared = dpglm.Schema.from_dict({"dataset": {"name": "t", "rows": len(table)}, "columns": columns})
    weighted, plain = (
        build_release(table, Request("y ~ x + z", declared, "linear", 2.0, 1e-6, weights=weights), SeededNoise(1))
        for weights in ("w", None)
    )
    x = np.column_stack([np.ones(len(table)), table["x"], table["z"]])
    bread = np.linalg.inv((x.T * table["w"].to_numpy()) @ x)
    exact = bread @ (x.T @ (table["w"] * table["y"]))
    meat = x * (table["w"] * (table["y"] - x @ exact)).to_numpy()[:, None]
    errors = np.sqrt(np.diag(bread @ (meat.T @ meat) @ bread))
    summary, other = (dpglm.fit(made, seed=1).summary() for made in (weighted, plain))
    assert (abs(summary["mean"] - exact) < 3.5 * summary["sd"]).all()
    assert abs(other["mean"] - exact).max() > 5 * other["sd"].max()  # unweighted it is another question
    assert ((summary["sd"] > 0.95 * errors) & (summary["sd"] < 2 * errors)).all()
    record = weighted.survey_record
    assert record is not None
    assert record.survey.mean_weight == pytest.approx(table["w"].mean(), rel=0.03)
    assert read_release(weighted.to_json()) == weighted
    assert '"weights": "w"' in weighted.to_json()
    with pytest.raises(InputError, match="has other weights"):
        build_release(table, Request("y ~ x + z", declared, "linear", 1.0, 1e-6, survey=weighted), SeededNoise(1))


REFUSED = [
    ("v", "is not declared"), (3, "name of a declared column"), ("kind", "has levels"), ("share", "at least 0"),
    ("size", "at least 0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rule"), REFUSED)
def test_what_cannot_be_weights_is_refused_before_rows_are_read(name: object, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        build_design("score ~ a", schema(), "linear", weights=name)


def test_weights_that_are_small_beside_their_bound_stop_at_the_survey_and_moments_refuse_them() -> None:
    rows = people(2_000).assign(w=1e-4)
    with pytest.raises(SurveyError, match="small beside its upper bound"):
        build_release(rows, Request("score ~ a", schema(2_000), "linear", 1.0, 1e-6, weights="w"), SeededNoise(2))
    with pytest.raises(InputError, match="belongs to method='looks'"):
        dpglm.release(
            rows, "score ~ a", schema=schema(2_000), family="linear", epsilon=1, delta=1e-6, ledger=None,
            method="moments", weights="w",
        )  # fmt: skip
