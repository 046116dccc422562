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
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpglm.custodian.tables import is_text
from dpglm.expressions import Expression
from dpglm.formula import Design, DesignColumn, Factor
from dpglm.grid import Grid
from dpglm.schema import Column, Level

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.float64]

_NUMBER = r"^[ \t]*[+-]?([0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?[ \t\r]*$"


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
    x = np.empty((design.dimension, batch.num_rows))
    coded: dict[Factor, Array] = {}
    for position, column in enumerate(design.columns):
        x[position] = _product(column, cleaned, coded)
    scale = 2.0**grid.exponent
    np.multiply(x, scale, out=x)
    np.rint(x, out=x)
    if Fraction(radius) ** 2 < design.largest_squared_norm:
        _project(x, radius * scale, math.floor(Fraction(radius) ** 2 * 4**grid.exponent))
    return FixedPointRows(x, _response(design, cleaned, grid), grid)


def _product(column: DesignColumn, cleaned: dict[str, Array], coded: dict[Factor, Array]) -> Array:
    for factor in column.factors:
        if factor not in coded:
            coded[factor] = np.clip(_coded(factor, cleaned), -1.0, 1.0)
    result = coded[column.factors[0]]
    for factor in column.factors[1:]:
        result = result * coded[factor]
    return result


def _coded(factor: Factor, cleaned: dict[str, Array]) -> Array:
    """(raw - center) / scale."""
    if isinstance(factor.source, Expression):
        raw = factor.source.evaluate(cleaned)
    else:
        raw = (cleaned[factor.source.name] == factor.level).astype(np.float64)
    return (raw - factor.center) / factor.scale


def _response(design: Design, cleaned: dict[str, Array], grid: Grid) -> Array:
    scale = Fraction(2) ** (grid.exponent - grid.response_exponent)
    low, high = (Fraction(bound) * scale for bound in design.response_range)
    y = np.rint(_coded(design.outcome, cleaned) * float(scale))
    # The innermost grid points of the range: the ends themselves for -1, 0, 1 and whole numbers.
    return np.clip(y, float(math.ceil(low)), float(math.floor(high)))


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
    """Cells as float64; NaN where a cell holds no number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        return read_numbers(array.dictionary_decode())
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if is_text(kind):
        text = array.cast(pa.large_binary())
        readable = pc.match_substring_regex(text, _NUMBER)
        text = pc.ascii_trim(pc.if_else(readable, text, None).cast(pa.large_string()), " \t\r")
        array = pc.replace_substring_regex(text, r"^\+", "")
    numbers = array.cast(pa.float64(), safe=False)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def read_codes(array: pa.Array, column: Column) -> npt.NDArray[np.int64]:
    """Cells as positions among the column's levels; -1 where a cell matches none.

    Levels that are all numbers (or text that reads as numbers) are compared as numbers, so that 1, 1.0 and "1" agree in
    CSV, Parquet and pandas. true and false match booleans and their spelling in any case. Other text matches exactly.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    numbers = [_level_number(level) for level in column.levels]
    if all(number is not None for number in numbers):
        return _positions(read_numbers(array), np.array(numbers, dtype=np.float64))
    booleans = pa.types.is_boolean(array.type) or all(isinstance(level, bool) for level in column.levels)
    if not is_text(array.type):
        array = array.cast(pa.string())
    text = array.cast(pa.large_binary())
    levels = [_level_text(level) for level in column.levels]
    if booleans:
        readable = pc.match_substring_regex(text, r"(?i)^(true|false)$")
        text = pc.ascii_lower(pc.if_else(readable, text, None).cast(pa.large_string())).cast(pa.large_binary())
        levels = [level.lower() for level in levels]
    found = pc.index_in(text, value_set=pa.array(levels, pa.large_binary()), skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _positions(values: Array, levels: Array) -> npt.NDArray[np.int64]:
    order = np.argsort(levels)
    nearest = np.minimum(np.searchsorted(levels[order], values), len(levels) - 1)
    codes = order[nearest].astype(np.int64)
    return np.where(levels[codes] == values, codes, -1)


def _level_number(level: Level) -> float | None:
    if isinstance(level, bool):
        return None
    try:
        number = float(level)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _level_text(level: Level) -> bytes:
    return (str(level).lower() if isinstance(level, bool) else str(level)).encode()
