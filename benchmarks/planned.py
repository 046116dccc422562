"""Planned over realised widths, where rows do not count, are weighted, or belong to people with several.

A plan is told what is true of a simulated table (``people``): how many rows count, the design effect of the weights,
how many rows people have and how alike these are. Releases of such tables then are as wide as they are.

    python benchmarks/planned.py [TABLES] [CELL ...]     results/planned.json and the page; ten minutes on one core
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpglm
from dpglm.custodian.build import Request, build_release
from machine import RESULTS, save
from seeded_noise import SeededNoise

SEED, TABLES, EPSILONS, DELTA = 20_251_122, 5, (0.5, 1.0, 2.0, 5.0), 1e-6
SECTION = """## Planned and realised

What `dpglm plan` expected of such tables, told what is true of them, over the median width of (tables) releases, mean of the two slopes (`benchmarks/planned.py`).
Below 1 releases were wider than planned.

| table | family | (epsilons) |
|---|---|(dashes)|
(lines)

Plans assume tails as real tables have them, which these have not, and are rather too wide at large ε.
At ε = 0.5 they are too narrow, by a fifth where people have several rows and by a third where those count: a plan follows looks without noise, which hit what they aim at.
"""  # noqa: E501 -- one sentence a line


def truths(cell: Any, table: pd.DataFrame) -> dict[str, Any]:
    """What a plan is told of a table."""
    from people import SLOPES

    counts = table[["y", "x", "z"]].notna().all(axis=1)
    y = table["y"][counts]
    values = (y == "yes").astype(float) if cell.family == "logistic" else y.astype(float)
    weights = table["w"] if "w" in table else pd.Series(1.0, index=table.index)
    mean = float(np.average(values, weights=weights[counts]))
    said: dict[str, Any] = {"complete": float(counts.mean()), "spreads": {"x": 1.0, "z": 1.0}}
    stddev = float(np.sqrt(np.average((values - mean) ** 2, weights=weights[counts])))
    said["strength"] = float(np.hypot(*SLOPES)) / (stddev if cell.family == "linear" else 1.0)
    if cell.family == "linear":
        said["spreads"]["y"] = stddev
    else:
        said["outcome"] = mean
    if cell.family == "poisson":
        said["dispersion"] = 1.02
    if "w" in table:
        said |= {"weights": "w", "design_effect": float((weights**2).mean() / weights.mean() ** 2)}
    if "person" in table:
        said["rows_per_unit"] = len(table) / table["person"].nunique()
        said["likeness"] = {"y": likeness(cell.family, table, values), "x": 0.5}
    return said


def likeness(family: str, table: pd.DataFrame, values: pd.Series) -> float:
    """The correlation of what predictors leave, of two rows of one person."""
    from people import predictor

    u = predictor(family, table["x"].to_numpy(), table["z"].to_numpy())
    mean = 1 / (1 + np.exp(-u)) if family == "logistic" else np.exp(u) if family == "poisson" else u
    variance = mean * (1 - mean) if family == "logistic" else mean if family == "poisson" else np.full(len(u), 2.25)
    residual = pd.Series((values.to_numpy() - mean) / np.sqrt(variance))
    by_person = residual.groupby(table["person"].to_numpy())
    sums, sizes = by_person.sum(), by_person.size()
    return float(((sums**2).sum() - (residual**2).sum()) / (sizes * (sizes - 1)).sum())


def measured(cell: Any, tables: int) -> dict[str, Any]:
    """One kind of table at every budget."""
    from people import COLUMNS, OUTCOMES

    drawn = [cell.draw(np.random.default_rng([SEED, number]), cell.family) for number in range(tables)]
    said, found = truths(cell, drawn[0]), []
    for place, epsilon in enumerate(EPSILONS):
        widths = []
        for number, table in enumerate(drawn):
            declared = cell.dataset or {"rows": len(table)}
            columns = {"y": OUTCOMES[cell.family]} | {name: COLUMNS[name] for name in table if name in COLUMNS}
            schema = dpglm.Schema.from_dict({"dataset": {"name": "simulated", **declared}, "columns": columns})
            request = Request("y ~ x + z", schema, cell.family, epsilon, DELTA, **cell.options)
            noise = SeededNoise(np.random.default_rng([SEED, number, place]))
            with warnings.catch_warnings(action="ignore"):
                summary = dpglm.fit(build_release(table, request, noise), seed=1).summary()
            widths.append(1.959964 * summary["sd"].to_numpy()[1:])
        rows = schema.dataset.size or len(drawn[0])
        made = dpglm.plan(
            "y ~ x + z", schema=schema, family=cell.family, epsilon=epsilon, delta=DELTA, rows=rows, **said
        )
        planned = np.array([each.original for each in made.cases[0].coefficients])
        found.append(float(np.exp(np.mean(np.log(planned / np.median(widths, axis=0))))))
    return {"cell": cell.name, "family": cell.family, "tables": tables, "ratios": [round(each, 3) for each in found]}


def section() -> str:
    """Of the page on who counts: what is stored."""
    results = stored()
    lines = [
        f"| {each['cell']} | {each['family']} | {' | '.join(f'{ratio:.2f}' for ratio in each['ratios'])} |"
        for each in results
    ]
    text = SECTION.replace("(lines)", "\n".join(lines)).replace("(tables)", str(results[0]["tables"]))
    text = text.replace("(epsilons)", " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS))
    return text.replace("(dashes)", "|".join(["---"] * len(EPSILONS)))


def stored() -> list[dict[str, Any]]:
    """Results of earlier runs."""
    return list(json.loads((RESULTS / "planned.json").read_text(encoding="utf-8"))["results"])


def main() -> None:
    """Run cells; keep what is stored of others."""
    from people import CELLS, write_page

    tables = int(sys.argv[1]) if len(sys.argv) > 1 else TABLES
    results = {}
    if (RESULTS / "planned.json").exists():
        results = {(each["cell"], each["family"]): each for each in stored()}
    for cell in CELLS:
        if sys.argv[2:] and not any(part in f"{cell.name} {cell.family}" for part in sys.argv[2:]):
            continue
        results[cell.name, cell.family] = measured(cell, tables)
        print(json.dumps(results[cell.name, cell.family]), file=sys.stderr)
    save("planned", [results[key] for cell in CELLS if (key := (cell.name, cell.family)) in results])
    write_page()


if __name__ == "__main__":
    main()
