"""``dpglm statement``: what a review board reads, from a release or a ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpglm.cli_options import ForceOption, JsonOption, QuietOption, open_ledger, say
from dpglm.terminal import check_output, expect, kind_of


def statement(
    source: Annotated[Path, typer.Argument(metavar="RELEASE|LEDGER", help="A release file, or the dataset's ledger.")],
    output: Annotated[Path, typer.Option(help="The HTML page to write; the record beside it ends in .json.")],
    curator: Annotated[str | None, typer.Option(help="Who publishes.")] = None,
    use: Annotated[str | None, typer.Option(help="What the results are meant for.")] = None,
    region: Annotated[str | None, typer.Option(help="Which region the data describe.")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """One page for a review board or a data protection officer: what was promised, spent, and is not protected.

    Beside it a record with the same facts in the fields of the OpenDP deployments registry.

    \b
    Examples:
      dpglm statement diabetes.release.json --output statement.html
      dpglm statement patients.ledger --output statement.html \\
        --curator "St. Mary's" --use "Care research" --region "Wales"
    """
    import dpglm

    check_output(output, "a web page", force)
    check_output(output.with_suffix(".json"), "a record", force)
    if kind_of(source) == "a ledger":
        facts: Any = open_ledger(source)
    else:
        expect("source", source, "a release")
        facts = dpglm.load_release(source)
    page, record = dpglm.review_statement(
        facts, output, curator=curator, use=use, region=region, overwrite=force
    )  # fmt: skip
    written = {"output": str(page), "record": str(record)}
    say(json.dumps(written) if as_json else f"written to {page} and {record}", quiet and not as_json)
