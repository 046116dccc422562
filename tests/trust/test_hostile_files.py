"""Files and formulas from an enemy: one line of error or a sound reading, and nothing else happens.

The long form feeds a million cases from the same generator (docs/security.md). Cases that were found by it have a
test here.
"""

from __future__ import annotations

import io
import json
import os
import random
import sqlite3
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpglm.analyst import fit_file
from dpglm.analyst.fit_file import load_fit
from dpglm.custodian.ledger import _APPLICATION_ID, Ledger
from dpglm.errors import FileError, InputError
from dpglm.formula import build_design
from dpglm.release_file import _checksum, read_release
from dpglm.schema import Schema
from dpglm.terminal import kind_of
from trust import bombs
from trust.fuzz import KINDS, Fuzzer
from trust.guard import Guard, limits
from trust.seeds import SCHEMA, Seeds, make_seeds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guard limits memory by Linux's means")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Seeds:
    return make_seeds(tmp_path_factory.mktemp("seeds"))


@pytest.fixture(scope="module")
def guard(seeds: Seeds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    with limits():  # after the seeds, whose making needs more memory than reading them
        yield Guard(tmp_path_factory.mktemp("fuzz").resolve())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_whatever_is_done_to_a_file_it_is_read_or_refused_in_one_line(
    chance: random.Random, kind: str, guard: Guard, seeds: Seeds
) -> None:
    Fuzzer(guard, seeds, chance).case(kind)
    assert guard.breaches == []


@pytest.fixture(scope="module")
def strict(seeds: Seeds, tmp_path_factory: pytest.TempPathFactory) -> Guard:
    """A second and 500 MB, beyond a process that has read good files."""
    guard = Guard(tmp_path_factory.mktemp("bombs").resolve(), seconds=bombs.SECONDS)
    guard.check("good", lambda: read_release(seeds.releases[0]), str)
    build_design("y ~ x*z", seeds.schema, "logistic")  # loads the parser of formulas
    assert guard.breaches == []
    return guard


def refused_quickly(guard: Guard, name: str, reader: Callable[[], object]) -> None:
    with limits(bombs.MEGABYTES):
        accepted = guard.check(name, reader, lambda: name)
    assert guard.breaches == []
    assert accepted == (name in HARMLESS)


HARMLESS = {"brackets of a formula", "a long chain of signs"}  # small as what is read, too


@pytest.mark.parametrize("name", bombs.FORMULAS)
def test_a_small_formula_that_asks_for_much_ends_in_one_line(name: str, seeds: Seeds, strict: Guard) -> None:
    columns, right = bombs.FORMULAS[name]
    schema = Schema.from_dict({**SCHEMA, "columns": SCHEMA["columns"] | columns})
    refused_quickly(strict, name, lambda: build_design(f"y ~ {right}", schema, "logistic"))
    text = bombs.sealed(bombs.with_formula(seeds.releases[0], (columns, right)))
    refused_quickly(strict, f"{name}, in a file", lambda: read_release(text))


@pytest.mark.parametrize("name", bombs.RELEASES)
def test_a_small_release_file_that_asks_for_much_ends_in_one_line(name: str, seeds: Seeds, strict: Guard) -> None:
    text = bombs.sealed(bombs.RELEASES[name](seeds.releases[0], seeds.releases[3]))
    assert len(text) < 150_000
    refused_quickly(strict, name, lambda: read_release(text))
    if "over" in name:
        with pytest.raises(FileError, match=r"the blocks have [0-9,]+ monomials of \d+ columns, at most 100,000"):
            read_release(text)


@pytest.mark.parametrize("size", [20_000, 200_000])
@pytest.mark.parametrize("name", bombs.SCHEMAS)
def test_a_small_schema_file_that_asks_for_much_ends_in_one_line(name: str, size: int, strict: Guard) -> None:
    path = strict.folder / "a.toml"
    path.write_bytes(bombs.SCHEMAS[name](size))
    refused_quickly(strict, name, lambda: Schema.load(path))


def test_what_is_large_but_allowed_is_still_read(tmp_path: Path) -> None:
    """As many columns, and a key of as many dots, as there may be."""
    outcome = {"y": SCHEMA["columns"]["y"]}
    for columns, right in (bombs.crossed(1, 251), bombs.chained(250, "+"), bombs.powered(7, 4)):
        schema = Schema.from_dict({**SCHEMA, "columns": outcome | columns})
        assert build_design(f"y ~ {right}", schema, "logistic").dimension in (98, 250)
    path = tmp_path / "a.toml"
    path.write_text(Schema.from_dict({**SCHEMA, "columns": {"a" + ".b" * 90: bombs.NUMERIC}}).to_toml())
    assert list(Schema.load(path).columns) == ["a" + ".b" * 90]


def touch(path: str) -> None:
    Path(path).touch()


@pytest.mark.parametrize(
    ("reader", "part"),
    [
        (lambda path: {}["x"], "KeyError"),
        (lambda path: eval(compile("1 + 1", "", "eval")), "exec"),
        (lambda path: os.system("true"), "os.system"),
        (lambda path: touch(f"{path}/more"), "open"),
        (lambda path: open("/etc/hostname").close(), "open"),
        (lambda path: np.load(io.BytesIO(pickled()), allow_pickle=True), "pickle.find_class"),
        (lambda path: [0] * 10**10, "MemoryError"),
    ],
)
def test_the_guard_sees_what_it_is_there_for(reader: object, part: str, guard: Guard) -> None:
    before = guard.breaches.copy()
    guard.check("planted", lambda: reader(guard.folder), lambda: "planted")  # type: ignore[operator]
    found = guard.breaches[len(before) :]
    guard.breaches[:] = before
    assert len(found) == 1
    assert part in found[0]


def pickled() -> bytes:
    target = io.BytesIO()
    np.save(target, np.array([random.Random(1)], dtype=object), allow_pickle=True)
    return target.getvalue()


CODE = "__import__('pathlib').Path({!r}).touch()"
HOSTILE_FORMULAS = (
    "I(({code})(x)) ~ z",
    "{{({code})(x)}} ~ z",
    "y ~ I(({code})(x))",
    "y ~ {code}",
    "{code} ~ x",
    "log({code}) ~ x",
    "y ~ offset(({code})(x))",
    "[({code})(x) for x in (1,)][0](x) ~ z",
    "I((lambda: {code})()(x)) ~ z",
)


@pytest.mark.parametrize("formula", HOSTILE_FORMULAS)
def test_no_formula_is_run(formula: str, tmp_path: Path, seeds: Seeds) -> None:
    """The fuzzing found this: splitting a formula, the parser of formulas evaluated what was called on the left."""
    text = formula.format(code=CODE.format(str(tmp_path / "run")))
    for family in ("logistic", "linear"):
        with pytest.raises(InputError):
            build_design(text, seeds.schema, family)
    data = json.loads(seeds.releases[0])
    data["regression"]["formula"] = text
    data["checksum"] = _checksum(data)
    with pytest.raises(FileError, match="contradicts itself"):
        read_release(json.dumps(data))
    assert not (tmp_path / "run").exists()
    eval(CODE.format(str(tmp_path / "run")))  # the code is real
    assert (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"x = " + b"9" * 5000, "is not valid TOML"),
        (b"a." * 3000 + b"a = 1", "a key of many dots"),
        (b"x = " + b"[" * 100_000, "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"# " + b"x" * 2**22, "is larger than a schema can be"),
    ],
    ids=["digits", "dots", "brackets", "bytes", "size"],
)
def test_a_schema_that_is_a_bomb_is_refused(content: bytes, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        Schema.load(path)
    assert rule in str(caught.value)
    assert str(caught.value).splitlines() == [str(caught.value)]
    assert len(str(caught.value)) < 1000
    assert time.process_time() - start < 10


def test_values_beyond_what_python_writes_are_refused() -> None:
    for fill in (10**400, 10**5000):
        declared = json.loads(json.dumps(SCHEMA))
        declared["columns"]["y"]["fill"] = fill
        with pytest.raises(InputError, match="must be one of the levels"):
            Schema.from_dict(declared)
    many = {"type": "categorical", "levels": [f"{n:0200}" for n in range(1000)], "fill": "none"}
    with pytest.raises(InputError) as caught:
        Schema.from_dict({**SCHEMA, "columns": {"c": many}})
    assert len(str(caught.value)) < 1000


def test_a_fit_that_unpacks_to_more_than_it_may_is_not_unpacked(
    tmp_path: Path, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.fit.npz"
    path.write_bytes(seeds.fits[0])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("more.npy", b"\0" * 10_000_000)
    assert path.stat().st_size < 100_000
    load_fit(path)
    monkeypatch.setattr(fit_file, "_LARGEST_FILE", 1_000_000)
    with pytest.raises(FileError, match="larger than a fit can be"):
        load_fit(path)


@pytest.mark.parametrize("name", ["ledger", "entries"])
def test_a_view_in_place_of_a_ledgers_table_is_never_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS number, i, i FROM n"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute(f"CREATE VIEW {name} AS {endless}")
    with pytest.raises(FileError, match="tables were changed"):
        Ledger.open(path)


def test_a_damaged_archive_is_no_bug_of_the_commands(tmp_path: Path, seeds: Seeds) -> None:
    path = tmp_path / "a.npz"
    chance = random.Random(3)
    for _ in range(200):
        content = bytearray(seeds.fits[0])
        for _ in range(5):
            content[chance.randrange(len(content) - 200, len(content))] = chance.randrange(256)
        path.write_bytes(b"PK" + bytes(content[2:]))
        assert kind_of(path) in (None, "a fit")
