"""Which look comes next: shares of the budget, and the bounds of a look. Public numbers only.

A larger bound means more noise, a smaller one changes what is estimated where the regression is only roughly right: the
bound grows with the signal N mu^2 / D so that both errors shrink (docs/looks.md).
"""

from __future__ import annotations

import math

import numpy as np

from dpglm.families.base import CLIP
from dpglm.looks.population import inverse_root
from dpglm.looks.reading import Knowledge
from dpglm.looks.viewpoint import Viewpoint

# Shares of the looks in what the survey leaves. They add up to a little less than one, so that costs that a ledger
# rounds up still fit its cap.
SHARES = (0.10, 0.12, 0.14, 0.20, 0.44 - 1e-9)
# Of a look's mu^2, for its information: the most, and how it falls with D / sqrt(N). Less in the last look.
_MOST_INFORMATION = {False: 0.2, True: 0.1}
_INFORMATION = {False: 2.8, True: 1.4}
_LEAST_INFORMATION = 0.02
_INFORMATION_LEVERAGE = 10.0  # bound of a row's information, in that of an average row, at a signal of 360
_TYPICAL_SIGNAL = 360.0
_TYPICAL_ROWS = 40_000
_EIGENVALUE_FLOOR = 1e-3


def information_share(rows: int, dimension: int, last: bool) -> float:
    """Share of a look's mu^2 that its information gets.

    An error of the information counts times the way from the centre to the estimate, which is some standard errors:
    beside the noise of the score it falls as D / sqrt(N).
    """
    share = _INFORMATION[last] * dimension / math.sqrt(rows)
    return min(max(share, _LEAST_INFORMATION), _MOST_INFORMATION[last])


def next_viewpoint(known: Knowledge, total_mu: float, mu: float) -> Viewpoint:
    """Centre, whitening and bounds of the next look, which may cost ``mu`` of a release's ``total_mu``."""
    family, rule = known.family, known.family.look_rule
    size, rows = len(known.centre), known.num_rows
    dispersion = family.dispersion(known.spread)
    signal = rows * total_mu**2 / size
    # Squared residual range over its weight: what a row of average leverage may contribute.
    clipped = family.has_spread
    per_row = CLIP**2 * dispersion if clipped else 1 / known.mean_weight
    noise = 4 * size * per_row / dispersion / (mu * mu * rows)
    relative = rows / _TYPICAL_ROWS / noise
    if relative < rule.large_noise:
        relative = rule.large_noise * (relative / rule.large_noise) ** rule.times_the_power
    leverage = max(rule.least_leverage, rule.growth * relative**rule.power)
    clip = CLIP * math.sqrt(leverage / 4)
    if clipped:
        per_row = clip**2 * dispersion
    relative_signal = signal / _TYPICAL_SIGNAL
    power = 0.5 if relative_signal < 1 else 0.25
    information_leverage = max(_INFORMATION_LEVERAGE * relative_signal**power, rule.least_information_leverage)
    whitening = inverse_root(known.information, _EIGENVALUE_FLOOR)
    offset = () if known.offset_slope is None else (known.offset_slope,)
    return Viewpoint(
        centre=(*map(float, known.centre), *offset),
        whitening=tuple(tuple(map(float, row)) for row in np.asarray(whitening)),
        score_bound=math.sqrt(leverage * size * per_row),
        information_bound=size * information_leverage,
        spread=known.spread,
        clip=clip,
    )
