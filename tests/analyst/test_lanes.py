"""A batch along the last axis against ``jax.vmap``: small programs that each ask for one thing, and whole densities."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpglm.analyst import batches, modes, sampler
from dpglm.analyst.assemble import prepare
from dpglm.analyst.batches import OPTIONS
from dpglm.analyst.eigenbasis import eigenframe
from dpglm.analyst.lanes import lanes
from dpglm.analyst.model import ModelShape, TableData, TableShape
from dpglm.analyst.outcomes import outcome_of
from dpglm.analyst.priors import NormalPrior, SphericalPrior
from dpglm.families import FAMILIES

LANES = 7


@pytest.fixture(scope="module", autouse=True)
def _no_cache_on_disk() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPGLM_CACHE", "")
        yield


def compiled(program: Any) -> Any:
    return jax.jit(lanes(program), compiler_options=OPTIONS)


def matrices(size: int) -> Any:
    root = np.random.default_rng(0).normal(size=(size, size, LANES))
    return jnp.asarray(np.einsum("ikl,jkl->ijl", root, root) + np.eye(size)[..., None])


def vectors(size: int) -> Any:
    return jnp.asarray(np.random.default_rng(1).normal(size=(size, LANES)))


PROGRAMS = {
    "elementwise": lambda a, v: jnp.exp(v) * jnp.where(v < 0, v, 2.0) + v**2,
    "products": lambda a, v: (a @ v) @ a + jnp.outer(v, v) @ jnp.eye(len(v))[0],
    "many axes": lambda a, v: jnp.einsum("ij,jk,i->kj", a, a, v) + jnp.tensordot(a, a, 2),
    "zeros and ones": lambda a, v: (v * jnp.ones(len(v)) + jnp.zeros(len(v)) - 0.0 * v) / 1.0 + jnp.zeros_like(a) @ v,
    "sums": lambda a, v: jnp.sum(a * v, axis=0) + jnp.sum(v) + jnp.sum(a),
    "long sum": lambda a, v: jnp.sum(jnp.tile(v, 50)) + jnp.tile(v, 50) @ jnp.tile(v, 50),
    "cholesky": lambda a, v: jnp.linalg.cholesky(a),
    "lower": lambda a, v: jax.scipy.linalg.solve_triangular(a, v, lower=True),
    "unit": lambda a, v: jax.scipy.linalg.solve_triangular(a, v, lower=True, unit_diagonal=True),
    "upper": lambda a, v: jax.scipy.linalg.solve_triangular(a.T, a, lower=False),
    "transposed": lambda a, v: jax.scipy.linalg.solve_triangular(a, a.T, lower=True, trans=1),
    "eigenvalues": lambda a, v: jnp.linalg.eigvalsh(a),
    "eigenvectors": lambda a, v: (lambda w, q: (q * jnp.sqrt(w)) @ q.T)(*jnp.linalg.eigh(a)),
    "pieces": lambda a, v: jnp.append(jnp.diagonal(a), a[0]) + jnp.pad(v, (0, len(v))) + jnp.stack([v, v]).ravel(),
    "no rule": lambda a, v: jnp.cumsum(v) + jnp.sort(v) + jnp.linalg.inv(a)[0],
    "constant": lambda a, v: jnp.ones(3),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_vmap(name: str) -> None:
    for size in (1, 4):
        program, given = PROGRAMS[name], (matrices(size), vectors(size))
        expected = jax.vmap(program, in_axes=-1, out_axes=-1, axis_size=LANES)(*given)
        np.testing.assert_allclose(compiled(program)(*given), expected, rtol=1e-11, atol=1e-12)


def test_not_positive_definite_is_not_a_number() -> None:
    bad = matrices(3).at[1, 1, 2].set(-1.0)
    found = compiled(lambda a: jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(a)))))(bad)
    assert np.isnan(found).tolist() == [lane == 2 for lane in range(LANES)]


def test_eigenvectors_of_matrices_that_are_not_a_number_end() -> None:
    """A loop that waits for convergence must not wait for these, and must not spoil the others."""
    bad = matrices(4).at[1, 1, 2].set(jnp.nan)
    found = compiled(jnp.linalg.eigvalsh)(bad)
    expected = np.linalg.eigvalsh(np.moveaxis(np.asarray(matrices(4)), -1, 0)).T
    good = [lane for lane in range(LANES) if lane != 2]
    np.testing.assert_allclose(found[:, good], expected[:, good], rtol=1e-11)


def test_gradient_at_equal_eigenvalues() -> None:
    def program(a: Any, w: Any) -> Any:
        return jax.value_and_grad(lambda a: jnp.sum(eigenframe(a, w, w)[0].white_w ** 2))(a)

    equal = jnp.broadcast_to(jnp.eye(3)[..., None], (3, 3, LANES))
    w = vectors(3)
    value, gradient = compiled(program)(equal, w)
    np.testing.assert_allclose(value, np.sum(w**2, axis=0), rtol=1e-12)
    np.testing.assert_allclose(gradient, -np.einsum("il,jl->ijl", w, w), atol=1e-12)


def test_barriers_last() -> None:
    """With these options what is read twice is computed once; a compiler that no longer heeds them makes this fail."""
    program = compiled(lambda v: (lambda e: (jnp.sin(e), jnp.cos(e)))(v + v * v))
    assert "opt-barrier" in program.lower(vectors(3)).compile().as_text()
    assert "opt-barrier" not in jax.jit(lanes(lambda v: jnp.sin(v * v) + v * v)).lower(vectors(3)).compile().as_text()


def a_model(family: str, link: str | None, d: int, prior: Any, moments: str = "exact") -> ModelShape:
    """Of the paper's statistics, without intercept and mean, for one predictor; else of all."""
    paper = d == 1
    entry = FAMILIES[family]
    table = TableShape(
        blocks=entry.paper_blocks if paper else entry.full_blocks,
        outcome=outcome_of(family, link, (-1.0, 1.0)),
        dimension=d, has_intercept=not paper, has_offset=False, zero_mean=paper,
    )  # fmt: skip
    names = (() if paper else ("Intercept",)) + tuple(f"x{n}" for n in range(d))
    return ModelShape(names, (table,), prior, None, moments)


def some_data(shape: ModelShape, posteriors: int, rows: float = 2000.0) -> Any:
    """Any sums will do: those of random rows, each posterior's its own."""
    (table,), size, made = shape.tables, len(shape.names), []
    for seed in range(posteriors):
        rng = np.random.default_rng(seed)
        x = np.clip(rng.normal(0.1, 0.35, (int(rows), table.dimension)), -0.9, 1.0)
        y = np.sign(rng.normal(size=len(x)) + x[:, 0])
        sums = [b.features(x, y).sum(axis=0) / np.sqrt(b.multiplicities(table.dimension)) for b in table.blocks]
        made.append(
            TableData(
                prepare(table.blocks, table.dimension, sums), rows, np.linspace(6.0, 12.0, len(sums)),
                np.full(table.dimension, -0.9), np.ones(table.dimension), np.eye(size), np.zeros(size), 0.0, 1.0,
            )
        )  # fmt: skip
    return (jax.tree.map(lambda *each: np.stack([np.asarray(one) for one in each]), *made),)


MODELS = {
    "logit": a_model("logistic", None, 2, NormalPrior()),
    "probit": a_model("logistic", "probit", 1, SphericalPrior(4.0)),
    "linear": a_model("linear", None, 1, NormalPrior()),
}


@pytest.mark.parametrize("name", MODELS)
def test_densities_and_gradients_are_those_of_vmap(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = MODELS[name]
    data = some_data(shape, 8)
    points = 0.3 * np.random.default_rng(5).normal(size=(8, 2, shape.size))
    assert batches.runs_in_lanes(shape, 8)
    found = batches.evaluate(shape, data, points)
    monkeypatch.setattr(batches, "_LEAST_IN_LANES", 9)
    expected = batches.evaluate(shape, data, points)
    assert np.isfinite(expected[0]).all()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11 * np.abs(other).max())
    wrong = batches.evaluate(shape, data, points + 1e-6)
    assert not np.allclose(wrong[1], expected[1], rtol=1e-10, atol=1e-11 * np.abs(expected[1]).max())


def test_draws_are_those_of_vmap_in_pieces_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten posteriors in lanes, in two overlapping pieces in two threads, and all at once by vmap: the same chains."""
    shape = MODELS["probit"]
    data = some_data(shape, 10)
    start = np.zeros((10, shape.size))

    def some_draws() -> Any:
        laplace = modes.find_modes(shape, data, start)
        return sampler.sample_chains(shape, data, laplace, chains=2, draws=30, seed=3).draws

    monkeypatch.setattr(batches, "usable_cores", lambda: 2)
    monkeypatch.setattr(batches, "_PIECES_IN_LANES", (2, 8))
    assert batches._pieces(10, in_lanes=True) == [slice(0, 6), slice(4, 10)]
    in_lanes = some_draws()
    monkeypatch.setattr(batches, "_LEAST_IN_LANES", 11)
    np.testing.assert_allclose(some_draws(), in_lanes, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cores", [1, 2, 64])
@pytest.mark.parametrize("posteriors", [8, 16, 33, 64, 200, 1000])
def test_pieces_in_lanes(posteriors: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They cover all, have one even length, and leave no core without work while another has two pieces more."""
    monkeypatch.setattr(batches, "usable_cores", lambda: cores)
    pieces = batches._pieces(posteriors, in_lanes=True)
    lengths = {piece.stop - piece.start for piece in pieces}
    assert len(lengths) == 1
    assert lengths.pop() <= 32
    assert {i for piece in pieces for i in range(piece.start, piece.stop)} == set(range(posteriors))
    assert all(later.start > piece.start for piece, later in pairwise(pieces))
    if posteriors >= 16 * cores:
        assert -(-len(pieces) // cores) * cores - len(pieces) <= 1
    if (posteriors, cores) == (200, 2):
        assert len(pieces) == 10  # of 20: nothing is done twice


def test_what_runs_in_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models of two levels or a linear outcome, several at a time, on a processor."""
    small = MODELS["logit"]
    assert not batches.runs_in_lanes(small, 1)
    assert not batches.runs_in_lanes(a_model("logistic", None, 20, NormalPrior()), 100)
    assert not batches.runs_in_lanes(replace(small, moments="numeric"), 100)
    counts = replace(small.tables[0], outcome=outcome_of("poisson", None, (0, 10)))
    assert not batches.runs_in_lanes(replace(small, tables=(counts,)), 100)
    monkeypatch.setattr(batches, "_backend", lambda: "gpu")
    assert not batches.runs_in_lanes(small, 100)


# Many points of a large model: some after others, so that no factorisation is divided among XLA's threads.


@pytest.mark.parametrize(("points", "rows", "together"), [(32, 5, 32), (32, 19, 8), (4, 30, 2), (4, 60, 1), (7, 20, 7)])
def test_points_at_once_stay_below_what_is_divided_among_threads(points: int, rows: int, together: int) -> None:
    assert batches._points_together(points, rows) == together
    assert together == 1 or together * rows**3 <= batches._LARGEST_FACTORISATIONS


def test_some_points_after_others_are_all_of_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(matrix: Any, point: Any) -> Any:
        return jnp.sum(jnp.linalg.cholesky(matrix + jnp.outer(point, point))), jnp.linalg.solve(matrix, point)

    arrays = (jnp.moveaxis(matrices(4), -1, 0),)  # seven posteriors
    positions = jnp.asarray(np.random.default_rng(2).normal(size=(4, LANES * 6)))
    whole = jax.jit(batches.at_points(one, arrays, 6, 4, in_lanes=False))(positions)
    monkeypatch.setattr(batches, "_LARGEST_FACTORISATIONS", 3 * 4**3)
    parts = jax.jit(batches.at_points(one, arrays, 6, 4, in_lanes=False))(positions)
    assert batches._points_together(LANES * 6, 4) == 3
    for first, second in zip(whole, parts, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-12)


def test_many_factorisations_at_a_time_do_not_wait_for_each_other() -> None:
    """In a process of its own: with all points at once this one never ends on a machine of two cores (jaxlib 0.10)."""
    program = (
        "import numpy as np, jax.numpy as jnp\n"
        "from dpglm.analyst import batches\n"
        "class Many:\n"
        "    names = tuple(map(str, range(40)))\n"
        "    def log_density(self, data, free):\n"
        "        total = 0.0\n"
        "        for k in range(1, 9):\n"
        "            root = jnp.linalg.cholesky(data[0] + k * jnp.eye(40) + jnp.outer(free, free))\n"
        "            total += jnp.sum(jnp.linalg.inv(root @ root.T) * k)\n"
        "        return total\n"
        "values, _ = batches.evaluate(Many(), (np.eye(40)[None],), np.ones((1, 64, 40)))\n"
        "assert np.isfinite(values).all()\n"
    )
    environment = {**os.environ, "DPGLM_CACHE": "", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=240)
