"""Tails from noisy counts: a mixture that is there is found, noise leaves what is typical, columns are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.looks.profile import FAR, LENGTHS
from dpglm.looks.tails import Mixture, assumed_tails, divided, measured

CORE = np.abs(np.random.default_rng(1).normal(size=2_048)) + 0.2


def cells(reaches: np.ndarray, rungs: np.ndarray) -> np.ndarray:
    """Shares of rows between rungs and beyond the last, row by row."""
    found = np.zeros(len(rungs))
    for reach in reaches:
        beyond = int((rungs < reach).sum())
        if beyond:
            found[beyond - 1] += 1
    return found / len(reaches)


def variance(mixture: Mixture) -> float:
    return float(mixture.shares @ mixture.scales**2)


@pytest.mark.parametrize(("share", "farther"), [(0.0, 1.0), (0.02, 5.0), (0.2, 2.2)])
def test_a_mixture_is_found(share: float, farther: float) -> None:
    rng = np.random.default_rng(2)
    times = np.where(rng.random(40_000) < share, farther, 1.0)
    found = measured(CORE, LENGTHS, cells(rng.choice(CORE, 40_000) * times, LENGTHS), 1e-4)
    assert found.shares.sum() == pytest.approx(1)
    assert variance(found) == pytest.approx(1 + share * (farther**2 - 1), rel=0.15)


def test_counts_that_drown_in_noise_leave_what_is_typical() -> None:
    typical = assumed_tails().lengths
    found = measured(CORE, LENGTHS, np.full(len(LENGTHS), 0.3), 100.0)
    assert variance(found) == pytest.approx(variance(typical), rel=1e-2)
    assert variance(measured(CORE, LENGTHS, np.full(len(LENGTHS), 0.3), 1e-3)) > 2 * variance(typical)


def test_the_column_that_far_rows_reach_in_is_found() -> None:
    mixture = Mixture(np.array([1.0, 4.0]), np.array([0.95, 0.05]))
    reaches = np.concatenate([CORE, 4 * CORE])
    weights = np.repeat([0.95 / len(CORE), 0.05 / len(CORE)], len(CORE))
    low, high = weights[(reaches > FAR[0]) & (reaches <= FAR[1])].sum(), weights[reaches > FAR[1]].sum()
    seen = np.array([[0, low, 0, 0], [0, high, 0, 0]])
    found = divided(CORE, mixture, FAR, seen, 1e-5)
    assert found[1] > 0.95
    assert found.sum() == pytest.approx(1)
    drowned = divided(CORE, mixture, FAR, seen, 10.0)
    np.testing.assert_allclose(drowned, 0.25, atol=0.01)
