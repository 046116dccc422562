"""The table of a feasibility study of private regression, by looks.

    python -m evidence feasibility        writes results/evidence_feasibility.json; a minute or two

Barrientos, Williams, Snoke & Bowen (2021, arXiv 2110.12055) asked of every method that gives intervals: log wage on
education, experience to the cube and race, of the Current Population Survey; is the interval as wide as without
privacy, does it overlap with that one, are sign and significance the same? Their rows are not in a package; these are
of the survey of 1988. Medians and shares over releases of the same rows, whose noise is seeded.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

from evidence.published import estimate_of, repetition
from evidence.published_tables import LINEAR, Published
from evidence.stamp import LOOKS, save_stamped
from seeded_noise import SeededNoise

SEED, EPSILONS, REPETITIONS, Q = 20261128, (0.5, 1.0, 5.0, 10.0, 20.0), 30, 1.959963984540054
_WAGES = next(each for each in LINEAR if each.name == "wages, 1988")
FORMULAS = {
    "as in the study": "experience + I(experience**2) + I(experience**3)",
    "experience counted from 20 years": "experience + I((experience - 20)**2) + I((experience - 20)**3)",
}


def overlap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of two intervals (2, n), the mean of its shares of both (Karr et al. 2006); below zero where they are apart."""
    common = np.minimum(one[1], other[1]) - np.maximum(one[0], other[0])
    return 0.5 * common / (one[1] - one[0]) + 0.5 * common / (other[1] - other[0])


def cell_of(each: Published, frame: pd.DataFrame, place: int, epsilon: float, repetitions: int) -> dict[str, Any]:
    """All releases of one budget, by coefficient."""
    names, estimate, error = estimate_of(each, frame)
    own = np.array([estimate - Q * error, estimate + Q * error])
    found: dict[str, list[np.ndarray]] = {}
    warned = 0
    for number in range(repetitions):
        noise = SeededNoise(np.random.default_rng([SEED, place, int(1000 * epsilon), number]))
        fit, _ = repetition(each, frame, epsilon, noise)
        warned += bool(fit.warnings)
        mean, sd = (np.array([row[part] for row in fit.summary_rows()]) for part in ("mean", "sd"))
        table = fit.summary_rows(target="table")
        table_mean, table_sd = (np.array([row[part] for row in table]) for part in ("mean", "sd"))
        private = np.array([mean - Q * sd, mean + Q * sd])
        same_sign = np.sign(mean) == np.sign(estimate)
        for name, values in (
            ("ratio", sd / error), ("overlap", overlap(private, own)), ("sign", same_sign),
            ("significance", (np.abs(mean) > Q * sd) == (np.abs(estimate) > Q * error)),
            ("cover", np.abs(table_mean - estimate) <= Q * table_sd), ("error", np.abs(mean - estimate) / error),
        ):  # fmt: skip
            found.setdefault(name, []).append(values)
    middle = {"ratio": np.median, "overlap": np.median, "error": np.median}
    numbers = {name: middle.get(name, np.mean)(values, axis=0) for name, values in found.items()}
    return {
        "epsilon": epsilon, "formula": each.formula, "rows": len(frame), "names": names, "repetitions": repetitions,
        "warned": warned / repetitions,
        **{name: [float(f"{v:.4g}") for v in values] for name, values in numbers.items()},
    }  # fmt: skip


def run(options: argparse.Namespace) -> None:
    started, cells = time.perf_counter(), []
    frame = _WAGES.rows(options.data)[list(_WAGES.columns)].reset_index(drop=True)
    for place, (told, terms) in enumerate(FORMULAS.items()):
        formula = f"log_wage ~ education + {terms} + ethnicity"
        each = Published(told, _WAGES.source, "linear", formula, _WAGES.columns, _WAGES.rows)
        for epsilon in EPSILONS:
            cells.append({"what": told} | cell_of(each, frame, place, epsilon, options.repetitions or REPETITIONS))
            print(
                {name: cells[-1][name] for name in ("what", "epsilon", "ratio", "overlap", "cover", "warned")},
                flush=True,
            )
    facts = {"seed": SEED, "cells": cells}
    save_stamped("evidence_feasibility", facts, started, [*LOOKS, "benchmarks/evidence/feasibility.py"])
