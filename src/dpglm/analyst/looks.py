"""What the stages of a release say about the table's own estimate t, and where the next stage should look from.

Deterministic, and public: it reads nothing but noisy stages, so the custodian runs it between stages and the analyst
can run it again. The first stage is summarised by its Laplace approximation; each later one is a linear look

    z = H (t - theta_0) + noise,        H near N I in whitened coordinates,

at t, the estimate that the table itself would give (docs/stages.md). All of them describe one table: its sampling error
enters once, between t and the coefficients of the population.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpglm.analyst.assemble import assemble, stacked, starts
from dpglm.analyst.model import ModelShape, Parameters, TableData, coefficient_covariance, constrain
from dpglm.analyst.modes import find_modes
from dpglm.analyst.priors import NormalPrior
from dpglm.analyst.programs import kept_array, kept_program
from dpglm.centring import Centring, ResidualTable, residual_table
from dpglm.formula import Design
from dpglm.release_file import Release, Stage

Floats = npt.NDArray[np.float64]

# Constants of the method; docs/stages.md says what each is for and how it was chosen.
CLIP = 4.0  # residual standard deviations that a count or linear residual may have, at a leverage of 4
FIRST_TOLERANCE, LATER_TOLERANCE = 0.3, 0.15  # relative error of the predicted information: after moments, after a look
CURVATURE = 2.0  # allowance for what is left of second-order terms, in typical ones
DISPERSION_TOLERANCE = 0.7  # relative error of the dispersion of counts, as the stages before a look give it
_CUT_INFORMATION = 0.5  # information that the bound takes and the prediction misses, over the bound's leverage
_INFORMATION_LEVERAGE = 10.0  # bound of a row's information, in that of an average row, at a signal N mu^2 / D of 360


class _Constants(NamedTuple):
    """Those of a family."""

    discrepancy: float  # of the coefficients' size: how far moments may be from the table's own estimate
    # A Laplace approximation is too narrow where the moments are weak: signal of theirs where its variance is doubled.
    weak_look: float
    # Bound of a row's squared score, in those of an average row of extreme residual: growth * r^power, with r for the
    # table's size relative to its noise; below r = large_noise so many times the power; never less than the least.
    least_leverage: float
    growth: float
    power: float
    large_noise: float
    times_the_power: float
    least_information_leverage: float


_CONSTANTS = {
    "logistic": _Constants(
        discrepancy=0.7, weak_look=0.9, least_leverage=0.3, growth=1.7, power=0.25, large_noise=0.6,
        times_the_power=0.8, least_information_leverage=1.5,
    ),
    "poisson": _Constants(
        discrepancy=1.0, weak_look=0.9, least_leverage=0.7, growth=5.8, power=0.2, large_noise=0.1,
        times_the_power=2.0, least_information_leverage=3.5,
    ),
    "linear": _Constants(
        discrepancy=0.3, weak_look=2.0, least_leverage=0.8, growth=4.2, power=0.125, large_noise=0.1,
        times_the_power=2.0, least_information_leverage=3.5,
    ),
}  # fmt: skip
_DOUBT = 2e-4  # noise of the first stage, at least, of the largest that its sums can be
_EIGENVALUE_FLOOR = 1e-3
_LEAST_INFORMATION, _LEAST_EXPECTED = 0.1, 0.05  # of an average direction; less where it is known to be less
_SEEN = 1 / 3  # error of a look's information over that information, below which it is known from the look alone
_MISSED = 2.5  # standard errors by which a look's information is below its prediction
FEW_ROWS = 0.5  # of what an average direction knows, in one that is hardly whitened
_WEAKEST = 0.02  # precision of a first look without its prior, in that of the prior
_PREDICTED_ROWS = 2**11


@dataclass(frozen=True)
class FirstLook:
    """The Laplace approximation of the moments: coefficients, their covariance, and the predictors' distribution."""

    coefficients: Floats
    covariance: Floats
    rows: Floats  # pseudo-rows of the inferred distribution, with the intercept and any offset
    spread: float
    squared_mu: float  # what the moments cost


@dataclass(frozen=True)
class Knowledge:
    """What is known of t after some stages, as a Gaussian in information form, scaled coefficients.

    ``first_mean`` and ``first_covariance`` are the first look, without discrepancy; ``precision`` and ``shift`` the
    linear looks since. ``information`` is of one row, and ``error`` says how well it is known: entry (i, j) to about
    sqrt(error_ii error_jj), whatever its size.
    """

    first_mean: Floats
    first_covariance: Floats
    discrepancy: float
    precision: Floats
    shift: Floats
    information: Floats
    error: Floats
    centre: Floats
    covariance: Floats
    mean_weight: float
    spread: float
    tolerance: float
    first: FirstLook


def first_looks(releases: Sequence[Release | tuple[Release, ...]]) -> list[FirstLook]:
    """Laplace approximations of the first stages of releases of one shape, in one batch.

    Several releases of one dataset, as a tuple, are one look: their noisy sums together.
    """
    groups = [(each,) if isinstance(each, Release) else each for each in releases]
    options = {"link": None, "dispersion": None, "prior": None, "moments": "exact", "noise_aware": True}
    assembled = [assemble(group, **options) for group in groups]  # type: ignore[arg-type]
    shape, data = assembled[0][0], [_with_doubt(*each) for each in assembled]
    together = stacked(data)
    laplace = find_modes(shape, together, starts(shape, data))
    covariances = coefficient_covariance(shape, together, laplace.mode, laplace.factor)
    looks = []
    for number, group in enumerate(groups):
        parameters = _parameters(shape, data[number], laplace.mode[number])
        table = parameters.tables[0]
        rows = _pseudo_rows(np.asarray(table.mean), np.asarray(table.covariance), group[0].design)
        spread = float(np.clip(parameters.spread, 1e-8, 1e3))
        cost = sum(release.stages[0].mu ** 2 for release in group)
        looks.append(FirstLook(np.asarray(parameters.coefficients), covariances[number], rows, spread, cost))
    return looks


def _with_doubt(shape: ModelShape, data: tuple[TableData, ...]) -> tuple[TableData, ...]:
    """Moments as if their noise were at least a small part of what the rows could add up to.

    A Gaussian model that does not fit is followed wherever it leads if it is told that the sums are exact: the
    coefficient of a level without rows was seen to take the place of all others.
    """
    doubted = []
    for table, arrays in zip(shape.tables, data, strict=True):
        largest = max(abs(table.outcome.low), abs(table.outcome.high))
        least = [_DOUBT * arrays.num_rows * largest**block.y_power for block in table.blocks]
        doubted.append(arrays._replace(noise_stddevs=np.maximum(arrays.noise_stddevs, least)))
    return tuple(doubted)


@kept_program
def _parameters(shape: ModelShape, data: tuple[TableData, ...], free: Any) -> Parameters:
    return constrain(shape, data, free)[0]


def knowledge_of_first(release: Release, first: FirstLook) -> Knowledge:
    """The first look as a statement about t: the prior taken out, the sampling error taken off."""
    design, rows = release.design, release.num_rows
    size = len(design.coefficient_names)
    precision, mean = _without_prior(first, np.asarray(NormalPrior().scales(design.coefficient_names)))
    spread = first.spread if design.family.name != "logistic" else 1.0
    table = table_of(design, spread)
    information, weight = _predicted_information(table, first, design, first.coefficients)
    sampling = dispersion_of(design, spread) * np.linalg.inv(information * rows)
    widened = 1 + (_CONSTANTS[design.family.name].weak_look * size / (rows * first.squared_mu)) ** 2
    moments = next(block for block in release.stages[0].blocks if (block.y_power, block.degree) == (0, 2))
    return Knowledge(
        first_mean=mean,
        first_covariance=_positive(widened * np.linalg.inv(precision) - sampling, 1e-8),
        discrepancy=_CONSTANTS[design.family.name].discrepancy * float(np.sqrt(np.mean(first.coefficients**2))),
        precision=np.zeros((size, size)),
        shift=np.zeros(size),
        information=information,
        error=weight * moments.noise_stddev / rows * np.eye(size),
        centre=first.coefficients,
        covariance=first.covariance,
        mean_weight=weight,
        spread=spread,
        tolerance=FIRST_TOLERANCE,
        first=first,
    )


def _without_prior(first: FirstLook, scales: Floats) -> tuple[Floats, Floats]:
    """Precision and mean that the moments alone give the coefficients, whose normal prior has these scales.

    Where they say less than the prior they cannot pull far: a posterior that is as wide as the prior, and far from it,
    tells of a model that does not fit, not of a coefficient.
    """
    values, vectors = np.linalg.eigh(np.linalg.inv(first.covariance) * np.outer(scales, scales))
    own = np.maximum(values - 1, _WEAKEST)
    pull = values * (vectors.T @ (first.coefficients / scales))
    farthest = 3 * np.sqrt(own)
    pull = np.where(own < 1, np.clip(pull, -farthest, farthest), pull)
    return ((vectors * own) @ vectors.T) / np.outer(scales, scales), (vectors @ (pull / own)) * scales


def next_centring(release: Release, known: Knowledge, mu: float) -> Centring:
    """Centre, whitening and bounds of the next stage, which may cost ``mu``.

    A larger bound means more noise, a smaller one changes what is estimated where the regression is only roughly right:
    its leverage grows with the signal so that both errors shrink.
    """
    design, rows = release.design, release.num_rows
    size = len(design.coefficient_names)
    family, dispersion = design.family.name, dispersion_of(design, known.spread)
    signal = rows * release.privacy.mu**2 / size
    # Squared residual range over its weight: what a row of average leverage may contribute.
    per_row = 1 / known.mean_weight if family == "logistic" else CLIP**2 * dispersion
    noise = 4 * size * per_row / dispersion / (mu * mu * rows)
    relative = rows / 40_000 / noise
    rule = _CONSTANTS[family]
    if relative < rule.large_noise:
        relative = rule.large_noise * (relative / rule.large_noise) ** rule.times_the_power
    leverage = max(rule.least_leverage, rule.growth * relative**rule.power)
    clip = CLIP * math.sqrt(leverage / 4)
    if family != "logistic":
        per_row = clip**2 * dispersion
    whitening = _inverse_root(known.information)
    offset = () if design.offset is None else (_offset_slope(design),)
    return Centring(
        centre=(*map(float, known.centre), *offset),
        whitening=tuple(tuple(map(float, row)) for row in whitening),
        score_bound=math.sqrt(leverage * size * per_row),
        information_bound=size * _information_leverage(family, signal),
        spread=known.spread,
        clip=clip,
    )


def _information_leverage(family: str, signal: float) -> float:
    """Bound of a row's information, in that of an average row: small where noise is large, and it always grows."""
    relative = signal / 360
    bound = _INFORMATION_LEVERAGE * (math.sqrt(relative) if relative < 1 else relative**0.25)
    return max(bound, _CONSTANTS[family].least_information_leverage)


class Belief(NamedTuple):
    """A prior of the coefficients as a Gaussian, scaled units: where the errors of a look depend on where t may be."""

    mean: Floats
    covariance: Floats


def add_look(release: Release, known: Knowledge, stage: Stage, belief: Belief | None = None) -> Knowledge:
    """What is known of t after one more stage, with its information plugged in and its errors allowed for.

    Without a belief the prior is the default one, as it is to the custodian.
    """
    design, rows = release.design, release.num_rows
    centring = stage.centring
    assert centring is not None
    unwhitening = _inverse(centring.whitening_matrix)
    expected = expected_information(known, design, centring)
    look = linear_look(stage, rows, known.tolerance, expected)
    information = unwhitening @ look.information @ unwhitening.T
    sampling = dispersion_of(design, known.spread) * np.linalg.inv(information)
    prior = belief or Belief(*NormalPrior().as_normal(design.coefficient_names))
    behind = np.linalg.inv(prior.covariance + sampling)  # the prior, seen from t
    first_precision = np.linalg.inv(known.first_covariance + known.discrepancy**2 * np.eye(len(sampling)))
    before = known.precision + first_precision
    before_shift = known.shift + first_precision @ known.first_mean
    mean = centre = centring.centre_vector
    variance = look.score_noise**2
    trusted = _trusted(known, centring, look, expected, rows)
    allowed = allowance(release, known, centring, look.information_error, trusted)
    for _ in range(5):  # slope and allowances depend on how far t is from the centre
        # z = H W^-T (t - centre): whitened coefficients are W^-T times scaled ones.
        bent = rows * (expected_information(known, design, centring, mean) - expected)
        slope = _positive(look.information + bent, look.least) @ unwhitening.T
        precision = slope.T @ trusted @ slope / variance
        shift = slope.T @ trusted @ (look.score + slope @ centre) / variance
        covariance = _inverse(before + precision + behind)
        mean = covariance @ (before_shift + shift + behind @ prior.mean)
        variance = look.score_noise**2 + allowed(mean - centre, covariance)
    spread = _measured_dispersion(known, stage, rows * expected) if design.family.name == "poisson" else known.spread
    table = table_of(design, spread)
    there, weight = _predicted_information(table, known.first, design, mean)
    if design.family.name == "poisson":  # grows with the rate; that of logistic outcomes hardly changes on the way
        here, _ = _predicted_information(table, known.first, design, centre)
        root = np.linalg.cholesky(information)
        information = root @ relative(there, here) @ root.T
    return replace(
        known,
        precision=known.precision + precision,
        shift=known.shift + shift,
        information=information / rows,
        error=look.information_error / rows * unwhitening @ unwhitening.T,
        centre=mean,
        covariance=covariance,
        mean_weight=weight,
        spread=spread,
        tolerance=math.hypot(LATER_TOLERANCE, look.information_error / rows),
    )


def _trusted(known: Knowledge, centring: Centring, look: LinearLook, expected: Floats, rows: int) -> Floats:
    """Projector on the directions whose information is known, from the look or from a prediction that it bears out.

    In the others, of a level with a handful of rows, the slope of the score may be zero, and the score says nothing.
    """
    whitened = centring.whitening_matrix @ known.information @ centring.whitening_matrix.T
    seen, vectors = np.linalg.eigh(look.information)
    predicted, before = (np.diag(vectors.T @ matrix @ vectors) for matrix in (rows * expected, whitened))
    is_seen = look.information_error < _SEEN * seen
    missed = (predicted - seen) / np.hypot(look.information_error, known.tolerance * predicted)
    is_predicted = (missed < _MISSED) & (before > FEW_ROWS)
    return np.asarray((vectors * (is_seen | is_predicted)) @ vectors.T)


@dataclass(frozen=True)
class LinearLook:
    """A later stage in its own whitened coordinates: its score, and its information shrunk toward its prediction."""

    score: Floats
    score_noise: float
    information: Floats
    information_error: float
    least: float  # information in any direction


def expected_information(
    known: Knowledge, design: Design, centring: Centring, coefficients: Floats | None = None
) -> Floats:
    """E[lambda w z z'] of one row: the identity, less what the bounds take.

    Over rows of the inferred distribution, turned so that without bounds they have the information that is known. With
    ``coefficients``, what a score sees of a finite move to them: kappa in place of lambda, and w the mean slope on the
    way there.
    """
    first, whitening = known.first, centring.whitening_matrix
    table = residual_table(design.family.name, centring.spread, centring.clip, design.response_range)
    u = first.rows @ np.array(centring.centre)
    weight, largest, mean = table.at(u, table.weight, table.largest, table.mean)
    z = first.rows[:, : centring.dimension] @ whitening.T
    modelled = np.linalg.cholesky(_positive((z * weight[:, None]).T @ z / len(z), 1e-9))
    wanted = np.linalg.cholesky(_positive(whitening @ known.information @ whitening.T, 1e-9))
    z = z @ (wanted @ np.linalg.inv(modelled)).T
    slope = weight
    if coefficients is not None:
        step = z @ np.linalg.solve(whitening.T, coefficients - centring.centre_vector)
        (mean_there,) = table.at(u + step, table.mean)
        far = np.abs(step) > 1e-3
        slope = np.where(far, (mean_there - mean) / np.where(far, step, 1.0), weight)
    squared = np.maximum(np.sum(z**2, axis=1), 1e-300)
    kappa = np.minimum(1.0, centring.score_bound / (largest * np.sqrt(squared)))
    if coefficients is None:
        kappa = np.minimum(kappa, centring.information_bound / np.maximum(weight * squared, 1e-300))
    error = float(np.trace(whitening @ known.error @ whitening.T)) / len(whitening)
    least = min(_LEAST_EXPECTED, max(error, 1e-9))
    return _positive((z * (kappa * slope)[:, None]).T @ z / len(z), least)


def linear_look(stage: Stage, rows: int, tolerance: float, expected: Floats) -> LinearLook:
    """Entry by entry, the noisy information is averaged with its prediction by precision, and kept positive."""
    score, information, _ = stage.blocks
    size = len(score.integers)
    observed = symmetric(information.values, size)
    noise = np.full((size, size), information.noise_stddev**2 / 2) + np.diag(
        np.full(size, information.noise_stddev**2 / 2)
    )
    prior = (tolerance * rows) ** 2 * (np.ones((size, size)) + 3 * np.eye(size))  # a diagonal varies twice as much
    predicted = rows * expected
    mean = predicted + prior / (prior + noise) * (observed - predicted)
    error = float(np.sqrt(np.mean(prior * noise / (prior + noise))))
    least = min(_LEAST_INFORMATION * rows, error)
    return LinearLook(score.values, score.noise_stddev, _positive(mean, least), error, least)


def _measured_dispersion(known: Knowledge, stage: Stage, information: Floats) -> float:
    """Dispersion of counts: the variance of a look's scores over its information, averaged with what was known.

    Only ever less than before: where moments say little of it they say too much, and the next look's bound grows with
    it. A larger one is for the last look itself to find.
    """
    square = stage.blocks[2]
    size, unit = len(information), float(np.trace(information))
    observed = float(np.trace(symmetric(square.values, size))) / unit
    noise = size * (square.noise_stddev / unit) ** 2
    prior = (DISPERSION_TOLERANCE * known.spread) ** 2
    return max(1.0, known.spread + prior / (prior + noise) * min(observed - known.spread, 0.0))


def allowance(
    release: Release,
    known: Knowledge,
    centring: Centring,
    information_error: float = 0.0,
    trusted: Floats | None = None,
) -> Callable[[Floats, Floats], float]:
    """Extra variance of each score, of a move and its covariance: the information's error, and the map's curvature.

    Both grow with the distance from the centre to t. The second-order term of a score is about
    (1/2) N |move|^2 / sqrt(w), spread over the coordinates, and as much less as the bound takes from the slope. A move
    where rows know little counts by what they know, and not at all outside of what is ``trusted``. A linear regression
    has none; there the information is less than the slope of the score by what its bound takes.
    """
    design, rows = release.design, release.num_rows
    unwhitening, size = _inverse(centring.whitening_matrix), centring.dimension
    linear = design.family.name == "linear"
    cut = _CUT_INFORMATION * rows * size / centring.information_bound
    slope = None if linear else expected_information(known, design, centring, centring.centre_vector)
    left = 0.0 if slope is None else float(np.trace(slope)) / size
    informing = centring.whitening_matrix @ known.information @ centring.whitening_matrix.T
    if trusted is not None:
        informing = trusted @ informing @ trusted

    def allowed(move: Floats, covariance: Floats) -> float:
        moves = unwhitening.T @ (np.outer(move, move) + covariance) @ unwhitening
        squared = float(np.trace(moves))
        informed = min(squared, float(np.trace(informing @ moves)))
        if linear:
            return information_error**2 * squared + cut**2 * informed
        curved = CURVATURE * 0.5 * rows * informed / math.sqrt(known.mean_weight) * left
        return information_error**2 * squared + curved**2 / size

    return allowed


def symmetric(values: Floats, size: int) -> Floats:
    """A matrix from its upper triangle, row by row."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = values
    return matrix + np.triu(matrix, 1).T


def table_of(design: Design, spread: float) -> ResidualTable:
    """The residual that later stages take."""
    return residual_table(design.family.name, spread, CLIP, design.response_range)


def dispersion_of(design: Design, spread: float) -> float:
    """Variance of the score over its information: one, but for counts."""
    return spread if design.family.name == "poisson" else 1.0


def _predicted_information(
    table: ResidualTable, first: FirstLook, design: Design, coefficients: Floats
) -> tuple[Floats, float]:
    """E[w x x'] of one row and E[w], over the inferred distribution of the predictors."""
    size = len(coefficients)
    known = [] if design.offset is None else [_offset_slope(design)]
    (weight,) = table.at(first.rows @ np.append(coefficients, known), table.weight)
    rows = first.rows[:, :size]
    return np.asarray((rows * weight[:, None]).T @ rows / len(rows)), float(np.mean(weight))


def _pseudo_rows(mean: Floats, covariance: Floats, design: Design) -> Floats:
    """Quasi-random rows of the inferred distribution, after a column for the intercept.

    Not clamped to the bounds: that would take half of a binary column's variance.
    """
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(mean)))
    rows = mean + normal_points(len(mean)) @ root.T
    return np.column_stack([np.ones(len(rows)), rows]) if design.intercept else rows


@lru_cache(maxsize=16)
@kept_array  # scipy.stats takes as long to import as a small model to sample
def normal_points(dimension: int) -> Floats:
    """Quasi-random standard normal rows, always the same."""
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    uniform = Sobol(dimension, seed=1).random(_PREDICTED_ROWS)
    return np.asarray(ndtri(np.clip(uniform, 1e-9, 1 - 1e-9)))


def _offset_slope(design: Design) -> float:
    assert design.offset is not None
    outcome_scale = design.outcome.scale if design.family.coding == "scaled" else 1.0
    return float(design.offset.factors[0].scale / outcome_scale)


def _inverse_root(matrix: Floats) -> Floats:
    """Inverse square root, small eigenvalues raised."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, _EIGENVALUE_FLOOR * values.max())
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)


def relative(matrix: Floats, unit: Floats) -> Floats:
    """M of matrix = L M L', where unit = L L'."""
    root = np.linalg.cholesky(_positive(unit, 1e-9 * float(np.trace(unit))))
    return np.asarray(np.linalg.solve(root, np.linalg.solve(root, matrix).T))


def _inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _positive(matrix: Floats, floor: float) -> Floats:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)
