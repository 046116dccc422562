"""As the noise vanishes the posterior of a release becomes that of the rows (see benchmarks/no_noise_limit.py)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.paper.assemble import assemble, stacked, starts
from dpglm.paper.modes import find_modes

ROWS = 20_000
NORMS = (1.0, 3.0, 6.0)  # sd(u) = 1/3, 1, 2
REQUIRED = {1.0: (0.2, 0.05), 3.0: (0.2, 0.05), 6.0: (0.5, 0.15)}  # mean in standard deviations, share of the sd


@lru_cache
def rows_of(norm: float) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(int(norm))
    covariance = (np.eye(3) + np.ones((3, 3))) / 36  # bounds more than four standard deviations away
    x = np.clip(generator.multivariate_normal(np.zeros(3), covariance, size=ROWS), -1, 1)
    u = 0.3 + x.sum(axis=1) * norm / np.sqrt(3)
    return x, (generator.uniform(size=ROWS) < 1 / (1 + np.exp(-u))).astype(int)


def release_of(norm: float) -> dpglm.Release:
    import pandas as pd

    x, y = rows_of(norm)
    bounds = {"type": "numeric", "lower": -1, "upper": 1}
    outcome = {"type": "binary", "levels": [0, 1], "fill": 0}
    schema = {"dataset": {"name": "t", "rows": ROWS}, "columns": {"a": bounds, "b": bounds, "c": bounds, "y": outcome}}
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})
    request = Request("y ~ a + b + c", schema, "logistic", 1000.0, 1e-6, method="moments")
    return build_release(frame, request, FixedNoise(0))


@lru_cache
def from_releases(moments: str) -> tuple[np.ndarray, np.ndarray]:
    """Modes and standard deviations for the three norms, in one batch: with 20,000 rows nearly normal."""
    options = {"link": None, "dispersion": None, "prior": None, "noise_aware": True}
    each = [assemble([release_of(norm)], moments=moments, **options) for norm in NORMS]  # type: ignore[arg-type]
    shape, data = each[0][0], [one for _, one in each]
    laplace = find_modes(shape, stacked(data), starts(shape, data))
    assert laplace.converged.all()
    return laplace.mode[:, :4], np.sqrt(np.diagonal(laplace.covariance, axis1=1, axis2=2))[:, :4]


@lru_cache
def from_rows(norm: float) -> tuple[np.ndarray, np.ndarray]:
    """The same of a logistic regression on the rows with the default prior, by Newton's method."""
    rows, y = rows_of(norm)
    x = np.column_stack([np.ones(ROWS), rows])
    theta, prior = np.zeros(4), np.diag(np.array([5.0, 2.5, 2.5, 2.5]) ** -2)
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ theta))
        hessian = x.T @ (x * (p * (1 - p))[:, None]) + prior
        theta = theta + np.linalg.solve(hessian, x.T @ (y - p) - prior @ theta)
    return theta, np.sqrt(np.diag(np.linalg.inv(hessian)))


@pytest.mark.parametrize("norm", NORMS)
def test_the_posterior_is_that_of_the_rows(norm: float) -> None:
    mean, sd = from_rows(norm)
    ours = [array[NORMS.index(norm)] for array in from_releases("exact")]
    mean_tolerance, sd_tolerance = REQUIRED[norm]
    np.testing.assert_allclose((ours[0] - mean) / sd, 0, atol=mean_tolerance)
    np.testing.assert_allclose(ours[1] / sd, 1, atol=sd_tolerance)


@pytest.mark.parametrize("norm", NORMS[1:])
def test_taylor_moments_fail_the_same_check(norm: float) -> None:
    mean, sd = from_rows(norm)
    taylor = from_releases("taylor")[0][NORMS.index(norm)]
    assert np.abs((taylor - mean) / sd).max() > 3 * REQUIRED[norm][0]
