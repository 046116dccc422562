"""The numeric moments against Monte Carlo, brute force and the identities of Stein."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpglm.blocks import BlockShape
from dpglm.errors import InputError
from dpglm.paper.oracle import average_over_rows, clamped_rows, normal_points, numeric_moments
from dpglm.paper.outcomes import Outcome, outcome_integrals, outcome_of

LOGIT = outcome_of("logistic", "logit", (-1, 1))
COUNTS = outcome_of("poisson", "softplus", (0, 6))
LINEAR = outcome_of("linear", None, (-1, 1))


def shapes(*pairs: tuple[int, int]) -> tuple[BlockShape, ...]:
    return tuple(BlockShape(*pair) for pair in pairs)


def parameters(dimension: int) -> dict[str, Any]:
    generator = np.random.default_rng(dimension)
    root = generator.normal(size=(dimension, dimension)) * 0.3
    return {
        "intercept": 0.4,
        "coefficients": generator.normal(size=dimension),
        "covariate_mean": generator.uniform(-0.3, 0.3, dimension),
        "covariate_covariance": root @ root.T + 0.1 * np.eye(dimension),
    }


def drawn_outcomes(outcome: Outcome, u: np.ndarray, spread: float, generator: np.random.Generator) -> Any:
    """One y for each u, by the plain definition of its family."""
    if outcome.family_name == "logistic":
        return np.where(generator.uniform(size=len(u)) < 1 / (1 + np.exp(-u)), 1.0, -1.0)
    if outcome.family_name == "linear":
        return np.clip(generator.normal(u, math.sqrt(spread)), outcome.low, outcome.high)
    mu = np.logaddexp(0, u)
    rate = generator.gamma(mu / (spread - 1), spread - 1) if spread > 1 else mu
    return np.minimum(generator.poisson(rate), outcome.high).astype(float)


@pytest.mark.parametrize(
    ("outcome", "spread", "pairs"),
    [
        (LOGIT, 1.0, [(1, 0), (1, 1), (0, 1), (0, 2)]),
        (COUNTS, 1.0, [(0, 1), (0, 2), (1, 1), (1, 2)]),
        (COUNTS, 2.0, [(1, 0), (2, 0), (1, 1), (1, 2)]),
        (LINEAR, 0.3, [(0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]),
        (LOGIT, 1.0, [(1, 3), (0, 4)]),
    ],
)
def test_oracle_equals_monte_carlo(outcome: Outcome, spread: float, pairs: list[tuple[int, int]]) -> None:
    """Clamped rows drawn with a fixed seed: 6 standard errors; about 200 comparisons a case, so chance fails 1 in 1e6.

    The same draws reject moments with another intercept, so the bound is not slack.
    """
    blocks, given, rows = shapes(*pairs), parameters(2), 100_000
    generator = np.random.default_rng(5)
    x = generator.multivariate_normal(given["covariate_mean"], given["covariate_covariance"], rows)
    x = np.clip(x, -1, 1)
    x = x * np.minimum(1, 1.1 / np.linalg.norm(x, axis=1))[:, None]
    y = drawn_outcomes(outcome, given["intercept"] + x @ given["coefficients"], spread, generator)
    features = np.concatenate([block.features(x, y) for block in blocks], axis=1)

    def largest_deviation(intercept: float) -> float:
        mean, covariance = numeric_moments(
            blocks, **given | {"intercept": intercept}, outcome=outcome, spread=spread,
            clamp_to_box=True, clamp_to_radius=1.1,
        )  # fmt: skip
        centred = features - np.asarray(mean)
        products = centred[:, :, None] * centred[:, None, :]
        first = np.abs(centred.mean(0)) / (features.std(0) / math.sqrt(rows))
        second = np.abs(products.mean(0) - np.asarray(covariance)) / (products.std(0) / math.sqrt(rows))
        return float(max(first.max(), second.max()))

    assert largest_deviation(0.4) < 6
    assert largest_deviation(0.6) > 6


@pytest.mark.parametrize("isometric", [True, False])
def test_average_over_rows_is_the_brute_force_sum(isometric: bool) -> None:
    """Two-level y: enumerate y = -1 and 1 for every row, with the plain features of the blocks."""
    generator = np.random.default_rng(3)
    x, u = generator.uniform(-1, 1, (40, 3)), generator.normal(size=40)
    blocks = shapes((1, 0), (1, 1), (0, 1), (0, 2), (1, 2))
    mean, covariance = average_over_rows(blocks, jnp.asarray(x), jnp.asarray(u), LOGIT, 1.0, isometric=isometric)
    weights = np.concatenate([1 / (1 + np.exp(u)), 1 / (1 + np.exp(-u))]) / 40
    features = np.concatenate(
        [np.concatenate([block.features(x, np.full(40, y)) for block in blocks], axis=1) for y in (-1.0, 1.0)]
    )
    if not isometric:
        features /= np.sqrt(np.concatenate([block.multiplicities(3) for block in blocks]))
    expected = weights @ features
    np.testing.assert_allclose(mean, expected, rtol=0, atol=1e-13)
    second = features.T @ (features * weights[:, None])
    np.testing.assert_allclose(covariance, second - np.outer(expected, expected), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("outcome", "spread"), [(LOGIT, 1.0), (COUNTS, 1.7), (LINEAR, 0.2)])
@pytest.mark.parametrize("dimension", [2, 3])
def test_stein_identities(outcome: Outcome, spread: float, dimension: int) -> None:
    """E[y xi ... xi] up to four factors from H_0 ... H_4 and w = Sigma beta (docs/moments.md, section 7)."""
    given = parameters(dimension) | {"covariate_mean": np.zeros(dimension)}
    sigma, beta = given["covariate_covariance"], given["coefficients"]
    w, variance = sigma @ beta, float(beta @ sigma @ beta)
    h = np.asarray(outcome_integrals(outcome, given["intercept"], variance, spread, 1))[1]
    blocks = shapes((1, 0), (1, 1), (1, 2), (1, 3), (1, 4))
    mean, _ = numeric_moments(blocks, **given, outcome=outcome, spread=spread, points=2**17, isometric=False)

    def symmetric(pattern: str, order: tuple[int, ...]) -> Any:
        """The product of Sigma for each pair and w for each single of the pattern, over distinct arrangements."""
        pairs = pattern.count("S")
        terms = set()
        for p in permutations(range(len(order))):
            chosen = frozenset(frozenset(p[2 * i : 2 * i + 2]) for i in range(pairs))
            terms.add((chosen, frozenset(p[2 * pairs :])))
        return sum(
            math.prod(sigma[tuple(order[i] for i in pair)] for pair in chosen) * math.prod(w[order[i]] for i in rest)
            for chosen, rest in terms
        )

    def closed_form(block: BlockShape, h: np.ndarray) -> np.ndarray:
        """All monomials of one block: a sum over how many factors are paired by Sigma; the others give w."""
        patterns = ["S" * pairs + "w" * (block.degree - 2 * pairs) for pairs in range(block.degree // 2 + 1)]
        orders = block.monomials(dimension)
        return np.array([sum(symmetric(p, order) * h[p.count("w")] for p in patterns) for order in orders])

    found = np.split(np.asarray(mean), np.cumsum([block.size(dimension) for block in blocks])[:-1])
    for block, part in zip(blocks, found, strict=True):
        tolerance = 2e-3 * np.max(np.abs(part))
        np.testing.assert_allclose(part, closed_form(block, h), rtol=0, atol=tolerance)
        without_last = np.where(np.arange(5) == block.degree, 0, h)  # the tolerance sees every term
        assert np.max(np.abs(part - closed_form(block, without_last))) > 3 * tolerance


def test_more_points_are_more_accurate() -> None:
    """E[y x] against w H_1: the error falls by far more than the square root of the number of points would give."""
    given = parameters(2) | {"covariate_mean": np.zeros(2)}
    sigma, beta = given["covariate_covariance"], given["coefficients"]
    expected = sigma @ beta * float(outcome_integrals(LOGIT, 0.4, beta @ sigma @ beta, 1.0, 1)[1, 1])
    errors = []
    for points in (2**8, 2**16):
        mean, _ = numeric_moments(shapes((1, 1)), **given, outcome=LOGIT, spread=1.0, points=points)
        errors.append(float(np.max(np.abs(np.asarray(mean) - expected))))
    assert errors[1] < errors[0] / 16
    assert errors[1] < 2e-5


def test_points_are_deterministic_and_symmetric() -> None:
    first = normal_points(3, 2**10).copy()
    normal_points.cache_clear()
    np.testing.assert_array_equal(normal_points(3, 2**10), first)
    np.testing.assert_array_equal(first[:512], -first[512:])
    np.testing.assert_allclose(first.T @ first / 2**10, np.eye(3), rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.mean(first**4, axis=0), 3.0, atol=0.1)


def test_covariance_is_positive_semidefinite_and_differentiable() -> None:
    given, blocks = parameters(3), shapes((1, 0), (1, 1), (0, 1), (0, 2))

    def trace(coefficients: jax.Array) -> jax.Array:
        moments = numeric_moments(
            blocks, **given | {"coefficients": coefficients}, outcome=LOGIT, spread=1.0, points=2**10
        )
        return jnp.trace(moments[1])

    _, covariance = numeric_moments(blocks, **given, outcome=LOGIT, spread=1.0)
    assert float(jnp.linalg.eigvalsh(covariance)[0]) > 0
    beta, step = jnp.asarray(given["coefficients"]), 1e-5
    compiled, gradient = jax.jit(trace), jax.grad(trace)(beta)
    for i in range(3):
        difference = (compiled(beta.at[i].add(step)) - compiled(beta.at[i].add(-step))) / (2 * step)
        np.testing.assert_allclose(gradient[i], difference, rtol=1e-6, atol=1e-9)


def test_rows_are_clamped_like_the_custodian() -> None:
    x = jnp.array([[3.0, 0.1], [0.3, -0.4], [0.9, -2.0]])
    boxed = clamped_rows(x, True, None)
    np.testing.assert_array_equal(boxed, [[1.0, 0.1], [0.3, -0.4], [0.9, -1.0]])
    ball = np.asarray(clamped_rows(x, True, 1.0))
    np.testing.assert_array_equal(ball[1], x[1])
    np.testing.assert_allclose(np.linalg.norm(ball[[0, 2]], axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(clamped_rows(x, False, None), x)


def test_mistakes_are_explained() -> None:
    with pytest.raises(InputError, match="power of two"):
        normal_points(2, 1000)
    with pytest.raises(InputError, match="power of two"):
        normal_points(2, 2)
    with pytest.raises(InputError, match="clamp_to_radius = 0"):
        clamped_rows(jnp.ones((2, 2)), False, 0)
