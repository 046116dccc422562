"""Record batches -> exact counts of rows by cell: everything that a survey may ask of a table, in one pass.

Guarantee: one row adds one to one cell of every subject, or to none of any subject, at most one to each count of
missing cells and at most one to the rows that count; so replacing a row changes a count over any ranges of cells by at
most one, and the counts of several levels by at most one each in two places. Counts are exact integers, the same for
every batch, order and engine.

Edge cases: cells that hold no value count as missing, and then as the fill that a look takes them for; without a fill
their row adds to the counts of missing cells alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.custodian.rows import CleanRows, clean_rows
from dpglm.custodian.units import STEPS, Units, cell_counts, size_cells, units_of
from dpglm.formula import Design
from dpglm.looks.questions import Question
from dpglm.looks.survey import size_rungs, subjects

if TYPE_CHECKING:
    import pyarrow as pa

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TableCounts:
    """Units by cell of each subject, and by how many rows they have; missing cells by table column, then the units that
    count, all units, and what those that count weigh, in the largest weight. All in ``STEPS``.
    """

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
        """The exact counts that a question asks for, in steps."""
        counts = self.missing if question.subject is None else self.cells[question.subject]
        return tuple(_within(counts, first, last) for first, last in question.ranges)


def _within(counts: Counts, first: int, last: int) -> int:
    """Rows in cells first to last; where the last is before the first, in all cells but those between them."""
    if first <= last:
        return int(counts[first : last + 1].sum())
    return int(counts[first:].sum() + counts[: last + 1].sum())


def table_counts(batch: pa.RecordBatch, design: Design) -> TableCounts:
    """The counts of one batch; ``design`` is the declared one, not yet in standard units."""
    clean, units = clean_rows(batch, design), units_of(batch, design)
    found: list[Counts] = []
    for subject in subjects(design):
        if subject.is_numeric:
            values = subject.source.evaluate(clean.values)  # type: ignore[union-attr]
            cells = np.searchsorted(subject.thresholds, values, side="left")
        else:
            cells = clean.values[subject.name].astype(np.int64)
        if units is not None and not found and design.schema.dataset.unit_order is not None:
            cells = units.largest(np.where(clean.counts, cells, 0))[units.index]  # whether the event ever comes
        found.append(cell_counts(cells, subject.cells, units, clean.counts))
    every = np.ones(batch.num_rows, dtype=bool)
    missing = [cell_counts(np.where(has, -1, 0), 1, units, every)[0] for has in clean.has_value]
    number, counted = batch.num_rows, int(clean.counts.sum())
    if units is not None:
        sizes = size_cells(units, clean.counts)
        found.append(np.bincount(sizes[sizes >= 0], minlength=len(size_rungs()))[: len(size_rungs())] * STEPS)
        number, counted = units.number, int((sizes >= 0).sum())
    table = [*missing, counted * STEPS, number * STEPS, _weight(clean, units, design)]
    return TableCounts(tuple(found), np.array(table, dtype=np.int64), number)


def _weight(clean: CleanRows, units: Units | None, design: Design) -> int:
    """What rows weigh, each at most one row; of a unit the mean of its rows that count."""
    if design.weights is None:
        return 0
    upper = design.schema.columns[design.weights].upper
    steps = np.floor(clean.values[design.weights] / upper * STEPS).astype(np.int64) * clean.counts
    if units is None:
        return int(steps.sum())
    return int((units.sum(steps) // np.maximum(units.sum(clean.counts.astype(np.int64)), 1)).sum())
