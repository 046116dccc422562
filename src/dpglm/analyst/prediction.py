"""New rows in a release's coding: what a prediction needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.formula import Design
from dpglm.schema import Column
from dpglm.values import level_value

Floats = npt.NDArray[np.float64]


def coded_rows(rows: Any, design: Design) -> Floats:
    """New rows in the table's coding, (rows, dimension): numbers clamped to their bounds, levels by their position."""
    if not hasattr(rows, "columns") and not isinstance(rows, Mapping):
        raise InputError("rows", type(rows).__name__, "must be a DataFrame or a dict of columns", "correct the rows")
    if hasattr(rows, "column_names"):  # Arrow's
        rows = dict(zip(rows.column_names, rows.columns, strict=True))
    available = list(rows.columns) if hasattr(rows, "columns") else list(rows)
    needed = dict.fromkeys(name for column in design.columns for f in column.factors for name in f.column_names)
    values = {}
    for name in needed:
        if name not in available:
            raise InputError("rows", name, "is needed to predict", "add the column")
        cells = np.atleast_1d(np.asarray(rows[name]))
        if cells.ndim != 1:
            raise InputError(f"rows[{name!r}]", f"shape {cells.shape}", "must be a column", "give one value a row")
        values[name] = _coded_cells(cells, design.schema.columns[name])
    lengths = {len(value) for value in values.values()}
    if len(lengths) != 1:
        raise InputError("rows", sorted(lengths), "columns must be equally long", "correct the rows")
    return design.predictors(values, lengths.pop()).T


def _coded_cells(cells: npt.NDArray[Any], column: Column) -> Floats:
    if column.has_levels:
        positions = {cell: _position(cell, column) for cell in dict.fromkeys(cells.tolist())}
        return np.array([positions[cell] for cell in cells.tolist()], dtype=np.float64)
    try:
        numbers = cells.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"rows[{column.name!r}]", str(cells[0]), "must be numbers", "correct the column") from None
    if not np.isfinite(numbers).all():
        raise InputError(f"rows[{column.name!r}]", "NaN or infinity", "must be finite", "fill missing values first")
    return np.clip(numbers, column.lower, column.upper)


def _position(cell: Any, column: Column) -> int:
    """Position among the levels as the custodian finds it: by value."""
    value, values = level_value(str(cell)), [level_value(level) for level in column.levels]
    if value in values:
        return values.index(value)
    raise InputError(f"rows[{column.name!r}]", str(cell), f"must be one of {list(column.levels)}", "correct it")
