"""Follow-up time cut into periods at public breaks: what both sides know of a table of person-periods.

In such a table a row is a person in a period in which they were at risk, and the outcome says whether the event came in
it. A release of it needs no word of its own: its column of periods is one whose levels are consecutive intervals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.privacy import finite_number
from dpglm.schema import Column, Schema

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_NUMBER = r"-?[0-9.]+(?:e[+-]?[0-9]+)?"
_LABEL = re.compile(rf"({_NUMBER}) to ({_NUMBER})")
_MOST = 500
PERIOD = "period"


@dataclass(frozen=True)
class Periods:
    """Consecutive periods (b0, b1], (b1, b2], ...: their breaks, in order."""

    breaks: tuple[float, ...]

    @classmethod
    def between(cls, breaks: object) -> Periods:
        """Checked breaks: three or more numbers, each larger than the one before."""
        listed = list(breaks) if isinstance(breaks, Sequence | np.ndarray) and not isinstance(breaks, str) else []
        numbers = [finite_number(each) for each in listed]
        if not 3 <= len(numbers) <= _MOST + 1 or any(number is None for number in numbers):
            rule = f"must be a list of 3 to {_MOST + 1} numbers"
            raise InputError("breaks", breaks, rule, "write for example breaks=[0, 90, 180, 365]")
        periods = cls(tuple(float(number) for number in numbers if number is not None))
        if not all(first < second for first, second in pairwise(periods.breaks)):
            raise InputError("breaks", breaks, "must increase", "put them in order, each once")
        if len(set(periods.labels)) < len(periods.labels) or cls.of_levels(periods.labels) != periods:
            raise InputError("breaks", breaks, "need more digits than a label has", "round them, or use another unit")
        return periods

    @classmethod
    def of_levels(cls, levels: Sequence[object]) -> Periods | None:
        """The periods that labels name, in whatever order; None where they are not consecutive intervals."""
        found = [_LABEL.fullmatch(level) if isinstance(level, str) else None for level in levels]
        ends = sorted((float(each[1]), float(each[2])) for each in found if each is not None)
        if len(ends) != len(levels) or len(ends) < 2 or not all(low < high for low, high in ends):
            return None
        if any(first[1] != second[0] for first, second in pairwise(ends)):
            return None
        return cls((ends[0][0], *(high for _, high in ends)))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the periods, the levels of their column.

        >>> Periods((0.0, 90.0, 180.0)).labels
        ('0 to 90', '90 to 180')
        """
        return tuple(f"{low:.12g} to {high:.12g}" for low, high in pairwise(self.breaks))

    def at_risk(self, time: Floats, event: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """How many periods each person was at risk in, from the first on; and whether the event came in the last.

        ``event`` is 1, 0 (censored), or -1 where it is not known. Who was censored within a period was at risk in it
        where they were followed for half of it or longer. 0 periods: followed for less than half of the first one, or
        time or event is not known.
        """
        breaks = np.array(self.breaks)
        known = np.isfinite(time) & (event >= 0)
        safe = np.where(known, time, -np.inf)
        last = np.searchsorted(breaks, safe, side="left")  # of the period that holds the time; from 1
        last = np.minimum(last, len(breaks))
        beyond = last > len(breaks) - 1
        happened = known & (event == 1) & (last >= 1) & ~beyond
        middles = np.append((breaks[:-1] + breaks[1:]) / 2, np.inf)
        whole = safe >= middles[np.clip(last - 1, 0, len(middles) - 1)]
        number = np.where(beyond, len(breaks) - 1, last - (~happened & ~whole))
        return np.where(known, np.maximum(number, 0), 0), happened


def periods_of(columns: Sequence[Column]) -> tuple[Column, Periods] | None:
    """The one column of periods among some, with its periods in order; None where there is none, or several."""
    found = [(column, Periods.of_levels(column.levels)) for column in columns if column.type == "categorical"]
    named = [(column, periods) for column, periods in found if periods is not None]
    return named[0] if len(named) == 1 else None


def checked_columns(
    schema: object, unit: object, time: object, event: object, period: object
) -> tuple[Column, Column, tuple[Column, ...]]:
    """The declared columns of time and event, and those that a person's rows repeat."""
    if not isinstance(schema, Schema):
        raise InputError("schema", type(schema).__name__, "must be a Schema", "use dpglm.Schema.load")
    for name, value in (("unit", unit), ("time", time), ("event", event), ("period", period)):
        if not isinstance(value, str) or not value.strip():
            raise InputError(name, value, "must be the name of a column", "correct it")
    time_column, event_column = schema.column(str(time)), schema.column(str(event))
    if time_column.has_levels:
        raise InputError("time", time, "must be a numeric column", "redeclare it")
    if event_column.type != "binary":
        raise InputError("event", event, "must be a binary column", "redeclare it: the second level is the event")
    if period in schema.columns or period in (unit, time, event):
        raise InputError("period", period, "is a column already", "choose another name for the periods")
    others = tuple(column for name, column in schema.columns.items() if name not in (unit, time, event))
    return time_column, event_column, others


def person_period_schema(
    schema: Schema, *, unit: str, time: str, event: str, breaks: Any, period: str = PERIOD
) -> Schema:
    """The schema of ``dpglm.person_periods(table, schema=schema, ...)``: the unit of privacy is the person.

    The number of rows, which was that of persons, is that of units. The first period is the reference level. A missing
    event makes a row that does not count, whatever ``fill`` was declared for it.
    """
    _, event_column, others = checked_columns(schema, unit, time, event, period)
    dataset = schema.to_dict()["dataset"]
    persons = {"units": dataset.pop("rows")} if "rows" in dataset else {}
    outcome = {key: value for key, value in event_column.to_dict().items() if key != "fill"}
    return Schema.from_dict(
        {
            "dataset": {**dataset, **persons, "unit_column": unit, "unit_order": period},
            "columns": {
                period: {"type": "categorical", "levels": list(Periods.between(breaks).labels)},
                event: outcome,
                **{column.name: column.to_dict() for column in others},
            },
        }
    )
