"""The residual that a look takes, as a table over the linear predictor.

Interpolation uses only operations that every machine rounds alike, so that sums over rows are the same integers
everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

POINTS = 2**12


@dataclass(frozen=True, eq=False)
class ResidualTable:
    """Columns over an even grid of the linear predictor u, which is clamped to the grid.

    An outcome is clipped to [low, high], then ``mean``, the expectation of the clipped outcome, is subtracted;
    ``weight`` is the mean's slope in u.
    """

    start: float
    step: float
    mean: Floats
    weight: Floats
    low: Floats
    high: Floats

    @classmethod
    def over(cls, u: Floats, mean: Floats, weight: Floats, low: Floats, high: Floats) -> ResidualTable:
        """From columns at an even grid."""
        return cls(float(u[0]), float(u[1] - u[0]), mean, weight, low, high)

    @cached_property
    def largest(self) -> Floats:
        """The largest residual in magnitude."""
        return np.maximum(self.high - self.mean, self.mean - self.low)

    def at(self, u: Floats, *columns: Floats) -> list[Floats]:
        """Columns of the table at u."""
        last = len(self.mean) - 2
        position = np.clip((u - self.start) / self.step, 0.0, last + 1.0)
        left = np.minimum(np.floor(position), last)
        share, index = position - left, left.astype(np.intp)
        following = index + 1
        found = []
        for column in columns:
            at_left = column.take(index)
            found.append(at_left + (column.take(following) - at_left) * share)
        return found
