"""Where the survey hardly saw a column's scale, looks find it: nothing else leans on what the survey says of it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.looks.coding import before_looks, default_prior
from dpglm.looks.reading import add_look
from seeded_noise import SeededNoise

ROWS, SLOPE, WRONG = 2_000, 0.2, 6.0
SCHEMA = {
    "dataset": {"name": "t", "rows": ROWS, "unit": "one person"},
    "columns": {
        "y": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        "x": {"type": "numeric", "lower": -5, "upper": 5},
        "amount": {"type": "numeric", "lower": 0, "upper": 3_000},
    },
}


def table(number: int) -> pd.DataFrame:
    """One row of ten has an amount, in thousands, of some size."""
    rng = np.random.default_rng([number, 2])
    x = rng.normal(size=ROWS)
    amount = np.where(rng.random(ROWS) < 0.1, np.exp(rng.normal(1.8, 0.8, ROWS)), 0.0)
    yes = rng.random(ROWS) < 1 / (1 + np.exp(1 - 0.5 * x - SLOPE * amount))
    return pd.DataFrame({"y": np.where(yes, "yes", "no"), "x": x, "amount": amount})


def released(number: int, doubt: float) -> dpglm.Release:
    """A release from a survey that is wrong about the scale of amounts, and doubts it, or does not."""
    rows = table(number)
    request = Request("y ~ x + amount", SCHEMA, "logistic", 3.0, 1e-6)
    first = build_release(rows, request, SeededNoise(number))
    record = first.survey_record
    places = list(record.survey.places)
    places[2] = replace(places[2], centre=0.0, scale=WRONG * float(rows["amount"].std()), doubt=doubt)
    wrong = replace(first, survey_record=replace(record, survey=replace(record.survey, places=tuple(places))))
    return build_release(rows, replace(request, survey=wrong), SeededNoise(100 + number))


def away(doubt: float) -> np.ndarray:
    """Errors of both slopes over their stated deviation, six tables."""
    found = []
    for number in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            summary = dpglm.fit(released(number, doubt), seed=1).summary()
        found.append((summary["mean"] - [-1.0, 0.5, SLOPE]) / summary["sd"])
    return np.array(found)[:, 1:]


def test_a_scale_that_is_wrong_and_doubted_misleads_nobody() -> None:
    """z of six tables: below 1.6 for both slopes; without the doubt that of amounts is above 2.5."""
    z = np.sqrt(np.mean(away(1.5) ** 2, axis=0))
    assert (z < 1.6).all()
    assert np.sqrt(np.mean(away(0.0) ** 2, axis=0))[1] > 2.5


def test_looks_dispel_doubt() -> None:
    """Each look measures the information again; what no scale is doubted of stays untouched."""
    made = released(1, 1.5)
    survey = made.survey_record.survey
    known = before_looks(made.design, survey, default_prior(made.design, survey))
    doubts = [known.blurred]
    for stage in made.stages:
        known = add_look(known, stage.as_look())
        doubts.append(known.blurred)
    assert doubts[0][2] == pytest.approx(np.expm1(3.0), rel=1e-6)
    assert doubts[-1][2] < 1
    assert not np.any(np.array(doubts)[:, :2])


def test_a_doubted_scale_widens_the_default_prior() -> None:
    """So that an effect is possible whatever the scale may be."""
    sure, unsure = (
        default_prior(made.design, made.survey_record.survey).covariance
        for made in (released(1, 0.0), released(1, 1.5))
    )
    np.testing.assert_allclose(np.diag(unsure)[:2], np.diag(sure)[:2])
    assert unsure[2, 2] / sure[2, 2] == pytest.approx(np.exp(3.0), rel=1e-6)
