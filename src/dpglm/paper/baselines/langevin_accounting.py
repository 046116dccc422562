"""How much noise a chain of noisy gradients needs: Poisson batches, composed by privacy loss distributions.

Guarantee: a chain of ``iterations`` sums of per-row gradients of norm at most C, each over a batch that holds every row
independently with probability q, with Gaussian noise of standard deviation ``noise_multiplier`` x C, is
(epsilon, delta)-differentially private for one *replaced* row. The neighbouring relation is that of a release: the pair
of distributions is (1 - q) N(0, s^2) + q N(1, s^2) against (1 - q) N(0, s^2) + q N(-1, s^2), dp-accounting's
REPLACE_ONE of a Poisson-sampled Gaussian, since the two rows may pull in opposite directions. The distribution is
rounded pessimistically, and the search ends on the safe side.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dpglm.privacy import check_epsilon_delta

# Grid of the privacy loss, in parts of one step's typical loss 2 q / s: finer changes epsilon by less than 1e-4 of it.
_PARTS = 30
_PRECISION = 1e-4  # relative, of the noise multiplier


def chain_epsilon(noise_multiplier: float, sampling_probability: float, iterations: int, delta: float) -> float:
    """An upper bound on the epsilon that a chain costs."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    interval = min(2 * sampling_probability / noise_multiplier / _PARTS, 0.01)
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=sampling_probability,
        value_discretization_interval=interval,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return float(one.self_compose(iterations).get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def noise_multiplier(epsilon: float, delta: float, sampling_probability: float, iterations: int) -> float:
    """The least noise, to four digits and rounded up, for which a chain costs at most (epsilon, delta)."""
    check_epsilon_delta(epsilon, delta)
    high = 1.0
    while chain_epsilon(high, sampling_probability, iterations, delta) > epsilon:
        high *= 2
    low = high / 2
    while chain_epsilon(low, sampling_probability, iterations, delta) <= epsilon:
        low, high = low / 2, low
    while high > low * (1 + _PRECISION):
        middle = math.sqrt(low * high)
        if chain_epsilon(middle, sampling_probability, iterations, delta) > epsilon:
            low = middle
        else:
            high = middle
    return high
