"""The noise has its scale, and the test that says so would reject a scale 5 % off."""

import math

import numpy as np
import pytest
from scipy import stats

from dpglm.custodian.noise import LARGEST_GRID_NOISE, FixedNoise, OperatingSystemNoise, add_noise

# Each goodness-of-fit test below fails by chance with this probability. The noise has no seed, by design.
FAILURE_RATE = 1e-6
DRAWS = 40_000


def fits(draws, stddev):
    """Kolmogorov-Smirnov and the chi-square of the sum of squares, against a normal of this standard deviation.

    The scales tested are in the hundreds or more, so the discreteness is far below what 40,000 draws can resolve.
    """
    scaled = np.asarray(draws, dtype=float) / stddev
    squares = float(np.sum(scaled**2))
    tails = 2 * min(stats.chi2.cdf(squares, len(scaled)), stats.chi2.sf(squares, len(scaled)))
    return min(stats.kstest(scaled, "norm").pvalue, tails) > FAILURE_RATE / 2


@pytest.mark.parametrize("stddev", [900.0, 3.7e7, 2.0**45, LARGEST_GRID_NOISE])
def test_noise_fits_its_scale_and_no_other(stddev):
    draws = OperatingSystemNoise().draw(stddev, DRAWS)
    assert all(isinstance(draw, int) for draw in draws)
    assert fits(draws, stddev)
    assert not fits(draws, 1.05 * stddev)
    assert not fits(draws, 0.95 * stddev)


def test_small_scale_has_the_discrete_gaussians_masses():
    """At standard deviation 1 discreteness is visible: compare counts with the exact probabilities."""
    draws = np.array(OperatingSystemNoise().draw(1.0, DRAWS))
    points = np.arange(-4, 5)
    masses = np.exp(-(points**2) / 2)
    masses /= np.exp(-(np.arange(-40.0, 41.0) ** 2) / 2).sum()
    counts = np.array([(draws == point).sum() for point in points])
    rest = DRAWS - counts.sum()
    expected = DRAWS * np.append(masses, 1 - masses.sum())
    assert stats.chisquare(np.append(counts, rest), expected, sum_check=False).pvalue > FAILURE_RATE
    rounded_normal = np.diff(stats.norm.cdf(np.append(points - 0.5, 4.5)))  # the tempting wrong sampler
    wrong = DRAWS * np.append(rounded_normal, 1 - rounded_normal.sum())
    assert stats.chisquare(np.append(counts, rest), wrong, sum_check=False).pvalue < FAILURE_RATE


def test_one_draw_for_each_scale_and_fresh_noise_for_each_value():
    class Recorder:
        private = False

        def __init__(self):
            self.calls = []

        def draw(self, grid_stddev, size):
            self.calls.append((grid_stddev, size))
            return list(range(1, size + 1))

    recorder = Recorder()
    assert add_noise((10, 20, 30, 40), (2.0, 3.0, 2.0, 2.0), recorder) == (11, 21, 32, 43)
    assert recorder.calls == [(2.0, 3), (3.0, 1)]


def test_values_beyond_64_bits_keep_every_bit():
    huge = (2**90 + 1, -(2**90) - 1)
    assert add_noise(huge, (5.0, 5.0), FixedNoise(3)) == (2**90 + 4, -(2**90) + 2)


def test_two_draws_differ():
    first, second = (OperatingSystemNoise().draw(2.0**40, 50) for _ in range(2))
    assert len(set(first) & set(second)) == 0  # a repeat has probability below 1e-8


def test_scale_outside_the_samplers_range_is_refused():
    for stddev in (0.0, -1.0, math.inf, 2 * LARGEST_GRID_NOISE):
        with pytest.raises(AssertionError):
            OperatingSystemNoise().draw(stddev, 3)


def test_fixed_noise_says_that_it_is_not_private():
    assert not FixedNoise().private
    assert OperatingSystemNoise().private
