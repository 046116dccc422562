"""Record batches -> clamped, coded, fixed-point rows.

Guarantee: every row of the result lies in the declared ball and response range *exactly*, as integers times a power
of two, whatever the cells hold; and a row depends on its own cells alone, not on the rows beside it or on how they
are batched.

Edge cases: NaN, infinity, missing, unreadable text or an unknown level becomes the declared fill value; a number
outside its bounds is clamped; no row is dropped and nothing is raised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.custodian.tables import is_text
from dpglm.formula import Design
from dpglm.grid import Grid
from dpglm.schema import NUMBER, Column, Level, level_number

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FixedPointRows:
    """Integers, held exactly in float64: x is (dimension, rows), y is (rows,)."""

    x: Array
    y: Array
    grid: Grid

    @property
    def num_rows(self) -> int:
        return len(self.y)


def fixed_point_rows(batch: pa.RecordBatch, design: Design, grid: Grid, radius: float) -> FixedPointRows:
    """Clamp, code, project to the ball if it is smaller than the box's, and round onto the grid.

    Rounding is to the nearest grid point. -1, 0 and 1 are grid points, so rounding leaves no box; projected rows are
    rounded toward zero, so they do not leave the ball.
    """
    cleaned = {
        column.name: _clean(batch.column(position), column) for position, column in enumerate(design.table_columns)
    }
    x = design.predictors(cleaned, batch.num_rows)
    scale = 2.0**grid.exponent
    np.multiply(x, scale, out=x)
    np.rint(x, out=x)
    if Fraction(radius) ** 2 < design.largest_squared_norm:
        _project(x, radius * scale, math.floor(Fraction(radius) ** 2 * 4**grid.exponent))
    return FixedPointRows(x, _response(design, cleaned, grid), grid)


def _response(design: Design, cleaned: dict[str, Array], grid: Grid) -> Array:
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


def _clean(array: pa.Array, column: Column) -> Array:
    """Declared values only: numbers inside their bounds, or positions of levels."""
    if column.has_levels:
        codes = read_codes(array, column)
        return np.where(codes < 0, column.fill_code, codes).astype(np.float64)
    values = read_numbers(array)
    finite = np.isfinite(values)
    if not finite.all():
        values = np.where(finite, values, float(column.fill))
    values = np.clip(values, column.lower, column.upper)
    return np.rint(values) if column.type == "count" else values


def read_numbers(array: pa.Array) -> Array:
    """Cells as float64; NaN where a cell holds no number. True and false, also as text, are 1 and 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        return _of_dictionary(array, read_numbers(array.dictionary), np.nan)
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_decimal(kind):  # Arrow's own conversion is not to the nearest double: 0.29 would miss a level 0.29
        array = array.cast(pa.string())
    if is_text(array.type):
        original = array.cast(pa.large_binary())
        readable = pc.match_substring_regex(original, NUMBER)
        text = pc.ascii_trim(pc.if_else(readable, original, None).cast(pa.large_string()), " \t\r")
        array = pc.replace_substring_regex(text, r"^\+", "")
    numbers = array.cast(pa.float64(), safe=False)
    if is_text(kind) and numbers.null_count:  # booleans written as text agree with booleans
        for pattern, number in ((r"(?i)^true$", 1.0), (r"(?i)^false$", 0.0)):
            matches = pc.match_substring_regex(original, pattern)
            numbers = pc.if_else(pc.fill_null(matches, False), number, numbers)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def read_codes(array: pa.Array, column: Column) -> npt.NDArray[np.int64]:
    """Cells as positions among the column's levels; -1 where a cell matches none.

    Levels that are all numbers (or text that reads as numbers) are compared as numbers, so that 1, 1.0 and "1" agree in
    CSV, Parquet and pandas. true and false match booleans and their spelling in any case. Other text matches exactly.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        return _of_dictionary(array, read_codes(array.dictionary, column), -1)
    numbers = [level_number(level) for level in column.levels]
    if None not in numbers:
        return _positions(read_numbers(array), np.array(numbers, dtype=np.float64))
    levels = [_level_text(level) for level in column.levels]
    booleans = pa.types.is_boolean(array.type) or {level.lower() for level in levels} == {b"true", b"false"}
    if not is_text(array.type):
        array = array.cast(pa.string())
    text = array.cast(pa.large_binary())
    if booleans:
        readable = pc.match_substring_regex(text, r"(?i)^(true|false)$")
        text = pc.ascii_lower(pc.if_else(readable, text, None).cast(pa.large_string())).cast(pa.large_binary())
        levels = [level.lower() for level in levels]
    found = pc.index_in(text, value_set=pa.array(levels, pa.large_binary()), skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _of_dictionary(array: pa.DictionaryArray, values: npt.NDArray[Any], missing: float) -> npt.NDArray[Any]:
    """Each cell's entry among the dictionary's values."""
    import pyarrow.compute as pc

    indices = pc.fill_null(array.indices.cast("int64"), len(values)).to_numpy(zero_copy_only=False)
    return np.asarray(np.append(values, values.dtype.type(missing))[indices])


def _positions(values: Array, levels: Array) -> npt.NDArray[np.int64]:
    order = np.argsort(levels)
    nearest = np.minimum(np.searchsorted(levels[order], values), len(levels) - 1)
    codes = order[nearest].astype(np.int64)
    return np.where(levels[codes] == values, codes, -1)


def _level_text(level: Level) -> bytes:
    return (str(level).lower() if isinstance(level, bool) else str(level)).encode()
