"""The mode of a posterior and the Gaussian there: the Laplace approximation, for many posteriors at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpglm.paper.batches import Data, Floats, Model, evaluate

_NEWTON_STEPS = 80
_GOOD_PROGRESS = 0.1  # of the Newton decrement in a step: below it an old Hessian serves on
_LARGEST_FOR_EIGENVECTORS = 500
_STEP_SHARE = 1e-3  # of a standard deviation, for differences of gradients


@dataclass(frozen=True)
class Laplace:
    """Modes of some posteriors and Gaussians there; ``factor`` maps standard normals to deviations from the mode."""

    mode: Floats  # (posteriors, size)
    factor: Floats  # (posteriors, size, size)
    converged: npt.NDArray[np.bool_]
    steps: Floats  # (posteriors, size), for differences of gradients near the mode

    @property
    def covariance(self) -> Floats:
        return self.factor @ self.factor.transpose(0, 2, 1)


def find_modes(shape: Model, data: Data, start: Floats) -> Laplace:
    """Damped Newton steps with Hessians from differences of gradients; directions of negative curvature are flipped.

    All posteriors step together; one that has converged stays where it is. A Hessian is most of the work where columns
    are many, so it is kept while its steps go on well.
    """
    point = start.copy()
    posteriors = len(point)
    each = np.arange(posteriors)
    steps = _first_steps(data, point.shape)
    shrink = 0.5 ** np.arange(24)
    converged = np.zeros(posteriors, dtype=bool)
    finished = np.zeros(posteriors, dtype=bool)
    last = np.full(posteriors, np.inf)
    old = False  # whether the Hessian is that of an earlier point
    for _ in range(_NEWTON_STEPS):
        if not old:
            value, gradient, precision = _curvature(shape, data, point, steps)
            factor, convex = inverse_roots(precision, any_root=True)
            steps = _fine_steps(precision)
        direction = _product(factor, gradient)
        # A step of more than one unit can end where a correlation is one in float64, from where nothing leads back.
        direction = direction / np.maximum(np.abs(direction).max(axis=1, keepdims=True), 1.0)
        # Newton decrement: twice the log density that is left to gain, were it quadratic.
        decrement = np.einsum("ri,ri->r", gradient, direction)
        if old and np.any(~finished & (decrement > _GOOD_PROGRESS * last)):
            old = False
            continue
        last = decrement
        converged |= ~finished & convex & (decrement < 1e-8)
        finished |= converged
        if finished.all():
            break
        values, gradients = evaluate(shape, data, point[:, None] + shrink[:, None] * direction[:, None])
        chosen = values.argmax(axis=1)
        better = values[each, chosen] > value
        if old and np.any(~finished & ~better):
            old = False
            continue
        converged |= ~finished & ~better & convex & (decrement < 1e-4)
        finished |= ~better
        point = np.where(finished[:, None], point, point + shrink[chosen][:, None] * direction)
        value = np.where(finished, value, values[each, chosen])
        gradient = np.where(finished[:, None], gradient, gradients[each, chosen])
        old = True
    _, gradient, precision = _curvature(shape, data, point, steps)
    factor, _ = inverse_roots(precision)
    # What an old Hessian left of the way, less than 1e-4 standard deviations, is gone for the price of a product.
    mode = np.where(converged[:, None], point + _product(factor, gradient), point)
    return Laplace(mode, factor, converged, _fine_steps(precision))


def inverse_roots(precision: Floats, any_root: bool = False) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Factors F, with F F^T the inverses of some symmetric matrices, and whether those are positive definite.

    Columns are scaled eigenvectors, in which a diagonal reference fits best. Of a matrix that is not positive definite
    the eigenvalues are made so: their absolute values, and at least 0.01, the scale of a wide prior. Where any root
    will do, and for large matrices, Cholesky's way is tried first, which takes a tenth of the time.
    """
    if any_root or precision.shape[1] > _LARGEST_FOR_EIGENVECTORS:
        try:
            inverses = np.linalg.inv(np.linalg.cholesky(precision))
        except np.linalg.LinAlgError:
            pass
        else:
            return inverses.transpose(0, 2, 1), np.ones(len(precision), dtype=bool)
    eigenvalues, vectors = np.linalg.eigh(precision)
    convex = eigenvalues[:, 0] > 0
    floor = np.maximum(1e-2, 1e-12 * eigenvalues[:, -1:])
    kept = np.where(convex[:, None], eigenvalues, np.maximum(np.abs(eigenvalues), floor))
    return vectors / np.sqrt(kept)[:, None, :], convex


def _product(factor: Floats, gradient: Floats) -> Floats:
    """F F^T g."""
    return np.asarray(np.einsum("rij,rj->ri", factor, np.einsum("rij,ri->rj", factor, gradient)))


def curvature(shape: Model, data: Data, point: Floats, steps: Floats) -> Floats:
    """Minus the Hessians at one point of each posterior."""
    return _curvature(shape, data, point, steps)[2]


def _fine_steps(precision: Floats) -> Floats:
    """A share of a standard deviation of each coordinate, the others fixed."""
    return np.asarray(_STEP_SHARE / np.sqrt(np.maximum(np.diagonal(precision, axis1=1, axis2=2), 1.0)))


def _first_steps(data: Data, shape: tuple[int, ...]) -> Floats:
    """Differences small enough for the sharpest direction that this many rows can make."""
    rows = np.max([np.asarray(table.num_rows) for table in data], axis=0)
    return np.broadcast_to((_STEP_SHARE / np.sqrt(1.0 + rows))[:, None], shape)


def _curvature(shape: Model, data: Data, point: Floats, steps: Floats) -> tuple[Floats, Floats, Floats]:
    """Values, gradients and minus the Hessians at one point of each posterior."""
    size = point.shape[1]
    moves = steps[:, :, None] * np.eye(size)
    points = np.concatenate([point[:, None], point[:, None] + moves, point[:, None] - moves], axis=1)
    values, gradients = evaluate(shape, data, points)
    hessian = (gradients[:, 1 : size + 1] - gradients[:, size + 1 :]) / (2 * steps[:, :, None])
    precision = -(hessian + hessian.transpose(0, 2, 1)) / 2
    return values[:, 0], gradients[:, 0], np.nan_to_num(precision, nan=0.0, posinf=1e12, neginf=-1e12)
