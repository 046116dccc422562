"""The claims of docs/looks_privacy.md: what a replaced row can do to a survey, to a look, and to all of it together.

Each bound is searched from below through the public path (tables to sums): never above, and reached to 0.1 %.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpglm.custodian import by_looks, charge
from dpglm.custodian.bounded_rows import look_sums, on_grid
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.ledger import Ledger
from dpglm.custodian.look_plan import look_noise, plan_looks
from dpglm.custodian.noise import OperatingSystemNoise
from dpglm.custodian.passes import exact_sums
from dpglm.custodian.profile_counts import profile_counts
from dpglm.custodian.sums import BlockSums
from dpglm.custodian.tables import open_table
from dpglm.errors import BudgetError, SurveyError
from dpglm.formula import Design, build_design
from dpglm.looks.coding import standard_design
from dpglm.looks.profile import LOOKS_BEFORE
from dpglm.looks.questions import COUNT_BITS, Question
from dpglm.looks.survey import Survey, most_answers, units_of
from dpglm.privacy import DISCRETE_SHARE, SMALLEST_GRID_NOISE, delta_of, mu_of
from dpglm.releases import Release
from dpglm.schema import Schema
from seeded_noise import SeededNoise
from trust import chain
from trust.questions import Answering, asked, counts_of, share_of_mu_squared, squared_change
from trust.viewpoints import any_viewpoint

COLUMNS: dict[str, Any] = {
    "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "yes"},
    "visits": {"type": "count", "upper": 700, "fill": 700},
    "score": {"type": "numeric", "lower": -3, "upper": 10, "fill": 10},
    "a": {"type": "numeric", "lower": -1, "upper": 1, "fill": 1},
    "wide": {"type": "numeric", "lower": 1e-3, "upper": 1e9, "fill": 1e9},
    "site": {"type": "categorical", "levels": ["north", "south", "east"], "fill": "east"},
    "arm": {"type": "binary", "levels": [0, 1], "fill": 1},
}
LOWEST = {"sick": "no", "visits": 0, "score": -3.0, "a": -1.0, "wide": 1e-3, "site": "north", "arm": 0}
CASES = [("logistic", "sick"), ("poisson", "visits"), ("linear", "score")]
LINKS = [("probit", "sick"), ("cloglog", "sick")]  # the survey and its questions do not know of them
TERMS = "a + log(wide) + wide + site*arm"
RUBBISH: list[Any] = [None, "NaN", "1e999", "-1e999", "x", "", "-0.0", "5e-324", "true", "9" * 400]


def design_of(family: str, outcome: str, rows: int = 40, terms: str = TERMS) -> Design:
    schema = Schema.from_dict({"dataset": {"name": "t", "rows": rows}, "columns": COLUMNS})
    model = ("logistic", family) if (family, outcome) in LINKS else (family,)
    return build_design(f"{outcome} ~ {terms}", schema, *model)


def table_of(rows: list[dict[str, Any]], design: Design) -> pa.Table:
    def text(cell: Any) -> str | None:
        return None if cell is None else str(cell)

    names = [column.name for column in design.table_columns]
    return pa.table({name: pa.array([text(row[name]) for row in rows], pa.string()) for name in names})


def some_row(numbers: np.random.Generator) -> dict[str, Any]:
    """Cells inside the bounds, at their ends, outside of them, missing and rubbish."""
    row: dict[str, Any] = {}
    for name, column in COLUMNS.items():
        if "levels" in column:
            row[name] = numbers.choice(column["levels"])
        else:
            low, high = column.get("lower", 0), column["upper"]
            row[name] = numbers.choice([low, high, (low + high) / 2, numbers.uniform(low, high), 1e12, -1e12])
        if numbers.random() < 0.3:
            row[name] = RUBBISH[numbers.integers(len(RUBBISH))]
    return row


MISSING: dict[str, Any] = dict.fromkeys(COLUMNS)


# The survey


@pytest.mark.parametrize(("family", "outcome"), CASES)
def test_no_row_moves_an_answer_by_more_than_the_question_states_and_some_row_does(family: str, outcome: str) -> None:
    """Whatever the noisy answers were, so whatever is asked."""
    design, numbers = design_of(family, outcome, rows=1), np.random.default_rng(5)
    tables = [table_of([row], design) for row in [LOWEST, MISSING, *(some_row(numbers) for _ in range(6))]]
    counts = [counts_of(table, design) for table in tables]
    reached: dict[Any, float] = {}
    for spread in (0.1, 1.0, 300.0):
        for question in asked(design, lambda q, s=spread: tuple(numbers.normal(0, s, len(q.ranges))), spread):  # type: ignore[misc]
            worst = max(squared_change(question, one, other) for one, other in itertools.combinations(counts, 2))
            assert worst <= question.squared_change
            kind = (question.subject is None, len(question.ranges))
            reached[kind] = max(reached.get(kind, 0), worst / question.squared_change)
    assert set(reached.values()) == {1.0}
    assert len(reached) == 3  # the table's columns; ranges and two levels; three levels


@pytest.mark.parametrize(("family", "outcome"), [CASES[0], CASES[2]])
def test_one_row_can_move_the_whole_list_of_questions(family: str, outcome: str) -> None:
    """All answers say "all rows are at the lowest cell": then every threshold lies between the two rows.

    What such a survey leaves unasked of its budget is not counted.
    """
    rows = 10**6
    design = design_of(family, outcome, rows, terms="a + site + arm")
    plan = plan_looks(design, 1.0, 1e-6)
    one, other = (counts_of(table_of([row], design), design.of_size(1)) for row in (LOWEST, MISSING))

    def at_the_lowest(question: Question) -> tuple[float, ...]:
        return tuple(rows * count / 2**COUNT_BITS for count in one.answers(question))

    questions = asked(design, at_the_lowest, plan.survey_stddev)
    share = share_of_mu_squared(questions, one, other, plan)
    assert 0.999 < share * Fraction(units_of(design) / sum(question.units for question in questions)) <= 1


def strange_answers(numbers: np.random.Generator) -> Answering:
    kind = numbers.integers(4)
    scale = 10.0 ** numbers.uniform(-3, 9)

    def answer(question: Question) -> tuple[float, ...]:
        size = len(question.ranges)
        drawn = numbers.normal(0, scale, size) if kind else numbers.choice([0.0, 40.0], size)
        return tuple(np.abs(drawn) if kind == 1 else drawn)

    return answer


@pytest.mark.parametrize(("family", "outcome"), CASES)
@pytest.mark.parametrize("terms", [TERMS, "a", "exp(a) + I(wide**2) - 1", "site + offset(a)"])
def test_no_answers_lead_to_more_questions_than_the_noise_is_made_for(family: str, outcome: str, terms: str) -> None:
    design = design_of(family, outcome, terms=terms)
    numbers = np.random.default_rng(8)
    for _ in range(25):
        left = sorted(most_answers(design))
        questions = asked(design, strange_answers(numbers), 10.0 ** numbers.uniform(-3, 6))
        assert sum(question.units for question in questions) <= units_of(design)
        for question in sorted(questions, key=lambda each: -each.units):
            # Each takes one that is as costly and as large from the list: or there is none, and this raises.
            left.remove(next(each for each in left if each[0] >= question.units and each[1] >= len(question.ranges)))


# Looks


def squared_move(one: BlockSums, other: BlockSums, noise: Any, dimension: int) -> Fraction:
    """In isometric noise: a product of two different coordinates stands for two."""
    total = Fraction(0)
    for block, mine, theirs, stddev in zip(one.blocks, one.values, other.values, noise.grid_stddevs, strict=True):
        multiplicities = block.multiplicities(dimension).tolist()
        square = sum(c * (a - b) ** 2 for c, a, b in zip(multiplicities, mine, theirs, strict=True))
        total += Fraction(square) / Fraction(stddev) ** 2
    return total


@pytest.mark.parametrize(("family", "outcome"), [*CASES, *LINKS])
def test_no_row_moves_a_look_by_more_than_its_mu_whatever_it_looks_from(family: str, outcome: str) -> None:
    design, numbers = design_of(family, outcome, rows=1), np.random.default_rng(11)
    coded = standard_design(design, some_survey(table_of([LOWEST], design), _request(design)))
    tables = [table_of([row], design) for row in [LOWEST, MISSING, *(some_row(numbers) for _ in range(6))]]
    batches = [next(iter(open_table(table, design.table_columns).batches())) for table in tables]
    size, worst = len(coded.coefficient_names), Fraction(0)
    for number in range(24):
        view = on_grid(any_viewpoint(size, False, numbers))
        sums = [look_sums(batch, coded, view) for batch in batches]
        noise = look_noise(1.0, size, (0.02, 0.1, 0.2)[number % 3])
        for one, other in itertools.combinations(sums, 2):
            worst = max(worst, squared_move(one, other, noise, size) / Fraction(noise.mu) ** 2)
    assert Fraction(1, 2) < worst <= 1


def some_survey(table: pa.Table, request: Request) -> Survey:
    """Of too few rows, so whatever it says."""
    try:
        made = build_release(table, request, SeededNoise(5))
    except SurveyError as stopped:
        made = stopped.release
    assert made.survey_record is not None
    return made.survey_record.survey


def _request(design: Design, **more: Any) -> Request:
    return Request(design.formula, design.schema, design.family, 1.0, 1e-2, **more)


@pytest.mark.parametrize(("rows", "epsilon"), [(2_000, 1.0), (10**6, 0.1)])
def test_two_rows_can_move_every_look_by_its_mu(rows: int, epsilon: float) -> None:
    """Looks that stand where the proof's maximum is: with much of a look for the information, and with little."""
    design = chain.design_of(rows)
    (pair,) = open_table(chain.two_rows(chain.tables(3)), design.table_columns).batches()
    survey = some_survey(chain.tables(50)[0], chain.request(1.0, rows=50))
    coded = standard_design(design, survey)
    with chain.worst_looks(chain.two_rows(chain.tables(3)), epsilon, rows=rows):
        seen = by_looks.before_looks(coded, survey, None)  # type: ignore[arg-type]
        for noise in plan_looks(design, epsilon, chain.DELTA).looks:
            view = on_grid(by_looks.next_viewpoint(seen, 1.0, noise.mu))
            one, other = (look_sums(pair.slice(row, 1), coded, view) for row in (0, 1))
            share = squared_move(one, other, noise, 3) / Fraction(noise.mu) ** 2
            assert 0.999 < share <= 1


def test_one_row_can_move_the_whole_chain_and_never_by_more_than_mu() -> None:
    """Real noise; the neighbour is given the same noisy answers, which lead it to the same questions and looks."""
    both, request = chain.tables(), chain.request(1.0)
    with chain.worst_looks(chain.two_rows(both), 1.0):
        one = chain.transcript(both[0], request, OperatingSystemNoise())
        other = chain.replayed(both[1], request, one)
    moves, made = chain.squared_moves(one, other), one.release
    asked_of = len(made.survey_record.asked)  # type: ignore[union-attr]
    assert sum(moves[:asked_of]) <= Fraction(made.survey_record.mu) ** 2  # type: ignore[union-attr]
    profile = slice(asked_of + 3 * LOOKS_BEFORE, asked_of + 3 * LOOKS_BEFORE + len(made.profile.counts))  # type: ignore[union-attr]
    histograms = moves[profile]  # after the looks before it
    del moves[profile]
    assert len(set(histograms)) == 1 < len(histograms)  # one row leaves a cell of each for another
    assert 0.999 < sum(histograms) / Fraction(made.profile.mu) ** 2 <= 1  # type: ignore[union-attr]
    for place, stage in enumerate(made.stages):
        start = asked_of + 3 * place
        assert 0.999 < sum(moves[start : start + 3]) / Fraction(stage.mu) ** 2 <= 1
    assert 0.98 < sum(moves + histograms) / Fraction(made.privacy.mu) ** 2 <= 1
    assert made.survey_record == other.release.survey_record or made.id != other.release.id
    assert [stage.viewpoint for stage in made.stages] == [stage.viewpoint for stage in other.release.stages]


# The account


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("known", [False, True])
def test_what_a_plan_spends_adds_up_to_what_it_guarantees(epsilon: float, known: bool) -> None:
    for family, outcome in CASES:
        design = design_of(family, outcome, rows=500)
        plan = plan_looks(design, epsilon, 1e-6, survey_is_known=known)
        survey = 0 if known else Fraction(units_of(design)) / Fraction(plan.survey_stddev) ** 2
        assert survey <= Fraction(plan.survey_mu) ** 2
        assert (plan.survey_mu == 0) == known
        # A replaced row leaves one cell for another, in two histograms or three.
        profile = Fraction(4 if family == "logistic" else 6) / Fraction(plan.profile_stddev) ** 2
        assert (1 - 1e-8) * Fraction(plan.profile_mu) ** 2 < profile <= Fraction(plan.profile_mu) ** 2
        total = sum(Fraction(mu) ** 2 for mu in (plan.survey_mu, plan.profile_mu, *(look.mu for look in plan.looks)))
        assert total <= Fraction(plan.privacy.mu) ** 2
        # A ledger rounds each part up: together they still fit a cap of this budget.
        assert total <= Fraction(mu_of(epsilon, 1e-6)) ** 2 * (1 - Fraction(1, 10**9))
        spent = delta_of(plan.privacy.mu, epsilon)
        assert spent <= 1e-6 * (1 - DISCRETE_SHARE) * (1 + 1e-9)
        assert spent > 0.99e-6
        # the finest noise on any integer: of the information's products of two different coordinates
        finest = min(min(look.grid_stddevs) / math.sqrt(2) for look in plan.looks)
        assert min(finest, plan.profile_stddev * 2.0**COUNT_BITS) > SMALLEST_GRID_NOISE
        # and the score's is the finest of a look, so that it is the one that the certificate is given
        assert all(look.grid_stddevs[0] < min(look.grid_stddevs[1:]) / math.sqrt(2) for look in plan.looks)


def test_a_survey_is_kept_when_another_release_takes_the_rest_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the survey's charge and the looks': the error says what was spent, and the ledger keeps the survey."""
    both, request = chain.tables(50), chain.request(1.0, rows=50)
    dataset = chain.design_of(50).schema.dataset
    book = Ledger.create(tmp_path / "book.ledger", dataset, epsilon=1.0, delta=chain.DELTA)
    real = charge.Account.spend

    def spend(self: charge.Account, mus: Any, privacy: Any, parts: Any) -> None:
        if parts != ["survey"]:
            book.spend(release_id="another", mu_squared=0.1, description={})
        real(self, mus, privacy, parts)

    monkeypatch.setattr(charge.Account, "spend", spend)
    asked_for = Request(request.formula, request.schema, request.family, 1.0, chain.DELTA, ledger=book)
    with pytest.raises(BudgetError, match=r"its budget is spent \(ledger entry 1, .* has what was bought") as caught:
        build_release(both[0], asked_for, OperatingSystemNoise())
    identity = str(caught.value).partition("bought, release ")[2].partition(";")[0]
    assert '"stages": []' in book.export(identity)
    book.verify()


# Tables as users make them


def test_order_engine_and_batches_change_no_integer_of_survey_profile_and_looks() -> None:
    design, numbers = design_of("logistic", "sick", rows=500, terms="a + log(wide) + arm"), np.random.default_rng(2)
    frame = pd.DataFrame({
        "sick": numbers.choice(["no", "yes"], 500), "a": numbers.normal(0, 2, 500),
        "wide": np.exp(numbers.uniform(-9, 25, 500)), "arm": numbers.integers(0, 2, 500),
    })  # fmt: skip
    frame.loc[::7, "a"] = np.nan
    shuffled = frame.sample(frac=1, random_state=1)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    made: Release = build_release(frame, _request(design), OperatingSystemNoise())
    tables = [
        frame, shuffled, pl.from_pandas(shuffled), duckdb.sql("select * from frame order by wide").arrow(), table,
        pa.Table.from_batches(table.to_batches(max_chunksize=7)), frame.astype({"sick": "category"}),
    ]  # fmt: skip
    found = []
    for each in tables:
        each = each.read_all() if isinstance(each, pa.RecordBatchReader) else each
        counts = counts_of(each, design)
        answers = [counts.answers(question) for question, _ in made.survey_record.asked]  # type: ignore[union-attr]
        source = open_table(each, design.table_columns).repeatable()
        of_batches = [partial(look_sums, design=made.design, view=stage.viewpoint) for stage in made.stages]
        looks = [exact_sums(source, made.design, of_batch).values for of_batch in of_batches]
        profiled = partial(profile_counts, design=made.design, view=made.profile.view)  # type: ignore[union-attr]
        cells = [counts.tolist() for counts in exact_sums(source, made.design, profiled).cells]
        found.append((answers, cells, looks))
    assert all(each == found[0] for each in found[1:])


# The privacy loss that samples prove


def test_releases_prove_less_than_the_claimed_epsilon_and_more_than_nothing() -> None:
    """Of the whole chain, by the best of all tests. A sound mechanism fails once in 10^4 runs."""
    first, second, share = chain.losses(10.0, 40, OperatingSystemNoise(), worst=True)
    assert share > 0.98
    assert 0.1 < chain.epsilon_lower_bound(first, second, chain.DELTA) < 10.0


def test_releases_with_too_little_noise_are_convicted() -> None:
    first, second, _ = chain.losses(0.5, 40, chain.LessNoise(1 / 20), worst=True)
    assert chain.epsilon_lower_bound(first, second, chain.DELTA) > 0.5
