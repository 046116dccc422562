"""The privacy of a Gaussian mechanism: mu <-> (epsilon, delta), rho, and composition.

``mu`` is the largest distance, in noise standard deviations, by which one row can move the released sums. It
is the unit of account: the guarantee follows from ``mu`` alone, and ``mu ** 2`` adds up over releases (Gaussian
differential privacy, Dong, Roth & Su 2022), also when later releases are chosen after seeing earlier ones.

Guarantees proved in ``docs/privacy.md``: the (epsilon, delta) curve (Balle & Wang 2018), ``rho = mu**2 / 2``
zero-concentrated differential privacy, and the bound on what discreteness adds to delta.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpglm.errors import InputError

# Part of delta set aside for the difference between discrete and continuous Gaussian noise. `Privacy.certified`
# checks that the proved bound on that difference fits into it.
DISCRETE_SHARE = 1e-4
# The sampler must see every coordinate at least this finely; the proof of the discreteness bound uses it.
SMALLEST_GRID_NOISE = 2.0**10
MOST_COORDINATES = 2**16
_FAR, _SMALL_MU = 5.0, 1e-3  # where delta is near one, and where a derivative stands for a difference
_FRACTION_FROM, _FRACTION_TERMS = 3.0, 60  # at 3 the fraction is good to 2e-17


@dataclass(frozen=True)
class Privacy:
    """What one release guarantees, for tables that differ in one replaced row.

    Guarantees: the release is ``(epsilon, delta)``-differentially private, ``mu``-Gaussian up to the
    discreteness of the noise (bounded inside delta), and exactly ``rho``-zCDP.
    """

    epsilon: float
    delta: float
    mu: float
    rho: float

    @classmethod
    def certified(cls, epsilon: float, delta: float, mu: float, stages: Sequence[tuple[float, float, int]]) -> Privacy:
        """The guarantee, after checking that ``mu`` and the discreteness of the noise fit into it.

        ``stages`` are the parts, each with its mu, smallest noise in grid units and number of coordinates. One
        stage needs the bound on discreteness at this epsilon alone (docs/privacy.md, "Discrete noise"); several, chosen
        one after the other, need it at every epsilon that the others may leave (docs/looks_privacy.md).
        """
        if len(stages) == 1:
            ((_, smallest, coordinates),) = stages
            extra = discreteness(mu, epsilon, smallest, coordinates)
        else:
            extra = staged_discreteness(mu, epsilon, stages)
        spent = delta_of(mu, epsilon) + extra
        if not spent <= delta:
            raise InputError(
                "delta",
                delta,
                f"mu = {mu:.6g} with discrete noise needs delta = {spent:.9g} at epsilon = {epsilon:g}",
                "use a smaller epsilon or a larger delta",
            )
        return cls(epsilon, delta, mu, rho_of(mu))


def check_epsilon_delta(epsilon: object, delta: object) -> tuple[float, float]:
    """Both as floats, or an InputError.

    >>> check_epsilon_delta(1, 1e-6)
    (1.0, 1e-06)
    """
    checked_epsilon, checked_delta = finite_number(epsilon), finite_number(delta)
    if checked_epsilon is None or not 1e-9 <= checked_epsilon <= 1e9:
        raise InputError("epsilon", epsilon, "must be a number above 0 (1e-9 to 1e9)", "write for example epsilon=1")
    if checked_delta is None or not 1e-50 <= checked_delta < 1:
        raise InputError(
            "delta", delta, "must be a number above 0 and below 1 (at least 1e-50)", "write for example delta=1e-6"
        )
    return checked_epsilon, checked_delta


def finite_number(value: object) -> float | None:
    """A real number as a float; None for anything else (text, booleans, NaN, infinity, too large)."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def delta_of(mu: float, epsilon: float) -> float:
    """delta = Phi(a) - e^epsilon Phi(a - mu), a = mu/2 - epsilon/mu (Balle & Wang 2018, theorem 8), rounded up.

    e^epsilon phi(a - mu) = phi(a), so that delta = phi(a) (M(-a) - M(mu - a)) with Mills' ratio M(x) = Phi(-x)/phi(x).
    For small mu the difference is taken as -mu M'(epsilon/mu) = mu (1 - x M(x)), x = epsilon/mu, which is too small by
    a factor between 1 and 1 + mu^2 / 11. Nothing cancels by more than five digits, so 1e-9 covers all rounding.
    """
    if mu == 0:
        return 0.0
    middle = epsilon / mu
    a = mu / 2 - middle
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    if a > _FAR:
        found = math.erfc(-a / math.sqrt(2)) / 2 - density * mills(mu - a)
    elif mu < _SMALL_MU:
        found = density * mu * (1 - middle * mills(middle)) * (1 + mu * mu / 11)
    else:
        found = density * (mills(-a) - mills(mu - a))
    return min(found * (1 + 1e-9), 1.0)


def mills(x: float) -> float:
    """Mills' ratio Phi(-x)/phi(x) to rounding, for x above -37: by erfc, and further out by Laplace's fraction.

    From SciPy's erfcx it would take a tenth of a second, to import it.

    >>> round(mills(0.0) ** 2 * 2, 12) == round(math.pi, 12)
    True
    """
    if x < _FRACTION_FROM:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    below = x
    for term in range(_FRACTION_TERMS, 0, -1):
        below = x + term / below
    return 1 / below


def mu_of(epsilon: float, delta: float) -> float:
    """The largest ``mu`` whose (epsilon, delta) curve stays inside the budget; ends on the safe side.

    The noise comes from dp-accounting's analytic Gaussian mechanism; its root is two-sided, so it is widened, and
    the result is checked with the formula above.
    """
    import numpy as np
    from dp_accounting.gaussian_mechanism import get_sigma_gaussian

    target = delta * (1 - DISCRETE_SHARE)
    with np.errstate(divide="ignore"):  # its search passes through log(0) for very large budgets
        mu = 1 / (float(get_sigma_gaussian(epsilon, target)) * (1 + 1e-9))
    step = 1e-9
    while delta_of(mu, epsilon) > target:
        mu *= 1 - step
        step *= 2  # its root is off by some parts in a thousand where epsilon and delta are tiny
    return mu


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon that a ``mu`` guarantees at this delta, rounded up."""
    if mu == 0:
        return 0.0
    low, high = 0.0, 1.0
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    while delta_of(mu, high) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(mu, middle) > delta else (low, middle)
        if high - low <= 1e-12 * high:
            break
    return high


def rho_of(mu: float) -> float:
    """zCDP of a (discrete) Gaussian mechanism: rho = mu^2 / 2, exactly; rounded up."""
    return math.nextafter(mu * mu / 2, math.inf)


def compose(mus: Iterable[float]) -> float:
    """mu of several releases of one table together: the root of the sum of squares, rounded up.

    >>> round(compose([0.3, 0.4]), 12)
    0.5
    """
    return math.sqrt(math.fsum(mu * mu for mu in mus)) * (1 + 1e-15)


def discreteness(mu: float, epsilon: float, smallest_grid_noise: float, coordinates: int) -> float:
    """Upper bound on what integer noise adds to delta: V / (6 m^2), m the smallest noise scale in grid units.

    V bounds the total variation of the derivative of phi(s) (1 - exp(-mu (s - s0)))_+, s0 = epsilon/mu - mu/2
    (Poisson summation; docs/privacy.md, "Discrete noise").
    """
    from scipy.special import ndtr

    if smallest_grid_noise < SMALLEST_GRID_NOISE or coordinates > MOST_COORDINATES:
        return math.inf
    start = epsilon / mu - mu / 2
    density = math.exp(-start * start / 2) / math.sqrt(2 * math.pi)
    tail = float(ndtr(-start))
    absolute_first = density if start >= 0 else 2 / math.sqrt(2 * math.pi) - density
    variation = mu * density + (2 * tail + abs(start) * density) + 2 * mu * absolute_first + mu * mu * tail
    return variation / (6 * smallest_grid_noise**2) * (1 + 1e-6)


def staged_discreteness(mu: float, epsilon: float, stages: Sequence[tuple[float, float, int]]) -> float:
    """Upper bound on what integer noise adds to delta over stages chosen one after the other, ``mu`` in all.

    A stage of (mu_k, m_k, coordinates) adds at most, for any t >= 0 (docs/looks_privacy.md, "Composition"),

        (2 + phi(1) + (5 + t) mu_k phi(0) + mu_k^2) / (6 m_k^2) * exp(-t epsilon + t (t + 1) mu^2 / 2).

    Its V is bounded by an exponential in epsilon, whose expectation over the privacy loss of all other stages is known;
    t is where the exponent is smallest.
    """
    t = max(epsilon / (mu * mu) - 0.5, 0.0)
    density = 1 / math.sqrt(2 * math.pi)
    total = 0.0
    for stage_mu, smallest_grid_noise, coordinates in stages:
        if smallest_grid_noise < SMALLEST_GRID_NOISE or coordinates > MOST_COORDINATES:
            return math.inf
        variation = 2 + density * math.exp(-0.5) + (5 + t) * stage_mu * density + stage_mu * stage_mu
        total += variation / (6 * smallest_grid_noise**2) * (1 + 1e-6)
    return total * math.exp(-t * epsilon + t * (t + 1) * mu * mu / 2)
