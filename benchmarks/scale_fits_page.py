"""The analyst's half of docs/scale.md and its picture, from the results of scale_fits.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fit_speed_page import paragraph, table

DOCS = Path(__file__).parent.parent / "docs"
LARGEST_POWER, FIRST_COLUMNS = 3.3, 20
SECONDS, LEAST_ESS, LARGEST_R_HAT, LEAST_SPEEDUP = 120, 400, 1.01, 10
MANY_HEADINGS = [
    "device", "fits", "draws a chain", "seconds", "ms a fit", "loop, ms a fit", "commands, ms a fit", "largest R-hat",
    "R-hat ≥ 1.01",
]  # fmt: skip
NAMES = {"cpu": "processor", "gpu": "GPU"}


def said(holds: bool) -> str:
    return "yes" if holds else "**no**"


def fits_section(results: dict[str, Any], where: dict[str, Any]) -> list[str]:
    machines = "; ".join(
        f"{NAMES[device]}: {facts['processor']}, {facts['cores']} cores{', one H200' * (device == 'gpu')}"
        for device, facts in where.items()
    )
    lines = [
        "## Fits",
        "",
        paragraph(f"""
            Simulated logistic releases (`benchmarks/scale_fits.py`; seeds and versions in
            `benchmarks/results/scale_fits.json`; {machines}). The gradients were timed beside
            other work.
        """),
    ]
    if "gradient" in results.get("cpu", {}):
        lines += gradient(results["cpu"]["gradient"])
    lines += wide(results) + many(results)
    if all("same" in results.get(device, {}) for device in NAMES):
        lines += same(results)
    return lines


def gradient(rows: list[dict[str, float]]) -> list[str]:
    large = [row for row in rows if row["columns"] >= FIRST_COLUMNS]
    power = np.polyfit(np.log([row["columns"] for row in large]), np.log([row["structured"] for row in large]), 1)[0]
    cells = [
        [f"{row['columns']}", f"{1e3 * row['structured']:.3g}", f"{1e3 * row['dense']:.3g}" if "dense" in row else "–"]
        for row in rows
    ]
    _picture(rows)
    return [
        "",
        "### Value and gradient of the log density",
        "",
        paragraph("One point, the fastest of several calls, with an intercept. A dash is not measured: it takes long."),
        *table(["columns", "structured, ms", "dense, ms"], cells),
        paragraph(f"""
            From {FIRST_COLUMNS} to {rows[-1]["columns"]} columns the cost grows as their number to the power
            {power:.2f} (at most {LARGEST_POWER} wanted: {said(power <= LARGEST_POWER)}).
        """),
        "",
        "![cost by the number of columns](scale_gradient.png)",
    ]


def _picture(rows: list[dict[str, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    for name, label in (("structured", "dpglm"), ("dense", "dense covariance of all statistics")):
        known = [row for row in rows if name in row]
        axis.loglog([row["columns"] for row in known], [1e3 * row[name] for row in known], "o-", label=label)
    last = rows[-1]
    columns = np.array([FIRST_COLUMNS, last["columns"]])
    cube = 1e3 * last["structured"] * (columns / last["columns"]) ** 3
    axis.loglog(columns, cube, "--", color="grey", label="third power")
    axis.set(xlabel="columns", ylabel="ms", title="value and gradient of the log density")
    axis.set_xticks([row["columns"] for row in rows], [f"{row['columns']:.0f}" for row in rows])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.72), fontsize=8)
    figure.savefig(DOCS / "scale_gradient.png", dpi=150)
    plt.close(figure)


def wide(results: dict[str, Any]) -> list[str]:
    rows = []
    for device, parts in results.items():
        for facts in (parts[part] for part in ("wide", "widest") if part in parts):
            rows.append(
                [NAMES[device], str(facts["columns"]), f"{facts['rows']:,}", f"{facts['draws']:,}",
                 f"{facts['seconds']:.0f}", f"{facts['ess_bulk']:.0f}", f"{facts['r_hat']:.4f}",
                 str(facts["divergences"])]
            )  # fmt: skip
    if not rows:
        return []
    lines = [
        "",
        "### Many columns",
        "",
        paragraph("""
            One release at epsilon 1, one fit: mode, 4 chains, compilation included. Effective draws and R-hat are those
            of the worst coefficient. No matrix of the size of all statistics by itself is formed in the likelihood; the
            whitening of the chains is a square matrix of the free parameters, half as many as columns squared.
        """),
        *table(
            ["device", "columns", "rows", "draws a chain", "seconds", "effective draws", "R-hat", "divergent"], rows
        ),
    ]
    facts = results.get("gpu", {}).get("wide")
    if facts:
        holds = (
            facts["seconds"] < SECONDS and facts["ess_bulk"] > LEAST_ESS and facts["r_hat"] < LARGEST_R_HAT
        )  # fmt: skip
        lines.append(
            f"50 columns on the GPU in under two minutes, with R-hat below 1.01 and 400 effective draws: {said(holds)}."
        )
    return lines


def many(results: dict[str, Any]) -> list[str]:
    rows = []
    for device, parts in results.items():
        if "many" in parts:
            facts = parts["many"]
            each = facts.get("warm_seconds", facts["seconds"]) / facts["fits"]
            alone, command = facts["one_by_one_seconds"], facts.get("command_seconds")
            rows.append(
                [NAMES[device], f"{facts['fits']:,}", f"{facts['draws']:,}", f"{facts['seconds']:.0f}",
                 f"{1e3 * each:.0f}",
                 f"{1e3 * alone:.0f} ({alone / each:.1f} x)",
                 f"{1e3 * command:.0f} ({command / each:.1f} x)" if command else "–",
                 f"{facts['r_hat']:.4f}", str(facts["r_hat_above"])]
            )  # fmt: skip
    if not rows:
        return []
    return [
        "",
        "### Many fits",
        "",
        paragraph(f"""
            `dpglm.fit_many`: 5 columns and an intercept, 4 chains. Seconds include compilation (for the GPU on two
            cores, beside other work); milliseconds a fit do not: a batch with a warm program. Beside it one by one:
            `dpglm.fit` in a loop with a warm program, and the command `dpglm fit` with a warm cache. On the processor
            the best of three each. Wanted: 1,000 fits on the GPU in under {SECONDS} s; on two cores {LEAST_SPEEDUP}
            times the rate of one by one.
        """),
        *table(
            MANY_HEADINGS,
            rows,
        ),
    ]


def same(results: dict[str, Any]) -> list[str]:
    one, other = (results[device]["same"] for device in NAMES)
    mean, sd = (np.array([each[name] for each in (one, other)]) for name in ("mean", "sd"))
    error = np.sqrt(np.sum(1 / np.array([one["ess"], other["ess"]]), axis=0))
    apart = np.abs(mean[0] - mean[1]) / (sd[0] * error)
    rms = np.sqrt(np.mean(apart**2))
    return [
        "",
        "### The same answer on both",
        "",
        paragraph(f"""
            Ten fits with the same seed on processor and GPU: means differ by {rms:.2f} Monte Carlo
            standard errors (root mean square over {apart.size} coefficients; {apart.max():.1f} at most), standard
            deviations by {100 * np.abs(sd[0] / sd[1] - 1).max():.1f} % at most. Single precision is refused.
        """),
    ]
