"""The survey: the same answers say the same, it never asks for more than it may, and it finds where columns live."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.errors import InputError, SurveyError
from dpglm.formula import Design, build_design
from dpglm.looks import places
from dpglm.looks.hypotheses import NormalColumn
from dpglm.looks.questions import COUNT_BITS, Question, answer_of, thresholds
from dpglm.looks.survey import Survey, most_answers, replayed, subjects, survey_rows, surveying, units_of
from dpglm.release_file import read_release, release_text
from seeded_noise import SeededNoise

ROWS = 20_000
COLUMNS: dict[str, Any] = {
    "x": {"type": "numeric", "lower": -5, "upper": 5},
    "z": {"type": "numeric", "lower": 0, "upper": 100},
    "g": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
    "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    "visits": {"type": "count", "upper": 60},
    "cost": {"type": "numeric", "lower": -1e9, "upper": 1e9},
}
FORMULAS = {
    "logistic": "sick ~ x * g + log(z + 1)",
    "poisson": "visits ~ x + z + offset(log(z + 2))",
    "linear": "cost ~ x + g:z",
}


def design_of(family: str, rows: int = ROWS, columns: dict[str, Any] = COLUMNS, formula: str | None = None) -> Design:
    schema = dpglm.Schema.from_dict({"dataset": {"name": "t", "rows": rows, "unit": "one person"}, "columns": columns})
    return build_design(formula or FORMULAS[family], schema, family)


# Whatever the answers


def asked(design: Design, answer: Callable[[Question], tuple[int, ...]], stddev: float, rows: int = ROWS):
    """All questions of a survey whose answers are anything, and what it says."""
    asking, questions = surveying(design), []
    question = next(asking)
    while True:
        questions.append(question)
        try:
            question = asking.send(answer_of(question, answer(question), stddev))
        except StopIteration as end:
            return questions, end.value


def anything(seed: int) -> Callable[[Question], tuple[int, ...]]:
    """Answers from nowhere: shares at random, or all, or none, or far beyond what counts can be."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4)

    def answer(question: Question) -> tuple[int, ...]:
        size = len(question.ranges)
        shares = {
            0: rng.random(size), 1: np.round(rng.random(size)), 2: rng.normal(0, 5, size), 3: rng.random(size) ** 20,
        }[kind]  # fmt: skip
        return tuple(int(share * ROWS * 2**COUNT_BITS) for share in shares)

    return answer


@pytest.mark.parametrize("family", FORMULAS)
@pytest.mark.parametrize("seed", range(12))
def test_no_answers_lead_beyond_the_units_that_are_paid_for(family: str, seed: int) -> None:
    """And every question has the units and coordinates of one that its noise was certified for."""
    design = design_of(family)
    questions, survey = asked(design, anything(seed), 30.0)
    assert sum(question.units for question in questions) <= units_of(design) * (1 + 1e-12)
    allowed = most_answers(design)
    for question in questions:
        size = len(question.ranges)
        # As many units or more, in as many coordinates or more: the noise on the grid is no finer than certified.
        assert any(question.units <= units * (1 + 1e-9) and size <= most for units, most in allowed), question
    assert len(questions) <= len(allowed)
    for place in survey.places:
        assert math.isfinite(place.centre)
        assert 0 < place.scale < math.inf
        assert all(map(math.isfinite, place.shares))


def is_certified(questions: list[Question], design: Design) -> bool:
    """Whether of every cost and size at least as many questions are listed as are asked, so that the listed noise on
    the grid is as fine.
    """
    listed = most_answers(design)
    for size in {len(question.ranges) for question in questions}:
        units = sorted((q.units for q in questions if len(q.ranges) >= size), reverse=True)
        most = sorted((each for each, coordinates in listed if coordinates >= size), reverse=True)
        if len(units) > len(most) or any(a > b * (1 + 1e-12) for a, b in zip(units, most, strict=False)):
            return False
    return True


RESERVE: dict[str, Any] = {
    "sick": COLUMNS["sick"],
    "wild": {"type": "numeric", "lower": 0, "upper": 100},
    "wilder": {"type": "numeric", "lower": 0, "upper": 900},
    "flat": {"type": "numeric", "lower": -1, "upper": 10},
    "rare": {"type": "categorical", "levels": ["p", "q", "r"]},
}


def for_the_whole_reserve(design: Design, seed: int) -> Callable[[Question], tuple[int, ...]]:
    """Answers of a column of one value, of a level that nobody has, and of two columns that cannot be found."""
    rng, about = np.random.default_rng(seed), subjects(design)

    def answer(question: Question) -> tuple[int, ...]:
        shares, (first, last) = np.zeros(len(question.ranges)), question.ranges[0]
        if question.subject is None:
            shares += 1
        elif about[question.subject].name == "flat":
            shares += first <= 3000 <= last if first <= last else not last < 3000 < first
        elif about[question.subject].is_numeric and first <= last:
            shares += rng.normal(0.5, 0.5)
        return tuple(int(share * ROWS * 2**COUNT_BITS) for share in shares)

    return answer


def test_searches_spikes_and_rare_levels_share_one_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some answers lead to all three at once; if a spike's share forgot the searches', some would lead to too much."""
    design = design_of("logistic", columns=RESERVE, formula="sick ~ wild + wilder + flat + rare")
    names = [subject.name for subject in subjects(design)]

    def followed(noise: float, seed: int) -> tuple[tuple[bool, ...], float]:
        """Whether searches went on, a spike was asked about and a level again; and what all questions cost."""
        questions, _ = asked(design, for_the_whole_reserve(design, seed), noise * ROWS)
        assert is_certified(questions, design)
        named = [(names[q.subject], q.units) for q in questions if q.subject is not None]
        searched = sum(name.startswith("wild") for name, units in named if units == 1)
        again = sum(name == "rare" for name, _ in named) > 1
        took = (searched > 2 * 20, any(name == "flat" and units > 1 for name, units in named), again)
        return took, sum(question.units for question in questions)

    paths = [followed(noise, seed) for noise in (0.2, 0.3, 0.4) for seed in range(8)]
    assert (True, True, True) in [took for took, _ in paths]
    assert units_of(design) - 40 < max(units for _, units in paths) <= units_of(design)
    searched_on = places._searched_on

    def forgetting(*given: Any) -> Any:
        yield from searched_on(*given)
        return 0.0

    monkeypatch.setattr(places, "_searched_on", forgetting)
    assert max(followed(0.4, seed)[1] for seed in range(8)) > units_of(design)


def test_a_count_of_any_bound_is_asked_no_more_than_is_certified() -> None:
    """One question a doubling, hundreds of them; by their cost alone too few were listed."""
    columns = {"visits": {"type": "count", "upper": 1e150}, "x": COLUMNS["x"]}
    design = design_of("poisson", columns=columns, formula="visits ~ x")
    questions, _ = asked(design, anything(1), 30.0)
    assert sum(question.units for question in questions) <= units_of(design)
    assert is_certified(questions, design)


@pytest.mark.parametrize("family", FORMULAS)
def test_a_question_costs_what_one_row_can_change(family: str) -> None:
    """Ranges of one question are apart, so that a replaced row changes the counts of two of them, or of all columns."""
    design = design_of(family)
    questions, _ = asked(design, anything(1), 30.0)
    for question in questions:
        spans = sorted(question.ranges)
        assert all(first <= last for first, last in spans) or len(spans) == 1
        assert all(before[1] < after[0] for before, after in pairwise(spans))
        least = len(spans) if question.subject is None else min(len(spans), 2)
        assert question.squared_change >= least
        assert question.sharper >= 1


@pytest.mark.parametrize("family", FORMULAS)
def test_the_same_answers_lead_to_the_same_survey(family: str) -> None:
    design = design_of(family)
    first, second, other = (asked(design, anything(seed), 30.0) for seed in (4, 4, 7))
    assert first == second
    assert first != other


def test_thresholds_are_increasing_and_inside_the_bounds() -> None:
    for lower, upper in ((0.0, 1.0), (-3.5, 1e9), (-1e12, 1e12), (20.0, 90.0), (5.0, 5.0 + 1e-9)):
        cuts = thresholds(lower, upper)
        assert (np.diff(cuts) > 0).all()
        assert lower <= cuts[0]
        assert cuts[-1] < upper


# Of tables


def table(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    return pd.DataFrame(
        {
            "x": rng.normal(0.7, 0.5, rows),
            "z": rng.exponential(6, rows),
            "g": rng.choice(["p", "q", "r"], rows, p=[0.7, 0.25, 0.05]),
            "sick": rng.choice(["no", "yes"], rows, p=[0.8, 0.2]),
            "visits": rng.poisson(3, rows),
            "cost": rng.normal(4000, 300, rows),
        }
    )


def surveyed(design: Design, rows: pd.DataFrame, epsilon: float = 1.0, noise: Any = None) -> dpglm.Release:
    request = Request(design.formula, design.schema, design.family.name, epsilon, 1e-6)
    return build_release(rows, request, SeededNoise(5) if noise is None else noise)


@pytest.mark.parametrize("family", FORMULAS)
def test_a_stated_survey_is_what_its_answers_say(family: str) -> None:
    record = surveyed(design_of(family), table()).survey_record
    assert replayed(record) == record.survey
    (question, integers), *rest = record.asked
    moved = replace(record, asked=((question, tuple(n + 2**40 for n in integers)), *rest))
    assert replayed(moved) != record.survey


@pytest.mark.parametrize(
    ("bounds", "epsilon"), [((-1e150, 1e150), 1.0), ((0.0, 1e-151), 0.1), ((5.0, 5.0 + 2e-11), 0.1)]
)
def test_a_survey_of_bounds_at_the_limits_is_read_and_replayed_from_its_file(
    bounds: tuple[float, float], epsilon: float
) -> None:
    """Scales may be a thousandth of a column's width, or beyond it; a file holds scales between 1e-150 and 1e150."""
    lower, upper = bounds
    rows = table(2_000)
    rows["cost"] = lower + (upper / 2 - lower / 2) * rows["x"].clip(0, 2)
    columns = COLUMNS | {"cost": {"type": "numeric", "lower": lower, "upper": upper}}
    try:
        made = surveyed(design_of("linear", 2_000, columns, "cost ~ z"), rows, epsilon)
    except SurveyError as stopped:
        made = stopped.release
    record = read_release(release_text(made)).survey_record
    assert record == made.survey_record
    assert replayed(record) == record.survey


@pytest.mark.parametrize("change", [lambda asked: asked[:-1], lambda asked: asked[1:], lambda asked: asked[::-1]])
def test_answers_to_other_questions_are_refused(change: Callable[[Any], Any]) -> None:
    record = surveyed(design_of("logistic"), table()).survey_record
    with pytest.raises(InputError, match="asks what its answers do not lead to"):
        replayed(replace(record, asked=change(record.asked)))


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, rows: rng.normal(0.6, 0.1, rows),
    "skewed": lambda rng, rows: np.minimum(rng.lognormal(-2, 0.8, rows), 1.0),
    "uniform": lambda rng, rows: rng.uniform(0.2, 0.8, rows),
    "two values": lambda rng, rows: rng.choice([0.2, 0.7], rows),
    "zero-inflated": lambda rng, rows: np.where(rng.random(rows) < 0.4, 0.0, rng.uniform(0, 1, rows)),
}


@pytest.mark.parametrize("wide", [1, 300])
@pytest.mark.parametrize("shape", SHAPES)
def test_centre_and_scale_are_found_whatever_the_bounds(shape: str, wide: int) -> None:
    """At 20,000 rows and epsilon 1: the centre within half a standard deviation, the scale within a factor."""
    values = SHAPES[shape](np.random.default_rng(2), ROWS)
    columns = COLUMNS | {"x": {"type": "numeric", "lower": -wide, "upper": wide}}
    design = design_of("logistic", columns=columns, formula="sick ~ x")
    record = surveyed(design, table().assign(x=values)).survey_record
    place = record.survey.place_of(subjects(design)[1].source)
    # What is found is a centre of mass of most rows, so that a root mean square around it may be a little larger.
    assert abs(place.centre - values.mean()) < 0.75 * values.std()
    around = math.sqrt(float(np.mean((values - place.centre) ** 2)))
    assert 0.5 < place.scale / around < 2
    assert place.varies


@pytest.mark.parametrize("wide", [1, 300])
def test_a_column_of_one_value_for_nearly_all_rows_is_still_scaled(wide: int) -> None:
    rng = np.random.default_rng(4)
    values = np.where(rng.random(ROWS) < 0.93, 0.0, rng.uniform(0.3, 1.0, ROWS))
    columns = COLUMNS | {"x": {"type": "numeric", "lower": 0, "upper": wide}}
    design = design_of("logistic", columns=columns, formula="sick ~ x")
    place = surveyed(design, table().assign(x=values), epsilon=2.0).survey_record.survey.places[1]
    assert abs(place.centre) < 0.3 * values.std()
    assert 0.4 < place.scale / math.sqrt(float(np.mean(values**2))) < 2.5


def test_amounts_that_nearly_nobody_has_are_scaled_in_a_range_that_is_very_wide() -> None:
    """As capital gains: most are zero, and the search ends beside it. Of ten, by chance one may be missed."""
    columns = COLUMNS | {"x": {"type": "numeric", "lower": 0, "upper": 20_000}}
    design, found = design_of("logistic", columns=columns, formula="sick ~ x"), 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        gains = np.where(rng.random(ROWS) < 0.9, 0.0, rng.uniform(2_000, 15_000, ROWS))
        made = surveyed(design, table().assign(x=gains), epsilon=3.0, noise=SeededNoise(seed))
        found += 500 < made.survey_record.survey.places[1].scale < 20_000
    assert found >= 9


def test_levels_counts_and_missing_cells_are_counted() -> None:
    rows = table()
    rows.loc[: ROWS // 10, "x"] = np.nan
    design = design_of("poisson", formula="visits ~ x + g")
    release = surveyed(design, rows)
    survey, shown = release.survey_record.survey, release.survey
    assert survey.places[0].centre == pytest.approx(3.0, rel=0.15)
    shares = survey.places[2].shares
    np.testing.assert_allclose(shares, [0.7, 0.25, 0.05], atol=4.5 * survey.places[2].stddev)
    assert list(shown["column"]) == ["visits", "x", "g", "g", "g"]
    assert list(shown["level"])[2:] == ["p", "q", "r"]
    np.testing.assert_allclose(shown.loc[2:, "share"].astype(float), shares)
    missing = shown.loc[1, "missing"]
    assert abs(missing - 0.1) < 4.5 * shown.loc[1, "missing_noise"]
    assert abs(survey.complete / ROWS - 0.9) < 4.5 * survey.stddev / ROWS
    assert survey_rows(release.survey_record)[1]["scale"] == survey.places[1].scale


def test_without_noise_shares_are_exact() -> None:
    rows = table()
    design = design_of("logistic", formula="sick ~ g")
    survey: Survey = surveyed(design, rows, noise=FixedNoise()).survey_record.survey
    np.testing.assert_allclose(survey.places[1].shares, rows["g"].value_counts()[["p", "q", "r"]] / ROWS, rtol=1e-5)
    assert survey.missing == (0.0, 0.0)
    assert survey.complete == ROWS
    assert survey.problems == ()


@pytest.mark.parametrize("noise", [0.02, 0.07])
@pytest.mark.parametrize("shape", ["index", "year", "small"])
def test_where_no_bounds_are_declared_the_scale_is_that_of_the_rows(shape: str, noise: float) -> None:
    """Within a factor of 2.2, twenty times of twenty, also where a plain count is off by 7 % of the rows: of columns
    far from zero whose spread is a few steps of the thresholds, and of one near zero.
    """
    rng = np.random.default_rng(1)
    drawn = {"index": rng.normal(26, 4.5, ROWS), "year": rng.integers(1995, 2021, ROWS) + 0.0}
    values = drawn.get(shape, rng.normal(0.003, 0.001, ROWS))
    columns = {"x": {"type": "numeric"}, "sick": {**COLUMNS["sick"]}}
    design = design_of("logistic", columns=columns, formula="sick ~ x")
    (subject,) = (each for each in subjects(design) if each.name == "x")
    cells = np.bincount(np.searchsorted(subject.thresholds, values), minlength=subject.cells)

    def answer(question: Question) -> tuple[int, ...]:
        if question.subject != subjects(design).index(subject):
            count = np.full(len(question.ranges), ROWS / 2 if question.subject is not None else ROWS)
        else:
            ((first, last),) = question.ranges
            inside = cells[first : last + 1].sum() if first <= last else ROWS - cells[last + 1 : first].sum()
            count = np.array([float(inside)])
        noisy = count + rng.normal(0, noise * ROWS / question.sharper, len(count))
        return tuple(int(each * 2**COUNT_BITS) for each in noisy)

    scales = [asked(design, answer, noise * ROWS)[1].place_of(subject.source).scale for _ in range(20)]
    assert min(scales) / values.std() > 1 / 2.2
    assert max(scales) / values.std() < 2.2


def far_off(design: Design, values: np.ndarray, noise: float, rng: np.random.Generator) -> int:
    """How many scales of twenty are off by a factor of three, or centres by two scales."""
    (subject,) = (each for each in subjects(design) if each.name == "x")
    cells = np.bincount(np.searchsorted(subject.thresholds, values), minlength=subject.cells)
    number, off = subjects(design).index(subject), 0

    def answer(question: Question) -> tuple[int, ...]:
        count = np.full(len(question.ranges), ROWS / 2 if question.subject is not None else ROWS)
        if question.subject == number:
            ((first, last),) = question.ranges
            count[0] = cells[first : last + 1].sum() if first <= last else ROWS - cells[last + 1 : first].sum()
        noisy = count + rng.normal(0, noise * ROWS / question.sharper, len(count))
        return tuple(int(each * 2**COUNT_BITS) for each in noisy)

    for _ in range(20):
        place = asked(design, answer, noise * ROWS)[1].place_of(subject.source)
        near = abs(place.centre - values.mean()) < 2 * values.std()
        off += not (near and abs(math.log(place.scale / values.std())) < math.log(3))
    return off


@pytest.mark.parametrize("bounds", [{"lower": -3_000, "upper": 3_000}, {}])
def test_a_search_goes_on_where_noise_is_a_quarter_of_the_rows(bounds: dict[str, int], monkeypatch) -> None:
    """Bounds hundreds of times as wide as the values, or none; with twelve questions many searches fail."""
    columns = {"x": {"type": "numeric", **bounds}, "sick": {**COLUMNS["sick"]}}
    design = design_of("logistic", columns=columns, formula="sick ~ x")
    rng = np.random.default_rng(3)
    values = rng.normal(4, 5, ROWS)
    assert far_off(design, values, 0.27, rng) <= 1
    monkeypatch.setattr(places, "_SEARCHES_IF_DROWNED", 12)
    monkeypatch.setattr(places, "_DOUBTFUL", math.inf)
    assert far_off(design, values, 0.27, rng) >= (3 if bounds else 1)  # where there are none, octaves are asked first


def test_a_scale_is_as_close_as_its_answers_allow() -> None:
    """Wherever a column lies between the centres of the first grid: half a scale off was a scale twice too large."""
    off = []
    for centre in np.linspace(40, 60, 9):
        column = NormalColumn(0, 110)
        for _ in range(12):
            threshold = column.next_threshold()
            column.learn(threshold, float(ndtr((threshold - centre) / 12)), 0.01)
        off.append(column.found()[1] / 12)
    assert min(off) > 0.8
    assert max(off) < 1.25
