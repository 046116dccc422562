"""Pseudo-rows and what a look sees of them; what was measured in one place, carried to another."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.families import FAMILIES
from dpglm.looks.population import Population, inverse_root, of_moments, positive, seen, transport
from dpglm.looks.viewpoint import Viewpoint, symmetric

SIZE = 4
RANGES = {"logistic": (0.0, 1.0), "poisson": (0.0, 60.0), "linear": (-5.0, 5.0)}


def random_positive(rng: np.random.Generator, size: int = SIZE) -> np.ndarray:
    root = rng.normal(size=(size, size))
    return root @ root.T + 0.05 * np.eye(size)


def test_what_is_measured_of_the_model_is_the_measurement() -> None:
    rng = np.random.default_rng(1)
    measured, model, other = (random_positive(rng) for _ in range(3))
    carry = transport(measured, model)
    np.testing.assert_allclose(carry(model), measured, rtol=1e-8)
    np.testing.assert_allclose(carry(2.5 * other), 2.5 * carry(other), rtol=1e-8)
    np.testing.assert_allclose(transport(model, model)(other), other, rtol=1e-7)
    np.testing.assert_allclose(transport(other, other)(measured), measured, rtol=1e-7)


def test_what_is_carried_stays_positive_and_symmetric() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        carried = transport(random_positive(rng), random_positive(rng))(random_positive(rng))
        np.testing.assert_allclose(carried, carried.T, rtol=1e-9, atol=1e-12)
        assert np.linalg.eigvalsh((carried + carried.T) / 2)[0] > 0
    # In one dimension it is a rule of three.
    assert transport(np.array([[6.0]]), np.array([[2.0]]))(np.array([[5.0]]))[0, 0] == pytest.approx(15.0)


def test_eigenvalues_are_raised_to_a_floor_and_nothing_else() -> None:
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    raised = positive(turn @ np.diag([-1.0, 0.2, 5.0]) @ turn.T, 0.5)
    np.testing.assert_allclose(np.linalg.eigvalsh(raised), [0.5, 0.5, 5.0], rtol=1e-9)
    kept = random_positive(rng)
    np.testing.assert_allclose(positive(kept, 1e-6), kept, rtol=1e-12)


def population(rng: np.random.Generator) -> Population:
    return Population(np.column_stack([np.ones(2000), rng.normal(size=(2000, SIZE - 1))]))


def view_of(information: np.ndarray, bound: float) -> Viewpoint:
    whitening = inverse_root(information, 1e-3)
    return Viewpoint((0.3, 0.5, -0.4, 0.2), tuple(map(tuple, whitening.tolist())), bound, 1e6 * bound, 2.0, 4.0)


@pytest.mark.parametrize("family", RANGES)
def test_without_bounds_a_look_sees_the_information_that_is_known(family: str) -> None:
    rng = np.random.default_rng(4)
    information = random_positive(rng) / 5
    view = view_of(information, 1e6)
    found = seen(population(rng), view, FAMILIES[family], RANGES[family], information)
    np.testing.assert_allclose(found.free, np.eye(SIZE), atol=1e-8)  # in whitened coordinates
    np.testing.assert_allclose(found.bounded, found.free, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.slope(np.zeros(SIZE)), found.free, rtol=1e-9, atol=1e-12)
    tight = seen(population(rng), view_of(information, 1.0), FAMILIES[family], RANGES[family], information)
    assert np.trace(tight.bounded) < 0.8 * np.trace(tight.free)


@pytest.mark.parametrize("family", RANGES)
def test_the_slope_of_a_move_is_the_change_of_the_score(family: str) -> None:
    """E[kappa (h(there) - h(here)) z], which is what the slope times the move must be, row by row."""
    rng = np.random.default_rng(5)
    rows, information = population(rng), random_positive(rng) / 5
    view = view_of(information, 3.0)
    known, table = FAMILIES[family], view.residual_table(FAMILIES[family], RANGES[family])
    found = seen(rows, view, known, RANGES[family], information)
    for size in (0.1, 1.0):
        move = size * rng.normal(size=SIZE)
        whitened = np.linalg.solve(view.whitening_matrix.T, move)
        step = found.z @ whitened
        (mean,) = table.at(found.u, table.mean)
        change = known.moved(table, view.spread, view.clip, found.u, step) - mean
        expected = (found.z * (found.kappa * change)[:, None]).mean(axis=0)
        np.testing.assert_allclose(
            found.slope(move) @ whitened, expected, rtol=0.01, atol=1e-3 * np.abs(expected).max()
        )


@pytest.mark.parametrize("family", RANGES)
def test_what_a_look_sees_is_what_sums_over_rows_in_its_coordinates_say(family: str) -> None:
    """A slow reference: every row turned, every table read and every matrix made anew."""
    rng = np.random.default_rng(6)
    rows, information = population(rng), random_positive(rng) / 5
    view, known = view_of(information, 3.0), FAMILIES[family]
    found = seen(rows, view, known, RANGES[family], information)
    table, whitening = view.residual_table(known, RANGES[family]), np.array(view.whitening)
    u = rows.rows @ np.array(view.centre)
    weight, largest = (np.interp(u, table.start + table.step * np.arange(len(table.mean)), column)
                       for column in (table.weight, table.largest))  # fmt: skip
    z = rows.rows @ whitening.T
    modelled = np.linalg.cholesky((z * weight[:, None]).T @ z / len(z))
    z = z @ (np.linalg.cholesky(whitening @ information @ whitening.T) @ np.linalg.inv(modelled)).T
    length = np.linalg.norm(z, axis=1)
    kappa = np.minimum(1.0, view.score_bound / (largest * length))
    np.testing.assert_allclose(found.z, z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.kappa, kappa, rtol=1e-9)
    np.testing.assert_allclose(found.free, (z * weight[:, None]).T @ z / len(z), rtol=1e-9, atol=1e-9)
    bounded = np.minimum(kappa, view.information_bound / (weight * length**2))
    np.testing.assert_allclose(found.bounded, (z * (bounded * weight)[:, None]).T @ z / len(z), rtol=1e-9, atol=1e-9)
    (mean,) = table.at(u, table.mean)
    for size in (1e-3, 1.0):  # short moves see the slope at their start
        move = size * rng.normal(size=SIZE)
        step = z @ np.linalg.solve(whitening.T, move)
        far = np.abs(step) > 1e-3
        slope = weight.copy()
        slope[far] = (known.moved(table, view.spread, view.clip, u, step) - mean)[far] / step[far]
        expected = (z * (kappa * slope)[:, None]).T @ z / len(z)
        np.testing.assert_allclose(found.slope(move), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_pseudo_rows_have_the_mean_and_covariance_that_are_asked_for(intercept: bool, offset: bool) -> None:
    rng = np.random.default_rng(7)
    mean, covariance = rng.normal(size=SIZE), random_positive(rng)
    made = of_moments(mean, covariance, intercept, offset)
    columns = made.rows[:, intercept:]
    assert not intercept or (made.rows[:, 0] == 1).all()
    if offset:
        assert made.known is not None
        columns = np.column_stack([columns, made.known])
    np.testing.assert_allclose(columns.mean(axis=0), mean, atol=1e-9)
    np.testing.assert_allclose(np.cov(columns.T, bias=True), covariance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_eigenvalues_are_what_decides_whether_a_floor_is_needed(size: int) -> None:
    """The quick answers of ``positive`` are those of the eigenvalues, near a multiple of the identity and far."""
    rng = np.random.default_rng(size)
    for spread in (1e-3, 0.1, 1.0, 3.0):
        for floor in (1e-9, 0.3, 0.9, 1.5):
            turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
            values = np.exp(spread * rng.normal(size=size))
            matrix = (turn * values) @ turn.T
            slow = (turn * np.maximum(values, floor)) @ turn.T
            np.testing.assert_allclose(positive(matrix, floor), slow, rtol=1e-9, atol=1e-9 * values.max())


def test_a_matrix_is_put_together_from_its_upper_triangle() -> None:
    for size in (1, 2, 5):
        values = np.arange(1.0, size * (size + 1) // 2 + 1)
        slow = np.zeros((size, size))
        slow[np.triu_indices(size)] = values
        np.testing.assert_array_equal(symmetric(values, size), slow + np.triu(slow, 1).T)
