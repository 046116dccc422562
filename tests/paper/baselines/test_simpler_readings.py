"""Naive and Taylor are dpglm.fit with one switch each: narrower than they should be, and wrong for large slopes."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.paper.baselines import naive, taylor

ROWS = 4_000


def release_of(slope):
    rng = np.random.default_rng(5)
    x = np.clip(0.4 * rng.normal(size=ROWS), -1, 1)
    frame = pd.DataFrame({"a": x, "y": (rng.random(ROWS) < 1 / (1 + np.exp(-slope * x))).astype(int)})
    schema = {
        "dataset": {"name": "rows", "rows": ROWS},
        "columns": {
            "a": {"type": "numeric", "lower": -1, "upper": 1},
            "y": {"type": "binary", "levels": [0, 1], "fill": 0},
        },
    }
    return dpglm.release(
        frame, "y ~ a", schema=schema, family="logistic", epsilon=1.0, delta=1e-6, ledger=None, method="moments"
    )


def test_each_reads_the_release_in_its_own_way():
    """Real noise at epsilon 1: its sd is about that of sampling, so naive is narrower by a third, whatever is drawn."""
    release = release_of(6.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)  # of slopes so large, and of the series
        full, series = dpglm.fit(release, method="laplace"), taylor(release, method="laplace")
    with pytest.warns(dpglm.FitWarning, match="too narrow"):
        exact = naive(release, method="laplace")
    assert exact.summary()["sd"]["a"] < 0.9 * full.summary()["sd"]["a"]
    assert abs(full.summary()["mean"]["a"] - 6) < 3
    # sd(u) is 2.4: the series has no slope that gives such a product of x and y
    assert abs(series.summary()["mean"]["a"] - full.summary()["mean"]["a"]) > 1
