"""Two levels, coded 0 and 1 in a look: the residual is bounded by itself, so nothing is clipped."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dpglm.families.base import Family, Floats, LookRule, shapes
from dpglm.families.residuals import POINTS, ResidualTable

_LOGIT_RANGE = 24.0


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
    look_rule = LookRule(
        misfit=0.015, least_information_leverage=1.5, discrepancy=0.7, weak_look=0.9, square_tolerance=0.1,
    )  # fmt: skip
    curved = True
    has_spread = False
    first_spread = least_spread = 1.0

    def residual_table(self, spread: float, clip: float, response_range: tuple[float, float]) -> ResidualTable:
        """y - p(u)."""
        return _table()

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


@lru_cache(maxsize=1)
def _table() -> ResidualTable:
    u = np.linspace(-_LOGIT_RANGE, _LOGIT_RANGE, POINTS)
    mean = 1 / (1 + np.exp(-u))
    return ResidualTable.over(u, mean, mean * (1 - mean), np.zeros(POINTS), np.ones(POINTS))
