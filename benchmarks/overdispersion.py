"""Counts whose variance is four times their mean: what an inferred dispersion is worth.

    python benchmarks/overdispersion.py

Writes benchmarks/results/overdispersion.json and docs/overdispersion.md. About ten minutes on one core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calibration_page import percent
from machine import save
from repeated import coverage_record, posteriors, released

DOCS = Path(__file__).parent.parent / "docs"
SEED = 20261115
TABLES, BY_NUTS = 300, 40
DRAWS, NUTS_DRAWS = 500, 2_000
ROWS = 20_000
EPSILONS = (3.0,)
BOUND = 20
DISPERSION = 4.0
TRUTH = np.array([0.5, 1.0, -1.0])  # scaled units


def rows_of(number: int) -> pd.DataFrame:
    generator = np.random.default_rng([SEED, number])
    x = np.clip(0.25 * generator.normal(size=(ROWS, 2)), -1, 1)
    mean = np.exp(TRUTH[0] + x @ TRUTH[1:])
    y = generator.negative_binomial(mean / (DISPERSION - 1), 1 / DISPERSION)  # variance DISPERSION times the mean
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})


def measure(epsilon: float) -> dict[str, dict]:
    count = {"type": "count", "upper": BOUND}
    groups = [
        [released(rows_of(number), epsilon, number, family="poisson", outcome=count)] for number in range(TABLES)
    ]  # fmt: skip
    results = {}
    for name, dispersion in (("inferred", None), ("1 (Poisson)", 1.0)):
        fits = {"laplace": posteriors(groups, "laplace", DRAWS, dispersion=dispersion)}
        if dispersion is None:
            fits["nuts"] = posteriors(groups[:BY_NUTS], "nuts", NUTS_DRAWS)
        results[name] = {method: coverage_record(fit, TRUTH) for method, fit in fits.items()}
    return results


def page(results: dict[str, dict]) -> str:
    head = "| ε | dispersion | method | tables | 50 % | 90 % | 95 % | mean sd: intercept, a, b | not to be trusted |"
    lines = [
        "# Overdispersed counts",
        "",
        "Written by `python benchmarks/overdispersion.py`. Do not edit.",
        "",
        f"Negative binomial counts, variance {DISPERSION:g} times the mean, clamped at {BOUND}; {ROWS:,} rows, two",
        f"Gaussian predictors, log link, δ = 1e-6, seed {SEED}. {TABLES} simulated tables by Laplace, the first",
        f"{BY_NUTS} by NUTS too. A coverage outside the 99 % band of a binomial share is **bold**. Not to be trusted:",
        "Pareto k above 0.7 (Laplace) or R-hat above 1.01 (NUTS).",
        "",
        head,
        "|" + "---|" * (head.count("|") - 1),
    ]
    for epsilon, by_dispersion in results.items():
        for name, methods in by_dispersion.items():
            for method, record in methods.items():
                shares = " | ".join(percent(record, level) for level in (50, 90, 95))
                deviations = ", ".join(f"{sd:.4f}" for sd in record["mean_sd"])
                trouble = f"{100 * record['trouble']:.0f} %"
                entries = f"{epsilon} | {name} | {method} | {record['tables']} | {shares} | {deviations} | {trouble}"
                lines.append(f"| {entries} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    results = {f"{epsilon:g}": measure(epsilon) for epsilon in EPSILONS}
    save("overdispersion", {"seed": SEED, **results})
    (DOCS / "overdispersion.md").write_text(page(results))


if __name__ == "__main__":
    main()
