"""The rule, measured: whether errors are as stated, plans as realised, and tables that no constant was chosen on alike.

Reads the finished cells of ``real.py`` with a careful custodian's bounds and those of ``misfit.py``, plans every cell
with ``dpglm.plan``, and writes a page. Planned widths are of an analyst who knows the outcome's share or mean, spreads,
shares of levels, how much columns tell of each other, the strength of all effects and the dispersion of counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import dpglm
from dpglm.privacy import mu_of
from machine import RESULTS, commit, machine, save
from real import DELTA, TABLES, whole
from real_page import read
from real_tables import CHOSEN_ON, maximum_likelihood

DOCS = Path(__file__).parent.parent / "docs"
FAMILIES, SIGNAL, NORMAL = ("logistic", "poisson", "linear"), 10.0, 1.959963984540054


def planned(cell: dict[str, Any], folder: Path) -> list[dict[str, float]]:
    """Of each slope: its planned over its realised width in the user's units, and the same of its inflation."""
    frame, columns, formula, family, x, y, population = whole(cell["table"], folder)
    error = np.sqrt(np.diag(maximum_likelihood(family, x, y)[2]) * len(y) / cell["rows"])
    outcome, right = (part.strip() for part in formula.split("~"))
    names = [name.strip() for name in right.split("+")]
    numbers = [name for name in names if "levels" not in columns[name]] + [outcome] * (family == "linear")
    inverse = np.linalg.inv(np.corrcoef(x.T))
    assumed: dict[str, Any] = {
        "spreads": {name: float(frame[name].std()) for name in numbers},
        "shares": {
            name: [float(np.mean(frame[name] == level)) for level in columns[name]["levels"]]
            for name in names
            if "levels" in columns[name]
        },
        "overlap": {name: max(0.0, 1 - 1 / float(inverse[n, n])) for n, name in enumerate(names)},
        "strength": float(np.std(x @ population[1:])) / (float(y.std()) if family == "linear" else 1.0),
    }
    if family != "linear":
        assumed["outcome"] = float(y.mean())
    if family == "poisson":
        mean = np.exp(population[0] + x @ population[1:])
        assumed["dispersion"] = float(np.mean((y - mean) ** 2) / mean.mean())
    schema = {"dataset": {"name": "t", "rows": cell["rows"], "unit": "one row"}, "columns": columns}
    made = dpglm.plan(
        formula, schema=dpglm.Schema.from_dict(schema), family=family, epsilon=cell["epsilon"], delta=DELTA,
        rows=cell["rows"], **assumed,
    )  # fmt: skip
    return [
        {
            "name": each.name,
            "width": (each.original or np.nan) / (NORMAL * cell["sd"][n] * error[n]),
            "inflation": each.inflation / cell["sd"][n],
        }
        for n, each in enumerate(made.cases[0].coefficients, 1)
    ]


def result_of(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the page needs of a cell."""
    signal = cell["rows"] * mu_of(cell["epsilon"], DELTA) ** 2 / len(cell["names"])
    kept = ("table", "family", "rows", "epsilon", "repetitions", "cover", "z", "sd", "stated", "plain_cover")
    return {name: cell[name] for name in kept} | {"signal": signal, "planned": planned(cell, folder)}


def page(results: dict[str, Any]) -> str:
    cells, misfit = results["cells"], results["misfit"]
    lines = [
        "# The rule, measured", "",
        f"Written by `make bench-rule` ({results['processor']}; cells of commit {results['cells_of']}, plans of commit"
        f" {results['plans_of']}). Do not edit.", "",
        "What the rule predicts is explained in [The method](method.md), section 5; the cells are those of"
        " [Real tables](real.md) with the bounds of a careful custodian.",
        "Constants were chosen on some tables; the others only report.",
        "The *signal* is N μ² / D.", "",
        "## In short", "", *_in_short(cells), "",
        "## How wrong regressions are where rows are bounded", "", *_misfits(misfit), "",
        "## Errors over stated standard deviations", "",
        "z is the root mean square over coefficients and tables of size N, each error cut off at 10; wanted is 0.9 to"
        " 1.1 for a signal of at least 10, and 0.7 to 1.1 below.",
        "*plain* is the cover of the non-private estimate with robust standard errors, on the same rows.", "",
        *_errors(cells), "",
        "## Tables that constants were chosen on, and tables that only report", "", *_apart(cells), "",
        "## Widths at 10,000 rows and ε = 1", "", *_widths(cells), "",
        "## Plans", "",
        "Planned over realised half-width of every slope in the user's units, planned over realised inflation, and the"
        " fit's stated inflation over the true one, for a signal of at least 10.", "", *_plans(cells), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _in_short(cells: list[dict[str, Any]]) -> list[str]:
    strong, weak = _by_signal(cells)
    right = [table for table, own in _by_table(strong).items() if 0.9 <= _z(own) <= 1.1]
    right_weak = [table for table, own in _by_table(weak).items() if 0.7 <= _z(own) <= 1.1]
    plans = _ratios(strong, "width")
    stated = np.concatenate([cell["stated"] for cell in strong])
    return [
        f"* z within 0.9 to 1.1 at a signal of at least 10: {len(right)} of {len(_by_table(strong))} tables; within 0.7"
        f" to 1.1 below: {len(right_weak)} of {len(_by_table(weak))}.",
        f"* Planned widths within 0.8 to 1.25 of the realised ones: {_share(plans)} of slopes; stated inflation within"
        f" 10 % of the true one: {np.mean(np.abs(stated - 1) <= 0.1):.0%} of coefficients.",
        "* Of the two, a plan errs where columns have long tails or levels are rare; effects that are stronger than"
        " stated and counts of few rows come after.",
    ]


def _misfits(misfit: dict[str, Any]) -> list[str]:
    lines = ["| table | family | rows | ρ | |", "|---|---|---|---|---|"]
    for each in sorted(misfit["tables"], key=lambda each: FAMILIES.index(each["family"])):
        told = "chosen on" if each["chosen_on"] else ""
        lines.append(f"| {each['table']} | {each['family']} | {each['rows']:,} | {each['rho']:.4f} | {told} |")
    lines += ["", "Geometric means, and how far the logarithm scatters:", ""]
    return lines + [
        f"* {each['family']}, {each['tables']}: {each['rho']:.4f}, {each['spread']:.2f}" for each in misfit["families"]
    ]


def _errors(cells: list[dict[str, Any]]) -> list[str]:
    lines = ["| table | signal | cells | z | cover | 50 % | 90 % | 99 % | worst | plain |", "|" + "---|" * 10]
    for told, part in zip(("≥ 10", "< 10"), _by_signal(cells), strict=True):
        for table, own in _by_table(part).items():
            lines.append(f"| {table} | {told} | {_line(own)} |")
        for family in FAMILIES:
            own = [cell for cell in part if cell["family"] == family]
            lines.append(f"| **{family}** | {told} | {_line(own)} |")
    return lines


def _apart(cells: list[dict[str, Any]]) -> list[str]:
    lines = ["| family | tables | signal | cells | z | cover | 50 % | 90 % | 99 % | worst | plain |", "|" + "---|" * 11]
    for family in FAMILIES:
        for chosen in (True, False):
            for told, part in zip(("≥ 10", "< 10"), _by_signal(cells), strict=True):
                own = [c for c in part if c["family"] == family and (c["table"] in CHOSEN_ON) == chosen]
                if own:
                    name = "chosen on" if chosen else "reported"
                    lines.append(f"| {family} | {name} | {told} | {_line(own)} |")
    return lines


def _widths(cells: list[dict[str, Any]]) -> list[str]:
    lines = ["| family | width over non-private, by table | mean |", "|---|---|---|"]
    for family in FAMILIES:
        own = [c for c in cells if (c["family"], c["rows"], c["epsilon"]) == (family, 10_000, 1.0)]
        widths = {cell["table"]: _geometric(cell["sd"]) for cell in own}
        told = ", ".join(f"{table} {width:.2f}" for table, width in widths.items())
        lines.append(f"| {family} | {told} | {np.mean(list(widths.values())):.2f} |")
    return lines


def _plans(cells: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| family | slopes | width, median | within 0.8 to 1.25 | inflation, median | within 0.8 to 1.25 |"
        " stated within 10 % |",
        "|" + "---|" * 7,
    ]
    strong, _ = _by_signal(cells)
    for family in FAMILIES:
        own = [cell for cell in strong if cell["family"] == family]
        widths, inflations = _ratios(own, "width"), _ratios(own, "inflation")
        stated = np.concatenate([cell["stated"] for cell in own])
        lines.append(
            f"| {family} | {len(widths)} | {np.median(widths):.2f} | {_share(widths)} | {np.median(inflations):.2f} |"
            f" {_share(inflations)} | {np.mean(np.abs(stated - 1) <= 0.1):.0%} |"
        )
    off: dict[tuple[str, str], list[float]] = {}
    for cell in strong:
        for each in cell["planned"]:
            off.setdefault((cell["table"], each["name"]), []).append(each["width"])
    worst = sorted(off.items(), key=lambda item: -abs(np.log(np.median(item[1]))))[:12]
    told = ", ".join(f"{name} of {table} {np.median(ratios):.2f}" for (table, name), ratios in worst)
    return [*lines, "", f"Farthest off: {told}."]


def _line(cells: list[dict[str, Any]]) -> str:
    levels = {level: np.mean(np.concatenate([cell["cover"][level] for cell in cells])) for level in cells[0]["cover"]}
    worst = min(min(cell["cover"]["0.95"]) for cell in cells)
    shown = [levels["0.95"], levels["0.5"], levels["0.9"], levels["0.99"], worst]
    shown.append(float(np.mean(np.concatenate([cell["plain_cover"] for cell in cells]))))
    return f"{len(cells)} | {_z(cells):.2f} | " + " | ".join(f"{100 * share:.1f} %" for share in shown)


def _by_signal(cells: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return [c for c in cells if c["signal"] >= SIGNAL], [c for c in cells if c["signal"] < SIGNAL]


def _by_table(cells: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        found.setdefault(cell["table"], []).append(cell)
    return found


def _z(cells: list[dict[str, Any]]) -> float:
    return float(np.sqrt(np.mean(np.concatenate([np.square(cell["z"]) for cell in cells]))))


def _geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _ratios(cells: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([each[name] for cell in cells for each in cell["planned"]])


def _share(ratios: np.ndarray) -> str:
    return f"{np.mean((ratios >= 0.8) & (ratios <= 1.25)):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of public tables")
    options = parser.parse_args()
    cells = [cell for cell in read(RESULTS / "real.jsonl") if cell["width"] == 1.0 and cell["table"] in TABLES]
    results = {
        "cells": [result_of(cell, options.data) for cell in cells if whole(cell["table"], options.data) is not None],
        "misfit": json.loads((RESULTS / "misfit.json").read_text()), "processor": machine()["processor"],
        "cells_of": ", ".join(dict.fromkeys(cell["commit"] for cell in cells)), "plans_of": commit(),
    }  # fmt: skip
    save("rule", results)
    (DOCS / "rule.md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
