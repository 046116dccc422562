"""(epsilon, delta) of mu against direct integration, and the discreteness bound against exact sums over a lattice."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpglm import privacy
from dpglm.errors import InputError


@pytest.mark.parametrize(("mu", "epsilon"), [(0.1, 0.05), (0.5, 1.0), (1.0, 1.0), (2.0, 0.5), (3.0, 8.0)])
def test_delta_is_the_integral_of_the_positive_part(mu, epsilon):
    """delta = integral of (p - e^epsilon q)_+ for two unit normals mu apart: the definition itself."""
    threshold = epsilon / mu + mu / 2
    integral, _ = quad(lambda s: norm.pdf(s - mu) - math.exp(epsilon) * norm.pdf(s), threshold, 60, epsabs=1e-14)
    assert privacy.delta_of(mu, epsilon) == pytest.approx(integral, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3, 0.3])
def test_mu_of_ends_on_the_safe_side_and_is_tight(epsilon, delta):
    mu = privacy.mu_of(epsilon, delta)
    assert privacy.delta_of(mu, epsilon) <= delta
    assert privacy.delta_of(mu * (1 + 5e-4), epsilon) > delta
    assert privacy.epsilon_of(mu, delta) <= epsilon
    # All of the budget is used but the share of delta that is set aside for discreteness.
    assert privacy.epsilon_of(mu, delta * (1 - 2 * privacy.DISCRETE_SHARE)) > epsilon


def test_dp_accounting_agrees():
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    mu = privacy.mu_of(1.0, 1e-6)
    assert get_epsilon_gaussian(1 / mu, 1e-6) == pytest.approx(1.0, abs=1e-5)


def test_composition_adds_squares_and_matches_one_release():
    half = privacy.mu_of(1.0, 1e-6) / math.sqrt(2)
    together = privacy.compose([half, half])
    assert together == pytest.approx(privacy.mu_of(1.0, 1e-6), rel=1e-12)
    assert together >= math.sqrt(2) * half  # rounded up
    assert privacy.rho_of(0.5) >= 0.125


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None, True])
def test_epsilon_must_be_a_positive_number(bad):
    with pytest.raises(InputError, match=r"^epsilon = "):
        privacy.check_epsilon_delta(bad, 1e-6)


@pytest.mark.parametrize("bad", [0, 1, -0.1, 1.5, math.nan, "x", None])
def test_delta_must_lie_between_0_and_1(bad):
    with pytest.raises(InputError, match=r"^delta = "):
        privacy.check_epsilon_delta(1.0, bad)


def lattice_delta(shift, scales, epsilon):
    """Exact delta of discrete Gaussian noise for an integer shift: the sum of (p - e^epsilon p shifted)_+."""
    axes = []
    for step, scale in zip(shift, scales, strict=True):
        points = np.arange(-math.ceil(12 * scale) - abs(step), math.ceil(12 * scale) + abs(step) + 1)
        normalisation = np.exp(
            -(np.arange(-math.ceil(40 * scale), math.ceil(40 * scale) + 1) ** 2) / 2 / scale**2
        ).sum()
        here, there = (np.exp(-((points - s) ** 2) / 2 / scale**2) / normalisation for s in (0, step))
        axes.append((here, there))
    here = there = np.ones(1)
    for a, b in axes:
        here, there = np.multiply.outer(here, a).ravel(), np.multiply.outer(there, b).ravel()
    return float(np.maximum(there - math.exp(epsilon) * here, 0).sum())


def bound_without_size_limit(mu, epsilon, smallest, monkeypatch):
    """The proved term V / (6 m^2) at small m, where it is large enough to see. Its proof needs 2 pi^2 m^2 >> M only."""
    monkeypatch.setattr(privacy, "SMALLEST_GRID_NOISE", 0.0)
    return privacy.discreteness(mu, epsilon, smallest, 2)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("scale", [3.0, 5.3, 12.7])
def test_discreteness_bound_holds_on_a_line_and_in_the_plane(epsilon, scale, monkeypatch):
    exceeded = 0
    shifts = [(n,) for n in (1, 2, 3, 7, 12, 25)] + list(itertools.product((1, 3, 8), (0, 2, 5)))
    for shift in shifts:
        scales = (scale, 1.7 * scale)[: len(shift)]
        mu = math.sqrt(sum((s / c) ** 2 for s, c in zip(shift, scales, strict=True)))
        exact, continuous = lattice_delta(shift, scales, epsilon), privacy.delta_of(mu, epsilon)
        bound = bound_without_size_limit(mu, epsilon, scale, monkeypatch)
        assert exact <= continuous + bound + 1e-14
        exceeded += exact > continuous * (1 + 1e-9) + 1e-14
    assert exceeded > 0  # discreteness does cost something: without the bound this would be a wrong guarantee


def test_coarse_noise_is_refused():
    assert privacy.discreteness(0.5, 1.0, 500.0, 10) == math.inf
    assert privacy.discreteness(0.5, 1.0, 2.0**20, privacy.MOST_COORDINATES + 1) == math.inf
    with pytest.raises(InputError, match="delta"):
        privacy.Privacy.certified(1.0, 1e-6, privacy.mu_of(1.0, 1e-6), 500.0, 10)


def test_certified_refuses_a_mu_above_the_budget():
    mu = privacy.mu_of(1.0, 1e-6)
    assert privacy.Privacy.certified(1.0, 1e-6, mu, 2.0**20, 100).rho >= mu**2 / 2
    with pytest.raises(InputError, match="delta"):
        privacy.Privacy.certified(1.0, 1e-6, mu * 1.0001, 2.0**20, 100)
