"""Pseudo-rows: what the looks so far say of how predictors are distributed, as rows to average over.

Bounds and curvature are expectations over rows that nobody may see. Here they are averages over normal rows that have
the mean and covariance, or the information, that noisy looks showed. Always the same rows for the same knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpglm.families import Family
from dpglm.families.residuals import ResidualTable
from dpglm.looks.viewpoint import Viewpoint

Floats = npt.NDArray[np.float64]

_ROWS = 2**11
_STRAIGHT = 1e-3  # a move this short sees the slope at its start
_LEAST_FACTOR = 1e-3  # of a slope or an information, for rows of rare levels beside others
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


class Rare(NamedTuple):
    """Of coefficients of rare levels: what a row of the level has, as in ``Population``; information over that of other
    columns, and its relative error. Zero, one and zero for other coefficients.
    """

    values: Floats
    information: Floats
    doubt: Floats


@dataclass(frozen=True, eq=False)
class Population:
    """Pseudo-rows in standard units, (rows, coefficients), with the intercept's ones; ``known`` is the offset's.

    ``rare`` is, by coefficient, what a row of a rare level has there, and 0 for other coefficients: such rows are far
    longer than any normal one.
    """

    rows: Floats
    known: Floats | None = None
    rare: Floats | None = None

    def predictor(self, centre: Floats) -> Floats:
        """The linear predictor at a centre, whose last entry is the offset's if there is one."""
        if self.known is None:
            return np.asarray(self.rows @ centre)
        return np.asarray(self.rows @ centre[:-1] + self.known * centre[-1])

    def of_rare(self, centre: Floats) -> Floats:
        """By coefficient, the linear predictor of an average row, but of the rare level."""
        assert self.rare is not None
        return np.asarray((self.rows.mean(axis=0) + np.diag(self.rare)) @ centre[: self.rows.shape[1]])

    def change_of_rare(self, table: ResidualTable, start: Floats, end: Floats, of_others: float) -> Floats:
        """By entry, what becomes of rare levels' information from one centre to another, over what becomes of others'.

        Of one set of rows that are all alike, it goes with their weight.
        """
        if self.rare is None or not self.rare.any():
            return np.ones((1, 1))
        before, after = (table.at(self.of_rare(centre), table.weight)[0] for centre in (start, end))
        root = np.sqrt(self._where_rare(after / before / of_others))
        return np.outer(root, root)

    def _where_rare(self, factors: Floats) -> Floats:
        """By coefficient, factors of rare levels within limits, and ones."""
        return np.where(np.asarray(self.rare) != 0, np.clip(factors, _LEAST_FACTOR, 1 / _LEAST_FACTOR), 1.0)

    def moments(self, weight: Floats) -> Floats:
        """E[weight x x'] over these rows."""
        return _average(self.rows, weight)


def of_moments(
    mean: Floats, covariance: Floats, intercept: bool, offset: bool, rare: Floats | None = None
) -> Population:
    """Rows of this mean and covariance; the last column is the offset's where there is one."""
    root = np.linalg.cholesky(positive(covariance, _SMALLEST))
    points = normal_points(len(mean)).T
    columns = np.ones((intercept + len(mean), points.shape[1]))  # one after the other in memory: sums are quicker
    columns[intercept:] = root @ points + mean[:, None]
    if offset:
        return Population(columns[:-1].T, columns[-1], rare)
    return Population(columns.T, rare=rare)


def rare_lengths(rare: Floats | None, whitening: Floats) -> Floats:
    """By coefficient, the squared length of a row by being of a rare level."""
    if rare is None:
        return np.zeros(len(whitening))
    return np.asarray(rare**2 * np.einsum("ij,ij->j", whitening, whitening))


@dataclass(frozen=True, eq=False)
class Standing:
    """A population from where a look stands: what is the same whatever information is known."""

    population: Population
    view: Viewpoint
    family: Family
    response_range: tuple[float, float]
    past: float = 0.0  # rows of its unit that came before, of which a row's bound is what they leave

    @cached_property
    def table(self) -> ResidualTable:
        return self.view.residual_table(self.family, self.response_range)

    @cached_property
    def u(self) -> Floats:
        """The linear predictor."""
        return self.population.predictor(np.array(self.view.centre))

    @cached_property
    def u_of_rare(self) -> Floats:
        """The linear predictor of rows of rare levels, by coefficient."""
        return self.population.of_rare(self.view.centre_vector)

    @cached_property
    def residual(self) -> tuple[Floats, Floats, Floats]:
        """By row: the slope of the expected outcome, the largest residual, the expected outcome."""
        table = self.table
        weight, largest, mean, low = table.at(self.u, table.weight, table.largest, table.mean, table.low)
        return weight, largest + self.past * (mean - low) if self.past else largest, mean

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
        seen = Seen(self, columns.T, free, squared, kappa, shorter)
        if self.population.rare is None or not self.population.rare.any():
            return seen
        return replace(seen, left=self._left_of_rare(seen, self.population.rare))

    def _left_of_rare(self, seen: Seen, rare: Floats) -> tuple[Floats, Floats]:
        """By coefficient, what bounds leave of rows of its level, over what they leave of others: kappa and lambda."""
        view = self.view
        weight, largest = self.table.at(self.u_of_rare, self.table.weight, self.table.largest)
        squared = rare_lengths(rare, view.whitening_matrix) + float(np.mean(seen.squared))
        kappa = np.minimum(1.0, view.score_bound / np.maximum(largest * np.sqrt(squared), 1e-300))
        shorter = np.minimum(kappa, view.information_bound / np.maximum(weight * squared, 1e-300))
        free = float(seen.free.trace())
        of_others = (float(each.trace()) / free for each in (seen.slope_here, seen.bounded))
        return tuple(
            np.where(rare != 0, np.minimum(1.0, left / max(other, 1e-300)), 1.0)
            for left, other in zip((kappa, shorter), of_others, strict=True)
        )  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Seen:
    """What a look sees of a population: one expectation a property, by row, in the look's whitened coordinates.

    ``bounded`` is of lambda w z z', what its information adds up to. ``free`` is of w z z', without bounds. ``squared``
    are the squared lengths of z. ``left`` is what bounds leave, by coefficient, of rows of rare levels over what they
    leave of others, of scores and of the information: nearly all that is known of such a coefficient is in these rows.
    """

    standing: Standing
    z: Floats
    free: Floats
    squared: Floats
    kappa: Floats
    shorter: Floats
    left: tuple[Floats, Floats] | None = None

    @property
    def u(self) -> Floats:
        return self.standing.u

    @property
    def weight(self) -> Floats:
        return self.standing.residual[0]

    @cached_property
    def bounded(self) -> Floats:
        expected = _average(self.z, self.shorter * self.weight)
        return expected if self.left is None else self._scaled(expected, self.left[1])

    @cached_property
    def slope_here(self) -> Floats:
        """E[kappa w z z'] at the centre."""
        expected = _average(self.z, self.kappa * self.weight)
        return expected if self.left is None else self._scaled(expected, self.left[0])

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
        expected = _average(self.z, self.kappa * slope)
        return expected if self.left is None else self._scaled(expected, self.left[0] * self._bent(move, slope))

    def _bent(self, move: Floats, slope: Floats) -> Floats:
        """By coefficient, the mean slope of rows of its rare level over theirs here, beside that of other rows."""
        standing, view = self.standing, self.standing.view
        u, step = standing.u_of_rare, standing.population.of_rare(move)
        step = np.where(np.abs(step) > _STRAIGHT, step, _STRAIGHT)
        there = standing.family.moved(standing.table, view.spread, view.clip, u, step)
        weight, mean = standing.table.at(u, standing.table.weight, standing.table.mean)
        of_others = float(np.mean(self.kappa * slope)) / float(np.mean(self.kappa * self.weight))
        bent = (there - mean) / step / weight / of_others
        return standing.population._where_rare(bent)

    def square(self, move: Floats | None = None) -> Floats:
        """E[kappa^2 var z z']: what the score's square adds up to where the family is right.

        With t a move away, residuals have a mean, and outcomes scatter as they do there (in families with a
        spread; in others that hardly matters).
        """
        standing, view = self.standing, self.standing.view
        family, of_look = standing.family, (standing.table, view.spread, view.clip, self.u)
        if move is None or not family.has_spread:
            variance = family.clipped_variance(*of_look)
        else:
            variance = family.moved_square(*of_look, self.z @ (standing.unwhitening.T @ move))
        expected = _average(self.z, self.kappa**2 * variance)
        return expected if self.left is None else self._scaled(expected, self.left[0] ** 2)

    @cached_property
    def relative_size(self) -> Floats:
        """By entry, the information over what it would be if rows of rare levels were no longer than others."""
        if self.left is None:
            return np.ones((1, 1))
        sizes = np.sqrt(np.diag(self._scaled(np.eye(len(self.left[1])), self.left[1])))
        return np.outer(sizes, sizes)

    def least_left(self, which: int) -> float:
        """The least that is left of a coefficient: of scores (0), of the information (1)."""
        return 1.0 if self.left is None else float(self.left[which].min())

    def _scaled(self, expected: Floats, squared: Floats) -> Floats:
        """An expectation of z z' over pseudo-rows, with rows of rare levels by coefficient as they are."""
        turn = (self.standing.view.whitening_matrix * np.sqrt(squared)) @ self.standing.unwhitening
        return np.asarray(turn @ expected @ turn.T)


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
