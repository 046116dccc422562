"""Whole fits: against a non-private regression, across units, sites and repeated releases, and over many tables."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.analyst.convergence import convergence
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.errors import InputError
from seeded_noise import SeededNoise

BOUND = 4.0
THETA = np.array([0.3, 0.5, -0.5])  # sd(u) is 0.7
STEEP = np.array([0.3, 1.5, -1.4])  # sd(u) is 2
LEVELS = {"type": "binary", "levels": ["no", "yes"], "fill": "no"}


def rows_of(seed: int, count: int, theta: np.ndarray = THETA) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    a, b = generator.normal(size=(2, count))
    u = theta[0] + theta[1] * a + theta[2] * b
    y = np.where(generator.uniform(size=count) < 1 / (1 + np.exp(-u)), "yes", "no")
    return pd.DataFrame({"a": a, "b": b, "y": y})


def schema_of(count: int, name: str = "table", **columns: Any) -> dict[str, Any]:
    bounds = {"type": "numeric", "lower": -BOUND, "upper": BOUND}
    return {
        "dataset": {"name": name, "rows": count, "unit": "one person"},
        "columns": {"a": bounds, "b": bounds, "y": LEVELS, **columns},
    }


def released(
    frame: pd.DataFrame, epsilon: float, noise: Any, *, formula: str = "y ~ a + b", family: str = "logistic",
    name: str = "table", **columns: Any,
) -> dpglm.Release:  # fmt: skip
    schema = schema_of(len(frame), name, **columns)
    request = Request(formula, schema, family, epsilon, 1e-6, method="moments", allocation="equal")
    return build_release(frame, request, noise)


def quiet(*arguments: Any, **options: Any) -> dpglm.Fit:
    """``dpglm.fit`` where its warnings are not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)
        return dpglm.fit(*arguments, **options)


def non_private(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regression on the rows: mode and sd with the default prior, in scaled units, by Newton."""
    x = np.column_stack([np.ones(len(frame)), frame["a"] / BOUND, frame["b"] / BOUND])
    y = (frame["y"] == "yes").to_numpy(float)
    theta, prior = np.zeros(3), np.diag([1 / 25, 1 / 6.25, 1 / 6.25])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ theta))
        hessian = x.T @ (x * (p * (1 - p))[:, None]) + prior
        theta = theta + np.linalg.solve(hessian, x.T @ (y - p) - prior @ theta)
    return theta, np.sqrt(np.diag(np.linalg.inv(hessian)))


@lru_cache
def quiet_release() -> dpglm.Release:
    return released(rows_of(1, 20_000), 100.0, SeededNoise(1))


@pytest.fixture(scope="module")
def sampled() -> dpglm.Fit:
    return dpglm.fit(quiet_release(), seed=3)


@pytest.fixture(scope="module")
def approximated() -> dpglm.Fit:
    return dpglm.fit(quiet_release(), method="laplace")


def test_nearly_without_noise_the_posterior_is_the_non_private_one(sampled: dpglm.Fit) -> None:
    mean, sd = non_private(rows_of(1, 20_000))
    table = sampled.summary(units="scaled")
    np.testing.assert_allclose((table["mean"] - mean) / sd, 0, atol=0.3)
    np.testing.assert_allclose(table["sd"] / sd, 1, atol=0.15)
    assert all("moments assume" in message for message in sampled.warnings)  # these predictors are Gaussian
    assert (table["r_hat"] < 1.01).all()
    assert (table["ess"] >= 1000).all()


def test_laplace_is_close_to_nuts_here(sampled: dpglm.Fit, approximated: dpglm.Fit) -> None:
    one, two = sampled.summary(units="scaled"), approximated.summary(units="scaled")
    np.testing.assert_allclose((one["mean"] - two["mean"]) / one["sd"], 0, atol=0.15)
    np.testing.assert_allclose(one["sd"] / two["sd"], 1, atol=0.1)
    assert approximated.diagnostics.pareto_k is not None
    assert approximated.diagnostics.pareto_k < 0.7
    assert approximated.coefficients.shape == (1, 4000, 3)


def test_laplace_says_so_when_it_is_not_to_be_trusted() -> None:
    tiny = released(rows_of(5, 60), 0.5, SeededNoise(5))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dpglm.fit(tiny, method="laplace")
    messages = [str(each.message) for each in caught if each.category is dpglm.FitWarning]
    assert any("Pareto k = " in message and "use method='nuts'" in message for message in messages)
    assert any("close to the prior" in message for message in messages)


@pytest.mark.parametrize("upper", [2e5, 1e6])
def test_a_linear_outcome_far_inside_its_bounds_is_found(upper: float) -> None:
    """Incomes within 2,000 of their line, in bounds of hundreds of thousands. From slopes of zero the search ended in
    another mode, a thousand nats below, with slopes ten times too large and every diagnostic in order."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(50, 8, 20_000).clip(20, 90), rng.integers(0, 2, 20_000)
    frame = pd.DataFrame({"a": a, "b": b, "z": 20_000 + 300 * a + 1_000 * b + rng.normal(0, 2_000, 20_000)})
    columns = {
        "a": {"type": "numeric", "lower": 20, "upper": 90},
        "b": {"type": "binary", "levels": [0, 1], "fill": 0},
        "z": {"type": "numeric", "lower": 0, "upper": upper},
    }
    release = released(frame, 50.0, SeededNoise(5), formula="z ~ a + b", family="linear", **columns)
    told = quiet(release, method="laplace").summary()
    assert abs(told.loc["a", "mean"] - 300) < 4 * told.loc["a", "sd"] < 150
    assert abs(told.loc["Intercept", "mean"] - 20_000) < 4 * told.loc["Intercept", "sd"]


def test_a_fit_with_a_dispersion_of_numpys_can_be_saved(tmp_path: Path) -> None:
    frame = rows_of(1, 2_000).assign(n=np.random.default_rng(1).poisson(2.0, 2_000))
    count = {"type": "count", "upper": 10, "fill": 0}
    release = released(frame, 5.0, SeededNoise(1), formula="n ~ a", family="poisson", n=count)
    quiet(release, method="laplace", dispersion=np.int64(1)).save(tmp_path / "fit.npz")
    assert dpglm.load_fit(tmp_path / "fit.npz").options["dispersion"] == 1.0


def test_taylor_moments_are_off_where_the_predictor_is_steep_and_exact_ones_are_not() -> None:
    release = released(rows_of(2, 20_000, STEEP), 100.0, SeededNoise(2))
    mean, sd = non_private(rows_of(2, 20_000, STEEP))
    exact = quiet(release, method="laplace").summary(units="scaled")
    taylor = quiet(release, method="laplace", moments="taylor").summary(units="scaled")
    np.testing.assert_allclose((exact["mean"] - mean)[1:] / sd[1:], 0, atol=0.6)
    assert (np.abs(taylor["mean"] - mean)[1:] > 5 * sd[1:]).all()


def test_feet_instead_of_metres_change_only_the_units(approximated: dpglm.Fit) -> None:
    """The released integers are the same, so everything is, up to the factor."""
    frame, foot = rows_of(6, 4000), 0.3048
    metres = released(frame, 2.0, FixedNoise(3 * 2**20))
    bounds = {"type": "numeric", "lower": -BOUND / foot, "upper": BOUND / foot}
    feet = released(frame.assign(a=frame["a"] / foot), 2.0, FixedNoise(3 * 2**20), a=bounds)
    assert [block.integers for block in feet.blocks] == [block.integers for block in metres.blocks]
    one, two = (quiet(each, method="laplace") for each in (metres, feet))
    pd.testing.assert_frame_equal(one.summary(units="scaled"), two.summary(units="scaled"))
    np.testing.assert_allclose(two.draws()[..., 1], one.draws()[..., 1] * foot, rtol=1e-9)
    np.testing.assert_allclose(two.draws()[..., [0, 2]], one.draws()[..., [0, 2]], rtol=1e-9)


def test_two_releases_of_one_table_are_tighter_than_either_and_count_rows_once() -> None:
    frame = rows_of(7, 2000)
    looks = [released(frame, 0.7, SeededNoise(seed)) for seed in (1, 2)]
    alone = [quiet(each, method="laplace").summary()["sd"] for each in looks]
    both = quiet(looks, method="laplace").summary()["sd"]
    _, floor = non_private(frame)
    assert (both[1:] < np.minimum(*alone)[1:]).all()
    assert (both[1:] > 0.95 * floor[1:] / BOUND).all()  # rows counted twice would go below sampling error
    clear = [released(frame, 100.0, SeededNoise(seed)) for seed in (3, 4)]
    once = quiet(clear[0], method="laplace").summary()["sd"]
    np.testing.assert_allclose(quiet(clear, method="laplace").summary()["sd"] / once, 1, atol=0.05)


def test_three_sites_are_tighter_than_any_one() -> None:
    sites = [released(rows_of(seed, 1500), 2.0, SeededNoise(seed), name=f"site {seed}") for seed in (11, 12, 13)]
    alone = np.stack([quiet(each, method="laplace").summary()["sd"] for each in sites])
    jointly = quiet(sites, method="laplace").summary()
    assert (jointly["sd"] < 0.85 * alone.min(axis=0)).all()
    truth = THETA
    assert (np.abs(jointly["mean"] - truth) < 4 * jointly["sd"]).all()


def test_fit_many_equals_one_by_one() -> None:
    releases = [released(rows_of(seed, 3000), 3.0, SeededNoise(seed)) for seed in (21, 22, 23)]
    together = dpglm.fit_many(releases, method="laplace")
    for each, release in zip(together, releases, strict=True):
        alone = quiet(release, method="laplace")
        one, two = each.summary(units="scaled"), alone.summary(units="scaled")
        # 4,000 draws each: six Monte Carlo errors of the difference of two means, or of the ratio of two sds
        np.testing.assert_allclose((one["mean"] - two["mean"]) / two["sd"], 0, atol=0.13)
        np.testing.assert_allclose(one["sd"] / two["sd"], 1, atol=0.095)
        np.testing.assert_allclose(one["inflation"], two["inflation"], rtol=1e-3)
        assert each.releases == (release,)


def test_dispersion_is_inferred_and_matters() -> None:
    """Negative binomial counts with variance three times the mean: Poisson is too sure of itself."""
    generator = np.random.default_rng(31)
    a = generator.normal(size=4000)
    rate = np.exp(0.2 + 0.3 * a)
    n = generator.poisson(generator.gamma(rate / 2.0, 2.0))
    frame = pd.DataFrame({"a": a, "n": n})
    count = {"type": "count", "upper": 6, "fill": 0}
    release = released(frame, 20.0, SeededNoise(31), formula="n ~ a", family="poisson", n=count)
    inferred = quiet(release, method="laplace")
    poisson = quiet(release, method="laplace", dispersion=1)
    assert inferred.spread is not None
    assert poisson.spread is None
    assert 2.0 < float(np.median(inferred.spread)) < 4.5
    one, two = inferred.summary(), poisson.summary()
    assert two.loc["a", "sd"] < 0.9 * one.loc["a", "sd"]
    # neither slope has to explain the extra variance
    for table in (one, two):
        assert abs(table.loc["a", "mean"] - 0.3) < 4 * table.loc["a", "sd"]


def test_linear_fit_is_least_squares() -> None:
    generator = np.random.default_rng(41)
    a, b = generator.normal(size=(2, 5000))
    z = 20 + 3 * a - 2 * b + generator.normal(0, 4, 5000)
    frame = pd.DataFrame({"a": a, "b": b, "z": z})
    bounds = {"type": "numeric", "lower": -20, "upper": 60}
    fit = quiet(
        released(frame, 50.0, SeededNoise(41), formula="z ~ a + b", family="linear", z=bounds), method="laplace"
    )
    x = np.column_stack([np.ones(5000), a, b])
    theta, rest = np.linalg.lstsq(x, z, rcond=None)[:2]
    sd = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * rest[0] / 4997)
    table = fit.summary()
    np.testing.assert_allclose((table["mean"] - theta) / sd, 0, atol=0.5)
    np.testing.assert_allclose(table["sd"] / sd, 1, atol=0.2)
    assert fit.spread is not None
    np.testing.assert_allclose(np.mean(fit.spread) * 40.0**2, 16.0, rtol=0.1)


TABLES = 40


def coverage(epsilon: float, noise_aware: bool) -> np.ndarray:
    """How many of 40 tables' 90 % intervals hold the truth, for each coefficient."""
    releases = [released(rows_of(1000 + k, 1000), epsilon, SeededNoise(2000 + k)) for k in range(TABLES)]
    fits = dpglm.fit_many(releases, method="laplace", noise_aware=noise_aware, draws=400)
    tables = [fit.summary(prob=0.9) for fit in fits]
    return np.sum([(table["lower"] <= THETA) & (table["upper"] >= THETA) for table in tables], axis=0)


# A count of 40 intervals of 90 % is 29 or more with probability 0.9996 (binomial): all three, with 0.9988 or more.
BAND = (29, TABLES)


def test_intervals_cover_what_they_say() -> None:
    covered = coverage(1.0, noise_aware=True)
    assert np.all((covered >= BAND[0]) & (covered <= BAND[1]))
    # and they are not merely wide: all 120 hold with probability 3e-6
    assert covered.sum() < 3 * TABLES


def test_ignoring_the_noise_fails_the_same_check() -> None:
    """Its intervals hold the truth about 37 times in 100: a slope would pass the check with probability 1e-5."""
    covered = coverage(1.0, noise_aware=False)
    assert np.all(covered[1:] < BAND[0])


def test_ignoring_the_noise_says_so() -> None:
    with pytest.warns(dpglm.FitWarning, match="too narrow"):
        dpglm.fit(quiet_release(), method="laplace", noise_aware=False)


def test_priors_reach_the_fit() -> None:
    import numpyro.distributions as dist

    release = released(rows_of(7, 2000), 1.0, SeededNoise(1))
    signed = quiet(release, method="laplace", prior={"a": dist.Normal(0, 0.01), "b": dist.HalfNormal(2.5)})
    assert (signed.coefficients[..., 2] > 0).all()
    assert np.abs(signed.coefficients[..., 1]).max() < 0.05
    assert np.isfinite(signed.summary()["inflation"]).all()


def test_convergence_measures() -> None:
    generator = np.random.default_rng(0)
    good = generator.normal(size=(4, 1000, 2))
    bulk, tail, r_hat = convergence(good)
    assert bulk.shape == tail.shape == r_hat.shape == (2,)
    assert (bulk > 3000).all()
    assert (r_hat < 1.01).all()
    apart = good + np.arange(4)[:, None, None]
    assert (convergence(apart)[2] > 1.5).all()
    assert np.isnan(convergence(good[:1])[2]).all()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"method": "vi"}, "must be one of nuts, laplace"),
        ({"draws": 0}, "draws = 0"),
        ({"draws": 1.5}, "draws = 1.5"),
        ({"chains": True}, "chains = True"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 2**64}, "seed"),
        ({"moments": "guess"}, "moments = guess"),
        ({"link": "log"}, "link = log"),
    ],
)
def test_arguments_are_checked_in_one_line(arguments: dict[str, Any], part: str) -> None:
    for call in (
        lambda: dpglm.fit(quiet_release(), **arguments),
        lambda: dpglm.fit_many([quiet_release()], **arguments),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert part in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [[], None, "release.json", 3, [1]])
def test_what_is_not_a_release_is_refused(wrong: Any) -> None:
    for function in (dpglm.fit, dpglm.fit_many):
        with pytest.raises(InputError, match="releases"):
            function(wrong)


def test_fit_many_wants_one_shape() -> None:
    other = released(rows_of(1, 20_000), 100.0, FixedNoise(0), formula="y ~ a")
    with pytest.raises(InputError, match="has another shape than the first"):
        dpglm.fit_many([quiet_release(), other])


def test_single_precision_is_refused() -> None:
    with jax.enable_x64(False), pytest.raises(InputError, match="jax_enable_x64"):
        dpglm.fit(quiet_release())


def printed(code: str, **environment: str) -> list[str]:
    """What a new process prints, without a cache folder that is chosen already."""
    given = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=given | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_without_jax_a_fit_of_moments_says_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    quiet_release().save(path)
    code = (
        "import sys; sys.modules['jax'] = None; import dpglm\n"
        f"try: dpglm.fit(dpglm.load_release({str(path)!r}))\nexcept dpglm.InputError as error: print(error)"
    )
    said = " ".join(printed(code))
    assert said.startswith("jax = jax: is not installed")
    assert 'pip install "dpglm[paper]"' in said


def test_the_paper_computes_in_double_precision_and_keeps_programs_in_the_users_folder(tmp_path: Path) -> None:
    code = "import dpglm.paper, jax; print(jax.config.jax_enable_x64, jax.config.jax_compilation_cache_dir)"
    folder = tmp_path / "dpglm" / "jax"
    assert printed(code, XDG_CACHE_HOME=str(tmp_path)) == ["True", str(folder)]
    assert folder.stat().st_mode & 0o777 == 0o700
    chosen = str(tmp_path / "chosen")
    assert printed(code, JAX_COMPILATION_CACHE_DIR=chosen) == ["True", chosen]
    (tmp_path / "file").write_text("")  # a home that cannot be written to is no mistake
    assert printed(code, XDG_CACHE_HOME=str(tmp_path / "file")) == ["True", "None"]


def test_progress_may_be_a_function() -> None:
    seen = []
    quiet(quiet_release(), draws=50, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
