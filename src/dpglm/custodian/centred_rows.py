"""Fixed-point rows -> the two bounded integer vectors of a later stage, and their exact sums.

Guarantee: whatever a row holds, its score and information vectors are integers of length at most 2^VECTOR_BITS, and
both are one vector times a number, up to rounding to the nearest integer. That is all that the sensitivity uses
(docs/stages_privacy.md). Lengths are checked in exact arithmetic at the end: a vector that were too long would be
zero.

Same integers for every batch, order and thread: u and z are products of grid integers with grid integers, exact in
float64; all else is elementwise with operations that IEEE 754 defines to the last bit. (Another processor may round the
last bits of the residual table's exp differently.)
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape
from dpglm.centring import CENTRED_BLOCKS, VECTOR_BITS, Centring, outcome_values, residual_table
from dpglm.custodian.rows import FixedPointRows
from dpglm.custodian.sums import BlockSums, block_sums
from dpglm.formula import Design
from dpglm.grid import Grid

Array = npt.NDArray[np.float64]

_EXACT_BITS = 52
_FINEST_BITS = 24
_VECTOR_GRID = Grid(VECTOR_BITS, 0)
_LONGEST = 2.0**VECTOR_BITS


def exact_multipliers(values: Array, grid_exponent: int) -> Array:
    """Rows of multipliers, rounded to the finest power of two at which their products with any grid row are exact."""
    largest = float(np.abs(values).sum(axis=-1).max())
    bits = _FINEST_BITS
    if largest > 0:
        bits = min(bits, math.floor(_EXACT_BITS - 1 - grid_exponent - math.log2(largest)))
    return np.asarray(np.rint(values * 2.0**bits) * 2.0**-bits)


def centred_sums(rows: FixedPointRows, design: Design, centring: Centring) -> BlockSums:
    """Exact sums of the score, of the information and of the score's square over these rows."""
    score, information = bounded_vectors(rows, design, centring)
    nothing = np.zeros(rows.num_rows)
    first = block_sums(FixedPointRows(score, nothing, _VECTOR_GRID), (BlockShape(0, 1), BlockShape(0, 2)))
    second = block_sums(FixedPointRows(information, nothing, _VECTOR_GRID), (BlockShape(0, 2),))
    return BlockSums(CENTRED_BLOCKS, (first.values[0], second.values[0], first.values[1]), rows.num_rows)


@np.errstate(all="ignore")  # what overflows is too long; a warning would say that some row did
def bounded_vectors(rows: FixedPointRows, design: Design, centring: Centring) -> tuple[Array, Array]:
    """The integer vectors (dimension, rows) of score and information."""
    scale = 2.0**-rows.grid.exponent
    x = rows.x * scale  # exact: a power of two
    if design.intercept:
        x = np.concatenate([np.ones((1, rows.num_rows)), x])
    dimension = centring.dimension
    u = np.array(centring.centre) @ x
    z = centring.whitening_matrix @ x[:dimension]
    table = residual_table(design.family.name, centring.spread, centring.clip, design.response_range)
    mean, weight, low, high, largest = table.at(u, table.mean, table.weight, table.low, table.high, table.largest)
    y = outcome_values(design.family.name, centring.spread, rows.y * float(rows.grid.unit(1, 0)))
    residual = np.minimum(np.maximum(y, low), high) - mean
    squared = np.zeros(rows.num_rows)
    for coordinate in z:
        squared += coordinate * coordinate
    # kappa; a row at the origin is not bounded by anything and contributes nothing.
    squared = np.maximum(squared, 1e-300)
    kappa = np.minimum(1.0, centring.score_bound / np.maximum(largest * np.sqrt(squared), 1e-300))
    shorter = np.minimum(kappa, centring.information_bound / np.maximum(weight * squared, 1e-300))
    longest = centring.longest
    score = np.rint(z * (kappa * residual * (longest / centring.score_bound)))
    information = np.rint(z * (np.sqrt(shorter * weight) * (longest / math.sqrt(centring.information_bound))))
    return _held(score), _held(information)


def _held(vectors: Array) -> Array:
    """The vectors, with any that is longer than 2^VECTOR_BITS (none is, by construction) set to zero."""
    squared = np.zeros(vectors.shape[1])
    for coordinate in vectors:
        squared += coordinate * coordinate
    inside = squared <= _LONGEST**2
    return vectors if inside.all() else np.where(inside, vectors, 0.0)
