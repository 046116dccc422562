"""CSV and Parquet files, and folders of them, as a stream of Arrow record batches.

Text is read as bytes and never guessed at: column types come from the schema, not from the rows. Files are read a few
batches at a time, whatever their size.

Edge cases: a CSV line with too few or too many fields becomes a row of missing values, it is not dropped; an empty line
is no row. Bytes that are not UTF-8 match no number and no level. Files and folders whose names begin with "." or "_"
inside a folder are not tables (temporary files, by the convention of Spark and Arrow).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpglm.custodian import tables
from dpglm.custodian.tables import Source, check_names, without_quoting
from dpglm.errors import FileError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

_CSV_BLOCK_BYTES = 2**24
TEXT_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_PARQUET_SUFFIXES = (".parquet", ".pq")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # how "surrogateescape" marks a byte that is not UTF-8
_LONGEST_NAME = 100  # of a column; what is longer is more likely somebody's words
# Empty, a number or fraction, a date or time, an address or identity: what stands in rows.
_VALUE = re.compile(
    r"\s*(?:[-+(]?[$€£]?[0-9][0-9., ]*(?:e[-+]?[0-9]+)?[%)]?|[-+]?\.[0-9]+|[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}.*"
    r"|[0-9]+/[0-9]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]{1,2}:[0-9]{2}.*|[^@\s]+@[^@\s]+\.[^@\s]+"
    r"|true|false|nan|null|none|inf)?\s*",
    re.IGNORECASE,
)
_OTHER_DELIMITERS = re.compile(r"[;\t|]")
_SEPARATOR = re.compile(r"[;\t|]")
_ANY_DELIMITER = re.compile(r"[;\t|:\s]+")  # of a line that is one name, which no table for a regression has
_SUBSTITUTE = "\x1a"  # not printable, so in no declared level
_KNOWN = ", ".join(TEXT_SUFFIXES + _PARQUET_SUFFIXES)


def not_empty(table: str) -> str:
    """A name of a table. A variable of the shell that is not set would be the folder that one happens to be in."""
    if not table.strip():
        raise InputError("table", table, "must not be empty", "give the path of a CSV or Parquet file")
    return table


def column_names(path: str | Path) -> list[str]:
    """The header of a CSV or Parquet file (of a folder's first): no row is read.

    Guarantee: a header that looks like a row, or the first line of a CSV file that does not end where a line should, is
    not returned, and no error quotes it. A row that is all words cannot be told from names.
    """
    file = table_files(Path(path))[0]
    if not _is_parquet(file):
        return _checked_names(file, _csv_header(file))
    import pyarrow.parquet as pq

    try:
        names = [str(name) for name in pq.read_schema(file).names]
    except Exception:
        raise FileError("table", str(file), "is not a Parquet file", "check the file") from None
    return _checked_names(file, names)


def wanted_names(path: str | Path) -> list[str]:
    """The header for a person who will choose from it: one name that seems to be several is an error."""
    names = column_names(path)
    if len(names) == 1 and _SEPARATOR.search(names[0]):
        rule = "has one column, whose name holds semicolons, tabs or bars: they may separate several"
        raise FileError("table", str(path), rule, "save it with commas; or with tabs, as .tsv")
    return names


@dataclass
class FilesSource(Source):
    """CSV and Parquet files that are one table."""

    files: Sequence[Path] = ()

    def __post_init__(self) -> None:
        for file in self.files:
            if _is_parquet(file):
                self._check_parquet(file)
            else:
                check_names(_csv_header(file), self.columns)

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
        check_names(schema.names, self.columns)
        if all(_is_parquet(other) for other in self.files):
            self.num_rows = (self.num_rows or 0) + metadata.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            yield from without_quoting(self._parquet(file) if _is_parquet(file) else self._csv(file), str(file))

    def _parquet(self, file: Path) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        names = [column.name for column in self.columns]
        with pq.ParquetFile(file, pre_buffer=False) as parquet:  # buffering ahead keeps the whole file
            for batch in parquet.iter_batches(batch_size=tables.BATCH_ROWS, columns=names):
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
                yield from tables.slices(batch)
        for start in range(0, bad_lines, tables.BATCH_ROWS):
            missing = pa.nulls(min(tables.BATCH_ROWS, bad_lines - start))
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


def table_files(path: Path) -> tuple[Path, ...]:
    """The file itself, or the tables of a folder in name order."""
    if not path.exists():
        raise FileError("table", str(path), "does not exist", "check the path")
    if path.is_file():
        if not path.name.lower().endswith(TEXT_SUFFIXES + _PARQUET_SUFFIXES):
            raise FileError("table", str(path), f"must end in one of {_KNOWN}", "convert or rename it")
        return (path,)
    found = sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and file.name.lower().endswith(TEXT_SUFFIXES + _PARQUET_SUFFIXES)
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
    if header is None:
        raise FileError("table", str(file), "is empty", "check the file")
    if not header:
        raise FileError("table", str(file), "has a blank first line", "begin it with the names of the columns")
    return header


def _checked_names(file: Path, names: list[str]) -> list[str]:
    if any(name.splitlines() != [name] for name in names if name):
        rule = "has a name with a line break in its first line: a quote may be open"
        raise FileError("table", str(file), rule, "begin it with the names of the columns, each quote closed")
    if len(set(names)) < len(names) or any(len(name) > _LONGEST_NAME for name in names) or _holds_a_value(names):
        rule = "begins with what looks like a row, not like names (numbers, dates, empty, long or repeated ones)"
        raise FileError("table", str(file), rule, "begin it with a line of the columns' names")
    return names


def _holds_a_value(names: list[str]) -> bool:
    """Also where another delimiter keeps a whole row in one name."""
    delimiters = _ANY_DELIMITER if len(names) == 1 else _OTHER_DELIMITERS
    return any(_VALUE.fullmatch(part) for name in names for part in delimiters.split(name.strip()))


def _is_header_only(file: Path) -> bool:
    """Whether nothing follows the header, not even the end of its line, which pyarrow would take for a torn file."""
    with _open_text(file) as stream:
        next(csv.reader(stream, delimiter=_delimiter(file)))
        return not stream.read(1)
