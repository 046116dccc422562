"""Ordered levels: their steps are contrasts of the coefficients, and a release does not depend on the order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpglm
from dpglm.errors import InputError
from dpglm.report.html import page
from dpglm.report.summary import summarize

LEVELS = ["none", "school", "college", "doctor"]
EFFECTS = np.array([0.0, 0.5, 0.8, 1.9])


def column(**more: Any) -> dict[str, Any]:
    return {"columns": {"e": {"type": "categorical", "levels": LEVELS, "label": "Education", **more}}}


def educated(table: pd.DataFrame) -> pd.DataFrame:
    """The fourth of each level, and an outcome that depends on it."""
    rng = np.random.default_rng(5)
    level = rng.integers(0, 4, len(table))
    cost = 100 + 50 * EFFECTS[level] + rng.normal(0, 30, len(table))
    return table.assign(e=np.array(LEVELS)[level], cost=cost)


@pytest.fixture
def made(released: Any) -> Any:
    def fitted(formula: str = "cost ~ e + a", family: str = "linear", **more: Any) -> dpglm.Fit:
        release = released(family, formula=formula, change=educated, **column(**more))
        return dpglm.fit(release)

    return fitted


def test_a_release_does_not_depend_on_the_order(released: Any, made: Any) -> None:
    """The same integers: only what is declared differs, and that is kept in the file."""
    plain, ordered = (made(**more).releases[0] for more in ({}, {"ordered": True}))
    for first, second in zip(plain.stages, ordered.stages, strict=True):
        assert all((a.values == b.values).all() for a, b in zip(first.blocks, second.blocks, strict=True))
    assert plain.design == ordered.design
    assert ordered.design.schema.columns["e"].to_dict()["ordered"] is True
    assert "ordered" not in plain.design.schema.columns["e"].to_dict()


def test_steps_are_the_successive_differences_of_a_recoded_regression(made: Any) -> None:
    """Recoded: the posterior in the coordinates 'level is at least k', whose coefficients are the steps."""
    fit = made(ordered=True)
    steps = fit.steps(prob=0.9)
    mean, covariance = fit.normal()
    at_least = np.tril(np.ones((3, 3)))  # effects of levels = this @ steps
    back = np.linalg.inv(at_least)
    own = slice(1, 4)
    assert fit.names[own] == tuple(f"e[{level}]" for level in LEVELS[1:])
    assert steps["mean"].to_numpy()[:3] == pytest.approx(back @ mean[own])
    assert steps["sd"].to_numpy()[:3] == pytest.approx(np.sqrt(np.diag(back @ covariance[own, own] @ back.T)))
    assert list(steps.index) == [
        "e[school] - e[none]", "e[college] - e[school]", "e[doctor] - e[college]", "trend(e)"
    ]  # fmt: skip
    slope = np.polyfit(range(4), [0, *mean[own]], 1)[0]
    assert steps.loc["trend(e)", "mean"] == pytest.approx(slope)
    truth = 50 * np.array([*np.diff(EFFECTS), np.polyfit(range(4), EFFECTS, 1)[0]])
    assert np.all(np.abs(steps["mean"] - truth) < 4 * steps["sd"])


def test_without_an_intercept_every_level_has_a_coefficient(made: Any) -> None:
    fit = made("cost ~ 0 + e + a", ordered=True)
    means = fit.summary()["mean"]
    first = fit.steps().loc["e[school] - e[none]"]
    assert first["mean"] == pytest.approx(means["e[school]"] - means["e[none]"])


def test_the_table_tells_steps_and_trend_below_their_levels(made: Any) -> None:
    fit = made("sick ~ a + e + b", "logistic", ordered=True)
    records = fit.table(prob=0.9).records
    assert [record["label"] for record in records][2:-1] == [
        "Education: school (vs. none)", "Education: college (vs. none)", "Education: doctor (vs. none)",
        "Education: college (vs. school)", "Education: doctor (vs. college)", "Education: trend, per level",
    ]  # fmt: skip
    told = fit.steps("e", prob=0.9).loc["e[doctor] - e[college]"]
    record = records[6]
    assert (record["estimate"], record["lower"], record["odds_ratio_upper"], record["p_sign"]) == pytest.approx(
        (told["mean"], told["lower"], np.exp(told["upper"]), told["p_sign"])
    )
    assert any("Trend" in note for note in fit.table().notes)
    assert "Education: trend, per level" in page(summarize(fit))
    assert len(fit.table(target="table").rows) == len(records)
    assert [row[0] for row in made("sick ~ a + e + b", "logistic").table().rows] == [
        record["label"] for record in records if "college (vs. school)" not in record["label"]
        and "(vs. college)" not in record["label"] and "trend" not in record["label"]
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::dpglm.FitWarning")  # nobody lacks a value, and the fit says so
def test_the_analyst_may_order_levels_and_leave_some_out(made: Any) -> None:
    fit = made(missing="level")
    assert "e[missing]" in fit.names
    assert not fit.steps("e").index.str.contains("missing").any()
    some = fit.steps("e", order=["doctor", "none"])
    assert list(some.index) == ["e[none] - e[doctor]"]  # of two levels the step is the trend
    assert some["mean"].iloc[0] == pytest.approx(-fit.summary().loc["e[doctor]", "mean"])
    for wrong in (["none"], ["none", "none"], ["none", "high"], [["none"], 3], "none"):
        with pytest.raises(InputError, match="order"):
            fit.steps("e", order=wrong)
    for name in ("a", "nothing", 3):
        with pytest.raises(InputError, match="by itself"):
            fit.steps(name)
    with pytest.raises(InputError, match="ordered = true"):
        fit.steps()
    with pytest.raises(InputError, match="must be named"):
        fit.steps(order=LEVELS)


def test_a_sampled_posterior_has_steps_too(made: Any) -> None:
    fit = made(ordered=True)
    robust = dpglm.fit(fit.releases[0], prior={"a": stats.t(4)})
    assert robust.steps()["mean"].to_numpy() == pytest.approx(fit.steps()["mean"].to_numpy(), abs=2.0)
