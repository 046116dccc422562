"""Standard units: the same regression as in the user's own, whatever the survey says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpglm
from dpglm.expressions import Expression
from dpglm.formula import Design, build_design
from dpglm.looks.coding import LARGEST, before_looks, default_prior, look_grid, offset_slope, standard_design
from dpglm.looks.questions import Place
from dpglm.looks.survey import Survey, subjects

COLUMNS: dict[str, Any] = {
    "a": {"type": "numeric", "lower": 20, "upper": 90},
    "b": {"type": "numeric", "lower": 1, "upper": 9},
    "g": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
    "s": {"type": "binary", "levels": [0, 1], "fill": 0},
    "t": {"type": "numeric", "lower": -1, "upper": 3},
    "y": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    "n": {"type": "count", "upper": 30},
    "z": {"type": "numeric", "lower": -100, "upper": 300},
}
FORMULAS = [
    ("logistic", "y ~ a + b + g + s"),
    ("logistic", "y ~ a * b + g * s"),
    ("logistic", "y ~ a:b"),  # without its parts: neither can be centred
    ("logistic", "y ~ a + a:b + g"),
    ("logistic", "y ~ a * g * s"),
    ("poisson", "n ~ log(a) + I(b**2) + g + offset(t)"),
    ("poisson", "n ~ a + g:b - 1"),
    ("linear", "z ~ a * b + sqrt(b)"),
    ("linear", "z ~ a + g + offset(t)"),
    ("linear", "z ~ a + b + offset(t) - 1"),
    ("linear", "z ~ a - 1"),
]


def random_survey(design: Design, rng: np.random.Generator) -> Survey:
    """Columns live anywhere inside their bounds; shares are noisy, even negative."""
    places = []
    for subject in subjects(design):
        if isinstance(subject.source, Expression):
            low, high = subject.source.lower, subject.source.upper
            # Positive, as the mean of a count is.
            centre = max(rng.uniform(low, high), 0.5) if subject.name == "n" else rng.uniform(low, high)
            places.append(Place(centre, (high - low) * 10 ** rng.uniform(-1.5, 0), (), 0.01))
        else:
            shares = rng.dirichlet(np.ones(subject.cells)) + rng.normal(0, 0.05, subject.cells)
            places.append(Place(0.0, 1.0, tuple(shares.tolist()), 0.05))
    return Survey(subjects(design), tuple(places), (0.0,) * len(design.table_columns), 100.0, 1.0, (), 100.0, 100.0)


def coded(family: str, formula: str, seed: int) -> tuple[Design, Design, Survey, np.random.Generator]:
    rng = np.random.default_rng(seed)
    schema = dpglm.Schema.from_dict({"dataset": {"name": "t", "rows": 100, "unit": "one person"}, "columns": COLUMNS})
    declared = build_design(formula, schema, family)
    survey = random_survey(declared, rng)
    return declared, standard_design(declared, survey), survey, rng


def random_rows(rng: np.random.Generator, size: int = 60) -> dict[str, np.ndarray]:
    """Declared numbers, and positions of levels."""
    return {
        name: rng.uniform(column["lower"], column["upper"], size)
        if column["type"] == "numeric"
        else rng.integers(0, len(column.get("levels", range(9))), size).astype(float)
        for name, column in COLUMNS.items()
    }


def by_hand(formula: str, names: tuple[str, ...], rows: dict[str, np.ndarray]) -> np.ndarray:
    """The columns of the model in the user's units, in the order of the coefficients."""

    def factor(text: str) -> np.ndarray:
        if "[" in text:
            column, level = text[:-1].split("[")
            return (rows[column] == [str(n) for n in COLUMNS[column]["levels"]].index(level)).astype(float)
        functions = {"log": np.log, "sqrt": np.sqrt, "I": lambda value: value}
        return np.asarray(eval(text, {"__builtins__": {}}, {**functions, **rows}), dtype=float)

    ones = np.ones(len(rows["a"]))
    return np.stack(
        [ones if name == "Intercept" else np.prod([factor(part) for part in name.split(":")], axis=0) for name in names]
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("family", "formula"), FORMULAS)
def test_both_units_give_one_linear_predictor(family: str, formula: str, seed: int) -> None:
    """Coefficients in standard units, over standard rows, and the same turned, over the user's columns."""
    _, design, _, rng = coded(family, formula, seed)
    rows = random_rows(rng)
    own = rng.normal(size=len(design.coefficient_names))
    x = design.predictors(rows, len(rows["a"]))
    assert (np.abs(x) < LARGEST).all()
    u = design.intercept * own[0] + own[design.intercept :] @ x[: len(own) - design.intercept]
    if design.offset is not None:
        u = u + offset_slope(design) * x[-1]
    if family == "linear":
        u = design.outcome.center + design.outcome.scale * u
    matrix, shift = design.to_original_units()
    told = (matrix @ own + shift) @ by_hand(formula, design.coefficient_names, rows)
    if design.offset is not None:
        told = told + rows["t"]
    np.testing.assert_allclose(u, told, rtol=1e-8, atol=1e-8 * np.abs(told).max())


def test_the_comparison_notices_another_centre() -> None:
    """It can fail: coefficients turned as another survey says give another predictor."""
    _, design, _, rng = coded("logistic", "y ~ a + b + g + s", 0)
    _, other, _, _ = coded("logistic", "y ~ a + b + g + s", 1)
    own, rows = rng.normal(size=6), random_rows(rng)
    u = own[0] + own[1:] @ design.predictors(rows, 60)
    matrix, shift = other.to_original_units()
    assert np.abs(u - (matrix @ own + shift) @ by_hand("", design.coefficient_names, rows)).max() > 0.1


@pytest.mark.parametrize(("family", "formula"), FORMULAS)
def test_standard_rows_are_centred_where_that_is_the_same_model(family: str, formula: str) -> None:
    _, design, survey, _ = coded(family, formula, 5)
    held = {column.keys for column in design.columns} | ({frozenset()} if design.intercept else set())
    for column in design.columns:
        parts_are_held = all(column.keys - {key} in held for key in column.keys) and frozenset() in held
        centred = any(factor.center for factor in column.factors)
        assert not centred or parts_are_held or column is design.offset
        if parts_are_held and len(column.factors) == 1 and isinstance(column.factors[0].source, Expression):
            place = survey.place_of(column.factors[0].source)
            assert column.factors[0].center == pytest.approx(place.centre)
            assert column.factors[0].scale == pytest.approx(place.scale)


@pytest.mark.parametrize(("family", "formula"), FORMULAS)
def test_the_first_look_stands_where_the_survey_says(family: str, formula: str) -> None:
    _, design, survey, _ = coded(family, formula, 6)
    prior = default_prior(design, survey)
    known = before_looks(design, survey, prior)
    assert not known.centre[design.intercept :].any()
    assert not prior.mean[design.intercept :].any()
    if design.intercept:
        assert prior.mean[0] == known.centre[0]
        mean = design.family.inverse_link(known.centre[:1])[0]
        place = survey.places[0]
        expected = {"logistic": np.clip(place.shares[1] if place.shares else 0, 0.1, 0.9), "poisson": place.centre}
        assert mean == pytest.approx(expected.get(family, 0.0))
    assert known.information.shape == (len(design.coefficient_names),) * 2


def test_the_grid_holds_every_outcome() -> None:
    for family, formula in FORMULAS:
        _, design, _, _ = coded(family, formula, 7)
        assert 2.0 ** look_grid(design).response_exponent >= max(map(abs, design.response_range))
    _, design, _, _ = coded("poisson", "n ~ a + g:b - 1", 7)
    assert design.response_range == (0.0, 30.0)
    assert look_grid(design).response_exponent == 5
