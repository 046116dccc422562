"""The survey: a private first look at where the columns live, by noisy counts of rows.

Every answer is a count of rows plus discrete Gaussian noise. What is asked next may depend on the answers so far, and
on nothing else, so a survey is a deterministic function of its noisy answers: the release file states them, and whoever
reads it finds the same survey. One row changes a count by at most one; the cost of an answer is its change by one row,
squared, over its variance, and costs add up.

Of the table it asks how many cells of each column hold no value, and how many rows count: with that number N all shares
are taken, wherever it is not public.

Of a numeric column it asks how many rows lie below chosen thresholds until its centre and scale are known to a
fraction of the scale, whatever the declared bounds; then how many lie near the centre, rung by rung, which tells the
tails. Where one value holds nearly all rows, it asks more sharply how far half of the others are. Of a column of levels
it asks how many rows each level has.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.expressions import Expression
from dpglm.formula import Design
from dpglm.looks.hypotheses import NormalColumn, Others
from dpglm.protection import Protection
from dpglm.schema import Column

Floats = npt.NDArray[np.float64]

COUNT_BITS = 20  # counts are released in steps of 2^-20 rows: so finely the sampler must see its noise
# Thresholds: even ones over a column's range, and some in every octave for ranges that are very wide.
_EVEN, _IN_OCTAVE, _OCTAVES = 2**13, 64, range(-30, 60)
_VERY_WIDE = 1e4  # range of a column beyond which its order of magnitude is asked first
# There octaves of people's usual numbers are cut more finely, so that years are told apart.
_FINE_IN_OCTAVE, _FINE_OCTAVES, _FINER_HALVINGS = 2**10, range(-4, 24), 15
_MAGNITUDES, _MAGNITUDE_SHARE, _MARGIN = 7, 0.5, 4.0  # questions; rank that they look for; room beyond what they find
_SEARCHES = 12  # questions for centre and scale
_RUNGS = (1.25, 2.0, 3.0, 5.0, 8.0, 32.0, 128.0, 1024.0)  # distances from the centre, in scales
_FAR = 8.0  # from there on a rung must be seen more clearly: its weight is its distance squared
_CLEAR, _QUITE_CLEAR, _VERY_CLEAR = 2.0, 3.0, 3.5  # standard deviations
# Where one value seems to hold nearly all rows: a scale near the finest that is searched, and few rows off the centre.
_NARROW, _ONE_VALUE, _SPIKE = 4.0, 2.0, 0.5
# Of such columns more is asked, with less noise: units set aside for all of them, and questions to each.
_RESERVE, _TAIL_QUESTIONS, _ASKED_AGAIN = 120.0, 9, 2
_RARE, _WORTHWHILE = 6.0, 1.5  # of a level that is counted again: standard deviations; how much more sharply
_MOST_DOUBT = 1.5  # spread of the logarithm of a scale, beyond which it was not seen
_LEAST_SHARE = 0.002  # of a level, where its scale is taken from
# How much more sharply an outcome's levels are counted, or its numbers, and levels of predictors.
_SHARPER, _SHARPER_NUMBER, _SHARPER_LEVELS = 4.0, 2.0, 2.0
_SHARPER_SIZES, _SIZES = 2.0, 21  # how many rows units have: its cells go to a million
SHARPER_COUNTED = 4.0  # the rows that count: all shares are taken of them
# Shares of rows below which they are too few: those that vary (a rare level is no mistake), those with a value.
_FEW, _FEW_OF_OUTCOME, _FEW_OF_LEVELS, _UNREADABLE, _FEW_COUNT = 0.03, 0.004, 0.001, 0.05, 0.05
_MOST_MISSING = 0.99  # share of a column's cells
_TINY = 1e-6


@dataclass(frozen=True)
class Subject:
    """Something that is surveyed: a numeric expression, or a column of levels."""

    name: str
    source: Expression | Column

    @property
    def is_numeric(self) -> bool:
        return isinstance(self.source, Expression)

    @property
    def thresholds(self) -> Floats:
        """Increasing; cell j holds values above threshold j - 1 and up to threshold j."""
        assert isinstance(self.source, Expression)
        return thresholds(self.source.lower, self.source.upper)

    @property
    def cells(self) -> int:
        """Of the exact histogram: of a numeric subject by its thresholds, of levels by their position."""
        return len(self.thresholds) + 1 if isinstance(self.source, Expression) else len(self.source.levels)


@dataclass(frozen=True)
class Question:
    """How many rows have a value in each of some ranges of cells (first to last) of a subject.

    Where the last cell is before the first, in all cells but those between them. ``subject`` None asks of the table:
    cell j is how many cells of its j-th column hold no value, the next how many rows count, then all rows, and the last
    what the rows that count weigh, in the largest weight. ``squared_change`` is what one row, replaced or added, can do
    to the answers; ``sharper`` divides the noise.
    """

    subject: int | None
    ranges: tuple[tuple[int, int], ...]
    squared_change: int
    sharper: float = 1.0

    @property
    def units(self) -> float:
        """Its cost in those of a plain count."""
        return self.squared_change * self.sharper**2


class Answer(NamedTuple):
    """Noisy counts in steps of 2^-COUNT_BITS rows, and the standard deviation of their noise in those steps."""

    integers: tuple[int, ...]
    grid_stddev: float

    @property
    def counts(self) -> Floats:
        return np.array([float(integer) for integer in self.integers]) * 2.0**-COUNT_BITS

    @property
    def stddev(self) -> float:
        return self.grid_stddev * 2.0**-COUNT_BITS


Asking = Generator[Question, Answer, "Survey"]


class Rows(NamedTuple):
    """How many rows count, and the noise of that number: none where it is public."""

    number: float
    stddev: float


@dataclass(frozen=True)
class Place:
    """Where a subject lives: centre and scale, or the share of each level; ``stddev`` is the noise of a share.

    ``varies`` is whether more than one value was seen, or could have been missed; ``doubt`` is the standard deviation
    of the scale's logarithm where one value holds nearly all rows.
    """

    centre: float
    scale: float
    shares: tuple[float, ...]
    stddev: float
    varies: bool = True
    doubt: float = 0.0

    @property
    def seen(self) -> bool:
        """Whether the scale was."""
        return self.doubt < _MOST_DOUBT


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


def answer_of(question: Question, integers: tuple[int, ...], stddev: float) -> Answer:
    """Noisy integers as an answer; ``stddev`` is that of a plain count, in rows."""
    return Answer(integers, stddev * 2.0**COUNT_BITS / question.sharper)


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


@lru_cache(maxsize=256)
def thresholds(lower: float, upper: float) -> Floats:
    """Where a numeric column may be cut."""
    even = lower + (upper - lower) * (np.arange(1, _EVEN) / _EVEN)
    fine = _in_octaves(_OCTAVES, _IN_OCTAVE)
    if upper - lower > _VERY_WIDE:
        fine = np.concatenate([fine, _in_octaves(_FINE_OCTAVES, _FINE_IN_OCTAVE)])
    every = np.concatenate([even, fine, -fine, [lower, 0.0]])
    inside = np.unique(every[(every >= lower) & (every < upper)])
    inside.setflags(write=False)
    return np.asarray(inside)


def _in_octaves(octaves: range, number: int) -> Floats:
    """So many even cuts of every octave."""
    return np.asarray((2.0 ** np.array(octaves)[:, None] * (1 + np.arange(number) / number)).ravel())


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
    asked = sum(_most_units(subject, n == 0, protection) for n, subject in enumerate(about))
    asked += sum(question.units for question in _table_questions(design))
    return asked + max(_RESERVE, float(_TAIL_QUESTIONS * sum(subject.is_numeric for subject in about)))


def most_answers(design: Design) -> list[tuple[float, int]]:
    """Units and coordinates of every question that a survey may ask: what the noise is certified for."""
    found = [(question.units, len(question.ranges)) for question in _table_questions(design)]
    protection = design.schema.dataset.protection
    for number, subject in enumerate(subjects(design)):
        if subject.is_numeric:
            units = _units_of_a_number(number == 0)
            found += [(units, 1)] * math.ceil(_most_units(subject, number == 0, protection) / units)
            found += [(max(_RESERVE / _TAIL_QUESTIONS, 1.0), 1)] * _TAIL_QUESTIONS  # all of the reserve, in any column
        else:
            question = _levels_question(number, subject, protection)
            found += [(question.units, len(question.ranges)), (_RESERVE, len(question.ranges))]
    return found


def surveying(design: Design) -> Asking:
    """Ask, and return what the answers say. The same answers give the same questions and the same survey."""
    everything, protection = subjects(design), design.schema.dataset.protection
    of_columns, *of_rows = _table_questions(design)
    answer = yield of_columns
    number = design.schema.dataset.number
    missing = tuple(map(_short, answer.counts[: len(design.table_columns)].tolist()))
    total = _short(max(float(answer.counts[-1]), 1.0)) if number is None else float(number)
    complete, rows, light = total, Rows(total, 0.0), False
    mean_weight = mean_rows = long_rows = 1.0
    for question in of_rows:
        told = yield question
        if question.subject is not None:
            mean_rows, long_rows = _rows_of_units(told)
        elif question.ranges[0][0] == len(design.table_columns):
            complete = _short(float(told.counts[0]))
            rows = counted_rows(design, complete, told.stddev)
        else:
            mean_weight, light = _mean_weight(design, float(told.counts[0]), told.stddev, rows)
    total = max(total, rows.number)
    places: list[Place] = []
    spikes: list[int] = []
    rare: dict[int, Answer] = {}
    for number, subject in enumerate(everything):
        if not subject.is_numeric:
            question = _levels_question(number, subject, protection)
            told = yield question
            place = _place_of_levels(subject, [told], rows, _FEW_OF_LEVELS if number else _FEW_OF_OUTCOME)
            if number == 0 and design.schema.dataset.unit_order is not None:
                place = _of_rows(place, mean_rows)
            places.append(place)
            if number and min(places[-1].shares) < _RARE * places[-1].stddev:
                rare[number] = told
        elif number == 0 and design.family.coding == "count":
            places.append((yield from _place_of_counts(number, subject, rows)))
        else:
            place, alone = yield from _place_of_numbers(number, subject, rows)
            places.append(place)
            spikes += [number] * alone
    sharper = _sharper(len(spikes), [everything[number] for number in rare], protection)
    if sharper < _WORTHWHILE * _SHARPER_LEVELS:
        rare, sharper = {}, _sharper(len(spikes), [], protection)
    for number in spikes:
        places[number] = yield from _place_of_others(number, everything[number], places[number], rows, sharper)
    for number, told in rare.items():
        again = yield replace(_levels_question(number, everything[number], protection), sharper=sharper)
        places[number] = _place_of_levels(everything[number], [told, again], rows, _FEW_OF_LEVELS)
    problems = _problems(design, everything, places, missing, answer.stddev, complete, rows, total)
    if light:
        problems = (*problems, f"{design.weights}: nearly all weights are small beside its upper bound")
    stddev = _short(answer.stddev)
    return Survey(
        everything, tuple(places), missing, complete, stddev, problems, rows.number, total, mean_weight, mean_rows,
        long_rows,
    )  # fmt: skip


def _of_rows(place: Place, mean_rows: float) -> Place:
    """Shares of rows with an event that ends them, from shares of units that ever have it."""
    share = place.shares[1] / mean_rows
    return replace(place, shares=(_short(1 - share), _short(share)), stddev=_short(place.stddev / mean_rows))


def size_rungs() -> Floats:
    """How many rows a unit has, by cell: the middle of 1, 2, 3 to 4, 5 to 8, ..., and of all that are more."""
    return np.array([1.0, 2.0, *(0.75 * 2**power + 0.5 for power in range(2, _SIZES))])


def _rows_of_units(told: Answer) -> tuple[float, float]:
    """The mean number of rows of a unit, and of the unit that a row belongs to, by cells that are clearly not empty.

    A cell beyond three that are empty is taken for noise.
    """
    counts = np.where(told.counts > _CLEAR * told.stddev, told.counts, 0.0)
    empty = 0
    for cell, count in enumerate(counts.tolist()):
        empty = 0 if count else empty + 1
        if empty > 2 and counts[:cell].any():
            counts[cell:] = 0.0
    if not counts.any():
        return 1.0, 1.0
    mean, square = (float(counts @ size_rungs() ** power / counts.sum()) for power in (1, 2))
    return _short(mean), _short(square / mean)


def _mean_weight(design: Design, total: float, stddev: float, rows: Rows) -> tuple[float, bool]:
    """The mean weight of the rows that count, and whether it is so small that it was not seen."""
    assert design.weights is not None
    upper = design.schema.columns[design.weights].upper
    least = _QUITE_CLEAR * stddev
    return _short(upper * min(max(total, least) / rows.number, 1.0)), total < least


def counted_rows(design: Design, complete: float, stddev: float) -> Rows:
    """How many rows count, by their noisy number: all of them, where that may be."""
    number = design.schema.dataset.number
    if number is not None and (design.every_row_counts or complete > number - _CLEAR * stddev):
        return Rows(number, 0.0 if design.every_row_counts else stddev)
    return Rows(min(max(complete, _CLEAR * stddev, 1.0), math.inf if number is None else number), stddev)


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


def _levels_question(number: int, subject: Subject, protection: Protection) -> Question:
    """One of two levels tells the other; of more, a replaced row changes two counts, an added one changes one."""
    sharper = _SHARPER if number == 0 else _SHARPER_LEVELS
    if subject.cells == 2:
        return Question(number, ((1, 1),), _changed(subject, protection), sharper)
    return Question(number, tuple((n, n) for n in range(subject.cells)), _changed(subject, protection), sharper)


def _changed(subject: Subject, protection: Protection) -> int:
    """How many counts of levels a row changes."""
    return 1 if subject.cells == 2 else protection.cells_changed


def _sharper(spikes: int, rare: list[Subject], protection: Protection) -> float:
    """How much more sharply such columns are asked again: so that the reserve suffices, or as sharply as before."""
    asked = _TAIL_QUESTIONS * spikes + sum(_changed(subject, protection) for subject in rare)
    return max(math.floor(math.sqrt(_RESERVE / max(asked, 1)) * 1000) / 1000, 1.0)


def _most_units(subject: Subject, is_outcome: bool, protection: Protection) -> float:
    if not subject.is_numeric:
        return _levels_question(0 if is_outcome else 1, subject, protection).units
    assert isinstance(subject.source, Expression)
    wide = subject.source.upper - subject.source.lower > _VERY_WIDE
    asked = _SEARCHES + len(_RUNGS) + _MAGNITUDES * wide
    return max(asked * _units_of_a_number(is_outcome), len(_count_rungs(subject)))


def _units_of_a_number(is_outcome: bool) -> float:
    """Of one question for centre, scale or tails."""
    return _SHARPER_NUMBER**2 if is_outcome else 1.0


def _place_of_levels(subject: Subject, answers: list[Answer], rows: Rows, few: float) -> Place:
    """Shares of levels, from counts that were asked once or twice, by precision; of two levels one is counted, and the
    other is what is left of the rows.
    """
    precision = sum(answer.stddev**-2 for answer in answers)
    shares = np.asarray(sum(answer.counts / answer.stddev**2 for answer in answers)) / precision / rows.number
    variance = 1 / precision
    if subject.cells == 2:
        variance += (min(max(float(shares[0]), 0.0), 1.0) * rows.stddev) ** 2
        shares = np.array([1 - shares[0], shares[0]])
    stddev = math.sqrt(variance) / rows.number
    rest = float(1 - shares.max())
    varies = _may_hold(rest, stddev, few)
    return Place(0.0, 1.0, tuple(map(_short, shares.tolist())), _short(stddev), varies)


def _place_of_numbers(number: int, subject: Subject, rows: Rows) -> Generator[Question, Answer, tuple[Place, bool]]:
    """Centre and scale: of a normal column by Bayes' rule over a grid of both, then the scale with its tails.

    Also whether one value holds nearly all rows, so that nothing was seen of the others yet.
    """
    assert isinstance(subject.source, Expression)
    cuts = subject.thresholds
    lower, upper = subject.source.lower, subject.source.upper
    stddev = 1.0
    sharper = math.sqrt(_units_of_a_number(number == 0))
    if upper - lower > _VERY_WIDE:
        least, most = _OCTAVES.start, _OCTAVES.stop
        for _ in range(_MAGNITUDES):
            middle = (least + most) // 2
            told = yield replace(_within(number, cuts, 0.0, 2.0**middle), sharper=sharper)
            if told.counts[0] < _MAGNITUDE_SHARE * rows.number:
                least = middle
            else:
                most = middle
        reach = _MARGIN * max(2.0**most, lower, -upper)  # so that it holds some of the declared range
        lower, upper = max(lower, -reach), min(upper, reach)
        search = NormalColumn(lower, upper, _FINER_HALVINGS)
    else:
        search = NormalColumn(lower, upper)
    for _ in range(_SEARCHES):
        cut = int(np.clip(np.searchsorted(cuts, search.next_threshold()), 0, len(cuts) - 1))
        told = yield Question(number, ((0, cut),), 1, sharper)
        stddev = told.stddev / rows.number
        search.learn(float(cuts[cut]), float(told.counts[0]) / rows.number, stddev)
    centre, scale = search.found()
    beyond: list[float] = []
    at = int(np.clip(np.searchsorted(cuts, centre), 1, len(cuts) - 1))
    finest = max(search.finest, float(cuts[at] - cuts[at - 1]))
    narrow = scale < _NARROW * finest
    for rung in _RUNGS:
        told = yield replace(_beyond(number, cuts, centre, rung * scale), sharper=sharper)
        beyond.append(float(told.counts[0]) / rows.number)
        if narrow and beyond[0] < _SPIKE + _CLEAR * stddev:
            break
    alone = len(beyond) < len(_RUNGS) or beyond[-1] > _VERY_CLEAR * stddev
    full = scale if alone else _scale_with_tails(scale, beyond, stddev)
    may_vary = scale > _ONE_VALUE * finest
    return Place(_short(centre), _short(full), (), _short(stddev), may_vary or not alone), alone


def _place_of_others(
    number: int, subject: Subject, place: Place, rows: Rows, sharper: float
) -> Generator[Question, Answer, Place]:
    """The scale of a column where one value may hold nearly all: how many others there are, and how far."""
    assert isinstance(subject.source, Expression)
    cuts, width = subject.thresholds, subject.source.upper - subject.source.lower
    others = Others(place.scale, width)
    distance, near, stddev = place.scale, [], 1.0
    for position in range(_TAIL_QUESTIONS):
        told = yield replace(_beyond(number, cuts, place.centre, distance), sharper=sharper)
        stddev, beyond = told.stddev / rows.number, float(told.counts[0]) / rows.number
        others.learn(distance, beyond, stddev)
        if position < _ASKED_AGAIN:  # much hangs on whether there are any
            near.append(beyond)
        if position + 1 >= _ASKED_AGAIN:
            distance = others.median_distance()
    scale, doubt = others.found()
    share, error = sum(near) / len(near), stddev / math.sqrt(len(near))
    varies = place.varies or _may_hold(share, error, _FEW, _QUITE_CLEAR)
    if share <= _CLEAR * error:
        doubt = max(doubt, _MOST_DOUBT)
    return Place(place.centre, _short(scale), (), _short(stddev), varies, _short(doubt))


def _within(number: int, cuts: Floats, centre: float, distance: float) -> Question:
    """How many rows lie within a distance of a centre, by whole cells and one more on each side."""
    first = int(np.searchsorted(cuts, centre - distance, side="left")) - 1
    last = int(np.searchsorted(cuts, centre + distance, side="left")) + 1
    return Question(number, ((max(first, 0), min(last, len(cuts))),), 1)


def _beyond(number: int, cuts: Floats, centre: float, distance: float) -> Question:
    """How many rows do not lie within a distance of a centre: what few rows are is asked, not what is left of them."""
    ((first, last),) = _within(number, cuts, centre, distance).ranges
    return Question(number, ((last + 1, first - 1),), 1)


def _scale_with_tails(scale: float, beyond: list[float], stddev: float) -> float:
    """Root mean square distance from the centre: the integral of P(beyond d) over d^2.

    The logarithm of the share is linear in d^2 between rungs, as nearly of a normal column. Where noise drowns even the
    first rung, the scale that was searched for stays.
    """
    if beyond[0] <= _CLEAR * stddev:
        return scale
    total, before, last = 0.0, 1.0, 0.0
    for rung, share in zip(_RUNGS, beyond, strict=True):
        clear = (_VERY_CLEAR if rung >= _FAR else _CLEAR) * stddev
        now = min(share if share > clear else _TINY, before)
        total += (rung**2 - last) * (now if before <= now * (1 + _TINY) else (before - now) / math.log(before / now))
        before, last = now, rung**2
        if now <= _TINY:
            break
    return scale * math.sqrt(max(total, _TINY))


def _count_rungs(subject: Subject) -> tuple[int, ...]:
    """0, 1, 2, 4, ... below the bound of a count."""
    assert isinstance(subject.source, Expression)
    upper = max(subject.source.upper, 1.0)
    return (0, *(2**power for power in range(math.ceil(math.log2(upper)))))


def _place_of_counts(number: int, subject: Subject, rows: Rows) -> Generator[Question, Answer, Place]:
    """The mean count, as the sum of P(y > c): its logarithm is where a look at no effects stands."""
    cuts = subject.thresholds
    beyond, stddev = [], 1.0
    rungs = _count_rungs(subject)
    for rung in rungs:
        cut = int(np.searchsorted(cuts, rung))
        told = yield Question(number, ((cut + 1, len(cuts)),), 1)
        stddev = told.stddev / rows.number
        beyond.append(float(told.counts[0]) / rows.number)
    mean, before = 0.0, 1.0
    for position, rung in enumerate(rungs):
        share = beyond[position] if beyond[position] > _CLEAR * stddev else 0.0
        share = min(share, before)
        following = rungs[position + 1] if position + 1 < len(rungs) else 2 * max(rung, 1)
        after = beyond[position + 1] if position + 1 < len(rungs) else 0.0
        after = min(after if after > _CLEAR * stddev else 0.0, share)
        mean += (following - rung) * (share if following - rung == 1 else (share + after) / 2)
        before = share
    mean = max(mean, _CLEAR * stddev, 1e-2)
    varies = _may_hold(beyond[0], stddev, _FEW)
    return Place(_short(mean), _short(math.sqrt(mean)), (), _short(stddev), varies)


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
        if not _may_hold(1 - count / every, stddev / every, _UNREADABLE, _QUITE_CLEAR):
            found.append(f"{column.name}: nearly no cell holds a value that the schema can read")
    if found:
        return tuple(found)
    if not design.counted_is_public and not _may_hold(complete / every, rows.stddev / every, _FEW_COUNT, _QUITE_CLEAR):
        reason = "" if design.where is None else f", or is outside of {design.where.text}"
        return (f"the table: nearly every row lacks a value{reason}",)
    found += [
        f"{subject.name}: nearly all rows have one value"
        for subject, place in zip(everything, places, strict=True)
        if not place.varies
    ]
    return tuple(found)


def _may_hold(share: float, stddev: float, few: float, clear: float = _CLEAR) -> bool:
    """Whether a noisy share of rows is clearly some, or may be more than a few; a negative one is noise."""
    return share > clear * stddev or max(share, 0.0) + _CLEAR * stddev > few


def _short(number: float) -> float:
    """Six digits: enough for a coordinate, and the same on every machine."""
    return float(f"{number:.6g}")
