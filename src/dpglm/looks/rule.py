"""Which look comes next: shares of the budget, and the bounds of a look. Public numbers only.

A larger bound means more noise, a smaller one changes what is estimated where the regression is only roughly right:
bound and clip are those of the least predicted error (``error``; docs/method.md, section 5).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpglm.families.base import CLIP
from dpglm.looks.error import Lengths, predicted_error
from dpglm.looks.population import Standing, inverse_root, rare_lengths
from dpglm.looks.reading import Knowledge
from dpglm.looks.viewpoint import Viewpoint

# Shares of the looks in what survey and profile leave. They add up to a little less than one, so that costs that a
# ledger rounds up still fit its cap.
SHARES = (0.10, 0.12, 0.14, 0.20, 0.44 - 1e-9)
PROFILE_SHARE = 0.04  # of mu^2
# Of a look's mu^2, for its information: the most, and how it falls with D / sqrt(N). Less in the last look.
_MOST_INFORMATION = {False: 0.2, True: 0.1}
_INFORMATION = {False: 2.8, True: 1.4}
_LEAST_INFORMATION = 0.02
_INFORMATION_LEVERAGE = 10.0  # bound of a row's information, in that of an average row, at a signal of 360
_TYPICAL_SIGNAL = 360.0
_COARSEST = 0.15  # noise of an information, in that of all rows, that whole rows of rare levels are worth
_EIGENVALUE_FLOOR = 1e-3
_BOUNDS = np.geomspace(0.8, 60.0, 45)  # of a score, in the root mean square of a row's without bounds
_CLIPS = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0)  # standard deviations
_ENOUGH = 2  # clips in turn that are worse than one before: those beyond are not tried
_CAUTION = 1.5  # bounds are chosen for a misfit so many times the typical one: some tables have more


def information_share(rows: float, dimension: int, last: bool) -> float:
    """Share of a look's mu^2 that its information gets.

    An error of the information counts times the way from the centre to the estimate, which is some standard errors:
    beside the noise of the score it falls as D / sqrt(N).
    """
    share = _INFORMATION[last] * dimension / math.sqrt(rows)
    return min(max(share, _LEAST_INFORMATION), _MOST_INFORMATION[last])


def next_viewpoint(known: Knowledge, total_mu: float, mu: float) -> Viewpoint:
    """Centre, whitening and bounds of the next look, which may cost ``mu`` of a release's ``total_mu``."""
    size, rows, last = len(known.centre), known.num_rows, known.looks == len(SHARES) - 1
    signal = rows * total_mu**2 * 4 / known.units.score_cost / size / _TYPICAL_SIGNAL
    leverage = _INFORMATION_LEVERAGE * signal ** (0.5 if signal < 1 else 0.25)
    whitening = inverse_root(known.information, _EIGENVALUE_FLOOR)
    # Rows of rare levels are kept whole where the noise of the information allows it.
    longest = known.mean_weight * rare_lengths(known.population.rare, whitening).max() + size
    affordable = _COARSEST * rows * mu * math.sqrt(information_share(rows, size, last)) / known.units.long_rows
    view = Viewpoint(
        centre=tuple(map(float, known.with_offset(known.centre))),
        whitening=tuple(tuple(map(float, row)) for row in whitening),
        score_bound=1.0,
        information_bound=max(
            size * max(leverage, known.family.look_rule.least_information_leverage),
            min(longest, affordable),
        ),
        spread=known.spread,
        clip=CLIP,
    )
    # The first look, which is read with a discrepancy, is bounded for itself; later ones for all of them together.
    bounded = _bounded(known, view, total_mu if known.looks else mu)
    return replace(
        bounded,
        score_bound=bounded.score_bound * known.units.long_scores,
        information_bound=bounded.information_bound * known.units.long_information,
    )  # fmt: skip


def _bounded(known: Knowledge, view: Viewpoint, mu: float) -> Viewpoint:
    """The viewpoint with the bound and the clip of the least predicted error, for looks that cost ``mu`` together."""
    # Of a bound on a row; the information's share is left out.
    noise = math.sqrt(known.units.score_cost) / mu * known.units.long_scores
    least, best, typical, worse = math.inf, view, None, 0
    for clip in _CLIPS if known.family.has_spread else (CLIP,):
        clipped = replace(view, clip=clip)
        standing = Standing(known.population, clipped, known.family, known.response_range, known.units.past)
        lengths = Lengths(standing, known.information, known.tails, typical)
        typical = lengths.typical
        total = predicted_error(lengths, known.num_rows, _BOUNDS, noise, _CAUTION * known.misfit).total
        if total.min() < least:
            bound = _BOUNDS[int(total.argmin())] * math.sqrt(view.dimension * known.dispersion)
            least, best, worse = float(total.min()), replace(clipped, score_bound=float(bound)), 0
        else:
            worse += 1
            if worse == _ENOUGH:
                break
    return best
