"""The posterior of a staged release: coefficients, the table's own estimate, its information, and a discrepancy.

In the whitened coordinates of the last stage, in units of 1/sqrt(N), with v for the population's coefficients and t
for the table's own estimate, both measured from the last centre (docs/stages.md):

    t | v   ~  Normal(v, S),                 S = H^-1 J H^-1        sampling error of this table, counted once
    first   ~  Normal(t, C1 + tau^2 D)       the moments; tau is inferred: how far they may be off on this table
    between ~  a Gaussian look at t          (all stages but the first and last, their information plugged in)
    z       ~  Normal((H + bent) t, noise)   the last score; bent: the mean slope on the way to t, less that at 0
    z_H     ~  Normal(H, noise),   z_J ~ Normal(J, noise)

H = L L' with L log-Cholesky near its prediction, J = phi L K K' L'. Everything is Gaussian in t, so t is integrated out
for sampling and drawn afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dpglm.analyst.assemble import NEGLIGIBLE_NOISE, check_same_model, from_shared
from dpglm.analyst.looks import (
    FirstLook,
    Knowledge,
    add_look,
    allowance,
    dispersion_of,
    expected_information,
    first_looks,
    knowledge_of_first,
    symmetric,
)
from dpglm.analyst.priors import Prior, prior_of
from dpglm.analyst.sampler import Laplace
from dpglm.centring import CANONICAL_LINKS
from dpglm.errors import InputError
from dpglm.release_file import Release

Array = jax.Array
Floats = npt.NDArray[np.float64]

# Prior standard deviations: log of the discrepancy over its nominal size; log of the scores' variance over the
# information, where the family fixes it (logistic) and where it is inferred; the shape of that variance.
_LOG_DISCREPANCY = 0.25
_LOG_DISPERSION = {"logistic": 0.1, "linear": 0.3, "poisson": 0.7}
_VARIANCE_SHAPE = 0.2


class StagedTable(NamedTuple):
    """The arrays of one staged release. Whitened coordinates of the last stage, in units of 1/sqrt(N)."""

    num_rows: Array
    matrix: Array
    shift: Array
    centre: Array
    whiten: Array  # takes scaled coefficients, less the centre, to those coordinates
    first_mean: Array
    first_covariance: Array
    discrepancy: Array  # its covariance at its nominal size
    between_precision: Array
    between_shift: Array
    score: Array
    score_variance: Array
    information: Array
    information_noise: Array
    square: Array
    square_noise: Array
    expected_root: Array  # of the predicted information
    bent: Array  # what is added to it for a move as far as to t
    tolerance: Array
    log_dispersion: Array
    log_dispersion_scale: Array
    spread_unit: Array


@dataclass(frozen=True)
class StagedShape:
    """Everything that decides which program is compiled. Tables are different datasets; they share coefficients."""

    names: tuple[str, ...]
    prior: Prior
    tables: int

    @property
    def table_size(self) -> int:
        """Free parameters of a table: discrepancy, dispersion, and two triangles."""
        return 2 + len(self.names) * (len(self.names) + 1)

    @property
    def size(self) -> int:
        return len(self.names) + self.tables * self.table_size

    def log_density(self, data: Sequence[StagedTable], free: Array) -> Array:
        """Log posterior density of the free vector, up to a constant."""
        count = len(self.names)
        coefficients, total = self.prior.constrain(self.names, free[:count])
        for table, own in zip(data, self.split(free), strict=True):
            v = _position(table, coefficients)
            h, s, log_prior = _information(table, own)
            precision, shift, evidence = _looks(table, h, own)
            chol = jnp.linalg.cholesky(precision)
            estimate = jax.scipy.linalg.cho_solve((chol, True), shift)
            spread = jnp.linalg.cholesky(s + jax.scipy.linalg.cho_solve((chol, True), jnp.eye(count)))
            white = jax.scipy.linalg.solve_triangular(spread, v - estimate, lower=True)
            log_determinants = jnp.sum(jnp.log(jnp.diagonal(chol))) + jnp.sum(jnp.log(jnp.diagonal(spread)))
            total += log_prior + evidence + 0.5 * shift @ estimate - 0.5 * white @ white - log_determinants
        return total

    def table_estimate(self, data: Sequence[StagedTable], free: Array, noise: Array) -> tuple[Array, Array]:
        """A draw of the first table's own estimate given everything else, in its scaled units; and its dispersion."""
        table, own = data[0], self.split(free)[0]
        coefficients, _ = self.prior.constrain(self.names, free[: len(self.names)])
        h, s, _ = _information(table, own)
        precision, shift, _ = _looks(table, h, own)
        inverse = jnp.linalg.inv(s)
        factor = jnp.linalg.cholesky(inverse + precision)
        mean = jax.scipy.linalg.cho_solve((factor, True), inverse @ _position(table, coefficients) + shift)
        t = mean + jax.scipy.linalg.solve_triangular(factor.T, noise, lower=False)
        own_units = jnp.linalg.solve(table.whiten, t / jnp.sqrt(table.num_rows)) + table.centre
        shared = jnp.linalg.solve(table.matrix, own_units - table.shift)
        return shared, _dispersion(table, own)

    def split(self, free: Array) -> list[Array]:
        """The free parameters of each table."""
        first = len(self.names)
        return [free[first + n * self.table_size : first + (n + 1) * self.table_size] for n in range(self.tables)]


def _position(table: StagedTable, coefficients: Array) -> Array:
    own = table.matrix @ coefficients + table.shift
    return jnp.sqrt(table.num_rows) * (table.whiten @ (own - table.centre))


def _dispersion(table: StagedTable, own: Array) -> Array:
    """Variance of the scores over the information."""
    return jnp.exp(table.log_dispersion + table.log_dispersion_scale * own[1])


def _information(table: StagedTable, own: Array) -> tuple[Array, Array, Array]:
    """H and S, and the log density of what z_H and z_J say of them with their prior."""
    size = len(table.centre)
    entries = size * (size + 1) // 2
    root = table.expected_root @ _near_identity(own[2 : 2 + entries], size, table.tolerance)
    shape = _near_identity(own[2 + entries :], size, _VARIANCE_SHAPE)
    h = root @ root.T
    dispersion = _dispersion(table, own)
    half = root @ shape
    j = dispersion * half @ half.T
    log_prior = -0.5 * jnp.sum(own**2)
    # A full sum over a symmetric matrix is the isometric norm, so the noise is the isometric one.
    log_prior -= 0.5 * jnp.sum((table.information - h) ** 2) / table.information_noise**2
    log_prior -= 0.5 * jnp.sum((table.square - j) ** 2) / table.square_noise**2
    # S = H^-1 J H^-1 = phi (L^-T K)(L^-T K)'
    turned = jax.scipy.linalg.solve_triangular(root.T, shape, lower=False)
    return h, dispersion * turned @ turned.T, log_prior


def _looks(table: StagedTable, h: Array, own: Array) -> tuple[Array, Array, Array]:
    """All looks at t together: precision, shift, and the log density that is left of them."""
    size = len(table.centre)
    covariance = table.first_covariance + jnp.exp(2 * _LOG_DISCREPANCY * own[0]) * table.discrepancy
    chol = jnp.linalg.cholesky(covariance)
    first_precision = jax.scipy.linalg.cho_solve((chol, True), jnp.eye(size))
    first_shift = first_precision @ table.first_mean
    slope = h + table.bent
    precision = first_precision + table.between_precision + slope @ slope.T / table.score_variance
    shift = first_shift + table.between_shift + slope @ table.score / table.score_variance
    evidence = -jnp.sum(jnp.log(jnp.diagonal(chol))) - 0.5 * table.first_mean @ first_shift
    return precision, shift, evidence - 0.5 * table.score @ table.score / table.score_variance


def _near_identity(entries: Array, size: int, scale: Any) -> Array:
    """A lower triangle: exp on the diagonal, so that zeros give the identity."""
    rows, columns = np.tril_indices(size)
    source = np.full((size, size), len(rows))
    source[rows, columns] = np.arange(len(rows))
    full = jnp.append(scale * entries, 0.0)[source]
    diagonal = jnp.diagonal(full)
    return full - jnp.diag(diagonal) + jnp.diag(jnp.exp(diagonal))


def staged_model(
    groups: Sequence[tuple[Release, ...]],
    prior: object,
    options: dict[str, Any],
    firsts: Sequence[Sequence[FirstLook]] | None = None,
) -> tuple[StagedShape, list[tuple[StagedTable, ...]], list[float]]:
    """Shape and arrays of staged releases, one group a posterior, and the spread of each linear predictor.

    The releases of a group must be of different datasets. ``firsts`` are their first looks, where known already.
    """
    names = groups[0][0].design.coefficient_names
    for group in groups:
        _check(group, names, options)
    if firsts is None:
        positions = range(len(groups[0]))
        firsts = list(zip(*(first_looks([group[position] for group in groups]) for position in positions), strict=True))
    tables, stddevs = [], []
    for group, looks in zip(groups, firsts, strict=True):
        tables.append(
            tuple(
                _table(release, knowledge_of_first(release, first), options["noise_aware"], group[0])
                for release, first in zip(group, looks, strict=True)
            )
        )
        centre = np.asarray(tables[-1][0].centre)
        stddevs.append(float(np.std(looks[0].rows[:, : len(centre)] @ centre)))
    return StagedShape(names, prior_of(prior, names), len(groups[0])), tables, stddevs


def _check(group: Sequence[Release], names: tuple[str, ...], options: dict[str, Any]) -> None:
    """A staged release fixed its link and measured its dispersion; what cannot be asked of it any more is refused."""
    check_same_model(group)
    first = group[0]
    for name, allowed, rule in (
        ("link", (None, CANONICAL_LINKS[first.family]), "was fixed by the stages"),
        ("dispersion", (None, "infer"), "is measured by the last stage"),
        ("moments", ("exact",), "only enter the first stage, where they are exact"),
    ):
        if options[name] not in allowed:
            raise InputError(name, options[name], rule, "leave it out, or ask for a release of one stage")
    if first.design.coefficient_names != names:
        raise InputError("releases", first.formula, "has another shape than the first", "fit it by itself")
    for release in group:
        if len(release.stages) == 1:
            raise InputError("releases", release.id, "has one stage, another has several", "fit them one by one")
    if len({release.dataset_id for release in group}) < len(group):
        rule = "two staged releases describe one dataset, and its rows would count twice"
        raise InputError("releases", first.dataset_id, rule, "fit them one by one")


class StagedDraws(NamedTuple):
    """Draws of the coefficients, of the first table's own estimate, and of its spread."""

    coefficients: Floats
    table_coefficients: Floats
    spread: Floats


def staged_draws(shape: StagedShape, data: tuple[StagedTable, ...], free: Floats, seed: int) -> StagedDraws:
    """What draws of the free vector, (chains, draws, size), say."""
    noise = np.random.default_rng([seed, 1]).normal(size=(*free.shape[:2], len(shape.names)))
    coefficients, estimates, dispersion = _transform(shape, data, jnp.asarray(free), jnp.asarray(noise))
    spread = np.asarray(dispersion) * float(data[0].spread_unit)
    return StagedDraws(np.asarray(coefficients), np.asarray(estimates), spread)


@partial(jax.jit, static_argnums=0)
def _transform(shape: StagedShape, data: Any, free: Array, noise: Array) -> tuple[Array, Array, Array]:
    def one(pair: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        point, standard = pair
        coefficients, _ = shape.prior.constrain(shape.names, point[: len(shape.names)])
        return coefficients, *shape.table_estimate(data, point, standard)

    # One by one: thousands of small factorisations in one batch were seen to stop for ever on a CPU of two cores.
    return cast("tuple[Array, Array, Array]", jax.lax.map(lambda chain: jax.lax.map(one, chain), (free, noise)))


def staged_inflation(
    shape: StagedShape, data: tuple[StagedTable, ...], laplace: Laplace, number: int, units: Floats
) -> Floats:
    """Posterior standard deviation over the one that sampling error and prior alone would leave; (2, coefficients)."""
    count = len(shape.names)
    mode = jnp.asarray(laplace.mode[number])
    slope = np.asarray(jax.jacfwd(lambda point: shape.prior.constrain(shape.names, point)[0])(mode[:count]))
    noisy = slope @ laplace.covariance[number][:count, :count] @ slope.T
    precision = np.zeros((count, count))
    for table, own in zip(data, shape.split(mode), strict=True):
        turn = np.asarray(jnp.sqrt(table.num_rows) * table.whiten @ table.matrix)
        precision += turn.T @ np.linalg.inv(np.asarray(_information(table, own)[1])) @ turn
    prior = -np.asarray(jax.hessian(lambda point: shape.prior.constrain(shape.names, point)[1])(mode[:count]))
    ideal = slope @ np.linalg.inv(precision + prior) @ slope.T
    ratios = [np.diag(turn @ noisy @ turn.T) / np.diag(turn @ ideal @ turn.T) for turn in (units, np.eye(count))]
    return np.asarray(np.sqrt(np.stack(ratios)))


def _table(release: Release, known: Knowledge, noise_aware: bool, shared: Release) -> StagedTable:
    rows = release.num_rows
    for stage in release.stages[1:-1]:
        known = add_look(release, known, stage)
    after = add_look(release, known, release.stages[-1])
    stage = release.stages[-1]
    centring = stage.centring
    assert centring is not None
    unwhitening = np.asarray(np.linalg.inv(centring.whitening_matrix), dtype=np.float64)
    whiten, root = unwhitening.T, np.sqrt(rows)
    centre = centring.centre_vector
    score, information, square = stage.blocks
    expected = expected_information(known, release.design, centring)
    # The information's own error is sampled; what is left is the noise and the curvature of the map.
    move = after.centre - centre
    extra = allowance(move, after.covariance, centring, rows, known.mean_weight, release.design)
    size = len(centre)
    dispersion = dispersion_of(release.design, known.spread)
    quiet = 1.0 if noise_aware else NEGLIGIBLE_NOISE
    first, shift = from_shared(shared, release)
    back = centring.whitening_matrix.T  # undoes whiten

    def array(value: Any) -> Array:
        return jnp.asarray(np.asarray(value, dtype=np.float64))

    return StagedTable(
        num_rows=array(rows),
        matrix=array(first),
        shift=array(shift),
        centre=array(centre),
        whiten=array(whiten),
        first_mean=array(root * whiten @ (known.first_mean - centre)),
        first_covariance=array(rows * whiten @ known.first_covariance @ whiten.T),
        discrepancy=array(rows * known.discrepancy**2 * whiten @ whiten.T),
        between_precision=array(back.T @ known.precision @ back / rows),
        between_shift=array(back.T @ (known.shift - known.precision @ centre) / root),
        score=array(score.values / root),
        score_variance=array(((quiet * score.noise_stddev) ** 2 + extra) / rows),
        information=array(symmetric(information.values, size) / rows),
        information_noise=array(quiet * information.noise_stddev / rows),
        square=array(symmetric(square.values, size) / rows),
        square_noise=array(quiet * square.noise_stddev / rows),
        expected_root=array(np.linalg.cholesky(expected)),
        bent=array(expected_information(known, release.design, centring, after.centre) - expected),
        tolerance=array(known.tolerance),
        log_dispersion=array(np.log(dispersion)),
        log_dispersion_scale=array(_LOG_DISPERSION[release.family]),
        spread_unit=array(known.spread if release.family == "linear" else 1.0),
    )


def initial_points(shape: StagedShape, data: Sequence[Sequence[StagedTable]]) -> Floats:
    """A start for each posterior: coefficients at the last centre, everything else at its prior mode."""
    starts = []
    for tables in data:
        first = tables[0]
        coefficients = np.linalg.solve(np.asarray(first.matrix), np.asarray(first.centre - first.shift))
        free = np.asarray(shape.prior.unconstrain(shape.names, jnp.asarray(coefficients)))
        starts.append(np.concatenate([free, np.zeros(shape.size - len(free))]))
    return np.stack(starts)
