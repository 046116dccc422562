"""What is kept of the draws of many posteriors: quantiles, and how well the chains agree.

A sketch of 401 quantiles tells a distribution function to 1/800, far finer than the draws do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jax.scipy.special import ndtri

LEVELS = np.linspace(0, 1, 401)


@dataclass(frozen=True)
class Sketches:
    """Of some posteriors: quantiles (posteriors, levels, coefficients), and the rest (posteriors, coefficients)."""

    quantiles: np.ndarray
    mean: np.ndarray
    stddev: np.ndarray
    r_hat: np.ndarray

    @classmethod
    def of(cls, draws: np.ndarray) -> Sketches:
        """Of draws (posteriors, chains, draws, coefficients), scaled units."""
        flat = draws.reshape(len(draws), -1, draws.shape[-1])
        r_hat = np.array([rank_r_hat(one) for one in draws])
        quantiles = np.moveaxis(np.quantile(flat, LEVELS, axis=1), 0, 1)
        return cls(quantiles, flat.mean(axis=1), flat.std(axis=1), r_hat)


def distances(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Kolmogorov-Smirnov distances of two sketches (levels, coefficients); 1 for a chain that ran away."""
    if not np.isfinite(ours).all():
        return np.ones(ours.shape[1])
    found = []
    for one, other in zip(ours.T, theirs.T, strict=True):
        points = np.concatenate([one, other])
        found.append(np.abs(np.interp(points, one, LEVELS) - np.interp(points, other, LEVELS)).max())
    return np.array(found)


def rank_r_hat(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat, the larger of bulk and folded (Vehtari et al. 2021), of (chains, draws, ...).

    Not a number for a single chain.
    """
    chains, length, count = draws.shape
    if chains == 1:
        return np.full(count, np.nan)
    half = length // 2
    split = np.concatenate([draws[:, :half], draws[:, length - half :]])
    folded = np.abs(split - np.median(split, axis=(0, 1)))
    return np.maximum(_r_hat(_normal_scores(split)), _r_hat(_normal_scores(folded)))


def _normal_scores(values: np.ndarray) -> np.ndarray:
    flat = values.reshape(-1, values.shape[-1])
    ranks = flat.argsort(axis=0).argsort(axis=0) + 1.0
    scores = np.asarray(ndtri((ranks - 0.375) / (len(flat) + 0.25)))
    return scores.reshape(values.shape)


def _r_hat(values: np.ndarray) -> np.ndarray:
    length = values.shape[1]
    within = values.var(axis=1, ddof=1).mean(axis=0)
    between = length * values.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((between / within + length - 1) / length)
