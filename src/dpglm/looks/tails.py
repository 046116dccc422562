"""Tails: how far rows reach beyond what pseudo-rows say, as a mixture of scales that noisy counts choose.

What a bound takes from a regression is decided by the few rows that reach far, and there a normal or negative binomial
model is far too light. So most rows are taken as the model has them, at about its scale, and a share of them at a
larger one. Every scale and share is a hypothesis with a weight; counts through noise move the weights by Bayes' rule
(``profile``), and where the noise drowns the counts the weights stay what is typical of real tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Hypotheses: scales of most rows, with their prior chances; how many times as far the others reach, and their share.
_CORES, _CORE_CHANCES = np.array([0.7, 0.85, 1.0, 1.15]), np.array([0.1, 0.1, 0.7, 0.1])
_FARTHER, _SHARES = np.array([1.6, 2.2, 3.2, 5.0, 8.0]), np.geomspace(0.002, 0.2, 8)
_TYPICAL_VARIANCE = 0.1  # that others add, in the core's: with more of it a hypothesis is less likely
_NO_OTHERS = 0.3  # chance of a table without others
_MISFIT = 0.1  # relative error of a count by the best hypothesis
_UNEVEN = 1.0  # of the columns' shares in long rows: the concentration of a Dirichlet distribution, all in all


@dataclass(frozen=True, eq=False)
class Mixture:
    """So large a share of rows reaches so many times as far as the model's."""

    scales: Floats
    shares: Floats


@dataclass(frozen=True, eq=False)
class Tails:
    """Of rows' lengths, and of residuals in their standard deviations.

    ``columns`` are the coefficients' shares in what makes long rows long, or None before a profile: even ones.
    """

    lengths: Mixture
    residuals: Mixture
    columns: Floats | None = None


def assumed_tails() -> Tails:
    """What is typical, before a profile."""
    cores, shares, farther, logs = _hypotheses()
    assumed = _mixture(cores, shares, farther, np.exp(logs))
    return Tails(assumed, assumed)


def measured(core: Floats, rungs: Floats, cells: Floats, stddev: float) -> Mixture:
    """The mixture after noisy shares of rows between rungs, and beyond the last.

    ``core`` is the model's own sample of what was measured, and ``stddev`` the noise of a share.
    """
    cores, shares, farther, logs = _hypotheses()
    ordered = np.sort(core)

    def beyond(scales: Floats) -> Floats:
        return 1 - np.searchsorted(ordered, rungs / scales[:, None], side="right") / len(ordered)

    tail = (1 - shares)[:, None] * beyond(cores) + shares[:, None] * beyond(cores * farther)
    expected = tail - np.column_stack([tail[:, 1:], np.zeros(len(tail))])
    variance = stddev**2 + (_MISFIT * expected) ** 2 + 1e-12
    logs = logs - 0.5 * np.sum((cells - expected) ** 2 / variance + np.log(variance), axis=1)
    weight = np.exp(logs - logs.max())
    return _mixture(cores, shares, farther, weight / weight.sum())


def divided(core: Floats, lengths: Mixture, rungs: Floats, cells: Floats, stddev: float) -> Floats:
    """The columns' shares in what makes long rows long, from noisy shares of rows by band of length and column.

    Of the rows in a band (between rungs, and beyond the last) the mixture says how many there are; how they divide
    among columns is averaged, by precision, with an even division that real tables are far from (``_UNEVEN``).
    """
    size = cells.shape[1]
    reaches = lengths.scales[:, None] * core
    weights = lengths.shares[:, None] / len(core)
    parts, excess = [], []
    for low, high, noisy in zip(rungs, [*rungs[1:], np.inf], cells, strict=True):
        inside = (reaches > low) & (reaches <= high)
        expected = float(np.sum(weights * inside)) + 1e-12
        excess.append(float(np.sum(weights * inside * (reaches - rungs[0]) ** 2)) + 1e-12)
        prior = expected**2 * (1 - 1 / size) / size / (1 + _UNEVEN)
        held = np.maximum(expected / size + prior / (prior + stddev**2) * (noisy - expected / size), 0.0)
        parts.append(held / max(float(held.sum()), 1e-300) if held.any() else np.full(size, 1 / size))
    return np.asarray(np.array(excess) @ np.array(parts) / sum(excess))


@lru_cache(maxsize=1)
def _hypotheses() -> tuple[Floats, Floats, Floats, Floats]:
    """Scale of the core, share of the others, how many times as far they reach, logarithm of the chance."""
    farther, shares = (each.ravel() for each in np.meshgrid(_FARTHER, _SHARES))
    chances = 1 / (1 + (shares * farther**2 / _TYPICAL_VARIANCE) ** 2)
    others = list(zip(shares.tolist(), farther.tolist(), (chances / chances.sum()).tolist(), strict=True))
    rows = []
    for core, chance in zip(_CORES.tolist(), _CORE_CHANCES.tolist(), strict=True):
        rows.append((core, 0.0, 1.0, math.log(chance * _NO_OTHERS)))
        rows += [(core, share, times, math.log(chance * (1 - _NO_OTHERS) * other)) for share, times, other in others]
    columns = np.array(rows).T
    return columns[0], columns[1], columns[2], columns[3]


def _mixture(cores: Floats, shares: Floats, farther: Floats, weight: Floats) -> Mixture:
    """Every scale that occurs, with its share of the rows."""
    scales, place = np.unique(np.concatenate([cores, cores * farther]), return_inverse=True)
    chances = np.concatenate([weight * (1 - shares), weight * shares])
    return Mixture(scales, np.bincount(place, chances).astype(np.float64))
