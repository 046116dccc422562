"""Record batches -> standardised rows -> the two bounded integer vectors of a look, and their exact sums.

Guarantee: whatever a row holds, its score and information vectors are integers of length at most 2^VECTOR_BITS, and
both are one vector times a number, up to rounding to the nearest integer. That is all that the sensitivity uses
(docs/looks_privacy.md). Lengths are checked in exact arithmetic at the end: a vector that were too long would be zero.

Same integers for every batch, order, thread and engine: rows are rounded onto a grid, u and z are products of grid
integers with grid integers, exact in float64; all else is elementwise with operations that IEEE 754 defines to the last
bit. (Another processor may round the last bits of the residual table's exp differently.)

Edge cases: a value farther than ``LARGEST`` scales from its column's centre counts as that far; cells are read as
``rows.py`` says. A row that does not count has two vectors of zeros.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape
from dpglm.custodian.followed import FINER, shares_by_past
from dpglm.custodian.rows import FixedPointRows, clean_rows, coded_response
from dpglm.custodian.sums import BlockSums, block_sums
from dpglm.custodian.units import Units, units_of
from dpglm.formula import Design
from dpglm.grid import Grid
from dpglm.looks.coding import LARGEST, ROW_BITS, look_grid
from dpglm.looks.viewpoint import LOOK_BLOCKS, VECTOR_BITS, Viewpoint

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.float64]

_EXACT_BITS = 52
_FINEST_BITS = 24
_LARGEST_BITS = ROW_BITS + int(math.log2(LARGEST))
_VECTOR_GRID = Grid(VECTOR_BITS, 0)
_LONGEST = 2.0**VECTOR_BITS
LONGEST_ROW = 2.0**16  # bounds, of a row among others of its unit: 2^26 such rows add up in 64 bits


def on_grid(view: Viewpoint) -> Viewpoint:
    """The viewpoint with multipliers whose products with grid rows are exact."""
    centre = exact_multipliers(np.array([view.centre]))[0]
    whitening = exact_multipliers(view.whitening_matrix)
    return replace(view, centre=tuple(centre.tolist()), whitening=tuple(map(tuple, whitening.tolist())))


def exact_multipliers(values: Array) -> Array:
    """Rows of multipliers, rounded to the finest power of two at which their products with any grid row are exact."""
    largest = float(np.abs(values).sum(axis=-1).max())
    bits = _FINEST_BITS
    if largest > 0:
        bits = min(bits, math.floor(_EXACT_BITS - 1 - _LARGEST_BITS - math.log2(largest)))
    return np.asarray(np.rint(values * 2.0**bits) * 2.0**-bits)


def look_sums(batch: pa.RecordBatch, design: Design, view: Viewpoint) -> BlockSums:
    """Exact sums of the score, of the information and of the score's square over a batch."""
    rows, units = standard_rows(batch, design), units_of(batch, design)
    if units is None:
        score, information = bounded_vectors(rows, design, view)
    else:
        score, information = bounded_units(rows, design, view, units)
    number = score.shape[1]
    first = block_sums(FixedPointRows(score, np.zeros(number), _VECTOR_GRID), (BlockShape(0, 1), BlockShape(0, 2)))
    nothing = np.zeros(information.shape[1])
    second = block_sums(FixedPointRows(information, nothing, _VECTOR_GRID), (BlockShape(0, 2),))
    return BlockSums(LOOK_BLOCKS, (first.values[0], second.values[0], first.values[1]), number)


def standard_rows(batch: pa.RecordBatch, design: Design) -> FixedPointRows:
    """Rows in standard units, on the grid: integers of at most ``LARGEST`` scales."""
    clean = clean_rows(batch, design)
    grid = look_grid(design)
    x = design.predictors(clean.values, batch.num_rows)
    np.multiply(x, 2.0**ROW_BITS, out=x)
    counts = None if clean.counts.all() else clean.counts
    weights = None if design.weights is None else clean.values[design.weights] / design.weight_scale
    by = design.schema.dataset.unit_order
    order = None if by is None else clean.values[by]
    return FixedPointRows(np.rint(x, out=x), coded_response(design, clean.values, grid), grid, counts, weights, order)


@np.errstate(all="ignore")  # what overflows is too long; a warning would say that some row did
def bounded_vectors(rows: FixedPointRows, design: Design, view: Viewpoint) -> tuple[Array, Array]:
    """The integer vectors (dimension, rows) of score and information."""
    z, squared, residual, weight, largest, _ = _measured(rows, design, view)
    # kappa; a row at the origin is not bounded by anything and contributes nothing.
    kappa = np.minimum(1.0, view.score_bound / np.maximum(largest * np.sqrt(squared), 1e-300))
    shorter = np.minimum(kappa, view.information_bound / np.maximum(weight * squared, 1e-300))
    score = np.rint(z * (kappa * residual * (view.longest / view.score_bound)))
    information = np.rint(z * (np.sqrt(shorter * weight) * (view.longest / math.sqrt(view.information_bound))))
    return _of_counted(_held(score), rows), _of_counted(_held(information), rows)


@np.errstate(all="ignore")
def bounded_units(rows: FixedPointRows, design: Design, view: Viewpoint, units: Units) -> tuple[Array, Array]:
    """The integer scores of units, (dimension, units), and the integer vectors of their information, (dimension, rows).

    Of unit i with rows j: S = kappa sum_j r z, and q = sqrt(lambda w) z for each of its rows, with

        kappa = min(1, B / sum_j m |z|),    lambda = min(kappa, A / sum_j w |z|^2).

    Where rows follow each other until an event, every row has a kappa of its own, by the rows before it
    (``followed.py``), and lambda is kappa min(1, A / sum_j kappa w |z|^2).

    Guarantee: |S| <= 2^VECTOR_BITS and sum_j |q|^2 <= 4^VECTOR_BITS, computed in integers; a unit that were longer
    would be zero. Sums over a unit's rows are of integers, so that their order does not matter. A row of which a number
    overflows adds nothing; one that is longer than ``LONGEST_ROW`` bounds is shortened to that.
    """
    z, squared, residual, weight, largest, expected = _measured(rows, design, view)
    length, expected = (each * np.sqrt(squared) / view.score_bound for each in (largest, expected))
    energy = weight * squared / view.information_bound
    used = np.isfinite(length) & np.isfinite(energy) & np.isfinite(z).all(axis=0) & np.isfinite(residual)
    if rows.counts is not None:
        used &= rows.counts
    z, residual, weight, length, energy, expected = (
        np.where(used, each, 0.0) for each in (z, residual, weight, length, energy, expected)
    )
    number = np.maximum(units.sum(used.astype(np.int64)), 1)
    rounding = math.ceil(math.sqrt(view.dimension))  # of a row's vector, twice
    whole = np.minimum(1.0, LONGEST_ROW / np.maximum(length, 1e-300))
    if rows.order is None:
        scores = np.rint(z * (residual * whole * (view.longest / view.score_bound))).astype(np.int64)
        steps = np.ceil(np.minimum(length, LONGEST_ROW) * view.longest).astype(np.int64) + rounding * used
        kappa = np.minimum(1.0, view.longest / np.maximum(units.sum(steps), 1))
        score, kappa, most = np.rint(units.sum(scores) * kappa), kappa[units.index], kappa
    else:
        kappa, most = shares_by_past(units.index, rows.order, length, expected, 1.0), np.ones(units.number)
        finer = np.rint(z * (residual * kappa * (FINER * view.longest / view.score_bound))).astype(np.int64)
        score, energy, weight = np.rint(units.sum(finer) / FINER), energy * kappa, weight * kappa
    whole = np.minimum(1.0, LONGEST_ROW / np.maximum(energy, 1e-300))
    steps = np.ceil(np.minimum(energy, LONGEST_ROW) * _LONGEST).astype(np.int64) + used
    room = np.maximum(1 - 2 * np.sqrt(number * view.dimension) / _LONGEST, 0.0)
    shorter = np.minimum(most, room * _LONGEST / np.maximum(units.sum(steps), 1))[units.index]
    scale = view.longest / math.sqrt(view.information_bound)
    information = np.rint(z * (np.sqrt(shorter * weight * whole) * scale))
    squares = units.sum((information.astype(np.int64) ** 2).sum(axis=0))
    inside = (squares <= 4**VECTOR_BITS)[units.index]
    return _held(score), information if inside.all() else np.where(inside, information, 0.0)


def _measured(rows: FixedPointRows, design: Design, view: Viewpoint) -> tuple[Array, ...]:
    """Whitened row and its squared length; residual, weight, the largest residual and the one that the least outcome
    has, with what the row weighs.
    """
    _, u, z, squared = whitened(rows, design, view)
    table = view.residual_table(design.family, design.response_range)
    mean, weight, low, high, largest = table.at(u, table.mean, table.weight, table.low, table.high, table.largest)
    y = outcomes(rows, design, view)
    residual = np.minimum(np.maximum(y, low), high) - mean
    if rows.weights is None:
        return z, squared, residual, weight, largest, mean - low
    of_weight = (each * rows.weights for each in (residual, weight, largest, mean - low))  # as so many rows
    return z, squared, *of_weight


def whitened(rows: FixedPointRows, design: Design, view: Viewpoint) -> tuple[Array, Array, Array, Array]:
    """Row with its intercept, linear predictor, whitened row (dimension, rows) and its squared length."""
    x = rows.x * 2.0**-ROW_BITS  # exact: a power of two
    if design.intercept:
        x = np.concatenate([np.ones((1, rows.num_rows)), x])
    z = view.whitening_matrix @ x[: view.dimension]
    squared = np.zeros(rows.num_rows)
    for coordinate in z:
        squared += coordinate * coordinate
    return x, np.array(view.centre) @ x, z, np.maximum(squared, 1e-300)


def outcomes(rows: FixedPointRows, design: Design, view: Viewpoint) -> Array:
    """Outcomes in the units of the residual table."""
    return design.family.values(rows.y * float(rows.grid.unit(1, 0)), view.spread)


def _of_counted(vectors: Array, rows: FixedPointRows) -> Array:
    """The vectors, zero for rows that do not count."""
    return vectors if rows.counts is None else np.where(rows.counts, vectors, 0.0)


def _held(vectors: Array) -> Array:
    """The vectors, with any that is longer than 2^VECTOR_BITS (none is, by construction) set to zero."""
    squared = np.zeros(vectors.shape[1])
    for coordinate in vectors:
        squared += coordinate * coordinate
    inside = squared <= _LONGEST**2
    return vectors if inside.all() else np.where(inside, vectors, 0.0)
