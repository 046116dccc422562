"""docs/fit_speed.md and its picture, from the results of fit_speed.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).parent.parent / "docs"
KEPT = 4_000  # draws of all chains


def write_page(results: dict[str, Any], where: dict[str, Any]) -> None:
    lines = [
        "# Speed of a fit",
        "",
        paragraph(f"""
            `make bench-fit` (seed {results["seed"]}; versions in `benchmarks/results/fit_speed.json`;
            {where["processor"]}, {where["cores"]} cores). Written by
            `benchmarks/fit_speed.py`.
        """),
        "",
    ]
    if results.get("compared"):
        lines += _against_stan(results["compared"], results["setting"])
    if results.get("growth"):
        lines += _as_columns_are_added(results["growth"])
        _picture(results["growth"])
    (DOCS / "fit_speed.md").write_text("\n".join(lines) + "\n")


def paragraph(text: str) -> str:
    return " ".join(text.split())


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["", *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)), ""]


def _per_second(facts: dict[str, Any], most: float = np.inf) -> float:
    return min(facts["ess"], most) / facts["sample"]


def _against_stan(compared: list[dict[str, Any]], setting: dict[str, Any]) -> list[str]:
    rows, own_model, whole = [], [], []
    build = max(entry["stan"]["build"] for entry in compared)
    capped = []
    for entry in compared:
        columns, stan = str(entry["columns"]), entry["stan"]
        ours, same = entry["dpglm"]["default"], entry["dpglm"]["same model"]
        reached = f"{entry['wanted']}: {'reached' if ours['times_stan'] >= entry['wanted'] else 'not reached'}"
        rows.append([
            columns, f"{stan['sample']:.1f}", f"{_per_second(stan):,.3g}", f"{ours['sample']:.2f}",
            f"{_per_second(ours):,.0f}", f"{ours['times_stan']:,.3g}", f"{ours['times_stan_processor']:,.3g}", reached,
            f"{_per_second(entry['vectorised']):,.3g}", f"{ours['times_vectorised']:,.3g}",
        ])  # fmt: skip
        capped.append(f"{_per_second(ours, KEPT) / _per_second(stan, KEPT):,.3g}")
        own_model.append([
            columns, f"{_per_second(same):,.0f}", f"{same['times_stan']:,.3g}", f"{same['apart']:.2f}",
            f"{same['width'][0]:.2f} to {same['width'][1]:.2f}", f"{stan['divergent']:.0f}", f"{same['divergent']:.0f}",
        ])  # fmt: skip
        total = build + stan["sample"]
        whole.append([
            columns, f"{total:.0f}", f"{ours['cold']:.1f}", f"{ours['cold'] / total:.2f}", f"{ours['warm']:.1f}",
            f"{ours['sample']:.1f}",
        ])  # fmt: skip
    return [
        "## Against Stan",
        "",
        paragraph(f"""
            One simulated release for each number of columns ({setting["rows"]:,} rows in the unit ball, epsilon
            {setting["epsilon"]:g}, the paper's statistics, equal noise) is given to PyStan 3 with the paper's model
            as written, entry by entry with a dense `multi_normal` (`benchmarks/paper_model_as_written.stan`; 4 chains,
            1,000 warm-up and 1,000 kept draws), with the same model vectorised by hand and factorised once
            (`benchmarks/paper_model.stan`), and to `dpglm.fit` with its defaults (4 chains,
            250 warm-up and 1,000 kept draws), one after the other in one run. Effective draws are
            the smallest bulk effective sample size among the coefficients. Seconds are the whole sampling call,
            warm-up included, building and compiling not; for dpglm finding the mode is included, and the median of
            three runs counts. Other programs may share the cores; processor time (all threads and processes of either)
            does not count them, but ignores that Stan runs its chains in parallel.
        """),
        *table(
            ["columns", "Stan, s", "Stan, effective draws/s", "dpglm, s", "dpglm, effective draws/s", "times Stan",
             "the same by processor time", "wanted", "Stan vectorised, effective draws/s", "times that"], rows,
        ),
        paragraph(f"""
            Effective draws can exceed the draws kept, where successive draws lie on opposite sides of the mean.
            Counting no more than the {KEPT:,} kept ones, the factors are {", ".join(capped)}.
        """),
        "",
        paragraph("""
            The same with the paper's own model in dpglm (Taylor moments and the paper's prior of the coefficients; the
            prior of the covariance is still dpglm's). Both samplers should agree here:
        """),
        *table(
            ["columns", "dpglm, effective draws/s", "times Stan", "largest difference of a mean, in Stan's sd",
             "sd, dpglm over Stan", "divergent, Stan", "divergent, dpglm"], own_model,
        ),
        paragraph(f"""
            From the command to the printed table: Stan builds its model once in {build:.0f} s and then samples;
            `dpglm fit` compiles for each model shape and keeps the programs in a cache folder. Cold is an empty cache.
        """),
        *table(
            ["columns", "Stan, build and sample, s", "dpglm, cold, s", "share of Stan's", "dpglm, warm, s",
             "of which mode and sampling, s"], whole,
        ),
        paragraph("""
            Misprints of the paper that are mended in Stan's model: the covariance of two odd statistics, which would
            not be positive definite, so that nothing would run; and the sign of E[y given x] and the bound on the norm
            (min, not max), which would run but answer another question. Scales are positive, since only their squares
            matter.
        """),
        "",
    ]  # fmt: skip


def _as_columns_are_added(rows: list[dict[str, Any]]) -> list[str]:
    shown = {
        "columns": 1.0, "gradient": 1e3, "dense_gradient": 1e3, "count_gradient": 1e3, "compile": 1.0,
        "count_compile": 1.0, "fit": 1.0, "effective_draw": 1e3,
    }  # fmt: skip
    cells = [
        [f"{factor * row[name]:,.3g}" if name in row else "–" for name, factor in shown.items()] for row in rows
    ]  # fmt: skip
    first, earlier, last = rows[0], rows[-3], rows[-1]
    power = np.log(last["gradient"] / earlier["gradient"]) / np.log(last["columns"] / earlier["columns"])
    return [
        "## As columns are added",
        "",
        paragraph("""
            dpglm's own statistics (with an intercept). Value and gradient of the log posterior at 4 points at once, the
            fastest of many calls; beside it the same with the dense covariance of all statistics, and the count family
            (counts up to 10). A fit is 4 chains with 250 warm-up and 1,000 kept draws, mode included, compilation not.
        """),
        *table(
            ["columns", "structured, ms", "dense, ms", "counts, ms", "compile, s", "counts, compile, s", "fit, s",
             "ms an effective draw"], cells,
        ),
        paragraph(f"""
            From {first["columns"]:.0f} to {last["columns"]:.0f} columns the structured gradient grows by a factor of
            {last["gradient"] / first["gradient"]:.0f}, from {earlier["columns"]:.0f} columns on as their number to the
            power {power:.1f}. A dash is not measured: it takes too long.
        """),
        "",
        "![cost by the number of columns](fit_speed.png)",
    ]  # fmt: skip


def _picture(rows: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    lines = (("gradient", "structured"), ("dense_gradient", "dense"), ("count_gradient", "counts, structured"))
    for name, label in lines:
        known = [row for row in rows if name in row]
        left.loglog([row["columns"] for row in known], [1e3 * row[name] for row in known], "o-", label=label)
    left.set(xlabel="columns", ylabel="ms", title="value and gradient, 4 points")
    left.legend(frameon=False)
    known = [row for row in rows if "effective_draw" in row]
    right.loglog([row["columns"] for row in known], [1e3 * row["effective_draw"] for row in known], "o-")
    right.set(xlabel="columns", ylabel="ms", title="time per effective draw")
    for axis in (left, right):
        axis.set_xticks([row["columns"] for row in rows], [f"{row['columns']:.0f}" for row in rows])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    figure.savefig(DOCS / "fit_speed.png", dpi=150)
