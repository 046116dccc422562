"""The joint test that coefficients are zero: its numbers, its rate of false alarms, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpglm
from dpglm.errors import InputError

GROUPS: dict[str, Any] = {"h": {"type": "categorical", "levels": ["w", "x", "y", "z"]}}


@cache
def grouped(effect: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """With a column of four levels, which raises the outcome by so much a level."""

    def changed(table: pd.DataFrame) -> pd.DataFrame:
        rng = np.random.default_rng(len(table) + round(1000 * table["a"].iloc[0]))
        level = rng.choice(4, len(table), p=[0.4, 0.3, 0.2, 0.1])
        return table.assign(h=np.array(list("wxyz"))[level], cost=table["cost"] + effect * level)

    return changed


@pytest.fixture
def fitted(released: Callable[..., dpglm.Release]) -> Callable[..., dpglm.Fit]:
    def made(formula: str = "cost ~ a + h + b", family: str = "linear", effect: float = 0.0, **more: Any) -> dpglm.Fit:
        return dpglm.fit(released(family, formula=formula, columns=GROUPS, change=grouped(effect), **more))

    return made


def test_it_is_the_wald_test_of_the_likelihood(fitted: Callable[..., dpglm.Fit]) -> None:
    fit = fitted(effect=4.0)
    tested, told = fit.test(["h", "b"]), fit.likelihood
    names = ["h[x]", "h[y]", "h[z]", "b"]
    estimate, covariance = told.mean[names].to_numpy(), told.covariance.loc[names, names].to_numpy()
    assert tested.names == tuple(names)
    assert tested.statistic == pytest.approx(estimate @ np.linalg.solve(covariance, estimate), rel=1e-4)
    assert tested.p_value == pytest.approx(stats.chi2.sf(tested.statistic, 4))
    one = fit.test("a")
    deviations = told.mean["a"] / np.sqrt(told.covariance.loc["a", "a"])
    assert one.p_value == pytest.approx(2 * NormalDist().cdf(-abs(deviations)), rel=1e-2)
    assert one.degrees == 1
    assert "all zero? chi-square" in str(tested)
    assert str(replace(tested, p_value=0.0)).endswith("p < 1e-16")


def test_it_asks_the_same_of_levels_and_of_steps(fitted: Callable[..., dpglm.Fit]) -> None:
    fit = fitted("sick ~ a * h", "logistic")
    steps = [{"h[x]": 1}, {"h[y]": 1, "h[x]": -1}, {"h[z]": 2, "h[y]": -2}]
    assert fit.test(steps).statistic == pytest.approx(fit.test("h").statistic)
    assert fit.test(steps).names[1] == "h[y] - 1 h[x]"
    assert fit.test("a:h").names == ("a:h[x]", "a:h[y]", "a:h[z]")


def test_it_is_wrong_as_often_as_it_says_and_sees_effects(fitted: Callable[..., dpglm.Fit]) -> None:
    """20 tables without an effect: below 0.05 in at most 4 (more by a chance of 0.003); with one: in 4 of 5."""
    nothing = [fitted(rows=3000, seed=seed, noise=seed).test("h").p_value for seed in range(20)]
    effects = [fitted(rows=3000, seed=seed, noise=seed, effect=10.0).test("h").p_value for seed in range(5)]
    assert sum(value < 0.05 for value in nothing) <= 4
    assert 0.3 < np.mean(nothing) < 0.75
    assert sum(value < 0.05 for value in effects) >= 4


def test_a_sampled_posterior_is_tested_by_its_draws(fitted: Callable[..., dpglm.Fit]) -> None:
    fit = fitted(effect=4.0)
    of_draws = replace(fit, closed=None, method="nuts")
    assert of_draws.test("h").statistic == pytest.approx(fit.test("h").statistic, rel=0.15)


def test_what_cannot_be_asked_is_refused(fitted: Callable[..., dpglm.Fit]) -> None:
    fit = fitted()
    for wrong, said in (
        ("sick", "among a, h, b, Intercept"), ([], "at least"), (3, "among"), (["h", "h[x]"], "say the same"),
        ([{"h[x]": 1}, {"h[x]": 2}], "say the same"), ({"a": 0}, "not all be 0"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            fit.test(wrong)


def test_models_of_the_same_rows_side_by_side_come_with_a_caution(fitted: Callable[..., dpglm.Fit]) -> None:
    small, large, other = fitted("cost ~ a"), fitted(), fitted(name="others")
    assert any("same rows" in note for note in dpglm.compare(small, large).notes)
    assert not any("same rows" in note for note in dpglm.compare(small, other).notes)
    assert not any("same rows" in note for note in dpglm.compare(small, small).notes)
