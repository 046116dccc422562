"""Rows of persons -> the bounded integers that each person adds to a look, and their exact sums.

Guarantee: whatever the rows of a person hold, and however many there are, the person's score is one integer vector of
length at most 2^VECTOR_BITS, and the information vectors of all of their rows have squared lengths that add up to at
most the square of that. That is all that the sensitivity of units with several rows uses (docs/looks_privacy.md).
Lengths are checked in exact arithmetic at the end: a score that were too long is shortened, an information that were
too large is left out.

Same integers for every order of rows and persons, batch and engine: what is added up over a person's rows are whole
numbers. The rows of a person must all be here; ``person`` tells which belong together.

Edge cases: a person of no row that counts adds nothing. Rows that come in the order of ``period`` are bounded by what
the person's past leaves (``followed.py``); else all rows of a person are as much shorter as all of them together need.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape
from dpglm.custodian.bounded_rows import outcomes, whitened
from dpglm.custodian.followed import Floats, Integers, shares_by_past, shares_together
from dpglm.custodian.rows import FixedPointRows
from dpglm.custodian.sums import BlockSums, block_sums
from dpglm.formula import Design
from dpglm.grid import Grid
from dpglm.looks.viewpoint import LOOK_BLOCKS, VECTOR_BITS, Viewpoint

_VECTOR_GRID = Grid(VECTOR_BITS, 0)
_LONGEST = 2.0**VECTOR_BITS
_FINER = 2.0**11  # a row's score is rounded to so much finer steps: rounding of many rows is less than one step
_SHORTENED = 1 - 2.0**-40  # outweighs the roundings of a square root and a quotient


def person_sums(
    rows: FixedPointRows, design: Design, view: Viewpoint, person: Integers, period: Integers | None = None
) -> BlockSums:
    """Exact sums over persons of the score, of the information and of the score's square."""
    score, information = person_vectors(rows, design, view, person, period)
    nothing, none = np.zeros(score.shape[1]), np.zeros(information.shape[1])
    first = block_sums(FixedPointRows(score, nothing, _VECTOR_GRID), (BlockShape(0, 1), BlockShape(0, 2)))
    second = block_sums(FixedPointRows(information, none, _VECTOR_GRID), (BlockShape(0, 2),))
    return BlockSums(LOOK_BLOCKS, (first.values[0], second.values[0], first.values[1]), rows.num_rows)


@np.errstate(all="ignore")  # what overflows is too long; a warning would say that some row did
def person_vectors(
    rows: FixedPointRows, design: Design, view: Viewpoint, person: Integers, period: Integers | None = None
) -> tuple[Floats, Floats]:
    """The integer score of each person, (dimension, persons), and the integer information vectors of rows."""
    _, u, z, squared = whitened(rows, design, view)
    table = view.residual_table(design.family, design.response_range)
    mean, weight, low, high, largest = table.at(u, table.mean, table.weight, table.low, table.high, table.largest)
    y = outcomes(rows, design, view)
    residual, size = np.minimum(np.maximum(y, low), high) - mean, np.sqrt(squared)
    counts = np.ones(rows.num_rows, dtype=bool) if rows.counts is None else rows.counts
    length, expected = np.where(counts, largest * size, 0.0), np.where(counts, (mean - low) * size, 0.0)
    if period is None:
        kappa = shares_together(person, length, view.score_bound)
    else:
        kappa = shares_by_past(person, period, length, expected, view.score_bound)
    energy = np.where(counts, kappa * weight * squared, 0.0)
    shorter = kappa * shares_together(person, energy, view.information_bound)
    score = z * np.where(counts, kappa * residual * (view.longest / view.score_bound), 0.0)
    information = z * np.where(
        counts, np.sqrt(shorter * weight) * (view.longest / math.sqrt(view.information_bound)), 0.0
    )
    persons, code = np.unique(person, return_inverse=True)
    fine = np.rint(np.where(np.isfinite(score), score, 0.0) * _FINER)
    totals = np.stack([np.bincount(code, each, len(persons)) for each in fine])  # whole numbers: exact in any order
    return _held(np.rint(totals / _FINER)), _within_trace(np.trunc(information), code, len(persons))


def _held(vectors: Floats) -> Floats:
    """The vectors, those that are longer than 2^VECTOR_BITS shortened to that."""
    squared = np.zeros(vectors.shape[1])
    for coordinate in vectors:
        squared += coordinate * coordinate
    outside = ~(squared <= _LONGEST**2)
    if outside.any():
        shorter = np.trunc(vectors[:, outside] * (_SHORTENED * _LONGEST / np.sqrt(squared[outside])))
        vectors[:, outside] = np.where(np.isfinite(shorter).all(axis=0), shorter, 0.0)
    return vectors


def _within_trace(vectors: Floats, code: npt.NDArray[np.intp], persons: int) -> Floats:
    """The rows' vectors, zero for persons whose squared lengths add up to more than 2^(2 VECTOR_BITS)."""
    vectors = np.where(np.abs(vectors) <= _LONGEST, vectors, 0.0)
    squared = np.minimum((vectors * vectors).sum(axis=0), 2 * _LONGEST**2)
    inside = np.bincount(code, squared, persons) <= _LONGEST**2
    return vectors if inside.all() else np.where(inside[code], vectors, 0.0)
