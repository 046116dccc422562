"""Survival curves of a fit of person-periods, against products by hand; the plot and the page show the same."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.analyst.result import Fit
from dpglm.custodian.build import Request, build_release
from dpglm.errors import InputError
from dpglm.report.html import page
from dpglm.report.summary import summarize
from seeded_noise import SeededNoise

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

PERIODS = ["0 to 1", "1 to 3", "3 to 6"]
ENDS = [0.0, 1.0, 3.0, 6.0]
COLUMNS: dict[str, Any] = {
    "period": {"type": "categorical", "levels": PERIODS, "fill": "0 to 1"},
    "ages": {"type": "categorical", "levels": ["20 to 40", "40 to 90"], "fill": "20 to 40"},
    "died": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    "x": {"type": "numeric", "lower": -4, "upper": 4},
    "n": {"type": "count", "upper": 9, "fill": 0},
}


def fitted(formula: str, link: str | None, family: str = "logistic") -> Fit:
    rng, rows = np.random.default_rng(1), 3_000
    x, period = rng.normal(size=rows), rng.integers(0, 3, rows)
    chance = 1 - np.exp(-np.exp(-2.0 + 0.5 * x + 0.4 * period))
    table = pd.DataFrame({
        "period": np.array(PERIODS)[period], "ages": np.where(rng.random(rows) < 0.5, "20 to 40", "40 to 90"), "x": x,
        "died": np.where(rng.random(rows) < chance, "yes", "no"), "n": rng.poisson(1.0, rows),
    })  # fmt: skip
    schema = dpglm.Schema.from_dict({"dataset": {"name": "p", "rows": rows, "unit": "one person"}, "columns": COLUMNS})
    release = build_release(table, Request(formula, schema, family, 2.0, 1e-6, link=link), SeededNoise(1))
    return dpglm.fit(replace(release, private=True), seed=1)


@pytest.fixture(scope="module")
def fit() -> Fit:
    return fitted("died ~ period + x", "cloglog")


def test_a_curve_is_the_product_of_what_every_period_leaves(fit: Fit) -> None:
    told = fit.survival({"x": [-1.0, 1.0]}, prob=0.9)
    assert list(told.columns) == ["x", "time", "survival", "sd", "lower", "upper"]
    assert told["time"].tolist() == ENDS * 2
    names, draws = list(fit.names), fit.draws().reshape(-1, len(fit.names))
    for x, own in told.groupby("x"):
        kept = np.ones(len(draws))
        for period, row in zip([None, *PERIODS], own.itertuples(), strict=True):
            if period is not None:
                u = draws[:, 0] + x * draws[:, names.index("x")]
                if period != PERIODS[0]:
                    u = u + draws[:, names.index(f"period[{period}]")]
                kept = kept * np.exp(-np.exp(u))
            assert row.survival == pytest.approx(kept.mean(), abs=0.003)
            assert row.lower == pytest.approx(np.quantile(kept, 0.05), abs=0.006)
            assert row.upper == pytest.approx(np.quantile(kept, 0.95), abs=0.006)
    assert (told["survival"][told["x"] < 0].to_numpy()[1:] > told["survival"][told["x"] > 0].to_numpy()[1:]).all()
    pd.testing.assert_frame_equal(told, fit.survival({"x": [-1.0, 1.0]}, prob=0.9))  # no draw is left to chance


def test_bands_hold_the_truth(fit: Fit) -> None:
    """Of the simulated people: hazards that add up, exp(-2 + 0.5 x + 0.4 period). One table, 6 intervals of 99.9 %."""
    told = fit.survival({"x": [0.0, 1.0]}, prob=0.999)
    for x, own in told.groupby("x"):
        hazards = np.exp(-2.0 + 0.5 * x + 0.4 * np.arange(3))
        truth = np.exp(-np.append(0.0, np.cumsum(hazards)))
        assert (own["lower"] <= truth + 1e-12).all()
        assert (truth <= own["upper"] + 1e-12).all()


def test_other_links_have_their_own_chances() -> None:
    for link in ("logit", "probit"):
        fit = fitted("died ~ period", link)
        chances = fit.predict({"period": PERIODS})["mean"].to_numpy()
        told = fit.survival()["survival"].to_numpy()
        assert told[0] == 1
        np.testing.assert_allclose(told[1:], np.cumprod(1 - chances), atol=0.003)


def test_periods_are_named_where_another_column_looks_like_them() -> None:
    fit = fitted("died ~ period + ages", "cloglog")
    with pytest.raises(InputError, match="or several"):
        fit.survival()
    told = fit.survival({"ages": "40 to 90"}, period="period")
    assert told["time"].tolist() == ENDS
    assert "Survival" not in page(summarize(fit))


@pytest.mark.parametrize(
    ("formula", "family", "arguments", "said"),
    [
        ("died ~ x", "logistic", {}, "has no column of periods"),
        ("n ~ period + x", "poisson", {}, "has no column of periods"),
        ("died ~ period + x", "logistic", {"at": {"period": "0 to 1"}}, "all of them are used"),
        ("died ~ period + x", "logistic", {"at": {"y": 1}}, "must name a predictor"),
        ("died ~ period + x", "logistic", {"prob": 1.5}, "must lie between 0 and 1"),
        ("died ~ period + x", "logistic", {"at": {"x": np.linspace(-4, 4, 20_000)}}, "too many profiles"),
        ("died ~ period + x", "logistic", {"period": "x"}, "has no such periods"),
    ],
)
def test_mistakes_are_told(formula: str, family: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        fitted(formula, None, family).survival(**arguments)


def test_the_plot_shows_the_curves(fit: Fit) -> None:
    from matplotlib import pyplot

    ax = dpglm.plot_survival(fit, {"x": [-1.0, 1.0]}, prob=0.9, textsize=8)
    told = fit.survival({"x": [-1.0, 1.0]}, prob=0.9)
    dots = [line for line in ax.lines if line.get_linestyle() == "None"]
    for line, (_, own) in zip(dots, told.groupby("x"), strict=True):
        np.testing.assert_allclose(line.get_xdata(), own["time"])
        np.testing.assert_allclose(line.get_ydata(), own["survival"])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["x = -1", "x = 1"]
    alone = dpglm.plot_survival(fit, ax=pyplot.subplots()[1])
    assert "at x = " in alone.get_title()
    pyplot.close("all")


def test_the_page_has_a_section_of_survival(fit: Fit) -> None:
    text = page(summarize(fit, at={"x": 0.5}))
    assert '<section id="survival"' in text
    assert "hazard ratio, as of a Cox model" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    drawn = {key: value for key, value in data.items() if key.startswith("survival-")}
    assert len(drawn) == 3  # x where it is low, typical and high
    for curve in drawn.values():
        assert (curve["low"], curve["high"], curve["mean"][0]) == (0.0, 6.0, 1.0)
        value = float(re.search(r"x = (\S+)\)", curve["outcome"])[1].replace("−", "-"))  # type: ignore[index]
        told = fit.survival({"x": value})
        assert curve["mean"][-1] == pytest.approx(told["survival"].iloc[-1], abs=1e-3)
        middle = math.sqrt(told["survival"].iloc[2] * told["survival"].iloc[3])  # half way, where a hazard is constant
        assert curve["mean"][45] == pytest.approx(middle, abs=1e-3)
        assert all(
            low <= mean <= high for low, mean, high in zip(curve["lower"], curve["mean"], curve["upper"], strict=True)
        )
    assert 'id="survival"' not in page(summarize(fitted("died ~ x", None)))
