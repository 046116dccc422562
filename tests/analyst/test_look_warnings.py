"""What a fit of looks warns of: levels that decide the outcome, strong effects that looks see from afar."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.custodian.build import Request, build_release
from seeded_noise import SeededNoise

ROWS = 5_000
DECIDES, STRONG = "g[marked] all but decides the outcome", "the linear predictor has standard deviation"


def warned(
    epsilon: float, flag: float = 0.8, slope: float = 0.5, seed: int = 1, mean: float = 0.0, formula: str = "y ~ x + g"
) -> str:
    """All warnings of a fit to simulated rows: a flag on 3 % of them, and a column in standard units."""
    generator = np.random.default_rng(seed)
    x, marked = generator.normal(mean, size=ROWS), generator.random(ROWS) < 0.03
    y = generator.random(ROWS) < 1 / (1 + np.exp(-(slope * (x - mean) + flag * marked)))
    table = pd.DataFrame({"x": x, "g": np.where(marked, "marked", "usual"), "y": y.astype(int)})
    schema = {
        "dataset": {"name": "t", "rows": ROWS, "unit": "one row"},
        "columns": {
            "x": {"type": "numeric", "lower": -20, "upper": 20},
            "g": {"type": "binary", "levels": ["usual", "marked"], "fill": "usual"},
            "y": {"type": "binary", "levels": [0, 1], "fill": 0},
        },
    }
    made = build_release(table, Request(formula, schema, "logistic", epsilon, 1e-6), SeededNoise(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return "\n".join(dpglm.fit(made, seed=1).warnings)


def test_a_level_that_may_decide_the_outcome_is_told_and_an_ordinary_one_is_not() -> None:
    """All its rows are positive; its log-odds are read as about 4, give or take 1. Ten of ten."""
    assert all(DECIDES in warned(3.0, flag=30.0, seed=seed) for seed in range(5))
    assert not any(DECIDES in warned(3.0, seed=seed) for seed in range(5))


@pytest.mark.parametrize(("epsilon", "slope", "told"), [(0.3, 4.0, True), (0.3, 0.5, False), (30.0, 3.0, False)])
def test_strong_effects_are_told_where_looks_stand_far_off(epsilon: float, slope: float, told: bool) -> None:
    assert (STRONG in warned(epsilon, slope=slope)) is told


@pytest.mark.parametrize(
    ("mean", "power", "told"), [(3.0, "x**2", True), (0.0, "x**2", False), (3.0, "(x - 3)**2", False)]
)
def test_a_power_of_a_number_far_from_zero_is_told(mean: float, power: str, told: bool) -> None:
    assert ("rise together" in warned(1.0, mean=mean, formula=f"y ~ x + I({power})")) is told


def test_counts_of_which_there_are_hardly_any_are_told_and_rare_ones_are_not() -> None:
    generator = np.random.default_rng(4)
    columns = {"x": {"type": "numeric", "lower": -20, "upper": 20}, "y": {"type": "count", "upper": 200}}
    schema = {"dataset": {"name": "t", "rows": ROWS, "unit": "one row"}, "columns": columns}
    for mean, told in ((0.0, True), (0.2, False)):
        table = pd.DataFrame({"x": generator.normal(size=ROWS), "y": generator.poisson(mean, ROWS)})
        made = build_release(table, Request("y ~ x", schema, "poisson", 1.0, 1e-6), SeededNoise(5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = dpglm.fit(made)
        assert any("hardly any events" in message for message in fit.warnings) is told
