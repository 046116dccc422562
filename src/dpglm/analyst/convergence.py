"""Effective sample sizes and R-hat of many chains at once.

The definitions of Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), which ArviZ follows, for whole arrays: a batch
of a thousand fits has thousands of coefficients, and ArviZ loops over them. The tests compare the two.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_TAILS = (0.05, 0.95)
_COLUMNS_AT_ONCE = 64  # what the caches hold


def convergence(draws: Floats) -> tuple[Floats, Floats, Floats]:
    """Bulk and tail effective sample sizes and rank-normalised R-hat of draws of shape (chains, draws, coefficients).

    One chain has no R-hat: not a number.
    """
    chains, _, columns = draws.shape
    parts = [draws[..., first : first + _COLUMNS_AT_ONCE] for first in range(0, columns, _COLUMNS_AT_ONCE)]
    bulk, tail, r_hat = np.concatenate([_of_columns(part) for part in parts], axis=1)
    return bulk, tail, r_hat if chains > 1 else np.full(columns, np.nan)


def _of_columns(draws: Floats) -> Floats:
    split = _halves(draws)
    ranked = _normal_scores(split)
    folded = _normal_scores(np.abs(split - np.median(split, axis=(0, 1))))
    quantiles = np.quantile(draws, _TAILS, axis=(0, 1))
    tails = [_effective_size(_halves((draws <= quantile).astype(np.float64))) for quantile in quantiles]
    return np.stack([_effective_size(ranked), np.min(tails, axis=0), np.maximum(_r_hat(ranked), _r_hat(folded))])


def _halves(draws: Floats) -> Floats:
    """Each chain as two, so that a drift within a chain counts; of an odd number the middle draw is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: Floats) -> Floats:
    """Ranks among all draws of a coefficient, as quantiles of a normal distribution."""
    flat = draws.reshape(-1, draws.shape[-1])
    scores = _scores(len(flat))
    columns = []
    for column in flat.T:
        halves = 2 * _ranks(column) - 2
        columns.append(np.where(np.isnan(halves), np.nan, scores[np.nan_to_num(halves).astype(np.int64)]))
    return np.stack(columns, axis=1).reshape(draws.shape)


@lru_cache(maxsize=8)
def _scores(count: int) -> Floats:
    """Of the ranks 1, 1.5, 2, ... among so many."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(2 * count - 1) / 2 + 1 - 0.375) / (count + 0.25)))


def _ranks(values: Floats) -> Floats:
    """From 1 on; equal values share the mean of theirs.

    >>> _ranks(np.array([0.3, 0.1, 0.3, 0.2]))
    array([3.5, 1. , 3.5, 2. ])
    """
    order = np.argsort(values)
    ordered = values[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    first = np.flatnonzero(new)
    means = (first + np.append(first[1:], len(values)) + 1) / 2  # of the ranks of each value
    ranks = np.empty(len(values))
    ranks[order] = means[np.cumsum(new) - 1]
    return np.where(np.isnan(values), np.nan, ranks)


def _effective_size(draws: Floats) -> Floats:
    """Draws over the sum of autocorrelations at all lags, both ways.

    The sum is that of pairs of lags, as far as they are positive and none larger than the one before (Geyer 1992).
    At most S log10(S) of S draws: where successive draws are opposite, more would be believed than is known.
    """
    chains, count, _ = draws.shape
    total = chains * count
    within, all_draws = _variances(draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = 1 - (within - _autocovariances(draws).mean(axis=0)) / all_draws
        correlations[0] = 1.0
        pairs = correlations[:-1:2] + correlations[1::2]
        pairs[1:] = np.minimum.accumulate(np.maximum(pairs[1:], 0.0), axis=0)
        sizes = total / (2 * pairs.sum(axis=0) - 1)
    largest = total * np.log10(total)
    sizes = np.where((sizes < 0) | (sizes > largest), largest, sizes)  # a negative time is one below the smallest
    constant = np.ptp(draws, axis=(0, 1)) < 1e-15
    return np.where(constant, float(total), sizes)


def _autocovariances(draws: Floats) -> Floats:
    """Of each chain at each lag, over the number of draws."""
    count = draws.shape[1]
    padded = 2 ** math.ceil(math.log2(2 * count))  # zeros, so that the end does not meet the beginning
    spectrum = np.fft.rfft(draws - draws.mean(axis=1, keepdims=True), padded, axis=1)
    return np.asarray(np.fft.irfft(np.abs(spectrum) ** 2, padded, axis=1)[:, :count] / count)


def _variances(draws: Floats) -> tuple[Floats, Floats]:
    """Within chains, and of all draws."""
    count = draws.shape[1]
    between, within = draws.mean(axis=1).var(axis=0, ddof=1), draws.var(axis=1, ddof=1).mean(axis=0)
    return within, between + within * (count - 1) / count


def _r_hat(draws: Floats) -> Floats:
    """Root of the variance of all draws over that within chains (Gelman & Rubin 1992)."""
    within, all_draws = _variances(draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(all_draws / within))
