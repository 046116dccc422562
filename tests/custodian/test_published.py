"""A ledger against the releases that were published: rollback, copies, forks, edits and uncounted releases show."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpglm
from dpglm.cli import main
from dpglm.custodian.ledger import Ledger, _digest
from dpglm.errors import FileError
from dpglm.releases import Release

SCHEMA = {
    "dataset": {"name": "patients", "rows": 3, "unit": "one patient"},
    "columns": {
        "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        "age": {"type": "numeric", "lower": 20, "upper": 90},
    },
}
TABLE = pa.table({"sick": ["no", "yes", "no"], "age": [30.0, 60.0, 50.0]})


def release(ledger: Path | None, epsilon: float = 0.5, schema: Any = SCHEMA, method: str = "looks") -> Release:
    return dpglm.release(
        TABLE, "sick ~ age", schema=schema, family="logistic", epsilon=epsilon, delta=1e-6, ledger=ledger,
        method=method,
    )  # fmt: skip


def new_ledger(path: Path, epsilon: float = 5.0) -> Ledger:
    return Ledger.create(path, dpglm.Schema.from_dict(SCHEMA).dataset, epsilon=epsilon, delta=1e-5)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path / "patients.ledger")


def refusal(ledger: Ledger, releases: dict[str, Release]) -> str:
    with pytest.raises(FileError) as caught:
        ledger.verify(against=releases)
    assert str(caught.value).splitlines() == [str(caught.value)]
    return str(caught.value)


def test_a_ledger_accounts_for_its_releases_in_any_order(ledger: Ledger) -> None:
    first, second, third = (
        release(ledger.path, epsilon, method=method)
        for epsilon, method in ((0.3, "looks"), (0.5, "moments"), (0.2, "looks"))
    )
    ledger.verify(against={"b": second, "a": first, "c": third})
    ledger.verify(against={})
    assert len(ledger.entries()) == 7 + 1 + 7  # a survey, a profile and five looks; moments


def test_a_ledger_that_was_put_back_is_found(ledger: Ledger, tmp_path: Path) -> None:
    first = release(ledger.path)
    shutil.copy(ledger.path, tmp_path / "backup")
    second = release(ledger.path)
    shutil.copy(tmp_path / "backup", ledger.path)
    ledger.verify()  # sound by itself: that is why files are needed
    ledger.verify(against={"first": first})
    assert "is entry 14, and this ledger has 7: it was rolled back" in refusal(
        ledger, {"first": first, "second": second}
    )
    third = release(ledger.path)  # and spent from again: another release takes the place
    assert "another release here: it was charged to a copy" in refusal(ledger, {"second": second})
    ledger.verify(against={"third": third})


def test_a_copy_that_was_spent_from_is_found(ledger: Ledger, tmp_path: Path) -> None:
    release(ledger.path)
    shutil.copy(ledger.path, tmp_path / "copy.ledger")
    mine, theirs = release(ledger.path), release(tmp_path / "copy.ledger")
    assert mine.ledger is not None
    assert theirs.ledger is not None
    assert mine.ledger.entry == theirs.ledger.entry
    ledger.verify(against={"mine": mine})
    assert "release = theirs: is entry 14" in refusal(ledger, {"mine": mine, "theirs": theirs})
    assert "charged to a copy" in refusal(Ledger.open(tmp_path / "copy.ledger"), {"mine": mine})


def test_a_second_ledger_of_the_same_dataset_is_found(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = new_ledger(tmp_path / "elsewhere" / "other.ledger")
    made = release(other.path)
    assert "it was rolled back, or is a copy" in refusal(ledger, {"made": made})
    release(ledger.path)
    assert "another release here" in refusal(ledger, {"made": made})


def test_a_release_without_a_ledger_and_one_of_another_dataset_are_named(ledger: Ledger) -> None:
    assert "without a ledger: nothing counts it" in refusal(ledger, {"free": release(None)})
    elsewhere = {**SCHEMA, "dataset": {**SCHEMA["dataset"], "name": "doctors"}}
    assert "is of dataset 'doctors'" in refusal(ledger, {"a": release(None, schema=elsewhere)})


def forge(ledger: Ledger, number: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Edit an entry and make the whole chain right again, as someone would who knows how it is made."""
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        digest = ledger.digest
        for found, text in connection.execute("SELECT number, record FROM entries ORDER BY number").fetchall():
            record = change(json.loads(text)) if found == number else json.loads(text)
            text = json.dumps(record, sort_keys=True, separators=(",", ":"))
            digest = _digest(digest, text)
            connection.execute("UPDATE entries SET record = ?, digest = ? WHERE number = ?", (text, digest, found))
            kept = connection.execute("SELECT text FROM releases WHERE entry = ?", (found,)).fetchone()
            if kept:
                new = _digest(digest, kept[0])
                connection.execute("UPDATE releases SET digest = ? WHERE entry = ?", (new, found))


def test_a_forged_chain_is_found_by_what_was_published(ledger: Ledger) -> None:
    first, second = release(ledger.path), release(ledger.path)
    ledger.verify(against={"first": first, "second": second})
    forge(ledger, 1, lambda record: {**record, "mu_squared_units": record["mu_squared_units"] // 2})
    ledger.verify()  # nothing in the file itself can tell
    assert "cost another amount" in refusal(ledger, {"first": first})
    assert "another amount had been spent by entry 14" in refusal(ledger, {"second": second})


def test_an_edited_file_is_found(ledger: Ledger) -> None:
    made = release(ledger.path)
    block = made.blocks[0]
    values = replace(block, integers=(block.integers[0] + 1, *block.integers[1:]))
    edited = replace(made, stages=(replace(made.stages[0], blocks=(values, *made.blocks[1:])), *made.stages[1:]))
    assert "differs from the release that the ledger keeps" in refusal(ledger, {"made": edited})
    assert made.ledger is not None
    assert "this ledger has it as entry 7" in refusal(
        ledger, {"made": replace(made, ledger=replace(made.ledger, entry=90))}
    )
    assert "cap of epsilon 9" in refusal(ledger, {"made": replace(made, ledger=replace(made.ledger, cap_epsilon=9.0))})


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["ledger", "verify", *arguments])
    printed = capsys.readouterr()
    return caught.value.code, printed.out, printed.err


def test_the_command_takes_what_a_shell_makes_of_a_star(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ledger.path, tmp_path / "backup")
    for name in ("a.json", "b.json", "c.json"):
        release(ledger.path).save(tmp_path / name)
    book, files = str(ledger.path), [str(tmp_path / name) for name in ("a.json", "b.json", "c.json")]
    assert run([book, "--against", *files], capsys) == (0, "the ledger is sound, and accounts for 3 release(s)\n", "")
    code, out, _ = run([book, "--against", files[0], "--against", files[2], "--json"], capsys)
    assert (code, json.loads(out)) == (0, {"sound": True, "releases": 2})
    code, _, error = run([book, *files], capsys)
    assert code == 1
    assert "write --against before them" in error
    code, _, error = run([book, "--against", book], capsys)
    assert code == 1
    assert "is a ledger, not a release" in error
    shutil.copy(tmp_path / "backup", ledger.path)
    code, out, error = run([book, "--against", *files], capsys)
    assert (code, out) == (1, "")
    assert "a.json" in error
    assert "rolled back" in error
    assert error.count("\n") == 1
