"""Differentially private stochastic gradient Langevin dynamics (Wang, Fienberg & Smola 2015; Li et al. 2019).

    theta <- theta + eta/2 (grad log prior + 1/q (sum over the batch of clipped gradients + noise)) + the rest

Each row is in a batch independently with probability q = 1/sqrt(N), so that a batch has sqrt(N) rows on average, and
the gradient of its log likelihood is clipped to a norm. Langevin dynamics want noise of variance eta a step, privacy
wants noise of its own on the sum of gradients; both are Gaussian, so the larger one serves for both. Where privacy's is
the larger one, the chain samples a hotter distribution than the posterior, and says nothing about it. Under a prior
that holds the slopes in a ball, a step that leaves the ball ends at its nearest point (Bubeck, Eldan & Lehec 2018).

The guarantee is that of langevin_accounting.py. It is a yardstick: its random numbers are a simulation's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import binom

from dpglm.analyst.priors import NormalPrior, SphericalPrior
from dpglm.errors import InputError
from dpglm.paper.baselines.langevin_accounting import noise_multiplier
from dpglm.paper.baselines.row_likelihood import row_likelihood
from dpglm.paper.baselines.rows_posterior import Floats, RowsPosterior
from dpglm.paper.outcomes import Outcome, outcome_of
from dpglm.paper.prior_densities import nearest

if TYPE_CHECKING:
    from dpglm.paper.baselines.coded_rows import ScaledRows

ITERATIONS, BURN_IN = 10_000, 6_000  # the paper's
_DECAY_FROM = 100  # iterations after which a decaying step has begun to fall
_OVERFLOW = 1e-18  # probability that a batch does not fit its padding; times the iterations, far below any delta


@dataclass(frozen=True)
class SgldSettings:
    """What has to be tuned. The step at iteration t is learning_rate x (1 + t/100)^-decay."""

    learning_rate: float
    clipping_norm: float
    decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clipping_norm"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(name, getattr(self, name), "must be a number above 0", "correct it")
        if not 0 <= self.decay <= 1:
            raise InputError("decay", self.decay, "must lie between 0 and 1", "use 0 for a constant step")


def dp_sgld(
    rows: ScaledRows,
    settings: SgldSettings,
    *,
    epsilon: float,
    delta: float,
    link: str | None = None,
    prior: NormalPrior | SphericalPrior | None = None,
    iterations: int = ITERATIONS,
    burn_in: int = BURN_IN,
    seed: int = 0,
) -> RowsPosterior:
    """One private chain for a logistic or Poisson regression; its draws after burn-in.

    ``settings`` must come from public knowledge: tuned on simulated tables, never on these rows.
    """
    return dp_sgld_many(
        [rows], [settings], epsilons=[epsilon], delta=delta, link=link, prior=prior, iterations=iterations,
        burn_in=burn_in, seed=seed,
    )[0]  # fmt: skip


def dp_sgld_many(
    tables: Sequence[ScaledRows],
    settings: Sequence[SgldSettings],
    *,
    epsilons: Sequence[float],
    delta: float,
    link: str | None = None,
    prior: NormalPrior | SphericalPrior | None = None,
    iterations: int = ITERATIONS,
    burn_in: int = BURN_IN,
    seed: int = 0,
) -> list[RowsPosterior]:
    """One chain for each table with its settings and epsilon, all of one shape, in one batched program."""
    first = tables[0].design
    if first.family.name not in ("logistic", "poisson"):
        raise InputError("family", first.family.name, "has a variance that DP-SGLD would have to sample", "use another")
    if not 0 <= burn_in < iterations:
        raise InputError("burn_in", burn_in, "must leave some of the iterations", "use a smaller number")
    if not isinstance(prior, NormalPrior | SphericalPrior | None):
        raise InputError("prior", prior, "must be a NormalPrior or a SphericalPrior", "use one of them")
    outcome = outcome_of(first.family.name, link, first.response_range)
    num_rows = len(tables[0].y)
    probability = num_rows**-0.5
    noises = [noise_multiplier(float(epsilon), delta, probability, iterations) for epsilon in epsilons]
    numbers = np.array(
        [[noise, s.learning_rate, s.clipping_norm, s.decay] for noise, s in zip(noises, settings, strict=True)]
    )
    matrices, outcomes = (np.stack([getattr(table, part) for table in tables]) for part in ("matrix", "y"))
    names, chosen = first.coefficient_names, prior or NormalPrior()
    draws = chains(outcome, names, chosen, matrices, outcomes, numbers, iterations, burn_in, seed)
    nothing = np.full(len(names), np.nan)
    return [
        RowsPosterior(table.design, own[None], nothing, nothing, {"method": "dp_sgld", "noise_multiplier": noise})
        for table, own, noise in zip(tables, draws, noises, strict=True)
    ]


def chains(
    outcome: Outcome,
    names: tuple[str, ...],
    prior: NormalPrior | SphericalPrior,
    matrices: Floats,
    outcomes: Floats,
    numbers: Floats,
    iterations: int,
    burn_in: int,
    seed: int,
    keep_every: int = 1,
) -> Floats:
    """Draws (chains, kept, coefficients); ``numbers`` of a chain: noise, learning rate, clipping norm, decay."""
    num_rows = matrices.shape[1]
    capacity = min(num_rows, int(binom.isf(_OVERFLOW, num_rows, num_rows**-0.5)) + 1)
    keys = jax.random.split(jax.random.key(seed), len(matrices))
    drawn = _chains(
        outcome, (names, prior), capacity, (iterations, burn_in, keep_every), jnp.asarray(matrices),
        jnp.asarray(outcomes), jnp.asarray(numbers), keys,
    )  # fmt: skip
    return np.asarray(drawn)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _chains(
    outcome: Outcome, named_prior: Any, capacity: int, length: tuple[int, int, int], matrices: Any, outcomes: Any,
    numbers: Any, keys: Any,
) -> jax.Array:  # fmt: skip
    return jax.vmap(partial(_chain, outcome, named_prior, capacity, length))(matrices, outcomes, numbers, keys)


def _chain(
    outcome: Outcome, named_prior: Any, capacity: int, length: tuple[int, int, int], matrix: Any, y: Any,
    numbers: Any, key: Any,
) -> jax.Array:  # fmt: skip
    """One chain from zero; after burn-in every so many draws are kept."""
    iterations, burn_in, keep_every = length
    names, prior = named_prior
    scales = prior.scales(names)
    noise, learning_rate, clipping_norm, decay = numbers
    num_rows, size = matrix.shape
    probability = num_rows**-0.5
    likelihood = row_likelihood(outcome.family_name, outcome.link)
    slope = jax.vmap(jax.grad(lambda u, outcome: likelihood(u, outcome, jnp.ones(()))))
    lengths = jnp.sqrt(jnp.sum(matrix**2, axis=1))

    def step(number: jax.Array, theta: jax.Array) -> jax.Array:
        batch_key, noise_key = jax.random.split(jax.random.fold_in(key, number))
        chosen, inside = poisson_batch(batch_key, num_rows, probability, capacity)
        rows = matrix[chosen]
        slopes = slope(rows @ theta, y[chosen])
        # A row's gradient is its slope times the row: clip by their norms.
        clipped = slopes * jnp.minimum(1.0, clipping_norm / jnp.maximum(jnp.abs(slopes) * lengths[chosen], 1e-300))
        total = (clipped * inside) @ rows
        eta = learning_rate * (1 + number / _DECAY_FROM) ** -decay
        drift = eta / 2 * (-theta / scales**2 + total / probability)
        private_stddev = eta / 2 / probability * noise * clipping_norm
        stddev = jnp.maximum(private_stddev, jnp.sqrt(eta))
        moved: jax.Array = theta + drift + stddev * jax.random.normal(noise_key, (size,))
        return nearest(prior, names, moved) if isinstance(prior, SphericalPrior) else moved

    def kept(theta: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        last = jax.lax.fori_loop(first, first + keep_every, step, theta)
        return last, last

    start = jax.lax.fori_loop(0, burn_in, step, jnp.zeros(size))
    return jax.lax.scan(kept, start, jnp.arange(burn_in, iterations, keep_every))[1]


def poisson_batch(key: Any, num_rows: int, probability: float, capacity: int) -> tuple[jax.Array, jax.Array]:
    """Positions of a batch that holds each row independently with this probability, padded, and which are real.

    The gaps between successes of independent trials are geometric: this draws gaps, not a number for every row.
    """
    uniform = jax.random.uniform(key, (capacity,), minval=np.finfo(np.float64).tiny)
    gaps = jnp.floor(jnp.log(uniform) / np.log1p(-probability)) + 1
    positions = jnp.cumsum(gaps) - 1
    inside = positions < num_rows
    return jnp.where(inside, positions, 0).astype(jnp.int32), inside
