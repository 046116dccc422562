"""The predicted error of a look's reading, in sampling variances: what the rule minimises and the posterior allows for.

    sampling 1  +  noise / slope^2  +  shift / slope^2  +  loss

``noise`` is the score's, of a bound B. ``shift`` is what bounding does to the estimate where the regression is only
roughly right: sqrt(N) rho q standard errors, q the root mean square of what bounding takes from a score over its own,
and rho (``LookRule.misfit``) how far that is from averaging out. ``slope`` is the share of the score's slope that
bounds leave; ``loss`` is of efficiency, the error of the bounded estimate over the plain one's where the family is
right. All are the same for every direction, so for every coefficient: rows are whitened, and noise is isotropic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpglm.looks.population import Standing
from dpglm.looks.tails import Tails

Floats = npt.NDArray[np.float64]

_HARDLY_CLIPPED = 10.0  # standard deviations


@dataclass(frozen=True, eq=False)
class PredictedError:
    """Parts of the predicted error in sampling variances, one entry a bound; ``loss`` may be negative."""

    noise: Floats
    shift: Floats
    loss: Floats

    @property
    def total(self) -> Floats:
        return 1 + self.noise + self.shift + np.maximum(self.loss, 0.0)


def predicted_error(
    standing: Standing, information: Floats, rows: float, tails: Tails, bounds: Floats, score_noise: float
) -> PredictedError:
    """Of looks from where ``standing`` is and with its clip, for some bounds of the score.

    ``score_noise`` is the noise of a score in units of its bound.
    """
    family, view = standing.family, standing.view
    size, dispersion = view.dimension, family.dispersion(view.spread)
    squared = standing.seen(information).squared
    weight, largest, _ = standing.residual
    loose = replace(view, clip=_HARDLY_CLIPPED).residual_table(family, standing.response_range)
    free = loose.at(standing.u, loose.weight)[0] * squared
    energy = float(free.mean())
    clipped = family.clipped_variance(standing.table, view.spread, view.clip, standing.u) * squared
    shorter = _Shortened(largest * np.sqrt(squared))
    slope = shorter.mean(weight * squared, bounds, 1) / energy
    taken = np.zeros(len(bounds))
    excess = _excess(tails, family.typical_residuals(standing.u, view.spread), view.clip) if family.has_spread else 0.0
    for scale, share in zip(tails.lengths.scales.tolist(), tails.lengths.shares.tolist(), strict=True):
        once, twice = (shorter.mean(free, bounds / scale, power) / energy for power in (1, 2))
        taken += share * scale**2 * (1 - 2 * once + twice + excess * once)
    return PredictedError(
        noise=(score_noise * bounds) ** 2 * size / (rows * energy * dispersion * slope**2),
        shift=rows * family.look_rule.misfit**2 * np.maximum(taken, 0.0) / slope**2,
        loss=shorter.mean(clipped, bounds, 2) / (dispersion * energy * slope**2) - 1,
    )


def _excess(tails: Tails, core: Floats, clip: float) -> float:
    """E[(|r| - clip)^2 beyond the clip], r in standard deviations."""
    beyond = np.maximum(tails.residuals.scales[:, None] * core - clip, 0.0)
    return float(tails.residuals.shares @ np.mean(beyond**2, axis=1))


class _Shortened:
    """Averages over rows that a bound shortens to its length: for all bounds at once, from sums over sorted rows."""

    def __init__(self, lengths: Floats) -> None:
        self._order = np.argsort(lengths)
        self._lengths = np.maximum(lengths[self._order], 1e-300)

    def mean(self, values: Floats, bounds: Floats, power: int) -> Floats:
        """E[min(1, bound / length)^power value]."""
        ordered = values[self._order]
        whole = np.concatenate([[0.0], np.cumsum(ordered)])
        parts = np.concatenate([[0.0], np.cumsum((ordered / self._lengths**power)[::-1])])[::-1]
        first = np.searchsorted(self._lengths, bounds)
        return np.asarray((whole[first] + bounds**power * parts[first]) / len(ordered))
