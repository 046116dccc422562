"""What a survey weighs about one numeric column, by Bayes' rule over a grid of hypotheses.

``Magnitude`` is how far from zero values lie, by octave. ``NormalColumn`` is a column of some centre and scale; it says
which threshold tells most. ``Others`` is a column where one value may hold nearly all rows: how many others there are,
and how far.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_HALVINGS = 13  # of the range, that the scale may be
_CANDIDATES, _SAMPLED = 9, 500  # thresholds that are weighed for the next question, over so many hypotheses
_MISFIT = 0.04  # share of rows by which a column may differ from a normal one
_STEEP, _OCTAVE_MISFIT = (
    1.2,
    0.25,
)  # of the share of rows within an octave: how fast it rises, and how far it may be off
_SURELY, _HALF = 0.95, 0.5
_DROWNED = 0.1  # noise of a share of rows
_HEAP, _HEAPED, _NARROWER = 0.4, 0.1, 8.0  # share of rows in a heap, chance of one, and how much narrower it is
_FEW, _BETWEEN = 200, np.array([-0.375, -0.125, 0.125, 0.375])  # hypotheses; where finer ones are, in steps
_DROPPED = 15.0  # log likelihood behind the best at which a hypothesis is dropped
# Of the others: distances and shares that are weighed, and the spread of their log distance.
_DISTANCES, _NUMBER_OF_SHARES, _SHARES_OF_OTHERS = 80, 16, (0.01, 0.5)
_SPREAD_OF_OTHERS = 0.6
# Probabilities beforehand of some others and of none, of a normal column and of one value.
_IF_NORMAL, _IF_ONE_VALUE = (0.1, 0.4), (0.25, 0.25)


class Magnitude:
    """The octave in which the median distance of values from zero lies: by halving, or where noise is large by weighing
    every octave.
    """

    def __init__(self, octaves: range) -> None:
        self.octaves = np.array(octaves, dtype=np.float64)
        self.log = np.zeros(len(self.octaves))
        self.ends, self.drowned = (octaves.start, octaves.stop), False

    def _quantile(self, rank: float) -> float:
        weight = np.exp(self.log - self.log.max())
        ranks = np.cumsum(weight) - weight / 2
        return float(np.interp(rank * weight.sum(), ranks, self.octaves))

    @property
    def middle(self) -> int:
        """The octave that the next question is about: half way."""
        return round(self._quantile(0.5)) if self.drowned else sum(self.ends) // 2

    @property
    def largest(self) -> float:
        """An octave that values hardly lie beyond."""
        return self._quantile(_SURELY) if self.drowned else float(self.ends[1])

    @property
    def doubt(self) -> float:
        """How many octaves lower they may lie."""
        return self._quantile(_SURELY) - self._quantile(1 - _SURELY) if self.drowned else 0.0

    def learn(self, octave: int, share: float, stddev: float) -> None:
        """From the share of rows within an octave's end."""
        self.drowned = stddev > _DROWNED
        self.ends = (octave, self.ends[1]) if share < _HALF else (self.ends[0], octave)
        apart = octave - self.octaves
        misfit = _OCTAVE_MISFIT * np.exp(-np.abs(apart) / 2)
        self.log = self.log - (share - _normal_share(_STEEP * apart)) ** 2 / (2 * (stddev**2 + misfit**2))
        self.log = self.log - 0.5 * np.log(stddev**2 + misfit**2)


class Others:
    """Hypotheses of a column whose rows nearly all seem to have one value, with their log likelihood.

    Either it is a normal column after all, or nearly all rows do have that value; and in both cases there may be
    others, of a share and at a median distance, with lognormal distances.
    """

    def __init__(self, scale: float, width: float) -> None:
        self.scale = scale
        self.logs = np.linspace(math.log(scale), math.log(max(width, 2 * scale)), _DISTANCES)[:, None]
        self.shares = np.append(0.0, np.geomspace(*_SHARES_OF_OTHERS, _NUMBER_OF_SHARES))
        tail = np.log(np.where(self.shares > 0, 1 / _NUMBER_OF_SHARES, 1.0) / _DISTANCES)
        prior = [np.where(self.shares > 0, *map(math.log, part)) for part in (_IF_NORMAL, _IF_ONE_VALUE)]
        self.log = np.stack([np.broadcast_to(part + tail, (_DISTANCES, len(self.shares))) for part in prior])

    def learn(self, distance: float, share: float, stddev: float) -> None:
        """Weigh every hypothesis by the share of rows beyond a distance."""
        others = self.shares * _normal_share((self.logs - math.log(distance)) / _SPREAD_OF_OTHERS)
        core = 2 * float(_normal_share(np.array(-distance / self.scale)))
        expected = np.stack([core + others * (1 - core), others])
        self.log = self.log - (share - expected) ** 2 / (2 * (stddev**2 + (_MISFIT * (0.1 + expected)) ** 2))

    def _weight(self) -> Floats:
        weight = np.exp(self.log - self.log.max())
        return np.asarray(weight / weight.sum())

    def median_distance(self) -> float:
        """Half way, by probability, of where the others are."""
        by_distance = self._weight()[:, :, 1:].sum(axis=(0, 2))
        ranks = np.cumsum(by_distance / max(by_distance.sum(), 1e-300))
        return math.exp(float(np.interp(0.5, ranks, self.logs[:, 0])))

    def found(self) -> tuple[float, float]:
        """The scale, as the median of what it may be, and the spread of its logarithm."""
        squared = self.shares * np.exp(2 * (self.logs + _SPREAD_OF_OTHERS**2))
        sizes = 0.5 * np.log(np.stack([squared + self.scale**2, np.maximum(squared, self.scale**2)])).ravel()
        weight, order = self._weight().ravel(), np.argsort(sizes)
        ranks = np.cumsum(weight[order])
        low, median, high = sizes[order][np.minimum(np.searchsorted(ranks, [0.16, 0.5, 0.84]), len(order) - 1)]
        return math.exp(float(median)), float(high - low) / 2


class NormalColumn:
    """Hypotheses (centre, scale, heap) of a column, with their log likelihood: normal, but for a share of rows that lie
    in a narrow heap at the centre, as answers in round numbers do; of most columns none.

    Scales are octaves apart, and centres a scale, until few are left; then once more finely.
    """

    def __init__(self, lower: float, upper: float, halvings: int = _HALVINGS) -> None:
        width = upper - lower
        centres, scales, weights = [], [], []
        for halving in range(1, halvings + 1):
            number = 2**halving
            centres.append(lower + width * (np.arange(number) + 0.5) / number)
            scales.append(np.full(number, width / number))
            weights.append(np.full(number, -halving * math.log(2)))
        self.finest = width / 2**halvings
        self.centres, self.scales, self.prior = (
            np.tile(np.concatenate(each), 2) for each in (centres, scales, weights)
        )
        self.heaps = np.repeat([0.0, _HEAP], len(self.prior) // 2)
        self.prior = self.prior + np.log(np.where(self.heaps > 0, _HEAPED, 1 - _HEAPED))
        self.log, self.stddev, self.refined = self.prior, 0.0, False
        self.answers: list[tuple[float, float | None, float, float]] = []
        self._doubt: float | None = None  # since the last answer

    def next_threshold(self) -> float:
        """Where the answer is least certain, among thresholds at quantiles of the centre."""
        keep = slice(None, None, 1 + len(self.log) // _SAMPLED)
        weight = np.exp(self.log[keep] - self.log.max())
        weight /= weight.sum()
        order = np.argsort(self.centres[keep])
        ranks = np.cumsum(weight[order])
        wanted = (np.arange(_CANDIDATES) + 0.5) / _CANDIDATES
        at = self.centres[keep][order][np.minimum(np.searchsorted(ranks, wanted), len(order) - 1)]
        scale = math.exp(float(weight @ np.log(self.scales[keep])))
        centre = float(weight @ self.centres[keep])
        candidates = np.concatenate([at, centre + scale * np.array([-1.5, -1.0, -0.5, 0.5, 1.0, 1.5])])
        share = self._below(candidates[:, None], keep)
        variance = share**2 @ weight - (share @ weight) ** 2
        return float(candidates[int(np.argmax(variance))])

    def learn(self, threshold: float, share: float, stddev: float) -> None:
        """Weigh every hypothesis by the share of rows up to a threshold."""
        self._learn(threshold, None, share, stddev)

    def learn_beyond(self, centre: float, distance: float, share: float, stddev: float) -> None:
        """Weigh every hypothesis by the share of rows farther from a point than that."""
        self._learn(centre, distance, share, stddev)

    def _learn(self, point: float, distance: float | None, share: float, stddev: float) -> None:
        self.stddev, self._doubt = stddev, None
        self.answers.append((point, distance, share, stddev))
        self.log = self.log + self._told(*self.answers[-1])
        self._keep(self.log >= self.log.max() - _DROPPED)
        if not self.refined and len(self.log) <= _FEW:
            self._refine()

    def _told(self, point: float, distance: float | None, share: float, stddev: float) -> Floats:
        """By hypothesis, the logarithm of how likely an answer is."""
        if distance is None:
            expected = self._below(point)
        else:
            expected = 1 - self._below(point + distance) + self._below(point - distance)
        return np.asarray(-((share - expected) ** 2) / (2 * (stddev**2 + _MISFIT**2)))

    def _below(self, threshold: float | Floats, which: slice = slice(None)) -> Floats:
        """By hypothesis, the share of rows up to a threshold."""
        away, heaps = (threshold - self.centres[which]) / self.scales[which], self.heaps[which]
        below, first = _normal_share(away), int(np.searchsorted(heaps, _HEAP))  # heaps are last, whatever is dropped
        narrow = _normal_share(away[..., first:] * _NARROWER)
        below[..., first:] += _HEAP * (narrow - below[..., first:])
        return below

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        self.centres, self.scales, self.heaps = self.centres[kept], self.scales[kept], self.heaps[kept]
        self.prior, self.log = self.prior[kept], self.log[kept]

    def _refine(self) -> None:
        """Put finer hypotheses in the place of each, by what all answers say."""
        steps, halves = (each.ravel() for each in np.meshgrid(_BETWEEN, _BETWEEN))
        self.centres = (self.centres[:, None] + steps * self.scales[:, None]).ravel()
        self.scales = (self.scales[:, None] * 2.0**halves).ravel()
        self.prior, self.heaps = np.repeat(self.prior, len(steps)), np.repeat(self.heaps, len(steps))
        self.log, self.refined = self.prior + sum(self._told(*answer) for answer in self.answers), True
        self._keep(self.log >= self.log.max() - _DROPPED)

    def _weight(self) -> Floats:
        weight = np.exp(self.log - self.log.max())
        return np.asarray(weight / weight.sum())

    def found(self) -> tuple[float, float]:
        """Centre and scale by their posterior means, the scale's of its logarithm."""
        weight = self._weight()
        return float(weight @ self.centres), math.exp(float(weight @ np.log(self._sizes)))

    @property
    def _sizes(self) -> Floats:
        """Standard deviations of the column."""
        return np.asarray(self.scales * np.sqrt(1 - self.heaps))

    @property
    def drowned(self) -> bool:
        """Whether noise is so large that tails of a column are not seen."""
        return self.stddev > _DROWNED

    @property
    def doubt(self) -> float:
        """The spread of the logarithm of the scale, with what is in doubt of the centre as a part of the scale.

        Kept until the next answer: a search over many columns asks for it again and again.
        """
        if self._doubt is None:
            self._doubt = self._spread()
        return self._doubt

    def _spread(self) -> float:
        weight, logs = self._weight(), np.log(self._sizes)
        centre, scale = self.found()
        variance = float(weight @ (self.centres - centre) ** 2) / scale**2
        return math.sqrt(max(float(weight @ (logs - math.log(scale)) ** 2), 0.0) + (0.5 * math.log1p(variance)) ** 2)


def _normal_share(x: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))
