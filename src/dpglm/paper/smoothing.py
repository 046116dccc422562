"""Gaussian smoothing of a function that is flat at both ends, from its values and slopes.

E[h^(j)(u)] for u ~ N(mean, variance), any variance from 0 on: what outcomes.py needs of an outcome without a closed
form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy import special

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SmoothingPlan:
    """Where to evaluate h and h': a standardised grid below ``switch_sd``, a fixed grid of u above it.

    Both are trapezoid rules, which converge geometrically. A step must resolve the wiggles of h and of the Gaussian
    together: step * (their bandwidths) < 2 pi. The fixed grid is finer around ``centre``, within ``width``.
    """

    smallest_sd: float
    switch_sd: float
    standard_step: float
    low: float
    high: float
    step: float
    fine_step: float
    centre: float
    width: float


_SERIES_TERMS = 16  # of the Taylor series in the variance below smallest_sd
_STANDARD_RANGE = 10.5  # Hermite functions of degree 36 times exp(-z^2/4) are below 1e-12 there


def _hermite(points: Any, count: int) -> list[Any]:
    """Probabilists' Hermite polynomials He_0 ... He_(count - 1)."""
    polynomials = [points * 0 + 1.0, points]
    for degree in range(1, count - 1):
        polynomials.append(points * polynomials[degree] - degree * polynomials[degree - 1])
    return polynomials[:count]


@lru_cache(maxsize=64)
def _standard_rule(step: float, count: int) -> tuple[_Floats, _Floats]:
    """Nodes z, and weights such that sum_n f(z_n) weights[n, i] = E[f(z) He_i(z)]."""
    half = math.ceil(_STANDARD_RANGE / step)
    z: _Floats = step * np.arange(-half, half + 1.0)
    density = step * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return z, np.stack(_hermite(z, count), axis=1) * density[:, None]


@lru_cache(maxsize=64)
def _fixed_rule(plan: SmoothingPlan) -> tuple[_Floats, _Floats]:
    """Nodes and weights of a trapezoid rule in t(u) = a u + b tanh((u - centre) / width), an analytic map."""
    a = 1 / plan.step
    b = (1 / plan.fine_step - a) * plan.width

    def t_of(u: Any) -> Any:
        return a * u + b * np.tanh((u - plan.centre) / plan.width)

    t = np.arange(math.floor(t_of(plan.low)), math.ceil(t_of(plan.high)) + 1.0)
    left, right = np.full_like(t, plan.low - 2 * plan.step), np.full_like(t, plan.high + 2 * plan.step)
    for _ in range(60):  # bisection: t(u) increases
        middle = (left + right) / 2
        above = t_of(middle) > t
        left, right = np.where(above, left, middle), np.where(above, middle, right)
    u = (left + right) / 2
    return u, 1 / (a + b / plan.width / np.cosh((u - plan.centre) / plan.width) ** 2)


def smoothed(
    values_and_slopes: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    left_limit: float,
    plan: SmoothingPlan,
    mean: jax.Array,
    variance: jax.Array,
    largest_j: int,
) -> jax.Array:
    """E[h^(j)(u)] for j = 0 ... largest_j, for each row of h and h' as ``values_and_slopes(nodes)`` gives them."""

    def standardised(variance: jax.Array) -> jax.Array:
        """E[h^(j)] = E[h'(u) He_(j-1)(z)] / sd^(j-1), and below smallest_sd a Taylor series in the variance."""
        used = jnp.clip(variance, plan.smallest_sd**2, plan.switch_sd**2)
        sd = jnp.sqrt(used)
        count = largest_j + 2 * _SERIES_TERMS
        z, weights = _standard_rule(plan.standard_step, count)
        values, slopes = values_and_slopes(mean + sd * z)
        derivatives = slopes @ weights / sd ** np.arange(count)
        columns = jnp.concatenate([(values @ weights[:, :1]), derivatives], axis=1)
        # heat equation: H_j(variance) = sum_k ((variance - used) / 2)^k / k! H_(j + 2k)(used)
        back = jnp.minimum(variance - used, 0.0) / 2
        terms = jnp.cumprod(jnp.concatenate([jnp.ones(1), back / np.arange(1.0, _SERIES_TERMS + 1)]))
        return columns[:, np.add.outer(np.arange(largest_j + 1), 2 * np.arange(_SERIES_TERMS + 1))] @ terms

    def fixed(variance: jax.Array) -> jax.Array:
        """E[h] = h(-inf) + int h'(u) Phi((mean - u) / sd) du, and its derivatives in the mean."""
        sd = jnp.sqrt(jnp.maximum(variance, plan.switch_sd**2))
        nodes, weights = _fixed_rule(plan)
        distances = (mean - nodes) / sd
        slopes = values_and_slopes(jnp.asarray(nodes))[1] * weights
        kernels = [special.ndtr(distances), *normal_derivatives(distances, sd, largest_j)]
        return (slopes @ jnp.stack(kernels, axis=1)).at[:, 0].add(left_limit)

    table: jax.Array = jax.lax.cond(variance < plan.switch_sd**2, standardised, fixed, variance)
    return table


def normal_derivatives(distances: jax.Array, sd: jax.Array, count: int) -> list[jax.Array]:
    """d^i/dmean^i of the normal density at distance (mean - u) / sd, i = 0 ... count - 1."""
    density = jnp.exp(-(distances**2) / 2) / (math.sqrt(2 * math.pi) * sd)
    return [density * polynomial / (-sd) ** i for i, polynomial in enumerate(_hermite(distances, count))]
