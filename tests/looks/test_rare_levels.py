"""Rows of rare levels are far longer than pseudo-rows: what bounds leave of them, against sums over the rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.families import FAMILIES
from dpglm.looks import coding
from dpglm.looks.coding import before_looks, default_prior
from dpglm.looks.population import Population, inverse_root, of_moments, seen
from dpglm.looks.questions import Answer
from dpglm.looks.survey import survey_rows, surveying
from dpglm.looks.viewpoint import Viewpoint
from seeded_noise import SeededNoise

SHARE, ROWS = 0.004, 400_000
RANGES = {"logistic": (0.0, 1.0), "poisson": (0.0, 60.0), "linear": (-8.0, 8.0)}
CENTRE = (-0.2, 0.4, 0.04)
VALUE = float(np.sqrt((1 - SHARE) / SHARE))  # of the level's standardised indicator


def table() -> np.ndarray:
    """An intercept, a normal column, and the indicator of a rare level in standard units."""
    rng = np.random.default_rng(1)
    holds = np.arange(ROWS) < SHARE * ROWS
    return np.column_stack([np.ones(ROWS), rng.normal(size=ROWS), np.where(holds, VALUE, -1 / VALUE)])


def looked(family: str, population: Population) -> tuple[Any, Viewpoint, np.ndarray, np.ndarray]:
    """What a look that shortens rare rows sees of pseudo-rows; the rows themselves, and what it leaves of each."""
    known, rows = FAMILIES[family], table()
    free = Viewpoint(CENTRE, tuple(map(tuple, np.eye(3).tolist())), 1e9, 1e9, 1.5, 4.0)
    at = free.residual_table(known, RANGES[family])
    weight, largest = at.at(rows @ CENTRE, at.weight, at.largest)
    information = (rows * weight[:, None]).T @ rows / ROWS
    whitening = inverse_root(information, 1e-6)
    z = rows @ whitening
    squared = np.einsum("ij,ij->i", z, z)
    of_level = slice(int(SHARE * ROWS))
    score_bound, information_bound = (
        float(np.mean(each[of_level])) for each in (largest * np.sqrt(squared) / 3, weight * squared / 5)
    )
    view = Viewpoint(CENTRE, tuple(map(tuple, whitening.tolist())), score_bound, information_bound, 1.5, 4.0)
    kappa = np.minimum(1.0, view.score_bound / (largest * np.sqrt(squared)))
    shorter = np.minimum(kappa, view.information_bound / (weight * squared))
    found = seen(population, view, known, RANGES[family], information)
    return found, view, z, np.stack([weight, kappa, shorter])


def populations() -> tuple[Population, Population]:
    """Pseudo-rows that know of the rare level, and some that do not."""
    mean, covariance = np.zeros(2), np.eye(2)
    rare = np.array([0.0, 0.0, VALUE])
    return of_moments(mean, covariance, True, False, rare), of_moments(mean, covariance, True, False)


@pytest.mark.parametrize("family", RANGES)
def test_what_bounds_leave_of_a_rare_level_is_what_sums_over_rows_say(family: str) -> None:
    """Within a fifth; pseudo-rows that do not know of it are off by a factor of two or more."""
    knowing, other = populations()
    found, _, z, (weight, kappa, shorter) = looked(family, knowing)
    without = looked(family, other)[0]
    for name, left in (("bounded", shorter), ("slope_here", kappa)):
        exact = (z * (left * weight)[:, None]).T @ z / ROWS
        assert getattr(found, name)[2, 2] == pytest.approx(exact[2, 2], rel=0.2)
        assert getattr(without, name)[2, 2] > 2 * exact[2, 2]
        np.testing.assert_allclose(getattr(found, name)[:2, :2], exact[:2, :2], atol=0.12)
    assert found.least_left(1) < 0.5
    assert without.least_left(0) == without.least_left(1) == 1
    assert found.relative_size[2, 2] < 0.5


@pytest.mark.parametrize("family", RANGES)
@pytest.mark.parametrize("effect", [-0.06, 0.06])
def test_the_slope_of_a_rare_level_bends_with_its_own_rows(family: str, effect: float) -> None:
    """A move of one unit for rows of the level: the score that it leaves, of the coefficient."""
    knowing, other = populations()
    found, view, z, (_, kappa, _) = looked(family, knowing)
    at = view.residual_table(FAMILIES[family], RANGES[family])
    move = np.array([0.0, 0.0, effect])
    u = table() @ CENTRE
    change = FAMILIES[family].moved(at, view.spread, view.clip, u, table() @ move) - at.at(u, at.mean)[0]
    exact = (z * (kappa * change)[:, None]).mean(axis=0)[2]

    def told(seen_of: Any) -> float:
        return float((seen_of.slope(move) @ np.linalg.solve(view.whitening_matrix, move))[2])

    assert told(found) == pytest.approx(exact, rel=0.25)
    assert abs(told(looked(family, other)[0])) > 1.6 * abs(exact)


def test_information_of_a_rare_level_follows_the_weight_of_its_rows() -> None:
    knowing, other = populations()
    family = FAMILIES["poisson"]
    at = family.residual_table(1.5, 4.0, RANGES["poisson"])
    start, end = np.array([-0.2, 0.4, 0.04]), np.array([-0.2, 0.4, -0.1])
    rows = table()
    before, after = (
        (rows * at.at(rows @ centre, at.weight)[0][:, None]).T @ rows / ROWS for centre in (start, end)
    )  # fmt: skip
    of_others = after[0, 0] / before[0, 0]
    change = knowing.change_of_rare(at, start, end, of_others)
    assert of_others * change[2, 2] == pytest.approx(after[2, 2] / before[2, 2], rel=0.15)
    assert after[2, 2] / before[2, 2] < 0.3  # so that it says something
    assert change[0, 0] == 1
    assert (other.change_of_rare(at, start, end, of_others) == 1).all()


# From a survey on


def schema_of(rows: int) -> dict[str, Any]:
    columns = {
        "x": {"type": "numeric", "lower": -30, "upper": 30},
        "g": {"type": "categorical", "levels": ["usual", "other", "scarce"], "fill": "usual"},
        "y": {"type": "binary", "levels": [0, 1], "fill": 0},
    }
    return {"dataset": {"name": "t", "rows": rows, "unit": "one person"}, "columns": columns}


def frame(rows: int, few: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    g = np.where(rng.random(rows) < 0.4, "other", "usual").astype(object)
    g[:few] = "scarce"
    u = -0.3 + 0.5 * x + 0.3 * (g == "other") + 0.8 * (g == "scarce")
    return {"x": x, "g": g, "y": (rng.random(rows) < 1 / (1 + np.exp(-u))).astype(int)}


def released(rows: int, few: int, seed: int) -> dpglm.Release:
    request = Request("y ~ x + g", schema_of(rows), "logistic", 1.0, 1e-6)
    return build_release(pd.DataFrame(frame(rows, few, seed)), request, SeededNoise(seed))


def fitted(made: dpglm.Release) -> dpglm.Fit:
    """Without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)
        return dpglm.fit(made, progress=False)


def test_levels_that_hardly_occur_are_counted_again_more_sharply() -> None:
    few, many = (released(50_000, few, 1) for few in (100, 20_000))
    stddevs = []
    for made in (few, many):
        record = made.survey_record
        asked = [question for question, _ in record.asked if question.subject == 2]
        assert [question.subject for question, _ in record.asked].count(2) == len(asked)
        stddevs.append((len(asked), {row["noise"] for row in survey_rows(record) if row["column"] == "g"}))
    (asked_few, (noise_few,)), (asked_many, (noise_many,)) = stddevs
    assert (asked_few, asked_many) == (2, 1)
    assert noise_few < noise_many / 3


def test_counts_of_one_question_are_averaged_by_precision() -> None:
    design = released(2_000, 50, 1).survey_record.design
    asking, said = surveying(design), None
    question = next(asking)
    sharp: list[float] = []
    while said is None:
        values = [2_000.0 if question.subject is None and len(question.ranges) == 1 else 0.0] * len(question.ranges)
        if question.subject == 2:
            values = [1_100.0, 850.0, 50.0] if not sharp else [1_110.0, 790.0, 100.0]
            sharp.append(question.sharper)
        try:
            stddev = 40.0 * 2.0**20 / question.sharper
            question = asking.send(Answer(tuple(int(value * 2**20) for value in values), stddev))
        except StopIteration as end:
            said = end.value
    first, second = (each**2 for each in sharp)
    expected = (first * np.array([1_100, 850, 50]) + second * np.array([1_110, 790, 100])) / (first + second) / 2_000
    np.testing.assert_allclose(said.places[2].shares, expected, rtol=1e-5)
    assert said.places[2].stddev == pytest.approx(40.0 / np.sqrt(first + second) / 2_000, rel=1e-5)


def test_of_a_level_that_the_survey_did_not_see_little_is_said() -> None:
    """Its standard error is as doubtful as its number of rows; other coefficients are untouched."""
    made = released(20_000, 0, 3)
    survey = made.survey_record.survey
    known = before_looks(made.design, survey, default_prior(made.design, survey))
    assert known.doubt[3] > 1
    assert (known.doubt[:3] == 0).all()
    fit = fitted(made)
    assert any("cannot tell whether any row has scarce" in message for message in fit.warnings)
    summary = fit.summary()
    assert summary["sd"].iloc[3] > 20 * summary["sd"].iloc[2]
    assert summary["inflation"].iloc[1] < 2


def test_a_rare_reference_level_is_as_rare() -> None:
    """Of two levels the rarer one may be either."""
    schema = schema_of(50_000)
    schema["columns"]["g"] = {"type": "binary", "levels": ["scarce", "usual"], "fill": "usual"}
    rows = frame(50_000, 300, 2)
    rows["g"] = np.where(rows["g"] == "scarce", "scarce", "usual")
    made = build_release(pd.DataFrame(rows), Request("y ~ x + g", schema, "logistic", 1.0, 1e-6), SeededNoise(4))
    survey = made.survey_record.survey
    rare = before_looks(made.design, survey, default_prior(made.design, survey)).population.rare
    assert rare is not None
    assert rare[2] == pytest.approx(-np.sqrt((1 - 0.006) / 0.006), rel=0.3)
    assert (rare[:2] == 0).all()


def test_a_level_with_few_rows_is_found_and_not_without_its_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 of 100,000 rows, three tables: within four standard deviations, at most three times as wide as without
    privacy (0.13); read as if its rows were pseudo-rows it is many times as wide, or far off.
    """

    def told() -> list[tuple[float, float]]:
        found = []
        for seed in range(3):
            row = fitted(released(100_000, 300, seed)).summary().iloc[3]
            found.append((abs(row["mean"] - 0.8) / row["sd"], row["sd"] / 0.13))
        return found

    assert all(z < 4 and width < 3 for z, width in told())
    monkeypatch.setattr(coding, "_LONG", 1e9)
    assert max(max(z / 4, width / 3) for z, width in told()) > 1.3
