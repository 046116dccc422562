"""How far bounding shifts what looks see of t, learnt from looks that bound differently.

Each look sees t + e_k + noise. The shifts e_k of all looks are normal with mean zero and covariance rho^2 N T, where T
is what looks take together (``error.Taken``) in the units of t's sampling error: looks that take the same shift alike,
one that takes little shifts little. rho is weighed by how far the looks are from each other, beside a prior that is
typical of tables (``LookRule.misfit``). Then all looks together say where t is, and how much of the error is shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpglm.looks.error import Bounding, Taken

Floats = npt.NDArray[np.float64]

# rho among tables: the deviation of its logarithm, and the values that are weighed, in deviations from the typical one.
_AMONG_TABLES, _WEIGHED = 1.0, np.linspace(-2.5, 2.5, 21)
_NOTHING = 1e-9  # of t's sampling variance: less than this is not worth a shift


class Seen(NamedTuple):
    """What one look says of t, in information form, its shift by bounding aside; how it bounds; and by coefficient the
    sampling variance of what it sees, over the plain estimate's.
    """

    precision: Floats
    shift: Floats
    bounding: Bounding
    sampling: Floats


@dataclass(frozen=True, eq=False)
class Pooled:
    """What all looks say of t: precision, and precision times mean, with their noise alone; ``bounding`` is the
    covariance that the shift by bounding adds. ``misfit`` is rho, in root mean square.
    """

    precision: Floats
    shift: Floats
    bounding: Floats
    misfit: float

    @property
    def with_bounding(self) -> tuple[Floats, Floats]:
        """Precision, and precision times mean, with the shift by bounding too."""
        turned = np.linalg.inv(np.eye(len(self.shift)) + self.precision @ self.bounding)
        precision = turned @ self.precision
        return (precision + precision.T) / 2, turned @ self.shift


def pooled(
    looks: Sequence[Seen],
    taken: Taken,
    sampling: Floats,
    rows: float,
    typical: float,
    behind: Floats,
    prior: Floats,
    agreeing: bool = False,
) -> Pooled:
    """All looks together. ``sampling`` is t's sampling covariance; ``behind`` and ``prior`` are precision, and
    precision times mean, of what is known of t without looks. Of looks that are ``agreeing`` because they are
    expectations, rho is taken as it is among tables.
    """
    size, number = len(sampling), len(looks)
    root = _root(looks, taken, sampling, rows)
    each = np.stack([look.precision for look in looks])
    stacked = np.concatenate([look.shift for look in looks])
    seen = each @ root.reshape(number, size, -1)  # P L
    inner = root.T @ seen.reshape(number * size, -1)  # L' P L
    unexplained = (np.zeros(0),) * 2 if agreeing else _unexplained(inner, root, each, stacked, seen, behind, prior)
    rho = _weighed(*unexplained, typical)
    # Sigma^-1 = P - P L (1/rho^2 + L' P L)^-1 L' P, where a look may say nothing of some direction.
    capacity = np.linalg.inv(np.eye(len(inner)) / rho**2 + inner)
    ahead = seen.sum(axis=0)  # 1' P L
    total = each.sum(axis=0) - ahead @ capacity @ ahead.T
    shift = stacked.reshape(number, size).sum(axis=0) - ahead @ (capacity @ (root.T @ stacked))
    # The part of the covariance that is shift: T^-1 (1' Sigma^-1 L) (L' Sigma^-1 1) T^-1 rho^2.
    through = (ahead - ahead @ capacity @ inner) * rho
    share = through @ through.T
    covariance = np.linalg.inv(total)
    bounding = covariance @ share @ covariance
    turned = np.linalg.inv(np.eye(size) - share @ covariance)
    precision = turned @ total
    return Pooled((precision + precision.T) / 2, turned @ shift, (bounding + bounding.T) / 2, rho)


def _root(looks: Sequence[Seen], taken: Taken, sampling: Floats, rows: float) -> Floats:
    """A root L of the covariance N T of all shifts for rho = 1, (looks * coefficients, anything)."""
    own = np.asarray(np.linalg.cholesky(sampling), dtype=np.float64)
    parts = [_product(_square_root(taken.by_length), np.sqrt(taken.uneven)[:, None] * own)]
    if taken.by_clip.any():
        parts.append(_product(_square_root(taken.by_clip), own))
    errors = np.sqrt(rows * np.concatenate([look.sampling for look in looks]))
    return np.asarray(errors[:, None] * np.concatenate(parts, axis=1))


def _product(one: Floats, other: Floats) -> Floats:
    """The Kronecker product."""
    rows, columns = len(one) * len(other), one.shape[1] * other.shape[1]
    return np.asarray((one[:, None, :, None] * other[None, :, None, :]).reshape(rows, columns))


def _square_root(matrix: Floats) -> Floats:
    """Of a matrix that is positive but for rounding."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, _NOTHING)))


def _unexplained(
    inner: Floats, root: Floats, each: Floats, stacked: Floats, seen: Floats, behind: Floats, prior: Floats
) -> tuple[Floats, Floats]:
    """Eigenvalues m of M = L' P L, with P the looks' precision less what one common t explains; and the squares w^2 of
    what that t leaves unexplained, turned by M's vectors.
    """
    number, size = len(each), len(behind)
    common = each.sum(axis=0) + behind
    ahead = seen.sum(axis=0)
    explained = np.linalg.solve(common, np.column_stack([ahead, stacked.reshape(number, size).sum(axis=0) + prior]))
    matrix = inner - ahead.T @ explained[:, :-1]
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    left = vectors.T @ (root.T @ stacked - ahead.T @ explained[:, -1])
    return np.maximum(values, 0.0), left**2


def _weighed(values: Floats, squares: Floats, typical: float) -> float:
    """rho in root mean square. The logarithm of its likelihood, t left open as far as what is behind it leaves it, is
    -1/2 sum log(1 + rho^2 m) + 1/2 sum w^2 rho^2 / (1 + rho^2 m).
    """
    squared = (typical * np.exp(_AMONG_TABLES * _WEIGHED)) ** 2
    grown = 1 + squared[:, None] * values
    logs = 0.5 * np.sum(squared[:, None] * squares / grown - np.log(grown), axis=1) - 0.5 * _WEIGHED**2
    weight = np.exp(logs - logs.max())
    return math.sqrt(float(weight @ squared / weight.sum()))
