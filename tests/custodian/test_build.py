"""The order of events: budget first, then noise; nothing is lost and nothing is said about rows when a step fails."""

import traceback

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.custodian import build
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


def made(table, ledger, noise):
    return build_release(table, "y ~ a", SCHEMA, "logistic", 1.0, 1e-6, ledger, None, "auto", "full", noise)


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

    monkeypatch.setattr(build, "fixed_point_rows", broken)
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
