"""Sixteen processes race for the last of a budget, and some are killed while they do.

    python -m trust.races SEED ROUNDS VARIANT FOLDER

Each repeats what a release does: spend, draw noise (a pause), write an output named by its release, keep. The parent
kills some at random moments. Afterwards the sum must be within the cap, every output must have its entry, every
charge that a process had acknowledged must be there, and the ledger must verify. The variant "check outside" is wrong
on purpose: it decides before the transaction that inserts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from dpglm import privacy
from dpglm.custodian.ledger import UNITS, Entry, Ledger
from dpglm.errors import BudgetError, DpglmError
from dpglm.schema import Dataset

PROCESSES = 16
CHARGES = 24  # that the cap pays for
KILLS = 4
PATIENTS = Dataset(id="patients", name="patients", rows=758, unit="one patient")


class ChecksOutside(Ledger):
    """Wrong on purpose: read, decide, insert."""

    def spend(self, **charge: Any) -> Entry:
        self.check_affordable(charge["mu_squared"])
        time.sleep(0.02)
        return super().spend(**charge)

    def _refuse_beyond_cap(self, cost: int, spent: int) -> None:
        if sys._getframe(1).f_code.co_name == "check_affordable":
            super()._refuse_beyond_cap(cost, spent)


def work(kind: type[Ledger], path: Path, outputs: Path, start: float, chance: random.Random) -> None:
    """One process, until the cap refuses it. What it was told is noted in a file of its own."""
    status = 1
    try:
        ledger = kind.open(path)
        cost = ledger.cap_units / UNITS / CHARGES * (1 - 1e-12)
        with open(outputs / f"acknowledged-{os.getpid()}", "a") as acknowledged:
            time.sleep(max(start - time.monotonic(), 0))
            while True:
                name = uuid.uuid4().hex
                ledger.spend(release_id=name, mu_squared=cost, description={"process": os.getpid()})
                acknowledged.write(name + "\n")
                acknowledged.flush()
                time.sleep(chance.uniform(0, 0.01))
                (outputs / name).write_text(name)
                ledger.keep(name, f"release {name}")
    except BudgetError:
        status = 0
    finally:
        os._exit(status)


def race(kind: type[Ledger], folder: Path, chance: random.Random) -> list[str]:
    """One round; what is wrong afterwards."""
    ledger = Ledger.create(folder / "raced.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
    outputs = folder / "outputs"
    outputs.mkdir()
    start = time.monotonic() + 0.02
    running = []
    for _ in range(PROCESSES):
        seed = chance.random()
        process = os.fork()
        if process == 0:
            work(kind, ledger.path, outputs, start, random.Random(seed))
        running.append(process)
    victims = chance.sample(running, KILLS)
    for victim in victims:
        time.sleep(chance.uniform(0, 0.05))
        os.kill(victim, signal.SIGKILL)
    ends = {process: os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in running}
    return _problems(ledger, outputs, {process: end for process, end in ends.items() if process not in victims})


def _problems(ledger: Ledger, outputs: Path, ends: dict[int, int]) -> list[str]:
    problems = [f"a process ended with {end}" for end in ends.values() if end != 0]
    entries = Ledger.open(ledger.path).entries()
    held = {entry.release_id for entry in entries}
    names = set(os.listdir(outputs))
    notes = {name for name in names if name.startswith("acknowledged")}
    told = {line for note in notes for line in (outputs / note).read_text().split("\n")[:-1]}
    if sum(entry.mu_squared_units for entry in entries) > ledger.cap_units:
        problems.append(f"over the cap: {len(entries)} entries of {CHARGES}")
    if len(entries) < CHARGES:
        problems.append(f"stopped before the cap: {len(entries)} entries")
    if names - notes - held:
        problems.append("an output without an entry")
    if told - held:
        problems.append("an acknowledged entry was lost")
    try:
        ledger.verify()
    except DpglmError as error:
        problems.append(str(error).replace(f"{ledger.path.parent}/", ""))
    return problems


def run(seed: int, rounds: int, variant: str, folder: Path) -> dict[str, Any]:
    privacy.epsilon_of = lambda mu, delta: 0.0  # only the words of a refusal use it, and it takes longer than the race
    kind = ChecksOutside if variant == "check outside" else Ledger
    chance, problems = random.Random(seed), []
    for number in range(rounds):
        place = folder / str(number)
        place.mkdir()
        problems += [f"round {number}: {problem}" for problem in race(kind, place, chance)]
    return {
        "rounds": rounds, "processes": PROCESSES, "charges": CHARGES, "kills": KILLS * rounds, "problems": problems[:5],
        "number_of_problems": len(problems),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))))
