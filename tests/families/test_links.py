"""Links of two levels that are not the logit: their scores, and releases with them against likelihoods of rows."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import erfc

import dpglm
from dpglm.errors import FileError, InputError
from dpglm.families import FAMILIES, OTHER_LINKS, family_named
from dpglm.families.logistic import LONGEST
from dpglm.release_file import read_release
from dpglm.releases import Release
from dpglm.report.summary import summarize
from dpglm.report.words import methods

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.FitWarning")  # noise is random, and may deserve one
LINKS = ("probit", "cloglog")
GRID = np.linspace(-6.0, 2.5, 200)


def schema_of(rows: int) -> dpglm.Schema:
    return dpglm.Schema.from_dict(
        {
            "dataset": {"name": "people", "rows": rows, "unit": "one person"},
            "columns": {
                "age": {"type": "numeric", "lower": -1000, "upper": 1000},
                "exposed": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
                "event": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
            },
        }
    )


def drawn(link: str, truth: Any, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Rows with an intercept, outcomes, and the table of them."""
    rng = np.random.default_rng(seed)
    age, exposed = rng.normal(0, 8, rows), rng.random(rows) < 0.3
    x = np.column_stack([np.ones(rows), age, exposed])
    y = rng.random(rows) < family_named("logistic", link).inverse_link(x @ truth)
    words = np.array(["no", "yes"])
    return x, y, pd.DataFrame({"age": age, "exposed": words[exposed.astype(int)], "event": words[y.astype(int)]})


def released(table: pd.DataFrame, link: str | None, epsilon: float, **more: Any) -> Release:
    return dpglm.release(
        table, "event ~ age + exposed", schema=schema_of(len(table)), family="binomial", epsilon=epsilon, delta=1e-6,
        ledger=None, link=link, **more,
    )  # fmt: skip


def most_likely(link: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood by Newton's method on its numeric gradient, and standard errors by its curvature."""
    p: Any = {
        "logit": lambda u: 1 / (1 + np.exp(-u)),
        "probit": lambda u: 0.5 * erfc(-u / math.sqrt(2)),
        "cloglog": lambda u: 1 - np.exp(-np.exp(u)),
    }[link]
    here = np.zeros(x.shape[1])
    here[0] = FAMILIES["logistic"].linear_predictor(y.mean()) / 2
    for _ in range(60):
        u = x @ here
        down, middle, up = (np.clip(p(u + step), 1e-12, 1 - 1e-12) for step in (-1e-4, 0.0, 1e-4))
        slope = (up - down) / 2e-4
        score = x.T @ ((y - middle) * slope / (middle * (1 - middle)))
        fisher = x.T @ (x * (slope**2 / (middle * (1 - middle)))[:, None])
        here = here + np.linalg.solve(fisher, score)
    return here, np.sqrt(np.diag(np.linalg.inv(fisher)))


@pytest.mark.parametrize("link", LINKS)
def test_the_score_is_the_likelihoods_own_but_where_a_residual_would_be_too_long(link: str) -> None:
    family = family_named("logistic", link)
    table = family.residual_table(1.0, 4.0, (0.0, 1.0))
    mean, multiplier, weight, largest = table.at(GRID, table.mean, table.high, table.weight, table.largest)
    p = family.inverse_link(GRID)
    slope = (family.inverse_link(GRID + 1e-5) - family.inverse_link(GRID - 1e-5)) / 2e-5
    own = slope / (p * (1 - p))
    held = own * np.maximum(p, 1 - p) > LONGEST
    assert held.any()
    assert not held.all()
    np.testing.assert_allclose(multiplier[~held], own[~held], rtol=2e-4)
    np.testing.assert_allclose(largest[held], LONGEST, rtol=2e-4)
    assert (table.largest <= LONGEST * (1 + 1e-12)).all()
    np.testing.assert_allclose(mean, multiplier * p, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(weight, multiplier * slope, rtol=1e-3, atol=1e-6)


COSTS = [("probit", -2.0, 1.025), ("cloglog", -2.0, 1.001), ("cloglog", 1.0, 1.1)]


@pytest.mark.parametrize(("link", "intercept", "most"), COSTS)
def test_holding_the_score_costs_little_precision(link: str, intercept: float, most: float) -> None:
    """Variance of a slope over that of maximum likelihood, of a normal predictor with strong effects."""
    family = family_named("logistic", link)
    table = family.residual_table(1.0, 4.0, (0.0, 1.0))
    x = np.column_stack([np.ones(4000), np.random.default_rng(0).standard_normal(4000)])
    u = x @ [intercept, 0.8]
    p, (multiplier, weight) = family.inverse_link(u), table.at(u, table.high, table.weight)
    slope = (family.inverse_link(u + 1e-5) - family.inverse_link(u - 1e-5)) / 2e-5
    best = np.linalg.inv(x.T @ (x * (slope**2 / np.clip(p * (1 - p), 1e-12, 1))[:, None]))
    bread = np.linalg.inv(x.T @ (x * weight[:, None]))
    found = bread @ (x.T @ (x * (multiplier**2 * p * (1 - p))[:, None])) @ bread
    assert 1 - 1e-4 < found[1, 1] / best[1, 1] < most


@pytest.mark.parametrize("family", [*FAMILIES.values(), *OTHER_LINKS.values()], ids=lambda family: family.link)
def test_a_link_and_its_inverse_undo_each_other(family: Any) -> None:
    for mean in (0.003, 0.4, 0.95):
        assert family.inverse_link(np.array([family.linear_predictor(mean)]))[0] == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize(("link", "truth"), [("probit", (-1.2, 0.05, 0.5)), ("cloglog", (-2.0, 0.05, 0.6))])
def test_with_hardly_any_noise_a_fit_is_maximum_likelihood(link: str, truth: tuple[float, ...]) -> None:
    x, y, table = drawn(link, truth, 20_000, seed=2)
    best, errors = most_likely(link, x, y)
    told = dpglm.fit(released(table, link, 1e4), seed=1).summary()
    off = (told["mean"].to_numpy() - best) / errors
    assert (np.abs(off) < 0.15).all(), off
    np.testing.assert_allclose(told["sd"], errors, rtol=0.06)
    wrong = dpglm.fit(released(table, None, 1e4), seed=1).summary()["mean"].to_numpy()
    assert np.abs((wrong - best) / errors).max() > 3  # another link is another model


@pytest.mark.parametrize(("link", "truth"), [("probit", (-1.2, 0.05, 0.5)), ("cloglog", (-2.5, 0.06, 0.6))])
def test_intervals_hold_the_truth(link: str, truth: tuple[float, ...]) -> None:
    """20 tables, 3 coefficients: with a coverage of 95 % fewer than 48 of 60 happen once in 10^6 times."""
    inside, wanted = 0, np.array(truth)
    for seed in range(20):
        told = dpglm.fit(released(drawn(link, truth, 4_000, seed)[2], link, 1.0), seed=1).summary()
        inside += int(((told["lower"] <= wanted) & (wanted <= told["upper"])).sum())
    assert inside >= 48


@pytest.fixture(scope="module")
def made() -> dict[str, Release]:
    table = drawn("cloglog", (-2.0, 0.05, 0.6), 2_000, seed=1)[2]
    return {link: released(table, link, 1.0) for link in ("logit", *LINKS)}


@pytest.mark.parametrize("link", LINKS)
def test_a_release_states_its_link_and_is_read_back(link: str, made: dict[str, Release]) -> None:
    text = made[link].to_json()
    data = json.loads(text)
    assert data["regression"]["family"] == "logistic"
    assert data["regression"]["link"] == data["survey"]["link"] == link
    again = read_release(text)
    assert again.to_json() == text
    assert again.design == made[link].design
    assert dpglm.fit(again, seed=1).link == link
    assert "link" not in json.loads(made["logit"].to_json())["regression"]


def test_a_file_with_a_link_that_is_not_its_familys_is_refused(made: dict[str, Release]) -> None:
    from dpglm.release_file import _checksum

    for family, link in (("logistic", "logit"), ("poisson", "probit"), ("logistic", "identity")):
        data = json.loads(made["probit"].to_json())
        data["regression"] |= {"family": family, "link": link}
        data["checksum"] = _checksum({key: value for key, value in data.items() if key != "checksum"})
        with pytest.raises(FileError, match=r"does not fit|contradicts itself"):
            read_release(json.dumps(data))


def test_results_follow_the_link(made: dict[str, Release]) -> None:
    fits = {link: dpglm.fit(release, seed=1) for link, release in made.items()}
    assert [fit.ratio_name for fit in fits.values()] == ["odds_ratio", None, "hazard_ratio"]
    for link, fit in fits.items():
        at = fit.draws().reshape(-1, 3)[:, :2] @ [1.0, 4.0]
        wanted = family_named("logistic", link).inverse_link(at).mean()
        assert fit.predict({"age": [4.0], "exposed": ["no"]})["mean"][0] == pytest.approx(wanted, rel=0.01)
        assert f"{link} link" in methods(summarize(fit))
    assert "Hazard ratio" in fits["cloglog"].table().to_markdown()


def test_one_link_at_a_time_is_fitted(made: dict[str, Release]) -> None:
    with pytest.raises(InputError, match="another one's link is logit; fit one link at a time"):
        dpglm.fit([made["logit"], made["probit"]])
    with pytest.raises(InputError, match="link"):
        dpglm.fit(made["logit"], link="probit")
    assert dpglm.fit(made["probit"], link="probit").link == "probit"


@pytest.mark.parametrize(
    ("family", "link", "said"),
    [
        ("logistic", "probt", "did you mean 'probit'"),
        ("poisson", "probit", "must be one of log for family 'poisson'"),
        ("gaussian", "cloglog", "must be one of identity for family 'linear'"),
        ("logistic", 3, "must be one of logit, probit, cloglog"),
        ("binomal", None, "did you mean 'binomial'"),
    ],
)
def test_a_wrong_link_is_told_what_there_is(family: str, link: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        family_named(family, link)


def test_families_have_the_names_of_other_packages_too() -> None:
    assert [family_named(name).name for name in ("binomial", "gaussian", "count")] == ["logistic", "linear", "poisson"]
    assert family_named("binomial", "logit") is FAMILIES["logistic"]


def test_moments_have_their_link_at_the_fit() -> None:
    table = drawn("probit", (-1.2, 0.05, 0.5), 500, seed=1)[2]
    with pytest.raises(InputError, match=r"link = probit: belongs to the fit"):
        released(table, "probit", 1.0, method="moments")


def test_a_plan_is_of_the_link_that_is_asked_for() -> None:
    plans = [
        dpglm.plan("event ~ age + exposed", schema=schema_of(5_000), family="logistic", epsilon=1.0, link=link)
        for link in (None, "cloglog")
    ]
    assert "log-odds" in str(plans[0])
    assert "(logistic, cloglog link, 3 coefficients" in str(plans[1])
    assert "log hazard" in str(plans[1])
    assert plans[1].cases[1].half_width < plans[0].cases[1].half_width  # the same predictor moves a hazard less
