"""The log density of one outcome given its linear predictor, up to a constant: what a regression on rows needs."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpglm.errors import InputError

Array = jax.Array
LogDensity = Callable[[Array, Array, Array], Array]  # of u, y and the spread


def _logit(u: Array, y: Array, _: Array) -> Array:
    return -jax.nn.softplus(-y * u)


def _probit(u: Array, y: Array, _: Array) -> Array:
    return jax.scipy.special.log_ndtr(y * u)


def _counts(log_mean: Callable[[Array], Array]) -> LogDensity:
    """Variance ``spread`` times the mean: Poisson at 1, negative binomial above."""

    def log_density(u: Array, y: Array, spread: Array) -> Array:
        log_mu = log_mean(u)
        mu = jnp.exp(log_mu)
        # A number of failures mu / (spread - 1), each with probability 1 / spread; the limit at 1 is taken aside.
        poisson = y * log_mu - mu
        excess = jnp.where(spread > 1, spread - 1, 1.0)
        size = mu / excess
        gammas = jax.scipy.special.gammaln(y + size) - jax.scipy.special.gammaln(size)
        binomial = gammas - size * jnp.log(1 + excess) + y * jnp.log(excess / (1 + excess))
        return jnp.where(spread > 1, binomial, poisson)

    return log_density


def _log_softplus(u: Array) -> Array:
    """log(log(1 + e^u)), which is u far below zero."""
    return jnp.where(u < -30, u, jnp.log(jax.nn.softplus(jnp.maximum(u, -30.0))))


def _normal(u: Array, y: Array, spread: Array) -> Array:
    """``spread`` is the variance of the scaled outcome."""
    return -0.5 * ((y - u) ** 2 / spread + jnp.log(spread))


_LIKELIHOODS: dict[tuple[str, str], LogDensity] = {
    ("logistic", "logit"): _logit,
    ("logistic", "probit"): _probit,
    ("poisson", "log"): _counts(lambda u: u),
    ("poisson", "softplus"): _counts(_log_softplus),
    ("linear", "identity"): _normal,
}


def row_likelihood(family_name: str, link: str) -> LogDensity:
    """The log density of y given (u, spread).

    >>> float(row_likelihood("logistic", "logit")(jnp.array(0.0), jnp.array(1.0), jnp.array(1.0)))
    -0.6931471805599453
    """
    if (family_name, link) not in _LIKELIHOODS:
        known = ", ".join(f"{family} ({name})" for family, name in _LIKELIHOODS)
        raise InputError("link", link, f"the rows of {family_name} can be read as one of {known}", "choose one of them")
    return _LIKELIHOODS[family_name, link]
