"""What a reader of a fit should know, in plain words: where its sampler, its approximations or its model are weak."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpglm.analyst.priors import NormalPrior
from dpglm.centring import only_of_moments

if TYPE_CHECKING:
    from dpglm.analyst.result import Fit
    from dpglm.release_file import Release

WANTED_ESS = 1_000
_LARGEST_R_HAT, _APART, _LARGEST_PARETO_K = 1.01, 1.5, 0.7
_COMFORTABLE_STDDEV = 6.0
_PRIOR_SHARE = 0.8
_CONFLICT, _FAR_APART, _WITHIN = 3.0, 10, 2.0  # standard deviations
# Root mean square difference of a one-stage estimate from maximum likelihood, over that of the coefficients, without
# noise: the largest seen on the tables of docs/real.md.
_TYPICAL_DISCREPANCY = {"logistic": 0.27, "poisson": 0.27, "linear": 0.05}
# Below this N mu^2 / D, and above this standard deviation of the linear predictor, staged intervals were too narrow.
_SMALL_SIGNAL, _STRONG_EFFECT = 12.0, 0.75
# Above this one privacy should cost a few per cent; intervals this many times as wide tell of looks that missed.
_LARGE_SIGNAL, _LARGE_INFLATION = 360.0, 3.0


def cautions(fit: Fit) -> list[str]:
    """All that applies to a fit, each once."""
    messages = []
    diagnostics = fit.diagnostics
    if fit.method == "nuts":
        largest = float(np.max(diagnostics.r_hat))
        if largest > _LARGEST_R_HAT:
            remedy = "the chains disagree; raise draws"
            if largest > _APART:
                remedy = (
                    "the chains are in different places, and more draws will not help; look for a predictor that"
                    " decides the outcome, or for two that say the same"
                )
            messages.append(f"R-hat reaches {largest:.3f}: {remedy}")
        smallest = float(min(diagnostics.ess_bulk.min(), diagnostics.ess_tail.min()))
        if not smallest >= WANTED_ESS:
            number = f"only {smallest:.0f}" if math.isfinite(smallest) else "too few"
            messages.append(f"{number} effective draws for some coefficient: raise draws")
        if diagnostics.divergences > 0.001 * fit.coefficients[..., 0].size:
            remedy = "a narrower prior helps, or a release with more budget"
            messages.append(f"{diagnostics.divergences} divergent transitions: tails may be missed; {remedy}")
    elif diagnostics.pareto_k is not None and not diagnostics.pareto_k < _LARGEST_PARETO_K:
        messages.append(
            f"the Laplace approximation is not to be trusted here (Pareto k = {diagnostics.pareto_k:.2f}):"
            " use method='nuts'"
        )
    if not fit.options.get("noise_aware", True):
        messages.append("the privacy noise was ignored on request: these intervals are too narrow")
    messages += _prior_warnings(fit)
    if fit.predictor_stddev > _COMFORTABLE_STDDEV:
        messages.append(
            f"the linear predictor has standard deviation {fit.predictor_stddev:.1f}: few rows are undecided, and the"
            " Gaussian model of the predictors matters more than usual"
        )
    if not diagnostics.mode_converged:
        remedy = "use method='nuts'" if fit.method == "laplace" else "look at R-hat"
        messages.append(f"no clear mode was found, so the approximation that sampling starts from may be off: {remedy}")
    messages += _first_stage_warnings(fit)
    messages += _strong_effect_warnings(fit)
    messages += _discrepancy_warnings(fit)
    for release in fit.releases:
        messages += _size_warnings(release)
    return list(dict.fromkeys(messages))  # two releases of one table warn once


def _prior_warnings(fit: Fit) -> list[str]:
    """Where the posterior is the prior, and where the release's own estimate is far from the prior's zero.

    Of a normal prior and a normal likelihood: with r = sd^2 / scale^2 that estimate is mean / (1 - r), and its variance
    with the prior's scale^2 / (1 - r).
    """
    if not isinstance(fit.prior, NormalPrior):
        return []
    names, draws, scales = np.array(fit.names), _flat(fit), fit.prior.scales(fit.names)
    share = draws.std(axis=0) / scales
    left = np.maximum(1 - share**2, 0.01)  # not zero where the posterior is the prior
    apart = np.abs(draws.mean(axis=0)) / (scales * np.sqrt(left))
    # A posterior as wide as the prior, and within it, is the prior's: what little moved it is not worth a conflict.
    is_prior = (share > _PRIOR_SHARE) & ((apart <= _CONFLICT) | (np.abs(draws.mean(axis=0)) < _WITHIN * scales))
    is_torn = (apart > _CONFLICT) & ~is_prior
    torn, weak = names[is_torn], names[is_prior]
    messages = []
    if len(weak):
        messages.append(f"the release says little about {', '.join(weak)}: the posterior is close to the prior")
    if len(torn):
        farthest = apart[is_torn].max()
        number = f"{farthest:.1f}" if farthest < _FAR_APART else f"more than {_FAR_APART}"
        messages.append(
            f"prior and release disagree about {', '.join(torn)}, by {number} standard deviations: the posterior is"
            " a compromise that few would share; use a wider prior"
        )
    return messages


def _discrepancy_warnings(fit: Fit) -> list[str]:
    """How far a match of moments may be off: one stage is right for Gaussian predictors and a right regression only."""
    option = only_of_moments(fit.releases[0].family, fit.options)
    staged = [release for release in fit.releases if len(release.stages) > 1]
    if staged and option is None:
        return []
    draws = _flat(fit)
    size = float(np.sqrt(np.mean(draws.mean(axis=0) ** 2)))
    share = _TYPICAL_DISCREPANCY[fit.releases[0].family]
    spread = float(np.median(draws.std(axis=0)))
    ratio = share * size / spread if spread > 0 else 0.0
    if ratio < 1:
        return []
    return [
        f"one stage assumes Gaussian predictors; on real tables its coefficients were off by up to {share:.0%} of their"
        f" typical size, here {ratio:.1f} posterior standard deviations: ask for a release in stages, or read the"
        " intervals as too narrow where columns are binary or skewed"
    ]


def _strong_effect_warnings(fit: Fit) -> list[str]:
    """Where later looks are taken far from the estimate: a strong effect seen through much noise (docs/stages.md)."""
    if fit.table_coefficients is None:
        return []
    signal = sum(each.num_rows * each.privacy.mu**2 for each in fit.releases) / len(fit.names)
    wide = [name for name, times in zip(fit.names, fit.inflation[1], strict=True) if times > _LARGE_INFLATION]
    if signal > _LARGE_SIGNAL and wide:
        return [
            f"the looks of this release missed {', '.join(wide)}: intervals are much wider than the budget explains,"
            " and the prior decides where they lie. Some column fills little of its declared bounds, or the prior"
            " excludes its effect: release again with closer bounds"
        ]
    if fit.releases[0].family != "logistic" or signal >= _SMALL_SIGNAL or fit.predictor_stddev < _STRONG_EFFECT:
        return []
    return [
        "few rows for this budget and strong effects: in simulations such posteriors leaned toward zero, and 85 to 91 %"
        " of their 95 % intervals covered"
    ]


def _first_stage_warnings(fit: Fit) -> list[str]:
    """Where a release in stages was asked for what only its first stage can answer."""
    option = only_of_moments(fit.releases[0].family, fit.options)
    shares = [each.stages[0].mu ** 2 / each.privacy.mu**2 for each in fit.releases if len(each.stages) > 1]
    if option is None or not shares:
        return []
    return [
        f"later stages did not measure {option}={fit.options[option]!r}: only the first is used, {max(shares):.0%} of"
        f" the budget; leave {option} out, or ask for a release with stages=1"
    ]


def _size_warnings(release: Release) -> list[str]:
    """Where the normal approximation of the sums is doubtful."""
    dimension = release.design.dimension
    if release.num_rows < 20 * (dimension + 1):
        return [f"{release.num_rows} rows for {dimension} columns: the normal approximation of the sums is doubtful"]
    total = {(block.y_power, block.degree): block.values for block in release.blocks}.get((1, 0))
    if total is None or release.family == "linear":
        return []
    if release.family == "poisson":
        events, what = float(total[0]), "events were counted"
    else:
        events, what = (release.num_rows - abs(float(total[0]))) / 2, "rows have the rarer outcome"
    if events < 10 * (dimension + 1):
        return [f"about {max(events, 0):.0f} {what}: the normal approximation of the sums is doubtful"]
    return []


def _flat(fit: Fit) -> npt.NDArray[np.float64]:
    return fit.coefficients.reshape(-1, len(fit.names))
