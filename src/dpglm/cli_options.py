"""Options and arguments that several commands take, and what they do with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from dpglm.terminal import expect

STOPPED = 130  # exit code of Ctrl-C


def among(*values: str) -> Callable[[str], list[str]]:
    """Completion of an option that has few values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def _not_empty(table: str) -> str:
    """Before anything else is done with it, whichever engine reads it."""
    from dpglm.custodian.files import not_empty

    return not_empty(table)


TableArgument = Annotated[str, typer.Argument(help="CSV or Parquet file, or a folder of them.", callback=_not_empty)]
HeaderArgument = Annotated[
    str, typer.Argument(help="CSV or Parquet file; only its header is read.", callback=_not_empty)
]
LedgerArgument = Annotated[Path, typer.Argument(help="The ledger file.")]
SchemaOption = Annotated[Path, typer.Option("--schema", help="The schema file (TOML).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and JSON, if asked).")]
MethodOption = Annotated[
    str,
    typer.Option(
        help="looks, or moments for the paper's single release of moments.", autocompletion=among("looks", "moments")
    ),
]
LinkOption = Annotated[
    str | None,
    typer.Option(
        help="Of two levels, by looks: logit (default), probit or cloglog.",
        autocompletion=among("logit", "probit", "cloglog"),
    ),
]
ProbOption = Annotated[float, typer.Option(help="Probability of the intervals.")]


def load_schema(path: Path) -> Any:
    """The schema in a file, after a look at what kind of file it is."""
    import dpglm

    expect("schema", path, "a schema")
    return dpglm.Schema.load(path)


def open_ledger(path: Path) -> Any:
    """The ledger in a file, after a look at what kind of file it is."""
    import dpglm

    expect("ledger", path, "a ledger")
    return dpglm.Ledger.open(path)


def say(text: str, quiet: bool) -> None:
    """Print a result, unless nothing but errors is wanted."""
    if not quiet:
        typer.echo(text)


def fail(message: str, code: int) -> NoReturn:
    """End the command with one line on standard error."""
    sys.stderr.write(" ".join(message.split("\n")) + "\n")
    sys.exit(code)
