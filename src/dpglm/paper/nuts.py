"""The no-U-turn sampler as one loop with one gradient in its body.

A tree is built leaf by leaf, and each turn of the loop is one step of a chain: in a batch no chain waits for another
one's larger tree, and the compiler sees the likelihood once. Multinomial weights as in Betancourt (2017), the iterative
U-turn check as in NumPyro (Phan, Pradhan & Jankowiak 2019).

All chains step at once, and are the last axis of every array: numbers are (chains,), vectors (size, chains). Inner
loops then run over contiguous chains, and what holds for a chain applies to its vectors as it is.

The steps are split (Shahbaba, Lan, Johnson & Neal 2014): motion under a reference normal is a rotation, followed
exactly, and only what the density adds to it is a kick. A posterior that is nearly normal is then crossed in three
steps, where leapfrog needs seven; far from normal, or with small steps, the two are alike. Step size and reference are
arguments; sampler.py adapts them between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array, lax

T = TypeVar("T")

LARGEST_DEPTH = 8
_LARGEST_ENERGY_ERROR = 1000.0

Potential = Callable[[Any], tuple[Any, Any]]  # energies and gradients at positions


class Point(NamedTuple):
    """A position with its energy (minus log density) and gradient."""

    position: Array
    energy: Array
    gradient: Array


class Reference(NamedTuple):
    """A normal with independent coordinates, near the posterior; its precision is the mass."""

    mean: Array
    variance: Array

    def pull(self, position: Array) -> Array:
        """Gradient of its energy."""
        return (position - self.mean) / self.variance

    def rotated(self, position: Array, momentum: Array, angle: Array) -> tuple[Array, Array]:
        """Motion under it for a time: every coordinate turns at the same rate."""
        away = position - self.mean
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        return (
            self.mean + cosine * away + sine * self.variance * momentum,
            cosine * momentum - sine * away / self.variance,
        )


class Edge(NamedTuple):
    """One end of the trajectory."""

    position: Array
    momentum: Array
    gradient: Array


class _Tree(NamedTuple):
    """The trajectory so far, and the half that is being added to it."""

    left: Edge
    right: Edge
    proposal: Point
    log_weight: Array
    momentum_sum: Array
    depth: Array
    start_energy: Array
    acceptance: Array  # summed over leaves
    leaves: Array
    # the new half
    to_right: Array
    leaf: Array  # number of its next one
    half_proposal: Point
    half_log_weight: Array
    half_momentum_sum: Array


class Trace(NamedTuple):
    """What is kept of each transition."""

    position: Array
    acceptance: Array
    diverging: Array
    leaves: Array


class Loop(NamedTuple):
    """Chains at work: transitions done, and steps made."""

    tree: _Tree
    checkpoints: Array  # (depth, 2, size, chains): momenta, and sums up to there, of leaves that open a subtree
    trace: Trace
    done: Array
    steps: Array


class Randomness(NamedTuple):
    """Momenta of all transitions to come, and keys for what each step draws."""

    momenta: Array
    keys: Array


def begin(start: Point, keys: Array, reference: Reference, capacity: int) -> tuple[Loop, Randomness]:
    """Chains before their next transitions, at most ``capacity`` of them."""
    size, chains = start.position.shape

    def drawn(key: Array) -> tuple[Array, Array, Array]:
        momentum_key, side_key, step_key = jax.random.split(key, 3)
        return jax.random.normal(momentum_key, (capacity + 1, size)), jax.random.bernoulli(side_key), step_key

    normals, sides, step_keys = jax.vmap(drawn, out_axes=(-1, -1, 0))(keys)
    momenta = normals / jnp.sqrt(reference.variance)
    numbers = jnp.zeros((capacity, chains))
    empty = Trace(jnp.zeros((capacity, size, chains)), numbers, numbers.astype(bool), numbers.astype(jnp.int32))
    none = jnp.zeros(chains, jnp.int32)
    tree = _new_tree(start, momenta[0], reference.variance, sides)
    checkpoints = jnp.zeros((LARGEST_DEPTH, 2, size, chains))
    return Loop(tree, checkpoints, empty, none, none), Randomness(momenta, step_keys)


def turn(
    potential: Potential,
    loop: Loop,
    randomness: Randomness,
    step_size: Array,
    reference: Reference,
    wanted: Array | int,
) -> Loop:
    """One step of each chain that has not made the transitions that are wanted.

    After a transition the tree is a new one, of a single point: the last draw.
    """
    uniforms = jax.vmap(_three_uniforms, out_axes=-1)(randomness.keys, loop.steps)
    tree, checkpoints, ends, diverging = _add_leaf(
        potential, loop.tree, loop.checkpoints, step_size, reference, uniforms
    )
    active = loop.done < wanted
    ends = ends & active
    kept = Trace(tree.proposal.position, tree.acceptance / tree.leaves, diverging, tree.leaves)
    trace = _written(loop.trace, kept, ends, loop.done)
    done = loop.done + ends
    momentum = jnp.take_along_axis(randomness.momenta, done[None, None], axis=0, mode="clip")[0]
    fresh = _new_tree(tree.proposal, momentum, reference.variance, uniforms[2] < 0.5)
    tree = _choose(active, _choose(ends, fresh, tree), loop.tree)
    return Loop(tree, checkpoints, trace, done, loop.steps + 1)


def _written(trace: Trace, kept: Trace, ends: Array, place: Array) -> Trace:
    """The transitions that end, each at its place. Chains are seldom far apart: few places have to be gone through."""

    def write(number: Array, trace: Trace) -> Trace:
        here = ends & (place == number)
        return Trace(*(old.at[number].set(jnp.where(here, new, old[number]))
                       for new, old in zip(kept, trace, strict=True)))  # fmt: skip

    first, last = jnp.min(jnp.where(ends, place, len(trace.acceptance))), jnp.max(jnp.where(ends, place, -1))
    return cast("Trace", lax.fori_loop(first, last + 1, write, trace))


def _three_uniforms(key: Array, step: Array) -> Array:
    return jax.random.uniform(jax.random.fold_in(key, step), (3,))


def _choose(condition: Array, yes: T, no: T) -> T:
    """Leaf by leaf."""
    return cast("T", jax.tree.map(lambda one, other: jnp.where(condition, one, other), yes, no))


def _new_tree(start: Point, momentum: Array, inverse_mass: Array, to_right: Array) -> _Tree:
    """Trajectories of one point."""
    edge = Edge(start.position, momentum, start.gradient)
    zero = jnp.zeros_like(start.energy)
    none = zero.astype(jnp.int32)
    energy = start.energy + _kinetic(momentum, inverse_mass)
    return _Tree(
        edge, edge, start, zero, momentum, none, energy, zero, none,
        to_right, none, start, zero - jnp.inf, jnp.zeros_like(momentum),
    )  # fmt: skip


def _add_leaf(
    potential: Potential, tree: _Tree, checkpoints: Array, step_size: Array, reference: Reference, uniforms: Array
) -> tuple[_Tree, Array, Array, Array]:
    """One step; returns the trees, whether their transitions end here, and whether they diverged."""
    start = _choose(tree.to_right, tree.right, tree.left)
    step = jnp.where(tree.to_right, step_size, -step_size)
    kicked = start.momentum - step / 2 * (start.gradient - reference.pull(start.position))
    position, momentum = reference.rotated(start.position, kicked, step)
    energy, gradient = potential(position)
    momentum = momentum - step / 2 * (gradient - reference.pull(position))
    edge = Edge(position, momentum, gradient)
    right = _choose(tree.to_right, edge, tree.right)
    left = _choose(tree.to_right, tree.left, edge)

    inverse_mass = reference.variance
    error = energy + _kinetic(momentum, inverse_mass) - tree.start_energy
    error = jnp.where(jnp.isnan(error), jnp.inf, error)
    diverging = error > _LARGEST_ENERGY_ERROR

    # the new half: its proposal by weight, its momenta, its own U-turns
    half_log_weight = jnp.logaddexp(tree.half_log_weight, -error)
    chosen = uniforms[0] < jnp.exp(-error - half_log_weight)
    point = Point(position, energy, gradient)
    half_proposal = _choose(chosen, point, tree.half_proposal)
    half_sum = tree.half_momentum_sum + momentum
    checkpoints, turned = _turns_within(checkpoints, tree.leaf, momentum, half_sum, inverse_mass)

    # a whole half joins the tree
    invalid = turned | diverging
    whole = tree.leaf + 1 == jnp.left_shift(1, tree.depth)
    joined = whole & ~invalid
    taken = joined & (uniforms[1] < jnp.exp(half_log_weight - tree.log_weight))
    proposal = _choose(taken, half_proposal, tree.proposal)
    momentum_sum = tree.momentum_sum + half_sum
    depth = tree.depth + joined
    full = joined & (_is_turning(left.momentum, right.momentum, momentum_sum, inverse_mass) | (depth == LARGEST_DEPTH))
    grown = _Tree(
        left=left,
        right=right,
        proposal=proposal,
        log_weight=jnp.where(joined, jnp.logaddexp(tree.log_weight, half_log_weight), tree.log_weight),
        momentum_sum=jnp.where(joined, momentum_sum, tree.momentum_sum),
        depth=depth,
        start_energy=tree.start_energy,
        acceptance=tree.acceptance + jnp.minimum(1.0, jnp.exp(-error)),
        leaves=tree.leaves + 1,
        to_right=jnp.where(joined, uniforms[2] < 0.5, tree.to_right),
        leaf=jnp.where(joined, 0, tree.leaf + 1),
        half_proposal=half_proposal,
        half_log_weight=jnp.where(joined, -jnp.inf, half_log_weight),
        half_momentum_sum=jnp.where(joined, 0.0, half_sum),
    )
    return grown, checkpoints, invalid | full, diverging


def _turns_within(
    checkpoints: Array, leaf: Array, momentum: Array, momentum_sum: Array, inverse_mass: Array
) -> tuple[Array, Array]:
    """Whether a balanced subtree of the new half that ends at this leaf turns; a leaf that opens one is kept.

    Leaf n, counted from 0, is kept at level bit_count(n // 2) if it is even; if odd, it closes as many subtrees as n
    has trailing ones, whose first leaves are at the levels just up to that one.
    """
    last = lax.population_count(jnp.right_shift(leaf, 1))
    closing = lax.population_count(jnp.bitwise_and(jnp.bitwise_not(leaf + 1), leaf))
    even = jnp.bitwise_and(leaf, 1) == 0

    def look(level: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        checkpoints, turned = state
        keep = even & (level == last)
        kept = jnp.where(keep, jnp.stack([momentum, momentum_sum]), checkpoints[level])
        checkpoints = lax.dynamic_update_index_in_dim(checkpoints, kept, level, 0)
        first, before = kept
        turning = _is_turning(first, momentum, momentum_sum - before + first, inverse_mass)
        return checkpoints, turned | (turning & (level <= last) & (level > last - closing))

    checkpoints, turned = lax.fori_loop(0, jnp.max(last) + 1, look, (checkpoints, jnp.zeros_like(even)))
    return checkpoints, ~even & turned


def _is_turning(first: Array, last: Array, momentum_sum: Array, inverse_mass: Array) -> Array:
    """Whether the trajectory between two leaves has begun to turn back, at either end."""
    along = (momentum_sum - (first + last) / 2) * inverse_mass
    return (jnp.sum(along * first, axis=-2) <= 0) | (jnp.sum(along * last, axis=-2) <= 0)


def _kinetic(momentum: Array, inverse_mass: Array) -> Array:
    return jnp.sum(inverse_mass * momentum**2, axis=-2) / 2
