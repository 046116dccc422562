"""A table whose rows belong to people -> batches that hold people whole, wherever their rows stood.

Guarantee: rows are of one unit exactly where their cells of the unit's column have the same value, as levels compare
(``values.py``): 1, 1.0 and "01" are one unit. Whatever the order, the batches or the engine, the same rows come
together.

Rows are divided by a hash of the unit into parts, each of which is put in order in memory. A table of more than
``HELD_ROWS`` rows is divided into temporary files, which nobody else may read and which are deleted with the object.

Edge cases: a row whose cell of the unit's column is missing belongs to nobody, and is left out. Numbers beyond 2^53 are
told apart where the table holds them as integers or text.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpglm.custodian.cells import is_text
from dpglm.custodian.objects import UNREADABLE, cell_text
from dpglm.custodian.tables import BATCH_ROWS, Source
from dpglm.values import level_value

if TYPE_CHECKING:
    import pyarrow as pa

HELD_ROWS = 2**22  # rows of a table that is grouped in memory
_PARTS = 64
_WHOLE = re.compile(rb"[ \t]*\+?(-?)0*([0-9]{1,400}?)(\.0*)?[ \t\r]*")


class GroupedSource(Source):
    """A table, grouped by its last column at the first pass; later passes read what was grouped."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.columns)
        self._source = source
        self._parts: list[Any] | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of whole units; the last column says which unit of the batch a row is of."""
        if self._parts is None:
            self._parts = self._divided()
        for part in self._parts:
            yield from in_order(_read(part))

    def repeatable(self) -> Source:
        return self

    def _divided(self) -> list[Any]:
        """The parts, in memory or in files."""
        held: list[list[pa.RecordBatch]] = [[] for _ in range(_PARTS)]
        files: list[_File] | None = None
        rows = 0
        for batch in self._source.batches():
            rows += batch.num_rows
            for number, piece in divided(with_keys(plain(batch)), _PARTS):
                (held[number].append if files is None else files[number].write)(piece)
            if files is None and rows > HELD_ROWS:
                folder = tempfile.mkdtemp(prefix="dpglm-")  # of this user alone
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                files = [_File(Path(folder, f"{number}")) for number in range(_PARTS)]
                for file, pieces in zip(files, held, strict=True):
                    for piece in pieces:
                        file.write(piece)
                held = []
        if files is None:
            return held
        for file in files:
            file.close()
        return files


class _File:
    """Batches in a file. Columns of other types than the first batch's, as frames make them, begin another stream."""

    def __init__(self, path: Path) -> None:
        self.path, self._stream = path, path.open("wb")
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        if self._writer is None or self._writer[0] != batch.schema:
            self._end()
            self._writer = batch.schema, pa.ipc.new_stream(self._stream, batch.schema)
        self._writer[1].write_batch(batch)

    def close(self) -> None:
        """No more is written."""
        self._end()
        self._stream.close()

    def _end(self) -> None:
        if self._writer is not None:
            self._writer[1].close()
            self._writer = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """All batches."""
        import pyarrow as pa

        size = self.path.stat().st_size
        with self.path.open("rb") as stream:
            while stream.tell() < size:
                with pa.ipc.open_stream(stream) as reader:
                    yield from reader


def _read(part: Any) -> Iterable[pa.RecordBatch]:
    return part.read() if isinstance(part, _File) else part


def with_keys(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that belong to a unit, with its key in the place of the last column."""
    import pyarrow as pa

    last = batch.num_columns - 1
    keys = unit_keys(batch.column(last))
    names = [f"column{n}" for n in range(last)] + ["unit"]
    made = pa.RecordBatch.from_arrays([*(batch.column(n) for n in range(last)), keys], names=names)
    return made.filter(keys.is_valid())


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same cells in types that rows can be taken of, and that do not differ from batch to batch."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(list(map(_plain, batch.columns)), names=batch.schema.names)


def _plain(array: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if is_text(array.type):
        return array.cast(pa.large_binary())
    has_no_value = pa.types.is_nested(array.type) or isinstance(array.type, pa.BaseExtensionType)  # as cells.py reads
    return pa.nulls(len(array)) if has_no_value else array


def unit_keys(array: pa.Array) -> pa.Array:
    """One spelling of each unit; null where a cell is missing."""
    import pyarrow as pa

    array = _plain(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.binary())
    encoded = array.dictionary_encode()
    spelled = pa.array([_key(cell) for cell in encoded.dictionary.to_pylist()], pa.binary())
    return spelled.take(encoded.indices)


def _key(cell: Any) -> bytes | None:
    text = cell_text(cell)
    if text is None or text == UNREADABLE or not text.strip(b" \t\r"):
        return None
    whole = _WHOLE.fullmatch(text)
    if whole:  # exactly, however long
        digits = whole[2].lstrip(b"0") or b"0"
        return b"n" + (whole[1] if digits != b"0" else b"") + digits
    value = level_value(text.decode("utf-8", "surrogateescape"))
    if isinstance(value, float):
        return b"n" + (str(int(value)) if value.is_integer() else repr(value)).encode()
    return b"t" + value.encode("utf-8", "surrogateescape")


def divided(batch: pa.RecordBatch, parts: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows by part, by a hash of their key."""
    encoded = batch.column(batch.num_columns - 1).dictionary_encode()
    of_key = np.array([zlib.crc32(key) % parts for key in encoded.dictionary.to_pylist()], dtype=np.int64)
    number = of_key[encoded.indices.to_numpy(zero_copy_only=False)] if batch.num_rows else of_key
    order = np.argsort(number, kind="stable")
    ends = np.searchsorted(number[order], np.arange(parts + 1))
    for part in np.unique(number).tolist():
        yield part, batch.take(order[ends[part] : ends[part + 1]])


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All batches of a part, put in order, in pieces of whole units and of some ``BATCH_ROWS`` rows."""
    import pyarrow as pa

    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return
    keys = pa.chunked_array([batch.column(batch.num_columns - 1) for batch in held], pa.binary())
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    ends = [*_cuts(first, len(ordered)), len(ordered)]
    sizes = np.cumsum([0, *(batch.num_rows for batch in held)])
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        if start == end:
            continue
        wanted = order[start:end]
        columns = [_taken(held, n, wanted, sizes) for n in range(held[0].num_columns - 1)]
        names = [*held[0].schema.names[:-1], "unit"]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(ordered[start:end], pa.int64())], names=names)


def _cuts(first: Any, rows: int) -> Sequence[int]:
    """Where pieces end: at the first unit that begins after so many rows."""
    last = 0
    found: list[int] = []
    while True:
        place = int(np.searchsorted(first, last + BATCH_ROWS))
        if place >= len(first):
            return found
        last = int(first[place])
        if last >= rows:
            return found
        found.append(last)


def _taken(held: list[pa.RecordBatch], column: int, wanted: Any, sizes: Any) -> pa.Array:
    """Rows of a column that may have another type in each batch: then cell by cell, as text."""
    import pyarrow as pa

    arrays = [batch.column(column) for batch in held]
    if len({array.type for array in arrays}) > 1:
        arrays = [pa.array([cell_text(cell) for cell in array.to_pylist()], pa.binary()) for array in arrays]
    whole = pa.chunked_array(arrays, arrays[0].type)
    taken = whole.take(pa.array(wanted))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken
