"""Planted bugs of the survey: its counts, its costs, what its answers lead to, and its early end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpglm.custodian import by_looks, look_plan
from dpglm.custodian.charge import Account
from dpglm.errors import SurveyError
from dpglm.looks import places, questions, survey
from trust.planting import Replacement, planted

COUNTS, ADD_NOISE, ANSWER, SURVEYED = by_looks.table_counts, by_looks.add_noise, by_looks.answer_of, by_looks._surveyed
LEVELS, TABLE, MOST_UNITS, SPEND = (
    places._levels_question,
    survey._table_questions,
    places.most_units,
    Account.spend,
)
STANDARD, PLAN, EXACT = by_looks.standard_design, by_looks.plan_looks, by_looks.exact_sums


@planted("the survey's sharper answers cost as much as plain ones", where="survey")
def _() -> list[Replacement]:
    return [(questions.Question, "units", property(lambda question: question.squared_change))]


@planted("levels counted as if a replaced row changed one of them", where="survey")
def _() -> list[Replacement]:
    return [(places, "_levels_question", lambda *given: replace(LEVELS(*given), squared_change=1))]


@planted("missing cells counted as if a row could miss one", where="survey")
def _() -> list[Replacement]:
    def cheap(design: Any) -> Any:
        first, *more = TABLE(design)
        return [replace(first, squared_change=1), *more]

    return [(survey, "_table_questions", cheap)]


@planted("how many rows count, told exactly", where="survey")
def _() -> list[Replacement]:
    def use(seen: list[Any]) -> list[Replacement]:
        def exact(design: Any, complete: float, stddev: float) -> Any:
            counted = float(seen[0].missing[-3]) / 2**questions.COUNT_BITS if seen else complete
            return questions.Rows(max(counted, 1.0), stddev)

        return [(survey, "counted_rows", exact)]

    return with_exact_counts(use)


@planted("rows that do not count are left out of the missing cells by column, and told as their sum", where="survey")
def _() -> list[Replacement]:
    def summed(batch: Any, design: Any) -> Any:
        found = COUNTS(batch, design)
        cells = found.missing[:-3]
        return replace(found, missing=np.append(cells + cells.sum(), found.missing[-3:]))

    return [(by_looks, "table_counts", summed)]


@planted("more questions than the survey's noise was made for", where="survey")
def _() -> list[Replacement]:
    return [(places, "most_units", lambda *given: max(MOST_UNITS(*given) - 8, 1))]


@planted("an answer asked again while it is negative", where="survey")
def _() -> list[Replacement]:
    def plausible(values: Any, stddevs: Any, source: Any) -> Any:
        for _ in range(20):
            found = ADD_NOISE(values, stddevs, source)
            if len(values) > 1 or found[0] >= 0:
                break
        return found

    return [(by_looks, "add_noise", plausible)]


def with_exact_counts(use: Any) -> list[Replacement]:
    """``use`` gets the exact counts, which only noise should see."""
    seen: list[Any] = []

    def surveyed(counts: Any, *arguments: Any) -> Any:
        seen[:] = [counts]
        return SURVEYED(counts, *arguments)

    return [(by_looks, "_surveyed", surveyed), *use(seen)]


@planted("the next question follows exact answers", where="survey")
def _() -> list[Replacement]:
    def use(seen: list[Any]) -> list[Replacement]:
        def answer(question: Any, integers: Any, stddev: float) -> Any:
            return ANSWER(question, seen[0].answers(question), stddev)

        return [(by_looks, "answer_of", answer)]

    return with_exact_counts(use)


@planted("columns standardised by their exact means", where="survey")
def _() -> list[Replacement]:
    def use(seen: list[Any]) -> list[Replacement]:
        def exact(design: Any, found: Any) -> Any:
            counts = seen[0].cells if seen else [np.ones(1)] * len(found.places)
            places = tuple(
                replace(place, centre=place.centre + place.scale * float(np.average(np.arange(len(c)), weights=c)))
                for place, c in zip(found.places, counts, strict=True)
            )
            return STANDARD(design, replace(found, places=places))

        return [(by_looks, "standard_design", exact)]

    return with_exact_counts(use)


@planted("a release stopped by exact counts", where="survey")
def _() -> list[Replacement]:
    def stopping(counts: Any, *arguments: Any) -> Any:
        record, alone = SURVEYED(counts, *arguments)
        if counts.missing[:-3].any():
            raise SurveyError(alone)
        return record, alone

    return [(by_looks, "_surveyed", stopping)]


@planted("a histogram that smooths each row over three cells", where="survey")
def _() -> list[Replacement]:
    def smooth(batch: Any, design: Any) -> Any:
        found = COUNTS(batch, design)
        cells = tuple(c + np.append(c[1:], 0) + np.append(0, c[:-1]) for c in found.cells)
        return replace(found, cells=cells)

    return [(by_looks, "table_counts", smooth)]


@planted("missing cells counted by the batch they are in", where="survey")
def _() -> list[Replacement]:
    def whole(batch: Any, design: Any) -> Any:
        found = COUNTS(batch, design)
        return replace(found, missing=np.where(found.missing > 0, batch.num_rows * 2**questions.COUNT_BITS, 0))

    return [(by_looks, "table_counts", whole)]


@planted("counts in steps of whole rows, their noise in finer ones", where="survey")
def _() -> list[Replacement]:
    return [(by_looks, "add_noise", lambda values, stddevs, source: tuple(
        value + noise // 2**10 for value, noise in zip(values, ADD_NOISE([0] * len(values), stddevs, source),
        strict=True)) if len(set(stddevs)) == 1 else ADD_NOISE(values, stddevs, source))]  # fmt: skip


@planted("a survey that is not charged", where="survey")
def _() -> list[Replacement]:
    def unless_survey(self: Account, mus: Any, privacy: Any, parts: Any) -> None:
        if list(parts) != ["survey"]:
            SPEND(self, mus, privacy, parts)

    return [(Account, "spend", unless_survey)]


@planted("a survey on top of looks that use the whole budget", where="survey")
def _() -> list[Replacement]:
    def twice(design: Any, epsilon: Any, delta: Any, survey_is_known: bool = False) -> Any:
        whole = PLAN(design, epsilon, delta, survey_is_known=True)
        return replace(PLAN(design, epsilon, delta, survey_is_known), looks=whole.looks)

    return [(by_looks, "plan_looks", twice)]


@planted("what columns of nearly one value need is not set aside", where="survey")
def _() -> list[Replacement]:
    real = look_plan.units_of
    return [(look_plan, "units_of", lambda design: max(real(design) - 120, 1.0))]
