"""The table H[q, j] against independent quadrature, and its own differential equations."""

from __future__ import annotations

import math
from functools import cache, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from scipy import special

from dpglm.errors import InputError
from dpglm.paper.outcomes import Outcome, outcome_integrals, outcome_moments, outcome_of

LOGIT = outcome_of("logistic", "logit", (-1, 1))
PROBIT = outcome_of("logistic", "probit", (-1, 1))
LINEAR = outcome_of("linear", None, (-1, 1))
LOG_ONE, LOG_FEW, LOG_MANY = (outcome_of("poisson", "log", (0, bound)) for bound in (1, 8, 60))
SOFTPLUS_FEW, SOFTPLUS_MANY = (outcome_of("poisson", "softplus", (0, bound)) for bound in (8, 60))
OUTCOMES = [LOGIT, PROBIT, LINEAR, LOG_ONE, LOG_FEW, LOG_MANY, SOFTPLUS_FEW, SOFTPLUS_MANY]
SPREADS = {"logistic": (1.0,), "poisson": (1.0, 1.3, 6.0), "linear": (0.05, 0.6)}
SWITCHES = {"logit": (0.16, 2.25), "log": (0.2025 / 11, 0.25), "softplus": (0.16, 16.0)}  # variances; log: bound 8


def named(outcome: Outcome) -> str:
    return f"{outcome.link}-{outcome.high:g}"


each_outcome = pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
table = jax.jit(outcome_integrals, static_argnames=("outcome", "largest_q", "largest_j", "method"))


@partial(jax.jit, static_argnames="outcome")
def _twenty_tables(outcome: Outcome, points: jax.Array) -> jax.Array:
    return jax.vmap(lambda point: outcome_integrals(outcome, point[0], point[1], point[2], largest_q=4))(points)


def tables(outcome: Outcome, points: list[tuple[float, float, float]]) -> np.ndarray:
    """Tables for up to 20 rows of (mean, variance, spread): always 20, so that an outcome is compiled once."""
    padded = points + points[:1] * (20 - len(points))
    return np.asarray(_twenty_tables(outcome, jnp.array(padded)))[: len(points)]


def means_of(outcome: Outcome) -> tuple[float, ...]:
    return (-1.5, 0.4, math.log(outcome.high)) if outcome.link == "log" else (-2.0, 0.4, 0.7 * outcome.high)


# Second implementations of h_q(u) / (largest y)^q: float64 arrays, and mpmath numbers.


def reference_h(outcome: Outcome, u: np.ndarray, spread: float, q: int) -> Any:
    if outcome.family_name == "logistic":
        odd = np.tanh(u / 2) if outcome.link == "logit" else special.erf(u / math.sqrt(2))
        return odd if q % 2 else np.ones_like(u)
    if outcome.family_name == "linear":
        nodes, weights = np.polynomial.legendre.leggauss(60)
        sd = math.sqrt(spread)
        density = np.exp(-((nodes[:, None] - u) ** 2) / (2 * spread)) / (sd * math.sqrt(2 * math.pi))
        return weights * nodes**q @ density + (-1) ** q * special.ndtr((-1 - u) / sd) + special.ndtr((u - 1) / sd)
    bound = int(outcome.high)
    mu = np.exp(np.minimum(u, 20.0)) if outcome.link == "log" else np.logaddexp(0, u)
    y = np.arange(bound)[:, None]
    log_mass = special.xlogy(y, mu) - mu - special.gammaln(y + 1)
    if spread > 1:
        size = mu / (spread - 1)
        log_mass = special.gammaln(y + size) - special.gammaln(size) - special.gammaln(y + 1)
        log_mass += -size * math.log(spread) + y * math.log(1 - 1 / spread)
    return 1 + np.sum(np.exp(log_mass) * ((y / bound) ** q - 1.0), axis=0)


def exact_h(outcome: Outcome, u: mpmath.mpf, spread: float, q: int) -> mpmath.mpf:
    if outcome.family_name == "logistic":
        odd = mpmath.tanh(u / 2) if outcome.link == "logit" else mpmath.erf(u / mpmath.sqrt(2))
        return odd if q % 2 else mpmath.mpf(1)
    mu = mpmath.exp(u) if outcome.link == "log" else mpmath.log1p(mpmath.exp(u))
    bound, delta = int(outcome.high), mpmath.mpf(spread) - 1
    mass = mpmath.exp(-mu) if delta == 0 else mpmath.power(spread, -mu / delta)
    total = mpmath.mpf(1)
    for y in range(bound):
        total += mass * (mpmath.mpf(y) ** q / mpmath.mpf(bound) ** q - 1)
        mass *= (mu + y * delta) / ((y + 1) * mpmath.mpf(spread))
    return total


def by_quadrature(outcome: Outcome, mean: float, sd: float, spread: float, q: int) -> np.ndarray:
    """E[h^(j)] = E[h(u) He_j(z)] / sd^j on a dense grid: accurate for sd >= 0.1 only."""
    count = 2 * int(max(400, 9 * sd / min(0.06, 0.5 / math.sqrt(max(outcome.high, 1))))) + 1
    z = np.linspace(-9, 9, count)
    weights = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    h = reference_h(outcome, mean + sd * z, spread, q)
    return np.array([np.sum(weights * h * special.eval_hermitenorm(j, z)) / sd**j for j in range(5)])


@lru_cache(maxsize=200)
def by_differentiation(outcome: Outcome, mean: float, variance: float, spread: float, q: int) -> tuple[float, ...]:
    """h^(j)(mean) + variance / 2 h^(j+2)(mean), in 50 digits: for tiny variances."""
    with mpmath.workdps(50):
        h = partial(exact_h, outcome, spread=spread, q=q)
        slopes = [mpmath.diff(h, mpmath.mpf(mean), j) if j else h(mpmath.mpf(mean)) for j in range(7)]
        return tuple(float(slopes[j] + variance / 2 * slopes[j + 2]) for j in range(5))


@each_outcome
@pytest.mark.parametrize("sd", [0.1, 1.0, 3.0, 10.0, 30.0])
def test_table_equals_quadrature(outcome: Outcome, sd: float) -> None:
    points = [(mean, sd**2, spread) for mean in means_of(outcome) for spread in SPREADS[outcome.family_name]]
    tolerance = 1e-9 if sd <= 10 else 1e-6
    for point, found in zip(points, tables(outcome, points), strict=True):
        np.testing.assert_array_equal(found[0], [1, 0, 0, 0, 0])
        for q in (1, 2, 4):
            expected = by_quadrature(outcome, point[0], sd, point[2], q)
            np.testing.assert_allclose(found[q] / outcome.high**q, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("outcome", [o for o in OUTCOMES if o is not LINEAR], ids=named)
@pytest.mark.parametrize("sd", [0.0, 1e-6])
def test_table_at_tiny_variance_equals_derivatives(outcome: Outcome, sd: float) -> None:
    points = [(mean, sd**2, spread) for mean in means_of(outcome)[1:] for spread in SPREADS[outcome.family_name][:2]]
    for point, found in zip(points, tables(outcome, points), strict=True):
        for q in (1, 4):
            expected = by_differentiation(outcome, *point, q)
            np.testing.assert_allclose(found[q] / outcome.high**q, expected, rtol=1e-10, atol=1e-9)


def test_anchor_values_in_many_digits() -> None:
    """E[sech^2(u/2)] / 2 for u ~ N(0, 4) is the 0.303 of docs/moments.md; here by mpmath itself."""
    with mpmath.workdps(30):
        expected = mpmath.quad(lambda z: mpmath.sech(z) ** 2 / 2 * mpmath.npdf(z), [-12, -4, 0, 4, 12])
    assert abs(float(table(LOGIT, 0.0, 4.0, 1.0, 1)[1, 1]) - float(expected)) < 1e-14
    assert abs(float(expected) - 0.303) < 5e-4


@pytest.mark.parametrize("mean", [0.0, 0.9, 3.0, -30.0])
@pytest.mark.parametrize("total", [1e-4, 0.2, 900.0])
def test_linear_is_a_clamped_normal(mean: float, total: float) -> None:
    """Only variance + spread matters, and rows are moments of the clamped normal (mpmath)."""
    found = np.asarray(table(LINEAR, mean, total / 2, total / 2, 4))
    other = np.asarray(table(LINEAR, mean, 0.0, total, 4))
    np.testing.assert_allclose(other, found, rtol=0, atol=1e-12 * np.max(abs(found)))
    sd = math.sqrt(total)
    cuts = [-1.0, *sorted({min(max(mean + k * sd, -1.0), 1.0) for k in (-9, -3, 0, 3, 9)} - {-1.0, 1.0}), 1.0]
    for q in (1, 2, 3, 4):
        inside = mpmath.quad(lambda y, q=q: y**q * mpmath.npdf(y, mean, sd), cuts)
        expected = inside + (-1) ** q * mpmath.ncdf((-1 - mean) / sd) + mpmath.ncdf((mean - 1) / sd)
        assert abs(found[q, 0] - float(expected)) < 1e-12


@each_outcome
def test_columns_are_derivatives_in_the_mean_and_obey_the_heat_equation(outcome: Outcome) -> None:
    """dH_j/dmean = H_(j+1) and dH_j/dvariance = H_(j+2)/2, by central differences of the values."""
    spread, step = SPREADS[outcome.family_name][-1], 1e-3
    for mean in means_of(outcome):
        for variance in (0.3, 2.0, 40.0):
            shifts = [(0, 0), *((k, 0) for k in (-2, -1, 1, 2)), *((0, k) for k in (-2, -1, 1, 2))]
            points = [(mean + a * step, variance + b * step, spread) for a, b in shifts]
            found = tables(outcome, points)
            stencil = np.array([1, -8, 8, -1]) / (12 * step)
            by_mean, by_variance = (np.tensordot(stencil, found[part], 1) for part in (slice(1, 5), slice(5, 9)))
            size = np.max(np.abs(found[0]), axis=1, keepdims=True)
            assert np.all(np.abs(by_mean[:, :4] - found[0][:, 1:]) < 1e-6 * size)
            assert np.all(np.abs(by_variance[:, :3] - found[0][:, 2:] / 2) < 1e-6 * size)


@pytest.mark.parametrize("outcome", [LOGIT, LOG_FEW, SOFTPLUS_MANY], ids=named)
def test_smooth_across_the_switches(outcome: Outcome) -> None:
    """A fourth difference in the variance across each switch of rules stays at rounding level: no jump, no kink."""
    for switch in SWITCHES[outcome.link]:
        step = 1e-4 * switch
        points = [(0.7, switch + k * step, 1.0) for k in (-2.0, -1.0, 0.0, 1.0, 2.0)]
        found = tables(outcome, points)
        scale = outcome.high ** np.arange(5.0)[:, None]
        assert np.max(np.abs(np.tensordot([1, -4, 6, -4, 1], found, 1)) / scale) < 1e-10


@pytest.mark.parametrize("outcome", [LOGIT, PROBIT, LINEAR, LOG_FEW, SOFTPLUS_FEW], ids=named)
def test_gradients_are_the_columns_and_finite_everywhere(outcome: Outcome) -> None:
    total = jax.jit(lambda point: jnp.sum(outcome_integrals(outcome, point[0], point[1], point[2], largest_q=2)[:, :3]))
    gradient = jax.jit(jax.vmap(jax.grad(total)))
    spread = 1.0 if outcome.family_name == "poisson" else 0.1
    points = [(m, v, spread) for m in (-60.0, 0.3, 60.0, 1e3) for v in (0.0, 1e-12, 1.0, 100.0, 1e4)]
    found, columns = np.asarray(gradient(jnp.array(points))), tables(outcome, points)[:, :3]
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found[:, 0], columns[:, :, 1:4].sum((1, 2)), rtol=1e-8, atol=1e-8 * outcome.high**2)
    np.testing.assert_allclose(found[:, 1], columns[:, :, 2:5].sum((1, 2)) / 2, rtol=1e-8, atol=1e-8 * outcome.high**2)


@pytest.mark.parametrize("outcome", [LOGIT, LOG_FEW, LINEAR], ids=named)
def test_second_derivatives(outcome: Outcome) -> None:
    """The Hessian of H_(1,0), also at variance 0 and spread 1, against differences of values to the right."""
    hessian = jax.hessian(
        lambda point: outcome_integrals(outcome, point[0], point[1], point[2], largest_q=1, largest_j=0)[1, 0]
    )
    found = np.asarray(jax.jit(hessian)(jnp.array([0.3, 0.0, 1.0])))
    step = 2e-3
    forward = np.array([-25 / 12, 4, -3, 4 / 3, -1 / 4]) / step
    points = [(0.3, i * step, 1 + k * step) for i in range(5) for k in range(5)]
    values = np.concatenate([tables(outcome, points[:20]), tables(outcome, points[20:])])[:, 1]
    assert abs(found[1, 2] - forward @ values[:, 0].reshape(5, 5) @ forward) < 1e-5 * outcome.high
    assert abs(found[0, 0] - values[0, 2]) < 1e-9 * outcome.high
    assert abs(found[1, 1] - values[0, 4] / 4) < 1e-9 * outcome.high
    np.testing.assert_allclose(found[0, 2], forward @ values[:5, 1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("outcome", [LOG_FEW, SOFTPLUS_FEW], ids=named)
def test_spread_goes_smoothly_to_poisson(outcome: Outcome) -> None:
    """At spread = 1 + t the table is Poisson's plus t times its derivative there, and t^2 more."""
    for variance in (0.05, 30.0):
        at = jax.jit(lambda spread, variance=variance: outcome_integrals(outcome, 0.8, variance, spread, 2))
        value, slope = jax.jvp(at, (1.0,), (1.0,))
        assert float(jnp.max(jnp.abs(slope))) > 1e-3
        for t in (1e-12, 1e-7, 0.9e-3, 1.1e-3):
            error = jnp.max(jnp.abs(at(1 + t) - value - t * slope))
            assert float(error) < 300 * t**2 + 1e-11
        _, slope = jax.jvp(at, (1.001,), (1.0,))  # where the series of log(1 + t) / t ends
        np.testing.assert_allclose(at(1 + 1.0001e-3) - at(1 + 0.9999e-3), 2e-7 * slope, rtol=0, atol=1e-11)


def test_spread_is_variance_over_mean_without_a_clamp() -> None:
    for link in ("log", "softplus"):
        outcome = outcome_of("poisson", link, (0, 200))
        moments = outcome_moments(outcome, jnp.array([0.5, 1.5]), 2.5, 2)
        mean = np.exp([0.5, 1.5]) if link == "log" else np.logaddexp(0, [0.5, 1.5])
        np.testing.assert_allclose(moments[1], mean, rtol=1e-12)
        np.testing.assert_allclose(moments[2] - moments[1] ** 2, 2.5 * mean, rtol=1e-11)
    np.testing.assert_array_equal(outcome_moments(LOG_FEW, jnp.array(60.0), 1.0, 2), [1, 8, 64])


@each_outcome
def test_outcome_moments_are_the_table_at_variance_zero(outcome: Outcome) -> None:
    spread = SPREADS[outcome.family_name][-1]
    u = jnp.array([[-1.0, 0.5], [2.0, 5.0]])
    moments = np.asarray(outcome_moments(outcome, u, spread, 4))
    assert moments.shape == (5, 2, 2)
    columns = tables(outcome, [(float(value), 0.0, spread) for value in u.ravel()])[:, :, 0].T
    np.testing.assert_allclose(moments.reshape(5, 4), columns, rtol=1e-10, atol=1e-11)


def test_large_bounds_stay_accurate_and_finite() -> None:
    outcome = outcome_of("poisson", "log", (0, 700))
    for sd in (0.3, 5.0):
        found = np.asarray(table(outcome, 6.0, sd**2, 2.0, 2))[1] / 700
        np.testing.assert_allclose(found, by_quadrature(outcome, 6.0, sd, 2.0, 1), rtol=0, atol=1e-9)


# Taylor


@pytest.mark.parametrize("outcome", [LOGIT, outcome_of("poisson", "softplus", (0, 60))], ids=named)
def test_taylor_is_exact_for_small_u(outcome: Outcome) -> None:
    """The first two rows hold their derivatives at 0 up to the degree that they keep."""
    for spread in SPREADS[outcome.family_name][:2]:
        exact, taylor = (np.asarray(table(outcome, 0.0, 1e-8, spread, 4, method=m)) for m in ("exact", "taylor"))
        np.testing.assert_allclose(taylor[:3, :4], exact[:3, :4], rtol=0, atol=2e-7)
        np.testing.assert_allclose(taylor[3:, 0], exact[3:, 0], rtol=1e-6, atol=1e-12)


def test_taylor_fails_for_large_u() -> None:
    """sd(u) = 2: the factor of the odd statistics is 1/2 - 4/8 = 0 instead of 0.303 (docs/moments.md)."""
    assert abs(float(table(LOGIT, 0.0, 4.0, 1.0, 2, method="taylor")[1, 1])) < 1e-12
    assert float(table(LOGIT, 0.0, 4.0, 1.0, 2)[1, 1]) > 0.30


def test_taylor_of_softplus_is_the_papers_with_its_errata() -> None:
    """E[y^2 | u] = mu + mu^2, with the printed series of mu and mu^2."""
    u, log_two = 0.3, math.log(2)
    mu = log_two + u / 2 + u**2 / 8 - u**4 / 192
    squared = log_two**2 + u * log_two + u**2 * (1 + log_two) / 4 + u**3 / 8
    found = np.asarray(table(SOFTPLUS_FEW, u, 0.0, 1.0, 2, method="taylor"))[:, 0]
    np.testing.assert_allclose(found, [1, mu, mu + squared], rtol=1e-14)


def test_taylor_of_linear_is_exact_far_from_the_bounds() -> None:
    wide = outcome_of("linear", "identity", (-50, 50))
    exact, taylor = (np.asarray(table(wide, 0.7, 1.1, 0.4, 4, method=m)) for m in ("exact", "taylor"))
    np.testing.assert_allclose(taylor, exact, rtol=1e-11, atol=1e-11)


# Mistakes


@cache
def mistakes() -> dict[str, tuple[tuple[object, ...], str]]:
    return {
        "family": (("gamma", None, (0, 1)), "family = gamma: must be one of logistic, poisson, linear"),
        "link": (("poisson", "logit", (0, 9)), "link = logit: must be one of log, softplus"),
        "order": (("linear", None, (1, -1)), "low < high"),
        "infinite": (("linear", None, (0, math.inf)), "finite"),
        "shape": (("linear", None, 3), "two numbers"),
        "coding": (("logistic", None, (0, 1)), "code the levels as -1 and 1"),
        "fraction": (("poisson", None, (0, 2.5)), "whole number"),
        "too large": (("poisson", None, (0, 10**6)), "smaller bound"),
    }


@pytest.mark.parametrize("which", mistakes())
def test_mistakes_are_explained(which: str) -> None:
    arguments, message = mistakes()[which]
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        outcome_of(*arguments)  # type: ignore[arg-type]


def test_method_mistakes_are_explained() -> None:
    with pytest.raises(InputError, match="exact, taylor"):
        outcome_integrals(LOGIT, 0.0, 1.0, 1.0, 2, method="series")
    for outcome in (LOG_FEW, PROBIT):
        with pytest.raises(InputError, match=f"no Taylor version for {outcome.family_name} with link {outcome.link}"):
            outcome_integrals(outcome, 0.0, 1.0, 1.0, 2, method="taylor")
    with pytest.raises(InputError, match="at most 4"):
        outcome_integrals(LOGIT, 0.0, 1.0, 1.0, 5, method="taylor")
