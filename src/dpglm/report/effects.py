"""Predicted outcomes along each predictor, the others held at a public reference point.

Nothing here is read from a table. Where a release has a survey, a number stands at the centre that it shows, and runs
two scales to each side; else it stands in the middle of its declared bounds, and runs from one to the other. A
predictor with levels takes each of them, and stands at the reference level. The reader may name another point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.expressions import Expression
from dpglm.families import Family
from dpglm.formula import Design
from dpglm.looks.survey import thresholds
from dpglm.privacy import finite_number
from dpglm.releases import Release
from dpglm.schema import Column
from dpglm.values import Level

if TYPE_CHECKING:
    from dpglm.analyst.result import Fit

Floats = npt.NDArray[np.float64]
_POINTS = 41
_REACH = 2.0  # scales to each side of a centre


@dataclass(frozen=True)
class Typical:
    """Where a number stands, and where it runs."""

    centre: float
    low: float
    high: float


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


def reference_point(release: Release, at: Mapping[str, Any] | None = None) -> dict[str, Level]:
    """A value for every predictor, and for an offset's columns, from what is public and the reader's choices."""
    design = release.design
    names = {name for column in design.columns for factor in column.factors for name in factor.column_names}
    point: dict[str, Level] = {
        column.name: column.levels[0] if column.has_levels else typical(release, column).centre
        for column in design.table_columns
        if column.name in names
    }
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


def typical(release: Release, column: Column) -> Typical:
    """Of a numeric column: by the survey, or by its bounds where there is none."""
    survey = None if release.survey_record is None else release.survey_record.survey
    about = [
        (subject.source, place)
        for subject, place in (() if survey is None else zip(survey.subjects, survey.places, strict=True))
        if isinstance(subject.source, Expression) and subject.source.columns == (column.name,)
    ]
    if not about:  # no survey, or the column stands only beside others inside expressions
        middle = (column.lower + column.upper) / 2
        return Typical(float(int(middle)) if column.type == "count" else middle, column.lower, column.upper)
    source, place = min(about, key=lambda each: each[0].text != column.name)  # by itself, if it stands so
    centre = float(np.clip(place.centre, column.lower, column.upper))
    if source.text == column.name:
        low, high = max(column.lower, centre - _REACH * place.scale), min(column.upper, centre + _REACH * place.scale)
    else:  # where the expression has its centre, and where it is near
        values = np.array([column.lower, *thresholds(column.lower, column.upper), column.upper])
        away = np.abs(source.evaluate({column.name: values}) - place.centre)
        centre, near = float(values[np.argmin(away)]), values[away <= _REACH * place.scale]
        low, high = (float(near[0]), float(near[-1])) if len(near) > 1 else (column.lower, column.upper)
    step = 1.0 if column.type == "count" else 10.0 ** math.floor(math.log10((high - low) / 20))
    low, high = max(column.lower, _rounded(low, step)), min(column.upper, _rounded(high, step))
    if not low < high:
        low, high = column.lower, column.upper
    return Typical(min(max(_rounded(centre, step), low), high), low, high)


def _rounded(value: float, step: float) -> float:
    """To a multiple of a step, without the dust of its arithmetic."""
    return float(f"{round(value / step) * step:.12g}")


def _grid(column: Column, release: Release) -> tuple[Level, ...]:
    if column.has_levels:
        return column.levels
    along = typical(release, column)
    if column.type == "count" and along.high - along.low < _POINTS:
        return tuple(float(number) for number in range(int(along.low), int(along.high) + 1))
    return tuple(float(number) for number in np.linspace(along.low, along.high, _POINTS))


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
