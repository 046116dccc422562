"""Tables that are hard for looks, and ordinary ones beside them: are intervals right, and if not, does a fit say so?

    python benchmarks/hard_cases.py

The tables are in hard_tables.py. Noise comes from a seeded generator. Where the survey stops a release, it goes on with
that survey. Writes benchmarks/results/hard_cases.json and docs/hard_cases.md.
"""

from __future__ import annotations

import argparse
import re
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.errors import SurveyError
from hard_tables import CASES, KINDS, LARGE, ORDINARY, OUTCOMES, error_without_privacy, with_outcome
from machine import commit, machine, save
from seeded_noise import SeededNoise

DOCS = Path(__file__).parent.parent / "docs"
SEED, DELTA, REPETITIONS = 20261120, 1e-6, 50
FEWER = 0.4  # of the repetitions, where tables are large
ENOUGH, NEARLY_ALL = 0.9, 0.9  # of 95 % intervals that cover; of releases that stop or warn
HALF_WIDTH, MOST_Z = 1.959963984540054, 10.0
NO_ERROR = 20.0  # from here on there is no standard error without privacy to compare with


def about(message: str, names: list[str]) -> list[bool]:
    """Which coefficients a warning is about: all, where it names none."""
    words = set(re.findall(r"\w+", message))
    parts = [name.rstrip("]").split("[") for name in names]
    levels = {column: {part[-1] for part in parts if part[0] == column} for column, *_ in parts}
    named = [part[-1] in words or (part[0] in words and not levels[part[0]] & words) for part in parts]
    return named if any(named) else [True] * len(names)


def run_sample(place: int, rows: int, repetition: int) -> list[dict[str, Any]]:
    """One table and its releases; the last number of each array is the sum's, where there is one."""
    case, key = CASES[place], [SEED, place, rows, repetition]
    rng = np.random.default_rng(key)
    drawn = case.draw(rng, rows)
    frame = with_outcome(drawn, case.family, rng)
    names = list(drawn.truth)
    sums = np.eye(len(names))
    if case.summed:
        sums = np.vstack([sums, [float(name in case.own) for name in names]])
    error = error_without_privacy(drawn, case.family, sums)
    error[error > NO_ERROR] = np.nan
    truth = sums @ list(drawn.truth.values())
    truth[[n for n, name in enumerate(names) if case.unknown is None or name in case.unknown]] = np.nan
    schema = {"dataset": {"name": "simulated", "rows": rows, "unit": "one row"}}
    schema["columns"] = drawn.columns | {"y": OUTCOMES[case.family]}
    formula, results = f"y ~ {' + '.join(drawn.columns)}", []
    for epsilon in case.epsilons:
        noise = SeededNoise(np.random.default_rng([*key, int(1000 * epsilon)]))
        stopped = False
        try:
            made = build_release(frame, Request(formula, schema, case.family, epsilon, DELTA), noise)
        except SurveyError as stop:
            stopped = True
            request = Request(formula, schema, case.family, epsilon, DELTA, survey=stop.release)
            made = build_release(frame, request, noise)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = dpglm.fit(made, seed=1)
        assert list(fit.names) == names
        matrix, shift = made.design.to_original_units()
        mean = sums @ (matrix @ fit.closed.posterior.mean + shift)
        stddev = np.sqrt(np.diag(sums @ matrix @ fit.closed.posterior.covariance @ matrix.T @ sums.T))
        told = np.array([about(message, names) for message in fit.warnings] + [[False] * len(names)]).any(axis=0)
        kinds = {next((k for k in KINDS if k in m), " ".join(m.split()[:6])) for m in fit.warnings}
        results.append(
            {
                "case": place, "rows": rows, "epsilon": epsilon, "names": names, "z": (mean - truth) / stddev,
                "width": stddev / error, "mean": mean, "sd": stddev, "stopped": stopped,
                "told": (sums > 0) @ told > 0, "kinds": sorted(kinds | {list(KINDS)[-1]} if stopped else kinds),
            }
        )  # fmt: skip
    return results


def run_chunk(job: tuple[int, int, list[int]]) -> list[dict[str, Any]]:
    return [result for repetition in job[2] for result in run_sample(*job[:2], repetition)]


def cell_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A case at one size and budget, by coefficient; no cover or z where there is no true value."""
    first, case = parts[0], CASES[parts[0]["case"]]
    z, stopped = np.array([part["z"] for part in parts]), np.array([part["stopped"] for part in parts])
    told = np.array([part["told"] for part in parts])
    missed = (np.abs(z) > HALF_WIDTH).any(axis=1)
    names = first["names"] + ["their sum"] * case.summed
    arrays = {
        "cover": np.where(np.isnan(z[0]), np.nan, (np.abs(z) <= HALF_WIDTH).mean(axis=0)),
        "z": np.sqrt(np.mean(np.minimum(z**2, MOST_Z**2), axis=0)),
        **{key: np.median([part[key] for part in parts], axis=0) for key in ("width", "mean", "sd")},
        "told": told.mean(axis=0), "noticed": (told | stopped[:, None]).mean(axis=0),
    }  # fmt: skip
    numbers = [
        {key: None if np.isnan(v[n]) else float(f"{v[n]:.4g}") for key, v in arrays.items()} for n in range(len(names))
    ]
    return {
        "case": case.title, "what": case.what, "family": case.family, "rows": first["rows"],
        "epsilon": first["epsilon"], "repetitions": len(parts), "stopped": float(stopped.mean()),
        "own": [name for name in names if name in (*case.own, "their sum")],
        "coefficients": dict(zip(names, numbers, strict=True)),
        "missed": int(missed.sum()), "given": dict(Counter(kind for part in parts for kind in part["kinds"])),
        "given_missed": dict(Counter(k for part, m in zip(parts, missed, strict=True) if m for k in part["kinds"])),
        "silent": sum(not part["kinds"] for part in parts),
        "silent_missed": sum(not part["kinds"] for part, m in zip(parts, missed, strict=True) if m),
    }  # fmt: skip


def groups(cell: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Numbers of the coefficients in question, and of all others."""
    numbers = cell["coefficients"]
    own = [numbers[name] for name in cell["own"]]
    return own, [each for name, each in numbers.items() if name not in cell["own"]]


def failures(cell: dict[str, Any]) -> list[tuple[str, float]]:
    """What is clearly covered too rarely, or has no true value, in words, and how often that was noticed."""
    others, repetitions = groups(cell)[1], cell["repetitions"]
    each = [(name, v["cover"], v["noticed"], repetitions) for name, v in cell["coefficients"].items()]
    if others[0]["cover"] is not None:
        cover, noticed = (float(np.mean([numbers[part] for numbers in others])) for part in ("cover", "noticed"))
        each.append((f"{'all others' if cell['own'] else 'all'} together", cover, noticed, len(others) * repetitions))
    return [
        (f"{name} ({percent(cover)}, noticed in {percent(noticed)})", noticed)
        for name, cover, noticed, number in each
        if cover is None or most_likely(cover, number) < ENOUGH
    ]


def most_likely(share: float, number: int) -> float:
    """The most that a share of so many may be: Wilson's limit at two standard errors."""
    return float((share + 2 / number + 2 * np.sqrt((share * (1 - share) + 1 / number) / number)) / (1 + 4 / number))


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def decimal(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.2f}"


def label(cell: dict[str, Any]) -> str:
    return f"{cell['what']}, {cell['family']}, N = {cell['rows']:,}, ε = {cell['epsilon']:g}".removeprefix(", ")


def row(cell: dict[str, Any]) -> dict[str, str]:
    """A line of a case's table by its columns; "–" where there is nothing to say."""
    own, others = groups(cell)
    known = [each for each in others if each["cover"] is not None]
    widths = [each["width"] for each in others if each["width"] is not None]
    shown = {
        "": cell["what"] or "–", "family": cell["family"], "N": f"{cell['rows']:,}", "ε": f"{cell['epsilon']:g}",
        "releases": str(cell["repetitions"]),
        "coefficient": ", ".join(cell["own"]), "its cover": ", ".join(percent(each["cover"]) for each in own),
        "its z": ", ".join(decimal(each["z"]) for each in own),
        "its width": ", ".join(decimal(each["width"] if each["cover"] is not None else None) for each in own),
        "reads": ", ".join(f"{each['mean']:.1f} ± {each['sd']:.1f}" for each in own if each["cover"] is None),
        "its told": ", ".join(percent(each["told"]) for each in own),
        f"{'others: ' * bool(own)}cover": percent(float(np.mean([v["cover"] for v in known])) if known else None),
        "worst": percent(min((each["cover"] for each in known), default=None)),
        "z": decimal(float(np.sqrt(np.mean([each["z"] ** 2 for each in known]))) if known else None),
        "width": decimal(float(np.exp(np.mean(np.log(widths)))) if known else None),
        "told": percent(float(np.mean([each["told"] for each in others]))),
        "stopped": percent(cell["stopped"]),
    }  # fmt: skip
    return {name: text if text.strip("–, ") else "–" for name, text in shown.items()}


def table(rows: list[dict[str, str]]) -> list[str]:
    """Markdown, without columns that say nothing."""
    kept = [name for name in rows[0] if any(row[name] != "–" for row in rows)]
    lines = [kept, ["---"] * len(kept), *([row[name] for name in kept] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def alarms(cells: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Each kind of warning: how often where it is meant, and how often in ordinary tables."""

    def share(chosen: list[dict[str, Any]], kind: str) -> str:
        releases = sum(cell["repetitions"] for cell in chosen)
        return percent(sum(cell["given"].get(kind, 0) for cell in chosen) / max(releases, 1))

    plain, hard = ([cell for cell in cells if (cell["case"] == ORDINARY) == is_plain] for is_plain in (True, False))
    lines = []
    for kind in dict.fromkeys([*KINDS, *(kind for cell in cells for kind in cell["given"])]):
        title, meant = KINDS.get(kind, ("–", lambda cell: False))
        given, missed = (sum(cell[key].get(kind, 0) for cell in plain) for key in ("given", "given_missed"))
        by_budget = {
            f"ordinary, ε = {epsilon:g}": share([cell for cell in plain if cell["epsilon"] == epsilon], kind)
            for epsilon in sorted({cell["epsilon"] for cell in plain})
        }
        lines.append(
            {
                "warning": kind, "meant for": title,
                "given there": share([cell for cell in cells if meant(cell)], kind),
                "in all hard cases": share(hard, kind), **by_budget, "ordinary, in all": str(given),
                "of them an interval missed": percent(missed / given) if given else "–",
            }
        )  # fmt: skip
    return lines


HEADER = """# Hard cases

Written by `python {command}`, which `make bench-hard` runs (commit {commit}; {processor}, {cores} cores; {minutes:.0f} minutes). Do not edit.

**How.**
Tables are simulated, each anew, so that the true coefficients are known: two normal columns, a column of two levels, and what the case adds.
A flag stands on 3 % of rows, whose outcome is positive without exception; strong effects are those of five normal columns, with a linear predictor of standard deviation 4; ordinary tables have a third column, of three levels (32, 48 and 20 % of rows).
Each becomes a release by looks (δ = {delta:g}) by the custodian's code, with noise from a seeded generator, and a fit with the default prior.
Declared bounds are some ten times as wide as the columns.
A case has {repetitions} tables of each kind and size (fewer where N = {large:,}; the column *releases* has the number); seed {seed}.
Where the survey stops a release, the release goes on with that survey, so that there is a fit to look at.

**Columns.**
*cover*: share of 95 % intervals that hold the true value.
*z*: root mean square of error over stated standard deviation (1 is calibrated), each cut off at {most_z:g}.
*width*: stated standard deviation over the standard error that the same rows give without privacy, from their information at the true coefficients; median over tables.
*told*: share of fits with a warning about the coefficient, by its name or its level's; a warning that names none is about all.
*stopped*: share of releases that the survey stops.
*reads*: posterior mean and standard deviation, medians, where there is no true value.
Where a case is about some *coefficient*, *its* numbers stand first; those of the others follow, with the one that is covered least under *worst*.
A dash: there is no true value, or nothing without privacy to compare with.

## Neither covered nor told

Covered too rarely: the share of intervals that cover is below 90 % by more than two standard errors.
A coefficient without a true value, of a column that decides or says nothing, counts as not covered: a dash stands for its share.
Noticed: a fit warns about it, or the survey stops the release; 90 % of releases should.
"""  # noqa: E501


def page(results: dict[str, Any]) -> str:
    """The page's text."""
    facts, cells = results["facts"], results["cells"]
    lists: tuple[list[str], list[str]] = ([], [])
    for cell in cells:
        for lines, noticed in zip(lists, (False, True), strict=True):
            found = [text for text, share in failures(cell) if (share >= NEARLY_ALL) == noticed]
            lines += [f"* {cell['case']}, {label(cell)}: {'; '.join(found)}."] if found else []
    lines = [HEADER.format(**facts, most_z=MOST_Z, large=LARGE), *(lists[0] or ["None."]), ""]
    lines += ["## Covered too rarely or without a true value, and told", "", *(lists[1] or ["None."])]
    for title in dict.fromkeys(cell["case"] for cell in cells):
        lines += ["", f"## {title}", "", *table([row(cell) for cell in cells if cell["case"] == title])]
    plain = [cell for cell in cells if cell["case"] == ORDINARY]
    keys = ("repetitions", "missed", "silent", "silent_missed")
    releases, missed, quiet, quiet_missed = (sum(cell[key] for cell in plain) for key in keys)
    lines += [
        "", "## Warnings", "",
        "Where a warning is meant, and how often it is given in ordinary tables, in which nothing is odd.",
        f"Of {releases} ordinary releases {percent(missed / releases)} have an interval that misses, among six; of the"
        f" {quiet} without a warning {percent(quiet_missed / max(quiet, 1))}.",
        "That a posterior is close to the prior is true wherever it is said; a small budget is enough for that.",
        "", *table(alarms(cells)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    started, jobs = time.perf_counter(), []
    for place, case in enumerate(CASES):
        for rows in case.rows:
            repetitions = range(int(np.ceil(options.repetitions * (FEWER if rows >= LARGE else 1))))
            jobs += [(place, rows, list(repetitions[first :: options.jobs])) for first in range(options.jobs)]
    by_cell: dict[tuple[int, int, float], list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for parts in pool.map(run_chunk, jobs):
            for part in parts:
                by_cell.setdefault((part["case"], part["rows"], part["epsilon"]), []).append(part)
    facts = {
        "command": f"benchmarks/hard_cases.py --repetitions {options.repetitions} --jobs {options.jobs}",
        "repetitions": options.repetitions, "minutes": (time.perf_counter() - started) / 60, "commit": commit(),
        "processor": machine()["processor"], "cores": machine()["cores"], "delta": DELTA, "seed": SEED,
    }  # fmt: skip
    results = {"facts": facts, "cells": [cell_of(parts) for parts in by_cell.values()]}
    save("hard_cases", results)
    (DOCS / "hard_cases.md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
