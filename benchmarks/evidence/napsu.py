"""NAPSU-MQ's synthetic tables and looks, on a discrete table of adult: income on age, race and gender.

    python -m evidence napsu --twinify INTERPRETER            one that has twinify

The table is theirs to choose: every column is discrete, and few, so that its whole table of counts is one noisy query.
The budget is the largest of Räisä, Jälkö, Kaski & Honkela (2023), 1, and neighbours differ in one replaced row in both.
A fit takes minutes of a core: there are as many as begin in half an hour, and looks are shown of those samples.
Without an interpreter looks alone run again, on the same samples, beside what is stored of the other.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

from evidence import foreign
from evidence.head_to_head import DELTA, Found, looks, numbers_of
from evidence.stamp import LOOKS, save_stamped, stored
from real_tables import maximum_likelihood, number, two

SEED, ROWS, REPETITIONS, EPSILONS = 20261130, 20_000, 10, (1.0,)
LIMIT = 1_800.0  # seconds after which no fit is begun
COLUMNS = {"high": two(0, 1), "age": number(0, 1), "white": two(0, 1), "male": two(0, 1)}
FORMULA = "high ~ age + white + male"


def table(options: argparse.Namespace) -> pd.DataFrame:
    """Adult, with age in two steps, from 17 and from 38 years."""
    frame = pd.read_csv(options.data / "adult.csv.gz")
    return pd.DataFrame(
        {
            "age": (frame["age"] >= 38).astype(int),
            "white": (frame["race"] == "White").astype(int),
            "male": (frame["sex"] == "Male").astype(int), "high": frame["income"].astype(int),
        }
    )  # fmt: skip


def cell_of(
    frame: pd.DataFrame, epsilon: float, options: argparse.Namespace, kept: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Both on the same samples; ``kept`` is a cell of before, whose other method stays as it is."""
    whole = frame.to_numpy()
    population = maximum_likelihood("logistic", whole[:, :3].astype(float), whole[:, 3].astype(float))[0]
    errors, samples, found = [], [], []
    for place in range(kept["repetitions"] if kept else options.repetitions or REPETITIONS):
        chosen = np.random.default_rng([SEED, place]).integers(0, len(frame), ROWS)
        samples.append(whole[chosen])
        x, y = whole[chosen, :3].astype(float), whole[chosen, 3].astype(float)
        errors.append(np.sqrt(np.diag(maximum_likelihood("logistic", x, y)[2])))
        drawn = frame.iloc[chosen].reset_index(drop=True)
        found.append(looks("adult", drawn, COLUMNS, FORMULA, "logistic", epsilon, [SEED, place, int(1000 * epsilon)]))
    if kept:
        return kept | {"methods": kept["methods"] | {"looks": numbers_of(found, errors, population)}}
    levels = np.full((4, 5), -1)
    for n in range(4):
        seen = np.unique(whole[:, n])
        levels[n, : len(seen)] = seen
    answer = foreign.call_on_arrays(
        options.twinify, "foreign_napsu", rows=np.array(samples), names=np.array(list(frame.columns)), levels=levels,
        epsilon=epsilon, delta=DELTA, limit=LIMIT,
    )  # fmt: skip
    others: list[Found] = [
        (*each.T, float(seconds)) for each, seconds in zip(answer["found"], answer["seconds"], strict=True)
    ]
    found, errors, samples = (each[: len(others)] for each in (found, errors, samples))
    methods = {"looks": numbers_of(found, errors, population), "NAPSU-MQ": numbers_of(others, errors, population)}
    return {"epsilon": epsilon, "rows": ROWS, "repetitions": len(samples), "methods": methods}


def run(options: argparse.Namespace) -> None:
    before = stored("evidence_napsu")
    own = before["results"] if before and not options.twinify else None
    if own is None and not options.twinify:
        return
    started, cells = time.perf_counter(), []
    frame = table(options)
    for place, epsilon in enumerate(EPSILONS):
        cells.append(cell_of(frame, epsilon, options, own and own["cells"][place]))
        print(cells[-1], flush=True)
    packages = own["packages"] if own else foreign.versions(options.twinify, "twinify")
    facts = {"seed": SEED, "delta": DELTA, "packages": packages, "cells": cells}
    save_stamped("evidence_napsu", facts, started, LOOKS)
