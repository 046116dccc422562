"""Regressions in print, from private releases: are signs, significances and intervals those of the source?

    python -m evidence published          writes results/evidence_published.json; some minutes

A release is of the package's own rows, so that only the privacy noise differs from the source; it comes from a seeded
generator. The published estimate is the same regression on those rows (maximum likelihood, checked against what is
printed), significant where its robust standard error says so: looks state robust errors, and some sources print others.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from formulaic import model_matrix

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.errors import SurveyError
from evidence.published_tables import PUBLISHED, Published
from evidence.stamp import LOOKS, save_stamped
from real_tables import maximum_likelihood
from seeded_noise import SeededNoise

SEED, DELTA, EPSILONS, REPETITIONS = 20261127, 1e-6, (1.0, 3.0), 20
Q = 1.959963984540054


def estimate_of(each: Published, frame: pd.DataFrame) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names, estimate and robust standard errors, by formulaic's columns: nothing of dpglm."""
    outcome, right = (part.strip() for part in each.formula.split("~"))
    data = frame.copy()
    for name, declared in each.columns.items():
        if "levels" in declared:
            levels = [str(level) for level in declared["levels"]]
            data[name] = pd.Categorical(data[name].astype(str), levels)
    x = model_matrix(right, data)
    y = data[outcome]
    names = ["Intercept", *(name.replace("T.", "").replace(" ** ", "**") for name in x.columns[1:])]
    coded = y.cat.codes.to_numpy(float) if "levels" in each.columns[outcome] else y.to_numpy(float)
    estimate, _, sandwich = maximum_likelihood(each.family, np.asarray(x, dtype=float)[:, 1:], coded)
    return names, estimate, np.sqrt(np.diag(sandwich))


def repetition(each: Published, frame: pd.DataFrame, epsilon: float, noise: SeededNoise) -> tuple[Any, bool]:
    """A fit of one release, and whether the survey stopped it first."""
    schema = {"dataset": {"name": "public", "rows": len(frame), "unit": "one row"}, "columns": each.columns}
    stopped = False
    try:
        made = build_release(frame, Request(each.formula, schema, each.family, epsilon, DELTA), noise)
    except SurveyError as stop:
        stopped = True
        again = Request(each.formula, schema, each.family, epsilon, DELTA, survey=stop.release)
        made = build_release(frame, again, noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dpglm.fit(made, seed=1), stopped


def cell_of(
    place: int, each: Published, frame: pd.DataFrame, found: tuple[Any, ...], epsilon: float, repetitions: int
) -> dict[str, Any]:
    """All repetitions at a budget, by coefficient."""
    names, estimate, error = found
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("mean", "sd", "table_mean", "table_sd")}
    warned, stops = 0, 0
    for number in range(repetitions):
        noise = SeededNoise(np.random.default_rng([SEED, place, int(1000 * epsilon), number]))
        fit, stopped = repetition(each, frame, epsilon, noise)
        assert len(fit.names) == len(names)
        order = [list(fit.names).index(name) for name in names] if set(fit.names) == set(names) else slice(None)
        for target, prefix in (("population", ""), ("table", "table_")):
            rows = fit.summary_rows(target=target)
            for part in ("mean", "sd"):
                parts[prefix + part].append(np.array([row[part] for row in rows])[order])
        warned += bool(fit.warnings)
        stops += stopped
    got = {name: np.array(values) for name, values in parts.items()}
    significant, published = np.abs(got["mean"]) > Q * got["sd"], np.abs(estimate) > Q * error
    same_sign = np.sign(got["mean"]) == np.sign(estimate)
    by_coefficient = {
        "sign": same_sign.mean(axis=0), "significance": (significant == published).mean(axis=0),
        "wrong_finding": (significant & ~same_sign).mean(axis=0),
        "relative_error": np.median(np.abs(got["mean"] / estimate - 1), axis=0),
        "width": np.median(got["sd"], axis=0) / error,
        "cover": (np.abs(got["table_mean"] - estimate) <= Q * got["table_sd"]).mean(axis=0),
        "inside": (np.abs(got["mean"] - estimate) <= Q * got["sd"]).mean(axis=0),
        "z": np.sqrt(np.mean(np.minimum(((got["table_mean"] - estimate) / got["table_sd"]) ** 2, 100), axis=0)),
    }  # fmt: skip
    return {
        "table": each.name, "family": each.family, "rows": len(frame), "epsilon": epsilon, "names": names,
        "repetitions": repetitions, "published": published.tolist(), "warned": warned / repetitions,
        "stopped": stops / repetitions, "estimate": _short(estimate), "error": _short(error),
        **{name: _short(values) for name, values in by_coefficient.items()},
    }  # fmt: skip


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def printed_of(each: Published, names: list[str], estimate: np.ndarray) -> dict[str, Any]:
    """How many of the source's numbers the regression gives, to the last digit in print or one beside it."""
    own = dict(zip(names, estimate, strict=True))
    digits = {name: len(f"{value}".split(".")[1]) for name, value in each.printed.items()}
    right = [abs(own[name] - value) < 1.5 * 10 ** -digits[name] for name, value in each.printed.items()]
    return {"table": each.name, "source": each.source, "printed": len(right), "right": int(sum(right))}


def run(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    cells, sources = [], []
    for place, each in enumerate(PUBLISHED):
        frame = _rows(each, options.data)
        if frame is None:
            continue
        found = estimate_of(each, frame)
        sources.append(printed_of(each, *found[:2]))
        for epsilon in EPSILONS:
            cell = cell_of(place, each, frame, found, epsilon, options.repetitions or REPETITIONS)
            cells.append(cell)
            shown = {name: float(np.mean(cell[name][1:])) for name in ("sign", "significance", "cover", "z", "width")}
            print(each.name, epsilon, {name: round(value, 2) for name, value in shown.items()}, flush=True)
    facts = {"seed": SEED, "delta": DELTA, "cells": cells, "sources": sources}
    save_stamped("evidence_published", facts, started, [*LOOKS, "benchmarks/evidence/published.py"])


def _rows(each: Published, folder: Path) -> pd.DataFrame | None:
    try:
        return each.rows(folder)[list(each.columns)].reset_index(drop=True)
    except FileNotFoundError:
        return None
