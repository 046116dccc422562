"""Record batches -> exact counts of rows by cell: everything that a survey may ask of a table, in one pass.

Guarantee: one row adds one to one cell of every subject, and at most one to each count of missing cells; so replacing a
row changes a count over any range of cells by at most one, and the counts of several levels by at most one each in two
places. Counts are exact integers, the same for every batch, order and engine.

Edge cases: cells that hold no value count as missing, and then as the fill that a look takes them for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.custodian.cells import read_codes, read_numbers
from dpglm.custodian.rows import cleaned_columns
from dpglm.formula import Design
from dpglm.looks.survey import Question, subjects

if TYPE_CHECKING:
    import pyarrow as pa

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TableCounts:
    """Rows by cell of each subject; missing cells by table column, and last the rows without any."""

    cells: tuple[Counts, ...]
    missing: Counts
    num_rows: int

    def __add__(self, other: TableCounts) -> TableCounts:
        cells = tuple(mine + theirs for mine, theirs in zip(self.cells, other.cells, strict=True))
        return TableCounts(cells, self.missing + other.missing, self.num_rows + other.num_rows)

    def to_json(self) -> dict[str, Any]:
        """Plain data: of each subject the cells that hold rows, with their counts."""
        held = [np.flatnonzero(counts) for counts in self.cells]
        pairs = [[place.tolist(), counts[place].tolist()] for place, counts in zip(held, self.cells, strict=True)]
        sizes = [len(counts) for counts in self.cells]
        return {"sizes": sizes, "cells": pairs, "missing": self.missing.tolist(), "rows": self.num_rows}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableCounts:
        """The inverse of ``to_json``."""
        cells = []
        for size, (places, held) in zip(data["sizes"], data["cells"], strict=True):
            counts = np.zeros(size, dtype=np.int64)
            counts[places] = held
            cells.append(counts)
        return cls(tuple(cells), np.array(data["missing"], dtype=np.int64), data["rows"])

    def answers(self, question: Question) -> tuple[int, ...]:
        """The exact counts that a question asks for."""
        counts = self.missing if question.subject is None else self.cells[question.subject]
        return tuple(int(counts[first : last + 1].sum()) for first, last in question.ranges)


def table_counts(batch: pa.RecordBatch, design: Design) -> TableCounts:
    """The counts of one batch; ``design`` is the declared one, not yet in standard units."""
    cleaned = cleaned_columns(batch, design)
    found = []
    for subject in subjects(design):
        if subject.is_numeric:
            values = subject.source.evaluate(cleaned)  # type: ignore[union-attr]
            cells = np.searchsorted(subject.thresholds, values, side="left")
        else:
            cells = cleaned[subject.name].astype(np.int64)
        found.append(np.bincount(cells, minlength=subject.cells).astype(np.int64))
    holds = np.stack([_has_value(batch, position, design) for position in range(len(design.table_columns))])
    missing = np.append((~holds).sum(axis=1), holds.all(axis=0).sum()).astype(np.int64)
    return TableCounts(tuple(found), missing, batch.num_rows)


def _has_value(batch: pa.RecordBatch, position: int, design: Design) -> npt.NDArray[np.bool_]:
    """Which cells of a column the schema can read."""
    column, array = design.table_columns[position], batch.column(position)
    return read_codes(array, column) >= 0 if column.has_levels else np.isfinite(read_numbers(array))
