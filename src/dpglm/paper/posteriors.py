"""From assembled releases to fits: modes, draws, privacy inflation. All posteriors of a batch in one program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpglm.analyst.cautions import WANTED_ESS
from dpglm.analyst.convergence import convergence
from dpglm.analyst.result import Diagnostics, Fit, import_arviz
from dpglm.errors import InputError
from dpglm.paper.assemble import NEGLIGIBLE_NOISE, assemble, stacked, starts
from dpglm.paper.batches import Data, Floats, Model, coefficients_of, evaluate
from dpglm.paper.model import ModelShape, coefficient_covariance, constrain, expected_data, table_coefficients
from dpglm.paper.modes import Laplace, curvature, find_modes, inverse_roots
from dpglm.paper.sampler import WARMUP, Progress, continue_chains, start_chains
from dpglm.releases import Release

if TYPE_CHECKING:
    from dpglm.analyst.fit import Asked

_FIRST_DRAWS, _MOST_DRAWS = 1_000, 8_000
_DRAWS_FOR_STDDEV = 400


def fit_moments(groups: Sequence[tuple[Release, ...]], asked: Asked) -> list[Fit]:
    """One posterior a group of releases, all of one shape, in one batch."""
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise InputError(
            "jax_enable_x64", False, "single precision loses what the sums tell", "leave JAX's double precision on"
        )
    assembled = [assemble(group, prior=asked.prior, **asked.options) for group in groups]
    shape, data = assembled[0][0], [each for _, each in assembled]
    for group, (other, _) in zip(groups, assembled, strict=True):
        if other != shape:
            raise InputError("releases", group[0].formula, "has another shape than the first", "fit it by itself")
    together = stacked(data)
    laplace = find_modes(shape, together, starts(shape, data))
    units = np.stack([group[0].design.to_original_units()[0] for group in groups])
    inflation = _inflation(shape, together, laplace, units)
    drawn = _draws(shape, together, laplace, units, asked)
    results = []
    for number, group in enumerate(groups):
        spread, predictor_stddev = _of_draws(shape, data[number], drawn.free[number])
        results.append(
            Fit(
                releases=group,
                coefficients=drawn.coefficients[number],
                spread=np.asarray(spread) if shape.has_spread else None,
                predictor_stddev=float(predictor_stddev),
                inflation=inflation[number],
                diagnostics=drawn.diagnostics[number],
                prior=shape.prior,
                method=asked.method,
                options=asked.facts(),
            )
        )
    return results


class _Drawn(NamedTuple):
    """Draws of some posteriors: free vectors, what they stand for, and how well they were drawn."""

    free: Floats
    coefficients: Floats
    diagnostics: list[Diagnostics]


def _convergence_as_shown(coefficients: Floats, units: Floats) -> tuple[Floats, Floats, Floats]:
    """Effective sizes and R-hat of what a summary shows: in the user's units an intercept is a sum of others."""
    shown = np.einsum("rcdj,rij->cdri", coefficients, units)
    flat = shown.reshape(*shown.shape[:2], -1)  # all coefficients of all posteriors in one call
    ess_bulk, ess_tail, r_hat = (part.reshape(shown.shape[2:]) for part in convergence(flat))
    return ess_bulk, ess_tail, r_hat


def _draws(shape: Model, data: Data, laplace: Laplace, units: Floats, asked: Asked) -> _Drawn:
    """``units``, (posteriors, coefficients, coefficients), takes scaled coefficients to the user's."""
    if asked.method == "laplace":
        return _laplace_draws(shape, data, laplace, asked.draws or 4 * _FIRST_DRAWS, asked.seed)
    return _nuts_draws(shape, data, laplace, units, asked.draws, asked.chains, asked.seed, asked.progress)


def _nuts_draws(
    shape: Model,
    data: Data,
    laplace: Laplace,
    units: Floats,
    draws: int | None,
    chains: int,
    seed: int,
    progress: Progress | None,
) -> _Drawn:
    """Draws, extended where the first ones are too few and the user left their number open."""

    def bar(before: int, total: int) -> Progress | None:
        """One bar for warm-up and draws."""
        return None if progress is None else lambda done, _: progress(before + done, total)

    total = WARMUP + (draws or _FIRST_DRAWS)
    running = start_chains(shape, data, laplace, chains=chains, seed=seed, progress=bar(0, total))
    running, sampled = continue_chains(running, total - WARMUP, bar(WARMUP, total))
    while True:
        coefficients = coefficients_of(shape, data, sampled.draws)
        ess_bulk, ess_tail, r_hat = _convergence_as_shown(coefficients, units)
        diagnostics = [
            Diagnostics(
                ess_bulk=ess_bulk[number],
                ess_tail=ess_tail[number],
                r_hat=r_hat[number],
                divergences=int(sampled.divergences[number]),
                acceptance=float(sampled.acceptance[number]),
                mode_converged=bool(laplace.converged[number]),
                pareto_k=None,
            )
            for number in range(len(coefficients))
        ]
        smallest = min(float(min(d.ess_bulk.min(), d.ess_tail.min())) for d in diagnostics)
        made = sampled.draws.shape[2]
        if draws is not None or smallest >= WANTED_ESS or made >= _MOST_DRAWS:
            return _Drawn(sampled.draws, coefficients, diagnostics)
        enough = 1.2 * made * WANTED_ESS / max(np.nan_to_num(smallest), 50)
        wanted = min(_MOST_DRAWS, int(np.ceil(enough / 500)) * 500)
        more_wanted = max(wanted - made, 500)
        running, more = continue_chains(running, more_wanted, bar(0, more_wanted))
        sampled = sampled.joined(more)


def _laplace_draws(shape: Model, data: Data, laplace: Laplace, draws: int, seed: int) -> _Drawn:
    """Draws from the Gaussian, with the tail index of the importance weights: above 0.7 it is not to be trusted."""
    az = import_arviz()
    rng = np.random.default_rng(seed)
    posteriors, size = laplace.mode.shape
    standard = rng.normal(size=(posteriors, draws, size))
    free = laplace.mode[:, None] + np.einsum("rij,rcj->rci", laplace.factor, standard)
    values, _ = evaluate(shape, data, free)
    log_weights = values + 0.5 * np.sum(standard**2, axis=2)
    diagnostics = []
    for number in range(posteriors):
        finite = np.where(np.isfinite(log_weights[number]), log_weights[number], -1e10)
        _, pareto_k = az.psislw(finite - finite.max())
        ones = np.ones(len(shape.names))
        diagnostics.append(
            Diagnostics(draws * ones, draws * ones, ones, 0, 1.0, bool(laplace.converged[number]), float(pareto_k))
        )
    return _Drawn(free[:, None], coefficients_of(shape, data, free[:, None]), diagnostics)


@partial(jax.jit, static_argnums=0)
def _of_draws(shape: ModelShape, data: Any, free: Any) -> tuple[jax.Array, jax.Array]:
    """Spread of all draws of one posterior, and the posterior mean of sd(u), from some of them.

    Data is an argument, so releases of one shape share the program. Of several tables the largest sd(u) counts.
    """

    def spread_of(point: jax.Array) -> jax.Array:
        return constrain(shape, data, point)[0].spread

    def stddev_of(point: jax.Array) -> jax.Array:
        parameters, _ = constrain(shape, data, point)
        variances = []
        for table, its_data, its in zip(shape.tables, data, parameters.tables, strict=True):
            slopes = table_coefficients(table, its_data, parameters.coefficients)[1]
            variances.append(slopes @ its.covariance @ slopes)
        return jnp.sqrt(jnp.max(jnp.stack(variances)))

    every = jnp.reshape(free, (-1, free.shape[-1]))
    some = every[:: max(1, len(every) // _DRAWS_FOR_STDDEV)]
    return jax.vmap(jax.vmap(spread_of))(free), jnp.mean(jax.vmap(stddev_of)(some))


@partial(jax.jit, static_argnums=0)
def _expected(shape: ModelShape, data: Data, mode: Any) -> Data:
    return jax.vmap(partial(expected_data, shape))(data, mode)


def _inflation(shape: ModelShape, data: Data, laplace: Laplace, units: Floats) -> Floats:
    """Posterior standard deviation over the one that the same statistics would give without privacy noise.

    Both at the mode, from the curvature for statistics that equal their expectation there, so that the noise in
    the release itself does not enter. First in the user's units (``units`` takes scaled coefficients there), then in
    scaled ones: (posteriors, 2, coefficients).
    """
    expected = _expected(shape, data, laplace.mode)
    silent = tuple(
        table._replace(noise_stddevs=np.full(table.noise_stddevs.shape, NEGLIGIBLE_NOISE)) for table in expected
    )
    noisy, ideal = (_coefficient_covariance(shape, version, laplace) for version in (expected, silent))
    ratios = [np.einsum("rij,rjk,rik->ri", turn, noisy, turn) / np.einsum("rij,rjk,rik->ri", turn, ideal, turn)
              for turn in (units, np.broadcast_to(np.eye(units.shape[1]), units.shape))]  # fmt: skip
    return np.asarray(np.sqrt(np.stack(ratios, axis=1)))


def _coefficient_covariance(shape: ModelShape, data: Data, laplace: Laplace) -> Floats:
    """Gaussian approximation at the mode of other data, carried from the free vector to the scaled coefficients."""
    factor, _ = inverse_roots(curvature(shape, data, laplace.mode, laplace.steps), any_root=True)
    return coefficient_covariance(shape, data, laplace.mode, factor)
