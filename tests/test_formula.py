"""The design: coding rules, bounds on rows, names, refusals, and the way back to the user's own units."""

from __future__ import annotations

import itertools
import math
import re
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpglm import formula
from dpglm.custodian.look_plan import plan_looks
from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.rows import fixed_point_rows
from dpglm.errors import InputError
from dpglm.expressions import Expression
from dpglm.families import LARGEST_COUNT
from dpglm.formula import MOST_COLUMNS, Design, DesignColumn, _parse, build_design
from dpglm.grid import Grid
from dpglm.schema import Schema

COLUMNS: dict[str, dict[str, Any]] = {
    "y": {"type": "numeric", "lower": -3.7, "upper": 12.9},
    "death": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    "visits": {"type": "count", "upper": 9},
    "a": {"type": "numeric", "lower": 1.1, "upper": 5.3},
    "b": {"type": "numeric", "lower": -2.3, "upper": 3.1},
    "c": {"type": "numeric", "lower": 0, "upper": 2},
    "d": {"type": "numeric", "lower": -8.9, "upper": -0.7},
    "n": {"type": "count", "upper": 7},
    "s": {"type": "binary", "levels": ["f", "m"], "fill": "f"},
    "t": {"type": "binary", "levels": [0, 1], "fill": 0},
    "k": {"type": "categorical", "levels": ["u", "v", "w"], "fill": "u"},
    "g": {"type": "categorical", "levels": [1, 2, 3, 4], "fill": 1, "reference": 2},
    "my col": {"type": "numeric", "lower": 1, "upper": 2},
    "class": {"type": "numeric", "lower": 1, "upper": 2},
    "1": {"type": "numeric", "lower": 1, "upper": 2},
    "a+b": {"type": "numeric", "lower": 1, "upper": 2},
    "log(a)": {"type": "numeric", "lower": 7, "upper": 8},
    "ﬁ": {"type": "numeric", "lower": 1, "upper": 2},
    "kind of": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
}


def declared(columns: dict[str, Any] = COLUMNS) -> Schema:
    return Schema.from_dict({"dataset": {"name": "table", "rows": 10}, "columns": columns})


SCHEMA = declared()
FORMULAS = [
    "a",
    "a + b",
    "a + b - 1",
    "0 + a",
    "d - 1",
    "d : a + k:d",
    "a * b",
    "a : b",
    "a + a:b",
    "a*b - 1",
    "a*b*c",
    "a*b*c - a:b",
    "(a + b + c + n)**3",
    "a:b:c:n",
    "s",
    "s - 1",
    "k",
    "k - 1",
    "k + g - 1",
    "s + t",
    "s * t",
    "s : t",
    "s + s:t",
    "k * g",
    "k : g",
    "k + k:g",
    "k*a",
    "k:a",
    "k + k:a",
    "a + k:a",
    "s*a - 1",
    "s:a",
    "s + s:a",
    "a + s:a",
    "k*a*s",
    "k:a + s:b",
    "k/a",
    "log(a) + I(b**2) + sqrt(c) + exp(b)",
    "a + I(a**2) + I(a**3)",
    "log(a)*b",
    "log(a):k + log(a)",
    "I(a*b + c)*s",
    "n*t + g:b",
    "a + b:s:k",
    "a*b*s*k",
    "a + s*k - 1",
]
CASES = [(f"{outcome} ~ {right}", family) for right in FORMULAS for outcome, family in [("y", "linear")]]
CASES += [(f"death ~ {right}", "logistic") for right in FORMULAS[::3]]
CASES += [(f"visits ~ {right}", "poisson") for right in FORMULAS[1::3]]
CASES += [(f"y ~ {right} + offset(b)", "linear") for right in ("a", "a - 1", "k*a", "c:n")]
CASES += [(f"visits ~ {right} + offset(log(a))", "poisson") for right in ("b", "b - 1", "k*b", "c:n")]
CASES += [("log(a) ~ b*k", "linear"), ("I(y**2) ~ a - 1", "linear"), ("n ~ a + s", "linear")]


def table(rng: np.random.Generator, size: int, columns: dict[str, Any] = COLUMNS) -> dict[str, np.ndarray]:
    """Random cells inside their bounds, ends included."""
    cells = {}
    for name, column in columns.items():
        if "levels" in column:
            cells[name] = np.array(column["levels"], dtype=object)[rng.integers(0, len(column["levels"]), size)]
        elif column["type"] == "count":
            cells[name] = rng.integers(0, column["upper"] + 1, size).astype(float)
        else:
            cells[name] = rng.uniform(column["lower"], column["upper"], size)
            cells[name][:4] = [column["lower"], column["upper"]] * 2
    return cells


def coded(column: DesignColumn, cells: dict[str, np.ndarray]) -> np.ndarray:
    """A predictor in scaled units: the product of (raw - center) / scale."""
    result = np.ones(len(next(iter(cells.values()))))
    for factor in column.factors:
        if isinstance(factor.source, Expression):
            raw = factor.source.evaluate(cells)
        else:
            raw = (cells[factor.source.name] == factor.source.levels[factor.level]).astype(float)
        result = result * (raw - factor.center) / factor.scale
    return result


def raw_column(name: str, cells: dict[str, np.ndarray]) -> np.ndarray:
    """A coefficient's column in the user's units, from its name alone: k[v]:log(a) is 1{k = v} log(a)."""
    result = np.ones(len(next(iter(cells.values()))))
    functions = {"log": np.log, "sqrt": np.sqrt, "exp": np.exp, "I": np.asarray}
    for part in name.split(":"):
        level = re.fullmatch(r"(\w+)\[(\w+)\]", part)
        if level:
            result = result * (cells[level[1]].astype(str) == level[2])
        else:
            result = result * eval(part, functions, dict(cells))
    return result


def names(formula: str, family: str = "linear") -> list[str]:
    return list(build_design(formula, SCHEMA, family).coefficient_names)


def refused(formula: object, family: object = "linear", schema: Schema = SCHEMA) -> InputError:
    with pytest.raises(InputError) as caught:
        build_design(formula, schema, family)
    assert str(caught.value).splitlines() == [str(caught.value)]
    return caught.value


# The way back to the user's units


@pytest.mark.parametrize("right", [*FORMULAS, "s + s:t:k", "a + s:t:a", "t + k + s:t:k - 1", "s:t:k", "s:k + t:k"])
def test_no_column_follows_from_the_others_and_none_is_missing(right: str) -> None:
    """The rank is the number of columns, and that of all products of all levels of the terms. Seed 22."""
    design = build_design(f"y ~ {right}", SCHEMA, "linear")
    cells = table(np.random.default_rng(22), 3_000)
    columns = [coded(column, cells) for term in design.terms for column in term.columns]
    columns += [np.ones(3_000)] if design.intercept else []
    every = [np.ones(3_000)] if design.intercept else []
    for factors in _parse(design.formula)[1]:
        levels = [
            [(cells[text] == level).astype(float) for level in COLUMNS[text]["levels"]]
            if text in COLUMNS and "levels" in COLUMNS[text]
            else [raw_column(text, cells)]
            for text in factors
        ]
        every += [np.prod(choice, axis=0) for choice in itertools.product(*levels)] if factors else []
    scaled = [column / np.linalg.norm(column) for column in every]
    assert np.linalg.matrix_rank(np.array(columns), tol=1e-8) == len(columns)
    assert np.linalg.matrix_rank(np.array(scaled), tol=1e-8) == len(columns)
    assert np.linalg.matrix_rank(np.array([*scaled, *columns]), tol=1e-8) == len(columns)


@pytest.mark.parametrize(("formula", "family"), CASES)
def test_original_coefficients_give_the_same_predictions(formula: str, family: str) -> None:
    # The key property: whatever the coefficients in scaled units, the linear predictor is that of the original ones on
    # the user's own columns. Seed 21.
    rng = np.random.default_rng(21)
    design = build_design(formula, SCHEMA, family)
    cells = table(rng, 200)
    matrix, shift = design.to_original_units()
    columns = [column for term in design.terms for column in term.columns]
    size = len(columns) + design.intercept
    assert matrix.shape == (size, size)
    assert shift.shape == (size,)
    for _ in range(3):
        scaled = rng.normal(size=size)
        slopes = scaled[1:] if design.intercept else scaled
        predictor = sum(slope * coded(column, cells) for slope, column in zip(slopes, columns, strict=True))
        predictor = predictor + (scaled[0] if design.intercept else 0.0)
        center, scale = (design.outcome.center, design.outcome.scale) if family == "linear" else (0.0, 1.0)
        if design.offset is not None:  # its coefficient is one in the user's units
            predictor = predictor + coded(design.offset, cells) * design.offset.factors[0].scale / scale
        predicted = center + scale * predictor

        original = matrix @ scaled + shift
        expected = np.zeros(200)
        for value, name in zip(original, design.coefficient_names, strict=True):
            expected += value * (1.0 if name == "Intercept" else raw_column(name, cells))
        if design.offset is not None:
            expected += raw_column(re.fullmatch(r"offset\((.*)\)", design.offset.name)[1], cells)
        largest = max(np.abs(original * matrix.diagonal()).max(), np.abs(original).max())
        np.testing.assert_allclose(predicted, expected, rtol=1e-9, atol=1e-9 * largest)


def test_the_check_above_would_notice_a_wrong_shift_or_matrix() -> None:
    matrix, shift = build_design("y ~ a + b", SCHEMA, "linear").to_original_units()
    # y = 4.6 + 8.3 (alpha + beta_a (a - 3.2) / 2.1 + beta_b (b - 0.4) / 2.7)
    expected = 8.3 * np.array([[1, -3.2 / 2.1, -0.4 / 2.7], [0, 1 / 2.1, 0], [0, 0, 1 / 2.7]])
    np.testing.assert_allclose(matrix, expected, rtol=1e-14)
    np.testing.assert_allclose(shift, [4.6, 0, 0], rtol=1e-14)


@pytest.mark.parametrize(("formula", "family"), CASES)
def test_the_matrix_can_be_inverted(formula: str, family: str) -> None:
    matrix, _ = build_design(formula, SCHEMA, family).to_original_units()
    assert np.linalg.matrix_rank(matrix, tol=1e-12) == len(matrix)


# Bounds on rows


@pytest.mark.parametrize(("formula", "family"), CASES)
def test_a_row_is_in_the_box_and_in_the_ball(formula: str, family: str) -> None:
    rng = np.random.default_rng(22)
    design = build_design(formula, SCHEMA, family)
    cells = table(rng, 400)
    for name in cells:  # far out of bounds, missing and unknown cells are held inside as well
        wild = np.array([1e300, -1e300, np.nan, np.inf, None, "?"], dtype=object)
        cells[name] = np.where(rng.random(400) < 0.1, rng.choice(wild, 400), cells[name].astype(object))
    arrays = [pa.array([None if cell is None else str(cell) for cell in cells[column.name]])
              for column in design.table_columns]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in design.table_columns])
    grid = Grid(20, math.ceil(math.log2(max(map(abs, design.response_range)))))
    rows = fixed_point_rows(batch, design, grid, math.sqrt(design.largest_squared_norm) * 2)
    assert rows.x.shape == (design.dimension, 400)
    assert np.abs(rows.x).max() <= 2**20
    assert (rows.x**2).sum(axis=0).max() <= design.largest_squared_norm * 4**20
    parts = iter(rows.x)
    for term in design.terms:  # and each term contributes at most one
        squared = sum(next(parts) ** 2 for _ in term.columns)
        assert squared.max() <= 4**20
    unit = 2.0 ** (grid.response_exponent - 20)
    assert design.response_range[0] <= rows.y.min() * unit
    assert rows.y.max() * unit <= design.response_range[1]


@pytest.mark.parametrize(("formula", "family"), CASES[:44:5])
def test_fixed_point_rows_are_the_coded_columns(formula: str, family: str) -> None:
    rng = np.random.default_rng(23)
    design = build_design(formula, SCHEMA, family)
    cells = table(rng, 100)
    arrays = [pa.array(cells[column.name].tolist()) for column in design.table_columns]
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in design.table_columns])
    rows = fixed_point_rows(batch, design, Grid(20, 0), math.sqrt(design.largest_squared_norm) * 2)
    expected = np.stack([coded(column, cells) for column in design.columns])
    np.testing.assert_allclose(rows.x / 2**20, expected, atol=2.0**-20)


@pytest.mark.parametrize("seed", range(20))
def test_the_range_of_a_scaled_outcome_is_exactly_one(seed: int) -> None:
    # Seeds as shown. (lower - center) / scale is -1 only up to rounding; a bit more would cost a bit of the grid.
    lower, upper = sorted(np.round(np.random.default_rng(seed).uniform(-100, 100, 2), 2).tolist())
    schema = declared({**COLUMNS, "y": {"type": "numeric", "lower": lower, "upper": upper}})
    assert build_design("y ~ a", schema, "linear").response_range == (-1.0, 1.0)


def test_ranges_of_the_other_outcomes() -> None:
    assert build_design("death ~ a", SCHEMA, "logistic").response_range == (-1.0, 1.0)
    assert build_design("visits ~ a", SCHEMA, "poisson").response_range == (0.0, 9.0)
    assert build_design("y ~ a - 1", SCHEMA, "linear").response_range == (-3.7 / 12.9, 1.0)


# Units


def x_and_y(formula: str, columns: dict[str, Any], cells: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    design = build_design(formula, declared(columns), "linear")
    batch = pa.RecordBatch.from_arrays(
        [pa.array(cells[column.name].tolist()) for column in design.table_columns],
        names=[column.name for column in design.table_columns],
    )
    rows = fixed_point_rows(batch, design, Grid(20, 0), math.sqrt(design.largest_squared_norm) * 2)
    return rows.x, rows.y


@pytest.mark.parametrize(
    ("formula", "factor", "shift"),
    [
        ("y ~ a + b", 3.28084, 0.0),
        ("y ~ a*b + k*a + s:a", 3.28084, 0.0),
        ("y ~ a + I(a**2) + log(a)", 3.28084, 0.0),
        ("y ~ a - 1", 3.28084, 0.0),
        ("y ~ a:b", 0.01, 0.0),
        ("y ~ a*b + k*a", 1.8, 32.0),
        ("a ~ b + s", 1.8, 32.0),
        ("a ~ b - 1", 3.28084, 0.0),
        ("y ~ b + offset(a)", 1.8, 32.0),
    ],
)
def test_other_units_of_a_column_leave_scaled_rows_as_they_are(formula: str, factor: float, shift: float) -> None:
    # Metres or feet, Celsius or Fahrenheit: the released integers, and all that is inferred from them in scaled units,
    # stay the same. (No grid point is so near that the last bit of a product decides; seed 24.)
    cells = table(np.random.default_rng(24), 300)
    other_columns = dict(COLUMNS)
    other_columns["a"] = {**COLUMNS["a"], **{end: COLUMNS["a"][end] * factor + shift for end in ("lower", "upper")}}
    other_cells = {**cells, "a": cells["a"] * factor + shift}
    x, y = x_and_y(formula, COLUMNS, cells)
    other_x, other_y = x_and_y(formula, other_columns, other_cells)
    np.testing.assert_array_equal(x, other_x)
    np.testing.assert_array_equal(y, other_y)
    assert np.ptp(x[0]) > 2**18  # not all the same
    wrong_x, wrong_y = x_and_y(formula, COLUMNS, other_cells)  # bounds left behind
    assert not (np.array_equal(x, wrong_x) and np.array_equal(y, wrong_y))


# Coding


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("y ~ a + b", ["Intercept", "a", "b"]),
        ("y ~ b + a", ["Intercept", "b", "a"]),
        ("y ~ a + b - 1", ["a", "b"]),
        ("y ~ 0 + a", ["a"]),
        ("y ~ a + 1", ["Intercept", "a"]),
        ("y ~ a:b + a + b", ["Intercept", "a", "b", "a:b"]),
        ("y ~ a*b", ["Intercept", "a", "b", "a:b"]),
        ("y ~ a*b - a", ["Intercept", "b", "a:b"]),
        ("y ~ (a + b + c)**2", ["Intercept", "a", "b", "c", "a:b", "a:c", "b:c"]),
        ("y ~ a/b", ["Intercept", "a", "a:b"]),
        ("y ~ a + a", ["Intercept", "a"]),
        ("y ~ k", ["Intercept", "k[v]", "k[w]"]),
        ("y ~ g", ["Intercept", "g[1]", "g[3]", "g[4]"]),
        ("y ~ k - 1", ["k[u]", "k[v]", "k[w]"]),
        ("y ~ k + s - 1", ["k[u]", "k[v]", "k[w]", "s[m]"]),
        ("y ~ s + k - 1", ["s[f]", "s[m]", "k[v]", "k[w]"]),
        ("y ~ a + k - 1", ["a", "k[u]", "k[v]", "k[w]"]),
        ("y ~ s*t", ["Intercept", "s[m]", "t[1]", "s[m]:t[1]"]),
        ("y ~ s + s:t", ["Intercept", "s[m]", "s[f]:t[1]", "s[m]:t[1]"]),
        ("y ~ s:t", ["Intercept", "s[f]:t[1]", "s[m]:t[0]", "s[m]:t[1]"]),
        ("y ~ s:t - 1", ["s[f]:t[0]", "s[f]:t[1]", "s[m]:t[0]", "s[m]:t[1]"]),
        ("y ~ a + s:t:a", ["Intercept", "a", "s[f]:t[1]:a", "s[m]:t[0]:a", "s[m]:t[1]:a"]),
        ("y ~ s + s:t:a", ["Intercept", "s[m]", "s[f]:t[0]:a", "s[f]:t[1]:a", "s[m]:t[0]:a", "s[m]:t[1]:a"]),
        (
            "y ~ s + s:t:k",
            [
                "Intercept",
                "s[m]",
                *(f"s[{s}]:k[{k}]" for s in "fm" for k in "vw"),
                *(f"s[{s}]:t[1]:k[{k}]" for s in "fm" for k in "uvw"),
            ],
        ),
        ("y ~ k:a", ["Intercept", "k[u]:a", "k[v]:a", "k[w]:a"]),
        ("y ~ a + k:a", ["Intercept", "a", "k[v]:a", "k[w]:a"]),
        ("y ~ k + k:a", ["Intercept", "k[v]", "k[w]", "k[u]:a", "k[v]:a", "k[w]:a"]),
        ("y ~ k*a", ["Intercept", "k[v]", "k[w]", "a", "k[v]:a", "k[w]:a"]),
        ("y ~ k*a - 1", ["k[u]", "k[v]", "k[w]", "a", "k[v]:a", "k[w]:a"]),
        ("y ~ b + offset(a)", ["Intercept", "b"]),
        ("y ~ log(a) + I(b**2)", ["Intercept", "log(a)", "I(b ** 2)"]),
    ],
)
def test_coefficients_follow_rs_rule_where_that_has_full_rank_and_the_order_of_the_formula(
    formula: str, expected: list[str]
) -> None:
    # R's rule: a factor is coded by K - 1 indicators where the model holds the term without it, otherwise by all K.
    assert names(formula) == expected


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("y ~ a", [(3.2, 2.1)]),
        ("y ~ a - 1", [(0.0, 5.3)]),
        ("y ~ b - 1", [(0.0, 3.1)]),
        ("y ~ d - 1", [(0.0, 8.9)]),
        ("y ~ s", [(0.5, 0.5)]),
        ("y ~ k", [(0.0, 1.0), (0.0, 1.0)]),
        ("y ~ a + b + a:b", [(3.2, 2.1), (0.4, 2.7), (3.2, 2.1), (0.4, 2.7)]),
        ("y ~ a:b", [(0.0, 5.3), (0.0, 3.1)]),
        ("y ~ a + a:b", [(3.2, 2.1), (0.0, 5.3), (0.0, 3.1)]),
        ("y ~ s*a", [(0.5, 0.5), (3.2, 2.1), (0.5, 0.5), (3.2, 2.1)]),
        ("y ~ s:a", [(0.0, 1.0), (0.0, 5.3), (0.0, 1.0), (0.0, 5.3)]),
        ("y ~ a*b - 1", [(0.0, 5.3), (0.0, 3.1), (0.0, 5.3), (0.0, 3.1)]),
        ("y ~ s - 1", [(0.0, 1.0), (0.0, 1.0)]),
        # Every product with the centred a left out is a column here: 1{k = v} itself.
        ("y ~ k*a - 1", [(0.0, 1.0)] * 3 + [(0.0, 5.3), (0.0, 1.0), (3.2, 2.1), (0.0, 1.0), (3.2, 2.1)]),
    ],
)
def test_columns_are_centred_where_the_model_holds_what_centring_adds(
    formula: str, expected: list[tuple[float, float]]
) -> None:
    design = build_design(formula, SCHEMA, "linear")
    found = [(factor.center, factor.scale) for column in design.columns for factor in column.factors]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(("formula", "squared"), [("y ~ a", 1), ("y ~ k + a", 2), ("y ~ k*a", 3), ("y ~ k:g", 1)])
def test_a_term_counts_once_in_the_squared_norm(formula: str, squared: int) -> None:
    assert build_design(formula, SCHEMA, "linear").largest_squared_norm == squared
    assert build_design(f"{formula} + offset(b)", SCHEMA, "linear").largest_squared_norm == squared + 1


def test_an_offset_is_the_last_column_and_has_no_coefficient() -> None:
    design = build_design("visits ~ offset(log(a)) + b + k", SCHEMA, "poisson")
    assert [column.name for column in design.columns] == ["b", "k[v]", "k[w]", "offset(log(a))"]
    assert design.coefficient_names == ("Intercept", "b", "k[v]", "k[w]")
    assert [column.name for column in design.table_columns] == ["visits", "b", "k", "a"]
    assert [(factor.center, factor.scale) for factor in design.offset.factors] == [
        pytest.approx(((math.log(5.3) + math.log(1.1)) / 2, (math.log(5.3) - math.log(1.1)) / 2))
    ]


def test_only_the_columns_of_the_formula_are_read() -> None:
    design = build_design("y ~ log(a) + k:b", SCHEMA, "linear")
    assert [column.name for column in design.table_columns] == ["y", "a", "k", "b"]


# Names


def by_name(formula: str) -> list[tuple[str, tuple[str, ...]]]:
    """Coefficients, and the columns of the table that each needs."""
    design = build_design(formula, SCHEMA, "linear")
    return [
        (column.name, tuple(name for factor in column.factors for name in factor.column_names))
        for column in design.columns
    ]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("y ~ `my col`", [("my col", ("my col",))]),
        ("y ~ log(`my col`)", [("log(`my col`)", ("my col",))]),
        ("y ~ I(`my col`**2)", [("I(`my col` ** 2)", ("my col",))]),
        ("y ~ class", [("class", ("class",))]),
        ("y ~ `class`", [("class", ("class",))]),
        ("y ~ I(`class`**2)", [("I(`class` ** 2)", ("class",))]),
        ("y ~ `1`", [("1", ("1",))]),
        ("y ~ `a+b`", [("a+b", ("a+b",))]),
        ("y ~ `a+b` + a + b", [("a+b", ("a+b",)), ("a", ("a",)), ("b", ("b",))]),
        ("y ~ ﬁ", [("ﬁ", ("ﬁ",))]),
        ("y ~ log(`ﬁ`)", [("log(`ﬁ`)", ("ﬁ",))]),
        ("y ~ `kind of`", [("kind of[q]", ("kind of",)), ("kind of[r]", ("kind of",))]),
        ("y ~ `a` + a", [("a", ("a",))]),
        ("y ~ log(`a`) + log(a)", [("log(a)", ("a",))]),
        ("y ~ offset(`my col`) + a", [("a", ("a",)), ("offset(`my col`)", ("my col",))]),
        ("`y` ~ a", [("a", ("a",))]),
        ("y ~ log(a)", [("log(a)", ("a",))]),
        ("y ~ `log(a)`", [("log(a)", ("log(a)",))]),
    ],
)
def test_backticks_and_keywords_name_columns(formula: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert by_name(formula) == expected


def test_a_function_and_a_column_of_that_name_are_told_apart_by_backticks() -> None:
    assert build_design("y ~ log(a)", SCHEMA, "linear").terms[0].columns[0].factors[0].source.upper == math.log(5.3)
    assert build_design("y ~ `log(a)`", SCHEMA, "linear").terms[0].columns[0].factors[0].source.upper == 8.0


# Refusals


@pytest.mark.parametrize(
    ("formula", "rule"),
    [
        ("", "must be text of the form"),
        ("  ", "must be text of the form"),
        (None, "must be text of the form"),
        (5, "must be text of the form"),
        (b"y ~ a", "must be text of the form"),
        ("y ~ a" + " " * 10_000, "must be text of the form"),
        ("y", "one outcome on the left"),
        ("~ a", "one outcome on the left"),
        ("1 ~ a", "one outcome on the left"),
        ("y + visits ~ a", "one outcome on the left"),
        ("y:visits ~ a", "one outcome on the left"),
        ("y ~", "at least one predictor"),
        ("y ~ 1", "at least one predictor"),
        ("y ~ a - a", "at least one predictor"),
        ("y ~ offset(a)", "at least one predictor"),
        ("y ~ a ~ b", "cannot be parsed"),
        ("y ~ a | b", "cannot be parsed"),
        ("y ~ [a ~ b]", "cannot be parsed"),
        ("y ~ a b", "cannot be parsed"),
        ("y ~ a +* b", "cannot be parsed"),
        ("y ~ (a", "cannot be parsed"),
        ("y ~ 2*a", "cannot be parsed"),
        ("y ~ 'a'", "cannot be parsed"),
        ("y ~ `a", "backtick"),
        ("y ~ .", "would look at the table"),
        ("y ~ a:b:c:n:s", "more than 4 factors"),
        ("y ~ (a + b)**9", "powers of terms"),
        ("y ~ a**b", "powers of terms"),
        ("y ~ y", "also among the predictors"),
        ("y ~ a + log(I(y + 5))", "also among the predictors"),
        ("y ~ a + offset(y)", "also among the predictors"),
        ("log(I(y + 5)) ~ a*y", "also among the predictors"),
        ("y ~ a + offset(a)", "appears twice"),
        ("y ~ offset(a) + offset(b) + c", "one offset"),
        ("y ~ offset(a):b + c", "one offset"),
        ("y ~ b - offset(a)", "takes an offset away"),
        ("y ~ b - (c + offset(a))", "takes an offset away"),
        ("y ~ offset(k) + a", "must be numeric"),
        ("y ~ aa", "not declared"),
        ("yy ~ a", "not declared"),
        ("y ~ I(aa**2)", "not declared"),
        ("y ~ offset(aa) + a", "not declared"),
        ("y ~ `my cole`", "not declared"),
        ("death ~ a", "needs a numeric or count column, this one is binary"),
        ("k ~ a", "this one is categorical"),
        ("y ~ log(k)", "has levels"),
        ("y ~ " + " + ".join(f"I({n}*a)" for n in range(1, MOST_COLUMNS + 2)), f"more than {MOST_COLUMNS} columns"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_formula_that_breaks_a_rule_is_refused(formula: object, rule: str) -> None:
    assert rule in refused(formula).rule


@pytest.mark.parametrize(
    ("outcome", "family", "rule"),
    [
        ("y", "logistic", "logistic needs a binary column, this one is numeric"),
        ("k", "logistic", "this one is categorical"),
        ("y", "poisson", "poisson needs a count column, this one is numeric"),
        ("log(visits)", "poisson", "poisson needs a count column"),
        ("deth", "logistic", "is not declared in the schema"),
        ("visit", "poisson", "is not declared in the schema"),
        ("y", "gamma", "must be one of logistic, poisson, linear"),
        ("y", None, "must be one of logistic, poisson, linear"),
        ("y", ["linear"], "must be one of logistic, poisson, linear"),
    ],
)
def test_family_and_outcome_must_fit(outcome: str, family: object, rule: str) -> None:
    assert rule in refused(f"{outcome} ~ a", family).rule


def test_no_two_coefficients_have_one_name() -> None:
    named = declared({**COLUMNS, "Intercept": {"type": "numeric", "lower": 0, "upper": 1}})
    assert refused("y ~ Intercept + a", schema=named).rule == "would be the name of two coefficients"
    assert build_design("y ~ Intercept + a - 1", named, "linear").coefficient_names == ("Intercept", "a")


def test_a_count_that_no_fit_of_moments_could_read_is_refused_before_it_costs_anything() -> None:
    schema = declared({**COLUMNS, "visits": {"type": "count", "upper": LARGEST_COUNT + 1}})
    large = build_design("visits ~ a", schema, "poisson")
    with pytest.raises(InputError, match="an upper bound of 5,001, moments take 5,000 at most"):
        calibrate(large, 1.0, 1e-6, None, "equal", "full")
    assert len(plan_looks(large, 1.0, 1e-6).looks) == 5
    assert build_design("visits ~ a", schema, "linear").response_range == (-1.0, 1.0)
    assert build_design("y ~ visits", schema, "linear").dimension == 1
    largest = declared({**COLUMNS, "visits": {"type": "count", "upper": LARGEST_COUNT}})
    assert build_design("visits ~ a", largest, "poisson").response_range == (0.0, 5000.0)


@pytest.mark.parametrize(
    ("written", "family", "meant"),
    [("deth ~ a", "logistic", "death"), ("y ~ my_col", "linear", "my col"), ("Visits ~ a", "poisson", "visits")],
)
def test_a_misspelled_column_gets_a_suggestion(written: str, family: str, meant: str) -> None:
    assert refused(written, family).remedy == f"did you mean {meant!r}?"


def test_a_misspelled_family_gets_a_suggestion() -> None:
    assert "'poisson'" in refused("visits ~ a", "poison").remedy


@pytest.mark.parametrize(
    ("term", "advice"),
    [
        ("scale(a)", "leave it out: columns are scaled by their declared bounds"),
        ("center(a)", "leave it out: columns are centred by their declared bounds"),
        ("standardize(a)", "leave it out: columns are scaled by their declared bounds"),
        ("poly(a, 2)", "write the powers"),
        ("bs(a, df=5)", "write powers, or bins with levels"),
        ("cr(a, 3)", "write powers, or bins with levels"),
        ("C(k)", "declare the column with type = 'categorical'"),
        ("C(k, contr.sum)", "declare the column with type = 'categorical'"),
        ("cut(a, 3)", "declare the column with type = 'categorical'"),
        ("hashed(k)", "declare the column with type = 'categorical'"),
        ("lag(a)", "compute the column before"),
        ("np.log(a)", "compute the column before"),
        ("log10(a)", "compute the column before"),
    ],
)
@pytest.mark.parametrize("formula", ["y ~ {}", "y ~ b + s:{}", "{} ~ b"])
def test_a_function_that_needs_data_is_refused_with_what_to_declare(term: str, advice: str, formula: str) -> None:
    assert advice in refused(formula.format(term)).remedy


@pytest.mark.parametrize(
    "right",
    [
        "(a + b + c + n)**30",
        "a**1000000000",
        "a^999999",
        "*".join(f"I({n}*a)" for n in range(1, 40)),
        ":".join(["(a + b + c + n + s + t + k)"] * 30),
        "(" * 4000,
        "I(" + "-" * 4000 + "a)",
        "log(" * 1000 + "a" + ")" * 1000,
        " + ".join(["a:b:c"] * 1200) + " + a:b:c:n:s",
    ],
    ids=lambda right: right[:20],
)
def test_a_formula_that_would_take_forever_is_refused_quickly(right: str) -> None:
    # A release file holds a formula, and an analyst reads files that others wrote.
    build_design("y ~ a", SCHEMA, "linear")  # formulaic takes a second to import
    start = time.perf_counter()
    try:
        refused(f"y ~ {right}")
    finally:
        assert time.perf_counter() - start < 5


@pytest.mark.parametrize("formula", ["y~a+b", " y ~ a + b ", "y ~ a\n + b", "y ~ (a + b)"])
def test_white_space_and_brackets_do_not_matter(formula: str) -> None:
    assert names(formula) == ["Intercept", "a", "b"]


def test_a_design_is_the_same_from_the_same_formula() -> None:
    first, second = (build_design("y ~ a*k + offset(b)", SCHEMA, "linear") for _ in range(2))
    assert isinstance(first, Design)
    assert first == second
    assert first != build_design("y ~ a*k + offset(c)", SCHEMA, "linear")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "side",
    [
        "a",
        "a + b",
        " a+b\n+ a ",
        "log(a) + a + log(a)",
        "offset(n) + b",
        "True + _x1 + None",
        "for + I(b)",
        "a + b - 1",
        "0+a",
        " 0 + a -1 ",
    ],
)
def test_a_sum_is_read_as_formulaic_reads_it(monkeypatch: pytest.MonkeyPatch, side: str, intercept: bool) -> None:
    """Without its slow import."""
    quickly = formula._factors(side, side, {}, intercept)
    assert formula._SUM.fullmatch(side)
    monkeypatch.setattr(formula, "_SUM", re.compile("nothing matches this"))
    assert quickly == formula._factors(side, side, {}, intercept)


@pytest.mark.parametrize(
    "side", ["", "a +", "+ a", "a - b", "a + 1", "a - 1 + b", "a:b", "a*b", "log(a + b)", "f(a)(b)", "é"]
)
def test_all_else_is_left_to_formulaic(side: str) -> None:
    assert not formula._SUM.fullmatch(side)


def test_a_name_that_needs_backticks_is_told_so() -> None:
    column = {"type": "numeric", "lower": 0, "upper": 1}
    schema = Schema.from_dict({"dataset": {"name": "d", "rows": 9}, "columns": {"Left?": column, "a": column}})
    with pytest.raises(InputError, match=r"write `Left\?` in backticks"):
        build_design("Left? ~ a", schema, "linear")
    with pytest.raises(InputError, match="write y ~ a"):
        build_design("`Left?` ~ a +* a", schema, "linear")
