"""Releases of simulated tables with noise that can be repeated, and their posteriors in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import dpglm
from calibration import calibration_of
from calibration_page import Record
from dpglm.analyst.fit import Asked
from dpglm.custodian.build import Request, build_release
from dpglm.paper.posteriors import fit_moments
from seeded_noise import SeededNoise

Floats = npt.NDArray[np.float64]
DELTA = 1e-6
CHAINS = 2


def released(
    frame: pd.DataFrame, epsilon: float, seed: int, *, family: str = "logistic", outcome: Any = None, name: str = "one",
) -> dpglm.Release:  # fmt: skip
    """A release of all columns but y, each in [-1, 1]."""
    predictors = [column for column in frame.columns if column != "y"]
    columns = {column: {"type": "numeric", "lower": -1, "upper": 1} for column in predictors}
    schema = {
        "dataset": {"name": name, "rows": len(frame)},
        "columns": {**columns, "y": outcome or {"type": "binary", "levels": [0, 1], "fill": 0}},
    }
    request = Request("y ~ " + " + ".join(predictors), schema, family, epsilon, DELTA, method="moments")
    return build_release(frame, request, SeededNoise(seed))


@dataclass(frozen=True)
class Posteriors:
    """Draws of the scaled coefficients, (posteriors, draws, coefficients), and how far to trust them."""

    draws: Floats
    trouble: float  # share with Pareto k above 0.7, or with R-hat above 1.01


def posteriors(
    groups: Sequence[Sequence[dpglm.Release]],
    method: str,
    draws: int,
    *,
    dispersion: float | None = None,
    moments: str = "exact",
) -> Posteriors:
    """What ``dpglm.fit`` makes of each group of releases, all of one shape, in one batch."""
    options: dict[str, Any] = {"link": None, "dispersion": dispersion, "moments": moments, "noise_aware": True}
    chains = 1 if method == "laplace" else CHAINS
    asked = Asked(None, method, draws // chains, chains, 0, None, options)
    fits = fit_moments([tuple(group) for group in groups], asked)
    trouble = [
        fit.diagnostics.r_hat.max() > 1.01 if fit.diagnostics.pareto_k is None else fit.diagnostics.pareto_k > 0.7
        for fit in fits
    ]
    drawn = np.array([fit.coefficients.reshape(-1, fit.coefficients.shape[-1]) for fit in fits])
    return Posteriors(drawn, float(np.mean(trouble)))


def coverage_record(result: Posteriors, truth: Floats) -> Record:
    """Coverage of central intervals, pooled over coefficients, and mean posterior standard deviations."""
    position = (result.draws < truth).mean(axis=1)
    return {
        "tables": len(position),
        "coverage": calibration_of(position)["coverage"],
        "mean_sd": np.round(result.draws.std(axis=1).mean(axis=0), 5).tolist(),
        "trouble": round(result.trouble, 4),
    }
