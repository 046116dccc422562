"""Widths by promise: a row that is added or removed at epsilon 1, beside one that is replaced at 1 and at 2.

    python benchmarks/promises.py [REPETITIONS] [TABLE ...]     results/promises.json and the page; some ten minutes

Tables are drawn with replacement from those of ``real_tables``, if they have half as many rows. Widths hardly vary from
table to table, but of counts, which need more repetitions.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.protection import ADDED_OR_REMOVED, REPLACED
from machine import RESULTS, save
from real_tables import LOADERS, frame_of, maximum_likelihood, rows_of
from seeded_noise import SeededNoise

SEED, DELTA, REPETITIONS, SIZES = 20_251_121, 1e-5, 5, (10_000, 40_000)
PROMISES = ((REPLACED, 1.0), (ADDED_OR_REMOVED, 1.0), (REPLACED, 2.0))
FOLDER = Path(__file__).parents[2] / "shared" / "data"
SECTION = f"""## The two promises

Posterior standard deviation over the standard error of the same table without privacy, median of coefficients and of tables drawn from a whole one; δ = {DELTA:g} (`benchmarks/promises.py`).
*ratio* is of added or removed at 1 to replaced at 2.

| table | family | rows | tables | replaced, ε = 1 | added or removed, ε = 1 | replaced, ε = 2 | ratio |
|---|---|---|---|---|---|---|---|
(lines)

(summary)
Counts are the exception: there widths vary from release to release.
The survey gains nothing from the other promise: a count of rows changes by one, whether a row is replaced or added.
What the two promise is compared on the page about [a private number of rows](private_n.md).
"""  # noqa: E501 -- one sentence a line


def widths(name: str, rows: int, repetitions: int) -> dict[str, Any] | None:
    """Of one table and size: by promise, the median width of each coefficient."""
    loaded = frame_of(LOADERS[name], FOLDER)
    if loaded is None or len(loaded[0]) < rows / 2:
        return None
    frame, columns, formula, family = loaded
    x, y = rows_of(frame, columns, formula)
    found: dict[tuple[str, float], list[Any]] = {promise: [] for promise in PROMISES}
    for number in range(repetitions):
        key = [SEED, list(LOADERS).index(name), rows, number]
        chosen = np.random.default_rng(key).integers(0, len(y), rows)
        _, _, sandwich = maximum_likelihood(family, x[chosen], y[chosen])
        drawn = frame.iloc[chosen].reset_index(drop=True)
        for neighbours, epsilon in PROMISES:
            dataset: dict[str, Any] = {"name": name, "neighbours": neighbours}
            schema = {"dataset": dataset | ({"rows": rows} if neighbours == REPLACED else {}), "columns": columns}
            noise = SeededNoise(np.random.default_rng([*key, int(epsilon), neighbours == REPLACED]))
            made = build_release(drawn, Request(formula, schema, family, epsilon, DELTA), noise)
            with warnings.catch_warnings(action="ignore"):
                summary = dpglm.fit(made, seed=1).summary()
            found[neighbours, epsilon].append(summary["sd"].to_numpy() / np.sqrt(np.diag(sandwich)))
    return {
        "table": name, "family": family, "rows": rows, "repetitions": repetitions,
        "widths": [np.median(found[promise], axis=0).round(4).tolist() for promise in PROMISES],
    }  # fmt: skip


def section() -> str:
    """Of the page on who counts: what is stored."""
    results, lines = stored(), []
    middles = np.array([[np.median(values) for values in each["widths"]] for each in results])
    for each, (one, added, two) in zip(results, middles.tolist(), strict=True):
        words = f"{each['table']} | {each['family']} | {each['rows']:,} | {each['repetitions']}"
        lines.append(f"| {words} | {one:.2f} | {added:.2f} | {two:.2f} | {added / two:.2f} |")
    one, added, two = (f"{low:.2f} to {high:.2f}" for low, high in zip(middles.min(0), middles.max(0), strict=True))
    middle, ratios = np.median(middles, axis=0), middles[:, 1] / middles[:, 2]
    summary = (
        f"Added or removed at 1 is {added} times as wide as without privacy (median {middle[1]:.2f}), replaced at 1"
        f" {one} ({middle[0]:.2f}) and at 2 {two} ({middle[2]:.2f}); the ratio is within 10 % of 1 in"
        f" {np.sum(np.abs(ratios - 1) < 0.1)} of {len(ratios)} cells."
    )
    return SECTION.replace("(lines)", "\n".join(lines)).replace("(summary)", summary)


def stored() -> list[dict[str, Any]]:
    """Results of earlier runs."""
    return list(json.loads((RESULTS / "promises.json").read_text(encoding="utf-8"))["results"])


def main() -> None:
    """Run tables that are there; keep what is stored of others."""
    from people import write_page

    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else REPETITIONS
    results = {}
    if (RESULTS / "promises.json").exists():
        results = {(each["table"], each["rows"]): each for each in stored()}
    for name in sys.argv[2:] or LOADERS:
        for rows in SIZES:
            made = widths(name, rows, repetitions)
            if made is not None:
                print(json.dumps(made), file=sys.stderr)
                results[name, rows] = made
    order = [(name, rows) for name in LOADERS for rows in SIZES if (name, rows) in results]
    save("promises", [results[key] for key in order])
    write_page()


if __name__ == "__main__":
    main()
