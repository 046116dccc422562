"""The order of events: budget first, then noise; nothing is lost and nothing is said about rows when a step fails."""

import os
import signal
import subprocess
import sys
import traceback
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.centring import Centring
from dpglm.custodian import build, passes
from dpglm.custodian.build import build_release
from dpglm.custodian.noise import FixedNoise, OperatingSystemNoise
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


@pytest.fixture
def table():
    rng = np.random.default_rng(5)
    return pd.DataFrame({"a": rng.uniform(-1, 12, 40), "y": rng.choice(["no", "yes"], 40)})


@pytest.fixture
def ledger(tmp_path):
    return dpglm.Ledger.create(tmp_path / "t.ledger", SCHEMA.dataset, epsilon=3, delta=1e-6)


def made(table, ledger, noise, stages=1):
    return build_release(table, "y ~ a", SCHEMA, "logistic", 1.0, 1e-6, ledger, None, "auto", "full", noise, stages)


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


def test_the_entry_is_there_before_any_noise_is_drawn(table, ledger):
    noise = Watching(ledger.path)
    release = made(table, ledger, noise)
    assert set(noise.seen) == {1}
    assert release.ledger.entry == 1
    assert ledger.entries()[0].has_release


def test_a_crash_while_noise_is_drawn_stays_charged_and_releases_nothing(table, ledger):
    with pytest.raises(RuntimeError):
        made(table, ledger, Watching(ledger.path, fail=True))
    entry = ledger.entries()[0]
    assert not entry.has_release
    assert ledger.summary().spent_mu > 0
    ledger.verify()


def test_a_failed_write_costs_nothing(table, ledger, tmp_path):
    release = made(table, ledger, OperatingSystemNoise())
    with pytest.raises(dpglm.FileError, match="cannot be written"):
        release.save(tmp_path / "no such folder" / "r.json")
    assert read_release(ledger.export(release.id)) == release
    assert len(ledger.entries()) == 1


def test_the_second_entry_says_what_both_have_spent(table, ledger):
    first, second = (made(table, ledger, OperatingSystemNoise()) for _ in range(2))
    assert second.ledger.entry == 2
    assert second.ledger.spent_mu == pytest.approx(np.hypot(first.privacy.mu, second.privacy.mu), rel=1e-9)
    assert first.ledger.spent_mu == pytest.approx(first.privacy.mu, rel=1e-9)


def test_a_bug_in_the_rows_code_says_nothing_about_rows(table, ledger, monkeypatch):
    def broken(batch, *_):
        raise ValueError(f"cannot handle {batch.column(1)[0]}")

    monkeypatch.setattr(passes, "fixed_point_rows", broken)
    with pytest.raises(dpglm.FileError) as caught:
        made(table, ledger, OperatingSystemNoise())
    shown = "".join(traceback.format_exception(caught.value))
    assert "cannot handle" not in shown
    assert str(round(float(table["a"][0]), 3)) not in shown
    assert not ledger.entries()


def test_fixed_noise_marks_the_file(table):
    release = made(table, None, FixedNoise())
    assert not release.private
    assert release.statement.startswith("NOT PRIVATE")
    assert '"private": false' in release.to_json()
    assert made(table, None, OperatingSystemNoise()).private


def test_a_release_without_a_ledger_says_so(table):
    assert "without a ledger" in made(table, None, OperatingSystemNoise()).statement


# Several stages. What is between them, the fit to the noisy sums so far, is replaced by a given centring.


def given_looks():
    looks = types.ModuleType("dpglm.analyst.looks")
    looks.first_looks = lambda releases: [None] * len(releases)
    looks.knowledge_of_first = lambda release, first: None
    looks.add_look = lambda release, known, stage: None
    looks.next_centring = lambda release, known, mu: Centring((0.1, 0.4), ((2.0, 0.1), (0.1, 3.0)), 4.0, 8.0, 1.0, 6.0)
    return looks


@pytest.fixture
def without_fits(monkeypatch):
    monkeypatch.setitem(sys.modules, "dpglm.analyst.looks", given_looks())


class DiesAt(Watching):
    """Noise that fails at draw number ``last``: by an error, or by killing the process."""

    def __init__(self, path, last, kill=False):
        super().__init__(path)
        object.__setattr__(self, "last", last)
        object.__setattr__(self, "kill", kill)

    def draw(self, grid_stddev, size):
        drawn = super().draw(grid_stddev, size)
        if len(self.seen) == self.last:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the power goes out")
        return drawn


@pytest.mark.usefixtures("without_fits")
@pytest.mark.parametrize("stages", [2, 3])
def test_every_stage_is_entered_before_any_noise_is_drawn(stages, table, ledger):
    noise = Watching(ledger.path)
    release = made(table, ledger, noise, stages)
    assert set(noise.seen) == {stages}
    entries = ledger.entries()
    assert {entry.release_id for entry in entries} == {release.id}
    assert [entry.description["stage"] for entry in entries] == list(range(1, stages + 1))
    assert all(entry.has_release for entry in entries)
    assert release.ledger.entry == stages
    assert release.ledger.spent_mu == pytest.approx(release.privacy.mu, rel=1e-12)
    assert ledger.summary().number_of_kept_releases == 1
    assert read_release(ledger.export(release.id)) == release
    assert [len(stage.blocks) for stage in release.stages] == [4] + [3] * (stages - 1)


@pytest.mark.usefixtures("without_fits")
def test_a_crash_in_any_stage_leaves_all_charges_and_keeps_nothing(table, tmp_path):
    watching = Watching(dpglm.Ledger.create(tmp_path / "whole", SCHEMA.dataset, epsilon=1, delta=1e-6).path)
    made(table, tmp_path / "whole", watching, 3)
    draws = len(watching.seen)
    assert draws >= 9
    for last in (1, 2, draws // 2, draws - 1, draws):
        ledger = dpglm.Ledger.create(tmp_path / f"dies at {last}", SCHEMA.dataset, epsilon=1, delta=1e-6)
        with pytest.raises(RuntimeError):
            made(table, ledger, DiesAt(ledger.path, last), 3)
        assert [entry.has_release for entry in ledger.entries()] == [False] * 3
        ledger.verify()
        with pytest.raises(dpglm.FileError, match="no such finished release"):
            ledger.export()
        with pytest.raises(dpglm.BudgetError):  # a crash is no refund
            made(table, ledger, OperatingSystemNoise(), 3)
        assert len(ledger.entries()) == 3


@pytest.mark.parametrize("last", [1, 7])
def test_a_killed_process_leaves_all_charges_and_keeps_nothing(last, table, ledger, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    command = [sys.executable, __file__, str(tmp_path / "t.csv"), str(ledger.path), str(last)]
    source = str(Path(dpglm.__path__[0]).parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    killed = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-500:]
    ledger.verify()
    assert [entry.has_release for entry in ledger.entries()] == [False] * 3


@pytest.mark.usefixtures("without_fits")
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("stages", [2, 3])
def test_a_cap_of_the_releases_own_budget_affords_it_once(stages, epsilon, table, tmp_path):
    def again():
        return build_release(
            table, "y ~ a", SCHEMA, "logistic", epsilon, 1e-6, ledger, None, "auto", "full", noise, stages
        )

    ledger = dpglm.Ledger.create(tmp_path / "own", SCHEMA.dataset, epsilon=epsilon, delta=1e-6)
    noise = Watching(ledger.path)
    again()
    drawn = len(noise.seen)
    with pytest.raises(dpglm.BudgetError, match="would exceed the cap"):
        again()
    assert len(ledger.entries()) == stages
    assert len(noise.seen) == drawn
    assert ledger.summary().spent_epsilon <= epsilon
    ledger.verify()


@pytest.mark.usefixtures("without_fits")
def test_a_refused_release_of_stages_costs_nothing(table, tmp_path):
    """The cap would pay for the first stages, not for all: nothing is charged, and no noise is drawn."""
    ledger = dpglm.Ledger.create(tmp_path / "small", SCHEMA.dataset, epsilon=0.97, delta=1e-6)
    noise = Watching(ledger.path)
    with pytest.raises(dpglm.BudgetError):
        made(table, ledger, noise, 3)
    assert not ledger.entries()
    assert not noise.seen


@pytest.mark.usefixtures("without_fits")
def test_a_budget_spent_by_another_while_rows_are_read_costs_nothing(table, ledger, monkeypatch):
    """The cap is checked again, for all stages at once, when they are entered."""

    def while_reading(*arguments):
        ledger.spend(release_id="other", mu_squared=ledger.cap_units / 2**160 * 0.95, description={})
        return exact_sums(*arguments)

    exact_sums = build.exact_sums
    monkeypatch.setattr(build, "exact_sums", while_reading)
    noise = Watching(ledger.path)
    with pytest.raises(dpglm.BudgetError):
        made(table, ledger, noise, 3)
    assert [entry.release_id for entry in ledger.entries()] == ["other"]
    assert not noise.seen


@pytest.mark.usefixtures("without_fits")
def test_a_bug_in_a_later_look_says_nothing_about_rows(table, ledger, monkeypatch):
    def broken(rows, **_):
        raise ValueError(f"cannot handle {rows.x[0, 0]}")

    monkeypatch.setattr(build, "centred_sums", broken)
    with pytest.raises(dpglm.FileError) as caught:
        made(table, ledger, OperatingSystemNoise(), 3)
    assert "cannot handle" not in "".join(traceback.format_exception(caught.value))
    assert [entry.has_release for entry in ledger.entries()] == [False] * 3


if __name__ == "__main__":
    sys.modules["dpglm.analyst.looks"] = given_looks()
    made(sys.argv[1], sys.argv[2], DiesAt(sys.argv[2], int(sys.argv[3]), kill=True), 3)


def test_an_error_after_the_charge_says_that_the_budget_is_spent(table, ledger):
    """A table that changes between stages is refused when its budget is gone: trying again would cost it again."""
    streams = iter([table, table, table, table.iloc[:-1]])

    def opened():
        import pyarrow as pa

        return pa.Table.from_pandas(next(streams, table.iloc[:-1]))

    with pytest.raises(dpglm.InputError, match=r"39 rows; its budget is spent \(ledger entry 2\), and another try"):
        made(opened, ledger, OperatingSystemNoise(), stages=2)
    assert len(ledger.entries()) == 2
    with pytest.raises(dpglm.InputError) as refused:  # without a ledger nothing is spent
        made(table.iloc[:-1], None, OperatingSystemNoise())
    assert "budget" not in str(refused.value)


def test_a_release_that_the_ledger_cannot_keep_is_handed_over(table, ledger, monkeypatch):
    """It is paid for: an error here would lose it, and a second try would pay again."""

    def full(*_):
        raise dpglm.FileError("ledger", "t.ledger", "cannot be written: the disk is full", "free some space")

    monkeypatch.setattr(dpglm.Ledger, "keep", full)
    with pytest.warns(UserWarning, match="the disk is full: it keeps no copy of this release, whose budget is spent"):
        release = made(table, ledger, OperatingSystemNoise())
    assert release.ledger.entry == 1
    assert len(ledger.entries()) == 1
    assert not ledger.entries()[0].has_release


def test_a_table_function_that_fails_later_quotes_nothing(table, ledger):
    calls = []

    def opened():
        import pyarrow as pa

        calls.append(1)
        if len(calls) > 1:
            raise ValueError("row 17: John Smith")
        return pa.Table.from_pandas(table)

    with pytest.raises(dpglm.InputError) as refused:
        made(opened, ledger, OperatingSystemNoise(), stages=2)
    assert "Smith" not in "".join(traceback.format_exception(refused.value))
    assert "failed when it was called again" in str(refused.value)
    assert len(ledger.entries()) == 0
