"""One table, one set of integers: whatever holds it, however it is split, in whatever order its rows come."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from dpglm.custodian import bounded_rows, files, passes, tables
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.custodian.rows import clean_rows
from dpglm.custodian.sums import BlockSums
from dpglm.custodian.tables import open_table
from dpglm.formula import build_design
from dpglm.schema import Schema

ROWS = 700
Integers = tuple[tuple[int, ...], ...]


@lru_cache
def schema(rows: int = ROWS) -> Schema:
    return Schema.from_dict(
        {
            "dataset": {"name": "patients", "rows": rows, "unit": "one patient"},
            "columns": {
                "age": {"type": "numeric", "lower": 20, "upper": 90, "fill": 41.5},
                "dose": {"type": "numeric", "lower": 0.5, "upper": 8},
                "site": {"type": "categorical", "levels": ["north", "süd", "east"], "fill": "süd"},
                "arm": {"type": "binary", "levels": [0, 1], "fill": 1},
                "grade": {"type": "categorical", "levels": [0.29, 1, 2.5], "fill": 1},
                "smoker": {"type": "binary", "levels": [False, True], "fill": False},
                "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
                "visits": {"type": "count", "upper": 12, "fill": 2},
                "score": {"type": "numeric", "lower": -5, "upper": 15},
                "hours": {"type": "numeric", "lower": 0, "upper": 4},
            },
        }
    )


@dataclass(frozen=True)
class Case:
    formula: str
    family: str
    method: str
    radius: float | None = None

    def __str__(self) -> str:
        return f"{self.family}-{self.method}" + ("" if self.radius is None else f"-{self.radius}")


FORMULAS = {
    "logistic": "sick ~ log(age) + site*arm + I(dose**2) + smoker",
    "poisson": "visits ~ exp(dose / 4) + site + sqrt(age):arm + grade + offset(hours)",
    "linear": "score ~ age + I((age - 50)**2 / dose) + site:dose + smoker - 1",
}
LOOKS = [Case(formula, family, "looks") for family, formula in FORMULAS.items()]
MOMENTS = [Case(formula, family, "moments", radius) for family, formula in FORMULAS.items() for radius in (None, 0.6)]
CASES = [*LOOKS, *MOMENTS]


@lru_cache
def patients(rows: int = ROWS, seed: int = 12) -> pa.Table:
    """Values inside and outside the bounds, unknown levels, and missing ones in every column."""
    rng = np.random.default_rng(seed)

    def column(values: Any, kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind, mask=rng.random(rows) < 0.04)

    return pa.table(
        {
            "age": column(rng.normal(50, 20, rows), pa.float64()),
            "dose": column(rng.integers(-50, 950, rows) / 100, pa.float64()),
            "site": column(rng.choice(["north", "süd", "east", "westen"], rows), pa.string()),
            "arm": column(rng.integers(0, 3, rows), pa.int64()),
            "grade": column(rng.choice([0.29, 1, 2.5, 7], rows), pa.float64()),
            "smoker": column(rng.random(rows) < 0.3, pa.bool_()),
            "sick": column(rng.choice(["no", "yes", "Yes"], rows), pa.string()),
            "visits": column(rng.poisson(4, rows) - 1, pa.int64()),
            "score": column(rng.normal(4, 6, rows), pa.float64()),
            "hours": column(rng.uniform(-1, 5, rows), pa.float64()),
        }
    )


def integers(table: Any, case: Case, rows: int = ROWS) -> Integers:
    options = {} if case.method == "looks" else {"radius": case.radius, "allocation": "equal"}
    request = Request(case.formula, schema(rows), case.family, 1.0, 1e-6, method=case.method, **options)
    release = build_release(table, request, FixedNoise())
    record = release.survey_record
    survey = () if record is None else tuple(answers for _, answers in record.asked)
    profile = () if release.profile is None else release.profile.counts
    return survey + profile + tuple(block.integers for stage in release.stages for block in stage.blocks)


@lru_cache
def expected(case: Case) -> Integers:
    return integers(patients(), case)


def cast(table: pa.Table, **kinds: pa.DataType) -> pa.Table:
    for name, kind in kinds.items():
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind))
    return table


def text_columns(table: pa.Table, kind: pa.DataType) -> pa.Table:
    return cast(table, site=kind, sick=kind)


def all_text(table: pa.Table, kind: pa.DataType) -> pa.Table:
    columns = {
        name: pa.array([None if value is None else str(value) for value in table[name].to_pylist()]).cast(kind)
        for name in table.column_names
    }
    return pa.table(columns)


def decimals(table: pa.Table, kind: pa.DataType) -> pa.Table:
    for name in ("dose", "grade"):
        values = [None if value is None else Decimal(str(value)) for value in table[name].to_pylist()]
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values, kind))
    return table


def dictionaries(table: pa.Table) -> pa.Table:
    return pa.table({name: table[name].dictionary_encode() for name in table.column_names})


def view_dictionaries(table: pa.Table) -> pa.Table:
    """A dictionary of string views, the layout that newer exporters use for categories."""
    for name in ("site", "sick"):
        encoded = table[name].combine_chunks().dictionary_encode()
        array = pa.DictionaryArray.from_arrays(
            encoded.indices.cast("uint32"), encoded.dictionary.cast(pa.string_view())
        )
        table = table.set_column(table.schema.get_field_index(name), name, array)
    return table


def objects(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(table[name].to_pylist(), dtype=object) for name in table.column_names})


def mixed_objects(table: pa.Table) -> pd.DataFrame:
    """Every third cell as text, another as a NumPy or decimal number, missing cells of every kind."""
    missing = [None, float("nan"), pd.NA, np.nan, pd.NaT]

    def cell(position: int, value: Any) -> Any:
        if value is None:
            return missing[position % len(missing)]
        if position % 3 == 0:
            return str(value)
        if position % 3 == 1 and isinstance(value, float):
            return np.float64(value) if position % 2 else Decimal(repr(value))
        return value

    return objects(table).apply(lambda series: pd.Series([cell(n, v) for n, v in enumerate(series)], dtype=object))


def nullable(table: pa.Table) -> pd.DataFrame:
    kinds = {
        pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype(), pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype("python"),
    }  # fmt: skip
    return table.to_pandas(types_mapper=kinds.get)


def chunks(table: pa.Table, count: int = 3) -> pd.DataFrame:
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return pd.concat([frame.iloc[n::count] for n in range(count)])


def csv_file(
    table: pa.Table, folder: Path, name: str, write: Callable[[bytes], bytes] = lambda content: content
) -> Path:
    delimiter = "\t" if ".tsv" in name else ","
    sink = pa.BufferOutputStream()
    pacsv.write_csv(table, sink, pacsv.WriteOptions(delimiter=delimiter, quoting_style="needed"))
    content = write(sink.getvalue().to_pybytes())
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def pandas_csv(table: pa.Table, folder: Path) -> Path:
    objects(table).to_csv(folder / "pandas.csv", index=True, na_rep="NA", quoting=1)
    return folder / "pandas.csv"


def parquet(table: pa.Table, folder: Path, **options: Any) -> Path:
    pq.write_table(table, folder / "table.parquet", **options)
    return folder / "table.parquet"


def mixed_folder(table: pa.Table, folder: Path) -> Path:
    (folder / "site=1" / "year=2").mkdir(parents=True)
    csv_file(table.slice(0, 1), folder, "a.csv")
    csv_file(table.slice(1, 299), folder, "b.tsv.gz")
    csv_file(table.slice(300, 0), folder, "c.csv")
    pq.write_table(table.slice(300, 13), folder / "site=1" / "d.parquet")
    pq.write_table(decimals(table.slice(313, 300), pa.decimal128(20, 4)), folder / "site=1" / "year=2" / "e.pq")
    pacsv.write_csv(table.slice(613).select(table.column_names[::-1]), folder / "f.csv")
    return folder


def folder_of_parquet(table: pa.Table, folder: Path) -> Path:
    for number, start in enumerate(range(0, ROWS, 190)):
        pq.write_table(table.slice(start, 190), folder / f"part-{number}.parquet")
    return folder


def relation(table: pa.Table, columns: str = "*") -> Any:
    connection = duckdb.connect()
    connection.register("patients", table)
    return connection.sql(f"select {columns} from patients")


def polars(table: pa.Table, **kinds: Any) -> pl.DataFrame:
    return pl.from_arrow(table).with_columns(**{name: pl.col(name).cast(kind) for name, kind in kinds.items()})


SITES = pl.Enum(["east", "north", "süd", "westen"])

SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "csv": lambda table, folder: csv_file(table, folder, "t.csv"),
    "csv path as text": lambda table, folder: str(csv_file(table, folder, "t.csv")),
    "csv.gz": lambda table, folder: csv_file(table, folder, "t.csv.gz"),
    "tsv": lambda table, folder: csv_file(table, folder, "t.tsv"),
    "tsv.gz": lambda table, folder: csv_file(table, folder, "t.tsv.gz"),
    "csv, CRLF": lambda table, folder: csv_file(table, folder, "t.csv", lambda text: text.replace(b"\n", b"\r\n")),
    "csv, byte order mark": lambda table, folder: csv_file(table, folder, "t.csv", lambda text: b"\xef\xbb\xbf" + text),
    "csv of pandas": pandas_csv,
    "parquet": lambda table, folder: parquet(table, folder),
    "parquet, small row groups": lambda table, folder: parquet(table, folder, row_group_size=17),
    "parquet, dictionaries": lambda table, folder: parquet(dictionaries(table), folder, compression="zstd"),
    "folder of everything": mixed_folder,
    "folder of parquet": folder_of_parquet,
    "pandas": lambda table, folder: table.to_pandas(),
    "pandas objects": lambda table, folder: objects(table),
    "pandas mixed objects": lambda table, folder: mixed_objects(table),
    "pandas categories": lambda table, folder: objects(table).astype("category"),
    "pandas nullable": lambda table, folder: nullable(table),
    "pandas str": lambda table, folder: table.to_pandas().astype({"site": "str", "sick": "str"}),
    "pandas arrow": lambda table, folder: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas chunks, other order": lambda table, folder: chunks(table),
    "polars": lambda table, folder: polars(table),
    "polars categories": lambda table, folder: polars(table, site=pl.Categorical, sick=pl.Categorical),
    "polars lazily": lambda table, folder: polars(table).lazy(),
    "polars enum": lambda table, folder: polars(table, site=SITES, arm=pl.Int8),
    "polars chunks": lambda table, folder: pl.concat(
        [polars(table.slice(0, 9)), polars(table.slice(9))], rechunk=False
    ),
    "duckdb": lambda table, folder: relation(table),
    "duckdb types": lambda table, folder: relation(
        table,
        "* replace (arm::hugeint as arm, visits::tinyint as visits, dose::decimal(9, 2) as dose,"
        " sick::enum('no', 'yes', 'Yes') as sick)",
    ),
    "arrow batches": lambda table, folder: table.to_reader(max_chunksize=11),
    "arrow dataset": lambda table, folder: pads.dataset(table),
    "arrow dataset of files": lambda table, folder: pads.dataset(str(folder_of_parquet(table, folder))),
    "arrow dictionaries": lambda table, folder: dictionaries(table),
    "arrow dictionaries of views": lambda table, folder: view_dictionaries(table),
    "arrow large text": lambda table, folder: text_columns(table, pa.large_string()),
    "arrow text views": lambda table, folder: text_columns(table, pa.string_view()),
    "arrow bytes": lambda table, folder: text_columns(table, pa.binary()),
    "arrow all as text": lambda table, folder: all_text(table, pa.string()),
    "arrow all as byte views": lambda table, folder: all_text(table, pa.binary_view()),
    "arrow decimals": lambda table, folder: decimals(table, pa.decimal128(5, 2)),
    "arrow wide decimals": lambda table, folder: decimals(table, pa.decimal256(76, 40)),
    "arrow narrow integers": lambda table, folder: cast(table, arm=pa.int8(), visits=pa.int16()),
    "arrow floats for integers": lambda table, folder: cast(table, arm=pa.float64(), visits=pa.float32()),
}


SOME_SOURCES = [  # for what is the same code on every source
    "csv", "csv.gz", "parquet, small row groups", "folder of everything", "folder of parquet", "pandas",
    "pandas mixed objects", "pandas chunks, other order", "polars chunks", "duckdb", "arrow batches",
    "arrow dataset of files", "arrow all as byte views",
]  # fmt: skip


@pytest.mark.parametrize("case", MOMENTS[::2], ids=str)  # a smaller ball comes after the cells are read
@pytest.mark.parametrize("source", SOURCES)
def test_every_source(source: str, case: Case, tmp_path: Path) -> None:
    assert integers(SOURCES[source](patients(), tmp_path), case) == expected(case)


@pytest.mark.parametrize("case", LOOKS, ids=str)
@pytest.mark.parametrize("source", SOME_SOURCES)
def test_sources_by_looks(source: str, case: Case, tmp_path: Path) -> None:
    """Every answer of the survey, and every sum of five looks, of which each depends on all before it."""
    assert integers(SOURCES[source](patients(), tmp_path), case) == expected(case)


@pytest.mark.parametrize("case", MOMENTS, ids=str)
def test_missing_values_are_the_fill_values_in_every_source(case: Case) -> None:
    columns = {
        name: pc.fill_null(patients()[name], pa.scalar(schema().columns[name].fill, patients()[name].type))
        for name in patients().column_names
    }
    assert any(patients()[name].null_count for name in columns)
    assert integers(pa.table(columns), case) == expected(case)


@pytest.mark.parametrize("case", LOOKS, ids=str)
def test_looks_take_missing_values_as_the_fill_values_and_the_survey_counts_them(case: Case) -> None:
    columns = {
        name: pc.fill_null(patients()[name], pa.scalar(schema().columns[name].fill, patients()[name].type))
        for name in patients().column_names
    }
    (first, *rest), (expected_first, *expected_rest) = integers(pa.table(columns), case), expected(case)
    assert rest == expected_rest
    assert sum(first[:-1]) < sum(expected_first[:-1])


OTHER_CELLS = {  # a cell to look for, as a test of its value, and what becomes of it
    "age": (lambda age: 30 < age < 80, lambda age: age + 0.1),
    "site": (lambda site: site == "north", lambda site: None),
    "sick": (lambda sick: sick == "yes", lambda sick: "Yes"),
    "visits": (lambda visits: visits == 4, lambda visits: 5),
    "score": (lambda score: 0 < score < 10, lambda score: score - 1e-3),
}


def rows_that_count(case: Case) -> list[bool]:
    design = build_design(case.formula, schema(), case.family)
    (batch,) = open_table(patients(), design.table_columns).batches()
    return clean_rows(batch, design).counts.tolist()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_other_cell_is_seen(case: Case) -> None:
    """These comparisons can fail: a small change of one cell changes the integers."""
    for name in ("age", "site", case.formula.split(" ~ ")[0]):
        sought, other = OTHER_CELLS[name]
        values, counted = patients()[name].to_pylist(), rows_that_count(case)
        position = next(n for n, value in enumerate(values) if counted[n] and value is not None and sought(value))
        values[position] = other(values[position])
        changed = patients().set_column(patients().schema.get_field_index(name), name, pa.array(values))
        found, whole = integers(changed, case), expected(case)
        assert found != whole, name
        assert case.method == "moments" or found[-1] != whole[-1], name  # seen by the last look too


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("batch_rows", [7, 64, 699, 100_000])
def test_batch_sizes(batch_rows: int, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", batch_rows)
    assert integers(patients(), case) == expected(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_batches_of_one_row(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = integers(patients(120), case, 120)
    monkeypatch.setattr(tables, "BATCH_ROWS", 1)
    assert integers(patients(120), case, 120) == whole


@pytest.mark.parametrize("case", CASES, ids=str)
def test_uneven_batches_and_shuffled_rows(case: Case) -> None:
    rng = np.random.default_rng(13)
    shuffled = patients().take(rng.permutation(ROWS))
    borders = [0, *np.sort(rng.integers(0, ROWS, 40)).tolist(), ROWS]
    batches = [
        batch
        for start, stop in pairwise(borders)
        for batch in shuffled.slice(start, stop - start).combine_chunks().to_batches()
    ]
    assert integers(pa.RecordBatchReader.from_batches(shuffled.schema, batches), case) == expected(case)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("workers", [1, 3, 16])
def test_thread_counts(workers: int, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_WORKERS", workers)
    monkeypatch.setattr(tables, "BATCH_ROWS", 14)  # 50 batches
    assert integers(patients(), case) == expected(case)


@pytest.mark.parametrize("case", [*LOOKS, *MOMENTS[::2]], ids=str)
def test_many_rows(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More rows than one exact product, one batch and one block of a CSV file hold."""
    rows = 20_000  # an exact product holds 2^13 at most
    table = patients(rows, seed=14)
    whole = integers(table, case, rows)
    csv_file(table, tmp_path, "t.csv")
    monkeypatch.setattr(tables, "BATCH_ROWS", 100_000)
    assert integers(table.combine_chunks(), case, rows) == whole
    monkeypatch.setattr(tables, "BATCH_ROWS", 3001)
    monkeypatch.setattr(files, "_CSV_BLOCK_BYTES", 2**17)
    assert integers(tmp_path / "t.csv", case, rows) == whole
    assert integers(table.take(np.random.default_rng(15).permutation(rows)), case, rows) == whole


def float_sums(rows: Any, blocks: Any) -> BlockSums:
    """Sums in floating point, rounded at the end of each batch."""
    sums = SUMS(rows, blocks)
    return BlockSums(
        sums.blocks, tuple(tuple(int(np.float32(n)) for n in block) for block in sums.values), sums.num_rows
    )


SUMS = bounded_rows.block_sums


def test_float_sums_depend_on_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """These comparisons can fail: without exact sums, batches of another size give other numbers."""
    monkeypatch.setattr(bounded_rows, "block_sums", float_sums)
    seen = set()
    for batch_rows in (7, 64, 100_000):
        monkeypatch.setattr(tables, "BATCH_ROWS", batch_rows)
        seen.add(integers(patients(), LOOKS[1]))
    assert len(seen) > 1
