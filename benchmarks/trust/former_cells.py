"""Planted bugs: how cells were read before each was read by itself. The audit of frames must convict all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpglm.custodian import rows, tables
from dpglm.custodian.cells import is_text
from dpglm.errors import InputError

READ_CODES, PANDAS_ARRAY, BATCHES = rows.read_codes, tables._pandas_array, tables._PandasSource.batches


def codes_by_text(array: Any, column: Any) -> Any:
    """Levels that are not all numbers, compared with the text that Arrow makes of a column's type."""
    if pa.types.is_dictionary(array.type):
        found = codes_by_text(array.dictionary, column)
        return np.append(found, -1)[pc.fill_null(array.indices.cast("int64"), len(found)).to_numpy(False)]
    if not any(isinstance(level, str) for level in column.levels):
        return READ_CODES(array, column)
    text = array if is_text(array.type) else array.cast(pa.string())
    levels = [str(level).lower() if isinstance(level, bool) else str(level) for level in column.levels]
    known = pa.array([level.encode() for level in levels], pa.large_binary())
    found = pc.index_in(text.cast(pa.large_binary()), value_set=known, skip_nulls=True)
    return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def objects_as_str(series: Any) -> Any:
    """Cells of a column of mixed kinds as what ``str`` makes of them."""
    if str(series.dtype) != "object":
        return PANDAS_ARRAY(series)
    return pa.array([None if _missing(cell) else str(cell) for cell in series], pa.string())


def _missing(cell: Any) -> bool:
    try:
        return cell is None or bool(cell != cell)
    except (TypeError, ValueError):
        return True


def categories_of_one_type(series: Any) -> Any:
    """Categories in the type that Arrow finds for all of them."""
    if str(series.dtype) != "category":
        return PANDAS_ARRAY(series)
    try:
        return pa.array(series, from_pandas=True)
    except pa.ArrowException:
        return PANDAS_ARRAY(series)


def types_refused(self: Any) -> Any:
    """A column of dates is refused."""
    for batch in BATCHES(self):
        for name, kind in zip(batch.schema.names, batch.schema.types, strict=True):
            if pa.types.is_temporal(kind):
                raise InputError("column", name, f"has type {kind}, not numbers or text", "convert it")
        yield batch


FORMER: dict[str, list[tuple[Any, str, Any]]] = {
    "levels compared with a column's text": [
        (rows, "read_codes", codes_by_text), (tables, "_pandas_array", objects_as_str)
    ],
    "columns of dates refused": [(tables._PandasSource, "batches", types_refused)],
    "one category decides the type of all": [
        (tables, "_pandas_array", categories_of_one_type), (rows, "read_codes", codes_by_text)
    ],
}  # fmt: skip


@contextmanager
def planted(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for target, attribute, value in FORMER[name]:
            stack.enter_context(patch.object(target, attribute, value))
        yield
