"""From a posterior density to draws: mode, Laplace approximation, whitened NUTS with batched chains.

Three small programs are compiled a model shape and kept in a persistent cache: values and gradients of a batch of
points (mode and Hessian use nothing else), the start of the chains, and a fixed number of NUTS transitions of all
chains at once. Arrays are arguments, so releases of one shape share the programs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dpglm.analyst.model import ModelShape, TableData, log_density

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Floats = npt.NDArray[np.float64]
Data = tuple[TableData, ...]  # every array with a leading axis: one entry a posterior

TRANSITIONS_AT_ONCE = 50
_LARGEST_BATCH = 16384  # points of a gradient batch: bounds memory
_NEWTON_STEPS = 80
_STEP_SHARE = 1e-3  # of a standard deviation, for differences of gradients


@dataclass(frozen=True)
class Laplace:
    """Modes of some posteriors and Gaussians there; ``factor`` maps standard normals to deviations from the mode."""

    mode: Floats  # (posteriors, size)
    factor: Floats  # (posteriors, size, size)
    converged: npt.NDArray[np.bool_]

    @property
    def covariance(self) -> Floats:
        return self.factor @ self.factor.transpose(0, 2, 1)


@dataclass(frozen=True)
class Chains:
    """Draws of the free vectors, (posteriors, chains, draws, size), with what the sampler says about itself."""

    draws: Floats
    divergences: npt.NDArray[np.int64]
    acceptance: Floats
    steps: Floats


def use_compilation_cache() -> None:
    """Keep compiled programs between runs (set DPGLM_CACHE to choose the folder, or to '' for none)."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dpglm"
    folder = os.environ.get("DPGLM_CACHE", str(default))
    if folder and jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", folder)  # type: ignore[no-untyped-call]
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)  # type: ignore[no-untyped-call]


@partial(jax.jit, static_argnums=0)
def _values_and_gradients(shape: ModelShape, data: Data, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log densities and their gradients at (posteriors, points, size)."""

    def one_posterior(data: Data, points: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.vmap(jax.value_and_grad(partial(log_density, shape, data)))(points)

    return jax.vmap(one_posterior)(data, points)


def evaluate(shape: ModelShape, data: Data, points: Floats) -> tuple[Floats, Floats]:
    """The same in batches of one fixed size, so that one compiled program serves every number of points."""
    posteriors, count, size = points.shape
    batch = max(1, min(2 * size + 1, _LARGEST_BATCH // posteriors))
    values, gradients = [], []
    for first in range(0, count, batch):
        part = points[:, first : first + batch]
        missing = batch - part.shape[1]
        padded = np.concatenate([part, np.repeat(part[:, -1:], missing, axis=1)], axis=1)
        value, gradient = _values_and_gradients(shape, data, jnp.asarray(padded))
        values.append(np.asarray(value)[:, : batch - missing])
        gradients.append(np.asarray(gradient)[:, : batch - missing])
    together = np.concatenate(values, axis=1)
    return np.where(np.isfinite(together), together, -np.inf), np.concatenate(gradients, axis=1)


def find_modes(shape: ModelShape, data: Data, start: Floats) -> Laplace:
    """Damped Newton steps with Hessians from differences of gradients; directions of negative curvature are flipped.

    All posteriors step together; one that has converged stays where it is.
    """
    point = start.copy()
    posteriors = len(point)
    steps = _first_steps(data, point.shape)
    shrink = 0.5 ** np.arange(24)
    converged = np.zeros(posteriors, dtype=bool)
    finished = np.zeros(posteriors, dtype=bool)
    for _ in range(_NEWTON_STEPS):
        value, gradient, precision = _curvature(shape, data, point, steps)
        eigenvalues, vectors = np.linalg.eigh(precision)
        floor = np.maximum(1e-2, 1e-12 * np.abs(eigenvalues).max(axis=1, keepdims=True))
        along = np.einsum("rij,ri->rj", vectors, gradient) / np.maximum(np.abs(eigenvalues), floor)
        direction = np.einsum("rij,rj->ri", vectors, along)
        steps = _STEP_SHARE / np.sqrt(np.maximum(np.diagonal(precision, axis1=1, axis2=2), 1.0))
        # Newton decrement: twice the log density that is left to gain, were it quadratic.
        decrement = np.einsum("ri,ri->r", gradient, direction)
        convex = eigenvalues[:, 0] > 0
        converged |= ~finished & convex & (decrement < 1e-8)
        finished |= converged
        if finished.all():
            break
        values, _ = evaluate(shape, data, point[:, None] + shrink[:, None] * direction[:, None])
        chosen = values.argmax(axis=1)
        better = values[np.arange(posteriors), chosen] > value
        converged |= ~finished & ~better & convex & (decrement < 1e-4)
        finished |= ~better
        point = np.where(finished[:, None], point, point + shrink[chosen][:, None] * direction)
    _, _, precision = _curvature(shape, data, point, steps)
    eigenvalues, vectors = np.linalg.eigh(precision)
    # A flat or saddle direction still needs a scale: the prior's is about one.
    kept = np.where(eigenvalues > 1e-12, eigenvalues, 1.0)
    return Laplace(point, vectors / np.sqrt(kept)[:, None, :], converged)


def curvature(shape: ModelShape, data: Data, point: Floats) -> Floats:
    """Minus the Hessians at one point of each posterior."""
    steps = _first_steps(data, point.shape)
    for _ in range(2):
        _, _, precision = _curvature(shape, data, point, steps)
        steps = _STEP_SHARE / np.sqrt(np.maximum(np.diagonal(precision, axis1=1, axis2=2), 1.0))
    return precision


def _first_steps(data: Data, shape: tuple[int, ...]) -> Floats:
    """Differences small enough for the sharpest direction that this many rows can make."""
    rows = np.max([np.asarray(table.num_rows) for table in data], axis=0)
    return np.broadcast_to((_STEP_SHARE / np.sqrt(1.0 + rows))[:, None], shape)


def _curvature(shape: ModelShape, data: Data, point: Floats, steps: Floats) -> tuple[Floats, Floats, Floats]:
    """Values, gradients and minus the Hessians at one point of each posterior."""
    size = point.shape[1]
    moves = steps[:, :, None] * np.eye(size)
    points = np.concatenate([point[:, None], point[:, None] + moves, point[:, None] - moves], axis=1)
    values, gradients = evaluate(shape, data, points)
    hessian = (gradients[:, 1 : size + 1] - gradients[:, size + 1 :]) / (2 * steps[:, :, None])
    precision = -(hessian + hessian.transpose(0, 2, 1)) / 2
    return values[:, 0], gradients[:, 0], np.nan_to_num(precision, nan=0.0, posinf=1e12, neginf=-1e12)


def sample_chains(
    shape: ModelShape,
    data: Data,
    laplace: Laplace,
    *,
    chains: int,
    warmup: int,
    draws: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Chains:
    """NUTS in coordinates where the Laplace approximation is a standard normal."""
    warmup = -(-warmup // TRANSITIONS_AT_ONCE) * TRANSITIONS_AT_ONCE  # whole calls of the program
    begin, advance = _programs(shape, warmup)
    center, factor = jnp.asarray(laplace.mode), jnp.asarray(laplace.factor)
    start_key, chain_key = jax.random.split(jax.random.key(seed))
    posteriors, size = laplace.mode.shape
    whitened = 0.5 * np.asarray(jax.random.normal(start_key, (posteriors, chains, size)))
    values, gradients = _at_whitened(shape, data, laplace, whitened)
    if not np.isfinite(values).all():  # start there from the mode itself
        whitened = np.where(np.isfinite(values)[..., None], whitened, 0.0)
        values, gradients = _at_whitened(shape, data, laplace, whitened)
    keys = jax.random.split(chain_key, (posteriors, chains))
    state = begin(jnp.asarray(whitened), -jnp.asarray(values), -jnp.asarray(gradients), keys)
    total = warmup + draws
    traces = []
    for done in range(0, total, TRANSITIONS_AT_ONCE):
        state, trace = advance(data, center, factor, state)
        if done >= warmup:
            traces.append(jax.tree.map(np.asarray, trace))
        if progress is not None:
            progress(min(done + TRANSITIONS_AT_ONCE, total), total)
    free = np.concatenate([trace["free"] for trace in traces], axis=2)[:, :, :draws]
    return Chains(
        draws=free,
        divergences=np.sum([trace["diverging"].sum(axis=(1, 2)) for trace in traces], axis=0),
        acceptance=np.mean([trace["accept"].mean(axis=(1, 2)) for trace in traces], axis=0),
        steps=np.mean([trace["steps"].mean(axis=(1, 2)) for trace in traces], axis=0),
    )


def _at_whitened(shape: ModelShape, data: Data, laplace: Laplace, whitened: Floats) -> tuple[Floats, Floats]:
    points = laplace.mode[:, None] + np.einsum("rij,rcj->rci", laplace.factor, whitened)
    values, gradients = evaluate(shape, data, points)
    return values, np.einsum("rci,rij->rcj", gradients, laplace.factor)


@lru_cache(maxsize=32)
def _programs(shape: ModelShape, warmup: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(start of the chains, ``TRANSITIONS_AT_ONCE`` transitions of all chains of all posteriors)."""
    from numpyro.infer.hmc import hmc
    from numpyro.infer.util import ParamInfo

    def potential(data: Any, center: jax.Array, factor: jax.Array) -> Callable[[jax.Array], jax.Array]:
        return lambda whitened: -log_density(shape, data, center + factor @ whitened)

    init_kernel, sample_kernel = hmc(potential_fn_gen=potential, algo="NUTS")

    def begin_one(whitened: jax.Array, energy: jax.Array, gradient: jax.Array, key: jax.Array) -> Any:
        # The energy and gradient are given, so this program holds no likelihood; its model arguments are not used.
        return init_kernel(
            ParamInfo(whitened, energy, gradient), warmup, step_size=0.5, max_tree_depth=8, rng_key=key,
            model_args=(None, None, None),
        )  # fmt: skip

    def advance_one(data: Any, center: jax.Array, factor: jax.Array, state: Any) -> Any:
        def transition(state: Any, _: None) -> tuple[Any, dict[str, jax.Array]]:
            state = sample_kernel(state, model_args=(data, center, factor), model_kwargs={})
            trace = {
                "free": center + factor @ state.z,
                "diverging": state.diverging,
                "accept": state.accept_prob,
                "steps": state.num_steps,
            }
            return state, trace

        return jax.lax.scan(transition, state, None, length=TRANSITIONS_AT_ONCE)

    begin = jax.jit(jax.vmap(jax.vmap(begin_one)))
    advance = jax.jit(jax.vmap(jax.vmap(advance_one, in_axes=(None, None, None, 0))))
    return begin, advance
