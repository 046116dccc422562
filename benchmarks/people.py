"""Coverage where rows do not count, are weighted, or belong to people with several: simulated tables of known truth.

Each table is drawn anew from a population whose coefficients are known: intervals are right where they cover them 95
times in 100. Beside them stands what a user would have got who ignored the matter.

    python benchmarks/people.py [TABLES] [CELL ...] > benchmarks/results/people.jsonl
    python benchmarks/people.py page
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpglm
import panels
import planned
import promises
from dpglm.custodian.build import Request, build_release
from machine import machine
from seeded_noise import SeededNoise

TABLES, SEED = 100, 20_251_119
RESULTS = Path(__file__).parent / "results" / "people.jsonl"
DOCS = Path(__file__).parent.parent / "docs"
_PAGE = """# Who counts, measured

Simulated tables of known truth: how often 95 % intervals cover the population's coefficients where rows do not count, are weighted, or belong to people with several.
`benchmarks/people.py` makes it.
*cover* is of all coefficients and *worst* of the worst one; *z* is the root mean square of error over sd, 1 where intervals are calibrated.
*ignored* is what the worst coefficient gets from a release that ignores the matter: unweighted, or with rows taken for people.

| table | family | tables | cover | worst | z | ignored |
|---|---|---|---|---|---|---|
(lines)

*missing*: a third of the outcomes and a tenth of a predictor, depending on predictors; 8,000 rows, ε = 1.
*private N*: 8,000 rows, of which one may be added or removed, ε = 1.
*weights*: samples of some 10,000 of 24,000, chosen by outcome, ε = 1.
*panel*: 4,000 people with 1 to 20 rows, outcomes correlated by so much within a person, ε = 2.
Panels share their noise, table by table, so that what one row of this table has of luck others have, too: with other noise counts in panels have a z of 0.97 ± 0.08 (80 tables, correlation 0.4).

(machine)

(panels)
(promises)
(planned)"""  # noqa: E501 -- one sentence a line
SLOPES = np.array([0.5, -0.4])  # of x and of z; intercepts by family
INTERCEPTS = {"logistic": -0.7, "poisson": 0.4, "linear": 1.0}
COLUMNS: dict[str, Any] = {
    "x": {"type": "numeric", "lower": -20, "upper": 20},
    "z": {"type": "numeric", "lower": -20, "upper": 20},
    "w": {"type": "numeric", "lower": 0, "upper": 10},
}
OUTCOMES: dict[str, dict[str, Any]] = {
    "logistic": {"type": "binary", "levels": ["no", "yes"]},
    "poisson": {"type": "count", "upper": 200},
    "linear": {"type": "numeric", "lower": -100, "upper": 100},
}


@dataclass(frozen=True)
class Cell:
    """One kind of table: ``draw`` gives a table of a family; ``naive`` are the options of who ignores the matter."""

    name: str
    family: str
    dataset: dict[str, Any]
    draw: Callable[[np.random.Generator, str], pd.DataFrame]
    options: dict[str, Any]
    naive_dataset: dict[str, Any] | None
    naive_options: dict[str, Any]
    epsilon: float = 1.0


def outcome(numbers: np.random.Generator, family: str, u: np.ndarray) -> np.ndarray:
    """Outcomes with this linear predictor, independent."""
    if family == "logistic":
        return np.where(numbers.random(len(u)) < 1 / (1 + np.exp(-u)), "yes", "no").astype(object)
    return numbers.poisson(np.exp(u)) if family == "poisson" else u + numbers.normal(0, 1.5, len(u))


def predictor(family: str, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.asarray(INTERCEPTS[family] + SLOPES[0] * x + SLOPES[1] * z)


def independent(numbers: np.random.Generator, family: str, rows: int = 8_000) -> pd.DataFrame:
    x, z = numbers.normal(size=(2, rows))
    return pd.DataFrame({"y": outcome(numbers, family, predictor(family, x, z)), "x": x, "z": z})


def with_gaps(numbers: np.random.Generator, family: str) -> pd.DataFrame:
    """A third of the outcomes missing, most where x is large; a tenth of z."""
    table = independent(numbers, family).astype(object)
    table.loc[numbers.random(len(table)) < np.where(table["x"].astype(float) > 0, 0.55, 0.1), "y"] = None
    table.loc[numbers.random(len(table)) < 0.1, "z"] = None
    return table


def sampled(numbers: np.random.Generator, family: str) -> pd.DataFrame:
    """A sample in which rows with a large |u| were taken four times as often, of a population with another slope in
    each half: weights recover the population's coefficients, unweighted estimates do not.
    """
    rows = 24_000
    x, z = numbers.normal(size=(2, rows))
    table = pd.DataFrame({"y": outcome(numbers, family, predictor(family, x, z)), "x": x, "z": z})
    chosen = table["y"].eq("yes") if family == "logistic" else table["y"] > (2 if family == "poisson" else 1.5)
    chance = np.where(chosen, 0.8, 0.2)  # chosen by outcome, so that weights matter
    keep = numbers.random(rows) < chance
    return table[keep].assign(w=1 / chance[keep]).reset_index(drop=True)


def panel(numbers: np.random.Generator, family: str, likeness: float, people: int = 4_000) -> pd.DataFrame:
    """One to twenty rows a person, in any order, outcomes correlated within a person; z is the person's own.

    Outcomes are drawn by ranks that are correlated, so that each row by itself is as the regression says.
    """
    from scipy.special import ndtr
    from scipy.stats import poisson

    who = np.repeat(np.arange(people), numbers.integers(1, 21, people))
    x = math.sqrt(0.5) * (numbers.normal(size=people)[who] + numbers.normal(size=len(who)))
    z = numbers.normal(size=people)[who]
    error = math.sqrt(likeness) * numbers.normal(size=people)[who] + math.sqrt(1 - likeness) * numbers.normal(
        size=len(who)
    )
    u = predictor(family, x, z)
    if family == "logistic":
        y: Any = np.where(ndtr(error) < 1 / (1 + np.exp(-u)), "yes", "no").astype(object)
    else:
        y = poisson.ppf(ndtr(error), np.exp(u)).astype(int) if family == "poisson" else u + 1.5 * error
    table = pd.DataFrame({"y": y, "x": x, "z": z, "person": who})
    return table.iloc[numbers.permutation(len(table))].reset_index(drop=True)


CELLS: list[Cell] = []
for _family in OUTCOMES:
    _rows = {"rows": 8_000}
    CELLS.append(Cell("missing", _family, _rows, with_gaps, {}, None, {}))
    CELLS.append(Cell("private N", _family, {"neighbours": "added-or-removed"}, independent, {}, _rows, {}))
    CELLS.append(Cell("weights", _family, {}, sampled, {"weights": "w"}, {}, {}))
    for _likeness in (0.1, 0.4, 0.8):
        _people = {"unit_column": "person", "units": 4_000}
        _draw = partial(panel, likeness=_likeness)
        CELLS.append(Cell(f"panel {_likeness}", _family, _people, _draw, {}, {}, {}, epsilon=2.0))


def released(cell: Cell, table: pd.DataFrame, dataset: dict[str, Any], options: dict[str, Any], seed: int) -> Any:
    declared = dict(dataset)
    if not declared:
        declared = {"rows": len(table)}
    columns = {"y": OUTCOMES[cell.family]} | {name: COLUMNS[name] for name in table.columns if name in COLUMNS}
    schema = dpglm.Schema.from_dict({"dataset": {"name": "simulated", **declared}, "columns": columns})
    request = Request("y ~ x + z", schema, cell.family, cell.epsilon, 1e-6, **options)
    with warnings.catch_warnings(action="ignore"):
        return dpglm.fit(build_release(table, request, SeededNoise(seed)), seed=1).summary()


def measured(cell: Cell, tables: int) -> dict[str, Any]:
    """Cover of 95 % intervals, z (root mean square of error over sd) and width, and the cover of who ignored it."""
    truth = np.array([INTERCEPTS[cell.family], *SLOPES])
    scores, naive, widths = [], [], []
    start = time.perf_counter()
    for number in range(tables):
        numbers = np.random.default_rng([SEED, number])
        table = cell.draw(numbers, cell.family)
        summary = released(cell, table, cell.dataset, cell.options, number)
        scores.append((summary["mean"].to_numpy() - truth) / summary["sd"].to_numpy())
        widths.append(summary["sd"].to_numpy())
        if cell.naive_dataset is not None and number < tables // 2:
            summary = released(cell, table, cell.naive_dataset, cell.naive_options, number)
            naive.append((summary["mean"].to_numpy() - truth) / summary["sd"].to_numpy())
    z = np.array(scores)
    found = {
        "cell": cell.name, "family": cell.family, "tables": tables, "cover": float(np.mean(np.abs(z) < 1.96)),
        "worst": float(np.mean(np.abs(z) < 1.96, axis=0).min()), "z": float(np.sqrt(np.mean(z**2))),
        "sd": float(np.sqrt(np.mean(np.square(widths)))), "seconds": time.perf_counter() - start,
    }  # fmt: skip
    if naive:
        found["ignored"] = float(np.mean(np.abs(np.array(naive)) < 1.96, axis=0).min())
    return found


def page() -> str:
    """The page of stored results."""
    facts, *found = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    lines = []
    for each in found:
        # A release that keeps N private ignores nothing.
        ignored = f"{each['ignored']:.0%}" if "ignored" in each and each["cell"] != "private N" else "–"
        cells = (f"{each['cover']:.0%}", f"{each['worst']:.0%}", f"{each['z']:.2f}", ignored)
        lines.append(f"| {each['cell']} | {each['family']} | {each['tables']} | {' | '.join(cells)} |")
    where = facts["machine"]
    machine_line = f"Seed {facts['seed']}; {where['processor']}, {where['cores']} cores, Python {where['python']}."
    text = _PAGE.replace("(lines)", "\n".join(lines)).replace("(machine)", machine_line)
    for name, study in (("panels", panels), ("promises", promises), ("planned", planned)):
        text = text.replace(f"({name})", study.section())
    return text


def write_page() -> None:
    """Results of this study and of those that share its page."""
    (DOCS / "people.md").write_text(page(), encoding="utf-8")


def main() -> None:
    if sys.argv[1:] == ["page"]:
        write_page()
        return
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else TABLES
    wanted = sys.argv[2:]
    print(json.dumps({"machine": machine(), "seed": SEED}))
    for cell in CELLS:
        if wanted and not any(part in f"{cell.name} {cell.family}" for part in wanted):
            continue
        found = measured(cell, tables)
        print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}))
        assert math.isfinite(found["z"])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
