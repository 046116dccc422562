"""Densities and draws of priors against NumPyro, SciPy and numerical integrals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior
from dpglm.paper.prior_densities import constrained, nearest, sampled, unconstrained

NAMES = ("Intercept", "a", "b")
FREE = jnp.array([0.7, -1.2, 0.4])
CUSTOM = CustomPrior((("a", dist.HalfNormal(0.8)), ("b", dist.Uniform(-1.0, 3.0))))
PRIORS = [NormalPrior(), NormalPrior(0.5, 2.0), SphericalPrior(4.0), CUSTOM]


def test_normal_density_is_scipys() -> None:
    values, density = constrained(NormalPrior(1.5, 4.0), NAMES, FREE)
    np.testing.assert_array_equal(values, FREE)
    np.testing.assert_allclose(density, stats.norm.logpdf(FREE, 0, [4.0, 1.5, 1.5]).sum(), rtol=1e-12)
    # without an intercept every coefficient is a slope
    np.testing.assert_allclose(
        constrained(NormalPrior(1.5, 4.0), ("a", "b"), FREE[1:])[1],
        stats.norm.logpdf(FREE[1:], 0, 1.5).sum(),
        rtol=1e-12,
    )


def test_custom_density_is_numpyros_with_its_jacobian() -> None:
    values, density = constrained(CUSTOM, NAMES, FREE)
    np.testing.assert_allclose(values[1], np.exp(-1.2), rtol=1e-12)
    share = 1 / (1 + np.exp(-0.4))
    np.testing.assert_allclose(values[2], -1 + 4 * share, rtol=1e-12)
    expected = (
        stats.norm.logpdf(0.7, 0, 5.0)
        + stats.halfnorm.logpdf(np.exp(-1.2), scale=0.8) + -1.2
        + np.log(0.25) + np.log(4 * share * (1 - share))
    )  # fmt: skip
    np.testing.assert_allclose(density, expected, rtol=1e-10)


@pytest.mark.parametrize("position", [1, 2])
def test_custom_density_integrates_to_one(position: int) -> None:
    """Over the free coordinate, so a missing or wrong Jacobian shows."""

    grid = np.linspace(-30, 30, 4001)
    values = jax.vmap(lambda n: constrained(CUSTOM, NAMES, jnp.zeros(3).at[position].set(n))[1])(jnp.asarray(grid))
    one = integrate.simpson(np.exp(np.asarray(values)), x=grid)
    other = {1: np.log(0.25) + np.log(4 * 0.25), 2: stats.halfnorm.logpdf(1, scale=0.8)}[position]
    np.testing.assert_allclose(one, np.exp(stats.norm.logpdf(0, 0, 5.0) + other), rtol=1e-6)


@pytest.mark.parametrize("bound", [0.5, 3.0, 9.0])
def test_spherical_slopes_are_a_normal_inside_a_ball_in_one_dimension(bound: float) -> None:
    """E[f(slope)] by an integral over the free line, against the truncated normal."""
    prior, grid = SphericalPrior(bound), jnp.linspace(-8, 8, 40_001)
    values, density = jax.vmap(lambda v: constrained(prior, ("a",), v[None]))(grid)
    weights = np.exp(np.asarray(density))
    weights /= weights.sum()
    radius = np.sqrt(bound)
    truncated = stats.truncnorm(-radius, radius)
    for power in (2, 4):
        np.testing.assert_allclose(weights @ np.asarray(values[:, 0]) ** power, truncated.moment(power), rtol=2e-4)
    np.testing.assert_allclose(weights @ (np.asarray(values[:, 0]) < 0.3), truncated.cdf(0.3), atol=1e-3)


def test_spherical_slopes_in_two_dimensions() -> None:
    """In polar coordinates of the free plane: the norm's distribution is a truncated chi-square with the Jacobian."""
    prior, names, bound = SphericalPrior(2.0), ("Intercept", "a", "b"), 2.0
    radii = jnp.exp(jnp.linspace(-12, 12, 20_001))
    direction = jnp.array([0.6, 0.8])
    values, density = jax.vmap(lambda r: constrained(prior, names, jnp.concatenate([jnp.zeros(1), r * direction])))(
        radii
    )
    weights = np.exp(np.asarray(density)) * np.asarray(radii) ** 2  # r dr on a logarithmic grid
    weights /= weights.sum()
    squared = np.sum(np.asarray(values[:, 1:]) ** 2, axis=1)
    assert squared.max() <= bound * (1 + 1e-12)
    for point in (0.2, 1.0, 1.7):
        expected = stats.chi2.cdf(point, 2) / stats.chi2.cdf(bound, 2)
        np.testing.assert_allclose(weights @ (squared < point), expected, atol=2e-3)
    # the intercept is a normal of its own, and directions are equal
    moved = (
        constrained(prior, names, jnp.array([2.0, 0.6, 0.8]))[1]
        - constrained(prior, names, jnp.array([0.0, 1.0, 0.0]))[1]
    )
    np.testing.assert_allclose(moved, -0.5 * (2.0 / 5.0) ** 2, rtol=1e-12)


def test_wrong_jacobian_would_be_seen() -> None:
    """Power of the check above: without the part (d - 1) log(erf / t) the distribution function is off."""
    prior, radii = SphericalPrior(2.0), np.exp(np.linspace(-12, 3, 20_001))
    squared = 2.0 * special.erf(radii / np.sqrt(2)) ** 2
    weights = np.exp(-0.5 * squared - 0.5 * radii**2) * radii**2
    weights /= weights.sum()
    expected = stats.chi2.cdf(1.0, 2) / stats.chi2.cdf(prior.largest_squared_norm, 2)
    assert abs(weights @ (squared < 1.0) - expected) > 0.05  # the check allows 0.002


def test_spherical_map_is_smooth_at_zero_and_where_its_series_ends() -> None:
    """Derivatives by JAX against differences, through the centre of the ball and across the change of formula."""
    prior, names = SphericalPrior(2.0), ("a", "b", "c")
    of_line = lambda t: constrained(prior, names, t * jnp.array([0.6, 0.0, 0.8]))[1]  # noqa: E731
    slope = jax.grad(of_line)
    assert float(slope(0.0)) == 0.0
    for point in (1e-9, 1e-3, np.sqrt(1e-3) - 1e-9, np.sqrt(1e-3) + 1e-9, 0.5, 4.0):
        step = 1e-4 * max(point, 0.01)
        by_differences = (of_line(point + step) - of_line(point - step)) / (2 * step)
        np.testing.assert_allclose(slope(point), by_differences, rtol=1e-5, atol=1e-9)
        second = (slope(point + step) - slope(point - step)) / (2 * step)
        np.testing.assert_allclose(jax.grad(slope)(point), second, rtol=1e-5, atol=1e-6)


def test_nearest_coefficients_in_the_ball() -> None:
    """Outside: on the edge, in the same direction, and no point of the ball is nearer. Inside: the same."""
    prior, outside = SphericalPrior(4.0), jnp.array([7.0, -3.0, 8.0])
    found = np.asarray(nearest(prior, NAMES, outside))
    assert found[0] == 7.0
    np.testing.assert_allclose(found[1:], 2 * np.array([-3.0, 8.0]) / np.hypot(3, 8))
    inside = jnp.array([7.0, 0.3, -0.4])
    np.testing.assert_array_equal(nearest(prior, NAMES, inside), inside)
    np.testing.assert_array_equal(nearest(prior, NAMES, jnp.zeros(3)), np.zeros(3))


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: type(prior).__name__)
def test_unconstrain_is_the_inverse(prior: Any) -> None:
    for free in (FREE, 0.2 * FREE, jnp.array([3.0, 0.5, -1.0])):
        np.testing.assert_allclose(unconstrained(prior, NAMES, constrained(prior, NAMES, free)[0]), free, atol=1e-9)


def test_unconstrain_outside_the_support_is_finite() -> None:
    outside = jnp.array([1.0, -3.0, 8.0])
    for prior in PRIORS:
        free = unconstrained(prior, NAMES, outside)
        assert np.isfinite(np.asarray(free)).all()
        assert np.isfinite(float(constrained(prior, NAMES, free)[1]))
    inside = constrained(SphericalPrior(4.0), NAMES, unconstrained(SphericalPrior(4.0), NAMES, outside))[0]
    np.testing.assert_allclose(jnp.sum(inside[1:] ** 2), 0.81 * 4.0, rtol=1e-9)
    zero = unconstrained(SphericalPrior(4.0), NAMES, jnp.zeros(3))
    np.testing.assert_array_equal(zero, np.zeros(3))


def test_sample_has_the_prior_distribution() -> None:
    """Kolmogorov-Smirnov, 2,000 draws, fixed seed: each test fails for 1 in 1,000 seeds; a scale off by 20 % fails."""
    keys = jax.random.split(jax.random.key(5), 2000)
    normal = np.asarray(jax.vmap(lambda key: sampled(NormalPrior(), NAMES, key))(keys))
    assert stats.kstest(normal[:, 0], stats.norm(0, 5.0).cdf).pvalue > 1e-3
    assert stats.kstest(normal[:, 1], stats.norm(0, 2.5).cdf).pvalue > 1e-3
    assert stats.kstest(normal[:, 1], stats.norm(0, 3.0).cdf).pvalue < 1e-3
    custom = np.asarray(jax.vmap(lambda key: sampled(CUSTOM, NAMES, key))(keys))
    assert stats.kstest(custom[:, 1], stats.halfnorm(scale=0.8).cdf).pvalue > 1e-3
    assert stats.kstest(custom[:, 2], stats.uniform(-1, 4).cdf).pvalue > 1e-3
    spherical = np.stack([np.asarray(sampled(SphericalPrior(2.0), NAMES, key)) for key in keys[:500]])
    squared = (spherical[:, 1:] ** 2).sum(axis=1)
    assert squared.max() <= 2.0
    assert stats.kstest(squared, lambda s: stats.chi2.cdf(s, 2) / stats.chi2.cdf(2.0, 2)).pvalue > 1e-3
    angle = np.arctan2(spherical[:, 2], spherical[:, 1])
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    assert stats.kstest(spherical[:, 0], stats.norm(0, 5.0).cdf).pvalue > 1e-3
