"""How the noise is split among blocks, for a given mu.

``equal`` gives every block the same noise in isometric coordinates (the paper). ``auto`` minimises the posterior
standard deviation of the coefficients at a *public* nominal point: predictors N(m, c I) with c = R^2 / (3 d), a
slope vector of a typical size, m along it, the declared number of rows. Nothing here depends on rows.

The mechanism is invariant under rotations of x (isometric coordinates, isotropic noise, a ball), so the slope
vector may be put on the first axis. Signs and permutations of the other axes are symmetries then, and the Fisher
information of all O(d^2) statistics falls apart into two small problems (docs/moments.md, section 4): statistics
even in x_2..x_d, which know the slope along the axis, and for each other axis those odd in it. Each needs one-
dimensional integrals only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape
from dpglm.custodian.sensitivity import approximate_squared_mu
from dpglm.errors import InputError
from dpglm.families import Family

ALLOCATIONS = ("auto", "equal")
_LARGEST_RATIO = 10.0  # no block gets more than this times its balanced noise: a model may be wrong about what matters
_STEP = 1e-4  # of central differences; means are smooth, so their error is about 1e-8

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NominalPoint:
    """A public guess of a typical regression, in scaled coordinates.

    ``spread`` is the dispersion or residual variance.
    """

    intercept: float
    slope_effect: float  # standard deviation of the linear predictor
    spread: float
    mean: float = 1.0  # of the predictors, in their standard deviations, along the slope


def allocate(
    allocation: object,
    family: Family,
    blocks: Sequence[BlockShape],
    dimension: int,
    num_rows: int,
    mu: float,
    radius: float,
    response_range: tuple[float, float],
) -> tuple[float, ...]:
    """Relative noise standard deviations, one a block (isometric coordinates, data units); only their ratios matter."""
    if allocation not in ALLOCATIONS:
        raise InputError("allocation", allocation, f"must be one of {', '.join(ALLOCATIONS)}", "correct it")
    equal = (1.0,) * len(blocks)
    if allocation == "equal" or len(blocks) == 1:
        return equal
    if max(block.degree for block in blocks) > 2:  # no nominal model for these: balance what one row can add
        return tuple(_balanced(blocks, radius, response_range))
    return _optimal(family, tuple(blocks), dimension, num_rows, mu, radius, response_range)


def coefficient_stddevs(
    noise_stddevs: Sequence[float],
    family: Family,
    blocks: Sequence[BlockShape],
    dimension: int,
    num_rows: int,
    radius: float,
    response_range: tuple[float, float],
) -> tuple[float, float, float]:
    """Posterior standard deviations at the nominal point.

    Intercept, the slope along its direction, a slope across it.
    """
    problem = _Problem.at_nominal_point(family, blocks, dimension, num_rows, radius, response_range)
    return problem.stddevs(np.asarray(noise_stddevs, dtype=np.float64))


@lru_cache(maxsize=32)
def _optimal(
    family: Family,
    blocks: tuple[BlockShape, ...],
    dimension: int,
    num_rows: int,
    mu: float,
    radius: float,
    response_range: tuple[float, float],
) -> tuple[float, ...]:
    from scipy.optimize import minimize

    problem = _Problem.at_nominal_point(family, blocks, dimension, num_rows, radius, response_range)
    balanced = _balanced(blocks, radius, response_range)
    largest_y = max(abs(bound) for bound in response_range)
    normal_range = (response_range[0] / largest_y, response_range[1] / largest_y)

    def calibrated(log_ratios: Array) -> Array:
        """Noise of these ratios at the given mu."""
        ratios = np.exp(np.clip(log_ratios, -math.log(_LARGEST_RATIO), math.log(_LARGEST_RATIO)))
        squared = approximate_squared_mu(blocks, ratios**-2.0, normal_range)
        return np.asarray(balanced * ratios * math.sqrt(squared) / mu)

    def criterion(free: Array) -> float:
        intercept, along, across = problem.stddevs(calibrated(np.append(free, 0.0)))
        return (math.log(intercept) + math.log(along) + (dimension - 1) * math.log(across)) / (dimension + 1)

    equal_start = -np.log(balanced)
    starts = [np.zeros(len(blocks) - 1), (equal_start - equal_start[-1])[:-1]]
    options = {"xatol": 1e-2, "fatol": 1e-5, "maxiter": 400 * len(blocks), "maxfev": 400 * len(blocks)}
    results = [minimize(criterion, start, method="Nelder-Mead", options=options) for start in starts]
    best = min(results, key=lambda result: result.fun)
    noise = calibrated(np.append(best.x, 0.0))
    if best.fun > criterion(starts[1]):
        noise = np.ones(len(blocks))
    relative = noise / noise[-1]
    return tuple(float(f"{value:.3g}") for value in relative)  # three digits: readable, and the loss is invisible


def _balanced(blocks: Sequence[BlockShape], radius: float, response_range: tuple[float, float]) -> Array:
    """Noise in proportion to the largest norm that one row can have in each block."""
    largest_y = max(abs(bound) for bound in response_range)
    return np.array([radius**block.degree * largest_y**block.y_power for block in blocks])


@dataclass(frozen=True)
class _Problem:
    """Mean, derivative and covariance of the statistics at the nominal point, for the two sectors."""

    num_rows: int
    along: _Sector
    across: _Sector | None

    @classmethod
    def at_nominal_point(
        cls,
        family: Family,
        blocks: Sequence[BlockShape],
        dimension: int,
        num_rows: int,
        radius: float,
        response_range: tuple[float, float],
    ) -> _Problem:
        nominal, moments = _nominal_family(family, response_range)
        variance = radius**2 / (3 * dimension)
        along = _along_sector(blocks, nominal, moments, variance, dimension)
        has_others = dimension > 1 and any(block.degree for block in blocks)
        across = _across_sector(blocks, nominal, moments, variance) if has_others else None
        return cls(num_rows, along, across)

    def stddevs(self, noise_stddevs: Array) -> tuple[float, float, float]:
        along, intercept = self.along.stddevs(noise_stddevs, self.num_rows)[:2]
        across = along if self.across is None else self.across.stddevs(noise_stddevs, self.num_rows)[0]
        return float(intercept), float(along), float(across)


@dataclass(frozen=True)
class _Sector:
    """Statistics that decouple from the others.

    The first parameter is a slope, the second along the axis the intercept.
    """

    block_of: npt.NDArray[np.intp]
    derivative: Array  # statistics x parameters, a row of the table
    covariance: Array
    prior_precision: Array

    def stddevs(self, noise_stddevs: Array, num_rows: int) -> Array:
        """Roots of the diagonal of (N J' (N C + noise)^-1 N J + prior)^-1."""
        total = num_rows * self.covariance + np.diag(noise_stddevs[self.block_of] ** 2)
        derivative = num_rows * self.derivative
        information = derivative.T @ np.linalg.solve(total, derivative) + np.diag(self.prior_precision)
        return np.asarray(np.sqrt(np.diag(np.linalg.inv(information))))


Moments = Callable[[Array, float], list[Array]]  # (linear predictor, spread) -> E[y^q], q = 0..4


def _along_sector(
    blocks: Sequence[BlockShape], nominal: NominalPoint, moments: Moments, variance: float, dimension: int
) -> _Sector:
    """Statistics y^q x_1^i and y^q (x_2^2 + ... + x_d^2) / sqrt(d - 1)."""
    others = dimension - 1
    statistics = []  # (block, power of y, power of x_1, power of the normalised sum of squares)
    for number, block in enumerate(blocks):
        statistics.append((number, block.y_power, block.degree, 0))
        if block.degree == 2 and others:
            statistics.append((number, block.y_power, 0, 1))
    slope = nominal.slope_effect / math.sqrt(variance)
    # slope, intercept, mean of x_1, log variance of x_1, log variance of the others, log spread
    mean = nominal.mean * math.sqrt(variance)
    at = np.array([slope, nominal.intercept - slope * mean, mean, 0.0, 0.0, 0.0])

    def mixed(parameters: Array, y_power: int, x_power: int) -> float:
        slope, intercept, mean, log_variance, _, log_spread = parameters
        nodes, weights = _normal_rule()
        x = mean + math.sqrt(variance) * math.exp(log_variance / 2) * nodes
        spread = nominal.spread * math.exp(log_spread)
        return float(weights @ (moments(intercept + slope * x, spread)[y_power] * x**x_power))

    def squares(parameters: Array, power: int) -> float:
        """Moments 0, 1, 2 of the normalised sum of squares of the other columns."""
        scale = variance * math.exp(parameters[4])
        return (1.0, scale * math.sqrt(others), scale**2 * (others + 2))[power]

    def means(parameters: Array) -> Array:
        return np.array([mixed(parameters, q, i) * squares(parameters, j) for _, q, i, j in statistics])

    average = means(at)
    second = np.array(
        [[mixed(at, q + r, i + k) * squares(at, j + m) for _, r, k, m in statistics] for _, q, i, j in statistics]
    )
    prior = np.array([1 / 2.5**2, 1 / 25, 1 / variance, 1.0, 1.0, 1.0])
    return _Sector(
        np.array([number for number, *_ in statistics]),
        _jacobian(means, at),
        second - np.outer(average, average),
        prior,
    )


def _across_sector(blocks: Sequence[BlockShape], nominal: NominalPoint, moments: Moments, variance: float) -> _Sector:
    """Statistics y^q x_j and sqrt(2) y^q x_1 x_j for one j > 1.

    Parameters slope_j, mean_j, covariance of x_1 and x_j.
    """
    statistics = [  # (block, power of y, power of x_1, isometric factor)
        (number, block.y_power, block.degree - 1, math.sqrt(block.degree))
        for number, block in enumerate(blocks)
        if block.degree >= 1
    ]
    slope = nominal.slope_effect / math.sqrt(variance)
    nodes, weights = _normal_rule()
    deviation = math.sqrt(variance) * nodes
    x = nominal.mean * math.sqrt(variance) + deviation

    def mixed(y_power: int, x_power: int, shift: float = 0.0, times: Array | float = 1.0) -> float:
        predictor = nominal.intercept + shift + slope * deviation
        return float(weights @ (moments(predictor, nominal.spread)[y_power] * x**x_power * times))

    derivative = np.array(
        [
            [
                factor * variance * (mixed(q, i, _STEP) - mixed(q, i, -_STEP)) / (2 * _STEP),
                factor * mixed(q, i),
                factor * mixed(q, i, times=deviation) / variance,
            ]
            for _, q, i, factor in statistics
        ]
    )
    covariance = np.array(
        [[f * g * variance * mixed(q + r, i + k) for _, r, k, g in statistics] for _, q, i, f in statistics]
    )
    prior = np.array([1 / 2.5**2, 1 / variance, 4 / variance**2])
    return _Sector(np.array([number for number, *_ in statistics]), derivative, covariance, prior)


def nominal_point(family: Family, response_range: tuple[float, float]) -> NominalPoint:
    """The public guess for a family."""
    return _nominal_family(family, response_range)[0]


def _nominal_family(family: Family, response_range: tuple[float, float]) -> tuple[NominalPoint, Moments]:
    """The nominal point of a family and E[y^q | u] there."""
    if family.coding == "sign":
        return NominalPoint(-1.0, 1.0, 1.0), _sign_moments
    if family.coding == "count":
        largest = response_range[1]
        return NominalPoint(math.log(max(largest / 10, 0.3)), 0.5, 2.0), _CountMoments(largest)
    return NominalPoint(0.2, 0.25, 0.06), _normal_moments


def _sign_moments(u: Array, spread: float) -> list[Array]:
    mean = np.tanh(u / 2)
    return [np.ones_like(u), mean, np.ones_like(u), mean, np.ones_like(u)]


def _normal_moments(u: Array, spread: float) -> list[Array]:
    return [np.ones_like(u), u, u**2 + spread, u**3 + 3 * u * spread, u**4 + 6 * u**2 * spread + 3 * spread**2]


@dataclass(frozen=True)
class _CountMoments:
    """Moments of a negative binomial (variance = spread x mean, log link), clamped at the declared bound."""

    largest: float

    def __call__(self, u: Array, spread: float) -> list[Array]:
        from scipy.special import gammaln

        mean = np.exp(np.minimum(u, math.log(self.largest) + 2))[:, None]
        # A coarser support is accurate enough for very large bounds: this only chooses ratios.
        values = np.unique(np.round(np.linspace(0, self.largest, min(int(self.largest), 400) + 1)))
        size = mean / max(spread - 1, 1e-6)
        log_mass = (
            gammaln(values + size) - gammaln(size) - gammaln(values + 1) - size * math.log(spread)
            + values * math.log1p(-1 / max(spread, 1 + 1e-6))
        )  # fmt: skip
        mass = np.exp(log_mass)
        inside = np.minimum(mass.sum(axis=1), 1.0)
        mass[:, -1] += 1.0 - inside
        return [mass @ values**power for power in range(5)]


@lru_cache(maxsize=1)
def _normal_rule() -> tuple[Array, Array]:
    """Trapezoid nodes and weights for a standard normal: geometric convergence for these functions."""
    nodes = np.linspace(-8.5, 8.5, 201)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def _jacobian(function: Callable[[Array], Array], at: Array) -> Array:
    columns = []
    for position in range(len(at)):
        step = np.zeros_like(at)
        step[position] = _STEP
        columns.append((function(at + step) - function(at - step)) / (2 * _STEP))
    return np.stack(columns, axis=1)
