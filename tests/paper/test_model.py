"""The posterior density against NumPyro, dense formulas and finite differences."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import CorrCholeskyTransform
from scipy import stats

from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior
from dpglm.families import FAMILIES
from dpglm.paper import posteriors, prior_densities
from dpglm.paper.assemble import prepare, stacked
from dpglm.paper.likelihood import dense_log_likelihood
from dpglm.paper.model import (
    ModelShape,
    TableData,
    TableShape,
    _correlation_factor,
    coefficient_covariance,
    constrain,
    expected_data,
    initial_point,
    isometric,
    log_density,
    table_coefficients,
    with_level,
)
from dpglm.paper.modes import find_modes
from dpglm.paper.moments import statistics_covariance, statistics_mean
from dpglm.paper.outcomes import outcome_integrals, outcome_of

RANGES = {"logistic": (-1.0, 1.0), "poisson": (0.0, 6.0), "linear": (-1.0, 1.0)}
LOG_SPREAD = {"poisson": (0.0, 1.5), "linear": (-2.3, 1.5)}
NUM_ROWS = 2000.0


def shape_of(family: str, dimension: int = 2, *, moments: str = "exact", paper: bool = False) -> ModelShape:
    blocks = FAMILIES[family].paper_blocks if paper else FAMILIES[family].full_blocks
    pairs = {(block.y_power, block.degree) for block in blocks}
    table = TableShape(
        blocks=blocks,
        outcome=outcome_of(family, None, RANGES[family]),
        dimension=dimension,
        has_intercept=not paper,
        has_offset=False,
        zero_mean=(0, 1) not in pairs,
    )
    names = (() if paper else ("Intercept",)) + tuple(f"x{n}" for n in range(dimension))
    return ModelShape(names, (table,), NormalPrior(), None, moments)


def data_of(shape: ModelShape, seed: int = 0) -> tuple[TableData, ...]:
    """Sums that are close to what some plain parameters would give, with bounds that are not symmetric."""
    table = shape.tables[0]
    d = table.dimension
    generator = np.random.default_rng(seed)
    x = np.clip(generator.normal(0.1, 0.35, (int(NUM_ROWS), d)), -0.9, 1.0)
    u = 0.2 + x @ np.linspace(0.8, -0.5, d)
    if table.outcome.family_name == "logistic":
        y = np.where(generator.uniform(size=len(u)) < 1 / (1 + np.exp(-u)), 1.0, -1.0)
    elif table.outcome.family_name == "poisson":
        y = np.minimum(generator.poisson(np.exp(u) * generator.gamma(2.0, 0.5, len(u))), 6.0)
    else:
        y = np.clip(generator.normal(0.4 * u, 0.2), -1, 1)
    sums = []
    for block in table.blocks:
        plain = block.features(x, y).sum(axis=0) / np.sqrt(block.multiplicities(d))
        sums.append(plain + 8.0 * generator.normal(size=plain.size))
    size = len(shape.names)
    return (
        TableData(
            observed=prepare(table.blocks, d, sums),
            num_rows=jnp.asarray(NUM_ROWS),
            noise_stddevs=jnp.linspace(6.0, 12.0, len(table.blocks)),
            lower=jnp.full(d, -0.9),
            upper=jnp.full(d, 1.0),
            matrix=jnp.eye(size),
            shift=jnp.zeros(size),
            offset=jnp.zeros(()),
            spread_scale=jnp.ones(()),
        ),
    )


@lru_cache
def value(shape: ModelShape) -> Any:
    """The log density as one compiled program; operation by operation it takes longer than its compilation."""
    return jax.jit(partial(log_density, shape))


@lru_cache
def value_and_gradient(shape: ModelShape) -> Any:
    return jax.jit(jax.value_and_grad(partial(log_density, shape), argnums=1))


@lru_cache
def constrained(shape: ModelShape) -> Any:
    return jax.jit(partial(constrain, shape))


def point_of(shape: ModelShape, data: tuple[TableData, ...], seed: int = 1) -> jax.Array:
    start = initial_point(shape, data)
    return jnp.asarray(start + 0.1 * np.random.default_rng(seed).normal(size=start.size))


@pytest.mark.parametrize("d", [2, 3, 5])
def test_correlation_factor_is_numpyros_lkj(d: int) -> None:
    generator = np.random.default_rng(d)
    lkj, transform = dist.LKJCholesky(d, concentration=2.0), CorrCholeskyTransform()

    @jax.jit
    def numpyros(free: jax.Array) -> Any:
        factor = transform(free)
        return factor, lkj.log_prob(factor) + transform.log_abs_det_jacobian(free, factor)

    constants = []
    for _ in range(5):
        free = jnp.asarray(generator.normal(size=d * (d - 1) // 2))
        factor, density = jax.jit(_correlation_factor, static_argnums=1)(free, d)
        theirs = numpyros(free)
        np.testing.assert_allclose(factor, theirs[0], atol=1e-12)
        correlation = np.asarray(factor @ factor.T)
        np.testing.assert_allclose(np.diag(correlation), 1.0, atol=1e-12)
        assert np.linalg.eigvalsh(correlation)[0] > 0
        constants.append(float(density - theirs[1]))
    np.testing.assert_allclose(constants, constants[0], atol=1e-9)


def test_correlation_factor_far_out_is_finite() -> None:
    """Correlations that are one in float64: the density and its gradient still say where to go back."""
    free = jnp.array([30.0, -25.0, 40.0])
    value, gradient = jax.value_and_grad(lambda f: _correlation_factor(f, 3)[1])(free)
    assert np.isfinite(float(value))
    assert np.all(np.sign(gradient) == -np.sign(free))
    factor, density = _correlation_factor(jnp.zeros(0), 1)
    assert factor.tolist() == [[1.0]]
    assert float(density) == 0.0


def test_predictors_respect_the_public_bounds() -> None:
    shape = shape_of("logistic", 3)
    data = data_of(shape)
    generator = np.random.default_rng(0)
    for _ in range(50):
        free = jnp.asarray(generator.normal(0, 3, shape.size))
        its = constrained(shape)(data, free)[0].tables[0]
        mean, variance = np.asarray(its.mean), np.diag(np.asarray(its.covariance))
        assert np.all((mean >= -0.9) & (mean <= 1.0))
        assert np.all(variance <= (1.0 - mean) * (mean + 0.9) * (1 + 1e-12))
        assert np.linalg.eigvalsh(np.asarray(its.covariance))[0] > -1e-14
    paper = shape_of("logistic", 3, paper=True)
    its = constrain(paper, data_of(paper), jnp.full(paper.size, 9.0))[0].tables[0]
    assert np.all(np.asarray(its.mean) == 0.0)
    assert np.all(np.diag(np.asarray(its.covariance)) <= 1.0)


def test_predictor_prior_is_uniform_in_mean_and_in_the_share_of_the_variance() -> None:
    """In one dimension: the density of the free pair is that of two logistic variables."""
    shape = shape_of("logistic", 1)
    data = data_of(shape)
    free = jnp.array([0.3, -0.2, 1.1, -0.7])
    expected = stats.norm.logpdf(0.3, 0, 5) + stats.norm.logpdf(-0.2, 0, 2.5) + stats.logistic.logpdf([1.1, -0.7]).sum()
    np.testing.assert_allclose(constrain(shape, data, free)[1], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("family", "paper"), [("logistic", False), ("logistic", True), ("poisson", False), ("linear", False)]
)
def test_log_density_is_the_dense_likelihood_and_the_priors(family: str, paper: bool) -> None:
    shape = shape_of(family, paper=paper)
    data = data_of(shape)
    differences = []

    @jax.jit
    def dense_value(its: Any, alpha: Any, beta: Any, spread: Any) -> Any:
        table, w = shape.tables[0], its.covariance @ beta
        integrals = outcome_integrals(table.outcome, alpha + its.mean @ beta, beta @ w, spread, table.largest_q)
        return dense_log_likelihood(
            table.blocks, data[0].observed, NUM_ROWS, data[0].noise_stddevs, its.mean, its.covariance, w, integrals
        )

    for seed in range(3):
        free = point_of(shape, data, seed)
        parameters, log_prior = constrained(shape)(data, free)
        table, its = shape.tables[0], parameters.tables[0]
        count = len(shape.names)
        theta, position = np.array(free[:count]), count
        if family == "poisson":  # the level is the logarithm of the mean count, were counts not clamped
            theta[0] -= its.mean @ theta[1:] + theta[1:] @ its.covariance @ theta[1:] / 2
        prior = stats.norm.logpdf(theta, 0, np.asarray(NormalPrior().scales(shape.names))).sum()
        spread = 1.0
        if family in LOG_SPREAD:
            center, scale = LOG_SPREAD[family]
            prior += -0.5 * ((float(free[count]) - center) / scale) ** 2
            spread = np.exp(float(free[count])) + (family == "poisson")
            position += 1
        if not table.zero_mean:
            prior += stats.logistic.logpdf(np.asarray(free[position : position + 2])).sum()
            position += 2
        prior += stats.logistic.logpdf(np.asarray(free[position : position + 2])).sum()
        factor = CorrCholeskyTransform()(free[position + 2 :])
        prior += float(dist.LKJCholesky(2, concentration=2.0).log_prob(factor))
        prior += float(CorrCholeskyTransform().log_abs_det_jacobian(free[position + 2 :], factor))
        np.testing.assert_allclose(parameters.spread, spread, rtol=1e-12)
        np.testing.assert_allclose(parameters.coefficients, theta, rtol=1e-9)
        alpha, beta = (0.0, theta) if paper else (theta[0], theta[1:])
        dense = dense_value(its, alpha, beta, spread)
        total = value(shape)(data, free) if paper else value_and_gradient(shape)(data, free)[0]
        np.testing.assert_allclose(total - log_prior, dense, rtol=1e-9)
        differences.append(float(log_prior) - prior)
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


@pytest.mark.parametrize("prior", [NormalPrior(), SphericalPrior(4.0), CustomPrior((("x0", dist.HalfNormal(2.0)),))])
@pytest.mark.parametrize("link", ["log", "softplus"])
def test_the_level_of_counts_is_a_shear(link: str, prior: Any) -> None:
    """It moves the intercept by what the other parameters say, of several tables too: its Jacobian is one."""
    outcome = outcome_of("poisson", link, (0.0, 6.0))
    one = shape_of("poisson")
    table = replace(one.tables[0], outcome=outcome)
    shape = replace(one, prior=prior, tables=(table, table))
    (first,) = data_of(one)
    other = first._replace(num_rows=3 * first.num_rows, matrix=first.matrix.at[0, 1].set(0.7), shift=first.shift + 0.1)
    data = (first, other)
    free = 0.3 * np.random.default_rng(5).normal(size=shape.size)
    levelled = np.asarray(with_level(shape, data, free))
    slopes = np.asarray(jax.jacrev(partial(with_level, shape, data))(jnp.asarray(free)))
    np.testing.assert_allclose(np.linalg.det(slopes), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(levelled[1:], free[1:])
    parameters, _ = constrain(shape, data, jnp.asarray(levelled))
    alpha, beta = np.asarray(parameters.coefficients)[0], np.asarray(parameters.coefficients)[1:]
    expected, _ = prior_densities.constrained(prior, shape.names, jnp.asarray(free[: len(shape.names)]))
    np.testing.assert_allclose(parameters.coefficients, expected, rtol=1e-12)
    half = 0.5 if link == "log" else 0.0
    means = [its.mean @ own + half * own @ its.covariance @ own for its, own in
             zip(parameters.tables, (beta, beta + 0.1), strict=True)]  # fmt: skip
    own_intercepts = alpha, alpha + 0.7 * beta[0] + 0.1
    level = sum(w * (a + m) for w, a, m in zip((0.25, 0.75), own_intercepts, means, strict=True))
    np.testing.assert_allclose(levelled[0], level, rtol=1e-12)


def test_the_gaussian_of_coefficients_is_that_of_a_density_without_a_level() -> None:
    """A shear moves no mode, and there curvatures follow its derivative: the intercept's error holds all others."""
    shape = shape_of("poisson")
    data = data_of(shape)
    together = stacked([data])
    laplace = find_modes(shape, together, initial_point(shape, data)[None])
    plain = np.array(laplace.mode[0])
    plain[0] = constrained(shape)(data, jnp.asarray(plain))[0].coefficients[0]
    gradient = jax.jit(jax.grad(lambda free: log_density(shape, data, with_level(shape, data, free))))
    np.testing.assert_allclose(gradient(jnp.asarray(plain)), 0.0, atol=1e-2)
    steps = 1e-4 * np.eye(shape.size)
    precision = -np.stack([(gradient(plain + step) - gradient(plain - step)) / 2e-4 for step in steps])
    expected = np.linalg.inv((precision + precision.T) / 2)[:3, :3]
    found = coefficient_covariance(shape, together, laplace.mode, laplace.factor)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    np.testing.assert_allclose(posteriors._coefficient_covariance(shape, together, laplace)[0], expected, rtol=1e-3)
    level = laplace.covariance[0, 0, 0]
    assert expected[0, 0] > 1.1 * level


def test_other_outcomes_have_no_level() -> None:
    for shape in (shape_of("logistic"), shape_of("linear"), shape_of("poisson", paper=True)):
        free = 0.3 * np.random.default_rng(5).normal(size=shape.size)
        np.testing.assert_array_equal(with_level(shape, data_of(shape), free), free)


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_gradient_equals_finite_differences(family: str) -> None:
    shape = shape_of(family)
    data = data_of(shape)
    function = partial(value_and_gradient(shape), data)
    free = point_of(shape, data)
    gradient = np.asarray(function(free)[1])
    for position in range(shape.size):
        step = 1e-5
        up, down = (float(function(free.at[position].add(sign * step))[0]) for sign in (1, -1))
        np.testing.assert_allclose(gradient[position], (up - down) / (2 * step), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("family", ["logistic", "linear"])
def test_numeric_moments_are_close_to_exact_ones_where_nothing_is_clamped(family: str) -> None:
    """Predictors far inside the box, so that the clamp of the numeric rows does not matter."""
    exact, numeric = shape_of(family), shape_of(family, moments="numeric")
    data = data_of(exact)
    start = initial_point(exact, data)
    first = len(exact.names) + int(exact.has_spread)
    start[first : first + 2] = 0.0  # means in the middle
    start[first + 2 : first + 4] = -2.5  # sd about 0.26
    data = jax.jit(partial(expected_data, exact))(data, jnp.asarray(start))
    points = [start, start + 0.02, start - 0.02]
    ours = np.array([float(value_and_gradient(exact)(data, jnp.asarray(point))[0]) for point in points])
    theirs = np.array([float(value(numeric)(data, jnp.asarray(point))) for point in points])
    np.testing.assert_allclose(ours[1:] - ours[0], theirs[1:] - theirs[0], rtol=0.03, atol=0.1)


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_expected_data_is_rows_times_moments(family: str) -> None:
    shape = shape_of(family)
    data = data_of(shape)
    free = point_of(shape, data)
    parameters, _ = constrained(shape)(data, free)
    table, its = shape.tables[0], parameters.tables[0]
    alpha, beta = table_coefficients(table, data[0], parameters.coefficients)
    w, spread = its.covariance @ beta, parameters.spread
    integrals = jax.jit(lambda m, v, s: outcome_integrals(table.outcome, m, v, s, table.largest_q))(
        alpha + its.mean @ beta, beta @ w, spread
    )
    replaced = jax.jit(partial(expected_data, shape))(data, free)[0]
    mean = NUM_ROWS * statistics_mean(table.blocks, its.mean, its.covariance, w, integrals)
    np.testing.assert_allclose(isometric(table, replaced.observed), mean, rtol=1e-9)
    assert replaced.num_rows == data[0].num_rows


def test_offset_and_change_of_units_reach_the_likelihood() -> None:
    shape = shape_of("logistic")
    table = TableShape(**{**vars(shape.tables[0]), "has_offset": True, "dimension": 3})
    data = data_of(shape)[0]._replace(
        matrix=jnp.array([[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]),
        shift=jnp.array([0.1, 0.0, 0.0]),
        offset=jnp.asarray(0.7),
    )
    intercept, slopes = table_coefficients(table, data, jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(intercept, 2.1)
    np.testing.assert_allclose(slopes, [4.0, 3.0, 0.7])


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
@pytest.mark.parametrize("broken", ["plain", "zero", "huge"])
def test_initial_point_is_usable_whatever_the_noise(family: str, broken: str) -> None:
    shape = shape_of(family)
    data = data_of(shape)
    scale: Any = {"plain": 1.0, "zero": 0.0, "huge": -50.0}[broken]
    data = (data[0]._replace(observed=tuple(scale * each for each in data[0].observed)),)
    start = initial_point(shape, data)
    assert start.shape == (shape.size,)
    assert np.isfinite(start).all()
    assert np.isfinite(float(value_and_gradient(shape)(data, jnp.asarray(start))[0]))


PRIOR_DRAWS = {2: 10_000, 5: 10_000, 10: 3_000}  # by dimension: of 10, each takes a millisecond
SMALL_NOISE = 0.1**2 / 1e6  # variance a row: noise of 0.1 on a million rows, less than any release has


def prior_draws(shape: ModelShape, seed: int) -> np.ndarray:
    """Free vectors from the prior: normal, logit of a uniform share, and partial correlations of LKJ(2)."""
    generator = np.random.default_rng(seed)
    table, d = shape.tables[0], shape.tables[0].dimension
    draws = PRIOR_DRAWS[d]
    parts = [np.asarray(shape.prior.scales(shape.names)) * generator.normal(size=(draws, len(shape.names)))]
    if shape.has_spread:
        center, scale = LOG_SPREAD[table.outcome.family_name]
        parts.append(center + scale * generator.normal(size=(draws, 1)))
    parts.append(generator.logistic(size=(draws, 2 * d)))
    shapes = 2.0 + (d - 2 - np.tril_indices(d, -1)[1]) / 2
    parts.append(np.arctanh(2 * generator.beta(shapes, shapes, size=(draws, len(shapes))) - 1))
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("d", [2, 5, 10])
@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_covariance_of_a_release_is_positive_definite_for_every_prior_draw(family: str, d: int) -> None:
    """Also where nearly all outcomes sit at a bound; without any noise it is so up to rounding only.

    A share of 0.2 % of the draws that failed would be seen with a probability of 0.997 or more.
    """
    shape = shape_of(family, d)
    data, table = data_of(shape), shape.tables[0]

    def smallest_pivot(free: jax.Array) -> jax.Array:
        parameters, _ = constrain(shape, data, with_level(shape, data, free))
        its = parameters.tables[0]
        alpha, beta = table_coefficients(table, data[0], parameters.coefficients)
        w = its.covariance @ beta
        integrals = outcome_integrals(
            table.outcome, alpha + its.mean @ beta, beta @ w, parameters.spread, table.largest_q
        )  # fmt: skip
        covariance = statistics_covariance(table.blocks, its.mean, its.covariance, w, integrals)
        factor = jnp.linalg.cholesky(covariance + SMALL_NOISE * jnp.eye(len(covariance)))
        return jnp.min(jnp.diagonal(factor)) ** 2 / SMALL_NOISE

    free = prior_draws(shape, d)
    assert free.shape == (PRIOR_DRAWS[d], shape.size)
    pivots = np.asarray(jax.jit(lambda points: jax.lax.map(smallest_pivot, points, batch_size=250))(jnp.asarray(free)))
    # not a number where the factor does not exist; a pivot is at least the noise, but for rounding
    assert np.all(pivots > 0.9)
