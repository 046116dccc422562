"""The posterior of a staged release: coefficients, the table's own estimate, its information, and a discrepancy.

In the whitened coordinates of the last stage, in units of 1/sqrt(N), with v for the population's coefficients and t
for the table's own estimate, both measured from the last centre (docs/stages.md):

    t | v   ~  Normal(v, S),                 S = H^-1 J H^-1        sampling error of this table, counted once
    first   ~  Normal(t, C1 + tau^2 D)       the moments; tau is inferred: how far they may be off on this table
    between ~  a Gaussian look at t          (all stages but the first and last, their information plugged in)
    z       ~  Normal(L M L' t, noise)       the last score; M: the mean slope on the way to t, over that at 0
    z_H     ~  Normal(H, noise),   z_J ~ Normal(J, noise)

H = L L' with L log-Cholesky near its prediction, J = phi L K K' L'. Everything is Gaussian in t, so t is integrated out
for sampling and drawn afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from dpglm.analyst.assemble import NEGLIGIBLE_NOISE, by_dataset, check_same_model, from_shared
from dpglm.analyst.jax_later import jax, jnp
from dpglm.analyst.looks import (
    DISPERSION_TOLERANCE,
    FEW_ROWS,
    Belief,
    FirstLook,
    Knowledge,
    add_look,
    allowance,
    dispersion_of,
    expected_information,
    first_looks,
    knowledge_of_first,
    relative,
    symmetric,
)
from dpglm.analyst.modes import Laplace
from dpglm.analyst.priors import Prior, prior_of
from dpglm.analyst.programs import kept_program
from dpglm.analyst.trees import mapped
from dpglm.errors import InputError
from dpglm.release_file import Release

if TYPE_CHECKING:
    from jax import Array

Floats = npt.NDArray[np.float64]

# Prior standard deviations: log of the discrepancy over its nominal size; log of the scores' variance over the
# information, where the family fixes it (logistic) and where it is inferred; the shape of that variance.
_LOG_DISCREPANCY = 0.25
_LOG_DISPERSION = {"logistic": 0.1, "linear": 0.3, "poisson": DISPERSION_TOLERANCE}
_VARIANCE_SHAPE = 0.2
_LARGEST_TOLERANCE = 3.0  # of a logarithm: nothing is known
_NOTHING_SEEN = 1e6  # noise of a look that was not taken, where one row's information is near one


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
    bent: Array  # M: in its root's coordinates, the mean slope on the way to t; positive
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
            root, s, log_prior = _information(table, own)
            precision, shift, evidence = _looks(table, root, own)
            chol = jnp.linalg.cholesky(precision)
            estimate = jax.scipy.linalg.cho_solve((chol, True), shift)
            spread = jnp.linalg.cholesky(s + jax.scipy.linalg.cho_solve((chol, True), jnp.eye(count)))
            white = jax.scipy.linalg.solve_triangular(spread, v - estimate, lower=True)
            log_determinants = jnp.sum(jnp.log(jnp.diagonal(chol))) + jnp.sum(jnp.log(jnp.diagonal(spread)))
            total += log_prior + evidence + 0.5 * shift @ estimate - 0.5 * white @ white - log_determinants
        return total

    def coefficients(self, _: Sequence[StagedTable], free: Array) -> Array:
        """The coefficients that a free vector stands for."""
        return self.prior.constrain(self.names, free[: len(self.names)])[0]

    def table_estimate(self, data: Sequence[StagedTable], free: Array, noise: Array) -> tuple[Array, Array]:
        """A draw of the first table's own estimate given everything else, in its scaled units; and its dispersion."""
        table, own = data[0], self.split(free)[0]
        root, s, _ = _information(table, own)
        precision, shift, _ = _looks(table, root, own)
        inverse = jnp.linalg.inv(s)
        factor = jnp.linalg.cholesky(inverse + precision)
        v = _position(table, self.coefficients(data, free))
        mean = jax.scipy.linalg.cho_solve((factor, True), inverse @ v + shift)
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
    """L of H = L L', S, and the log density of what z_H and z_J say of them with their prior."""
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
    return root, dispersion * turned @ turned.T, log_prior


def _looks(table: StagedTable, root: Array, own: Array) -> tuple[Array, Array, Array]:
    """All looks at t together: precision, shift, and the log density that is left of them."""
    size = len(table.centre)
    covariance = table.first_covariance + jnp.exp(2 * _LOG_DISCREPANCY * own[0]) * table.discrepancy
    chol = jnp.linalg.cholesky(covariance)
    first_precision = jax.scipy.linalg.cho_solve((chol, True), jnp.eye(size))
    first_shift = first_precision @ table.first_mean
    slope = root @ table.bent @ root.T
    precision = first_precision + table.between_precision + slope @ slope.T / table.score_variance
    shift = first_shift + table.between_shift + slope @ table.score / table.score_variance
    evidence = -jnp.sum(jnp.log(jnp.diagonal(chol))) - 0.5 * table.first_mean @ first_shift
    return precision, shift, evidence - 0.5 * table.score @ table.score / table.score_variance


def _near_identity(entries: Array, size: int, scale: Any) -> Array:
    """A lower triangle: exp on the diagonal, so that zeros give the identity."""
    rows, columns = np.tril_indices(size)
    source = np.full((size, size), len(rows))
    source[rows, columns] = np.arange(len(rows))
    full: Array = scale * jnp.append(entries, 0.0)[source]
    diagonal = jnp.diagonal(full)
    return full - jnp.diag(diagonal) + jnp.diag(jnp.exp(diagonal))


def staged_model(
    groups: Sequence[tuple[Release, ...]],
    prior: object,
    options: dict[str, Any],
    firsts: Sequence[Sequence[FirstLook]] | None = None,
) -> tuple[StagedShape, list[tuple[StagedTable, ...]], list[float]]:
    """Shape and arrays of staged releases, one group a posterior, and the spread of each linear predictor.

    Releases of one dataset are looks at one table. ``firsts`` are the first looks of a group's datasets, where known.
    """
    names = groups[0][0].design.coefficient_names
    for group in groups:
        _check(group, names)
    datasets = [[_leading_first(members) for members in by_dataset(group)] for group in groups]
    if firsts is None:
        columns = zip(*datasets, strict=True)
        firsts = list(zip(*(first_looks(column) for column in columns), strict=True))
    chosen = prior_of(prior, names)
    belief = Belief(*chosen.as_normal(names))
    tables, stddevs = [], []
    for group, members, looks in zip(groups, datasets, firsts, strict=True):
        tables.append(
            tuple(
                _table(own, knowledge_of_first(own[0], first), belief, options["noise_aware"], group[0])
                for own, first in zip(members, looks, strict=True)
            )
        )
        centres = [np.asarray(table.centre) for table in tables[-1]]
        each = (np.std(look.rows[:, : len(own)] @ own) for look, own in zip(looks, centres, strict=True))
        stddevs.append(float(max(each)))
    return StagedShape(names, chosen, len(datasets[0])), tables, stddevs


def _leading_first(members: Sequence[Release]) -> tuple[Release, ...]:
    """Of the releases of a dataset the one in stages whose last look costs most leads."""
    return tuple(sorted(members, key=lambda each: -each.stages[-1].mu * (len(each.stages) > 1)))


def _check(group: Sequence[Release], names: tuple[str, ...]) -> None:
    check_same_model(group)
    first = group[0]
    if first.design.coefficient_names != names:
        raise InputError("releases", first.formula, "has another shape than the first", "fit it by itself")
    if all(len(release.stages) == 1 for release in group):
        raise InputError("releases", first.id, "has one stage, others have several", "fit it by itself")


def table_draws(shape: StagedShape, data: tuple[StagedTable, ...], free: Floats, seed: int) -> tuple[Floats, Floats]:
    """The first table's own estimate and its spread, for draws of the free vector, (chains, draws, size)."""
    noise = np.random.default_rng([seed, 1]).normal(size=(*free.shape[:2], len(shape.names)))
    estimates, dispersion = _transform(shape, data, free, noise)
    return np.asarray(estimates), np.asarray(dispersion) * float(data[0].spread_unit)


@kept_program
def _transform(shape: StagedShape, data: Any, free: Any, noise: Any) -> tuple[Array, Array]:
    # One by one: thousands of small factorisations in one batch were seen to stop for ever on a CPU of two cores.
    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        return shape.table_estimate(data, *pair)

    return cast("tuple[Array, Array]", jax.lax.map(lambda chain: jax.lax.map(one, chain), (free, noise)))


def staged_inflation(
    shape: StagedShape, data: tuple[StagedTable, ...], laplace: Laplace, number: int, units: Floats
) -> Floats:
    """Posterior standard deviation over the one that sampling error and prior alone would leave; (2, coefficients)."""
    count = len(shape.names)
    slope, bend, sampling = mapped(np.asarray, _at_mode(shape, data, laplace.mode[number]))
    noisy = slope @ laplace.covariance[number][:count, :count] @ slope.T
    precision = -bend
    for table, error in zip(data, sampling, strict=True):
        turn = np.sqrt(table.num_rows) * np.asarray(table.whiten) @ np.asarray(table.matrix)
        precision += turn.T @ np.linalg.inv(error) @ turn
    ideal = slope @ np.linalg.inv(precision) @ slope.T
    ratios = [np.diag(turn @ noisy @ turn.T) / np.diag(turn @ ideal @ turn.T) for turn in (units, np.eye(count))]
    return np.asarray(np.sqrt(np.stack(ratios)))


@kept_program
def _at_mode(shape: StagedShape, data: tuple[StagedTable, ...], mode: Any) -> tuple[Array, Array, list[Array]]:
    """Derivatives of the coefficients in their free vector, second ones of their log prior, and each table's S."""
    free = mode[: len(shape.names)]
    slope = jax.jacfwd(lambda point: shape.prior.constrain(shape.names, point)[0])(free)
    bend = jax.hessian(lambda point: shape.prior.constrain(shape.names, point)[1])(free)
    return slope, bend, [_information(table, own)[1] for table, own in zip(data, shape.split(mode), strict=True)]


def _table(
    members: Sequence[Release], known: Knowledge, belief: Belief, noise_aware: bool, shared: Release
) -> StagedTable:
    """One dataset. The last look of its leading release is sampled with all its errors, every other one plugged in."""
    release = members[0]
    rows = release.num_rows
    matrix, shift = from_shared(shared, release)
    belief = Belief(matrix @ belief.mean + shift, matrix @ belief.covariance @ matrix.T)  # in this table's own units
    for other in members[1:]:
        for stage in other.stages[1:]:
            known = add_look(other, known, stage, belief)
    if len(release.stages) == 1:
        return _moments_alone(release, known, shared)
    for stage in release.stages[1:-1]:
        known = add_look(release, known, stage, belief)
    after = add_look(release, known, release.stages[-1], belief)
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
    extra = allowance(release, known, centring)(move, after.covariance)
    size = len(centre)
    dispersion = dispersion_of(release.design, known.spread)
    quiet = 1.0 if noise_aware else NEGLIGIBLE_NOISE
    back = centring.whitening_matrix.T  # undoes whiten

    return StagedTable(
        num_rows=_array(rows),
        matrix=_array(matrix),
        shift=_array(shift),
        centre=_array(centre),
        whiten=_array(whiten),
        first_mean=_array(root * whiten @ (known.first_mean - centre)),
        first_covariance=_array(rows * whiten @ known.first_covariance @ whiten.T),
        discrepancy=_array(rows * known.discrepancy**2 * whiten @ whiten.T),
        between_precision=_array(back.T @ known.precision @ back / rows),
        between_shift=_array(back.T @ (known.shift - known.precision @ centre) / root),
        score=_array(score.values / root),
        score_variance=_array(((quiet * score.noise_stddev) ** 2 + extra) / rows),
        information=_array(symmetric(information.values, size) / rows),
        information_noise=_array(quiet * information.noise_stddev / rows),
        square=_array(symmetric(square.values, size) / rows),
        square_noise=_array(quiet * square.noise_stddev / rows),
        expected_root=_array(np.linalg.cholesky(expected)),
        bent=_array(relative(expected_information(known, release.design, centring, after.centre), expected)),
        tolerance=_array(_tolerance(known, centring.whitening_matrix)),
        log_dispersion=_array(np.log(dispersion)),
        log_dispersion_scale=_array(_LOG_DISPERSION[release.family]),
        spread_unit=_array(known.spread if release.family == "linear" else 1.0),
    )


def _tolerance(known: Knowledge, whitening: Floats) -> Floats:
    """Prior standard deviations of the log-Cholesky entries of the information.

    That is ``known.tolerance``; where few rows know anything of a direction, what is known of their information.
    """
    error, information = (np.diag(whitening @ matrix @ whitening.T) for matrix in (known.error, known.information))
    relative_error = np.where(information > FEW_ROWS, known.tolerance, error / information)
    return np.asarray(np.clip(np.sqrt(np.outer(relative_error, relative_error)), known.tolerance, _LARGEST_TOLERANCE))


def _moments_alone(release: Release, known: Knowledge, shared: Release) -> StagedTable:
    """A dataset without later looks, beside one that has them: its information is the predicted one, nearly as is."""
    rows, size = release.num_rows, len(known.centre)
    root = np.linalg.cholesky(known.information)
    matrix, shift = from_shared(shared, release)
    return StagedTable(
        num_rows=_array(rows),
        matrix=_array(matrix),
        shift=_array(shift),
        centre=_array(known.centre),
        whiten=_array(root.T),
        first_mean=_array(np.sqrt(rows) * root.T @ (known.first_mean - known.centre)),
        first_covariance=_array(rows * root.T @ known.first_covariance @ root),
        discrepancy=_array(rows * known.discrepancy**2 * root.T @ root),
        between_precision=_array(np.zeros((size, size))),
        between_shift=_array(np.zeros(size)),
        score=_array(np.zeros(size)),
        score_variance=_array(_NOTHING_SEEN**2),
        information=_array(np.eye(size)),
        information_noise=_array(_NOTHING_SEEN),
        square=_array(np.eye(size)),
        square_noise=_array(_NOTHING_SEEN),
        expected_root=_array(np.eye(size)),
        bent=_array(np.eye(size)),
        tolerance=_array(np.full((size, size), known.tolerance)),
        log_dispersion=_array(np.log(dispersion_of(release.design, known.spread))),
        log_dispersion_scale=_array(_LOG_DISPERSION[release.family]),
        spread_unit=_array(known.spread if release.family == "linear" else 1.0),
    )


def _array(value: Any) -> Any:
    """NumPy's: an operation on one of JAX's would be a small program by itself."""
    return np.asarray(value, dtype=np.float64)


def initial_points(shape: StagedShape, data: Sequence[Sequence[StagedTable]]) -> Floats:
    """A start for each posterior: coefficients at the last centre, everything else at its prior mode."""
    starts = []
    for tables in data:
        first = tables[0]
        coefficients = np.linalg.solve(np.asarray(first.matrix), np.asarray(first.centre - first.shift))
        free = np.asarray(shape.prior.unconstrain(shape.names, coefficients))
        starts.append(np.concatenate([free, np.zeros(shape.size - len(free))]))
    return np.stack(starts)
