"""Published private regressions that have no package, written here from their papers, for comparison only.

They are given more than a custodian knows: the population's means and spreads, by which predictors and outcome are
standardised, and of a linear outcome the spread of its residuals. Neighbours differ in one replaced row, budgets are
composed as Gaussian mechanisms, and noise is a simulation's. Nothing else imports this file.

    adassp           Wang 2018, with the parametric bootstrap of Ferrando, Wang & Sheldon 2022: linear
    noisy_gradient   Avella-Medina, Bradshaw & Loh 2023: robust losses, noisy steps, a noisy sandwich; with the noise of
                     the steps carried through to the last one, where the paper has its leading term
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Chosen for them, as those of the least width that cover nearly 95 % on three of the tables of head_to_head.py.
SUMS_LENGTH, GRADIENT_LENGTH = 2.0, 1.5  # of a row's bound, over the root of its coefficients: an ordinary row has 1
STEPS, STEP = 25, {"linear": 1.0, "logistic": 3.0}
OUTCOME_BOUND = 4.0  # standard deviations
HUBER = 1.345
BOOTSTRAPS = 400


class Interval(NamedTuple):
    """An estimate and its 95 % interval, by coefficient, in standard units."""

    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def adassp(rows: np.ndarray, y: np.ndarray, mu: float, rng: np.random.Generator) -> Interval:
    """Ridge regression of noisy sums, its penalty by their smallest eigenvalue; intervals by simulating both again.

    Four parts, a quarter of mu squared each: X'X, X'y, y'y and the eigenvalue.
    """
    size, part = rows.shape[1], mu / 2
    bound = SUMS_LENGTH * np.sqrt(size)
    x, y = shortened(rows, bound), np.clip(y, -OUTCOME_BOUND, OUTCOME_BOUND)
    noise = {
        "xx": np.sqrt(2) * bound**2 / part, "xy": 2 * bound * OUTCOME_BOUND / part, "yy": OUTCOME_BOUND**2 / part,
        "least": bound**2 / part,
    }  # fmt: skip
    gram = x.T @ x + symmetric(rng, size, noise["xx"])
    cross = x.T @ y + rng.normal(0, noise["xy"], size)
    square = y @ y + rng.normal(0, noise["yy"])
    least = np.linalg.eigvalsh(x.T @ x)[0] + rng.normal(0, noise["least"]) - 2.33 * noise["least"]
    penalty = max(0.0, np.sqrt(size * np.log(2 * size**2 / 0.05)) * noise["xx"] - max(least, 0.0))
    estimate = np.linalg.solve(gram + penalty * np.eye(size), cross)
    variance = max((square - 2 * estimate @ cross + estimate @ gram @ estimate) / len(y), 1e-3)
    # The bootstrap takes the noisy Gram matrix, made positive, as the true one.
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(values, 1.0))
    own = root @ root.T
    again = []
    for _ in range(BOOTSTRAPS):
        crossed = own @ estimate + np.sqrt(variance) * root @ rng.normal(size=size) + rng.normal(0, noise["xy"], size)
        noisy = own + symmetric(rng, size, noise["xx"])
        again.append(np.linalg.solve(noisy + penalty * np.eye(size), crossed))
    low, high = np.quantile(np.array(again) - estimate, [0.025, 0.975], axis=0)
    return Interval(estimate, estimate - high, estimate - low)


def noisy_gradient(
    family: str, rows: np.ndarray, y: np.ndarray, mu: float, rng: np.random.Generator, spread: float = 1.0
) -> Interval:
    """Steps along noisy bounded gradients, and an interval by the sandwich of noisy bounded matrices.

    Of mu squared, 3/5 are for the steps and 1/5 for each matrix. ``spread`` is that of a linear outcome's residuals.
    """
    number, size = rows.shape
    bound, moved = GRADIENT_LENGTH * np.sqrt(size), STEP[family] * spread  # scores are in units of residuals
    weight = np.minimum(1.0, (bound / np.linalg.norm(rows, axis=1)) ** 2)
    longest = HUBER if family == "linear" else 1.0
    most_slope = 1 / spread if family == "linear" else 0.25
    noise = 2 * bound * longest * np.sqrt(STEPS) / (number * mu * np.sqrt(0.6))
    theta = np.zeros(size)

    def at(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if family == "linear":
            residual = (y - rows @ theta) / spread
            return np.clip(residual, -HUBER, HUBER), (np.abs(residual) < HUBER) / spread
        mean = 1 / (1 + np.exp(-rows @ theta))
        return y - mean, mean * (1 - mean)

    for _ in range(STEPS):
        score, _ = at(theta)
        theta = theta + moved * (rows.T @ (weight * score) / number + rng.normal(0, noise, size))
    score, slope = at(theta)
    part = mu * np.sqrt(0.2)
    curvature = (rows * (weight * slope)[:, None]).T @ rows / number
    curvature += symmetric(rng, size, np.sqrt(2) * bound**2 * most_slope / (number * part))
    square = (rows * ((weight * score) ** 2)[:, None]).T @ rows / number
    square += symmetric(rng, size, np.sqrt(2) * (bound * longest) ** 2 / (number * part))
    curvature, square = positive(curvature, 0.02 * most_slope), positive(square, 0.0)
    inverse = np.linalg.inv(curvature)
    variance = inverse @ square @ inverse / number
    carried, power = np.zeros((size, size)), np.eye(size)
    for _ in range(STEPS):
        carried += (moved * noise) ** 2 * power @ power
        power = power @ (np.eye(size) - moved * curvature)
    half = 1.959963984540054 * np.sqrt(np.diag(variance + carried))
    return Interval(theta, theta - half, theta + half)


def shortened(rows: np.ndarray, bound: float) -> np.ndarray:
    return rows * np.minimum(1.0, bound / np.linalg.norm(rows, axis=1))[:, None]


def symmetric(rng: np.random.Generator, size: int, scale: float) -> np.ndarray:
    """Noise for a symmetric matrix whose distance counts every entry: off the diagonal, two are one number."""
    drawn = rng.normal(0, scale, (size, size))
    above = np.triu(drawn, 1) / np.sqrt(2)
    return above + above.T + np.diag(np.diag(drawn))


def positive(matrix: np.ndarray, least: float) -> np.ndarray:
    """The nearest symmetric matrix without smaller eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, least)) @ vectors.T
