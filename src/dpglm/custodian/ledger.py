"""The persistent privacy budget of one dataset: a small SQLite file that outlives processes and crashes.

A release first *spends* its cost, then draws noise, then *keeps* the finished text here::

    check_affordable (early, no write) -> spend (durable) -> noise -> keep -> save where the user wants it

The unit of account is mu squared, which adds up over releases (see ``dpglm.privacy``).

Guarantees
    *Durable before noise*: ``spend`` returns only after its entry has reached the disk.
    *Never over the cap*: the cap is checked against the sum of the entries inside one exclusive transaction, so the
    sum over all threads and processes, crashed or not, stays at or below the cap. Costs are rounded up.
    *Never refunded*: nothing here removes or lowers an entry. A release that dies after ``spend`` stays charged.
    *A failed save costs nothing*: a kept release can be exported again.
    *Damage shows*: entries are hash-chained, and every operation refuses a ledger whose chain is broken. A ledger that
    was put back from an older copy shows against the releases that were published since (``verify``).

Edge cases
    A copy of the file is a second budget, and whoever can write the file can forge all of it: keep one file, where
    only the custodian can write. After a crash, a file named ``…-wal`` beside the ledger is part of it. SQLite's locks
    need a local disk. Nothing but SQLite may open the file while it is in use, not even to read: closing another handle
    on it drops the locks of this process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, Context
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dpglm import privacy
from dpglm.errors import BudgetError, FileError, InputError
from dpglm.schema import Dataset

if TYPE_CHECKING:
    from dpglm.releases import Release

# mu squared is counted in whole units of 2**-160. Every double above 2**-108 is a whole number of them, so costs and
# caps of that size are exact, and a release that asks for the whole cap is not refused for a rounding. The counts
# pass SQLite's 64 bits: they are stored as decimal text and summed by Python.
UNITS = 2**160
_LARGEST_COST = 1e12  # far above the cap of epsilon = 1e9, the largest there is
COMPANIONS = ("-wal", "-shm", "-journal")  # ends of the names of files that SQLite keeps beside a ledger
_BUSY_SECONDS = 60.0
_APPLICATION_ID = 0x4470476C  # "DpGl", in the header of the file
_VERSION = 1
_INIT = "check the path, or create a ledger with `dpglm ledger init` or dpglm.Ledger.create"
_RESTORE = "restore the ledger from a backup, and count what was released since"
# A header or record is canonical JSON: its digest covers the very text that is stored. AUTOINCREMENT makes SQLite
# remember the largest number ever used, which tells when the last entry was removed.
_TABLES = (
    "CREATE TABLE ledger (header TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY AUTOINCREMENT, record TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE releases (entry INTEGER PRIMARY KEY REFERENCES entries, text TEXT NOT NULL, digest TEXT NOT NULL)",
)

_OF_NO_USE = 1e-3  # of the cap

# What a header and a record hold; every number is above zero, so that no entry is a refund.
_HEADER: dict[str, type] = {
    "dataset_id": str, "unit": str, "neighbouring_relation": str, "cap_epsilon": float, "cap_delta": float,
    "cap_units": int, "created": str,
}  # fmt: skip
_RECORD: dict[str, type] = {
    "number": int, "release_id": str, "time": str, "mu_squared_units": int, "description": dict,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One charge. ``has_release``: the finished release that it paid for is kept in the ledger."""

    number: int
    release_id: str
    time: str
    mu_squared_units: int
    description: dict[str, Any]
    has_release: bool
    digest: str

    @property
    def mu(self) -> float:
        """What this charge costs; a release in stages has one for each."""
        return _mu(self.mu_squared_units)


@dataclass(frozen=True)
class LedgerSummary:
    """Where the budget stands. Spent is rounded up, what remains down; every epsilon is at ``cap_delta``.

    ``remaining_epsilon`` is what one more release may ask for. It is not ``cap_epsilon - spent_epsilon``: mu squared
    adds up over releases, epsilon does not.
    """

    dataset_id: str
    unit: str
    neighbouring_relation: str
    cap_epsilon: float
    cap_delta: float
    cap_mu: float
    spent_mu: float
    spent_epsilon: float
    remaining_epsilon: float
    number_of_entries: int
    number_of_kept_releases: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"ledger of dataset {self.dataset_id!r}, protecting {self.unit} ({self.neighbouring_relation})\n"
            f"cap:   epsilon = {self.cap_epsilon:g} at delta = {self.cap_delta:g} (mu = {self.cap_mu:.6g})\n"
            f"spent: epsilon = {self.spent_epsilon:.6g} (mu = {self.spent_mu:.6g}); entries: "
            f"{self.number_of_entries}, finished releases kept: {self.number_of_kept_releases}\n"
            f"left:  {self._left}"
        )

    @property
    def _left(self) -> str:
        """What remains, three digits and rounded down; all of the cap where nothing is spent, for one release."""
        if not self.number_of_entries:
            return f"epsilon = {self.cap_epsilon:g}: nothing is spent"
        if self.remaining_epsilon < _OF_NO_USE * self.cap_epsilon:
            return "nothing that is of use"
        left = float(Context(3, ROUND_FLOOR).create_decimal_from_float(self.remaining_epsilon))
        return f"epsilon = {left:g} for one more release (epsilons of several releases do not simply add up)"


@dataclass(frozen=True)
class Ledger:
    """A ledger file. It belongs to one dataset identity, one unit of privacy and one neighbouring relation.

    Every operation opens its own connection and closes it, so that one ``Ledger`` may be used by threads and after a
    fork; every operation also makes sure that the file is still the ledger that was opened.
    """

    path: Path
    dataset_id: str
    unit: str
    neighbouring_relation: str
    cap_epsilon: float
    cap_delta: float
    cap_units: int = field(repr=False)
    created: str
    digest: str = field(repr=False)

    @classmethod
    def create(cls, path: str | os.PathLike[str], dataset: Dataset, *, epsilon: float, delta: float) -> Self:
        """A new ledger whose releases together stay within (epsilon, delta).

        It appears under its name complete and durable, or not at all. An existing file is never replaced. Refused
        where the folder holds a ledger of this dataset already: a second one would be a second budget. (One in another
        folder is not found, nor one that is made at the very same time.)
        """
        epsilon, delta = privacy.check_epsilon_delta(epsilon, delta)
        mu = privacy.mu_of(epsilon, delta)
        header = _canonical(
            {
                "dataset_id": _text("dataset.id", dataset.id),
                "unit": _text("dataset.unit", dataset.unit),
                "neighbouring_relation": dataset.protection.relation,
                "cap_epsilon": epsilon,
                "cap_delta": delta,
                # mu * mu is the very double that a release with this epsilon and delta costs.
                "cap_units": math.floor(Fraction(mu * mu) * UNITS),
                "created": _now(),
            }
        )
        path = _path(path)
        try:
            for existing in (f"{path}{suffix}" for suffix in ("", *COMPANIONS)):
                if os.path.lexists(existing):  # a stray log would be replayed into the new ledger
                    raise FileError("ledger", existing, "exists already, and is never replaced", "choose another path")
            if (other := _ledger_beside(path, dataset.id)) is not None:
                rule = f"the folder holds a ledger of dataset {dataset.id!r} already, {other.name!r}"
                raise FileError("ledger", str(path), rule, "use that one: a second ledger would be a second budget")
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".ledger-", ignore_cleanup_errors=True) as folder:
                unnamed = Path(folder, "ledger")
                unnamed.touch()
                with _connected(unnamed, "IMMEDIATE", "journal_mode = WAL") as connection:
                    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {_VERSION}")
                    for table in _TABLES:
                        connection.execute(table)
                    connection.execute("INSERT INTO ledger VALUES (?, ?)", (header, _digest("dpglm ledger", header)))
                _sync(unnamed)
                os.link(unnamed, path)  # unlike a rename, fails when the name was taken in the meantime
            _sync(path.parent)
        except OSError as error:
            rule = f"cannot be created ({error.strerror})"
            raise FileError("ledger", str(path), rule, "choose a new file in a writable folder") from None
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """An existing ledger; opening never creates one."""
        path = _path(path)
        if not os.path.isfile(path):
            raise FileError("ledger", str(path), "there is no such file", _INIT)
        with _connected(path) as connection:
            return cls._read(connection, path)

    def check_dataset(self, dataset: Dataset) -> None:
        """Refuse a release of another dataset, unit or neighbouring relation than this ledger's."""
        for name, asked, own in (
            ("dataset.id", dataset.id, self.dataset_id),
            ("dataset.unit", dataset.unit, self.unit),
            ("neighbouring relation", dataset.protection.relation, self.neighbouring_relation),
        ):
            if asked != own:
                raise BudgetError(name, asked, f"the ledger {str(self.path)!r} is for {own!r}", "use another ledger")

    def check_affordable(self, mu_squared: float | Fraction) -> None:
        """Raise a BudgetError if this cost would exceed the cap now. Writes and reserves nothing: ``spend`` decides."""
        self._refuse_beyond_cap(_units_up(mu_squared), _spent(self.entries()))

    def spend(self, *, release_id: str, mu_squared: float | Fraction, description: Mapping[str, object]) -> Entry:
        """Charge a release, durably, before its noise is drawn; BudgetError, and no charge, beyond the cap.

        A release may spend several times under one ``release_id`` until it is kept. A FileError may leave the entry
        in place (the disk failed while committing), and still no noise may be drawn.
        """
        return self.spend_stages(release_id=release_id, stages=[(mu_squared, description)])[0]

    def spend_stages(
        self, *, release_id: str, stages: Sequence[tuple[float | Fraction, Mapping[str, object]]]
    ) -> tuple[Entry, ...]:
        """Charge all stages of a release, one entry each, in one transaction: all of them or none."""
        identity = _text("release_id", release_id)
        costs = [_units_up(mu_squared) for mu_squared, _ in stages]
        with self._transaction("IMMEDIATE") as connection:
            entries = self._entries(connection)
            if any(entry.has_release and entry.release_id == identity for entry in entries):
                raise BudgetError("release_id", release_id, "is finished and kept already", "use a new release_id")
            self._refuse_beyond_cap(sum(costs), _spent(entries))
            previous = entries[-1].digest if entries else self.digest
            added = []
            for number, (cost, (_, description)) in enumerate(zip(costs, stages, strict=True), len(entries) + 1):
                record = {"release_id": identity, "description": dict(description), "mu_squared_units": cost}
                text = _canonical({**record, "number": number, "time": _now()})
                previous = _digest(previous, text)
                connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, previous))
                added.append(Entry(**json.loads(text), has_release=False, digest=previous))
        return tuple(added)

    def keep(self, release_id: str, release_text: str) -> None:
        """Store the finished release beside its (latest) entry; once, and only a text that names its release_id."""
        if release_id not in release_text:
            raise InputError("release_text", "(text)", f"must name its release {release_id}", "keep the file's text")
        with self._transaction("IMMEDIATE") as connection:
            own = [entry for entry in self._entries(connection) if entry.release_id == release_id]
            if not own:
                raise BudgetError("release_id", release_id, "has no entry in the ledger", "spend before the release")
            if own[-1].has_release:
                raise FileError("release_id", release_id, "is kept already, and never replaced", "use a new release_id")
            digest = _digest(own[-1].digest, release_text)
            connection.execute("INSERT INTO releases VALUES (?, ?, ?)", (own[-1].number, release_text, digest))

    def entries(self) -> tuple[Entry, ...]:
        """Every charge, oldest first."""
        with self._transaction() as connection:
            return self._entries(connection)

    def summary(self, through: int | None = None) -> LedgerSummary:
        """Where the budget stands, in epsilon at the cap's delta; or stood, after entry number ``through``."""
        entries = self.entries()[:through]
        spent = _spent(entries)
        return LedgerSummary(
            self.dataset_id,
            self.unit,
            self.neighbouring_relation,
            self.cap_epsilon,
            self.cap_delta,
            cap_mu=_mu(self.cap_units, -1e-15),
            spent_mu=_mu(spent),
            spent_epsilon=self._epsilon(_mu(spent)),
            remaining_epsilon=self._remaining_epsilon(spent),
            number_of_entries=len(entries),
            number_of_kept_releases=len({entry.release_id for entry in entries if entry.has_release}),
        )

    def verify(self, against: Mapping[str, Release] | None = None) -> None:
        """Raise a FileError unless file, chain and kept releases are sound, complete, and the sum is within the cap.

        ``against`` are published releases by name (of their files, say): each must be charged here as it states. So a
        ledger that was rolled back, or whose copy was spent from, is found.
        """
        with self._transaction() as connection:
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise self._damaged("SQLite's integrity check fails")
            if connection.execute("PRAGMA foreign_key_check").fetchall():
                raise self._damaged("a kept release has lost its entry")
            entries = self._entries(connection)
            if connection.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()[0] not in (None, len(entries)):
                raise self._damaged("its last entry was removed")
            for entry in entries:
                self._kept(connection, entry)
        if _spent(entries) > self.cap_units:
            raise self._damaged("its entries exceed its cap")
        # Another version of the library may find a mu that differs in its last digits.
        if _mu(self.cap_units) > privacy.mu_of(self.cap_epsilon, self.cap_delta) * (1 + 1e-6):
            raise self._damaged("its cap on mu is larger than its epsilon and delta allow")
        if against:
            from dpglm.custodian.published import check_published

            check_published(self, against)

    def export(self, release_id: str | None = None) -> str:
        """The text of a kept release: of this release_id, or of the latest one that is kept."""
        with self._transaction() as connection:
            for entry in reversed(self._entries(connection)):
                if release_id in (None, entry.release_id) and (text := self._kept(connection, entry)) is not None:
                    return text
        rule = "the ledger keeps no such finished release"
        raise FileError("release_id", release_id, rule, "see `dpglm ledger show`; an unfinished release stays charged")

    @contextmanager
    def _transaction(self, kind: str = "DEFERRED") -> Iterator[sqlite3.Connection]:
        """One transaction on the ledger that was opened, not on another one now under its name."""
        with _connected(self.path, kind) as connection:
            if self._read(connection, self.path) != self:
                raise FileError("ledger", str(self.path), "is not the ledger that was opened", "open the ledger again")
            yield connection

    @classmethod
    def _read(cls, connection: sqlite3.Connection, path: Path) -> Self:
        """The header of the file, believed only after its version and digest are checked."""
        if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise FileError("ledger", str(path), "is not a dpglm ledger", _INIT)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION:
            rule = f"has ledger version {version}, and this dpglm reads version {_VERSION}"
            raise FileError("ledger", str(path), rule, f"install a newer dpglm; otherwise {_INIT}")
        # A view or trigger in place of a table would be run by whoever reads it.
        made = connection.execute("SELECT type, sql FROM sqlite_schema WHERE name != 'sqlite_sequence' ORDER BY rowid")
        if made.fetchall() != [("table", table) for table in _TABLES]:
            raise FileError("ledger", str(path), "its tables were changed", _RESTORE)
        ((header, digest),) = connection.execute("SELECT header, digest FROM ledger")
        if digest != _digest("dpglm ledger", header):
            raise FileError("ledger", str(path), "its header was changed", _RESTORE)
        facts = _typed(json.loads(header), _HEADER)
        try:
            privacy.check_epsilon_delta(facts["cap_epsilon"], facts["cap_delta"])
        except InputError as error:
            raise FileError("ledger", str(path), f"its cap is none ({error})", _RESTORE) from None
        return cls(path, **facts, digest=digest)

    def _entries(self, connection: sqlite3.Connection) -> tuple[Entry, ...]:
        """All entries, their numbers and hash chain checked."""
        kept = {number for (number,) in connection.execute("SELECT entry FROM releases")}
        chain: list[tuple[dict[str, Any], str]] = []
        digest = self.digest
        for number, record, stored in connection.execute("SELECT number, record, digest FROM entries ORDER BY number"):
            digest = _digest(digest, record)
            chain.append((_typed(json.loads(record), _RECORD), digest))
            if stored != digest or not number == chain[-1][0]["number"] == len(chain):
                raise self._damaged(f"its hash chain breaks at entry {number}")
        finished = {record["release_id"] for record, _ in chain if record["number"] in kept}
        return tuple(Entry(**record, has_release=record["release_id"] in finished, digest=end) for record, end in chain)

    def _kept(self, connection: sqlite3.Connection, entry: Entry) -> str | None:
        """The release kept beside this entry, if there is one, and if it is the one that was kept."""
        for text, digest in connection.execute("SELECT text, digest FROM releases WHERE entry = ?", (entry.number,)):
            if digest != _digest(entry.digest, text) or entry.release_id not in text:
                raise self._damaged(f"the release kept with entry {entry.number} was changed")
            return str(text)
        return None

    def _refuse_beyond_cap(self, cost: int, spent: int) -> None:
        if spent + cost <= self.cap_units:
            return
        left = self._remaining_epsilon(spent)
        raise BudgetError(
            "cost of the release",
            f"epsilon {self._epsilon(_mu(cost)):.6g}",
            f"would exceed the cap: epsilon {self._epsilon(_mu(spent)):.6g} of {self.cap_epsilon:g} is spent,"
            f" {left:.6g} is left for one release (all at delta = {self.cap_delta:g})",
            f"ask for epsilon = {left:.6g} or less" if left > 0 else "no further release of this dataset is possible",
        )

    def _epsilon(self, mu: float) -> float:
        """What this mu guarantees at the cap's delta, less the share of delta that discrete noise may take."""
        return privacy.epsilon_of(mu, self.cap_delta * (1 - privacy.DISCRETE_SHARE))

    def _remaining_epsilon(self, spent: int) -> float:
        """The epsilon of one more release, six digits; lowered by more than the searches err, so that its mu fits."""
        epsilon = self._epsilon(_mu(max(self.cap_units - spent, 0), -1e-15)) * (1 - 1e-8)
        return float(Context(6, ROUND_FLOOR).create_decimal_from_float(epsilon))

    def _damaged(self, rule: str) -> FileError:
        return FileError("ledger", str(self.path), rule, _RESTORE)


@contextmanager
def _connected(path: Path, kind: str = "DEFERRED", *settings: str) -> Iterator[sqlite3.Connection]:
    """A connection for one transaction, which is committed at the end, or rolled back by an error."""
    try:
        # As a quoted URI: mode=rw never creates a file, and no character of the path is taken for an option.
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            # EXTRA is FULL, and durable also if somebody took the file out of the write-ahead log.
            for setting in ("synchronous = EXTRA", "fullfsync = ON", "foreign_keys = ON", *settings):
                connection.execute(f"PRAGMA {setting}")
            connection.execute(f"BEGIN {kind}")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()
    except sqlite3.Error as error:
        # The low byte of SQLite's code is the kind of error.
        rule, remedy = {
            sqlite3.SQLITE_BUSY: (f"was locked for {_BUSY_SECONDS:g} s", "wait for the other dpglm, then try again"),
            sqlite3.SQLITE_FULL: ("cannot be written: the disk is full", "free some space, then try again"),
            sqlite3.SQLITE_READONLY: ("is read-only", "make the file and its folder readable and writable"),
            sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "make the file and its folder readable and writable"),
            sqlite3.SQLITE_IOERR: ("cannot be read or written", "check the disk; a ledger needs a local one"),
            sqlite3.SQLITE_NOTADB: ("is not a dpglm ledger", _INIT),
        }.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, (f"is damaged ({error})", _RESTORE))
        raise FileError("ledger", str(path), rule, remedy) from None
    except InputError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise FileError("ledger", str(path), "holds a value that no ledger writes", _RESTORE) from error


def _ledger_beside(path: Path, dataset_id: str) -> Path | None:
    """A ledger of this dataset in the folder of ``path``. What is none, or cannot be read, is passed over."""
    try:
        with os.scandir(path.parent) as listed:
            found = sorted(Path(entry.path) for entry in listed if _may_be_sqlite(entry))
    except PermissionError:  # a folder that may be written to, and not be read
        return None
    return next((other for other in found if _dataset_of(other) == dataset_id), None)


def _may_be_sqlite(entry: os.DirEntry[str]) -> bool:
    """By its name and size alone: a database is made of pages of 512 bytes or a multiple."""
    try:
        size = entry.stat().st_size if entry.is_file() else 0
    except OSError:  # it is gone again
        return False
    return size > 0 and size % 512 == 0 and not entry.name.endswith(COMPANIONS)


def _dataset_of(path: Path) -> str | None:
    """Whose ledger a file is; None where it is none.

    The file may be another program's, or in use. So it is opened as one that nobody changes: SQLite then takes no lock,
    replays no log and leaves nothing beside it. A header is in the file itself since the ledger was made.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            return Ledger._read(connection, path).dataset_id
    except (sqlite3.Error, InputError, TypeError, ValueError, KeyError, AttributeError, RecursionError, OSError):
        return None


def _path(path: str | os.PathLike[str]) -> Path:
    if "\0" in str(path):
        raise FileError("ledger", str(path), "is not a file name", "choose another path")
    return Path(path).absolute()


def _sync(path: Path) -> None:
    """Make a closed file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def _canonical(content: Mapping[str, object]) -> str:
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InputError("description", "(mapping)", "must hold what JSON can hold", "use plain values") from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > 200:
        raise InputError(name, value, "must be printable text of 1 to 200 characters", "rename it")
    return value


def _typed(facts: dict[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """The facts, or a ValueError where they are not of their kinds; a forged chain may hold anything."""
    if {name: type(value) for name, value in facts.items()} != kinds:
        raise ValueError("not the fields of a ledger")
    if not all(0 < value <= _LARGEST_COST * UNITS for value in facts.values() if isinstance(value, int | float)):
        raise ValueError("not above zero, or beyond every cost")
    return facts


def _units_up(mu_squared: float | Fraction) -> int:
    """A cost in whole units, exactly rounded up. A negative one would be a refund."""
    is_number = isinstance(mu_squared, int | float | Fraction) and not isinstance(mu_squared, bool)
    if not is_number or not 0 < mu_squared <= _LARGEST_COST:
        raise InputError("mu_squared", mu_squared, "must be a number above 0 (and at most 1e12)", "correct the cost")
    return math.ceil(Fraction(mu_squared) * UNITS)


def _spent(entries: Iterable[Entry]) -> int:
    return sum(entry.mu_squared_units for entry in entries)


def _mu(units: int, widened: float = 1e-15) -> float:
    """mu from mu squared; widened (or narrowed) by more than the rounding of the division and the root."""
    return math.sqrt(units / UNITS) * (1 + widened)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
