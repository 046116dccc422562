"""What a budget costs in interval width: expected from public numbers alone, before a row is read.

    python benchmarks/interval_widths.py

Writes benchmarks/results/interval_widths.json, docs/widths.md and docs/widths.png. No randomness, no seed.

The rule is that of ``dpglm.plan`` (custodian/plan.py).
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from dpglm.custodian.plan import MEAN_WEIGHT, expected
from dpglm.formula import Design, build_design
from dpglm.privacy import mu_of
from dpglm.schema import Schema
from machine import RESULTS, save
from real import DELTA as DELTA_OF_REAL
from real_tables import load

DOCS = Path(__file__).parent.parent / "docs"
DELTA = 1e-6
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
ROWS = (1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000)
COEFFICIENTS = (4, 8, 16)
PAGE = """# What a budget costs in width

Written by `python benchmarks/interval_widths.py`. Do not edit.

![Expected width of the intervals](widths.png)

How many times wider a 95 % interval is than without privacy, expected from public numbers alone: the number of rows
N, the number of coefficients D (the intercept is one), and ε, with δ = 1e-6, `stages="auto"`, logistic regression,
and an outcome whose average row has p(1 − p) = {weight:g}. 1.00 means that privacy costs nothing that one can see; 2
means that the interval is twice as wide, as if there were a quarter of the rows. An asterisk marks releases of one
stage: there the table is small for its budget.

It is a guide. The real factor depends on the table: it is the column `inflation` of every summary. Where it passes
about 3 the prior takes over, and the real factor stops growing. `dpglm plan` does the same for your own schema and
formula, with power.

{against}

{tables}
"""


def design_of(rows: int, coefficients: int) -> Design:
    names = [f"x{number}" for number in range(1, coefficients)]
    columns = {name: {"type": "numeric", "lower": -1, "upper": 1} for name in names}
    columns["y"] = {"type": "binary", "levels": [0, 1], "fill": 0}
    schema = Schema.from_dict({"dataset": {"name": "nominal", "rows": rows}, "columns": columns})
    return build_design("y ~ " + " + ".join(names), schema, "logistic")


def inflation(rows: int, coefficients: int, epsilon: float) -> tuple[float, int]:
    """Expected width over the one without privacy, and the number of stages."""
    case = expected(design_of(rows, coefficients), epsilon, DELTA)
    return case.inflation, case.stages


def shown(factor: float, stages: int) -> str:
    text = f"{factor:.2f}" if factor < 10 else f"{factor:.0f}"
    return text + ("*" if stages == 1 else "")


def table(found: dict[tuple[int, int, float], tuple[float, int]], coefficients: int) -> str:
    lines = [f"## {coefficients} coefficients", ""]
    lines += ["| N | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |", "|---" * 6 + "|"]
    for rows in ROWS:
        cells = [shown(*found[rows, coefficients, epsilon]) for epsilon in EPSILONS]
        lines.append(f"| {rows:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(coefficients: int) -> None:
    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    counts = np.unique(np.geomspace(500, 1e6, 60).astype(int))
    for epsilon, color in zip(EPSILONS, ("#5b2a86", "#1d5fa6", "#2a8f7b", "#c77f1b", "#b3362f"), strict=True):
        pairs = [inflation(int(rows), coefficients, epsilon) for rows in counts]
        for number, style in ((1, ":"), (3, "-")):
            values = [factor if stages == number else math.nan for factor, stages in pairs]
            ax.plot(counts, values, style, color=color, label=f"ε = {epsilon:g}" if number == 3 else None)
    ax.set_xscale("log")
    ax.set_ylim(1, 4)
    ax.set_xlabel("rows")
    ax.set_ylabel("times as wide as without privacy")
    ax.set_title(f"{coefficients} coefficients, δ = 1e-6; dotted: one stage")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "widths.png", dpi=110, metadata={"Software": None})


def against_real_tables(folder: Path) -> list[dict[str, Any]]:
    """Measured width over expected width, for the cells of docs/real.md in which the rule takes stages."""
    tables: dict[str, Any] = {}
    ratios = []
    for line in (RESULTS / "real.jsonl").read_text().splitlines():
        cell = json.loads(line)
        if (cell["stages"], cell["method"]) != ("auto", "laplace") or cell["stages_used"] == 1:
            continue
        name = cell["table"]
        tables[name] = tables.get(name) or load(name, folder)
        if tables[name] is None:  # its file is not there
            continue
        case = expected(tables[name].of_size(cell["rows"]), cell["epsilon"], DELTA_OF_REAL)
        signal = cell["rows"] * mu_of(cell["epsilon"], DELTA_OF_REAL) ** 2 / len(cell["names"])
        found = float(np.mean(cell["sd"])) / case.inflation
        ratios.append({"family": cell["family"], "signal": round(signal, 1), "ratio": round(found, 3)})
    return ratios


def told(ratios: list[dict[str, Any]]) -> str:
    lines = [
        "How it compares with the measured widths of [Real tables](real.md): measured over expected, median (and"
        " range), by the signal N μ² / D.\n",
        "| family | signal below 30 | 30 to 300 | above |",
        "|---|---|---|---|",
    ]
    for family in dict.fromkeys(each["family"] for each in ratios):
        cells = []
        for low, high in pairwise((0, 30, 300, math.inf)):
            own = [each["ratio"] for each in ratios if each["family"] == family and low <= each["signal"] < high]
            cells.append(f"{np.median(own):.2f} ({min(own):.2f} to {max(own):.2f})" if own else "")
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of public tables")
    folder = parser.parse_args().data
    found = {
        (rows, coefficients, epsilon): inflation(rows, coefficients, epsilon)
        for coefficients in COEFFICIENTS
        for rows in ROWS
        for epsilon in EPSILONS
    }
    tables = "\n\n".join(table(found, coefficients) for coefficients in COEFFICIENTS)
    ratios = against_real_tables(folder)
    (DOCS / "widths.md").write_text(PAGE.format(weight=MEAN_WEIGHT, tables=tables, against=told(ratios)))
    keys = ("rows", "coefficients", "epsilon", "inflation", "stages")
    cases = [dict(zip(keys, (*case, *result), strict=True)) for case, result in found.items()]
    save("interval_widths", cases + ratios)
    picture(8)


if __name__ == "__main__":
    main()
