"""What is said of a quantity of which there are draws, or a normal distribution: mean, intervals, P(sign)."""

from __future__ import annotations

from numbers import Real
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError

Floats = npt.NDArray[np.float64]


def flat(draws: Floats) -> Floats:
    """Draws of all chains, one set a row."""
    return draws.reshape(-1, draws.shape[-1])


def tail_of(prob: object) -> float:
    """Probability on each side of an equal-tailed interval."""
    if isinstance(prob, bool) or not isinstance(prob, Real) or not 0 < float(prob) < 1:
        raise InputError("prob", prob, "must lie between 0 and 1", "write for example prob=0.95")
    return (1 - float(prob)) / 2


def describe(draws: Floats, prob: float) -> dict[str, Any]:
    """Of draws: ``significant`` is whether the equal-tailed interval excludes zero."""
    tail = tail_of(prob)
    lower, median, upper = np.quantile(draws, [tail, 0.5, 1 - tail])
    hdi = _shortest_interval(draws, prob)
    positive = float(np.mean(draws > 0))
    return {
        "mean": draws.mean(),
        "sd": draws.std(ddof=1),
        "lower": lower,
        "upper": upper,
        "median": median,
        "hdi_lower": hdi[0],
        "hdi_upper": hdi[1],
        "p_sign": max(positive, 1 - positive),
        "significant": bool(lower > 0 or upper < 0),
    }


def describe_normal(mean: float, stddev: float, prob: float) -> dict[str, Any]:
    """The same of a normal distribution, exactly."""
    reach = NormalDist().inv_cdf(1 - tail_of(prob)) * stddev
    positive = NormalDist().cdf(mean / stddev)
    lower, upper = mean - reach, mean + reach
    return {
        "mean": mean, "sd": stddev, "lower": lower, "upper": upper, "median": mean, "hdi_lower": lower,
        "hdi_upper": upper, "p_sign": max(positive, 1 - positive), "significant": bool(lower > 0 or upper < 0),
    }  # fmt: skip


def _shortest_interval(draws: Floats, prob: float) -> tuple[float, float]:
    """The shortest interval that holds this share of the draws.

    >>> low, high = _shortest_interval(np.array([0.0, 5.0, 1.0, 1.5, 1.2]), 0.5)
    >>> float(low), float(high)
    (1.0, 1.5)
    """
    ordered = np.sort(draws)
    inside = int(prob * len(ordered))
    first = int(np.argmin(ordered[inside:] - ordered[: len(ordered) - inside]))
    return ordered[first], ordered[first + inside]
