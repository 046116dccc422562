"""(epsilon, delta) of mu against direct integration, and the discreteness bound against exact sums over a lattice."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm

from dpglm import privacy
from dpglm.errors import InputError
from dpglm.schema import Dataset
from dpglm.statement import plain_statement


@pytest.mark.parametrize(("mu", "epsilon"), [(0.1, 0.05), (0.5, 1.0), (1.0, 1.0), (2.0, 0.5), (3.0, 8.0)])
def test_delta_is_the_integral_of_the_positive_part(mu, epsilon):
    """delta = integral of (p - e^epsilon q)_+ for two unit normals mu apart: the definition itself."""
    threshold = epsilon / mu + mu / 2
    integral, _ = quad(lambda s: norm.pdf(s - mu) - math.exp(epsilon) * norm.pdf(s), threshold, 60, epsabs=1e-14)
    assert privacy.delta_of(mu, epsilon) == pytest.approx(integral, rel=1e-6)


def exact_delta(mu, epsilon):
    """The formula with ninety digits."""
    with mpmath.workdps(90):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        middle = epsilon / mu
        return mpmath.ncdf(mu / 2 - middle) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - middle)


def by_logarithms(mu, epsilon):
    """The same in double precision, as a difference of logarithms: it loses digits where mu is tiny."""
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    return math.exp(first) * -math.expm1(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)) - first)


def test_delta_is_never_below_the_exact_one_nor_far_above():
    """From the tiniest budgets to the largest, seed 5; a difference of logarithms is caught on both sides."""
    rng = np.random.default_rng(5)
    shares, others = [], []
    for _ in range(1_500):
        mu = 10 ** rng.uniform(-12, 2.5)
        epsilon = min(mu * rng.uniform(0, 37) + rng.choice([0, mu * mu / 2]), 1e4)
        exact = exact_delta(mu, epsilon)
        if exact > 1e-290:
            shares.append(float(privacy.delta_of(mu, epsilon) / exact))
            others.append(float(by_logarithms(mu, epsilon) / exact))
    assert len(shares) > 1_000
    assert min(shares) >= 1
    assert max(shares) < 1 + 2e-7
    assert min(others) < 0.999
    assert max(others) > 1.001


def test_mu_of_is_on_the_safe_side_of_the_exact_delta_for_the_tiniest_budgets():
    """Seed 6, and the budget of a release that once claimed 0.3 % less than it spent."""
    rng = np.random.default_rng(6)
    budgets = [(1.0583073318147163e-09, 3.407541349056633e-41), (1.22e-9, 2.62e-50), (1e-9, 0.9), (1e-9, 1e-50)]
    budgets += [(10 ** rng.uniform(-9, -5), 10 ** rng.uniform(-50, -10)) for _ in range(200)]
    for epsilon, delta in budgets:
        share = exact_delta(privacy.mu_of(epsilon, delta), epsilon) / delta
        assert 0.99 < share <= 1 - privacy.DISCRETE_SHARE


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


def test_releases_cost_the_root_of_the_sum_of_their_squares_in_exact_arithmetic():
    """Never below it, and above by rounding alone; the largest of them, or their plain sum, would be neither."""
    rng = np.random.default_rng(8)
    for size in (1, 2, 3, 10, 300):
        mus = [float(mu) for mu in 10 ** rng.uniform(-6, 2, size)]
        exact = sum(Fraction(mu) ** 2 for mu in mus)
        assert exact <= Fraction(privacy.compose(mus)) ** 2 <= exact * (1 + Fraction(1, 10**14))
    assert privacy.compose([3.0, 4.0]) == pytest.approx(5.0, rel=1e-14)
    assert privacy.compose([1.0] * 4) == pytest.approx(2.0, rel=1e-14)
    assert privacy.compose([]) == 0


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
        privacy.Privacy.certified(1.0, 1e-6, (mu := privacy.mu_of(1.0, 1e-6)), [(mu, 500.0, 10)])


def test_certified_refuses_a_mu_above_the_budget():
    mu = privacy.mu_of(1.0, 1e-6)
    assert privacy.Privacy.certified(1.0, 1e-6, mu, [(mu, 2.0**20, 100)]).rho >= mu**2 / 2
    with pytest.raises(InputError, match="delta"):
        privacy.Privacy.certified(1.0, 1e-6, mu * 1.0001, [(mu * 1.0001, 2.0**20, 100)])


# Several stages, each chosen after seeing the ones before


def stage_bound(mu, t, smallest=2.0**12):
    """What ``staged_discreteness`` charges a stage for, as a function of the epsilon that the others leave."""
    variation = 2 + norm.pdf(1) + (5 + t) * mu * norm.pdf(0) + mu * mu
    return lambda epsilon: variation / (6 * smallest**2) * np.exp(-t * epsilon + t * (t + 1) * mu * mu / 2)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 60.0])
def test_the_bound_of_a_stage_holds_at_every_epsilon_that_others_may_leave(mu):
    """Also negative ones, also for shifts shorter than mu; and at t = 0 it is one number for all of them."""
    for t in (0.0, 0.3, 1.0, 4.0, 30.0):
        bound = stage_bound(mu, t)
        epsilons = np.linspace(-8, 8, 81) * max(mu, mu * mu)
        exponents = -t * epsilons + t * (t + 1) * mu * mu / 2
        for epsilon, shorter in itertools.product(epsilons[exponents < 700], (1.0, 0.5, 1e-3)):
            assert privacy.discreteness(shorter * mu, epsilon, 2.0**12, 10) <= bound(epsilon) * (1 + 2e-6)


def test_one_stage_by_itself_costs_little_more_by_the_bound_for_several():
    """At the best t the bound for several stages is within a factor of a few of the one for a single stage."""
    for epsilon, delta in itertools.product((0.1, 1.0, 10.0), (1e-12, 1e-6)):
        mu = privacy.mu_of(epsilon, delta)
        single = privacy.discreteness(mu, epsilon, 2.0**16, 10)
        staged = privacy.staged_discreteness(mu, epsilon, [(mu, 2.0**16, 10)])
        assert single <= staged <= 20 * single


def adaptive_delta(first, second, epsilon):
    """Exact delta of two discrete looks, the second chosen by the sign of what the first showed.

    ``first`` is a (shift, scale); ``second`` a pair of them, for a first result below and above its middle.
    """

    def masses(shift, scale):
        points = np.arange(-math.ceil(12 * scale) - abs(shift), math.ceil(12 * scale) + abs(shift) + 1)
        whole = np.exp(-(np.arange(-math.ceil(40 * scale), math.ceil(40 * scale) + 1) ** 2) / 2 / scale**2).sum()
        return points, *(np.exp(-((points - s) ** 2) / 2 / scale**2) / whole for s in (0, shift))

    points, here, there = masses(*first)
    total = 0.0
    for chosen, branch in zip(second, (points < first[0] / 2, points >= first[0] / 2), strict=True):
        _, then_here, then_there = masses(*chosen)
        products = np.multiply.outer(there[branch], then_there), np.multiply.outer(here[branch], then_here)
        total += float(np.maximum(products[0] - math.exp(epsilon) * products[1], 0).sum())
    return total


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("scale", [3.0, 5.3])
def test_the_bound_for_several_stages_holds_for_adaptive_looks(epsilon, scale, monkeypatch):
    """The second look's direction and scale follow the first's result: exact sums over the lattice."""
    monkeypatch.setattr(privacy, "SMALLEST_GRID_NOISE", 0.0)
    exceeded = 0
    for shift, low in itertools.product((1, 3, 8), (1, -2, 4, -9)):
        first, second = (shift, scale), ((low, scale), (2 * abs(low), 2 * scale))
        mus = shift / scale, abs(low) / scale
        mu = privacy.compose(mus)
        exact, continuous = adaptive_delta(first, second, epsilon), privacy.delta_of(mu, epsilon)
        bound = privacy.staged_discreteness(mu, epsilon, [(mus[0], scale, 1), (mus[1], scale, 1)])
        assert exact <= continuous + bound + 1e-14
        exceeded += exact > continuous * (1 + 1e-9) + 1e-14
    assert exceeded > 0  # so it is needed


def test_stages_are_certified_together():
    mu = privacy.mu_of(1.0, 1e-6)
    part = mu / math.sqrt(3) * (1 - 1e-12)
    stages = [(part, 2.0**20, 100)] * 3
    certified = privacy.Privacy.certified(1.0, 1e-6, privacy.compose([part] * 3), stages)
    assert certified.mu <= mu
    for broken in ([(part, 500.0, 100), *stages[1:]], [*stages[:2], (part, 2.0**20, privacy.MOST_COORDINATES + 1)]):
        assert privacy.staged_discreteness(mu, 1.0, broken) == math.inf
        with pytest.raises(InputError, match="delta"):
            privacy.Privacy.certified(1.0, 1e-6, privacy.compose([part] * 3), broken)
    with pytest.raises(InputError, match="delta"):
        privacy.Privacy.certified(1.0, 1e-6, mu * 1.0001, stages)


@pytest.mark.parametrize(("delta", "told"), [(1e-6, False), (0.01, False), (0.011, True), (0.9999, True)])
def test_the_statement_says_when_delta_is_more_than_one_in_the_number_of_rows(delta: float, told: bool) -> None:
    text = plain_statement(Dataset("p", "patients", 100, "one patient"), 1.0, delta, None, private=True)
    assert ("may fail for some row altogether" in text) == told
