"""What a prior says about the outcome before any data: expected outcomes of public rows under prior draws.

Rows are made from the schema alone: every column uniform between its bounds or over its levels. Nothing that was
measured enters, not even the noisy sums of a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from dpglm.analyst.priors import SphericalPrior, prior_of
from dpglm.errors import InputError
from dpglm.formula import Design
from dpglm.paper.outcomes import outcome_of
from dpglm.paper.prior_densities import sampled
from dpglm.releases import Release

Floats = npt.NDArray[np.float64]
_QUANTILES = (0.05, 0.5, 0.95)
_ROWS = 200
_CERTAIN = 0.01
_MUCH = 0.5  # of the expected outcomes


@dataclass(frozen=True, eq=False)
class PriorPredictive:
    """Expected outcomes E[y | row], (draws, rows), in the user's units: a probability, a count or a mean.

    ``limits`` are what counts as extreme: 0.01 and 0.99 for a probability, the declared bounds for the others.
    """

    expected: Floats
    limits: tuple[float, float]
    what: str

    @property
    def share_extreme(self) -> float:
        """Share of expected outcomes outside the limits."""
        low, high = self.limits
        return float(np.mean((self.expected < low) | (self.expected > high)))

    def quantiles(self, probabilities: tuple[float, ...] = _QUANTILES) -> Floats:
        """Of the expected outcome of a row."""
        return np.asarray(np.quantile(self.expected, probabilities))

    def average_quantiles(self, probabilities: tuple[float, ...] = _QUANTILES) -> Floats:
        """Of the expected outcome averaged over rows: what the prior thinks of the table as a whole."""
        return np.asarray(np.quantile(self.expected.mean(axis=1), probabilities))

    def __str__(self) -> str:
        low, middle, high = self.quantiles()
        lowest, central, highest = self.average_quantiles()
        least, most = self.limits
        lines = [
            f"before any data, the {self.what} of a row is {low:.3g} to {high:.3g} (90 %), in the middle {middle:.3g};",
            f"averaged over rows it is {lowest:.3g} to {highest:.3g}, in the middle {central:.3g};",
            f"{100 * self.share_extreme:.0f} % of rows are expected below {least:g} or above {most:g}.",
        ]
        if self.share_extreme > _MUCH:
            lines.append("That is more than half: consider a narrower prior.")
        return "\n".join(lines)


def prior_predictive(
    release: Release, *, prior: Any = None, link: str | None = None, draws: int = 1_000, seed: int = 0
) -> PriorPredictive:
    """What ``prior`` implies for the outcome, from the public facts of a release: its formula, schema and bounds.

    ``prior`` and ``link`` are those of ``dpglm.fit``. Print the result for a sentence or two. The release is one by
    method="moments": its coefficients are scaled by the declared bounds, which public rows span.
    """
    if not isinstance(release, Release):
        raise InputError("release", type(release).__name__, "must be a Release", "use dpglm.load_release(path)")
    if release.method != "moments":
        rule = "is by looks, and what a prior says is told of releases by method='moments'"
        raise InputError("release", release.id, rule, "release moments")
    for name, value, least in (("draws", draws, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError(name, value, f"must be a whole number of at least {least}", "correct it")
    design = release.design
    outcome = outcome_of(release.family, link, release.response_range)
    names = design.coefficient_names
    chosen = prior_of(prior, names)
    keys = jax.random.split(jax.random.key(seed), draws)
    if isinstance(chosen, SphericalPrior):  # its quantile function is SciPy's, which takes no traced numbers
        coefficients = np.stack([sampled(chosen, names, key) for key in keys])
    else:
        coefficients = np.asarray(jax.vmap(partial(sampled, chosen, names))(keys))
    u = _predictors(design, release.radius, coefficients, np.random.default_rng(seed))
    if release.family == "linear":
        mean = design.outcome.center + design.outcome.scale * u
        limits = (design.outcome.center - design.outcome.scale, design.outcome.center + design.outcome.scale)
        return PriorPredictive(mean, limits, "expected outcome")
    if release.family == "poisson":
        mean = np.exp(np.minimum(u, 700.0)) if outcome.link == "log" else np.logaddexp(0, u)
        return PriorPredictive(mean, (0.0, outcome.high), "expected count")
    from scipy.special import expit, ndtr

    mean = expit(u) if outcome.link == "logit" else ndtr(u)
    success = f"probability of {design.outcome.name}"
    return PriorPredictive(np.asarray(mean), (_CERTAIN, 1 - _CERTAIN), success)


def _predictors(design: Design, radius: float, coefficients: Floats, generator: np.random.Generator) -> Floats:
    """The linear predictor of public rows, (draws, rows)."""
    values = {}
    for column in design.table_columns[1:]:
        if column.has_levels:
            values[column.name] = generator.integers(len(column.levels), size=_ROWS).astype(np.float64)
        else:
            values[column.name] = generator.uniform(column.lower, column.upper, _ROWS)
    x = design.predictors(values, _ROWS)
    x = x * np.minimum(1.0, radius / np.maximum(np.linalg.norm(x, axis=0), 1e-300))
    intercept, slopes = (coefficients[:, :1], coefficients[:, 1:]) if design.intercept else (0.0, coefficients)
    u = intercept + slopes @ x[: slopes.shape[1]]
    if design.offset is None:
        return np.asarray(u)
    scale = design.outcome.scale if design.family.coding == "scaled" else 1.0
    return np.asarray(u + x[-1] * design.offset.factors[0].scale / scale)
