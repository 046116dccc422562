"""Any table as a stream of Arrow record batches of the needed columns.

A table is a path (CSV or Parquet, a folder of them: ``files.py``), a pandas DataFrame, anything that exports an Arrow
stream (Polars, PyArrow, DuckDB), a function that returns such a stream, or a Spark DataFrame (``spark.py``). What can
be wrong with a header (a missing column, a type that holds no numbers) is said before a row is read. A table that
cannot be read to its end gives one fixed message without content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    modules = {base.__module__.partition(".")[0] for base in type(table).__mro__}
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


def check_type(kind: pa.DataType, column: Column) -> None:
    """A needed column must hold numbers or text."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return check_type(kind.value_type, column)
    readable = (
        pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind) or is_text(kind)
    )  # fmt: skip
    if not readable:
        raise no_numbers(kind, column)
    return None


def no_numbers(kind: object, column: Column) -> InputError:
    """What is said of a column whose type cannot be read."""
    return InputError("column", column.name, f"has type {kind}, not numbers or text", "convert it before the release")


def is_text(kind: pa.DataType) -> bool:
    """Strings and bytes, of every layout."""
    import pyarrow as pa

    types = pa.types
    checks = (
        types.is_string, types.is_large_string, types.is_string_view,
        types.is_binary, types.is_large_binary, types.is_binary_view,
    )  # fmt: skip
    return any(check(kind) for check in checks)


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
            reader = pa.RecordBatchReader.from_stream(stream)
        except Exception:
            raise InputError("table", type(stream).__name__, "gives no Arrow stream", "pass a path") from None
        check_names(reader.schema.names, self.columns)
        for column in self.columns:
            check_type(reader.schema.field(column.name).type, column)
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
        for series, column in zip(self._series, self.columns, strict=True):
            check_type(_pandas_array(series.iloc[:0]).type, column)

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = [column.name for column in self.columns]
        for start in range(0, len(self.frame), BATCH_ROWS):
            arrays = [_pandas_array(series.iloc[start : start + BATCH_ROWS]) for series in self._series]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _pandas_array(series: Any) -> pa.Array:
    """A column of a DataFrame; columns of Python objects, which may be mixed, as text."""
    import pyarrow as pa

    if str(series.dtype) == "category":
        # Category by category, as text: Arrow would let one odd category decide how the cells of all rows are read.
        values = pa.array([_as_bytes(value) for value in series.cat.categories], pa.binary())
        codes = series.cat.codes.to_numpy()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), values)
    if str(series.dtype) != "object":
        try:
            array = pa.array(series, from_pandas=True)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except Exception:  # text that is not Unicode
            pass
    return pa.array([_as_bytes(value) for value in series], pa.binary())


def _as_bytes(value: Any) -> bytes | None:
    """A cell of an object column as text: whatever it holds, this raises nothing."""
    try:
        if value is None or value != value:  # NaN, NaT and NA are missing
            return None
        return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    except Exception:
        return None
