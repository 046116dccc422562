"""Asking where a column lives: the questions to ask of a subject, one after the other, and the place that answers give.

Of a numeric column it is asked how many rows lie below chosen thresholds until its centre and scale are known to a
fraction of the scale, whatever the declared bounds; then how many lie near the centre, rung by rung, which tells the
tails. Where one value holds nearly all rows, it is asked more sharply how far half of the others are. Of a column of
levels it is asked how many rows each level has.

Guarantee: whatever the answers, no more is asked of a subject than ``most_units`` says, nor of all of them beyond that
than ``reserve_of`` says.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpglm.expressions import Expression
from dpglm.looks.hypotheses import Magnitude, NormalColumn, Others
from dpglm.looks.questions import CLEAR, OCTAVES, VERY_WIDE, Answer, Place, Question, Rows, Subject, may_hold, short
from dpglm.protection import Protection

Floats = npt.NDArray[np.float64]

# Questions; room beyond what they find; octave below which so many rows are zero.
_MAGNITUDES, _MARGIN, _NEAR_ZERO = 7, 4.0, -6
_SEARCHES = 12  # questions for centre and scale
# Where noise drowns the tails, most of the questions that they would get go on with the search; then it takes what it
# may of the reserve, as long as the logarithm of a scale is in doubt by so much.
_SEARCHES_IF_DROWNED, _DOUBTFUL = 17, 0.3
_HOPELESS = 0.5  # noise of a share of rows in which no number of questions that there is would find a column
_FINER_HALVINGS, _FINEST_HALVINGS = 15, 16  # of a range that is very wide
_RUNGS = (1.25, 2.0, 3.0, 5.0, 8.0, 32.0, 128.0, 1024.0)  # distances from the centre, in scales
_FAR = 8.0  # from there on a rung must be seen more clearly: its weight is its distance squared
_QUITE_CLEAR, _VERY_CLEAR = 3.0, 3.5  # standard deviations
# Where one value seems to hold nearly all rows: a scale near the finest that is searched, and few rows off the centre.
_NARROW, _ONE_VALUE, _SPIKE = 4.0, 2.0, 0.5
# Of such columns, and of rare levels, more is asked with less noise: units set aside for all, and questions to each.
_RESERVE, _TAIL_QUESTIONS, _ASKED_AGAIN = 120.0, 9, 2
_RARE, _WORTHWHILE = 6.0, 1.5  # of a level that is counted again: standard deviations; how much more sharply
_NOT_SEEN = 1.5  # doubt about a scale of which nothing was seen
# How much more sharply an outcome's levels are counted, or its numbers, and levels of predictors.
_SHARPER, _SHARPER_NUMBER, _SHARPER_LEVELS = 4.0, 2.0, 2.0
# Shares of rows that vary below which they are too few (a rare level is no mistake).
_FEW, _FEW_OF_OUTCOME, _FEW_OF_LEVELS = 0.03, 0.004, 0.001
_TINY = 1e-6


def places_of(
    subjects: Sequence[Subject], is_count: bool, protection: Protection, rows: Rows
) -> Generator[Question, Answer, list[Place]]:
    """Where every subject lives; the first is the outcome, a count or not."""
    places: list[Place] = []
    searches: dict[int, Search] = {}
    spikes: list[int] = []
    rare: dict[int, Answer] = {}
    for number, subject in enumerate(subjects):
        if not subject.is_numeric:
            told = yield _levels_question(number, subject, protection)
            places.append(_place_of_levels(subject, [told], rows, _FEW_OF_LEVELS if number else _FEW_OF_OUTCOME))
            if number and min(places[-1].shares) < _RARE * places[-1].stddev:
                rare[number] = told
        elif is_count and number == 0:
            places.append((yield from _place_of_counts(number, subject, rows)))
        else:
            searches[number] = yield from _searched(number, subject, rows)
            place, alone = yield from _place_of_numbers(searches[number], rows)
            places.append(place)
            spikes += [number] * alone
    left = reserve_of(subjects)
    doubtful = {number: each for number, each in searches.items() if number not in spikes and each.is_doubtful}
    tails = {number: places[number].scale / each.hypotheses.found()[1] for number, each in doubtful.items()}
    most = min(left / 2, left - _TAIL_QUESTIONS * len(spikes)) if spikes or rare else left
    left -= yield from _searched_on(list(doubtful.values()), rows, most)
    for number, search in doubtful.items():
        places[number] = _as_searched(search, places[number], tails[number])
    sharper = _sharper(left, len(spikes), [subjects[number] for number in rare], protection)
    if sharper < _WORTHWHILE * _SHARPER_LEVELS:
        rare, sharper = {}, _sharper(left, len(spikes), [], protection)
    for number in spikes:
        places[number] = yield from _place_of_others(number, subjects[number], places[number], rows, sharper)
    for number, told in rare.items():
        again = yield replace(_levels_question(number, subjects[number], protection), sharper=sharper)
        places[number] = _place_of_levels(subjects[number], [told, again], rows, _FEW_OF_LEVELS)
    return places


def reserve_of(subjects: Sequence[Subject]) -> float:
    """Units set aside for what turns out to be hard: enough for the tails of all."""
    return max(_RESERVE, float(_TAIL_QUESTIONS * sum(subject.is_numeric for subject in subjects)))


def most_units(number: int, subject: Subject, protection: Protection) -> float:
    """The most that is asked of a subject, the reserve aside."""
    if not subject.is_numeric:
        return _levels_question(number, subject, protection).units
    assert isinstance(subject.source, Expression)
    wide = subject.source.upper - subject.source.lower > VERY_WIDE
    asked = _SEARCHES + len(_RUNGS) + _MAGNITUDES * wide
    return max(asked * _units_of_a_number(number), len(_count_rungs(subject)))


def most_answers(number: int, subject: Subject, protection: Protection, reserve: float) -> list[tuple[float, int]]:
    """Units and coordinates of every question that may be asked of a subject, all of the reserve among them.

    Of those that cost so much or more at least as many as may be asked: an outcome that is a count is asked about every
    doubling of its bound, however many there are.
    """
    if not subject.is_numeric:
        question = _levels_question(number, subject, protection)
        return [(question.units, len(question.ranges)), (reserve, len(question.ranges))]
    units = _units_of_a_number(number)
    asked = max(math.ceil(most_units(number, subject, protection) / units), len(_count_rungs(subject)))
    found = [(units, 1)] * asked
    found += [(units, 1)] * int(reserve / units)
    return found + [(max(reserve / _TAIL_QUESTIONS, 1.0), 1)] * _TAIL_QUESTIONS


class Search(NamedTuple):
    """A search for a numeric column's centre and scale, and how sharply it asks."""

    number: int
    cuts: Floats
    hypotheses: NormalColumn
    sharper: float
    at_zero: bool = False  # more than half of the rows, in a range that is very wide

    def ask(self, rows: Rows) -> Generator[Question, Answer, None]:
        """One more question, the one that tells most."""
        cut = int(np.clip(np.searchsorted(self.cuts, self.hypotheses.next_threshold()), 0, len(self.cuts) - 1))
        told = yield Question(self.number, ((0, cut),), 1, self.sharper)
        share, stddev = float(told.counts[0]) / rows.number, told.stddev / rows.number
        self.hypotheses.learn(float(self.cuts[cut]), share, stddev)

    @property
    def is_doubtful(self) -> bool:
        """Whether the scale is hardly known, because the noise is large or the range very wide."""
        return self.hypotheses.doubt > _DOUBTFUL

    @property
    def may_end(self) -> bool:
        """Whether more questions would lead anywhere."""
        return self.hypotheses.stddev < _HOPELESS


def _units_of_a_number(number: int) -> float:
    """Of one question for centre, scale or tails; the outcome's are sharper."""
    return 1.0 if number else _SHARPER_NUMBER**2


def _levels_question(number: int, subject: Subject, protection: Protection) -> Question:
    """One of two levels tells the other; of more, a replaced row changes two counts, an added one changes one."""
    sharper = _SHARPER_LEVELS if number else _SHARPER
    if subject.cells == 2:
        return Question(number, ((1, 1),), _changed(subject, protection), sharper)
    return Question(number, tuple((n, n) for n in range(subject.cells)), _changed(subject, protection), sharper)


def _changed(subject: Subject, protection: Protection) -> int:
    """How many counts of levels a row changes."""
    return 1 if subject.cells == 2 else protection.cells_changed


def _sharper(left: float, spikes: int, rare: list[Subject], protection: Protection) -> float:
    """How much more sharply such columns are asked again: so that what is left of the reserve suffices, or as sharply
    as before.
    """
    asked = _TAIL_QUESTIONS * spikes + sum(_changed(subject, protection) for subject in rare)
    return max(math.floor(math.sqrt(left / max(asked, 1)) * 1000) / 1000, 1.0)


def _searched(number: int, subject: Subject, rows: Rows) -> Generator[Question, Answer, Search]:
    """Centre and scale of a numeric column, by Bayes' rule over a grid of both.

    Where noise would drown the tails, most of the questions that they would get go into the search.
    """
    search = yield from _begun(number, subject, rows)
    asked = 0
    while asked < (_SEARCHES_IF_DROWNED if search.hypotheses.drowned else _SEARCHES):
        yield from search.ask(rows)
        asked += 1
    return search


def _searched_on(searches: Sequence[Search], rows: Rows, most: float) -> Generator[Question, Answer, float]:
    """More questions, to whichever column is most in doubt, until none is or so many units are spent: how many were."""
    spent = 0.0
    while True:
        able = [search for search in searches if search.may_end and spent + search.sharper**2 <= most]
        doubtful = [search for search in able if search.is_doubtful]
        if not doubtful:
            return spent
        search = max(doubtful, key=lambda search: search.hypotheses.doubt)
        yield from search.ask(rows)
        spent += search.sharper**2


def _as_searched(search: Search, place: Place, tails: float) -> Place:
    """The place where all questions of a search have led, its scale so many times as large with its tails."""
    centre, scale = search.hypotheses.found()
    doubt = search.hypotheses.doubt if search.is_doubtful else 0.0
    return replace(place, centre=short(centre), scale=short(scale * tails), doubt=short(doubt))


def _begun(number: int, subject: Subject, rows: Rows) -> Generator[Question, Answer, Search]:
    """A search of the declared range, or of the order of magnitude that values have in one that is very wide."""
    assert isinstance(subject.source, Expression)
    cuts, sharper = subject.thresholds, math.sqrt(_units_of_a_number(number))
    lower, upper = subject.source.lower, subject.source.upper
    if upper - lower <= VERY_WIDE:
        return Search(number, cuts, NormalColumn(lower, upper), sharper)
    magnitude = Magnitude(OCTAVES)
    for _ in range(_MAGNITUDES):
        octave = magnitude.middle
        told = yield replace(_within(number, cuts, 0.0, 2.0**octave), sharper=sharper)
        magnitude.learn(octave, float(told.counts[0]) / rows.number, told.stddev / rows.number)
    reach = _MARGIN * max(2.0**magnitude.largest, lower, -upper)  # so that it holds some of the declared range
    halvings = min(_FINER_HALVINGS + round(magnitude.doubt / 2), _FINEST_HALVINGS)
    hypotheses = NormalColumn(max(lower, -reach), min(upper, reach), halvings)
    return Search(number, cuts, hypotheses, sharper, magnitude.largest < _NEAR_ZERO)


def _place_of_numbers(search: Search, rows: Rows) -> Generator[Question, Answer, tuple[Place, bool]]:
    """Centre and scale as they were searched for, and the scale with its tails.

    Also whether one value holds nearly all rows, so that nothing was seen of the others yet.
    """
    number, cuts, hypotheses, sharper, at_zero = search
    centre, scale = hypotheses.found()
    stddev = 1.0
    beyond: list[float] = []
    at = int(np.clip(np.searchsorted(cuts, centre), 1, len(cuts) - 1))
    finest = max(hypotheses.finest, float(cuts[at] - cuts[at - 1]))
    narrow, few = scale < _NARROW * finest, False
    drowned = hypotheses.drowned
    for rung in _RUNGS[: _SEARCHES - _SEARCHES_IF_DROWNED] if drowned else _RUNGS:
        told = yield replace(_beyond(number, cuts, centre, rung * scale), sharper=sharper)
        stddev = told.stddev / rows.number
        beyond.append(float(told.counts[0]) / rows.number)
        few = narrow and beyond[0] < _SPIKE + CLEAR * stddev
        if few:
            break
        if drowned:
            hypotheses.learn_beyond(centre, rung * scale, beyond[-1], stddev)
    alone = few or (at_zero if drowned else beyond[-1] > _VERY_CLEAR * stddev)
    full = scale if alone or drowned else _scale_with_tails(scale, beyond, stddev)
    varies = scale > _ONE_VALUE * finest or not alone
    place = Place(short(centre), short(full), (), short(stddev), varies)
    return (_as_searched(search, place, 1.0) if drowned and not alone else place), alone


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
    varies = place.varies or may_hold(share, error, _FEW, _QUITE_CLEAR)
    if share <= CLEAR * error:
        doubt = max(doubt, _NOT_SEEN)
    return Place(place.centre, short(scale), (), short(stddev), varies, short(doubt))


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
    if beyond[0] <= CLEAR * stddev:
        return scale
    total, before, last = 0.0, 1.0, 0.0
    for rung, share in zip(_RUNGS, beyond, strict=True):
        clear = (_VERY_CLEAR if rung >= _FAR else CLEAR) * stddev
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
        share = beyond[position] if beyond[position] > CLEAR * stddev else 0.0
        share = min(share, before)
        following = rungs[position + 1] if position + 1 < len(rungs) else 2 * max(rung, 1)
        after = beyond[position + 1] if position + 1 < len(rungs) else 0.0
        after = min(after if after > CLEAR * stddev else 0.0, share)
        mean += (following - rung) * (share if following - rung == 1 else (share + after) / 2)
        before = share
    mean = max(mean, CLEAR * stddev, 1e-2)
    varies = may_hold(beyond[0], stddev, _FEW)
    return Place(short(mean), short(math.sqrt(mean)), (), short(stddev), varies)


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
    varies = may_hold(rest, stddev, few)
    return Place(0.0, 1.0, tuple(map(short, shares.tolist())), short(stddev), varies)
