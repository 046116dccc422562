"""From a mode to draws: whitened NUTS, all chains of all posteriors in one batch.

One program, some NUTS transitions of all chains at once (nuts.py), is compiled a model shape. Chains can be continued:
nothing of the warm-up is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dpglm.paper.batches import (
    Data,
    Floats,
    Model,
    at_points,
    evaluate,
    in_pieces,
    posteriors_last,
    value_and_gradient,
)
from dpglm.paper.modes import Laplace
from dpglm.paper.nuts import LARGEST_DEPTH, Loop, Point, Reference, Trace, begin, turn

Progress = Callable[[int, int], None]

TRANSITIONS_AT_ONCE = 25
WARMUP = 250
_WANTED_ACCEPTANCE = 0.8
LARGEST_STEP = 1.15  # of which three make just over half a turn of a normal: a draw and its opposite


@dataclass(frozen=True)
class Chains:
    """Draws of the free vectors, (posteriors, chains, draws, size), with what the sampler says about itself."""

    draws: Floats
    divergences: npt.NDArray[np.int64]
    acceptance: Floats
    steps: Floats  # steps, and so gradients, a draw

    def joined(self, more: Chains) -> Chains:
        """These draws and the next ones of the same chains."""
        made, new = self.draws.shape[2], more.draws.shape[2]
        return Chains(
            draws=np.concatenate([self.draws, more.draws], axis=2),
            divergences=self.divergences + more.divergences,
            acceptance=(made * self.acceptance + new * more.acceptance) / (made + new),
            steps=(made * self.steps + new * more.steps) / (made + new),
        )


@dataclass(frozen=True)
class Running:
    """Chains that can go on: where they are, in whitened coordinates, and what warm-up has learned."""

    shape: Model
    data: Data
    laplace: Laplace
    point: Point  # (posteriors, chains, ...)
    keys: npt.NDArray[np.uint32]  # (posteriors, chains, ...), the raw data of random keys
    step_size: Floats  # (posteriors,)
    reference: Reference  # (posteriors, size)


def start_chains(
    shape: Model,
    data: Data,
    laplace: Laplace,
    *,
    chains: int,
    seed: int,
    warmup: int = WARMUP,
    progress: Progress | None = None,
) -> Running:
    """Chains near the mode, in coordinates where the Laplace approximation is a standard normal, warmed up.

    All chains of a posterior share a step size and a reference normal, learned between calls of the program: the step
    from the acceptance of each round, the normal from the pooled draws of a window of rounds.
    """
    posteriors, size = laplace.mode.shape
    normals, keys = _randomness((posteriors, chains, size), seed)
    whitened = 0.5 * np.asarray(normals)
    values, gradients = _at_whitened(shape, data, laplace, whitened)
    if not np.isfinite(values).all():  # start there from the mode itself
        whitened = np.where(np.isfinite(values)[..., None], whitened, 0.0)
        values, gradients = _at_whitened(shape, data, laplace, whitened)
    point = Point(*cast("Any", (whitened, -values, -gradients)))
    standard = Reference(*cast("Any", (np.zeros((posteriors, size)), np.ones((posteriors, size)))))
    running = Running(shape, data, laplace, point, np.asarray(keys), np.full(posteriors, LARGEST_STEP), standard)
    windows = _windows(warmup)
    done, total = 0, sum(sum(window) for window in windows)
    for last, window in enumerate(windows, start=1 - len(windows)):
        pooled, log_steps, diverged = [], [], np.zeros(posteriors, dtype=bool)
        for wanted in window:
            running, trace = _advance(running, wanted)
            pooled.append(trace.position)
            diverged |= trace.diverging.any(axis=(1, 2))
            # Near the acceptance that is wanted, a step longer by one in the logarithm costs a half of it.
            missed = trace.acceptance.mean(axis=(1, 2)) - _WANTED_ACCEPTANCE
            log_steps.append(np.log(running.step_size) + 2 * missed)
            running = replace(running, step_size=_whole(np.exp(np.mean(log_steps[-3:], axis=0))))
            done += wanted
            if progress is not None:
                progress(done, total)
        if last == 0:  # to be kept; half of it where a step went astray
            settled = np.mean(log_steps, axis=0) - np.where(diverged, np.log(2), 0.0)
            running = replace(running, step_size=_whole(np.exp(settled)))
        elif last > 1 - len(windows):  # the first window only leaves the start
            running = replace(running, reference=_pooled_normal(np.concatenate(pooled, axis=2)))
    return running


@partial(jax.jit, static_argnums=0)
def _randomness(sizes: tuple[int, int, int], seed: int) -> tuple[jax.Array, jax.Array]:
    """Standard normals, (posteriors, chains, size), and a key for each chain."""
    start_key, chain_key = jax.random.split(jax.random.key(seed))
    keys = jax.random.split(chain_key, sizes[:2])
    return jax.random.normal(start_key, sizes), jax.random.key_data(keys)


def _windows(warmup: int) -> tuple[tuple[int, ...], ...]:
    """Rounds of transitions in four windows: leave the start, learn the normal roughly, then well, settle the step.

    >>> _windows(250)
    ((5, 10, 10, 25), (25, 25), (25, 25, 25, 25), (10, 10, 10, 10, 10))
    """
    rounds = max(1, (warmup - 150) // TRANSITIONS_AT_ONCE)
    return (5, 10, 10, 25), (25, 25), (TRANSITIONS_AT_ONCE,) * rounds, (10,) * 5


def continue_chains(running: Running, draws: int, progress: Progress | None = None) -> tuple[Running, Chains]:
    """The next draws of the chains."""
    traces = []
    for done in range(0, draws, TRANSITIONS_AT_ONCE):
        wanted = min(TRANSITIONS_AT_ONCE, draws - done)
        running, trace = _advance(running, wanted)
        traces.append(trace)
        if progress is not None:
            progress(done + wanted, draws)
    positions, *others = zip(*traces, strict=True)
    acceptance, diverging, leaves = (np.concatenate(parts, axis=2) for parts in others)
    free = in_pieces(_unwhitened, (running.laplace.mode, running.laplace.factor, positions))
    return running, Chains(free, diverging.sum(axis=(1, 2)), acceptance.mean(axis=(1, 2)), leaves.mean(axis=(1, 2)))


def _unwhitened(mode: Floats, factor: Floats, positions: tuple[Floats, ...]) -> Floats:
    deviations = np.einsum("rij,rcdj->rcdi", factor, np.concatenate(positions, axis=2))
    return np.asarray(mode[:, None, None] + deviations)


def sample_chains(
    shape: Model,
    data: Data,
    laplace: Laplace,
    *,
    chains: int,
    draws: int,
    seed: int,
    warmup: int = WARMUP,
    progress: Progress | None = None,
) -> Chains:
    """Both in one: warmed-up chains, and their first draws."""
    running = start_chains(shape, data, laplace, chains=chains, seed=seed, warmup=warmup, progress=progress)
    return continue_chains(running, draws, progress)[1]


def _advance(running: Running, wanted: int) -> tuple[Running, Trace]:
    """Some transitions of all chains; the trace as NumPy arrays (posteriors, chains, wanted, ...)."""
    arrays = (
        running.data, running.laplace.mode, running.laplace.factor, running.point, running.keys, running.step_size,
        running.reference,
    )  # fmt: skip
    point, keys, trace = in_pieces(lambda *some: _transitions(running.shape, *some, wanted), arrays)
    return replace(running, point=point, keys=keys), jax.tree.map(lambda part: part[:, :, :wanted], trace)


@partial(jax.jit, static_argnums=0)
def _transitions(
    shape: Model,
    data: Data,
    center: jax.Array,
    factor: jax.Array,
    point: Point,
    keys: jax.Array,
    step_size: jax.Array,
    reference: Reference,
    wanted: int,
) -> tuple[Point, jax.Array, Trace]:
    """Some transitions: one loop for all chains of all posteriors, each turn a step of every chain that is not done."""
    posteriors, chains = keys.shape[:2]

    def energy(data: Any, center: jax.Array, factor: jax.Array, whitened: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = value_and_gradient(shape, data, center + factor @ whitened)
        return -value, -(gradient @ factor)

    potential = at_points(energy, (data, center, factor), chains, len(shape.names))
    step_size, reference = posteriors_last((step_size, reference), chains)
    every = posteriors_last(jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), point))
    next_keys, now = jnp.moveaxis(jax.vmap(jax.random.split)(jax.random.wrap_key_data(keys).reshape(-1)), 1, 0)
    loop, randomness = begin(every, now, reference, TRANSITIONS_AT_ONCE)

    def turn_all(loop: Loop) -> Loop:
        return turn(potential, loop, randomness, step_size, reference, wanted)

    loop = jax.lax.while_loop(lambda loop: jnp.any(loop.done < wanted), turn_all, loop)
    point, trace = jax.tree.map(
        lambda array: jnp.moveaxis(array, -1, 0).reshape(posteriors, chains, *array.shape[:-1]),
        (loop.tree.proposal, loop.trace),
    )
    return point, jax.random.key_data(next_keys).reshape(keys.shape), trace


def _pooled_normal(positions: Floats) -> Reference:
    """Of the draws of all chains, (posteriors, chains, draws, size), drawn to the standard one as five more would."""
    count = positions.shape[1] * positions.shape[2]
    share = count / (count + 5.0)
    mean = share * positions.mean(axis=(1, 2))
    return Reference(mean, share * positions.var(axis=(1, 2)) + 1 - share)


def _whole(steps: Floats) -> Floats:
    """The nearest steps of which a tree of some depth makes just over half a turn, where it ends.

    A tree doubles until it has turned back. With a step a little too short for that it would double once more, and
    come round to where it began.

    >>> _whole(np.array([2.0, 0.9, 0.6, 0.3])).round(2)
    array([1.15, 1.15, 0.57, 0.29])
    """
    halvings = np.clip(np.round(np.log2(LARGEST_STEP / steps)), 0, LARGEST_DEPTH)
    return np.asarray(LARGEST_STEP / 2**halvings)


def _at_whitened(shape: Model, data: Data, laplace: Laplace, whitened: Floats) -> tuple[Floats, Floats]:
    points = laplace.mode[:, None] + np.einsum("rij,rcj->rci", laplace.factor, whitened)
    values, gradients = evaluate(shape, data, points)
    return values, np.einsum("rci,rij->rcj", gradients, laplace.factor)
