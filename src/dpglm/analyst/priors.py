"""Priors of the coefficients, in scaled coordinates: bounds map to [-1, 1], so one default suits all columns.

What a prior is; ``dpglm.paper.prior_densities`` says what a sampler of JAX's needs of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError

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

    def as_normal(self, names: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Means and covariance of a normal distribution like it: itself."""
        return np.zeros(len(names)), np.diag(self.scales(names) ** 2)


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


def _is_scipys(distribution: object) -> bool:
    """A frozen continuous distribution of ``scipy.stats``."""
    return all(hasattr(distribution, part) for part in ("logpdf", "dist", "args", "kwds"))


def distribution_text(distribution: Any) -> str:
    """A NumPyro distribution as it is written, ``Normal(loc=0, scale=0.7)``, or its name where that does not do.

    One that is made of another tells that one first. A text, from a file, is what it is.
    """
    if isinstance(distribution, str):
        return distribution
    if _is_scipys(distribution):
        given = [*map(str, distribution.args), *(f"{key}={value}" for key, value in distribution.kwds.items())]
        return f"{distribution.dist.name}({', '.join(given)})"
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
    """A NumPyro distribution a coefficient, by name; the others keep the default. Scaled coordinates.

    Fits of looks also take frozen ones of ``scipy.stats``.
    """

    distributions: tuple[tuple[str, Any], ...]
    others: NormalPrior = NormalPrior()


Prior = NormalPrior | SphericalPrior | CustomPrior


def prior_of(prior: object, names: tuple[str, ...], scipys: bool = False) -> Prior:
    """What a user may pass as ``prior=``: None, "normal", a prior of this module, or {coefficient: distribution}.

    ``scipys``: also frozen distributions of ``scipy.stats``, which have no gradients for a sampler of moments.
    """
    if prior is None or (isinstance(prior, str) and prior == "normal"):
        return NormalPrior()
    if isinstance(prior, Mapping):
        prior = CustomPrior(tuple(prior.items()))
    if isinstance(prior, CustomPrior):
        for name, distribution in prior.distributions:
            _check_custom(name, distribution, names, scipys)
    elif not isinstance(prior, NormalPrior | SphericalPrior):
        raise InputError(
            "prior", prior, "must be None, 'normal', a prior or {coefficient: NumPyro distribution}", "correct it"
        )
    return prior


def _check_custom(name: str, distribution: object, names: tuple[str, ...], scipys: bool) -> None:
    """One scalar, continuous distribution for a coefficient that exists."""
    if name not in names:
        raise InputError("prior", name, f"is not a coefficient of this model ({', '.join(names)})", "correct it")
    if scipys and _is_scipys(distribution):
        if np.ndim(distribution.std()):  # type: ignore[attr-defined]
            rule = "must be a distribution of one number"
            raise InputError(f"prior[{name!r}]", distribution_text(distribution), rule, "give it plain numbers")
        return
    try:
        from numpyro.distributions import Delta, Distribution
    except ImportError:
        rule = "needs NumPyro, which is not installed"
        raise InputError("prior", name, rule, 'install it with: pip install "dpglm[paper]"') from None
    if isinstance(distribution, Delta):
        rule = "is a single point, which cannot be sampled"
        raise InputError(f"prior[{name!r}]", distribution, rule, "use a narrow one, for example dist.Normal(0.5, 0.01)")
    continuous = isinstance(distribution, Distribution) and not distribution.support.is_discrete
    if not continuous or distribution.shape() != ():  # type: ignore[attr-defined]
        rule = "must be a continuous NumPyro distribution of one number"
        raise InputError(f"prior[{name!r}]", distribution, rule, "write for example dist.Normal(0, 1)")
