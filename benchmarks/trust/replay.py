"""One release, watched: its file, its words, its ledger, its order of events, and what noise was added to what.

The noise is a stand-in. The first table of a case gets recorded noise of the right size. For each other table the
noise is what makes the *same* release: the recorded output less that table's own sums. So everything that the release
shows must be the same to the last byte, whatever the rows hold; and all that is left of the difference between two
tables is how far the noise had to move.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sqlite3
import sys
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import dpglm
from dpglm import formula as formula_module
from dpglm.custodian import allocation, by_looks, by_moments, charge, look_plan, mechanism
from dpglm.custodian import ledger as ledger_module
from dpglm.custodian.ledger import Ledger
from dpglm.custodian.noise import OperatingSystemNoise
from dpglm.errors import SurveyError
from dpglm.releases import Release
from trust.cases import Case
from trust.sources import make_table
from trust.viewpoints import hashed_viewpoints

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
IDENTITY = uuid.UUID(int=0x5EED)


@dataclass(frozen=True)
class Noised:
    """One call of ``add_noise``: exact sums, the scales that were asked for, the draws, what came out."""

    sums: tuple[int, ...]
    stddevs: tuple[float, ...]
    draws: tuple[tuple[float, tuple[int, ...]], ...]
    output: tuple[int, ...]


@dataclass
class Watch:
    """What happened, in order."""

    events: list[tuple[Any, ...]] = field(default_factory=list)
    noised: list[Noised] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Observation:
    """All that anyone but the custodian's own memory could see of one release, and the noise."""

    file: str | None
    kept: str | None
    error: str
    printed: str
    logged: tuple[str, ...]
    warned: tuple[str, ...]
    entries: tuple[Any, ...]
    written: tuple[str, ...]
    events: tuple[tuple[Any, ...], ...]
    calls: tuple[tuple[str, int], ...]
    noised: tuple[Noised, ...]


class Recorder:
    """Stands in for the sampler and for ``add_noise``; ``outputs`` are those of the release to make again."""

    def __init__(self, watch: Watch, book: Path | None, seed: int, outputs: list[tuple[int, ...]] | None, fail: int):
        self.watch, self.book, self.outputs, self.fail = watch, book, outputs, fail
        self.chance = Random(seed)
        self.needed: dict[float, list[int]] | None = None
        self.draws: list[tuple[float, tuple[int, ...]]] = []

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        self.watch.events.append(("draw", grid_stddev, size, self._committed()))
        if sum(event[0] == "draw" for event in self.watch.events) == self.fail:
            raise RuntimeError("the sampler failed")
        if self.needed is None:
            noise = [round(self.chance.gauss(0, 1) * grid_stddev) for _ in range(size)]
        else:
            noise = self.needed.get(grid_stddev, [])[:size]
            noise += [0] * (size - len(noise))
        self.draws.append((grid_stddev, tuple(noise)))
        return noise

    def adding(self, real: Any) -> Any:
        """``add_noise``, watched."""

        def add_noise(values: Any, grid_stddevs: Any, source: Any) -> tuple[int, ...]:
            number, self.draws = len(self.watch.noised), []
            if self.outputs is not None and number < len(self.outputs):
                self.needed = {}
                for value, stddev, output in zip(values, grid_stddevs, self.outputs[number], strict=False):
                    self.needed.setdefault(stddev, []).append(int(output) - int(value))
            output = real(values, grid_stddevs, source)
            self.watch.noised.append(Noised(tuple(values), tuple(grid_stddevs), tuple(self.draws), tuple(output)))
            return tuple(output)

        return add_noise

    def _committed(self) -> int | None:
        """How many entries another process would see in the ledger now."""
        if self.book is None:
            return None
        with closing(sqlite3.connect(self.book)) as connection:
            return int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])


class _FixedClock:
    @staticmethod
    def now(_: Any = None) -> datetime:
        return MOMENT


def observe(
    case: Case,
    candidate: Any,
    folder: Path,
    book: Path | None,
    outputs: list[tuple[int, ...]] | None = None,
    fail: int = 0,
    count_calls: bool = False,
    earlier: Release | None = None,
) -> Observation:
    """Make the release of one table and note everything. ``book`` is an empty ledger, of which a copy is used.

    ``earlier`` is a release whose survey is used again. A release that its survey stops is an error, and a file too.
    """
    watch = Watch()
    identity = IDENTITY if earlier is None else uuid.UUID(int=IDENTITY.int + 1)
    ledger = None
    if book is not None:
        ledger = folder / "book.ledger"
        _remove_ledger(ledger)
        ledger.write_bytes(book.read_bytes())
    output = folder / "out.release.json"
    output.unlink(missing_ok=True)
    table = make_table(case.source, case.table_rows(candidate), case.design.source_columns, folder, Random(case.seed))
    schema = folder / "schema.toml"
    schema.write_text(dpglm.Schema.from_dict(case.schema).to_toml(), encoding="utf-8")
    before = {path.name for path in folder.rglob("*")}
    recorder = Recorder(watch, ledger, case.seed, outputs, fail)
    printed, logged, error, file = io.StringIO(), _Lines(), "", None
    with (
        _stand_ins(watch, recorder, case.hashed, identity),
        redirect_stdout(printed), redirect_stderr(printed), _all_logs(logged),
        warnings.catch_warnings(record=True) as warned, _counting(watch.calls if count_calls else None),
    ):  # fmt: skip
        warnings.simplefilter("always")
        try:
            if case.command_line:
                _from_the_command_line(case, table, schema, ledger, output)
            else:
                made = dpglm.release(
                    table, case.formula, schema=dpglm.Schema.from_dict(case.schema), family=case.family,
                    epsilon=case.epsilon, delta=case.delta, ledger=ledger, method=case.method, survey=earlier,
                    radius=case.radius, allocation=case.allocation, statistics=case.statistics, link=case.link,
                    where=case.where, weights=case.weights,
                    progress=lambda done, total: watch.events.append(("progress", done, total)),
                )  # fmt: skip
                file = made.to_json()
        except SurveyError as raised:
            error, file = f"SurveyError: {raised}", raised.release.to_json()
        except (Exception, SystemExit) as raised:
            error = "" if isinstance(raised, SystemExit) and not raised.code else f"{type(raised).__name__}: {raised}"
    if output.exists():
        file = output.read_text(encoding="utf-8")
    after = {path.name for path in folder.rglob("*")} - before
    entries, kept = (), None
    if ledger is not None:
        opened = Ledger.open(ledger)
        opened.verify()
        entries = tuple(
            (entry.number, entry.release_id, entry.mu_squared_units, entry.time, json.dumps(entry.description))
            for entry in opened.entries()
        )
        kept = opened.export() if any(entry.has_release for entry in opened.entries()) else None
    return Observation(
        file, kept, error, printed.getvalue(), tuple(logged.lines), tuple(str(one.message) for one in warned), entries,
        tuple(sorted(after)), tuple(watch.events), tuple(sorted(watch.calls.items())), tuple(watch.noised),
    )  # fmt: skip


def _from_the_command_line(case: Case, table: Path, schema: Path, ledger: Path | None, output: Path) -> None:
    from dpglm.cli import main

    budget = ["--epsilon", repr(case.epsilon), "--delta", repr(case.delta)]
    account = ["--no-ledger"] if ledger is None else ["--ledger", str(ledger)]
    where = [] if case.where is None else ["--where", case.where]
    where += [] if case.weights is None else ["--weights", case.weights]
    main([
        "release", str(table), "--schema", str(schema), "--formula", case.formula, "--family", case.family, *budget,
        *account, *([] if case.link is None else ["--link", case.link]), *where, "--output", str(output),
    ])  # fmt: skip


@contextmanager
def _stand_ins(watch: Watch, recorder: Recorder, hashed: bool, identity: uuid.UUID) -> Iterator[None]:
    """Recorded noise, a fixed identity and clock, and a note of every charge; viewpoints from a hash, if wanted."""
    spend, keep = Ledger.spend_stages, Ledger.keep
    count = iter(range(10**9))

    def spending(self: Ledger, **charge: Any) -> Any:
        entries = spend(self, **charge)
        watch.events.append(("spend", tuple(entry.mu_squared_units for entry in entries)))
        return entries

    def keeping(self: Ledger, release_id: str, release_text: str) -> None:
        keep(self, release_id, release_text)
        watch.events.append(("keep", release_id))

    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (OperatingSystemNoise, "draw", lambda _, stddev, size: recorder.draw(stddev, size)),
            (by_looks, "add_noise", recorder.adding(by_looks.add_noise)),
            (by_moments, "add_noise", recorder.adding(by_moments.add_noise)),
            (charge, "uuid", SimpleNamespace(uuid4=lambda: identity)),
            (charge, "datetime", _FixedClock),
            (ledger_module, "_now", lambda: f"moment {next(count)}"),
            (Ledger, "spend_stages", spending),
            (Ledger, "keep", keeping),
        ):
            stack.enter_context(patch.object(target, name, value))
        if hashed:
            stack.enter_context(hashed_viewpoints())
        yield


@contextmanager
def remembered() -> Iterator[None]:
    """For long runs: what is computed from public facts alone is computed once a case, not once a table."""
    with contextlib.ExitStack() as stack:
        for module, name in (
            (formula_module, "_parse"), (mechanism, "sensitivity"), (mechanism, "mu_of"), (charge, "version"),
            (look_plan, "mu_of"), (allocation, "_optimal"),
        ):  # fmt: skip
            stack.enter_context(patch.object(module, name, lru_cache(maxsize=64)(getattr(module, name))))
        yield


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(1)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _all_logs(handler: _Lines) -> Iterator[None]:
    """Whatever dpglm or a library of the custodian's side logs, at any level."""
    root = logging.getLogger()
    level = root.level
    quiet = [logging.getLogger(name) for name in ("jax", "jax._src", "matplotlib")]
    levels = [logger.level for logger in quiet]
    root.addHandler(handler)
    root.setLevel(1)
    for logger in quiet:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for logger, old in zip(quiet, levels, strict=True):
            logger.setLevel(old)


@contextmanager
def _counting(calls: Counter[str] | None) -> Iterator[None]:
    """How often each function of dpglm is called, in all threads. The text of a CSV file decides how it is read, and
    pandas' objects how they are turned into text: those two, which come before the rows of Arrow, are left out.
    """
    if calls is None:
        yield
        return
    lock = threading.Lock()

    def note(frame: Any, event: str, _: Any) -> None:
        if (
            event == "call"
            and "/dpglm/" in (name := frame.f_code.co_filename)
            and not name.endswith(("tables.py", "files.py", "objects.py"))
        ):
            with lock:
                calls[f"{Path(name).stem}.{frame.f_code.co_name}"] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def _remove_ledger(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
