"""Numbers with a residual variance: a look clips residuals on both sides, in standard deviations."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpglm.families.base import Family, Floats, LookRule, even_ranks, shapes
from dpglm.families.residuals import POINTS, ResidualTable

_REACH = 9.0  # standard deviations beyond which a tail is nothing
_NORMAL_POINTS = 2**16


class Linear(Family):
    """Linear regression. Scores are residuals over the residual variance."""

    name = "linear"
    outcome_types = ("numeric", "count")
    coding = "scaled"
    full_blocks = shapes((1, 0), (2, 0), (0, 1), (0, 2), (1, 1))
    paper_blocks = shapes((0, 2), (1, 1), (2, 0))
    link = "identity"
    regression = "linear regression"
    effect = "outcome"
    outcome_limits = (-math.inf, math.inf)
    typical_outcome = None
    assumption = "an outcome that the columns explain little of"
    rare_events = None
    moments_discrepancy, moments_surplus = 0.05, "a fifth"
    look_rule = LookRule(
        misfit=0.025, least_information_leverage=3.5, discrepancy=0.3, weak_look=2.0, square_tolerance=0.3,
    )  # fmt: skip
    curved = False
    has_spread = True
    first_spread, least_spread = 1.0, 1e-8

    def residual_table(self, spread: float, clip: float, response_range: tuple[float, float]) -> ResidualTable:
        """(y - u) / spread, clipped at ``clip`` standard deviations: a clipped normal error keeps mean zero."""
        return _table(spread, clip, *response_range)

    def moved(self, table: ResidualTable, spread: float, clip: float, u: Floats, step: Floats) -> Floats:
        """Mean of a normal outcome around u + step, clipped around u."""
        sd = math.sqrt(spread)
        shift = step / sd
        low, high = -clip - shift, clip - shift
        below, beyond = _normal_share(low), _normal_share(-high)
        inside = shift * (1 - beyond - below) + _density(low) - _density(high)
        return np.asarray((u + sd * (inside + clip * (beyond - below))) / spread)

    def clipped_variance(self, table: ResidualTable, spread: float, clip: float, u: Floats) -> Floats:
        """Of a clipped normal residual, over the square of the spread."""
        beyond = math.erfc(clip / math.sqrt(2))
        density = math.exp(-clip * clip / 2) / math.sqrt(2 * math.pi)
        return np.full(np.shape(u), (1 - beyond - 2 * clip * density + clip * clip * beyond) / spread)

    def moved_square(self, table: ResidualTable, spread: float, clip: float, u: Floats, step: Floats) -> Floats:
        """Of a normal outcome around u + step, clipped around u, over the square of the spread."""
        shift = step / math.sqrt(spread)
        low, high = -clip - shift, clip - shift
        below, beyond = _normal_share(low), _normal_share(-high)
        at_low, at_high = _density(low), _density(high)
        inside = (1 + shift**2) * (1 - below - beyond) + low * at_low - high * at_high + 2 * shift * (at_low - at_high)
        return np.asarray((inside + clip**2 * (below + beyond)) / spread)

    def typical_residuals(self, u: Floats, spread: float) -> Floats:
        """Of a normal distribution, both sides as one."""
        return _normal_quantiles(0.5 + even_ranks(len(u)) / 2)

    def values(self, y: Floats, spread: float) -> Floats:
        """Outcomes over the residual variance."""
        return y / spread

    def inverse_link(self, u: Floats) -> Floats:
        """The mean itself."""
        return u

    def linear_predictor(self, mean: float) -> float:
        """The mean itself."""
        return mean


@lru_cache(maxsize=32)
def _table(spread: float, clip: float, low: float, high: float) -> ResidualTable:
    reach = 2 * (high - low)
    u = np.linspace(low - reach, high + reach, POINTS)
    half = clip * math.sqrt(spread)
    weight = np.full(POINTS, math.erf(clip / math.sqrt(2)) / spread)
    return ResidualTable.over(u, u / spread, weight, (u - half) / spread, (u + half) / spread)


@lru_cache(maxsize=1)
def _normal_table() -> tuple[Floats, Floats]:
    """Of the normal distribution, good to 3e-9 between its points: a fit need not wait for SciPy's import."""
    x = np.linspace(-_REACH, _REACH, _NORMAL_POINTS)
    share = np.array([math.erfc(-each) / 2 for each in (x / math.sqrt(2)).tolist()])
    return share, np.append(np.diff(share), 0.0)


def _normal_share(x: Floats) -> Floats:
    """What ``np.interp`` gives, which does not know that the points are evenly spaced."""
    share, rise = _normal_table()
    position = np.clip((x + _REACH) * ((_NORMAL_POINTS - 1) / (2 * _REACH)), 0.0, _NORMAL_POINTS - 1.0)
    index = position.astype(np.intp)
    return np.asarray(share.take(index) + (position - index) * rise.take(index))


def _normal_quantiles(shares: Floats) -> Floats:
    """Of shares of at least a half: good to 1e-7 within five standard deviations."""
    share, _ = _normal_table()
    return np.asarray(np.interp(shares, share, np.linspace(-_REACH, _REACH, _NORMAL_POINTS)))


def _density(x: Floats) -> Floats:
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi))
