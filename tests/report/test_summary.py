"""The numbers and the words behind a report."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from dpglm import formats
from dpglm.analyst.priors import NormalPrior, SphericalPrior
from dpglm.analyst.typical import predictors, reference_point, typical
from dpglm.report import words
from dpglm.report.summary import density_of, estimates, summarize


@pytest.mark.parametrize("units", ["original", "scaled"])
def test_estimates_are_those_of_the_fit(make_fit: Any, units: str) -> None:
    fit = make_fit()
    table = fit.summary(units=units, prob=0.9)
    for estimate, (_, row) in zip(estimates(fit, units=units, prob=0.9), table.iterrows(), strict=True):
        assert estimate.mean == row["mean"]
        assert (estimate.lower, estimate.upper) == (row["lower"], row["upper"])
        assert estimate.lower < estimate.inner_lower < estimate.inner_upper < estimate.upper
        assert estimate.p_sign == pytest.approx(row["p_sign"])
        assert estimate.noise_free_share == pytest.approx(1 / row["inflation"])
        assert (estimate.ratio is None) == (units == "scaled")


def test_densities_integrate_to_one_and_hold_zero_where_it_is_near() -> None:
    generator = np.random.default_rng(0)
    near, far = generator.normal(3, 1, 4000), generator.normal(100, 1, 4000)
    for draws in (near, far):
        curve = density_of(draws)
        assert curve is not None
        area = np.sum((curve.y[1:] + curve.y[:-1]) / 2 * np.diff(curve.x))
        assert area == pytest.approx(1, abs=0.01)
        np.testing.assert_allclose(curve.below, [np.mean(draws < x) for x in curve.x])
    assert density_of(near).x[0] <= 0  # type: ignore[union-attr]
    assert density_of(far).x[0] > 90  # type: ignore[union-attr]
    assert density_of(np.ones(100)) is None


@pytest.mark.parametrize("prior", [NormalPrior(0.4, 1.0), SphericalPrior(6.0, 1.0)])
def test_the_priors_density_in_original_units_is_that_of_its_draws(make_fit: Any, prior: Any) -> None:
    import jax

    from dpglm.paper.prior_densities import sampled

    fit = replace(make_fit("linear"), prior=prior)
    draws = np.stack([np.asarray(sampled(prior, fit.names, key)) for key in jax.random.split(jax.random.key(1), 2000)])
    matrix, shift = fit.releases[0].design.to_original_units()
    for units, values in (("scaled", draws), ("original", draws @ matrix.T + shift)):
        for index, estimate in enumerate(estimates(fit, units=units)):
            curve = estimate.density
            inside = np.mean((values[:, index] > curve.x[0]) & (values[:, index] < curve.x[-1]))
            area = np.sum((estimate.prior[1:] + estimate.prior[:-1]) / 2 * np.diff(curve.x))
            # Standard error below 0.012; a prior that is off by a factor of 1.5 in scale would show.
            assert area == pytest.approx(inside, abs=0.05)


def test_the_reference_point_is_public_and_can_be_chosen(make_fit: Any) -> None:
    release = make_fit().releases[0]
    assert reference_point(release) == {"age": 50.0, "group": "p", "treated": 0}
    assert reference_point(release, {"group": "r", "age": "30", "treated": "1"}) == {
        "age": 30.0, "group": "r", "treated": 1,
    }  # fmt: skip
    assert [column.name for column in predictors(release.design)] == ["age", "group", "treated"]


def test_typical_values_are_those_of_the_survey_whatever_the_bounds(looks_fit: Any) -> None:
    """Ages are 20 to 80, declared as 1 to 10,000; counts 0 to 6."""
    release = looks_fit("linear").releases[0]
    columns = release.design.schema.columns
    age = typical(release, columns["age"])
    assert age.centre == pytest.approx(50, abs=6)
    assert (age.low, age.high) == (pytest.approx(15, abs=10), pytest.approx(85, abs=10))
    assert reference_point(release)["age"] == age.centre
    visits = typical(release, columns["visits"])
    assert visits.centre in (2.0, 3.0, 4.0)
    assert visits.low in (0, 1)
    assert visits.high in (4, 5, 6)
    along = {effect.column.name: effect.values for effect in summarize(looks_fit("linear")).effects}
    assert (along["age"][0], along["age"][-1]) == (age.low, age.high)
    assert along["visits"] == tuple(range(int(visits.low), int(visits.high) + 1))


def test_a_column_inside_an_expression_stands_where_the_expression_does(looks_fit: Any) -> None:
    release = looks_fit("linear", "cost ~ log(age)").releases[0]
    age = typical(release, release.design.schema.columns["age"])
    assert 35 < age.centre < 60
    assert 1 <= age.low < 35 < 55 < age.high < 250


def test_of_a_closed_form_what_is_drawn_is_exact(looks_fit: Any) -> None:
    fit = looks_fit()
    for units in ("original", "scaled"):
        for estimate, (mean, stddev) in zip(
            estimates(fit, units=units), fit.normal_marginals(units), strict=True
        ):  # fmt: skip
            assert (estimate.mean, estimate.sd) == (mean, stddev)
            assert estimate.inner_upper - estimate.inner_lower == pytest.approx(2 * 0.67449 * stddev, rel=1e-4)
            assert estimate.p_sign == pytest.approx(NormalDist().cdf(abs(mean) / stddev))
            curve = estimate.density
            np.testing.assert_allclose(curve.y, [NormalDist(mean, stddev).pdf(x) for x in curve.x])
            np.testing.assert_allclose(curve.below, [NormalDist(mean, stddev).cdf(x) for x in curve.x])


def test_the_prior_of_looks_is_around_the_intercept_that_the_survey_shows(looks_fit: Any) -> None:
    fit = looks_fit()
    prior = fit.closed.prior
    assert abs(prior.mean[0]) > 1e-6
    for index, estimate in enumerate(estimates(fit, units="scaled")):
        normal = NormalDist(prior.mean[index], prior.covariance[index, index] ** 0.5)
        np.testing.assert_allclose(estimate.prior, [normal.pdf(x) for x in estimate.density.x])


def test_looks_that_disagree_are_bad_health(looks_fit: Any) -> None:
    fit = looks_fit()
    assert all(each.good for each in summarize(fit).health)
    agreement, *rest = summarize(replace(fit, closed=replace(fit.closed, surprises=np.array([0.4, 1e-6])))).health
    assert not agreement.good
    assert agreement.value == "1e-06"
    assert all(each.good for each in rest)


def test_an_offset_is_held_but_not_walked_along(make_fit: Any) -> None:
    summary = summarize(make_fit("poisson", "visits ~ age + offset(log(cost))"))
    assert [effect.column.name for effect in summary.effects] == ["age"]
    assert summary.reference == {"age": 50.0, "cost": 200.0}


def test_sentences(make_fit: Any) -> None:
    summary = summarize(make_fit())
    sentences = " ".join(words.findings(summary))
    assert "The probability that sick is yes is higher where treated is 1 than where it is 0." in sentences
    assert "yes goes down with age; it is lower where group is r than where it is p." in sentences
    assert "For group: q (vs. p) the 95 % interval holds zero: its sign stays open." in sentences
    # Where columns appear in several terms, a coefficient does not speak for its column.
    assert "goes up" not in " ".join(words.findings(summarize(make_fit("linear"))))
    text = words.inflation_words(summary, "original")
    assert "1.45 to 2.50 times as wide" in text
    assert "480 to 1,400 of the 3,000 rows" in text  # 3000 / 2.5^2 and 3000 / 1.45^2
    assert "logistic regression with logit link" in words.methods(summary)
    assert "(ε = 1, δ = 1e-6)-differential privacy" in words.methods(summary)
    assert words.reproduce(summary).split("\n")[0].endswith("--draws 500 --seed 1 --output again.fit.npz")
    elsewhere = summarize(make_fit(), at={"group": "r"}, prob=0.9)
    assert words.reproduce(elsewhere).split("\n")[1] == (
        "dpglm report again.fit.npz --prob 0.9 --at group=r --output again.html"
    )


def test_health_says_what_is_wrong(make_fit: Any) -> None:
    fit = make_fit()
    assert all(each.good for each in summarize(fit).health)
    few = np.full(len(fit.names), 100.0)
    bad = replace(fit.diagnostics, r_hat=few / 50, ess_bulk=few, divergences=50)
    health = summarize(replace(fit, diagnostics=bad)).health
    assert not any(each.good for each in health)
    assert [each.value for each in health] == ["2.000", "100", "50 of 2,000"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.5, "1234"), (-0.00012345, "−0.000123"), (1e-7, "1.00e−07"), (float("nan"), "n/a"), (2, "2.00")],
)
def test_numbers(value: float, text: str) -> None:
    assert formats.number(value) == text


def test_probabilities_are_never_certain() -> None:
    assert formats.percent(1.0, 4000) == "> 99.9 %"
    assert formats.percent(0.0, 200) == "< 0.5 %"
    assert formats.percent(0.973, 4000) == "97.3 %"
