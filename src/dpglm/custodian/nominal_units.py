"""What rows of the nominal table weigh, how many a unit has, and how alike they are: a few kinds of rows.

Bounds are of all rows of a unit together, each with its weight: a row of a kind is bounded as if by so much less.
Scores of a unit's rows are related, so that their sum varies more than rows by themselves: by 1 + (rows - 1) times the
likeness, for every pair of coefficients, which is the design effect of a cluster-robust variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpglm.custodian.assumptions import Assumptions
from dpglm.formula import Design
from dpglm.looks.survey import Survey
from dpglm.looks.tails import Mixture

Floats = npt.NDArray[np.float64]

_NODES = 3  # of a distribution: its mean and variance are exact
_ALIKE = 1e-3  # squared relative deviation below which all are taken for the same


@dataclass(frozen=True)
class Kind:
    """A share of the rows, what each weighs (1 on average), and how many rows its unit has."""

    share: float
    weight: float
    rows: float

    @property
    def reach(self) -> float:
        """How far its unit reaches, over a row by itself."""
        return self.weight * self.rows


@dataclass(frozen=True, eq=False)
class Makeup:
    """All kinds of rows; ``likeness`` by pair of coefficients, of scores of two rows of a unit."""

    kinds: tuple[Kind, ...]
    likeness: Floats

    def related(self, square: Floats, kind: Kind) -> Floats:
        """The square of units' scores over their rows, in coefficients, from that of rows by themselves."""
        return square * (1 + (kind.rows - 1) * self.likeness)

    def robust(self, information: Floats) -> Floats:
        """The variance of a row's share in its unit's score, without bounds: of rows that score as ``information``."""
        total = np.zeros_like(information)
        for kind in self.kinds:
            total += kind.share * kind.weight**2 * self.related(information, kind)
        return total

    def reach(self, lengths: Mixture, long_rows: float) -> Mixture:
        """How far units reach, over one with as many rows as that of a typical row has, where rows reach so far."""
        shares = np.array([kind.share / kind.rows for kind in self.kinds])  # of units
        scales = np.array([kind.reach / long_rows for kind in self.kinds])
        return Mixture(
            np.outer(scales, lengths.scales).ravel(), np.outer(shares / shares.sum(), lengths.shares).ravel()
        )


def makeup(design: Design, survey: Survey, assumed: Assumptions) -> Makeup:
    """Of a table with these numbers of rows, in units of which some count."""
    columns = [column for term in design.terms for column in term.columns]
    of_columns = np.sqrt([*[1.0] * design.intercept, *map(assumed.likeness_of, columns)])
    likeness = assumed.likeness_of_outcomes(design) * np.outer(of_columns, of_columns)
    sizes = [(1.0, 1.0)]  # and shares of rows; rows that follow each other are bounded one by one
    if design.schema.dataset.unit_order is None:
        around = _around_one(survey.long_rows / survey.mean_rows - 1)
        sizes = [(survey.mean_rows * size, share * size) for size, share in around]
    kinds = [
        Kind(of_weight * of_size, weight, size)
        for weight, of_weight in _around_one(assumed.design_effect - 1)
        for size, of_size in sizes
    ]
    return Makeup(tuple(kinds), likeness)


def rows_of_units(assumed: Assumptions) -> tuple[float, float, float]:
    """The share of units of which a row counts; of them the mean number of such rows, and that of a typical row's unit.

    Rows fail to count independently of each other.
    """
    mean, share = assumed.rows_per_unit, assumed.complete
    long_rows = (4 * mean - 1) / 3  # of 1 to 2 mean - 1 rows, each number as often
    some = 1 - (1 - share) ** mean
    return some, mean * share / some, share * long_rows + 1 - share


def _around_one(squared_deviation: float) -> list[tuple[float, float]]:
    """Positive numbers of mean one, with their shares: nodes of a gamma distribution."""
    if squared_deviation < _ALIKE:
        return [(1.0, 1.0)]
    shape = 1 / squared_deviation
    places = np.arange(_NODES)
    off = np.sqrt(places[1:] * (places[1:] + shape - 1))
    values, vectors = np.linalg.eigh(np.diag(2 * places + shape) + np.diag(off, 1) + np.diag(off, -1))
    return [(float(value), float(share)) for value, share in zip(values / shape, vectors[0] ** 2, strict=True)]
