"""Operations in the eigenbasis of the predictors' covariance, which both structured likelihoods are made of.

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

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


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

    def twice_covariance_times(self, matrix: Array) -> Array:
        """Sigma A Sigma for a symmetric matrix."""
        moved = _tilted(self.tilt, matrix * self.eigenvalues)
        return matrix * jnp.outer(self.eigenvalues, self.eigenvalues) + moved + moved.T

    def covariance_times(self, vector: Array) -> Array:
        """Sigma a."""
        return self.eigenvalues * vector + _tilted(self.tilt, vector)

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


def eigenframe(covariance: Array, mean: Array | None, w: Array) -> tuple[Frame, Array]:
    """The frame, and the eigenvectors Q, held fixed under differentiation; no mean is a mean of zero."""
    eigenvalues, tilt, vectors = _eigenbasis(covariance)
    mean, w = jnp.zeros_like(w) if mean is None else vectors.T @ mean, vectors.T @ w
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


def gram_of_w(weights: Weights, frame: Frame) -> Array:
    """U_w' D^-1 U_w for one matrix block, without R: 2 [ w w' / D + diag(D^-1 w^2) ]."""
    inverse, w = weights.inverse[0, 0], frame.w
    value = 2 * (jnp.outer(w, w) * inverse + _diagonal(inverse @ w**2))
    return value + _gram_of_w_tilt(frame.tilt, inverse, frame.eigenvalues, w)


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


@jax.custom_jvp
def _gram_of_w_tilt(tilt: Array, inverse: Array, eigenvalues: Array, w: Array) -> Array:
    """Zero; its derivative is that of ``gram_of_w`` in the tilt: -4 tr(A dSigma B Sigma), as in ``_gram_tilt``."""
    return jnp.zeros_like(inverse)


@_gram_of_w_tilt.defjvp
def _gram_of_w_tilt_jvp(
    primals: tuple[Array, Array, Array, Array], tangents: tuple[Array, Array, Array, Array]
) -> tuple[Array, Array]:
    _, inverse, eigenvalues, w = primals
    moved = ((inverse * w) @ tangents[0]) * inverse
    crossed = (eigenvalues * w)[:, None] * moved
    kernel = (inverse * (w**2 * eigenvalues)) @ inverse
    corner = _diagonal(eigenvalues * (moved @ w))
    return jnp.zeros_like(inverse), -4 * (crossed + crossed.T + kernel * tangents[0] + corner)


def _diagonal(array: Array) -> Array:
    """Vectors in the last axis as diagonal matrices."""
    return array[..., None] * jnp.eye(array.shape[-1])
