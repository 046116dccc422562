"""The custodian's commands: init, check, plan, release. ``cli_ledger`` keeps the account."""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dpglm.cli_options import (
    STOPPED,
    ForceOption,
    HeaderArgument,
    JsonOption,
    LinkOption,
    MethodOption,
    QuietOption,
    SchemaOption,
    TableArgument,
    among,
    fail,
    load_schema,
    say,
)
from dpglm.errors import FileError, InputError, SurveyError
from dpglm.families import FAMILIES
from dpglm.terminal import check_output, counting, expect, working, write_new, write_picture


def init(
    table: HeaderArgument,
    columns: Annotated[
        str | None, typer.Option(help="The columns that are wanted, for example age,bmi,smoker; default: all.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Where to write the template; default: standard output.")] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a schema template from the header alone: a person fills in types, bounds and levels.

    \b
    Examples:
      dpglm init patients.csv
      dpglm init patients.csv --columns age,bmi,smoker,diabetes
      dpglm init patients.csv --output patients.toml
    """
    from dpglm.custodian.files import wanted_names
    from dpglm.schema import template

    path = Path(table)
    expect("table", path, "a table")
    names = wanted_names(path)
    text = template(path.resolve().name.split(".")[0], names if columns is None else _wanted(columns, names))
    if output is None:
        typer.echo(text, nl=False)
        return
    write_new(output, text, "a schema", force)
    say(f"written to {output}; fill in what is blank, then: dpglm check {table} --schema {output}", quiet)


def _wanted(columns: str, names: Sequence[str]) -> list[str]:
    """Some columns of a header, in its order. A name that holds a comma stands in quotes."""
    wanted = [name.strip() for name in next(csv.reader([columns], skipinitialspace=True), [])]
    for name in wanted:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see `dpglm init` without --columns"
            raise InputError("columns", name, "is not in the table's header", hint)
    if not wanted:
        raise InputError("columns", columns, "names no column", "write for example --columns age,bmi")
    return [name for name in names if name in wanted]


def check(
    table: TableArgument,
    schema: SchemaOption,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """For the custodian's eyes only: how many values would be clamped, filled or match no level.

    Ends with exit code 1 where no cell of a column can be read: releasing that would spend the budget on nothing.

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
    if result.matching_nothing:
        rule = "not one of its cells can be read as the schema declares it"
        raise InputError("column", ", ".join(result.matching_nothing), rule, "compare its cells with type and levels")


def plan(
    schema: SchemaOption,
    formula: Annotated[str, typer.Option(help='For example "y ~ a + b".')],
    family: Annotated[str, typer.Option(help="logistic, poisson or linear.", autocompletion=among(*FAMILIES))],
    epsilon: Annotated[list[float] | None, typer.Option(help="May be repeated; default: 0.1, 0.3, 1, 3, 10.")] = None,
    delta: Annotated[float, typer.Option(help="Budget of the release.")] = 1e-6,
    rows: Annotated[
        list[int] | None,
        typer.Option(help="Or people who have several; default: the schema's, a quarter and four times of it."),
    ] = None,
    effect: Annotated[
        float | None,
        typer.Option(
            help="For the power: change of the linear predictor by one standard deviation of a column (default: 0.2);"
            " of moments, over its whole range (default: 1)."
        ),
    ] = None,
    method: MethodOption = "looks",
    outcome: Annotated[
        float | None, typer.Option(help="Share of rows with the outcome (default: 0.3), or mean count (default: 1).")
    ] = None,
    spread: Annotated[
        list[str] | None, typer.Option(help="What you expect of a number, age=15: widths in its unit, too. Repeatable.")
    ] = None,
    share: Annotated[
        list[str] | None, typer.Option(help="Shares of a column's levels, smoker=0.6,0.3,0.1. May be repeated.")
    ] = None,
    overlap: Annotated[
        list[str] | None, typer.Option(help="How much the others tell of a column, age=0.3 (R²). May be repeated.")
    ] = None,
    strength: Annotated[
        float | None, typer.Option(help="Standard deviation of the linear predictor over rows (default: 0.5).")
    ] = None,
    dispersion: Annotated[float | None, typer.Option(help="Variance of counts over their mean (default: 3).")] = None,
    where: Annotated[str | None, typer.Option(help='Which rows count, as for release: "age >= 18".')] = None,
    weights: Annotated[str | None, typer.Option(help="A column of weights, as for release.")] = None,
    complete: Annotated[
        float | None, typer.Option(help="Share of rows that count: have values and meet the condition (default: 1).")
    ] = None,
    design_effect: Annotated[
        float | None,
        typer.Option(help="Of weights: mean square over squared mean; default: as if spread evenly between bounds."),
    ] = None,
    rows_per_unit: Annotated[
        float | None, typer.Option(help="Rows a person on average, where the schema has a unit_column (default: 5).")
    ] = None,
    likeness: Annotated[
        list[str] | None,
        typer.Option(
            help="Correlation of two rows of a person, wage=0.6: of the outcome given predictors (default: 0.5), or of"
            " a predictor (default: 1). May be repeated."
        ),
    ] = None,
    half_width: Annotated[
        float | None,
        typer.Option(help="Also tell the smallest epsilon and number of rows for such an interval."),
    ] = None,
    link: LinkOption = None,
    survey: Annotated[
        Path | None, typer.Option(help="A release of the same dataset, whose survey says where its columns live.")
    ] = None,
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
        --rows 8000 --effect 0.3 --output plan.png
      dpglm plan --schema patients.toml --family logistic \\
        --formula "diabetes ~ age + bmi" --epsilon 1 \\
        --spread age=15 --spread bmi=5 --half-width 0.1
      dpglm plan --schema panel.toml --family linear \\
        --formula "wage ~ age" --complete 0.8 --rows-per-unit 8 --likeness wage=0.6
    """
    import dpglm

    if output is not None:
        if output.suffix not in (".png", ".svg", ".pdf"):
            raise FileError("output", str(output), "must end in .png, .svg or .pdf", "choose another name")
        check_output(output, "a picture", force)
    given = {"epsilon": epsilon, "rows": rows}
    chosen = {name: values for name, values in given.items() if values}
    if survey is not None:
        expect("survey", survey, "a release")
    made = dpglm.plan(
        formula, schema=load_schema(schema), family=family, delta=delta, effect=effect, method=method, outcome=outcome,
        spreads={name: values[0] for name, values in _by_column("spread", spread).items()} or None,
        shares=_by_column("share", share) or None, half_width=half_width,
        overlap={name: values[0] for name, values in _by_column("overlap", overlap).items()} or None,
        strength=strength, dispersion=dispersion, link=link, where=where, weights=weights, complete=complete,
        design_effect=design_effect, rows_per_unit=rows_per_unit,
        likeness={name: values[0] for name, values in _by_column("likeness", likeness).items()} or None,
        survey=None if survey is None else dpglm.load_release(survey), **chosen,
    )  # fmt: skip
    if output is not None:
        write_picture(output, made.plot().figure)
    say(json.dumps(made.to_dict()) if as_json else str(made), quiet and not as_json)


def _by_column(option: str, given: list[str] | None) -> dict[str, list[float]]:
    """Options of the form column=number,number."""
    found = {}
    for each in given or []:
        name, _, values = each.rpartition("=")
        try:
            found[name] = [float(value) for value in values.split(",")]
        except ValueError:
            name = ""
        if not name:
            raise InputError(option, each, "must be column=number", "write for example age=15")
    return found


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
    method: MethodOption = "looks",
    link: LinkOption = None,
    survey: Annotated[
        Path | None, typer.Option(help="An earlier release of this dataset, whose survey is used again for free.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help="""A public condition: "age >= 20 and smoker == 'never'". Other rows do not count."""),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="A numeric column: what each row weighs, as in a survey with sampling weights.")
    ] = None,
    radius: Annotated[float | None, typer.Option(help="Of moments: hold rows in a smaller ball.")] = None,
    allocation: Annotated[
        str, typer.Option(help="Of moments: auto or equal.", autocompletion=among("auto", "equal"))
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
    For a table that Spark reads, add --engine spark. For a second release
    of the same columns, add --survey diabetes.release.json: it costs less.
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
    if survey is not None:
        expect("survey", survey, "a release")
    earlier = None if survey is None else dpglm.load_release(survey)
    try:
        number = declared.dataset.number
        rows = "the" if number is None else f"{number:,}"
        with counting(f"reading {rows} {declared.dataset.counted} of {table}", quiet or as_json) as progress:
            source: Any = table
            if engine == "spark":
                from dpglm.custodian.spark import read_with_spark

                source = read_with_spark(table)
            made = dpglm.release(
                source, formula, schema=declared, family=family, epsilon=epsilon, delta=delta, ledger=ledger,
                method=method, link=link, survey=earlier, radius=radius, allocation=allocation, where=where,
                weights=weights,
                progress=progress,
            )  # fmt: skip
    except SurveyError as error:
        if ledger is None:
            raise
        export = f"dpglm ledger export {ledger} --release-id {error.release.id} --output survey.json"
        fail(f"{error} (it is kept: {export}; then --survey survey.json)", 1)
    except KeyboardInterrupt:
        account = "" if ledger is None else f"; `dpglm ledger show {ledger}` says what was spent, and kept"
        fail(f"stopped: no release was written{account}", STOPPED)
    try:
        made.save(output)
    except FileError as error:
        if ledger is None:
            raise
        again = f"the ledger keeps the release, at no further cost: dpglm ledger export {ledger} --output FILE"
        raise FileError(error.name, error.value, error.rule, again) from None
    facts = {"release_id": made.id, "output": str(output), "statement": made.statement}
    say(json.dumps(facts) if as_json else f"{made.statement}\nwritten to {output}", quiet and not as_json)
