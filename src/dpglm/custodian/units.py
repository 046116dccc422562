"""The units of a batch: rows, or people with all of their rows, of which each adds a bounded part to every sum.

A batch of a grouped table (``grouping.py``) holds every unit whole, its rows one after the other; its last column says
which unit a row is of. What a unit adds is a function of its own rows, in whatever order they stand: sums over them
are of integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpglm.formula import Design
from dpglm.looks.questions import COUNT_BITS

if TYPE_CHECKING:
    import pyarrow as pa

Integers = npt.NDArray[np.int64]

STEPS = 2**COUNT_BITS  # of a unit: counts are kept in steps, so that a unit can also count in part


@dataclass(frozen=True, eq=False)
class Units:
    """Which unit each row is of, (rows,), from 0; where each unit's rows begin, (units,)."""

    index: Integers
    starts: Integers

    @property
    def number(self) -> int:
        return len(self.starts)

    def sum(self, values: Integers) -> Integers:
        """Over each unit's rows: (..., rows) -> (..., units). Exact."""
        if not self.number:
            return np.zeros((*values.shape[:-1], 0), dtype=np.int64)
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1))

    def largest(self, values: Integers) -> Integers:
        """Over each unit's rows: (rows,) -> (units,)."""
        return np.asarray(np.maximum.reduceat(values, self.starts) if self.number else values[:0])


def units_of(batch: pa.RecordBatch, design: Design) -> Units | None:
    """The units of a batch; None where every row is one."""
    if design.schema.dataset.unit_column is None:
        return None
    index = np.asarray(batch.column(len(design.table_columns)).cast("int64").to_numpy(zero_copy_only=False))
    first = np.ones(len(index), dtype=bool)
    first[1:] = index[1:] != index[:-1]
    return Units(np.cumsum(first) - 1, np.flatnonzero(first))


def cell_counts(cells: Integers, size: int, units: Units | None, counts: npt.NDArray[np.bool_]) -> Integers:
    """Units by cell, in steps, of the rows that count and whose cell is not negative.

    Guarantee: a unit adds at most one in all. Each row adds one; of a unit with several rows that count, its share
    among them, rounded down to a step.
    """
    used = counts & (cells >= 0)
    if units is None:
        return np.asarray(np.bincount(cells[used], minlength=size).astype(np.int64) * STEPS)
    rows = units.sum(counts.astype(np.int64))
    pairs, number = np.unique(units.index[used] * size + cells[used], return_counts=True)
    found = np.zeros(size, dtype=np.int64)
    np.add.at(found, pairs % size, number.astype(np.int64) * STEPS // rows[pairs // size])
    return found


def size_cells(units: Units, counts: npt.NDArray[np.bool_]) -> Integers:
    """By unit, the cell of how many rows of it count: 1, 2, 3 to 4, 5 to 8, ...; -1 where none does."""
    rows = units.sum(counts.astype(np.int64))
    return np.where(rows > 0, np.ceil(np.log2(np.maximum(rows, 1))).astype(np.int64), -1)
