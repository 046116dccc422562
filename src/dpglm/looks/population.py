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
from dpglm.looks.viewpoint import Viewpoint

Floats = npt.NDArray[np.float64]

_ROWS = 2**11
_STRAIGHT = 1e-3  # a move this short sees the slope at its start
_SMALLEST = 1e-9


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
        return np.asarray((self.rows * weight[:, None]).T @ self.rows / len(self.rows))


def of_moments(mean: Floats, covariance: Floats, intercept: bool, offset: bool) -> Population:
    """Rows of this mean and covariance; the last column is the offset's where there is one."""
    root = np.linalg.cholesky(positive(covariance, _SMALLEST))
    x = mean + normal_points(len(mean)) @ root.T
    known = x[:, -1] if offset else None
    x = x[:, :-1] if offset else x
    return Population(np.column_stack([np.ones(len(x)), x]) if intercept else x, known)


@dataclass(frozen=True, eq=False)
class Seen:
    """What a look sees of a population: one expectation a property, by row, in the look's whitened coordinates.

    ``bounded`` is of lambda w z z', what its information adds up to. ``free`` is of w z z', without bounds.
    """

    view: Viewpoint
    family: Family
    response_range: tuple[float, float]
    z: Floats
    u: Floats
    weight: Floats
    kappa: Floats
    shorter: Floats

    @cached_property
    def free(self) -> Floats:
        return self._average(self.weight)

    @cached_property
    def bounded(self) -> Floats:
        return self._average(self.shorter * self.weight)

    @cached_property
    def slope_here(self) -> Floats:
        """E[kappa w z z'] at the centre."""
        return self._average(self.kappa * self.weight)

    def slope(self, move: Floats) -> Floats:
        """E[kappa w z z'] with w the mean slope on the way from the centre to a move away, in coefficients."""
        step = self.z @ np.linalg.solve(self.view.whitening_matrix.T, move)
        far = np.abs(step) > _STRAIGHT
        if not far.any():
            return self.slope_here
        table = self.view.residual_table(self.family, self.response_range)
        (mean,) = table.at(self.u, table.mean)
        there = self.family.moved(table, self.view.spread, self.view.clip, self.u, step)
        slope = np.where(far, (there - mean) / np.where(far, step, 1.0), self.weight)
        return self._average(self.kappa * slope)

    def square(self) -> Floats:
        """E[kappa^2 var z z']: what the score's square adds up to where the family is right."""
        table = self.view.residual_table(self.family, self.response_range)
        variance = self.family.clipped_variance(table, self.view.spread, self.view.clip, self.u)
        return self._average(self.kappa**2 * variance)

    def _average(self, weight: Floats) -> Floats:
        return np.asarray((self.z * weight[:, None]).T @ self.z / len(self.z))


def seen(
    population: Population,
    view: Viewpoint,
    family: Family,
    response_range: tuple[float, float],
    information: Floats,
) -> Seen:
    """The population as a look sees it, turned so that without bounds its information is the one that is known."""
    table = view.residual_table(family, response_range)
    u = population.predictor(np.array(view.centre))
    weight, largest = table.at(u, table.weight, table.largest)
    z = population.rows @ view.whitening_matrix.T
    modelled = np.linalg.cholesky(positive((z * weight[:, None]).T @ z / len(z), _SMALLEST))
    whitening = view.whitening_matrix
    wanted = np.linalg.cholesky(positive(whitening @ information @ whitening.T, _SMALLEST))
    z = z @ (wanted @ np.linalg.inv(modelled)).T
    squared = np.maximum(np.sum(z**2, axis=1), 1e-300)
    kappa = np.minimum(1.0, view.score_bound / np.maximum(largest * np.sqrt(squared), 1e-300))
    shorter = np.minimum(kappa, view.information_bound / np.maximum(weight * squared, 1e-300))
    return Seen(view, family, response_range, z, u, weight, kappa, shorter)


def transport(measured: Floats, model: Floats) -> Callable[[Floats], Floats]:
    """What other matrices would be measured as, where ``model`` is measured as ``measured``: positive as they are."""
    inner = np.linalg.cholesky(positive(model, _SMALLEST * float(np.trace(model)) / len(model)))
    turn = np.linalg.solve(inner.T, np.linalg.cholesky(measured).T).T
    return lambda other: np.asarray(turn @ other @ turn.T)


def positive(matrix: Floats, floor: float) -> Floats:
    """The symmetric matrix with its eigenvalues raised to a floor."""
    symmetric = np.asarray((matrix + matrix.T) / 2)
    try:
        np.linalg.cholesky(symmetric - floor * np.eye(len(symmetric)))
    except np.linalg.LinAlgError:  # some are below it
        values, vectors = np.linalg.eigh(symmetric)
        return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)
    return symmetric


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
