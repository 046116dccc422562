"""Staged releases at the analyst's side: the density against brute force, both targets, and what is refused."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import dpglm
import rare_levels
from dpglm.analyst import looks
from dpglm.analyst.convergence import convergence
from dpglm.analyst.fit import Asked
from dpglm.analyst.posteriors import fit_staged
from dpglm.analyst.staged import _LOG_DISCREPANCY, StagedShape, _information, _looks, _position, staged_model
from dpglm.custodian.build import build_release
from dpglm.custodian.stages import centred_noise, information_share
from dpglm.errors import InputError
from dpglm.formula import build_design
from dpglm.privacy import compose, epsilon_of
from seeded_noise import SeededNoise

ROWS = 20_000
OPTIONS = {"link": None, "dispersion": None, "moments": "exact", "noise_aware": True}


def table(seed, family="logistic", rows=ROWS):
    """A skewed column, a binary one, and a regression that the fitted one misses a little."""
    rng = np.random.default_rng(seed)
    dose, arm = np.minimum(rng.exponential(size=rows), 6), rng.integers(0, 2, rows)
    u = -0.6 + 0.7 * dose - 0.05 * dose**2 + 0.8 * arm
    outcome = {
        "logistic": lambda: (rng.random(rows) < 1 / (1 + np.exp(-u))).astype(int),
        "poisson": lambda: np.minimum(rng.negative_binomial(np.exp(0.5 * u), 0.5), 20),
        "linear": lambda: np.clip(u + rng.normal(size=rows), -6, 8),
    }[family]()
    return pd.DataFrame({"y": outcome, "dose": dose, "arm": arm})


def schema(family="logistic", rows=ROWS, name="t"):
    outcome = {
        "logistic": {"type": "binary", "levels": [0, 1], "fill": 0},
        "poisson": {"type": "count", "upper": 20, "fill": 0},
        "linear": {"type": "numeric", "lower": -6, "upper": 8},
    }[family]
    columns = {
        "y": outcome,
        "dose": {"type": "numeric", "lower": 0, "upper": 6},
        "arm": {"type": "binary", "levels": [0, 1], "fill": 0},
    }
    return dpglm.Schema.from_dict({"dataset": {"name": name, "rows": rows, "unit": "one row"}, "columns": columns})


def staged(frame, family="logistic", epsilon=3.0, stages=3, seed=1, name="t"):
    return build_release(
        frame, "y ~ dose + arm", schema(family, len(frame), name), family, epsilon, 1e-6, None, None, "auto", "full",
        SeededNoise(seed), stages,
    )  # fmt: skip


def estimate(frame, family):
    """The table's own estimate in the user's units."""
    x = np.column_stack([np.ones(len(frame)), frame["dose"], frame["arm"]])
    y = frame["y"].to_numpy(float)
    theta = np.zeros(3)
    if family == "linear":
        return np.linalg.lstsq(x, y, rcond=None)[0]
    for _ in range(50):
        mean = 1 / (1 + np.exp(-x @ theta)) if family == "logistic" else np.exp(x @ theta)
        weight = mean * (1 - mean) if family == "logistic" else mean
        theta = theta + np.linalg.solve((x * weight[:, None]).T @ x, x.T @ (y - mean))
    return theta


@pytest.fixture(scope="module")
def release():
    return staged(table(0))


@pytest.fixture(scope="module")
def fitted(release):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)
        return dpglm.fit(release, seed=1, draws=500, chains=2, progress=False)


def test_both_targets_find_the_tables_own_estimate_and_the_table_is_narrower(fitted):
    own = estimate(table(0), "logistic")
    population, this = fitted.summary(), fitted.summary(target="table")
    assert np.all(np.abs(this["mean"] - own) < 4 * this["sd"])
    assert np.all(this["sd"] < 0.8 * population["sd"])
    assert np.all(population["r_hat"] < 1.05)
    assert np.all((population["inflation"] > 1) & (population["inflation"] < 1.5))
    assert np.all(np.isnan(this["inflation"]))  # without noise the table's own estimate is known
    bulk, tail, r_hat = convergence(fitted.draws("original", "table"))
    np.testing.assert_allclose(this["ess"], np.minimum(bulk, tail), rtol=1e-6)
    np.testing.assert_allclose(this["r_hat"], r_hat, rtol=1e-6)


@pytest.mark.parametrize("family", ["poisson", "linear"])
@pytest.mark.parametrize("stages", [2, 3])
def test_other_families_find_it_too(family, stages):
    frame = table(1, family)
    made = staged(frame, family, epsilon=10.0, stages=stages)
    result = fit_staged([(made,)], Asked(None, "laplace", None, 1, 1, None, OPTIONS))[0]
    this = result.summary(target="table")
    assert np.all(np.abs(this["mean"] - estimate(frame, family)) < 4 * this["sd"] + 0.01)
    # Overdispersion 2 makes the population's intervals wider than Poisson ones by its root.
    if family == "poisson":
        assert np.mean(result.spread) == pytest.approx(2.0, rel=0.25)


def test_a_fit_that_counts_rows_twice_is_too_sure(release, fitted):
    """The broken variant: looks as independent data about the population instead of about one table."""
    shape, data, _ = staged_model([(release,)], None, OPTIONS)
    (own,) = data[0]
    # Looks at t become looks at v when the sampling error is taken away.
    silent = own._replace(log_dispersion=own.log_dispersion - 20.0, log_dispersion_scale=0 * own.log_dispersion_scale)
    free = jnp.zeros(shape.size).at[:3].set(jnp.asarray(fitted.draws("scaled").mean(axis=(0, 1))))
    hessian = jax.hessian(lambda point: shape.log_density((silent,), jnp.append(point, free[3:])))(free[:3])
    wrong = np.sqrt(np.diag(np.linalg.inv(-np.asarray(hessian))))
    right = fitted.draws("scaled").reshape(-1, 3).std(axis=0)
    assert np.all(wrong < 0.8 * right)


def test_density_is_the_gaussian_integral_over_the_tables_estimate(release):
    """Against scipy: t integrated out numerically by adding covariances of independent looks."""
    shape, data, _ = staged_model([(release,)], None, OPTIONS)
    (own,) = data[0]
    rng = np.random.default_rng(2)
    differences = []
    for _ in range(6):
        start = np.concatenate([np.asarray(own.centre), np.zeros(shape.size - 3)])
        free = jnp.asarray(start + 0.3 * rng.normal(size=shape.size))
        mine = float(shape.log_density(data[0], free))
        parameters = shape.split(free)[0]
        root, s, log_prior = _information(own, parameters)
        coefficients, prior = shape.prior.constrain(shape.names, free[:3])
        v = np.asarray(_position(own, coefficients))
        # Stack the looks: the first, the between (as a look at its own mean) and the score, jointly normal given v.
        between = np.linalg.inv(np.asarray(own.between_precision))
        first = np.asarray(own.first_covariance + jnp.exp(2 * _LOG_DISCREPANCY * parameters[0]) * own.discrepancy)
        slope = np.asarray(root @ own.bent @ root.T)
        maps = np.vstack([np.eye(3), np.eye(3), slope])
        noise = np.zeros((9, 9))
        noise[:3, :3], noise[3:6, 3:6] = first, between
        noise[6:, 6:] = float(own.score_variance) * np.eye(3)
        observed = np.concatenate([own.first_mean, between @ np.asarray(own.between_shift), own.score])
        direct = multivariate_normal(maps @ v, maps @ np.asarray(s) @ maps.T + noise).logpdf(observed)
        differences.append(mine - float(prior) - float(log_prior) - direct)
    # Equal up to one constant: the normalisation of the looks whose precision is fixed.
    assert np.ptp(differences) < 1e-6


def test_table_estimate_is_drawn_from_its_conditional(release):
    shape, data, _ = staged_model([(release,)], None, OPTIONS)
    (own,) = data[0]
    free = jnp.asarray(np.concatenate([np.asarray(own.centre), np.zeros(shape.size - 3)]))
    noise = np.random.default_rng(3).normal(size=(4000, 3))
    drawn = np.asarray(jax.vmap(lambda each: shape.table_estimate(data[0], free, each)[0])(jnp.asarray(noise)))
    root, s, _ = _information(own, shape.split(free)[0])
    precision, shift, _ = _looks(own, root, shape.split(free)[0])
    covariance = np.linalg.inv(np.linalg.inv(s) + precision)
    position = np.asarray(own.whiten) @ (drawn.T - np.asarray(own.centre)[:, None]) * np.sqrt(ROWS)
    assert np.cov(position) == pytest.approx(covariance, rel=0.15, abs=0.02 * covariance.max())
    mean = covariance @ (np.linalg.inv(s) @ np.asarray(_position(own, free[:3])) + np.asarray(shift))
    assert position.mean(axis=1) == pytest.approx(mean, abs=4 * np.sqrt(covariance.max() / 4000))


def test_gradient_is_that_of_the_value(release):
    shape, data, _ = staged_model([(release,)], None, OPTIONS)
    rng = np.random.default_rng(4)
    start = np.concatenate([np.asarray(data[0][0].centre), np.zeros(shape.size - 3)])
    point, way = start + 0.1 * rng.normal(size=shape.size), rng.normal(size=shape.size)
    slope = float(jax.grad(lambda p: shape.log_density(data[0], p))(jnp.asarray(point)) @ way)
    step = 1e-5
    ahead, behind = (float(shape.log_density(data[0], jnp.asarray(point + sign * step * way))) for sign in (1, -1))
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-5)


def test_two_datasets_jointly_are_tighter_than_either(release):
    other = staged(table(5), seed=6, name="another")
    asked = Asked(None, "laplace", None, 1, 1, None, OPTIONS)
    together = fit_staged([(release, other)], asked)[0]
    alone = [fit_staged([(each,)], asked)[0] for each in (release, other)]
    for single in alone:
        assert np.all(together.summary()["sd"] < 0.85 * single.summary()["sd"])
    with pytest.raises(InputError, match="table's own estimate"):
        together.summary(target="table")


def test_a_smaller_noise_gives_a_narrower_table_estimate_only_up_to_sampling_for_the_population():
    wide, narrow = (
        fit_staged([(staged(table(0), epsilon=epsilon),)], Asked(None, "laplace", None, 1, 1, None, OPTIONS))[0]
        for epsilon in (1.0, 30.0)
    )
    assert np.all(narrow.summary(target="table")["sd"] < 0.4 * wide.summary(target="table")["sd"])
    assert np.all(narrow.inflation < 1.05)
    assert np.all(wide.inflation > narrow.inflation)


def test_fit_round_trips_through_its_file(fitted, tmp_path):
    path = tmp_path / "staged.fit"
    fitted.save(path)
    again = dpglm.load_fit(path)
    assert np.array_equal(again.table_coefficients, fitted.table_coefficients)
    assert again.releases[0] == fitted.releases[0]


@pytest.mark.parametrize(("option", "value"), [("link", "probit"), ("moments", "taylor")])
def test_what_later_stages_did_not_measure_is_asked_of_the_first_alone(release, option, value):
    with pytest.warns(dpglm.FitWarning, match=f"did not measure {option}={value!r}: only the first is used, 4%"):
        ours = dpglm.fit(release, method="laplace", **{option: value})
    plain = replace(release, stages=release.stages[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)
        theirs = dpglm.fit(plain, method="laplace", **{option: value})
    assert np.array_equal(ours.coefficients, theirs.coefficients)
    with pytest.raises(InputError, match="table's own estimate"):
        ours.summary(target="table")


def test_a_link_that_no_family_has_is_refused_all_the_same(release):
    with pytest.raises(InputError, match="link"):
        dpglm.fit(release, link="loglog")


def laplace(*releases):
    return fit_staged([releases], Asked(None, "laplace", None, 1, 1, None, OPTIONS))[0]


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_two_staged_releases_of_one_table_say_what_one_at_the_composed_budget_does(family):
    frame = table(5, family)
    one, other = (staged(frame, family, epsilon=1.0, seed=seed) for seed in (1, 2))
    whole = staged(frame, family, epsilon=epsilon_of(compose([one.privacy.mu, other.privacy.mu]), 1e-6), seed=3)
    together, composed = laplace(one, other), laplace(whole)
    for target in ("population", "table"):
        ours, theirs = together.summary(target=target)["sd"], composed.summary(target=target)["sd"]
        assert np.all(np.abs(np.log(ours / theirs)) < 0.25)
        for single in (one, other):
            assert np.all(ours < 1.02 * laplace(single).summary(target=target)["sd"])
    this = together.summary(target="table")
    assert np.all(np.abs(this["mean"] - estimate(frame, family)) < 4 * this["sd"] + 0.01)
    # Rows count once: without any noise two releases would say as much as one does.
    assert np.all(together.summary()["sd"] > 0.9 * composed.summary()["sd"] / np.max(composed.inflation))


def test_the_order_of_releases_of_one_table_does_not_matter(release):
    other = staged(table(0), epsilon=1.0, seed=8)
    assert np.allclose(laplace(release, other).coefficients, laplace(other, release).coefficients)


def test_a_release_of_one_stage_joins_a_staged_one(release):
    """Of the same table it adds its sums to the first look; of another table it is one more, with its discrepancy."""
    alone = laplace(release).summary(target="table")["sd"]
    same = staged(table(0), stages=1, seed=9)
    assert np.all(laplace(release, same).summary(target="table")["sd"] < 1.05 * alone)
    another = staged(table(7), stages=1, seed=9, name="another")
    both = laplace(release, another)
    assert both.table_coefficients is None
    gap = both.summary()["mean"] - laplace(release).summary()["mean"]
    assert np.all(np.abs(gap) < 2 * both.summary()["sd"])
    assert np.allclose(laplace(another, release).summary()["mean"], both.summary()["mean"], atol=0.01)


def test_a_batch_mixes_no_releases_of_one_stage_with_staged_ones(release):
    plain = staged(table(7), stages=1, name="plain")
    with pytest.raises(InputError, match="one stage"):
        dpglm.fit_many([release, plain])


def test_releases_of_one_dataset_must_be_of_one_coding(release):
    shorter = replace(release, id="0" * 32, radius=release.radius / 2)
    with pytest.raises(InputError, match="another coding"):
        dpglm.fit([release, shorter])


def test_target_is_checked(fitted):
    with pytest.raises(InputError, match="population, table"):
        fitted.summary(target="sample")


def test_centring_follows_from_the_noisy_stages_alone(release):
    """Run again from the file: the same centre, whitening and bounds, up to the grid they were rounded to."""
    known = looks.knowledge_of_first(release, looks.first_looks([release])[0])
    for position, stage in enumerate(release.stages[1:], 1):
        again = looks.next_centring(release, known, stage.mu)
        assert again.centre == pytest.approx(stage.centring.centre, abs=1e-5)
        assert np.allclose(again.whitening, stage.centring.whitening, rtol=1e-4, atol=1e-4)
        assert again.score_bound == pytest.approx(stage.centring.score_bound, rel=1e-6)
        if position < len(release.stages) - 1:
            known = looks.add_look(release, known, stage)


@pytest.mark.parametrize(("family", "left"), [("logistic", 0.4), ("poisson", 0.65), ("linear", 0.4)])
def test_bounds_grow_and_the_noise_of_every_block_vanishes_beside_the_rows(family, left):
    """The score's square is the one that a bound growing too fast would never let see the variance of the scores."""
    bounds, shares = [], []
    for rows in (10**4, 10**6, 10**8):
        centring = some_centring(family, rows, 0.5)
        noise = centred_noise(0.5, 3, information_share(rows, 3, last=True))
        bounds.append((centring.score_bound, centring.information_bound))
        deviations = noise.score * centring.score_bound, noise.information * centring.information_bound
        # The score beside the sampling error, the matrices beside their own size.
        square = math.sqrt(2) * noise.score * centring.score_bound**2
        shares.append((deviations[0] / math.sqrt(rows), deviations[1] / rows, square / rows))
    assert np.all(np.diff(bounds, axis=0) > 0)
    assert np.all(np.divide(shares[1:], shares[:-1]) < left)  # with a hundred times the rows


@pytest.mark.parametrize(("family", "least"), [("poisson", 0.7), ("linear", 0.8)])
def test_residuals_are_clipped_tightly_only_where_the_signal_is_small(family, least):
    clips = [some_centring(family, 2_000, mu).clip for mu in (0.001, 0.04, 0.3, 1.0, 3.0)]
    assert clips == sorted(clips)
    assert clips[0] == pytest.approx(2 * math.sqrt(least))  # never less: what is left of a residual must still tell
    assert clips[1] < 2.1
    assert clips[3] > 3.2


def some_knowledge(spread=1.0):
    """Little of anything, and predictors of a normal distribution."""
    rows = np.column_stack([np.ones(2_000), np.random.default_rng(4).normal(size=(2_000, 2)) * [0.3, 0.5]])
    return looks.Knowledge(
        first_mean=np.zeros(3), first_covariance=np.eye(3), discrepancy=1.0, precision=np.zeros((3, 3)),
        shift=np.zeros(3), information=rows.T @ rows / 2_000, error=0.01 * np.eye(3), centre=np.zeros(3),
        covariance=np.eye(3), mean_weight=0.2, spread=spread, tolerance=0.3,
        first=looks.FirstLook(np.zeros(3), np.eye(3), rows, 1.0, 1.0),
    )  # fmt: skip


def some_release(family, rows, mu):
    design = build_design("y ~ dose + arm", schema(family, rows), family)
    return SimpleNamespace(design=design, num_rows=rows, privacy=SimpleNamespace(mu=1.4 * mu))


def some_centring(family, rows, mu):
    """Where a stage that may cost mu would look from, on a table of so many rows of which little is known."""
    return looks.next_centring(some_release(family, rows, mu), some_knowledge(), mu)


def some_look(centring, rows, score, dispersion, noise=1.0):
    """A stage that saw this score a row, the information that was predicted, and scores of this dispersion."""
    triangle = np.eye(3)[np.triu_indices(3)] * rows
    blocks = [SimpleNamespace(values=values, noise_stddev=deviation, integers=values)
              for values, deviation in ((rows * np.asarray(score), noise), (triangle, noise),
                                        (dispersion * triangle, noise * 10))]  # fmt: skip
    return SimpleNamespace(centring=centring, blocks=blocks)


@pytest.mark.parametrize("family", ["poisson", "logistic"])
def test_the_information_of_counts_follows_the_rate_to_the_next_centre(family):
    """A centre far from t, as moments with much noise give it: at t counts know e^move times as much."""
    release, known = some_release(family, 10_000, 3.0), some_knowledge()
    centring = looks.next_centring(release, known, 3.0)
    after = looks.add_look(release, known, some_look(centring, 10_000, [-0.8, 0.0, 0.0], 1.0))
    assert after.centre[0] < -0.15  # the score says that rates are lower
    ratio = after.information[0, 0] / known.information[0, 0]
    if family == "poisson":
        assert ratio == pytest.approx(math.exp(after.centre[0]), rel=0.02)
    else:
        assert ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("before", "seen", "noise", "after"),
    [(6.0, 1.5, 1.0, (1.4, 1.6)), (6.0, 0.2, 1.0, (1.0, 1.0)), (2.0, 6.0, 1.0, (2.0, 2.0)), (6.0, 1.5, 1e6, (5.9, 6))],
)
def test_a_look_may_lower_the_dispersion_of_counts_and_never_raises_it(before, seen, noise, after):
    release = some_release("poisson", 10_000, 3.0)
    known = some_knowledge(spread=before)
    stage = some_look(looks.next_centring(release, known, 3.0), 10_000, np.zeros(3), seen, noise)
    assert after[0] <= looks.add_look(release, known, stage).spread <= after[1]


@pytest.mark.parametrize("family", ["poisson", "logistic"])
def test_a_bound_that_takes_most_of_a_score_takes_its_curvature_too(family):
    release, known = some_release(family, 10_000, 3.0), some_knowledge()
    wide = looks.next_centring(release, known, 3.0)
    tight = replace(wide, score_bound=wide.score_bound / 16)
    allowances = [looks.allowance(release, known, each)(np.full(3, 0.3), 0.01 * np.eye(3)) for each in (tight, wide)]
    assert 0.001 <= allowances[0] / allowances[1] <= 0.5


def test_where_noise_is_large_a_smaller_bound_tells_more_of_every_coefficient():
    """What the rule rests on: over the noise, which is in proportion to the bound, the slope of a score never falls."""
    release, known = some_release("logistic", 2_000, 0.1), some_knowledge()
    centring = looks.next_centring(release, known, 0.1)
    told = []
    for times in (4.0, 2.0, 1.0, 0.5, 0.25):
        each = replace(centring, score_bound=times * centring.score_bound)
        slope = looks.expected_information(known, release.design, each, each.centre_vector)
        told.append(np.linalg.eigvalsh(slope) / each.score_bound)
    assert (np.diff(told, axis=0) > -1e-12).all()
    assert (told[2] > 1.5 * told[0]).all()  # and that is worth it


def test_the_bound_shrinks_as_noise_grows_and_follows_a_fourth_root_where_it_is_small():
    bounds = [some_centring("logistic", 10_000, mu).score_bound ** 2 for mu in (1e-4, 1e-3, 0.1, 0.3, 1.0, 4.0, 16.0)]
    assert (np.diff(bounds) >= 0).all()
    assert bounds[0] == bounds[1]  # the least one
    np.testing.assert_allclose(bounds[-1] / bounds[-2], 16**0.25, rtol=1e-6)
    assert bounds[2] < 0.6 * bounds[4]
    assert bounds[0] < 0.1 * bounds[4]


def test_a_fit_reads_looks_with_its_own_prior():
    """A weak look: its errors grow with the distance to where t may be, so that a narrow prior lets it tell more."""
    release, known = some_release("logistic", 1_000, 0.1), some_knowledge()
    stage = some_look(looks.next_centring(release, known, 0.1), 1_000, np.zeros(3), 1.0, noise=400.0)
    default = looks.Belief(*dpglm.NormalPrior().as_normal(release.design.coefficient_names))
    told = {
        "none": looks.add_look(release, known, stage),
        "default": looks.add_look(release, known, stage, default),
        "narrow": looks.add_look(release, known, stage, looks.Belief(np.zeros(3), 0.05 * np.eye(3))),
        "elsewhere": looks.add_look(release, known, stage, looks.Belief(np.full(3, 0.5), 0.05 * np.eye(3))),
    }
    np.testing.assert_array_equal(told["none"].centre, told["default"].centre)
    np.testing.assert_array_equal(told["none"].precision, told["default"].precision)
    assert np.trace(told["narrow"].precision) > 5 * np.trace(told["default"].precision)
    assert np.trace(told["narrow"].covariance) < np.trace(told["default"].covariance)
    assert (told["elsewhere"].centre > told["narrow"].centre + 0.2).all()


def test_the_prior_of_a_fit_decides_what_is_allowed_for_in_its_looks(release):
    variances = []
    for prior in (None, dpglm.NormalPrior(), dpglm.NormalPrior(slopes=0.1, intercept=0.1)):
        _, data, _ = staged_model([(release,)], prior, OPTIONS)
        variances.append(float(data[0][0].score_variance))
    assert variances[0] == variances[1] != variances[2]


def test_the_slope_of_the_last_score_stays_positive_where_the_information_is_less_than_predicted(release):
    """The broken variant adds what the way to t takes: where the rows know less than predicted, its sign turns."""
    shape, data, _ = staged_model([(release,)], None, OPTIONS)
    (own,) = data[0]
    own = own._replace(bent=np.eye(3) * 0.4)
    free = np.zeros(shape.table_size)
    free[2:8] = np.array([-1.0, 0, -1.0, 0, 0, -1.0]) / own.tolerance[0, 0]  # each variance is e^-2 times as large
    root, _, _ = _information(own, jnp.asarray(free))
    assert np.linalg.eigvalsh(np.asarray(root @ own.bent @ root.T)).min() > 0
    expected = np.asarray(own.expected_root @ own.expected_root.T)
    assert np.linalg.eigvalsh(np.asarray(root @ root.T) + 0.4 * expected - expected).min() < 0


# Levels with few rows, or none: the release says nothing of them, and everything of the others.


@pytest.mark.parametrize(("family", "epsilon"), [("linear", 1.0), ("logistic", 1.0), ("logistic", 100.0)])
def test_a_level_without_rows_gets_its_prior_and_leaves_the_others_alone(family, epsilon):
    """Floors of the information that take no notice of its noise gave such levels sure and wrong effects."""
    made = [rare_levels.released(rare_levels.rows_of(family, 200_000, 0, n), family, epsilon, n) for n in range(3)]
    for fit in dpglm.fit_many(made, draws=250, chains=2, seed=1):
        told = fit.summary(units="scaled")
        others, rare = told.loc[["dose", "group[b]"]], told.loc["group[c]"]
        assert rare["sd"] > 0.12 * 2.5 if family == "linear" else rare["sd"] > 0.6 * 2.5
        assert abs(rare["mean"]) < 3 * rare["sd"]
        assert (others["inflation"] < (2.5 if family == "linear" else 1.3)).all()
        original = fit.summary().loc[["dose", "group[b]"]]
        assert (np.abs(original["mean"] - 0.5) < 4.5 * original["sd"]).all()
        if family == "logistic":
            assert any("says little about group[c]" in message for message in fit.warnings)


def test_a_budget_far_too_large_finds_the_estimate_of_the_rows():
    """Moments that are believed to the last digit sent the first look astray, and all others after it."""
    frame = rare_levels.rows_of("logistic", 20_000, 20, 5)
    fit = fit_staged(
        [(rare_levels.released(frame, "logistic", 1_000.0, 5),)], Asked(None, "laplace", None, 1, 1, None, OPTIONS)
    )[0]
    x = np.column_stack([np.ones(20_000), frame["dose"], frame["group"] == "b", frame["group"] == "c"]).astype(float)
    theta = np.zeros(4)
    for _ in range(30):
        mean = 1 / (1 + np.exp(-x @ theta))
        information = (x * (mean * (1 - mean))[:, None]).T @ x
        theta = theta + np.linalg.solve(information, x.T @ (frame["y"].to_numpy(float) - mean))
    told = fit.summary()
    assert (np.abs(told["mean"] - theta) < np.array([0.6, 0.6, 0.6, 2]) * told["sd"]).all()
    np.testing.assert_allclose(told["sd"][:3], np.sqrt(np.diag(np.linalg.inv(information)))[:3], rtol=0.15)


def test_a_direction_that_nobody_saw_tells_nothing():
    """The broken variant trusts a slope that is all noise: a score of zero would hold its coefficient at the centre."""
    release, known = some_release("logistic", 1_000_000, 1.0), some_knowledge()
    centring = looks.next_centring(release, known, 1.0)
    full = some_look(centring, 1_000_000, np.zeros(3), 1.0, noise=100.0)
    score, information, square = full.blocks
    without = looks.symmetric(information.values, 3) * np.outer([1, 1, 0], [1, 1, 0])
    empty = SimpleNamespace(values=without[np.triu_indices(3)], noise_stddev=100.0)
    after, all_seen = (
        looks.add_look(release, known, SimpleNamespace(centring=centring, blocks=(score, each, square)))
        for each in (empty, information)
    )
    direction = np.linalg.inv(centring.whitening_matrix).T  # of scaled coefficients, in whitened coordinates
    told, all_told = (
        np.linalg.inv(direction).T @ each.precision @ np.linalg.inv(direction) for each in (after, all_seen)
    )
    assert told[2, 2] < 1e-6 * all_told[2, 2]
    assert told[0, 0] > 0.3 * all_told[0, 0]


def test_a_weak_first_look_cannot_pull_far():
    weak = looks.FirstLook(np.array([0.3, 20.0]), np.diag([0.01, 7.0]), np.zeros((1, 2)), 1.0, 1.0)
    precision, mean = looks._without_prior(weak, np.array([2.5, 2.5]))
    np.testing.assert_allclose(precision[0, 0], 100 - 0.16)
    np.testing.assert_allclose(mean[0], 0.3 * 100 / (100 - 0.16))
    assert precision[1, 1] < 0.01
    shift = precision[1, 1] * mean[1]
    assert 0 < shift / 0.16 < 2.5  # within a prior standard deviation of zero, were it all that is known


def test_an_odd_shape_is_equal_to_itself_only():
    prior = dpglm.NormalPrior()
    assert StagedShape(("a",), prior, 1) == StagedShape(("a",), prior, 1)
    assert StagedShape(("a",), prior, 1) != StagedShape(("a",), prior, 2)


def test_one_stage_warns_where_moments_may_be_off_and_three_stages_do_not(release, fitted):
    frame = table(0)
    plain = build_release(
        frame, "y ~ dose + arm", schema(), "logistic", 30.0, 1e-6, None, None, "auto", "full", SeededNoise(1)
    )
    with pytest.warns(dpglm.FitWarning, match="one stage assumes Gaussian predictors"):
        dpglm.fit(plain, method="laplace")
    assert not any("one stage" in message for message in fitted.warnings)
