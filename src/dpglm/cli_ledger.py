"""``dpglm ledger``: the privacy budget from a terminal."""

from __future__ import annotations

import json
import math
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from dpglm.cli_options import (
    ForceOption,
    JsonOption,
    LedgerArgument,
    QuietOption,
    SchemaOption,
    load_schema,
    open_ledger,
    say,
)
from dpglm.errors import InputError
from dpglm.terminal import check_output, expect, write_new

ledger_app = typer.Typer(help="The privacy budget of one dataset: init, show, verify, export.", rich_markup_mode="rich")


@ledger_app.command("init")
def ledger_init(
    path: LedgerArgument,
    schema: SchemaOption,
    epsilon: Annotated[float, typer.Option(help="Cap of all releases together.")],
    delta: Annotated[float, typer.Option(help="Cap of all releases together.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Create the ledger of a dataset with a total budget.

    \b
    Example:
      dpglm ledger init patients.ledger --schema patients.toml --epsilon 3 --delta 1e-6
    """
    import dpglm

    summary = dpglm.Ledger.create(path, load_schema(schema).dataset, epsilon=epsilon, delta=delta).summary()
    say(json.dumps(summary.to_dict()) if as_json else str(summary), quiet and not as_json)


@ledger_app.command("show")
def ledger_show(path: LedgerArgument, as_json: JsonOption = False) -> None:
    """Show the cap, what is spent and every release; the single entries with --json.

    \b
    Examples:
      dpglm ledger show patients.ledger
      dpglm ledger show patients.ledger --json
    """
    ledger = open_ledger(path)
    entries = ledger.entries()
    if as_json:
        listed = [
            {"number": entry.number, "time": entry.time, "release_id": entry.release_id, "kept": entry.has_release,
             "mu": entry.mu, **entry.description} for entry in entries
        ]  # fmt: skip
        typer.echo(json.dumps({**ledger.summary().to_dict(), "entries": listed}))
        return
    typer.echo(str(ledger.summary()))
    for identity, group in groupby(entries, key=lambda entry: entry.release_id):
        own = list(group)
        numbers = f"{own[0].number}" if len(own) == 1 else f"{own[0].number}-{own[-1].number}"
        kept = "kept" if own[-1].has_release else "not finished"
        facts = {key: value for key, value in own[0].description.items() if key != "part"}
        what = ", ".join(
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in facts.items()
        )
        parts = ", ".join(str(entry.description["part"]) for entry in own if "part" in entry.description)
        mu = math.hypot(*(entry.mu for entry in own))
        when = own[0].time[:16].replace("T", " ")
        typer.echo(f"{numbers:>6}  {when}  {identity}  {kept}  costs mu {mu:.4g}  {what} ({parts})")


@ledger_app.command("verify")
def ledger_verify(
    path: LedgerArgument,
    more: Annotated[list[Path] | None, typer.Argument(help="Further release files, after --against.")] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Published release files: each must be charged in this ledger as it states."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check the file, the chain of digests, the kept releases and the cap.

    With --against, also whether the ledger was rolled back, or a copy of it spent from.

    \b
    Examples:
      dpglm ledger verify patients.ledger
      dpglm ledger verify patients.ledger --against *.release.json
    """
    import dpglm

    if more and not against:
        raise InputError("against", str(more[0]), "release files follow --against", "write --against before them")
    ledger, releases = open_ledger(path), [*(against or ()), *(more or ())]
    for file in releases:
        expect("release", file, "a release")
    ledger.verify(against={str(file): dpglm.load_release(file) for file in releases})
    facts: dict[str, object] = {"sound": True} | ({"releases": len(releases)} if releases else {})
    words = "the ledger is sound" + (f", and accounts for {len(releases)} release(s)" if releases else "")
    say(json.dumps(facts) if as_json else words, quiet and not as_json)


@ledger_app.command("export")
def ledger_export(
    path: LedgerArgument,
    output: Annotated[Path, typer.Option(help="The release file to write.")],
    release_id: Annotated[str | None, typer.Option(help="Default: the latest release that is kept.")] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a kept release to a file again: a lost file costs nothing.

    \b
    Example:
      dpglm ledger export patients.ledger --output diabetes.release.json
    """
    check_output(output, "a release", force)
    write_new(output, open_ledger(path).export(release_id), "a release", force)
    say(f"written to {output}", quiet)
