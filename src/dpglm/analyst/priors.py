"""Priors of the coefficients, in scaled coordinates: bounds map to [-1, 1], so one default suits all columns.

Each prior maps an unconstrained vector to coefficients and gives the log density there, Jacobian included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.jax_later import jax, jnp, special
from dpglm.errors import InputError

if TYPE_CHECKING:
    from jax import Array

Floats = npt.NDArray[np.float64]


def _check_scale(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(name, value, "must be a number above 0", "correct it")


@dataclass(frozen=True)
class NormalPrior:
    """Independent normals with mean zero: the default."""

    slopes: float = 2.5
    intercept: float = 5.0

    def __post_init__(self) -> None:
        _check_scale("slopes", self.slopes)
        _check_scale("intercept", self.intercept)

    def scales(self, names: tuple[str, ...]) -> Floats:
        """Standard deviation of each coefficient."""
        return np.array([self.intercept if name == "Intercept" else self.slopes for name in names])

    def constrain(self, names: tuple[str, ...], free: Array) -> tuple[Array, Array]:
        """Coefficients, and their log density as a function of the free vector."""
        scales = self.scales(names)
        constant = -jnp.sum(jnp.log(scales)) - 0.5 * len(names) * math.log(2 * math.pi)
        return free, constant - 0.5 * jnp.sum((free / scales) ** 2)

    def unconstrain(self, names: tuple[str, ...], coefficients: Any) -> Any:
        """The free vector of some coefficients."""
        return coefficients

    def sample(self, names: tuple[str, ...], key: Array) -> Array:
        """One draw."""
        return jax.random.normal(key, (len(names),)) * self.scales(names)

    def as_normal(self, names: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Means and covariance of a normal distribution like it: itself."""
        return np.zeros(len(names)), np.diag(self.scales(names) ** 2)


def _erf_over_length(squared: Array) -> Array:
    """erf(t / sqrt 2) / t of the square of t, with its derivatives also at zero."""
    small = squared < 1e-3
    square = jnp.where(small, 1.0, squared)
    series = math.sqrt(2 / math.pi) * (1 - squared / 6 + squared**2 / 40 - squared**3 / 336)
    return jnp.where(small, series, special.erf(jnp.sqrt(square / 2)) / jnp.sqrt(square))


@dataclass(frozen=True)
class SphericalPrior:
    """The paper's prior: uniform direction, squared norm chi-square(d) truncated above at a *public* bound.

    A standard normal has just this direction and norm, so the slopes are a standard normal restricted to a ball.
    """

    largest_squared_norm: float
    intercept: float = 5.0

    def __post_init__(self) -> None:
        _check_scale("largest_squared_norm", self.largest_squared_norm)
        _check_scale("intercept", self.intercept)

    def scales(self, names: tuple[str, ...]) -> Floats:
        """Standard deviation of each coefficient, had the slopes no bound."""
        return np.array([self.intercept if name == "Intercept" else 1.0 for name in names])

    def as_normal(self, names: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Means and covariance: of a normal in a ball, P(chi2(d + 2) < bound) / P(chi2(d) < bound) a slope."""
        from scipy.special import gammainc

        dimension, half = sum(name != "Intercept" for name in names), self.largest_squared_norm / 2
        inside = gammainc(dimension / 2 + 1, half) / gammainc(dimension / 2, half)
        intercept = np.array([name == "Intercept" for name in names])
        return np.zeros(len(names)), np.diag(np.where(intercept, self.intercept**2, inside))

    def nearest(self, names: tuple[str, ...], coefficients: Array) -> Array:
        """The nearest coefficients whose slopes lie in the ball."""
        first = int(names[0] == "Intercept")
        squared = jnp.sum(coefficients[first:] ** 2)
        shrink = jnp.sqrt(jnp.minimum(1.0, self.largest_squared_norm / jnp.maximum(squared, 1e-300)))
        return jnp.concatenate([coefficients[:first], shrink * coefficients[first:]])

    def constrain(self, names: tuple[str, ...], free: Array) -> tuple[Array, Array]:
        """The ball of radius r is covered by v -> r v erf(t / sqrt 2) / t, where t is the length of v.

        Its log Jacobian is (d - 1) log(erf(t / sqrt 2) / t) - t^2/2 + const: the tails are those of a normal, so that
        a posterior that leans on the edge of the ball is sampled as easily as one inside.
        """
        first = int(names[0] == "Intercept")
        slopes, dimension = free[first:], len(names) - first
        squared = jnp.sum(slopes**2)
        shrink = _erf_over_length(squared)
        inside = slopes * shrink * math.sqrt(self.largest_squared_norm)
        density = -0.5 * jnp.sum(inside**2) + (dimension - 1) * jnp.log(shrink) - 0.5 * squared
        if first:
            density += -0.5 * (free[0] / self.intercept) ** 2
        return jnp.concatenate([free[:first], inside]), density

    def unconstrain(self, names: tuple[str, ...], coefficients: Any) -> Any:
        """The inverse; points outside the ball go to 0.9 of its radius."""
        first = int(names[0] == "Intercept")
        slopes = coefficients[first:] / math.sqrt(self.largest_squared_norm)
        length = jnp.sqrt(jnp.sum(slopes**2))
        stretched = math.sqrt(2) * special.erfinv(jnp.minimum(length, 0.9)) / jnp.maximum(length, 1e-300)
        return jnp.concatenate([coefficients[:first], slopes * stretched])

    def sample(self, names: tuple[str, ...], key: Array) -> Array:
        """One draw: the squared norm by inverting its truncated distribution function."""
        from scipy.stats import chi2

        first = int(names[0] == "Intercept")
        dimension = len(names) - first
        direction_key, norm_key, intercept_key = jax.random.split(key, 3)
        direction = jax.random.normal(direction_key, (dimension,))
        share = float(jax.random.uniform(norm_key)) * chi2.cdf(self.largest_squared_norm, dimension)
        slopes = direction / jnp.linalg.norm(direction) * math.sqrt(chi2.ppf(share, dimension))
        return jnp.concatenate([self.intercept * jax.random.normal(intercept_key, (first,)), slopes])


def distribution_text(distribution: Any) -> str:
    """A NumPyro distribution as it is written, ``Normal(loc=0, scale=0.7)``, or its name where that does not do.

    One that is made of another tells that one first. A text, from a file, is what it is.
    """
    if isinstance(distribution, str):
        return distribution
    name = type(distribution).__name__
    base = None if hasattr(distribution, "transforms") else getattr(distribution, "base_dist", None)
    values = {key: np.asarray(getattr(distribution, key, None)) for key in getattr(distribution, "arg_constraints", {})}
    plain = all(value.ndim == 0 and value.dtype.kind in "fiu" for value in values.values())
    if not plain or (not values and base is None):
        return name
    told = [] if base is None else [distribution_text(base)]
    return f"{name}({', '.join([*told, *(f'{key}={float(value):g}' for key, value in values.items())])})"


@dataclass(frozen=True)
class CustomPrior:
    """Any NumPyro distribution a coefficient, by name; the others keep the default. Scaled coordinates."""

    distributions: tuple[tuple[str, Any], ...]
    others: NormalPrior = NormalPrior()

    def _each(self, names: tuple[str, ...]) -> list[Any]:
        import numpyro.distributions as dist

        given = dict(self.distributions)
        defaults = self.others.scales(names)
        return [given.get(name, dist.Normal(0.0, scale)) for name, scale in zip(names, defaults, strict=True)]

    def constrain(self, names: tuple[str, ...], free: Array) -> tuple[Array, Array]:
        """Each coefficient through the bijection to its distribution's support."""
        from numpyro.distributions import biject_to

        values, density = [], jnp.zeros(())
        for distribution, position in zip(self._each(names), range(len(names)), strict=True):
            transform = biject_to(distribution.support)
            value = transform(free[position])
            density += distribution.log_prob(value) + transform.log_abs_det_jacobian(free[position], value)
            values.append(value)
        return jnp.stack(values), density

    def unconstrain(self, names: tuple[str, ...], coefficients: Any) -> Any:
        """The inverse where it exists, zero elsewhere."""
        from numpyro.distributions import biject_to

        free = [biject_to(d.support).inv(c) for d, c in zip(self._each(names), coefficients, strict=True)]
        return jnp.nan_to_num(jnp.stack(free), nan=0.0, posinf=0.0, neginf=0.0)

    def sample(self, names: tuple[str, ...], key: Array) -> Array:
        """One draw."""
        keys = jax.random.split(key, len(names))
        return jnp.stack([d.sample(k) for d, k in zip(self._each(names), keys, strict=True)])

    def as_normal(self, names: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Medians, and the spread of the middle two thirds of draws, which heavy tails have too."""
        keys = jax.random.split(jax.random.key(0), len(names))
        draws = [np.asarray(d.sample(k, (2_000,))) for d, k in zip(self._each(names), keys, strict=True)]
        low, middle, high = np.quantile(draws, [0.1587, 0.5, 0.8413], axis=1)
        return middle, np.diag(((high - low) / 2) ** 2)


Prior = NormalPrior | SphericalPrior | CustomPrior


def prior_of(prior: object, names: tuple[str, ...]) -> Prior:
    """What a user may pass as ``prior=``: None, "normal", a prior of this module, or {coefficient: distribution}."""
    if prior is None or (isinstance(prior, str) and prior == "normal"):
        return NormalPrior()
    if isinstance(prior, Mapping):
        prior = CustomPrior(tuple(prior.items()))
    if isinstance(prior, CustomPrior):
        for name, distribution in prior.distributions:
            _check_custom(name, distribution, names)
    elif not isinstance(prior, NormalPrior | SphericalPrior):
        raise InputError(
            "prior", prior, "must be None, 'normal', a prior or {coefficient: NumPyro distribution}", "correct it"
        )
    return prior


def _check_custom(name: str, distribution: object, names: tuple[str, ...]) -> None:
    """One scalar, continuous distribution for a coefficient that exists."""
    from numpyro.distributions import Delta, Distribution

    if name not in names:
        raise InputError("prior", name, f"is not a coefficient of this model ({', '.join(names)})", "correct it")
    if isinstance(distribution, Delta):
        rule = "is a single point, which cannot be sampled"
        raise InputError(f"prior[{name!r}]", distribution, rule, "use a narrow one, for example dist.Normal(0.5, 0.01)")
    continuous = isinstance(distribution, Distribution) and not distribution.support.is_discrete
    if not continuous or distribution.shape() != ():  # type: ignore[attr-defined]
        rule = "must be a continuous NumPyro distribution of one number"
        raise InputError(f"prior[{name!r}]", distribution, rule, "write for example dist.Normal(0, 1)")
