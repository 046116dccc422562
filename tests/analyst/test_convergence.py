"""Effective sizes and R-hat of whole batches against ArviZ, which loops."""

from __future__ import annotations

import arviz as az
import numpy as np
import pytest

from dpglm.analyst import convergence as module
from dpglm.analyst.convergence import convergence


def autoregressive(correlation: float, chains: int, draws: int, columns: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(chains, draws, columns))
    for step in range(1, draws):
        values[:, step] = correlation * values[:, step - 1] + np.sqrt(1 - correlation**2) * values[:, step]
    return values


def by_arviz(draws: np.ndarray) -> tuple[np.ndarray, ...]:
    dataset = az.convert_to_dataset({"x": draws})
    parts = az.ess(dataset, method="bulk"), az.ess(dataset, method="tail"), az.rhat(dataset)
    return tuple(part["x"].values for part in parts)


@pytest.mark.parametrize("correlation", [-0.4, 0.0, 0.5, 0.95])
@pytest.mark.parametrize(("chains", "draws"), [(4, 1000), (2, 401), (4, 200)])
def test_agrees_with_arviz(correlation, chains, draws):
    """R-hat to rounding. Effective sizes in the median: the two end the sum over lags by slightly other rules."""
    values = np.exp(autoregressive(correlation, chains, draws, 30, 1))  # skewed: ranks matter
    values[0, :, 1] += 0.3  # one chain elsewhere
    bulk, tail, r_hat = convergence(values)
    expected = by_arviz(values)
    np.testing.assert_allclose(r_hat, expected[2], rtol=1e-12)
    for own, other in ((bulk, expected[0]), (tail, expected[1])):
        assert np.median(own / other) == pytest.approx(1, abs=0.02)
        np.testing.assert_allclose(own, other, rtol=0.25)


def test_a_batch_is_its_columns(monkeypatch):
    values = autoregressive(0.3, 4, 200, 7, 2)
    whole = convergence(values)
    monkeypatch.setattr(module, "_COLUMNS_AT_ONCE", 2)
    for one, other in zip(whole, convergence(values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_chains_in_different_places_are_seen():
    values = autoregressive(0.0, 4, 500, 2, 3)
    values[0, :, 1] += 1.0
    r_hat = convergence(values)[2]
    assert r_hat[0] < 1.01 < 1.05 < r_hat[1]


def test_a_drift_within_chains_is_seen():
    values = autoregressive(0.0, 4, 500, 1, 4) + np.linspace(-1, 1, 500)[None, :, None]
    assert convergence(values)[2][0] > 1.05


def test_edges():
    one_chain = autoregressive(0.0, 1, 100, 2, 5)
    bulk, _, r_hat = convergence(one_chain)
    assert np.isnan(r_hat).all()
    assert (bulk > 20).all()
    still = np.zeros((4, 100, 1))
    assert convergence(still)[0][0] == 400
