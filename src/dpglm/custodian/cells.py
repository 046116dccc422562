"""How one cell is read: as a number, as a number of days, or as one of its column's levels.

Guarantee: what a cell is read as depends on that cell and on the declared column alone; not on the type of the table's
column, nor on other rows, categories, chunks or batches, which often decide that type. So the same value is read alike
as a Python object (``objects.py``), in a typed column of any container, and as text (``values.py`` says which values
are the same; docs/privacy.md has the table).

Edge cases: what is missing (NaN, null), infinite, or neither number, text, bytes, truth value, date nor time is no
number and no level. Nothing here raises, whatever the cells hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.custodian.objects import UNREADABLE
from dpglm.schema import Column
from dpglm.values import NUMBER, TRUTH, days, level_value, moment

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.float64]


def read_numbers(array: pa.Array) -> Array:
    """Cells as float64, the nearest; NaN where a cell holds no finite number. True is 1, also as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        return _of_dictionary(array, read_numbers(array.dictionary), np.nan)
    if is_text(kind):
        return _finite(_text_numbers(array.cast(pa.large_binary())))
    if pa.types.is_decimal(kind):  # Arrow's own conversion is not to the nearest double: 0.29 would miss a level 0.29
        return _finite(array.cast(pa.string()).cast(pa.float64()))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _finite(array.cast(pa.float64(), safe=False))
    if pa.types.is_run_end_encoded(kind):
        return read_numbers(pc.run_end_decode(array))
    return np.full(len(array), np.nan)


def read_values(array: pa.Array, column: Column) -> Array:
    """Cells of a column without levels: numbers, or, where its bounds are dates, days; NaN where there is none."""
    return read_days(array) if column.dates else read_numbers(array)


def read_days(array: pa.Array) -> Array:
    """Cells as days since 1970-01-01: dates, timestamps (in UTC where they have a zone) and text that is either."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        return _of_dictionary(array, read_days(array.dictionary), np.nan)
    if pa.types.is_run_end_encoded(array.type):
        return read_days(pc.run_end_decode(array))
    text = _with_moments_as_text(array)
    if not is_text(text.type):
        return np.full(len(array), np.nan)
    cells = text.cast(pa.large_binary()).dictionary_encode()
    read = [days(cell.decode(errors="surrogateescape")) for cell in cells.dictionary.to_pylist()]
    return _of_dictionary(cells, np.array([np.nan if day is None else day for day in read], dtype=np.float64), np.nan)


def read_codes(array: pa.Array, column: Column) -> npt.NDArray[np.int64]:
    """Cells as positions among the column's levels; -1 where a cell matches none.

    Levels that are numbers, true or false, or text that reads as one of these, match cells of the same value; dates and
    times match whatever their spelling; other text matches exactly.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        return _of_dictionary(array, read_codes(array.dictionary, column), -1)
    if pa.types.is_run_end_encoded(kind):
        return read_codes(pc.run_end_decode(array), column)
    values = [level_value(level) for level in column.levels]
    codes = np.full(len(array), -1)
    numeric = np.array([code for code, value in enumerate(values) if isinstance(value, float)], dtype=np.int64)
    if len(numeric):
        codes = _positions(read_numbers(array), np.array([values[code] for code in numeric]), numeric)
    texts = {value: code for code, value in enumerate(values) if isinstance(value, str)}
    if not texts:
        return codes
    if any(moment(value) for value in texts):
        array = _with_moments_as_text(array)
        if not is_text(array.type):
            return codes
        cells = array.cast(pa.large_binary()).dictionary_encode()
        spell = _spelling if is_text(kind) else _spelling_of_moment
        found = np.array([texts.get(spell(cell), -1) for cell in cells.dictionary.to_pylist()], dtype=np.int64)
        return _either(codes, _of_dictionary(cells, found, -1))
    if not is_text(kind):
        return codes
    spelled = pa.array([value.encode() for value in texts], pa.large_binary())
    places = pc.index_in(array.cast(pa.large_binary()), value_set=spelled, skip_nulls=True)
    found = np.append(np.array(list(texts.values()), dtype=np.int64), -1)
    return _either(codes, found[pc.fill_null(places, len(texts)).to_numpy(zero_copy_only=False)])


def is_text(kind: pa.DataType) -> bool:
    """Strings and bytes, of every layout."""
    import pyarrow as pa

    types = pa.types
    checks = (
        types.is_string, types.is_large_string, types.is_string_view, types.is_fixed_size_binary,
        types.is_binary, types.is_large_binary, types.is_binary_view,
    )  # fmt: skip
    return any(check(kind) for check in checks)


def _spelling(cell: bytes) -> str:
    text = cell.decode(errors="surrogateescape")
    return moment(text) or text


def _spelling_of_moment(cell: bytes) -> str:
    """As ``objects.py`` spells a date or time; one outside the years 1 to 9999 is no level."""
    return moment(cell.decode()) or UNREADABLE.decode()


def _with_moments_as_text(array: pa.Array) -> pa.Array:
    """Dates, times of day and timestamps as text; those with a zone are held in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if not (types.is_timestamp(array.type) or types.is_date(array.type) or types.is_time(array.type)):
        return array
    if types.is_timestamp(array.type) and array.type.tz is not None:
        naive = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
        return pc.binary_join_element_wise(naive, "Z", "")
    return array.cast(pa.string())


def _text_numbers(text: pa.LargeBinaryArray) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    readable = pc.match_substring_regex(text, NUMBER)
    trimmed = pc.ascii_trim(pc.if_else(readable, text, None).cast(pa.large_string()), " \t\r")
    numbers = pc.replace_substring_regex(trimmed, r"^\+", "").cast(pa.float64())
    if numbers.null_count:
        for word, number in TRUTH.items():
            matches = pc.match_substring_regex(text, f"(?i)^{word}$")
            numbers = pc.if_else(pc.fill_null(matches, False), number, numbers)
    return numbers


def _finite(numbers: pa.Array) -> Array:
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    infinite = np.isinf(values)
    return np.where(infinite, np.nan, values) if infinite.any() else values


def _of_dictionary(array: pa.DictionaryArray, values: npt.NDArray[Any], missing: float) -> npt.NDArray[Any]:
    """Each cell's entry among the dictionary's values."""
    import pyarrow.compute as pc

    indices = pc.fill_null(array.indices.cast("int64"), len(values)).to_numpy(zero_copy_only=False)
    return np.asarray(np.append(values, values.dtype.type(missing))[indices])


def _either(codes: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The code that is not -1: a cell reads as a number or as text, never as both."""
    return np.where(codes < 0, others, codes)


def _positions(values: Array, levels: Array, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The code of the level that a value equals; -1 where there is none."""
    order = np.argsort(levels)
    nearest = order[np.minimum(np.searchsorted(levels[order], values), len(levels) - 1)]
    return np.where(levels[nearest] == values, codes[nearest], -1)
