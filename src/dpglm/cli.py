"""The command line: each command does what the Python function of its name does.

Exit codes: 0 done; 1 a mistake in what the user gave, said in one line on standard error; 2 a command that does not
exist or lacks an argument, said in one line as well.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dpglm.errors import DpglmError, FileError, InputError

app = typer.Typer(
    help="Honest regression coefficients from private tables.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ledger_app = typer.Typer(help="The privacy budget of one dataset: init, show, verify, export.", rich_markup_mode=None)
app.add_typer(ledger_app, name="ledger")

SchemaOption = Annotated[Path, typer.Option("--schema", help="The schema file (TOML).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
LedgerArgument = Annotated[Path, typer.Argument(help="The ledger file.")]


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Argument(help="Where to write; default: a new temporary folder.")] = None,
) -> None:
    """The whole story on a simulated table: schema, ledger, release, fit.

    Example: dpglm demo
    """
    import tempfile

    from dpglm.demo import run

    run(folder or Path(tempfile.mkdtemp(prefix="dpglm-demo-")))


@app.command()
def init(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file; only its header is read.")],
    output: Annotated[Path | None, typer.Option(help="Where to write the template; default: standard output.")] = None,
    force: ForceOption = False,
) -> None:
    """Write a schema template from the header alone: a person fills in types, bounds and levels.

    Example: dpglm init patients.csv --output patients.toml
    """
    from dpglm.custodian.tables import column_names
    from dpglm.schema import template

    text = template(table.name.split(".")[0], column_names(table))
    if output is None:
        typer.echo(text, nl=False)
    else:
        _write(output, text, force)


@app.command()
def check(
    table: Annotated[str, typer.Argument(help="CSV or Parquet file, or a folder of them.")],
    schema: SchemaOption,
    as_json: JsonOption = False,
) -> None:
    """For the custodian's eyes only: how many values would be clamped, filled or match no level.

    Example: dpglm check patients.csv --schema patients.toml
    """
    import dpglm

    result = dpglm.check(table, dpglm.Schema.load(schema))
    typer.echo(json.dumps(result.to_dict()) if as_json else str(result))


@app.command()
def release(
    table: Annotated[str, typer.Argument(help="CSV or Parquet file, or a folder of them.")],
    schema: SchemaOption,
    formula: Annotated[str, typer.Option(help='For example "y ~ a + b".')],
    family: Annotated[str, typer.Option(help="logistic, poisson or linear.")],
    epsilon: Annotated[float, typer.Option(help="Budget of this release.")],
    delta: Annotated[float, typer.Option(help="Budget of this release.")],
    output: Annotated[Path, typer.Option(help="The release file to write.")],
    ledger: Annotated[Path | None, typer.Option(help="The dataset's ledger.")] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Keep no account; stated in the file.")] = False,
    radius: Annotated[float | None, typer.Option(help="Hold rows in a smaller ball.")] = None,
    allocation: Annotated[str, typer.Option(help="auto or equal.")] = "auto",
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a table into one noisy, self-describing release file, and print what it promises.

    Example: dpglm release patients.csv --schema patients.toml --formula "diabetes ~ age + bmi" --family logistic
    --epsilon 1 --delta 1e-6 --ledger patients.ledger --output diabetes.release.json
    """
    import dpglm

    if (ledger is None) != no_ledger:
        rule = "give either --ledger or --no-ledger"
        raise InputError("ledger", ledger, rule, "create one with `dpglm ledger init`, or say --no-ledger")
    _check_output(output, force)
    made = dpglm.release(
        table, formula, schema=dpglm.Schema.load(schema), family=family, epsilon=epsilon, delta=delta, ledger=ledger,
        radius=radius, allocation=allocation,
    )  # fmt: skip
    made.save(output)
    facts = {"release_id": made.id, "output": str(output), "statement": made.statement}
    typer.echo(json.dumps(facts) if as_json else f"{made.statement}\nwritten to {output}")


@app.command()
def fit(
    releases: Annotated[list[Path], typer.Argument(help="One release file or several, fitted jointly.")],
    output: Annotated[Path, typer.Option(help="The posterior file to write.")],
    link: Annotated[str | None, typer.Option(help="logit, probit; log, softplus.")] = None,
    dispersion: Annotated[float | None, typer.Option(help="Counts: 1 is Poisson; default: inferred.")] = None,
    method: Annotated[str, typer.Option(help="nuts or laplace.")] = "nuts",
    draws: Annotated[int | None, typer.Option(help="Draws a chain; default: as many as are needed.")] = None,
    chains: Annotated[int, typer.Option()] = 4,
    seed: Annotated[int, typer.Option()] = 0,
    prob: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn release files into a posterior file, and print its summary.

    Example: dpglm fit diabetes.release.json --output diabetes.fit.npz
    """
    import dpglm

    loaded = [dpglm.load_release(path) for path in releases]
    _check_output(output, force)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)  # printed below as notes
        fitted = dpglm.fit(
            loaded, link=link, dispersion=dispersion, method=method, draws=draws, chains=chains, seed=seed
        )
    fitted.save(output)
    summary = fitted.summary(prob=prob)
    if as_json:
        facts = {"summary": json.loads(summary.to_json(orient="index")), "notes": list(fitted.warnings)}
        typer.echo(json.dumps(facts))
        return
    typer.echo(summary.round(4).to_string())
    for note in fitted.warnings:
        typer.echo(f"note: {note}")
    typer.echo(f"written to {output}")


@ledger_app.command("init")
def ledger_init(
    path: LedgerArgument,
    schema: SchemaOption,
    epsilon: Annotated[float, typer.Option(help="Cap of all releases together.")],
    delta: Annotated[float, typer.Option(help="Cap of all releases together.")],
) -> None:
    """Create the ledger of a dataset with a total budget.

    Example: dpglm ledger init patients.ledger --schema patients.toml --epsilon 3 --delta 1e-6
    """
    import dpglm

    created = dpglm.Ledger.create(path, dpglm.Schema.load(schema).dataset, epsilon=epsilon, delta=delta)
    typer.echo(str(created.summary()))


@ledger_app.command("show")
def ledger_show(path: LedgerArgument, as_json: JsonOption = False) -> None:
    """Show the cap, what is spent and every entry.

    Example: dpglm ledger show patients.ledger
    """
    import dpglm

    ledger = dpglm.Ledger.open(path)
    entries = ledger.entries()
    if as_json:
        listed = [{"number": e.number, "time": e.time, "release_id": e.release_id, **e.description} for e in entries]
        typer.echo(json.dumps({**ledger.summary().to_dict(), "entries": listed}))
        return
    typer.echo(str(ledger.summary()))
    for entry in entries:
        kept = "kept" if entry.has_release else "not finished"
        what = ", ".join(f"{key} {value}" for key, value in entry.description.items())
        typer.echo(f"{entry.number:>4}  {entry.time}  {entry.release_id}  {kept}  {what}")


@ledger_app.command("verify")
def ledger_verify(path: LedgerArgument) -> None:
    """Check the file, the chain of digests, the kept releases and the cap.

    Example: dpglm ledger verify patients.ledger
    """
    import dpglm

    dpglm.Ledger.open(path).verify()
    typer.echo("the ledger is sound")


@ledger_app.command("export")
def ledger_export(
    path: LedgerArgument,
    output: Annotated[Path, typer.Option(help="The release file to write.")],
    release_id: Annotated[str | None, typer.Option(help="Default: the latest release that is kept.")] = None,
    force: ForceOption = False,
) -> None:
    """Write a kept release to a file again: a lost file costs nothing.

    Example: dpglm ledger export patients.ledger --output diabetes.release.json
    """
    import dpglm

    _write(output, dpglm.Ledger.open(path).export(release_id), force)
    typer.echo(f"written to {output}")


def _write(path: Path, text: str, force: bool) -> None:
    from dpglm.release_file import write_atomically

    _check_output(path, force)
    write_atomically(path, text.encode())


def _check_output(path: Path, force: bool) -> None:
    """Whatever is wrong with the output is said before anything is read or spent."""
    if path.exists() and not force:
        raise FileError("output", str(path), "exists already", "choose another name, or say --force")
    if not path.parent.is_dir():
        raise FileError("output", str(path), "its folder does not exist", "create the folder first")


def main(arguments: list[str] | None = None) -> None:
    """The program: one line on standard error and a non-zero exit for every mistake."""
    try:
        given = sys.argv[1:] if arguments is None else arguments
        code: Any = app(args=given or ["--help"], prog_name="dpglm", standalone_mode=False)
    except DpglmError as error:
        _fail(str(error), 1)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "dpglm"
        _fail(f"{where}: {error.format_message()} (see {where} --help)".replace("\n", " "), 2)
    except (typer.Abort, KeyboardInterrupt):
        _fail("stopped", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(message + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
