"""``dpglm studio``: the custodian's steps as a local web page."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from dpglm.cli_options import HeaderArgument
from dpglm.terminal import expect


def studio(
    table: HeaderArgument,
    folder: Annotated[Path, typer.Option(help="Where schema, ledger, release and statement are written.")] = Path(),
    schema: Annotated[Path | None, typer.Option(help="A schema to begin with.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="The dataset's ledger; default: in the folder.")] = None,
    port: Annotated[int, typer.Option(help="0 is any free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """A local web page from a table's header to schema, plan, release and statement; for the custodian.

    Nothing is spent before the last click. The page is served to this machine alone, at an address with a secret in it:
    do not pass it on. Every page says which commands it stands for. Ctrl-C ends it. Needs the extra "studio".

    \b
    Examples:
      dpglm studio patients.csv
      dpglm studio patients.csv --schema patients.toml --folder releases
    """
    from dpglm.studio.serve import first_walk, serve

    expect("table", Path(table), "a table")
    if schema is not None:
        expect("schema", schema, "a schema")
    if ledger is not None and ledger.exists():
        expect("ledger", ledger, "a ledger")

    def announce(address: str) -> None:
        typer.echo(f"the studio is open, for this machine alone (Ctrl-C ends it):\n{address}")
        if browser:
            import webbrowser

            webbrowser.open(address)

    with suppress(KeyboardInterrupt):  # how it is meant to end
        serve(first_walk(table, folder, schema, ledger), port, announce)
    typer.echo("the studio is closed")
