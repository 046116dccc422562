"""A Gaussian likelihood and a prior that is not normal: draws by elliptical slice sampling, many walkers at once.

The likelihood of a release by looks is Gaussian in a handful of coefficients, so sampling is cheap: each step proposes
a point on an ellipse through the current one and shrinks the angle until the prior, over a wide normal that stands in
for it, accepts (Murray, Adams & MacKay 2010). No step size, no gradient, no compilation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpglm.analyst.priors import CustomPrior, NormalPrior, Prior, SphericalPrior
from dpglm.looks.gaussian import Gaussian, together

Floats = npt.NDArray[np.float64]

_STEPS = 60
_WALKERS = 400
_SHRINKS = 100


def sampled(
    likelihood: Gaussian, prior: Prior, names: tuple[str, ...], centre: Floats, shape: tuple[int, int], seed: int
) -> Floats:
    """Draws, (chains, draws, coefficients); the prior of an intercept is around ``centre``."""
    rng = np.random.default_rng(seed)
    scales = _stand_in(prior, names)
    stand_in = Gaussian(np.diag(scales**-2.0), centre / scales**2)
    normal = together([likelihood, stand_in])
    mean, root = normal.mean, np.asarray(np.linalg.cholesky(normal.covariance), dtype=np.float64)

    def log_ratio(points: Floats) -> Floats:
        """Log of the prior over its stand-in."""
        away = points - centre
        return np.asarray(_log_density(prior, names, away) + 0.5 * np.sum((away / scales) ** 2, axis=1))

    wanted = shape[0] * shape[1]
    walkers = min(_WALKERS, wanted)
    points = _inside(prior, names, mean + rng.standard_normal((walkers, len(mean))) @ root.T, centre)
    kept: list[Floats] = []
    steps = 0
    while sum(map(len, kept)) < wanted:
        points = _step(points, mean, root, log_ratio, rng)
        steps += 1
        if steps > _STEPS and steps % 5 == 0:
            kept.append(points.copy())
    return np.asarray(np.concatenate(kept)[:wanted].reshape(*shape, len(mean)))


def _step(
    points: Floats, mean: Floats, root: Floats, log_ratio: Callable[[Floats], Floats], rng: np.random.Generator
) -> Floats:
    """One elliptical slice step of every walker."""
    others = rng.standard_normal(points.shape) @ root.T
    level = log_ratio(points) + np.log(rng.uniform(size=len(points)))
    angle = rng.uniform(0, 2 * np.pi, len(points))
    low, high = angle - 2 * np.pi, angle.copy()
    result, waiting = points.copy(), np.arange(len(points))
    for _ in range(_SHRINKS):
        here = points[waiting] - mean
        turn = angle[waiting, None]
        proposed = mean + here * np.cos(turn) + others[waiting] * np.sin(turn)
        accepted = log_ratio(proposed) > level[waiting]
        result[waiting[accepted]] = proposed[accepted]
        waiting = waiting[~accepted]
        if not len(waiting):
            break
        below = angle[waiting] < 0
        low[waiting[below]] = angle[waiting[below]]
        high[waiting[~below]] = angle[waiting[~below]]
        angle[waiting] = rng.uniform(low[waiting], high[waiting])
    return result


def _stand_in(prior: Prior, names: tuple[str, ...]) -> Floats:
    """Standard deviations of a normal that is about as wide as the prior."""
    if isinstance(prior, CustomPrior):
        return prior.others.scales(names)
    return prior.scales(names)


def _inside(prior: Prior, names: tuple[str, ...], points: Floats, centre: Floats) -> Floats:
    """The points, moved to where the prior is not zero."""
    if isinstance(prior, SphericalPrior):
        slopes = np.array([name != "Intercept" for name in names])
        length = np.sqrt(np.sum(((points - centre) * slopes) ** 2, axis=1))
        shrink = np.minimum(1.0, 0.9 * np.sqrt(prior.largest_squared_norm) / np.maximum(length, 1e-300))
        return np.asarray(np.where(slopes, centre + (points - centre) * shrink[:, None], points))
    if isinstance(prior, CustomPrior):
        for name, distribution in prior.distributions:
            position = names.index(name)
            outside = ~np.isfinite(log_density_of(distribution, points[:, position] - centre[position]))
            if outside.any():
                points[outside, position] = centre[position] + middle_of(distribution)
    return points


def _log_density(prior: Prior, names: tuple[str, ...], points: Floats) -> Floats:
    if isinstance(prior, NormalPrior):
        return np.asarray(-0.5 * np.sum((points / prior.scales(names)) ** 2, axis=1))
    if isinstance(prior, SphericalPrior):
        slopes = np.array([name != "Intercept" for name in names])
        squared = np.sum((points * slopes) ** 2, axis=1)
        inside = -0.5 * np.sum((points / prior.scales(names)) ** 2, axis=1)
        return np.asarray(np.where(squared <= prior.largest_squared_norm, inside, -np.inf))
    given = dict(prior.distributions)
    scales = prior.others.scales(names)
    total = np.zeros(len(points))
    for position, name in enumerate(names):
        column = points[:, position]
        total += log_density_of(given[name], column) if name in given else -0.5 * (column / scales[position]) ** 2
    return total


def log_density_of(distribution: object, values: Floats) -> Floats:
    """Of a NumPyro distribution (``log_prob``) or one of SciPy's (``logpdf``); minus infinity outside its support."""
    if hasattr(distribution, "logpdf"):
        found = np.asarray(distribution.logpdf(values), dtype=np.float64)
    else:
        padded = np.resize(values, max(len(values), _WALKERS))  # JAX compiles anew for every other length
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values outside the support, which are taken care of here
            density = np.asarray(distribution.log_prob(padded), dtype=np.float64)  # type: ignore[attr-defined]
            inside = np.asarray(distribution.support(padded))  # type: ignore[attr-defined]
        found = np.where(inside, density, -np.inf)[: len(values)]
    return np.where(np.isnan(found), -np.inf, found)


def middle_of(distribution: object) -> float:
    """A point inside its support."""
    if hasattr(distribution, "median"):
        return float(distribution.median())
    try:
        return float(np.asarray(distribution.icdf(0.5)))  # type: ignore[attr-defined]
    except (NotImplementedError, AttributeError, ImportError):  # some of NumPyro's need another library for it
        return float(np.asarray(distribution.mean))  # type: ignore[attr-defined]
