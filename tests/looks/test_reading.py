"""Reading looks: without noise they find the table's own estimate, and what they say adds up to a dense regression."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import root

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.looks.coding import before_looks, default_prior
from dpglm.looks.reading import Knowledge, add_look
from seeded_noise import SeededNoise

ROWS = 40_000
COLUMNS: dict[str, Any] = {
    "a": {"type": "numeric", "lower": -300, "upper": 300},
    "b": {"type": "numeric", "lower": 0, "upper": 50},
    "g": {"type": "binary", "levels": [0, 1], "fill": 0},
    "sick": {"type": "binary", "levels": [0, 1], "fill": 0},
    "visits": {"type": "count", "upper": 200},
    "cost": {"type": "numeric", "lower": -1000, "upper": 1000},
}
OUTCOMES = {"logistic": "sick", "poisson": "visits", "linear": "cost"}
INVERSE = {"logistic": lambda u: 1 / (1 + np.exp(-u)), "poisson": np.exp, "linear": lambda u: u}


@lru_cache
def table(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(6)
    a = rng.normal(0.5, 1, rows)
    b, g = 0.5 * a + rng.gamma(4, 0.5, rows), rng.random(rows) < 0.3
    b = np.clip(b, 0, 50)
    u = -0.8 + 0.7 * a - 0.4 * b + 0.5 * g
    return pd.DataFrame(
        {
            "a": a, "b": b, "g": g.astype(int), "sick": (rng.random(rows) < INVERSE["logistic"](u)).astype(int),
            "visits": rng.poisson(np.exp(u + 1)), "cost": 5 * u + rng.normal(0, 3, rows),
        }
    )  # fmt: skip


def estimate(family: str) -> tuple[np.ndarray, np.ndarray]:
    """Maximum (quasi-)likelihood, in the user's units, with robust standard errors."""
    rows = table()
    x = np.column_stack([np.ones(len(rows)), rows["a"], rows["b"], rows["g"]])
    y, inverse = rows[OUTCOMES[family]].to_numpy(), INVERSE[family]
    found = root(lambda theta: x.T @ (y - inverse(x @ theta)) / len(rows), np.zeros(4)).x
    mean = inverse(x @ found)
    weight = {"logistic": mean * (1 - mean), "poisson": mean, "linear": np.ones(len(rows))}[family]
    bread = np.linalg.inv((x * weight[:, None]).T @ x)
    return found, np.sqrt(np.diag(bread @ ((x * ((y - mean) ** 2)[:, None]).T @ x) @ bread))


def release(family: str, noise: Any, epsilon: float = 1.0) -> dpglm.Release:
    dataset = {"name": "t", "rows": ROWS, "unit": "one person"}
    schema = dpglm.Schema.from_dict({"dataset": dataset, "columns": COLUMNS})
    request = Request(f"{OUTCOMES[family]} ~ a + b + g", schema, family, epsilon, 1e-6)
    return build_release(table(), request, noise)


def knowledge(made: dpglm.Release, looks: int = 5) -> Knowledge:
    survey = made.survey_record.survey
    known = before_looks(made.design, survey, default_prior(made.design, survey))
    for stage in made.stages[:looks]:
        known = add_look(known, stage.as_look())
    return known


def told(made: dpglm.Release, known: Knowledge) -> np.ndarray:
    """What looks say of the table's own estimate, in the user's units."""
    matrix, shift = made.design.to_original_units()
    return np.asarray(matrix @ np.linalg.solve(known.pooled.precision, known.pooled.shift) + shift)


@pytest.mark.parametrize("family", OUTCOMES)
def test_looks_without_noise_find_the_tables_own_estimate(family: str) -> None:
    """Within a tenth of a standard error of all rows; where nothing bends, the first look is near already."""
    made = release(family, FixedNoise(), epsilon=8.0)
    expected, error = estimate(family)
    distance = [np.abs(told(made, knowledge(made, looks)) - expected) / error for looks in (1, 5)]
    assert distance[1].max() < 0.1
    assert family != "linear" or distance[0].max() < 2
    assert np.abs(expected / error).max() > 20  # so that this says something
    # The stated sampling error is the robust standard error.
    matrix, _ = made.design.to_original_units()
    sampling = matrix @ dpglm.fit(made, progress=False).closed.sampling @ matrix.T
    np.testing.assert_allclose(np.sqrt(np.diag(sampling)), error, rtol=0.12)


@pytest.mark.parametrize("family", OUTCOMES)
def test_noisy_looks_are_as_far_off_as_they_say(family: str) -> None:
    """Of the table's own estimate: chi-squared of 40, were it exact; the bounds have a chance of 1e-4 or less each."""
    expected, _ = estimate(family)
    squared = []
    for seed in range(10):
        made = release(family, SeededNoise(seed))
        matrix, _ = made.design.to_original_units()
        known = knowledge(made)
        away = np.linalg.solve(matrix, told(made, known) - expected)
        squared.append(float(away @ known.pooled.with_bounding[0] @ away))
    assert 13 < sum(squared) < 85


@pytest.mark.parametrize("family", OUTCOMES)
def test_more_looks_know_more(family: str) -> None:
    made = release(family, SeededNoise(1))
    spreads = [np.linalg.slogdet(knowledge(made, looks).pooled.with_bounding[0])[1] for looks in range(1, 6)]
    assert (np.diff(spreads) > 0).all()
    assert len(knowledge(made).surprises) == 3
    assert all(0 <= chance <= 1 for chance in knowledge(made).surprises)


def test_what_is_known_is_the_looks_and_the_prior() -> None:
    """The centre is the mean of the Gaussian with the prior, seen from t: dense, by hand, for the last look."""
    made = release("linear", SeededNoise(2))
    known = knowledge(made)
    prior = default_prior(made.design, made.survey_record.survey)
    precision, shift = known.pooled.with_bounding
    behind = np.linalg.inv(known.covariance) - precision  # the prior, widened by the sampling error
    wider = np.linalg.inv(behind) - prior.covariance
    assert (np.linalg.eigvalsh((wider + wider.T) / 2) > -1e-9).all()
    assert np.abs(wider).max() < 0.01
    np.testing.assert_allclose(known.centre, known.covariance @ (shift + behind @ prior.mean), rtol=1e-6)


def test_a_look_that_was_forged_is_a_surprise() -> None:
    made = release("logistic", SeededNoise(3))
    looks = [stage.as_look() for stage in made.stages]
    honest = knowledge(made)
    known = knowledge(made, 4)
    forged = add_look(known, replace(looks[4], score=looks[4].score + 40 * looks[4].score_noise))
    assert honest.surprises[-1] > 1e-4
    assert forged.surprises[-1] < 1e-6
