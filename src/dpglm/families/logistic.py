"""Two levels, coded 0 and 1 in a look: the residual is bounded by itself, so nothing is clipped.

Three links. A look's score is (y - p(u)) h(u) z: the likelihood's own has h = p' / (p (1 - p)), which is one for the
logit and grows without end for the others. There it is held where no residual is longer than ``LONGEST``
(docs/method.md, section 4): the score keeps mean zero at the truth, and loses a little precision.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from dpglm.families.base import Family, Floats, LookRule, shapes
from dpglm.families.residuals import POINTS, ResidualTable

LONGEST = 2.0  # residual, in the logit's: what a surprising outcome may count
_CERTAIN = 4.0  # at least the largest multiplier, LONGEST over one half; a power of two
_RULE = LookRule(
    misfit=0.015, least_information_leverage=1.5, discrepancy=0.7, weak_look=0.9, square_tolerance=0.1,
)  # fmt: skip


class Logistic(Family):
    """Logistic regression."""

    name = "logistic"
    outcome_types = ("binary",)
    coding = "sign"
    full_blocks = shapes((1, 0), (1, 1), (0, 1), (0, 2))
    paper_blocks = shapes((1, 1), (0, 2))
    link = "logit"
    regression = "logistic regression"
    effect = "log-odds"
    outcome_limits = (0.0, 1.0)
    typical_outcome = 0.3
    assumption = "an outcome that {:.3g} of the rows have"
    rare_events = "rows have the rarer outcome"
    moments_discrepancy, moments_surplus = 0.27, "a half"
    look_rule = _RULE
    curved = True
    has_spread = False
    first_spread = least_spread = 1.0
    reach = (-24.0, 24.0)  # predictors beyond are read as these

    def residual_table(self, spread: float, clip: float, response_range: tuple[float, float]) -> ResidualTable:
        """y - p(u)."""
        return _logit_table(*self.reach)

    def moved(self, table: ResidualTable, spread: float, clip: float, u: Floats, step: Floats) -> Floats:
        """The probability at u + step."""
        return self.inverse_link(u + step)

    def clipped_variance(self, table: ResidualTable, spread: float, clip: float, u: Floats) -> Floats:
        """p (1 - p)."""
        (weight,) = table.at(u, table.weight)
        return weight

    def inverse_link(self, u: Floats) -> Floats:
        """The probability of the second level."""
        return np.asarray(1 / (1 + np.exp(-np.clip(u, -700, 700))))

    def linear_predictor(self, mean: float) -> float:
        """The log-odds."""
        return math.log(mean / (1 - mean))


@lru_cache(maxsize=1)
def _logit_table(low: float, high: float) -> ResidualTable:
    u = np.linspace(low, high, POINTS)
    mean = 1 / (1 + np.exp(-u))
    return ResidualTable.over(u, mean, mean * (1 - mean), np.zeros(POINTS), np.ones(POINTS))


class _OtherLink(Logistic):
    """Two levels with a link that is not the logit: ``inverse_link``, its ``slope`` and ``linear_predictor`` say which.

    In the table an outcome is 0 or h(u): the second level is far above, and is clipped to h(u).
    """

    canonical = False

    def residual_table(self, spread: float, clip: float, response_range: tuple[float, float]) -> ResidualTable:
        """(y - p(u)) h(u), with h the least of p' / (p (1 - p)) and LONGEST / max(p, 1 - p)."""
        return _table(self)

    def moved(self, table: ResidualTable, spread: float, clip: float, u: Floats, step: Floats) -> Floats:
        """h(u) times the probability at u + step."""
        mean, multiplier = table.at(u, table.mean, table.high)
        here = np.clip(u, *self.reach)
        return np.asarray(mean + multiplier * (self.inverse_link(here + step) - self.inverse_link(here)))

    def clipped_variance(self, table: ResidualTable, spread: float, clip: float, u: Floats) -> Floats:
        """h^2 p (1 - p)."""
        mean, multiplier = table.at(u, table.mean, table.high)
        return np.asarray(mean * (multiplier - mean))

    def values(self, y: Floats, spread: float) -> Floats:
        """The second level above every multiplier, so that it is clipped to its own."""
        return _CERTAIN * y

    def slope(self, u: Floats) -> Floats:
        """Of the probability, in the linear predictor."""
        raise NotImplementedError

    def efficient(self, u: Floats) -> Floats:
        """The likelihood's own multiplier p' / (p (1 - p))."""
        raise NotImplementedError


class Probit(_OtherLink):
    """P(y = 1) is the normal distribution's share below u."""

    link = "probit"
    regression = "probit regression"
    effect = "probit"
    reach = (-7.0, 7.0)

    def inverse_link(self, u: Floats) -> Floats:
        """The probability of the second level."""
        from scipy.special import ndtr

        return np.asarray(ndtr(u))

    def linear_predictor(self, mean: float) -> float:
        """The normal distribution's quantile."""
        return NormalDist().inv_cdf(mean)

    def slope(self, u: Floats) -> Floats:
        """The normal density."""
        return np.asarray(np.exp(-u * u / 2) / math.sqrt(2 * math.pi))

    def efficient(self, u: Floats) -> Floats:
        """About 1.6 in the middle, and |u| in the tails."""
        return np.asarray(self.slope(u) / (self.inverse_link(u) * self.inverse_link(-u)))


class ComplementaryLogLog(_OtherLink):
    """P(y = 1) = 1 - exp(-exp(u)): of grouped survival times a coefficient is a log hazard ratio."""

    link = "cloglog"
    regression = "complementary log-log regression"
    effect = "log hazard"
    reach = (-20.0, 3.0)

    def inverse_link(self, u: Floats) -> Floats:
        """The probability of the second level."""
        return np.asarray(-np.expm1(-np.exp(np.clip(u, -700.0, 700.0))))

    def linear_predictor(self, mean: float) -> float:
        """The logarithm of the hazard over an interval."""
        return math.log(-math.log1p(-mean))

    def slope(self, u: Floats) -> Floats:
        """The hazard times the share that it leaves."""
        return np.asarray(np.exp(u - np.exp(u)))

    def efficient(self, u: Floats) -> Floats:
        """The hazard over the probability: one where both are small."""
        return np.asarray(np.exp(u) / self.inverse_link(u))


@lru_cache(maxsize=4)
def _table(family: _OtherLink) -> ResidualTable:
    u = np.linspace(*family.reach, POINTS)
    p = family.inverse_link(u)
    multiplier = np.minimum(family.efficient(u), LONGEST / np.maximum(p, 1 - p))
    return ResidualTable.over(u, multiplier * p, multiplier * family.slope(u), np.zeros(POINTS), multiplier)
