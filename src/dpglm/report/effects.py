"""Predicted outcomes along each predictor, the others held at a public reference point.

Nothing here is read from a table: a numeric predictor runs between its declared bounds, a predictor with levels takes
each of them, and the reference point is the middle of the bounds and the reference level, unless the reader names
another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.formula import Design
from dpglm.privacy import finite_number
from dpglm.schema import Column, Level

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


def predictors(design: Design) -> tuple[Column, ...]:
    """The columns of the table that some coefficient belongs to, in formula order; an offset's alone is not one."""
    columns = [column for term in design.terms for column in term.columns]
    names = dict.fromkeys(name for column in columns for factor in column.factors for name in factor.column_names)
    return tuple(design.schema.columns[name] for name in names)


def reference_point(design: Design, at: Mapping[str, Any] | None = None) -> dict[str, Level]:
    """A value for every predictor, and for an offset's columns, from the schema and the reader's choices."""
    names = {name for column in design.columns for factor in column.factors for name in factor.column_names}
    point = {column.name: _middle(column) for column in design.table_columns if column.name in names}
    for name, value in (at or {}).items():
        if name not in point:
            raise InputError("at", name, f"must name a predictor ({', '.join(point)})", "correct the name")
        point[name] = _checked(value, design.schema.columns[name])
    return point


def effect(fit: Fit, name: str, *, prob: float = 0.95, at: Mapping[str, Any] | None = None) -> Effect:
    """The predicted outcome along one predictor."""
    known = {column.name: column for column in predictors(fit.releases[0].design)}
    if name not in known:
        raise InputError("predictor", name, f"must be one of {', '.join(known)}", "correct the name")
    return _predicted(fit, [known[name]], prob, at)[0]


def all_effects(fit: Fit, *, prob: float = 0.95, at: Mapping[str, Any] | None = None) -> tuple[Effect, ...]:
    """The predicted outcome along each predictor, in formula order."""
    return tuple(_predicted(fit, predictors(fit.releases[0].design), prob, at))


def outcome_range(effects: Sequence[Effect], family: str) -> tuple[float, float]:
    """One scale for all predicted outcomes; a band that explodes at the edge does not squeeze the rest."""
    low = min(float(effect.lower.min()) for effect in effects)
    high = max(float(effect.upper.max()) for effect in effects)
    if family == "poisson":
        high = min(high, 2.5 * max(float(effect.mean.max()) for effect in effects))
    if family != "linear":
        low, high = 0.0, min(high * 1.05, 1.0) if family == "logistic" else high * 1.05
    return (low, high) if math.isfinite(low) and math.isfinite(high) and high > low else (0.0, 1.0)


def _predicted(fit: Fit, columns: Sequence[Column], prob: float, at: Mapping[str, Any] | None) -> list[Effect]:
    """Some predictors by one call: preparing a prediction costs more than a few rows of it."""
    point = reference_point(fit.releases[0].design, at)
    grids = [_grid(column) for column in columns]
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


def _middle(column: Column) -> Level:
    if column.has_levels:
        return column.levels[0]
    middle = (column.lower + column.upper) / 2
    return float(int(middle)) if column.type == "count" else middle


def _grid(column: Column) -> tuple[Level, ...]:
    if column.has_levels:
        return column.levels
    if column.type == "count" and column.upper < _POINTS:
        return tuple(float(number) for number in range(int(column.upper) + 1))
    return tuple(float(number) for number in np.linspace(column.lower, column.upper, _POINTS))


def _checked(value: object, column: Column) -> Level:
    """A value that the column may take; text from a command line is read as what the column holds."""
    name = f"at[{column.name!r}]"
    if column.has_levels:
        for level in column.levels:
            if str(level) == str(value):
                return level
        raise InputError(name, value, f"must be one of {', '.join(map(str, column.levels))}", "choose a level")
    try:
        number = finite_number(float(value) if isinstance(value, str) else value)
    except ValueError:
        number = None
    if number is None or not column.lower <= number <= column.upper:
        raise InputError(name, value, f"must lie in [{column.lower:g}, {column.upper:g}]", "choose a value inside")
    return number
