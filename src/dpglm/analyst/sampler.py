"""From a posterior density to draws: mode, Laplace approximation, whitened NUTS with batched chains.

Two programs are compiled a model shape and kept in a persistent cache: values and gradients of a batch of points (mode
and Hessian use nothing else), and some NUTS transitions of all chains at once (nuts.py). Arrays are arguments, so
releases of one shape share the programs. Chains can be continued: nothing of the warm-up is lost.

A batch of small posteriors on a processor runs in lanes (lanes.py), in pieces, one on each core.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dpglm.analyst.lanes import OPTIONS, lanes
from dpglm.analyst.nuts import LARGEST_DEPTH, Loop, Point, Reference, Trace, begin, turn
from dpglm.analyst.programs import cache_folder, kept_program, usable_cores

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Floats = npt.NDArray[np.float64]
Data = tuple[Any, ...]  # one entry a table; every array with a leading axis, one entry a posterior


class Model(Protocol):
    """What is sampled: a frozen, hashable shape, which decides the program, with a density of arrays."""

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients, which come first in the free vector."""
        ...

    def log_density(self, data: Any, free: jax.Array) -> jax.Array:
        """Log posterior density of a free vector, up to a constant."""
        ...


Progress = Callable[[int, int], None]

TRANSITIONS_AT_ONCE = 25
WARMUP = 250
_WANTED_ACCEPTANCE = 0.8
LARGEST_STEP = 1.15  # of which three make just over half a turn of a normal: a draw and its opposite
_BATCH = 32  # points of each posterior in one call
_LARGEST_BATCH = {"cpu": 256, "gpu": 16384}  # points of all posteriors in one call; see _pieces
_LARGEST_PIECE = 64  # posteriors in one call on a processor
_PIECES_IN_LANES = (16, 32)  # posteriors in one call in lanes: at least, if there are as many, and at most
_LANES = 128  # points in one call: what the caches hold
_LEAST_IN_LANES = 8  # posteriors
_NEWTON_STEPS = 80
_GOOD_PROGRESS = 0.1  # of the Newton decrement in a step: below it an old Hessian serves on
_LARGEST_FOR_EIGENVECTORS = 500
_STEP_SHARE = 1e-3  # of a standard deviation, for differences of gradients


@dataclass(frozen=True)
class Laplace:
    """Modes of some posteriors and Gaussians there; ``factor`` maps standard normals to deviations from the mode."""

    mode: Floats  # (posteriors, size)
    factor: Floats  # (posteriors, size, size)
    converged: npt.NDArray[np.bool_]
    steps: Floats  # (posteriors, size), for differences of gradients near the mode

    @property
    def covariance(self) -> Floats:
        return self.factor @ self.factor.transpose(0, 2, 1)


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


def use_compilation_cache() -> None:
    """Let JAX keep what ``kept_program`` leaves to it in the same folder."""
    folder = cache_folder()
    if folder is not None and jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)  # type: ignore[no-untyped-call]


@partial(jax.jit, static_argnums=0)
def _value_and_gradient(shape: Model, data: Any, point: jax.Array) -> Any:
    """Of the log density at one point: a program of its own, so that both programs below share one tracing."""
    return jax.value_and_grad(partial(shape.log_density, data))(point)


def _at_points(one: Callable[..., Any], arrays: tuple[Any, ...], points: int, in_lanes: bool) -> Callable[..., Any]:
    """``one`` of each posterior's arrays, at some points of each: a function of (size, posteriors * points)."""
    posteriors = len(jax.tree.leaves(arrays)[0])
    if in_lanes:
        return partial(lanes(one), *_last(arrays, points))
    shared, each = (None,) * len(arrays), (0,) * len(arrays)
    nested = jax.vmap(jax.vmap(one, (*shared, -1), -1), (*each, -2), -2)

    def at(positions: jax.Array) -> Any:
        made = nested(*arrays, positions.reshape(-1, posteriors, points))
        return jax.tree.map(lambda array: array.reshape(*array.shape[:-2], posteriors * points), made)

    return at


def _last(arrays: Any, points: int = 1) -> Any:
    """The posteriors' axis from the front to the end, each as often as it has points."""
    return jax.tree.map(lambda array: jnp.repeat(jnp.moveaxis(jnp.asarray(array), 0, -1), points, axis=-1), arrays)


def _evaluated(shape: Model, data: Data, points: jax.Array, in_lanes: bool) -> tuple[jax.Array, jax.Array]:
    at = _at_points(partial(_value_and_gradient, shape), (data,), points.shape[1], in_lanes)
    values, gradients = at(_last(points.reshape(-1, points.shape[2])))
    return values.reshape(points.shape[:2]), gradients.T.reshape(points.shape)


@kept_program
def _values_and_gradients(shape: Model, data: Data, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log densities and their gradients at (posteriors, points, size)."""
    return _evaluated(shape, data, points, in_lanes=False)


@partial(kept_program, options=OPTIONS)
def _values_and_gradients_in_lanes(shape: Model, data: Data, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _evaluated(shape, data, points, in_lanes=True)


def evaluate(shape: Model, data: Data, points: Floats) -> tuple[Floats, Floats]:
    """The same in batches of one fixed size, so that one compiled program serves every number of points."""
    posteriors, count, size = points.shape
    in_lanes = _in_lanes(shape, posteriors)
    program = _values_and_gradients_in_lanes if in_lanes else _values_and_gradients
    largest = _LANES if in_lanes else _LARGEST_BATCH[_backend()]
    batch = max(1, min(_BATCH, 2 * size + 1, largest // _pieces(posteriors, in_lanes)[0].stop))
    values, gradients = [], []
    for first in range(0, count, batch):
        part = points[:, first : first + batch]
        missing = batch - part.shape[1]
        padded = np.concatenate([part, np.repeat(part[:, -1:], missing, axis=1)], axis=1)
        value, gradient = _in_pieces(partial(program, shape), (data, padded), in_lanes)
        values.append(value[:, : batch - missing])
        gradients.append(gradient[:, : batch - missing])
    together = np.concatenate(values, axis=1)
    return np.where(np.isfinite(together), together, -np.inf), np.concatenate(gradients, axis=1)


def find_modes(shape: Model, data: Data, start: Floats) -> Laplace:
    """Damped Newton steps with Hessians from differences of gradients; directions of negative curvature are flipped.

    All posteriors step together; one that has converged stays where it is. A Hessian is most of the work where columns
    are many, so it is kept while its steps go on well.
    """
    point = start.copy()
    posteriors = len(point)
    each = np.arange(posteriors)
    steps = _first_steps(data, point.shape)
    shrink = 0.5 ** np.arange(24)
    converged = np.zeros(posteriors, dtype=bool)
    finished = np.zeros(posteriors, dtype=bool)
    last = np.full(posteriors, np.inf)
    old = False  # whether the Hessian is that of an earlier point
    for _ in range(_NEWTON_STEPS):
        if not old:
            value, gradient, precision = _curvature(shape, data, point, steps)
            factor, convex = inverse_roots(precision, any_root=True)
            steps = _fine_steps(precision)
        direction = _product(factor, gradient)
        # A step of more than one unit can end where a correlation is one in float64, from where nothing leads back.
        direction = direction / np.maximum(np.abs(direction).max(axis=1, keepdims=True), 1.0)
        # Newton decrement: twice the log density that is left to gain, were it quadratic.
        decrement = np.einsum("ri,ri->r", gradient, direction)
        if old and np.any(~finished & (decrement > _GOOD_PROGRESS * last)):
            old = False
            continue
        last = decrement
        converged |= ~finished & convex & (decrement < 1e-8)
        finished |= converged
        if finished.all():
            break
        values, gradients = evaluate(shape, data, point[:, None] + shrink[:, None] * direction[:, None])
        chosen = values.argmax(axis=1)
        better = values[each, chosen] > value
        if old and np.any(~finished & ~better):
            old = False
            continue
        converged |= ~finished & ~better & convex & (decrement < 1e-4)
        finished |= ~better
        point = np.where(finished[:, None], point, point + shrink[chosen][:, None] * direction)
        value = np.where(finished, value, values[each, chosen])
        gradient = np.where(finished[:, None], gradient, gradients[each, chosen])
        old = True
    _, gradient, precision = _curvature(shape, data, point, steps)
    factor, _ = inverse_roots(precision)
    # What an old Hessian left of the way, less than 1e-4 standard deviations, is gone for the price of a product.
    mode = np.where(converged[:, None], point + _product(factor, gradient), point)
    return Laplace(mode, factor, converged, _fine_steps(precision))


def inverse_roots(precision: Floats, any_root: bool = False) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Factors F, with F F^T the inverses of some symmetric matrices, and whether those are positive definite.

    Columns are scaled eigenvectors, in which a diagonal reference fits best. Of a matrix that is not positive definite
    the eigenvalues are made so: their absolute values, and at least 0.01, the scale of a wide prior. Where any root
    will do, and for large matrices, Cholesky's way is tried first, which takes a tenth of the time.
    """
    if any_root or precision.shape[1] > _LARGEST_FOR_EIGENVECTORS:
        from scipy.linalg.lapack import dtrtri

        try:
            inverses = [dtrtri(root, lower=1)[0] for root in np.linalg.cholesky(precision)]
        except np.linalg.LinAlgError:
            pass
        else:
            return np.stack(inverses).transpose(0, 2, 1), np.ones(len(precision), dtype=bool)
    eigenvalues, vectors = np.linalg.eigh(precision)
    convex = eigenvalues[:, 0] > 0
    floor = np.maximum(1e-2, 1e-12 * eigenvalues[:, -1:])
    kept = np.where(convex[:, None], eigenvalues, np.maximum(np.abs(eigenvalues), floor))
    return vectors / np.sqrt(kept)[:, None, :], convex


def _product(factor: Floats, gradient: Floats) -> Floats:
    """F F^T g."""
    return np.asarray(np.einsum("rij,rj->ri", factor, np.einsum("rij,ri->rj", factor, gradient)))


def curvature(shape: Model, data: Data, point: Floats, steps: Floats) -> Floats:
    """Minus the Hessians at one point of each posterior."""
    return _curvature(shape, data, point, steps)[2]


def _fine_steps(precision: Floats) -> Floats:
    """A share of a standard deviation of each coordinate, the others fixed."""
    return np.asarray(_STEP_SHARE / np.sqrt(np.maximum(np.diagonal(precision, axis1=1, axis2=2), 1.0)))


def _first_steps(data: Data, shape: tuple[int, ...]) -> Floats:
    """Differences small enough for the sharpest direction that this many rows can make."""
    rows = np.max([np.asarray(table.num_rows) for table in data], axis=0)
    return np.broadcast_to((_STEP_SHARE / np.sqrt(1.0 + rows))[:, None], shape)


def _curvature(shape: Model, data: Data, point: Floats, steps: Floats) -> tuple[Floats, Floats, Floats]:
    """Values, gradients and minus the Hessians at one point of each posterior."""
    size = point.shape[1]
    moves = steps[:, :, None] * np.eye(size)
    points = np.concatenate([point[:, None], point[:, None] + moves, point[:, None] - moves], axis=1)
    values, gradients = evaluate(shape, data, points)
    hessian = (gradients[:, 1 : size + 1] - gradients[:, size + 1 :]) / (2 * steps[:, :, None])
    precision = -(hessian + hessian.transpose(0, 2, 1)) / 2
    return values[:, 0], gradients[:, 0], np.nan_to_num(precision, nan=0.0, posinf=1e12, neginf=-1e12)


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


@kept_program
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
    position, acceptance, diverging, leaves = (np.concatenate(parts, axis=2) for parts in zip(*traces, strict=True))
    free = running.laplace.mode[:, None, None] + np.einsum("rij,rcdj->rcdi", running.laplace.factor, position)
    return running, Chains(free, diverging.sum(axis=(1, 2)), acceptance.mean(axis=(1, 2)), leaves.mean(axis=(1, 2)))


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
    in_lanes = _in_lanes(running.shape, len(running.keys))
    program = _transitions_in_lanes if in_lanes else _transitions
    point, keys, trace = _in_pieces(lambda *some: program(running.shape, *some, wanted), arrays, in_lanes)
    return replace(running, point=point, keys=keys), jax.tree.map(lambda part: part[:, :, :wanted], trace)


def _in_lanes(shape: Model, posteriors: int) -> bool:
    """Whether this batch runs in lanes. One fit does not: it has too few points at a time."""
    return bool(getattr(shape, "is_small", False)) and posteriors >= _LEAST_IN_LANES and _backend() == "cpu"


def _in_pieces(program: Callable[..., Any], arrays: tuple[Any, ...], in_lanes: bool) -> Any:
    """A program over pieces of some posteriors; what it makes of them joined, as NumPy arrays.

    In lanes one piece runs on each core. Others run one after the other: with LAPACK in two calls at a time XLA's
    threads can wait for each other forever (seen with jaxlib 0.10 on two cores), and in lanes nothing calls it.
    """
    arrays = jax.tree.map(np.asarray, arrays)
    posteriors = len(jax.tree.leaves(arrays)[0])
    pieces = _pieces(posteriors, in_lanes)

    def run(piece: slice) -> Any:
        return jax.tree.map(np.asarray, program(*jax.tree.map(lambda array: array[piece], arrays)))

    if in_lanes and len(pieces) > 1:
        with ThreadPoolExecutor(usable_cores()) as pool:
            made = list(pool.map(run, pieces))
    else:
        made = [run(piece) for piece in pieces]
    overlap = len(pieces) * pieces[0].stop - posteriors
    made[-1] = jax.tree.map(lambda array: array[overlap:], made[-1])
    return jax.tree.map(lambda *parts: np.concatenate(parts), *made)


def _pieces(posteriors: int, in_lanes: bool = False) -> list[slice]:
    """All of one length, so that one program serves them: the last may overlap the one before.

    Larger pieces gain nothing on a processor, and with a thousand points in one call XLA's threads can wait for each
    other as well. A GPU takes all at once. In lanes every core has as many pieces, and these an even length.
    """
    most = posteriors if _backend() == "gpu" else _PIECES_IN_LANES[1] if in_lanes else _LARGEST_PIECE
    number = -(-posteriors // most)
    if in_lanes:
        cores = usable_cores()
        number = min(-(-number // cores) * cores, max(number, posteriors // _PIECES_IN_LANES[0]))
    length = -(-posteriors // number)
    if in_lanes:
        length = min(posteriors, length + length % 2)
    starts = [*range(0, posteriors - length, length), posteriors - length]
    return [slice(start, start + length) for start in starts]


def _backend() -> str:
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def _moved(
    shape: Model,
    data: Data,
    center: jax.Array,
    factor: jax.Array,
    point: Point,
    keys: jax.Array,
    step_size: jax.Array,
    reference: Reference,
    wanted: int,
    *,
    in_lanes: bool,
) -> tuple[Point, jax.Array, Trace]:
    """One loop for all chains of all posteriors, each turn a step of every chain that is not done."""
    posteriors, chains = keys.shape[:2]

    def energy(data: Any, center: jax.Array, factor: jax.Array, whitened: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = _value_and_gradient(shape, data, center + factor @ whitened)
        return -value, -(gradient @ factor)

    potential = _at_points(energy, (data, center, factor), chains, in_lanes)
    step_size, reference = _last((step_size, reference), chains)
    every = _last(jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), point))
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


@kept_program
def _transitions(shape: Model, *arrays: Any) -> tuple[Point, jax.Array, Trace]:
    """Some transitions of all chains."""
    return _moved(shape, *arrays, in_lanes=False)


@partial(kept_program, options=OPTIONS)
def _transitions_in_lanes(shape: Model, *arrays: Any) -> tuple[Point, jax.Array, Trace]:
    return _moved(shape, *arrays, in_lanes=True)


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
