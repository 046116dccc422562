"""Rows that do not count: they add zero, how many there are is private, and the estimate is that of the others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpglm
from dpglm.analyst.result import FitWarning
from dpglm.custodian.bounded_rows import look_sums, on_grid
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.passes import exact_sums
from dpglm.custodian.profile_counts import profile_counts
from dpglm.custodian.survey_counts import STEPS, table_counts
from dpglm.custodian.tables import open_table
from dpglm.errors import InputError, SurveyError
from dpglm.formula import build_design
from dpglm.looks.coding import standard_design
from seeded_noise import SeededNoise
from trust.viewpoints import any_viewpoint

COLUMNS: dict[str, Any] = {
    "score": {"type": "numeric", "lower": -50, "upper": 50},
    "x": {"type": "numeric", "lower": -5, "upper": 5},
    "g": {"type": "categorical", "levels": ["p", "q"], "missing": "level"},
    "age": {"type": "numeric", "lower": 20, "upper": 90, "fill": 50},
}
ROWS = 6_000


def schema(rows: int = ROWS) -> dpglm.Schema:
    return dpglm.Schema.from_dict({"dataset": {"name": "t", "rows": rows, "unit": "one person"}, "columns": COLUMNS})


def table(rows: int = ROWS) -> pd.DataFrame:
    """A quarter of the outcomes missing, half of them where x is large; a level missing; some ages below the bound."""
    numbers = np.random.default_rng(11)
    x, age = numbers.normal(size=rows), numbers.uniform(10, 90, rows)
    score = 4 + 0.5 * x + 3 * (age >= 40) + numbers.normal(size=rows)
    score[numbers.random(rows) < 0.2 + 0.4 * (x > 1)] = np.nan
    g = numbers.choice(np.array(["p", "q", None], dtype=object), rows)
    return pd.DataFrame({"score": score, "x": x, "g": g, "age": age})


def made(rows: pd.DataFrame, formula: str = "score ~ x + g", where: str | None = None, **more: Any) -> dpglm.Release:
    request = Request(formula, schema(len(rows)), "linear", *more.pop("budget", (1.0, 1e-6)), where=where, **more)
    return build_release(rows, request, SeededNoise(3))


def fitted(release: dpglm.Release) -> pd.DataFrame:
    """Its summary, after the warning that not every row counts."""
    with pytest.warns(FitWarning, match="do not count"):
        return dpglm.fit(release, seed=1).summary()


def sums_of(cells: dict[str, list[Any]], where: str | None) -> list[Any]:
    """Exact counts of survey and profile, and exact sums of a look."""
    rows = len(cells["x"])
    design = build_design("score ~ x + g", schema(rows), "linear", where=where)
    coded = standard_design(design, made(table(200), where=where).survey_record.survey)  # type: ignore[union-attr]
    view = on_grid(any_viewpoint(4, False, np.random.default_rng(2)))
    source = open_table(pa.table(cells), design.table_columns)
    counted = exact_sums(source, design, partial(table_counts, design=design))
    steps = (partial(profile_counts, design=coded, view=view), partial(look_sums, design=coded, view=view))
    return [counted, *(exact_sums(open_table(pa.table(cells), design.table_columns), design, step) for step in steps)]


@pytest.mark.parametrize(
    ("odd", "where"),
    [
        ({"score": None}, None), ({"x": "?"}, None), ({"x": "nan", "g": None}, None), ({"age": "19.5"}, "age >= 20"),
        ({"score": None, "age": None}, "age < 60 or age > 70"), ({"g": "p"}, "g in ('q', 'missing') and age > 10"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_count_adds_zero_beside_rows_that_do(odd: dict[str, Any], where: str | None) -> None:
    """Whatever its other cells hold, and in every pass; only cells without a value are told of it."""
    plain = {"score": ["1.5", "-3"], "x": ["0.25", "4"], "g": ["q", None], "age": ["50", "55"]}
    wild = {"score": "40", "x": "-5", "g": "q", "age": "90"} | odd
    without, beside = sums_of(plain, where), sums_of({name: [*plain[name], wild[name]] for name in plain}, where)
    assert beside[2].values == without[2].values
    for one, other in zip(without[:2], beside[:2], strict=True):
        assert all((mine == theirs).all() for mine, theirs in zip(one.cells, other.cells, strict=True))
    assert beside[0].missing[-3] == without[0].missing[-3] == 2 * STEPS
    lost = sum(value in (None, "?", "nan") for value in odd.values())
    assert beside[0].missing[:-3].sum() - without[0].missing[:-3].sum() >= lost * STEPS


def test_estimates_are_those_of_complete_cases_and_what_does_not_count_is_told() -> None:
    """A quarter of the outcomes was missing: filled with the middle of the bounds, 0, the slope would be far off."""
    rows = table()
    release = made(rows)
    known = rows.dropna(subset=["score", "x"])
    number, stddev = release.counted
    assert abs(number - len(known)) < 4.5 * stddev < 0.1 * ROWS
    told = release.survey.set_index(["column", "level"])  # type: ignore[union-attr]
    shares = known["g"].fillna("missing").value_counts(normalize=True)
    assert abs(told.loc[("g", "missing"), "share"] - shares["missing"]) < 4.5 * told.loc[("g", "missing"), "noise"]
    summary = fitted(release)
    slope = np.polyfit(known["x"], known["score"], 1)[0]
    assert abs(summary.loc["x", "mean"] - slope) < 3.5 * summary.loc["x", "sd"]
    assert summary.loc["x", "sd"] < 0.1 < abs(np.polyfit(rows["x"], rows["score"].fillna(0), 1)[0] - slope)
    assert list(summary.index) == ["Intercept", "x", "g[q]", "g[missing]"]
    assert f"{number:,.0f} of its 6,000 rows count" in replace(release, private=True).statement
    again = dpglm.release_file.read_release(release.to_json())  # type: ignore[attr-defined]
    assert again == release
    assert again.counted == release.counted


def test_a_condition_takes_cells_as_they_are_and_stands_in_the_file() -> None:
    """Below the bound, 10 is not 20: clamped it would be taken for 20."""
    rows = table()
    release = made(rows, "score ~ x", where="age < 20", budget=(4.0, 1e-6))  # of an eighth of the rows
    inside = rows[(rows["age"] < 20)].dropna(subset=["score"])
    number, stddev = release.counted
    assert abs(number - len(inside)) < 4.5 * stddev
    summary = fitted(release)
    assert abs(summary.loc["Intercept", "mean"] - inside["score"].mean()) < 4 * summary.loc["Intercept", "sd"]
    assert "is outside of age < 20" in replace(release, private=True).statement
    assert dpglm.release_file.read_release(release.to_json()).design.where == release.design.where  # type: ignore[attr-defined]


def test_a_survey_is_of_its_condition_and_knows_how_many_rows_fewer_columns_leave() -> None:
    rows = table()
    first = made(rows, "score ~ x + age", where="age > 30")
    with pytest.raises(InputError, match="is of the rows where age > 30"):
        made(rows, "score ~ x", survey=first)
    gaps, budget = rows.assign(x=np.where(np.arange(ROWS) % 5 == 0, np.nan, rows["x"])), (5.0, 1e-6)
    wide = made(gaps, "score ~ x + age", budget=budget)
    fewer = made(gaps, "score ~ age", survey=wide, budget=budget)
    assert abs(fewer.counted.number - rows["score"].notna().sum()) < 0.1 * ROWS
    assert wide.counted.number < 0.65 * ROWS < fewer.counted.number


def test_a_table_without_rows_that_count_stops_at_its_survey() -> None:
    with pytest.raises(SurveyError, match="nearly every row lacks a value, or is outside of age < 0"):
        made(table(), where="age < 0")


def test_moments_fill_numbers_and_refuse_what_they_cannot() -> None:
    rows = table(200)
    by_moments = dpglm.release(
        rows, "score ~ x", schema=schema(200), family="linear", epsilon=1, delta=1e-6, ledger=None, method="moments"
    )
    assert by_moments.design.schema.columns["score"].fill == 0.0  # the middle of its bounds, stated in the file
    for options, rule in (({"where": "x > 0"}, "belongs to method='looks'"), ({"formula": "score ~ h"}, "every row")):
        data = schema(200).to_dict()
        data["columns"]["h"] = {"type": "binary", "levels": [0, 1]}
        asked = {"formula": "score ~ x", **options}
        with pytest.raises(InputError, match=rule):
            dpglm.release(
                rows.assign(h=0), schema=dpglm.Schema.from_dict(data), family="linear", epsilon=1, delta=1e-6,
                ledger=None, method="moments", **asked,
            )  # fmt: skip


def test_an_outcome_that_is_missing_is_no_level() -> None:
    data = schema().to_dict()
    with pytest.raises(InputError, match="an outcome that is missing is none"):
        build_design("g ~ x", dpglm.Schema.from_dict(data), "logistic")


def test_check_says_how_many_rows_would_not_count() -> None:
    rows = table(400)
    found = dpglm.check(rows, schema(400))
    assert found.counted == rows["score"].notna().sum() < 400
    assert f"rows that count: {found.counted} of 400" in str(found)
    assert f"score {rows['score'].isna().sum()}" in str(found)
