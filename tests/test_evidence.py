"""What the page of outside evidence rests on: marks of code, and yardsticks that measure what they say."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.custodian.look_plan import plan_looks
from dpglm.formula import build_design
from dpglm.protection import ADDED_OR_REMOVED, REPLACED
from dpglm.schema import Schema
from evidence.accounting import searched_mu
from evidence.feasibility import overlap
from evidence.peers import adassp, noisy_gradient
from evidence.stamp import changed, mark_of_text, marks_of
from real_tables import number, two

CODE = '"""What it does."""\n\ndef double(x):\n    """Twice."""\n    return 2 * x  # not x + x\n'


def test_a_mark_sees_code_and_neither_comments_nor_layout():
    same = "def double(x): return (2 *\n  x)"
    assert mark_of_text(CODE) == mark_of_text(same) != mark_of_text(same.replace("2", "3"))


def test_a_result_is_of_other_code_when_a_file_changed_went_or_came():
    sources = ["src/dpglm/families"]
    marks = marks_of(sources)
    assert changed(marks, sources) == []
    name, *others = marks
    assert changed(marks | {name: "0" * 8}, sources) == [name]
    assert changed({key: marks[key] for key in others}, sources) == [name]
    assert changed(marks | {"src/dpglm/families/gone.py": "0" * 8}, sources) == ["src/dpglm/families/gone.py"]


@pytest.mark.parametrize("neighbours", [REPLACED, ADDED_OR_REMOVED])
def test_a_search_over_rows_finds_what_the_proof_says_of_a_look(neighbours):
    dataset = {"name": "t", "unit": "one row", "neighbours": neighbours} | (
        {"rows": 5_000} if neighbours == REPLACED else {}
    )
    schema = Schema.from_dict({"dataset": dataset, "columns": {"b": two(0, 1), "n": number(0, 1)}})
    first, *_, last = plan_looks(build_design("b ~ n", schema, "logistic"), 1.0, 1e-6).looks
    for look in (first, last):
        assert look.mu * (1 - 1e-4) < searched_mu(look, neighbours) <= look.mu


def test_intervals_that_are_apart_have_no_overlap_and_equal_ones_have_all():
    one = np.array([[0.0], [2.0]])
    assert overlap(one, one) == pytest.approx(1)
    assert overlap(one, one / 2) == pytest.approx(0.75)
    assert overlap(one, one + 3) < 0


def test_methods_that_are_compared_give_the_estimate_of_the_rows_when_noise_is_small():
    rng = np.random.default_rng(1)
    rows = np.column_stack([np.ones(4_000), rng.normal(size=(4_000, 2))])
    u = rows @ [0.2, 0.5, -0.4]
    linear, binary = u + 0.5 * rng.normal(size=4_000), (rng.random(4_000) < 1 / (1 + np.exp(-u))).astype(float)
    for found in (adassp(rows, linear, 1e6, rng), noisy_gradient("linear", rows, linear, 1e6, rng, 0.5)):
        assert found.estimate == pytest.approx([0.2, 0.5, -0.4], abs=0.04)
        assert (found.upper - found.lower) / 2 == pytest.approx(1.96 * 0.5 / np.sqrt(4_000), rel=0.15)
    found = noisy_gradient("logistic", rows, binary, 1e6, rng)
    assert found.estimate == pytest.approx([0.2, 0.5, -0.4], abs=0.11)
    noisy = noisy_gradient("logistic", rows, binary, 0.5, rng)
    assert (noisy.upper - noisy.lower > 1.5 * (found.upper - found.lower)).all()
