"""Moments of the statistics by averaging over fixed quasi-random rows: slow, but it knows no closed form.

It needs only h_q(u) = E[y^q | u], so it serves any block list, any degree and any outcome, and covariates clamped
like real rows. It is ``moments="numeric"`` for users, and the oracle that the closed forms are tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dpglm.blocks import BlockShape
from dpglm.errors import InputError
from dpglm.paper.outcomes import Outcome, outcome_moments

DEFAULT_POINTS = 2**14
_SEED = 20210719  # any fixed number: it makes the rule deterministic


def numeric_moments(
    blocks: Sequence[BlockShape],
    intercept: jax.Array | float,
    coefficients: jax.Array,
    covariate_mean: jax.Array,
    covariate_covariance: jax.Array,
    outcome: Outcome,
    spread: jax.Array | float,
    *,
    points: int = DEFAULT_POINTS,
    clamp_to_box: bool = False,
    clamp_to_radius: float | None = None,
    isometric: bool = True,
) -> tuple[jax.Array, jax.Array]:
    """Mean (M,) and covariance (M, M) of one row's statistics, in the order of ``blocks`` and of their monomials.

    x = m + L xi with xi standard normal and L the Cholesky factor of the covariance, which must be positive definite;
    then, if asked, every column clamped to [-1, 1] and the row scaled back onto the ball; then u = intercept +
    x . coefficients. ``isometric=False`` gives plain monomials, without the square roots of the multinomial
    coefficients. Deterministic; differentiable in all arrays. With the default points and a few columns the error is
    about 2e-4 of a first moment and 2e-3 of a fourth; four times the points, a quarter of it. Counts need memory for
    points times bound numbers.
    """
    coefficients = jnp.asarray(coefficients, dtype=jnp.float64)
    factor = jnp.linalg.cholesky(jnp.asarray(covariate_covariance, dtype=jnp.float64))
    x = jnp.asarray(covariate_mean) + normal_points(len(coefficients), points) @ factor.T
    x = clamped_rows(x, clamp_to_box, clamp_to_radius)
    return average_over_rows(blocks, x, intercept + x @ coefficients, outcome, spread, isometric=isometric)


def average_over_rows(
    blocks: Sequence[BlockShape],
    x: jax.Array,
    u: jax.Array,
    outcome: Outcome,
    spread: jax.Array | float,
    *,
    isometric: bool = True,
) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of the statistics when a row is one of the rows of x, all equally likely, and y follows u."""
    largest_q = 2 * max(block.y_power for block in blocks)
    powers = outcome_moments(outcome, u, spread, largest_q)
    features = jnp.concatenate([_monomial_columns(block, x, isometric) for block in blocks], axis=1)
    y_powers = np.concatenate([np.full(block.size(x.shape[1]), block.y_power) for block in blocks])
    mean = jnp.mean(features * powers[y_powers].T, axis=0)
    # E[t_a t_b] = average of x-monomials times h_(q_a + q_b)(u)
    sums = y_powers[:, None] + y_powers[None, :]
    second = jnp.zeros((len(y_powers), len(y_powers)))
    for q in sorted(set(sums.ravel().tolist())):
        second = jnp.where(sums == q, features.T @ (features * powers[q][:, None]) / len(x), second)
    return mean, second - jnp.outer(mean, mean)


def clamped_rows(x: jax.Array, to_box: bool, to_radius: float | None) -> jax.Array:
    """Rows with each column clamped to [-1, 1], then projected onto the ball, as the custodian does it."""
    if to_box:
        x = jnp.clip(x, -1.0, 1.0)
    if to_radius is None:
        return x
    if not to_radius > 0:
        raise InputError("clamp_to_radius", to_radius, "must be above 0", "give the radius of the rows, or None")
    squared_norms = jnp.sum(x**2, axis=1, keepdims=True)
    return x * (to_radius / jnp.sqrt(jnp.maximum(squared_norms, to_radius**2)))


@lru_cache(maxsize=8)
def normal_points(dimension: int, points: int) -> npt.NDArray[np.float64]:
    """Quasi-random standard normal rows (scrambled Sobol, fixed seed) whose mean is 0 and covariance is 1 exactly.

    Mirror images make all odd moments vanish.
    """
    from scipy.stats import qmc

    exponent = points.bit_length() - 2 if isinstance(points, int) else 0
    if points != 2 ** (exponent + 1) or 2**exponent < 2 * dimension:
        rule = f"must be a power of two, at least {4 * dimension} for {dimension} columns"
        raise InputError("points", points, rule, f"use for example {DEFAULT_POINTS}")
    uniform = qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(_SEED)).random_base2(exponent)
    # each column has one point in each of 2^exponent cells: take the middles, so that no column has a stray tail
    half = ndtri((np.floor(uniform * 2**exponent) + 0.5) / 2**exponent)
    half = half @ np.linalg.inv(np.linalg.cholesky(half.T @ half / len(half))).T
    rows = np.concatenate([half, -half])
    rows.setflags(write=False)
    return rows


def _monomial_columns(block: BlockShape, x: jax.Array, isometric: bool) -> jax.Array:
    """The block's monomials of x, one column each, without y."""
    dimension = x.shape[1]
    columns = []
    for indices in block.monomials(dimension):
        column = jnp.ones(len(x))
        for index in indices:
            column = column * x[:, index]
        columns.append(column)
    scale = np.sqrt(block.multiplicities(dimension)) if isometric else 1.0
    return jnp.stack(columns, axis=1) * scale
