"""The table of outcomes: what a family is to the analyst, as a few scalar functions of the linear predictor.

For u ~ N(mean, variance) and h_q(u) = E[y^q | u], after the clamp of y to its public range, every moment of the
statistics is made of the numbers (docs/moments.md, section 7)::

    H[q, j] = E[ d^j h_q / du^j (u) ]        q, j = 0, 1, 2, ...

``outcome_integrals`` computes them. They obey the heat equation, which is the derivative rule used here::

    dH[q, j] / dmean = H[q, j + 1]           dH[q, j] / dvariance = H[q, j + 2] / 2

A new outcome is one entry of ``_ENTRIES``: h_q for the oracle, its integrals, and a Taylor series if it has one.
Integrals are either in closed form, or smoothing.py makes them from h and its slope h' alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy import special

from dpglm.errors import InputError
from dpglm.families import LARGEST_COUNT
from dpglm.paper.smoothing import SmoothingPlan, normal_derivatives, smoothed

_Number = jax.Array | float

METHODS = ("exact", "taylor")

_Floats = npt.NDArray[np.float64]
_Series = list[Any]  # coefficients of 1, u, u^2, ...; numbers or traced


@dataclass(frozen=True)
class Outcome:
    """How y follows from u = alpha + x beta, and the public range of y in the coding of the blocks.

    Made by ``outcome_of``. Hashable, so it can be a static argument of ``jax.jit``.
    """

    family_name: str
    link: str
    low: float
    high: float

    @property
    def has_spread(self) -> bool:
        """Whether the outcome has a second parameter (``spread`` of ``outcome_integrals``)."""
        return self.family_name != "logistic"


def outcome_of(family_name: str, link: str | None, response_range: tuple[float, float]) -> Outcome:
    """The outcome of a family, with its first link if ``link`` is None.

    >>> outcome_of("poisson", None, (0, 20))
    Outcome(family_name='poisson', link='log', low=0.0, high=20.0)
    """
    links = [entry_link for entry_family, entry_link in _ENTRIES if entry_family == family_name]
    if not links:
        known = ", ".join(dict.fromkeys(entry_family for entry_family, _ in _ENTRIES))
        raise InputError("family", family_name, f"must be one of {known}", "choose one of them")
    if link is not None and link not in links:
        raise InputError("link", link, f"must be one of {', '.join(links)} for {family_name}", "choose one of them")
    try:
        low, high = (float(bound) for bound in response_range)
    except (TypeError, ValueError):
        raise InputError("response_range", response_range, "must be two numbers", "give (low, high)") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError("response_range", response_range, "must be finite with low < high", "give (low, high)")
    if family_name == "logistic" and (low, high) != (-1.0, 1.0):
        raise InputError("response_range", response_range, "is (-1, 1) for two levels", "code the levels as -1 and 1")
    if family_name == "poisson" and not (low == 0 and high == int(high) and high <= LARGEST_COUNT):
        rule = f"is (0, whole number up to {LARGEST_COUNT}) for counts"
        raise InputError("response_range", response_range, rule, "choose a smaller bound for y")
    return Outcome(family_name, link or links[0], low, high)


def outcome_moments(outcome: Outcome, u: jax.Array, spread: _Number, largest_q: int) -> jax.Array:
    """h_q(u) = E[y^q | u] after the clamp, for q = 0 ... largest_q; shape (largest_q + 1, *u.shape)."""
    u = jnp.asarray(u, dtype=jnp.float64)
    return _ENTRIES[outcome.family_name, outcome.link].moments(outcome, u, jnp.asarray(spread, u.dtype), largest_q)


def outcome_integrals(
    outcome: Outcome,
    mean: _Number,
    variance: _Number,
    spread: _Number,
    largest_q: int,
    largest_j: int = 4,
    method: str = "exact",
) -> jax.Array:
    """The table H[q, j] = E[h_q^(j)(u)], u ~ N(mean, variance): shape (largest_q + 1, largest_j + 1).

    ``mean``, ``variance`` >= 0 and ``spread`` are scalars; use ``jax.vmap`` for batches. Differentiable to any order
    in all three, also at variance = 0. ``spread`` is ignored by two-level outcomes, is variance / mean for counts
    (1 is Poisson, and less counts as 1) and the residual variance > 0 of a linear outcome.

    Error, divided by the largest |y|^q, for j <= 4 and any variance: below 1e-9, or 1e-10 of a derivative that exceeds
    10. (With the log link the clamp is a step of width 1 / sqrt(bound) in u: for variance near 0 its derivatives grow
    like bound^((j - 1) / 2), and rounding with them.) For counts this is for spreads up to 20. Their time is
    proportional to the bound: fine up to 100, slow at 2000.

    ``method="taylor"`` is the paper's expansion about u = 0, without a clamp: only another way to compute the table,
    and wrong unless u is small.
    """
    if method not in METHODS:
        raise InputError("method", method, f"must be one of {', '.join(METHODS)}", "choose one of them")
    mean, variance, spread = (jnp.asarray(number, dtype=jnp.float64) for number in (mean, variance, spread))
    if method == "taylor":
        return _taylor_integrals(outcome, mean, variance, spread, largest_q, largest_j)
    exact: jax.Array = _exact_integrals(outcome, largest_q, largest_j, mean, variance, spread)
    return exact


def _raw_integrals(
    outcome: Outcome, largest_q: int, largest_j: int, mean: jax.Array, variance: jax.Array, spread: jax.Array
) -> jax.Array:
    """The table as its entry computes it."""
    entry = _ENTRIES[outcome.family_name, outcome.link]
    return entry.integrals(outcome, mean, variance, spread, largest_q, largest_j)


def _heat_rule(outcome: Outcome, largest_q: int, largest_j: int, primals: Any, tangents: Any) -> Any:
    """Derivatives by the heat equation: a gradient costs two more columns of the table instead of a second pass."""
    mean, variance, spread = primals
    moved = [not isinstance(tangent, jax.custom_derivatives.SymbolicZero) for tangent in tangents]
    if moved[2] and outcome.has_spread:
        raw = partial(_raw_integrals, outcome, largest_q, largest_j + 2, mean, variance)
        wide, by_spread = jax.jvp(raw, (spread,), (jnp.ones_like(spread),))
    else:
        wide = _exact_integrals(outcome, largest_q, largest_j + 2, mean, variance, spread)
        by_spread = jnp.zeros_like(wide)
    directions = (wide[:, 1:-1], wide[:, 2:] / 2, by_spread[:, :-2])
    tangent = sum(
        (direction * dot for direction, dot, moves in zip(directions, tangents, moved, strict=True) if moves),
        start=jnp.zeros_like(wide[:, :-2]),
    )
    return wide[:, :-2], tangent


_exact_integrals = jax.custom_jvp(_raw_integrals, nondiff_argnums=(0, 1, 2))
_exact_integrals.defjvp(_heat_rule, symbolic_zeros=True)


# Two levels, coded -1 and 1: odd powers of y are y, even powers are 1.


def _two_levels(row: jax.Array, one: jax.Array, largest_q: int) -> jax.Array:
    return jnp.stack([row if q % 2 else one for q in range(largest_q + 1)])


def _one_row(largest_j: int) -> jax.Array:
    """The table's row of h = 1: (1, 0, 0, ...)."""
    return jnp.asarray(np.eye(1, largest_j + 1)[0])


def _logistic_moments(_: Outcome, u: jax.Array, __: jax.Array, largest_q: int) -> jax.Array:
    return _two_levels(jnp.tanh(u / 2), jnp.ones_like(u), largest_q)


@lru_cache(maxsize=1)
def _probit_mixture() -> tuple[_Floats, _Floats]:
    """Scales s and weights p with logistic(u) = sum_k p_k Phi(u / s_k), to rounding, and so for its derivatives.

    A standard logistic variable is a normal one times 2 K, K with Kolmogorov's distribution (Andrews & Mallows 1974).
    The trapezoid rule in log K converges geometrically, since the density of K vanishes with all derivatives at both
    ends: below K = 0.8 in the form with exp(-1 / K^2), above it in the one with exp(-K^2).
    """
    k = np.exp(0.1 * np.arange(-18.0, 16.0))
    n = np.arange(1.0, 30.0)[:, None]
    rate = (2 * n - 1) ** 2 * math.pi**2 / 8
    low = math.sqrt(2 * math.pi) * np.sum(np.exp(-rate / k**2) * (2 * rate / k**4 - 1 / k**2), axis=0)
    high = 8 * k * np.sum((-1) ** (n + 1) * n**2 * np.exp(-2 * (n * k) ** 2), axis=0)
    weights = 0.1 * k * np.where(k < 0.8, low, high)
    return 2 * k, weights


def _logistic_integrals(
    _: Outcome, mean: jax.Array, variance: jax.Array, __: jax.Array, largest_q: int, largest_j: int
) -> jax.Array:
    """A mixture of probits, each in closed form."""
    scales, weights = _probit_mixture()
    row = jnp.asarray(weights) @ jax.vmap(partial(_probit_row, mean, variance, largest_j))(jnp.asarray(scales))
    return _two_levels(row, _one_row(largest_j), largest_q)


def _logistic_taylor(_: jax.Array, largest_q: int) -> list[_Series]:
    return [[0.0, 1 / 2, 0.0, -1 / 24] if q % 2 else [1.0] for q in range(largest_q + 1)]


def _probit_moments(_: Outcome, u: jax.Array, __: jax.Array, largest_q: int) -> jax.Array:
    return _two_levels(2 * special.ndtr(u) - 1, jnp.ones_like(u), largest_q)


def _probit_row(mean: jax.Array, variance: jax.Array, largest_j: int, scale: _Number) -> jax.Array:
    """y = sign of u + N(0, scale^2), hence E[y] = 2 Phi(mean / sd) - 1 with sd^2 = scale^2 + variance."""
    sd = jnp.sqrt(scale**2 + variance)
    densities = normal_derivatives(mean / sd, sd, largest_j)
    return jnp.stack([special.erf(mean / sd / math.sqrt(2)), *(2 * density for density in densities)])


def _probit_integrals(
    _: Outcome, mean: jax.Array, variance: jax.Array, __: jax.Array, largest_q: int, largest_j: int
) -> jax.Array:
    return _two_levels(_probit_row(mean, variance, largest_j, 1.0), _one_row(largest_j), largest_q)


# Counts: negative binomial with variance = spread * mean, all mass above the bound at the bound.


def _link_mean(outcome: Outcome, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The unclamped mean and its slope in u."""
    if outcome.link == "log":
        return jnp.exp(u), jnp.exp(u)
    return jax.nn.softplus(u), jax.nn.sigmoid(u)


def _count_plan(outcome: Outcome) -> SmoothingPlan:
    """Log link: the clamp is a step of width 1 / sqrt(bound) at log(bound). Softplus: poles at +-i pi, as logistic."""
    bound, root = outcome.high, math.sqrt(outcome.high)
    if outcome.link == "softplus":
        return SmoothingPlan(0.4, 4.0, 2 * math.pi / 42, -32.0, bound + 18 * root + 120, 1.8, 0.6, 0.0, 10.0)
    switch, bandwidth, centre = 0.5, 11 + 7 * root, math.log(bound)
    return SmoothingPlan(
        smallest_sd=0.45 / math.sqrt(bound + 3),
        switch_sd=switch,
        standard_step=2 * math.pi / (bandwidth * switch + 8.5),
        low=centre - 30,
        high=centre + 6,
        step=2 * math.pi / (14 + 8 / switch),
        fine_step=2 * math.pi / (1.15 * bandwidth + 8 / switch),
        centre=centre,
        width=max(8 / root, 0.8),
    )


_BLOCK = 8  # factors multiplied directly between two exponentials


def _mass_below_bound(bound: int, mu: jax.Array, spread: jax.Array) -> jax.Array:
    """P(y | mu) for y = 0 ... bound - 1 and each mu, in the order of ``_blocked``, shape (len(mu), padded bound).

    With delta = spread - 1 the mass is exp(-mu log(1 + delta) / delta) prod_{i < y} (mu + i delta) / ((i + 1) spread):
    polynomial in delta, so spread = 1 is Poisson and nothing cancels near it.
    """
    index = np.arange(_BLOCK * math.ceil(bound / _BLOCK)).reshape(-1, _BLOCK)
    products = [jnp.ones((len(mu), len(index)))]
    for r in range(_BLOCK):
        factor = (mu[:, None] + index[:, r] * (spread - 1)) / ((index[:, r] + 1.0) * spread)
        products.append(products[-1] * factor)
    logs = jnp.log(products[_BLOCK][:, :-1])
    starts = jnp.concatenate([jnp.zeros((len(mu), 1)), jnp.cumsum(logs, axis=1)], axis=1)
    starts = jnp.exp(starts - mu[:, None] * _jump_rates(1, spread)[0])
    return jnp.concatenate([starts * product for product in products[:_BLOCK]], axis=1)


def _blocked(columns: jax.Array) -> jax.Array:
    """Rows y = 0 ... bound - 1 padded with zeros, and put in the order of ``_mass_below_bound``."""
    padded = jnp.pad(columns, ((0, -len(columns) % _BLOCK), (0, 0)))
    return padded.reshape(-1, _BLOCK, columns.shape[1]).swapaxes(0, 1).reshape(len(padded), -1)


def _jump_rates(count: int, spread: jax.Array) -> jax.Array:
    """Rates, per unit of mean, of jumps of at least 1 ... count: the count is a compound Poisson variable.

    Jumps of exactly k have rate delta^(k-1) / (k spread^k), all jumps log(1 + delta) / delta.
    """
    delta = spread - 1
    small = jnp.abs(delta) < 1e-3
    safe = jnp.where(small, 1.0, delta)
    series = sum((-delta) ** k / (k + 1) for k in range(7))
    every = jnp.where(small, series, jnp.log1p(safe) / safe)
    ratios = jnp.full(count, delta / spread).at[0].set(1.0)  # their products are the powers, also at delta = 0
    exactly = jnp.cumprod(ratios)[: count - 1] / (np.arange(1.0, count) * spread)
    return every - jnp.concatenate([jnp.zeros(1), jnp.cumsum(exactly)])


def _count_values_and_slopes(
    outcome: Outcome, u: jax.Array, spread: jax.Array, largest_q: int
) -> tuple[jax.Array, jax.Array]:
    """h_q and h_q' for q = 1 ... largest_q, divided by bound^q; shapes (largest_q, len(u)).

    d/dmu E[f(y)] = E[(G f)(y)] with G f(y) = sum_k (rate of jumps >= k) (f(y + k) - f(y + k - 1)): differences of f
    itself, so nothing cancels.
    """
    bound, plan = int(outcome.high), _count_plan(outcome)
    spread = jnp.where(spread < 1, 1.0, spread)  # not jnp.maximum: it would halve the derivative at 1
    mu, mu_slope = _link_mean(outcome, jnp.clip(u, plan.low, plan.high))
    powers = (np.arange(bound + 1)[:, None] / bound) ** np.arange(1, largest_q + 1)
    steps = np.diff(powers, axis=0)
    offset = np.arange(bound)[None, :] - np.arange(bound)[:, None]
    rates = jnp.where(offset >= 0, _jump_rates(bound, spread)[np.maximum(offset, 0)], 0.0)
    columns = jnp.concatenate([jnp.asarray(powers[:-1] - 1), rates @ steps], axis=1)
    sums = _mass_below_bound(bound, mu, spread) @ _blocked(columns)
    return 1 + sums[:, :largest_q].T, sums[:, largest_q:].T * mu_slope


def _count_moments(outcome: Outcome, u: jax.Array, spread: jax.Array, largest_q: int) -> jax.Array:
    values, _ = _count_values_and_slopes(outcome, u.ravel(), spread, largest_q)
    rows = jnp.concatenate([jnp.ones((1, u.size)), values]) * (outcome.high ** np.arange(largest_q + 1.0))[:, None]
    return rows.reshape(largest_q + 1, *u.shape)


def _count_integrals(
    outcome: Outcome, mean: jax.Array, variance: jax.Array, spread: jax.Array, largest_q: int, largest_j: int
) -> jax.Array:
    def values_and_slopes(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _count_values_and_slopes(outcome, u, spread, largest_q)

    rows = smoothed(values_and_slopes, 0.0, _count_plan(outcome), mean, variance, largest_j)
    scale = (outcome.high ** np.arange(1.0, largest_q + 1))[:, None]
    return jnp.concatenate([_one_row(largest_j)[None], rows * scale])


def _softplus_taylor(spread: jax.Array, largest_q: int) -> list[_Series]:
    """The paper's series of mu (degree 4) and mu^2 (degree 3), E[y^2] = spread mu + mu^2; mu^3, mu^4 to degree 3.

    Powers of y by factorial moments of the negative binomial: E[y (y-1) ... ] = mu (mu + delta) (mu + 2 delta) ...
    """
    mean = np.array([math.log(2), 1 / 2, 1 / 8, 0.0, -1 / 192])
    mu = [np.array([1.0, 0, 0, 0, 0]), mean]
    for _ in range(2, 5):
        mu.append(np.append(np.convolve(mu[-1], mean)[:4], 0.0))
    delta = spread - 1
    factorial_moments = [
        mu[0],
        mu[1],
        mu[2] + delta * mu[1],
        mu[3] + 3 * delta * mu[2] + 2 * delta**2 * mu[1],
        mu[4] + 6 * delta * mu[3] + 11 * delta**2 * mu[2] + 6 * delta**3 * mu[1],
    ]
    stirling = [[1], [0, 1], [0, 1, 1], [0, 1, 3, 1], [0, 1, 7, 6, 1]]
    return [
        [sum(s * f[n] for s, f in zip(line, factorial_moments, strict=False)) for n in range(5)]
        for line in stirling[: largest_q + 1]
    ]


# Linear: y ~ N(u, spread), so over u it is N(mean, variance + spread), then clamped.


def _linear_moments(outcome: Outcome, u: jax.Array, spread: jax.Array, largest_q: int) -> jax.Array:
    rows = jax.vmap(lambda mean: _linear_integrals(outcome, mean, jnp.zeros(()), spread, largest_q, 0)[:, 0])(u.ravel())
    return rows.T.reshape(largest_q + 1, *u.shape)


def _linear_integrals(
    outcome: Outcome, mean: jax.Array, variance: jax.Array, spread: jax.Array, largest_q: int, largest_j: int
) -> jax.Array:
    """Derivatives of the clamped power: inside the bounds falling powers of y, at the bounds normal densities."""
    sd = jnp.sqrt(variance + spread)
    bounds = (outcome.low, outcome.high)
    outside = (special.ndtr((outcome.low - mean) / sd), special.ndtr((mean - outcome.high) / sd))
    densities = [normal_derivatives((mean - bound) / sd, sd, largest_j) for bound in bounds]
    # E[y^i; low < y < high] by Gauss-Legendre on the part within 9 sd: positive terms, nothing cancels far out
    left, right = jnp.clip(mean - 9 * sd, *bounds), jnp.clip(mean + 9 * sd, *bounds)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    y = (left + right) / 2 + (right - left) / 2 * nodes
    mass = (right - left) / 2 * weights * normal_derivatives((mean - y) / sd, sd, 1)[0]
    inside = [jnp.sum(y**i * mass) for i in range(largest_q + 1)]

    def entry(q: int, j: int) -> jax.Array:
        if j == 0:
            return inside[q] + bounds[0] ** q * outside[0] + bounds[1] ** q * outside[1]
        total = math.perm(q, j) * inside[q - j] if j <= q else jnp.zeros(())
        for i in range(1, min(j, q + 1)):
            edges = bounds[0] ** (q - i) * densities[0][j - 1 - i] - bounds[1] ** (q - i) * densities[1][j - 1 - i]
            total = total + math.perm(q, i) * edges
        return total

    rows = [jnp.stack([entry(q, j) for j in range(largest_j + 1)]) for q in range(1, largest_q + 1)]
    return jnp.stack([_one_row(largest_j), *rows])


def _linear_taylor(spread: jax.Array, largest_q: int) -> list[_Series]:
    """Exact polynomials of an unclamped normal."""
    rows: list[_Series] = [[1], [0, 1], [spread, 0, 1], [0, 3 * spread, 0, 1], [3 * spread**2, 0, 6 * spread, 0, 1]]
    return rows[: largest_q + 1]


def _taylor_integrals(
    outcome: Outcome, mean: jax.Array, variance: jax.Array, spread: jax.Array, largest_q: int, largest_j: int
) -> jax.Array:
    """Gaussian expectations of the derivatives of polynomials in u."""
    series = _ENTRIES[outcome.family_name, outcome.link].taylor
    if series is None:
        rule = f"has no Taylor version for {outcome.family_name} with link {outcome.link}"
        raise InputError("moments", "taylor", rule, "use moments='exact'")
    if largest_q > 4:
        raise InputError("largest_q", largest_q, "is at most 4 for moments 'taylor'", "use moments='exact'")
    # E[u^n] = mean E[u^(n-1)] + (n - 1) variance E[u^(n-2)]
    powers = [jnp.ones(()), mean]
    for n in range(2, 5):
        powers.append(mean * powers[n - 1] + (n - 1) * variance * powers[n - 2])

    def entry(row: _Series, j: int) -> jax.Array:
        return sum((math.perm(n, j) * row[n] * powers[n - j] for n in range(j, len(row))), start=jnp.zeros(()))

    rows = series(spread, largest_q)
    return jnp.stack([jnp.stack([entry(row, j) for j in range(largest_j + 1)]) for row in rows])


@dataclass(frozen=True)
class _Entry:
    """One outcome: h_q(u), the table H[q, j], and the coefficients of a Taylor series in u where there is one."""

    moments: Callable[[Outcome, jax.Array, jax.Array, int], jax.Array]
    integrals: Callable[[Outcome, jax.Array, jax.Array, jax.Array, int, int], jax.Array]
    taylor: Callable[[jax.Array, int], list[_Series]] | None = None


_ENTRIES = {
    ("logistic", "logit"): _Entry(_logistic_moments, _logistic_integrals, _logistic_taylor),
    ("logistic", "probit"): _Entry(_probit_moments, _probit_integrals),
    ("poisson", "log"): _Entry(_count_moments, _count_integrals),
    ("poisson", "softplus"): _Entry(_count_moments, _count_integrals, _softplus_taylor),
    ("linear", "identity"): _Entry(_linear_moments, _linear_integrals, _linear_taylor),
}
