"""The survey: a private first look at where the columns live, by noisy counts of rows.

Every answer is a count of rows plus discrete Gaussian noise. What is asked next may depend on the answers so far, and
on nothing else, so a survey is a deterministic function of its noisy answers: the release file states them, and whoever
reads it finds the same survey. One row changes a count by at most one; the cost of an answer is its change by one row,
squared, over its variance, and costs add up.

Of the table it asks how many cells of each column hold no value, and how many rows count: with that number N all shares
are taken, wherever it is not public. Of every column it asks where it lives (``places``).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.expressions import Expression
from dpglm.formula import Design
from dpglm.looks import places
from dpglm.looks.questions import CLEAR, Answer, Place, Question, Rows, Subject, answer_of, may_hold, short
from dpglm.schema import Column

Floats = npt.NDArray[np.float64]

_QUITE_CLEAR, _VERY_CLEAR = 3.0, 3.5  # standard deviations
_SHARPER_SIZES, _SIZES = 2.0, 21  # how many rows units have: its cells go to a million
SHARPER_COUNTED = 4.0  # the rows that count: all shares are taken of them
_UNREADABLE, _FEW_COUNT = (
    0.05,
    0.05,
)  # shares of cells with a value, and of rows that count, below which they are too few
_MOST_MISSING = 0.99  # share of a column's cells
_SCALES = 1e-149, 1e149  # that files hold, a little inside: of columns whose bounds are as far apart, or as near

Asking = Generator[Question, Answer, "Survey"]


@dataclass(frozen=True)
class Survey:
    """What is known of the columns: a place for each subject, missing cells by table column, rows that count.

    ``complete`` is the noisy number of those, and ``rows`` what it is taken for: N where all may count. ``total`` is
    the number of all rows: N, or a noisy number where that is private.
    """

    subjects: tuple[Subject, ...]
    places: tuple[Place, ...]
    missing: tuple[float, ...]
    complete: float
    stddev: float  # of a plain count of rows, of ``missing``
    problems: tuple[str, ...]
    rows: float
    total: float
    mean_weight: float = 1.0  # of the rows that count
    mean_rows: float = 1.0  # that count, of a unit of which some do
    long_rows: float = 1.0  # that a typical row's unit has

    def place_of(self, source: Expression | Column) -> Place:
        """Of a factor's source."""
        name = source.text if isinstance(source, Expression) else source.name
        numeric = isinstance(source, Expression)
        for subject, place in zip(self.subjects, self.places, strict=True):
            if (subject.is_numeric, subject.name) == (numeric, name):
                return place
        raise KeyError(name)


@dataclass(frozen=True)
class SurveyRecord:
    """A survey as it was released: of which regression it was, what it cost, its noisy answers, and what they say.

    ``stddev`` is the noise of a plain count, in rows. ``release_id`` is the release that paid for it. What the answers
    say is stated, not computed again: another machine may round the last digit of a logarithm differently.
    """

    release_id: str
    design: Design
    mu: float
    stddev: float
    asked: tuple[tuple[Question, tuple[int, ...]], ...]
    survey: Survey

    def counted(self, design: Design) -> Rows:
        """How many rows count for a regression, and the noise of that number: none where all do."""
        stddev = 0.0 if design.counted_is_public else self.stddev / SHARPER_COUNTED
        return Rows(self._rows_of(design), stddev)

    def survey_of(self, design: Design) -> Survey:
        """The survey, for a regression whose columns it knows, declared as they were, and of the same rows."""
        if design.weights != self.design.weights:
            raise InputError("survey", self.release_id, "has other weights", "leave the survey out: a new one is taken")
        if design.where != self.design.where:
            rule = f"is of the rows {'where ' + self.design.where.text if self.design.where else 'without a condition'}"
            raise InputError("survey", self.release_id, rule, "leave the survey out: a new one is taken")
        known = {(subject.name, subject.is_numeric): subject for subject in self.survey.subjects}
        for subject in subjects(design):
            if known.get((subject.name, subject.is_numeric)) != subject:
                rule = "is not in this survey, or was declared differently"
                raise InputError("survey", subject.name, rule, "leave the survey out: a new one is taken")
        return replace(self.survey, rows=self._rows_of(design))

    def _rows_of(self, design: Design) -> float:
        """How many rows count there: with fewer columns more may, as if cells were missing independently."""
        needed, rows = {column.name for column in design.table_columns}, self.survey.total
        found = self.survey.rows
        for column, missing in zip(self.design.table_columns, self.survey.missing, strict=True):
            if column.fill is None and column.name not in needed:
                found /= 1 - min(max(missing / rows, 0.0), _MOST_MISSING)
        return min(found, max(rows, self.survey.rows))


def replayed(record: SurveyRecord) -> Survey:
    """The survey that the released answers give, question by question: on the machine that made it, the stated one."""
    asking = surveying(record.design)
    question = next(asking)
    for stated, integers in record.asked:
        if stated != question:
            break
        try:
            question = asking.send(answer_of(question, integers, record.stddev))
        except StopIteration as end:
            return cast("Survey", end.value)
    raise InputError("survey", record.release_id, "asks what its answers do not lead to", "ask for the file again")


def survey_rows(record: SurveyRecord) -> list[dict[str, Any]]:
    """One row a column and level: centre, scale, share, missing share, and the noise of a share of rows.

    A numeric column that stands in the formula only inside an expression is described by the expression.
    """
    survey, rows = record.survey, record.survey.total
    missing = dict(zip((c.name for c in record.design.table_columns), survey.missing, strict=True))
    found = []
    for subject, place in zip(survey.subjects, survey.places, strict=True):
        lost = missing.get(subject.name.strip("`"))
        row: dict[str, Any] = {"column": subject.name, "level": None, "centre": None, "scale": None, "share": None}
        row["missing"] = None if lost is None else lost / rows
        row |= {"noise": place.stddev, "missing_noise": survey.stddev / rows}
        if subject.is_numeric:
            found.append(row | {"centre": place.centre, "scale": place.scale})
        else:
            levels = subject.source.levels  # type: ignore[union-attr]
            found += [row | {"level": level, "share": s} for level, s in zip(levels, place.shares, strict=True)]
    return found


def subjects(design: Design) -> tuple[Subject, ...]:
    """What a survey of a regression is about, the outcome first."""
    found: dict[tuple[bool, str], Subject] = {}
    for factor in (design.outcome, *(factor for column in design.columns for factor in column.factors)):
        numeric = isinstance(factor.source, Expression)
        name = factor.source.text if isinstance(factor.source, Expression) else factor.source.name
        found.setdefault((numeric, name), Subject(name, factor.source))
    return tuple(found.values())


def units_of(design: Design) -> float:
    """The most that a survey may ask, in plain counts."""
    about, protection = subjects(design), design.schema.dataset.protection
    asked = sum(places.most_units(number, subject, protection) for number, subject in enumerate(about))
    return asked + sum(question.units for question in _table_questions(design)) + places.reserve_of(about)


def most_answers(design: Design) -> list[tuple[float, int]]:
    """Units and coordinates of every question that a survey may ask: what the noise is certified for."""
    about, protection = subjects(design), design.schema.dataset.protection
    found = [(question.units, len(question.ranges)) for question in _table_questions(design)]
    for number, subject in enumerate(about):
        found += places.most_answers(number, subject, protection, places.reserve_of(about))
    return found


def surveying(design: Design) -> Asking:
    """Ask, and return what the answers say. The same answers give the same questions and the same survey."""
    everything = subjects(design)
    of_columns, *of_rows = _table_questions(design)
    answer = yield of_columns
    number = design.schema.dataset.number
    missing = tuple(map(short, answer.counts[: len(design.table_columns)].tolist()))
    total = short(max(float(answer.counts[-1]), 1.0)) if number is None else float(number)
    complete, rows, light = total, Rows(total, 0.0), False
    mean_weight = mean_rows = long_rows = 1.0
    for question in of_rows:
        told = yield question
        if question.subject is not None:
            mean_rows, long_rows = _rows_of_units(told)
        elif question.ranges[0][0] == len(design.table_columns):
            complete = short(float(told.counts[0]))
            rows = counted_rows(design, complete, told.stddev)
        else:
            mean_weight, light = _mean_weight(design, float(told.counts[0]), told.stddev, rows)
    total = max(total, rows.number)
    is_count = design.family.coding == "count"
    found = yield from places.places_of(everything, is_count, design.schema.dataset.protection, rows)
    if design.schema.dataset.unit_order is not None and not everything[0].is_numeric:
        found[0] = _of_rows(found[0], mean_rows)
    smallest, largest = _SCALES
    found = [replace(place, scale=min(max(place.scale, smallest), largest)) for place in found]
    problems = _problems(design, everything, found, missing, answer.stddev, complete, rows, total)
    if light:
        problems = (*problems, f"{design.weights}: nearly all weights are small beside its upper bound")
    stddev = short(answer.stddev)
    return Survey(
        everything, tuple(found), missing, complete, stddev, problems, rows.number, total, mean_weight, mean_rows,
        long_rows,
    )  # fmt: skip


def _of_rows(place: Place, mean_rows: float) -> Place:
    """Shares of rows with an event that ends them, from shares of units that ever have it."""
    share = place.shares[1] / mean_rows
    return replace(place, shares=(short(1 - share), short(share)), stddev=short(place.stddev / mean_rows))


def size_rungs() -> Floats:
    """How many rows a unit has, by cell: the middle of 1, 2, 3 to 4, 5 to 8, ..., and of all that are more."""
    return np.array([1.0, 2.0, *(0.75 * 2**power + 0.5 for power in range(2, _SIZES))])


def _rows_of_units(told: Answer) -> tuple[float, float]:
    """The mean number of rows of a unit, and of the unit that a row belongs to, by cells that are clearly not empty.

    A cell beyond three that are empty is taken for noise.
    """
    counts = np.where(told.counts > _VERY_CLEAR * told.stddev, told.counts, 0.0)
    empty = 0
    for cell, count in enumerate(counts.tolist()):
        empty = 0 if count else empty + 1
        if empty > 2 and counts[:cell].any():
            counts[cell:] = 0.0
    if not counts.any():
        return 1.0, 1.0
    mean, square = (float(counts @ size_rungs() ** power / counts.sum()) for power in (1, 2))
    return short(mean), short(square / mean)


def _mean_weight(design: Design, total: float, stddev: float, rows: Rows) -> tuple[float, bool]:
    """The mean weight of the rows that count, and whether it is so small that it was not seen."""
    assert design.weights is not None
    upper = design.schema.columns[design.weights].upper
    least = _QUITE_CLEAR * stddev
    return short(upper * min(max(total, least) / rows.number, 1.0)), total < least


def counted_rows(design: Design, complete: float, stddev: float) -> Rows:
    """How many rows count, by their noisy number: all of them, where that may be."""
    number = design.schema.dataset.number
    if number is not None and (design.every_row_counts or complete > number - CLEAR * stddev):
        return Rows(number, 0.0 if design.every_row_counts else stddev)
    return Rows(min(max(complete, CLEAR * stddev, 1.0), math.inf if number is None else number), stddev)


def _table_questions(design: Design) -> list[Question]:
    """Of a row, the cell of every column may be missing, before it is replaced or after; and whether the row counts.

    Where the number of rows is private, it is asked beside the missing cells.
    """
    columns = len(design.table_columns)
    asked = [*range(columns), *([columns + 1] if design.schema.dataset.number is None else [])]
    found = [Question(None, tuple((n, n) for n in asked), len(asked))]
    if not design.counted_is_public:
        found.append(Question(None, ((columns, columns),), 1, SHARPER_COUNTED))
    if design.weights is not None:
        found.append(Question(None, ((columns + 2, columns + 2),), 1, SHARPER_COUNTED))
    protection = design.schema.dataset.protection
    if protection.several_rows:
        sizes = tuple((n, n) for n in range(len(size_rungs())))
        found.append(Question(len(subjects(design)), sizes, protection.cells_changed, _SHARPER_SIZES))
    return found


def _problems(
    design: Design,
    everything: tuple[Subject, ...],
    places: list[Place],
    missing: tuple[float, ...],
    stddev: float,
    complete: float,
    rows: Rows,
    every: float,
) -> tuple[str, ...]:
    """Columns that cannot be used, each as one line; and that nearly no row counts, for whatever reason."""
    found = []
    for column, count in zip(design.table_columns, missing, strict=True):
        if not may_hold(1 - count / every, stddev / every, _UNREADABLE, _QUITE_CLEAR):
            found.append(f"{column.name}: nearly no cell holds a value that the schema can read")
    if found:
        return tuple(found)
    if not design.counted_is_public and not may_hold(complete / every, rows.stddev / every, _FEW_COUNT, _QUITE_CLEAR):
        reason = "" if design.where is None else f", or is outside of {design.where.text}"
        return (f"the table: nearly every row lacks a value{reason}",)
    found += [
        f"{subject.name}: nearly all rows have one value"
        for subject, place in zip(everything, places, strict=True)
        if not place.varies
    ]
    return tuple(found)
