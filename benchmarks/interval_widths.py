"""What a budget costs in interval width: expected from public numbers alone, before a row is read.

    python benchmarks/interval_widths.py

Writes benchmarks/results/interval_widths.json, docs/widths.md and docs/widths.png. No randomness, no seed.

A release of one stage is judged at the public nominal point of the noise allocation (docs/method.md, section 4): the
posterior standard deviation of the slopes with the noise of the budget, over the one without. A staged release is
judged by its later looks (docs/stages.md): in whitened coordinates the rows leave a variance of 1/N, and the noise of
the scores adds its own variance over N squared. Looks add up by precision. What the first look tells is left out.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dpglm.analyst.looks import Knowledge, next_centring
from dpglm.custodian.allocation import coefficient_stddevs
from dpglm.custodian.stages import Plan, plan_stages
from dpglm.formula import Design, build_design
from dpglm.schema import Schema
from machine import save

DOCS = Path(__file__).parent.parent / "docs"
DELTA = 1e-6
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
ROWS = (1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000)
COEFFICIENTS = (4, 8, 16)
MEAN_WEIGHT = 0.2  # p (1 - p) of an average row; 0.25 at one half, 0.09 at one in ten
PAGE = """# What a budget costs in width

Written by `python benchmarks/interval_widths.py`. Do not edit.

![Expected width of the intervals](widths.png)

How many times wider a 95 % interval is than without privacy, expected from public numbers alone: the number of rows
N, the number of coefficients D (the intercept is one), and ε, with δ = 1e-6, `stages="auto"`, logistic regression,
and an outcome whose average row has p(1 − p) = {weight:g}. 1.00 means that privacy costs nothing that one can see; 2
means that the interval is twice as wide, as if there were a quarter of the rows. An asterisk marks releases of one
stage: there the table is small for its budget.

It is a guide. The real factor depends on the table: it is the column `inflation` of every summary. Where it passes
about 3 the prior takes over, and the real factor stops growing.

{tables}
"""


class _Facts:
    """What ``next_centring`` asks a release for."""

    def __init__(self, design: Design, plan: Plan) -> None:
        self.design, self.privacy = design, plan.privacy
        self.num_rows = design.schema.dataset.rows


def design_of(rows: int, coefficients: int) -> Design:
    names = [f"x{number}" for number in range(1, coefficients)]
    columns = {name: {"type": "numeric", "lower": -1, "upper": 1} for name in names}
    columns["y"] = {"type": "binary", "levels": [0, 1], "fill": 0}
    schema = Schema.from_dict({"dataset": {"name": "nominal", "rows": rows}, "columns": columns})
    return build_design("y ~ " + " + ".join(names), schema, "logistic")


def inflation(rows: int, coefficients: int, epsilon: float) -> tuple[float, int]:
    """Expected width over the one without privacy, and the number of stages."""
    design = design_of(rows, coefficients)
    plan = plan_stages(design, epsilon, DELTA, None, "auto", "full", "auto")
    if not plan.later:
        return one_stage(design, plan), 1
    nothing, identity = np.zeros(coefficients), np.eye(coefficients)
    known = Knowledge(
        first_mean=nothing, first_covariance=identity, discrepancy=0.0, precision=identity, shift=nothing,
        information=identity * MEAN_WEIGHT, centre=nothing, covariance=identity, mean_weight=MEAN_WEIGHT, spread=1.0,
        tolerance=0.0, first=None,
    )  # fmt: skip
    bounds = [next_centring(_Facts(design, plan), known, look.mu).score_bound for look in plan.later]
    precision = sum(rows / (bound * look.score) ** 2 for bound, look in zip(bounds, plan.later, strict=True))
    return math.sqrt(1 + 1 / precision), len(plan.mus)


def one_stage(design: Design, plan: Plan) -> float:
    first, rows = plan.first, design.schema.dataset.rows
    arguments = (design.family, first.blocks, design.dimension, rows, first.radius, design.response_range)
    noisy = coefficient_stddevs(first.noise_stddevs, *arguments)
    silent = coefficient_stddevs([1e-6 * noise for noise in first.noise_stddevs], *arguments)
    return math.sqrt(noisy[1] / silent[1] * noisy[2] / silent[2])


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


def main() -> None:
    found = {
        (rows, coefficients, epsilon): inflation(rows, coefficients, epsilon)
        for coefficients in COEFFICIENTS
        for rows in ROWS
        for epsilon in EPSILONS
    }
    tables = "\n\n".join(table(found, coefficients) for coefficients in COEFFICIENTS)
    (DOCS / "widths.md").write_text(PAGE.format(weight=MEAN_WEIGHT, tables=tables))
    keys = ("rows", "coefficients", "epsilon", "inflation", "stages")
    save("interval_widths", [dict(zip(keys, (*case, *result), strict=True)) for case, result in found.items()])
    picture(8)


if __name__ == "__main__":
    main()
