"""The command line: each command does what the Python function of its name does.

Results go to standard output, errors and progress to standard error. The help texts are the reference.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from dpglm.cli_ledger import ledger_app
from dpglm.cli_options import (
    ForceOption,
    HeaderArgument,
    JsonOption,
    ProbOption,
    QuietOption,
    SchemaOption,
    TableArgument,
    among,
    load_schema,
    say,
)
from dpglm.errors import DpglmError, FileError, InputError
from dpglm.families import FAMILIES
from dpglm.terminal import aligned, check_output, counting, expect, working, write_new, write_picture

HELP = """Honest regression coefficients from private tables.

A custodian turns a table into one noisy release file; an analyst turns the file into a posterior and a report.

\b
dpglm demo                                      see it all on simulated rows
dpglm init, check, plan, ledger init, release   for the custodian, who has the table
dpglm fit, report                               for the analyst, who has a release

\b
Exit codes:
  0    done
  1    a mistake in what was given, or a file that cannot be read or written
  2    no such command or option, or one is missing
  3    a bug of dpglm; DPGLM_TRACEBACK=1 shows where (it may quote the table)
  130  stopped by Ctrl-C; no output file is left half-written
With 1, 2, 3 and 130 comes one line on standard error that says what to do.
"""

STOPPED = 130
app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", no_args_is_help=False)
app.add_typer(ledger_app, name="ledger")


def _print_version(wanted: bool) -> None:
    if wanted:
        import dpglm

        typer.echo(f"dpglm {dpglm.__version__}")
        raise typer.Exit


@app.callback(help=HELP)
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Argument(help="Where to write; default: a new temporary folder.")] = None,
    quiet: QuietOption = False,
) -> None:
    """The whole story on a simulated table: schema, ledger, release, fit, report.

    \b
    Examples:
      dpglm demo
      dpglm demo my-first-release
    """
    import tempfile

    from dpglm.demo import run

    run(folder or Path(tempfile.mkdtemp(prefix="dpglm-demo-")), quiet=quiet)


@app.command()
def init(
    table: HeaderArgument,
    output: Annotated[Path | None, typer.Option(help="Where to write the template; default: standard output.")] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a schema template from the header alone: a person fills in types, bounds and levels.

    \b
    Examples:
      dpglm init patients.csv
      dpglm init patients.csv --output patients.toml
    """
    from dpglm.custodian.files import column_names
    from dpglm.schema import template

    path = Path(table)
    expect("table", path, "a table")
    text = template(path.resolve().name.split(".")[0], column_names(path))
    if output is None:
        typer.echo(text, nl=False)
        return
    write_new(output, text, "a schema", force)
    say(f"written to {output}; fill in what is blank, then: dpglm check {table} --schema {output}", quiet)


@app.command()
def check(
    table: TableArgument,
    schema: SchemaOption,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """For the custodian's eyes only: how many values would be clamped, filled or match no level.

    \b
    Examples:
      dpglm check patients.csv --schema patients.toml
      dpglm check patients.csv --schema patients.toml --json
    """
    import dpglm

    expect("table", Path(table), "a table")
    declared = load_schema(schema)
    with working(f"reading {table}", quiet):
        result = dpglm.check(table, declared)
    say(json.dumps(result.to_dict()) if as_json else str(result), quiet and not as_json)


@app.command()
def plan(
    schema: SchemaOption,
    formula: Annotated[str, typer.Option(help='For example "y ~ a + b".')],
    family: Annotated[str, typer.Option(help="logistic, poisson or linear.", autocompletion=among(*FAMILIES))],
    epsilon: Annotated[list[float] | None, typer.Option(help="May be repeated; default: 0.1, 0.3, 1, 3, 10.")] = None,
    delta: Annotated[float, typer.Option(help="Budget of the release.")] = 1e-6,
    rows: Annotated[
        list[int] | None, typer.Option(help="May be repeated; default: the schema's, a quarter and four times of it.")
    ] = None,
    effect: Annotated[
        float, typer.Option(help="For the power: change of the linear predictor over a column's whole range.")
    ] = 1.0,
    output: Annotated[Path | None, typer.Option(help="A picture to write: .png, .svg or .pdf.")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What a budget buys, before it is spent: expected intervals and power by epsilon and rows. Reads no table.

    \b
    Examples:
      dpglm plan --schema patients.toml --family logistic \\
        --formula "diabetes ~ age + bmi"
      dpglm plan --schema patients.toml --family logistic \\
        --formula "diabetes ~ age + bmi" --epsilon 0.5 --epsilon 1 \\
        --rows 8000 --effect 2 --output plan.png
    """
    import dpglm

    if output is not None:
        if output.suffix not in (".png", ".svg", ".pdf"):
            raise FileError("output", str(output), "must end in .png, .svg or .pdf", "choose another name")
        check_output(output, "a picture", force)
    given = {"epsilon": epsilon, "rows": rows}
    chosen = {name: values for name, values in given.items() if values}
    made = dpglm.plan(formula, schema=load_schema(schema), family=family, delta=delta, effect=effect, **chosen)
    if output is not None:
        write_picture(output, made.plot().figure)
    say(json.dumps(made.to_dict()) if as_json else str(made), quiet and not as_json)


@app.command()
def release(
    table: TableArgument,
    schema: SchemaOption,
    formula: Annotated[str, typer.Option(help='For example "y ~ a + b".')],
    family: Annotated[str, typer.Option(help="logistic, poisson or linear.", autocompletion=among(*FAMILIES))],
    epsilon: Annotated[float, typer.Option(help="Budget of this release.")],
    delta: Annotated[float, typer.Option(help="Budget of this release.")],
    output: Annotated[Path, typer.Option(help="The release file to write.")],
    ledger: Annotated[Path | None, typer.Option(help="The dataset's ledger.")] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Keep no account; stated in the file.")] = False,
    radius: Annotated[float | None, typer.Option(help="Hold rows in a smaller ball.")] = None,
    allocation: Annotated[str, typer.Option(help="auto or equal.", autocompletion=among("auto", "equal"))] = "auto",
    stages: Annotated[
        str,
        typer.Option(help="Looks that share the budget: 1, 2, 3 or auto.", autocompletion=among("auto", "1", "2", "3")),
    ] = "auto",
    engine: Annotated[
        str, typer.Option(help="local, or spark for a table that Spark reads.", autocompletion=among("local", "spark"))
    ] = "local",
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn a table into one noisy, self-describing release file, and print what it promises.

    \b
    Example:
      dpglm release patients.csv --schema patients.toml \\
        --formula "diabetes ~ age + bmi" --family logistic \\
        --epsilon 1 --delta 1e-6 --ledger patients.ledger \\
        --output diabetes.release.json
    For a table that Spark reads, add --engine spark.
    """
    import dpglm
    from dpglm.custodian.ledger import COMPANIONS

    if (ledger is None) != no_ledger:
        rule = "give either --ledger or --no-ledger"
        raise InputError(
            "ledger", ledger and str(ledger), rule, "create one with `dpglm ledger init`, or say --no-ledger"
        )
    check_output(output, "a release", force)
    if ledger is not None and output.absolute() in {Path(f"{ledger.absolute()}{end}") for end in ("", *COMPANIONS)}:
        raise FileError("output", str(output), "is a file of the ledger", "choose another name")
    expect("table", Path(table), "a table")
    if engine not in ("local", "spark"):
        raise InputError("engine", engine, "must be local or spark", "correct it")
    if ledger is not None:
        expect("ledger", ledger, "a ledger")
    declared = load_schema(schema)
    try:
        with counting(f"reading {declared.dataset.rows:,} rows of {table}", quiet or as_json) as progress:
            source: Any = table
            if engine == "spark":
                from dpglm.custodian.spark import read_with_spark

                source = read_with_spark(table)
            made = dpglm.release(
                source, formula, schema=declared, family=family, epsilon=epsilon, delta=delta, ledger=ledger,
                radius=radius, allocation=allocation, stages=int(stages) if stages in ("1", "2", "3") else stages,
                progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        account = "" if ledger is None else f"; `dpglm ledger show {ledger}` says whether its budget was spent"
        _fail(f"stopped: no release was written{account}", STOPPED)
    try:
        made.save(output)
    except FileError as error:
        if ledger is None:
            raise
        again = f"the ledger keeps the release, at no further cost: dpglm ledger export {ledger} --output FILE"
        raise FileError(error.name, error.value, error.rule, again) from None
    facts = {"release_id": made.id, "output": str(output), "statement": made.statement}
    say(json.dumps(facts) if as_json else f"{made.statement}\nwritten to {output}", quiet and not as_json)


@app.command()
def fit(
    releases: Annotated[list[Path], typer.Argument(help="One release file or several, fitted jointly.")],
    output: Annotated[Path, typer.Option(help="The posterior file to write.")],
    link: Annotated[
        str | None,
        typer.Option(help="logit, probit; log, softplus.", autocompletion=among("logit", "probit", "log", "softplus")),
    ] = None,
    dispersion: Annotated[float | None, typer.Option(help="Counts: 1 is Poisson; default: inferred.")] = None,
    method: Annotated[str, typer.Option(help="nuts or laplace.", autocompletion=among("nuts", "laplace"))] = "nuts",
    draws: Annotated[int | None, typer.Option(help="Draws a chain; default: as many as are needed.")] = None,
    chains: Annotated[int, typer.Option(help="Chains of the sampler.")] = 4,
    seed: Annotated[int, typer.Option(help="The same seed gives the same draws.")] = 0,
    prob: ProbOption = 0.95,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn release files into a posterior file, and print its summary.

    \b
    Examples:
      dpglm fit diabetes.release.json --output diabetes.fit.npz
      dpglm fit north.release.json south.release.json --output both.fit.npz
    """
    import dpglm

    check_output(output, "a fit", force)
    _check_prob(prob)
    for path in releases:
        expect("release", path, "a release")
    loaded = [dpglm.load_release(path) for path in releases]
    with (
        warnings.catch_warnings(),
        counting("fitting", quiet or as_json) as progress,
    ):
        warnings.simplefilter("ignore", dpglm.FitWarning)  # printed below as notes
        fitted = dpglm.fit(
            loaded, link=link, dispersion=dispersion, method=method, draws=draws, chains=chains, seed=seed,
            progress=progress or False,
        )  # fmt: skip
    fitted.save(output)
    if as_json:
        rows = json.loads(fitted.summary(prob=prob).to_json(orient="index"))
        typer.echo(json.dumps({"summary": rows, "notes": list(fitted.warnings), "output": str(output)}))
        return
    notes = "".join(f"note: {note}\n" for note in fitted.warnings)
    say(f"{summary_text(fitted, prob)}\n{notes}written to {output}", quiet)


@app.command()
def report(
    fit: Annotated[Path, typer.Argument(help="A posterior file that `dpglm fit` wrote.")],
    output: Annotated[Path, typer.Option(help="The HTML file to write.")],
    prob: ProbOption = 0.95,
    at: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=VALUE: where it stands while another predictor moves. May be repeated."),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn a posterior file into one self-contained HTML page: plots, tables, a methods paragraph.

    \b
    Examples:
      dpglm report diabetes.fit.npz --output diabetes.html
      dpglm report diabetes.fit.npz --output at-40.html --at age=40
    """
    import dpglm

    check_output(output, "a web page", force)
    _check_prob(prob)
    expect("fit", fit, "a fit")
    fitted = dpglm.load_fit(fit)
    written = dpglm.report(fitted, output, prob=prob, at=_points(at, fitted), overwrite=force)
    size = written.stat().st_size
    facts = {"output": str(output), "bytes": size}
    say(json.dumps(facts) if as_json else f"written to {output} ({size / 1000:.0f} kB)", quiet and not as_json)


def summary_text(fitted: Any, prob: float) -> str:
    """The coefficients as a table that fits a terminal."""
    from dpglm.report.words import percent, plain_number

    ratio = fitted.ratio_name
    draws = fitted.coefficients[..., 0].size
    head = ["coefficient", "mean", "sd", f"{100 * prob:g} % interval", "P(sign)", "clear"]
    head += [ratio.replace("_", " ")] if ratio else []
    rows = []
    for name, row in zip(fitted.names, fitted.summary_rows(prob=prob), strict=True):
        interval = f"{plain_number(row['lower'])} to {plain_number(row['upper'])}"
        cells = [name, plain_number(row["mean"]), plain_number(row["sd"]), interval]
        cells += [percent(row["p_sign"], draws), "yes" if row["significant"] else "no"]
        cells += [plain_number(row[ratio], 4)] if ratio else []
        rows.append([*cells, f"{row['inflation']:.2f} x", f"{row['ess']:.0f}", f"{row['r_hat']:.3f}"])
    return aligned([*head, "privacy", "ess", "r_hat"], rows)


def _check_prob(prob: float) -> None:
    """Before the sampling, not after it."""
    if not 0 < prob < 1:
        raise InputError("prob", prob, "must lie between 0 and 1", "write for example --prob 0.95")


def _points(given: list[str] | None, fitted: Any) -> dict[str, str]:
    """``["age=40"]`` as a dict. Where names or levels hold a = themselves, the name is that of a column."""
    columns = {column.name for column in fitted.releases[0].design.table_columns}
    points = {}
    for text in given or ():
        parts = text.split("=")
        names = ["=".join(parts[:count]) for count in range(1, len(parts))]
        name = next((name for name in names if name in columns), parts[0])
        value = text[len(name) + 1 :]
        if not (name and value):
            raise InputError("at", text, "must be COLUMN=VALUE", "write for example --at age=40")
        points[name] = value
    return points


def main(arguments: list[str] | None = None) -> None:
    """A command: one line on standard error and a non-zero exit for every mistake."""
    warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"
    if sys.stdout is None:  # closed by the shell: there is nobody to tell
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        given = sys.argv[1:] if arguments is None else arguments
        code: Any = app(args=given or ["--help"], prog_name="dpglm", standalone_mode=False)
        sys.stdout.flush()
        if code == STOPPED:  # typer turns Ctrl-C into this code
            raise KeyboardInterrupt
    except DpglmError as error:
        _fail(str(error), 1)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "dpglm"
        _fail(f"{where}: {error.format_message()} (see {where} --help)", 2)
    except (typer.Abort, KeyboardInterrupt):
        _fail("stopped: no output file was written", STOPPED)
    except OSError as error:  # a full or closed standard output, mostly: dpglm's own files raise its own errors
        _close_output()
        name, value = ("output", "standard output") if error.filename is None else ("file", str(error.filename))
        _fail(str(FileError(name, value, f"cannot be used ({error.strerror})", "make room, or choose another")), 1)
    except Exception as error:
        if os.environ.get("DPGLM_TRACEBACK"):
            raise
        _fail(f"a bug of dpglm ({type(error).__name__}): set DPGLM_TRACEBACK=1 to see where, and report it", 3)
    sys.exit(code if isinstance(code, int) else 0)


def _close_output() -> None:
    """Point standard output elsewhere, so that Python does not complain again while it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(" ".join(message.split("\n")) + "\n")
    sys.exit(code)
