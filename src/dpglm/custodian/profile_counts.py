"""Record batches -> exact counts of rows by how far they reach: everything that a profile asks of a table, in one pass.

Guarantee: one row adds one to one cell of each histogram, or to none of its cells beyond the first rung; so replacing a
row changes at most two counts of a histogram, each by one. Counts are exact integers, the same for every batch, order
and engine.

Edge cases: a length or residual that is not a number lies in no cell beyond the first rung, nor does a row that does
not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpglm.custodian.bounded_rows import LONGEST_ROW, exact_multipliers, outcomes, standard_rows, whitened
from dpglm.custodian.followed import spent_before
from dpglm.custodian.survey_counts import TableCounts
from dpglm.custodian.units import STEPS, Units, cell_counts, units_of
from dpglm.formula import Design
from dpglm.looks.profile import FAR, LENGTHS, RESIDUALS, directions
from dpglm.looks.viewpoint import Viewpoint

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float64]


@np.errstate(all="ignore")  # a warning would say that some row overflows
def profile_counts(batch: pa.RecordBatch, design: Design, view: Viewpoint) -> TableCounts:
    """Rows of a batch by histogram: beyond each rung and not beyond the next; of far rows, by coefficient too."""
    rows, units, family = standard_rows(batch, design), units_of(batch, design), design.family
    x, u, _, squared = whitened(rows, design, view)
    table = view.residual_table(family, design.response_range)
    mean, weight, low, largest = table.at(u, table.mean, table.weight, table.low, table.largest)
    reach, expected = (each * np.sqrt(squared) / view.score_bound for each in (largest, mean - low))
    if rows.weights is not None:
        reach, expected = reach * rows.weights, expected * rows.weights
    counts = np.ones(batch.num_rows, dtype=bool) if rows.counts is None else rows.counts
    reach = np.nan_to_num(np.where(counts, reach, 0.0), nan=0.0, posinf=np.inf)
    if units is not None and rows.order is not None:  # a row, as far as those before it expected, and its own way
        reach = reach + spent_before(units.index, rows.order, np.where(counts, expected, 0.0), 1.0)
    elif units is not None:  # a unit reaches as far as all of its rows together
        steps = np.ceil(np.minimum(reach, LONGEST_ROW) * STEPS).astype(np.int64)
        reach = (units.sum(steps) / STEPS)[units.index]
    far = _far_cells(reach, x[: view.dimension], view)
    cells = [_cells(reach, LENGTHS, units, counts), cell_counts(far, len(FAR) * view.dimension, units, counts)]
    if family.has_spread:
        stddev = np.sqrt(family.dispersion(view.spread) * weight)
        beyond = family.beyond((outcomes(rows, design, view) - mean) / stddev)
        cells.append(_cells(beyond, RESIDUALS, units, counts))
    number = batch.num_rows if units is None else units.number
    return TableCounts(tuple(cells), np.zeros(0, dtype=np.int64), number)


def _cells(reach: Floats, rungs: Floats, units: Units | None, counts: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Rows by the last rung that they are beyond, the first rung's first."""
    return cell_counts(_rung(reach, rungs) - 1, len(rungs), units, counts)


def _far_cells(reach: Floats, x: Floats, view: Viewpoint) -> npt.NDArray[np.int64]:
    """Of far rows their rung, and within it the coefficient in whose direction they reach farthest, the first of
    equals; -1 for near ones.

    Multipliers are such that a row's products are exact: the coefficient does not hang on the row's batch.
    """
    size = view.dimension
    rung = _rung(reach, FAR)
    far = rung > 0
    column = np.abs(exact_multipliers(directions(view)) @ x[:, far]).argmax(axis=0)
    cells = np.full(len(reach), -1)
    cells[far] = (rung[far] - 1) * size + column
    return cells


def _rung(reach: Floats, rungs: Floats) -> npt.NDArray[np.int64]:
    """How many rungs a row is beyond."""
    return np.searchsorted(rungs, np.nan_to_num(reach, nan=0.0, posinf=np.inf), side="left")
