"""How a budget is divided among stages, and the noise of later stages: all of it public, before a row is read.

The rule (docs/stages.md): later stages pay where the table is large for its budget, measured by the signal
N mu^2 / D, D the number of coefficients. Below ``_ENOUGH_SIGNAL`` the whole budget goes to one stage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpglm.centring import VECTOR_BITS
from dpglm.custodian.mechanism import Mechanism, calibrate
from dpglm.custodian.noise import LARGEST_GRID_NOISE
from dpglm.custodian.sensitivity import centred_squared_mu
from dpglm.errors import InputError
from dpglm.formula import Design
from dpglm.privacy import SMALLEST_GRID_NOISE, Privacy, check_epsilon_delta, compose, mu_of

STAGES = (1, 2, 3, "auto")
_ENOUGH_SIGNAL = 1.8
_MOST_FOR_THE_FIRST = {"logistic": 0.25, "poisson": 0.35, "linear": 0.35}  # of three stages' mu^2
# Of a stage's mu^2, for its information: the most, and how it falls with D / sqrt(N). Less in the last stage.
_MOST_INFORMATION = {False: 0.2, True: 0.1}
_INFORMATION = {False: 2.8, True: 1.4}
_LEAST_INFORMATION = 0.02


@dataclass(frozen=True)
class CentredNoise:
    """Noise of one later stage, in units of its bounds: the score's, and the information's; ``mu`` is what it costs."""

    score: float
    information: float
    mu: float

    @property
    def grid_stddevs(self) -> tuple[float, float, float]:
        """In grid steps, isometric: of the score, the information, and the score's square, which is free."""
        longest = 2.0**VECTOR_BITS
        return self.score * longest, self.information * longest**2, math.sqrt(2) * self.score * longest**2


@dataclass(frozen=True)
class Plan:
    """One release: its first stage, the noise of later ones, and what all of it guarantees."""

    first: Mechanism
    later: tuple[CentredNoise, ...]
    privacy: Privacy

    @property
    def mus(self) -> tuple[float, ...]:
        return (self.first.mu, *(noise.mu for noise in self.later))


def plan_stages(
    design: Design,
    epsilon: object,
    delta: object,
    radius: object,
    allocation: object,
    statistics: object,
    stages: object,
) -> Plan:
    """Divide (epsilon, delta) among the stages. Reads no rows."""
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    if stages not in STAGES or isinstance(stages, bool):
        raise InputError("stages", stages, "must be 1, 2, 3 or 'auto'", "correct it")
    mu, dimension = mu_of(epsilon, delta), len(design.coefficient_names)
    rows = design.schema.dataset.rows
    signal = rows * mu * mu / dimension
    if stages == "auto":
        number = 3 if signal >= _ENOUGH_SIGNAL and statistics == "full" else 1
    else:
        number = int(stages)
    if number > 1 and statistics != "full":
        raise InputError(
            "stages", stages, "later stages need statistics='full'", "use stages=1 or leave statistics out"
        )
    shares = stage_shares(number, signal, design.family.name)
    first = calibrate(design, epsilon, delta, radius, allocation, statistics, shares[0])
    later = tuple(
        centred_noise(mu * math.sqrt(share), dimension, information_share(rows, dimension, position == number - 2))
        for position, share in enumerate(shares[1:])
    )
    if any(max(noise.grid_stddevs) > LARGEST_GRID_NOISE for noise in later):
        rule = "is so small that the noise of later stages does not fit the sampler"
        raise InputError("epsilon", epsilon, rule, "use a larger epsilon, or stages=1")
    if any(min(noise.grid_stddevs) < SMALLEST_GRID_NOISE for noise in later):
        raise InputError("epsilon", epsilon, "is so large that the noise is finer than the grid", "use a smaller one")
    coordinates = dimension + dimension * (dimension + 1)
    parts = [(first.mu, first.smallest_grid_noise, first.coordinates)]
    parts += [(noise.mu, noise.grid_stddevs[0], coordinates) for noise in later]
    return Plan(first, later, Privacy.certified(epsilon, delta, compose([part[0] for part in parts]), parts))


def stage_shares(number: int, signal: float, family: str) -> tuple[float, ...]:
    """Shares of mu^2. The smaller the signal, the more the first stage needs to find a useful centre.

    They add up to a little less than one, so that costs rounded up in a ledger still fit its cap.
    """
    whole = 1 - 1e-9
    if number == 1:
        return (1.0,)
    if number == 2:
        first = min(max(0.2 * math.sqrt(360 / signal), 0.1), 0.5)
        return first, whole - first
    first = min(max(0.1 * math.sqrt(360 / signal), 0.04), _MOST_FOR_THE_FIRST[family])
    second = 0.2 + 0.15 * (first - 0.1)
    return first, second, whole - first - second


def information_share(rows: int, dimension: int, last: bool) -> float:
    """Share of a later stage's mu^2 that its information gets.

    An error of the information counts times the way from the centre to the estimate, which is some standard errors:
    beside the noise of the score it falls as D / sqrt(N).
    """
    share = _INFORMATION[last] * dimension / math.sqrt(rows)
    return min(max(share, _LEAST_INFORMATION), _MOST_INFORMATION[last])


def centred_noise(mu: float, dimension: int, share: float) -> CentredNoise:
    """Noise for a stage that may cost mu: a share of its square for the information, the rest for the score."""
    target = mu * (1 - 1e-10)
    information = 1 / math.sqrt(share * target * target)
    low, high = 1 / target, 1e3 / target  # of the score's noise: its cost falls
    for _ in range(200):
        middle = math.sqrt(low * high)
        if centred_squared_mu(middle, information, dimension) > target * target:
            low = middle
        else:
            high = middle
    return CentredNoise(high, information, math.sqrt(centred_squared_mu(high, information, dimension)) * (1 + 1e-15))
