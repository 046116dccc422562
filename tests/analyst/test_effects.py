"""Predictions, contrasts and average effects of a normal posterior: exact, the same for every seed, and by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import dpglm
from dpglm.analyst.closed_form import NormalDraws
from dpglm.analyst.marginal import TYPICAL_ROWS, typical_rows
from dpglm.errors import InputError

Released = Callable[..., dpglm.Release]
LINKS: dict[str, Any] = {"logistic": lambda u: 1 / (1 + np.exp(-u)), "poisson": np.exp, "linear": lambda u: u}
ROWS = {"a": [2.0, 10.0, 18.0], "b": [0.1, 0.5, 0.9], "g": ["no", "yes", "no"]}


def many_draws(fit: dpglm.Fit) -> np.ndarray:
    mean, covariance = fit.normal()  # type: ignore[misc]
    return np.random.default_rng(0).multivariate_normal(mean, covariance, 150_000)


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_a_prediction_is_that_of_very_many_draws_whatever_the_seed(released: Released, family: str) -> None:
    fit = dpglm.fit(released(family), seed=1)
    x = np.column_stack([np.ones(3), ROWS["a"], ROWS["b"], [cell == "yes" for cell in ROWS["g"]]])
    expected = LINKS[family](x @ many_draws(fit).T)
    told = fit.predict(ROWS, prob=0.9)
    width = np.diff(np.quantile(expected, [0.05, 0.95], axis=1), axis=0)[0]
    np.testing.assert_allclose((told["mean"] - expected.mean(axis=1)) / width, 0, atol=0.008)
    np.testing.assert_allclose(told["sd"], expected.std(axis=1), rtol=0.01)
    for end, rank in (("lower", 0.05), ("upper", 0.95)):
        np.testing.assert_allclose((told[end] - np.quantile(expected, rank, axis=1)) / width, 0, atol=0.015)
    assert told.equals(dpglm.fit(released(family), seed=2).predict(ROWS, prob=0.9))


def test_profiles_stand_at_what_is_typical_by_the_survey(released: Released) -> None:
    release = released()
    fit = dpglm.fit(release)
    survey = release.survey.set_index(["column", "level"])  # type: ignore[union-attr]
    told = fit.predict_at({"a": [5, 15], "g": ["no", "yes"]})
    assert told[["a", "g"]].to_numpy().tolist() == [[5, "no"], [5, "yes"], [15, "no"], [15, "yes"]]
    assert told["b"].nunique() == 1
    assert told["b"].iloc[0] == pytest.approx(survey["centre"].loc["b"].iloc[0], abs=0.05)
    np.testing.assert_array_equal(told["mean"], fit.predict(told[["a", "b", "g"]])["mean"])
    (alone,) = fit.predict_at()["g"]
    assert survey["share"].loc[("g", alone)] > 0.5
    rarer = {"g": {"type": "binary", "levels": ["no", "yes"], "reference": "yes", "fill": "no"}}
    assert list(dpglm.fit(released(columns=rarer)).predict_at()["g"]) == ["no"]  # not the reference
    for at, part in (
        ({"c": 1}, "must name a predictor"), ({"a": []}, "is empty"), ({"a": 999}, "must lie in"), (7, "a dict"),
        ({"a": np.linspace(0, 9, 1000), "b": np.linspace(0, 1, 1000)}, "more than 100,000"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=part):
            fit.predict_at(at)  # type: ignore[arg-type]


def test_two_profiles_differ_as_their_coefficients_say(released: Released) -> None:
    linear, counts = dpglm.fit(released("linear")), dpglm.fit(released("poisson"), seed=3)
    told = linear.difference_at({"a": 12}, {"a": 2}).loc["difference"]
    exact = linear.contrast({"a": 10})
    assert told["mean"] == pytest.approx(exact["mean"], rel=1e-9)
    np.testing.assert_allclose([told["lower"], told["upper"]], [exact["lower"], exact["upper"]], rtol=0.03)
    ratio = counts.difference_at({"g": "yes"}, {"g": "no"}).loc["ratio"]
    row = counts.summary().loc["g[yes]"]
    assert ratio["median"] == pytest.approx(row["rate_ratio"], rel=0.005)
    assert ratio["upper"] == pytest.approx(row["rate_ratio_upper"], rel=0.02)
    assert list(linear.difference_at({"a": 1}).index) == ["difference"]
    with pytest.raises(InputError, match="must be one profile"):
        linear.difference_at({"a": [1, 2]})


def test_a_probability_is_that_of_the_normal_posterior(released: Released) -> None:
    fit = dpglm.fit(released(), seed=1)
    mean, covariance = fit.normal()  # type: ignore[misc]
    normal = NormalDist(10 * mean[1], 10 * covariance[1, 1] ** 0.5)
    assert fit.probability({"a": 10}, above=0.9) == pytest.approx(1 - normal.cdf(0.9))
    assert fit.probability({"a": 10}, above=1.1, below=3, ratio=True) == pytest.approx(
        normal.cdf(np.log(3)) - normal.cdf(np.log(1.1))
    )
    assert fit.probability("a", above=0) == pytest.approx(fit.summary()["p_sign"]["a"])
    assert fit.probability("a", below=0) + fit.probability("a", above=0) == pytest.approx(1)
    assert 0 < fit.probability("a", above=mean[1] + 20 * covariance[1, 1] ** 0.5) < 1e-80  # no digits are lost
    contrast = fit.contrast({"a": 10})
    assert (contrast["mean"], contrast["sd"]) == (pytest.approx(normal.mean), pytest.approx(normal.stdev))
    sampled = replace(fit, method="sampled prior")
    assert sampled.probability({"a": 10}, above=0.9) == pytest.approx(1 - normal.cdf(0.9), abs=0.03)
    for given, part in (
        ({}, "below must be given"), ({"above": "x"}, "must be a number"), ({"above": 2, "below": 1}, "less than"),
        ({"above": -1, "ratio": True}, "above 0"), ({"above": float("nan")}, "must be a number"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=part):
            fit.probability("a", **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no meaning for the identity link"):
        dpglm.fit(released("linear")).probability("a", above=1, ratio=True)


def test_typical_rows_are_spread_as_the_survey_says(released: Released) -> None:
    release = released()
    survey = release.survey.set_index(["column", "level"])  # type: ignore[union-attr]
    rows = typical_rows(release)
    assert np.median(rows["a"]) == pytest.approx(survey["centre"].loc["a"].iloc[0], abs=0.1)
    assert rows["a"].std() == pytest.approx(survey["scale"].loc["a"].iloc[0], rel=0.02)
    assert rows["g"].mean() == pytest.approx(survey["share"].loc[("g", "yes")], abs=0.005)
    assert rows["b"].min() >= 0
    assert rows["b"].max() <= 1
    assert abs(np.corrcoef(list(rows.values())) - np.eye(3)).max() < 0.2
    logged = typical_rows(released(formula="sick ~ log(b + 1)"))
    place = released(formula="sick ~ log(b + 1)").survey_record.survey.places[1]  # type: ignore[union-attr]
    assert np.median(np.log(logged["b"] + 1)) == pytest.approx(place.centre, abs=0.01)


def test_the_average_effect_of_a_linear_model_is_its_coefficient(released: Released) -> None:
    fit = dpglm.fit(released("linear"))
    effects, rows = fit.marginal_effects(per={"a": 10, "b": 0.2}), fit.table(per={"a": 10, "b": 0.2}).records[1:]
    assert list(effects.index) == ["a, 10 more", "b, 0.2 more", "g: yes (vs. no)"]
    np.testing.assert_allclose(effects["mean"], [row["estimate"] for row in rows], rtol=1e-9)
    np.testing.assert_allclose(effects["sd"], [row["sd"] for row in rows], rtol=0.06)
    assert effects["p_sign"].tolist() == [row["p_sign"] for row in rows]


@pytest.mark.parametrize(
    ("family", "formula"), [("logistic", "sick ~ a * g + b"), ("poisson", "visits ~ a + log(b + 1) + g")]
)
def test_average_effects_are_those_by_hand(released: Released, family: str, formula: str) -> None:
    """Over given rows, at each of very many draws; ``a`` moves by two around where it is."""
    fit = dpglm.fit(released(family, formula=formula), seed=1)
    draws = many_draws(fit)[:20_000]

    def outcome(a: np.ndarray, g: np.ndarray) -> np.ndarray:
        b, one = np.array(ROWS["b"]), np.ones(3)
        columns = [one, a, g, b, a * g] if family == "logistic" else [one, a, np.log(b + 1), g]
        return np.asarray(LINKS[family](np.stack(columns).T @ draws.T).mean(axis=0))

    a, g = np.array(ROWS["a"]), np.array([0.0, 1.0, 0.0])
    told = fit.marginal_effects(per={"a": 2}, rows=ROWS)
    for label, by_hand in (
        ("a, 2 more", outcome(a + 1, g) - outcome(a - 1, g)),
        ("g: yes (vs. no)", outcome(a, g + 1 - g) - outcome(a, 0 * g)),
    ):
        assert told.loc[label, "mean"] == pytest.approx(by_hand.mean(), abs=0.1 * by_hand.std())
        assert told.loc[label, "sd"] == pytest.approx(by_hand.std(), rel=0.06)
        assert told.loc[label, "upper"] == pytest.approx(np.quantile(by_hand, 0.975), abs=0.15 * by_hand.std())
    assert told.attrs["rows"] == "averaged over the rows that were given"
    over_typical = fit.marginal_effects()
    assert over_typical.attrs["rows"] == TYPICAL_ROWS
    assert over_typical.equals(dpglm.fit(released(family, formula=formula), seed=8).marginal_effects())


def test_a_step_at_a_bound_is_taken_inside_it(released: Released) -> None:
    fit = dpglm.fit(released("linear"))
    row = {"a": [60.0, -40.0], "b": [0.5, 0.5], "g": ["no", "no"]}
    assert fit.marginal_effects(per={"a": 10}, rows=row)["mean"].iloc[0] == pytest.approx(
        10 * fit.summary()["mean"]["a"]
    )


def test_without_a_survey_rows_are_asked_for(released: Released) -> None:
    fit = dpglm.fit(released())
    without = replace(fit, releases=(replace(fit.releases[0], survey_record=None),))
    with pytest.raises(InputError, match="has no survey"):
        without.marginal_effects()
    assert len(without.marginal_effects(rows=ROWS)) == 3
    with pytest.raises(InputError, match="at least one row"):
        fit.marginal_effects(rows={"a": [], "b": [], "g": []})


def test_draws_are_only_made_where_they_are_needed(released: Released, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exact does not wait for them, and cannot depend on them."""
    fit = dpglm.fit(released())

    def refuse(self: NormalDraws) -> Any:
        raise AssertionError("draws were made")

    monkeypatch.setattr(NormalDraws, "made", refuse)
    fit.predict(ROWS), fit.contrast({"a": 1}), fit.probability("a", above=0), fit.predict_at({"a": 3})
