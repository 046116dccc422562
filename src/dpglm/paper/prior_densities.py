"""What a sampler needs of a prior: a map from an unconstrained vector to coefficients, its log density, and draws.

Densities are those of the free vector, Jacobian included.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import numpyro.distributions as dist
from jax import Array
from jax.scipy import special
from numpyro.distributions import biject_to

from dpglm.analyst.priors import CustomPrior, NormalPrior, Prior, SphericalPrior

Names = tuple[str, ...]


def constrained(prior: Prior, names: Names, free: Array) -> tuple[Array, Array]:
    """Coefficients, and their log density as a function of the free vector."""
    if isinstance(prior, NormalPrior):
        scales = prior.scales(names)
        constant = -jnp.sum(jnp.log(scales)) - 0.5 * len(names) * math.log(2 * math.pi)
        return free, constant - 0.5 * jnp.sum((free / scales) ** 2)
    if isinstance(prior, SphericalPrior):
        return _into_the_ball(prior, names, free)
    values, density = [], jnp.zeros(())
    for distribution, position in zip(_distributions(prior, names), range(len(names)), strict=True):
        transform = biject_to(distribution.support)
        value = transform(free[position])
        density += distribution.log_prob(value) + transform.log_abs_det_jacobian(free[position], value)
        values.append(value)
    return jnp.stack(values), density


def unconstrained(prior: Prior, names: Names, coefficients: Any) -> Any:
    """The free vector of some coefficients: points outside a ball go to 0.9 of its radius, others to zero."""
    if isinstance(prior, NormalPrior):
        return coefficients
    if isinstance(prior, SphericalPrior):
        first = int(names[0] == "Intercept")
        slopes = coefficients[first:] / math.sqrt(prior.largest_squared_norm)
        length = jnp.sqrt(jnp.sum(slopes**2))
        stretched = math.sqrt(2) * special.erfinv(jnp.minimum(length, 0.9)) / jnp.maximum(length, 1e-300)
        return jnp.concatenate([coefficients[:first], slopes * stretched])
    free = [biject_to(d.support).inv(c) for d, c in zip(_distributions(prior, names), coefficients, strict=True)]
    return jnp.nan_to_num(jnp.stack(free), nan=0.0, posinf=0.0, neginf=0.0)


def sampled(prior: Prior, names: Names, key: Array) -> Array:
    """One draw of the coefficients."""
    if isinstance(prior, NormalPrior):
        return jax.random.normal(key, (len(names),)) * prior.scales(names)
    if isinstance(prior, CustomPrior):
        keys = jax.random.split(key, len(names))
        return jnp.stack([d.sample(k) for d, k in zip(_distributions(prior, names), keys, strict=True)])
    # The squared norm by inverting its truncated distribution function.
    from scipy.stats import chi2

    first = int(names[0] == "Intercept")
    dimension = len(names) - first
    direction_key, norm_key, intercept_key = jax.random.split(key, 3)
    direction = jax.random.normal(direction_key, (dimension,))
    share = float(jax.random.uniform(norm_key)) * chi2.cdf(prior.largest_squared_norm, dimension)
    slopes = direction / jnp.linalg.norm(direction) * math.sqrt(chi2.ppf(share, dimension))
    return jnp.concatenate([prior.intercept * jax.random.normal(intercept_key, (first,)), slopes])


def draws_of(distribution: Any, count: int, seed: int) -> npt.NDArray[np.float64]:
    """Draws of a NumPyro distribution of one number."""
    return np.asarray(distribution.sample(jax.random.key(seed), (count,)), dtype=np.float64)


def nearest(prior: SphericalPrior, names: Names, coefficients: Array) -> Array:
    """The nearest coefficients whose slopes lie in the ball."""
    first = int(names[0] == "Intercept")
    squared = jnp.sum(coefficients[first:] ** 2)
    shrink = jnp.sqrt(jnp.minimum(1.0, prior.largest_squared_norm / jnp.maximum(squared, 1e-300)))
    return jnp.concatenate([coefficients[:first], shrink * coefficients[first:]])


def _into_the_ball(prior: SphericalPrior, names: Names, free: Array) -> tuple[Array, Array]:
    """The ball of radius r is covered by v -> r v erf(t / sqrt 2) / t, where t is the length of v.

    Its log Jacobian is (d - 1) log(erf(t / sqrt 2) / t) - t^2/2 + const: the tails are those of a normal, so that a
    posterior that leans on the edge of the ball is sampled as easily as one inside.
    """
    first = int(names[0] == "Intercept")
    slopes, dimension = free[first:], len(names) - first
    squared = jnp.sum(slopes**2)
    shrink = _erf_over_length(squared)
    inside = slopes * shrink * math.sqrt(prior.largest_squared_norm)
    density = -0.5 * jnp.sum(inside**2) + (dimension - 1) * jnp.log(shrink) - 0.5 * squared
    if first:
        density += -0.5 * (free[0] / prior.intercept) ** 2
    return jnp.concatenate([free[:first], inside]), density


def _erf_over_length(squared: Array) -> Array:
    """erf(t / sqrt 2) / t of the square of t, with its derivatives also at zero."""
    small = squared < 1e-3
    square = jnp.where(small, 1.0, squared)
    series = math.sqrt(2 / math.pi) * (1 - squared / 6 + squared**2 / 40 - squared**3 / 336)
    return jnp.where(small, series, special.erf(jnp.sqrt(square / 2)) / jnp.sqrt(square))


def _distributions(prior: CustomPrior, names: Names) -> list[Any]:
    """One for each coefficient."""
    given = dict(prior.distributions)
    defaults = prior.others.scales(names)
    return [given.get(name, dist.Normal(0.0, scale)) for name, scale in zip(names, defaults, strict=True)]
