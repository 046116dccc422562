"""The structured likelihood with a block (1, 2), and the eigenbasis operations that likelihood.py shares.

Everything is per row (sums divided by sqrt(N), noise variances by N) and in the eigenbasis of the covariance,
Sigma = Q diag(lambda) Q'. There the Gaussian part of the covariance of the matrix blocks,
A -> 2 E[y^(q+r)] Sigma A Sigma + noise, is elementwise: a p x p cell D_ij for each pair (i, j) of coordinates, p the
number of matrix blocks. ``weights[q, r, i, j]`` is the inverse of the cells. Derivation: docs/likelihood.md.

Derivatives. Differentiating Q would divide by differences of eigenvalues. Instead Q is held fixed and Q' Sigma Q may
leave the diagonal: ``tilt`` is its off-diagonal part, zero in value, and each operation below states its first
derivative in ``tilt``, which comes from D^-1 -> D^-1 - D^-1 (dD) D^-1 and divides by nothing. Gradients are therefore
exact at equal eigenvalues too. A second derivative does differentiate Q: right for distinct eigenvalues only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dpglm.blocks import BlockShape

Sums = list[tuple[int, int]]
_SMALLEST_VARIANCE = 1e-14  # of y, against E[y^2]: the integrals hold no smaller one to any accuracy


class Frame(NamedTuple):
    """The model in the eigenbasis of Sigma = R R', with R = diag(sqrt(lambda)) in value."""

    eigenvalues: Array
    tilt: Array
    mean: Array
    w: Array
    white_mean: Array  # R^-1 m
    white_w: Array  # R^-1 w

    @property
    def covariance(self) -> Array:
        return jnp.diag(self.eigenvalues) + self.tilt

    @property
    def root_tilt(self) -> Array:
        """To first order R = sqrt(lambda) + tilt / (2 sqrt(lambda)), the division along columns."""
        return self.tilt / (2 * jnp.sqrt(self.eigenvalues))

    def root_times(self, array: Array) -> Array:
        """R @ array, for a vector or a matrix."""
        scale = jnp.sqrt(self.eigenvalues)
        return (array.T * scale).T + _tilted(self.root_tilt, array)

    def root_transposed_times(self, array: Array) -> Array:
        """R' @ array, for a vector or a matrix."""
        scale = jnp.sqrt(self.eigenvalues)
        return (array.T * scale).T + _tilted(self.root_tilt.T, array)

    def sandwich(self, arrays: Array) -> Array:
        """R A_qr R' for arrays (n, n, d, d) with A_qr = A_rq'."""
        scale = jnp.sqrt(self.eigenvalues)
        moved = _tilted(self.root_tilt, arrays * scale)
        return arrays * jnp.outer(scale, scale) + moved + jnp.transpose(moved, (1, 0, 3, 2))


class Weights(NamedTuple):
    """The cells D_ij = 2 lambda_i lambda_j coupling + noise, inverted."""

    inverse: Array  # (p, p, d, d)
    coupling: Array  # (p, p), E[y^(q+r)]
    log_determinant: Array  # of D as an operator on symmetric matrices


def eigenframe(covariance: Array, mean: Array, w: Array) -> tuple[Frame, Array]:
    """The frame, and the eigenvectors Q, held fixed under differentiation."""
    eigenvalues, tilt, vectors = _eigenbasis(covariance)
    mean, w = vectors.T @ mean, vectors.T @ w
    scale = jnp.sqrt(eigenvalues)
    # R^-1 = sqrt(lambda)^-1 (1 - tilt / (2 lambda)) to first order
    white_mean, white_w = (one / scale - _tilted(tilt, one / eigenvalues) / (2 * scale) for one in (mean, w))
    return Frame(eigenvalues, tilt, mean, w, white_mean, white_w), vectors


def cell_weights(frame: Frame, coupling: Array, noise: Array) -> Weights:
    """coupling is (p, p), noise (p,), p = 1 or 2."""
    gaussian = 2 * jnp.outer(frame.eigenvalues, frame.eigenvalues)
    cells = coupling[:, :, None, None] * gaussian + jnp.diag(noise)[:, :, None, None]
    if coupling.shape[0] == 1:
        inverse, determinant = 1 / cells, cells[0, 0]
    else:
        # det(coupling g + noise), its only difference the variance of y in det(coupling)
        variance = coupling[0, 0] * coupling[1, 1] - coupling[0, 1] ** 2
        linear = coupling[0, 0] * noise[1] + coupling[1, 1] * noise[0]
        determinant = (variance * gaussian + linear) * gaussian + noise[0] * noise[1]
        inverse = jnp.array([[cells[1, 1], -cells[0, 1]], [-cells[0, 1], cells[0, 0]]]) / determinant
    logs = jnp.log(determinant)
    # isometric coordinates: one for each pair i <= j
    return Weights(inverse, coupling, (jnp.sum(logs) + jnp.sum(logs * jnp.eye(logs.shape[0]))) / 2)


def quotient(weights: Weights, frame: Frame, matrices: Array) -> Array:
    """D^-1 of a stack (p, d, d) of symmetric matrices."""
    value = jnp.sum(weights.inverse * matrices, axis=1)
    return value + _quotient_tilt(frame.tilt, weights, frame.eigenvalues, value)


def gram(weights: Weights, frame: Frame) -> tuple[Array, Array, Array]:
    """Inner products <U_a R e_i, D^-1 U_b R e_j> with U_a h = a h' + h a', for (a, b) = (m, m), (m, w), (w, w).

    Each has the shape (p, p, d, d): matrix block of the left and of the right side, i, j.
    """
    scale = jnp.sqrt(frame.eigenvalues)

    def pair(a: Array, b: Array) -> Array:
        # U_a' (U_b e_j / D) = 2 [ b_i a_j / D_ij + delta_ij sum_k a_k b_k / D_ik ]
        outer = jnp.outer(scale * b, scale * a) * weights.inverse
        return 2 * (outer + _diagonal(frame.eigenvalues * (weights.inverse @ (a * b))))

    both = _gram_tilt(frame.tilt, weights, frame.eigenvalues, frame.mean, frame.w)
    m, w = frame.mean, frame.w
    return pair(m, m) + both[0], pair(m, w) + both[1], pair(w, w) + both[2]


@jax.custom_jvp
def inverse_and_log_determinant(matrix: Array) -> tuple[Array, Array]:
    """Of a symmetric positive definite matrix; not a number where it is not positive definite."""
    factor = lax.linalg.cholesky(matrix, symmetrize_input=False)
    root = lax.linalg.triangular_solve(factor, jnp.eye(matrix.shape[0]), left_side=True, lower=True)
    return root.T @ root, 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))


@inverse_and_log_determinant.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    inverse, log_determinant = inverse_and_log_determinant(*primals)
    return (inverse, log_determinant), (-inverse @ tangents[0] @ inverse, jnp.sum(inverse * tangents[0]))


@jax.custom_jvp
def general_inverse(matrix: Array) -> tuple[Array, Array]:
    """Inverse and log |det| of a square matrix."""
    factors = jax.scipy.linalg.lu_factor(matrix)
    inverse = jax.scipy.linalg.lu_solve(factors, jnp.eye(matrix.shape[0]))
    return inverse, jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factors[0]))))


@general_inverse.defjvp
def _general_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    inverse, log_determinant = general_inverse(*primals)
    return (inverse, log_determinant), (-inverse @ tangents[0] @ inverse, jnp.sum(inverse.T * tangents[0]))


@jax.custom_jvp
def gaussian_energy(matrix: Array, residual: Array) -> Array:
    """log det S + e' S^-1 e."""
    factor = lax.linalg.cholesky(matrix, symmetrize_input=False)
    white = lax.linalg.triangular_solve(factor, residual[:, None], left_side=True, lower=True)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) + jnp.sum(white**2)


@gaussian_energy.defjvp
def _energy_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    inverse, log_determinant = inverse_and_log_determinant(primals[0])
    solved = inverse @ primals[1]
    change = jnp.sum((inverse - jnp.outer(solved, solved)) * tangents[0]) + 2 * jnp.sum(solved * tangents[1])
    return log_determinant + jnp.sum(primals[1] * solved), change


def pick(integrals: Array, powers: np.ndarray, orders: np.ndarray) -> Array:
    """integrals[powers, orders] for constant indices, as a product with zeros and ones (faster to differentiate)."""
    flat = (powers * integrals.shape[1] + orders).reshape(-1)
    chosen = np.eye(integrals.size)[flat] @ integrals.reshape(-1)
    return jnp.reshape(chosen, powers.shape)


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


@jax.custom_jvp
def _eigenbasis(covariance: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues, tilt and Q; Q stays and the tilt moves."""
    return _ordinary_eigenbasis(covariance)


@_eigenbasis.defjvp
def _eigenbasis_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
    eigenvalues, tilt, vectors = _ordinary_eigenbasis(*primals)
    moved = vectors.T @ tangents[0] @ vectors
    moved = (moved + moved.T) / 2
    # not jnp.diagonal, whose transpose is a scatter: on a CPU, a loop over elements
    diagonal = moved * jnp.eye(len(moved))
    return (eigenvalues, tilt, vectors), (jnp.sum(diagonal, axis=0), moved - diagonal, jnp.zeros_like(vectors))


def _ordinary_eigenbasis(covariance: Array) -> tuple[Array, Array, Array]:
    eigenvalues, vectors = jnp.linalg.eigh(covariance)
    return eigenvalues, jnp.zeros_like(covariance), vectors


@jax.custom_jvp
def _tilted(tilt: Array, array: Array) -> Array:
    """tilt @ array: zero, with the derivative of a product, and no multiplication by zeros in the value."""
    return jnp.zeros_like(array)


@_tilted.defjvp
def _tilted_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return jnp.zeros_like(primals[1]), tangents[0] @ primals[1]


@jax.custom_jvp
def _quotient_tilt(tilt: Array, weights: Weights, eigenvalues: Array, value: Array) -> Array:
    """Zero; its derivative is -D^-1 (dD) applied to the quotient."""
    return jnp.zeros_like(value)


@_quotient_tilt.defjvp
def _quotient_tilt_jvp(
    primals: tuple[Array, Weights, Array, Array], tangents: tuple[Array, Weights, Array, Array]
) -> tuple[Array, Array]:
    _, weights, eigenvalues, value = primals
    # dD(A) = 2 coupling (dSigma A Sigma + Sigma A dSigma)
    coupled = jnp.sum(weights.coupling[:, :, None, None] * value, axis=1)
    half = tangents[0] @ coupled * eigenvalues
    moved = 2 * (half + jnp.swapaxes(half, -1, -2))
    return jnp.zeros_like(value), -jnp.sum(weights.inverse * moved, axis=1)


@jax.custom_jvp
def _gram_tilt(tilt: Array, weights: Weights, eigenvalues: Array, mean: Array, w: Array) -> tuple[Array, Array, Array]:
    """Zero; its derivative is that of the gram matrices in the tilt, through R and through D^-1."""
    zero = jnp.zeros_like(weights.inverse)
    return zero, zero, zero


@_gram_tilt.defjvp
def _gram_tilt_jvp(
    primals: tuple[Array, Weights, Array, Array, Array], tangents: tuple[Array, Weights, Array, Array, Array]
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
    _, weights, eigenvalues, mean, w = primals
    moving, inverse = tangents[0], weights.inverse
    coupled = jnp.sum(weights.coupling[:, :, None, None, None] * inverse, axis=1)
    scale = jnp.sqrt(eigenvalues)

    def coupled_product(left: Array, right: Array) -> Array:
        """sum over s of left[q, s] * right[s, r], elementwise in i, j."""
        return jnp.sum(left[:, :, None] * right, axis=1)

    def pair(a: Array, b: Array, moved_a: Array, moved_b: Array) -> Array:
        # -<A, dD B> = -4 tr(A dSigma B Sigma) with A = U_a e_i / D, B = U_b e_j / D: the four products of their terms
        coupled_b = jnp.swapaxes(jnp.sum(weights.coupling[:, :, None, None, None] * moved_b, axis=1), -1, -2)
        crossed = eigenvalues * a * coupled_product(inverse, coupled_b)
        crossed = crossed + (eigenvalues * b)[:, None] * coupled_product(moved_a, coupled)
        kernel = jnp.sum((inverse * (a * b * eigenvalues))[:, :, None] @ coupled, axis=1)
        corner = _diagonal(eigenvalues * jnp.sum(coupled_product(moved_a, coupled) * b, axis=-1))
        through_weights = -4 * jnp.outer(scale, scale) * (crossed + kernel * moving + corner)
        # and through R, whose derivative is moving / (2 sqrt(lambda)): R' G R
        ratio = jnp.outer(scale, 1 / scale)
        row = inverse @ (a * b)
        left = ratio.T * (jnp.swapaxes(moved_b, -1, -2) * a + moving * row[..., None, :])
        right = ratio * (b[:, None] * moved_a + moving * row[..., :, None])
        return through_weights + left + right

    moved_m, moved_w = (inverse * mean) @ moving, (inverse * w) @ moving
    zero = jnp.zeros_like(inverse)
    changes = pair(mean, mean, moved_m, moved_m), pair(mean, w, moved_m, moved_w), pair(w, w, moved_w, moved_w)
    return (zero, zero, zero), changes


def _diagonal(array: Array) -> Array:
    """Vectors in the last axis as diagonal matrices."""
    return array[..., None] * jnp.eye(array.shape[-1])
