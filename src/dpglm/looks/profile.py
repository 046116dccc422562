"""The profile: one more pass, between the second look and the third, that counts rows by how far they reach.

A row falls into one cell of a histogram of lengths (how long its longest score could be, in those of a typical row);
into one cell of a histogram of far rows, by length and by the coefficient in whose direction it reaches farthest; and,
where outcomes have no natural bounds, into one cell of a histogram of residuals (in their standard deviations).
Released are noisy counts of the cells beyond the first rung; a replaced row moves two counts of each histogram by one,
one that is added or removed moves one.
What they say of the tails (``tails``) decides what the bounds of later looks take, and what that may cost (``error``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpglm.families import Family
from dpglm.families.base import CLIP
from dpglm.looks.population import Standing, inverse_root
from dpglm.looks.questions import COUNT_BITS
from dpglm.looks.reading import Knowledge
from dpglm.looks.tails import Mixture, Tails, divided, measured
from dpglm.looks.viewpoint import Viewpoint
from dpglm.protection import Protection

Floats = npt.NDArray[np.float64]

LOOKS_BEFORE = 2
LENGTHS = np.array([1.25, 1.5, 2.0, 2.5, 3.5, 5.0, 8.0, 14.0, 30.0, 100.0])  # typical lengths
FAR = np.array([2.0, 4.0])  # typical lengths, from where rows are told apart by coefficient
RESIDUALS = np.array([1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 25.0])  # standard deviations
_EIGENVALUE_FLOOR = 1e-3
_MOST_FACTOR = 3.0  # of a spread that residuals tell


@dataclass(frozen=True)
class Profile:
    """A released profile: noisy counts of rows by cell, in steps of 2^-COUNT_BITS rows, one list a histogram.

    ``view`` is from where rows were measured: its ``score_bound`` is a typical length. ``stddev`` is the noise of a
    count in rows, ``mu`` what it cost.
    """

    view: Viewpoint
    counts: tuple[tuple[int, ...], ...]
    stddev: float
    mu: float


def cells(family: Family, size: int) -> tuple[int, ...]:
    """The released cells of each histogram, for so many coefficients: lengths, far rows, residuals.

    Cell j of lengths and of residuals lies beyond rung j; far rows have a cell for every rung and coefficient.
    """
    counted = (len(LENGTHS), len(FAR) * size)
    return (*counted, len(RESIDUALS)) if family.has_spread else counted


def squared_change(family: Family, protection: Protection) -> int:
    """What one row can do to all counts together: replaced, it leaves one cell of each histogram for another."""
    return protection.cells_changed * len(cells(family, 1))


def directions(view: Viewpoint) -> Floats:
    """What turns a row into how far it reaches in the direction of each coefficient, in what is typical of it."""
    whitening = view.whitening_matrix
    inverse = whitening.T @ whitening  # of the information
    return np.asarray(inverse / np.sqrt(np.maximum(np.diag(inverse), 1e-300))[:, None])


def profile_viewpoint(known: Knowledge) -> Viewpoint:
    """From where rows are measured: from what is known of t, in units of a typical length."""
    size = len(known.centre)
    whitening = inverse_root(known.information, _EIGENVALUE_FLOOR)
    view = Viewpoint(
        tuple(map(float, known.with_offset(known.centre))), tuple(tuple(map(float, row)) for row in whitening),
        1.0, float(size), known.spread, CLIP,
    )  # fmt: skip
    lengths = _lengths(known, view)
    typical = float(f"{np.sqrt(np.mean(lengths**2)) * known.units.long_scores:.6g}")
    return Viewpoint(view.centre, view.whitening, typical, view.information_bound, view.spread, view.clip)


def add_profile(known: Knowledge, profile: Profile) -> Knowledge:
    """What is known after a profile: of the tails."""
    view, family = known.units.of_rows(profile.view), known.family
    rows = known.num_rows / known.units.mean_rows  # units, where they have several
    shares = [np.array([float(count) for count in counts]) * 2.0**-COUNT_BITS / rows for counts in profile.counts]
    noise, core = profile.stddev / rows, _lengths(known, view) / view.score_bound
    lengths = measured(core, LENGTHS, shares[0], noise)
    columns = divided(core, lengths, FAR, shares[1].reshape(len(FAR), -1), noise)
    residuals = _residuals(known, view, shares[2], noise) if family.has_spread else known.tails.residuals
    spread = known.spread
    if known.units.robust and family.has_spread:  # which no look tells
        factor = float(residuals.shares @ residuals.scales**2)
        spread = max(spread * min(max(factor, 1 / _MOST_FACTOR), _MOST_FACTOR), family.least_spread)
    return replace(known, tails=Tails(lengths, residuals, columns), spread=spread)


def _lengths(known: Knowledge, view: Viewpoint) -> Floats:
    """How long the longest scores of pseudo-rows are."""
    standing = Standing(known.population, view, known.family, known.response_range, known.units.past)
    return standing.residual[1] * np.sqrt(standing.seen(known.information).squared)


def _residuals(known: Knowledge, view: Viewpoint, cells: Floats, noise: float) -> Mixture:
    u = known.population.predictor(np.array(view.centre))
    return measured(known.family.typical_residuals(u, view.spread), RESIDUALS, cells, noise)
