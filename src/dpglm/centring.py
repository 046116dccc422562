"""The public facts of a later stage: its centre, how rows are whitened and bounded, and which residual it takes.

A later stage looks at the table from a centre theta_0 that earlier stages showed (docs/stages.md). With x~ = (1, x),
u = x~' theta_0 and the whitened row z = W x~, each row becomes two parallel vectors of bounded length,

    s = kappa r(y, u) z                  the score,          |s|   <= score_bound
    q = sqrt(lambda w(u)) z              the information,    |q|^2 <= information_bound
    kappa = min(1, score_bound / (m(u) |z|)),   lambda = min(kappa, information_bound / (w(u) |z|^2))

r is the clipped residual less its expectation, m(u) the largest |r| over all outcomes, w(u) the slope of that
expectation in the linear predictor. kappa depends on the predictors alone, so the score stays unbiased at the true
coefficients. Released are the sums of s, of q q' and of s s'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape

Floats = npt.NDArray[np.float64]

# Powers of the residual and degrees in the row: the score, the information, the score's square.
CENTRED_BLOCKS = (BlockShape(1, 1), BlockShape(0, 2), BlockShape(2, 2))
VECTOR_BITS = 20  # a bounded vector is at most 2^20 grid steps long
CANONICAL_LINKS = {"logistic": "logit", "poisson": "log", "linear": "identity"}
_POINTS = 2**12
_LOGIT_RANGE = 24.0
_SMALLEST_MEAN = 1e-3


def only_of_moments(family: str, options: Mapping[str, Any]) -> str | None:
    """The first option of a fit that later stages cannot answer, if any.

    They fixed the link, measure the dispersion themselves, and the kind of moments does not enter them.
    """
    answered = {"link": (None, CANONICAL_LINKS[family]), "dispersion": (None, "infer"), "moments": (None, "exact")}
    return next((name for name, values in answered.items() if options.get(name) not in values), None)


@dataclass(frozen=True)
class Centring:
    """What a later stage fixes before it looks. Everything here follows from earlier stages: it is public.

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

    @property
    def centre_vector(self) -> Floats:
        """The centre of the inferred coefficients."""
        return np.array(self.centre[: self.dimension])

    @property
    def whitening_matrix(self) -> Floats:
        return np.array(self.whitening)

    @property
    def longest(self) -> float:
        """Grid steps of a vector as long as its bound: rounding moves it by at most sqrt(dimension) / 2 more."""
        return 2.0**VECTOR_BITS - math.sqrt(self.dimension)

    @property
    def units(self) -> tuple[float, float, float]:
        """What one integer step is in data units: of the score, the information and the score's square."""
        score, information = self.score_bound / self.longest, math.sqrt(self.information_bound) / self.longest
        return score, information**2, score**2


@dataclass(frozen=True)
class ResidualTable:
    """r, w and m as functions of u, tabulated: interpolation uses only operations that every machine rounds alike.

    An outcome is clipped to [low, high], then ``mean`` is subtracted; ``weight`` is the mean's slope, ``largest`` the
    largest residual in magnitude. u is clamped to the table.
    """

    start: float
    step: float
    mean: Floats
    weight: Floats
    low: Floats
    high: Floats

    @property
    def largest(self) -> Floats:
        return np.maximum(self.high - self.mean, self.mean - self.low)

    def at(self, u: Floats, *columns: Floats) -> list[Floats]:
        """Columns of the table at u."""
        last = len(self.mean) - 2
        position = np.clip((u - self.start) / self.step, 0.0, last + 1.0)
        left = np.minimum(np.floor(position), last)
        share, index = position - left, left.astype(np.intp)
        return [column[index] + (column[index + 1] - column[index]) * share for column in columns]


@lru_cache(maxsize=32)
def residual_table(family: str, spread: float, clip: float, response_range: tuple[float, float]) -> ResidualTable:
    """The residual of a family; outcomes in the coding of its blocks (logistic: -1 and 1 become 0 and 1)."""
    low, high = response_range
    if family == "logistic":
        u = np.linspace(-_LOGIT_RANGE, _LOGIT_RANGE, _POINTS)
        mean = 1 / (1 + np.exp(-u))
        return _table(u, mean, mean * (1 - mean), np.zeros(_POINTS), np.ones(_POINTS))
    if family == "linear":
        from scipy.special import ndtr

        # Scores are residuals over their variance. A clipped normal error keeps mean zero.
        reach = 2 * (high - low)
        u = np.linspace(low - reach, high + reach, _POINTS)
        half_width = clip * math.sqrt(spread)
        weight = np.full(_POINTS, (2 * ndtr(clip) - 1) / spread)
        return _table(u, u / spread, weight, (u - half_width) / spread, (u + half_width) / spread)
    u = np.linspace(math.log(_SMALLEST_MEAN), math.log(high), _POINTS)
    mu = np.exp(u)
    cap = np.minimum(high, np.maximum(1.0, mu + clip * np.sqrt(spread * mu)))
    step = 1e-4
    mean = _clipped_count_mean(mu, cap, spread)
    slope = (_clipped_count_mean(mu * math.exp(step), cap, spread) - mean) / step
    return _table(u, mean, slope, np.zeros(_POINTS), cap)


def outcome_values(family: str, spread: float, y: Floats) -> Floats:
    """Outcomes in the units of the residual table."""
    if family == "logistic":
        return (y + 1) / 2
    return y / spread if family == "linear" else y


def _table(u: Floats, mean: Floats, weight: Floats, low: Floats, high: Floats) -> ResidualTable:
    return ResidualTable(float(u[0]), float(u[1] - u[0]), mean, weight, low, high)


def _clipped_count_mean(mu: Floats, cap: Floats, dispersion: float) -> Floats:
    """E[min(y, cap)] of a negative binomial with variance dispersion times mean.

    For a whole number c it is mu P(y' < c) + c P(y > c), where y' has one more in its shape (a Poisson y' is y itself).
    """
    from scipy.special import betainc, pdtr, pdtrc  # not scipy.stats: its import takes as long as a small fit

    whole = np.floor(cap)
    if dispersion < 1 + 1e-6:
        below, beyond = pdtr(whole - 1, mu), pdtrc(whole, mu)
    else:
        shape, share = mu / (dispersion - 1), 1 / dispersion
        below, beyond = betainc(shape + 1, whole, share), betainc(whole + 1, shape, 1 - share)
    return np.asarray(mu * below + cap * beyond)
