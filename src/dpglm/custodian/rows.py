"""Record batches -> clamped, coded, fixed-point rows.

Guarantee: every row of the result lies in the declared ball and response range *exactly*, as integers times a power
of two, whatever the cells hold; and a row depends on its own cells alone, not on the rows beside it or on how they
are typed and batched (``cells.py`` reads them).

Edge cases: NaN, infinity, missing, unreadable text or an unknown level becomes the declared fill value, or, where none
is declared, the row does not count; a number outside its bounds is clamped; nothing is raised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpglm.custodian.cells import Array, read_codes, read_values
from dpglm.formula import Design
from dpglm.grid import Grid
from dpglm.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class CleanRows:
    """A table's columns as declared values only: numbers inside their bounds, or positions of levels.

    ``has_value`` says which cells the schema can read, (columns, rows), and ``counts`` which rows count: those that
    have a value or a fill in every column and for which the design's condition holds. Others hold values as well, which
    say nothing.
    """

    values: dict[str, Array]
    has_value: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FixedPointRows:
    """Integers, held exactly in float64: x is (dimension, rows), y is (rows,).

    ``counts``: None if all rows do; ``weights``: None where every row weighs the same; ``order``: by which rows of a
    unit follow each other, None where that does not matter.
    """

    x: Array
    y: Array
    grid: Grid
    counts: npt.NDArray[np.bool_] | None = None
    weights: Array | None = None
    order: Array | None = None

    @property
    def num_rows(self) -> int:
        return len(self.y)


def fixed_point_rows(batch: pa.RecordBatch, design: Design, grid: Grid, radius: float) -> FixedPointRows:
    """Clamp, code, project to the ball if it is smaller than the box's, and round onto the grid. Every row counts.

    Rounding is to the nearest grid point. -1, 0 and 1 are grid points, so rounding leaves no box; projected rows are
    rounded toward zero, so they do not leave the ball.
    """
    cleaned = clean_rows(batch, design).values
    x = design.predictors(cleaned, batch.num_rows)
    scale = 2.0**grid.exponent
    np.multiply(x, scale, out=x)
    np.rint(x, out=x)
    if Fraction(radius) ** 2 < design.largest_squared_norm:
        _project(x, radius * scale, math.floor(Fraction(radius) ** 2 * 4**grid.exponent))
    return FixedPointRows(x, coded_response(design, cleaned, grid), grid)


def clean_rows(batch: pa.RecordBatch, design: Design) -> CleanRows:
    """Every cell read, filled and clamped; and which rows count, each by its own cells."""
    read = {column.name: _read(batch.column(n), column) for n, column in enumerate(design.table_columns)}
    values = {column.name: _clean(read[column.name], column) for column in design.table_columns}
    has_value = np.stack([~np.isnan(cells) for cells in read.values()])
    needed = [n for n, column in enumerate(design.table_columns) if column.fill is None]
    counts = np.asarray(has_value[needed].all(axis=0))
    if design.where is not None:
        columns = {name: design.schema.columns[name] for name in design.where.columns}
        compared = {name: _filled(read[name], column) for name, column in columns.items()}
        counts &= design.where.holds(compared, batch.num_rows)
    return CleanRows(values, has_value, counts)


def coded_response(design: Design, cleaned: dict[str, Array], grid: Grid) -> Array:
    """The outcome on its grid, inside its range."""
    scale = Fraction(2) ** (grid.exponent - grid.response_exponent)
    low, high = (Fraction(bound) * scale for bound in design.response_range)
    y = np.rint(design.outcome.evaluate(cleaned) * float(scale))
    # The innermost grid points of the range: the ends themselves for -1, 0, 1 and whole numbers.
    return np.fmin(np.fmax(y, float(math.ceil(low))), float(math.floor(high)))  # NaN would become the lower end


def _project(x: Array, radius: float, largest_squared: int) -> None:
    """Shrink columns longer than the radius, in place, rounding toward zero.

    Sums of squares of integers are exact in float64 here. The factor (1 - 2^-40) outweighs the few roundings of
    the square root, quotient and product, and truncation only shortens: the result is inside the ball for certain.
    """
    squared = np.zeros(x.shape[1])
    for row in x:
        squared += row * row
    outside = squared > largest_squared
    if outside.any():
        x[:, outside] = np.trunc(x[:, outside] * (radius * (1 - 2.0**-40) / np.sqrt(squared[outside])))


def _read(array: pa.Array, column: Column) -> Array:
    """Numbers as they stand there, or positions of levels; NaN where there is none."""
    if not column.has_levels:
        return read_values(array, column)
    codes = read_codes(array, column)
    return np.where(codes < 0, np.nan, codes)


def _filled(read: Array, column: Column) -> Array:
    """What was read, or what stands in for it."""
    missing, stand_in = np.isnan(read), column.stand_in  # which is asked for whether it is needed or not
    return np.where(missing, stand_in, read) if missing.any() else read


def _clean(read: Array, column: Column) -> Array:
    """Declared values only: numbers inside their bounds, or positions of levels."""
    values = _filled(read, column)
    if column.has_levels:
        return values
    values = np.clip(values, column.lower, column.upper)
    return np.rint(values) if column.type == "count" else values
