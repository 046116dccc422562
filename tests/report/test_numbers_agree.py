"""Every number that is shown is recomputed from the release: page, table, summary and JSON say the same."""

from __future__ import annotations

import html.parser
import json
import re
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import dpglm
from dpglm.analyst.labels import named_coefficients
from dpglm.analyst.table import interval_text, ratio_text
from dpglm.analyst.typical import reference_point
from dpglm.cli_analyst import summary_text
from dpglm.formats import noisy_share, number, percent, plain_number
from dpglm.looks.coding import before_looks, default_prior
from dpglm.looks.gaussian import of_population, of_prior, together
from dpglm.looks.profile import LOOKS_BEFORE, add_profile
from dpglm.looks.reading import add_look
from dpglm.report.html import page
from dpglm.report.summary import summarize

LINKS: dict[str, Any] = {"logistic": lambda u: 1 / (1 + np.exp(-u)), "poisson": np.exp, "linear": lambda u: u}
RATIOS = {"logistic": "odds_ratio", "poisson": "rate_ratio", "linear": None}


def posterior_of(release: dpglm.Release) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance in the user's units: the file's looks read again, without the fit."""
    survey = release.survey_record.survey  # type: ignore[union-attr]
    belief = default_prior(release.design, survey)
    known = before_looks(release.design, survey, belief)
    for stage in release.stages:
        if known.looks == LOOKS_BEFORE and release.profile is not None:
            known = add_profile(known, release.profile)
        known = add_look(known, stage.as_look())
    precision = together([of_population(known), of_prior(belief)])
    matrix, shift = release.design.to_original_units()
    covariance = np.linalg.inv(precision.precision)
    return matrix @ covariance @ precision.shift + shift, matrix @ covariance @ matrix.T


class Shown(html.parser.HTMLParser):
    """Cells of tables by their row's heading, the tips of rows, and the text of each section."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tips: dict[str, list[str]] = {}
        self.rows: dict[str, list[list[str]]] = {}
        self.sections: dict[str, str] = {}
        self._section, self._cells = "", [""]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        if tag == "section":
            self._section = given["id"]
            self.sections[self._section] = ""
        if "data-tip" in given:
            self.tips.setdefault(given["data-tip"].split("\n")[0].split(": ")[0], []).append(given["data-tip"])
        if tag == "tr":
            self._cells = []
        if tag in ("th", "td"):
            self._cells.append("")

    def handle_data(self, data: str) -> None:
        self.sections[self._section] = self.sections.get(self._section, "") + data
        if self._cells:
            self._cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr":
            self.rows.setdefault(self._cells[0], []).append(self._cells[1:])
            self._cells = []


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_every_number_of_the_coefficients_is_that_of_the_release(looks_fit: Any, family: str) -> None:
    formula = "cost ~ age + treated + visits" if family == "linear" else None
    fit = looks_fit(family, formula)
    release = fit.releases[0]
    mean, covariance = posterior_of(release)
    stddev, reach, ratio = np.sqrt(np.diag(covariance)), NormalDist().inv_cdf(0.975), RATIOS[family]
    summary, shown = fit.summary(), Shown(page(summarize(fit)))
    records = json.loads(fit.table().to_json())["rows"]
    terminal = summary_text(fit, 0.95)
    for each, m, s, record in zip(named_coefficients(release), mean, stddev, records, strict=True):
        numbers = np.array([m, s, m - reach * s, m + reach * s])
        told = summary.loc[each.name, ["mean", "sd", "lower", "upper"]].astype(float)
        np.testing.assert_allclose(told, numbers, 1e-7)
        p_sign = NormalDist().cdf(abs(m) / s)
        assert summary.loc[each.name, "p_sign"] == pytest.approx(p_sign)
        stepped = numbers * each.step
        np.testing.assert_allclose([record[k] for k in ("estimate", "sd", "lower", "upper")], stepped, 1e-7)
        texts = [number(value) for value in numbers]
        every = next(row for row in shown.rows[each.name] if row[0] == f"{texts[0]} ({texts[1]})")
        assert every[1] == f"{texts[2]} to {texts[3]}"
        assert every[2] == percent(p_sign)
        assert re.search(rf"{re.escape(each.name)} .*{re.escape(percent(p_sign))}", terminal)
        wanted = interval_text(stepped[0], stepped[2], stepped[3])
        pasted = next(row for row in shown.rows[each.label] if row[0] == wanted)
        if each.name == "Intercept":
            assert f"The intercept is {texts[0]} (95 %: {texts[2]} to {texts[3]})" in shown.sections["coefficients"]
            continue
        tip = shown.tips[each.label.split(": ")[0]]
        own = next(text for text in tip if text.startswith(f"{each.label}\n"))
        assert f"mean {number(stepped[0])}, sd {number(stepped[1])}" in own
        assert f"95 %: {number(stepped[2])} to {number(stepped[3])}" in own
        if ratio:
            ratios = np.exp(stepped[[0, 2, 3]])
            per = "" if each.step == 1 else f" per {each.step:,.0f}"
            assert re.search(rf"{re.escape(each.name)} .* {plain_number(ratios[0], 4)}{per} ", terminal)
            assert pasted[1] == ratio_text(*ratios)
            np.testing.assert_allclose([record[f"{ratio}{end}"] for end in ("", "_lower", "_upper")], ratios, 1e-6)
            assert ratio_text(*ratios).split(" (")[0] in shown.sections["coefficients"]


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_predictions_and_average_effects_are_those_of_the_release(looks_fit: Any, family: str) -> None:
    fit = looks_fit(family)
    mean, covariance = posterior_of(fit.releases[0])
    point = reference_point(fit.releases[0])
    summary = summarize(fit)
    section = Shown(page(summary)).sections["effects"]
    levels = {"p": (0, 0), "q": (1, 0), "r": (0, 1)}
    reach = NormalDist().inv_cdf(0.975)
    for level, codes in levels.items():
        x = np.array([1.0, float(point["age"]), *codes, *([float(point["treated"])] if family == "logistic" else [])])
        u, s = x @ mean, np.sqrt(x @ covariance @ x)
        draws = LINKS[family](u + s * np.random.default_rng(0).standard_normal(50_000))
        effect = next(each for each in summary.effects if each.column.name == "group")
        place = effect.values.index(level)
        ends = [LINKS[family](u - reach * s), LINKS[family](u + reach * s)]
        np.testing.assert_allclose([effect.lower[place], effect.upper[place]], ends, rtol=1e-7)
        assert effect.mean[place] == pytest.approx(draws.mean(), rel=5e-3)
        shown = interval_text(effect.mean[place], *ends)
        assert shown.split(" (")[0] in section
        assert shown.split(" (")[1].removesuffix(")") in section
    effects = fit.marginal_effects()
    text = Shown(page(summary)).sections["average"]
    unit = 100 if family == "logistic" else 1
    for _, row in effects.iterrows():
        assert interval_text(unit * row["mean"], unit * row["lower"], unit * row["upper"]).split(" (")[0] in text


def test_who_is_in_the_table_is_what_the_survey_says(looks_fit: Any) -> None:
    fit = looks_fit()
    section = Shown(page(summarize(fit))).sections["people"]
    for row in fit.releases[0].survey.to_dict("records"):
        if row["level"] is not None:
            assert noisy_share(row["share"], row["noise"]) in section
        assert noisy_share(row["missing"], row["missing_noise"]) in section


def test_a_seed_changes_nothing_that_is_shown(looks_fit: Any) -> None:
    """Of a closed form; but for the seed itself."""
    release = looks_fit().releases[0]
    one, other = (page(summarize(dpglm.fit(release, seed=seed))) for seed in (1, 2))
    for seed, text in (("1", one), ("2", other)):
        assert f"--seed {seed}" in text
    hidden = [re.sub(r"(--seed |<dt>seed</dt><dd>)\d+", "", text) for text in (one, other)]
    assert hidden[0] == hidden[1]


def test_a_number_that_is_off_would_be_noticed(looks_fit: Any) -> None:
    fit = looks_fit()
    prior = fit.closed.prior
    moved = replace(fit, closed=replace(fit.closed, prior=replace(prior, shift=prior.shift + 0.5)))
    assert np.abs(moved.normal()[0] / posterior_of(fit.releases[0])[0] - 1).max() > 1e-3
