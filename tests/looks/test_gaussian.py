"""Gaussians in information form, against dense formulas."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.looks.gaussian import Gaussian, of_prior, together
from dpglm.looks.reading import Belief

SIZES = (1, 3, 8)


def positive(size: int, rng: np.random.Generator) -> np.ndarray:
    root = rng.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


def some(size: int, seed: int) -> tuple[Gaussian, np.ndarray, np.ndarray, np.random.Generator]:
    """A statement, with its mean and covariance."""
    rng = np.random.default_rng(seed)
    covariance, mean = positive(size, rng), rng.normal(size=size)
    return Gaussian(np.linalg.inv(covariance), np.linalg.solve(covariance, mean)), mean, covariance, rng


@pytest.mark.parametrize("size", SIZES)
def test_mean_and_covariance(size: int) -> None:
    statement, mean, covariance, _ = some(size, 1)
    np.testing.assert_allclose(statement.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(statement.covariance, covariance, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("size", SIZES)
def test_an_error_adds_its_covariance(size: int) -> None:
    statement, mean, covariance, rng = some(size, 2)
    error = positive(size, rng)
    wider = statement.with_error(error)
    np.testing.assert_allclose(wider.covariance, covariance + error, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(wider.mean, mean, rtol=1e-7)
    np.testing.assert_array_equal(wider.precision, wider.precision.T)
    np.testing.assert_allclose(statement.with_error(0 * error).precision, statement.precision, rtol=1e-9, atol=1e-12)


def test_a_direction_of_which_nothing_is_known_stays_unknown() -> None:
    """A singular precision is allowed: dense formulas would need its inverse."""
    rng = np.random.default_rng(3)
    direction, error = rng.normal(size=4), positive(4, rng)
    sides = np.linalg.svd(direction[None])[2][1:]
    precision = sides.T @ positive(3, rng) @ sides
    wider = Gaussian(precision, precision @ rng.normal(size=4)).with_error(error)
    np.testing.assert_allclose(direction @ wider.precision @ direction, 0, atol=1e-9)
    np.testing.assert_allclose(direction @ wider.shift, 0, atol=1e-9)
    # What is known of the other directions is as if the rest had been known with a huge variance.
    nearly = Gaussian(precision + 1e-9 * np.outer(direction, direction), np.zeros(4)).with_error(error)
    np.testing.assert_allclose(wider.precision, nearly.precision, atol=1e-6)
    np.testing.assert_array_equal(Gaussian(np.zeros((4, 4)), np.zeros(4)).with_error(error).precision, 0)


@pytest.mark.parametrize("size", SIZES)
def test_a_turned_statement_is_of_turned_coefficients(size: int) -> None:
    statement, mean, covariance, rng = some(size, 4)
    matrix, shift = rng.normal(size=(size, size)) + 2 * np.eye(size), rng.normal(size=size)
    turned = statement.turned(matrix, shift)
    np.testing.assert_allclose(turned.mean, matrix @ mean + shift, rtol=1e-7)
    np.testing.assert_allclose(turned.covariance, matrix @ covariance @ matrix.T, rtol=1e-7, atol=1e-9)
    back = turned.turned(np.linalg.inv(matrix), -np.linalg.solve(matrix, shift))
    np.testing.assert_allclose(back.precision, statement.precision, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(back.shift, statement.shift, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_of_rest_undoes_turned(size: int) -> None:
    """The statement about w, where it is of matrix @ w + shift."""
    statement, mean, _, rng = some(size, 5)
    matrix, shift = rng.normal(size=(size, size)) + 2 * np.eye(size), rng.normal(size=size)
    again = statement.turned(matrix, shift).of_rest(matrix, shift)
    np.testing.assert_allclose(again.precision, statement.precision, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(again.mean, mean, rtol=1e-6)
    # And with fewer unknowns, it is the least squares of what is left.
    part, offset = rng.normal(size=(size, 1)), rng.normal(size=size)
    rest = statement.of_rest(part, offset)
    expected = np.linalg.lstsq(
        np.linalg.cholesky(statement.precision).T @ part, np.linalg.cholesky(statement.precision).T @ (mean - offset)
    )[0]
    np.testing.assert_allclose(rest.mean, expected, rtol=1e-6)


def test_independent_statements_add_up() -> None:
    first, mean, covariance, rng = some(3, 6)
    other = Belief(rng.normal(size=3), positive(3, rng))
    both = together([first, of_prior(other)])
    gain = covariance @ np.linalg.inv(covariance + other.covariance)
    np.testing.assert_allclose(both.mean, mean + gain @ (other.mean - mean), rtol=1e-7)
    np.testing.assert_allclose(both.covariance, covariance - gain @ covariance, rtol=1e-6, atol=1e-9)
