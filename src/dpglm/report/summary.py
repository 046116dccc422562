"""Everything a page or a plot shows about a fit, as plain numbers. Sees a Fit and its releases, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.labels import Named, named_coefficients
from dpglm.analyst.marginal import MarginalEffect
from dpglm.analyst.marginal import all_effects as average_effects
from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior
from dpglm.analyst.result import UNITS, Fit, import_arviz
from dpglm.analyst.typical import reference_point
from dpglm.report.effects import Effect, all_effects, is_additive
from dpglm.report.health import Health, health_of
from dpglm.values import Level

Floats = npt.NDArray[np.float64]

INNER = 0.5  # probability of the thick part of an interval
_CURVE_POINTS, _FEWER_POINTS, _MANY_COEFFICIENTS = 81, 29, 40
_PRIOR_DRAWS = 20_000
_TAIL = 0.0005  # of a density, left out at each end


@dataclass(frozen=True, eq=False)
class Curve:
    """A density: ``x``, ``y``, and the share of the draws below each ``x``."""

    x: Floats
    y: Floats
    below: Floats


@dataclass(frozen=True, eq=False)
class Estimate:
    """One coefficient in one kind of units. ``ratio`` is (median, lower, upper) of an odds, rate or hazard ratio."""

    mean: float
    sd: float
    lower: float
    upper: float
    inner_lower: float
    inner_upper: float
    positive: float
    clear: bool
    inflation: float
    ratio: tuple[float, float, float] | None
    density: Curve | None
    prior: Floats | None  # the prior's density at ``density.x``

    @property
    def p_sign(self) -> float:
        return max(self.positive, 1 - self.positive)

    @property
    def sign(self) -> str:
        return "positive" if self.positive >= 0.5 else "negative"

    @property
    def noise_free_share(self) -> float:
        """Share of the interval's width that would be there without privacy noise."""
        return 1 / max(self.inflation, 1.0) if math.isfinite(self.inflation) else math.nan


@dataclass(frozen=True, eq=False)
class Coefficient:
    """One coefficient: its estimate by units ("original", "scaled"), and what people call it.

    In original units an estimate is for the step of ``named``. ``own_table`` is the estimate that this very table would
    give without noise, where looks at one table tell. ``plain`` is its row of ``Fit.summary``, for one unit.
    """

    name: str
    named: Named
    units: Mapping[str, Estimate]
    own_table: Mapping[str, Estimate] | None
    plain: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Summary:
    """What a report shows.

    ``draws`` is how many probabilities were estimated by, None where they are exact. ``average`` are average marginal
    effects, where there is a survey and coefficients do not say the same already.
    """

    fit: Fit
    prob: float
    draws: int | None
    coefficients: tuple[Coefficient, ...]
    effects: tuple[Effect, ...]
    average: tuple[MarginalEffect, ...]
    reference: Mapping[str, Level]
    health: tuple[Health, ...]

    @property
    def ratio_name(self) -> str | None:
        return self.fit.ratio_name

    @property
    def slopes(self) -> tuple[Coefficient, ...]:
        """All but the intercept."""
        return tuple(each for each in self.coefficients if each.name != "Intercept")

    @property
    def rows(self) -> int:
        """Rows of all tables: releases of one dataset describe the same rows."""
        return sum({release.dataset_id: release.num_rows for release in self.fit.releases}.values())

    @property
    def counted(self) -> float:
        """Rows of all tables that count, as far as it is known."""
        return sum({release.dataset_id: release.counted.number for release in self.fit.releases}.values())


def summarize(fit: Fit, *, prob: float = 0.95, at: Mapping[str, Any] | None = None) -> Summary:
    """All numbers of a report."""
    plain = fit.summary_rows(prob)
    named = named_coefficients(fit.releases[0])
    by_units = {units: estimates(fit, prob=prob, units=units) for units in UNITS}
    own = None
    if fit.table_coefficients is not None:
        own = {units: estimates(fit, prob=prob, units=units, target="table") for units in UNITS}

    def stepped(found: Mapping[str, tuple[Estimate, ...]], index: int) -> dict[str, Estimate]:
        original, scaled = (found[units][index] for units in UNITS)
        return {UNITS[0]: for_a_step(original, named[index].step), UNITS[1]: scaled}

    coefficients = tuple(
        Coefficient(
            name, named[index], stepped(by_units, index), None if own is None else stepped(own, index), plain[index]
        )
        for index, name in enumerate(fit.names)
    )
    effects = all_effects(fit, prob=prob, at=at)
    exact = fit.normal() is not None
    draws = None if exact else fit.coefficients.shape[0] * fit.coefficients.shape[1]
    return Summary(
        fit, prob, draws, coefficients, effects, _average(fit, prob), reference_point(fit.releases[0], at),
        health_of(fit),
    )  # fmt: skip


def _average(fit: Fit, prob: float) -> tuple[MarginalEffect, ...]:
    design = fit.releases[0].design
    if fit.releases[0].survey_record is None or (fit.link == "identity" and is_additive(design)):
        return ()
    return tuple(average_effects(fit, prob))


def for_a_step(estimate: Estimate, step: float) -> Estimate:
    """The same coefficient for some units of its column."""
    if step == 1:
        return estimate
    ends = ("mean", "sd", "lower", "upper", "inner_lower", "inner_upper")
    ratio, density = estimate.ratio, estimate.density
    return replace(
        estimate,
        **{part: getattr(estimate, part) * step for part in ends},
        ratio=None if ratio is None else (_power(ratio[0], step), _power(ratio[1], step), _power(ratio[2], step)),
        density=None if density is None else Curve(density.x * step, density.y / step, density.below),
        prior=None if estimate.prior is None else estimate.prior / step,
    )


def _power(ratio: float, step: float) -> float:
    """A ratio for a step; never more than a float holds."""
    return math.exp(min(max(step * math.log(max(ratio, 1e-300)), -700.0), 700.0))


def estimates(
    fit: Fit, *, prob: float = 0.95, units: str = "original", target: str = "population"
) -> tuple[Estimate, ...]:
    """One estimate a coefficient, in formula order. ``target`` is "population" or "table", as for ``Fit.summary``."""
    table = fit.summary_rows(prob, units, target)
    exact = fit.normal_marginals(units, target)
    draws = fit.draws(units, target).reshape(-1, len(fit.names))
    priors = _Priors(fit, units)
    ratio = fit.ratio_name if units == "original" else None
    middle = [(1 - INNER) / 2, (1 + INNER) / 2]
    inner = np.quantile(draws, middle, axis=0)
    if exact is not None:
        inner = np.array([[NormalDist(*each).inv_cdf(share) for each in exact] for share in middle])
    points = _CURVE_POINTS if len(fit.names) <= _MANY_COEFFICIENTS else _FEWER_POINTS  # keeps a page small
    result = []
    for index in range(len(fit.names)):
        row = table[index]
        density = density_of(draws[:, index], points) if exact is None else normal_density(*exact[index], points)
        result.append(
            Estimate(
                mean=float(row["mean"]),
                sd=float(row["sd"]),
                lower=float(row["lower"]),
                upper=float(row["upper"]),
                inner_lower=float(inner[0, index]),
                inner_upper=float(inner[1, index]),
                positive=float(np.mean(draws[:, index] > 0)) if exact is None else 1 - NormalDist(*exact[index]).cdf(0),
                clear=bool(row["significant"]),
                inflation=float(row["inflation"]),
                ratio=None if ratio is None else tuple(float(row[ratio + end]) for end in ("", "_lower", "_upper")),  # type: ignore[arg-type]
                density=density,
                prior=None if density is None else priors.density(index, density.x),
            )
        )
    return tuple(result)


def density_of(draws: Floats, points: int = _CURVE_POINTS) -> Curve | None:
    """ArviZ's kernel density on a grid that holds nearly all draws, and zero where it is near.

    A little smoother than ArviZ's default, so that a drawing of a few thousand draws shows no ripples. None where all
    draws are one number.
    """
    low, high = (float(edge) for edge in np.quantile(draws, [_TAIL, 1 - _TAIL]))
    if not high > low:
        return None
    grid, height = import_arviz().kde(draws, bw="silverman", bw_fct=1.3)
    x = _around(low, high, points)
    y = np.interp(x, grid, height, left=0.0, right=0.0)
    return Curve(x, y, np.searchsorted(np.sort(draws), x) / len(draws))


def normal_density(mean: float, stddev: float, points: int = _CURVE_POINTS) -> Curve:
    """The same of a normal distribution, exactly."""
    normal = NormalDist(mean, stddev)
    x = _around(normal.inv_cdf(_TAIL), normal.inv_cdf(1 - _TAIL), points)
    return Curve(x, np.array([normal.pdf(each) for each in x]), np.array([normal.cdf(each) for each in x]))


def _around(low: float, high: float, points: int) -> Floats:
    """From low to high, and over zero where it is near."""
    width = high - low
    if 0 < low < 1.2 * width:
        low = -0.04 * width
    if 0 < -high < 1.2 * width:
        high = 0.04 * width
    return np.linspace(low, high, points)


class _Priors:
    """Densities of the coefficients' priors, in the units asked for."""

    def __init__(self, fit: Fit, units: str) -> None:
        prior, names = fit.prior, fit.names
        self.matrix, self.shift = np.eye(len(names)), np.zeros(len(names))
        if units == "original":
            self.matrix, self.shift = fit.releases[0].design.to_original_units()
        centre = np.zeros(len(names)) if fit.closed is None else fit.closed.prior.mean  # an intercept's, by the survey
        self.normal: tuple[Floats, Floats] | None = None
        self.draws = np.empty((0, len(names)))
        if isinstance(prior, NormalPrior):
            covariance = prior.as_normal(names)[1]
            self.normal = self.matrix @ centre + self.shift, self.matrix @ covariance @ self.matrix.T
        elif isinstance(prior, SphericalPrior):
            self.draws = centre + _spherical_draws(prior, names)
        else:
            self.draws = centre + _custom_draws(prior, names)

    def density(self, index: int, x: Floats) -> Floats | None:
        """At ``x``; None where a file keeps only the name of the prior."""
        if self.normal is not None:
            mean, covariance = self.normal
            normal = NormalDist(float(mean[index]), math.sqrt(float(covariance[index, index])))
            return np.array([normal.pdf(each) for each in x])
        used = np.flatnonzero(self.matrix[index])
        draws = self.draws[:, used] @ self.matrix[index, used] + self.shift[index]
        if not np.isfinite(draws).all() or draws.std() == 0:
            return None
        grid, height = import_arviz().kde(draws)
        return np.asarray(np.interp(x, grid, height, left=0.0, right=0.0), dtype=np.float64)


def _spherical_draws(prior: SphericalPrior, names: tuple[str, ...]) -> Floats:
    """A standard normal restricted to a ball, and a normal intercept; always the same draws."""
    from scipy.stats import chi2

    generator = np.random.default_rng(0)
    first = int(names[0] == "Intercept")
    dimension = len(names) - first
    direction = generator.normal(size=(_PRIOR_DRAWS, dimension))
    share = generator.uniform(size=_PRIOR_DRAWS) * chi2.cdf(prior.largest_squared_norm, dimension)
    norm = np.sqrt(chi2.ppf(share, dimension))
    slopes = direction / np.linalg.norm(direction, axis=1, keepdims=True) * norm[:, None]
    return np.column_stack([prior.intercept * generator.normal(size=(_PRIOR_DRAWS, first)), slopes])


def _custom_draws(prior: CustomPrior, names: tuple[str, ...]) -> Floats:
    """Draws of the distributions that are there; NaN where a saved fit kept a text."""
    given, generator = dict(prior.distributions), np.random.default_rng(0)
    columns = []
    for number, (name, scale) in enumerate(zip(names, prior.others.scales(names), strict=True)):
        distribution = given.get(name)
        if distribution is None:
            columns.append(scale * generator.normal(size=_PRIOR_DRAWS))
        elif isinstance(distribution, str):
            columns.append(np.full(_PRIOR_DRAWS, math.nan))
        else:
            from dpglm.paper.prior_densities import draws_of  # a NumPyro distribution: JAX is there

            columns.append(draws_of(distribution, _PRIOR_DRAWS, seed=number))
    return np.column_stack(columns)
