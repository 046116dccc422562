"""Predicted outcomes along each predictor, the others held at typical values.

Where they stand and run is told by ``analyst/typical.py``; a predictor with levels takes each of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.typical import predictors, reference_point, typical
from dpglm.errors import InputError
from dpglm.families import Family
from dpglm.formula import Design
from dpglm.releases import Release
from dpglm.schema import Column
from dpglm.values import Level

if TYPE_CHECKING:
    from dpglm.analyst.result import Fit

Floats = npt.NDArray[np.float64]
_POINTS = 41


@dataclass(frozen=True, eq=False)
class Effect:
    """E[outcome] along one predictor: posterior mean and interval at each value."""

    column: Column
    values: tuple[Level, ...]
    mean: Floats
    lower: Floats
    upper: Floats


def effect(fit: Fit, name: str, *, prob: float = 0.95, at: Mapping[str, Any] | None = None) -> Effect:
    """The predicted outcome along one predictor."""
    known = {column.name: column for column in predictors(fit.releases[0].design)}
    if name not in known:
        raise InputError("predictor", name, f"must be one of {', '.join(known)}", "correct the name")
    return _predicted(fit, [known[name]], prob, at)[0]


def all_effects(fit: Fit, *, prob: float = 0.95, at: Mapping[str, Any] | None = None) -> tuple[Effect, ...]:
    """The predicted outcome along each predictor, in formula order."""
    return tuple(_predicted(fit, predictors(fit.releases[0].design), prob, at))


def outcome_range(effects: Sequence[Effect], family: Family) -> tuple[float, float]:
    """One scale for all predicted outcomes; a band that explodes at the edge does not squeeze the rest."""
    low = min(float(effect.lower.min()) for effect in effects)
    high = max(float(effect.upper.max()) for effect in effects)
    least, most = family.outcome_limits
    if math.isfinite(least):
        if math.isinf(most):
            high = min(high, 2.5 * max(float(effect.mean.max()) for effect in effects))
        low, high = least, min(high * 1.05, most)
    return (low, high) if math.isfinite(low) and math.isfinite(high) and high > low else (0.0, 1.0)


def _predicted(fit: Fit, columns: Sequence[Column], prob: float, at: Mapping[str, Any] | None) -> list[Effect]:
    """Some predictors by one call: preparing a prediction costs more than a few rows of it."""
    point = reference_point(fit.releases[0], at)
    grids = [_grid(column, fit.releases[0]) for column in columns]
    rows: dict[str, list[Any]] = {
        name: [
            moved if column.name == name else value
            for column, grid in zip(columns, grids, strict=True)
            for moved in grid
        ]
        for name, value in point.items()
    }
    predicted = fit.predict(rows, prob=prob)
    ends = np.cumsum([len(grid) for grid in grids])[:-1]
    parts = [np.split(predicted[part].to_numpy(dtype=np.float64), ends) for part in ("mean", "lower", "upper")]
    return [Effect(*each) for each in zip(columns, grids, *parts, strict=True)]


def _grid(column: Column, release: Release) -> tuple[Level, ...]:
    if column.has_levels:
        return column.levels
    along = typical(release, column)
    if column.type == "count" and along.high - along.low < _POINTS:
        return tuple(float(number) for number in range(int(along.low), int(along.high) + 1))
    return tuple(float(number) for number in np.linspace(along.low, along.high, _POINTS))


def is_additive(design: Design) -> bool:
    """Whether each coefficient speaks for itself: no products, and no column in two terms."""
    by_term = [[factor for column in term.columns for factor in column.factors] for term in design.terms]
    used = [{name for factor in factors for name in factor.column_names} for factors in by_term]
    single = all(len(column.factors) == 1 for term in design.terms for column in term.columns)
    return single and sum(map(len, used)) == len(set().union(*used))
