"""The analyst's commands: fit, report."""

from __future__ import annotations

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dpglm.cli_options import ForceOption, JsonOption, ProbOption, QuietOption, among, say
from dpglm.errors import InputError
from dpglm.formats import TABLE_FORMATS
from dpglm.terminal import aligned, check_output, counting, expect


def fit(
    releases: Annotated[list[Path], typer.Argument(help="One release file or several, fitted jointly.")],
    output: Annotated[Path, typer.Option(help="The posterior file to write.")],
    link: Annotated[
        str | None,
        typer.Option(
            help="Of moments: logit, probit; log, softplus.",
            autocompletion=among("logit", "probit", "log", "softplus"),
        ),
    ] = None,
    dispersion: Annotated[
        float | None, typer.Option(help="Counts by moments: 1 is Poisson; default: inferred.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Of moments: nuts or laplace.", autocompletion=among("nuts", "laplace"))
    ] = None,
    draws: Annotated[int | None, typer.Option(help="Draws a chain; default: as many as are needed.")] = None,
    chains: Annotated[int | None, typer.Option(help="Of moments: chains of the sampler; default: 4.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same draws.")] = 0,
    prob: ProbOption = 0.95,
    test: Annotated[
        list[str] | None,
        typer.Option(help="Are these all zero? Terms or coefficients, joined by commas. May be repeated."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Print the table to paste: table (text), markdown, latex, html, csv or json.",
            autocompletion=among(*TABLE_FORMATS),
        ),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn release files into a posterior file, and print its summary, or a table to paste.

    \b
    Examples:
      dpglm fit diabetes.release.json --output diabetes.fit.npz
      dpglm fit north.release.json south.release.json --output both.fit.npz
      dpglm fit diabetes.release.json --output diabetes.fit.npz --format latex
      dpglm fit diabetes.release.json --output diabetes.fit.npz --test smoker,bmi
    """
    import dpglm

    check_output(output, "a fit", force)
    _check_prob(prob)
    if kind is not None and kind not in TABLE_FORMATS:
        raise InputError("format", kind, f"must be one of {', '.join(TABLE_FORMATS)}", "choose one of them")
    if kind is not None and as_json:
        raise InputError("format", kind, "is another form than --json", "give one of them")
    for path in releases:
        expect("release", path, "a release")
    loaded = [dpglm.load_release(path) for path in releases]
    given = {"link": link, "dispersion": dispersion, "method": method, "chains": chains}
    of_moments: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if of_moments and loaded[0].method == "looks":
        name, value = next(iter(of_moments.items()))
        raise InputError(name, value, "belongs to releases by --method moments", f"leave --{name} out")
    with (
        warnings.catch_warnings(),
        counting("fitting", quiet or as_json or kind is not None) as progress,
    ):
        warnings.simplefilter("ignore", dpglm.FitWarning)  # printed below as notes
        fitted = dpglm.fit(loaded, draws=draws, seed=seed, progress=progress or False, **of_moments)
    tests = [fitted.test(_tested(text, fitted)) for text in test or ()]
    fitted.save(output)
    if as_json:
        rows = dict(zip(fitted.names, map(_finite, fitted.summary_rows(prob=prob)), strict=True))
        facts: dict[str, Any] = {
            "summary": rows,
            "notes": list(fitted.warnings),
            "tests": [each.to_dict() for each in tests],
            "output": str(output),
            "likelihood": None,
        }
        if fitted.closed is not None:
            told = fitted.likelihood
            facts["likelihood"] = {
                "names": list(told.names), "precision": told.statement.precision.tolist(),
                "shift": told.statement.shift.tolist(),
            }  # fmt: skip
        typer.echo(json.dumps(facts))
        return
    notes = "".join(f"test: {each}\n" for each in tests) + "".join(f"note: {note}\n" for note in fitted.warnings)
    if kind is not None:  # the table alone, so that it can be piped; notes beside it
        sys.stderr.write(notes)
        typer.echo(fitted.table(prob=prob).formatted(kind).rstrip("\n"))
        return
    say(f"{summary_text(fitted, prob)}\n{notes}written to {output}", quiet)


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
    """The coefficients as a table that fits a terminal; ratios are for round steps, as in the table to paste."""
    from dpglm.analyst.labels import step_text
    from dpglm.analyst.table import fit_records
    from dpglm.formats import percent, plain_number

    ratio, records = fitted.ratio_name, fit_records(fitted, prob=prob)
    draws = None if fitted.normal() is not None else fitted.coefficients[..., 0].size
    head = ["coefficient", "mean", "sd", f"{100 * prob:g} % interval", "P(sign)", "clear"]
    head += [ratio.replace("_", " ")] if ratio else []
    rows = []
    for record, row in zip(records, fitted.summary_rows(prob=prob), strict=True):
        name, step = record["coefficient"], record["per"]
        interval = f"{plain_number(row['lower'])} to {plain_number(row['upper'])}"
        cells = [name, plain_number(row["mean"]), plain_number(row["sd"]), interval]
        cells += [percent(row["p_sign"], draws), "yes" if row["significant"] else "no"]
        per = "" if step == 1 else f" per {step_text(step)}"
        cells += [plain_number(record[ratio], 4) + per if ratio in record else "-"] if ratio else []
        cells += [f"{row['inflation']:.2f} x"]
        cells += [f"{row['ess']:.0f}", f"{row['r_hat']:.3f}"] if "ess" in row else []
        rows.append(cells)
    head += ["privacy", *(["ess", "r_hat"] if fitted.diagnostics is not None else [])]
    return aligned(head, rows)


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """What JSON can hold: no NaN."""
    return {key: value if math.isfinite(value) else None for key, value in row.items()}


def _check_prob(prob: float) -> None:
    """Before the fit, not after it."""
    if not 0 < prob < 1:
        raise InputError("prob", prob, "must lie between 0 and 1", "write for example --prob 0.95")


def _tested(text: str, fitted: Any) -> list[str]:
    """``"smoker,bmi"`` as a list; a name may hold a comma itself."""
    terms = {term.name for term in fitted.releases[0].design.terms}
    return [text] if text in terms or text in fitted.names else [part.strip() for part in text.split(",")]


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
