"""Priors against NumPyro, SciPy and numerical integrals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior, distribution_text, prior_of
from dpglm.errors import InputError

NAMES = ("Intercept", "a", "b")
FREE = jnp.array([0.7, -1.2, 0.4])
CUSTOM = CustomPrior((("a", dist.HalfNormal(0.8)), ("b", dist.Uniform(-1.0, 3.0))))
PRIORS = [NormalPrior(), NormalPrior(0.5, 2.0), SphericalPrior(4.0), CUSTOM]


def test_normal_density_is_scipys() -> None:
    values, density = NormalPrior(1.5, 4.0).constrain(NAMES, FREE)
    np.testing.assert_array_equal(values, FREE)
    np.testing.assert_allclose(density, stats.norm.logpdf(FREE, 0, [4.0, 1.5, 1.5]).sum(), rtol=1e-12)
    # without an intercept every coefficient is a slope
    np.testing.assert_allclose(
        NormalPrior(1.5, 4.0).constrain(("a", "b"), FREE[1:])[1], stats.norm.logpdf(FREE[1:], 0, 1.5).sum(), rtol=1e-12
    )


def test_custom_density_is_numpyros_with_its_jacobian() -> None:
    values, density = CUSTOM.constrain(NAMES, FREE)
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
    values = jax.vmap(lambda n: CUSTOM.constrain(NAMES, jnp.zeros(3).at[position].set(n))[1])(jnp.asarray(grid))
    one = integrate.simpson(np.exp(np.asarray(values)), x=grid)
    other = {1: np.log(0.25) + np.log(4 * 0.25), 2: stats.halfnorm.logpdf(1, scale=0.8)}[position]
    np.testing.assert_allclose(one, np.exp(stats.norm.logpdf(0, 0, 5.0) + other), rtol=1e-6)


@pytest.mark.parametrize("bound", [0.5, 3.0, 9.0])
def test_spherical_slopes_are_a_normal_inside_a_ball_in_one_dimension(bound: float) -> None:
    """E[f(slope)] by an integral over the free line, against the truncated normal."""
    prior, grid = SphericalPrior(bound), jnp.linspace(-8, 8, 40_001)
    values, density = jax.vmap(lambda v: prior.constrain(("a",), v[None]))(grid)
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
    values, density = jax.vmap(lambda r: prior.constrain(names, jnp.concatenate([jnp.zeros(1), r * direction])))(radii)
    weights = np.exp(np.asarray(density)) * np.asarray(radii) ** 2  # r dr on a logarithmic grid
    weights /= weights.sum()
    squared = np.sum(np.asarray(values[:, 1:]) ** 2, axis=1)
    assert squared.max() <= bound * (1 + 1e-12)
    for point in (0.2, 1.0, 1.7):
        expected = stats.chi2.cdf(point, 2) / stats.chi2.cdf(bound, 2)
        np.testing.assert_allclose(weights @ (squared < point), expected, atol=2e-3)
    # the intercept is a normal of its own, and directions are equal
    moved = (
        prior.constrain(names, jnp.array([2.0, 0.6, 0.8]))[1] - prior.constrain(names, jnp.array([0.0, 1.0, 0.0]))[1]
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
    of_line = lambda t: prior.constrain(names, t * jnp.array([0.6, 0.0, 0.8]))[1]  # noqa: E731
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
    nearest = np.asarray(prior.nearest(NAMES, outside))
    assert nearest[0] == 7.0
    np.testing.assert_allclose(nearest[1:], 2 * np.array([-3.0, 8.0]) / np.hypot(3, 8))
    inside = jnp.array([7.0, 0.3, -0.4])
    np.testing.assert_array_equal(prior.nearest(NAMES, inside), inside)
    np.testing.assert_array_equal(prior.nearest(NAMES, jnp.zeros(3)), np.zeros(3))


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: type(prior).__name__)
def test_unconstrain_is_the_inverse(prior: Any) -> None:
    for free in (FREE, 0.2 * FREE, jnp.array([3.0, 0.5, -1.0])):
        np.testing.assert_allclose(prior.unconstrain(NAMES, prior.constrain(NAMES, free)[0]), free, atol=1e-9)


def test_unconstrain_outside_the_support_is_finite() -> None:
    outside = jnp.array([1.0, -3.0, 8.0])
    for prior in PRIORS:
        free = prior.unconstrain(NAMES, outside)
        assert np.isfinite(np.asarray(free)).all()
        assert np.isfinite(float(prior.constrain(NAMES, free)[1]))
    inside = SphericalPrior(4.0).constrain(NAMES, SphericalPrior(4.0).unconstrain(NAMES, outside))[0]
    np.testing.assert_allclose(jnp.sum(inside[1:] ** 2), 0.81 * 4.0, rtol=1e-9)
    zero = SphericalPrior(4.0).unconstrain(NAMES, jnp.zeros(3))
    np.testing.assert_array_equal(zero, np.zeros(3))


def test_sample_has_the_prior_distribution() -> None:
    """Kolmogorov-Smirnov, 2,000 draws, fixed seed: each test fails for 1 in 1,000 seeds; a scale off by 20 % fails."""
    keys = jax.random.split(jax.random.key(5), 2000)
    normal = np.asarray(jax.vmap(lambda key: NormalPrior().sample(NAMES, key))(keys))
    assert stats.kstest(normal[:, 0], stats.norm(0, 5.0).cdf).pvalue > 1e-3
    assert stats.kstest(normal[:, 1], stats.norm(0, 2.5).cdf).pvalue > 1e-3
    assert stats.kstest(normal[:, 1], stats.norm(0, 3.0).cdf).pvalue < 1e-3
    custom = np.asarray(jax.vmap(lambda key: CUSTOM.sample(NAMES, key))(keys))
    assert stats.kstest(custom[:, 1], stats.halfnorm(scale=0.8).cdf).pvalue > 1e-3
    assert stats.kstest(custom[:, 2], stats.uniform(-1, 4).cdf).pvalue > 1e-3
    spherical = np.stack([np.asarray(SphericalPrior(2.0).sample(NAMES, key)) for key in keys[:500]])
    squared = (spherical[:, 1:] ** 2).sum(axis=1)
    assert squared.max() <= 2.0
    assert stats.kstest(squared, lambda s: stats.chi2.cdf(s, 2) / stats.chi2.cdf(2.0, 2)).pvalue > 1e-3
    angle = np.arctan2(spherical[:, 2], spherical[:, 1])
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    assert stats.kstest(spherical[:, 0], stats.norm(0, 5.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    "prior",
    [NormalPrior(slopes=0.7), SphericalPrior(3.45), SphericalPrior(1e3), CustomPrior((("a", dist.Normal(2.0, 0.3)),))],
)
def test_a_normal_like_it_has_its_mean_and_covariance(prior: Any) -> None:
    draws = np.array([prior.sample(NAMES, key) for key in jax.random.split(jax.random.key(2), 1_500)])
    mean, covariance = prior.as_normal(NAMES)
    scales = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.1 * scales.max())
    np.testing.assert_allclose(draws.std(axis=0), scales, rtol=0.07)
    assert np.count_nonzero(covariance - np.diag(np.diag(covariance))) == 0


def test_a_normal_like_a_heavy_tailed_prior_is_as_wide_as_its_middle() -> None:
    mean, covariance = CustomPrior((("a", dist.Cauchy(1.0, 0.5)),)).as_normal(NAMES)
    assert mean[1] == pytest.approx(1.0, abs=0.1)
    assert covariance[1, 1] == pytest.approx((0.5 * np.tan(np.pi * 0.3413)) ** 2, rel=0.2)


def test_prior_of_takes_what_a_user_may_pass() -> None:
    assert prior_of(None, NAMES) == prior_of("normal", NAMES) == NormalPrior()
    for prior in PRIORS:
        assert prior_of(prior, NAMES) is prior
    normal = dist.Normal(0.0, 1.0)
    assert prior_of({"a": normal}, NAMES) == CustomPrior((("a", normal),))


@pytest.mark.parametrize(
    ("prior", "part"),
    [
        ("horseshoe", "prior = horseshoe"),
        (3.0, "prior = 3.0"),
        (dist.Normal(0.0, 1.0), "must be None"),
        ({"c": dist.Normal(0.0, 1.0)}, "c: is not a coefficient of this model (Intercept, a, b)"),
        ({"a": 2.0}, "continuous NumPyro distribution"),
        ({"a": dist.Bernoulli(0.5)}, "continuous NumPyro distribution"),
        ({"a": dist.Delta(0.5)}, "is a single point, which cannot be sampled; use a narrow one"),
        ({"a": dist.Normal(jnp.zeros(2), 1.0)}, "of one number"),
        ({"a": dist.Dirichlet(jnp.ones(3))}, "of one number"),
        (CustomPrior((("z", dist.Normal(0.0, 1.0)),)), "z: is not a coefficient"),
    ],
)
def test_prior_of_refuses_in_one_line(prior: Any, part: str) -> None:
    with pytest.raises(InputError) as caught:
        prior_of(prior, NAMES)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan"), "2", True])
def test_scales_must_be_positive_numbers(scale: Any) -> None:
    for make in (
        lambda: NormalPrior(slopes=scale),
        lambda: NormalPrior(intercept=scale),
        lambda: SphericalPrior(scale),
        lambda: SphericalPrior(1.0, intercept=scale),
    ):
        with pytest.raises(InputError, match="must be a number above 0"):
            make()


@pytest.mark.parametrize(
    ("distribution", "text"),
    [
        (dist.Normal(0, 0.7), "Normal(loc=0, scale=0.7)"),
        (dist.StudentT(3.0), "StudentT(df=3, loc=0, scale=1)"),
        (dist.TruncatedNormal(0, 1, low=0), "LeftTruncatedDistribution(Normal(loc=0, scale=1), low=0)"),
        (
            dist.TruncatedCauchy(0, 2, low=-1, high=3),
            "TwoSidedTruncatedDistribution(Cauchy(loc=0, scale=2), low=-1, high=3)",
        ),
        (dist.LogNormal(0, 0.5), "LogNormal(loc=0, scale=0.5)"),
        (dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.ExpTransform()), "TransformedDistribution"),
        (dist.Normal(np.zeros(2), 1.0), "Normal"),
        ("Normal(loc=0, scale=0.7)", "Normal(loc=0, scale=0.7)"),
    ],
)
def test_a_distribution_is_told_as_it_is_written(distribution: object, text: str) -> None:
    assert distribution_text(distribution) == text
