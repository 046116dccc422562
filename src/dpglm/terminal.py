"""What the commands share: refusing a wrong file before any work, writing all or nothing, progress, small tables."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpglm.errors import FileError

_TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
_REMEDIES = {
    "a table": "give the CSV or Parquet file",
    "a schema": "give the TOML file; `dpglm init` writes a template",
    "a release": "give a file that `dpglm release` wrote",
    "a fit": "give a file that `dpglm fit` wrote",
    "a ledger": "give the file that `dpglm ledger init` made",
}


def kind_of(path: Path) -> str | None:
    """What a file is, by its name or its first bytes; None where that is not plain to see. A table is not opened."""
    name = path.name.lower()
    if name.endswith(_TABLE_SUFFIXES):
        return "a table"
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
        if head.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                return "a fit" if "facts.npy" in archive.namelist() else None
    except Exception:  # readers of archives fail in many ways on a damaged file
        return None
    if head.startswith(b"SQLite format 3\0"):
        return "a ledger"
    if head.lstrip()[:1] == b"{" and b'"dpglm-release"' in head:
        return "a release"
    if head.lstrip()[:9].lower() == b"<!doctype":
        return "a web page"
    return "a schema" if name.endswith(".toml") else None


def expect(name: str, path: Path, wanted: str) -> None:
    """Refuse a file that is plainly another kind than the one wanted."""
    found = kind_of(path)
    if found is not None and found != wanted:
        raise FileError(name, str(path), f"is {found}, not {wanted}", _REMEDIES[wanted])


def check_output(path: Path, kind: str, force: bool) -> None:
    """Whatever is wrong with the output is said before anything is read or spent.

    ``force`` replaces a file of the same kind, or of none that is known: never a table, say.
    """
    if path.is_dir():
        raise FileError("output", str(path), "is a folder", "name a file in it")
    if path.exists() and not path.is_file():
        raise FileError("output", str(path), "is not an ordinary file", "choose another name")
    if path.exists() and not force:
        raise FileError("output", str(path), "exists already", "choose another name, or say --force")
    found = kind_of(path) if path.exists() else None
    if found not in (None, kind):
        raise FileError("output", str(path), f"is {found}, and --force replaces only {kind}", "choose another name")
    if not path.parent.is_dir():
        raise FileError("output", str(path), "its folder does not exist", "create the folder first")
    if not os.access(path.parent, os.W_OK):
        raise FileError("output", str(path), "its folder cannot be written to", "choose another folder")


def write_new(path: Path, text: str, kind: str, force: bool) -> None:
    """Write a text file: all of it or nothing."""
    from dpglm.release_file import write_atomically

    check_output(path, kind, force)
    write_atomically(path, text.encode())


def write_picture(path: Path, figure: Any) -> None:
    """Write a figure of matplotlib, in the format that the name says: all of it or nothing."""
    from dpglm.release_file import write_atomically

    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=150)
    write_atomically(path, content.getvalue())


@contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """A spinner with the time, on a terminal; nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def counting(what: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of rows or draws with the time left, on a terminal; None elsewhere. It is gone when the work is done."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(what, total=None)  # known at the first call: it depends on the number of passes
        yield lambda done, total: bar.update(task, completed=done, total=total)


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in plain text: the first column to the left, the others to the right.

    >>> print(aligned(("name", "mean"), [("age", "0.05"), ("Intercept", "-6.47")]))
    name        mean
    age         0.05
    Intercept  -6.47
    """
    widths = [max(len(row[position]) for row in (head, *rows)) for position in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if position else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    )
