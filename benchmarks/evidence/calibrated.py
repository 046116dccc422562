"""Calibration of looks by other people's tools: ranks of the truth by ArviZ's bands, joint coverage by tarp.

    python -m evidence calibrated --python INTERPRETER      one that has arviz-stats and tarp

Coefficients come from a prior, a table from its regression, a release from the table and a fit from the release, under
the same prior (in standard units that the survey sees, which are nearly those of the columns). Draws of the posterior
that are made narrower by a third are judged too: the tools must convict them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.errors import SurveyError
from evidence import foreign
from evidence.stamp import LOOKS, save_stamped
from hard_tables import OUTCOMES
from real_tables import number, two
from seeded_noise import SeededNoise

SEED, DELTA, EPSILON, ROWS, REPETITIONS, DRAWS = 20261201, 1e-5, 1.0, 3_000, 250, 400
FAMILIES, SPREAD, INTERCEPT, NARROWER = ("logistic", "poisson", "linear"), 0.3, 0.5, 2 / 3
COLUMNS = {"a": number(-20, 20), "b": number(-20, 20), "flag": two(0, 1)}
FORMULA = "y ~ a + b + flag"


def one(family: str, place: int) -> tuple[np.ndarray, np.ndarray]:
    """A truth, and draws of its posterior from a release, both in the user's units."""
    rng = np.random.default_rng([SEED, FAMILIES.index(family), place])
    truth = rng.normal(0, [INTERCEPT, SPREAD, SPREAD, SPREAD])
    x = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], ROWS)
    flag = (rng.random(ROWS) < 0.4).astype(int)
    u = truth[0] + x @ truth[1:3] + truth[3] * flag
    if family == "logistic":
        y = (rng.random(ROWS) < 1 / (1 + np.exp(-u))).astype(int)
    else:
        y = rng.poisson(np.exp(u)) if family == "poisson" else u + rng.normal(size=ROWS)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "flag": flag, "y": y})
    schema: dict[str, Any] = {"dataset": {"name": "simulated", "rows": ROWS, "unit": "one row"}}
    schema["columns"] = COLUMNS | {"y": OUTCOMES[family]}
    noise = SeededNoise(rng)
    try:
        made = build_release(frame, Request(FORMULA, schema, family, EPSILON, DELTA), noise)
    except SurveyError as stop:
        again = Request(FORMULA, schema, family, EPSILON, DELTA, survey=stop.release)
        made = build_release(frame, again, noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = dpglm.fit(made, seed=1, prior=dpglm.NormalPrior(slopes=SPREAD, intercept=INTERCEPT))
    posterior = fit.closed.posterior
    matrix, shift = made.design.to_original_units()
    draws = rng.multivariate_normal(posterior.mean, posterior.covariance, DRAWS)
    return truth, draws @ matrix.T + shift


def run(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    arrays: dict[str, Any] = {"names": [*FAMILIES, *(f"{family}_narrower" for family in FAMILIES)]}
    for family in FAMILIES:
        truths, draws = zip(*(one(family, place) for place in range(options.repetitions or REPETITIONS)), strict=True)
        drawn = np.array(draws)
        middle = drawn.mean(axis=1, keepdims=True)
        for name, own in ((family, drawn), (f"{family}_narrower", middle + NARROWER * (drawn - middle))):
            arrays[f"{name}_draws"], arrays[f"{name}_truth"] = own.transpose(1, 0, 2), np.array(truths)
        print(family, flush=True)
    answer = foreign.call_on_arrays(options.python, "foreign_ranks", **arrays)
    number_of = len(truths)
    facts = {
        "seed": SEED, "delta": DELTA, "epsilon": EPSILON, "rows": ROWS, "tables": number_of,
        "packages": foreign.versions(options.python, "arviz-stats", "tarp"),
        "names": ["Intercept", "a", "b", "flag"],
        # One that is calibrated stays below this in 99 of 100 studies (Dvoretzky, Kiefer & Wolfowitz).
        "chance": float(np.sqrt(np.log(2 / 0.01) / (2 * number_of))),
        "judged": {
            name: {
                "outside": answer[f"{name}_bands"][:, 0].tolist(), "farthest": answer[f"{name}_bands"][:, 1].tolist(),
                "joint": float(answer[f"{name}_tarp"]),
            }
            for name in arrays["names"]
        },
    }  # fmt: skip
    save_stamped("evidence_calibrated", facts, started, LOOKS)
    print(facts["judged"])
