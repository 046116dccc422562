"""Pseudo-rows: what the looks so far say of how predictors are distributed, as rows to average over.

Bounds and curvature are expectations over rows that nobody may see. Here they are averages over normal rows that have
the mean and covariance, or the information, that noisy looks showed. Always the same rows for the same knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from dpglm.families import Family
from dpglm.families.residuals import ResidualTable
from dpglm.looks.viewpoint import Viewpoint

Floats = npt.NDArray[np.float64]

_ROWS = 2**11
_STRAIGHT = 1e-3  # a move this short sees the slope at its start
_SMALLEST = 1e-9
_CLEARLY = 0.999  # of the squared way to a floor: more than rounding could hide


@lru_cache(maxsize=16)
def normal_points(dimension: int) -> Floats:
    """Normal rows with mean zero and identity covariance exactly, always the same."""
    half = np.random.default_rng(20_210_608).standard_normal((_ROWS // 2, dimension))
    rows = np.concatenate([half, -half])
    root = np.linalg.cholesky(rows.T @ rows / len(rows))
    points = np.linalg.solve(root, rows.T).T
    points.setflags(write=False)
    return np.asarray(points)


@dataclass(frozen=True, eq=False)
class Population:
    """Pseudo-rows in standard units, (rows, coefficients), with the intercept's ones; ``known`` is the offset's."""

    rows: Floats
    known: Floats | None = None

    def predictor(self, centre: Floats) -> Floats:
        """The linear predictor at a centre, whose last entry is the offset's if there is one."""
        if self.known is None:
            return np.asarray(self.rows @ centre)
        return np.asarray(self.rows @ centre[:-1] + self.known * centre[-1])

    def moments(self, weight: Floats) -> Floats:
        """E[weight x x'] over these rows."""
        return _average(self.rows, weight)


def of_moments(mean: Floats, covariance: Floats, intercept: bool, offset: bool) -> Population:
    """Rows of this mean and covariance; the last column is the offset's where there is one."""
    root = np.linalg.cholesky(positive(covariance, _SMALLEST))
    points = normal_points(len(mean)).T
    columns = np.ones((intercept + len(mean), points.shape[1]))  # one after the other in memory: sums are quicker
    columns[intercept:] = root @ points + mean[:, None]
    return Population(columns[:-1].T, columns[-1]) if offset else Population(columns.T)


@dataclass(frozen=True, eq=False)
class Standing:
    """A population from where a look stands: what is the same whatever information is known."""

    population: Population
    view: Viewpoint
    family: Family
    response_range: tuple[float, float]

    @cached_property
    def table(self) -> ResidualTable:
        return self.view.residual_table(self.family, self.response_range)

    @cached_property
    def u(self) -> Floats:
        """The linear predictor."""
        return self.population.predictor(np.array(self.view.centre))

    @cached_property
    def residual(self) -> tuple[Floats, Floats, Floats]:
        """By row: the slope of the expected outcome, the largest residual, the expected outcome."""
        weight, largest, mean = self.table.at(self.u, self.table.weight, self.table.largest, self.table.mean)
        return weight, largest, mean

    @cached_property
    def unwhitening(self) -> Floats:
        return inverse(self.view.whitening_matrix)

    @cached_property
    def _towards_unit(self) -> Floats:
        """Turns rows so that their information, without bounds, is the identity."""
        whitening = self.view.whitening_matrix
        modelled = whitening @ self.population.moments(self.residual[0]) @ whitening.T
        return np.asarray(np.linalg.solve(np.linalg.cholesky(positive(modelled, _SMALLEST)), whitening))

    @cached_property
    def _last_seen(self) -> list[tuple[Floats, Seen]]:
        return []

    def seen(self, information: Floats) -> Seen:
        """The population as the look sees it, turned so that without bounds its information is the one known."""
        if not (self._last_seen and self._last_seen[0][0] is information):  # the same is often asked for again
            self._last_seen[:] = [(information, self._turned(information))]
        return self._last_seen[0][1]

    def _turned(self, information: Floats) -> Seen:
        view, whitening = self.view, self.view.whitening_matrix
        free = positive(whitening @ information @ whitening.T, _SMALLEST)
        columns = np.linalg.cholesky(free) @ self._towards_unit @ self.population.rows.T
        weight, largest, _ = self.residual
        squared = np.maximum(np.einsum("ij,ij->j", columns, columns), 1e-300)
        kappa = np.minimum(1.0, view.score_bound / np.maximum(largest * np.sqrt(squared), 1e-300))
        shorter = np.minimum(kappa, view.information_bound / np.maximum(weight * squared, 1e-300))
        return Seen(self, columns.T, free, squared, kappa, shorter)


@dataclass(frozen=True, eq=False)
class Seen:
    """What a look sees of a population: one expectation a property, by row, in the look's whitened coordinates.

    ``bounded`` is of lambda w z z', what its information adds up to. ``free`` is of w z z', without bounds. ``squared``
    are the squared lengths of z.
    """

    standing: Standing
    z: Floats
    free: Floats
    squared: Floats
    kappa: Floats
    shorter: Floats

    @property
    def u(self) -> Floats:
        return self.standing.u

    @property
    def weight(self) -> Floats:
        return self.standing.residual[0]

    @cached_property
    def bounded(self) -> Floats:
        return _average(self.z, self.shorter * self.weight)

    @cached_property
    def slope_here(self) -> Floats:
        """E[kappa w z z'] at the centre."""
        return _average(self.z, self.kappa * self.weight)

    def slope(self, move: Floats) -> Floats:
        """E[kappa w z z'] with w the mean slope on the way from the centre to a move away, in coefficients."""
        standing, view = self.standing, self.standing.view
        step = self.z @ (standing.unwhitening.T @ move)
        near = ~(np.abs(step) > _STRAIGHT)
        if near.all():
            return self.slope_here
        there = standing.family.moved(standing.table, view.spread, view.clip, self.u, step)
        np.copyto(step, 1.0, where=near)
        slope = (there - standing.residual[2]) / step
        np.copyto(slope, self.weight, where=near)
        return _average(self.z, self.kappa * slope)

    def square(self) -> Floats:
        """E[kappa^2 var z z']: what the score's square adds up to where the family is right."""
        standing, view = self.standing, self.standing.view
        variance = standing.family.clipped_variance(standing.table, view.spread, view.clip, self.u)
        return _average(self.z, self.kappa**2 * variance)


def _average(rows: Floats, weight: Floats) -> Floats:
    """E[weight x x'] over rows."""
    return np.asarray((rows.T * weight) @ rows / len(rows))


def seen(
    population: Population,
    view: Viewpoint,
    family: Family,
    response_range: tuple[float, float],
    information: Floats,
) -> Seen:
    """The population as a look sees it, turned so that without bounds its information is the one that is known."""
    return Standing(population, view, family, response_range).seen(information)


def transport(measured: Floats, model: Floats) -> Callable[[Floats], Floats]:
    """What other matrices would be measured as, where ``model`` is measured as ``measured``: positive as they are."""
    inner = np.linalg.cholesky(positive(model, _SMALLEST * float(np.trace(model)) / len(model)))
    turn = np.linalg.solve(inner.T, np.linalg.cholesky(measured).T).T
    return lambda other: np.asarray(turn @ other @ turn.T)


def positive(matrix: Floats, floor: float) -> Floats:
    """The symmetric matrix with its eigenvalues raised to a floor."""
    symmetric = np.asarray((matrix + matrix.T) / 2)
    if _surely_above(symmetric, floor):
        return symmetric
    try:
        np.linalg.cholesky(symmetric - floor * np.eye(len(symmetric)))
    except np.linalg.LinAlgError:  # some are below it
        values, vectors = np.linalg.eigh(symmetric)
        return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)
    return symmetric


def _surely_above(symmetric: Floats, floor: float) -> bool:
    """Whether the distance from a multiple of the identity already shows that no eigenvalue is below a floor."""
    size = len(symmetric)
    centre = float(symmetric.trace()) / size
    squared_distance = float(np.vdot(symmetric, symmetric)) - size * centre**2
    return centre > floor and squared_distance < _CLEARLY * (centre - floor) ** 2


def inverse(matrix: Floats) -> Floats:
    """The inverse."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def solve(matrix: Floats, right: Floats) -> Floats:
    """The solution of a linear system."""
    return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)


def inverse_root(matrix: Floats, floor: float) -> Floats:
    """Inverse square root, with eigenvalues below a share of the largest raised to it."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors / np.sqrt(np.maximum(values, floor * values.max()))) @ vectors.T)


def root_mean_square(values: Floats) -> float:
    """Of all entries."""
    return math.sqrt(float(np.mean(np.square(values)))) if values.size else 0.0
