"""Eight processes race on one ledger while the parent kills them at random moments.

Each worker repeats what a release does: spend, draw noise (a short sleep), write an output file named by the release,
keep. Whenever an output has appeared, the parent waits a random moment, sends SIGKILL to a random worker at work and
starts another in its place: up to twelve times before the last quarter of the race, so that all eight meet at the cap.
Checked at the end, on the files alone:

* the sum of the entries is at most the cap, and the cap was reached, not avoided;
* every output file has an entry: noise never comes before its charge;
* SQLite's integrity check and ``verify`` hold, whatever the kills interrupted;
* kills landed between ``spend`` and ``keep``: entries without a kept release exist.

The same race must convict two wrong ledgers: one checks the cap outside of the transaction that inserts, one draws
noise before it spends. SIGKILL shows safety when a process crashes, not the machine: for that, the unit tests check
that every connection is synchronous.

Chance: a kill lands between ``spend`` and ``keep`` with a probability of a half or more (measured: 10 to 18 of 20), so
that all of 8 to 12 kills miss with one below 0.004. In the wrong ledger a worker spends most of its time between
reading the budget and inserting, so it escapes only if none of the other seven is there when the last affordable
entry goes in (measured: never in 26 runs on a busy machine).
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

import dpglm
from dpglm import privacy
from dpglm.custodian.ledger import Entry, Ledger
from dpglm.errors import BudgetError, FileError
from dpglm.schema import Dataset

WORKERS = 8
CHARGES = 80  # how many releases the cap pays for
KILLS = 12  # at most
FEW_KILLS = 3  # for wrong ledgers, which fall without any
REFUSED = 3  # a worker's exit status
SECONDS = 60.0  # the race is given up, and fails, after this
NOISE_SECONDS = 0.05
PATIENTS = Dataset(id="patients-2024", name="patients", rows=758, unit="one patient")


class ChecksOutsideTheTransaction(Ledger):
    """Wrong on purpose: read, decide, insert."""

    def spend(self, **charge: object) -> Entry:  # type: ignore[override]
        self.check_affordable(charge["mu_squared"])  # type: ignore[arg-type]
        time.sleep(0.25)
        return super().spend(**charge)  # type: ignore[arg-type]

    def _refuse_beyond_cap(self, cost: int, spent: int) -> None:
        if sys._getframe(1).f_code.co_name == "check_affordable":
            super()._refuse_beyond_cap(cost, spent)


def work(variant: str, ledger_path: str, outputs: Path) -> int:
    """One worker: releases until the cap refuses one."""
    privacy.epsilon_of = lambda mu, delta: 0.0  # only the words of a refusal use it, and it would load scipy
    ledger = (ChecksOutsideTheTransaction if variant == "checks outside" else Ledger).open(ledger_path)
    (outputs.parent / f"ready-{os.getpid()}").touch()
    mu_squared = ledger.cap_units / 2**160 / CHARGES * (1 - 1e-12)
    while True:
        release_id = uuid.uuid4().hex
        if variant == "noise first":
            (outputs / release_id).write_text(release_id)
        try:
            ledger.spend(release_id=release_id, mu_squared=mu_squared, description={"process": os.getpid()})
        except BudgetError:
            return REFUSED
        time.sleep(random.uniform(0.5, 1.5) * NOISE_SECONDS)
        (outputs / release_id).write_text(release_id)
        ledger.keep(release_id, f"release {release_id}")


@dataclass(frozen=True)
class Outcome:
    """What the race left behind."""

    ledger: Ledger
    entries: tuple[Entry, ...]
    outputs: set[str]
    kills: int
    statuses: list[int]
    errors: str

    @property
    def spent_units(self) -> int:
        return sum(entry.mu_squared_units for entry in self.entries)

    @property
    def outputs_without_an_entry(self) -> set[str]:
        return self.outputs - {entry.release_id for entry in self.entries}


def race(folder: Path, variant: str, seed: int, most_kills: int = KILLS) -> Outcome:
    """Run the workers and the killer until the cap has refused every worker."""
    chance = random.Random(seed)
    ledger = Ledger.create(folder / "raced.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
    outputs = folder / "outputs"
    outputs.mkdir()
    source = str(Path(dpglm.__path__[0]).parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, __file__, variant, str(ledger.path), str(outputs)]
    running: list[subprocess.Popen[bytes]] = []
    statuses: list[int] = []
    kills = seen = 0
    deadline = time.monotonic() + SECONDS

    with open(folder / "errors.txt", "wb") as errors:

        def start() -> None:
            running.append(subprocess.Popen(command, stderr=errors, env=environment))

        try:
            for _ in range(WORKERS):
                start()
            while running and time.monotonic() < deadline:
                time.sleep(0.002)
                for worker in [worker for worker in running if worker.poll() is not None]:
                    running.remove(worker)
                    statuses.append(worker.returncode)
                written = len(os.listdir(outputs))
                ready = [worker for worker in running if (folder / f"ready-{worker.pid}").exists()]
                if ready and kills < most_kills and seen < written <= CHARGES * 3 // 4:
                    seen = written
                    time.sleep(chance.uniform(0.0, 2 * NOISE_SECONDS))
                    victim = chance.choice(ready)
                    running.remove(victim)
                    victim.kill()
                    victim.wait()
                    kills += victim.returncode == -signal.SIGKILL
                    start()
        finally:
            for worker in running:
                worker.kill()
                worker.wait()
    assert not running, f"the cap did not stop the race within {SECONDS} s"
    names = set(os.listdir(outputs))
    return Outcome(ledger, ledger.entries(), names, kills, statuses, (folder / "errors.txt").read_text())


def test_no_kill_and_no_race_gets_past_the_cap(tmp_path: Path) -> None:
    outcome = race(tmp_path, "right", seed=1)
    assert outcome.errors == ""
    assert set(outcome.statuses) == {REFUSED}
    assert len(outcome.entries) == CHARGES  # so the sum is within the cap, and the cap was reached
    assert outcome.spent_units <= outcome.ledger.cap_units
    assert outcome.outputs_without_an_entry == set()
    outcome.ledger.verify()
    with closing(sqlite3.connect(outcome.ledger.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    kept = {entry.release_id for entry in outcome.entries if entry.has_release}
    assert kept <= outcome.outputs
    assert outcome.kills >= 8
    assert 0 < CHARGES - len(kept) <= outcome.kills  # kills between spend and keep, each costing one charge at most
    with pytest.raises(BudgetError):  # a crash is not a refund
        outcome.ledger.spend(
            release_id="late", mu_squared=1.5 * outcome.ledger.cap_units / 2**160 / CHARGES, description={}
        )


def test_the_race_convicts_a_ledger_that_checks_outside_of_the_transaction(tmp_path: Path) -> None:
    outcome = race(tmp_path, "checks outside", seed=2, most_kills=FEW_KILLS)
    assert outcome.errors == ""
    assert outcome.spent_units > outcome.ledger.cap_units
    with pytest.raises(FileError, match="exceed its cap"):
        outcome.ledger.verify()


def test_the_race_convicts_noise_that_comes_before_the_charge(tmp_path: Path) -> None:
    outcome = race(tmp_path, "noise first", seed=3, most_kills=FEW_KILLS)
    assert outcome.outputs_without_an_entry
    assert outcome.spent_units <= outcome.ledger.cap_units


if __name__ == "__main__":
    sys.exit(work(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
