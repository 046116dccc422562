"""dp-statsmodels beside looks: the samples, budgets and bounds of head_to_head.py, one row added or removed.

    python -m evidence statsmodels --statsmodels CLONE     a clone of MaxGhenis/dp-statsmodels

Its sensitivities are of a row that is added or removed, so the releases by looks are of that relation too; it takes the
number of rows for public. Every column, and a linear outcome, is mapped from its bounds to [-1, 1], since it knows one
pair of bounds. Where its promise is doubtful it is tested: ``proved`` attacks its logistic regression. Five minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import beta

from dpglm.protection import ADDED_OR_REMOVED
from evidence import foreign
from evidence.head_to_head import CELLS, DELTA, EPSILONS, REPETITIONS, SEED, Found, bounds_of, looks, numbers_of
from evidence.stamp import LOOKS, save_stamped
from real import whole
from real_tables import maximum_likelihood

ATTACKED_ROWS, FITS, PENALTY, ALPHA = 4_000, 300, 0.01, 1e-3  # the penalty is its default


def call(clone: Path, family: str, x: np.ndarray, y: np.ndarray, epsilon: float, seed: int) -> dict[str, np.ndarray]:
    """Its estimates and intervals of samples that lie in [-1, 1]."""
    return foreign.call_on_arrays(
        sys.executable, "foreign_statsmodels", clone=str(clone), family=family, x=x, y=y, epsilon=epsilon, delta=DELTA,
        seed=seed,
    )  # fmt: skip


def peer(
    clone: Path, family: str, samples: list[tuple[np.ndarray, np.ndarray]], bounds: np.ndarray, epsilon: float
) -> list[Found]:
    """In the user's units. Only slopes are compared; an intercept's interval is of another point."""
    middle, half = bounds.mean(axis=0), (bounds[1] - bounds[0]) / 2
    last = (middle[-1], half[-1]) if family == "linear" else (0.0, 1.0)
    x = np.array([(x - middle[:-1]) / half[:-1] for x, _ in samples])
    y = np.array([(y - last[0]) / last[1] for _, y in samples])
    answer, found = call(clone, family, x, y, epsilon, SEED), []
    for coded, seconds in zip(answer["found"], answer["seconds"], strict=True):
        parts = coded.T * np.append(1.0, last[1] / half[:-1])
        parts[:, 0] = np.nan
        found.append((*parts, float(seconds)))
    return found


def cell_of(name: str, rows: int, epsilon: float, options: argparse.Namespace) -> dict[str, Any] | None:
    """Both on the samples of head_to_head.py."""
    loaded = whole(name, options.data)
    if loaded is None:
        return None
    frame, columns, formula, family, x, y, population = loaded
    place = [cell[0] for cell in CELLS].index(name)
    found, errors, samples = [], [], []
    for number in range(options.repetitions or REPETITIONS):
        seed = [SEED, place, rows, number]
        chosen = np.random.default_rng(seed).integers(0, len(y), rows)
        samples.append((x[chosen], y[chosen]))
        errors.append(np.sqrt(np.diag(maximum_likelihood(family, *samples[-1])[2])))
        drawn, seed = frame.iloc[chosen].reset_index(drop=True), [*seed, int(1000 * epsilon)]
        found.append(looks(name, drawn, columns, formula, family, epsilon, seed, ADDED_OR_REMOVED))
    others = peer(options.statsmodels, family, samples, bounds_of(formula, columns), epsilon)
    methods = {"looks": found, "dp-statsmodels": others}
    return {
        "table": name, "family": family, "rows": rows, "epsilon": epsilon, "repetitions": len(samples),
        "methods": {method: numbers_of(each, errors, population) for method, each in methods.items()},
    }  # fmt: skip


def proved(clone: Path, epsilon: float) -> dict[str, float]:
    """A lower bound on epsilon of its logistic regression, from releases of a table and of the same without one row.

    A release solves score of the rows - N * penalty * estimate = its noise, so whoever knows all other rows finds the
    noise, or the noise less the score of the row that is there. Guessed is by the half of what that score typically is.
    """
    rng = np.random.default_rng(SEED)
    x = rng.uniform(-1, 1, (ATTACKED_ROWS, 2))
    x[-1] = 1.0
    rows = np.column_stack([np.ones(ATTACKED_ROWS), x])
    y = (rng.random(ATTACKED_ROWS) < expit(rows @ [-1.0, 0.5, -0.5])).astype(float)
    y[-1] = 1.0
    direction, guesses = rows[-1] / np.linalg.norm(rows[-1]), []
    typical = np.linalg.norm(rows[-1]) * (1 - expit(rows[-1] @ maximum_likelihood("logistic", x, y)[0]))
    for table, number in enumerate((ATTACKED_ROWS, ATTACKED_ROWS - 1)):
        many = [np.broadcast_to(each[:number], (FITS, *each[:number].shape)) for each in (x, y)]
        answer = call(clone, "logistic", *many, epsilon, SEED + FITS * table)
        estimates = answer["found"][:, :, 0]
        scores = (y[:-1] - expit(estimates @ rows[:-1].T)) @ rows[:-1] - number * PENALTY * estimates
        guesses.append(int((scores @ direction < -typical / 2).sum()))
    right, wrong = guesses
    low = beta.ppf(ALPHA / 2, right, FITS - right + 1) if right else 0.0
    high = beta.ppf(1 - ALPHA / 2, wrong + 1, FITS - wrong) if wrong < FITS else 1.0
    bound = float(np.log((low - DELTA) / high)) if low > DELTA else 0.0
    return {"epsilon": epsilon, "rows": ATTACKED_ROWS, "fits": FITS, "right": right, "wrong": wrong, "proved": bound}


def run(options: argparse.Namespace) -> None:
    if not options.statsmodels:
        return
    started, cells = time.perf_counter(), []
    attack = proved(options.statsmodels, 1.0)
    print(attack, flush=True)
    for name, rows in CELLS:
        for epsilon in EPSILONS:
            cell = cell_of(name, rows, epsilon, options)
            if cell:
                cells.append(cell)
                print(name, rows, epsilon, cell["methods"], flush=True)
    packages = {"dp-statsmodels": foreign.commit_of(options.statsmodels)}
    facts = {"seed": SEED, "delta": DELTA, "alpha": ALPHA, "packages": packages, "attack": attack, "cells": cells}
    save_stamped("evidence_statsmodels", facts, started, LOOKS)
