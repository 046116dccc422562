"""Tables: headers are checked before rows, odd files keep their rows, and no message quotes a cell."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from dpglm.custodian import files, tables
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.custodian.tables import open_table
from dpglm.errors import DpglmError, FileError, InputError
from dpglm.schema import Schema

SECRET = "hunter2"


def schema(rows: int = 3) -> Schema:
    return Schema.from_dict(
        {
            "dataset": {"name": "t", "rows": rows},
            "columns": {
                "a": {"type": "numeric", "lower": 0, "upper": 10},
                "c": {"type": "categorical", "levels": ["x", "y", "zé"], "fill": "x"},
            },
        }
    )


COLUMNS = tuple(schema().columns.values())


def read(table: Any) -> list[tuple[Any, ...]]:
    """All cells, rows in the order in which they come."""
    return [tuple(row.values()) for batch in open_table(table, COLUMNS).batches() for row in batch.to_pylist()]


def integers(table: Any, rows: int) -> list[tuple[int, ...]]:
    request = Request("a ~ c", schema(rows), "linear", 1.0, 1e-6, method="moments", allocation="equal")
    return [block.integers for block in build_release(table, request, FixedNoise()).blocks]


X, Y, MISSING = (b"1", b"x"), (b"2", b"y"), (None, None)

TEXTS = {
    "plain": (b"a,c\n1,x\n2,y\n", [X, Y]),
    "no last newline": (b"a,c\n1,x\n2,y", [X, Y]),
    "CRLF": (b"a,c\r\n1,x\r\n2,y\r\n", [X, Y]),
    "CR": (b"a,c\r1,x\r2,y\r", [X, Y]),
    "byte order mark": (b"\xef\xbb\xbfa,c\n1,x\n2,y\n", [X, Y]),
    "byte order mark, quoted comma": (b'\xef\xbb\xbf"q,r",a,c\n0,1,x\n0,2,y\n', [X, Y]),
    "quotes": (b'"a","c"\n"1","x"\n2,"y"\n', [X, Y]),
    "other columns, other order": (b"c,q,a,q\nx,\xff,1,\ny,,2,9\n", [X, Y]),
    "header with a newline": (b'a,"q\nr",c\n1,0,x\n2,0,y\n', [X, Y]),
    "header that is not UTF-8": (b"a,c,gr\xf6\xdfe\n1,x,0\n2,y,0\n", [X, Y]),
    "empty lines are no rows": (b"a,c\n\n1,x\n\n\n2,y\n\n", [X, Y]),
    "header only": (b"a,c\n", []),
    "header only, no newline": (b"a,c", []),
    "header only, mark": (b"\xef\xbb\xbfa,c", []),
    "empty cells": (b'a,c\n,\n"",""\n', [(b"", b""), (b"", b"")]),
    "words for missing stay words": (b"a,c\nNA,NULL\nnan,\n", [(b"NA", b"NULL"), (b"nan", b"")]),
    "quoted newline": (b'a,c\n1,"x\ny"\n2,y\n', [(b"1", b"x\ny"), Y]),
    "quoted comma and quote": (b'a,c\n1,"x,""y"\n2,y\n', [(b"1", b'x,"y'), Y]),
    "quote inside a cell": (b'a,c\n1,x"x\n2,y\n', [(b"1", b'x"x'), Y]),
    "NUL": (b"a,c\n1\x00,x\n2,\x00y\n", [(b"1\x00", b"x"), (b"2", b"\x00y")]),
    "text": ("a,c\n1,zé\n2,日本\n".encode(), [(b"1", "zé".encode()), (b"2", "日本".encode())]),
    "not UTF-8": (b"a,c\n\xff1,x\n2,z\xe9\n", [(b"\x1a1", b"x"), (b"2", b"z\x1a")]),
    "cut off in a character": (b"a,c\n1,x\n2,\xe6\x97", [X, (b"2", b"\x1a\x1a")]),
    "too few fields": (b"a,c\n1\n2,y\n", [Y, MISSING]),
    "too many fields": (b"a,c\n1,x,x\n2,y\n", [Y, MISSING]),
    "only odd lines": (b"a,c\n1,x,x\n2\n , , ,\n", [MISSING] * 3),
    "last line odd": (b"a,c\n1,x\n2", [X, MISSING]),
    "a line of blanks": (b"a,c\n1,x\n  \n", [X, MISSING]),
    "odd line not UTF-8": (b"a,c\n\xff\xfe,x,y\n2,y\n\xff\n", [Y, MISSING, MISSING]),
    "odd line with NUL": (b"a,c\n1\x00\n2,y\n", [Y, MISSING]),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".TSV.GZ"])
def test_text_files(name: str, suffix: str, tmp_path: Path) -> None:
    content, expected = TEXTS[name]
    if "TSV" in suffix.upper():
        content = content.replace(b",", b"\t")
        expected = [tuple(cell and cell.replace(b",", b"\t") for cell in row) for row in expected]
    file = tmp_path / f"table{suffix}"
    file.write_bytes(gzip.compress(content) if suffix.upper().endswith("GZ") else content)
    assert read(file) == expected


def test_the_suffix_decides_the_delimiter(tmp_path: Path) -> None:
    (tmp_path / "from.tsv.csv").write_bytes(b"a,c\n1,x\n")
    assert read(tmp_path / "from.tsv.csv") == [X]


@pytest.mark.parametrize("block_bytes", [2**9, 2**12, 2**24])
def test_odd_lines_are_counted_across_blocks(block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CSV_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(tables, "BATCH_ROWS", 1000)
    chance = random.Random(11)
    good, odd = ["1,x", "2,zé", '3,"y\ny"'], ["1", "1,x,y", "ÿ,,,", " "]
    lines = [chance.choice(good if chance.random() < 0.7 else odd) for _ in range(20_000)]
    (tmp_path / "t.csv").write_text("a,c\n" + "\n".join(lines), encoding="utf-8")
    rows = read(tmp_path / "t.csv")
    assert len(rows) == 20_000
    assert rows.count(MISSING) == sum(line in odd for line in lines)
    assert all(batch.num_rows <= 1000 for batch in open_table(tmp_path / "t.csv", COLUMNS).batches())


def test_bytes_that_are_not_utf8_far_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place of a broken character relative to the borders of blocks."""
    monkeypatch.setattr(files, "_CSV_BLOCK_BYTES", 64)
    for padding in range(70):
        body = (
            b"1," + b"q" * padding + b"\xe6\x97\n" + "2,zé\n3,日\xff\n".encode("latin-1", "replace") + "4,zé\n".encode()
        )
        (tmp_path / "t.csv").write_bytes(b"a,c\n" + body)
        rows = read(tmp_path / "t.csv")
        assert [cell for cell, _ in rows] == [b"1", b"2", b"3", b"4"]
        assert rows[-1][1] == "zé".encode()
        assert b"\xff" not in b"".join(text for _, text in rows)


@pytest.mark.parametrize("size", [4, 5, 7, 64, -1])
def test_bytes_become_utf8_of_the_same_length_in_reads_that_are_never_too_long(size: int) -> None:
    """pyarrow copies what a read returns into a buffer of the size it asked for."""
    chance = random.Random(16)
    pieces = [
        b"a",
        b"\n",
        "é".encode(),
        "日".encode(),
        "𝄞".encode(),
        b"\xff",
        b"\xe6\x97",
        b"\xf0\x9d",
        b"\xed\xa0\x80",
    ]
    content = b"".join(chance.choice(pieces) for _ in range(2000))
    stream, parts = files._Utf8(io.BytesIO(content)), []
    while part := stream.read(size):
        assert size < 0 or len(part) <= size
        parts.append(part)
    result = b"".join(parts)
    assert len(result) == len(content)
    assert result.decode().replace("\x1a", "") == content.decode(errors="ignore")


def test_rows_that_become_missing_are_filled_not_dropped(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_bytes(b"a,c\n1,x\n2\n3,y,7\n\xff,\xfe,\n" + "4,zé\n".encode())
    (tmp_path / "filled.csv").write_bytes(b"a,c\n1,x\n5,x\n5,x\n5,x\n" + "4,zé\n".encode())
    assert integers(tmp_path / "odd.csv", 5) == integers(tmp_path / "filled.csv", 5)


def test_a_level_without_rows_and_a_table_of_fills_have_the_same_shape() -> None:
    full, empty = (
        integers(pa.table({"a": [1, 2], "c": ["y", "zé"]}), 2),
        integers(pa.table({"a": [None] * 2, "c": [None] * 2}), 2),
    )
    assert [len(block) for block in full] == [len(block) for block in empty]
    assert full != empty


# Headers


HEADERS = {
    "pandas": lambda: pd.DataFrame({"a": [1]}),
    "polars": lambda: pl.DataFrame({"a": [1]}),
    "duckdb": lambda: duckdb.connect().sql("select 1 as a"),
    "arrow table": lambda: pa.table({"a": [1]}),
    "arrow dataset": lambda: pads.dataset(pa.table({"a": [1]})),
    "arrow reader": lambda: pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), []),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_missing_column_is_said(kind: str) -> None:
    with pytest.raises(InputError, match=r"column = c: is not in the table"):
        open_table(HEADERS[kind](), COLUMNS)


def test_a_column_that_appears_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,c,a\n1,x,2\n")
    twice = pa.table([pa.array([1]), pa.array(["x"]), pa.array([2])], names=["a", "c", "a"])
    pq.write_table(twice, tmp_path / "t.parquet")
    for table in (
        tmp_path / "t.csv",
        tmp_path / "t.parquet",
        twice,
        pd.DataFrame([[1, "x", 2]], columns=["a", "c", "a"]),
    ):
        with pytest.raises(InputError, match="column = a: appears twice"):
            open_table(table, COLUMNS)


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("s"), pa.date32(), pa.list_(pa.int64()), pa.struct({"b": pa.int64()}), pa.duration("s"), pa.uuid()],
    ids=str,
)
def test_columns_of_every_type_are_taken(kind: pa.DataType, tmp_path: Path) -> None:
    """A frame's cells decide its types: a type that is refused would tell of a cell."""
    table = pa.table({"a": pa.array([None], kind), "c": ["x"]})
    frame = pd.DataFrame({"a": pd.Series(table["a"].to_pylist(), dtype=object), "c": ["x"]})
    for name, source in {"arrow": table, "parquet": tmp_path / "t.parquet", "pandas": frame}.items():
        if name == "parquet" and not pa.types.is_duration(kind):
            pq.write_table(table, source)
        elif name == "parquet":
            continue
        assert integers(source, 1) == integers(pa.table({"a": [5], "c": ["x"]}), 1)


def test_columns_that_are_not_needed_may_be_anything() -> None:
    assert read(pa.table({"q": [[1]], "c": ["x"], "t": pa.array([0], pa.timestamp("s")), "a": [1]})) == [(1, "x")]
    assert read(pd.DataFrame({"q": [object()], "c": ["x"], "a": [1], 7: [1]})) == [(1, "x")]


def test_checking_a_header_reads_no_row() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        raise AssertionError("read")
        yield

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64(), "c": pa.string()}), batches())
    source = open_table(reader, COLUMNS)
    with pytest.raises(FileError):
        list(source.batches())


def test_number_of_rows_where_a_header_states_it(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "c": ["x", "y"]})
    pq.write_table(table, tmp_path / "1.parquet")
    pq.write_table(table.slice(0, 1), tmp_path / "2.pq")
    assert open_table(tmp_path, COLUMNS).num_rows == 3
    assert open_table(table.to_pandas(), COLUMNS).num_rows == 2
    pacsv.write_csv(table, tmp_path / "3.csv")
    assert open_table(tmp_path, COLUMNS).num_rows is None
    assert len(read(tmp_path)) == 5


@pytest.mark.parametrize(
    "table",
    [None, 5, [1, 2], {"a": [1], "c": ["x"]}, np.ones((2, 2))],
    ids=lambda t: type(t).__name__,
)
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(
        InputError, match="must be a path, a pandas or Spark DataFrame or something that exports an Arrow stream"
    ):
        open_table(table, COLUMNS)


def test_a_lazy_frame_is_collected_once_and_only_what_is_needed() -> None:
    def counted(frame: pl.DataFrame) -> pl.DataFrame:
        passes.append(frame.columns)
        return frame

    passes: list[list[str]] = []
    table = pl.DataFrame({"q": [[1], [2]], "a": [1, None], "c": ["x", "y"], "^a.*$": [7, 8]})
    lazy = table.lazy().map_batches(counted, schema=table.schema)
    source = open_table(lazy, COLUMNS)
    assert (source.num_rows, passes) == (None, [])  # a header reads no row
    again = source.repeatable()
    rows = [[tuple(row.values()) for batch in again.batches() for row in batch.to_pylist()] for _ in range(2)]
    assert rows == [[(1, "x"), (None, "y")]] * 2
    assert len(passes) == 1
    assert read(table.lazy()) == read(table)
    with pytest.raises(InputError, match="is not in the table"):
        open_table(table.lazy().select("a"), COLUMNS)


def test_an_error_of_a_query_quotes_no_cell() -> None:
    lazy = pl.LazyFrame({"a": ["1", "a secret"], "c": ["x", "y"]}).with_columns(pl.col("a").cast(pl.Int64))
    with pytest.raises(FileError) as caught:
        read(lazy)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
    with pytest.raises(InputError, match="without a schema"):
        open_table(lazy.select(pl.col("nothing such")), COLUMNS)


# pandas in particular


def test_pandas_labels_may_be_numbers() -> None:
    columns = Schema.from_dict(
        {"dataset": {"name": "t", "rows": 1}, "columns": {"0": {"type": "numeric", "lower": 0, "upper": 1}}}
    ).columns
    (batch,) = open_table(pd.DataFrame({1: ["q"], 0: [0.5]}), tuple(columns.values())).batches()
    assert batch.to_pydict() == {"0": [0.5]}


def test_pandas_columns_of_several_chunks_and_repeated_index() -> None:
    part = pd.DataFrame({"a": [1, 2], "c": ["x", None]})
    assert read(pd.concat([part, part])) == [(1, "x"), (2, None)] * 2
    arrow = part.astype({"a": "int64[pyarrow]"})
    assert read(pd.concat([arrow, arrow])) == [(1, "x"), (2, None)] * 2


def test_pandas_subclasses_and_mixed_objects() -> None:
    class Frame(pd.DataFrame):
        pass

    mixed = {
        "a": pd.Series([1, "2", 3.5, None], dtype=object),
        "c": pd.Series(["x", b"y", 3, float("nan")], dtype=object),
    }
    assert read(Frame(mixed)) == [(b"1", b"x"), (b"2", b"y"), (b"3.5", b"3"), (None, None)]
    assert read(pd.DataFrame({"a": [1, 2], "c": pd.Categorical(["x", 3])})) == [(1, b"x"), (2, b"3")]
    odd = pd.Series(["x", "\ud800"], dtype=pd.StringDtype("python"))
    assert read(pd.DataFrame({"a": [1, 2], "c": odd})) == [(1, b"x"), (2, b"\xed\xa0\x80")]


# Folders


def test_folders_are_read_whole_and_in_name_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.csv").write_bytes(b"a,c\n2,y\n")
    (tmp_path / "a.tsv").write_bytes(b"c\ta\nx\t1\n")
    (tmp_path / "sub" / "c.csv.gz").write_bytes(gzip.compress(b"q,a,c\n0,3,x\n"))
    (tmp_path / "empty.csv").write_bytes(b"a,c\n")
    (tmp_path / "notes.txt").write_bytes(b"not a table")
    assert read(tmp_path) == [X, Y, (b"3", b"x")]


def test_hidden_and_temporary_files_of_a_folder_are_not_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,c\n1,x\n")
    for name in (".a.csv", "_a.csv", ".ipynb_checkpoints/a-checkpoint.csv", "_temporary/0/a.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"a,c\n1,x\n")
    assert read(tmp_path) == [X]
    assert read(tmp_path / "_a.csv") == [X]  # asked for by name


def test_every_file_of_a_folder_must_have_the_columns(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes(b"a,c\n1,x\n")
    (tmp_path / "2.csv").write_bytes(b"a,d\n1,x\n")
    with pytest.raises(InputError, match="column = c"):
        open_table(tmp_path, COLUMNS)


def test_paths_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        open_table(tmp_path / "none.csv", COLUMNS)
    with pytest.raises(FileError, match="holds no file"):
        open_table(tmp_path, COLUMNS)
    (tmp_path / "t.xlsx").write_bytes(b"")
    with pytest.raises(FileError, match="must end in one of"):
        open_table(str(tmp_path / "t.xlsx"), COLUMNS)


# What is broken gives one fixed message


def broken_files(folder: Path) -> dict[str, Path]:
    lines = "".join(f"{n},{SECRET}{n * n % 977}\n" for n in range(3000)).encode()
    packed = gzip.compress(b"a,c\n" + lines)
    table = pa.table({"a": np.arange(3000), "c": [f"{SECRET}{n * n % 977}" for n in range(3000)]})
    pq.write_table(table, folder / "good.parquet", compression="gzip", use_dictionary=False)
    good = (folder / "good.parquet").read_bytes()
    contents = {
        "torn.csv.gz": packed[:-100],
        "no-trailer.csv.gz": packed[:-4],
        "flipped.csv.gz": packed[:-300] + bytes(byte ^ 0xFF for byte in packed[-300:-200]) + packed[-200:],
        "head.csv.gz": packed[:15],
        "flipped-head.csv.gz": packed[:11] + bytes(byte ^ 0xFF for byte in packed[11:40]) + packed[40:],
        "plain.csv.gz": b"a,c\n" + lines,
        "empty.csv": b"",
        "empty.csv.gz": b"",
        "text.parquet": lines,
        "torn.parquet": good[:-10],
        "flipped.parquet": good[:200] + bytes(byte ^ 0xFF for byte in good[200:1200]) + good[1200:],
        "empty.parquet": b"",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


BROKEN_AFTER_THE_HEADER = ("torn.csv.gz", "no-trailer.csv.gz", "flipped.csv.gz", "flipped.parquet")


def test_broken_files_give_one_fixed_message(tmp_path: Path) -> None:
    for name, file in broken_files(tmp_path).items():
        with pytest.raises(FileError) as caught:
            integers(file, 3000)
        message = str(caught.value)
        assert SECRET not in message
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
        if name in BROKEN_AFTER_THE_HEADER:
            assert message == f"table = {file}: could not be read to its end; check that it is intact"


def streams(folder: Path) -> dict[str, Any]:
    """Tables whose reader fails after some rows, in words that quote a cell."""
    folder.mkdir()
    (folder / "1.csv").write_text("a,c\n1,x\n")
    (folder / "2.csv").write_text(f"a,c\n1,x\n{SECRET},x\n")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1], "c": ["x"]})
        raise ValueError(SECRET)

    query = f"select case when i < 100000 then i else ('{SECRET}' || i)::int end as a, 'x' as c from range(200000) r(i)"
    return {
        "reader": pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64(), "c": pa.string()}), batches()),
        "dataset": pads.dataset(str(folder), format="csv"),
        "query": duckdb.connect().sql(query),
    }


def test_streams_that_break_give_one_fixed_message(tmp_path: Path) -> None:
    for name, table in streams(tmp_path / "folder").items():
        with pytest.raises(DpglmError, match=r"could not be read to its end; check that it is intact$") as caught:
            integers(table, 2)
        assert SECRET not in str(caught.value), name


def test_another_number_of_rows_is_refused_without_content(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"a,c\n1,{SECRET}\n2,x\n")
    with pytest.raises(InputError, match=r"dataset.rows = 3: the table has 2 rows") as caught:
        integers(tmp_path / "t.csv", 3)
    assert SECRET not in str(caught.value)


# Names


@pytest.mark.parametrize(
    "line",
    [
        f"{SECRET};34;1980-02-03",
        f"{SECRET}|1|b",
        f"{SECRET}:34:yes",
        f"{SECRET} 34 yes",
        f"{SECRET},3/4",
        f'"{SECRET}',
        f'a,"{SECRET}',
    ],
)
def test_a_first_line_that_is_a_row_is_not_quoted_whatever_its_delimiter(line: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{line}\n")
    with pytest.raises(FileError, match=r"the names of the columns|columns' names") as caught:
        files.column_names(tmp_path / "t.csv")
    assert SECRET not in str(caught.value)
    (tmp_path / "t.csv").write_text("age;sick of it|b\n1;2\n")
    assert files.column_names(tmp_path / "t.csv") == ["age;sick of it|b"]
    (tmp_path / "t.csv").write_text("visit 1,2nd visit, age:\n1,2,3\n")
    assert files.column_names(tmp_path / "t.csv") == ["visit 1", "2nd visit", " age:"]


@pytest.mark.parametrize("names", [[SECRET, "1957-03-02"], [SECRET, "34"], [f"{SECRET}\n", "b"]])
def test_the_header_of_a_parquet_file_may_be_a_row_too(names: list[str], tmp_path: Path) -> None:
    """A frame that was read from a file without a header, and saved."""
    pq.write_table(pa.table({name: [1] for name in names}), tmp_path / "t.parquet")
    with pytest.raises(FileError) as caught:
        files.column_names(tmp_path / "t.parquet")
    assert SECRET not in str(caught.value)
