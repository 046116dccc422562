"""Passes over a table: read again for every look, told by its number of rows alone, exact beyond 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from dpglm.blocks import BlockShape
from dpglm.custodian import files, passes, tables
from dpglm.custodian.build import METHODS, Request, build_release
from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.noise import FixedNoise
from dpglm.custodian.passes import Counter, exact_sums, moment_sums
from dpglm.custodian.sums import BlockSums
from dpglm.errors import FileError, InputError
from dpglm.formula import build_design
from dpglm.schema import Schema

ARROW = pa.schema({"a": pa.float64(), "y": pa.int64()})


def schema(rows: int) -> Schema:
    columns = {
        "a": {"type": "numeric", "lower": -1, "upper": 1},
        "y": {"type": "binary", "levels": [0, 1], "fill": 0},
    }
    return Schema.from_dict({"dataset": {"name": "t", "rows": rows}, "columns": columns})


def batch(rows: int, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    return pa.record_batch([pa.array(rng.uniform(-1, 1, rows)), pa.array(rng.integers(0, 2, rows))], schema=ARROW)


def generated(batches: int, rows: int) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(ARROW, (batch(rows, seed) for seed in range(batches)))


def made(
    table: Any, rows: int, method: str = "moments", progress: Callable[[int, int], None] | None = None
) -> list[tuple[int, ...]]:
    request = Request("y ~ a", schema(rows), "logistic", 1.0, 1e-6, method=method)
    release = build_release(table, request, FixedNoise(), progress)
    return [block.integers for stage in release.stages for block in stage.blocks]


def sums_of_passes(table: Any, rows: int, number: int = 2) -> list[BlockSums]:
    """The same sums, in several passes, as the looks of a release make them."""
    design = build_design("y ~ a", schema(rows), "logistic")
    mechanism = calibrate(design, 1.0, 1e-6, None, "equal", "full")
    source = tables.open_table(table, design.table_columns).repeatable()
    of_batch = partial(moment_sums, design=design, mechanism=mechanism)
    return [exact_sums(source, design, of_batch) for _ in range(number)]


# Streams that can be opened again


def test_a_function_that_returns_a_stream_is_called_for_every_pass() -> None:
    calls = []

    def stream() -> pa.RecordBatchReader:
        calls.append(1)
        return generated(3, 100)

    first, second = sums_of_passes(stream, 300)
    assert first == second
    assert [first] == sums_of_passes(generated(3, 100).read_all(), 300, 1)
    assert len(calls) >= 2


def test_a_release_by_looks_reads_its_table_seven_times() -> None:
    """A survey, a profile and five looks; a release of moments reads it once."""
    for method, passes_of in (("looks", 7), ("moments", 1)):
        read = []

        def stream(read: list[int] = read) -> pa.RecordBatchReader:
            batches = (read.append(1) or batch(100, seed) for seed in range(2))
            return pa.RecordBatchReader.from_batches(ARROW, batches)

        assert made(stream, 200, method) == made(generated(2, 100).read_all(), 200, method)
        assert len(read) == 2 * passes_of


def test_a_table_that_changes_between_looks_is_refused() -> None:
    """By its number of rows, which is public."""
    sizes = iter([100, 100, 100, 90, 90, 90, 90, 90])

    def stream() -> pa.RecordBatchReader:
        return generated(1, next(sizes))

    with pytest.raises(InputError, match="the table has 90 rows"):
        made(stream, 100, "looks")


def test_generated_batches_are_not_kept() -> None:
    """At no time are more than a few batches alive, in any of three passes; a stream by itself is kept."""
    before = pa.total_allocated_bytes()
    peaks: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for seed in range(60):
            peaks.append(pa.total_allocated_bytes() - before)
            copied = pa.concat_batches([batch(10_000, seed), batch(10_000, seed + 1)])  # in Arrow's own memory
            yield copied

    def stream() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(ARROW, batches())

    size = 20_000 * 16
    assert len(set(sums_of_passes(stream, 60 * 20_000, 3))) == 1
    assert max(peaks) < 30 * size
    peaks.clear()
    sums_of_passes(stream(), 60 * 20_000, 1)
    assert max(peaks) > 50 * size


def test_a_function_that_returns_one_stream_is_refused_before_anything_is_spent() -> None:
    reader = generated(1, 10)
    with pytest.raises(InputError, match="returns the same stream at every call"):
        tables.open_table(lambda: reader, tuple(schema(10).columns.values())).repeatable()


@pytest.mark.parametrize(
    "table",
    [lambda: None, lambda: [1], lambda: 1 / 0, lambda x: x],
    ids=["nothing", "a list", "an error", "an argument"],
)
def test_a_function_that_returns_no_stream_is_refused(table: Any) -> None:
    with pytest.raises(InputError, match="gives no Arrow stream"):
        tables.open_table(table, tuple(schema(10).columns.values()))


def test_a_dataset_of_files_is_scanned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        pq.write_table(pa.table(batch(100, number)), tmp_path / f"{number}.parquet")

    def keep(*_: Any, **__: Any) -> None:
        raise AssertionError("kept")

    monkeypatch.setattr(tables, "_HeldSource", keep)
    assert len(set(sums_of_passes(pads.dataset(str(tmp_path)), 300))) == 1
    with pytest.raises(AssertionError, match="kept"):
        sums_of_passes(pads.dataset(pa.table(batch(100))), 100)  # in memory already


# Progress


def shown(table: Any, rows: int, method: str = "moments") -> list[tuple[int, int]]:
    calls: list[tuple[int, int]] = []
    made(table, rows, method, lambda done, total: calls.append((done, total)))
    return calls


def test_progress_ends_with_all_rows() -> None:
    rows = 2 * passes.BATCH_ROWS + 5
    assert shown(batch_table(rows), rows) == [(passes.BATCH_ROWS, rows), (2 * passes.BATCH_ROWS, rows), (rows, rows)]
    assert shown(batch_table(7), 7) == [(7, 7)]


def test_progress_of_looks_counts_all_passes() -> None:
    assert shown(batch_table(7), 7, "looks") == [(49, 49)]
    rows = 20_000
    assert shown(batch_table(rows), rows, "looks") == [
        (passes.BATCH_ROWS, 7 * rows),
        (2 * passes.BATCH_ROWS, 7 * rows),
        (7 * rows, 7 * rows),
    ]


def batch_table(rows: int) -> pa.Table:
    return pa.table(batch(rows))


@pytest.mark.parametrize("method", METHODS)
def test_progress_depends_on_the_number_of_rows_alone(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of a CSV file hold as many lines as fit: with long cells, fewer. That must not be seen."""
    monkeypatch.setattr(files, "_CSV_BLOCK_BYTES", 2**16)
    rows = 70_000
    (tmp_path / "short.csv").write_text("a,y\n" + "1,1\n-1,0\n" * (rows // 2))
    (tmp_path / "long.csv").write_text("a,y\n" + "0.33333333333333333333333,1\n-0.3,0\n" * (rows // 2))
    columns = tuple(schema(rows).columns.values())
    sizes = [
        [batch.num_rows for batch in tables.open_table(tmp_path / name, columns).batches()]
        for name in ("short.csv", "long.csv")
    ]
    assert sizes[0] != sizes[1]
    total = rows * (7 if method == "looks" else 1)
    expected = [(done, total) for done in (*range(2**16, total, 2**16), total)]
    assert shown(tmp_path / "short.csv", rows, method) == shown(tmp_path / "long.csv", rows, method) == expected


def test_progress_counts_all_passes() -> None:
    calls: list[tuple[int, int]] = []
    counter = Counter(lambda done, total: calls.append((done, total)), 50_000, passes=3)
    for _ in range(3):
        counter.add(20_000)
        counter.add(30_000)
    assert calls == [(2**16, 150_000), (2**17, 150_000), (150_000, 150_000)]
    counter.add(1)
    assert len(calls) == 3


def test_too_many_rows_are_not_told() -> None:
    calls: list[int] = []
    with pytest.raises(InputError, match="the table has 300 rows"):
        made(batch_table(300).to_reader(), 200, progress=lambda done, total: calls.append(done))
    assert calls == [200]


def test_an_error_of_the_callback_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        made(batch_table(10), 10, progress=lambda done, total: done // 0)


@pytest.mark.parametrize(
    ("method", "place"),
    [
        ("moments", "dpglm.custodian.passes.block_sums"),
        ("looks", "dpglm.custodian.bounded_rows.bounded_vectors"),
        ("looks", "dpglm.custodian.survey_counts.TableCounts"),
    ],
)
def test_an_error_of_a_batch_says_nothing_about_rows(method: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*rows: Any, **_: Any) -> BlockSums:
        raise ValueError(f"a cell: {rows}")

    monkeypatch.setattr(place, broken)
    with pytest.raises(FileError, match="could not be processed") as caught:
        made(batch_table(10), 10, method)
    assert "a cell" not in str(caught.value)
    assert caught.value.__suppress_context__


# Large totals


def test_totals_beyond_64_bits_are_exact() -> None:
    """Rows at the bound of their column: every sum is known as a Python integer."""
    rows_at_once = 2**16
    ends = pa.record_batch([pa.array(np.ones(rows_at_once)), pa.array(np.ones(rows_at_once, np.int64))], schema=ARROW)
    number = 300
    rows = number * rows_at_once
    reader = pa.RecordBatchReader.from_batches(ARROW, (ends for _ in range(number)))
    design = build_design("y ~ a", schema(rows), "logistic")
    mechanism = calibrate(design, 1.0, 1e-6, None, "equal", "full")
    source = tables.open_table(reader, design.table_columns)
    sums = exact_sums(source, design, partial(moment_sums, design=design, mechanism=mechanism))
    expected = {block: (rows * 2 ** (mechanism.grid.exponent * block.order),) for block in mechanism.blocks}
    assert dict(zip(sums.blocks, sums.values, strict=True)) == expected
    square = expected[BlockShape(0, 2)][0]
    assert square > 2**64
    # In 64 bits, or in floating point, these numbers would be others.
    assert int(np.array(square % 2**64, dtype=np.uint64)) != square
    assert int(float(square + 1)) != square + 1
