"""The dense moments against quadrature (exact for polynomials), brute force, and simulated rows."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpglm.blocks import BlockShape
from dpglm.errors import InputError
from dpglm.paper.moments import statistics_covariance, statistics_mean

RESIDUAL_VARIANCE = 0.3
EVERY_BLOCK = tuple(BlockShape(q, k) for q in (0, 1, 2) for k in (0, 1, 2) if (q, k) != (0, 0))
Powers = list[Callable[[jax.Array], jax.Array]]

LOGISTIC: Powers = [lambda u: jnp.tanh(u / 2), lambda u: 1.0 + 0.0 * u]
LINEAR: Powers = [
    lambda u: u,
    lambda u: u**2 + RESIDUAL_VARIANCE,
    lambda u: u**3 + 3 * u * RESIDUAL_VARIANCE,
    lambda u: u**4 + 6 * u**2 * RESIDUAL_VARIANCE + 3 * RESIDUAL_VARIANCE**2,
]


def poisson_powers(link: Callable[[jax.Array], jax.Array]) -> Powers:
    def powers_of_rate(coefficients: tuple[int, ...]) -> Callable[[jax.Array], jax.Array]:
        return lambda u: sum(c * link(u) ** (i + 1) for i, c in enumerate(coefficients))  # type: ignore[return-value]

    return [powers_of_rate(c) for c in ((1,), (1, 1), (1, 3, 1), (1, 7, 6, 1))]  # Touchard polynomials


def compiled(blocks: tuple[BlockShape, ...]) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Mean and covariance of the statistics."""

    def both(*arguments: jax.Array) -> tuple[jax.Array, jax.Array]:
        return statistics_mean(blocks, *arguments), statistics_covariance(blocks, *arguments)

    return jax.jit(both, compiler_options={"xla_backend_optimization_level": 0})


def integral_table(powers: Powers, location: float, variance: float) -> jax.Array:
    """E[d^j h_q(u)] by the trapezoid rule with 401 points on +-8.5 standard deviations."""
    grid = jnp.linspace(-8.5, 8.5, 401)
    weight = jnp.exp(-(grid**2) / 2) / jnp.sum(jnp.exp(-(grid**2) / 2))
    rows = [jnp.array([1.0, 0.0, 0.0, 0.0, 0.0])]
    for power in powers:
        row, function = [], power
        for _ in range(5):
            row.append(jnp.sum(weight * jax.vmap(function)(location + jnp.sqrt(variance) * grid)))
            function = jax.grad(function)
        rows.append(jnp.stack(row))
    return jnp.stack(rows)


def model(powers: Powers, dimension: int, seed: int, *, mean_scale: float = 0.4):
    """Random mean, covariance, intercept and slopes, with w and the table that follow."""
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(dimension, dimension)) / np.sqrt(dimension)
    covariance = 0.3 * root @ root.T + 0.05 * np.eye(dimension)
    mean, beta = mean_scale * generator.normal(size=dimension), generator.normal(size=dimension)
    w = covariance @ beta
    table = integral_table(powers, 0.3 + mean @ beta, beta @ w)
    return beta, (jnp.asarray(mean), jnp.asarray(covariance), jnp.asarray(w), table)


def weighted_moments(blocks, x, weights, powers_at):
    """E[t] and Cov[t] over points x with weights, where powers_at[q] = E[y^q | x]: the definition, in a double loop."""
    ones = np.ones(len(x))
    features = [BlockShape(1, block.degree).features(x, ones) if block.degree else ones[:, None] for block in blocks]
    pairs = list(zip(blocks, features, strict=True))
    first = np.concatenate([(weights * powers_at[block.y_power]) @ feature for block, feature in pairs])
    second = np.block(
        [[(f * (weights * powers_at[a.y_power + b.y_power])[:, None]).T @ g for b, g in pairs] for a, f in pairs]
    )
    return first, second - np.outer(first, first)


def test_equal_to_quadrature_that_is_exact_for_the_linear_family():
    """All of E[y^q x...] is a polynomial of degree at most 8, and 12 Gauss-Hermite nodes are exact up to 23."""
    beta, arguments = model(LINEAR, 2, seed=1)
    mean, covariance = (np.asarray(one) for one in arguments[:2])
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(12)
    standard = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    weights = np.outer(node_weights, node_weights).reshape(-1) / node_weights.sum() ** 2
    x = mean + standard @ np.linalg.cholesky(covariance).T
    u = 0.3 + x @ beta
    first, second = weighted_moments(EVERY_BLOCK, x, weights, [1.0 + 0 * u, *(np.asarray(h(u)) for h in LINEAR)])
    expected, scatter = compiled(EVERY_BLOCK)(*arguments)
    np.testing.assert_allclose(expected, first, rtol=0, atol=1e-11)
    np.testing.assert_allclose(scatter, second, rtol=0, atol=1e-10)


@pytest.mark.parametrize("powers", [poisson_powers(jax.nn.softplus), poisson_powers(jnp.exp)], ids=["softplus", "log"])
def test_equal_to_brute_force_integration_in_one_dimension(powers):
    beta, arguments = model(powers, 1, seed=2)
    grid = np.linspace(-12, 12, 4001)
    weights = np.exp(-(grid**2) / 2) / np.exp(-(grid**2) / 2).sum()
    x = float(arguments[0][0]) + float(np.sqrt(arguments[1][0, 0])) * grid[:, None]
    u = 0.3 + x @ beta
    first, second = weighted_moments(EVERY_BLOCK, x, weights, [1.0 + 0 * u, *(np.asarray(h(u)) for h in powers)])
    expected, scatter = compiled(EVERY_BLOCK)(*arguments)
    np.testing.assert_allclose(expected, first, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scatter, second, rtol=0, atol=1e-9 * np.abs(second).max())


def standard_errors_off(rows: np.ndarray, expected: np.ndarray, scatter: np.ndarray) -> tuple[float, float]:
    """Largest |difference| of means, and of covariances, in standard errors of the simulation."""
    mean_error = np.abs(rows.mean(0) - expected) / (rows.std(0) / np.sqrt(len(rows)))
    centred = rows - expected
    covariance_error = np.zeros_like(scatter)
    for i in range(rows.shape[1]):
        products = centred * centred[:, [i]]
        covariance_error[i] = np.abs(products.mean(0) - scatter[i]) / (products.std(0) / np.sqrt(len(rows)))
    return float(mean_error.max()), float(covariance_error.max())


def test_simulated_rows_agree_and_a_reversed_sign_does_not():
    """19 means and 190 covariances within 5 standard errors: another seed would fail with probability below 2e-4.

    The reversed sign is the paper's printed E[y | x]: it must be rejected.
    """
    blocks = tuple(BlockShape(*pair) for pair in ((1, 0), (1, 1), (0, 1), (0, 2), (1, 2)))
    beta, (mean, covariance, w, integrals) = model(LOGISTIC, 3, seed=3)
    generator = np.random.default_rng(20210)
    x = generator.multivariate_normal(np.asarray(mean), np.asarray(covariance), size=100_000)
    y = np.where(generator.random(len(x)) < 1 / (1 + np.exp(-(0.3 + x @ beta))), 1.0, -1.0)
    rows = np.concatenate([block.features(x, y) for block in blocks], axis=1)

    def scores(integrals: jax.Array) -> tuple[float, float]:
        return standard_errors_off(rows, *(np.asarray(one) for one in moments(mean, covariance, w, integrals)))

    moments = compiled(blocks)
    assert rows.shape[1] == 19
    assert max(scores(integrals)) < 5
    assert min(scores(integrals.at[1].multiply(-1))) > 20


@pytest.mark.parametrize("family", ["logistic", "linear", "poisson"])
def test_covariance_is_positive_definite_for_valid_parameters(family):
    powers = {"logistic": LOGISTIC, "linear": LINEAR, "poisson": poisson_powers(jax.nn.softplus)}[family]
    largest = 2 if family != "logistic" else 1
    blocks = tuple(block for block in EVERY_BLOCK if block.y_power <= largest)
    moments = compiled(blocks)
    table_of = jax.jit(lambda location, variance: integral_table(powers, location, variance))
    generator = np.random.default_rng(4)
    for _ in range(30):
        scale, spread, slope = generator.uniform(0, 1), generator.uniform(0.05, 0.6), 10 ** generator.uniform(-2, 0.6)
        root = generator.normal(size=(3, 3))
        covariance = spread * (root @ root.T / 3 + 0.1 * np.eye(3))
        mean, beta = scale * generator.uniform(-1, 1, 3), slope * generator.normal(size=3)
        w = covariance @ beta
        table = table_of(generator.normal() + mean @ beta, beta @ w)
        matrix = np.asarray(moments(mean, covariance, w, table)[1])
        unit = 1 / np.sqrt(np.diag(matrix))
        correlation = matrix * np.outer(unit, unit)
        np.testing.assert_allclose(correlation, correlation.T, rtol=0, atol=1e-12)
        assert np.linalg.eigvalsh(correlation).min() > 0


def test_what_it_cannot_serve_is_refused():
    _, arguments = model(LOGISTIC, 2, seed=5)
    with pytest.raises(InputError, match="degree 0 to 2"):
        statistics_mean((BlockShape(0, 3),), *arguments)
    with pytest.raises(InputError, match="integrals"):
        statistics_covariance((BlockShape(2, 0),), *arguments)
