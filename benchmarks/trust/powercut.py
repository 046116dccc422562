"""Power cuts. A ledger's writes are recorded; then every state that a disk could be left in is rebuilt and opened.

    python -m trust.powercut SEED ROUNDS VARIANT FOLDER      (with the shim of crash.c)

What was written to a file since its last sync may be on the disk, or not, or torn at a sector, in any combination;
names that were made or removed since their folder's last sync likewise. Whatever is drawn, the ledger must open,
verify, hold every charge that had been acknowledged by then, and none that was not asked for. The variant "no sync"
is wrong on purpose.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from dpglm.custodian import ledger as ledger_module
from dpglm.custodian.ledger import Ledger
from dpglm.errors import DpglmError
from dpglm.schema import Dataset
from trust.shim import Shim

PATIENTS = Dataset(id="patients", name="patients", rows=758, unit="one patient")
CHARGES = 6
_SECTOR = 512


@dataclass(frozen=True)
class Call:
    """One call that changes files: W write, T truncate, S sync, R rename, L link, U unlink, A acknowledged."""

    kind: str
    path: str
    other: str
    number: int
    data: bytes


@dataclass
class File:
    """What is surely on the disk, and what may be."""

    durable: bytes
    pending: list[Call] = field(default_factory=list)

    def state(self, chance: random.Random | None) -> bytes:
        """All of it, or what a power cut could leave."""
        content = bytearray(self.durable)
        for call in self.pending:
            data = call.data
            if chance is not None and chance.random() < 0.5:
                data = data[: chance.randrange(0, len(data) + 1, _SECTOR)] if chance.random() < 0.5 else b""
                if not data:
                    continue
            if call.kind == "T":
                del content[call.number :]
            else:
                content.extend(bytes(max(call.number + len(data) - len(content), 0)))
                content[call.number : call.number + len(data)] = data
        return bytes(content)


def record(folder: Path, variant: str) -> tuple[bytes, list[Call], list[str]]:
    """A few charges on a new ledger: its first bytes, every call, and the identities in the order they were charged."""
    shim = Shim()
    book = Ledger.create(folder / "a.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
    start = book.path.read_bytes()
    handle = os.open(folder / "calls", os.O_CREAT | os.O_WRONLY)
    names = [f"release-{number}" for number in range(CHARGES)]
    settings = {"no sync": _without_sync}.get(variant, ledger_module.sqlite3.connect)
    with patch.object(ledger_module.sqlite3, "connect", settings):
        shim.log(handle)
        for number, name in enumerate(names):
            book.spend(release_id=name, mu_squared=1e-3, description={"n": number})
            shim.mark(number)
            if number % 2:
                book.keep(name, f"release {name} {'x' * 5000 * number}")
        shim.log(-1)
    os.close(handle)
    return start, parse(Path(folder / "calls").read_bytes()), names


def _without_sync(*arguments: object, **options: object) -> object:
    """Wrong on purpose: a connection that never waits for the disk."""
    connection = _REAL_CONNECT(*arguments, **options)  # type: ignore[arg-type]

    class Hasty:
        def execute(self, statement: str, *more: object) -> object:
            return connection.execute(statement.replace("synchronous = EXTRA", "synchronous = OFF"), *more)

        def close(self) -> None:
            connection.close()

    return Hasty()


_REAL_CONNECT = ledger_module.sqlite3.connect


def parse(log: bytes) -> list[Call]:
    calls, place = [], 0
    while place < len(log):
        end = log.index(b"\n", place)
        kind, path, other, number, size = log[place:end].decode().split("\t")
        place = end + 1 + int(size)
        if not path.endswith("-shm"):  # shared memory: SQLite makes it anew
            calls.append(Call(kind, path, other, int(number), log[end + 1 : place]))
    return calls


def states_after(start: bytes, ledger: Path, calls: list[Call], chance: random.Random) -> dict[str, bytes]:
    """The files of the ledger as a power cut after these calls could leave them."""
    files = {str(ledger): File(start)}
    gone: dict[str, File] = {}  # names whose removal is not synced yet
    fresh: set[str] = set()  # names whose making is not synced yet
    for call in calls:
        if call.kind in "WT":
            if call.path not in files:
                files[call.path] = File(b"")
                fresh.add(call.path)
            files[call.path].pending.append(call)
        elif call.kind == "S" and call.path in files:
            files[call.path] = File(files[call.path].state(None))
        elif call.kind == "S":  # a folder
            fresh.clear()
            gone.clear()
        elif call.kind == "U" and call.path in files:
            gone[call.path] = files.pop(call.path)
    found = {path: file.state(chance) for path, file in files.items() if path not in fresh or chance.random() < 0.5}
    # A removed file that comes back does so with what was on the disk.
    found |= {path: file.state(chance) for path, file in gone.items() if path not in found and chance.random() < 0.5}
    return found


def run(seed: int, rounds: int, variant: str, folder: Path) -> dict[str, object]:
    chance = random.Random(seed)
    start, calls, names = record(folder, variant)
    ledger = folder / "a.ledger"
    changing = [number for number, call in enumerate(calls, 1) if call.kind != "A"]
    lost, wrong = 0, []
    for number in range(rounds):
        cut = changing[number % len(changing)]
        before = calls[:cut]
        acknowledged = {names[call.number] for call in before if call.kind == "A"}
        with tempfile.TemporaryDirectory(dir=folder) as name:
            for path, content in states_after(start, ledger, before, chance).items():
                Path(name, Path(path).name).write_bytes(content)
            try:
                book = Ledger.open(Path(name, "a.ledger"))
                book.verify()
                held = [entry.release_id for entry in book.entries()]
            except DpglmError as error:
                wrong.append(f"after call {cut}: {error}".replace(f"{name}/", ""))
                continue
            lost += len(acknowledged - set(held))
            if held != names[: len(held)]:
                wrong.append(f"after call {cut}: {held}")
    return {
        "rounds": rounds, "calls": len(changing), "lost_entries": lost, "problems": wrong[:5],
        "number_of_problems": len(wrong) + lost,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))))
