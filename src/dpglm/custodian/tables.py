"""Any table as a stream of Arrow record batches of the needed columns.

A table is a path (CSV or Parquet, gzip, a folder of them), a pandas DataFrame, or anything that exports an Arrow stream
(Polars, PyArrow, DuckDB). What can be wrong with a header (a missing column, a type that holds no numbers) is said
before a row is read. Text is read as bytes and never guessed at: column types come from the schema, not from the rows.

Edge cases: a CSV line with too few or too many fields becomes a row of missing values, it is not dropped. A file
that is not what its name says ends in one fixed message without content.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
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
_KNOWN = ", ".join(_TEXT_SUFFIXES + _PARQUET_SUFFIXES)


@dataclass
class Source:
    """A table whose header has been checked. ``num_rows`` is known here only where a header states it."""

    columns: Sequence[Column]
    num_rows: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The needed columns, in the order of ``columns``, batch by batch."""
        raise NotImplementedError


def open_table(table: Any, columns: Sequence[Column]) -> Source:
    """Check a table's header against the needed columns; reads no row."""
    if isinstance(table, str | Path):
        return _FilesSource(columns, files=_files(Path(table)))
    module = type(table).__module__.partition(".")[0]
    if module == "pandas" and hasattr(table, "columns"):
        return _PandasSource(columns, len(table), frame=table)
    if hasattr(table, "scanner"):  # a PyArrow dataset
        table = table.scanner(columns=[column.name for column in columns]).to_reader()
    if hasattr(table, "__arrow_c_stream__"):
        return _StreamSource(columns, stream=table)
    raise InputError(
        "table",
        type(table).__name__,
        "must be a path, a pandas DataFrame or something that exports an Arrow stream",
        "pass a path to a CSV or Parquet file, or call .collect() or .to_arrow() first",
    )


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
        for batch in self._reader:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS).select(names)


@dataclass
class _PandasSource(Source):
    frame: Any = None

    def __post_init__(self) -> None:

        _check_names([str(name) for name in self.frame.columns], self.columns)
        for column in self.columns:
            _check_type(_pandas_array(self.frame[column.name].iloc[:0]).type, column)

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = [column.name for column in self.columns]
        for start in range(0, len(self.frame), BATCH_ROWS):
            part = self.frame.iloc[start : start + BATCH_ROWS]
            arrays = [_pandas_array(part[name]) for name in names]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _pandas_array(series: Any) -> pa.Array:
    """A column of a DataFrame; columns of Python objects, which may be mixed, as text."""
    import pyarrow as pa

    if str(series.dtype) != "object":
        try:
            return pa.array(series, from_pandas=True)
        except (pa.ArrowException, TypeError):  # categories of mixed kinds
            pass
    return pa.array([_as_bytes(value) for value in series], pa.binary())


def _as_bytes(value: Any) -> bytes | None:
    """A cell of an object column as text: whatever it holds, this raises nothing."""
    try:
        if value is None or value != value:  # NaN, NaT and NA are missing
            return None
        return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
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
            try:
                yield from self._parquet(file) if _is_parquet(file) else self._csv(file)
            except GeneratorExit:
                raise
            except Exception:
                # Deliberately without the reader's own words: those may quote a cell.
                raise FileError("table", str(file), "could not be read to its end", "check that it is intact") from None

    def _parquet(self, file: Path) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        names = [column.name for column in self.columns]
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=names):
                yield batch.select(names)

    def _csv(self, file: Path) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

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
        with pa.input_stream(file, compression="detect") as stream, pacsv.open_csv(stream, **options) as reader:
            for batch in reader:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)
        for start in range(0, bad_lines, BATCH_ROWS):
            missing = pa.nulls(min(BATCH_ROWS, bad_lines - start))
            yield pa.RecordBatch.from_arrays([missing] * len(names), names=names)


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
        if file.is_file() and file.name.lower().endswith(_TEXT_SUFFIXES + _PARQUET_SUFFIXES)
    )
    if not found:
        raise FileError("table", str(path), f"holds no file that ends in one of {_KNOWN}", "check the folder")
    return tuple(found)


def _is_parquet(file: Path) -> bool:
    return file.name.lower().endswith(_PARQUET_SUFFIXES)


def _delimiter(file: Path) -> str:
    return "\t" if ".tsv" in file.name.lower() else ","


def _csv_header(file: Path) -> list[str]:
    opener = gzip.open if file.name.lower().endswith(".gz") else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            header = next(csv.reader(stream, delimiter=_delimiter(file)), None)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "not what its name says"
        raise FileError("table", str(file), f"cannot be read ({reason})", "check the file") from None
    except (UnicodeDecodeError, csv.Error):
        raise FileError("table", str(file), "has no readable header line", "save it as UTF-8 CSV") from None
    if not header:
        raise FileError("table", str(file), "is empty", "check the file")
    return header
