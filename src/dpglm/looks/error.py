"""The predicted error of a look's reading, in sampling variances: what the rule minimises and the posterior allows for.

    sampling  +  noise / slope^2  +  shift

``noise`` is the score's, of a bound B, and ``slope`` the share of the score's slope that bounds leave. ``sampling`` is
the variance of the bounded estimate over the plain one's where the family is right. ``shift`` is what bounding does to
the estimate where the regression is only roughly right: sqrt(N) rho q standard errors of the bounded estimate, q the
root mean square of what bounding takes from a score over its own, and rho (``LookRule.misfit``) how far that is from
averaging out. (At the plain estimate what is taken and what is left add up to nothing, so that the law must hold of
either; a standard error of the bounded estimate is in proportion to what is left.)

Rows are whitened and noise is isotropic, but long rows often reach far in one column, and then it is that coefficient
which loses slope and shifts. The profile says in which (``tails``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpglm.looks.population import Standing
from dpglm.looks.tails import Tails

Floats = npt.NDArray[np.float64]

_HARDLY_CLIPPED = 10.0  # standard deviations
_LEAST_LEFT = 0.3  # of a coefficient's slope


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
    # Of the model's rows, and then of the table's, whose lengths are a mixture: what bounds leave of a score, and of
    # its square.
    once, twice = (shorter.mean(free, bounds, power) / energy for power in (1, 2))
    left, kept, beyond, whole = np.zeros(len(bounds)), np.zeros(len(bounds)), np.zeros(len(bounds)), 0.0
    excess = _excess(tails, family.typical_residuals(standing.u, view.spread), view.clip) if family.has_spread else 0.0
    for scale, share in zip(tails.lengths.scales.tolist(), tails.lengths.shares.tolist(), strict=True):
        part = share * scale**2
        alone = shorter.mean(free, bounds / scale, 1) / energy
        left += part * alone
        kept += part * shorter.mean(free, bounds / scale, 2) / energy
        beyond += part * excess * alone
        whole += part
    left, kept, beyond = left / whole, kept / whole, beyond / whole
    columns = np.full(size, 1 / size) if tails.columns is None else tails.columns
    uneven = size * columns[:, None]
    slope = shorter.mean(weight * squared, bounds, 1) / energy * np.maximum(1 - (1 - left) * uneven, _LEAST_LEFT) / once
    variance = shorter.mean(clipped, bounds, 2) / (dispersion * energy)
    sampling = variance * np.maximum(1 - (1 - kept) * uneven, _LEAST_LEFT**2) / twice / slope**2
    taken = np.minimum(np.maximum(1 - 2 * left + kept, 0.0) * uneven + beyond, 1.0)
    return PredictedError(
        sampling=sampling,
        noise=(score_noise * bounds) ** 2 * size / (rows * energy * dispersion * slope**2),
        shift=rows * family.look_rule.misfit**2 * taken * sampling,
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
