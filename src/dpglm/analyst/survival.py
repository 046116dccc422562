"""Survival curves from a fit of person-periods: the chance to be still without the event at the end of each period.

In a period the model gives the chance of the event to who is still without it, by any link; survival is the product of
its complements. Bands are of that product, by draws, so that they know how coefficients of periods are related.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.describe import tail_of
from dpglm.analyst.prediction import coded_rows, expected, own_coefficients, profiles_at, some_draws, with_intercept
from dpglm.analyst.typical import predictors
from dpglm.errors import InputError
from dpglm.periods import Periods, periods_of
from dpglm.schema import Column

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.analyst.result import Fit

Floats = npt.NDArray[np.float64]

_MOST = 10**8  # profiles times periods times draws


def period_column(fit: Fit, name: str | None = None) -> tuple[Column, Periods] | None:
    """The predictor whose levels are consecutive periods, or the one of this name; None where that is not clear."""
    design = fit.releases[0].design
    asked = [column for column in predictors(design) if name is None or column.name == name]
    return periods_of(asked) if design.family.coding == "sign" else None


def survival(fit: Fit, at: Mapping[str, Any] | None, prob: float, period: str | None) -> pd.DataFrame:
    """``Fit.survival``."""
    import pandas as pd

    tail = tail_of(prob)
    profiles, times, curves = survival_draws(fit, at, period)
    ends = np.quantile(curves, [tail, 1 - tail], axis=2)
    told = {"survival": curves.mean(axis=2), "sd": curves.std(axis=2), "lower": ends[0], "upper": ends[1]}
    repeated = {name: np.repeat(np.array(values, dtype=object), len(times)) for name, values in profiles.items()}
    frame = pd.DataFrame({**repeated, "time": np.tile(times, curves.shape[0])}).infer_objects()
    return frame.assign(**{name: values.ravel() for name, values in told.items()})


def survival_draws(
    fit: Fit, at: Mapping[str, Any] | None, period: str | None = None
) -> tuple[dict[str, list[Any]], Floats, Floats]:
    """Profiles, the times at which survival is known, and survival: (profiles, times, draws), 1 at the first time."""
    found = period_column(fit, period)
    if found is None:
        rule = "has no column of periods among its predictors, or several" if period is None else "has no such periods"
        remedy = "release a table of dpglm.person_periods with its period in the formula, or name the column: period="
        raise InputError("period", period or fit.releases[0].formula, rule, remedy)
    column, periods = found
    if isinstance(at, Mapping) and column.name in at:
        raise InputError("at", column.name, "is the column of periods, and all of them are used", "leave it out")
    profiles = profiles_at(fit, at)
    del profiles[column.name]
    number, labels = len(next(iter(profiles.values()), [None])), list(periods.labels)
    draws = some_draws(fit)
    if number * len(labels) * len(draws) > _MOST:
        raise InputError("at", number, f"are too many profiles of {len(labels)} periods", "give fewer values")
    rows = {name: np.repeat(np.array(values, dtype=object), len(labels)) for name, values in profiles.items()}
    rows[column.name] = np.tile(np.array(labels, dtype=object), number)
    design = fit.releases[0].design
    chances = expected(fit, with_intercept(coded_rows(rows, design), design), own_coefficients(design, draws), 0)
    kept = np.cumprod(1 - chances.reshape(number, len(labels), -1), axis=1)
    times = np.array(periods.breaks)
    return profiles, times, np.concatenate([np.ones((number, 1, kept.shape[2])), kept], axis=1)
