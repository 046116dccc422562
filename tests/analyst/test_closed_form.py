"""The posterior in closed form, against a joint normal distribution that is conditioned by brute force."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpglm
from dpglm import release_file
from dpglm.errors import InputError
from dpglm.looks.coding import before_looks
from dpglm.looks.profile import add_profile
from dpglm.looks.reading import Belief, Knowledge, add_look, sampling_covariance

Made = Callable[..., dpglm.Release]
FAMILIES = ("logistic", "poisson", "linear")


def conditioned(
    mean: np.ndarray, covariance: np.ndarray, selected: np.ndarray, noise: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a normal vector, given selected @ vector + noise = seen."""
    both = covariance @ selected.T
    gain = both @ np.linalg.inv(selected @ both + noise)
    return mean + gain @ (seen - selected @ mean), covariance - gain @ both.T


def prior_by_hand(release: dpglm.Release, slopes: float = 2.5, intercept: float = 5.0) -> tuple[Any, Any]:
    """Around the survey's intercept, in standard units."""
    place = release.survey_record.survey.places[0]
    size = len(release.design.coefficient_names)
    centre = {
        "logistic": lambda: np.log(place.shares[1] / place.shares[0]),
        "poisson": lambda: np.log(place.centre),
        "linear": lambda: 0.0,
    }[release.family]()
    return np.append(centre, np.zeros(size - 1)), np.diag([intercept**2, *[slopes**2] * (size - 1)])


def read_by_hand(release: dpglm.Release) -> Knowledge:
    """What the looks know of the estimate that bounded rows would give, with the default prior."""
    known = before_looks(release.design, release.survey_record.survey, Belief(*prior_by_hand(release)))
    for number, stage in enumerate(release.stages):
        if number == 2:
            known = add_profile(known, release.profile)
        known = add_look(known, stage.as_look())
    return known


@pytest.mark.parametrize("family", FAMILIES)
def test_posteriors_are_those_of_a_joint_normal(family: str, released: Made) -> None:
    """v ~ prior; looks see, with the precision P, what bounded rows would estimate: v + sampling error + shift.

    The table's own plain estimate is t = v + e; what bounded rows estimate is off from it by the shift, and by what
    bounding takes of its efficiency.
    """
    release = released(family)
    fit = dpglm.fit(release, progress=False)
    closed, size, known = fit.closed, len(fit.names), read_by_hand(release)
    mean, covariance = prior_by_hand(release)
    error, nothing = sampling_covariance(known), np.zeros((size, size))
    plain, shift = error / np.outer(known.efficiency, known.efficiency), known.pooled.bounding
    apart = np.sqrt(np.abs(np.diag(error) - np.diag(plain)) / np.diag(error))
    assert (np.diag(shift) > 1e-4 * np.diag(error)).all()
    np.testing.assert_allclose(closed.sampling, plain, rtol=1e-9)
    np.testing.assert_allclose(closed.bounding, shift, rtol=1e-9)
    precision = known.pooled.precision
    seen, noise = np.linalg.solve(precision, known.pooled.shift), np.linalg.inv(precision)
    for target, own, off in (("population", error, shift), ("table", plain, shift + np.outer(apart, apart) * error)):
        # v, its error, and how far what looks see is from their sum.
        joint = np.block([[covariance, nothing, nothing], [nothing, own, nothing], [nothing, nothing, off]])
        joint_mean = np.concatenate([mean, np.zeros(2 * size)])
        told, spread = conditioned(joint_mean, joint, np.hstack([np.eye(size)] * 3), noise, seen)
        wanted = np.hstack([np.eye(size), np.eye(size) if target == "table" else nothing, nothing])
        told, spread = wanted @ told, wanted @ spread @ wanted.T
        summary = fit.summary(units="scaled", target=target)
        np.testing.assert_allclose(summary["mean"], told, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(summary["sd"], np.sqrt(np.diag(spread)), rtol=1e-6)
        draws = fit.draws("scaled", target=target).reshape(-1, size)
        np.testing.assert_allclose(draws.mean(axis=0), told, atol=5 * np.sqrt(np.diag(spread).max() / 4000))
        np.testing.assert_allclose(np.cov(draws.T), spread, atol=0.1 * np.diag(spread).max())
    # The table's own estimate is known better than the population's coefficients, by the sampling error.
    assert (fit.summary(target="table")["sd"] < fit.summary()["sd"]).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_intervals_hold_the_truth(family: str, released: Made) -> None:
    """Within 4.5 posterior standard deviations: chance of a wrong alarm 8e-5 for all twelve."""
    truth = {"logistic": (-1.0, 0.1, 0.8, 0.5), "poisson": (0.4, 0.05, 0.5, -0.3), "linear": (100.0, 2.0, 40.0, -20.0)}
    summary = dpglm.fit(released(family, epsilon=2.0, rows=20_000), progress=False).summary()
    away = (summary["mean"] - np.array(truth[family])) / summary["sd"]
    assert (away.abs() < 4.5).all()
    assert ((summary["mean"] / summary["sd"]).abs() > 4.5).any()  # so zero would not do


def test_releases_of_one_dataset_add_what_they_know_of_one_table(released: Made) -> None:
    """Their noise is apart, their sampling error is one; a second survey would change the units."""
    first = released(noise=1)
    second = released(noise=2, survey=first)
    alone = [dpglm.fit(each, progress=False) for each in (first, second)]
    both = dpglm.fit([first, second], progress=False)
    known = [read_by_hand(each) for each in (first, second)]
    leading = known[first.stages[-1].mu < second.stages[-1].mu]
    # What bounding does to the estimate is one for both, as their rows are.
    error = sampling_covariance(leading)
    plain = error / np.outer(leading.efficiency, leading.efficiency)
    apart = np.sqrt(np.abs(np.diag(error) - np.diag(plain)) / np.diag(error))
    off = leading.pooled.bounding + np.outer(apart, apart) * error
    precision = sum(each.pooled.precision for each in known)
    seen = np.linalg.solve(precision, sum(each.pooled.shift for each in known))
    np.testing.assert_allclose(both.closed.table.covariance, np.linalg.inv(precision) + off, rtol=1e-9)
    np.testing.assert_allclose(both.closed.table.mean, seen, rtol=1e-9)
    assert any(np.allclose(both.closed.sampling, fit.closed.sampling, rtol=1e-9) for fit in alone)
    # However often it is released, the table's sampling error stays; what is known of the table itself grows.
    error = np.sqrt(np.diag(both.closed.sampling))
    assert (both.summary(units="scaled")["sd"] > 0.9 * error).all()
    for fit in alone:
        assert (np.diag(both.closed.table.covariance) < np.diag(fit.closed.table.covariance)).all()


def test_datasets_add_what_they_say_of_the_population(released: Made) -> None:
    """In the user's units. Each is read with the first one's prior, which hardly matters.

    What bounding shifts is alike in both: it is added once, after what they say apart.
    """
    first, second = released(name="north", seed=1), released(name="south", seed=2)
    both = dpglm.fit([first, second], progress=False)
    precisions, shifts, bounded = [], [], []
    for each in (first, second):
        fit, (turn, _) = dpglm.fit(each, progress=False), each.design.to_original_units()
        bounded.append(turn @ fit.closed.bounding @ turn.T)
        precisions.append(np.linalg.inv(fit.likelihood.covariance.to_numpy() - bounded[-1]))
        shifts.append(precisions[-1] @ fit.likelihood.mean.to_numpy())
    expected = np.linalg.inv(np.linalg.inv(sum(precisions)) + sum(bounded) / 2)
    found = both.likelihood.precision.to_numpy()
    size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert (np.abs(found - expected) < 0.02 * size).all()
    np.testing.assert_allclose(both.likelihood.mean, np.linalg.solve(sum(precisions), sum(shifts)), rtol=0.05)
    with pytest.raises(InputError, match="only a fit of one table's releases"):
        both.draws(target="table")


def test_one_dataset_twice_is_not_two_datasets(released: Made) -> None:
    """The test above can fail: two releases of one table say less than two tables."""
    first = released(noise=1, epsilon=5.0)
    second = released(noise=2, epsilon=5.0, survey=first)
    other = released(noise=2, epsilon=5.0, name="south", seed=2)
    one, two = (dpglm.fit([first, each], progress=False).summary()["sd"] for each in (second, other))
    assert (two < 0.9 * one).all()


def test_the_likelihood_and_a_prior_by_hand_give_the_posterior(released: Made) -> None:
    """In the user's units, as another tool would do it."""
    release = released("poisson")
    fit = dpglm.fit(release, prior=dpglm.NormalPrior(1.5, 3.0), progress=False)
    matrix, shift = release.design.to_original_units()
    mean, covariance = prior_by_hand(release, 1.5, 3.0)
    prior = np.linalg.inv(matrix @ covariance @ matrix.T)
    likelihood = fit.likelihood
    posterior = np.linalg.inv(likelihood.precision.to_numpy() + prior)
    told = posterior @ (likelihood.shift.to_numpy() + prior @ (matrix @ mean + shift))
    np.testing.assert_allclose(fit.summary()["mean"], told, rtol=1e-7)
    np.testing.assert_allclose(fit.summary()["sd"], np.sqrt(np.diag(posterior)), rtol=1e-7)
    np.testing.assert_allclose(likelihood.mean, np.linalg.solve(likelihood.precision, likelihood.shift), rtol=1e-9)
    np.testing.assert_allclose(likelihood.covariance, np.linalg.inv(likelihood.precision), rtol=1e-9)
    assert list(likelihood.mean.index) == list(fit.names)
    # Without the prior it is the same whatever the prior was, but for how looks are read.
    other = dpglm.fit(release, prior=dpglm.NormalPrior(2.5, 5.0), progress=False).likelihood
    np.testing.assert_allclose(other.mean, likelihood.mean, rtol=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_other_declared_units_give_the_same_answer(family: str, released: Made) -> None:
    """A column in other units, a power of two apart so that the same noise asks the same questions."""
    columns = {"a": {"type": "numeric", "lower": -160, "upper": 240}}
    plain = dpglm.fit(released(family), progress=False).summary()
    turned = dpglm.fit(
        released(family, columns=columns, change=lambda table: table.assign(a=table["a"] * 4)), progress=False
    ).summary()
    for column in ("mean", "sd", "lower", "upper"):
        scale = np.array([1, 4, 1, 1])
        np.testing.assert_allclose(turned[column] * scale, plain[column], rtol=1e-3, atol=1e-3 * plain["sd"].min())


# What a fit of looks shows


def test_summary_columns(released: Made) -> None:
    base = ["mean", "sd", "lower", "upper", "hdi_lower", "hdi_upper", "p_sign", "significant"]
    ratios = {"logistic": "odds_ratio", "poisson": "rate_ratio", "linear": None}
    for family, ratio in ratios.items():
        fit = dpglm.fit(released(family), progress=False)
        extra = [] if ratio is None else [ratio, f"{ratio}_lower", f"{ratio}_upper"]
        assert list(fit.summary().columns) == [*base, *extra, "inflation"]  # no ess, no r_hat: nothing was sampled
        assert fit.summary(target="table")["inflation"].isna().all()
        assert (fit.summary()["inflation"] > 1).all()
        assert fit.diagnostics is None
        assert fit.method == "closed form"


def test_intervals_are_those_of_the_normal_distribution(released: Made) -> None:
    summary = dpglm.fit(released(), progress=False).summary(prob=0.9)
    np.testing.assert_allclose(summary["upper"] - summary["mean"], 1.6448536 * summary["sd"], rtol=1e-6)
    np.testing.assert_allclose(summary["mean"] - summary["lower"], 1.6448536 * summary["sd"], rtol=1e-6)


def test_draws_are_those_of_the_posterior_whenever_they_are_made(released: Made) -> None:
    fit = dpglm.fit_many([released()], seed=3, draws=20, progress=False)[0]
    for draws, statement, seed in (
        (fit.coefficients, fit.closed.posterior, 3),
        (fit.table_coefficients, fit.closed.table_posterior, 4),
    ):
        root = np.linalg.cholesky(np.linalg.inv(statement.precision))
        noise = np.random.default_rng(seed).standard_normal((4, 20, len(root)))
        mean = np.linalg.solve(statement.precision, statement.shift)
        np.testing.assert_allclose(draws, mean + noise @ root.T, rtol=1e-9, atol=1e-12)
    assert fit.coefficients is fit.coefficients
    assert pickle.loads(pickle.dumps(fit)).draws().tolist() == fit.draws().tolist()
    moved = replace(fit, coefficients=fit.coefficients + 1)
    np.testing.assert_array_equal(moved.coefficients, fit.coefficients + 1)


def test_the_same_seed_gives_the_same_draws(released: Made) -> None:
    one, two, other = (dpglm.fit(released(), seed=seed, progress=False) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.draws(), two.draws())
    assert not np.array_equal(one.draws(), other.draws())
    assert one.draws().shape == (4, 1000, 4)
    assert dpglm.fit(released(), draws=10, chains=2, progress=False).draws().shape == (2, 10, 4)
    # Exact, whatever was drawn.
    np.testing.assert_array_equal(one.summary()["mean"], other.summary()["mean"])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"link": "probit"}, "link = probit"),
        ({"dispersion": 1}, "dispersion = 1"),
        ({"moments": "taylor"}, "moments = taylor"),
        ({"noise_aware": False}, "noise_aware = False"),
    ],
)
def test_options_of_moments_are_refused(options: dict[str, Any], part: str, released: Made) -> None:
    with pytest.raises(InputError, match=f"{part}: belongs to releases by method='moments'"):
        dpglm.fit(released(), progress=False, **options)
    given = {"link": "logit", "dispersion": "infer", "moments": "exact", "noise_aware": True}
    dpglm.fit(released(), progress=False, **{name: given[name] for name in options})  # what is true is no mistake


def test_a_survey_alone_cannot_be_fitted(released: Made) -> None:
    with pytest.raises(InputError, match="holds a survey and no look"):
        dpglm.fit(replace(released(), stages=()), progress=False)


def test_a_release_that_stopped_early_says_less(released: Made) -> None:
    release = released()
    sd = [dpglm.fit(replace(release, stages=release.stages[:n]), progress=False).summary()["sd"] for n in (1, 3, 5)]
    assert (sd[0] > sd[1]).all()
    assert (sd[1] > sd[2]).all()


def test_moments_have_no_likelihood(released: Made) -> None:
    fit = dpglm.fit(released(), progress=False)
    with pytest.raises(InputError, match="has no closed form"):
        replace(fit, closed=None, method="nuts").likelihood  # noqa: B018


# Its file


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prior", [None, dpglm.SphericalPrior(4.0)], ids=["normal", "ball"])
def test_a_fit_of_looks_comes_back(family: str, prior: Any, released: Made, tmp_path: Any) -> None:
    fit = dpglm.fit(released(family), prior=prior, draws=50, progress=False)
    fit.save(tmp_path / "f.npz")
    again = dpglm.load_fit(tmp_path / "f.npz")
    for target in ("population", "table"):
        np.testing.assert_array_equal(again.draws(target=target), fit.draws(target=target))
        assert again.summary(target=target).equals(fit.summary(target=target))
    for name in ("likelihood", "prior", "table"):
        np.testing.assert_array_equal(getattr(again.closed, name).precision, getattr(fit.closed, name).precision)
    np.testing.assert_array_equal(again.likelihood.mean, fit.likelihood.mean)
    assert (again.spread is None) == (fit.spread is None)
    assert again.releases == fit.releases
    assert (again.warnings, repr(again), again.method) == (fit.warnings, repr(fit), fit.method)


def test_a_joint_fit_has_no_table_and_comes_back(released: Made, tmp_path: Any) -> None:
    fit = dpglm.fit([released(name="north"), released(name="south", seed=2)], draws=50, progress=False)
    fit.save(tmp_path / "f.npz")
    again = dpglm.load_fit(tmp_path / "f.npz")
    assert again.closed.table is again.table_coefficients is None
    assert again.summary().equals(fit.summary())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("likelihood_shift", lambda array: array[:-1]),
        ("prior_precision", lambda array: array * 0),
        ("sampling", lambda array: -array),
        ("surprises", lambda array: array.astype(str)),
        ("table_precision", lambda array: array * np.nan),
    ],
)
def test_a_file_whose_closed_form_cannot_be_used_is_refused(
    name: str, change: Callable[[Any], Any], released: Made, tmp_path: Path
) -> None:
    path = tmp_path / "a.npz"
    dpglm.fit(released(), progress=False).save(path)
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files}
    dpglm.load_fit(path)
    np.savez(path, **(arrays | {name: change(arrays[name])}))
    with pytest.raises(dpglm.FileError, match="not a whole fit file"):
        dpglm.load_fit(path)


@pytest.mark.parametrize(("name", "value"), [("clip", 1e308), ("clip", 1e-300), ("spread", 1e308)])
def test_a_viewpoint_that_no_release_has_is_refused(name: str, value: float, released: Made) -> None:
    data = json.loads(released("linear").to_json())
    data["stages"][-1]["viewpoint"][name] = value
    data["checksum"] = release_file._checksum(data)
    with pytest.raises(dpglm.FileError, match="does not fit the release schema"):
        release_file.read_release(json.dumps(data))
