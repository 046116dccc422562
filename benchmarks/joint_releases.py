"""Several releases together: two looks at one table against one at the composed budget, and three sites.

    python benchmarks/joint_releases.py

Writes benchmarks/results/joint_releases.json and docs/joint_releases.md. About half an hour on one core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calibration_page import percent
from dpglm.privacy import compose, epsilon_of, mu_of
from machine import save
from repeated import DELTA, coverage_record, posteriors, released

DOCS = Path(__file__).parent.parent / "docs"
SEED = 20261115
TABLES, BY_NUTS = 300, 60
DRAWS = 500
TRUTH = np.array([0.3, 2.0, -2.0])  # scaled units
ROWS = 2_000
SITE_ROWS, SITE_EPSILON = 1_500, 2.0
CASES = {"noisy": 1.0, "almost without noise": 100.0}  # what is shown, with the epsilon of each release


def rows_of(number: int, count: int) -> pd.DataFrame:
    generator = np.random.default_rng([SEED, number])
    x = np.clip(0.25 * generator.normal(size=(count, 2)), -1, 1)
    u = TRUTH[0] + x @ TRUTH[1:]
    y = (generator.uniform(size=count) < 1 / (1 + np.exp(-u))).astype(int)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})


def measured(groups: list[list], *, nuts: bool = False) -> dict:
    results = {"laplace": coverage_record(posteriors(groups, "laplace", DRAWS), TRUTH)}
    if nuts:
        results["nuts"] = coverage_record(posteriors(groups[:BY_NUTS], "nuts", DRAWS), TRUTH)
    return results


def looks(epsilon: float) -> dict[str, dict]:
    """Two releases of each table, one at the composed budget, and the two as if they were different tables."""
    whole = epsilon_of(compose([mu_of(epsilon, DELTA)] * 2), DELTA)
    pairs, composed, strangers = [], [], []
    for number in range(TABLES):
        frame = rows_of(number, ROWS)
        pairs.append([released(frame, epsilon, 10 * number + look) for look in (1, 2)])
        composed.append([released(frame, whole, 10 * number + 3)])
        strangers.append([pairs[-1][0], released(frame, epsilon, 10 * number + 2, name="another")])
    return {
        "one of the two": measured([pair[:1] for pair in pairs]),
        "the two together": measured(pairs, nuts=True),
        f"one release at the composed budget (ε = {whole:.3g})": measured(composed),
        "the two, wrongly taken for two tables": measured(strangers),
    }


def sites() -> dict[str, dict]:
    """Three tables of different people."""
    groups = [
        [
            released(rows_of(10_000 + 3 * number + site, SITE_ROWS), SITE_EPSILON, 10 * number + site, name=f"{site}")
            for site in range(3)
        ]
        for number in range(TABLES)
    ]
    alone = {f"site {site + 1} alone": measured([group[site : site + 1] for group in groups]) for site in range(3)}
    return alone | {"the three together": measured(groups)}


def table(results: dict[str, dict]) -> list[str]:
    head = "| posterior of | method | tables | 50 % | 90 % | 95 % | mean sd: intercept, a, b | not to be trusted |"
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for name, methods in results.items():
        for method, record in methods.items():
            shares = " | ".join(percent(record, level) for level in (50, 90, 95))
            deviations = ", ".join(f"{sd:.4f}" for sd in record["mean_sd"])
            trouble = f"{100 * record['trouble']:.0f} %"
            lines.append(f"| {name} | {method} | {record['tables']} | {shares} | {deviations} | {trouble} |")
    return lines


def ratios(results: dict[str, dict], of: str, to: str) -> str:
    one, other = (
        next(methods for name, methods in results.items() if name.startswith(start)) for start in (of, to)
    )  # fmt: skip
    shares = np.array(one["laplace"]["mean_sd"]) / np.array(other["laplace"]["mean_sd"])
    return ", ".join(f"{share:.3f}" for share in shares)


def page(results: dict[str, dict]) -> str:
    lines = [
        "# Several releases together",
        "",
        "Written by `python benchmarks/joint_releases.py`. Do not edit.",
        "",
        f"Logistic regression with two Gaussian predictors, {ROWS:,} rows, δ = 1e-6, seed {SEED}. {TABLES} simulated",
        f"tables by Laplace, the first {BY_NUTS} by NUTS too. A coverage outside the 99 % band of a binomial share is",
        "**bold**. Not to be trusted: Pareto k above 0.7 (Laplace) or R-hat above 1.01 (NUTS).",
        "",
        "Two releases of one table carry the same dataset identity: they are two noisy looks at the same sums, so the",
        "rows count once. With μ² added up, one release at the composed budget should say the same.",
    ]
    for case, epsilon in CASES.items():
        lines += ["", f"## Two releases of one table, {case}: ε = {epsilon:g} each", "", *table(results[case]), ""]
        share = ratios(results[case], "the two together", "one release")
        lines.append(f"Mean sd of the two together over one release at the composed budget: {share}.")
    smallest = min(results["sites"][f"site {site + 1} alone"]["laplace"]["mean_sd"] for site in range(3))
    share = np.array(results["sites"]["the three together"]["laplace"]["mean_sd"]) / smallest
    lines += [
        "",
        f"## Three sites of {SITE_ROWS:,} rows, ε = {SITE_EPSILON:g} each",
        "",
        *table(results["sites"]),
        "",
        f"Mean sd of the three together over the best site alone: {', '.join(f'{one:.3f}' for one in share)}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    results = {case: looks(epsilon) for case, epsilon in CASES.items()}
    results["sites"] = sites()
    save("joint_releases", {"seed": SEED, **results})
    (DOCS / "joint_releases.md").write_text(page(results))


if __name__ == "__main__":
    main()
