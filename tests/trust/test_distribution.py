"""The privacy loss that samples can prove stays below the claim; with half the noise it does not. And low-order bits.

Chance: the bounds fail for a sound mechanism once in a million runs (``FAILURE``). Half the noise escapes conviction
with a chance below 1e-4: its bound has mean 1.3 and standard deviation 0.05 (100 runs).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from dpglm.custodian.noise import LARGEST_GRID_NOISE, OperatingSystemNoise
from trust.distribution import (
    DELTA,
    EPSILON,
    HalfNoise,
    Neighbours,
    epsilon_lower_bound,
    projections,
    whole_path_projections,
    worst_neighbours,
)
from trust.low_bits import could_be, float_laplace, told_apart


@pytest.fixture(scope="module")
def neighbours() -> Neighbours:
    return worst_neighbours()


@pytest.fixture(scope="module")
def samples(neighbours: Neighbours) -> list[tuple[Any, Any]]:
    """Of both tables: where each release lies, and the last eight bits of one of its integers."""
    return [projections(neighbours, which, 8_000, OperatingSystemNoise()) for which in (0, 1)]


def test_the_two_tables_are_as_far_apart_as_any(neighbours: Neighbours) -> None:
    share = neighbours.squared_distance / neighbours.mechanism.mu**2
    assert 1 - 1e-9 < share <= 1


def test_releases_prove_no_more_than_the_claimed_epsilon(samples: list[tuple[Any, Any]]) -> None:
    bound = epsilon_lower_bound(samples[0][0], samples[1][0], DELTA)
    assert 0.3 < bound < EPSILON  # close enough from below that the test is not idle


def test_half_the_noise_is_convicted(neighbours: Neighbours) -> None:
    samples = [projections(neighbours, which, 4_000, HalfNoise())[0] for which in (0, 1)]
    assert epsilon_lower_bound(samples[0], samples[1], DELTA) > EPSILON


def test_files_are_where_the_projections_say(neighbours: Neighbours) -> None:
    """Whole releases, written and read: all within six standard deviations of the two tables' means."""
    length = float(neighbours.squared_distance) ** 0.5
    for which in (0, 1):
        found = whole_path_projections(neighbours, which, 10)
        assert np.abs(found - which * length).max() < 6
        assert len(set(found)) == 10


def test_every_output_of_one_table_is_possible_for_the_other(neighbours: Neighbours) -> None:
    """By construction: outputs are integers, and the noise that the other table would need is an integer in range."""
    first, second = (each.values for each in neighbours.sums)
    for block in zip(first, second, neighbours.mechanism.grid_stddevs, strict=True):
        for one, other, stddev in zip(*block, strict=True):
            assert isinstance(one, int)
            assert isinstance(other, int)
            for noise in OperatingSystemNoise().draw(stddev, 20):
                needed = one + noise - other
                assert isinstance(needed, int)
                assert abs(needed) < 2**62
                # log P(needed) / P(noise): a smooth number of bounded size, whatever the low-order bits are
                assert abs(needed**2 - noise**2) / (2 * stddev**2) < 50
            assert 2**10 <= stddev <= LARGEST_GRID_NOISE


def test_low_bits_tell_nothing(samples: list[tuple[Any, Any]]) -> None:
    """The last eight bits of an integer are spread alike for both tables. A sound mechanism fails once in 10^6 runs."""
    bits = [sample[1] for sample in samples]
    counts = np.stack([np.bincount(each, minlength=256) for each in bits])
    assert chi2_contingency(counts).pvalue > 1e-6
    parity_of_the_table = np.stack([np.bincount(bits[0], minlength=256), np.bincount(bits[1] | 1, minlength=256)])
    leaking = parity_of_the_table[:, parity_of_the_table.sum(axis=0) > 0]
    assert chi2_contingency(leaking).pvalue < 1e-6  # a mechanism whose last bit tells is convicted


def test_the_same_attack_breaks_floating_point_noise() -> None:
    """Mironov (2012): most outputs of the textbook's Laplace mechanism are impossible for the neighbour."""
    outputs = float_laplace(0.0, 1.0, 5_000, seed=1)
    assert could_be(outputs, 0.0, 1.0).all()
    assert told_apart(outputs, 0.0, 1.0, 1.0) > 0.5
