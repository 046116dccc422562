"""How often a fit says that values pile up at a declared bound: where bounds are honest, and where they are too tight.

Simulated columns and real tables with the bounds of a careful custodian, and the same tables with the upper bound of a
number at its 80th percentile. Warnings depend on the survey alone, so that releases are made and not fitted.

    python benchmarks/tight_bounds.py [--data FOLDER] [--scale 1.0]
    python benchmarks/tight_bounds.py --page
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpglm
from dpglm.analyst.clamped import heaps
from dpglm.custodian.build import Request, build_release
from dpglm.errors import SurveyError
from machine import RESULTS, commit, machine
from other_tables import OTHERS
from real_tables import LOADERS, frame_of
from seeded_noise import SeededNoise

SEED, DELTA, AT = 20261119, 1e-5, 0.8
SIZES = {3_000: 50, 20_000: 50, 100_000: 20}  # rows, and tables of so many
REAL_ROWS, REAL_TABLES = 10_000, 10
DOCS, OUTPUT = Path(__file__).parent.parent / "docs", RESULTS / "tight_bounds.json"

Column = tuple[Callable[[np.random.Generator, int], Any], float, float]
HONEST: dict[str, Column] = {
    "uniform between its bounds": (lambda r, n: r.uniform(2, 7.5, n), 2, 7.5),
    "uniform, whole bounds": (lambda r, n: r.uniform(-5, 5, n), -5, 5),
    "triangular": (lambda r, n: r.triangular(1, 1.3, 3, n), 1, 3),
    "normal, bounds at 2 sd": (lambda r, n: r.normal(100, 15, n), 70, 130),
    "normal, bounds at 4 sd": (lambda r, n: r.normal(100, 15, n), 40, 160),
    "exponential, bounds far": (lambda r, n: r.exponential(1, n), -1, 8),
    "lognormal, from 0.1 to 1,000": (lambda r, n: r.lognormal(0, 1, n), 0.1, 1000),
    "lognormal, mirrored": (lambda r, n: -r.lognormal(0, 1, n), -1000, -0.01),
    "normal, bounds 3 sd below and 300 above": (lambda r, n: r.normal(100, 15, n), 55, 4600),
    "rises up to its bound, beta(5, 1)": (lambda r, n: r.beta(5, 1, n), -0.5, 1),
    "U-shaped, beta(0.7, 0.7)": (lambda r, n: 10 * r.beta(0.7, 0.7, n) - 5, -5, 5),
    "two humps": (lambda r, n: r.normal(2, 0.5, n) * r.choice([-1, 1], n), -3.5, 3.5),
    "1 to 5, alike": (lambda r, n: r.integers(1, 6, n), 1, 5),
    "1 to 5, mostly 4 and 5": (lambda r, n: r.choice([1, 2, 3, 4, 5], n, p=[0.05, 0.1, 0.2, 0.35, 0.3]), 1, 5),
    "ages from 18 to 90, alike": (lambda r, n: r.integers(18, 91, n), 18, 90),
    "hours, nearly half of them 40": (
        lambda r, n: np.where(r.random(n) < 0.45, 40, np.clip(r.normal(40, 12, n).round(), 1, 99)), 1, 99,
    ),
    "years from 2010 to 2020": (lambda r, n: r.integers(2010, 2021, n), 2010, 2020),
}  # fmt: skip
TIGHT: dict[str, Column] = {
    "normal, clamped at +1.33 sd": (lambda r, n: r.normal(100, 15, n), 10, 120),
    "normal, clamped at +1 sd": (lambda r, n: r.normal(100, 15, n), 10, 115),
    "normal, clamped at +0.53 sd": (lambda r, n: r.normal(100, 15, n), 10, 108),
    "normal, clamped at both sds": (lambda r, n: r.normal(100, 15, n), 85, 115),
    "normal, clamped at -1 sd": (lambda r, n: r.normal(100, 15, n), 85, 250),
    "lognormal, 0 to 3": (lambda r, n: r.lognormal(0, 1, n), 0, 3),
    "lognormal, 0 to 1.5": (lambda r, n: r.lognormal(0, 1, n), 0, 1.5),
    "ages around 50, 20 to 60": (lambda r, n: r.normal(50, 15, n).round(), 20, 60),
    "incomes, 0 to 50,000": (lambda r, n: r.lognormal(10.4, 0.7, n), 0, 50_000),
}
_PAGE = """# Bounds that are too tight: does a fit say so?

Written by `python benchmarks/tight_bounds.py`, which `make bench-tight-bounds` runs (commit (commit)). Do not edit.

Where a survey sees that values pile up at a declared bound, `fit.warnings` says so ([what it means](reading.md#warnings)).
ε = 1, δ = 1e-05; noise from a seeded generator, seed (seed).
A column counts as warned of where either of its bounds is.
Bounds of 0, and those of a column between 0 and 1, are never warned of: nothing lies beyond them.

Honest bounds: **(false) of (honest) columns were warned of** ((rate)).
Bounds that clamp: **(true) of (tight)** ((power)).
It sees large heaps, not all of them: where the survey asked nothing between a heap and the rows before it, nothing is said.

## Honest bounds, simulated

Four columns a table.

(simulated)

## Too tight, simulated

*beyond*: the share of values that were clamped.

(clamped)

## Real tables

Samples of 10,000 rows (with replacement) and every predictor, (tables) releases a table; *careful* bounds are those of [the study of real tables](real.md).
*Tightened*: the upper bound of one number a release at its 80th percentile; only of numbers of which 10 % or more then lie beyond.

(real)
"""  # noqa: E501 -- one sentence a line


def warned(frame: pd.DataFrame, columns: dict[str, Any], formula: str, family: str, seed: int) -> set[str]:
    """The columns at whose bounds the survey of a release sees a heap."""
    schema = {"dataset": {"name": "d", "rows": len(frame), "unit": "one row"}, "columns": columns}
    request = Request(formula, dpglm.Schema.from_dict(schema), family, 1.0, DELTA)
    try:
        made = build_release(frame, request, SeededNoise(seed))
    except SurveyError as stop:
        made = stop.release
    assert made.survey_record is not None
    return {heap.name for heap in heaps(made.survey_record)}


def simulated(columns: dict[str, Column], rows: int, tables: int) -> dict[str, dict[str, float]]:
    """By column: how often it was warned of, and the share of values beyond its bounds."""
    found = {name: {"warned": 0, "tables": tables, "beyond": 0.0} for name in columns}
    for number in range(tables):
        for part, names in enumerate(list(columns)[first : first + 4] for first in range(0, len(columns), 4)):
            rng = np.random.default_rng([SEED, rows, number, part])
            cells: dict[str, Any] = {"y": (rng.random(rows) < 0.3).astype(int)}
            declared: dict[str, Any] = {"y": {"type": "binary", "levels": [0, 1]}}
            for place, name in enumerate(names):
                draw, low, high = columns[name]
                cells[f"x{place}"] = drawn = draw(rng, rows)
                declared[f"x{place}"] = {"type": "numeric", "lower": low, "upper": high}
                found[name]["beyond"] += float(np.mean((drawn < low) | (drawn > high))) / tables
            formula = f"y ~ {' + '.join(f'x{place}' for place in range(len(names)))}"
            seen = warned(pd.DataFrame(cells), declared, formula, "logistic", 1000 * number + part)
            for place, name in enumerate(names):
                found[name]["warned"] += f"x{place}" in seen
    return found


def tightened(frame: pd.DataFrame, columns: dict[str, Any], formula: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The numbers among the predictors that can be clamped, each with the columns in which it alone is."""
    for name, declared in columns.items():
        if "levels" in declared or name == formula.split("~")[0].strip():
            continue
        low, high = declared.get("lower", 0), float(np.quantile(frame[name], AT))
        if high > low and (frame[name] > high).mean() > 0.1:
            yield name, columns | {name: declared | {"upper": int(high) if declared["type"] == "count" else high}}


def real(folder: Path, tables: int) -> dict[str, dict[str, Any]]:
    """By table: alarms with careful bounds, and with one that is too tight."""
    found = {}
    for position, (name, loader) in enumerate((LOADERS | OTHERS).items()):
        loaded = frame_of(loader, folder)
        if loaded is None:
            continue
        frame, columns, formula, family = loaded
        numbers = [key for key, declared in columns.items() if "levels" not in declared]
        cell: dict[str, Any] = {"numbers": len(numbers) * tables, "false": 0, "tight": 0, "true": 0, "which": []}
        for number in range(tables):
            rng = np.random.default_rng([SEED, position, number])
            drawn = frame.iloc[rng.integers(0, len(frame), REAL_ROWS)].reset_index(drop=True)
            seen = warned(drawn, columns, formula, family, 1000 * position + number)
            cell["false"] += len(seen)
            cell["which"] = sorted({*cell["which"], *seen})
            for key, changed in tightened(drawn, columns, formula):
                cell["tight"] += 1
                cell["true"] += key in warned(drawn, changed, formula, family, 1000 * position + number)
        found[name] = cell
        print(name, cell, flush=True)
    return found


def page(results: dict[str, Any]) -> str:
    """The page of stored results."""
    sizes = list(results["honest"])
    head = f"| column | {' | '.join(f'N = {int(size):,}' for size in sizes)} |"

    def lines(kind: str, beyond: bool) -> str:
        found = [
            head.replace("column |", "column | beyond |") if beyond else head,
            "|---" * (1 + beyond + len(sizes)) + "|",
        ]
        for name, first in results[kind][sizes[0]].items():
            cells = [results[kind][size][name] for size in sizes]
            shown = [f"{first['beyond']:.0%}"] if beyond else []
            shown += [f"{cell['warned']} of {cell['tables']}" for cell in cells]
            found.append(f"| {' | '.join([name, *shown])} |")
        return "\n".join(found)

    def total(kind: str, part: str) -> int:
        return sum(cell[part] for of_size in results[kind].values() for cell in of_size.values())

    tables = results["real"]
    real_lines = ["| table | careful: warned of | tightened: warned of |", "|---|---|---|"]
    for name, cell in tables.items():
        which = f" ({', '.join(cell['which'])})" if cell["which"] else ""
        tight = f"{cell['true']} of {cell['tight']}" if cell["tight"] else "–"
        real_lines.append(f"| {name} | {cell['false']} of {cell['numbers']}{which} | {tight} |")
    false, honest = total("honest", "warned"), total("honest", "tables")
    false, honest = (
        false + sum(c["false"] for c in tables.values()),
        honest + sum(c["numbers"] for c in tables.values()),
    )
    true, tight = total("tight", "warned"), total("tight", "tables")
    true, tight = true + sum(c["true"] for c in tables.values()), tight + sum(c["tight"] for c in tables.values())
    texts = {
        "commit": results["commit"], "seed": str(SEED), "false": f"{false:,}", "honest": f"{honest:,}",
        "rate": f"{false / honest:.1%}", "true": f"{true:,}", "tight": f"{tight:,}", "power": f"{true / tight:.0%}",
        "simulated": lines("honest", False), "clamped": lines("tight", True), "real": "\n".join(real_lines),
        "tables": str(results["real_tables"]),
    }  # fmt: skip
    text = _PAGE
    for key, value in texts.items():
        text = text.replace(f"({key})", value)
    return text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the tables")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if not asked.page:
        sizes = {rows: max(round(tables * asked.scale), 1) for rows, tables in SIZES.items()}
        tables = max(round(REAL_TABLES * asked.scale), 1)
        results: dict[str, Any] = {"seed": SEED, "commit": commit(), "real_tables": tables}
        for kind, columns in (("honest", HONEST), ("tight", TIGHT)):
            results[kind] = {str(rows): simulated(columns, rows, number) for rows, number in sizes.items()}
            print(kind, results[kind], flush=True)
        results["real"] = real(asked.data, tables)
        OUTPUT.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n", encoding="utf-8")
    results = json.loads(OUTPUT.read_text(encoding="utf-8"))["results"]
    (DOCS / "tight_bounds.md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
