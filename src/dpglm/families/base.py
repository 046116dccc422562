"""What a family of outcomes is: one object that every part of the package asks, one file for each family.

A family says which columns may be its outcome and how they are coded, which statistics the paper's system takes of it,
and what a look takes: a residual of the outcome, clipped so that one row is bounded, less its expectation.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape, check_blocks
from dpglm.errors import InputError
from dpglm.families.residuals import ResidualTable

Floats = npt.NDArray[np.float64]

_GOLDEN = (np.sqrt(5.0) - 1) / 2
CLIP = 4.0  # residual standard deviations that an outcome without natural bounds may have, at a leverage of 4


@dataclass(frozen=True)
class LookRule:
    """Constants of a look that differ by family (docs/method.md, sections 5 and 7; how chosen: docs/tried.md)."""

    misfit: float  # rho: mean over root mean square of what bounding takes, where the regression is only roughly right
    least_information_leverage: float
    discrepancy: float  # of the coefficients' size: how far the first look's reading may be off
    weak_look: float  # signal of the first look, relative to one a coefficient, where its variance is doubled
    square_tolerance: float  # relative error of the scores' variance over the information, before it is seen


class Family:
    """One regression family with its link; subclasses are ``Logistic`` (with its other links), ``Counts``, ``Linear``.

    ``outcome_types`` are the schema types its outcome may have. ``coding`` says how the outcome enters the blocks of
    moments: "sign" (two levels as -1 and 1), "count" (as it is, from 0 to its bound) or "scaled" (bounds to [-1, 1]).
    """

    name: ClassVar[str]
    outcome_types: ClassVar[tuple[str, ...]]
    coding: ClassVar[str]
    full_blocks: ClassVar[tuple[BlockShape, ...]]
    paper_blocks: ClassVar[tuple[BlockShape, ...]]
    link: ClassVar[str]  # of looks, and the default of moments
    canonical: ClassVar[bool] = True  # whether a score's variance is its slope, where outcomes are the family's
    regression: ClassVar[str]  # in words
    effect: ClassVar[str]  # what a coefficient changes, in words
    outcome_limits: ClassVar[tuple[float, float]]  # of an expected outcome
    typical_outcome: ClassVar[float | None]  # what a plan assumes of it, if there is something to assume
    assumption: ClassVar[str]  # in words
    rare_events: ClassVar[str | None]  # what may be too few for sums of moments to be nearly normal, in words
    moments_discrepancy: ClassVar[float]  # relative, of coefficients by moments without noise
    moments_surplus: ClassVar[str]  # how much wider real tables were than planned, by moments
    look_rule: ClassVar[LookRule]
    curved: ClassVar[bool]  # whether the expected score bends with the coefficients
    has_spread: ClassVar[bool]  # whether a look must learn how far outcomes scatter
    first_spread: ClassVar[float]
    least_spread: ClassVar[float]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def blocks(self, statistics: object) -> tuple[BlockShape, ...]:
        """'full' (default), 'paper' (the paper's list: no intercept, centred predictors), or a list of pairs."""
        if isinstance(statistics, str):
            if statistics not in ("full", "paper"):
                raise InputError("statistics", statistics, "must be 'full', 'paper' or a list of pairs", "correct it")
            return self.full_blocks if statistics == "full" else self.paper_blocks
        return check_blocks(statistics)

    @abstractmethod
    def residual_table(self, spread: float, clip: float, response_range: tuple[float, float]) -> ResidualTable:
        """What a look takes of an outcome, tabulated over the linear predictor."""

    @abstractmethod
    def moved(self, table: ResidualTable, spread: float, clip: float, u: Floats, step: Floats) -> Floats:
        """Expected clipped outcome where the linear predictor is u + step, and the clip is the one at u."""

    @abstractmethod
    def clipped_variance(self, table: ResidualTable, spread: float, clip: float, u: Floats) -> Floats:
        """Variance of the clipped outcome at u, in the units of the residual."""

    def moved_square(self, table: ResidualTable, spread: float, clip: float, u: Floats, step: Floats) -> Floats:
        """Expected square of the residual at u where the linear predictor is u + step.

        Only families that have a spread are asked.
        """
        raise NotImplementedError

    def typical_residuals(self, u: Floats, spread: float) -> Floats:
        """How far outcomes at u lie on a side where a look clips, in standard deviations: one an entry, not random.

        Only families that have a spread are asked.
        """
        raise NotImplementedError

    def beyond(self, residual: Floats) -> Floats:
        """How far residuals lie on a side where a look clips."""
        return np.abs(residual)

    def values(self, y: Floats, spread: float) -> Floats:
        """Outcomes in the units of the residual table."""
        return y

    def dispersion(self, spread: float) -> float:
        """Variance of the score over its information, were nothing clipped."""
        return 1.0

    @abstractmethod
    def inverse_link(self, u: Floats) -> Floats:
        """Expected outcome of a linear predictor under the family's link, in 0 and 1 for two levels."""

    @abstractmethod
    def linear_predictor(self, mean: float) -> float:
        """The link: the linear predictor of an expected outcome inside its limits."""


def even_ranks(number: int) -> Floats:
    """Numbers between 0 and 1, evenly spread however one cuts the list."""
    return np.asarray((np.arange(number) * _GOLDEN + 0.5) % 1.0)


def shapes(*pairs: tuple[int, int]) -> tuple[BlockShape, ...]:
    """Blocks from (y power, degree) pairs."""
    return tuple(BlockShape(*pair) for pair in pairs)
