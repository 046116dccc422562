"""Modes against SciPy and a known quadratic, draws against the Laplace approximation, batches against single fits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from dpglm.analyst.convergence import convergence
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.paper import batches, modes, posteriors, sampler
from dpglm.paper.assemble import assemble, stacked, starts
from dpglm.paper.batches import evaluate
from dpglm.paper.model import TableData
from dpglm.paper.modes import Laplace, curvature, find_modes
from dpglm.paper.nuts import Reference
from dpglm.paper.sampler import LARGEST_STEP, WARMUP, continue_chains, start_chains


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
    request = Request("y ~ a + b", schema, "logistic", epsilon, 1e-6, method="moments", allocation="equal")
    return build_release(frame, request, FixedNoise(0))


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
    return continue_chains(start_chains(shape, data, laplace, chains=4, seed=7), 500)[1]


class Density:
    """A model that is nothing but its log density of (data, free)."""

    names: tuple[str, ...] = ()

    def __init__(self, log_density: Any) -> None:
        self.log_density = log_density


def quadratic_data(posteriors: int) -> Any:
    fields = dict.fromkeys(TableData._fields, jnp.zeros(posteriors))
    return (TableData(**{**fields, "observed": (), "num_rows": jnp.full(posteriors, 100.0)}),)  # type: ignore[arg-type]


def test_mode_of_a_quadratic() -> None:
    generator = np.random.default_rng(0)
    root = generator.normal(size=(6, 6))
    precision = root @ root.T + np.diag([1e4, 1, 1, 1, 1e-2, 1])
    mode = generator.normal(size=6) * 5

    def quadratic(data: Any, free: jax.Array) -> jax.Array:
        away = free - (mode + 0 * data[0].num_rows)
        return -0.5 * away @ precision @ away

    shape = Density(quadratic)
    found = find_modes(shape, quadratic_data(2), np.stack([np.zeros(6), mode + 30]))
    np.testing.assert_allclose(found.mode, [mode, mode], atol=1e-4)
    np.testing.assert_allclose(found.covariance[0] @ precision, np.eye(6), atol=1e-4)
    assert found.converged.all()
    found_precision = curvature(shape, quadratic_data(1), mode[None], found.steps[:1])[0]
    np.testing.assert_allclose(found_precision, precision, rtol=1e-5, atol=1e-5)


def test_mode_behind_a_bend_and_next_to_nothing() -> None:
    """Rosenbrock's valley (directions of negative curvature on the way), not a number for x > 3."""

    def valley(data: Any, free: jax.Array) -> jax.Array:
        x, y = free + 0 * data[0].num_rows
        return jnp.where(x > 3, jnp.nan, -((1 - x) ** 2) - 20 * (y - x**2) ** 2)

    shape = Density(valley)
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
    again = continue_chains(start_chains(shape, data, laplace, chains=4, seed=7), 60)[1]
    np.testing.assert_array_equal(again.draws, chains.draws[:, :, :60])
    other = continue_chains(start_chains(shape, data, laplace, chains=4, seed=8), 60)[1]
    assert other.draws.shape[2] == 60
    assert not np.any(other.draws == chains.draws[:, :, :60])
    for one in range(4):
        for two in range(one):
            assert not np.any(chains.draws[0, one] == chains.draws[0, two])


def test_chains_go_on_where_they_stopped(first: Any, chains: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 draws and 400 more are the 500 draws of one call, and no warm-up is run again."""
    shape, data, laplace = first
    running = start_chains(shape, data, laplace, chains=4, seed=7)
    made: list[int] = []
    advance = sampler._advance
    monkeypatch.setattr(sampler, "_advance", lambda run, wanted: (made.append(wanted), advance(run, wanted))[1])
    running, early = continue_chains(running, 100)
    later_running, late = continue_chains(running, 400)
    assert sum(made) == 500
    together = early.joined(late)
    np.testing.assert_array_equal(together.draws, chains.draws)
    np.testing.assert_allclose(together.acceptance, chains.acceptance)
    np.testing.assert_allclose(together.steps, chains.steps)
    assert together.divergences.tolist() == chains.divergences.tolist()
    np.testing.assert_array_equal(later_running.step_size, running.step_size)
    np.testing.assert_array_equal(later_running.reference.variance, running.reference.variance)


def test_effective_draws_are_counted_in_the_users_units() -> None:
    """An intercept that is a sum of two coefficients mixes as slowly as the slower of them."""
    noise = np.random.default_rng(8).normal(size=(2, 4, 300, 2))
    slow = np.cumsum(noise, axis=2) * [0.0, 0.3] + noise
    units = np.array([[[1.0, -3.0], [0.0, 1.0]], np.eye(2)])
    found = np.stack(posteriors._convergence_as_shown(slow, units))
    for number in range(2):
        np.testing.assert_allclose(found[:, number], convergence(slow[number] @ units[number].T), rtol=1e-12)
    assert found[0, 0, 0] < 100 < 1000 < found[0, 1, 0]


def test_a_fit_extends_its_chains_without_a_second_warm_up(
    first: Any, chains: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, data, laplace = first
    starts_made: list[int] = []
    seen: list[tuple[int, int]] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        starts_made.append(1)
        return start_chains(*arguments, **options)

    monkeypatch.setattr(posteriors, "_FIRST_DRAWS", 100)
    monkeypatch.setattr(posteriors, "start_chains", counted)
    units = np.eye(len(shape.names))[None]
    draws, _, (diagnostics,) = posteriors._nuts_draws(
        shape, data, laplace, units, None, 4, 7, lambda done, total: seen.append((done, total))
    )
    assert len(starts_made) == 1
    assert draws.shape[2] >= 500
    np.testing.assert_array_equal(draws[:, :, :500], chains.draws)
    assert min(diagnostics.ess_bulk.min(), diagnostics.ess_tail.min()) >= 1000
    assert (350, 350) in seen
    assert seen[-1][0] == seen[-1][1]


def test_progress(first: Any) -> None:
    shape, data, laplace = first
    seen: list[tuple[int, int]] = []
    running = start_chains(shape, data, laplace, chains=4, seed=1, progress=lambda *each: seen.append(each))
    assert seen[-1] == (WARMUP, WARMUP)
    _, few = continue_chains(running, 30, lambda *each: seen.append(each))
    assert few.draws.shape[2] == 30
    assert seen[-2:] == [(25, 30), (30, 30)]


def unwhitened(size: int) -> Laplace:
    """No approximation: the sampler works in the density's own coordinates."""
    return Laplace(np.zeros((1, size)), np.eye(size)[None], np.ones(1, dtype=bool), np.full((1, size), 1e-3))


def test_draws_of_a_density_that_is_not_gaussian() -> None:
    """x logistic, y | x ~ N(log(1 + e^x), 1), z ~ N(0, 5^2): moments within 5 Monte Carlo errors, as ESS has them.

    log(1 + e^x) is exponential with mean 1.
    """

    def bent(data: Any, free: jax.Array) -> jax.Array:
        x, y, z = free + 0 * data[0].num_rows
        return jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x) - 0.5 * (y - jax.nn.softplus(x)) ** 2 - 0.5 * (z / 5) ** 2

    shape = Density(bent)
    running = start_chains(shape, quadratic_data(1), unwhitened(3), chains=4, seed=3)
    sampled = continue_chains(running, 4000)[1]
    assert sampled.divergences[0] < 0.001 * 16_000
    assert 0.5 < sampled.acceptance[0] < 0.95  # steps are halved, not tuned
    assert running.reference.variance[0, 2] / running.reference.variance[0, 0] > 3  # learned: 25 against 3.3
    x, y, z = np.moveaxis(sampled.draws[0], 2, 0)
    # functions of the draws with their expectations
    variance = np.pi**2 / 3
    checks = {
        "x": (x, 0.0),
        "x^2": (x**2, variance),
        "tail of x": (1.0 * (x > 2), 1 / (1 + np.exp(2.0))),
        "y": (y, 1.0),
        "y^2": (y**2, 3.0),
        "squared residual of y": ((y - np.logaddexp(0, x)) ** 2, 1.0),
        "z^2": (z**2, 25.0),
        "xz": (x * z, 0.0),
    }
    for name, (values, expected) in checks.items():
        bulk, _, r_hat = convergence(values[..., None])
        error = values.std() / np.sqrt(bulk[0])
        assert r_hat[0] < 1.01, name
        assert abs(values.mean() - expected) < 5 * error, name
        # and the test can see a wrong answer of a tenth of a standard deviation
        assert error < 0.02 * values.std(), name


def test_motion_under_the_reference_is_exact() -> None:
    """A rotation keeps the energy, adds up, goes back, and has the right derivative at the start."""
    generator = np.random.default_rng(0)
    position, momentum, mean = generator.normal(size=(3, 4))
    reference = Reference(jnp.asarray(mean), jnp.asarray([0.1, 1.0, 3.0, 40.0]))

    def energy(position: Any, momentum: Any) -> float:
        return float(np.sum((position - mean) ** 2 / reference.variance + momentum**2 * reference.variance))

    far = reference.rotated(position, momentum, 2.0)
    assert energy(*far) == pytest.approx(energy(position, momentum), rel=1e-12)
    np.testing.assert_allclose(reference.rotated(*reference.rotated(position, momentum, 0.7), 1.3), far, rtol=1e-12)
    np.testing.assert_allclose(reference.rotated(*far, -2.0), (position, momentum), rtol=1e-12)
    moved = np.asarray(reference.rotated(position, momentum, 1e-7)) - (position, momentum)
    expected = reference.variance * momentum, -np.asarray(reference.pull(position))
    np.testing.assert_allclose(moved / 1e-7, expected, rtol=1e-5, atol=1e-6)


def test_a_normal_is_crossed_in_three_steps() -> None:
    """Once the reference is learned, nearly every step is accepted; draws lie opposite each other."""

    def normal(data: Any, free: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(((free - 3) / jnp.arange(1, 21)) ** 2) + 0 * data[0].num_rows

    running = start_chains(Density(normal), quadratic_data(1), unwhitened(20), chains=4, seed=0)
    sampled = continue_chains(running, 1000)[1]
    assert running.step_size[0] == LARGEST_STEP
    assert sampled.steps[0] == pytest.approx(3, abs=0.05)
    assert sampled.acceptance[0] > 0.9
    along = sampled.draws[0] - sampled.draws[0].mean(axis=(0, 1))
    assert np.sum(along[:, 1:] * along[:, :-1]) / np.sum(along**2) < -0.2


def test_small_steps_are_accepted_and_large_ones_are_not() -> None:
    """A hundredth of the step: every leaf is accepted and trees are as deep as they may be. A density with walls."""

    def walls(data: Any, free: jax.Array) -> jax.Array:
        return -jnp.sum(free**8) + 0 * data[0].num_rows

    shape = Density(walls)
    running = start_chains(shape, quadratic_data(1), unwhitened(2), chains=2, seed=0)
    small = replace(running, step_size=running.step_size / 100)
    trace = continue_chains(small, 20)[1]
    assert trace.acceptance[0] > 0.999
    assert 100 < trace.steps[0] <= 2**8 - 1
    # a step of a quarter turn under a reference much wider than the density
    wide = Reference(running.reference.mean, np.full((1, 2), 1e6))
    trace = continue_chains(replace(running, reference=wide, step_size=np.array([np.pi / 2])), 20)[1]
    assert trace.divergences[0] == 40
    np.testing.assert_array_equal(np.diff(trace.draws, axis=2), 0)  # never moved


def test_a_batch_of_posteriors_equals_one_by_one(several: Any, first: Any) -> None:
    shape, data, start = several
    together = find_modes(shape, stacked(data), start)
    assert together.converged.all()
    for number in range(3):
        alone = first[2] if number == 0 else find_modes(shape, stacked(data[number : number + 1]), start[number, None])
        np.testing.assert_allclose(together.mode[number], alone.mode[0], atol=1e-6)
        np.testing.assert_allclose(together.covariance[number], alone.covariance[0], rtol=1e-3, atol=1e-7)


def test_pieces_give_the_same_draws(several: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three posteriors as one piece, and as two that overlap; every posterior keeps its own data and its own keys."""
    shape, data, start = several
    laplace = find_modes(shape, stacked(data), start)

    def some_draws() -> Any:
        return continue_chains(start_chains(shape, stacked(data), laplace, chains=2, seed=3), 5)[1].draws

    whole = some_draws()
    monkeypatch.setattr(batches, "_LARGEST_PIECE", 2)
    assert batches._pieces(3) == [slice(0, 2), slice(1, 3)]
    np.testing.assert_allclose(some_draws(), whole, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(find_modes(shape, stacked(data), start).mode, laplace.mode, atol=1e-6)


@pytest.mark.parametrize("posteriors", [1, 3, 64, 65, 127, 129, 1000])
def test_pieces_cover_every_posterior_and_have_one_length(posteriors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = batches._pieces(posteriors)
    assert len({piece.stop - piece.start for piece in pieces}) == 1
    assert pieces[0].stop <= 64
    assert len(pieces) == -(-posteriors // 64)
    assert {i for piece in pieces for i in range(piece.start, piece.stop)} == set(range(posteriors))
    assert all(later.start <= piece.stop for piece, later in pairwise(pieces))
    monkeypatch.setattr(batches.jax, "default_backend", lambda: "gpu")
    assert batches._pieces(posteriors) == [slice(0, posteriors)]


def test_roots_of_large_matrices_are_those_of_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cholesky's way and eigenvectors give one covariance; what is not positive definite takes the second."""
    root = np.random.default_rng(1).normal(size=(2, 6, 6))
    precision = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(6)
    by_eigenvectors, convex = modes.inverse_roots(precision)
    assert convex.all()
    np.testing.assert_allclose(
        by_eigenvectors @ by_eigenvectors.transpose(0, 2, 1) @ precision, [np.eye(6)] * 2, atol=1e-9
    )
    monkeypatch.setattr(modes, "_LARGEST_FOR_EIGENVECTORS", 5)
    by_cholesky, convex = modes.inverse_roots(precision)
    assert convex.all()
    assert not np.allclose(by_cholesky, by_eigenvectors)
    np.testing.assert_allclose(by_cholesky @ by_cholesky.transpose(0, 2, 1) @ precision, [np.eye(6)] * 2, atol=1e-9)
    saddle = precision.copy()
    saddle[1] = np.diag([3.0, 2.0, 1.0, 1e-9, -0.5, 4.0])
    factor, convex = modes.inverse_roots(saddle)
    assert convex.tolist() == [True, False]
    np.testing.assert_allclose(np.linalg.eigvalsh(factor[1] @ factor[1].T), [1 / 4, 1 / 3, 1 / 2, 1, 2, 100], rtol=1e-9)


def test_mode_and_curvature_where_eigenvalues_are_equal() -> None:
    """Uncorrelated columns of one variance: the covariance of the predictors is a multiple of the identity."""
    release = release_of(4, 4000)
    options: dict[str, Any] = {
        "link": None, "dispersion": None, "prior": None, "moments": "exact", "noise_aware": True,
    }  # fmt: skip
    shape, (table,) = assemble([release], **options)
    second = 4000 / 16 * np.eye(2)
    observed = tuple(
        jnp.asarray(second) if value.ndim == 2 else 0 * value if block.y_power == 0 else value
        for block, value in zip(shape.tables[0].blocks, table.observed, strict=True)
    )
    data = stacked([(table._replace(observed=observed),)])
    start = starts(shape, [(table._replace(observed=observed),)])
    count = len(shape.names)
    start[0, count + 4 :] = 0.0  # no correlation
    start[0, count + 2 : count + 4] = start[0, count + 2]  # one variance
    steps = np.full_like(start, 1e-4)
    precision = curvature(shape, data, start, steps)[0]
    assert np.isfinite(precision).all()
    # a little away from equality, where nothing can be divided by zero
    away = start.copy()
    away[0, count + 4 :] = 1e-3
    away[0, count + 2] += 2e-3
    nearby = curvature(shape, data, away, steps)[0]
    np.testing.assert_allclose(precision, nearby, rtol=0.02, atol=2e-3 * np.abs(nearby).max())
    laplace = find_modes(shape, data, start)
    assert laplace.converged.all()
    assert np.isfinite(laplace.factor).all()
