"""Priors that are not normal: sampled, against the closed form and against rejection sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dpglm
from dpglm.analyst.other_priors import sampled
from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior, distribution_text
from dpglm.errors import InputError
from dpglm.looks.gaussian import Gaussian

Made = Callable[..., dpglm.Release]
NAMES = ("Intercept", "a", "b")


def statement(scale: float = 1.0) -> Gaussian:
    """A likelihood of three coefficients."""
    precision = np.array([[4.0, 0.5, 0.0], [0.5, 3.0, -1.0], [0.0, -1.0, 2.0]]) / scale**2
    return Gaussian(precision, precision @ np.array([1.0, 0.8, -0.6]))


def drawn(likelihood: Gaussian, prior: Any, centre: np.ndarray, seed: int = 1) -> np.ndarray:
    return sampled(likelihood, prior, NAMES, centre, (4, 5000), seed).reshape(-1, 3)


def assert_same(draws: np.ndarray, others: np.ndarray) -> None:
    """Means within five standard errors of both (of draws that count a fifth), standard deviations within 8 %."""
    error = np.sqrt(5 * draws.var(axis=0) / len(draws) + others.var(axis=0) / len(others))
    assert (np.abs(draws.mean(axis=0) - others.mean(axis=0)) < 5 * error).all()
    np.testing.assert_allclose(draws.std(axis=0), others.std(axis=0), rtol=0.08)


def same(draws: np.ndarray, others: np.ndarray) -> bool:
    try:
        assert_same(draws, others)
    except AssertionError:
        return False
    return True


def normals(likelihood: Gaussian, scales: np.ndarray, centre: np.ndarray, size: int = 200_000) -> np.ndarray:
    precision = likelihood.precision + np.diag(scales**-2.0)
    mean = np.linalg.solve(precision, likelihood.shift + centre / scales**2)
    return np.random.default_rng(9).multivariate_normal(mean, np.linalg.inv(precision), size)


CENTRE = np.array([0.7, 0.0, 0.0])


@pytest.mark.parametrize("others", [NormalPrior(2.5, 5.0), NormalPrior(0.5, 5.0)], ids=["wide", "narrow"])
def test_a_normal_prior_that_is_sampled_is_the_closed_form(others: NormalPrior) -> None:
    """Whatever normal distribution stands in for it on the way."""
    import scipy.stats

    prior = CustomPrior((("a", scipy.stats.norm(0, 0.5)), ("b", scipy.stats.norm(0, 1.5))), others)
    expected = normals(statement(), np.array([5.0, 0.5, 1.5]), CENTRE)
    draws = drawn(statement(), prior, CENTRE)
    assert_same(draws, expected)
    np.testing.assert_allclose(np.cov(draws.T), np.cov(expected.T), atol=0.03)
    assert not same(draws, normals(statement(), np.array([5.0, 0.5, 3.0]), CENTRE))  # another prior is noticed
    assert not same(draws, normals(statement(), np.array([5.0, 0.5, 1.5]), CENTRE + np.array([0, 0, 1.0])))


@pytest.mark.parametrize("bound", [0.3, 2.0, 50.0])
def test_a_ball_is_never_left_and_agrees_with_rejection(bound: float) -> None:
    prior = SphericalPrior(bound, 4.0)
    draws = drawn(statement(), prior, CENTRE)
    assert (np.sum(draws[:, 1:] ** 2, axis=1) <= bound).all()
    free = normals(statement(), np.array([4.0, 1.0, 1.0]), CENTRE, 400_000)
    inside = free[np.sum(free[:, 1:] ** 2, axis=1) <= bound]
    assert len(inside) > 5000
    assert_same(draws, inside)
    assert bound > 10 or not same(draws, free)


def test_distributions_with_other_supports_agree_with_rejection() -> None:
    """Half-normal, uniform and Student: weighed normal draws."""
    import scipy.stats

    given = {"Intercept": scipy.stats.t(3, 0, 1), "a": scipy.stats.halfnorm(0, 0.7), "b": scipy.stats.uniform(-1, 1.2)}
    draws = drawn(statement(), CustomPrior(tuple(given.items())), CENTRE)
    rng = np.random.default_rng(5)
    free = rng.multivariate_normal(statement().mean, statement().covariance, 600_000)
    weight = np.prod([given[name].pdf(free[:, n] - CENTRE[n]) for n, name in enumerate(NAMES)], axis=0)
    expected = free[rng.choice(len(free), 60_000, p=weight / weight.sum())]
    assert_same(draws, expected)
    assert draws[:, 1].min() >= 0
    assert (np.abs(draws[:, 2] + 0.4) <= 0.6).all()
    assert not same(draws, free)


def test_numpyros_distributions_are_those_of_scipy() -> None:
    dist = pytest.importorskip("numpyro.distributions", reason="NumPyro is not installed")
    import scipy.stats

    theirs = CustomPrior((("a", dist.HalfNormal(0.7)), ("b", dist.Uniform(-1.0, 0.2))))
    own = CustomPrior((("a", scipy.stats.halfnorm(0, 0.7)), ("b", scipy.stats.uniform(-1, 1.2))))
    np.testing.assert_allclose(drawn(statement(), theirs, CENTRE), drawn(statement(), own, CENTRE), atol=1e-3)


def test_fits_take_them(released: Made) -> None:
    """And the closed form is what they come to where they are the default."""
    import scipy.stats

    release = released("poisson")
    plain = dpglm.fit(release, progress=False)
    names = [name for name in plain.names if name != "Intercept"]
    same_prior = dpglm.fit(
        release, prior={name: scipy.stats.norm(0, 2.5) for name in names}, draws=2000, progress=False
    )
    assert same_prior.method == "sampled prior"
    own, closed = same_prior.summary(), plain.summary()
    assert list(own.columns) == list(closed.columns)
    assert ((own["mean"] - closed["mean"]).abs() < 0.1 * closed["sd"]).all()
    np.testing.assert_allclose(own["sd"], closed["sd"], rtol=0.08)
    positive = dpglm.fit(release, prior={"g[yes]": scipy.stats.halfnorm(0, 1)}, progress=False)
    assert (positive.draws()[..., 3] > 0).all()
    assert plain.summary().loc["g[yes]", "mean"] < 0


def test_what_is_no_distribution_of_one_number_is_refused(released: Made) -> None:
    import scipy.stats

    for prior, part in (
        ({"height": scipy.stats.norm()}, "is not a coefficient"),
        ({"a": scipy.stats.norm([0, 1], 1)}, "must be a distribution of one number"),
        ({"a": scipy.stats.poisson(3)}, "must be a continuous"),
        ({"a": 3.0}, "must be a continuous"),
        (3, "must be None"),
    ):
        with pytest.raises(InputError, match=part):
            dpglm.fit(released(), prior=prior, progress=False)


def test_a_distribution_of_scipy_has_a_text() -> None:
    import scipy.stats

    assert distribution_text(scipy.stats.norm(0, 2.5)) == "norm(0, 2.5)"
    assert distribution_text(scipy.stats.t(3, scale=2)) == "t(3, scale=2)"
