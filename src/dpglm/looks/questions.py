"""What a survey asks, of what, and what it learns: questions in counts of rows, noisy answers, and places."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpglm.expressions import Expression
from dpglm.schema import Column

Floats = npt.NDArray[np.float64]

COUNT_BITS = 20  # counts are released in steps of 2^-20 rows: so finely the sampler must see its noise
CLEAR = 2.0  # standard deviations
OCTAVES = range(-30, 60)  # of the numbers that are told apart where a range is very wide
VERY_WIDE = 1e4  # range of a column beyond which its order of magnitude is asked first
# Thresholds: even ones over a column's range, and some in every octave for ranges that are very wide.
_EVEN, _IN_OCTAVE = 2**13, 64
# There octaves of people's usual numbers are cut more finely, so that years are told apart.
_FINE_IN_OCTAVE, _FINE_OCTAVES = 2**10, range(-4, 24)
_MOST_DOUBT = 1.5  # spread of the logarithm of a scale, beyond which it was not seen


@dataclass(frozen=True)
class Subject:
    """Something that is surveyed: a numeric expression, or a column of levels."""

    name: str
    source: Expression | Column

    @property
    def is_numeric(self) -> bool:
        return isinstance(self.source, Expression)

    @property
    def thresholds(self) -> Floats:
        """Increasing; cell j holds values above threshold j - 1 and up to threshold j."""
        assert isinstance(self.source, Expression)
        return thresholds(self.source.lower, self.source.upper)

    @property
    def cells(self) -> int:
        """Of the exact histogram: of a numeric subject by its thresholds, of levels by their position."""
        return len(self.thresholds) + 1 if isinstance(self.source, Expression) else len(self.source.levels)


@dataclass(frozen=True)
class Question:
    """How many rows have a value in each of some ranges of cells (first to last) of a subject.

    Where the last cell is before the first, in all cells but those between them. ``subject`` None asks of the table:
    cell j is how many cells of its j-th column hold no value, the next how many rows count, then all rows, and the last
    what the rows that count weigh, in the largest weight. ``squared_change`` is what one row, replaced or added, can do
    to the answers; ``sharper`` divides the noise.
    """

    subject: int | None
    ranges: tuple[tuple[int, int], ...]
    squared_change: int
    sharper: float = 1.0

    @property
    def units(self) -> float:
        """Its cost in those of a plain count."""
        return self.squared_change * self.sharper**2


class Answer(NamedTuple):
    """Noisy counts in steps of 2^-COUNT_BITS rows, and the standard deviation of their noise in those steps."""

    integers: tuple[int, ...]
    grid_stddev: float

    @property
    def counts(self) -> Floats:
        return np.array([float(integer) for integer in self.integers]) * 2.0**-COUNT_BITS

    @property
    def stddev(self) -> float:
        return self.grid_stddev * 2.0**-COUNT_BITS


class Rows(NamedTuple):
    """How many rows count, and the noise of that number: none where it is public."""

    number: float
    stddev: float


@dataclass(frozen=True)
class Place:
    """Where a subject lives: centre and scale, or the share of each level; ``stddev`` is the noise of a share.

    ``varies`` is whether more than one value was seen, or could have been missed; ``doubt`` is the standard deviation
    of the scale's logarithm where that is large, or where one value holds nearly all rows.
    """

    centre: float
    scale: float
    shares: tuple[float, ...]
    stddev: float
    varies: bool = True
    doubt: float = 0.0

    @property
    def seen(self) -> bool:
        """Whether the scale was."""
        return self.doubt < _MOST_DOUBT


def answer_of(question: Question, integers: tuple[int, ...], stddev: float) -> Answer:
    """Noisy integers as an answer; ``stddev`` is that of a plain count, in rows."""
    return Answer(integers, stddev * 2.0**COUNT_BITS / question.sharper)


@lru_cache(maxsize=256)
def thresholds(lower: float, upper: float) -> Floats:
    """Where a numeric column may be cut."""
    even = lower + (upper - lower) * (np.arange(1, _EVEN) / _EVEN)
    fine = _in_octaves(OCTAVES, _IN_OCTAVE)
    if upper - lower > VERY_WIDE:
        fine = np.concatenate([fine, _in_octaves(_FINE_OCTAVES, _FINE_IN_OCTAVE)])
    every = np.concatenate([even, fine, -fine, [lower, 0.0]])
    inside = np.unique(every[(every >= lower) & (every < upper)])
    inside.setflags(write=False)
    return np.asarray(inside)


def _in_octaves(octaves: range, number: int) -> Floats:
    """So many even cuts of every octave."""
    return np.asarray((2.0 ** np.array(octaves)[:, None] * (1 + np.arange(number) / number)).ravel())


def may_hold(share: float, stddev: float, few: float, clear: float = CLEAR) -> bool:
    """Whether a noisy share of rows is clearly some, or may be more than a few; a negative one is noise."""
    return share > clear * stddev or max(share, 0.0) + CLEAR * stddev > few


def short(number: float) -> float:
    """Six digits: enough for a coordinate, and the same on every machine."""
    return float(f"{number:.6g}")
