"""A ledger against a model of three lines: any sequence of charges, copies, edits, restores and clock jumps."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpglm.custodian import ledger as ledger_module
from dpglm.custodian.ledger import UNITS, Ledger
from dpglm.errors import BudgetError, FileError
from dpglm.schema import Dataset

PATIENTS = Dataset(id="patients", name="patients", rows=758, unit="one patient")
EDITS = (
    "UPDATE entries SET record = replace(record, '\"mu_squared_units\":', '\"mu_squared_units\":1')",
    "DELETE FROM entries WHERE number = 1",
    "DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)",
    "UPDATE entries SET number = number + 1",
    "UPDATE ledger SET header = replace(header, '\"cap_units\":', '\"cap_units\":9')",
    "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
)


class LedgerMachine(RuleBasedStateMachine):
    """The model: a list of (identity, units), the identities that are kept, and the cap."""

    @initialize()
    def create(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "a.ledger"
        self.ledger = Ledger.create(self.path, PATIENTS, epsilon=1.0, delta=1e-6)
        self.real_now = ledger_module._now
        self.entries: list[tuple[str, int]] = []
        self.kept: set[str] = set()
        self.backup: tuple[bytes, list[tuple[str, int]], set[str]] | None = None
        self.made = 0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            ledger_module._now = self.real_now
            shutil.rmtree(self.folder)

    @property
    def left(self) -> int:
        return self.ledger.cap_units - sum(units for _, units in self.entries)

    @rule(parts=st.lists(st.integers(1, 30), min_size=1, max_size=3), again=st.booleans())
    def spend(self, parts: list[int], again: bool) -> None:
        self.made += 1
        name = self.entries[-1][0] if again and self.entries else f"release {self.made}"
        costs = [Fraction(self.ledger.cap_units * part, 40 * UNITS) for part in parts]
        units = [-(-(self.ledger.cap_units * part) // 40) for part in parts]
        charge = {
            "release_id": name,
            "stages": [(cost, {"part": part}) for cost, part in zip(costs, parts, strict=True)],
        }
        if name in self.kept or sum(units) > self.left:
            with pytest.raises(BudgetError):
                self.ledger.spend_stages(**charge)  # type: ignore[arg-type]
        else:
            entered = self.ledger.spend_stages(**charge)  # type: ignore[arg-type]
            assert [entry.mu_squared_units for entry in entered] == units
            self.entries += [(name, each) for each in units]

    @rule(exact=st.booleans())
    def spend_all_that_is_left(self, exact: bool) -> None:
        self.made += 1
        name, units = f"release {self.made}", self.left + (not exact)
        if units == 0 or not exact:
            with pytest.raises((BudgetError, ValueError)):
                self.ledger.spend(release_id=name, mu_squared=Fraction(units, UNITS), description={})
        else:
            self.ledger.spend(release_id=name, mu_squared=Fraction(units, UNITS), description={})
            self.entries.append((name, units))

    @precondition(lambda self: self.entries)
    @rule(place=st.integers(0, 9))
    def keep(self, place: int) -> None:
        name = self.entries[place % len(self.entries)][0]
        if name in self.kept:
            with pytest.raises(FileError):
                self.ledger.keep(name, f"text of {name}")
        else:
            self.ledger.keep(name, f"text of {name}")
            self.kept.add(name)
        assert self.ledger.export(name) == f"text of {name}"

    @rule(time=st.sampled_from(["1970-01-01T00:00:00", "2999-12-31T23:59:59", "", "2024-02-30"]))
    def let_the_clock_jump(self, time: str) -> None:
        ledger_module._now = lambda: time

    @rule()
    def open_again(self) -> None:
        self.ledger = Ledger.open(self.path)

    @rule()
    def back_up(self) -> None:
        self.backup = self.path.read_bytes(), list(self.entries), set(self.kept)

    @precondition(lambda self: self.backup is not None)
    @rule()
    def roll_back(self) -> None:
        """Sound by itself: what shows it is in tests/custodian/test_published.py."""
        assert self.backup is not None
        content, self.entries, self.kept = self.backup[0], list(self.backup[1]), set(self.backup[2])
        self.path.write_bytes(content)

    @precondition(lambda self: self.entries)
    @rule(edit=st.sampled_from(EDITS))
    def edit(self, edit: str) -> None:
        sound = self.path.read_bytes()
        with closing(sqlite3.connect(self.path)) as connection, connection:
            try:
                connection.execute(edit)
            except sqlite3.IntegrityError:
                return
        with pytest.raises(FileError):
            Ledger.open(self.path).verify()
        self.path.write_bytes(sound)

    @invariant()
    def the_ledger_is_the_model(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.ledger.verify()
        found = self.ledger.entries()
        assert [(entry.release_id, entry.mu_squared_units) for entry in found] == self.entries
        assert {entry.release_id for entry in found if entry.has_release} == self.kept
        assert [entry.number for entry in found] == list(range(1, len(found) + 1))
        assert self.left >= 0


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
