"""What looks say of the table's own estimate t: the coefficients that the table itself would give, without any noise.

Deterministic and public: it reads nothing but noisy looks, so the custodian runs it between looks and the analyst runs
it again. In whitened coordinates a look at theta_0 says

    g = N E[kappa (h(x' t) - h(x' theta_0)) z] + noise,       H = N E[lambda w z z'] + noise,

expectations over pseudo-rows (``population``), linearised by the mean slope from theta_0 to t, which is iterated. What
is known of t is a Gaussian in information form. The table's sampling error is no part of it (``gaussian``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpglm.families import Family
from dpglm.families.base import CLIP
from dpglm.looks.error import Bounding, Lengths, predicted_error, taken_by
from dpglm.looks.misfit import Pooled, pooled
from dpglm.looks.misfit import Seen as Part
from dpglm.looks.population import (
    Population,
    Rare,
    Seen,
    Standing,
    inverse,
    of_moments,
    positive,
    root_mean_square,
    transport,
)
from dpglm.looks.tails import Tails, assumed_tails
from dpglm.looks.viewpoint import Viewpoint

Floats = npt.NDArray[np.float64]

# Constants of the method; docs/looks.md says what each is for and how it was chosen.
# Relative error of the predicted information, as guessed before it is seen: at first, and after a look; how far off the
# guess may be, as the deviation of its logarithm, and the tolerances that are weighed, in guesses.
FIRST_TOLERANCE, LATER_TOLERANCE = 0.15, 0.1
_GUESS, _TOLERANCES = 0.7, np.geomspace(0.2, 6.0, 25)
CURVATURE = 0.5  # allowance for what is left of second-order terms, in typical ones
BENT = 0.4  # relative error of a move, because predictors are not normal, in the family's discrepancy
MOST_BLURRED = 20.0  # relative error of an information, because a column's scale was hardly seen
SPREAD_TOLERANCE = 0.7  # relative error of the spread, as the looks before give it
_CUT_INFORMATION = 0.5  # information that the bound takes and the prediction misses, over the bound's leverage
_LEAST_INFORMATION = 0.1  # of an average direction; less where it is known to be less
_LEAST_COVARIANCE = 0.05  # of a predictor in standard units
_LEAST_SLOPE = 0.05  # of a score, of an average direction; less where the information is known to be less
_SMALLEST_STEP_DOWN = 0.2  # of the spread, at one look
_LEAST_RATIO, _LEAST_SHARE = 0.05, 0.1  # of the scores' variance over the slope; of what is expected of it
_ROBUST_SHAPE, _DOUBTED = 0.5, 0.5  # the same of units; of what is left in doubt of it, added
_SQUARE_SHAPE = 0.2  # relative error of an entry of the scores' variance, as the slope predicts it
_SMALLEST = 1e-9
_FIRST_ROUNDS, _LATER_ROUNDS = 8, 5


class Belief(NamedTuple):
    """A prior of the coefficients as a Gaussian, standard units: the errors of a look depend on where t may be."""

    mean: Floats
    covariance: Floats


@dataclass(frozen=True, eq=False)
class Look:
    """A released look: where it looked from, and what it says, each with its noise (isometric, for matrices)."""

    view: Viewpoint
    score: Floats
    information: Floats
    square: Floats
    score_noise: float
    information_noise: float
    square_noise: float
    mu: float  # what it cost


class Units(NamedTuple):
    """What is known of the units that are protected.

    ``score_cost`` is what a look costs, in units of its score's precision. ``robust``: scores of a unit are no single
    residual (weights, several rows), so that their variance is taken as it is seen, and tells no spread. ``mean_rows``
    is how many rows a unit has, ``long_rows`` how many that of a typical row has: bounds are of all rows of a unit
    together, so that a row is bounded as if by so much less. ``followed``: rows follow each other until an event.
    """

    score_cost: float = 4.0
    robust: bool = False
    mean_rows: float = 1.0
    long_rows: float = 1.0
    followed: bool = False

    @property
    def long_scores(self) -> float:
        """How much less than a row by itself one may score: followed to an event, hardly any."""
        return 1.0 if self.followed else self.long_rows

    @property
    def long_information(self) -> float:
        """How much less information than of a row by itself may be of one: of those who are followed none is far more
        than that of others.
        """
        return math.sqrt(self.long_rows) if self.followed else self.long_rows

    @property
    def past(self) -> float:
        """Rows before a typical one, which leave less of the bound."""
        return (self.long_rows - 1) / 2 if self.followed else 0.0

    def of_rows(self, view: Viewpoint) -> Viewpoint:
        """A viewpoint as a typical row meets it."""
        if self.long_rows == 1:
            return view
        score, information = view.score_bound / self.long_scores, view.information_bound / self.long_information
        return replace(view, score_bound=score, information_bound=information)


ONE_ROW = Units()


class Leaning(NamedTuple):
    """What a look's score is off by because outcomes scatter otherwise than was assumed, and the error of that."""

    score: Floats
    error: Floats


class Last(NamedTuple):
    """A look, what it sees of the population, and its slope."""

    look: Look
    seen: Seen
    slope: Floats


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What is known after some looks, standard units. ``num_rows`` is how many rows count, as far as that is known.

    ``parts`` is what each look says of t, and ``pooled`` what all of them do; ``centre`` and ``covariance`` with the
    prior. The first look enters with a discrepancy, because its reading may be off. ``information`` is of one row at
    the centre, ``doubt`` its relative error by coefficient where that is of a rare level, and ``blurred`` where the
    survey hardly saw its column's scale. ``last`` is the last look,
    for what it says of t's sampling error. ``surprises`` has one number a look but the first two: the chance of a score
    as far from what the looks before predicted. ``tails`` are of the table.
    """

    family: Family
    response_range: tuple[float, float]
    num_rows: float
    belief: Belief
    centre: Floats
    covariance: Floats
    information: Floats
    doubt: Floats
    blurred: Floats
    population: Population
    spread: float
    mean_weight: float
    intercept: bool
    offset_slope: float | None
    tolerance: float = FIRST_TOLERANCE
    parts: tuple[Part, ...] = ()
    pooled: Pooled | None = None
    last: Last | None = None
    looks: int = 0
    surprises: tuple[float, ...] = ()
    tails: Tails = field(default_factory=assumed_tails)
    units: Units = ONE_ROW
    agreeing: bool = False  # looks that are expectations agree more than looks do: their misfit is not learnt

    @property
    def misfit(self) -> float:
        """rho: how far what bounding takes is from averaging out, as far as looks tell."""
        return self.family.look_rule.misfit if self.pooled is None else self.pooled.misfit

    @property
    def efficiency(self) -> Floats:
        """By coefficient, the standard error of what looks estimate over the plain estimate's: by the family.

        At least one: that clipped counts tell more than counts themselves is the family's word, not the table's.
        """
        weights = np.array([float(np.vdot(inverse(self.information), part.precision)) for part in self.parts])
        of_parts = np.array([part.sampling for part in self.parts])
        return np.asarray(np.sqrt(np.maximum(weights @ of_parts / weights.sum(), 1.0)))

    @property
    def dispersion(self) -> float:
        """Variance of the score over its information."""
        return self.family.dispersion(self.spread)

    def with_offset(self, centre: Floats) -> Floats:
        """The centre, with the known slope of an offset after it."""
        return centre if self.offset_slope is None else np.append(centre, self.offset_slope)


def beginning(
    family: Family,
    response_range: tuple[float, float],
    num_rows: float,
    belief: Belief,
    centre: Floats,
    intercept: bool,
    offset_slope: float | None,
    rare: Rare,
    blurred: Floats,
    units: Units,
) -> Knowledge:
    """Before any look: standardised predictors, as if independent, and the centre that the survey shows.

    Of a rare level the information is that of as many rows as the survey saw.
    """
    size, has_offset = len(centre), offset_slope is not None
    columns = size - intercept + has_offset
    population = _independent(columns, intercept, has_offset)
    spread = family.first_spread
    table = family.residual_table(spread, CLIP, response_range)
    at = np.array([centre[0] if intercept else 0.0])
    weight = float(table.at(at, table.weight)[0][0])
    return Knowledge(
        family, response_range, num_rows, belief, centre, belief.covariance,
        weight * np.diag(rare.information), rare.doubt, blurred, replace(population, rare=rare.values),
        spread, weight, intercept, offset_slope, units=units,
    )  # fmt: skip


@lru_cache(maxsize=4)
def _independent(columns: int, intercept: bool, has_offset: bool) -> Population:
    """Pseudo-rows before anything is known of them."""
    return of_moments(np.zeros(columns), np.eye(columns), intercept, has_offset)


def add_look(known: Knowledge, look: Look) -> Knowledge:
    """What is known after one more look: its information plugged in, its errors allowed for."""
    look = replace(look, view=known.units.of_rows(look.view))
    rows, view, first = known.num_rows, look.view, known.looks == 0
    standing = Standing(known.population, view, known.family, known.response_range, known.units.past)
    before, unwhitening = standing.seen(known.information), standing.unwhitening
    bounded, error, blurred = _information(known, look, before)
    information = unwhitening @ transport(bounded, before.bounded)(before.free) @ unwhitening.T / rows
    population = _population_of(information / known.mean_weight, known) if first else known.population
    if first:
        standing = Standing(population, view, known.family, known.response_range, known.units.past)
    now = standing.seen(information)
    measured = transport(bounded, now.bounded)
    slope = measured(now.slope_here)
    spread, doubt = _spread(known, look, now)
    leaning = _leaning(known, now, spread, doubt)
    precision, shift, mean, covariance = _located(known, look, now, leaning, measured, error, information, unwhitening)
    if first:
        precision, shift = _doubted(known, precision, shift, mean, look.mu)
    elif known.family.curved:
        move = mean - view.centre_vector
        precision, shift = _with_error(precision, shift, BENT * known.family.look_rule.discrepancy * move)
    sampling = known.dispersion * inverse(information * rows)
    behind = inverse(known.belief.covariance + sampling)  # the prior, seen from t
    bounding = Bounding(view.score_bound / math.sqrt(view.dimension * known.dispersion), view.clip)
    lengths = Lengths(standing, information, known.tails)
    of_bound = predicted_error(lengths, rows, np.array([bounding.bound]), 0.0, known.misfit)
    parts = (*known.parts, Part(precision, shift, bounding, of_bound.sampling[:, 0]))
    taken = taken_by(lengths, [part.bounding for part in parts])
    together = pooled(
        parts, taken, sampling, rows, known.family.look_rule.misfit, behind, behind @ known.belief.mean, known.agreeing
    )  # fmt: skip
    precision, shift = together.with_bounding
    covariance = inverse(behind + precision)
    mean = covariance @ (behind @ known.belief.mean + shift)
    spread, _ = _spread(known, look, now, mean - view.centre_vector)
    table = known.family.residual_table(spread, CLIP, known.response_range)
    here_table = known.family.residual_table(known.spread, CLIP, known.response_range)
    (there,) = table.at(population.predictor(known.with_offset(mean)), table.weight)
    here = now.weight if here_table is standing.table else here_table.at(now.u, here_table.weight)[0]
    moved = transport(positive(information, _SMALLEST), population.moments(here))(population.moments(there))
    moved *= population.change_of_rare(here_table, view.centre_vector, mean, float(np.mean(there) / np.mean(here)))
    return replace(
        known,
        centre=mean,
        covariance=covariance,
        blurred=blurred,
        information=positive(moved, 1e-6 * float(np.trace(information))),
        population=population,
        spread=spread,
        mean_weight=float(np.mean(there)),
        tolerance=math.hypot(LATER_TOLERANCE, error / rows / 2),
        parts=parts,
        pooled=together,
        last=Last(look, now, slope),
        looks=known.looks + 1,
        surprises=(*known.surprises, *([_surprise(known, look, slope @ unwhitening.T)] if known.looks > 1 else [])),
    )


def _information(known: Knowledge, look: Look, expected: Seen) -> tuple[Floats, float, Floats]:
    """Entry by entry, the noisy information averaged with its prediction by precision, kept positive; its error; and
    its relative error by coefficient, where the survey hardly saw a scale and so the prediction may be far off.
    """
    rows, size = known.num_rows, len(known.centre)
    predicted = rows * expected.bounded
    apart = look.information - predicted
    tolerance = rows * _tolerance(known.tolerance, apart / rows, look.information_noise / rows)
    prior = tolerance**2 * _ones(size, 4.0) * expected.relative_size**2  # a diagonal varies twice
    noise = look.information_noise**2 / 2 * _ones(size, 2.0)
    directions = look.view.whitening_matrix / np.linalg.norm(look.view.whitening_matrix, axis=0)
    off = (known.blurred * _along(directions, predicted)) ** 2
    if known.blurred.any():
        prior = prior + (directions**2 * off) @ (directions**2).T
    mean = predicted + prior / (prior + noise) * apart
    error = float(np.sqrt(np.mean(prior * noise / (prior + noise))))
    found = positive(mean, min(_LEAST_INFORMATION * rows, error) * expected.least_left(1))
    off = off * look.information_noise**2 / (off + look.information_noise**2)
    return found, error, np.minimum(np.sqrt(off) / _along(directions, found), MOST_BLURRED)


def _along(directions: Floats, matrix: Floats) -> Floats:
    """v' M v of every column v."""
    return np.asarray(np.einsum("aj,ab,bj->j", directions, matrix, directions))


def _tolerance(guess: float, apart: Floats, noise: float) -> float:
    """How far predictions of entries off the diagonal are off, from how far they are from what was seen."""
    entries = apart[np.triu_indices(len(apart), 1)]
    variances = (guess * _TOLERANCES) ** 2
    seen = variances + noise**2 / 2
    logs = -0.5 * (len(entries) * np.log(seen) + float(entries @ entries) / seen)
    logs -= 0.5 * (np.log(_TOLERANCES) / _GUESS) ** 2
    weight = np.exp(logs - logs.max())
    return math.sqrt(float(weight @ variances / weight.sum()))


@lru_cache(maxsize=16)
def _ones(size: int, diagonal: float) -> Floats:
    """A matrix of ones, but for its diagonal."""
    matrix = np.ones((size, size))
    np.fill_diagonal(matrix, diagonal)
    matrix.setflags(write=False)
    return matrix


def _population_of(second_moments: Floats, known: Knowledge) -> Population:
    """Pseudo-rows with the mean and covariance that the first look shows: there the weight is the same for all rows.

    An offset stays as it came from the survey, without relation to the others.
    """
    mean, covariance = np.zeros(len(second_moments)), second_moments
    if known.intercept:
        mean = second_moments[0, 1:] / second_moments[0, 0]
        covariance = second_moments[1:, 1:] / second_moments[0, 0] - np.outer(mean, mean)
    covariance = positive(covariance, _LEAST_COVARIANCE)
    has_offset = known.offset_slope is not None
    if has_offset:
        mean, old = np.append(mean, 0.0), covariance
        covariance = np.eye(len(mean))
        covariance[:-1, :-1] = old
    return of_moments(mean, covariance, known.intercept, has_offset, known.population.rare)


def _located(
    known: Knowledge,
    look: Look,
    now: Seen,
    leaning: Leaning,
    measured: Callable[[Floats], Floats],
    error: float,
    information: Floats,
    unwhitening: Floats,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Precision and shift of t by this look, linearised where t is; and where t is, by all that is known."""
    rows, view, first = known.num_rows, look.view, known.looks == 0
    centre = view.centre_vector
    sampling = known.dispersion * inverse(information * rows)
    behind = inverse(known.belief.covariance + sampling)  # the prior, seen from t
    before, before_shift = behind, behind @ known.belief.mean
    if known.pooled is not None:
        precision, shift = known.pooled.with_bounding
        before, before_shift = before + precision, before_shift + shift
    allowed = _allowance(known, view, now, error, information, unwhitening)
    least = min(_LEAST_SLOPE, max(error / rows, 1e-9)) * rows * now.least_left(0)
    mean, variance, lean = centre, look.score_noise**2, np.outer(leaning.error, leaning.error)
    squared = float(lean.trace())
    for _ in range(_FIRST_ROUNDS if first else _LATER_ROUNDS):  # slope and allowances depend on how far t is
        slope = positive(measured(now.slope(mean - centre)), least) @ unwhitening.T
        told = slope.T @ (np.eye(len(slope)) - lean / (variance + squared)) / variance
        precision = told @ slope
        shift = told @ (look.score - leaning.score + slope @ centre)
        covariance = inverse(before + precision)
        found = covariance @ (before_shift + shift)
        mean = (mean + found) / 2 if first else found  # the first step may be long
        variance = look.score_noise**2 + allowed(mean - centre, covariance)
    return precision, shift, mean, covariance


def _allowance(
    known: Knowledge, view: Viewpoint, now: Seen, error: float, information: Floats, unwhitening: Floats
) -> Callable[[Floats, Floats], float]:
    """Extra variance of each score, of a move and its covariance: the information's error, and the map's curvature.

    Both grow with the distance from the centre to t. The second-order term of a score is about (1/2) N |move|^2 /
    sqrt(w), spread over the coordinates, and as much less as the bound takes from the slope. A linear regression has
    none; there the information is less than the slope of the score by what its bound takes.
    """
    rows, size = known.num_rows, view.dimension
    metric = unwhitening @ unwhitening.T
    if known.family.curved:
        left = float(now.slope_here.trace()) / size
        bend = CURVATURE * 0.5 * rows / math.sqrt(known.mean_weight) * left
    cut = _CUT_INFORMATION * rows * size / view.information_bound

    def allowed(move: Floats, covariance: Floats) -> float:
        squared = float(move @ metric @ move) + float(np.vdot(metric, covariance))
        informed = min(squared, float(move @ information @ move) + float(np.vdot(information, covariance)))
        if known.family.curved:
            return error**2 * squared + (bend * informed) ** 2 / size
        return error**2 * squared + cut**2 * informed

    return allowed


def _doubted(known: Knowledge, precision: Floats, shift: Floats, mean: Floats, mu: float) -> tuple[Floats, Floats]:
    """The first look as it is believed: a moment match, right only for Gaussian predictors."""
    rule, size = known.family.look_rule, len(mean)
    covariance = inverse(precision)
    at = covariance @ shift
    signal = known.num_rows * 4 * mu**2 / known.units.score_cost
    widened = 1 + (rule.weak_look * size / signal) ** 2
    discrepancy = rule.discrepancy * root_mean_square(mean[known.intercept :])
    believed = inverse(covariance * widened + discrepancy**2 * np.eye(size))
    return believed, believed @ at


def _with_error(precision: Floats, shift: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Precision, and precision times mean, of what differs by independent errors, one a coefficient."""
    turned = np.linalg.inv(np.eye(len(error)) + precision * error**2)  # (P^-1 + E)^-1 = (1 + P E)^-1 P
    believed = turned @ precision
    return (believed + believed.T) / 2, turned @ shift


def _surprise(known: Knowledge, look: Look, slope: Floats) -> float:
    """Chance of a score this far from zero, where the looks before put the centre at t, give or take their error."""
    size = len(known.centre)
    variance = look.score_noise**2 * np.eye(size) + slope @ known.covariance @ slope.T
    return chi_square_tail(float(look.score @ np.linalg.solve(variance, look.score)), size)


def chi_square_tail(value: float, degrees: int) -> float:
    """Chance that a chi-square variable exceeds a value: a finite sum, so that a fit need not import SciPy.

    >>> round(chi_square_tail(11.07, 5), 4), round(chi_square_tail(9.488, 4), 4)
    (0.05, 0.05)
    """
    half = value / 2
    power = degrees % 2 / 2
    total = math.erfc(math.sqrt(half)) if power else 0.0
    for step in range(degrees // 2):
        total += math.exp(-half + (step + power) * math.log(max(half, 1e-300)) - math.lgamma(step + power + 1))
    return min(total, 1.0)


def _spread(known: Knowledge, look: Look, now: Seen, move: Floats | None = None) -> tuple[float, float]:
    """The spread by this look, and its relative error: what its square adds up to, over what it would under the spread
    that was assumed, with t a move away from the centre.
    """
    family = known.family
    if not family.has_spread:
        return known.spread, 0.0
    if known.units.robust:
        return known.spread, SPREAD_TOLERANCE
    expected = known.num_rows * float(np.trace(now.square(move)))
    noise = look.square_noise * math.sqrt(len(known.centre)) / expected
    prior = SPREAD_TOLERANCE**2
    ratio = 1 + prior / (prior + noise**2) * (float(np.trace(look.square)) / expected - 1)
    spread = max(family.least_spread, known.spread * max(_SMALLEST_STEP_DOWN, ratio))
    return spread, math.sqrt(prior * noise**2 / (prior + noise**2))


def _leaning(known: Knowledge, now: Seen, spread: float, doubt: float) -> Leaning:
    """Outcomes that are clipped on one side have another mean where they scatter otherwise."""
    standing, family = now.standing, known.family
    view, size = standing.view, standing.view.dimension
    if not (family.has_spread and family.curved):
        return Leaning(np.zeros(size), np.zeros(size))

    def of_spread(value: float) -> Floats:
        mean = family.moved(standing.table, max(value, family.least_spread), view.clip, now.u, np.zeros(len(now.u)))
        return np.asarray(known.num_rows * ((now.kappa * (mean - standing.residual[2])) @ now.z) / len(now.u))

    factor = math.exp(doubt)
    return Leaning(of_spread(spread), (of_spread(spread * factor) - of_spread(spread / factor)) / 2)


def _robust_square(look: Look, slope: Floats) -> Floats:
    """J of units whose scores are no single residual: its size is as it was seen, whatever rows by themselves would
    give. Its entries are averaged by precision with the slope's, of which they may be any multiple; what noise leaves
    in doubt is added, since an interval by a variance that is in doubt must be wider.
    """
    size, total = len(slope), float(np.trace(slope))
    ratio = max(float(np.trace(look.square)), look.square_noise * math.sqrt(size)) / total
    prior = (_ROBUST_SHAPE * ratio * total / size) ** 2 * _ones(size, 4.0)
    doubt = look.square_noise**2 / 2 * _ones(size, 2.0)
    square = ratio * slope + prior / (prior + doubt) * (look.square - ratio * slope)
    left = float(np.sqrt(np.mean(np.diag(prior * doubt / (prior + doubt)))))
    least = _LEAST_SHARE * ratio * float(np.linalg.eigvalsh(slope)[0])
    return positive(square, least) + _DOUBTED * left * np.eye(size)


def plain_covariance(known: Knowledge, sampling: Floats) -> Floats:
    """Covariance of the plain estimate of all rows, where that of what looks estimate is ``sampling``."""
    return np.asarray(sampling / np.outer(known.efficiency, known.efficiency))


def sampling_covariance(known: Knowledge) -> Floats:
    """Covariance of the table's own estimate over tables: the sandwich S = H^-1 J H^-1, with J near its expectation.

    Of weighted rows, and of units with several, J is as large as it was seen: that makes intervals robust.
    """
    assert known.last is not None
    look, now, slope = known.last
    rows, size = known.num_rows, len(known.centre)
    total = float(np.trace(slope))
    turn = np.linalg.solve(slope, look.view.whitening_matrix)
    if known.units.robust:
        square = _robust_square(look, slope)
        return np.asarray(turn.T @ square @ turn)
    family = known.family
    expected = 1.0
    if family.has_spread or not family.canonical:
        expected = max(_LEAST_RATIO, rows * float(np.trace(now.square())) / total)
    noise = look.square_noise * math.sqrt(size) / total
    tolerance = family.look_rule.square_tolerance * expected
    ratio = expected + tolerance**2 / (tolerance**2 + noise**2) * (float(np.trace(look.square)) / total - expected)
    ratio = max(ratio, _LEAST_SHARE * expected)
    prior = (_SQUARE_SHAPE * ratio * rows) ** 2 * _ones(size, 4.0)
    doubt = look.square_noise**2 / 2 * _ones(size, 2.0)
    square = ratio * slope + prior / (prior + doubt) * (look.square - ratio * slope)
    square = positive(square, _LEAST_SHARE * ratio * float(np.linalg.eigvalsh(slope)[0]))
    return np.asarray(turn.T @ square @ turn)
