"""The posterior that the rows themselves give: the same prior, scaling and sampler as a fit, and no privacy at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpglm.analyst.convergence import convergence
from dpglm.analyst.priors import Prior, prior_of
from dpglm.errors import InputError
from dpglm.paper.baselines.row_likelihood import row_likelihood
from dpglm.paper.baselines.rows_posterior import RowsPosterior
from dpglm.paper.batches import coefficients_of
from dpglm.paper.model import _LOG_SPREAD_PRIOR
from dpglm.paper.modes import find_modes
from dpglm.paper.outcomes import Outcome, outcome_of
from dpglm.paper.prior_densities import constrained
from dpglm.paper.sampler import sample_chains

if TYPE_CHECKING:
    from dpglm.paper.baselines.coded_rows import ScaledRows


class RowsData(NamedTuple):
    """The arrays of one table."""

    matrix: jax.Array  # (rows, coefficients)
    y: jax.Array
    num_rows: jax.Array


@dataclass(frozen=True)
class RowsModel:
    """A regression on rows, in the shape that the sampler takes (``dpglm.paper.batches.Model``)."""

    names: tuple[str, ...]
    outcome: Outcome
    prior: Prior
    fixed_spread: float | None

    @property
    def infers_spread(self) -> bool:
        return self.outcome.has_spread and self.fixed_spread is None

    @property
    def size(self) -> int:
        return len(self.names) + int(self.infers_spread)

    def log_density(self, data: Any, free: jax.Array) -> jax.Array:
        """Log posterior density of coefficients and, where it is inferred, the logarithm of the spread."""
        (rows,) = data
        coefficients, log_prior = constrained(self.prior, self.names, free[: len(self.names)])
        spread = jnp.asarray(1.0 if self.fixed_spread is None else self.fixed_spread)
        if self.infers_spread:
            center, scale = _LOG_SPREAD_PRIOR[self.outcome.family_name]
            spread = jnp.exp(free[-1]) + (1.0 if self.outcome.family_name == "poisson" else 0.0)
            log_prior += -0.5 * ((free[-1] - center) / scale) ** 2
        likelihood = row_likelihood(self.outcome.family_name, self.outcome.link)
        return log_prior + jnp.sum(likelihood(rows.matrix @ coefficients, rows.y, spread))

    def coefficients(self, _: Any, free: jax.Array) -> jax.Array:
        """The coefficients that a free vector stands for."""
        return constrained(self.prior, self.names, free[: len(self.names)])[0]


def non_private(
    rows: ScaledRows,
    *,
    link: str | None = None,
    dispersion: float | str | None = None,
    prior: Any = None,
    draws: int = 1_000,
    chains: int = 4,
    seed: int = 0,
) -> RowsPosterior:
    """The posterior of the coefficients given the rows themselves, by NUTS. Not private.

    Options are those of ``dpglm.fit``; counts are Poisson with ``dispersion=1``.
    """
    return non_private_many(
        [rows], link=link, dispersion=dispersion, prior=prior, draws=draws, chains=chains, seed=seed
    )[0]


def non_private_many(
    tables: Sequence[ScaledRows],
    *,
    link: str | None = None,
    dispersion: float | str | None = None,
    prior: Any = None,
    draws: int = 1_000,
    chains: int = 4,
    seed: int = 0,
) -> list[RowsPosterior]:
    """One posterior a table, all of one design and one number of rows, in one batched program."""
    model, data = stacked_rows(tables, link, dispersion, prior)
    laplace = find_modes(model, data, np.zeros((len(tables), model.size)))
    sampled = sample_chains(model, data, laplace, chains=chains, draws=draws, seed=seed)
    results = []
    for table, coefficients in zip(tables, coefficients_of(model, data, sampled.draws), strict=True):
        bulk, tail, r_hat = convergence(coefficients)
        facts = {"method": "non_private", "seed": seed, "link": model.outcome.link}
        results.append(RowsPosterior(table.design, coefficients, r_hat, np.minimum(bulk, tail), facts))
    return results


def stacked_rows(
    tables: Sequence[ScaledRows], link: str | None, dispersion: float | str | None, prior: Any
) -> tuple[RowsModel, tuple[RowsData]]:
    """The shape that the tables share, and their arrays with a leading axis."""
    if not tables:
        raise InputError("tables", tables, "must hold at least one table", "pass scaled_rows(...)")
    first = tables[0].design
    names = first.coefficient_names
    for table in tables:
        if table.design.coefficient_names != names or table.x.shape != tables[0].x.shape:
            raise InputError("tables", table.x.shape, "has another shape than the first", "do it by itself")
    fixed = None if dispersion in (None, "infer") else float(dispersion)
    outcome = outcome_of(first.family.name, link, first.response_range)
    model = RowsModel(names, outcome, prior_of(prior, names), fixed if outcome.has_spread else None)
    matrices = jnp.asarray(np.stack([table.matrix for table in tables]))
    outcomes = jnp.asarray(np.stack([table.y for table in tables]))
    count = jnp.full(len(tables), float(matrices.shape[1]))
    return model, (RowsData(matrices, outcomes, count),)
