"""The structured likelihood with a block (1, 2): sums of y xx', which counts need. Derivation: docs/likelihood.md."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dpglm.blocks import BlockShape
from dpglm.paper.eigenbasis import (
    Frame,
    Weights,
    cell_weights,
    gaussian_energy,
    general_inverse,
    gram,
    inverse_and_log_determinant,
    pick,
    quotient,
)

Sums = list[tuple[int, int]]
_SMALLEST_VARIANCE = 1e-14  # of y, against E[y^2]: the integrals hold no smaller one to any accuracy


def energy_with_products(
    vector_blocks: Sequence[BlockShape],
    matrix_powers: tuple[int, ...],
    residuals: tuple[Array, Array],
    noises: tuple[Array, Array],
    frame: Frame,
    integrals: Array,
) -> Array:
    """-2 log density less its constant, for the matrix blocks (q, 2), matrix_powers (1,) or (0, 1).

    residuals: all vector blocks after one another, and (p, d, d); noises: variances, per coordinate and (p,).
    With noiseless sums s = (xi, y xi, y), y^q xx' is a linear map of s plus T_q = y^q (xi xi' - Sigma): condition T_q
    on s, then integrate s out. The vector blocks are linear in s and in other sums o (docs/likelihood.md, section 4).
    """
    d, p = frame.mean.shape[0], len(matrix_powers)
    powers = np.array(matrix_powers)
    coupling = pick(integrals, powers[:, None] + powers, np.zeros((p, p), dtype=np.int64))
    weights = cell_weights(frame, coupling, noises[1])
    solved = quotient(weights, frame, residuals[1])
    inside, outside = _latent_sums(vector_blocks, matrix_powers)
    # any constant centre and shear give the same density, and keep what follows well scaled: (y - centre) R^-1 xi where
    # y varies little, and y R^-1 xi + y shear where the mean is large against Sigma
    centre = lax.stop_gradient(integrals[1, 0])
    strength = jnp.sum(jnp.outer(frame.mean, frame.mean) ** 2 * weights.inverse[-1, -1])
    shear = lax.stop_gradient(frame.white_mean / 2 * strength / (1 + strength))
    joint = _joint_covariance(inside + outside, matrix_powers, frame, integrals, centre)

    # T, and o, given s: means U_w R shift' s and fit' s; coordinates of their covariances along U_w R
    s, o = slice(p * d, 2 * p * d + 1), slice(2 * p * d + 1, None)
    floor = _SMALLEST_VARIANCE * lax.stop_gradient(integrals[2, 0])
    of_y = np.array([k == 0 or q == 1 for q, k in inside for _ in range(d if k else 1)], dtype=np.float64)
    precision, log_own = inverse_and_log_determinant(joint[s, s] + jnp.diag(floor * of_y))
    shift, fit = precision @ joint[s, : p * d], precision @ joint[s, o]
    w_part = joint[: p * d, : p * d] - joint[: p * d, s] @ shift
    cross = joint[: p * d, o] - joint[: p * d, s] @ fit
    rest = joint[o, o] - joint[o, s] @ fit
    last = p * d  # the sum of y, after p vectors
    sheared = jnp.zeros(last + 1).at[last - d : last].set(shear)
    shift, fit = shift.at[last].add(-sheared @ shift), fit.at[last].add(-sheared @ fit)
    row = precision @ sheared
    precision = precision.at[last].add(-row).at[:, last].add(-row).at[last, last].add(sheared @ row)

    # (D + (U_w R) w_part (U_w R)')^-1 by Woodbury, between the columns U_w R, those that load on s, and the residual
    gram_ww, gram_ws, gram_ss, projected_w, projected_s = _projections(frame, weights, solved, shear, centre)
    inverse, log_first = general_inverse(jnp.eye(p * d) + gram_ww @ w_part)
    inner = w_part @ inverse
    reduced_ww, reduced_ws, reduced_w = inverse @ gram_ww, inverse @ gram_ws, inverse @ projected_w
    seen = reduced_ws + reduced_ww @ shift.T
    gram_ss = gram_ss - gram_ws.T @ inner @ gram_ws + shift @ seen + (shift @ reduced_ws).T
    projected_s = projected_s - gram_ws.T @ (inner @ projected_w) + shift @ reduced_w
    quadratic = jnp.sum(residuals[1] * solved) - projected_w @ (inner @ projected_w)

    # s given the matrix blocks
    total = precision + gram_ss
    posterior, log_second = inverse_and_log_determinant((total + total.T) / 2)
    estimate = posterior @ projected_s
    log_determinant = weights.log_determinant + log_first + log_own + log_second
    energy = log_determinant + quadratic - projected_s @ estimate
    if not vector_blocks:
        return energy
    on_s, on_o = _vector_loading(vector_blocks, inside, outside, frame, shear, centre)
    on_s = on_s + on_o @ (fit - seen.T @ cross).T
    rest = rest - cross.T @ reduced_ww @ cross
    schur = on_s @ posterior @ on_s.T + on_o @ rest @ on_o.T + jnp.diag(noises[0])
    return energy + gaussian_energy(
        (schur + schur.T) / 2, residuals[0] - on_s @ estimate - on_o @ (cross.T @ reduced_w)
    )


def _latent_sums(vector_blocks: Sequence[BlockShape], matrix_powers: tuple[int, ...]) -> tuple[Sums, Sums]:
    """Noiseless sums y^q and y^q R^-1 xi as (q, 0) and (q, 1): those that matrix blocks load on, and the others."""
    inside = [(q, 1) for q in matrix_powers] + [(1, 0)]
    needed = {(block.y_power, degree) for block in vector_blocks for degree in range(block.degree + 1)}
    return inside, sorted(needed - set(inside) - {(0, 0)})


def _joint_covariance(
    latent: Sums, matrix_powers: tuple[int, ...], frame: Frame, integrals: Array, centre: Array
) -> Array:
    """Covariance of (coordinates of T_q along U_w R, latent sums), with (y - centre) R^-1 xi where R^-1 xi is there."""
    d = frame.mean.shape[0]
    # power of y, order of the derivative in the rank few part, in the identity part, and size
    entries = [(q, 2, 1, d) for q in matrix_powers] + [(q, k, 0, d if k else 1) for q, k in latent]
    q, j, k, sizes = (np.array([entry[column] for entry in entries]) for column in range(4))
    spread = jnp.asarray(np.repeat(np.eye(len(entries)), sizes, axis=0))
    coordinate = np.concatenate([np.arange(d) if order else [-1] for order in j])
    same = (coordinate[:, None] == coordinate) & (coordinate >= 0)
    halves = [frame.white_w / 2] * len(matrix_powers)
    load = jnp.concatenate(halves + [frame.white_w if degree else jnp.ones(1) for _, degree in latent])
    # kappa = H_(q+r, j+k) - H_qj H_rk, along white_w; and H_(q+r, j+k) I
    single = pick(integrals, q, j)
    kappa = pick(integrals, q[:, None] + q, j[:, None] + j) - jnp.outer(single, single)
    straight = pick(integrals, q[:, None] + q, k[:, None] + k)
    if matrix_powers == (0, 1):
        centred = jnp.eye(len(entries)).at[3, 2].set(-centre)
        kappa, straight = centred @ kappa @ centred.T, centred @ straight @ centred.T
    return (spread @ kappa @ spread.T) * jnp.outer(load, load) + (spread @ straight @ spread.T) * jnp.asarray(same)


def _projections(
    frame: Frame, weights: Weights, solved: Array, shear: Array, centre: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Inner products under D^-1 of the columns U_w R, of the columns that load on s, and the residual.

    y^q xx' loads on y^q R^-1 xi by U_m R, and y xx' on y by Sigma + m m' - U_m R shear. With a centre, y xx' also
    loads on R^-1 xi: ``mix`` takes the matrix blocks to the sums.
    """
    p, d = solved.shape[:2]
    mix = jnp.eye(p) if p == 1 else jnp.eye(p).at[1, 0].set(centre)

    def flat(array: Array) -> Array:
        return jnp.transpose(array, (0, 2, 1, 3)).reshape(p * d, p * d)

    def along(matrices: Array, direction: Array) -> Array:
        """(U_a R)' A = 2 R' A a, for a stack (p, d, d)."""
        return 2 * frame.root_transposed_times((matrices @ direction).T).T

    gram_mm, gram_mw, gram_ww = gram(weights, frame)
    gram_mm = jnp.einsum("qs,qrij,rt->stij", mix, gram_mm, mix)
    gram_wm = jnp.einsum("qs,qrij->rsji", mix, gram_mw)
    half = jnp.outer(frame.mean, frame.mean / 2 - frame.root_times(shear))
    column = frame.covariance + half + half.T
    own = quotient(weights, frame, jnp.zeros((p, d, d)).at[-1].set(column))
    side = (mix.T @ along(own, frame.mean)).reshape(-1, 1)
    gram_ss = jnp.block([[flat(gram_mm), side], [side.T, jnp.sum(column * own[-1])]])
    gram_ws = jnp.concatenate([flat(gram_wm), along(own, frame.w).reshape(-1, 1)], axis=1)
    projected_s = jnp.append(mix.T @ along(solved, frame.mean), jnp.sum(column * solved[-1]))
    return flat(gram_ww), gram_ws, gram_ss, along(solved, frame.w).reshape(-1), projected_s


def _vector_loading(
    vector_blocks: Sequence[BlockShape], inside: Sums, outside: Sums, frame: Frame, shear: Array, centre: Array
) -> tuple[Array, Array]:
    """The vector blocks as linear maps of s and of the other sums: y^r x = m y^r + R (y^r R^-1 xi)."""
    d = frame.mean.shape[0]
    root = frame.root_times(jnp.eye(d))

    def entry(block: BlockShape, sums: tuple[int, int]) -> Array:
        if block.y_power == 1 and sums == (0, 1) and block.degree:
            return centre * root if (0, 1) in inside else jnp.zeros((d, d))
        if block.y_power != sums[0] or block.degree < sums[1]:
            return jnp.zeros((d if block.degree else 1, d if sums[1] else 1))
        if sums[1]:
            return root
        if not block.degree:
            return jnp.ones((1, 1))
        return (frame.mean - frame.root_times(shear) if sums == (1, 0) else frame.mean)[:, None]

    def table(latent: Sums) -> Array:
        rows = [[entry(block, sums) for sums in latent] for block in vector_blocks]
        return jnp.block(rows) if latent else jnp.zeros((sum(block.size(d) for block in vector_blocks), 0))

    return table(inside), table(outside)
