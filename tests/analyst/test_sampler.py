"""Modes against SciPy and a known quadratic, draws against the Laplace approximation, batches against single fits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from dpglm.analyst import sampler
from dpglm.analyst.assemble import assemble, stacked, starts
from dpglm.analyst.model import TableData
from dpglm.analyst.sampler import curvature, evaluate, find_modes, sample_chains, use_compilation_cache
from dpglm.custodian.build import build_release
from dpglm.custodian.noise import FixedNoise


@pytest.fixture(scope="module", autouse=True)
def _no_cache_on_disk() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPGLM_CACHE", "")
        yield


def release_of(seed: int, rows: int = 20_000, epsilon: float = 100.0) -> Any:
    generator = np.random.default_rng(seed)
    a, b = generator.normal(size=(2, rows))
    y = np.where(generator.uniform(size=rows) < 1 / (1 + np.exp(-(0.3 + 0.5 * a - 0.5 * b))), "yes", "no")
    bounds = {"type": "numeric", "lower": -4, "upper": 4}
    outcome = {"type": "binary", "levels": ["no", "yes"], "fill": "no"}
    schema = {
        "dataset": {"name": f"table {seed}", "rows": rows, "unit": "one person"},
        "columns": {"a": bounds, "b": bounds, "y": outcome},
    }
    frame = pd.DataFrame({"a": a, "b": b, "y": y})
    return build_release(
        frame, "y ~ a + b", schema, "logistic", epsilon, 1e-6, None, None, "equal", "full", FixedNoise(0)
    )


@pytest.fixture(scope="module")
def several() -> Any:
    """(shape, data of each, starts) of three releases, the first large and nearly without noise."""
    releases = [release_of(1), release_of(2, 3000, 5.0), release_of(3, 1000, 2.0)]
    options: dict[str, Any] = {
        "link": None, "dispersion": None, "prior": None, "moments": "exact", "noise_aware": True,
    }  # fmt: skip
    pairs = [assemble([release], **options) for release in releases]
    shape = pairs[0][0]
    assert all(other == shape for other, _ in pairs)
    data = [arrays for _, arrays in pairs]
    return shape, data, starts(shape, data)


@pytest.fixture(scope="module")
def first(several: Any) -> Any:
    shape, data, start = several
    alone = stacked(data[:1])
    return shape, alone, find_modes(shape, alone, start[:1])


@pytest.fixture(scope="module")
def chains(first: Any) -> Any:
    shape, data, laplace = first
    return sample_chains(shape, data, laplace, chains=4, warmup=300, draws=500, seed=7)


def quadratic_data(posteriors: int) -> Any:
    fields = dict.fromkeys(TableData._fields, jnp.zeros(posteriors))
    return (TableData(**{**fields, "observed": (), "num_rows": jnp.full(posteriors, 100.0)}),)  # type: ignore[arg-type]


def test_mode_of_a_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    root = generator.normal(size=(6, 6))
    precision = root @ root.T + np.diag([1e4, 1, 1, 1, 1e-2, 1])
    mode = generator.normal(size=6) * 5

    def quadratic(_: Any, data: Any, free: jax.Array) -> jax.Array:
        away = free - (mode + 0 * data[0].num_rows)
        return -0.5 * away @ precision @ away

    monkeypatch.setattr(sampler, "log_density", quadratic)
    shape: Any = "a quadratic"
    found = find_modes(shape, quadratic_data(2), np.stack([np.zeros(6), mode + 30]))
    np.testing.assert_allclose(found.mode, [mode, mode], atol=1e-4)
    np.testing.assert_allclose(found.covariance[0] @ precision, np.eye(6), atol=1e-4)
    assert found.converged.all()
    np.testing.assert_allclose(curvature(shape, quadratic_data(1), mode[None])[0], precision, rtol=1e-5, atol=1e-5)


def test_mode_behind_a_bend_and_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rosenbrock's valley (directions of negative curvature on the way), not a number for x > 3."""

    def valley(_: Any, data: Any, free: jax.Array) -> jax.Array:
        x, y = free + 0 * data[0].num_rows
        return jnp.where(x > 3, jnp.nan, -((1 - x) ** 2) - 20 * (y - x**2) ** 2)

    monkeypatch.setattr(sampler, "log_density", valley)
    shape: Any = "a valley"
    found = find_modes(shape, quadratic_data(1), np.array([[-1.5, 2.5]]))
    np.testing.assert_allclose(found.mode, [[1.0, 1.0]], atol=1e-3)
    assert found.converged.all()
    values, _ = evaluate(shape, quadratic_data(1), np.array([[[4.0, 0.0], [1.0, 1.0]]]))
    assert values.tolist() == [[-np.inf, 0.0]]
    stuck = find_modes(shape, quadratic_data(1), np.array([[4.0, 0.0]]))
    assert not stuck.converged.any()
    assert np.isfinite(stuck.factor).all()


def test_mode_of_a_release(several: Any, first: Any) -> None:
    shape, data, laplace = first
    assert laplace.converged.all()
    _, gradient = evaluate(shape, data, laplace.mode[:, None])
    # in standard deviations: a step along the gradient would gain nothing
    assert np.abs(gradient[0, 0] @ laplace.factor[0]).max() < 1e-3

    def minus(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = evaluate(shape, data, (laplace.mode[0] + laplace.factor[0] @ point)[None, None])
        return -float(value[0, 0]), -(slope[0, 0] @ laplace.factor[0])

    start = np.linalg.solve(laplace.factor[0], several[2][0] - laplace.mode[0])
    theirs = optimize.minimize(minus, start, jac=True, method="BFGS", options={"gtol": 1e-4})
    np.testing.assert_allclose(theirs.x, 0, atol=5e-3)


def test_draws_agree_with_the_laplace_approximation(first: Any, chains: Any) -> None:
    """20,000 rows, hardly any noise: nearly Gaussian. 2,000 draws: bands of 6 Monte Carlo errors of a mean."""
    _, _, laplace = first
    draws = chains.draws[0, :, :, :3].reshape(-1, 3)
    sd = np.sqrt(np.diag(laplace.covariance[0]))[:3]
    np.testing.assert_allclose((draws.mean(axis=0) - laplace.mode[0, :3]) / sd, 0, atol=0.2)
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1, atol=0.1)
    correlation = np.corrcoef(draws.T)
    theirs = laplace.covariance[0][:3, :3] / np.outer(sd, sd)
    np.testing.assert_allclose(correlation, theirs, atol=0.12)
    assert chains.divergences.tolist() == [0]
    assert 0.6 < chains.acceptance[0] < 1.0


def test_seeds_and_chains(first: Any, chains: Any) -> None:
    shape, data, laplace = first
    assert chains.draws.shape == (1, 4, 500, shape.size)
    again = sample_chains(shape, data, laplace, chains=4, warmup=300, draws=500, seed=7)
    np.testing.assert_array_equal(again.draws, chains.draws)
    other = sample_chains(shape, data, laplace, chains=4, warmup=300, draws=60, seed=8)
    assert other.draws.shape[2] == 60
    assert not np.any(other.draws == chains.draws[:, :, :60])
    for one in range(4):
        for two in range(one):
            assert not np.any(chains.draws[0, one] == chains.draws[0, two])


def test_progress_and_a_warmup_that_is_not_a_multiple(first: Any) -> None:
    shape, data, laplace = first
    seen: list[tuple[int, int]] = []
    few = sample_chains(
        shape, data, laplace, chains=4, warmup=260, draws=20, seed=1, progress=lambda *each: seen.append(each)
    )
    assert few.draws.shape[2] == 20
    assert seen[-1] == (320, 320)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_batch_of_posteriors_equals_one_by_one(several: Any, first: Any) -> None:
    shape, data, start = several
    together = find_modes(shape, stacked(data), start)
    assert together.converged.all()
    for number in range(3):
        alone = first[2] if number == 0 else find_modes(shape, stacked(data[number : number + 1]), start[number, None])
        np.testing.assert_allclose(together.mode[number], alone.mode[0], atol=1e-6)
        np.testing.assert_allclose(together.covariance[number], alone.covariance[0], rtol=1e-3, atol=1e-7)


def test_compilation_cache_goes_where_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    changes: dict[str, Any] = {}
    monkeypatch.setattr(sampler.jax.config, "update", lambda name, value: changes.__setitem__(name, value))
    monkeypatch.setenv("DPGLM_CACHE", "")
    use_compilation_cache()
    assert changes == {}
    monkeypatch.setenv("DPGLM_CACHE", str(tmp_path))
    use_compilation_cache()
    assert changes.get("jax_compilation_cache_dir", str(tmp_path)) == str(tmp_path)
