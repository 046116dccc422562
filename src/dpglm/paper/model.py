"""The posterior density of a release: coefficients, spread, and the mean and covariance of each table's predictors.

Tables with different dataset identities share coefficients and spread, and have predictors of their own. All
parameters live in one unconstrained vector; ``log_density`` is a pure function of it and of arrays, so that it can
be compiled once a shape, batched over chains and releases, and differentiated.

Predictors. Public bounds are information: a column in [a, b] has its mean m there and a variance of at most
(b - m)(m - a). So m is uniform on [a, b], the variance a uniform share of its largest value, correlations LKJ(2).

Counts. The sum of y tells the mean count well, also where noise leaves the predictors' means and the slopes open; the
intercept then lies on a narrow, curved ridge. So the free vector holds the level instead, the predictor at an average
row, from which the intercept follows: a shear, whose Jacobian is one. Chains make steps two to four times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from dpglm.analyst.priors import Prior
from dpglm.blocks import BlockShape
from dpglm.paper.likelihood import log_likelihood
from dpglm.paper.oracle import numeric_moments
from dpglm.paper.outcomes import Outcome, outcome_integrals
from dpglm.paper.prior_densities import constrained, unconstrained

# log(spread - 1) of counts and log(spread) of a linear outcome: normal with these means and standard deviations.
_LOG_SPREAD_PRIOR = {"poisson": (0.0, 1.5), "linear": (-2.3, 1.5)}
_LKJ_CONCENTRATION = 2.0
_NUMERIC_POINTS = 2**11  # quasi-random rows a likelihood of moments="numeric"


@dataclass(frozen=True)
class TableShape:
    """What is static about one table's release: block list, outcome, dimension, offset, and whether means are zero."""

    blocks: tuple[BlockShape, ...]
    outcome: Outcome
    dimension: int
    has_intercept: bool
    has_offset: bool
    zero_mean: bool

    @property
    def size(self) -> int:
        """Free parameters of the predictors' distribution."""
        d = self.dimension
        return (0 if self.zero_mean else d) + d + d * (d - 1) // 2

    @property
    def largest_q(self) -> int:
        return 2 * max(block.y_power for block in self.blocks)


class TableData(NamedTuple):
    """What is dynamic: arrays. ``matrix`` and ``shift`` take the shared coefficients to this table's scaled ones.

    NumPy's arrays outside of compiled programs: an operation on one of JAX's would be a small program by itself.
    """

    observed: tuple[Any, ...]
    num_rows: Any
    noise_stddevs: Any
    lower: Any
    upper: Any
    matrix: Any
    shift: Any
    offset: Any
    spread_scale: Any


@dataclass(frozen=True)
class ModelShape:
    """Everything that decides which program is compiled."""

    names: tuple[str, ...]
    tables: tuple[TableShape, ...]
    prior: Prior
    fixed_spread: float | None
    moments: str

    @property
    def has_spread(self) -> bool:
        """Whether a spread is inferred."""
        return self.tables[0].outcome.family_name in _LOG_SPREAD_PRIOR and self.fixed_spread is None

    @property
    def has_level(self) -> bool:
        """Whether the free vector begins with the level of counts, and not with their intercept."""
        return self.tables[0].outcome.family_name == "poisson" and self.names[0] == "Intercept"

    @property
    def size(self) -> int:
        return len(self.names) + int(self.has_spread) + sum(table.size for table in self.tables)

    def log_density(self, data: Sequence[TableData], free: Array) -> Array:
        """Log posterior density of the free vector, up to a constant."""
        return log_density(self, data, free)

    def coefficients(self, data: Sequence[TableData], free: Array) -> Array:
        """The shared coefficients that a free vector stands for."""
        return constrain(self, data, free)[0].coefficients


class TableParameters(NamedTuple):
    """The distribution of one table's predictors."""

    mean: Array
    covariance: Array


class Parameters(NamedTuple):
    """A point of the model: shared coefficients (scaled units of the first table), spread, predictors."""

    coefficients: Array
    spread: Array
    tables: tuple[TableParameters, ...]


def log_density(shape: ModelShape, data: Sequence[TableData], free: Array) -> Array:
    """Log posterior density of the unconstrained vector, up to a constant."""
    parameters, log_prior = constrain(shape, data, free)
    for table, its_data, its in zip(shape.tables, data, parameters.tables, strict=True):
        log_prior += _table_log_likelihood(shape, table, its_data, its, parameters)
    return log_prior


def _table_log_likelihood(
    shape: ModelShape, table: TableShape, data: TableData, its: TableParameters, parameters: Parameters
) -> Array:
    intercept, slopes = table_coefficients(table, data, parameters.coefficients)
    spread = parameters.spread * data.spread_scale
    if shape.moments == "numeric":
        mean, covariance = numeric_moments(
            table.blocks, intercept, slopes, its.mean, its.covariance, table.outcome, spread,
            points=_NUMERIC_POINTS, clamp_to_box=True,
        )  # fmt: skip
        observed = isometric(table, data.observed)
        return dense_normal(observed, data.num_rows, _per_statistic(table, data), mean, covariance)
    w = its.covariance @ slopes
    integrals = outcome_integrals(
        table.outcome, intercept + its.mean @ slopes, slopes @ w, spread, table.largest_q, method=shape.moments
    )
    mean_or_none = None if table.zero_mean else its.mean
    return log_likelihood(
        table.blocks, data.observed, data.num_rows, data.noise_stddevs, mean_or_none, its.covariance, w, integrals
    )


def isometric(table: TableShape, observed: tuple[Array, ...]) -> Array:
    """Observed blocks, as ``assemble.prepare`` lays them out, as one vector in isometric coordinates."""
    parts = []
    for block, value in zip(table.blocks, observed, strict=True):
        plain = value[np.triu_indices(table.dimension)] if block.degree == 2 else jnp.ravel(value)
        parts.append(plain * np.sqrt(block.multiplicities(table.dimension)))
    return jnp.concatenate(parts)


def expected_data(shape: ModelShape, data: Sequence[TableData], free: Array) -> tuple[TableData, ...]:
    """The data with every observed block replaced by its expectation at a point (exact moments, degrees up to 2)."""
    parameters, _ = constrain(shape, data, free)
    replaced = []
    for table, its_data, its in zip(shape.tables, data, parameters.tables, strict=True):
        intercept, slopes = table_coefficients(table, its_data, parameters.coefficients)
        w, m = its.covariance @ slopes, its.mean
        spread = parameters.spread * its_data.spread_scale
        method = "exact" if shape.moments == "numeric" else shape.moments
        table_h = outcome_integrals(
            table.outcome, intercept + m @ slopes, slopes @ w, spread, table.largest_q, method=method
        )
        observed = []
        for block, old in zip(table.blocks, its_data.observed, strict=True):
            h = table_h[block.y_power]
            if block.degree == 0:
                expected = h[0]
            elif block.degree == 1:
                expected = h[0] * m + h[1] * w
            elif block.degree == 2:
                expected = h[0] * (its.covariance + jnp.outer(m, m)) + h[1] * (jnp.outer(w, m) + jnp.outer(m, w))
                expected += h[2] * jnp.outer(w, w)
            else:
                expected = old / its_data.num_rows
            observed.append(its_data.num_rows * expected)
        replaced.append(its_data._replace(observed=tuple(observed)))
    return tuple(replaced)


def _per_statistic(table: TableShape, data: TableData) -> Array:
    sizes = [block.size(table.dimension) for block in table.blocks]
    return jnp.repeat(data.noise_stddevs, np.array(sizes), total_repeat_length=sum(sizes))


def dense_normal(observed: Array, num_rows: Array, noise_stddevs: Array, mean: Array, covariance: Array) -> Array:
    """log Normal(observed; N mean, N covariance + noise), all in isometric coordinates."""
    root = jnp.sqrt(num_rows)
    factor = jnp.linalg.cholesky(covariance + jnp.diag((noise_stddevs / root) ** 2))
    white = jax.scipy.linalg.solve_triangular(factor, (observed - num_rows * mean) / root, lower=True)
    return -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(factor)))


def table_coefficients(table: TableShape, data: TableData, coefficients: Array) -> tuple[Array, Array]:
    """Intercept and slopes of one table in its own scaled units; the offset's known slope comes last."""
    own = data.matrix @ coefficients + data.shift
    intercept, slopes = (own[0], own[1:]) if table.has_intercept else (jnp.zeros(()), own)
    return intercept, jnp.append(slopes, data.offset) if table.has_offset else slopes


def constrain(shape: ModelShape, data: Sequence[TableData], free: Array) -> tuple[Parameters, Array]:
    """The parameters that a free vector stands for, and their log prior density (Jacobians included)."""
    count = len(shape.names)
    tables, log_prior = _tables(shape, data, free)
    of_coefficients = free[:count]
    if shape.has_level:
        level = _level_above_intercept(shape, data, of_coefficients, tables)
        of_coefficients = jnp.concatenate([of_coefficients[:1] - level, of_coefficients[1:]])
    coefficients, its_prior = constrained(shape.prior, shape.names, of_coefficients)
    log_prior += its_prior
    spread = jnp.asarray(1.0 if shape.fixed_spread is None else shape.fixed_spread)
    if shape.has_spread:
        family = shape.tables[0].outcome.family_name
        center, scale = _LOG_SPREAD_PRIOR[family]
        spread = jnp.exp(free[count]) + (1.0 if family == "poisson" else 0.0)
        log_prior += -0.5 * ((free[count] - center) / scale) ** 2
    return Parameters(coefficients, spread, tables), log_prior


def with_level(shape: ModelShape, data: Sequence[TableData], free: Array) -> Array:
    """The free vector of one that holds the intercept itself: what ``constrain`` undoes."""
    if not shape.has_level:
        return free
    tables, _ = _tables(shape, data, free)
    return jnp.asarray(free).at[0].add(_level_above_intercept(shape, data, free[: len(shape.names)], tables))


def _level_above_intercept(
    shape: ModelShape, data: Sequence[TableData], free: Array, tables: Sequence[TableParameters]
) -> Array:
    """The predictor at an average row, less the intercept. With a log link the mean count is exp(level), unclamped.

    Several tables count by their rows. It must not depend on the first entry of the free vector.
    """
    rough, _ = constrained(shape.prior, shape.names, free)
    total = sum(its_data.num_rows for its_data in data)
    level = jnp.zeros(())
    for table, its_data, its in zip(shape.tables, data, tables, strict=True):
        intercept, slopes = table_coefficients(table, its_data, rough)
        half_variance = slopes @ its.covariance @ slopes / 2 if table.outcome.link == "log" else 0.0
        level += its_data.num_rows / total * (intercept - rough[0] + its.mean @ slopes + half_variance)
    return level


def _tables(shape: ModelShape, data: Sequence[TableData], free: Array) -> tuple[tuple[TableParameters, ...], Array]:
    """The predictors of all tables, and their log prior density."""
    position, log_prior, tables = len(shape.names) + int(shape.has_spread), jnp.zeros(()), []
    for table, its_data in zip(shape.tables, data, strict=True):
        its, its_prior = _predictors(table, its_data, free[position : position + table.size])
        position += table.size
        tables.append(its)
        log_prior += its_prior
    return tuple(tables), log_prior


def coefficient_covariance(
    shape: ModelShape, data: tuple[TableData, ...], mode: npt.NDArray[np.float64], factor: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Of the scaled coefficients, where free vectors are normal near ``mode``, ``factor`` a root of their covariance.

    Data, modes and factors of some posteriors, each stacked.
    """
    part = np.asarray(_coefficient_slopes(shape, data, mode)) @ factor
    return np.asarray(part @ part.transpose(0, 2, 1))


@partial(jax.jit, static_argnums=0)
def _coefficient_slopes(shape: ModelShape, data: Any, free: Any) -> Any:
    """Derivatives of the coefficients in the free vector, (posteriors, coefficients, size)."""
    return jax.vmap(lambda its_data, point: jax.jacrev(partial(shape.coefficients, its_data))(point))(data, free)


def _predictors(table: TableShape, data: TableData, free: Array) -> tuple[TableParameters, Array]:
    d = table.dimension
    if table.zero_mean:
        mean, log_prior = jnp.zeros(d), jnp.zeros(())
    else:
        share = jax.nn.sigmoid(free[:d])
        mean = data.lower + (data.upper - data.lower) * share
        log_prior = jnp.sum(jax.nn.log_sigmoid(free[:d]) + jax.nn.log_sigmoid(-free[:d]))
        free = free[d:]
    largest = _largest_variance(table, data.lower, data.upper, mean)
    variances = largest * jax.nn.sigmoid(free[:d])
    log_prior += jnp.sum(jax.nn.log_sigmoid(free[:d]) + jax.nn.log_sigmoid(-free[:d]))
    factor, its_prior = _correlation_factor(free[d:], d)
    scaled = jnp.sqrt(variances)[:, None] * factor
    return TableParameters(mean, scaled @ scaled.T), log_prior + its_prior


def _largest_variance(table: TableShape, lower: Any, upper: Any, mean: Any) -> Any:
    """(b - m)(m - a): attained when all mass sits at the ends (Bhatia & Davis 2000)."""
    if table.zero_mean:  # the larger of both squares, for NumPy's and for JAX's arrays
        return (lower**2 + upper**2 + abs(upper**2 - lower**2)) / 2
    return (upper - mean) * (mean - lower)


def _correlation_factor(free: Array, d: int) -> tuple[Array, Array]:
    """Cholesky factor of a correlation matrix from partial correlations tanh(free), with LKJ's log density.

    Row by row, L_ij = z_ij sqrt(1 - sum of squares so far) (Lewandowski, Kurowicka & Joe 2009; Stan's transform).
    The LKJ density of the factor is prod_i L_ii^(d - i + 2 eta - 2) for rows i = 2..d, counted from 1.
    """
    if d == 1:
        return jnp.ones((1, 1)), jnp.zeros(())
    below = jnp.asarray(np.tri(d, k=-1))
    square = _strict_lower_triangle(free, d)
    # log(1 - tanh^2) in a form that does not underflow; zero on and above the diagonal
    log_slope = 2 * below * (jnp.log(2.0) - square - jax.nn.softplus(-2 * square))
    # log_left[i, j] = sum_{k<j} log(1 - z_ik^2): what is left of row i's unit length before column j
    log_left = log_slope @ below.T
    factor = (jnp.tanh(square) + jnp.eye(d)) * jnp.exp(log_left / 2)
    log_jacobian = jnp.sum(log_slope) + 0.5 * jnp.sum(below * log_left)
    # exponents on the diagonal of row i, counted from 1, and none in the first row, where nothing is used up
    exponents = np.diag(d - np.arange(1, d + 1) + 2 * _LKJ_CONCENTRATION - 2)
    return factor * (below + jnp.eye(d)), log_jacobian + 0.5 * jnp.sum(exponents * log_left)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _strict_lower_triangle(free: Array, d: int) -> Array:
    """The numbers row by row below the diagonal of a matrix of zeros.

    Its derivative reads them again. Left to JAX it would be a scatter: on a CPU, a loop over elements.
    """
    rows, columns = np.tril_indices(d, -1)
    source = np.full((d, d), len(rows))
    source[rows, columns] = np.arange(len(rows))
    return jnp.append(free, 0.0)[source]


def _read_lower_triangle(d: int, _: None, matrix: Array) -> tuple[Array]:
    rows, columns = np.tril_indices(d, -1)
    return (matrix.reshape(-1)[rows * d + columns],)


_strict_lower_triangle.defvjp(lambda free, d: (_strict_lower_triangle(free, d), None), _read_lower_triangle)


def initial_point(shape: ModelShape, data: Sequence[TableData]) -> npt.NDArray[np.float64]:
    """A start from the noisy moments.

    Means and covariances read off; of linear outcomes least squares, of others slopes of zero and the intercept, or the
    level of counts, at the outcome's mean.
    """
    family, spread = shape.tables[0].outcome.family_name, np.zeros(0)
    if shape.has_spread:
        spread = np.array([_LOG_SPREAD_PRIOR[family][0]])
    coefficients = np.zeros(len(shape.names))
    if shape.names[0] == "Intercept":
        coefficients[0] = _initial_intercept(shape.tables[0], data[0])
    if family == "linear" and shape.has_spread:
        coefficients, spread[0] = _least_squares(shape.tables[0], data[0], coefficients)
    predictors = [_initial_predictors(table, its) for table, its in zip(shape.tables, data, strict=True)]
    return np.concatenate([np.asarray(unconstrained(shape.prior, shape.names, coefficients)), spread, *predictors])


def _least_squares(
    table: TableShape, data: TableData, coefficients: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], float]:
    """Coefficients and the logarithm of the residual variance, as far as noise allows.

    From slopes of zero a search ends where the variance of the outcome is put down to slopes and predictors that are
    too large, if its residual variance is small beside its bounds: thousands below the mode, and flat all around.
    """
    rows = float(data.num_rows)
    sums, noises = _by_powers(table, data.observed), _by_powers(table, data.noise_stddevs)
    if any(powers not in sums for powers in ((0, 2), (1, 1), (2, 0))):
        return coefficients, _LOG_SPREAD_PRIOR["linear"][0]
    second, cross, square = (np.asarray(sums[powers]) / rows for powers in ((0, 2), (1, 1), (2, 0)))
    mean, level = np.zeros(len(cross)), 0.0
    if table.has_intercept and (0, 1) in sums and (1, 0) in sums:
        mean, level = np.asarray(sums[0, 1]) / rows, float(sums[1, 0]) / rows
    covariance, cross = second - np.outer(mean, mean), cross - level * mean
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    # What noise of this size can do to an eigenvalue is not believed.
    doubt = 2 * math.sqrt(len(mean)) * float(noises[0, 2]) / rows + 1e-9
    covariance = (vectors * np.maximum(values, doubt)) @ vectors.T
    known = np.asarray(data.offset, dtype=np.float64).reshape(-1) if table.has_offset else np.zeros(0)
    free = len(mean) - len(known)
    slopes = np.linalg.solve(covariance[:free, :free], cross[:free] - covariance[:free, free:] @ known)
    slopes = np.append(np.clip(slopes, -10.0, 10.0), known)
    left = float(square) - level**2 - 2 * slopes @ cross + slopes @ covariance @ slopes
    own = slopes[:free] if not table.has_intercept else np.append(level - slopes @ mean, slopes[:free])
    shared = np.linalg.solve(np.asarray(data.matrix), own - np.asarray(data.shift))
    return shared, math.log(max(left, 2 * float(noises[2, 0]) / rows, 1e-9))


def _by_powers(table: TableShape, values: Any) -> dict[tuple[int, int], Any]:
    """What belongs to each block, by its powers of y and of x."""
    return {(block.y_power, block.degree): value for block, value in zip(table.blocks, values, strict=True)}


def _initial_intercept(table: TableShape, data: TableData) -> float:
    sums = _by_powers(table, data.observed)
    if (1, 0) not in sums:
        return 0.0
    low, high = table.outcome.low, table.outcome.high
    mean = float(sums[1, 0]) / float(data.num_rows)
    mean = float(np.clip(mean, low + 0.02 * (high - low), high - 0.02 * (high - low)))
    if table.outcome.family_name == "logistic":
        return 2 * float(np.arctanh(mean)) if table.outcome.link == "logit" else float(np.sqrt(2 / np.pi) * 1.5 * mean)
    if table.outcome.family_name == "poisson":
        return float(np.log(mean)) if table.outcome.link == "log" else float(np.log(np.expm1(mean)))
    return mean


def _initial_predictors(table: TableShape, data: TableData) -> npt.NDArray[np.float64]:
    d, rows = table.dimension, float(data.num_rows)
    lower, upper = np.asarray(data.lower), np.asarray(data.upper)
    sums, noises = _by_powers(table, data.observed), _by_powers(table, data.noise_stddevs)
    margin = 0.05 * (upper - lower)
    if table.zero_mean:
        mean = np.zeros(d)
    else:
        mean = (lower + upper) / 2
        if (0, 1) in sums:
            mean = np.clip(np.asarray(sums[0, 1]) / rows, lower + margin, upper - margin)
    largest = np.asarray(_largest_variance(table, lower, upper, mean))
    covariance = np.diag(largest / 3)
    if (0, 2) in sums:
        covariance = np.asarray(sums[0, 2]) / rows - np.outer(mean, mean)
    # What noise of this size can do to a variance and, by its spectral norm, to a correlation matrix is not believed.
    noise = float(noises.get((0, 2), rows)) / rows
    shares = np.clip(np.diag(covariance) / largest, np.clip(2 * noise / largest, 1e-4, 0.05), 0.95)
    scale = np.sqrt(shares * largest)
    correlation = covariance / np.outer(scale, scale)
    np.fill_diagonal(correlation, 1.0)
    doubt = float(np.clip(2 * np.sqrt(d) * noise / np.min(scale) ** 2, 1e-3, 0.1))
    values, vectors = np.linalg.eigh((correlation + correlation.T) / 2)
    correlation = (vectors * np.maximum(values, doubt)) @ vectors.T
    root = np.sqrt(np.diag(correlation))
    factor = np.linalg.cholesky((1 - doubt) * correlation / np.outer(root, root) + doubt * np.eye(d))
    partial = []
    for i in range(1, d):  # invert the transform row by row
        left = 1.0
        for j in range(i):
            z = factor[i, j] / np.sqrt(left)
            partial.append(np.arctanh(np.clip(z, -0.95, 0.95)))
            left *= 1 - z**2
    free_mean = [] if table.zero_mean else [_logit((mean - lower) / (upper - lower))]
    return np.concatenate([*free_mean, _logit(shares), np.array(partial)])


def _logit(share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(np.log(share) - np.log1p(-share))
