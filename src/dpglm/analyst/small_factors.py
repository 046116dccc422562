"""Factors of many small matrices, which are the last axis of an array: (rows, columns, matrices).

All is written out as elementwise operations, for lanes.py. LAPACK would be called once for each matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_LONGEST_SUM = 40  # terms in one expression
_SWEEPS = 16  # of Jacobi's method, of which five or six are needed


def hold(array: Array) -> Array:
    """Have it computed and stored here. XLA would put it into every expression that reads it, and compute it there."""
    return cast("Array", lax.optimization_barrier(array))  # type: ignore[no-untyped-call]


def total(terms: Sequence[Array]) -> Array:
    """The sum, stored from time to time where it is long."""
    result = terms[0]
    for number, term in enumerate(terms[1:], start=1):
        result = result + term if number % _LONGEST_SUM else hold(result) + term
    return result


def cholesky(matrix: Array) -> Array:
    """The lower factor, column by column; not a number from where the matrix is not positive definite."""
    left, columns = matrix, []
    for n in range(len(matrix)):
        scale = hold(jnp.where(left[0, 0] > 0, lax.rsqrt(left[0, 0]), jnp.nan))
        column = hold(left[:, 0] * scale)
        columns.append(jnp.pad(column, ((n, 0), (0, 0))))
        left = hold(left[1:, 1:] - column[1:, None] * column[None, 1:])
    return jnp.stack(columns, axis=1)


def solve_lower(a: Array, b: Array, unit_diagonal: bool = False) -> Array:
    """X with A X = B for a lower triangular A, row by row."""
    rows: list[Array] = []
    for n in range(len(a)):
        rows.append(b[0] if unit_diagonal else hold(b[0] / a[n, n]))
        b = hold(b[1:] - a[n + 1 :, n, None] * rows[n])
    return jnp.stack(rows)


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Eigenvectors, as columns, and eigenvalues in increasing order. Reads the lower triangle.

    Jacobi's method: rounds of rotations of disjoint pairs of neighbours, which then change places (Brent & Luk 1985).
    """
    size = len(matrix)
    identity, first_turn = np.eye(size)[..., None], jnp.asarray(0)
    a = hold(jnp.where(np.tri(size)[..., None] > 0, matrix, matrix.swapaxes(0, 1)))
    rounds = [_neighbours(size, first) for first in (0, 1)]

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        squares = state[0] ** 2
        off, on = (jnp.sum(part, axis=(0, 1)) for part in (squares * (1 - identity), squares * identity))
        return (state[2] < _SWEEPS * size // 2) & jnp.any(off > 1e-28 * on)

    def two_rounds(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, vectors, turn = state
        for partner in rounds:
            a, vectors = _rotated(a, vectors, partner)
        return a, vectors, turn + 1

    start = (a, jnp.broadcast_to(identity, a.shape), first_turn)
    a, vectors, _ = lax.while_loop(unfinished, two_rounds, start) if size > 1 else start
    found = hold(jnp.stack([a[n, n] for n in range(size)]))
    # 1 at (n, m) where the m-th has rank n
    earlier = (found[:, None] == found) & (np.arange(size)[:, None] > np.arange(size))[..., None]
    rank = hold(total([one.astype(found.dtype) for one in ((found[:, None] > found) | earlier).swapaxes(0, 1)]))
    place = hold((rank == np.arange(size)[:, None, None]).astype(found.dtype))
    values = total([place[:, n] * found[n] for n in range(size)])
    return total([place[:, n] * vectors[n][:, None] for n in range(size)]), values


def _neighbours(size: int, first: int) -> np.ndarray[Any, Any]:
    """Whom each is paired with; one left over is paired with itself."""
    partner = np.arange(size)
    for n in range(first, size - 1, 2):
        partner[n : n + 2] = n + 1, n
    return partner


def _rotated(a: Array, vectors: Array, partner: np.ndarray[Any, Any]) -> tuple[Array, Array]:
    """Each pair's element made zero, and the two exchanged; rows of ``vectors`` are the vectors."""
    size, here = len(partner), np.arange(len(partner))
    alone, sign = (partner == here)[:, None], np.where(partner > here, 1.0, -1.0)[:, None]
    places = (here * (size + 1), partner * (size + 1), here * size + partner)
    own, other, off = (jnp.take(a.reshape(size * size, -1), place, axis=0, mode="clip") for place in places)
    apart, twice = other - own, jnp.where(alone, 0.0, 2 * off)
    length = jnp.abs(apart) + jnp.sqrt(apart * apart + twice * twice)
    direction = jnp.where(apart == 0, sign, jnp.sign(apart))
    tangent = hold(jnp.where(twice == 0, 0.0, twice * direction / length))
    cosine = hold(lax.rsqrt(1 + tangent * tangent))

    def turned(array: Array) -> Array:
        return hold(cosine[:, None] * (jnp.take(array, partner, axis=0, mode="clip") + tangent[:, None] * array))

    rows = turned(a)
    both: Array = hold(cosine * (jnp.take(rows, partner, axis=1, mode="clip") + tangent * rows))
    return both, turned(vectors)
