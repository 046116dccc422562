"""Any table as a stream of Arrow record batches of the needed columns.

A table is a path (CSV or Parquet, a folder of them: ``files.py``), a pandas DataFrame, anything that exports an Arrow
stream (Polars, PyArrow, DuckDB), a LazyFrame of Polars, a function that returns such a stream, or a Spark DataFrame
(``spark.py``). What can
be wrong with a header (a missing column, or one that appears twice) is said before a row is read. Columns of every type
are taken: where a frame's cells decide its types, a type that is refused would tell of a cell. A table that cannot be
read to its end gives one fixed message without content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpglm.custodian.objects import cell_text
from dpglm.errors import FileError, InputError
from dpglm.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 2**16


@dataclass
class Source:
    """A table whose header has been checked. ``num_rows`` is known here only where a header states it."""

    columns: Sequence[Column]
    num_rows: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The needed columns, in the order of ``columns``, batch by batch."""
        raise NotImplementedError

    @property
    def passes_once(self) -> bool:
        """Whether several passes would mean to hold all rows, which may be more than memory."""
        return False

    def repeatable(self) -> Source:
        """The same table for several passes; files, frames and functions are read again."""
        return self


def open_table(table: Any, columns: Sequence[Column]) -> Source:
    """Check a table's header against the needed columns; reads no row."""
    if isinstance(table, str | Path):
        from dpglm.custodian.files import FilesSource, not_empty, table_files

        return FilesSource(columns, files=table_files(Path(not_empty(str(table)))))
    modules = libraries_of(table)
    kind = type(table).__name__
    if "pandas" in modules and hasattr(table, "columns"):
        return _PandasSource(columns, len(table), frame=table)
    if "pyspark" in modules and hasattr(table, "mapInArrow"):
        from dpglm.custodian.spark import SparkSource

        return SparkSource(columns, frame=table)
    if "pyarrow" in modules and hasattr(table, "scanner"):  # a dataset; one of files can be scanned again
        check_names(table.schema.names, columns)
        names = [column.name for column in columns]
        again = hasattr(table, "files")
        return _StreamSource(columns, kind, lambda: table.scanner(columns=names).to_reader(), again)
    if "polars" in modules and hasattr(table, "get_column"):
        table = _polars_table(table, columns)
    if "polars" in modules and hasattr(table, "collect_schema"):
        return _LazySource(columns, frame=table)
    if hasattr(table, "__arrow_c_stream__"):
        return _StreamSource(columns, kind, lambda: table, again=False, held=hasattr(table, "__len__"))
    if callable(table):
        return _StreamSource(columns, "a function", table, again=True)
    raise InputError(
        "table",
        kind,
        "must be a path, a pandas or Spark DataFrame or something that exports an Arrow stream",
        "pass a path to a CSV or Parquet file, or call .collect() or .to_arrow() first",
    )


def libraries_of(table: Any) -> set[str]:
    """Where the classes of an object come from, so that no library is imported to ask it."""
    return {base.__module__.partition(".")[0] for base in type(table).__mro__}


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of at most ``BATCH_ROWS``: what comes in may be of any size."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def check_names(names: Sequence[str], columns: Sequence[Column]) -> None:
    """Each needed column must stand in the header, once."""
    for column in columns:
        count = list(names).count(column.name)
        if count == 0:
            raise InputError("column", column.name, "is not in the table", "correct the schema or the table's header")
        if count > 1:
            raise InputError("column", column.name, "appears twice in the table's header", "rename one of them")


class _StreamSource(Source):
    """What ``open_stream`` returns. ``again``: a new stream of the same rows at every call; ``held``: from memory."""

    def __init__(
        self, columns: Sequence[Column], kind: str, open_stream: Callable[[], Any], again: bool, held: bool = False
    ) -> None:
        super().__init__(columns)
        self._kind, self._open_stream, self._again, self._held = kind, open_stream, again, held
        self._opened: Any = self._reader()

    @property
    def passes_once(self) -> bool:
        return not self._again and not self._held

    def _reader(self) -> pa.RecordBatchReader:
        import pyarrow as pa

        stream = None
        try:
            stream = self._open_stream()
            if "polars" in libraries_of(stream) and hasattr(stream, "get_column"):
                stream = _polars_table(stream, self.columns)
            reader = pa.RecordBatchReader.from_stream(stream)
        except InputError:
            raise
        except Exception:
            raise InputError("table", type(stream).__name__, "gives no Arrow stream", "pass a path") from None
        check_names(reader.schema.names, self.columns)
        return reader

    def batches(self) -> Iterator[pa.RecordBatch]:
        reader, self._opened = self._opened or self._reader(), None
        names = [column.name for column in self.columns]
        for batch in without_quoting(reader, self._kind):
            yield from slices(batch.select(names))

    def repeatable(self) -> Source:
        """A stream passes once: its needed columns are kept in memory, unless it can be opened again."""
        if not self._again:
            return _HeldSource(self.columns, held=list(self.batches()))
        try:
            same = self._open_stream() is self._open_stream()
        except Exception:  # whose words may quote a cell
            rule = "failed when it was called again"
            raise InputError("table", "a function", rule, "return a new stream at every call") from None
        if same:
            rule = "returns the same stream at every call, and a stream passes once"
            raise InputError("table", "a function", rule, "return a new stream")
        return self


@dataclass
class _HeldSource(Source):
    held: list[Any] = field(default_factory=list)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.held)


def without_quoting(batches: Iterable[pa.RecordBatch], table: str) -> Iterator[pa.RecordBatch]:
    """The same batches; an error of the reader, whose words may quote a cell, becomes one fixed message."""
    iterator = iter(batches)
    while True:
        try:
            batch = next(iterator, None)
        except Exception:
            raise FileError("table", table, "could not be read to its end", "check that it is intact") from None
        if batch is None:
            return
        yield batch


@dataclass
class _PandasSource(Source):
    frame: Any = None
    _series: list[Any] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        names = [str(name) for name in self.frame.columns]  # labels may be numbers
        check_names(names, self.columns)
        self._series = [self.frame.iloc[:, names.index(column.name)] for column in self.columns]

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = [column.name for column in self.columns]
        for start in range(0, len(self.frame), BATCH_ROWS):
            arrays = [_pandas_array(series.iloc[start : start + BATCH_ROWS]) for series in self._series]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


@dataclass
class _LazySource(Source):
    """A LazyFrame: of its needed columns all rows are collected, once, in Polars' streaming way."""

    frame: Any = None

    def __post_init__(self) -> None:
        try:
            names = self.frame.collect_schema().names()
        except Exception:  # of a query that cannot work; its words may quote a literal
            raise InputError("table", "LazyFrame", "is a query without a schema", "see what .collect() says") from None
        check_names(names, self.columns)

    @property
    def passes_once(self) -> bool:
        return True

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.repeatable().batches()

    def repeatable(self) -> Source:
        import polars.selectors as cs

        wanted = self.frame.select(cs.by_name(*(column.name for column in self.columns)))
        try:
            collected = wanted.collect(engine="streaming")
        except Exception:
            raise FileError("table", "LazyFrame", "could not be read to its end", "see what .collect() says") from None
        return open_table(collected, self.columns)


def _pandas_array(series: Any) -> pa.Array:
    """A column of a DataFrame: in its own type, or cell by cell where Arrow has none for it."""
    import pyarrow as pa

    kind = str(series.dtype)
    if kind == "category":
        # As text, whatever type the categories have in common, so that the way through the code does not tell it.
        categories = pa.array([cell_text(value) for value in series.cat.categories], pa.binary())
        codes = series.cat.codes.to_numpy()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), categories)
    if kind != "object":
        try:
            array = pa.array(series, from_pandas=True)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except Exception:  # text that is not Unicode, complex or wide numbers, sparse columns
            pass
    return pa.array([cell_text(value) for value in series], pa.binary())


def _polars_table(frame: Any, columns: Sequence[Column]) -> pa.Table:
    """The needed columns of a Polars frame; those that Arrow has no type for cell by cell, as text.

    Which those are depends on cells: one that is no number, or has more than 64 bits, makes such a column. To Arrow
    Python's objects would be addresses in memory.
    """
    import pyarrow as pa

    check_names(frame.columns, columns)
    arrays = []
    for column in columns:
        series = frame.get_column(column.name)
        try:
            array = None if str(series.dtype) == "Object" else pa.table(series.to_frame()).column(0)
        except Exception:
            array = None
        arrays.append(pa.array([cell_text(cell) for cell in series], pa.binary()) if array is None else array)
    return pa.table(arrays, names=[column.name for column in columns])
