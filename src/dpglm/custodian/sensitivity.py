"""The exact sensitivity of a list of blocks: one module for it, nowhere else (docs/privacy.md, "Sensitivity").

With noise standard deviation sigma_b in the isometric coordinates of block b = (q, k), one replaced row moves the
released vector by at most mu noise standard deviations, where

    mu^2 = max over rows (x, y), (x', y') of  sum_b sigma_b^-2 [ k_b(p, p) + k_b(p', p') - 2 k_b(p, p') ],
    k_b(p, p') = (y y')^q <x, x'>^k,        |x|, |x'| <= R,   y, y' in [y_low, y_high].

Both norms are R at the maximum, and y or y' is at an end of the range (proved in docs), so what is left is a
polynomial in the cosine of the two rows and one outcome, maximised by branch and bound with Bernstein coefficients,
which bound it from above on every box: the result is never below the true maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpglm.blocks import LARGEST_DEGREE, LARGEST_Y_POWER, BlockShape
from dpglm.looks.viewpoint import VECTOR_BITS
from dpglm.protection import ONE_ROW_REPLACED, Protection

_RELATIVE_GAP = 1e-11  # how far above the best row pair found the bound may end
_ROUNDING = 1e-12  # covers floating-point rounding of coefficients that are sums of at most 100 positive terms
_MOST_BOXES = 20_000  # then the bound is returned as it is: still above the maximum
_DEGREE_Y = 2 * LARGEST_Y_POWER

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sensitivity:
    """Guarantee: ``mu_squared`` is at least the true maximum. The rows that come closest are kept as a witness."""

    mu_squared: float
    witness_squared: float
    cosine: float
    y: float
    other_y: float


def sensitivity(
    blocks: Sequence[BlockShape],
    noise_stddevs: Sequence[float],
    radius: float,
    response_range: tuple[float, float],
) -> Sensitivity:
    """Certified upper bound on mu^2 for this noise, with the pair of rows that nearly attains it.

    Edge cases: for one predictor the rows of a ball are collinear, and the bound, though valid, need not be attained.
    """
    largest_y = max(abs(response_range[0]), abs(response_range[1]))
    weights = _weights(blocks, noise_stddevs, radius, largest_y)
    low, high = (bound / largest_y for bound in response_range)
    outcomes_at_ends = all(block.y_power <= 1 for block in blocks)
    best = Sensitivity(0.0, 0.0, 0.0, high, high)
    for end in dict.fromkeys((low, high)):
        boxes = [(other, other) for other in (low, high)] if outcomes_at_ends else [(low, high)]
        for s_range in boxes:
            bound, value, cosine, s = _maximise(_polynomial(blocks, weights, end), s_range)
            if bound > best.mu_squared:
                best = Sensitivity(bound, max(value, best.witness_squared), cosine, end * largest_y, s * largest_y)
    return best


def look_squared_mu(
    score_noise: float, information_noise: float, dimension: int, protection: Protection = ONE_ROW_REPLACED
) -> float:
    """Certified mu^2 of a look, noise in units of the bounds, |s| <= 1 and |q| <= 1 (docs/looks_privacy.md).

    The blocks are s, q q' and s s'; s s' has noise sqrt(v) times the score's, v = ``protection.square_variance``. With
    y = score_noise^-2 and x = information_noise^-2 mu^2 is ``protection.squared_mu(y, x)``: of one replaced row

        max( 4 y + x,  3 y + 2 x + y^2 / (y + 2 x) ).

    Opposite scores are the worst pair, and the square of the score is then free; the information adds x at most, or
    more where it is so precise that perpendicular rows are worse. Rounding moves a row's features by ``slack``.
    """
    y, x = score_noise**-2, information_noise**-2
    exact = math.sqrt(protection.squared_mu(y, x))
    rounded = math.sqrt(dimension) * 2.0**-VECTOR_BITS  # of a unit vector, twice what rounding can do
    # s moves by that much, q q' and s s' by at most 2.1 times as much; each of two rows.
    slack = 2 * rounded * (math.sqrt(y) + 2.1 * math.sqrt(x) + 2.1 * math.sqrt(y / 2))
    return float((exact * (1 + 3 * rounded) + slack) ** 2 * (1 + _ROUNDING))


def approximate_squared_mu(
    blocks: Sequence[BlockShape], weights: Array, response_range: tuple[float, float], points: int = 65
) -> float:
    """The same maximum on a grid, a little too small: for choosing an allocation, never for a guarantee.

    ``weights`` are those of the normalised problem: radius 1 and outcomes within [-1, 1].
    """
    cosine = np.linspace(-1, 1, 4 * points - 3)
    outcomes_at_ends = all(block.y_power <= 1 for block in blocks)
    others = np.array(response_range) if outcomes_at_ends else np.linspace(*response_range, points)
    values = [
        _evaluate(_polynomial(blocks, weights, end), others, cosine).max() for end in dict.fromkeys(response_range)
    ]
    return float(max(values))


def _weights(blocks: Sequence[BlockShape], noise_stddevs: Sequence[float], radius: float, largest_y: float) -> Array:
    """Block weights after scaling x to the unit ball and y to [-1, 1]."""
    return np.array(
        [
            (radius**block.degree * largest_y**block.y_power / noise) ** 2
            for block, noise in zip(blocks, noise_stddevs, strict=True)
        ]
    )


def _polynomial(blocks: Sequence[BlockShape], weights: Array, end: float) -> Array:
    """Coefficients [power of s, power of t] of  sum_b w_b (e^2q + s^2q - 2 (e s)^q t^k),  e = ``end``."""
    coefficients = np.zeros((_DEGREE_Y + 1, LARGEST_DEGREE + 1))
    for block, weight in zip(blocks, weights, strict=True):
        q, k = block.y_power, block.degree
        coefficients[0, 0] += weight * end ** (2 * q)
        coefficients[2 * q, 0] += weight
        coefficients[q, k] -= 2 * weight * end**q
    return coefficients


def _evaluate(coefficients: Array, s: Array, t: Array) -> Array:
    return np.asarray(np.polynomial.polynomial.polygrid2d(s, t, coefficients), dtype=np.float64)


def _maximise(coefficients: Array, s_range: tuple[float, float]) -> tuple[float, float, float, float]:
    """(upper bound, best value found, its t, its s) of a polynomial over t in [-1, 1] and s in a range."""
    slack = _ROUNDING * float(np.abs(coefficients).sum())
    s_low, s_high = s_range
    tensor = _bernstein(s_low, s_high, _DEGREE_Y) @ coefficients @ _bernstein(-1.0, 1.0, LARGEST_DEGREE).T
    boxes, corners, widths = tensor[None], np.array([[s_low, -1.0]]), np.array([s_high - s_low, 2.0])
    best, where = -math.inf, corners[0]
    finished = -math.inf  # the largest bound among boxes set aside as good enough
    while True:
        upper = boxes.max(axis=(1, 2))
        # A Bernstein tensor interpolates at its corners: those are values of the polynomial.
        ends = boxes[:, [0, 0, -1, -1], [0, -1, 0, -1]]
        box, corner = np.unravel_index(np.argmax(ends), ends.shape)
        if ends[box, corner] > best:
            best = float(ends[box, corner])
            where = corners[box] + widths * np.array([corner // 2, corner % 2])
        close = upper <= best + _RELATIVE_GAP * abs(best)
        finished = max(finished, float(upper[close].max(initial=-math.inf)))
        boxes, corners = boxes[~close], corners[~close]
        if not len(boxes) or len(boxes) > _MOST_BOXES:
            bound = max(finished, best, float(upper[~close].max(initial=-math.inf)))
            return bound + slack, best, float(where[1]), float(where[0])
        # Halve the cosine, then the outcome unless it is a single point.
        left, right = _halved(boxes)
        boxes = np.concatenate([left, right])
        widths = widths * np.array([1.0, 0.5])
        corners = np.concatenate([corners, corners + widths * np.array([0.0, 1.0])])
        if s_high > s_low:
            first, second = _halved(boxes.transpose(0, 2, 1))
            boxes = np.concatenate([first, second]).transpose(0, 2, 1)
            widths = widths * np.array([0.5, 1.0])
            corners = np.concatenate([corners, corners + widths * np.array([1.0, 0.0])])


def _bernstein(low: float, high: float, degree: int) -> Array:
    """Matrix from power coefficients on [low, high] to Bernstein coefficients: b_i = sum_j C(i,j)/C(n,j) a_j."""
    width = high - low
    shifted = np.zeros((degree + 1, degree + 1))  # power basis of the variable rescaled to [0, 1]
    for power in range(degree + 1):
        for j in range(power + 1):
            shifted[j, power] = math.comb(power, j) * low ** (power - j) * width**j
    to_bernstein = [
        [math.comb(i, j) / math.comb(degree, j) if j <= i else 0.0 for j in range(degree + 1)]
        for i in range(degree + 1)
    ]
    return np.array(to_bernstein) @ shifted


def _halved(boxes: Array) -> tuple[Array, Array]:
    """de Casteljau: Bernstein coefficients on both halves of the last axis."""
    current, left, right = boxes, [boxes[..., 0]], [boxes[..., -1]]
    while current.shape[-1] > 1:
        current = (current[..., 1:] + current[..., :-1]) / 2
        left.append(current[..., 0])
        right.append(current[..., -1])
    return np.stack(left, axis=-1), np.stack(right[::-1], axis=-1)
