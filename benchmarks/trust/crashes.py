"""A release that dies, or whose disk fails, at every call that changes a file.

    python -m trust.crashes SEED ROUNDS VARIANT FOLDER      (with the shim of crash.c)

Every round forks a process that makes a real release with a ledger and saves it, and lets it end (k), tear a write
and end (t), find the disk full (e) or read-only (r), meet a bad sector (o), or a limit on the size of files (s), at
the next place in turn. After each the ledger and the output must be in order:

* the ledger opens and verifies, its earlier entries are as they were, its sum is within the cap;
* noise was drawn only if the charge was on the disk; an output file, if there is one, is whole and has its entry;
* a process that did not die says one documented error, or succeeds.

The variant "noise first" is wrong on purpose.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

import dpglm
from dpglm.custodian import by_looks
from dpglm.custodian.ledger import Entry, Ledger
from dpglm.custodian.noise import OperatingSystemNoise
from dpglm.errors import BudgetError, DpglmError
from trust.shim import Shim

SCHEMA = dpglm.Schema.from_dict({
    "dataset": {"name": "patients", "rows": 3, "unit": "one patient"},
    "columns": {
        "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        "age": {"type": "numeric", "lower": 20, "upper": 90},
    },
})  # fmt: skip
TABLE = pa.table({"sick": ["no", "yes", "no"], "age": [30.0, 60.0, 50.0]})
ACTIONS = {"k": 0, "t": 0, "e": errno.ENOSPC, "r": errno.EROFS, "o": errno.EIO, "s": 0}
FINISHED, REFUSED, ERROR, DIED = 10, 11, 12, 77
ENTRIES = 7  # a survey's, a profile's, and five looks'


def release(ledger: Path, output: Path) -> None:
    made = dpglm.release(
        TABLE,
        "sick ~ age",
        schema=SCHEMA,
        family="logistic",
        epsilon=0.3,
        delta=1e-6,
        ledger=ledger,
    )
    made.save(output)


def child(shim: Shim, ledger: Path, output: Path, said: int, call: int, action: str, variant: str) -> None:
    """The process that is to die. It tells its parent of the first noise, and how it ended."""
    draw = OperatingSystemNoise.draw

    def telling(self: Any, stddev: float, size: int) -> list[int]:
        os.write(said, b"noise\n")
        return draw(self, stddev, size)

    def telling_look(*look: Any) -> Any:
        os.write(said, b"look\n")
        return noisy_look(*look)

    OperatingSystemNoise.draw = telling  # type: ignore[method-assign]
    noisy_look, by_looks._noisy_look = by_looks._noisy_look, telling_look
    status = 99
    try:
        if action == "s":
            resource.setrlimit(resource.RLIMIT_FSIZE, (call * 600, call * 600))
        else:
            shim.arm(call, "e" if action == "r" else action, ACTIONS[action])
        if variant == "noise first":
            OperatingSystemNoise().draw(1e6, 1)
        with warnings.catch_warnings(record=True) as warned:
            release(ledger, output)
        os.write(said, b"not kept\n" * bool(warned))
        status = FINISHED
    except BudgetError:
        status = REFUSED
    except DpglmError as error:
        status = ERROR if str(error).count("\n") == 0 else 98
    except BaseException as error:
        os.write(said, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


def calls_of_a_release(shim: Shim, folder: Path) -> int:
    ledger = _new_ledger(folder, "counted")
    shim.arm(10**9)
    release(ledger.path, folder / "counted.json")
    count = shim.count()
    shim.arm(0)
    return count


def run(seed: int, rounds: int, variant: str, folder: Path) -> dict[str, Any]:
    shim = Shim()
    calls = calls_of_a_release(shim, folder)
    ledger, before, problems = _new_ledger(folder, "ledger-0"), (), []
    ends: dict[str, int] = {}
    places = [(action, call) for call in range(1, calls + 2) for action in ACTIONS]
    for number in range(rounds):
        action, call = places[(seed + 37 * number) % len(places)]
        output = folder / f"{number}.release.json"
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reader)
            child(shim, ledger.path, output, writer, call, action, variant)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            said = stream.read().decode()
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        before, found = check(ledger, before, output, said, status)
        problems += [f"{action} at call {call}: {problem}" for problem in found]
        ends[str(status)] = ends.get(str(status), 0) + 1
        output.unlink(missing_ok=True)
        if status == REFUSED:
            ledger, before = _new_ledger(folder, f"ledger-{number + 1}"), ()
    names = {
        str(FINISHED): "finished",
        str(REFUSED): "refused at the cap",
        str(ERROR): "one-line error",
        str(DIED): "died",
    }
    return {
        "rounds": rounds, "calls_of_a_release": calls, "ends": {names.get(end, end): n for end, n in ends.items()},
        "problems": problems[:5], "number_of_problems": len(problems),
    }  # fmt: skip


def check(
    ledger: Ledger, before: tuple[Entry, ...], output: Path, said: str, status: int
) -> tuple[tuple[Entry, ...], list[str]]:
    """The entries now, and what is wrong."""
    problems = []
    if status not in (FINISHED, REFUSED, ERROR, DIED):
        problems.append(f"ended with {status}: {said}")
    try:
        opened = Ledger.open(ledger.path)
        opened.verify()
        entries = opened.entries()
    except DpglmError as error:
        return before, [*problems, f"the ledger: {error}"]
    if [entry.digest for entry in entries[: len(before)]] != [entry.digest for entry in before]:
        problems.append("an entry was lost or changed")
    if sum(entry.mu_squared_units for entry in entries) > opened.cap_units:
        problems.append("over the cap")
    added = entries[len(before) :]
    if len(added) not in (0, 1, ENTRIES):
        problems.append(f"{len(added)} entries for one release")
    if "noise" in said and not added:
        problems.append("noise without an entry")
    if "look" in said and len(added) < ENTRIES:
        problems.append("a look's noise without the looks' entries")
    if output.exists():
        try:
            if dpglm.load_release(output).id not in {entry.release_id for entry in added}:
                problems.append("an output without an entry")
        except DpglmError as error:
            problems.append(f"the output: {error}")
    kept = added and (added[-1].has_release or "not kept" in said)  # a disk that fails late: a warning says so
    if status == FINISHED and not (output.exists() and kept):
        problems.append("finished without output, entry or kept copy")
    return entries, problems


def _new_ledger(folder: Path, name: str) -> Ledger:
    (folder / name).mkdir()  # one folder holds one ledger of a dataset
    return Ledger.create(folder / name / "patients.ledger", SCHEMA.dataset, epsilon=2.0, delta=1e-5)


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))))
