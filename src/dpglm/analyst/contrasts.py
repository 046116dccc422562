"""Linear combinations of coefficients, and how probable it is that they lie where one asks.

Both are exact where the posterior is normal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.describe import describe, describe_normal, flat
from dpglm.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.analyst.result import Fit

Floats = npt.NDArray[np.float64]


def contrast(fit: Fit, weights: Mapping[str, float], prob: float) -> pd.Series:
    """``Fit.contrast``."""
    import pandas as pd

    return pd.Series(described(fit, vector_of(fit, weights), prob)).drop("median")


def described(fit: Fit, vector: Floats, prob: float, target: str = "population") -> dict[str, Any]:
    """What is said of a linear combination of coefficients in the user's units."""
    normal = _normal(fit, vector, target)
    if normal is None:
        return describe(flat(fit.draws(target=target)) @ vector, prob)
    return describe_normal(*normal, prob)


def probability(
    fit: Fit, weights: str | Mapping[str, float], above: float | None, below: float | None, ratio: bool
) -> float:
    """``Fit.probability``."""
    vector = vector_of(fit, {weights: 1.0} if isinstance(weights, str) else weights)
    if above is None and below is None:
        raise InputError("above", None, "or below must be given", "write for example above=0")
    if ratio and fit.ratio_name is None:
        rule = f"has no meaning for the {fit.link} link"
        raise InputError("ratio", True, rule, "leave it out")
    low, high = (_edge(name, value, ratio) for name, value in (("above", above), ("below", below)))
    low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
    if not low < high:
        raise InputError("above", above, f"must be less than below = {below}", "correct the numbers")
    normal = _normal(fit, vector)
    if normal is None:
        values = flat(fit.draws()) @ vector
        return float(np.mean((values > low) & (values < high)))
    mean, stddev = normal
    first, last = (low - mean) / stddev, (high - mean) / stddev
    # From the side where the tails are small, so that no digits are lost.
    return _beyond(first) - _beyond(last) if first > 0 else _beyond(-last) - _beyond(-first)


def _beyond(deviations: float) -> float:
    """The share of a normal distribution above so many standard deviations."""
    return math.erfc(deviations / math.sqrt(2)) / 2


def _edge(name: str, value: float | None, ratio: bool) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value) or (ratio and not value > 0):
        rule = "must be a number above 0" if ratio else "must be a number"
        raise InputError(name, value, rule, "correct it")
    return math.log(value) if ratio else float(value)


def _normal(fit: Fit, vector: Floats, target: str = "population") -> tuple[float, float] | None:
    """Mean and standard deviation of a combination of normal coefficients."""
    normal = fit.normal(target=target)
    if normal is None:
        return None
    return float(vector @ normal[0]), math.sqrt(max(float(vector @ normal[1] @ vector), 0.0))


def vector_of(fit: Fit, weights: object) -> Floats:
    """A combination by coefficients' names as one weight a coefficient."""
    if not isinstance(weights, Mapping) or not weights:
        raise InputError("weights", weights, "must be a dict of coefficients", 'write for example {"age": 10}')
    vector = np.zeros(len(fit.names))
    for name, weight in weights.items():
        if name not in fit.names:
            raise InputError("weights", name, f"must be among {', '.join(fit.names)}", "correct the name")
        if isinstance(weight, bool) or not isinstance(weight, Real) or not math.isfinite(weight):
            raise InputError(f"weights[{name!r}]", weight, "must be a finite number", "correct it")
        vector[fit.names.index(name)] = float(weight)
    if not vector.any():
        raise InputError("weights", dict(weights), "must not all be 0", "give a coefficient a weight")
    return vector
