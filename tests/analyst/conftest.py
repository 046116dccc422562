"""Releases by looks of simulated tables, with noise that a seed repeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.custodian.build import Request, build_release
from seeded_noise import SeededNoise

COLUMNS: dict[str, Any] = {
    "a": {"type": "numeric", "lower": -40, "upper": 60},
    "b": {"type": "numeric", "lower": 0, "upper": 1},
    "g": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    "sick": {"type": "binary", "levels": [0, 1], "fill": 0},
    "visits": {"type": "count", "upper": 80},
    "cost": {"type": "numeric", "lower": -1000, "upper": 2000},
}
FORMULAS = {"logistic": "sick ~ a + b + g", "poisson": "visits ~ a + b + g", "linear": "cost ~ a + b + g"}
TRUTH = {"logistic": (-1.0, 0.1, 0.8, 0.5), "poisson": (0.4, 0.05, 0.5, -0.3), "linear": (100.0, 2.0, 40.0, -20.0)}


def table_of(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b, g = rng.normal(10, 5, rows), rng.beta(2, 2, rows), rng.random(rows) < 0.4
    x = np.stack([np.ones(rows), a, b, g])
    u = {family: np.array(truth) @ x for family, truth in TRUTH.items()}
    return pd.DataFrame(
        {
            "a": a,
            "b": b,
            "g": np.where(g, "yes", "no"),
            "sick": (rng.random(rows) < 1 / (1 + np.exp(-u["logistic"]))).astype(int),
            "visits": rng.poisson(np.exp(u["poisson"])),
            "cost": u["linear"] + rng.normal(0, 30, rows),
        }
    )


@pytest.fixture(scope="session")
def released() -> Callable[..., dpglm.Release]:
    """A release by looks; ``name`` is its dataset's, ``seed`` its table's and ``noise`` its noise's."""
    kept: dict[Any, dpglm.Release] = {}

    def made(
        family: str = "logistic", *, name: str = "people", seed: int = 1, noise: int = 1, rows: int = 8000,
        epsilon: float = 1.0, survey: dpglm.Release | None = None, **options: Any,
    ) -> dpglm.Release:  # fmt: skip
        key = (family, name, seed, noise, rows, epsilon, survey and survey.id, *map(str, options.values()))
        if key not in kept:
            dataset = {"name": name, "rows": rows, "unit": "one person"}
            schema = dpglm.Schema.from_dict({"dataset": dataset, "columns": COLUMNS | options.get("columns", {})})
            formula = options.get("formula", FORMULAS[family])
            request = Request(formula, schema, family, epsilon, 1e-6, survey=survey)
            change = options.get("change", lambda table: table)
            kept[key] = build_release(change(table_of(rows, seed)), request, SeededNoise(noise))
        return kept[key]

    return made
