"""One row added or removed, their number private: what it can do to survey and looks, and that nothing shows it."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpglm
from dpglm.custodian import by_looks, look_plan, passes, survey_counts
from dpglm.custodian.bounded_rows import look_sums, on_grid
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.look_plan import look_noise, plan_looks
from dpglm.custodian.noise import OperatingSystemNoise
from dpglm.custodian.sums import BlockSums
from dpglm.custodian.survey_counts import STEPS, TableCounts
from dpglm.custodian.tables import open_table
from dpglm.errors import BudgetError, InputError, SurveyError
from dpglm.formula import Design, build_design
from dpglm.looks.coding import standard_design
from dpglm.looks.survey import most_answers, units_of
from dpglm.protection import ADDED_OR_REMOVED, ONE_ROW_REPLACED, Protection
from dpglm.release_file import read_release
from seeded_noise import SeededNoise
from trust import chain
from trust.questions import asked, counts_of, most_units, squared_change
from trust.viewpoints import any_viewpoint

ADDED = Protection(ADDED_OR_REMOVED)
COLUMNS: dict[str, Any] = {
    "y": {"type": "binary", "levels": ["no", "yes"]},
    "visits": {"type": "count", "upper": 40},
    "score": {"type": "numeric", "lower": -3, "upper": 10},
    "a": {"type": "numeric", "lower": -1, "upper": 1},
    "site": {"type": "categorical", "levels": ["north", "south", "east"], "missing": "level"},
}
OUTCOMES = {"logistic": "y", "poisson": "visits", "linear": "score"}
ROWS: list[dict[str, Any]] = [
    {"y": "yes", "visits": "40", "score": "10", "a": "1", "site": "east"},
    {"y": "no", "visits": "0", "score": "-3", "a": "-1", "site": None},
    {"y": None, "visits": None, "score": None, "a": None, "site": None},
    {"y": "yes", "visits": "3", "score": "1", "a": "0.5", "site": "south"},
]


def schema(columns: dict[str, Any] = COLUMNS) -> dict[str, Any]:
    return {"dataset": {"name": "t", "unit": "one person", "neighbours": "added-or-removed"}, "columns": columns}


def design_of(family: str, columns: dict[str, Any] = COLUMNS) -> Design:
    return build_design(f"{OUTCOMES[family]} ~ a + site", dpglm.Schema.from_dict(schema(columns)), family)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in COLUMNS})


def people(rows: int, seed: int = 3) -> pd.DataFrame:
    numbers = np.random.default_rng(seed)
    a = numbers.uniform(-1, 1, rows)
    return pd.DataFrame(
        {
            "y": np.where(numbers.random(rows) < 1 / (1 + np.exp(-a)), "yes", "no"), "visits": numbers.poisson(3, rows),
            "score": numbers.normal(a, 1), "a": a, "site": numbers.choice(["north", "south", "east"], rows),
        }
    )  # fmt: skip


# What one row can do


@pytest.mark.parametrize("family", OUTCOMES)
@pytest.mark.parametrize("filled", [False, True])
def test_a_row_moves_an_answer_by_what_the_question_states_at_most_and_some_row_does(family: str, filled: bool) -> None:
    fills = {"y": "no", "visits": 0, "score": 0, "a": 0}
    columns = {n: c | ({"fill": fills[n]} if filled and n in fills else {}) for n, c in COLUMNS.items()}
    design, numbers = design_of(family, columns), np.random.default_rng(5)
    nothing, *counts = [counts_of(table_of(rows), design) for rows in ([], *([row] for row in ROWS))]
    assert nothing.num_rows == 0
    reached = set()
    for spread in (0.1, 30.0):
        questions = asked(design, lambda q, s=spread: tuple(numbers.normal(0, s, len(q.ranges))), spread)  # type: ignore[misc]
        left = sorted(most_answers(design))
        assert sum(question.units for question in questions) <= units_of(design) <= most_units(design)
        for question in sorted(questions, key=lambda each: -each.units):
            left.remove(next(each for each in left if each[0] >= question.units and each[1] >= len(question.ranges)))
            worst = max(squared_change(question, nothing, one) for one in counts)
            assert worst <= question.squared_change
            reached.add((worst / question.squared_change, len(question.ranges)))
    assert {(1.0, 1), (1.0, 4), (1.0, 4)} <= reached  # single counts, and the levels and columns


def squared_length(sums: BlockSums, noise: Any, dimension: int) -> Fraction:
    total = Fraction(0)
    for block, values, stddev in zip(sums.blocks, sums.values, noise.grid_stddevs, strict=True):
        multiplicities = block.multiplicities(dimension).tolist()
        total += Fraction(sum(c * v * v for c, v in zip(multiplicities, values, strict=True))) / Fraction(stddev) ** 2
    return total


@pytest.mark.parametrize("family", OUTCOMES)
def test_no_row_moves_a_look_by_more_than_its_mu_and_nearly_by_as_much(family: str) -> None:
    design = design_of(family)
    coded = standard_design(design, record_of(design))
    size, numbers = len(coded.coefficient_names), np.random.default_rng(11)
    batches = [next(iter(open_table(table_of([row]), design.table_columns).batches())) for row in ROWS]
    worst = Fraction(0)
    for number in range(40):
        view, noise = (
            on_grid(any_viewpoint(size, False, numbers)),
            look_noise(1.0, size, (0.02, 0.2)[number % 2], ADDED),
        )
        assert noise.square_variance == 16
        for batch in batches:
            worst = max(worst, squared_length(look_sums(batch, coded, view), noise, size) / Fraction(noise.mu) ** 2)
    assert Fraction(999, 1000) < worst <= 1


def record_of(design: Design) -> Any:
    request = Request(design.formula, design.schema, design.family.name, 3.0, 1e-2)
    try:
        made = build_release(people(300), request, SeededNoise(4))
    except SurveyError as stopped:
        made = stopped.release
    assert made.survey_record is not None
    return made.survey_record.survey


@pytest.mark.parametrize(("y", "x"), [(1.0, 0.05), (1.0, 1.0), (0.1, 3.0)])
def test_the_cost_of_a_look_is_the_largest_over_all_vectors_of_bounded_length(y: float, x: float) -> None:
    """By search over lengths, for one row added and for one replaced; with less noise of the square it would not be."""
    lengths = np.linspace(0, 1, 21)
    score, information = np.meshgrid(lengths, lengths)
    added = y * score**2 + y / 16 * score**4 + x * information**4
    assert added.max() == pytest.approx(ADDED.squared_mu(y, x), rel=1e-12)
    assert added.max() < (y * score**2 + y / 15 * score**4 + x * information**4).max()
    assert ADDED.squared_mu(y, x) < ONE_ROW_REPLACED.squared_mu(y, x) / 1.9 or x > y


# What shows


def test_everything_but_the_noise_is_the_same_with_a_row_and_without_it(tmp_path: Path) -> None:
    """Given the same noisy answers; also where the row is the only one, one of a batch more, or does not count."""
    for number, (size, row) in enumerate(itertools.product((0, 300, passes.BATCH_ROWS), (ROWS[0], ROWS[2]))):
        frame = people(size).astype(object)
        more = pd.concat([frame, pd.DataFrame([row])], ignore_index=True)
        books = [ledger(tmp_path / f"{number} {one}") for one in "ab"]
        seen: tuple[list[Any], list[Any]] = ([], [])
        requests = [Request("y ~ a + site", schema(), "logistic", 2.0, 1e-3, ledger=book) for book in books]
        try:
            first = chain.transcript(frame, requests[0], OperatingSystemNoise())
        except SurveyError:
            assert size < 1000
            continue
        other = chain.replayed(more, requests[1], first)
        total = sum(chain.squared_moves(first, other), Fraction(0))
        assert 0 < total <= Fraction(first.release.privacy.mu) ** 2
        for release, book, events in zip((first.release, other.release), books, seen, strict=True):
            facts = json.loads(release.to_json())
            for key in ("release_id", "publication_time", "checksum", "ledger"):
                facts.pop(key)
            facts["survey"].pop("release_id")
            events += [facts, release.statement, [entry.mu_squared_units for entry in book.entries()]]
        assert seen[0] == seen[1]


def ledger(folder: Path) -> dpglm.Ledger:
    folder.mkdir()
    dataset = dpglm.Schema.from_dict(schema()).dataset
    return dpglm.Ledger.create(folder / "t.ledger", dataset, epsilon=2.0, delta=1e-3)


@pytest.mark.parametrize("rows", [0, 1, 2, 70_000])
def test_progress_and_errors_do_not_tell_the_number_of_rows(rows: int, tmp_path: Path) -> None:
    """A table without rows is no error; its survey stops it, as noise may stop any small one."""
    path = tmp_path / "t.csv"
    people(rows).to_csv(path, index=False)
    calls: list[tuple[int, int]] = []
    try:
        made = dpglm.release(
            path, "y ~ a + site", schema=dpglm.Schema.from_dict(schema()), family="logistic", epsilon=1, delta=1e-6,
            ledger=None, progress=lambda done, total: calls.append((done, total)),
        )  # fmt: skip
    except SurveyError as stopped:
        assert rows < 1000
        made = stopped.release
    expected = [(done, 7) for done in range(1, 8)]
    assert calls in (expected, expected[:1])
    assert str(rows) not in made.statement.replace(",", "") or rows < 10
    facts = json.loads(made.to_json())["dataset"]
    assert facts == {"id": "t", "name": "t", "rows_are_public": False}


def test_bugs_that_tell_the_number_of_rows_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these is caught by one of the checks above."""
    frame = people(300)
    request = Request("y ~ a + site", schema(), "logistic", 2.0, 1e-3)
    first = chain.transcript(frame, request, OperatingSystemNoise())

    def caught() -> bool:
        try:
            other = chain.replayed(frame[1:], request, first)
            total = sum(chain.squared_moves(first, other), Fraction(0))
        except (AssertionError, InputError, StopIteration):
            return True
        one, two = (json.loads(each.release.to_json()) for each in (first, other))
        same = all(one[key] == two[key] for key in ("dataset", "regression", "stages", "privacy_loss"))
        return not same or total > Fraction(first.release.privacy.mu) ** 2

    assert not caught()
    real_plan, real_counts, rows_seen = by_looks.plan_looks, by_looks.table_counts, [300]

    def planned(*given: Any, **more: Any) -> Any:
        plan = real_plan(*given, **more)
        return replace(plan, survey_stddev=plan.survey_stddev * (1 + rows_seen[0] / 1e4))

    bugs: dict[str, tuple[Any, str, Any]] = {
        "noise planned from the table": (by_looks, "plan_looks", planned),
        "rows counted twice": (by_looks, "table_counts", lambda batch, design: doubled(real_counts(batch, design))),
        "a square with little noise": (look_plan.LookNoise, "grid_stddevs", property(scales)),
        "rows checked against a number": (by_looks, "check_rows", refusing),
        "rounded up to a whole hundred": (survey_counts.TableCounts, "answers", rounded),
    }  # fmt: skip
    for name, (target, attribute, value) in bugs.items():
        with monkeypatch.context() as patched:
            patched.setattr(target, attribute, value)
            assert caught(), name


ANSWERS = TableCounts.answers


def doubled(counts: TableCounts) -> TableCounts:
    return counts + counts


def scales(noise: Any) -> tuple[float, float, float]:
    return noise.score * 2.0**20, noise.information * 2.0**40, noise.score * 2.0**39


def rounded(counts: TableCounts, question: Any) -> tuple[int, ...]:
    return tuple(-(-value // (100 * STEPS)) * 100 * STEPS for value in ANSWERS(counts, question))


def refusing(found: int | None, design: Design) -> None:
    raise InputError("dataset.rows", None, "the table has another number of rows", "declare it")


# The account, and what is said


def test_a_plan_adds_up_and_hangs_on_no_number_of_rows() -> None:
    for family in OUTCOMES:
        design = design_of(family)
        plan = plan_looks(design, 1.0, 1e-6)
        survey = Fraction(units_of(design)) / Fraction(plan.survey_stddev) ** 2
        assert survey <= Fraction(plan.survey_mu) ** 2
        histograms = 2 if family == "logistic" else 3
        assert Fraction(histograms) / Fraction(plan.profile_stddev) ** 2 <= Fraction(plan.profile_mu) ** 2
        parts = (plan.survey_mu, plan.profile_mu, *(look.mu for look in plan.looks))
        assert sum(Fraction(mu) ** 2 for mu in parts) <= Fraction(plan.privacy.mu) ** 2
        replaced = plan_looks(build_design(design.formula, _replaced(design), family), 1.0, 1e-6)
        gain = replaced.looks[-1].score / plan.looks[-1].score
        assert 1.85 < gain < 2.0


def _replaced(design: Design) -> dpglm.Schema:
    data = design.schema.to_dict()
    data["dataset"] = {"name": "t", "unit": "one person", "rows": 10_000}
    return dpglm.Schema.from_dict(data)


def test_a_ledger_keeps_one_promise(tmp_path: Path) -> None:
    book = ledger(tmp_path / "book")
    assert book.neighbouring_relation == "add-or-remove-one-row"
    other = {**schema(), "dataset": {"name": "t", "unit": "one person", "rows": 300}}
    with pytest.raises(BudgetError, match="neighbouring relation"):
        build_release(people(300), Request("y ~ a", other, "logistic", 1.0, 1e-6, ledger=book), SeededNoise(1))


def test_the_number_of_rows_is_left_out_and_moments_are_refused() -> None:
    with pytest.raises(InputError, match="is private where neighbours"):
        dpglm.Schema.from_dict({**schema(), "dataset": {**schema()["dataset"], "rows": 5}})
    with pytest.raises(InputError, match="must be 'replaced' or 'added-or-removed'"):
        dpglm.Schema.from_dict({**schema(), "dataset": {**schema()["dataset"], "neighbours": "added"}})
    declared = dpglm.Schema.from_dict(schema())
    assert dpglm.Schema.from_dict(declared.to_dict()) == declared
    with pytest.raises(InputError, match="moments protect one replaced row"):
        dpglm.release(
            people(300), "score ~ a", schema=declared, family="linear", epsilon=1, delta=1e-6, ledger=None,
            method="moments",
        )  # fmt: skip
    with pytest.raises(InputError, match="say for how many to plan"):
        dpglm.plan("y ~ a", schema=declared, family="logistic")


def test_intervals_are_narrower_and_the_words_say_which_promise_it_is() -> None:
    frame = people(8_000)
    made = build_release(frame, Request("y ~ a", schema(), "logistic", 1.0, 1e-6), SeededNoise(5))
    again = read_release(made.to_json())
    assert again == made
    assert json.loads(made.to_json())["privacy_loss"]["neighbouring_relation"] == "add-or-remove-one-row"
    assert abs(made.num_rows - 8_000) < 3_000
    assert abs(made.counted.number - 8_000) < 4.5 * made.counted.stddev < 1_000
    real = made.__class__(**{**made.__dict__, "private": True})
    assert "Adding or leaving out any one row" in real.statement
    assert "weaker promise" in real.statement
    replaced = {**schema(), "dataset": {"name": "t", "unit": "one person", "rows": 8_000}}
    stronger = build_release(frame, Request("y ~ a", replaced, "logistic", 1.0, 1e-6), SeededNoise(5))
    narrow, wide = (dpglm.fit(each, seed=1).summary()["sd"]["a"] for each in (made, stronger))
    assert narrow < 0.97 * wide
    outlook = dpglm.plan("y ~ a", schema=dpglm.Schema.from_dict(schema()), family="logistic", rows=8_000, epsilon=1.0)
    assert outlook.cases[0].inflation < outlook.other_promise[0]
    assert "If one person were replaced, not added or removed: " in str(outlook)
    assert math.isclose(narrow / wide, outlook.cases[0].inflation / outlook.other_promise[0], rel_tol=0.25)
    back = dpglm.plan("y ~ a", schema=dpglm.Schema.from_dict(replaced), family="logistic", rows=8_000, epsilon=1.0)
    assert back.other_promise == (outlook.cases[0].inflation,)
    assert outlook.other_promise == (back.cases[0].inflation,)
    assert "If one person were added or removed, not replaced: " in str(back)
