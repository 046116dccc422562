"""The same cells as tables of every kind that a release reads: Arrow in several types, pandas, files."""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpglm.schema import Column

SOURCES = (
    "arrow binary", "arrow text", "arrow typed", "arrow dictionary", "arrow stream", "pandas object", "pandas category",
    "csv", "csv gzip", "tsv", "csv folder", "parquet", "parquet typed",
)  # fmt: skip


def as_bytes(cell: Any) -> bytes | None:
    """A cell as text in a file."""
    if cell is None or isinstance(cell, bytes):
        return cell
    return str(cell).encode("utf-8", "surrogatepass")


def make_table(source: str, rows: Sequence[Any], columns: Sequence[Column], folder: Path, chance: Random) -> Any:
    """The rows as a table of this kind; chunks and files are cut at random. A raw CSV line is a row without cells."""
    names = [column.name for column in columns]
    kind, _, form = source.partition(" ")
    if kind in ("csv", "tsv"):
        return _text_files(source, rows, names, folder, chance)
    cells = [(None,) * len(names) if isinstance(row, bytes) else row for row in rows]
    by_column = {column.name: [row[position] for row in cells] for position, column in enumerate(columns)}
    if kind == "pandas":
        dtype = "category" if form == "category" else object
        if form == "category":  # to pandas 1, 1.0 and True are one category: the first of them in the table
            by_column = {name: [_one_kind(cell) for cell in values] for name, values in by_column.items()}
        return pd.DataFrame({name: pd.Series(values, dtype=object).astype(dtype) for name, values in by_column.items()})
    arrays = {
        name: _array(form or "binary", by_column[name], column) for name, column in zip(names, columns, strict=True)
    }
    table = pa.table(arrays)
    if kind == "parquet":
        path = folder / "table.parquet"
        pq.write_table(table, path, row_group_size=chance.randint(1, max(len(rows), 1)))
        return path
    table = pa.Table.from_batches(_cut(table, chance), schema=table.schema)
    return table.to_reader() if form == "stream" else table


def _array(form: str, cells: list[Any], column: Column) -> pa.Array:
    if form == "typed" and not column.has_levels:
        return pa.array([_number(cell) for cell in cells], pa.float64())
    if form in ("text", "typed"):
        texts = [as_bytes(cell) for cell in cells]
        return pa.array([None if text is None else text.decode("utf-8", "replace") for text in texts], pa.string())
    array = pa.array([as_bytes(cell) for cell in cells], pa.binary())
    return array.dictionary_encode() if form == "dictionary" else array


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except (TypeError, ValueError):
        return None


def _one_kind(cell: Any) -> Any:
    return str(cell) if isinstance(cell, bool) else _number(cell) if isinstance(cell, int) else cell


def _cut(table: pa.Table, chance: Random) -> list[pa.RecordBatch]:
    batches, start = [], 0
    while start < table.num_rows:
        size = chance.randint(1, table.num_rows - start)
        batches += table.slice(start, size).combine_chunks().to_batches()
        start += size
    return batches


def _text_files(source: str, rows: Sequence[Any], names: list[str], folder: Path, chance: Random) -> Path:
    between = b"\t" if source == "tsv" else b","

    def line(cells: Sequence[Any]) -> bytes:
        if isinstance(cells, bytes):
            return cells.replace(b",", between)
        return between.join(b'"' + (as_bytes(cell) or b"").replace(b'"', b'""') + b'"' for cell in cells)

    head, lines = line(names), [line(row) for row in rows]
    if source == "csv folder":
        path = folder / "table"
        path.mkdir(exist_ok=True)
        cut = chance.randint(0, len(lines))
        for name, part in (("a.csv", lines[:cut]), ("b.csv", lines[cut:])):
            (path / name).write_bytes(b"\n".join([head, *part]) + b"\n")
        return path
    path = folder / {"csv": "table.csv", "csv gzip": "table.csv.gz", "tsv": "table.tsv"}[source]
    content = b"\n".join([head, *lines]) + b"\n"
    path.write_bytes(gzip.compress(content, mtime=0) if source == "csv gzip" else content)
    return path
