"""What looks say of the population's coefficients, in closed form: t has the looks' precision, t | v ~ N(v, S).

So the likelihood of v is a Gaussian, kept in information form (a direction of which nothing is known is zero, not
infinite), and with a normal prior so is the posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpglm.looks.population import inverse, solve
from dpglm.looks.reading import Belief, Knowledge, sampling_covariance

Floats = npt.NDArray[np.float64]

_MOST_DOUBT = 4.0  # of a standard error, relative


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A Gaussian statement in information form: precision and precision times mean."""

    precision: Floats
    shift: Floats

    @cached_property
    def covariance(self) -> Floats:
        return inverse(self.precision)

    @cached_property
    def mean(self) -> Floats:
        return solve(self.precision, self.shift)

    def with_error(self, covariance: Floats) -> Gaussian:
        """The same statement of something that differs by an error of this covariance."""
        size = len(self.shift)
        # (P^-1 + S)^-1 = (I + P S)^-1 P: P may be singular.
        turned = inverse(np.eye(size) + self.precision @ covariance)
        precision = turned @ self.precision
        return Gaussian((precision + precision.T) / 2, turned @ self.shift)

    def turned(self, matrix: Floats, shift: Floats) -> Gaussian:
        """The same statement of matrix @ what it is of + shift."""
        back = inverse(matrix)
        precision = back.T @ self.precision @ back
        return Gaussian((precision + precision.T) / 2, back.T @ self.shift + precision @ shift)

    def of_rest(self, matrix: Floats, shift: Floats) -> Gaussian:
        """The statement about w where it is of matrix @ w + shift."""
        return Gaussian(matrix.T @ self.precision @ matrix, matrix.T @ (self.shift - self.precision @ shift))


def together(statements: Sequence[Gaussian]) -> Gaussian:
    """Independent statements of one thing."""
    return Gaussian(sum(each.precision for each in statements), sum(each.shift for each in statements))  # type: ignore[arg-type]


def of_prior(belief: Belief) -> Gaussian:
    """A prior as a statement."""
    precision = inverse(belief.covariance)
    return Gaussian(precision, precision @ belief.mean)


def of_table(known: Knowledge) -> Gaussian:
    """What looks say of the table's own estimate, without a prior and but for the shift by bounding.

    Where it is not known how many rows have a rare level, its standard error is off by as much; where a column's scale
    was hardly seen, by half of what its information is.
    """
    assert known.pooled is not None
    told = Gaussian(known.pooled.precision, known.pooled.shift)
    doubt = np.hypot(known.doubt, np.minimum(known.blurred / 2, _MOST_DOUBT))
    if not doubt.any():
        return told
    variances = 1 / np.diag(told.precision) + np.diag(sampling_covariance(known))
    return told.with_error(np.diag(doubt**2 * variances))


def of_population(known: Knowledge) -> Gaussian:
    """What looks say of the population's coefficients, without a prior."""
    assert known.pooled is not None
    return of_table(known).with_error(sampling_covariance(known) + known.pooled.bounding)
