"""The ledger: what it charges, what it refuses, what it finds when somebody edits the file, what it says."""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from dpglm import privacy
from dpglm.custodian import ledger as module
from dpglm.custodian.ledger import UNITS, Ledger
from dpglm.errors import BudgetError, FileError, InputError
from dpglm.protection import ADDED_OR_REMOVED, Protection
from dpglm.schema import Dataset

PATIENTS = Dataset(id="patients-2024", name="patients", rows=758, unit="one patient")
CAP_MU = privacy.mu_of(1.0, 1e-6)
CAP = CAP_MU * CAP_MU

# dp-accounting takes the logarithm of zero on its way to the answer for a very large epsilon.
very_large_epsilon = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "patients.ledger", PATIENTS, epsilon=1.0, delta=1e-6)


def spend(ledger: Ledger, release_id: str = "a", part: float = 0.25):
    return ledger.spend(release_id=release_id, mu_squared=part * CAP, description={"formula": "y ~ x"})


def edit(ledger: Ledger, *statements: str) -> None:
    """Change the file behind the ledger's back."""
    connection = sqlite3.connect(ledger.path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def tampered(ledger: Ledger) -> str:
    with pytest.raises(FileError) as caught:
        ledger.verify()
    assert "\n" not in str(caught.value)
    assert "backup" in str(caught.value)
    return str(caught.value)


# Creating and opening


def test_a_new_ledger_can_be_opened_and_knows_whose_it_is(ledger: Ledger) -> None:
    again = Ledger.open(ledger.path)
    assert again == ledger
    assert (again.dataset_id, again.unit) == ("patients-2024", "one patient")
    assert again.neighbouring_relation == "replace-one-row"
    assert (again.cap_epsilon, again.cap_delta) == (1.0, 1e-6)
    assert again.entries() == ()
    again.verify()


def test_creating_leaves_one_file_in_write_ahead_mode(ledger: Ledger) -> None:
    assert os.listdir(ledger.path.parent) == ["patients.ledger"]
    connection = sqlite3.connect(ledger.path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_every_connection_is_durable_and_waits_for_locks(ledger: Ledger) -> None:
    with ledger._transaction("IMMEDIATE") as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] >= 2  # FULL
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (60_000,)


def test_an_existing_file_is_never_replaced(ledger: Ledger) -> None:
    spend(ledger)
    with pytest.raises(FileError, match="never replaced"):
        Ledger.create(ledger.path, PATIENTS, epsilon=1.0, delta=1e-6)
    assert len(ledger.entries()) == 1


def test_a_name_taken_in_the_meantime_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "taken.ledger"
    link = os.link

    def slow_link(source: Path, target: Path) -> None:
        path.write_text("somebody else's")
        link(source, target)

    monkeypatch.setattr(os, "link", slow_link)
    with pytest.raises(FileError, match="cannot be created"):
        Ledger.create(path, PATIENTS, epsilon=1.0, delta=1e-6)
    assert path.read_text() == "somebody else's"


def seen(folder: Path) -> dict[str, tuple[int, int]]:
    """Sizes and times; nobody but SQLite may open the files while they are in use."""
    return {path.name: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.iterdir()}


def test_a_second_ledger_of_a_dataset_is_refused_in_the_same_folder(ledger: Ledger, tmp_path: Path) -> None:
    """It would be a second budget for the same rows; also while the first one is in use, and its log not taken in."""
    with closing(sqlite3.connect(ledger.path)) as reader:  # an open reader keeps the log from being taken in
        reader.execute("SELECT count(*) FROM entries").fetchone()
        spend(ledger)
        before = seen(tmp_path)
        assert "patients.ledger-wal" in before
        with pytest.raises(FileError, match=r"holds a ledger of dataset 'patients-2024' already, 'patients.ledger'"):
            Ledger.create(tmp_path / "second.ledger", PATIENTS, epsilon=5.0, delta=1e-6)
        assert seen(tmp_path) == before
    assert len(ledger.entries()) == 1


def test_another_dataset_or_another_folder_may_have_its_own_ledger(ledger: Ledger, tmp_path: Path) -> None:
    other = replace(PATIENTS, id="patients-2025")
    (tmp_path / "elsewhere").mkdir()
    assert Ledger.create(tmp_path / "other.ledger", other, epsilon=1.0, delta=1e-6).dataset_id == other.id
    assert Ledger.create(tmp_path / "elsewhere" / "a.ledger", PATIENTS, epsilon=1.0, delta=1e-6) != ledger


def test_what_else_is_in_the_folder_does_not_matter_and_is_not_changed(tmp_path: Path) -> None:
    """Another program's database, in the middle of its work; what only looks like one; a pipe; a broken link."""
    (tmp_path / "noise").write_bytes(os.urandom(4096))
    (tmp_path / "torn").write_bytes(b"SQLite format 3\0" + bytes(1008))
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    with closing(sqlite3.connect(tmp_path / "forged")) as forged, forged:
        forged.execute(f"PRAGMA application_id = {module._APPLICATION_ID}")
        forged.execute("PRAGMA user_version = 1")
        forged.execute("CREATE VIEW ledger AS SELECT 'patients-2024' AS header, 'x' AS digest")
    (tmp_path / "folder" / "working").touch()
    with closing(sqlite3.connect(tmp_path / "folder" / "working")) as working:  # it will look as if it had crashed
        working.executescript(
            "CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(99999)); PRAGMA cache_size = 1; BEGIN"
        )
        working.execute("UPDATE t SET x = zeroblob(99998)")
        for name in ("working", "working-journal"):
            shutil.copy(tmp_path / "folder" / name, tmp_path / name)
    with closing(sqlite3.connect(tmp_path / "theirs")) as theirs:
        theirs.execute("PRAGMA journal_mode = WAL")
        theirs.execute("CREATE TABLE t (x)")
        before = seen(tmp_path)
        assert {"theirs-wal", "working-journal"} <= set(before)
        ledger = Ledger.create(tmp_path / "new.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
        assert seen(tmp_path) == {**before, "new.ledger": seen(tmp_path)["new.ledger"]}
    ledger.verify()


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_the_log_of_a_deleted_ledger_is_not_replayed_into_a_new_one(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"old.ledger{suffix}").touch()
    with pytest.raises(FileError, match="exists already"):
        Ledger.create(tmp_path / "old.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
    assert os.listdir(tmp_path) == [f"old.ledger{suffix}"]


@pytest.mark.parametrize("broken", ["os.link", "os.fsync", "sqlite"])
def test_a_creation_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    if broken == "sqlite":
        monkeypatch.setattr(module, "_TABLES", (*module._TABLES, "CREATE TABLE ledger (again)"))
    else:
        monkeypatch.setattr(os, broken.removeprefix("os."), fail)
    with pytest.raises(FileError):
        Ledger.create(tmp_path / "new.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
    assert os.listdir(tmp_path) == []


def test_creating_makes_the_name_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    fsync = os.fsync

    def watched(handle: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{handle}"), (tmp_path / "new.ledger").exists()))
        fsync(handle)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", watched)
    Ledger.create(tmp_path / "new.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
    assert synced[-1] == (str(tmp_path), True)  # the folder, after the name was given
    assert synced[0][0].endswith("/ledger")  # the file, before
    assert not synced[0][1]


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (-1, 1e-6), (math.nan, 1e-6), (1, 0), (1, 1), (True, 1e-6)])
def test_a_cap_that_is_no_budget_is_refused(tmp_path: Path, epsilon: float, delta: float) -> None:
    with pytest.raises(InputError):
        Ledger.create(tmp_path / "new.ledger", PATIENTS, epsilon=epsilon, delta=delta)
    assert os.listdir(tmp_path) == []


def test_a_missing_file_is_not_created_by_opening_it(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"dpglm ledger init.*dpglm\.Ledger\.create"):
        Ledger.open(tmp_path / "missing.ledger")
    assert os.listdir(tmp_path) == []


def test_a_ledger_that_vanishes_after_opening_is_not_recreated(ledger: Ledger) -> None:
    ledger.path.unlink()
    with pytest.raises(FileError, match="cannot be opened"):
        spend(ledger)
    assert not ledger.path.exists()


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="ledger init"):
        Ledger.open(tmp_path)
    with pytest.raises(FileError, match="cannot be created"):
        Ledger.create(tmp_path / "no" / "such" / "folder.ledger", PATIENTS, epsilon=1, delta=1e-6)
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be created"):
        Ledger.create(tmp_path / "file" / "x.ledger", PATIENTS, epsilon=1, delta=1e-6)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n" * 500, b"SQLite format 3\0" + b"\1" * 4096])
def test_a_file_that_is_not_a_ledger(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(FileError, match="not a dpglm ledger") as caught:
        Ledger.open(path)
    assert "ledger init" in str(caught.value)
    assert path.read_bytes() == content


def test_another_database_is_not_a_ledger_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE ledger (header, digest)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(FileError, match="not a dpglm ledger"):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_a_newer_version_asks_for_a_newer_dpglm(ledger: Ledger) -> None:
    edit(ledger, "PRAGMA user_version = 2")
    with pytest.raises(FileError, match=r"version 2.*newer dpglm"):
        Ledger.open(ledger.path)
    with pytest.raises(FileError, match="version 2"):
        spend(ledger)


@pytest.mark.parametrize("name", ["a?mode=memory.ledger", "b#c.ledger", "d%41 é&cache=shared.ledger", "file:e.ledger"])
def test_no_character_of_a_path_is_taken_for_an_option(tmp_path: Path, name: str) -> None:
    ledger = Ledger.create(tmp_path / name, PATIENTS, epsilon=1, delta=1e-6)
    spend(ledger)
    assert os.listdir(tmp_path) == [name]
    assert len(Ledger.open(tmp_path / name).entries()) == 1


def test_a_relative_path_survives_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.create("patients.ledger", PATIENTS, epsilon=1, delta=1e-6)
    monkeypatch.chdir(tmp_path / "elsewhere")
    spend(ledger)
    assert len(Ledger.open(tmp_path / "patients.ledger").entries()) == 1


def test_another_ledger_under_the_same_name_is_noticed(ledger: Ledger) -> None:
    spend(ledger)
    ledger.path.unlink()
    Ledger.create(ledger.path, PATIENTS, epsilon=1.0, delta=1e-6)
    with pytest.raises(FileError, match="not the ledger that was opened"):
        spend(ledger)


# Whose ledger


@pytest.mark.parametrize(
    "other",
    [
        Dataset(id="patients-2025", name="patients", rows=758, unit="one patient"),
        Dataset(id="patients-2024", name="patients", rows=758, unit="one visit"),
    ],
)
def test_another_dataset_is_refused(ledger: Ledger, other: Dataset) -> None:
    ledger.check_dataset(PATIENTS)
    with pytest.raises(BudgetError, match=r"patients-202|one patient"):
        ledger.check_dataset(other)


def test_another_neighbouring_relation_is_refused(ledger: Ledger) -> None:
    for protection in (Protection(ADDED_OR_REMOVED), Protection(several_rows=True)):
        with pytest.raises(BudgetError, match="replace-one-row"):
            ledger.check_dataset(replace(PATIENTS, protection=protection))


# Spending


def test_an_entry_says_what_was_charged(ledger: Ledger) -> None:
    entry = ledger.spend(release_id="a", mu_squared=0.01, description={"formula": "y ~ é", "stage": 1})
    assert (entry.number, entry.release_id, entry.has_release) == (1, "a", False)
    assert entry.mu_squared_units == Fraction(0.01) * UNITS
    assert entry.description == {"formula": "y ~ é", "stage": 1}
    assert entry.time.endswith("+00:00")
    assert len(entry.digest) == 64
    assert ledger.entries() == (entry,)
    assert Ledger.open(ledger.path).entries() == (entry,)


@very_large_epsilon
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.01, 1e-9), (1e-4, 1e-12), (50.0, 0.01), (1e9, 1e-6)])
def test_a_release_that_asks_for_the_whole_cap_is_allowed_and_nothing_after_it(
    tmp_path: Path, epsilon: float, delta: float
) -> None:
    ledger = Ledger.create(tmp_path / "whole.ledger", PATIENTS, epsilon=epsilon, delta=delta)
    mu = privacy.mu_of(epsilon, delta)
    ledger.check_affordable(mu * mu)
    ledger.spend(release_id="all", mu_squared=mu * mu, description={})
    with pytest.raises(BudgetError):
        ledger.check_affordable(5e-324)
    with pytest.raises(BudgetError):
        ledger.spend(release_id="more", mu_squared=5e-324, description={})
    assert len(ledger.entries()) == 1
    ledger.verify()
    assert ledger.summary().remaining_epsilon == 0


def test_one_unit_above_the_cap_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BudgetError):
        ledger.spend(release_id="a", mu_squared=Fraction(ledger.cap_units + 1, UNITS), description={})
    ledger.spend(release_id="a", mu_squared=Fraction(ledger.cap_units - 1, UNITS), description={})
    with pytest.raises(BudgetError):
        ledger.spend(release_id="b", mu_squared=Fraction(2, UNITS), description={})
    ledger.spend(release_id="c", mu_squared=Fraction(1, UNITS), description={})
    ledger.verify()


@very_large_epsilon
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.01, 1e-9), (1e-4, 1e-12), (50.0, 0.01), (1e9, 1e-6)])
def test_the_cap_on_mu_keeps_its_promise(tmp_path: Path, epsilon: float, delta: float) -> None:
    ledger = Ledger.create(tmp_path / "cap.ledger", PATIENTS, epsilon=epsilon, delta=delta)
    assert ledger.cap_units <= math.ceil(
        Fraction(privacy.mu_of(epsilon, delta)) ** 2 * UNITS * (1 + Fraction(1, 2**53))
    )
    assert privacy.delta_of(math.sqrt(ledger.cap_units / UNITS), epsilon) <= delta
    assert privacy.delta_of(1.001 * math.sqrt(ledger.cap_units / UNITS), epsilon) > delta  # and is not far below


def test_costs_are_rounded_up(ledger: Ledger) -> None:
    tiny = 1e-60  # below one unit
    assert Fraction(tiny) * UNITS < 1
    assert ledger.spend(release_id="a", mu_squared=tiny, description={}).mu_squared_units == 1
    third = Fraction(1, 3) * Fraction(1, 1000)
    assert ledger.spend(release_id="b", mu_squared=third, description={}).mu_squared_units == UNITS // 3000 + 1


def test_many_small_costs_add_up_exactly(ledger: Ledger) -> None:
    for number in range(20):
        ledger.spend(release_id=str(number), mu_squared=CAP / 32, description={})
    assert sum(entry.mu_squared_units for entry in ledger.entries()) == 20 * Fraction(CAP) / 32 * UNITS


@very_large_epsilon
def test_costs_beyond_64_bits_are_kept_exactly(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "large.ledger", PATIENTS, epsilon=1e9, delta=1e-6)
    assert ledger.cap_units > 2**64
    first = ledger.spend(release_id="a", mu_squared=1e9 + 0.5, description={})
    ledger.spend(release_id="b", mu_squared=5e8, description={})
    assert ledger.entries()[0] == first
    assert first.mu_squared_units == (10**9 * 2 + 1) * UNITS // 2
    with pytest.raises(BudgetError):
        ledger.spend(release_id="c", mu_squared=1e9, description={})


@pytest.mark.parametrize("cost", [0, -1.0, -5e-324, math.nan, math.inf, -math.inf, 1e13, "1", None, True])
def test_a_cost_that_is_no_cost_is_refused_above_all_a_refund(ledger: Ledger, cost: float) -> None:
    spend(ledger)
    with pytest.raises(InputError, match="mu_squared"):
        ledger.spend(release_id="b", mu_squared=cost, description={})
    with pytest.raises(InputError, match="mu_squared"):
        ledger.check_affordable(cost)
    assert len(ledger.entries()) == 1


def test_a_refusal_says_cost_spent_cap_and_what_is_left_and_charges_nothing(ledger: Ledger) -> None:
    half = privacy.mu_of(0.5, 1e-6)
    ledger.spend(release_id="a", mu_squared=half * half, description={})
    with pytest.raises(BudgetError) as caught:
        ledger.spend(release_id="b", mu_squared=CAP, description={})
    message = str(caught.value)
    assert "\n" not in message
    for part in ("epsilon 1:", "epsilon 0.5 of 1 is spent", "delta = 1e-06"):
        assert part in message
    left = float(message.rsplit("ask for epsilon = ")[1].split(" or less")[0])
    assert len(ledger.entries()) == 1
    ledger.check_affordable(privacy.mu_of(left, 1e-6) ** 2)  # what the message offers is granted
    with pytest.raises(BudgetError):
        ledger.check_affordable(privacy.mu_of(left * 1.00001, 1e-6) ** 2)  # and it is all there is


@pytest.mark.parametrize("release_id", ["", " ", "a\nb", "x" * 201, 7, None])
def test_a_release_id_is_printable_text(ledger: Ledger, release_id: str) -> None:
    with pytest.raises(InputError, match="release_id"):
        spend(ledger, release_id)
    assert ledger.entries() == ()


@pytest.mark.parametrize("value", [math.nan, object(), b"x", {1: 2, "a": 3}])
def test_a_description_that_json_cannot_hold_is_refused_before_charging(ledger: Ledger, value: object) -> None:
    with pytest.raises(InputError, match="description") as caught:
        ledger.spend(release_id="a", mu_squared=0.01, description={"value": value})
    assert not isinstance(caught.value, FileError)
    assert ledger.entries() == ()


def test_stages_of_one_release_are_charged_each_until_it_is_kept(ledger: Ledger) -> None:
    spend(ledger, "staged")
    spend(ledger, "other")
    spend(ledger, "staged")
    ledger.keep("staged", "staged text")
    assert [entry.has_release for entry in ledger.entries()] == [True, False, True]
    with pytest.raises(BudgetError, match="kept already"):
        spend(ledger, "staged")
    assert len(ledger.entries()) == 3
    assert ledger.summary().number_of_kept_releases == 1
    ledger.verify()


def test_threads_share_one_ledger(ledger: Ledger) -> None:
    refused: list[str] = []

    def work(name: str) -> None:
        for number in range(5):
            try:
                spend(ledger, f"{name}-{number}", 1 / 16)
            except BudgetError:
                refused.append(name)

    threads = [threading.Thread(target=work, args=(f"thread-{index}",)) for index in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.entries()) == 16
    assert len(refused) == 9
    ledger.verify()


# Keeping and exporting


def test_a_kept_release_can_be_exported(ledger: Ledger) -> None:
    spend(ledger, "first")
    spend(ledger, "second")
    spend(ledger, "unfinished")
    text = '{"release_id": "first", "name": "é\\u0000 \0 ✓"}\r\n'
    ledger.keep("second", "release second")
    ledger.keep("first", text)
    assert ledger.export("first") == text
    assert ledger.export("second") == "release second"
    assert ledger.export() == "release second"  # the latest entry that has one
    assert [entry.has_release for entry in ledger.entries()] == [True, True, False]
    for missing in ("unfinished", "unknown"):
        with pytest.raises(FileError, match="no such finished release"):
            ledger.export(missing)
    ledger.verify()


def test_nothing_to_export(ledger: Ledger) -> None:
    with pytest.raises(FileError, match="no such finished release"):
        ledger.export()


def test_a_release_is_kept_once(ledger: Ledger) -> None:
    spend(ledger)
    ledger.keep("a", "text of a")
    for text in ("text of a", "another a"):
        with pytest.raises(FileError, match="kept already"):
            ledger.keep("a", text)
    assert ledger.export("a") == "text of a"


def test_a_release_without_an_entry_is_not_kept(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="no entry"):
        ledger.keep("a", "text of a")


def test_a_text_that_names_another_release_is_not_kept(ledger: Ledger) -> None:
    spend(ledger, "release-1")
    with pytest.raises(InputError, match="must name its release"):
        ledger.keep("release-1", '{"release_id": "release-2"}')
    assert not ledger.entries()[0].has_release


# Summary


def test_the_summary_is_conservative_and_tight(ledger: Ledger) -> None:
    empty = ledger.summary()
    assert (empty.spent_mu, empty.spent_epsilon, empty.number_of_entries) == (0, 0, 0)
    assert 0.99999 <= empty.remaining_epsilon <= 1
    spend(ledger, "a", 0.25)
    spend(ledger, "b", 0.5)
    ledger.keep("b", "b")
    summary = ledger.summary()
    assert summary.cap_mu == pytest.approx(CAP_MU, rel=1e-12)
    assert summary.cap_mu <= CAP_MU
    assert summary.spent_mu == pytest.approx(math.sqrt(0.75) * CAP_MU, rel=1e-12)
    assert Fraction(summary.spent_mu) ** 2 >= Fraction(CAP) * 3 / 4
    assert privacy.delta_of(summary.spent_mu, summary.spent_epsilon) <= 1e-6
    assert privacy.delta_of(summary.spent_mu, 0.999 * summary.spent_epsilon) > 1e-6
    ledger.check_affordable(privacy.mu_of(summary.remaining_epsilon, 1e-6) ** 2)
    with pytest.raises(BudgetError):
        ledger.check_affordable(privacy.mu_of(summary.remaining_epsilon * 1.0001, 1e-6) ** 2)
    assert (summary.number_of_entries, summary.number_of_kept_releases) == (2, 1)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 3.0, 100.0, 1e6])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("part", [0.01, 0.9, 0.999999])
def test_what_is_said_to_be_left_can_be_had(tmp_path: Path, epsilon: float, delta: float, part: float) -> None:
    ledger = Ledger.create(tmp_path / "left.ledger", PATIENTS, epsilon=epsilon, delta=delta)
    ledger.spend(release_id="a", mu_squared=Fraction(math.floor(ledger.cap_units * part), UNITS), description={})
    left = ledger.summary().remaining_epsilon
    assert 0 <= left < epsilon
    if left > 0:
        ledger.check_affordable(privacy.mu_of(left, delta) ** 2)


def test_the_summary_reads_as_plain_words_and_as_json(ledger: Ledger) -> None:
    spend(ledger)
    summary = ledger.summary()
    text = str(summary)
    for part in ("patients-2024", "one patient", "epsilon = 1 at delta = 1e-06", "entries: 1", "left:", "spent:"):
        assert part in text
    assert json.loads(json.dumps(summary.to_dict()))["remaining_epsilon"] == summary.remaining_epsilon


# Tampering


def record_with(ledger: Ledger, number: int, **changes: object) -> str:
    connection = sqlite3.connect(ledger.path)
    (record,) = connection.execute("SELECT record FROM entries WHERE number = ?", (number,)).fetchone()
    connection.close()
    return module._canonical({**json.loads(record), **changes})


@pytest.fixture
def used(ledger: Ledger) -> Ledger:
    for release_id in ("a", "b", "c"):
        spend(ledger, release_id)
        ledger.keep(release_id, f"text of {release_id}")
    ledger.verify()
    return ledger


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    "change", [{"mu_squared_units": 1}, {"release_id": "z"}, {"time": "2020"}, {"description": {}}]
)
def test_an_edited_entry_is_found_and_nothing_is_charged_on_it(
    used: Ledger, number: int, change: dict[str, object]
) -> None:
    edit(used, f"UPDATE entries SET record = '{record_with(used, number, **change)}' WHERE number = {number}")
    assert f"entry {number}" in tampered(used)
    for operation in (used.entries, used.summary, used.export, functools.partial(spend, used, "d")):
        with pytest.raises(FileError, match="chain"):
            operation()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_removed_entry_is_found(used: Ledger, number: int) -> None:
    edit(used, f"DELETE FROM entries WHERE number = {number}")
    tampered(used)


def test_a_removed_last_entry_is_found_even_without_a_kept_release(used: Ledger) -> None:
    edit(used, "DELETE FROM releases WHERE entry = 3", "DELETE FROM entries WHERE number = 3")
    assert "last entry was removed" in tampered(used)


def test_renumbered_entries_are_found(used: Ledger) -> None:
    edit(
        used,
        "DELETE FROM releases",
        "DELETE FROM entries WHERE number = 2",
        "UPDATE entries SET number = 2 WHERE number = 3",
    )
    assert "chain" in tampered(used)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE releases SET text = 'another text of a' WHERE entry = 1",
        "UPDATE releases SET text = (SELECT text FROM releases WHERE entry = 2) WHERE entry = 1",
        "UPDATE releases SET entry = 9 WHERE entry = 1",
        "UPDATE releases SET text = x'ff' WHERE entry = 1",
        "UPDATE entries SET record = x'ff00' WHERE number = 1",
        "UPDATE entries SET record = '[]' WHERE number = 1",
        "UPDATE ledger SET header = replace(header, '1e-06', '1e-05')",
        "INSERT INTO ledger SELECT * FROM ledger",
        "DELETE FROM ledger",
        "DROP TABLE releases",
    ],
)
def test_other_edits_are_found(used: Ledger, statement: str) -> None:
    edit(used, statement)
    tampered(used)


def test_an_export_of_an_edited_release_is_refused(used: Ledger) -> None:
    edit(used, "UPDATE releases SET text = 'another text of a' WHERE entry = 1")
    with pytest.raises(FileError, match="was changed"):
        used.export("a")
    assert used.export("c") == "text of c"


def test_entries_beyond_the_cap_are_found(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "_refuse_beyond_cap", lambda *arguments: None)
    spend(ledger, "a", 1.5)
    assert "exceed its cap" in tampered(ledger)


def test_a_cap_larger_than_its_promise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(privacy, "mu_of", lambda epsilon, delta: 1.001 * CAP_MU)
        ledger = Ledger.create(tmp_path / "loose.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
    assert "larger than its epsilon and delta allow" in tampered(ledger)


def test_a_damaged_page_is_found(used: Ledger) -> None:
    content = bytearray(used.path.read_bytes())
    assert len(content) >= 3 * 4096
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    used.path.write_bytes(content)
    tampered(used)
    with pytest.raises(FileError):
        spend(used, "d")


# What the system refuses


def test_a_lock_held_too_long(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.05)
    other = sqlite3.connect(ledger.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(FileError, match=r"locked.*try again"):
        spend(ledger)
    assert ledger.entries() == ()  # reading goes on meanwhile
    other.close()
    spend(ledger)


@pytest.mark.parametrize(
    ("setting", "message"), [("max_page_count = 1", "disk is full"), ("query_only = ON", "is read-only")]
)
def test_a_full_disk_and_a_read_only_file(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, setting: str, message: str
) -> None:
    connect = sqlite3.connect

    def limited(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)  # type: ignore[call-overload]
        connection.execute(f"PRAGMA {setting}")
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", limited)
    with pytest.raises(FileError, match=message) as caught:
        ledger.spend(release_id="a", mu_squared=0.01, description={"long": "x" * 20_000})
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert ledger.entries() == ()
    ledger.verify()


# Several stages


def spend_stages(ledger: Ledger, release_id: str = "a", parts: tuple[float, ...] = (0.1, 0.2, 0.3)):
    stages = [(part * CAP, {"stage": number}) for number, part in enumerate(parts, 1)]
    return ledger.spend_stages(release_id=release_id, stages=stages)


def test_stages_are_one_entry_each(ledger: Ledger) -> None:
    spend(ledger, "before", 0.1)
    added = spend_stages(ledger)
    assert [entry.number for entry in added] == [2, 3, 4]
    assert [entry.description["stage"] for entry in added] == [1, 2, 3]
    assert ledger.entries()[1:] == added
    assert [entry.mu_squared_units for entry in added] == [
        math.ceil(Fraction(part * CAP) * UNITS) for part in (0.1, 0.2, 0.3)
    ]
    ledger.verify()
    ledger.keep("a", "release a")
    assert [entry.has_release for entry in ledger.entries()] == [False, True, True, True]
    assert ledger.export("a") == "release a"
    with pytest.raises(BudgetError, match="finished and kept"):
        spend_stages(ledger, "a", (0.01,))


def test_stages_cost_what_one_charge_of_their_sum_costs(ledger: Ledger, tmp_path: Path) -> None:
    spend_stages(ledger)
    (tmp_path / "elsewhere").mkdir()
    other = Ledger.create(tmp_path / "elsewhere" / "other.ledger", PATIENTS, epsilon=1.0, delta=1e-6)
    other.spend(release_id="a", mu_squared=sum(Fraction(part * CAP) for part in (0.1, 0.2, 0.3)), description={})
    assert ledger.summary().spent_mu == other.summary().spent_mu


def test_stages_beyond_the_cap_are_refused_together(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="would exceed the cap"):
        spend_stages(ledger, parts=(0.5, 0.4, 0.1 + 1e-9))
    assert ledger.entries() == ()
    spend_stages(ledger, parts=(0.5, 0.25, 0.25))
    with pytest.raises(BudgetError):
        spend_stages(ledger, "b", (1e-9, 1e-9))
    assert len(ledger.entries()) == 3


@pytest.mark.parametrize("bad", [0, -0.1, math.nan, math.inf, "1", None, True])
def test_one_bad_stage_refuses_all(bad: object, ledger: Ledger) -> None:
    with pytest.raises(InputError):
        ledger.spend_stages(release_id="a", stages=[(0.1 * CAP, {}), (bad, {}), (0.1 * CAP, {})])  # type: ignore[list-item]
    with pytest.raises(InputError):
        ledger.spend_stages(release_id="a", stages=[(0.1 * CAP, {}), (0.1 * CAP, {"x": {1}})])
    assert ledger.entries() == ()


def test_a_failure_between_stages_enters_none(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The power goes out after the first of three rows is written, before the commit."""
    digests = []

    def failing(previous: str, text: str) -> str:
        if '"release_id"' in text:
            digests.append(text)
            if len(digests) == 2:
                raise OSError("power")
        return digest(previous, text)

    digest = module._digest
    monkeypatch.setattr(module, "_digest", failing)
    with pytest.raises(OSError, match="power"):
        spend_stages(ledger)
    monkeypatch.undo()
    assert ledger.entries() == ()
    ledger.verify()


RACER = """
import sys
from dpglm import privacy
from dpglm.custodian.ledger import Ledger
from dpglm.errors import BudgetError
privacy.epsilon_of = lambda mu, delta: 0.0  # only the words of a refusal use it
ledger, name, number = Ledger.open(sys.argv[1]), sys.argv[2], 0
part = ledger.cap_units / 2**160 / 64
try:
    while True:
        number += 1
        ledger.spend_stages(release_id=f"{name}-{number}", stages=[(part * n, {}) for n in (0.5, 1.5, 3)])
except BudgetError:
    pass
"""


def test_racing_processes_enter_whole_releases_only(ledger: Ledger) -> None:
    source = str(Path(module.__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", RACER, str(ledger.path)]
    racers = [subprocess.Popen([*command, name], env=environment) for name in "abc"]
    assert [racer.wait(60) for racer in racers] == [0, 0, 0]
    entries = ledger.entries()
    assert len(entries) == 12 * 3  # twelve releases of 5/64 fit, a thirteenth does not
    for first in range(0, len(entries), 3):
        assert len({entry.release_id for entry in entries[first : first + 3]}) == 1
    ledger.verify()
