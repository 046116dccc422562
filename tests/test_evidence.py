"""What the page of outside evidence rests on: marks of code, and yardsticks that measure what they say."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpglm.custodian.look_plan import plan_looks
from dpglm.custodian.noise import FixedNoise
from dpglm.formula import build_design
from dpglm.protection import ADDED_OR_REMOVED, REPLACED
from dpglm.schema import Schema
from evidence.accounting import searched_mu
from evidence.attacked import drawn
from evidence.feasibility import overlap
from evidence.peers import adassp, noisy_gradient
from evidence.recorder import FORMULAS, their_release
from evidence.recording import Recording, moved
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


class Auditor:
    """Stands in for dp-recorder's: keeps what mechanisms were given, and lets them be."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def __enter__(self) -> None:
        Auditor.active = self

    def __exit__(self, *_: object) -> None: ...


def audit_spec(kind: str, given: str, mu: str, metric: Any, accountant: Any) -> Any:
    def keep(mechanism: Any) -> Any:
        def kept(given: Any, mu: float, *more: Any) -> Any:
            Auditor.active.log.append(SimpleNamespace(kind=kind, sensitivity_val=mu, given=given))
            return mechanism(given, mu, *more)

        return kept

    return keep


@pytest.mark.parametrize("neighbours", [REPLACED, ADDED_OR_REMOVED])
def test_what_is_recorded_of_a_release_is_all_that_it_spends(neighbours):
    tool = SimpleNamespace(Auditor=Auditor, audit_spec=audit_spec, ensure_equality=lambda **_: None)
    rows = np.column_stack([np.linspace(-3, 3, 301), np.arange(301) % 2, np.arange(301) % 5])
    recording = Recording(tool, their_release("linear", FORMULAS["linear"], neighbours, people=False))
    recording.record(rows)
    made = recording.made
    histograms = len(made.profile.counts)
    assert len(recording.mus) == len(made.survey_record.asked) + histograms + len(made.stages)
    assert math.hypot(*recording.charged) == pytest.approx(made.privacy.mu)
    assert 0.9 * made.privacy.mu < math.hypot(*recording.mus) <= made.privacy.mu
    looks = [entry for entry in recording.auditor.log if entry.kind == "look"]
    other = {**looks[0].given, "sums": (looks[0].given["sums"][0] + 3, *looks[0].given["sums"][1:])}
    assert moved(looks[0].given, other) == pytest.approx(3 / looks[0].given["stddevs"][0])


def test_numbers_of_a_release_tell_its_table_as_their_likelihood_ratio_says():
    _, ratios, mu = drawn(3.0, FixedNoise(), 2)
    assert ratios[0] == pytest.approx(-ratios[1])
    assert 0.9 * mu**2 < 2 * ratios[0, 0] <= mu**2
