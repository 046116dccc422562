"""Writes docs/real.md and docs/real.png from the finished cells of real.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

from machine import RESULTS

DOCS = Path(__file__).parent.parent / "docs"
HEADER = """# Real tables

Written by `python benchmarks/real_page.py` from the cells of `make bench-real`. Do not edit.

![Coverage and width](real.png)

**How.** Tables of N rows are drawn, with replacement, from a full table, whose own estimate (ordinary maximum
likelihood, least squares) is the population value. Each becomes a release (δ = 1e-5, `stages="auto"`) by the
custodian's code, with noise from a seeded generator. Posteriors are Laplace approximations, or NUTS where the table
says so; where the Pareto k of a Laplace approximation is above 0.7 it tends to be too narrow, and NUTS is the one to
believe.

**Columns.** cover: share of 95 % intervals that contain the population value, over all coefficients; worst: that of
the worst coefficient; plain: the same for the non-private estimate with sandwich errors. sd: posterior standard
deviation, over the one without privacy. rmse: root mean square difference of the posterior mean from the table's own
estimate, in the same unit. own: coverage of the table's own estimate by `target="table"`. A coverage of the worst
coefficient is a share of {repetitions} tables only: one standard error is 3 points at 95 %.

"""


def read(path: Path) -> list[dict[str, Any]]:
    """The last result of each cell."""
    cells = {}
    for line in path.read_text().splitlines():
        if line.strip():
            cell = json.loads(line)
            key = tuple(cell[name] for name in ("table", "rows", "epsilon", "stages", "method"))
            cells[key] = cell
    return list(cells.values())


def pooled(cells: list[dict[str, Any]]) -> float:
    return float(np.mean(np.concatenate([cell["cover"] for cell in cells])))


def page(cells: list[dict[str, Any]]) -> str:
    chosen = best(cells)
    lines = [HEADER.format(repetitions=chosen[0]["repetitions"]), "## In short\n"]
    lines.append(f"* {len(chosen)} cells under the rule; {100 * pooled(chosen):.1f} % of 95 % intervals cover, pooled.")
    tables = sorted({cell["table"] for cell in chosen})
    by_table = {name: pooled([cell for cell in chosen if cell["table"] == name]) for name in tables}
    worst = min(by_table, key=lambda name: by_table[name])
    lines.append(f"* By table: {', '.join(f'{name} {100 * share:.1f}' for name, share in by_table.items())}.")
    lines.append(f"* Lowest table: {worst}, {100 * by_table[worst]:.1f} %.")
    low = [cell for cell in chosen if min(cell["cover"]) < 0.8]
    if low:
        where = "; ".join(f"{cell['table']}, N = {cell['rows']:,}, ε = {cell['epsilon']:g}" for cell in low)
        lines.append(f"* Cells with a coefficient below 80 %: {where}.")
    else:
        lines.append("* No coefficient of any cell is below 80 %.")
    lines += sharpness(chosen) + beside_fixed(cells)
    lines += ["", "## Cells", "", "Under the rule.", ""]
    lines.append("| table | N | ε | stages | method | plain | cover | worst | own | sd | rmse | Pareto k |")
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|---|")
    order = sorted(cells, key=lambda cell: (cell["family"], cell["table"], cell["rows"], cell["epsilon"],
                                            cell["method"]))  # fmt: skip
    for cell in order:
        if cell["stages"] != "auto":
            continue
        own = f"{100 * np.mean(cell['table_cover']):.1f}" if "table_cover" in cell else ""
        k = f"{cell['pareto_k']:.2f}" if "pareto_k" in cell else ""
        stages = f"auto: {cell['stages_used']}" if cell["stages"] == "auto" else str(cell["stages"])
        lines.append(
            f"| {cell['table']} | {cell['rows']:,} | {cell['epsilon']:g} | {stages} | {cell['method']}"
            f" | {100 * np.mean(cell['plain_cover']):.1f} | {100 * np.mean(cell['cover']):.1f}"
            f" | {100 * min(cell['cover']):.0f} | {own} | {np.mean(cell['sd']):.2f}"
            f" | {np.sqrt(np.mean(np.square(cell['rmse']))):.2f} | {k} |"
        )
    lines += objective(chosen)
    limit = DOCS / "real_limit.png"
    if limit.exists():
        lines += ["", "## The limit", "", "![Distance to the non-private posterior](real_limit.png)", ""]
        lines.append(
            "Simulated logistic table, misspecified; Kolmogorov–Smirnov distance of each coefficient's posterior to the"
            " non-private one, mean over coefficients and samples (`benchmarks/real_limit.py`). Draws alone give 0.01."
        )
    machines = ", ".join(sorted({cell["machine"] for cell in cells}))
    usual = min(cell["repetitions"] for cell in cells)
    more = sorted({(c["table"], c["rows"], c["epsilon"], c["repetitions"]) for c in cells if c["repetitions"] > usual})
    told = "".join(f", {r} for {t}, N = {n:,}, ε = {e:g} by NUTS" for t, n, e, r in more)
    lines += ["", f"Machine: {machines}. Seed 20261115, {usual} tables a cell{told}.", ""]
    return "\n".join(lines)


def sharpness(chosen: list[dict[str, Any]]) -> list[str]:
    """Width of logistic posteriors on the largest tables."""
    lines = []
    for epsilon in (1.0, 10.0):
        large = [cell for cell in chosen
                 if cell["family"] == "logistic" and cell["rows"] == 40_000 and cell["epsilon"] == epsilon]  # fmt: skip
        widths = ", ".join(f"{cell['table']} {np.mean(cell['sd']):.3f}" for cell in large)
        lines.append(f"* Logistic, N = 40,000, ε = {epsilon:g}: width over the one without privacy {widths}.")
    return lines


def covers(cell: dict[str, Any]) -> bool:
    """Pooled coverage not below 95 % by more than chance (two-sided 95 %, binomial), and no coefficient below 80 %."""
    intervals = cell["repetitions"] * len(cell["cover"])
    return bool(np.mean(cell["cover"]) >= 0.95 - 1.96 * np.sqrt(0.0475 / intervals) and min(cell["cover"]) >= 0.8)


def beside_fixed(cells: list[dict[str, Any]]) -> list[str]:
    """The rule beside fixed numbers of stages on the same tables: by NUTS where one and three stages were sampled."""
    by_key = {(cell["table"], cell["rows"], cell["epsilon"], cell["method"], cell["stages"]): cell for cell in cells}
    rows, ratios, none = [], {}, []
    for key in sorted({key[:3] for key in by_key}):
        method = "nuts" if all((*key, "nuts", number) in by_key for number in (1, 3)) else "laplace"
        auto = by_key.get((*key, "laplace", "auto"))
        fixed = {number: by_key[*key, method, number] for number in (1, 2, 3) if (*key, method, number) in by_key}
        if auto is None or len(fixed) < 2:
            continue
        auto = fixed[auto["stages_used"]]
        width = float(np.mean(auto["sd"]))
        narrowest = min((float(np.mean(cell["sd"])) for cell in fixed.values() if covers(cell)), default=None)
        name = f"{key[0]}, N = {key[1]:,}, ε = {key[2]:g}"
        if narrowest is None:
            none.append(name)
        else:
            ratios[name] = width / narrowest
        entries = [_fixed_entry(fixed.get(number)) for number in (1, 2, 3)]
        ratio = "" if narrowest is None else f"{width / narrowest:.2f}"
        by = {"nuts": "NUTS", "laplace": ""}[method]
        choice = f"{auto['stages_used']} | {ratio} | {by} |"
        rows.append(f"| {key[0]} | {key[1]:,} | {key[2]:g} | {' | '.join(entries)} | {choice}")
    wide = sorted((ratio, name) for name, ratio in ratios.items() if ratio > 1.15)[::-1]
    lines = ["", "## Beside fixed numbers of stages", ""]
    lines.append(
        "Width (coverage, that of the worst coefficient) with 1, 2 and 3 stages, which the rule chose, and its width"
        " over the narrowest of those that cover. A cell *covers* (bold) if its pooled coverage is not below 95 % by"
        " more than chance (binomial, 95 %) and no coefficient is below 80 %. Laplace approximations, except where one"
        " and three stages were sampled by NUTS: at a small signal those of one stage are several times too narrow.\n"
    )
    within = len(ratios) - len(wide)
    lines.append(
        f"* In {within} of {len(ratios)} cells the rule is at most 1.15 times as wide as the narrowest that covers."
    )
    if wide:
        lines.append(f"* Wider: {'; '.join(f'{name} ({ratio:.2f})' for ratio, name in wide)}.")
    if none:
        lines.append(f"* No number of stages covers by this criterion: {'; '.join(none)}.")
    lines += [
        "",
        "| table | N | ε | 1 stage | 2 stages | 3 stages | rule | ratio | by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return lines + rows


def _fixed_entry(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    text = f"{np.mean(cell['sd']):.2f} ({100 * np.mean(cell['cover']):.0f}, {100 * min(cell['cover']):.0f})"
    return f"**{text}**" if covers(cell) else text


def objective(chosen: list[dict[str, Any]]) -> list[str]:
    """Beside diffprivlib's objective perturbation, where that was run."""
    path = RESULTS / "real_objective.json"
    if not path.exists():
        return []
    results = json.loads(path.read_text())["results"]
    theirs = {(cell["table"], cell["rows"], cell["epsilon"]): cell["rmse"] for cell in results}
    lines = ["", "## Beside objective perturbation", ""]
    lines.append(
        "diffprivlib's private logistic regression on the same samples (20 a cell): a point estimate, pure ε. Where its"
        " number is in the tens or more, a few of its fits ran away.\n"
    )
    lines += ["| table | N | ε | rmse, dpglm | rmse, objective perturbation | ratio |", "|---|---|---|---|---|---|"]
    for cell in sorted(chosen, key=lambda cell: (cell["table"], cell["rows"], cell["epsilon"])):
        other = theirs.get((cell["table"], cell["rows"], cell["epsilon"]))
        if other is not None:
            ours = float(np.sqrt(np.mean(np.square(cell["rmse"]))))
            row = f"{ours:.2f} | {other:.2f} | {other / ours:.1f} |"
            lines.append(f"| {cell['table']} | {cell['rows']:,} | {cell['epsilon']:g} | {row}")
    return lines


def best(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells under the rule; NUTS where a cell was sampled, the Laplace approximation elsewhere."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in sorted(cells, key=lambda cell: cell["method"]):  # "nuts" comes last, and wins
        if cell["stages"] == "auto":
            found[cell["table"], cell["rows"], cell["epsilon"]] = cell
    return list(found.values())


def picture(cells: list[dict[str, Any]]) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    colours = {"logistic": "#1f6f8b", "poisson": "#c1502e", "linear": "#6a994e"}
    marks = {2_000: "o", 10_000: "s", 40_000: "D"}
    for cell in best(cells):
        style = {"color": colours[cell["family"]], "marker": marks.get(cell["rows"], "^"), "alpha": 0.8, "s": 30}
        sd = float(np.mean(cell["sd"]))
        left.scatter(cell["epsilon"] * np.exp(0.05 * np.random.default_rng(cell["rows"]).normal()),
                     100 * np.mean(cell["cover"]), **style)  # fmt: skip
        right.scatter(cell["epsilon"], sd, **style)
    left.axhspan(93, 98, color="#dddddd", zorder=0)
    left.axhline(95, color="black", linewidth=0.8, zorder=0)
    left.set(xscale="log", xlabel="ε in all", ylabel="95 % intervals that cover (%)", ylim=(80, 100))
    right.axhline(1, color="black", linewidth=0.8)
    right.set(xscale="log", yscale="log", xlabel="ε in all", ylabel="width over the non-private one")
    right.set_yticks([1, 1.2, 2, 5, 10], ["1", "1.2", "2", "5", "10"])
    for axis in (left, right):
        axis.set_xticks([0.3, 1, 3, 10], ["0.3", "1", "3", "10"])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    handles = [
        plt.Line2D([], [], color=colour, marker="o", linestyle="", label=name) for name, colour in colours.items()
    ]
    handles += [plt.Line2D([], [], color="grey", marker=mark, linestyle="", label=f"N = {rows:,}")
                for rows, mark in marks.items()]  # fmt: skip
    right.legend(handles=handles, frameon=False, fontsize=8)
    figure.savefig(DOCS / "real.png", dpi=130)


def main() -> None:
    cells = read(RESULTS / "real.jsonl")
    (DOCS / "real.md").write_text(page(cells), encoding="utf-8")
    picture(cells)


if __name__ == "__main__":
    main()
