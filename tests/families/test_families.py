"""Every family: what a look takes of an outcome, against simulated outcomes; and that none lacks a part."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from dpglm.families import EVERY_FAMILY, FAMILIES, Family, family_named
from dpglm.families.base import LookRule
from dpglm.families.linear import _normal_quantiles, _normal_share

SIZE = 200_000
FAMILY = {family.link: family for family in EVERY_FAMILY}
# Link, spread, clip, range of the outcome, linear predictors.
CASES = [
    ("logit", 1.0, 4.0, (0.0, 1.0), (-3.0, 0.0, 1.2)),
    ("probit", 1.0, 4.0, (0.0, 1.0), (-2.2, 0.1, 1.2)),
    ("cloglog", 1.0, 4.0, (0.0, 1.0), (-3.0, 0.1, 1.2)),
    ("log", 1.0, 4.0, (0.0, 40.0), (-2.0, 0.5, 2.5)),
    ("log", 3.0, 1.5, (0.0, 40.0), (-2.0, 0.5, 2.5)),
    ("log", 2.0, 0.5, (0.0, 6.0), (-1.0, 1.0, 1.7)),
    ("identity", 0.5, 4.0, (-2.0, 2.0), (-1.0, 0.0, 1.5)),
    ("identity", 0.5, 0.7, (-2.0, 2.0), (-1.0, 0.0, 1.5)),
]
STEPS = (-0.8, 0.3, 1.1)
CHANCES = {
    "logit": lambda u: 1 / (1 + math.exp(-u)),
    "probit": NormalDist().cdf,
    "cloglog": lambda u: 1 - math.exp(-math.exp(u)),
}


def outcomes(name: str, u: float, spread: float, seed: int = 3) -> np.ndarray:
    """Outcomes of a right model, in the user's units."""
    rng = np.random.default_rng(seed)
    if name in CHANCES:
        return (rng.random(SIZE) < CHANCES[name](u)).astype(float)
    if name == "identity":
        return rng.normal(u, math.sqrt(spread), SIZE)
    mean = np.full(SIZE, math.exp(u))
    return rng.poisson(mean if spread == 1 else rng.gamma(mean / (spread - 1), spread - 1)).astype(float)


def clipped(family: Family, table: Any, spread: float, u: float, y: np.ndarray) -> np.ndarray:
    """As a look clips them: around u, in the units of the residual."""
    low, high = table.at(np.array([u]), table.low, table.high)
    return np.minimum(np.maximum(family.values(y, spread), low), high)


def close(sample: np.ndarray, expected: float, table: Any, u: float) -> bool:
    """Within 4.5 standard errors, and of what a table of so many points can say. Chance of a wrong alarm: 7e-6."""
    (slope,) = table.at(np.array([u]), table.weight)
    return abs(sample.mean() - expected) < 4.5 * sample.std() / math.sqrt(SIZE) + 1e-4 * float(slope[0]) + 1e-9


@pytest.mark.parametrize("name", FAMILY)
def test_a_move_of_nothing_is_the_tables_mean(name: str) -> None:
    for _, spread, clip, response, _ in (case for case in CASES if case[0] == name):
        family, table = FAMILY[name], FAMILY[name].residual_table(spread, clip, response)
        u = table.start + table.step * np.arange(0, len(table.mean), 37)
        (mean,) = table.at(u, table.mean)
        np.testing.assert_allclose(
            family.moved(table, spread, clip, u, np.zeros(len(u))), mean, rtol=1e-9, atol=1e-12 * np.abs(mean).max()
        )


@pytest.mark.parametrize(("name", "spread", "clip", "response", "predictors"), CASES)
def test_moved_outcomes_have_the_mean_that_is_told(
    name: str, spread: float, clip: float, response: tuple[float, float], predictors: tuple[float, ...]
) -> None:
    """The clip stays where it was at u, while the outcomes are those of u + step."""
    family = FAMILY[name]
    table = family.residual_table(spread, clip, response)
    for u in predictors:
        for step in (0.0, *STEPS):
            told = family.moved(table, spread, clip, np.array([u]), np.array([step]))[0]
            seen = clipped(family, table, spread, u, outcomes(name, u + step, spread))
            assert close(seen, told, table, u), (u, step)


def test_a_clip_that_moved_along_would_be_noticed() -> None:
    """The simulation can fail: the mean of outcomes clipped where they are, not where they were."""
    family = FAMILY["log"]
    table = family.residual_table(2.0, 0.5, (0.0, 6.0))
    seen = clipped(family, table, 2.0, 1.0, outcomes("log", 1.5, 2.0))
    assert close(seen, family.moved(table, 2.0, 0.5, np.array([1.0]), np.array([0.5]))[0], table, 1.0)
    assert not close(seen, table.at(np.array([1.5]), table.mean)[0][0], table, 1.0)


@pytest.mark.parametrize(("name", "spread", "clip", "response", "predictors"), CASES)
def test_clipped_outcomes_have_the_variance_that_is_told(
    name: str, spread: float, clip: float, response: tuple[float, float], predictors: tuple[float, ...]
) -> None:
    """A gamma distribution in place of counts, which was told once, is off by up to a third, and fails."""
    family = FAMILY[name]
    table = family.residual_table(spread, clip, response)
    for u in predictors:
        told = float(family.clipped_variance(table, spread, clip, np.array([u]))[0])
        seen = clipped(family, table, spread, u, outcomes(name, u, spread)).var()
        assert told == pytest.approx(seen, rel=0.015), u


@pytest.mark.parametrize("step", STEPS)
def test_counts_that_moved_have_the_square_that_is_told(step: float) -> None:
    family = FAMILY["log"]
    for spread, clip, u in ((1.02, 1.5, -0.9), (3.0, 2.0, -0.9), (3.0, 1.5, 1.1)):
        table = family.residual_table(spread, clip, (0.0, 40.0))
        (mean,) = table.at(np.array([u]), table.mean)
        told = float(family.moved_square(table, spread, clip, np.array([u]), np.array([step]))[0])
        seen = clipped(family, table, spread, u, outcomes("log", u + step, spread))
        assert told == pytest.approx(np.mean((seen - mean) ** 2), rel=0.015), u


@pytest.mark.parametrize(("name", "spread", "clip", "response", "predictors"), CASES)
def test_the_weight_is_the_slope_of_the_mean(
    name: str, spread: float, clip: float, response: tuple[float, float], predictors: tuple[float, ...]
) -> None:
    """Of the expected clipped outcome as its predictor moves and the clip stays: what a score's information is."""
    family = FAMILY[name]
    table = family.residual_table(spread, clip, response)
    u, step = np.array(predictors), np.full(len(predictors), 1e-4)
    ends = [family.moved(table, spread, clip, u, direction * step) for direction in (-1, 1)]
    (weight,) = table.at(u, table.weight)
    np.testing.assert_allclose((ends[1] - ends[0]) / 2e-4, weight, rtol=2e-3)


@pytest.mark.parametrize("name", FAMILY)
def test_the_dispersion_is_the_variance_of_a_score_over_its_information(name: str) -> None:
    """Where nothing is clipped."""
    family, response = FAMILY[name], {"log": (0, 10**6), "identity": (-50, 50)}.get(name, (0, 1))
    spread = {"log": 2.5, "identity": 0.3}.get(name, 1.0)
    table = family.residual_table(spread, 30.0, response)
    u = -0.5  # where no multiplier is held
    seen = clipped(family, table, spread, u, outcomes(name, u, spread))
    (weight,) = table.at(np.array([u]), table.weight)
    wanted = {"identity": 1.0}.get(name, family.dispersion(spread))
    assert seen.var() / float(weight[0]) == pytest.approx(wanted, rel=0.02)
    assert family.dispersion(spread) == pytest.approx(wanted)


@pytest.mark.parametrize("name", FAMILY)
def test_the_inverse_link_is_the_mean_of_outcomes(name: str) -> None:
    family = FAMILY[name]
    for u in (-1.0, 0.4):
        y = outcomes(name, u, max(1.0, family.least_spread))
        assert abs(y.mean() - family.inverse_link(np.array([u]))[0]) < 4.5 * y.std() / math.sqrt(SIZE)
    assert np.isfinite(family.inverse_link(np.array([-1e6, 1e6]))).all() or name == "identity"


def lacking(family: Family) -> set[str]:
    """Facts that the base class declares and a family does not have; methods that it left to the base class."""
    missing = {name for name in Family.__annotations__ if not hasattr(family, name)}
    abstract = {name for name, part in vars(Family).items() if getattr(part, "__isabstractmethod__", False)}
    return missing | {name for name in abstract if getattr(type(family), name) is getattr(Family, name)}


@pytest.mark.parametrize("name", FAMILY)
def test_a_family_has_every_part(name: str) -> None:
    assert lacking(FAMILY[name]) == set()
    assert FAMILY[name].link == name
    assert isinstance(FAMILY[name].look_rule, LookRule)


def test_a_family_that_lacks_a_part_is_found() -> None:
    class Half(Family):
        name = "half"
        coding = "count"

    assert {"look_rule", "outcome_types", "moved", "residual_table", "inverse_link"} <= lacking(Half())


def test_a_family_is_found_by_its_name_alone() -> None:
    assert family_named("linear") == FAMILIES["linear"] != FAMILIES["poisson"]
    assert len({*FAMILIES.values(), *map(family_named, FAMILIES)}) == len(FAMILIES)


def test_shares_of_the_normal_distribution_are_those_of_the_error_function() -> None:
    x = np.concatenate([np.linspace(-12, 12, 5_001), np.linspace(-9, 9, 1_001), [-1e9, 1e9]])
    exact = np.array([math.erfc(-each / math.sqrt(2)) / 2 for each in x])
    np.testing.assert_allclose(_normal_share(x), exact, atol=3e-9)
    grid = np.linspace(-9, 9, 2**16)
    at_grid = np.array([math.erfc(-each) / 2 for each in (grid / math.sqrt(2)).tolist()])
    np.testing.assert_allclose(_normal_share(x), np.interp(x, grid, at_grid), rtol=1e-12, atol=1e-15)


def test_quantiles_of_the_normal_distribution_are_those_of_the_standard_library() -> None:
    normal = NormalDist()
    shares = np.concatenate([np.linspace(0.5, 0.9999, 2_001), 1 - np.geomspace(1e-7, 1e-2, 50)])
    exact = np.array([normal.inv_cdf(share) for share in shares.tolist()])
    np.testing.assert_allclose(_normal_quantiles(shares), exact, atol=1e-7)


def test_a_table_is_read_as_a_straight_line_between_its_points() -> None:
    table = FAMILY["log"].residual_table(2.0, 4.0, (0.0, 60.0))
    grid = table.start + table.step * np.arange(len(table.mean))
    u = np.linspace(grid[0] - 1, grid[-1] + 1, 999)
    for column, found in zip((table.mean, table.largest), table.at(u, table.mean, table.largest), strict=True):
        np.testing.assert_allclose(found, np.interp(u, grid, column), rtol=1e-9)
