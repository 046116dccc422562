"""The structured likelihood against the dense one, against exact rational arithmetic, and at equal eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpglm.blocks import BlockShape
from dpglm.errors import InputError
from dpglm.families import FAMILIES
from dpglm.paper.assemble import prepare
from dpglm.paper.likelihood import dense_log_likelihood, log_likelihood

TOLERANCE = 1e-8
RESIDUAL_VARIANCE = 0.3
FAST_COMPILATION = {"xla_backend_optimization_level": 0}


def shapes(*pairs: tuple[int, int]) -> tuple[BlockShape, ...]:
    return tuple(BlockShape(*pair) for pair in pairs)


LISTS = {
    **{name: family.full_blocks for name, family in FAMILIES.items()},
    **{f"{name}, paper": family.paper_blocks for name, family in FAMILIES.items()},
}
# what no family uses, but a user may ask for: no matrix block, nothing else, (1, 2) without (0, 2), y^2 x
UNUSUAL_LISTS = {
    "logistic, vectors": shapes((1, 1), (0, 1), (1, 0)),
    "logistic, squares alone": shapes((0, 2)),
    "poisson, products alone": shapes((1, 2), (0, 1), (2, 1), (1, 0)),
    "linear, with y squared times x": shapes((0, 2), (2, 1), (2, 0), (0, 1)),
}
Cases = tuple[Any, ...]  # observed, num_rows, noise_stddevs, mean, covariance, w, integrals without row 0: stacked


def powers_of(name: str) -> list[Callable[[Any], Any]]:
    if name.startswith("logistic"):
        return [lambda u: jnp.tanh(u / 2), lambda u: 1.0 + 0.0 * u]
    if name.startswith("linear"):
        s = RESIDUAL_VARIANCE
        return [
            lambda u: u,
            lambda u: u**2 + s,
            lambda u: u**3 + 3 * u * s,
            lambda u: u**4 + 6 * u**2 * s + 3 * s**2,
        ]
    rate = jax.nn.softplus
    return [
        rate,
        lambda u: rate(u) + rate(u) ** 2,
        lambda u: rate(u) + 3 * rate(u) ** 2 + rate(u) ** 3,
        lambda u: rate(u) + 7 * rate(u) ** 2 + 6 * rate(u) ** 3 + rate(u) ** 4,
    ]


def bounded_count_powers(bound: int) -> list[Callable[[Any], Any]]:
    """Poisson counts with the log link, clamped at a bound: E[y^q] = bound^q - sum over k of (bound^q - k^q) p(k)."""
    counts = np.arange(bound)
    logs = np.array([math.lgamma(count + 1) for count in counts])

    def power(q: int) -> Callable[[Any], Any]:
        return lambda u: bound**q - jnp.sum((bound**q - counts**q) * jnp.exp(counts * u - jnp.exp(u) - logs))

    return [power(q) for q in (1, 2, 3, 4)]


@lru_cache(maxsize=16)
def table_function(name: str) -> Callable[[float, float], jax.Array]:
    """(location, variance) -> E[d^j h_q(u)] for q = 1, 2, ..., by the trapezoid rule."""
    powers = bounded_count_powers(int(name.split()[-1])) if name.startswith("bounded") else powers_of(name)

    def table(location: jax.Array, variance: jax.Array) -> jax.Array:
        grid = jnp.linspace(-8.5, 8.5, 401)
        weight = jnp.exp(-(grid**2) / 2) / jnp.sum(jnp.exp(-(grid**2) / 2))
        rows = []
        for power in powers:
            row, function = [], power
            for _ in range(5):
                row.append(jnp.sum(weight * jax.vmap(function)(location + jnp.sqrt(variance) * grid)))
                function = jax.grad(function)
            rows.append(jnp.stack(row))
        return jnp.stack(rows)

    return jax.jit(table, compiler_options=FAST_COMPILATION)


def simulated_outcome(name: str, u: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    if name.startswith("logistic"):
        return np.where(generator.random(u.shape) < 1 / (1 + np.exp(-u)), 1.0, -1.0)
    if name.startswith("linear"):
        return u + np.sqrt(RESIDUAL_VARIANCE) * generator.normal(size=u.shape)
    if name.startswith("poisson"):
        return generator.poisson(np.log1p(np.exp(u))).astype(float)
    return np.minimum(generator.poisson(np.exp(u)), int(name.split()[-1])).astype(float)


def expected_statistics(block: BlockShape, mean: Any, covariance: Any, w: Any, averages: Any) -> np.ndarray:
    """E[y^q x...] in isometric coordinates, by the formulas for up to two factors."""
    if block.degree == 0:
        tensor = averages[0]
    elif block.degree == 1:
        tensor = averages[0] * mean + averages[1] * w
    else:
        mixed = np.outer(mean, w)
        tensor = averages[0] * (covariance + np.outer(mean, mean)) + averages[1] * (mixed + mixed.T)
        tensor = tensor + averages[2] * np.outer(w, w)
    plain = np.array([np.asarray(tensor)[monomial] for monomial in block.monomials(len(mean))])
    return plain * np.sqrt(block.multiplicities(len(mean)))


def with_row_zero(rows: Any) -> jax.Array:
    return jnp.concatenate([np.eye(1, 5), rows])  # type: ignore[list-item]


def one_case(
    name: str,
    blocks: tuple[BlockShape, ...],
    eigenvalues: Any,
    seed: int,
    *,
    num_rows: float = 1e4,
    noise: float = 3.0,
    mean_scale: float = 0.3,
    slope_scale: float = 1.5,
    intercept: float = 0.3,
) -> Cases:
    """A random model and a release drawn from it."""
    generator = np.random.default_rng(seed)
    d = len(eigenvalues)
    vectors = np.linalg.qr(generator.normal(size=(d, d)))[0]
    covariance = (vectors * np.asarray(eigenvalues)) @ vectors.T
    covariance = (covariance + covariance.T) / 2
    mean, beta = mean_scale * generator.normal(size=d), slope_scale * generator.normal(size=d)
    w = covariance @ beta
    rows = table_function(name)(intercept + mean @ beta, beta @ w)
    stddevs = noise * np.linspace(1, 2, len(blocks))
    # fluctuations of 2,000 rows, scaled to num_rows, and noise
    x = generator.multivariate_normal(mean, covariance, size=2000)
    y = simulated_outcome(name, intercept + x @ beta, generator)
    pieces = []
    for block, stddev in zip(blocks, stddevs, strict=True):
        expected = expected_statistics(block, mean, covariance, w, np.asarray(with_row_zero(rows))[block.y_power])
        fluctuation = np.sum(block.features(x, y) - expected, axis=0) * np.sqrt(num_rows / 2000)
        released = num_rows * expected + fluctuation + stddev * generator.normal(size=expected.shape)
        pieces.append(released / np.sqrt(block.multiplicities(d)))
    return prepare(blocks, d, pieces), num_rows, stddevs, mean, covariance, w, rows


def stacked(cases: list[Cases]) -> Cases:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *cases)


@lru_cache(maxsize=64)
def value_and_gradient(dense: bool, blocks: tuple[BlockShape, ...]) -> Callable[..., Any]:
    """Batched value and gradient in (mean, covariance, w, integrals)."""
    function = dense_log_likelihood if dense else log_likelihood

    def single(observed, num_rows, noise, mean, covariance, w, rows):
        def value(mean, covariance, w, rows):
            return function(blocks, observed, num_rows, noise, mean, covariance, w, with_row_zero(rows))

        return jax.value_and_grad(value, argnums=(0, 1, 2, 3))(mean, covariance, w, rows)

    return jax.jit(jax.vmap(single), compiler_options=FAST_COMPILATION)


def assert_same(left: Any, right: Any, tolerance: float = TOLERANCE, smallest: float = 0.0) -> None:
    """Values and gradients agree case by case, relative to the size of each gradient or the smallest that counts."""
    values, expected = np.asarray(left[0]), np.asarray(right[0])
    assert np.all(np.abs(values - expected) <= tolerance * np.abs(expected)), (values, expected)
    for one, other in zip(left[1], right[1], strict=True):
        one, other = np.asarray(one).reshape(len(values), -1), np.asarray(other).reshape(len(values), -1)
        size = np.maximum(np.abs(other).max(axis=1), smallest)
        assert np.all(np.abs(one - other).max(axis=1) <= tolerance * size), (one, other)


def grid_of_cases(name: str, blocks: tuple[BlockShape, ...], d: int) -> Cases:
    """18 cases: rows 1e2 to 1e9, noise 1e-3 to 1e4, zero and nonzero mean."""
    eigenvalues = np.linspace(0.05, 0.3, d) if d > 1 else [0.2]
    return stacked(
        [
            one_case(name, blocks, eigenvalues, seed, num_rows=num_rows, noise=noise, mean_scale=mean_scale)
            for num_rows in (1e2, 1e5, 1e9)
            for seed, noise in enumerate((1e-3, 1.0, 1e4))
            for mean_scale in (0.0, 0.4)
        ]
    )


@pytest.mark.parametrize(("name", "d"), [(name, d) for name in LISTS for d in (1, 2, 5) if d == 5 or name in FAMILIES])
def test_structured_equals_dense(name, d):
    cases = grid_of_cases(name, LISTS[name], d)
    assert_same(value_and_gradient(False, LISTS[name])(*cases), value_and_gradient(True, LISTS[name])(*cases))


@pytest.mark.parametrize("name", UNUSUAL_LISTS)
def test_structured_equals_dense_for_unusual_lists(name):
    blocks = UNUSUAL_LISTS[name]
    cases = grid_of_cases(name, blocks, 2)
    assert_same(value_and_gradient(False, blocks)(*cases), value_and_gradient(True, blocks)(*cases))


@pytest.mark.parametrize("name", ["logistic, paper", "linear, paper", "poisson, paper", *UNUSUAL_LISTS])
def test_a_mean_left_out_is_zero(name):
    """The shorter formulas of no mean, value and gradient; the last case has equal eigenvalues."""
    blocks = (LISTS | UNUSUAL_LISTS)[name]
    spectra = [(0.05, 0.1, 0.3)] * 9 + [(0.2, 0.2, 0.2)]
    settings = [(num_rows, noise) for num_rows in (1e2, 1e5, 1e9) for noise in (1e-3, 1.0, 1e4)] + [(1e4, 3.0)]
    cases = stacked(
        [
            one_case(name, blocks, spectrum, seed, num_rows=num_rows, noise=noise, mean_scale=0.0)
            for seed, (spectrum, (num_rows, noise)) in enumerate(zip(spectra, settings, strict=True))
        ]
    )
    cases[4][-1] = 0.2 * np.eye(3)  # exactly, not to rounding

    def single(observed, num_rows, noise, _, covariance, w, rows):
        def value(covariance, w, rows):
            return log_likelihood(blocks, observed, num_rows, noise, None, covariance, w, with_row_zero(rows))

        return jax.value_and_grad(value, argnums=(0, 1, 2))(covariance, w, rows)

    short = jax.jit(jax.vmap(single), compiler_options=FAST_COMPILATION)(*cases)
    values, gradients = value_and_gradient(True, blocks)(*cases)
    assert_same(short, (values, gradients[1:]))
    with pytest.raises(AssertionError):
        assert_same((short[0], (1.001 * short[1][0], *short[1][1:])), (values, gradients[1:]))


@pytest.mark.parametrize("name", ["logistic", "poisson"])
def test_gradient_at_and_near_equal_eigenvalues(name):
    """Sigma = c I and two equal eigenvalues, and gaps from 1e-15 to 1."""
    gaps = (0.0, 1e-15, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
    spectra = [0.2 + gap * np.arange(5) for gap in gaps] + [(0.1, 0.2, 0.2 + gap, 0.4, 0.5) for gap in gaps]
    cases = stacked([one_case(name, LISTS[name], eigenvalues, 7) for eigenvalues in spectra])
    cases[4][0] = 0.2 * np.eye(5)  # exactly, not to rounding
    structured, dense = (value_and_gradient(one, LISTS[name])(*cases) for one in (False, True))
    assert_same(structured, dense)
    # the off-diagonal part of the gradient in the eigenbasis is what an eigendecomposition gets wrong: not small here
    assert np.abs(dense[1][1][0][0, 1:]).max() > 1e-2 * np.abs(dense[1][1][0]).max()


def test_the_comparison_rejects_wrong_signs():
    blocks = LISTS["logistic"]
    cases = grid_of_cases("logistic", blocks, 2)
    right = value_and_gradient(True, blocks)(*cases)
    reversed_w = (*cases[:5], -cases[5], cases[6])
    with pytest.raises(AssertionError):
        assert_same(value_and_gradient(False, blocks)(*reversed_w), right)
    for index in range(4):
        gradient = tuple(-one if index == place else one for place, one in enumerate(right[1]))
        with pytest.raises(AssertionError):
            assert_same((right[0], gradient), right)
    without_corner = right[1][1] * jnp.eye(2)
    with pytest.raises(AssertionError):
        assert_same((right[0], (right[1][0], without_corner, *right[1][2:])), right)


def test_worked_case_of_the_design():
    """Blocks (1, 1) and (0, 2), no mean, no intercept: the formulas of docs/likelihood.md, section 5, written out."""
    blocks, d = LISTS["logistic, paper"], 5
    case = one_case("logistic", blocks, np.linspace(0.05, 0.3, d), 11, mean_scale=0.0, intercept=0.0)
    (z1, z2), num_rows, stddevs, _, covariance, w, rows = case
    lam, vectors = np.linalg.eigh(covariance)
    h1, h3 = float(rows[0, 1]), float(rows[0, 3])
    w, r = vectors.T @ w, vectors.T @ (np.asarray(z1) - num_rows * h1 * w)
    residual = vectors.T @ (np.asarray(z2) - num_rows * covariance) @ vectors
    weights = 2 * num_rows * np.outer(lam, lam) + stddevs[1] ** 2
    quotient, a = residual / weights, lam * h1
    q, h = (w**2 / weights).sum(1), (np.outer(w**2, w**2) / weights).sum()
    c = 2 * a * w * q
    gram = np.outer(a, a) * (2 * np.outer(w, w) / weights + np.diag(2 * q))
    gram = num_rows**2 * (gram + h3 * (np.outer(c, w) + np.outer(w, c)) + h3**2 * h * np.outer(w, w))
    e = r - num_rows * (2 * a * (quotient @ w) + h3 * w * (w @ quotient @ w))
    schur = num_rows * (np.diag(lam) - h1**2 * np.outer(w, w)) + stddevs[0] ** 2 * np.eye(d) - gram
    energy = np.log(weights[np.triu_indices(d)]).sum() + np.linalg.slogdet(schur)[1]
    energy += (residual * quotient).sum() + e @ np.linalg.solve(schur, e)
    expected = -(energy + (d + d * (d + 1) // 2) * np.log(2 * np.pi)) / 2
    value = value_and_gradient(False, blocks)(*stacked([case] * 18))[0][0]
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("bound", [1, 5])
def test_counts_at_the_ends_of_their_range(bound):
    """All counts zero, all at the bound, or a bound of one (then y^2 = y): finite, and equal to the dense form."""
    blocks, name = LISTS["poisson"], f"bounded {bound}"
    intercepts = np.linspace(-20, 3, 18)
    cases = stacked([one_case(name, blocks, (0.1, 0.3), 5, intercept=one, slope_scale=0.5) for one in intercepts])
    structured, dense = (value_and_gradient(one, blocks)(*cases) for one in (False, True))
    assert_same(structured, dense, tolerance=1e-6, smallest=1e-2)


def exact_log_likelihood(blocks, case):
    """(log density) with all arithmetic but the final logarithm in rational numbers, in plain monomials."""
    observed, num_rows, stddevs, mean, covariance, w, rows = case
    d = len(mean)
    m, b = ([Fraction(float(one)) for one in np.asarray(vector)] for vector in (mean, w))
    sigma = [[Fraction(float(one)) for one in row] for row in np.asarray(covariance)]
    table = [[Fraction(float(one)) for one in row] for row in np.asarray(with_row_zero(rows))]
    n = Fraction(num_rows)

    def moment(indices, q, order):
        if not indices:
            return table[q][order]
        first, rest = indices[0], indices[1:]
        total = m[first] * moment(rest, q, order) + b[first] * moment(rest, q, order + 1)
        for place, index in enumerate(rest):
            total += sigma[first][index] * moment(rest[:place] + rest[place + 1 :], q, order)
        return total

    labels, residual, noise, logs = [], [], [], 0.0
    for block, tensor, stddev in zip(blocks, observed, stddevs, strict=True):
        for monomial, count in zip(block.monomials(d), block.multiplicities(d), strict=True):
            labels.append((block.y_power, monomial))
            residual.append(Fraction(float(np.asarray(tensor)[monomial])) - n * moment(monomial, block.y_power, 0))
            noise.append(Fraction(float(stddev)) ** 2 / int(count))
            logs += math.log(count)
    size = len(labels)
    matrix = [[Fraction(0)] * size for _ in range(size)]
    for i, (q, left) in enumerate(labels):
        for j, (r, right) in enumerate(labels[: i + 1]):
            covered = moment(left + right, q + r, 0) - moment(left, q, 0) * moment(right, r, 0)
            matrix[i][j] = matrix[j][i] = n * covered + (noise[i] if i == j else 0)
    energy, log_determinant = Fraction(0), 0.0
    for pivot in range(size):  # elimination: log of each pivot, residual^2 / pivot
        log_determinant += math.log(matrix[pivot][pivot].numerator) - math.log(matrix[pivot][pivot].denominator)
        energy += residual[pivot] ** 2 / matrix[pivot][pivot]
        for i in range(pivot + 1, size):
            factor = matrix[i][pivot] / matrix[pivot][pivot]
            residual[i] -= factor * residual[pivot]
            for j in range(pivot + 1, size):
                matrix[i][j] -= factor * matrix[pivot][j]
    return -(size * math.log(2 * math.pi) + log_determinant + float(energy) + logs) / 2


def test_against_exact_arithmetic_where_the_dense_form_loses_digits():
    """A mean a thousand standard deviations from zero, 1e9 rows, almost no noise: the structured form is closer."""
    blocks = LISTS["logistic"]
    settings = {"num_rows": 1e9, "noise": 1e-3, "mean_scale": 1.0}
    easy = one_case("logistic", blocks, (0.1, 0.3), 3, num_rows=1e5, noise=1.0)
    hard = one_case("logistic", blocks, (1e-6, 0.1), 3, **settings)
    batch = stacked([easy, hard] * 9)
    structured, dense = (value_and_gradient(one, blocks)(*batch)[0] for one in (False, True))
    exact = exact_log_likelihood(blocks, easy)
    np.testing.assert_allclose([structured[0], dense[0]], exact, rtol=1e-12)
    exact = exact_log_likelihood(blocks, hard)
    assert abs(structured[1] / exact - 1) < 1e-6
    assert abs(dense[1] / exact - 1) > 2 * abs(structured[1] / exact - 1)


def test_second_derivatives_where_eigenvalues_differ():
    blocks = LISTS["logistic, paper"]
    observed, num_rows, stddevs, mean, covariance, w, rows = one_case("logistic", blocks, (0.1, 0.3), 13)

    point = tuple(jnp.asarray(one) for one in (mean, covariance, w))
    direction = (jnp.array([1.0, -0.5]), jnp.array([[0.3, 0.7], [0.7, -0.4]]), jnp.array([0.2, 0.9]))

    def change_of_gradient(function):
        def value(mean, covariance, w):
            return function(blocks, observed, num_rows, stddevs, mean, covariance, w, with_row_zero(rows))

        gradient = jax.grad(value, argnums=(0, 1, 2))
        return jax.jit(lambda: jax.jvp(gradient, point, direction)[1], compiler_options=FAST_COMPILATION)()

    structured, dense = change_of_gradient(log_likelihood), change_of_gradient(dense_log_likelihood)
    for one, other in zip(structured, dense, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * np.abs(other).max())


def test_one_case_under_jit_equals_the_batch():
    blocks = LISTS["logistic"]
    case = one_case("logistic", blocks, (0.1, 0.3), 17)
    batch = value_and_gradient(False, blocks)(*stacked([case] * 18))
    single = jax.jit(lambda *arguments: log_likelihood(blocks, *arguments), compiler_options=FAST_COMPILATION)
    value = single(*case[:6], with_row_zero(case[6]))
    np.testing.assert_allclose(batch[0], value, rtol=1e-13)


def test_prepare_and_refusals():
    blocks = shapes((1, 0), (1, 1), (0, 2))
    observed = prepare(blocks, 2, [[5.0], [1.0, 2.0], [3.0, 4.0, 6.0]])
    assert [one.shape for one in observed] == [(), (2,), (2, 2)]
    np.testing.assert_array_equal(observed[2], [[3.0, 4.0], [4.0, 6.0]])
    with pytest.raises(InputError, match="has 3 sums"):
        prepare(shapes((0, 2)), 2, [[1.0, 2.0]])
    table, ones = jnp.zeros((5, 5)), jnp.ones(2)
    with pytest.raises(InputError, match=r"leave \(2, 2\) out"):
        log_likelihood(shapes((2, 2)), (jnp.eye(2),), 10.0, [1.0], ones, jnp.eye(2), ones, table)
    with pytest.raises(InputError, match="degree 0 to 2"):
        log_likelihood(shapes((0, 3)), (jnp.eye(2),), 10.0, [1.0], ones, jnp.eye(2), ones, table)
