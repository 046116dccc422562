"""The figures of docs/experiments.md; every one shows the non-private posterior, or distances to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from scipy.stats import gaussian_kde

from paper.lines import METHODS, Line, Study, by_repetition, mean_ks, standard_error

COLOURS = {
    "non_private": "#222222",
    "dpglm": "#1f6f8b",
    "staged": "#6a994e",
    "paper_blocks": "#7b5ea7",
    "taylor": "#c1502e",
    "naive": "#b08900",
    "dp_sgld": "#d1495b",
}
MARKS = {"dpglm": "o", "staged": "D", "paper_blocks": "s", "taylor": "^", "naive": "v", "dp_sgld": "X"}
SPREAD = 4.0  # how many of dpglm's standard deviations a panel shows
DOTS = 130


def draw_all(study: Study, folder: Path) -> list[str]:
    """Every figure whose experiment was run; returns the names of those drawn."""
    drawn = []
    for name, draw in FIGURES.items():
        if study.of(name):
            figure = draw(study)
            figure.savefig(folder / f"experiments_{name}.png", dpi=DOTS)
            plt.close(figure)
            drawn.append(name)
    return drawn


def _posteriors(study: Study, experiment: str, epsilons: list[float], columns: int) -> Any:
    """Densities of every coefficient: no privacy, dpglm, DP-SGLD; the first release of each epsilon."""
    rows = study.one(experiment, "non_private")
    assert rows is not None
    names = rows["names"]
    lines_of_panels = -(-len(names) // columns)
    figure, axes = plt.subplots(
        lines_of_panels * len(epsilons), columns, figsize=(2.6 * columns, 2.15 * lines_of_panels * len(epsilons) + 0.5),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for place, epsilon in enumerate(epsilons):
        methods = [m for m in ("dpglm", "staged", "dp_sgld") if study.one(experiment, m, epsilon=epsilon)]
        found = {m: study.one(experiment, m, epsilon=epsilon) for m in methods}
        for number, name in enumerate(names):
            axis = axes[place * lines_of_panels + number // columns][number % columns]
            _densities(axis, {"non_private": rows, **found}, number)
            axis.set_title(f"{name}, ε = {epsilon:g}", fontsize=9)
        for number in range(len(names), lines_of_panels * columns):
            axes[place * lines_of_panels + number // columns][number % columns].set_axis_off()
    _legend(figure, [m for m in ("non_private", "dpglm", "staged", "dp_sgld") if study.of(experiment, m)])
    return figure


def _densities(axis: Any, lines: dict[str, Line | None], number: int) -> None:
    ours = np.array(lines["dpglm"]["shown"])[:, number]  # type: ignore[index]
    theirs = np.array(lines["non_private"]["shown"])[:, number]  # type: ignore[index]
    middle, width = np.median(theirs), max(ours.std(), theirs.std())
    low = min(theirs.min(), middle - SPREAD / 2 * width, np.median(ours) - SPREAD / 2 * width)
    high = max(theirs.max(), middle + SPREAD / 2 * width, np.median(ours) + SPREAD / 2 * width)
    points = np.linspace(low, high, 400)
    for method, line in lines.items():
        if line is None:
            continue
        values = np.array(line["shown"])[1:-1, number]
        density = gaussian_kde(values)(points)
        density /= density.max()  # heights of very different widths cannot share an axis
        axis.plot(points, density, color=COLOURS[method], linewidth=1.6, linestyle="--" if method == "dp_sgld" else "-")
        if method == "non_private":
            axis.fill_between(points, density, color=COLOURS[method], alpha=0.15)
    axis.axvline(0, color="#999999", linewidth=0.6)
    axis.set(yticks=[], ylim=(0, 1.08), xlim=(low, high))
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right", "left"]].set_visible(False)


def _distribution_functions(study: Study, experiment: str, truth: tuple[float, ...], reach: float) -> Any:
    """One line of panels a coefficient: distribution functions at four epsilons, and distances over epsilon."""
    rows = study.one(experiment, "non_private")
    assert rows is not None
    epsilons = [line["epsilon"] for line in study.of(experiment, "dpglm")]
    shown = [epsilons[place] for place in np.linspace(0, len(epsilons) - 1, 4).round().astype(int)]
    names = rows["names"]
    figure, axes = plt.subplots(len(names), 5, figsize=(13, 2.25 * len(names) + 0.5), layout="constrained")
    levels = np.linspace(0, 1, len(rows["shown"]))
    for number, name in enumerate(names):
        for place, epsilon in enumerate(shown):
            axis = axes[number][place]
            for method in ("non_private", "dpglm", "staged", "dp_sgld"):
                line = rows if method == "non_private" else study.one(experiment, method, epsilon=epsilon)
                if line is not None:
                    style = "--" if method == "dp_sgld" else "-"
                    values = np.array(line["shown"])[:, number]
                    axis.plot(values, levels, style, color=COLOURS[method], linewidth=1.6)
            axis.axvline(truth[number], color="#999999", linewidth=0.8, linestyle=":")
            axis.set(xlim=(-reach, reach), ylim=(0, 1))
            if number == 0:
                axis.set_title(f"ε = {epsilon:g}", fontsize=10)
            if place == 0:
                axis.set_ylabel(f"{name}\ndistribution function", fontsize=9)
            if number == len(names) - 1:
                axis.set_xlabel("coefficient", fontsize=9)
            _tidy(axis)
        _distances(axes[number][4], study, experiment, number)
        if number == 0:
            axes[number][4].set_title("KS to non-private", fontsize=10)
    axes[-1][4].set_xlabel("ε", fontsize=9)
    _legend(figure, ["non_private", *[m for m in MARKS if study.of(experiment, m)]])
    return figure


def _distances(axis: Any, study: Study, experiment: str, number: int) -> None:
    for method in MARKS:
        lines = study.of(experiment, method)
        if lines:
            each = [np.array(line["ks"])[:, number] for line in lines]
            axis.errorbar(
                [line["epsilon"] for line in lines], [values.mean() for values in each],
                [standard_error(values) for values in each], color=COLOURS[method], marker=MARKS[method], markersize=4,
                linewidth=1.1, linestyle="--" if method == "dp_sgld" else "-",
            )  # fmt: skip
    axis.set(ylim=(0, 1))
    _tidy(axis)


def _limit(study: Study) -> Any:
    """Distances over the norm of the slopes, and one coefficient where the series has broken."""
    epsilons, norms = study.values("limit", "epsilon"), study.values("limit", "norm")
    figure, axes = plt.subplots(1, len(epsilons) + 1, figsize=(4.2 * (len(epsilons) + 1), 3.8), layout="constrained")
    for axis, epsilon in zip(axes, epsilons, strict=False):
        for method in ("dpglm", "staged", "taylor"):
            lines = sorted(study.of("limit", method, epsilon=epsilon), key=lambda line: line["norm"])
            axis.errorbar(
                [line["norm"] for line in lines], [mean_ks(line) for line in lines],
                [standard_error(by_repetition(line)) for line in lines], color=COLOURS[method], marker=MARKS[method],
            )  # fmt: skip
        axis.axvline(3, color="#999999", linewidth=0.8, linestyle=":")
        axis.set(
            title=f"ε = {epsilon:g}", xlabel="‖θ‖", ylabel="KS to non-private, mean over coefficients", ylim=(0, 1.02)
        )
        _tidy(axis)
    norm = norms[-3]
    panel = axes[-1]
    rows = study.one("limit", "non_private", norm=norm)
    for method in ("non_private", "dpglm", "staged", "taylor"):
        line = rows if method == "non_private" else study.one("limit", method, epsilon=epsilons[0], norm=norm)
        if line is not None:
            values = np.array(line["shown"])[1:-1, 0]
            points = np.linspace(values.min() - 1, values.max() + 1, 400)
            density = gaussian_kde(values)(points)
            panel.plot(points, density / density.max(), color=COLOURS[method], linewidth=1.6)
    panel.set(title=f"x1 at ‖θ‖ = {norm:g}, ε = {epsilons[0]:g}", xlabel="coefficient", yticks=[], ylim=(0, 1.08))
    _tidy(panel)
    _legend(figure, ["non_private", *[m for m in ("dpglm", "staged", "taylor") if study.of("limit", m)]])
    return figure


def _significance(study: Study) -> Any:
    """Power and error rate over epsilon, one line a number of rows; without privacy as dashed levels."""
    sizes = study.values("significance", "rows")
    slopes = study.of("significance")[0]["slopes"]
    figure, axes = plt.subplots(1, len(slopes) - 1, figsize=(3.2 * (len(slopes) - 1), 3.6), layout="constrained")
    shades = dict(zip(sizes, ("#9ecae1", "#4292c6", "#08519c"), strict=False))
    panels = [(0.0, [n for n, s in enumerate(slopes) if s == 0])]
    panels += [(slope, [n]) for n, slope in enumerate(slopes) if slope != 0]
    for axis, (slope, places) in zip(axes, panels, strict=True):
        for rows in sizes:
            plain = study.one("significance", "non_private", rows=rows)
            axis.axhline(100 * _share(plain, places), color=shades[rows], linewidth=1, linestyle="--")
            for method, style in (("dpglm", "o:"), ("staged", "D-")):
                lines = study.of("significance", method, rows=rows)
                share = [100 * _share(line, places) for line in lines]
                axis.plot([line["epsilon"] for line in lines], share, style, color=shades[rows], markersize=4)
        title = "error rate: slopes of 0" if slope == 0 else f"power: slope {slope:g}"
        axis.set(title=title, xscale="log", xlabel="ε", ylim=(-3, 103 if slope else 30))
        axis.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
        axis.minorticks_off()
        _tidy(axis)
    axes[0].axhline(5, color="#999999", linewidth=0.6)
    axes[0].set_ylabel("intervals that exclude 0 (%)")
    handles = [plt.Line2D([], [], color=shades[rows], linewidth=3, label=f"N = {rows:,}") for rows in sizes]
    handles += [plt.Line2D([], [], color="#555555", linestyle="--", label="non-private"),
                plt.Line2D([], [], color="#555555", marker="o", linestyle=":", label="dpglm, one stage"),
                plt.Line2D([], [], color="#555555", marker="D", label="dpglm, staged")]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


def _share(line: Line | None, places: list[int]) -> float:
    return float("nan") if line is None else float(np.array(line["excludes_zero"])[:, places].mean())


def _tidy(axis: Any) -> None:
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any, methods: list[str]) -> None:
    handles = [
        plt.Line2D([], [], color=COLOURS[m], marker=MARKS.get(m, ""), markersize=4, linewidth=1.6,
                   linestyle="--" if m == "dp_sgld" else "-", label=METHODS[m]) for m in methods
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)


FIGURES = {
    "diabetes": lambda study: _posteriors(study, "diabetes", [0.1, 0.3], 5),
    "adult": lambda study: _posteriors(study, "adult", [0.1, 1.0], 4),
    "synthetic": lambda study: _distribution_functions(study, "synthetic", (-0.9, -0.5, 0.3), 2),
    "counts": lambda study: _distribution_functions(study, "counts", (0.3, -0.6, 0.8), 4),
    "limit": _limit,
    "significance": _significance,
}
