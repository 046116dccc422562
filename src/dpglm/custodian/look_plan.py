"""How a budget is divided between survey, profile and looks, and their noise: public, before a row is read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpglm.custodian.noise import LARGEST_GRID_NOISE
from dpglm.custodian.sensitivity import look_squared_mu
from dpglm.errors import InputError
from dpglm.formula import Design
from dpglm.looks.profile import cells, squared_change
from dpglm.looks.questions import COUNT_BITS
from dpglm.looks.rule import PROFILE_SHARE, SHARES, information_share
from dpglm.looks.survey import most_answers, units_of
from dpglm.looks.viewpoint import VECTOR_BITS
from dpglm.privacy import SMALLEST_GRID_NOISE, Privacy, check_epsilon_delta, compose, mu_of
from dpglm.protection import ONE_ROW_REPLACED, Protection

# Of mu^2, for the survey: as much as makes the noise of a count this share of the rows, within limits.
_WANTED_NOISE, _LEAST_SURVEY, _MOST_SURVEY = 0.08, 0.02, 0.15
_MARGIN = 1 - 1e-9  # costs rounded up in a ledger still fit its cap


@dataclass(frozen=True)
class LookNoise:
    """Noise of one look, in units of its bounds: the score's, and the information's; ``mu`` is what it costs.

    ``square_variance`` is that of the score's square over the score's own.
    """

    score: float
    information: float
    mu: float
    square_variance: int = ONE_ROW_REPLACED.square_variance

    @property
    def grid_stddevs(self) -> tuple[float, float, float]:
        """In grid steps, isometric: of the score, the information, and the score's square."""
        longest = 2.0**VECTOR_BITS
        square = math.sqrt(self.square_variance) * self.score
        return self.score * longest, self.information * longest**2, square * longest**2


@dataclass(frozen=True)
class LookPlan:
    """One release by looks: the noise of its survey's plain counts in rows, of its profile's, of its looks, and what it
    guarantees.

    ``survey_mu`` is zero where an earlier survey is used again.
    """

    survey_mu: float
    survey_stddev: float
    profile_mu: float
    profile_stddev: float
    looks: tuple[LookNoise, ...]
    privacy: Privacy


def plan_looks(design: Design, epsilon: object, delta: object, survey_is_known: bool = False) -> LookPlan:
    """Divide (epsilon, delta) between survey, profile and looks. Reads no rows."""
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    dataset = design.schema.dataset
    mu, rows, dimension = mu_of(epsilon, delta), dataset.planned, len(design.coefficient_names)
    units = units_of(design)
    share = min(max(units / (_WANTED_NOISE * rows * mu) ** 2, _LEAST_SURVEY), _MOST_SURVEY)
    share = 0.0 if survey_is_known else share
    survey_mu = mu * math.sqrt(share)
    stddev = math.sqrt(units) / survey_mu * (1 + 1e-9) if share else 0.0
    change = squared_change(design.family, dataset.protection)
    profile_mu = mu * math.sqrt(PROFILE_SHARE)
    profile_stddev = math.sqrt(change) / profile_mu * (1 + 1e-9)
    looks = tuple(
        look_noise(
            mu * math.sqrt(part * (1 - share - PROFILE_SHARE) * _MARGIN),
            dimension,
            information_share(rows, dimension, position == len(SHARES) - 1),
            dataset.protection,
        )
        for position, part in enumerate(SHARES)
    )
    coordinates = dimension + dimension * (dimension + 1)
    parts = [(noise.mu, min(noise.grid_stddevs), coordinates) for noise in looks]
    parts.append((profile_mu, profile_stddev * 2.0**COUNT_BITS, sum(cells(design.family, dimension))))
    if share:
        parts += [
            (math.sqrt(each) / stddev, stddev * 2.0**COUNT_BITS / math.sqrt(each), size)
            for each, size in most_answers(design)
        ]
    scales = [scale for noise in looks for scale in noise.grid_stddevs]
    scales += [profile_stddev * 2.0**COUNT_BITS] + [stddev * 2.0**COUNT_BITS] * bool(share)
    if max(scales) > LARGEST_GRID_NOISE:
        rule = "is so small that the noise does not fit the sampler"
        raise InputError("epsilon", epsilon, rule, "use a larger epsilon")
    if min(part[1] for part in parts) < SMALLEST_GRID_NOISE:
        raise InputError("epsilon", epsilon, "is so large that the noise is finer than the grid", "use a smaller one")
    total = compose([survey_mu, profile_mu, *(noise.mu for noise in looks)])
    return LookPlan(
        survey_mu, stddev, profile_mu, profile_stddev, looks, Privacy.certified(epsilon, delta, total, parts)
    )


def look_noise(mu: float, dimension: int, share: float, protection: Protection = ONE_ROW_REPLACED) -> LookNoise:
    """Noise for a look that may cost mu: a share of its square for the information, the rest for the score."""
    target = mu * (1 - 1e-10)
    information = math.sqrt(protection.information_cost / share) / target
    low, high = 1 / target, 1e3 / target  # of the score's noise: its cost falls
    for _ in range(200):
        middle = math.sqrt(low * high)
        if look_squared_mu(middle, information, dimension, protection) > target * target:
            low = middle
        else:
            high = middle
    spent = math.sqrt(look_squared_mu(high, information, dimension, protection)) * (1 + 1e-15)
    return LookNoise(high, information, spent, protection.square_variance)
