"""Counts with a log link and a variance proportional to the mean: a look clips them above, a little over their mean."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpglm.families.base import Family, Floats, LookRule, even_ranks, shapes
from dpglm.families.residuals import ResidualTable

_SMALLEST_MEAN = 1e-3
_PAST_THE_TABLE = 3.0  # of a log mean, where a move leaves the table
_NEARLY_POISSON = 1e-6
_LARGEST_LOG_MEAN = 12.0
_POINTS = 2**11  # of a table: a straight line between them is off by some 10^-6 standard deviations on average
_TABULATED = 257  # points between which a variance over its mean is a straight line


class Counts(Family):
    """Count regression: quasi-Poisson, the dispersion is inferred."""

    name = "poisson"
    outcome_types = ("count",)
    coding = "count"
    full_blocks = shapes((1, 0), (2, 0), (0, 1), (0, 2), (1, 1), (1, 2))
    paper_blocks = shapes((0, 1), (0, 2), (1, 1), (1, 2))
    link = "log"
    regression = "count regression"
    effect = "log-rate"
    outcome_limits = (0.0, math.inf)
    typical_outcome = 1.0
    assumption = "a mean count of {:.3g} whose variance is 3 times as large"
    rare_events = "events were counted"
    moments_discrepancy, moments_surplus = 0.27, "a factor of three"
    look_rule = LookRule(
        misfit=0.015, least_information_leverage=3.5, discrepancy=1.0, weak_look=0.9, square_tolerance=0.7,
    )  # fmt: skip
    curved = True
    has_spread = True
    first_spread, least_spread = 3.0, 1.02

    def residual_table(self, spread: float, clip: float, response_range: tuple[float, float]) -> ResidualTable:
        """min(y, cap(u)) less its expectation under a negative binomial with variance spread times mean."""
        return _table(spread, clip, response_range[1])

    def moved(self, table: ResidualTable, spread: float, clip: float, u: Floats, step: Floats) -> Floats:
        """E[min(y, cap(u))] at a mean of exp(u + step)."""
        (cap,) = table.at(u, table.high)
        end = table.start + table.step * (len(table.mean) - 1)
        return _clipped_mean(
            np.exp(np.clip(u + step, table.start - _PAST_THE_TABLE, end + _PAST_THE_TABLE)), cap, spread
        )

    def clipped_variance(self, table: ResidualTable, spread: float, clip: float, u: Floats) -> Floats:
        """Of min(y, cap)."""
        end = table.start + table.step * (len(table.mean) - 1)
        at = np.clip(u, table.start, end)
        points = at if len(u) < _TABULATED else np.linspace(at.min(), at.max(), _TABULATED)
        mean, cap = table.at(points, table.mean, table.high)
        mu = np.exp(points)
        relative = np.maximum(_clipped_square(mu, cap, spread) - mean**2, 0.02 * mu) / mu
        return np.asarray((relative if points is at else np.interp(at, points, relative)) * np.exp(at))

    def moved_square(self, table: ResidualTable, spread: float, clip: float, u: Floats, step: Floats) -> Floats:
        """Of min(y, cap(u)) less its mean at u."""
        end = table.start + table.step * (len(table.mean) - 1)
        mean, cap = table.at(u, table.mean, table.high)
        mu = np.exp(np.clip(u + step, table.start - _PAST_THE_TABLE, end + _PAST_THE_TABLE))
        there = _clipped_mean(mu, cap, spread)
        return np.asarray(np.maximum(_clipped_square(mu, cap, spread) - there**2, 0.0) + (there - mean) ** 2)

    def typical_residuals(self, u: Floats, spread: float) -> Floats:
        """Of a gamma distribution with the mean and variance of a count, above the mean."""
        from scipy.special import gammaincinv

        mu = np.exp(np.clip(u, math.log(_SMALLEST_MEAN), _LARGEST_LOG_MEAN))
        drawn = spread * gammaincinv(mu / spread, even_ranks(len(mu)))
        return np.asarray(np.maximum((drawn - mu) / np.sqrt(spread * mu), 0.0))

    def beyond(self, residual: Floats) -> Floats:
        """Above the mean: counts are clipped nowhere else."""
        return np.maximum(residual, 0.0)

    def dispersion(self, spread: float) -> float:
        """The variance over the mean."""
        return spread

    def inverse_link(self, u: Floats) -> Floats:
        """The expected count."""
        return np.asarray(np.exp(np.clip(u, -700, 700)))

    def linear_predictor(self, mean: float) -> float:
        """The logarithm of the expected count."""
        return math.log(mean)


@lru_cache(maxsize=32)
def _table(spread: float, clip: float, largest: float) -> ResidualTable:
    u = np.linspace(math.log(_SMALLEST_MEAN), max(math.log(largest), 1.0), _POINTS)
    mu = np.exp(u)
    cap = np.minimum(largest, np.maximum(1.0, mu + clip * np.sqrt(spread * mu)))
    step = 1e-4
    mean = _clipped_mean(mu, cap, spread)
    slope = (_clipped_mean(mu * math.exp(step), cap, spread) - mean) / step
    return ResidualTable.over(u, mean, slope, np.zeros(_POINTS), cap)


def _clipped_square(mu: Floats, cap: Floats, dispersion: float) -> Floats:
    """E[min(y, cap)^2] of a negative binomial with variance dispersion times mean.

    For a whole number c it is mu (mu + dispersion - 1) P(y'' < c - 1) + mu P(y' < c) + c^2 P(y > c), where y' has one
    more in its shape and y'' two (a Poisson's are y itself).
    """
    from scipy.special import betainc, pdtr, pdtrc

    whole = np.floor(cap)
    if dispersion < 1 + _NEARLY_POISSON:
        pairs, below, beyond = pdtr(whole - 2, mu), pdtr(whole - 1, mu), pdtrc(whole, mu)
    else:
        shape, share = mu / (dispersion - 1), 1 / dispersion
        pairs = betainc(shape + 2, np.maximum(whole - 1, 1), share)
        below, beyond = betainc(shape + 1, whole, share), betainc(whole + 1, shape, 1 - share)
    pairs = np.where(whole >= 2, pairs, 0.0)
    return np.asarray(mu * (mu + dispersion - 1) * pairs + mu * below + cap**2 * beyond)


def _clipped_mean(mu: Floats, cap: Floats, dispersion: float) -> Floats:
    """E[min(y, cap)] of a negative binomial with variance dispersion times mean.

    For a whole number c it is mu P(y' < c) + c P(y > c), where y' has one more in its shape (a Poisson y' is y itself).
    """
    from scipy.special import betainc, pdtr, pdtrc  # not scipy.stats: its import takes as long as a small fit

    whole = np.floor(cap)
    if dispersion < 1 + _NEARLY_POISSON:
        below, beyond = pdtr(whole - 1, mu), pdtrc(whole, mu)
    else:
        shape, share = mu / (dispersion - 1), 1 / dispersion
        below, beyond = betainc(shape + 1, whole, share), betainc(whole + 1, shape, 1 - share)
    return np.asarray(mu * below + cap * beyond)
