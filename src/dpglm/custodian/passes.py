"""One pass over a table: the exact sums of all its rows, by the threads of this machine or by Spark.

Guarantee: every row is counted once, and the sums are the same integers whoever adds them up. Nothing but the number
of rows, where that is public, can be told from an error, or from what ``Counter`` shows while the pass runs. Where it
is private a table without rows is a table like any other, and only the ends of passes are shown.

A table is never held: a few batches are in memory at a time, whatever its size. Threads, not processes, which would
have to be sent the rows: NumPy and Arrow let go of Python's lock while they work.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dpglm.custodian.mechanism import Mechanism
from dpglm.custodian.rows import fixed_point_rows
from dpglm.custodian.spark import SparkSource
from dpglm.custodian.sums import BlockSums, Sums, block_sums
from dpglm.custodian.tables import BATCH_ROWS, Source
from dpglm.errors import DpglmError, FileError, InputError
from dpglm.formula import Design

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int, int], None]  # rows that are done, of all rows of all stages; or passes

S = TypeVar("S", bound=Sums)

_WORKERS = min(4, os.cpu_count() or 1)


@dataclass
class Counter:
    """Rows done, over all passes, told to ``progress`` at every ``BATCH_ROWS``-th row and at the last.

    The calls depend on the number of rows alone: batches of a CSV file, whose sizes depend on the length of its lines,
    cannot be told from them. Rows beyond the declared ones, which lead to an error, are not told. Where the number of
    rows is private (None), passes are told in their place.
    """

    progress: Progress | None
    rows: int | None
    passes: int = 1
    done: int = 0
    shown: int = 0

    @property
    def total(self) -> int:
        return self.passes if self.rows is None else self.rows * self.passes

    def end_of_pass(self) -> None:
        """One more pass is done."""
        if self.rows is None:
            self.shown += 1
            if self.progress is not None:
                self.progress(self.shown, self.total)

    def add(self, rows: int) -> None:
        """So many more rows are done."""
        if self.rows is None:
            return
        self.done = min(self.done + rows, self.total)
        while self.progress is not None and self.shown < self.total:
            following = min(self.shown + BATCH_ROWS, self.total)
            if following > self.done:
                return
            self.shown = following
            self.progress(self.shown, self.total)


def exact_sums(
    source: Source, design: Design, of_batch: Callable[[pa.RecordBatch], S], counter: Counter | None = None
) -> S:
    """The exact integers of all rows: one pass. Another number of rows than the public one is an error.

    Every part of ``of_batch`` can be pickled, so that it can travel to where the rows are.
    """
    total: S | None = None
    for part in _without_content(source, of_batch):
        total = part if total is None else total + part
        if counter is not None:
            counter.add(part.num_rows)
    assert total is not None  # the first part is that of no rows
    check_rows(total.num_rows, design)
    if counter is not None:
        counter.end_of_pass()
    return total


def _of_no_rows(source: Source, of_batch: Callable[[pa.RecordBatch], S]) -> S:
    """The sums that a table without rows has."""
    import pyarrow as pa

    names = [column.name for column in source.columns]
    return of_batch(pa.RecordBatch.from_arrays([pa.nulls(0) for _ in names], names=names))


def moment_sums(batch: pa.RecordBatch, design: Design, mechanism: Mechanism) -> BlockSums:
    """The moments of one batch: the only way, on every engine, from cells to their integers."""
    return block_sums(fixed_point_rows(batch, design, mechanism.grid, mechanism.radius), mechanism.blocks)


def check_rows(found: int | None, design: Design) -> None:
    """Refuse a table with another number of rows than the public one; None is not known yet."""
    declared = design.schema.dataset.number
    if found is not None and declared is not None and found != declared:
        counted = design.schema.dataset.counted
        rule, remedy = f"the table has {found} {counted}", f"declare the table's number of {counted}"
        raise InputError(f"dataset.{counted}", declared, rule, remedy)


def _without_content(source: Source, of_batch: Callable[[Any], S]) -> Iterator[S]:
    """No row can lead to an error here by design; if one ever does, its content must not be in the message."""
    try:
        yield _of_no_rows(source, of_batch)
        yield from source.sums(of_batch) if isinstance(source, SparkSource) else _by_threads(of_batch, source.batches())
    except DpglmError:
        raise
    except Exception:
        raise FileError("table", "(its rows)", "could not be processed", "report this: it is a bug of dpglm") from None


def _by_threads(function: Callable[[Any], S], batches: Iterable[Any]) -> Iterator[S]:
    """A function of every batch, in a few threads, with a bounded number of batches in memory."""
    waiting: deque[Future[S]] = deque()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for batch in batches:
            waiting.append(pool.submit(function, batch))
            if len(waiting) > 2 * _WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
