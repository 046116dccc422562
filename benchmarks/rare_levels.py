"""A level that few rows have, or none: whether its coefficient is honest, and whether it harms the others.

    python benchmarks/rare_levels.py

Staged releases by the rule, posteriors by NUTS. Writes benchmarks/results/rare_levels.json and docs/rare_levels.md.
About ten minutes on one core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import dpglm
from dpglm.custodian.build import build_release
from machine import save
from seeded_noise import SeededNoise

DOCS = Path(__file__).parent.parent / "docs"
SEED, DELTA = 20261116, 1e-6
TABLES = 24
DRAWS, CHAINS = 500, 2
SIZES = ((20_000, 3.0), (200_000, 1.0))
IN_THE_LEVEL = (0, 10, 100, 1_000)
TRUTH = np.array([-1.0, 0.5, 0.5, 1.0])  # of the intercept, dose, levels b and c
OUTCOMES = {
    "logistic": {"type": "binary", "levels": [0, 1], "fill": 0},
    "linear": {"type": "numeric", "lower": -10, "upper": 10},
}


def rows_of(family: str, rows: int, rare: int, number: int) -> pd.DataFrame:
    """A continuous predictor and a factor, whose level c the first rows have."""
    generator = np.random.default_rng([SEED, rows, rare, number])
    dose = np.clip(generator.normal(3, 1, rows), 0, 6)
    group = generator.choice(["a", "b"], rows)
    group[:rare] = "c"
    u = TRUTH[0] + TRUTH[1] * dose + TRUTH[2] * (group == "b") + TRUTH[3] * (group == "c")
    if family == "logistic":
        outcome = (generator.random(rows) < 1 / (1 + np.exp(-u))).astype(int)
    else:
        outcome = np.clip(u + generator.normal(size=rows), -10, 10)
    return pd.DataFrame({"y": outcome, "dose": dose, "group": group})


def released(frame: pd.DataFrame, family: str, epsilon: float, number: int) -> dpglm.Release:
    columns = {
        "y": OUTCOMES[family],
        "dose": {"type": "numeric", "lower": 0, "upper": 6},
        "group": {"type": "categorical", "levels": ["a", "b", "c"], "fill": "a"},
    }
    schema = {"dataset": {"name": f"t{number}", "rows": len(frame)}, "columns": columns}
    return build_release(
        frame, "y ~ dose + group", schema, family, epsilon, DELTA, ledger=None, radius=None, allocation="auto",
        statistics="full", noise=SeededNoise([SEED, number]), stages="auto",
    )  # fmt: skip


def measure(family: str, rows: int, epsilon: float, rare: int) -> dict[str, float]:
    """One cell: coverage of 95 % intervals and widths, of the rare level and of the others."""
    made = [released(rows_of(family, rows, rare, n), family, epsilon, n) for n in range(TABLES)]
    fits = dpglm.fit_many(made, draws=DRAWS, chains=CHAINS, seed=1)
    told = [fit.summary() for fit in fits]
    inside = np.array([(each["lower"] <= TRUTH) & (each["upper"] >= TRUTH) for each in told])
    scaled = np.array([fit.summary(units="scaled")["sd"] for fit in fits])
    return {
        "rare_covers": float(inside[:, 3].mean()),
        "others_cover": float(inside[:, :3].mean()),
        "rare_to_prior": float(scaled[:, 3].mean() / 2.5),
        "rare_sd": float(np.mean([each["sd"].iloc[3] for each in told])),
        "others_inflation": float(np.mean([each["inflation"].iloc[1:3] for each in told])),
        "others_widest": float(np.max([each["inflation"].iloc[1:3] for each in told])),
        "warned": float(np.mean([any("group[c]" in text for text in fit.warnings) for fit in fits])),
        "r_hat": float(np.max([each["r_hat"].max() for each in told])),
    }


def page(results: dict[str, dict[str, float]]) -> str:
    head = (
        "| family, N, ε, rows in the level | 95 % intervals of its coefficient that cover | their sd "
        "| over the prior's | the fit says so | other intervals that cover | their inflation: mean, largest | R-hat |"
    )
    lines = [
        "# Levels with few rows",
        "",
        "Written by `python benchmarks/rare_levels.py`. Do not edit.",
        "",
        f"A factor with three levels, one of which few rows have, or none, beside a continuous predictor; {TABLES}",
        f"simulated tables a cell, staged releases by the rule, NUTS ({CHAINS} chains of {DRAWS} draws), seed {SEED}.",
        "True effects are 0.5 and 1. What a table says of a level with ten rows is little, and a release says less:",
        "the interval should be wide and cover, with a word of warning, and the other coefficients should not suffer.",
        "With no rows there is nothing to find: an interval covers if 1 lies within what is left of the prior, whose",
        "standard deviation is 2.5 for logistic outcomes here, and 25 for linear ones.",
        "",
        head,
        "|" + "---|" * (head.count("|") - 1),
    ]
    for name, cell in results.items():
        shares = f"{100 * cell['rare_covers']:.0f} % | {cell['rare_sd']:.2f} | {cell['rare_to_prior']:.2f}"
        shares += f" | {100 * cell['warned']:.0f} % | {100 * cell['others_cover']:.0f} %"
        widths = f"{cell['others_inflation']:.2f}, {cell['others_widest']:.2f}"
        lines.append(f"| {name} | {shares} | {widths} | {cell['r_hat']:.3f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    results = {}
    for family in OUTCOMES:
        for rows, epsilon in SIZES:
            for rare in IN_THE_LEVEL:
                name = f"{family}, {rows:,}, {epsilon:g}, {rare:,}"
                results[name] = measure(family, rows, epsilon, rare)
                print(name, results[name], flush=True)
    save("rare_levels", {"seed": SEED, **results})
    (DOCS / "rare_levels.md").write_text(page(results))


if __name__ == "__main__":
    main()
