"""Log density of the released sums, dense (the reference) and structured (the same number in O(d^3)).

The release z holds one noisy sum per statistic. Given the model (mean, covariance, w, integrals: see moments.py)::

    z ~ Normal( N E[t],  N Cov[t] + noise ),      noise_stddev^2 on each isometric coordinate of a block

Structure, in short (all of it in docs/likelihood.md). Divide by N and turn into the eigenbasis of Sigma = R R'. For
the block (0, 2), x = m + xi gives  T = sum xx' = sum xi xi' + U_m R s + constant,  with U_m h = m h' + h m' and
s = R^-1 sum xi ~ Normal(0, I), independent of sum xi xi', whose covariance plus noise is elementwise:
D_ij = 2 lambda_i lambda_j + noise. Hence, with G_ab = (U_a R)' D^-1 (U_b R), which is elementwise as well::

    s | T    has precision  K = I + G_mm  and mean  K^-1 (U_m R)' D^-1 (T - E T)
    v | s, T has mean  J s + X' (U_w R)' D^-1 (T - E T)  and a covariance V1 - X' G_ww X

for the vector blocks v, where X and J are a multiple of R plus rank one. So the density of v given T needs one more
Cholesky factor, of S = V1 - X' G_ww X + J K^-1 J' + noise. Lists with (1, 2) go to likelihood_counts.py.

Where the covariance is not positive definite in float64 the result is not a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpglm.blocks import BlockShape
from dpglm.errors import InputError
from dpglm.paper.eigenbasis import (
    Frame,
    cell_weights,
    eigenframe,
    gaussian_energy,
    gram,
    gram_of_w,
    inverse_and_log_determinant,
    pick,
    quotient,
)
from dpglm.paper.likelihood_counts import energy_with_products
from dpglm.paper.moments import check_moments, isometric_index, statistics_covariance, statistics_mean

Observed = tuple[Any, ...]  # NumPy's or JAX's arrays


def dense_log_likelihood(
    blocks: Sequence[BlockShape],
    observed: Observed,
    num_rows: Array | float,
    noise_stddevs: Array | Sequence[float],
    mean: Array,
    covariance: Array,
    w: Array,
    integrals: Array,
) -> Array:
    """The reference: every moment, one Cholesky factor of all statistics, O(d^6). Arguments as ``log_likelihood``."""
    covariance = (covariance + covariance.T) / 2
    model = (mean, covariance, w, integrals)
    sums, noise = [], []
    for block, tensor, stddev in zip(blocks, observed, noise_stddevs, strict=True):
        index, scale = isometric_index(block, mean.shape[0])
        sums.append(tensor.reshape(-1)[index] * scale)
        noise.append(jnp.full(index.size, stddev**2 / num_rows))
    residual = (jnp.concatenate(sums) - num_rows * statistics_mean(blocks, *model)) / jnp.sqrt(num_rows)
    scatter = statistics_covariance(blocks, *model) + jnp.diag(jnp.concatenate(noise))
    factor = jnp.linalg.cholesky(scatter)
    white = jax.scipy.linalg.solve_triangular(factor, residual, lower=True)
    energy = 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) + jnp.sum(white**2)
    return -(residual.size * jnp.log(2 * jnp.pi * num_rows) + energy) / 2


def log_likelihood(
    blocks: Sequence[BlockShape],
    observed: Observed,
    num_rows: Array | float,
    noise_stddevs: Array | Sequence[float],
    mean: Array | None,
    covariance: Array,
    w: Array,
    integrals: Array,
) -> Array:
    """Log density of the released sums; equals ``dense_log_likelihood`` in O(d^3).

    Args:
        blocks: any of (q, 0), (q, 1) with q up to 2, and (0, 2), (1, 2); static under jit.
        observed: what ``assemble.prepare`` returns.
        num_rows: N.
        noise_stddevs: one per block, on isometric coordinates (a plain off-diagonal product has stddev / sqrt(2)).
        mean, covariance, w: of the predictors, (d,), (d, d) and covariance @ beta; None is a mean of zero, and faster.
        integrals: (Q + 1, 5), see moments.py; row 0 must be (1, 0, 0, 0, 0) and is not differentiated.

    First derivatives are exact for every positive definite covariance, equal eigenvalues included; second derivatives
    only where the eigenvalues differ.
    """
    check_moments(blocks, integrals)
    matrix_powers = tuple(sorted(block.y_power for block in blocks if block.degree == 2))
    if max(matrix_powers, default=0) > 1:
        raise InputError("block", (2, 2), "the structured likelihood takes (0, 2) and (1, 2)", "leave (2, 2) out")
    frame, vectors = eigenframe(covariance, mean, w)
    order = sorted(range(len(blocks)), key=lambda index: (blocks[index].degree, blocks[index].y_power))
    residuals: tuple[list[Array], list[Array]] = ([], [])
    noises: tuple[list[Array], list[Array]] = ([], [])
    for index in order:
        block = blocks[index]
        expected = num_rows * _mean_tensor(block, frame, integrals)
        residual = (_rotated(observed[index], vectors) - expected) / jnp.sqrt(num_rows)
        variance = jnp.asarray(noise_stddevs[index]) ** 2 / num_rows
        if block.degree == 2:
            residuals[1].append(residual)
            noises[1].append(variance)
        else:
            residuals[0].append(residual.reshape(-1))
            noises[0].append(jnp.broadcast_to(variance, residual.size))
    vector_blocks = [blocks[index] for index in order if blocks[index].degree < 2]
    vector_residual = jnp.concatenate([jnp.zeros(0), *residuals[0]])
    vector_noise = jnp.concatenate([jnp.zeros(0), *noises[0]])
    if not matrix_powers:
        scatter = _vector_covariance(vector_blocks, frame, integrals) + jnp.diag(vector_noise)
        energy = gaussian_energy(scatter, vector_residual)
    else:
        both = (vector_residual, jnp.stack(residuals[1])), (vector_noise, jnp.stack(noises[1]))
        if matrix_powers == (0,) and mean is None:
            energy = _centred_energy(vector_blocks, *both, frame, integrals)
        elif matrix_powers == (0,):
            energy = _energy_with_squares(vector_blocks, *both, frame, integrals)
        else:
            energy = energy_with_products(vector_blocks, matrix_powers, *both, frame, integrals)
    size = sum(block.size(w.shape[0]) for block in blocks)
    return -(size * jnp.log(2 * jnp.pi * num_rows) + energy) / 2


def _rotated(tensor: Array, vectors: Array) -> Array:
    """A scalar, vector or symmetric matrix in the eigenbasis."""
    if tensor.ndim == 0:
        return tensor
    return vectors.T @ tensor if tensor.ndim == 1 else vectors.T @ tensor @ vectors


def _mean_tensor(block: BlockShape, frame: Frame, integrals: Array) -> Array:
    """E[y^q], E[y^q x] or E[y^q xx'] (docs/likelihood.md, section 1)."""
    averages, mean, w = integrals[block.y_power], frame.mean, frame.w
    if block.degree == 0:
        return averages[0]
    if block.degree == 1:
        return averages[0] * mean + averages[1] * w
    second = frame.covariance + jnp.outer(mean, mean)
    if block.y_power == 0:
        return second
    mixed = jnp.outer(mean, w)
    return averages[0] * second + averages[1] * (mixed + mixed.T) + averages[2] * jnp.outer(w, w)


def _split(vector_blocks: Sequence[BlockShape]) -> tuple[np.ndarray, np.ndarray]:
    """Powers of y of the blocks of degree 0 and of degree 1, which come in this order."""
    powers = [[block.y_power for block in vector_blocks if block.degree == degree] for degree in (0, 1)]
    return np.array(powers[0], dtype=np.int64), np.array(powers[1], dtype=np.int64)


def _low_rank(vector_blocks: Sequence[BlockShape], frame: Frame) -> tuple[Array, np.ndarray, np.ndarray]:
    """Columns A, one for each (power of y, order j): 1 for j = 0, or m and w for j = 0, 1; and their powers, orders."""
    scalars, wide = _split(vector_blocks)
    pair = jnp.stack([frame.mean, frame.w], axis=1)
    corner = jnp.kron(jnp.eye(wide.size), pair) if wide.size else jnp.zeros((0, 0))
    columns = jax.scipy.linalg.block_diag(jnp.eye(scalars.size), corner)
    powers = np.concatenate([scalars, np.repeat(wide, 2)])
    return columns, powers, np.concatenate([0 * scalars, np.tile([0, 1], wide.size)]).astype(np.int64)


def _add_wide(matrix: Array, wide_part: Array, frame: Frame) -> Array:
    """matrix + R A R' for A of shape (n, n, d, d) on the blocks of degree 1, symmetric under (q, i) <-> (r, j)."""
    count, d = wide_part.shape[0], frame.mean.shape[0]
    whole = jnp.transpose(frame.sandwich(wide_part), (0, 2, 1, 3)).reshape(count * d, count * d)
    return matrix + jnp.pad(whole, (matrix.shape[0] - count * d, 0))


def _vector_covariance(vector_blocks: Sequence[BlockShape], frame: Frame, integrals: Array) -> Array:
    """Cov of the vector blocks: A kappa A' and E[y^(q+r)] Sigma, with kappa = H_(q+r, j+k) - H_qj H_rk."""
    columns, q, j = _low_rank(vector_blocks, frame)
    single = pick(integrals, q, j)
    kappa = pick(integrals, q[:, None] + q, j[:, None] + j) - jnp.outer(single, single)
    wide = _split(vector_blocks)[1]
    products = pick(integrals, wide[:, None] + wide, np.zeros((wide.size, wide.size), dtype=np.int64))
    return _add_wide(columns @ kappa @ columns.T, products[:, :, None, None] * jnp.eye(frame.mean.size), frame)


def _energy_with_squares(
    vector_blocks: Sequence[BlockShape],
    residuals: tuple[Array, Array],
    noises: tuple[Array, Array],
    frame: Frame,
    integrals: Array,
) -> Array:
    """-2 log density less its constant for the matrix block (0, 2) (docs/likelihood.md, section 3)."""
    d = frame.mean.size
    weights = cell_weights(frame, jnp.ones((1, 1)), noises[1])
    solved = quotient(weights, frame, residuals[1])[0]
    g_mm, g_mw, g_ww = (one[0, 0] for one in gram(weights, frame))
    inverse, log_determinant = inverse_and_log_determinant(jnp.eye(d) + g_mm)
    projected_m = 2 * frame.root_transposed_times(solved @ frame.mean)
    projected_w = 2 * frame.root_transposed_times(solved @ frame.w)
    estimate = inverse @ projected_m  # of s, given T
    quadratic = jnp.sum(residuals[1][0] * solved) - projected_m @ estimate
    energy = weights.log_determinant + log_determinant + quadratic
    if not vector_blocks:
        return energy

    # X = H_q1 R' + white_w g'/2 and J' = (H_q0 - H_q1 G_mw) R' + sides (f, g)', with (f, g) = A (H_q,j+1, H_q,j+2)
    columns, q, j = _low_rank(vector_blocks, frame)
    raised = jnp.stack([pick(integrals, q, j + 1), pick(integrals, q, j + 2)], axis=1)
    white_w = frame.white_w
    sides = jnp.stack([white_w, -g_mw @ white_w / 2], axis=1)
    solved_sides = inverse @ sides
    spread = g_ww @ white_w
    middle = sides.T @ solved_sides - jnp.array([[0.0, 0.0], [0.0, 0.25]]) * (white_w @ spread)

    # V1, the covariance given s: kappa less the part that goes through s
    zeroth, first = pick(integrals, q, j), raised[:, 0]
    through = jnp.outer(first, pick(integrals, q, np.maximum(j - 1, 0)) * j)
    table = pick(integrals, q[:, None] + q, j[:, None] + j) - jnp.outer(zeroth, zeroth)
    table = table - (white_w @ white_w) * jnp.outer(first, first) - through - through.T
    table = table + raised @ middle @ raised.T

    # the blocks of degree 1: products with R and R', and their cross terms with the rank one parts
    scalars, wide = _split(vector_blocks)
    h0, h1 = pick(integrals, wide, 0 * wide), pick(integrals, wide, 0 * wide + 1)
    back = g_mw.T @ solved_sides + jnp.stack([jnp.zeros(d), spread / 2], axis=1)
    side_blocks = [frame.root_times(h0[i] * solved_sides - h1[i] * back) for i in range(wide.size)]
    loads = jnp.concatenate([jnp.zeros((scalars.size, 2)), *side_blocks])
    low = (columns @ table / 2 + loads @ raised.T) @ columns.T
    left = inverse @ g_mw
    matrices = jnp.stack([jnp.eye(d), inverse, g_mw.T @ left - g_ww, left, left.T])
    squares = pick(integrals, wide[:, None] + wide, np.zeros((wide.size, wide.size), dtype=np.int64))
    mixed = jnp.outer(h0, h1)
    straight = jnp.outer(h0, h0)
    factors = jnp.stack([squares - straight, straight, jnp.outer(h1, h1), -mixed, -mixed.T], axis=-1)
    schur = _add_wide(low + low.T + jnp.diag(noises[0]), jnp.einsum("qrk,kij->qrij", factors, matrices), frame)

    change = projected_w - g_mw.T @ estimate
    shifts = [frame.root_times(h1[i] * change + h0[i] * estimate) for i in range(wide.size)]
    shift = jnp.concatenate([jnp.zeros(scalars.size), *shifts])
    along = sides.T @ estimate + jnp.array([0.0, 0.5]) * (white_w @ projected_w)
    return energy + gaussian_energy(schur, residuals[0] - shift - columns @ (raised @ along))


def _centred_energy(
    vector_blocks: Sequence[BlockShape],
    residuals: tuple[Array, Array],
    noises: tuple[Array, Array],
    frame: Frame,
    integrals: Array,
) -> Array:
    """The same where the mean is zero: T is then independent of s, and no root of Sigma is needed.

    Cov(v, T) = X' U_w' with X = H_q1 Sigma + w g' / 2, where g = A H_q,j+2.
    """
    weights = cell_weights(frame, jnp.ones((1, 1)), noises[1])
    solved = quotient(weights, frame, residuals[1])[0]
    energy = weights.log_determinant + jnp.sum(residuals[1][0] * solved)
    if not vector_blocks:
        return energy
    gram_ww = gram_of_w(weights, frame)
    solved_w, gram_w = solved @ frame.w, gram_ww @ frame.w

    scalars, wide = _split(vector_blocks)
    q = np.concatenate([scalars, wide])
    j = np.concatenate([0 * scalars, 0 * wide + 1])
    columns = jax.scipy.linalg.block_diag(jnp.eye(scalars.size), *[frame.w[:, None]] * wide.size)
    single, raised = pick(integrals, q, j), pick(integrals, q, j + 2)
    kappa = pick(integrals, q[:, None] + q, j[:, None] + j) - jnp.outer(single, single)
    kappa = kappa - jnp.outer(raised, raised) * (frame.w @ gram_w) / 4
    h1 = pick(integrals, wide, 0 * wide + 1)
    none = jnp.zeros(scalars.size)
    loads = jnp.append(none, jnp.outer(h1, frame.covariance_times(gram_w) / 2))
    low = (columns @ kappa / 2 - jnp.outer(loads, raised)) @ columns.T
    squares = pick(integrals, wide[:, None] + wide, np.zeros((wide.size, wide.size), dtype=np.int64))
    straight, through = frame.covariance, frame.twice_covariance_times(gram_ww)
    schur = low + low.T + jnp.diag(noises[0])
    schur = schur + jnp.pad(jnp.kron(squares, straight) - jnp.kron(jnp.outer(h1, h1), through), (scalars.size, 0))

    shift = jnp.append(none, jnp.outer(h1, 2 * frame.covariance_times(solved_w)))
    return energy + gaussian_energy(schur, residuals[0] - shift - columns @ raised * (frame.w @ solved_w))
