"""What looks say together, where each is shifted by its bounds: against joint normals that are conditioned by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dpglm.looks.error import Bounding, Taken
from dpglm.looks.misfit import Pooled, Seen, pooled

ROWS, SIZE = 10_000, 3
TAKEN = np.array([[0.30, 0.12, 0.02], [0.12, 0.10, 0.02], [0.02, 0.02, 0.01]])
CLIPPED = np.array([[0.02, 0.01, 0.01], [0.01, 0.02, 0.01], [0.01, 0.01, 0.01]])


def spread(rng: np.random.Generator, scale: float) -> np.ndarray:
    root = rng.normal(size=(SIZE, 2 * SIZE))
    return np.asarray(scale * root @ root.T)


def problem(rng: np.random.Generator, clipped: bool = True) -> tuple[Taken, np.ndarray, list[np.ndarray], np.ndarray]:
    """What is taken, the sampling covariance, each look's noise, and the sampling variance of what each sees."""
    sampling = spread(rng, 1 / ROWS)
    noises = [spread(rng, scale / ROWS) for scale in (0.5, 1.0, 3.0)]
    uneven = np.array([0.5, 1.5, 1.0])
    taken = Taken(TAKEN, uneven, CLIPPED if clipped else np.zeros_like(CLIPPED))
    return taken, sampling, noises, rng.uniform(0.8, 1.3, (3, SIZE))


def shifts(taken: Taken, sampling: np.ndarray, efficiency: np.ndarray) -> np.ndarray:
    """Covariance of all shifts for a misfit of one, entry by entry."""
    whole = np.zeros((3 * SIZE, 3 * SIZE))
    for j in range(3):
        for k in range(3):
            for a in range(SIZE):
                for b in range(SIZE):
                    both = taken.by_length[j, k] * np.sqrt(taken.uneven[a] * taken.uneven[b]) + taken.by_clip[j, k]
                    scale = np.sqrt(efficiency[j, a] * efficiency[k, b])
                    whole[j * SIZE + a, k * SIZE + b] = ROWS * both * scale * sampling[a, b]
    return whole


def seen_of(noises: list[np.ndarray], estimates: np.ndarray, efficiency: np.ndarray) -> list[Seen]:
    precisions = [np.linalg.inv(noise) for noise in noises]
    return [
        Seen(precision, precision @ estimate, Bounding(1.0, 4.0), own)
        for precision, estimate, own in zip(precisions, estimates, efficiency, strict=True)
    ]


def block(noises: list[np.ndarray]) -> np.ndarray:
    whole = np.zeros((3 * SIZE, 3 * SIZE))
    for k, noise in enumerate(noises):
        whole[k * SIZE : (k + 1) * SIZE, k * SIZE : (k + 1) * SIZE] = noise
    return whole


def together(
    looks: list[Seen], taken: Taken, sampling: np.ndarray, typical: float = 0.02, vague: float = 1.0
) -> Pooled:
    behind = np.eye(SIZE) / vague**2
    return pooled(looks, taken, sampling, ROWS, typical, behind, np.zeros(SIZE))


@pytest.mark.parametrize("clipped", [True, False])
def test_looks_together_are_a_joint_normal(clipped: bool) -> None:
    """t, the shifts and the looks are jointly normal: t given the looks, by generalised least squares, dense."""
    rng = np.random.default_rng(3)
    taken, sampling, noises, efficiency = problem(rng, clipped)
    estimates = rng.normal(0, 0.02, (3, SIZE))
    found = together(seen_of(noises, estimates, efficiency), taken, sampling)
    shifted = found.misfit**2 * shifts(taken, sampling, efficiency)
    inverse = np.linalg.inv(block(noises) + shifted)
    one = np.vstack([np.eye(SIZE)] * 3)
    covariance = np.linalg.inv(one.T @ inverse @ one)
    weights = covariance @ one.T @ inverse
    precision, shift = found.with_bounding
    np.testing.assert_allclose(np.linalg.inv(precision), covariance, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.solve(precision, shift), weights @ estimates.ravel(), rtol=1e-5)
    # What is shift, and what is noise.
    np.testing.assert_allclose(found.bounding, weights @ shifted @ weights.T, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(np.linalg.inv(found.precision), weights @ block(noises) @ weights.T, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.solve(found.precision, found.shift), weights @ estimates.ravel(), rtol=1e-5)


def test_the_misfit_is_weighed_by_the_density_of_the_looks() -> None:
    rng = np.random.default_rng(4)
    taken, sampling, noises, efficiency = problem(rng)
    whole, one = shifts(taken, sampling, efficiency), np.vstack([np.eye(SIZE)] * 3)
    deviations = np.linspace(-2.5, 2.5, 21)
    for size in (0.005, 0.05):
        estimates = rng.normal(0, size, (3, SIZE))
        found = together(seen_of(noises, estimates, efficiency), taken, sampling)
        rho = 0.02 * np.exp(deviations)
        logs = [
            multivariate_normal.logpdf(estimates.ravel(), cov=block(noises) + each**2 * whole + one @ one.T)
            for each in rho
        ]
        weight = np.exp(np.array(logs) - max(logs) - 0.5 * deviations**2)
        assert found.misfit == pytest.approx(np.sqrt(weight @ rho**2 / weight.sum()), rel=1e-5)


def test_looks_that_disagree_have_a_large_misfit_and_looks_that_agree_a_small_one() -> None:
    """Of 40 tables each: shifts drawn with rho = 0.005 and 0.1. Either way the pooled estimate errs as it says."""
    rng = np.random.default_rng(5)
    typical = []
    for rho in (0.005, 0.1):
        misfits, squared = [], []
        for _ in range(40):
            taken, sampling, noises, efficiency = problem(rng)
            root = np.linalg.cholesky(block(noises) + rho**2 * shifts(taken, sampling, efficiency))
            estimates = (root @ rng.normal(size=3 * SIZE)).reshape(3, SIZE)
            found = together(seen_of(noises, estimates, efficiency), taken, sampling)
            precision, shift = found.with_bounding
            mean = np.linalg.solve(precision, shift)
            misfits.append(found.misfit)
            squared.append(mean @ precision @ mean / SIZE)
        typical.append(np.median(misfits))
        assert 0.4 < np.mean(squared) < 1.6
    assert typical[0] < 0.03 < 0.04 < typical[1]


def test_bounds_that_take_nothing_leave_the_sum_of_what_looks_know() -> None:
    rng = np.random.default_rng(6)
    _, sampling, noises, efficiency = problem(rng)
    nothing = Taken(np.zeros((3, 3)), np.ones(SIZE), np.zeros((3, 3)))
    looks = seen_of(noises, rng.normal(0, 0.02, (3, SIZE)), efficiency)
    found = together(looks, nothing, sampling)
    np.testing.assert_allclose(found.precision, sum(look.precision for look in looks), rtol=1e-4)
    np.testing.assert_allclose(found.shift, sum(look.shift for look in looks), rtol=1e-4)
    assert (np.diag(found.bounding) < 1e-4 * np.diag(sampling)).all()


def test_a_direction_that_no_look_sees_stays_unknown() -> None:
    rng = np.random.default_rng(7)
    taken, sampling, noises, efficiency = problem(rng)
    looks = seen_of(noises, rng.normal(0, 0.02, (3, SIZE)), efficiency)
    blind = np.diag([1.0, 1e-9, 1.0])
    looks = [look._replace(precision=blind @ look.precision @ blind, shift=blind @ look.shift) for look in looks]
    precision, shift = together(looks, taken, sampling).with_bounding
    assert np.isfinite(precision).all()
    assert np.isfinite(shift).all()
    assert precision[1, 1] < 1e-6 * precision[0, 0]
    assert (np.linalg.eigvalsh(precision) > -1e-6 * precision[0, 0]).all()
