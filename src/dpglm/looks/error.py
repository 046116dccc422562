"""The predicted error of a look's reading, in sampling variances: what the rule minimises and the posterior allows for.

    sampling  +  noise / slope^2  +  shift

``noise`` is the score's, of a bound B, and ``slope`` the share of the score's slope that bounds leave. ``sampling`` is
the variance of the bounded estimate over the plain one's where the family is right. ``shift`` is what bounding does to
the estimate where the regression is only roughly right: sqrt(N) rho q standard errors of the bounded estimate, q the
root mean square of what bounding takes from a score over its own, and rho (``misfit``) how far that is from averaging
out. (At the plain estimate what is taken and what is left add up to nothing, so that the law must hold of either; a
standard error of the bounded estimate is in proportion to what is left.)

Two looks with different bounds shift by different amounts, and alike where they take the same: as if a regression's
misfit were a random function of the row. What they share is ``Taken``; their disagreement tells rho (``misfit``).

Rows are whitened and noise is isotropic, but long rows often reach far in one column, and then it is that coefficient
which loses slope and shifts. The profile says in which (``tails``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpglm.looks.population import Standing
from dpglm.looks.tails import Tails

Floats = npt.NDArray[np.float64]

_HARDLY_CLIPPED = 10.0  # standard deviations
_STEP, _CELLS = 0.02, 450  # of the logarithm of a length, and how many of them to either side of a typical one
_LENGTHS = np.exp(_STEP * np.arange(-_CELLS, _CELLS + 1))
_LEAST_LEFT = 0.3  # of a coefficient's slope


class Bounding(NamedTuple):
    """How a look bounds: its score's bound over the root mean square of a score without bounds, and its clip."""

    bound: float
    clip: float


@dataclass(frozen=True, eq=False)
class PredictedError:
    """Parts of the predicted error over the sampling variance of the plain estimate: (coefficients, bounds)."""

    sampling: Floats
    noise: Floats
    shift: Floats

    @property
    def total(self) -> Floats:
        """Of an average coefficient, by bound."""
        return np.asarray(np.mean(np.maximum(self.sampling, 1.0) + self.noise + self.shift, axis=0))


class Taken(NamedTuple):
    """What looks take of scores, over the scores' own squares, by pair of looks: what both of them take.

    ``by_length`` is of the bound, for an average coefficient, and ``uneven`` by coefficient what it has of that over
    the average; ``by_clip`` is of the clip.
    """

    by_length: Floats
    uneven: Floats
    by_clip: Floats


class Lengths:
    """Lengths of scores from where a look stands, in a histogram of their logarithms.

    ``model`` is what the model's rows of a length have of the mean square of a score without bounds, and ``table`` the
    share of that among the table's rows, which are a mixture.
    """

    def __init__(self, standing: Standing, information: Floats, tails: Tails, typical: Floats | None = None) -> None:
        """``typical`` residuals are the same for every clip: those of another look that differs by nothing else."""
        family, view = standing.family, standing.view
        self.standing, self.tails, self.squared = standing, tails, standing.seen(information).squared
        if typical is None and family.has_spread:
            typical = family.typical_residuals(standing.u, view.spread)
        self.typical = typical
        lengths = standing.residual[1] * np.sqrt(self.squared / (view.dimension * family.dispersion(view.spread)))
        steps = np.rint(np.log(np.maximum(lengths, 1e-300)) / _STEP)
        self._cells = np.clip(steps, -_CELLS, _CELLS).astype(int) + _CELLS
        loose = replace(view, clip=_HARDLY_CLIPPED).residual_table(family, standing.response_range)
        self.model = self.binned(loose.at(standing.u, loose.weight)[0] * self.squared)
        moved = np.rint(np.log(tails.lengths.scales) / _STEP).astype(int) + _CELLS
        mixture = np.bincount(moved, tails.lengths.shares * tails.lengths.scales**2, len(_LENGTHS))
        used = np.flatnonzero(mixture)
        mixed = np.convolve(self.model, mixture[used[0] : used[-1] + 1])
        mixed = mixed[max(_CELLS - used[0], 0) :][: len(_LENGTHS)]
        self.table = mixed / mixed.sum()

    def binned(self, values: Floats) -> Floats:
        """By length, the mean over the model's rows of what they have of it."""
        return np.bincount(self._cells, values, len(_LENGTHS)) / len(values)

    @property
    def uneven(self) -> Floats:
        """By coefficient, its share in what makes long rows long, over an even one."""
        size = self.standing.view.dimension
        return np.ones(size) if self.tails.columns is None else size * self.tails.columns

    def beyond(self, clips: Floats) -> Floats:
        """By pair of clips, E[(|r| - clip)(|r| - other clip)] where both are exceeded, r in standard deviations."""
        core, tails = self.typical, self.tails.residuals
        if core is None:
            return np.zeros((len(clips), len(clips)))
        reach = (tails.scales[:, None] * core).ravel()
        weight = np.repeat(tails.shares / len(core), len(core))
        far = reach > clips.min()
        beyond = np.maximum(reach[far] - clips[:, None], 0.0)
        return np.asarray((beyond * weight[far]) @ beyond.T)


def predicted_error(lengths: Lengths, rows: float, bounds: Floats, score_noise: float, misfit: float) -> PredictedError:
    """Of looks from where ``lengths`` are seen and with that clip, for some bounds of the score, as in ``Bounding``.

    ``score_noise`` is the noise of a score in units of its bound, ``misfit`` is rho.
    """
    standing, view, family = lengths.standing, lengths.standing.view, lengths.standing.family
    size, uneven = view.dimension, lengths.uneven[:, None]
    weight, squared = standing.residual[0], lengths.squared
    clipped = family.clipped_variance(standing.table, view.spread, view.clip, standing.u) * squared
    kappa = _shortened(bounds)
    model, energy = lengths.model, float(lengths.model.sum())
    # Of the model's rows, and then of the table's: what bounds leave of a score, and of its square.
    once, twice = kappa @ model / energy, kappa**2 @ model / energy
    left, kept = kappa @ lengths.table, kappa**2 @ lengths.table
    slope = kappa @ lengths.binned(weight * squared) / energy * np.maximum(1 - (1 - left) * uneven, _LEAST_LEFT) / once
    variance = kappa**2 @ lengths.binned(clipped) / (family.dispersion(view.spread) * energy)
    sampling = variance * np.maximum(1 - (1 - kept) * uneven, _LEAST_LEFT**2) / twice / slope**2
    beyond = left * lengths.beyond(np.array([view.clip]))[0, 0]
    taken = np.minimum(np.maximum(1 - 2 * left + kept, 0.0) * uneven + beyond, 1.0)
    noise = (score_noise * bounds * size / slope) ** 2 / (rows * energy)
    return PredictedError(sampling, np.asarray(noise), np.asarray(rows * misfit**2 * taken * sampling))


def taken_by(lengths: Lengths, looks: Sequence[Bounding]) -> Taken:
    """What looks with these bounds would take, all of them from where ``lengths`` are seen."""
    bounds, clips = np.array(looks).T
    kappa = _shortened(bounds)
    by_length, kept = (np.asarray((each * lengths.table) @ each.T) for each in (1 - kappa, kappa))
    return Taken(by_length, lengths.uneven, kept * lengths.beyond(clips))


def _shortened(bounds: Floats) -> Floats:
    """By bound and length, how much of a row is left."""
    return np.asarray(np.minimum(1.0, bounds[:, None] / _LENGTHS))
