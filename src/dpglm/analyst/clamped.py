"""Do many values pile up at a declared bound, where what lies beyond it was clamped? By the survey's noisy answers.

A survey asks how many rows lie beyond some thresholds of a number. Towards a bound a column has fewer values, or not
many more; one that was clamped has a heap there. So the rows beyond the last threshold that was asked are compared with
those of a stretch before it, width by width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dpglm.expressions import Expression
from dpglm.looks.questions import Question, Subject, answer_of
from dpglm.looks.survey import SurveyRecord

_CLEARLY = 4.0  # standard deviations by which a heap must be seen: 30 comparisons a bound, one in a thousand by chance
# How many times as dense a column may be at its end as in the stretch before: that begins beyond its centre, or not.
_DENSER, _MUCH_DENSER = 3.0, 6.0
_LEAST_SHARE = 0.05  # of rows, that are a heap
_TOGETHER, _REACH = 0.1, 1.5  # scales: between thresholds that count as one; behind a centre, where a stretch may begin
_NEAR = 0.6  # scales from a bound within which a heap must lie: another hump is none
_WHOLE_RANGE = 1.5  # of a column with whole bounds, from where on its values may be whole, too


@dataclass(frozen=True)
class Heap:
    """About this share of the rows lies at a bound of a column, more than what leads up to it."""

    name: str
    side: str
    bound: float
    share: float


class _Beyond(NamedTuple):
    """The share of rows beyond a threshold, on the way from a column's centre to its bound.

    ``whole`` is the first whole number there. Of several thresholds together, the first and the mean.
    """

    threshold: float
    share: float
    variance: float
    mean: float
    whole: int


def heaps(record: SurveyRecord) -> list[Heap]:
    """The bounds of a release's numbers at which values pile up.

    Not at a bound of 0, nor of 1 where the other is 0: nothing is less than nothing, or more than all or yes.
    """
    found = []
    for number, (subject, place) in enumerate(zip(record.survey.subjects, record.survey.places, strict=True)):
        source = subject.source
        if not isinstance(source, Expression) or not place.seen:
            continue
        answers = [(question, integers) for question, integers in record.asked if question.subject == number]
        may_be_whole = source.upper.is_integer() and source.lower.is_integer()
        whole = may_be_whole and source.upper - source.lower > _WHOLE_RANGE
        for side, bound, sign in (("upper", source.upper, 1.0), ("lower", source.lower, -1.0)):
            if bound == 0 or (source.lower, source.upper) == (0, 1):
                continue
            told = [_told(*answer, subject, record, sign) for answer in answers]
            behind = sign * place.centre - _REACH * place.scale
            ahead = [each for each in told if each is not None and behind < each.threshold <= sign * bound]
            least = max(sign * place.centre, sign * bound - _NEAR * place.scale)
            share = _heap(
                _pooled(ahead, _TOGETHER * place.scale, whole), sign * place.centre, least, sign * bound, whole
            )
            if share > 0:
                found.append(Heap(subject.name, side, bound, min(share, 1.0)))
    return found


def _told(
    question: Question, integers: tuple[int, ...], subject: Subject, record: SurveyRecord, sign: float
) -> _Beyond | None:
    """An answer as the share beyond one threshold, in the direction of a sign; None where it is of two, or of none."""
    (first, last), cuts = question.ranges[0], subject.thresholds
    if last < first:
        low, high = last, first  # all cells up to one, and all from another
    elif first == 0:
        low, high = last, subject.cells
    else:
        low, high = -1, first if last == subject.cells - 1 else subject.cells
    if (low >= 0) == (high < subject.cells) or low >= len(cuts):
        return None
    answer, rows = answer_of(question, integers, record.stddev), record.survey.rows
    share, at = float(answer.counts[0]) / rows, sign * float(cuts[high - 1] if low < 0 else cuts[low])
    whole = math.floor(at) + 1 if sign > 0 else math.ceil(at)  # a value at the threshold lies below it
    return _Beyond(at, share if (low < 0) == (sign > 0) else 1 - share, (answer.stddev / rows) ** 2, at, whole)


def _pooled(told: list[_Beyond], together: float, whole: bool) -> list[_Beyond]:
    """Answers at nearly one threshold as one, by precision; never across a whole number where values may be whole."""
    groups: list[list[_Beyond]] = []
    for each in sorted(told):
        first = groups[-1][0] if groups else None
        if first and each.threshold - first.threshold < together and not (whole and each.whole > first.whole):
            groups[-1].append(each)
        else:
            groups.append([each])
    found = []
    for group in groups:
        weights = np.array([1 / each.variance for each in group])
        share, mean = (float(weights @ [each[part] for each in group] / weights.sum()) for part in (1, 3))
        found.append(_Beyond(group[0].threshold, share, float(1 / weights.sum()), mean, group[0].whole))
    return found


def _heap(told: list[_Beyond], centre: float, least: float, bound: float, whole: bool) -> float:
    """The largest share of rows at a bound that is clearly more than the stretch before leads up to; else 0.

    It lies beyond ``least``.
    """
    found = 0.0
    for inner, outer in combinations(told, 2):
        before, after = outer.threshold - inner.mean, bound - outer.threshold
        if whole:
            before, after = min(before, outer.whole - inner.whole), max(after, bound - outer.whole + 1)
        if before <= 0 or outer.threshold < least:
            continue
        denser = _DENSER if inner.threshold >= centre else _MUCH_DENSER
        led_to = denser * after / before  # rows of the stretch before, that would be no heap
        share = outer.share - led_to * max(inner.share - outer.share, 0.0)
        stddev = math.sqrt((1 + led_to) ** 2 * outer.variance + led_to**2 * inner.variance)
        if share > max(_CLEARLY * stddev, _LEAST_SHARE):
            found = max(found, share)
    return found
