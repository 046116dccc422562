"""Hostile files and formulas, by mutation of good ones: bytes, tokens, and values with every digest made right again.

Some are made on purpose to ask for much (``trust.bombs``).

Readers: release files, fit files, schema files, formulas, ledgers; and the look at a file by which the commands tell
what it is. Cases come from a ``random.Random``, seeded in the long run, driven by hypothesis in the tests.
"""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from dpglm.analyst.fit_file import load_fit
from dpglm.custodian import ledger as ledger_module
from dpglm.custodian.ledger import Ledger
from dpglm.formula import build_design
from dpglm.release_file import _checksum, load_release, read_release
from dpglm.schema import Schema
from dpglm.terminal import kind_of
from trust import bombs
from trust.guard import Guard
from trust.seeds import Seeds

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**400, 0.0, -0.0, 0.5, 1e-320, 1e308,
    -1e308, 1e999, "", " ", "\x00", "\n", "\u202e", "\ud800", "a" * 300, "a" * 100_000, "9" * 5000, "-0", "007",
    "NaN", "Infinity", "../../../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "<script>alert(1)</script>",
    "'; DROP TABLE entries; --", "__import__('os').system('true')", "{}", "%s%n", "y ~ x", "logistic", "poisson",
    "numeric", [], {}, [[]], [None], [[[[[[]]]]]], {"": {}}, ["a", "b"], {"type": "numeric"},
    {"type": "count", "upper": 10**9},
)  # fmt: skip
TOKENS = (
    b"\x00", b"\xff", b"\n", b"\"", b"'", b"{", b"}", b"[", b"]", b",", b":", b"=", b".", b"\\", b"\\u0000",
    b"\\ud800", b"#", b"1e999", b"NaN", b"null", b"true", b"-", b"0" * 500, b"9" * 5000, b"[[", b"]]", b"[" * 3000,
    b"{\"a\":" * 3000, b"a." * 2000, b"'''", b'"""', b"1979-05-27T07:32:00Z", b"0x" + b"f" * 300, b"inf", b"columns",
    b"dataset", b"PK\x03\x04", b"../", b"\xed\xa0\x80",
)  # fmt: skip
FORMULA_PARTS = (
    "y", "x", "z", "`odd name`", "`", "~", "+", "-", "*", ":", "/", "**", "^", "(", ")", "|", ",", " ", "0", "1",
    "2", "20", "1e309", "log(", "exp(", "sqrt(", "I(", "offset(", "C(", "poly(x, 2)", "bs(x)", "scale(x)", ".", "..",
    "[", "]", "{", "}", "%in%", "%", "~ ~", "__import__('os').system('true')", "lambda: 0", "x.__class__", "x[0]",
    "'text'", '"', "\\", "\n", "\x00", "é", "\ud800", "if", "else", "for", "not", "and", "==", "@", ":=", "!",
    "x" * 500, "(" * 200, "9" * 5000, "1 - ", "+ 0", "exp(exp(x))", "log(log(x))", "I(x/z)", "I(x**8)", "x:z", "x*z",
    "(x + z)**2", "y ~ x", "y ~ x + z", "count", "kind",
)  # fmt: skip


@dataclass
class Fuzzer:
    """One kind of input at a time; ``write`` puts it where the reader finds it."""

    guard: Guard
    seeds: Seeds
    chance: Random

    def case(self, kind: str) -> None:
        getattr(self, f"_{kind}")()

    def _file(self, name: str, content: bytes) -> Path:
        path = self.guard.folder / name
        path.write_bytes(content)
        return path

    def _read(self, what: str, reader: Callable[[Path], object], path: Path, content: bytes) -> None:
        def both() -> None:
            kind_of(path)
            reader(path)

        self.guard.check(what, both, lambda: repr(content[:300]))

    def _release(self) -> None:
        text = self.chance.choice(self.seeds.releases)
        content = self._bytes(text.encode()) if self.chance.random() < 0.3 else self._release_values(text)
        self._read("release", _load_and_show, self._file("a.release.json", content), content)

    def _release_values(self, text: str) -> bytes:
        if self.chance.random() < 0.2:
            data = bombs.some_release(self.chance, self.seeds.releases[0], self.seeds.releases[3])
        else:
            data = json.loads(text)
            for _ in range(self.chance.choice((1, 1, 1, 2, 5))):
                self._change(data)
        if self.chance.random() < 0.9:
            with suppress(ValueError, TypeError):
                data["checksum"] = _checksum(data)
        return _dumped(data)

    def _schema(self) -> None:
        if self.chance.random() < 0.5:
            seed = (
                bombs.some_schema(self.chance) if self.chance.random() < 0.1 else self.chance.choice(self.seeds.schemas)
            )
            content = self._bytes(seed)
            self._read("schema", Schema.load, self._file("a.toml", content), content)
        else:
            data = json.loads(json.dumps(self.seeds.schema_dict))
            if self.chance.random() < 0.1:
                data["columns"] = deepcopy(bombs.some_columns(self.chance))  # they share what is changed next
            for _ in range(self.chance.choice((1, 1, 2, 5))):
                self._change(data)
            self.guard.check("schema", partial(Schema.from_dict, data), lambda: repr(data))

    def _formula(self) -> None:
        schema = self.seeds.schema
        if self.chance.random() < 0.1:
            columns, right = bombs.some_formula(self.chance)
            text = f"y ~ {right}"
            schema = Schema.from_dict(
                {**self.seeds.schema_dict, "columns": self.seeds.schema_dict["columns"] | columns}
            )
        elif self.chance.random() < 0.5:
            text = "".join(self.chance.choice(FORMULA_PARTS) for _ in range(self.chance.randint(1, 12)))
            text = f"y ~ {text}" if self.chance.random() < 0.7 else text
        else:
            text = self._bytes(self.chance.choice(self.seeds.formulas).encode()).decode("utf-8", "surrogateescape")
        family = self.chance.choice(("logistic", "poisson", "linear", "linear"))
        self.guard.check("formula", partial(build_design, text, schema, family), lambda: repr(text))

    def _fit(self) -> None:
        content = self.chance.choice(self.seeds.fits)
        content = self._bytes(content) if self.chance.random() < 0.4 else self._fit_values(content)
        self._read("fit", load_fit, self._file("a.fit.npz", content), content)

    def _fit_values(self, content: bytes) -> bytes:
        with np.load(io.BytesIO(content)) as stored:
            arrays = {name: stored[name] for name in stored.files}
        facts = json.loads(arrays.pop("facts").tobytes().decode())
        for _ in range(self.chance.choice((0, 1, 1, 2))):
            self._change(facts)
        arrays["facts"] = np.frombuffer(_dumped(facts), dtype=np.uint8)
        name = self.chance.choice(list(arrays))
        arrays[name] = self._array(arrays[name])
        if self.chance.random() < 0.1:
            del arrays[name]
        if self.chance.random() < 0.1:
            arrays[self.chance.choice(("../x", "/etc/x", "more", ""))] = np.zeros(3)
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w", self.chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for key, array in arrays.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, array)
                archive.writestr(f"{key}.npy", self._maybe(buffer.getvalue()))
        return target.getvalue()

    def _array(self, array: Any) -> Any:
        number = self.chance.randrange(12)
        if number < 4:
            return array
        wrong = (
            lambda: array[:0], lambda: array.astype("S"), lambda: np.array(0.0),
            lambda: np.full(array.shape, np.nan), lambda: array.astype(complex), lambda: array.reshape(-1),
            lambda: np.array([object()]), lambda: array[..., None],
        )  # fmt: skip
        return wrong[number - 4]()

    def _ledger(self) -> None:
        content = bytearray(self.chance.choice(self.seeds.ledgers))
        for suffix in ("-wal", "-shm", "-journal"):
            (self.guard.folder / f"a.ledger{suffix}").unlink(missing_ok=True)
        if self.chance.random() < 0.5:
            for _ in range(self.chance.choice((1, 3, 20))):
                content[self.chance.randrange(len(content))] = self.chance.randrange(256)
            if self.chance.random() < 0.2:
                del content[self.chance.randrange(len(content)) :]
            path = self._file("a.ledger", bytes(content))
        else:
            path = self._file("a.ledger", bytes(content))
            self._forge(path)

        def read(path: Path) -> None:
            book = Ledger.open(path)
            book.verify()
            book.summary()

        self._read("ledger", read, path, bytes(content))

    def _forge(self, path: Path) -> None:
        """Records with hostile values, the chain made right again."""
        with closing(sqlite3.connect(path)) as connection, connection:
            ((header, digest),) = connection.execute("SELECT header, digest FROM ledger")
            if self.chance.random() < 0.5:
                header = self._hostile_json(header)
                digest = ledger_module._digest("dpglm ledger", header)
                connection.execute("UPDATE ledger SET header = ?, digest = ?", (header, digest))
            for number, record in connection.execute("SELECT number, record FROM entries ORDER BY number").fetchall():
                record = self._hostile_json(record) if self.chance.random() < 0.3 else record
                digest = ledger_module._digest(digest, record)
                connection.execute(
                    "UPDATE entries SET record = ?, digest = ? WHERE number = ?", (record, digest, number)
                )
            if self.chance.random() < 0.2:
                with suppress(sqlite3.Error):
                    connection.execute(self.chance.choice(HOSTILE_SQL))

    def _hostile_json(self, text: str) -> str:
        data = json.loads(text)
        self._change(data)
        return _dumped(data).decode("utf-8", "replace").replace("\x00", "")

    def _maybe(self, content: bytes) -> bytes:
        return self._bytes(content) if self.chance.random() < 0.2 else content

    def _bytes(self, content: bytes) -> bytes:
        """Flip, cut, double, move or insert bytes, a few times."""
        chance, found = self.chance, bytearray(content)
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            place = chance.randrange(len(found) + 1)
            end = min(place + chance.choice((1, 4, 40, 400)), len(found))
            match chance.randrange(6):
                case 0:
                    found[place:end] = bytes(chance.randrange(256) for _ in range(min(end - place, 8)))
                case 1:
                    del found[place:end]
                case 2:
                    found[place:place] = found[place:end]
                case 3:
                    found[place:place] = chance.choice(TOKENS)
                case 4:
                    found[place:end] = chance.choice(TOKENS)
                case _:
                    if chance.random() < 0.2:
                        del found[place:]
        return bytes(found)

    def _change(self, data: Any) -> None:
        """One value somewhere in nested dicts and lists becomes hostile, or vanishes, or moves."""
        chance = self.chance
        place = data
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                return
            key = chance.choice(keys)
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or chance.random() < 0.15:
                break
            place = inner
        match chance.randrange(6):
            case 0:
                del place[key]
            case 1 if isinstance(place, dict):
                place[chance.choice(("more", "", "type", "levels", "fill", "\ud800", key))] = place.pop(key)
            case 2 if isinstance(place, list):
                place.extend([place[key]] * chance.choice((1, 50)))
            case 3 if isinstance(inner, int | float) and not isinstance(inner, bool) and abs(inner) < 1e150:
                place[key] = chance.choice(
                    (-inner, inner + 1, inner * 2, inner * 1e150, inner / 2, str(inner), float(inner))
                )
            case 4 if isinstance(inner, str):
                place[key] = chance.choice(
                    (inner + "\n", inner.upper(), inner[::-1], inner[:-1], inner + "\ud800", inner * 50)
                )
            case _:
                place[key] = deepcopy(chance.choice(HOSTILE))


HOSTILE_SQL = (
    "DROP TABLE releases", "DELETE FROM ledger", "DELETE FROM entries", "ALTER TABLE entries ADD COLUMN more",
    "CREATE VIEW more AS SELECT 1", "INSERT INTO ledger SELECT * FROM ledger", "UPDATE entries SET digest = NULL",
    "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END", "PRAGMA user_version = 9",
    "UPDATE entries SET number = -number", "UPDATE ledger SET header = zeroblob(1000000)", "PRAGMA application_id = 1",
)  # fmt: skip
KINDS = ("release", "schema", "formula", "fit", "ledger")


def _load_and_show(path: Path) -> None:
    """A file that is believed must also be shown and written again."""
    release = load_release(path)
    assert read_release(release.to_json()) == release
    assert release.statement
    assert (release.survey is None) == (release.method == "moments")
    assert repr(release)


def _dumped(data: Any) -> bytes:
    """JSON, also of what JSON should not hold."""
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")
