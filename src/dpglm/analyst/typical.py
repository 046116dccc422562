"""Typical values of the predictors, from the survey and the schema: nothing here is read from a table.

Where a release has a survey, a number stands at the centre that it shows, and runs two scales to each side; a column of
levels stands at its most common one. Else a number stands in the middle of its declared bounds, and runs from one to
the other, and a column of levels stands at its reference. The reader may name another point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpglm.errors import InputError
from dpglm.expressions import Expression
from dpglm.formula import Design, Factor
from dpglm.looks.questions import Place, thresholds
from dpglm.privacy import finite_number
from dpglm.releases import Release
from dpglm.schema import Column, Schema
from dpglm.values import Level

_REACH = 2.0  # scales to each side of a centre
_STEPS = (1.0, 5.0, 10.0)  # round numbers, and powers of ten of them
_DAYS = (1.0, 7.0, 30.0, 365.0, 3650.0)  # of dates: a day, a week, a month, a year, ten


@dataclass(frozen=True)
class Typical:
    """Where a number stands, and where it runs."""

    centre: float
    low: float
    high: float


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
        column.name: usual_level(release, column) if column.has_levels else typical(release, column).centre
        for column in design.table_columns
        if column.name in names
    }
    for name, value in (at or {}).items():
        if name not in point:
            raise InputError("at", name, f"must name a predictor ({', '.join(point)})", "correct the name")
        point[name] = checked_value(value, design.schema.columns[name])
    return point


def typical(release: Release, column: Column) -> Typical:
    """Of a numeric column: by the survey, or by its bounds where there is none."""
    about = [each for each in numeric_places(release) if each[0].columns == (column.name,)]
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
    low, high = max(column.lower, rounded_to(low, step)), min(column.upper, rounded_to(high, step))
    if not low < high:
        low, high = column.lower, column.upper
    return Typical(min(max(rounded_to(centre, step), low), high), low, high)


def usual_level(release: Release, column: Column) -> Level:
    """The level that most rows have by the survey; the reference where there is none."""
    place = place_of(release, column)
    return column.levels[0] if place is None else column.levels[int(np.argmax(place.shares))]


def place_of(release: Release, source: Expression | Column) -> Place | None:
    """What the survey says of a factor's source; None where there is no survey."""
    record = release.survey_record
    return None if record is None else record.survey.place_of(source)


def numeric_places(release: Release) -> list[tuple[Expression, Place]]:
    """What the survey says of numbers and their expressions; nothing where there is no survey."""
    if release.survey_record is None:
        return []
    survey = release.survey_record.survey
    return [
        (subject.source, place)
        for subject, place in zip(survey.subjects, survey.places, strict=True)
        if isinstance(subject.source, Expression)
    ]


def round_step(release: Release, factor: Factor) -> float:
    """A step that people would name, near the scale of a numeric factor: 1 or 5 times a power of ten; of dates in days.

    The scale is the survey's; of moments, a quarter of the declared range. A logarithm's step is 1, a count's at least.
    """
    assert isinstance(factor.source, Expression)
    source = factor.source
    if source.text.startswith("log("):
        return 1.0
    place = place_of(release, source)
    scale = (source.upper - source.lower) / 4 if place is None else place.scale
    power = 10.0 ** math.floor(math.log10(scale))
    dates = is_of_dates(source, release.design.schema)
    among = _DAYS if dates else tuple(each * power for each in _STEPS)
    step = min(among, key=lambda each: abs(math.log(each / scale)))
    counted = len(source.columns) == 1 and release.design.schema.columns[source.columns[0]].type == "count"
    return max(float(f"{step:.3g}"), 1.0 if counted and source.text == source.columns[0] else 0.0)


def is_of_dates(source: Expression, schema: Schema) -> bool:
    """Whether a factor is a column of dates by itself: its steps are days."""
    return source.columns == (source.text.strip("`"),) and schema.columns[source.columns[0]].dates


def rounded_to(value: float, step: float) -> float:
    """To a multiple of a step, without the dust of its arithmetic."""
    return float(f"{round(value / step) * step:.12g}")


def checked_value(value: object, column: Column) -> Level:
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
