"""Mean and covariance of one row's statistics, by full tensors: short, slow, and the reference for likelihood.py.

Model (docs/moments.md, section 7): x = mean + xi with xi ~ Normal(0, covariance), u = intercept + x'beta and
h_q(u) = E[y^q | u]. All that the outcome contributes is the table ``integrals`` with entry [q, j] = E[h_q^(j)(u)],
the j-th derivative of h_q averaged over u; h_0 = 1, so row 0 is (1, 0, 0, 0, 0). With w = covariance @ beta, Stein's
lemma takes one factor of x at a time out of an expectation::

    E[x_i F(x) h(u)] = mean_i E[F h] + w_i E[F h'] + sum_j covariance_ij E[(dF/dx_j) h]

and the tensors below are built by that line. Statistics are in isometric coordinates, in the order of ``BlockShape``.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dpglm.blocks import BlockShape
from dpglm.errors import InputError

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

LARGEST_MOMENT_DEGREE = 2  # a covariance of two blocks takes four factors of x, and integrals has four derivatives


def statistics_mean(
    blocks: Sequence[BlockShape], mean: jax.Array, covariance: jax.Array, w: jax.Array, integrals: jax.Array
) -> jax.Array:
    """E[t] of one row, all blocks after one another: mean and w are (d,), covariance (d, d), integrals (Q + 1, 5)."""
    check_moments(blocks, integrals)
    pieces = []
    for block in blocks:
        tensor = _moment_tensors(block.degree, mean, covariance, w, integrals[block.y_power])[-1]
        index, scale = isometric_index(block, mean.shape[0])
        pieces.append(tensor.reshape(-1)[index] * scale)
    return jnp.concatenate(pieces)


def statistics_covariance(
    blocks: Sequence[BlockShape], mean: jax.Array, covariance: jax.Array, w: jax.Array, integrals: jax.Array
) -> jax.Array:
    """Cov[t] = E[t t'] - E[t] E[t]' of one row; arguments as ``statistics_mean``, integrals up to twice the y power."""
    check_moments(blocks, integrals)
    d = mean.shape[0]
    factors = {left.y_power + right.y_power: 0 for left in blocks for right in blocks}
    for left in blocks:
        for right in blocks:
            power = left.y_power + right.y_power
            factors[power] = max(factors[power], left.degree + right.degree)
    tensors = {q: _moment_tensors(count, mean, covariance, w, integrals[q]) for q, count in factors.items()}

    def second_moment(left: BlockShape, right: BlockShape) -> jax.Array:
        (rows, row_scale), (columns, column_scale) = isometric_index(left, d), isometric_index(right, d)
        tensor = tensors[left.y_power + right.y_power][left.degree + right.degree]
        matrix = tensor.reshape(d**left.degree, d**right.degree)
        return matrix[rows[:, None], columns] * np.outer(row_scale, column_scale)

    first = statistics_mean(blocks, mean, covariance, w, integrals)
    second = jnp.block([[second_moment(left, right) for right in blocks] for left in blocks])
    return second - jnp.outer(first, first)


def isometric_index(block: BlockShape, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each monomial of a block sits in the flattened full tensor, and its isometric factor."""
    monomials = np.array(block.monomials(dimension), dtype=np.int64).reshape(block.size(dimension), block.degree)
    index = monomials @ dimension ** np.arange(block.degree - 1, -1, -1, dtype=np.int64)
    return index, np.sqrt(block.multiplicities(dimension))


def check_moments(blocks: Sequence[BlockShape], integrals: jax.Array) -> None:
    """Refuse blocks that these moments cannot serve."""
    for block in blocks:
        if block.degree > LARGEST_MOMENT_DEGREE:
            rule = f"closed-form moments take degree 0 to {LARGEST_MOMENT_DEGREE}"
            raise InputError("block", (block.y_power, block.degree), rule, "leave the block out")
    needed = 2 * max(block.y_power for block in blocks) + 1
    if integrals.ndim != 2 or integrals.shape[0] < needed or integrals.shape[1] < 5:
        raise InputError("integrals", integrals.shape, f"must have the shape ({needed}, 5)", "add powers of y")


def _moment_tensors(
    factors: int, mean: jax.Array, covariance: jax.Array, w: jax.Array, averages: jax.Array
) -> list[jax.Array]:
    """E[x ... x h(u)] with 0, 1, ... factors of x, tensors of shape (d,) * factors; averages are E[h^(j)(u)]."""
    table = [[averages[order] for order in range(factors + 1)]]  # [number of factors][order of the derivative of h]
    for count in range(1, factors + 1):
        row = []
        for order in range(factors + 1 - count):
            total = jnp.multiply.outer(mean, table[-1][order]) + jnp.multiply.outer(w, table[-1][order + 1])
            for position in range(1, count):  # x_i contracted with each other factor in turn
                pair = jnp.multiply.outer(covariance, table[-2][order])
                total = total + jnp.moveaxis(pair, 1, position)
            row.append(total)
        table.append(row)
    return [row[0] for row in table]
