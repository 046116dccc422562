"""Any table as a stream of Arrow record batches of the needed columns.

A table is a path (CSV or Parquet, gzip, a folder of them), a pandas DataFrame, or anything that exports an Arrow stream
(Polars, PyArrow, DuckDB). What can be wrong with a header (a missing column, a type that holds no numbers) is said
before a row is read. Text is read as bytes and never guessed at: column types come from the schema, not from the rows.

Edge cases: a CSV line with too few or too many fields becomes a row of missing values, it is not dropped; an empty line
is no row. Bytes that are not UTF-8 match no number and no level. Files and folders whose names begin with "." or "_"
inside a folder are not tables (temporary files, by the convention of Spark and Arrow). A table that cannot be read
to its end gives one fixed message without content.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpglm.errors import FileError, InputError
from dpglm.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 2**16
_CSV_BLOCK_BYTES = 2**24
_TEXT_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_PARQUET_SUFFIXES = (".parquet", ".pq")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # how "surrogateescape" marks a byte that is not UTF-8
_SUBSTITUTE = "\x1a"  # not printable, so in no declared level
_KNOWN = ", ".join(_TEXT_SUFFIXES + _PARQUET_SUFFIXES)


@dataclass
class Source:
    """A table whose header has been checked. ``num_rows`` is known here only where a header states it."""

    columns: Sequence[Column]
    num_rows: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The needed columns, in the order of ``columns``, batch by batch."""
        raise NotImplementedError

    def repeatable(self) -> Source:
        """The same table for several passes; files and frames are read again."""
        return self


def open_table(table: Any, columns: Sequence[Column]) -> Source:
    """Check a table's header against the needed columns; reads no row."""
    if isinstance(table, str | Path):
        return _FilesSource(columns, files=_files(Path(table)))
    modules = {kind.__module__.partition(".")[0] for kind in type(table).__mro__}
    if "pandas" in modules and hasattr(table, "columns"):
        return _PandasSource(columns, len(table), frame=table)
    if "pyarrow" in modules and hasattr(table, "scanner"):  # a dataset
        _check_names(table.schema.names, columns)
        table = table.scanner(columns=[column.name for column in columns]).to_reader()
    if hasattr(table, "__arrow_c_stream__"):
        return _StreamSource(columns, stream=table)
    raise InputError(
        "table",
        type(table).__name__,
        "must be a path, a pandas DataFrame or something that exports an Arrow stream",
        "pass a path to a CSV or Parquet file, or call .collect() or .to_arrow() first",
    )


def column_names(path: str | Path) -> list[str]:
    """The header of a CSV or Parquet file (of a folder's first): no row is read."""
    file = _files(Path(path))[0]
    if not _is_parquet(file):
        return _csv_header(file)
    import pyarrow.parquet as pq

    try:
        return [str(name) for name in pq.read_schema(file).names]
    except Exception:
        raise FileError("table", str(file), "is not a Parquet file", "check the file") from None


def _check_names(names: Sequence[str], columns: Sequence[Column]) -> None:
    for column in columns:
        count = list(names).count(column.name)
        if count == 0:
            raise InputError("column", column.name, "is not in the table", "correct the schema or the table's header")
        if count > 1:
            raise InputError("column", column.name, "appears twice in the table's header", "rename one of them")


def _check_type(kind: pa.DataType, column: Column) -> None:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _check_type(kind.value_type, column)
    readable = (
        pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind) or is_text(kind)
    )  # fmt: skip
    if not readable:
        raise InputError(
            "column", column.name, f"has type {kind}, not numbers or text", "convert it before the release"
        )
    return None


def is_text(kind: pa.DataType) -> bool:
    """Strings and bytes, of every layout."""
    import pyarrow as pa

    types = pa.types
    checks = (
        types.is_string, types.is_large_string, types.is_string_view,
        types.is_binary, types.is_large_binary, types.is_binary_view,
    )  # fmt: skip
    return any(check(kind) for check in checks)


@dataclass
class _StreamSource(Source):
    stream: Any = None
    _reader: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        import pyarrow as pa

        try:
            self._reader = pa.RecordBatchReader.from_stream(self.stream)
        except Exception:
            raise InputError("table", type(self.stream).__name__, "gives no Arrow stream", "pass a path") from None
        _check_names(self._reader.schema.names, self.columns)
        for column in self.columns:
            _check_type(self._reader.schema.field(column.name).type, column)

    def batches(self) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in self.columns]
        for batch in _without_quoting(self._reader, type(self.stream).__name__):
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS).select(names)

    def repeatable(self) -> Source:
        """A stream passes once: its needed columns are kept in memory."""
        return _HeldSource(self.columns, held=list(self.batches()))


@dataclass
class _HeldSource(Source):
    held: list[Any] = field(default_factory=list)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.held)


def _without_quoting(batches: Iterable[pa.RecordBatch], table: str) -> Iterator[pa.RecordBatch]:
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
        _check_names(names, self.columns)
        self._series = [self.frame.iloc[:, names.index(column.name)] for column in self.columns]
        for series, column in zip(self._series, self.columns, strict=True):
            _check_type(_pandas_array(series.iloc[:0]).type, column)

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = [column.name for column in self.columns]
        for start in range(0, len(self.frame), BATCH_ROWS):
            arrays = [_pandas_array(series.iloc[start : start + BATCH_ROWS]) for series in self._series]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _pandas_array(series: Any) -> pa.Array:
    """A column of a DataFrame; columns of Python objects, which may be mixed, as text."""
    import pyarrow as pa

    if str(series.dtype) != "object":
        try:
            array = pa.array(series, from_pandas=True)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except Exception:  # categories of mixed kinds, text that is not Unicode
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


@dataclass
class _FilesSource(Source):
    files: Sequence[Path] = ()

    def __post_init__(self) -> None:
        for file in self.files:
            if _is_parquet(file):
                self._check_parquet(file)
            else:
                _check_names(_csv_header(file), self.columns)

    def _check_parquet(self, file: Path) -> None:
        import pyarrow.parquet as pq

        try:
            metadata, schema = pq.read_metadata(file), pq.read_schema(file)
        except OSError as error:
            raise FileError(
                "table", str(file), f"cannot be read ({error.strerror or 'not Parquet'})", "check it"
            ) from None
        except Exception:
            raise FileError("table", str(file), "is not a Parquet file", "check the file") from None
        _check_names(schema.names, self.columns)
        for column in self.columns:
            _check_type(schema.field(column.name).type, column)
        if all(_is_parquet(other) for other in self.files):
            self.num_rows = (self.num_rows or 0) + metadata.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            yield from _without_quoting(self._parquet(file) if _is_parquet(file) else self._csv(file), str(file))

    def _parquet(self, file: Path) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        names = [column.name for column in self.columns]
        with pq.ParquetFile(file, pre_buffer=False) as parquet:  # buffering ahead keeps the whole file
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=names):
                yield batch.select(names)

    def _csv(self, file: Path) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        if _is_header_only(file):
            return
        names = [column.name for column in self.columns]
        bad_lines = 0

        def count_bad_line(_: Any) -> str:
            nonlocal bad_lines
            bad_lines += 1
            return "skip"

        options = {
            "read_options": pacsv.ReadOptions(
                block_size=_CSV_BLOCK_BYTES, column_names=_csv_header(file), skip_rows_after_names=1
            ),
            "parse_options": pacsv.ParseOptions(
                delimiter=_delimiter(file), newlines_in_values=True, invalid_row_handler=count_bad_line
            ),
            "convert_options": pacsv.ConvertOptions(
                check_utf8=False, column_types=dict.fromkeys(names, pa.binary()), include_columns=names,
                strings_can_be_null=False,
            ),
        }  # fmt: skip
        compression = "gzip" if _is_gzip(file) else None
        with (
            pa.input_stream(file, compression=compression) as stream,
            pacsv.open_csv(_Utf8(stream), **options) as reader,
        ):
            for batch in reader:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)
        for start in range(0, bad_lines, BATCH_ROWS):
            missing = pa.nulls(min(BATCH_ROWS, bad_lines - start))
            yield pa.RecordBatch.from_arrays([missing] * len(names), names=names)


class _Utf8:
    """A binary file with each byte that is not UTF-8 replaced: pyarrow stops at odd lines that are not text."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes: a replacement is as long as what it replaces, and so is what waited for its rest."""
        while True:
            waiting, _ = self._decoder.getstate()
            data = self._stream.read(size if size < 0 else max(1, size - len(waiting)))
            text = self._decoder.decode(data, final=not data)
            if text or not data:
                break
        try:
            return text.encode()
        except UnicodeEncodeError:
            return _NOT_UTF8.sub(_SUBSTITUTE, text).encode()

    def close(self) -> None:
        self.closed = True


def _files(path: Path) -> tuple[Path, ...]:
    """The file itself, or the tables of a folder in name order."""
    if not path.exists():
        raise FileError("table", str(path), "does not exist", "check the path")
    if path.is_file():
        if not path.name.lower().endswith(_TEXT_SUFFIXES + _PARQUET_SUFFIXES):
            raise FileError("table", str(path), f"must end in one of {_KNOWN}", "convert or rename it")
        return (path,)
    found = sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and file.name.lower().endswith(_TEXT_SUFFIXES + _PARQUET_SUFFIXES)
        and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    )
    if not found:
        raise FileError("table", str(path), f"holds no file that ends in one of {_KNOWN}", "check the folder")
    return tuple(found)


def _is_parquet(file: Path) -> bool:
    return file.name.lower().endswith(_PARQUET_SUFFIXES)


def _is_gzip(file: Path) -> bool:
    return file.name.lower().endswith(".gz")


def _delimiter(file: Path) -> str:
    return "\t" if file.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _open_text(file: Path) -> Any:
    """The text of a CSV file. Bytes that are not UTF-8 may stand in its rows: they are no error of its header."""
    opener = gzip.open if _is_gzip(file) else open
    return opener(file, "rt", encoding="utf-8-sig", errors="replace", newline="")


def _csv_header(file: Path) -> list[str]:
    try:
        with _open_text(file) as stream:
            header = next(csv.reader(stream, delimiter=_delimiter(file)), None)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "not what its name says"
        raise FileError("table", str(file), f"cannot be read ({reason})", "check the file") from None
    except csv.Error:
        raise FileError("table", str(file), "has no readable header line", "save it as UTF-8 CSV") from None
    if not header:
        raise FileError("table", str(file), "is empty", "check the file")
    return header


def _is_header_only(file: Path) -> bool:
    """Whether nothing follows the header, not even the end of its line, which pyarrow would take for a torn file."""
    with _open_text(file) as stream:
        next(csv.reader(stream, delimiter=_delimiter(file)))
        return not stream.read(1)
