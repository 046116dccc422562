"""Private regressions side by side: the same samples, epsilon, delta and neighbours, careful bounds for all.

    python -m evidence head_to_head --python INTERPRETER      one that has diffprivlib
    python -m evidence napsu --twinify INTERPRETER            one that has twinify: see napsu.py

Samples of N rows are drawn, with replacement, from a full table whose own estimate is the population value, as in
real.py. Widths and errors are over the robust standard error of the same rows without privacy. What diffprivlib gives
has no interval, and is pure epsilon: the stronger promise.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.privacy import mu_of
from dpglm.protection import REPLACED
from evidence import foreign
from evidence.peers import adassp, noisy_gradient
from evidence.stamp import LOOKS, save_stamped
from real import whole
from real_tables import maximum_likelihood
from seeded_noise import SeededNoise

SEED, DELTA, REPETITIONS, EPSILONS = 20261129, 1e-5, 30, (1.0, 3.0)
CELLS = (
    ("adult", 10_000), ("insured", 5_000), ("fair_affairs", 5_000),
    ("log_wages", 20_000), ("acs_log_income", 5_000), ("adult_hours", 2_000),
)  # fmt: skip
Q = 1.959963984540054
Found = tuple[np.ndarray, np.ndarray, np.ndarray, float]  # estimate, lower, upper; seconds


def looks(
    name: str, frame: Any, columns: Any, formula: str, family: str, epsilon: float, seed: list[int],
    neighbours: str = REPLACED,
) -> Found:  # fmt: skip
    """A release by looks and its fit."""
    number = {"rows": len(frame)} if neighbours == REPLACED else {"neighbours": neighbours}
    schema = {"dataset": {"name": name, "unit": "one row"} | number, "columns": columns}
    started = time.perf_counter()
    made = build_release(frame, Request(formula, schema, family, epsilon, DELTA), SeededNoise(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = dpglm.fit(made, seed=1).summary_rows()
    seconds = time.perf_counter() - started
    mean, sd = (np.array([row[part] for row in rows]) for part in ("mean", "sd"))
    return mean, mean - Q * sd, mean + Q * sd, seconds


def peer(method: str, family: str, x: np.ndarray, y: np.ndarray, given: dict[str, Any], mu: float, seed: Any) -> Found:
    """One of peers.py, in the user's units; ``given`` are the population's means and spreads."""
    rng = np.random.default_rng(seed)
    started = time.perf_counter()
    rows = np.column_stack([np.ones(len(x)), (x - given["centre"]) / given["scale"]])
    outcome = (y - given["middle"]) / given["unit"]
    if method == "AdaSSP with bootstrap":
        found = adassp(rows, outcome, mu, rng)
    else:
        found = noisy_gradient(family, rows, outcome, mu, rng, given["spread"])
    seconds = time.perf_counter() - started
    return (*backwards(found, given), seconds)


def backwards(found: tuple[np.ndarray, ...], given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From standard to the user's units. An intercept's interval is left out: it is of another point."""
    estimate, lower, upper = (part * given["unit"] / np.append(1.0, given["scale"]) for part in found)
    estimate[0] += given["middle"] - estimate[1:] @ given["centre"]
    lower[0] = upper[0] = np.nan
    return estimate, lower, upper


def diffprivlib(
    python: str, family: str, samples: list[tuple[np.ndarray, np.ndarray]], bounds: np.ndarray, epsilon: float
) -> list[Found]:
    """Of all samples in one process; columns, and a linear outcome, are mapped from their bounds to [-1, 1]."""
    middle, half = bounds.mean(axis=0), (bounds[1] - bounds[0]) / 2
    last = (middle[-1], half[-1]) if family == "linear" else (0.0, 1.0)
    answer = foreign.call_on_arrays(
        python, "foreign_points", family=family, epsilon=epsilon,
        x=np.array([(x - middle[:-1]) / half[:-1] for x, _ in samples]),
        y=np.array([(y - last[0]) / last[1] for _, y in samples]),
    )  # fmt: skip
    found = []
    for coded, seconds in zip(answer["found"], answer["seconds"], strict=True):
        slopes = coded[1:] * last[1] / half[:-1]
        estimate = np.append(coded[0] * last[1] + last[0] - slopes @ middle[:-1], slopes)
        nothing = np.full(len(estimate), np.nan)
        found.append((estimate, nothing, nothing, float(seconds)))
    return found


def cell_of(name: str, rows: int, epsilon: float, options: argparse.Namespace) -> dict[str, Any] | None:
    """Every method on the same samples. Numbers are of slopes: over coefficients and samples."""
    loaded = whole(name, options.data)
    if loaded is None:
        return None
    frame, columns, formula, family, x, y, population = loaded
    scale = x.std(axis=0)
    given = {"centre": x.mean(axis=0), "scale": scale, "middle": 0.0, "unit": 1.0, "spread": 1.0}
    if family == "linear":
        spread = float(np.std(y - population[0] - x @ population[1:]))
        given |= {"middle": float(y.mean()), "unit": float(y.std()), "spread": spread / float(y.std())}
    bounds = bounds_of(formula, columns)
    mu, place = mu_of(epsilon, DELTA), [cell[0] for cell in CELLS].index(name)
    methods = ["looks", "noisy gradient", *(["AdaSSP with bootstrap"] if family == "linear" else [])]
    found: dict[str, list[Found]] = {method: [] for method in methods}
    errors, samples = [], []
    for number in range(options.repetitions or REPETITIONS):
        seed = [SEED, place, rows, number]
        chosen = np.random.default_rng(seed).integers(0, len(y), rows)
        samples.append((x[chosen], y[chosen]))
        errors.append(np.sqrt(np.diag(maximum_likelihood(family, *samples[-1])[2])))
        seed = [*seed, int(1000 * epsilon)]
        drawn = frame.iloc[chosen].reset_index(drop=True)
        found["looks"].append(looks(name, drawn, columns, formula, family, epsilon, seed))
        for method in methods[1:]:
            found[method].append(peer(method, family, *samples[-1], given, mu, seed))
    if options.python:
        found["diffprivlib"] = diffprivlib(options.python, family, samples, bounds, epsilon)
    return {
        "table": name, "family": family, "rows": rows, "epsilon": epsilon, "repetitions": len(samples),
        "methods": {method: numbers_of(each, errors, population) for method, each in found.items()},
    }  # fmt: skip


def bounds_of(formula: str, columns: Any) -> np.ndarray:
    """Lower and upper ones, of predictors and then of the outcome."""
    outcome, right = (part.strip() for part in formula.split("~"))
    names = [*(part.strip() for part in right.split("+")), outcome]
    found = [(0, 1) if "levels" in columns[n] else (columns[n]["lower"], columns[n]["upper"]) for n in names]
    return np.array(found, dtype=float).T


def numbers_of(found: list[Found], errors: list[np.ndarray], population: np.ndarray) -> dict[str, float | None]:
    """Cover, width and error of a method, over slopes."""
    error = np.array(errors)[:, 1:]
    estimate, lower, upper = (np.array([each[part] for each in found])[:, 1:] for part in range(3))
    truth = population[1:]
    off = (estimate - truth) / error
    numbers: dict[str, float | None] = {"cover": None, "worst": None, "width": None}
    if not np.isnan(lower).any():
        cover = (lower <= truth) & (truth <= upper)
        width = (upper - lower) / (2 * Q * error)
        numbers = {
            "cover": float(cover.mean()), "worst": float(cover.mean(axis=0).min()),
            "width": float(np.exp(np.mean(np.log(np.median(width, axis=0))))),
        }  # fmt: skip
    median_error = np.median(np.abs(off), axis=0) / 0.6744897501960817  # 1 without privacy
    numbers |= {
        "error": float(np.exp(np.mean(np.log(median_error)))), "seconds": float(np.median([each[3] for each in found])),
        "sign": float((np.sign(estimate) == np.sign(truth)).mean()),
    }  # fmt: skip
    return {name: None if value is None else float(f"{value:.4g}") for name, value in numbers.items()}


def run(options: argparse.Namespace) -> None:
    started, cells = time.perf_counter(), []
    for name, rows in CELLS:
        for epsilon in EPSILONS:
            cell = cell_of(name, rows, epsilon, options)
            if cell:
                cells.append(cell)
                print(name, rows, epsilon, cell["methods"], flush=True)
    packages = foreign.versions(options.python, "diffprivlib") if options.python else {}
    facts = {"seed": SEED, "delta": DELTA, "packages": packages, "cells": cells}
    save_stamped("evidence_head_to_head", facts, started, [*LOOKS, "benchmarks/evidence/peers.py"])
