"""The public facts of a look: its centre, how rows are whitened and bounded, and which residual it takes.

A look sees the table from a centre theta_0 that the looks before it showed (docs/looks.md). With x~ = (1, x) in
standard units, u = x~' theta_0 and the whitened row z = W x~, each row becomes two parallel vectors of bounded length,

    s = kappa r(y, u) z                  the score,          |s|   <= score_bound
    q = sqrt(lambda w(u)) z              the information,    |q|^2 <= information_bound
    kappa = min(1, score_bound / (m(u) |z|)),   lambda = min(kappa, information_bound / (w(u) |z|^2))

r is the clipped residual less its expectation, m(u) the largest |r| over all outcomes, w(u) the slope of that
expectation in the linear predictor. kappa depends on the predictors alone, so the score stays unbiased at the true
coefficients. Released are the sums of s, of q q' and of s s'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape
from dpglm.families import Family
from dpglm.families.residuals import ResidualTable

Floats = npt.NDArray[np.float64]
Scalar = TypeVar("Scalar", np.float64, np.intp)

# Powers of the residual and degrees in the row: the score, the information, the score's square.
LOOK_BLOCKS = (BlockShape(1, 1), BlockShape(0, 2), BlockShape(2, 2))
VECTOR_BITS = 20  # a bounded vector is at most 2^20 grid steps long


@dataclass(frozen=True)
class Viewpoint:
    """What a look fixes before it looks. Everything here follows from what is public by then.

    ``centre`` has one entry a coefficient (and the known one of an offset last); ``whitening`` is square, over the
    coefficients. Both are multiples of small powers of two, so that products with grid rows are exact. ``spread`` is
    the assumed dispersion of counts, or residual variance of a linear outcome; ``clip`` bounds residuals, in their
    standard deviations.
    """

    centre: tuple[float, ...]
    whitening: tuple[tuple[float, ...], ...]
    score_bound: float
    information_bound: float
    spread: float
    clip: float

    @property
    def dimension(self) -> int:
        return len(self.whitening)

    @cached_property
    def centre_vector(self) -> Floats:
        """The centre of the inferred coefficients."""
        return _fixed(np.array(self.centre[: self.dimension]))

    @cached_property
    def whitening_matrix(self) -> Floats:
        return _fixed(np.array(self.whitening))

    @property
    def longest(self) -> float:
        """Grid steps of a vector as long as its bound: rounding moves it by at most sqrt(dimension) / 2 more."""
        return 2.0**VECTOR_BITS - math.sqrt(self.dimension)

    @property
    def units(self) -> tuple[float, float, float]:
        """What one integer step is in data units: of the score, the information and the score's square."""
        score, information = self.score_bound / self.longest, math.sqrt(self.information_bound) / self.longest
        return score, information**2, score**2

    def residual_table(self, family: Family, response_range: tuple[float, float]) -> ResidualTable:
        """The residual that this look takes."""
        return family.residual_table(self.spread, self.clip, response_range)


def symmetric(values: Floats, size: int) -> Floats:
    """A matrix from its upper triangle, row by row."""
    return np.asarray(values[_triangle_positions(size)])


@lru_cache(maxsize=16)
def _triangle_positions(size: int) -> npt.NDArray[np.intp]:
    """For each entry of a symmetric matrix, where it stands in the upper triangle."""
    positions = np.zeros((size, size), dtype=np.intp)
    positions[np.triu_indices(size)] = np.arange(size * (size + 1) // 2)
    return _fixed(np.maximum(positions, positions.T))


def _fixed(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """The array, which nobody may change: it is kept."""
    array.setflags(write=False)
    return array
