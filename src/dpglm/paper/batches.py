"""Densities of many posteriors at many points, in pieces.

One program is compiled a model shape; arrays are arguments, so releases of one shape share it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Data = tuple[Any, ...]  # one entry a table; every array with a leading axis, one entry a posterior

_BATCH = 32  # points of each posterior in one call
_LARGEST_BATCH = {"cpu": 256, "gpu": 16384}  # points of all posteriors in one call; see _pieces
_LARGEST_PIECE = 64  # posteriors in one call on a processor
# Points times rows cubed of a factor. Larger batches jaxlib 0.10 divides among XLA's threads, and waits for them in
# one of them: as many factorisations at a time as there are threads wait for each other forever.
_LARGEST_FACTORISATIONS = 2**16


class Model(Protocol):
    """What is sampled: a frozen, hashable shape, which decides the program, with a density of arrays."""

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients. As many entries come first in the free vector."""
        ...

    def coefficients(self, data: Any, free: jax.Array) -> jax.Array:
        """The coefficients that a free vector stands for, scaled units."""
        ...

    def log_density(self, data: Any, free: jax.Array) -> jax.Array:
        """Log posterior density of a free vector, up to a constant."""
        ...


@partial(jax.jit, static_argnums=0)
def value_and_gradient(shape: Model, data: Any, point: jax.Array) -> Any:
    """Of the log density at one point: a program of its own, so that all that are built on it share one tracing."""
    return jax.value_and_grad(partial(shape.log_density, data))(point)


def coefficients_of(shape: Model, data: Data, free: Floats) -> Floats:
    """Scaled coefficients of all draws of some posteriors; ``free`` is (posteriors, chains, draws, size)."""
    arrays = jax.tree.map(np.asarray, data)
    each = [jax.tree.map(lambda array, number=number: array[number], arrays) for number in range(len(free))]
    return np.stack([_coefficients(shape, *pair) for pair in zip(each, free, strict=True)])


@partial(jax.jit, static_argnums=0)
def _coefficients(shape: Model, data: Any, free: Any) -> jax.Array:
    return jax.vmap(jax.vmap(partial(shape.coefficients, data)))(free)


def at_points(one: Callable[..., Any], arrays: tuple[Any, ...], points: int, rows: int) -> Callable[..., Any]:
    """``one`` of each posterior's arrays, at some points of each: a function of (size, posteriors * points).

    ``rows`` are those of the matrices that are factored, for each point.
    """
    posteriors = len(jax.tree.leaves(arrays)[0])
    shared, each = (None,) * len(arrays), (0,) * len(arrays)
    nested = jax.vmap(jax.vmap(one, (*shared, -1), -1), (*each, -2), -2)

    def at(positions: jax.Array) -> Any:
        made = nested(*arrays, positions.reshape(-1, posteriors, points))
        return jax.tree.map(lambda array: array.reshape(*array.shape[:-2], posteriors * points), made)

    together = _points_together(posteriors * points, rows)
    if together == posteriors * points:
        return at

    def some_after_others(positions: jax.Array) -> Any:
        number = jnp.arange(posteriors * points)
        made = jax.lax.map(
            lambda pair: one(*jax.tree.map(lambda array: jnp.asarray(array)[pair[0] // points], arrays), pair[1]),
            (number, positions.T),
            batch_size=together,
        )
        return jax.tree.map(lambda array: jnp.moveaxis(array, 0, -1), made)

    return some_after_others


def _points_together(points: int, rows: int) -> int:
    """How many points a program takes at once: all on a GPU; on a processor a number that divides theirs."""
    largest = max(1, _LARGEST_FACTORISATIONS // max(1, rows) ** 3)
    if jax.default_backend() != "cpu" or points <= largest:
        return points
    return max(share for share in range(1, largest + 1) if points % share == 0)


def posteriors_last(arrays: Any, points: int = 1) -> Any:
    """The posteriors' axis from the front to the end, each as often as it has points."""
    return jax.tree.map(lambda array: jnp.repeat(jnp.moveaxis(jnp.asarray(array), 0, -1), points, axis=-1), arrays)


@partial(jax.jit, static_argnums=0)
def _values_and_gradients(shape: Model, data: Data, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log densities and their gradients at (posteriors, points, size)."""
    at = at_points(partial(value_and_gradient, shape), (data,), points.shape[1], len(shape.names))
    values, gradients = at(posteriors_last(points.reshape(-1, points.shape[2])))
    return values.reshape(points.shape[:2]), gradients.T.reshape(points.shape)


def evaluate(shape: Model, data: Data, points: Floats) -> tuple[Floats, Floats]:
    """The same in batches of one fixed size, so that one compiled program serves every number of points."""
    posteriors, count, size = points.shape
    largest = _LARGEST_BATCH["cpu" if jax.default_backend() == "cpu" else "gpu"]
    batch = max(1, min(_BATCH, 2 * size + 1, largest // _pieces(posteriors)[0].stop))
    values, gradients = [], []
    for first in range(0, count, batch):
        part = points[:, first : first + batch]
        missing = batch - part.shape[1]
        padded = np.concatenate([part, np.repeat(part[:, -1:], missing, axis=1)], axis=1)
        value, gradient = in_pieces(partial(_values_and_gradients, shape), (data, padded))
        values.append(value[:, : batch - missing])
        gradients.append(gradient[:, : batch - missing])
    together = np.concatenate(values, axis=1)
    return np.where(np.isfinite(together), together, -np.inf), np.concatenate(gradients, axis=1)


def in_pieces(program: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
    """A program over pieces of some posteriors; what it makes of them joined, as NumPy arrays.

    They run one after the other: with LAPACK in two calls at a time XLA's threads can wait for each other forever (seen
    with jaxlib 0.10 on two cores).
    """
    arrays = jax.tree.map(np.asarray, arrays)
    posteriors = len(jax.tree.leaves(arrays)[0])
    pieces = _pieces(posteriors)
    made = [
        jax.tree.map(np.asarray, program(*jax.tree.map(lambda array, piece=piece: array[piece], arrays)))
        for piece in pieces
    ]
    overlap = len(pieces) * pieces[0].stop - posteriors
    made[-1] = jax.tree.map(lambda array: array[overlap:], made[-1])
    return jax.tree.map(lambda *parts: np.concatenate(parts), *made)


def _pieces(posteriors: int) -> list[slice]:
    """All of one length, so that one program serves them: the last may overlap the one before.

    Larger pieces gain nothing on a processor, and with a thousand points in one call XLA's threads can wait for each
    other as well. A GPU takes all at once.
    """
    most = _LARGEST_PIECE if jax.default_backend() == "cpu" else posteriors
    length = -(-posteriors // -(-posteriors // most))
    starts = [*range(0, posteriors - length, length), posteriors - length]
    return [slice(start, start + length) for start in starts]
