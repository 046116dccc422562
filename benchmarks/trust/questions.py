"""What a replaced row can do to the survey: to each answer, and to all of them, whatever the noisy answers say."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from dpglm.custodian.look_plan import LookPlan
from dpglm.custodian.passes import exact_sums
from dpglm.custodian.survey_counts import TableCounts, table_counts
from dpglm.custodian.tables import open_table
from dpglm.expressions import Expression
from dpglm.formula import Design
from dpglm.looks import places, survey
from dpglm.looks.questions import COUNT_BITS, VERY_WIDE, Question, answer_of
from dpglm.looks.survey import surveying

Answering = Callable[[Question], tuple[float, ...]]  # noisy counts, in rows


def counts_of(table: Any, design: Design) -> TableCounts:
    """The exact counts of a table, as a release takes them."""
    return exact_sums(open_table(table, design.table_columns), design, partial(table_counts, design=design))


def asked(design: Design, answering: Answering, stddev: float) -> list[Question]:
    """The questions of a survey whose noisy answers are these."""
    questions = []
    asking = surveying(design)
    question = next(asking)
    while True:
        questions.append(question)
        integers = tuple(round(count * 2**COUNT_BITS) for count in answering(question))
        try:
            question = asking.send(answer_of(question, integers, stddev))
        except StopIteration:
            return questions


def squared_change(question: Question, one: TableCounts, other: TableCounts) -> Fraction:
    """In rows."""
    moved = sum((a - b) ** 2 for a, b in zip(one.answers(question), other.answers(question), strict=True))
    return Fraction(moved, 4**COUNT_BITS)


def share_of_mu_squared(questions: list[Question], one: TableCounts, other: TableCounts, plan: LookPlan) -> Fraction:
    """By which share of the survey's mu^2 the two tables' answers are apart."""
    units = sum(Fraction(question.sharper) ** 2 * squared_change(question, one, other) for question in questions)
    return Fraction(units) / Fraction(plan.survey_stddev) ** 2 / Fraction(plan.survey_mu) ** 2


def most_units(design: Design) -> int:
    """What a survey may cost at most, in plain counts: the list of docs/looks_privacy.md, written out again."""
    columns = {column.name: column for column in design.table_columns}
    total, numeric = len(columns), 0
    added = design.schema.dataset.number is None
    if added or design.where is not None or any(column.fill is None for column in columns.values()):
        total += added + int(survey.SHARPER_COUNTED**2)  # all rows, and those that count
    total += 0 if design.weights is None else int(survey.SHARPER_COUNTED**2)
    if design.schema.dataset.unit_column is not None:  # how many rows units have
        total += (1 if added else 2) * int(survey._SHARPER_SIZES**2)
    for number, subject in enumerate(survey.subjects(design)):
        if not subject.is_numeric:
            sharper = places._SHARPER if number == 0 else places._SHARPER_LEVELS
            total += int((1 if subject.cells == 2 or added else 2) * sharper**2)
            continue
        assert isinstance(subject.source, Expression)
        numeric += 1
        width = subject.source.upper - subject.source.lower
        searches = places._SEARCHES + len(places._RUNGS) + (places._MAGNITUDES if width > VERY_WIDE else 0)
        doublings = 0
        while 2**doublings < subject.source.upper:
            doublings += 1
        searches *= 1 if number else int(places._SHARPER_NUMBER**2)
        total += max(searches, doublings + 1)
    return total + max(int(places._RESERVE), places._TAIL_QUESTIONS * numeric)
