"""Exact integer block sums of fixed-point rows, and their merging.

Guarantee: the sums are exact integers, the same for every batch size, row order, thread count and split of the rows.

A float64 matrix product of integers is exact while no partial sum exceeds 2^53, in whatever order BLAS adds. With e
bits a number and blocks of order m, 2^(53 - e m) rows are multiplied at once; their results are added up as 64-bit
and then Python integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape
from dpglm.custodian.rows import FixedPointRows
from dpglm.grid import Grid

EXACT_BITS = 53
_CHUNKS_IN_64_BITS = 2 ** (62 - EXACT_BITS)

Array = npt.NDArray[np.float64]


class Sums(Protocol):
    """What a pass adds up: exact integers that merge in any order, and travel as text."""

    @property
    def num_rows(self) -> int:
        """The rows that they are of."""
        ...

    def __add__(self, other: Self) -> Self: ...

    def to_json(self) -> dict[str, Any]:
        """Plain data; integers may have more than 64 bits."""
        ...

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse."""
        ...


@dataclass(frozen=True)
class BlockSums:
    """Exact totals of plain monomials, one tuple of Python integers a block."""

    blocks: tuple[BlockShape, ...]
    values: tuple[tuple[int, ...], ...]
    num_rows: int

    def __add__(self, other: BlockSums) -> BlockSums:
        values = tuple(
            tuple(a + b for a, b in zip(mine, theirs, strict=True))
            for mine, theirs in zip(self.values, other.values, strict=True)
        )
        return BlockSums(self.blocks, values, self.num_rows + other.num_rows)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        blocks = [(block.y_power, block.degree) for block in self.blocks]
        return {"blocks": blocks, "values": self.values, "rows": self.num_rows}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BlockSums:
        """The inverse of ``to_json``."""
        blocks = tuple(BlockShape(*block) for block in data["blocks"])
        return cls(blocks, tuple(map(tuple, data["values"])), data["rows"])


def zero_sums(blocks: Sequence[BlockShape], dimension: int) -> BlockSums:
    """The sums of no rows."""
    return BlockSums(tuple(blocks), tuple((0,) * block.size(dimension) for block in blocks), 0)


def rows_at_once(blocks: Sequence[BlockShape], grid: Grid) -> int:
    """How many rows one exact matrix product may hold."""
    return int(2 ** (EXACT_BITS - grid.exponent * max(block.order for block in blocks)))


def block_sums(rows: FixedPointRows, blocks: Sequence[BlockShape]) -> BlockSums:
    """Exact sums of every block over these rows."""
    step = rows_at_once(blocks, rows.grid)
    exact = zero_sums(blocks, len(rows.x))
    for first in range(0, rows.num_rows, step * _CHUNKS_IN_64_BITS):
        last = min(first + step * _CHUNKS_IN_64_BITS, rows.num_rows)
        totals = [np.zeros(block.size(len(rows.x)), dtype=np.int64) for block in blocks]
        for start in range(first, last, step):
            chunk = slice(start, min(start + step, last))
            for total, block in zip(totals, blocks, strict=True):
                total += _chunk_sums(rows.x[:, chunk], rows.y[chunk], block).astype(np.int64)
        exact += BlockSums(tuple(blocks), tuple(tuple(map(int, total)) for total in totals), last - first)
    return exact


def _chunk_sums(x: Array, y: Array, block: BlockShape) -> Array:
    """Sums of y^q times all monomials of degree k, as a product of two halves of each monomial."""
    left_degree = (block.degree + 1) // 2
    left = _monomial_values(x, left_degree)
    for _ in range(block.y_power):
        left = left * y
    if left_degree == block.degree:
        return np.asarray(left.sum(axis=1))
    product = left @ _monomial_values(x, block.degree - left_degree).T
    return np.asarray(product[_halves(len(x), block.degree)])


def _monomial_values(x: Array, degree: int) -> Array:
    if degree == 0:
        return np.ones((1, x.shape[1]))
    if degree == 1:
        return x
    values = [np.prod(x[list(indices)], axis=0) for indices in BlockShape(0, degree).monomials(len(x))]
    return np.stack(values)


@lru_cache(maxsize=64)
def _halves(dimension: int, degree: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where each monomial's first and second half stand among the monomials of half the degree."""
    left_degree = (degree + 1) // 2
    left = {indices: n for n, indices in enumerate(BlockShape(0, left_degree).monomials(dimension))}
    right = {indices: n for n, indices in enumerate(BlockShape(0, degree - left_degree).monomials(dimension))}
    monomials = BlockShape(0, degree).monomials(dimension)
    return (
        np.array([left[indices[:left_degree]] for indices in monomials], dtype=np.intp),
        np.array([right[indices[left_degree:]] for indices in monomials], dtype=np.intp),
    )
