"""What a plan assumes of a table that nobody has seen: stated by the user, or typical. None of it is read from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpglm.errors import InputError
from dpglm.expressions import Expression
from dpglm.families import Family
from dpglm.formula import Design, DesignColumn
from dpglm.looks.survey import subjects
from dpglm.privacy import finite_number

PREDICTOR_STDDEV = 0.5  # of the linear predictor: how strong the columns are together, where nothing is said of it
ROWS_OF_A_UNIT = 5.0  # on average, where units have several and nothing is said of it
LIKENESS = 0.5  # of a unit's outcomes, given the predictors
_LEAST_STRENGTH, _MOST_STRENGTH = 0.01, 0.99


@dataclass(frozen=True)
class Assumptions:
    """What is assumed of a table.

    ``outcome`` is the share of the second level, or the mean count; ``spreads`` are standard deviations of numeric
    columns, and ``shares`` of levels, by column and in the levels' order. ``overlap`` is how much of a column's
    variance the others explain, ``strength`` the standard deviation of the linear predictor, ``spread`` what is left
    of the outcome's variance, of counts over their mean.

    ``complete`` is the share of rows that count. ``design_effect`` is that of weights: the mean of their squares over
    the square of their mean. ``rows_per_unit`` are how many rows a unit has on average, from 1 to twice as many less
    one, each as often; ``likeness`` is by column, of predictors and of what they leave of the outcome, the correlation
    of two rows of one unit.
    """

    outcome: float | None
    spreads: Mapping[str, float] | None
    shares: Mapping[str, tuple[float, ...]] | None
    overlap: Mapping[str, float] | None
    strength: float
    spread: float
    complete: float = 1.0
    design_effect: float = 1.0
    rows_per_unit: float = 1.0
    likeness: Mapping[str, float] | None = None

    def likeness_of(self, column: DesignColumn) -> float:
        """Of two rows of a unit, in a column of the design: of a predictor nothing is said of, they are the same."""
        found = 1.0
        for factor in column.factors:
            source = factor.source
            name = source.text if isinstance(source, Expression) else source.name
            found *= (self.likeness or {}).get(name, 1.0)
        return found

    def likeness_of_outcomes(self, design: Design) -> float:
        """Of what predictors leave; where an event ends a unit's rows, they are not related."""
        if design.schema.dataset.unit_order is not None:
            return 0.0
        return (self.likeness or {}).get(subjects(design)[0].name, LIKENESS)

    def of_rows(self, design: Design, surveyed: bool) -> tuple[str, ...]:
        """Which rows count, what they weigh, and how many a unit has, in words; nothing where none of it is open."""
        dataset, found = design.schema.dataset, []
        if not surveyed and not design.every_row_counts:
            found.append("all rows count" if self.complete == 1 else f"{100 * self.complete:.3g} % of rows count")
        if design.weights is not None:
            found.append(f"the design effect of weights is {self.design_effect:.3g}")
        if dataset.unit_column is None:
            return tuple(found)
        if not surveyed:
            found.append(f"a unit has {self.rows_per_unit:g} rows on average")
        if dataset.unit_order is not None:
            return (*found, "a unit's rows end with its event")
        first, *predictors = [subject.name for subject in subjects(design)]
        said = [f"{value:g} in {name}" for name, value in (self.likeness or {}).items() if name in predictors]
        others = "1 in other predictors" if said else "1 in predictors"
        said = [f"{self.likeness_of_outcomes(design):g} in what predictors leave of {first}", *said]
        said += [others] if len(said) <= len(predictors) else []
        return (*found, f"two rows of a unit correlate by {', by '.join(said)}")


@dataclass(frozen=True)
class Stated:
    """What a user may say, as it was given."""

    outcome: object = None
    spreads: object = None
    shares: object = None
    overlap: object = None
    strength: object = None
    dispersion: object = None
    complete: object = None
    design_effect: object = None
    rows_per_unit: object = None
    likeness: object = None

    def of(self, design: Design, method: str, surveyed: bool) -> Assumptions:
        """Checked, with what is typical where nothing is said; a survey that exists has a word in it."""
        strength = _number("strength", self.strength, method, _LEAST_STRENGTH, PREDICTOR_STDDEV)
        return Assumptions(
            _outcome(self.outcome, design.family, method), _spreads(self.spreads, design, method),
            _shares(self.shares, design, method), _overlap(self.overlap, design, method), strength,
            _spread(self.dispersion, strength, design.family, method),
            _complete(self.complete, design, method, surveyed), _design_effect(self.design_effect, design, method),
            _rows_per_unit(self.rows_per_unit, design, method, surveyed), _likeness(self.likeness, design, method),
        )  # fmt: skip


def _outcome(outcome: object, family: Family, method: str) -> float | None:
    """What is assumed of the outcome."""
    if outcome is None:
        return family.typical_outcome if method == "looks" else None
    if method != "looks" or family.typical_outcome is None:
        raise InputError("outcome", outcome, "belongs to two levels or counts, by looks", "leave it out")
    value, (low, high) = finite_number(outcome), family.outcome_limits
    if value is None or not low < value < high:
        raise InputError("outcome", outcome, f"must lie between {low:g} and {high:g}", "correct it")
    return value


def _spreads(spreads: object, design: Design, method: str) -> dict[str, float] | None:
    """Stated standard deviations, of numeric columns that the formula has."""
    if spreads is None:
        return None
    names = [subject.name for subject in subjects(design) if subject.is_numeric]
    found = {}
    for name, value in _by_column("spreads", spreads, names, method).items():
        number = finite_number(value)
        if number is None or number <= 0:
            raise InputError(f"spreads[{name!r}]", value, "must be a number above 0", "correct it")
        found[name] = number
    return found


def _shares(shares: object, design: Design, method: str) -> dict[str, tuple[float, ...]] | None:
    """Stated shares of levels, which add up to one."""
    if shares is None:
        return None
    levels = {subject.name: subject.cells for subject in subjects(design) if not subject.is_numeric}
    found = {}
    for name, values in _by_column("shares", shares, list(levels), method).items():
        numbers = [finite_number(value) for value in values] if isinstance(values, Sequence) else []
        if len(numbers) != levels[name] or not all(number is not None and 0 < number < 1 for number in numbers):
            rule = f"must be {levels[name]} shares between 0 and 1, one a level"
            raise InputError(f"shares[{name!r}]", values, rule, "correct it")
        total = sum(number for number in numbers if number is not None)
        found[name] = tuple(number / total for number in numbers if number is not None)
    return found


def _overlap(overlap: object, design: Design, method: str) -> dict[str, float] | None:
    """Stated shares of columns' variance that the others explain."""
    if overlap is None:
        return None
    names = [subject.name for subject in subjects(design)[1:]]
    found = {}
    for name, value in _by_column("overlap", overlap, names, method).items():
        number = finite_number(value)
        if number is None or not 0 <= number < 1:
            raise InputError(f"overlap[{name!r}]", value, "must be at least 0 and below 1", "correct it")
        found[name] = number
    return found


def _spread(dispersion: object, strength: float, family: Family, method: str) -> float:
    """What effects leave of an outcome's variance: of counts, stated over their mean; of a number, in its own."""
    if dispersion is not None and family.coding != "count":
        raise InputError("dispersion", dispersion, "belongs to counts", "leave it out")
    if family.coding == "scaled":
        if strength > _MOST_STRENGTH:
            rule = f"is in standard deviations of the outcome, and at most {_MOST_STRENGTH:g}"
            raise InputError("strength", strength, rule, "use a smaller one")
        return 1 - strength**2
    return _number("dispersion", dispersion, method, family.least_spread, family.first_spread)


def _complete(complete: object, design: Design, method: str, surveyed: bool) -> float:
    """The share of rows that count."""
    if complete is None:
        return 1.0
    if surveyed:
        raise InputError("complete", complete, "is what a survey tells", "leave it out, or the survey")
    number = _number("complete", complete, method, 0.0, 1.0)
    if not 0 < number <= 1:
        raise InputError("complete", complete, "must be above 0 and at most 1", "write for example complete=0.8")
    if number < 1 and design.every_row_counts:
        rule = "is 1 where all columns that are used have a fill, and no condition selects rows"
        raise InputError("complete", complete, rule, "leave it out")
    return number


def _design_effect(design_effect: object, design: Design, method: str) -> float:
    """Of weights between their bounds: at most that of weights at both of them, and by default spread evenly."""
    if design.weights is None:
        if design_effect is not None:
            raise InputError("design_effect", design_effect, "belongs to weights", "say weights=, or leave it out")
        return 1.0
    column = design.schema.columns[design.weights]
    low, high = column.lower, column.upper
    number = _number("design_effect", design_effect, method, 1.0, 1 + ((high - low) / (high + low)) ** 2 / 3)
    most = (low + high) ** 2 / (4 * low * high) if low else float("inf")
    if number > most:
        rule = f"is more than weights between {low:g} and {high:g} can have, {most:.3g}"
        raise InputError("design_effect", design_effect, rule, "correct it, or the bounds")
    return number


def _rows_per_unit(rows_per_unit: object, design: Design, method: str, surveyed: bool) -> float:
    """How many rows a unit has on average."""
    if design.schema.dataset.unit_column is None:
        if rows_per_unit is not None:
            rule = "belongs to a schema with a unit_column"
            raise InputError("rows_per_unit", rows_per_unit, rule, "declare it, or leave this out")
        return 1.0
    if surveyed and rows_per_unit is not None:
        raise InputError("rows_per_unit", rows_per_unit, "is what a survey tells", "leave it out, or the survey")
    return _number("rows_per_unit", rows_per_unit, method, 1.0, ROWS_OF_A_UNIT)


def _likeness(likeness: object, design: Design, method: str) -> dict[str, float] | None:
    """Stated correlations of two rows of a unit."""
    if likeness is None:
        return None
    dataset = design.schema.dataset
    if dataset.unit_column is None:
        rule = "belongs to a schema with a unit_column"
        raise InputError("likeness", likeness, rule, "declare it, or leave this out")
    first, *names = [subject.name for subject in subjects(design)]
    found = {}
    known = names if dataset.unit_order is not None else [first, *names]
    for name, value in _by_column("likeness", likeness, known, method).items():
        number = finite_number(value)
        if number is None or not 0 <= number <= 1:
            raise InputError(f"likeness[{name!r}]", value, "must lie between 0 and 1", "correct it")
        found[name] = number
    return found


def _number(argument: str, given: object, method: str, least: float, default: float) -> float:
    """A stated number above another."""
    if given is None:
        return default
    if method != "looks":
        raise InputError(argument, given, "belongs to method='looks'", "leave it out")
    number = finite_number(given)
    if number is None or number < least:
        raise InputError(argument, given, f"must be a number of at least {least:g}", "correct it")
    return number


def _by_column(argument: str, given: object, names: list[str], method: str) -> Mapping[str, Any]:
    if method != "looks":
        raise InputError(argument, given, "belongs to method='looks'", "leave it out")
    if not isinstance(given, Mapping):
        raise InputError(argument, given, "must be a dict by column", "correct it")
    for name in given:
        if name not in names:
            raise InputError(argument, name, f"must be among {', '.join(names) or 'none'}", "correct the name")
    return given
