"""The order of events: budget first, then noise; nothing is lost and nothing is said about rows when a step fails.

For both methods: a release of moments is one charge; one by looks is one for its survey, then six for the profile
and its looks.
"""

import math
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.custodian import bounded_rows, by_looks, by_moments, passes, survey_counts
from dpglm.custodian.build import METHODS, Request, build_release
from dpglm.custodian.noise import FixedNoise, OperatingSystemNoise
from dpglm.looks.questions import Question
from dpglm.looks.survey import units_of
from dpglm.release_file import read_release

SCHEMA = dpglm.Schema.from_dict(
    {
        "dataset": {"name": "t", "rows": 40, "unit": "one person"},
        "columns": {
            "a": {"type": "numeric", "lower": 0, "upper": 10},
            "y": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        },
    }
)


CHARGES = {"moments": 1, "looks": 7}
AFTER_THE_SURVEY = ["look 1", "look 2", "profile", "look 3", "look 4", "look 5"]


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


@pytest.fixture
def table():
    rng = np.random.default_rng(5)
    return pd.DataFrame({"a": rng.uniform(-1, 12, 40), "y": rng.choice(["no", "yes"], 40)})


@pytest.fixture
def ledger(tmp_path):
    return dpglm.Ledger.create(tmp_path / "t.ledger", SCHEMA.dataset, epsilon=3, delta=1e-6)


def made(table, ledger, noise, method, epsilon=1.0):
    return build_release(table, Request("y ~ a", SCHEMA, "logistic", epsilon, 1e-6, ledger, method), noise)


class Watching(OperatingSystemNoise):
    """Noise that looks into the ledger, from a connection of its own, when it is first drawn."""

    def __init__(self, path, fail=False):
        super().__init__()
        object.__setattr__(self, "seen", [])
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "fail", fail)

    def draw(self, grid_stddev, size):
        self.seen.append(len(dpglm.Ledger.open(self.path).entries()))
        if self.fail:
            raise RuntimeError("the power goes out")
        return super().draw(grid_stddev, size)


def test_the_entries_are_there_before_any_noise_is_drawn(table, ledger, method):
    noise = Watching(ledger.path)
    release = made(table, ledger, noise, method)
    assert noise.seen == sorted(noise.seen)
    assert set(noise.seen) == {1, CHARGES[method]}
    assert release.ledger.entry == CHARGES[method]
    assert ledger.entries()[-1].has_release


def test_a_survey_is_charged_alone_and_all_looks_at_once(table, ledger):
    noise = Watching(ledger.path)
    release = made(table, ledger, noise, "looks")
    before_looks = noise.seen.count(1)
    assert before_looks == len(release.survey_record.asked)
    assert noise.seen[before_looks:] == [7] * (5 * len(release.stages) + len(release.profile.counts))
    parts = [entry.description["part"] for entry in ledger.entries()]
    assert parts == ["survey", *AFTER_THE_SURVEY]
    costs = [float(entry.mu_squared_units) / 2**160 for entry in ledger.entries()]
    assert costs == pytest.approx([mu**2 for mu in release.costs], rel=1e-9)


def test_an_error_while_noise_is_drawn_stays_charged_and_says_so(table, ledger, method):
    with pytest.raises(dpglm.FileError, match=r"stopped by an error .* its budget is spent \(ledger entry 1"):
        made(table, ledger, Watching(ledger.path, fail=True), method)
    (entry,) = ledger.entries()
    assert not entry.has_release
    assert ledger.summary().spent_mu > 0
    ledger.verify()


@pytest.mark.parametrize("more", [1.0, 1e-7])
def test_a_survey_that_asks_more_than_was_paid_for_stops_before_that_answer(more, table, ledger, monkeypatch):
    """No answers lead there; a survey with a mistake might."""

    def greedy(design):
        yield Question(1, ((0, 9),), 1, math.sqrt(units_of(design)))
        yield Question(1, ((0, 9),), 1, math.sqrt(units_of(design) * more))

    noise = Watching(ledger.path)
    monkeypatch.setattr(by_looks, "surveying", greedy)
    with pytest.raises(dpglm.FileError, match=r"stopped by an error .* \(ArithmeticError\)"):
        made(table, ledger, noise, "looks")
    assert noise.seen == [1]
    (entry,) = ledger.entries()
    assert not entry.has_release


def test_a_failed_write_costs_nothing(table, ledger, tmp_path, method):
    release = made(table, ledger, OperatingSystemNoise(), method)
    with pytest.raises(dpglm.FileError, match="cannot be written"):
        release.save(tmp_path / "no such folder" / "r.json")
    assert read_release(ledger.export(release.id)) == release
    assert len(ledger.entries()) == CHARGES[method]


def test_a_second_release_says_what_both_have_spent(table, ledger, method):
    first, second = (made(table, ledger, OperatingSystemNoise(), method) for _ in range(2))
    assert second.ledger.entry == 2 * CHARGES[method]
    assert second.ledger.spent_mu == pytest.approx(np.hypot(first.privacy.mu, second.privacy.mu), rel=1e-6)
    assert first.ledger.spent_mu == pytest.approx(first.privacy.mu, rel=1e-6)


@pytest.mark.parametrize(
    ("method", "module", "name"),
    [
        ("moments", passes, "fixed_point_rows"),
        ("looks", survey_counts, "clean_rows"),
        ("looks", bounded_rows, "clean_rows"),
    ],
)
def test_a_bug_in_the_rows_code_says_nothing_about_rows(method, module, name, table, ledger, monkeypatch):
    def broken(batch, *_):
        raise ValueError(f"cannot handle {batch.column(1)[0]}")

    monkeypatch.setattr(module, name, broken)
    with pytest.raises(dpglm.FileError) as caught:
        made(table, ledger, OperatingSystemNoise(), method)
    shown = "".join(traceback.format_exception(caught.value))
    assert "cannot handle" not in shown
    assert str(round(float(table["a"][0]), 3)) not in shown
    # A bug in a look comes after the charge: its survey is kept, and the error says so.
    assert [entry.has_release for entry in ledger.entries()] == [True] * 7 * (module is bounded_rows)
    assert ("another try spends it again" in shown) == (module is bounded_rows)


def test_fixed_noise_marks_the_file(table, method):
    release = made(table, None, FixedNoise(), method)
    assert not release.private
    assert release.statement.startswith("NOT PRIVATE")
    assert '"private": false' in release.to_json()
    assert made(table, None, OperatingSystemNoise(), method).private


def test_a_release_without_a_ledger_says_so(table, method):
    assert "without a ledger" in made(table, None, OperatingSystemNoise(), method).statement


class DiesAt(Watching):
    """Noise that fails at draw number ``last``, after the survey's if that is negative: by an error, or by killing the
    process.
    """

    def __init__(self, path, last, kill=False):
        super().__init__(path)
        object.__setattr__(self, "last", last)
        object.__setattr__(self, "kill", kill)

    def draw(self, grid_stddev, size):
        drawn = super().draw(grid_stddev, size)
        if self.last in (len(self.seen), -sum(entries > 1 for entries in self.seen)):
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the power goes out")
        return drawn


LAST_DRAWS = [("moments", 2), ("moments", 4), ("looks", 1), ("looks", 15)]


@pytest.mark.parametrize(("method", "last"), LAST_DRAWS)
def test_an_error_at_any_draw_of_the_first_charge_leaves_it_and_keeps_nothing(method, last, table, tmp_path):
    ledger = dpglm.Ledger.create(tmp_path / "small", SCHEMA.dataset, epsilon=1, delta=1e-6)
    with pytest.raises(dpglm.FileError, match="stopped by an error"):
        made(table, ledger, DiesAt(ledger.path, last), method)
    assert [entry.has_release for entry in ledger.entries()] == [False]
    ledger.verify()
    with pytest.raises(dpglm.FileError, match="no such finished release"):
        ledger.export()
    with pytest.raises(dpglm.BudgetError):  # an error is no refund
        made(table, ledger, OperatingSystemNoise(), method)
    assert len(ledger.entries()) == 1


# Each look draws five times, the profile twice (once a histogram): after the second look.
@pytest.mark.parametrize(
    ("into", "looks", "profiled"),
    [
        (1, 0, False),
        (5, 0, False),
        (6, 1, False),
        (11, 2, False),
        (12, 2, False),
        (13, 2, True),
        (17, 2, True),
        (26, 4, True),
    ],
)
def test_an_error_while_looks_draw_keeps_what_was_bought_before_it(into, looks, profiled, table, ledger):
    """What is kept is a release: of the survey, and of the looks and the profile that were whole."""
    plain = Watching(ledger.path)
    made(table, None, plain, "looks")
    spent = r"its budget is spent \(ledger entry 7, epsilon 1 of 3 in all\), and another try spends it again"
    with pytest.raises(dpglm.FileError, match=rf"{spent}; `dpglm ledger export` has what was bought") as caught:
        made(table, ledger, DiesAt(ledger.path, plain.seen.count(0) - 27 + into), "looks")
    assert [entry.has_release for entry in ledger.entries()] == [True] * 7
    kept = read_release(ledger.export())
    assert f"has what was bought, release {kept.id};" in str(caught.value)
    assert (len(kept.stages), kept.profile is not None) == (looks, profiled)
    assert len(kept.costs) == 1 + looks + profiled
    assert kept.survey_record.survey.places
    ledger.verify(against={"kept": kept})


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("secret"), MemoryError("secret"), ZeroDivisionError("a\nb")])
@pytest.mark.parametrize(
    ("name", "call", "looks"),
    [("next_viewpoint", 1, 0), ("exact_sums", 3, 1), ("add_look", 3, 3)],
)
def test_whatever_fails_between_looks_ends_in_one_line_that_says_what_was_spent(
    name, call, looks, error, table, ledger, monkeypatch
):
    real, calls = getattr(by_looks, name), []

    def fails(*given, **named):
        calls.append(1)
        if len(calls) == call:
            raise error
        return real(*given, **named)

    monkeypatch.setattr(by_looks, name, fails)
    with pytest.raises(dpglm.FileError) as caught:
        made(table, ledger, OperatingSystemNoise(), "looks")
    said = str(caught.value)
    assert said.splitlines() == [said]
    assert "secret" not in said
    assert f"stopped by an error that dpglm did not expect ({type(error).__name__})" in said
    assert "its budget is spent (ledger entry 7, epsilon 1 of 3 in all)" in said
    kept = read_release(ledger.export())
    assert (len(kept.stages), kept.id in said) == (looks, True)


def test_looks_that_were_paid_for_are_kept_when_they_are_stopped(table, ledger, monkeypatch):
    real, calls = by_looks.add_look, []

    def stops(*given):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(by_looks, "add_look", stops)
    with pytest.raises(KeyboardInterrupt):
        made(table, ledger, OperatingSystemNoise(), "looks")
    assert len(read_release(ledger.export()).stages) == 2


@pytest.mark.parametrize(("method", "last"), [("moments", 1), ("moments", 3), ("looks", 2), ("looks", -5)])
def test_a_killed_process_leaves_the_charge_and_keeps_nothing(method, last, table, ledger, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    command = [sys.executable, __file__, str(tmp_path / "t.csv"), str(ledger.path), str(last), method]
    source = str(Path(dpglm.__path__[0]).parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    killed = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-500:]
    ledger.verify()
    assert [entry.has_release for entry in ledger.entries()] == [False] * (7 if last < 0 else 1)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
def test_a_cap_of_the_releases_own_budget_affords_it_once(epsilon, table, tmp_path, method):
    ledger = dpglm.Ledger.create(tmp_path / "own", SCHEMA.dataset, epsilon=epsilon, delta=1e-6)
    noise = Watching(ledger.path)
    made(table, ledger, noise, method, epsilon)
    drawn = len(noise.seen)
    with pytest.raises(dpglm.BudgetError, match="would exceed the cap"):
        made(table, ledger, noise, method, epsilon)
    assert len(ledger.entries()) == CHARGES[method]
    assert len(noise.seen) == drawn
    assert ledger.summary().spent_epsilon <= epsilon
    ledger.verify()


@pytest.mark.parametrize(("method", "module"), [("moments", by_moments), ("looks", by_looks)])
def test_a_budget_spent_by_another_while_rows_are_read_costs_nothing(method, module, table, ledger, monkeypatch):
    """The cap is checked again when the release is entered."""

    def while_reading(*arguments):
        ledger.spend(release_id="other", mu_squared=ledger.cap_units / 2**160 * (1 - 1e-6), description={})
        return exact_sums(*arguments)

    exact_sums = module.exact_sums
    monkeypatch.setattr(module, "exact_sums", while_reading)
    noise = Watching(ledger.path)
    with pytest.raises(dpglm.BudgetError):
        made(table, ledger, noise, method)
    assert [entry.release_id for entry in ledger.entries()] == ["other"]
    assert not noise.seen


def test_a_budget_spent_by_another_after_the_survey_keeps_the_survey(table, ledger, monkeypatch):
    """Looks are then refused, before any of their noise; the error says what was spent and where it is kept."""

    def another_spends(*arguments):
        left = ledger.cap_units - sum(entry.mu_squared_units for entry in ledger.entries())
        if len(ledger.entries()) == 1:
            ledger.spend(release_id="other", mu_squared=left / 2**160 * (1 - 1e-6), description={})
        return standard_design(*arguments)

    standard_design = by_looks.standard_design
    monkeypatch.setattr(by_looks, "standard_design", another_spends)
    noise = Watching(ledger.path)
    spent = r"its budget is spent \(ledger entry 1, epsilon [0-9.]+ of 3 in all\), and another try spends it again"
    with pytest.raises(dpglm.BudgetError, match=rf"{spent}; `dpglm ledger export` has what was bought") as caught:
        made(table, ledger, noise, "looks")
    assert set(noise.seen) == {1}
    survey, other = ledger.entries()
    assert (survey.has_release, other.release_id) == (True, "other")
    assert f"has what was bought, release {survey.release_id};" in str(caught.value)
    assert read_release(ledger.export(survey.release_id)).stages == ()


@pytest.mark.parametrize("method", ["looks!", 1, None])
def test_another_method_is_refused(method, table):
    with pytest.raises(dpglm.InputError, match=r"method = .*must be one of looks, moments"):
        made(table, None, FixedNoise(), method)


@pytest.mark.parametrize(("name", "value"), [("radius", 1.0), ("allocation", "equal"), ("statistics", "paper")])
def test_options_of_moments_are_refused_for_looks(name, value, table):
    request = Request("y ~ a", SCHEMA, "logistic", 1.0, 1e-6, **{name: value})
    with pytest.raises(dpglm.InputError, match=f"{name} = .*belongs to method='moments'"):
        build_release(table, request, FixedNoise())


# A survey that is used again


def test_a_survey_that_is_known_is_not_paid_for_again(table, ledger):
    first = made(table, ledger, OperatingSystemNoise(), "looks")
    again = Request("y ~ a - 1", SCHEMA, "logistic", 1.0, 1e-6, ledger, survey=first)
    second = build_release(table, again, OperatingSystemNoise())
    assert [entry.description["part"] for entry in ledger.entries()[7:]] == AFTER_THE_SURVEY
    assert second.survey_record == first.survey_record
    assert len(second.costs) == 6
    assert second.privacy.mu == pytest.approx(first.privacy.mu, rel=1e-6)
    ledger.verify(against={"first": first, "second": second})


def test_a_survey_of_other_columns_another_table_or_another_method_is_refused(table):
    wide = dpglm.Schema.from_dict(SCHEMA.to_dict() | {"columns": {**SCHEMA.to_dict()["columns"], "a": {
        "type": "numeric", "lower": 0, "upper": 20}}})  # fmt: skip
    renamed = SCHEMA.to_dict() | {"dataset": SCHEMA.to_dict()["dataset"] | {"name": "u"}}
    surveyed = made(table, None, FixedNoise(), "looks")
    for schema, survey, part in (
        (wide, surveyed, "a: is not in this survey, or was declared differently"),
        (dpglm.Schema.from_dict(renamed), surveyed, "is of another dataset"),
        (SCHEMA, made(table, None, FixedNoise(), "moments"), "must be a release by looks"),
        (SCHEMA, "yesterday's", "must be a release by looks"),
    ):
        with pytest.raises(dpglm.InputError, match=part):
            build_release(table, Request("y ~ a", schema, "logistic", 1.0, 1e-6, survey=survey), FixedNoise())


CONSTANT = dpglm.Schema.from_dict(SCHEMA.to_dict() | {"dataset": {"name": "t", "rows": 4000, "unit": "one person"}})


@pytest.mark.parametrize(("a", "problem"), [(5.0, "a: nearly all rows have one value"), (None, "a: nearly no cell")])
def test_a_column_that_cannot_be_used_stops_the_release_and_spends_the_survey_alone(a, problem, tmp_path):
    """At a budget at which the survey can tell."""
    from seeded_noise import SeededNoise  # not at the top: this file also runs by itself, without the studies

    table = pd.DataFrame({"a": np.full(4000, a, dtype=float), "y": ["no", "yes"] * 2000})
    ledger = dpglm.Ledger.create(tmp_path / "c", CONSTANT.dataset, epsilon=90, delta=1e-6)
    request = Request("y ~ a", CONSTANT, "logistic", 60.0, 1e-6, ledger)
    with pytest.raises(dpglm.errors.SurveyError, match=problem) as caught:
        build_release(table, request, SeededNoise(7))  # other noise misses it about once in 700 tables
    (entry,) = ledger.entries()
    assert entry.has_release
    assert entry.mu_squared_units / 2**160 < 0.16 * caught.value.release.privacy.mu**2
    assert read_release(ledger.export(entry.release_id)) == caught.value.release
    known = replace(request, survey=caught.value.release)  # taken at its word: it goes on all the same
    assert len(build_release(table, known, OperatingSystemNoise()).stages) == 5


@pytest.mark.parametrize("sign", [-1, 1])
def test_noise_alone_never_makes_a_column_useless(sign, table):
    """At 40 rows a noisy share is anything; it must not be taken for a column of one value."""

    class Low(OperatingSystemNoise):
        def draw(self, grid_stddev, size):
            return [round(sign * 3 * grid_stddev) for _ in range(size)]

    assert len(made(table, None, Low(), "looks").stages) == 5


def test_a_release_that_the_ledger_cannot_keep_is_handed_over(table, ledger, monkeypatch, method):
    """It is paid for: an error here would lose it, and a second try would pay again."""

    def full(*_):
        raise dpglm.FileError("ledger", "t.ledger", "cannot be written: the disk is full", "free some space")

    monkeypatch.setattr(dpglm.Ledger, "keep", full)
    with pytest.warns(UserWarning, match="the disk is full: it keeps no copy of this release, whose budget is spent"):
        release = made(table, ledger, OperatingSystemNoise(), method)
    assert release.ledger.entry == len(ledger.entries()) == CHARGES[method]
    assert not any(entry.has_release for entry in ledger.entries())


if __name__ == "__main__":
    made(sys.argv[1], sys.argv[2], DiesAt(sys.argv[2], int(sys.argv[3]), kill=True), sys.argv[4])
