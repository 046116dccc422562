"""What a reader of a fit should know, in plain words: where its sampler, its approximations or its model are weak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpglm.analyst.clamped import Heap, heaps
from dpglm.analyst.priors import NormalPrior
from dpglm.expressions import Expression
from dpglm.formats import plain_number
from dpglm.schema import Column
from dpglm.values import date_of

if TYPE_CHECKING:
    from dpglm.analyst.result import Fit
    from dpglm.looks.survey import Survey
    from dpglm.releases import Release

Floats = npt.NDArray[np.float64]

WANTED_ESS = 1_000
_LARGEST_R_HAT, _APART, _LARGEST_PARETO_K = 1.01, 1.5, 0.7
_COMFORTABLE_STDDEV = 6.0
LEAST_CHANCE = 1e-3  # of a look's score, by what the looks before it predicted
# Standard deviation of the linear predictor, in logits or logs; and where noise makes intervals so many times as wide,
# because looks then stand far from the estimate.
_STRONG, _STRONG_FROM_AFAR, _FAR = 4.0, 2.5, 1.5
_DECIDING = 3.5  # log-odds between two levels beyond which rows of one of them are all but decided
_TOGETHER = 0.9  # correlation of a number with a function of it
_NORMAL = np.array([-2.0, -1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
_RARE_EVENTS = 0.05  # a row
_HARDLY_ANY = 0.5  # standard deviation of the logarithm of a share or a mean count: there may be no events at all
_RARE, _CLEARLY = 2.0, 3.0  # standard deviations of a share
_MOST_NAMED = 8  # in one sentence
_MANY_MISSING = 0.05  # share of a column's cells
_PRIOR_SHARE = 0.8
_CONFLICT, _FAR_APART, _WITHIN = 3.0, 10, 2.0  # standard deviations
_NOTICEABLE = 0.05  # share of rows that do not count


def cautions(fit: Fit) -> list[str]:
    """All that applies to a fit, each once."""
    messages = _look_warnings(fit) if fit.diagnostics is None else _sampler_warnings(fit)
    messages += of_prior(fit)
    return list(dict.fromkeys(messages))  # two releases of one table warn once


def _sampler_warnings(fit: Fit) -> list[str]:
    """Of moments."""
    messages = []
    diagnostics = fit.diagnostics
    assert diagnostics is not None
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
    if fit.predictor_stddev > _COMFORTABLE_STDDEV:
        messages.append(
            f"the linear predictor has standard deviation {fit.predictor_stddev:.1f}: few rows are undecided, and the"
            " Gaussian model of the predictors matters more than usual"
        )
    if not diagnostics.mode_converged:
        remedy = "use method='nuts'" if fit.method == "laplace" else "look at R-hat"
        messages.append(f"no clear mode was found, so the approximation that sampling starts from may be off: {remedy}")
    messages += _discrepancy_warnings(fit)
    for release in fit.releases:
        messages += _size_warnings(release)
    return messages


def _look_warnings(fit: Fit) -> list[str]:
    """Of looks, by subject."""
    subjects = (of_agreement, of_strength, of_powers, of_events, of_survey, of_levels, of_missing, of_bounds)
    return [message for subject in subjects for message in subject(fit)]


def of_agreement(fit: Fit) -> list[str]:
    """Looks that disagree."""
    assert fit.closed is not None
    if not fit.closed.surprises.size or fit.closed.surprises.min() >= LEAST_CHANCE:
        return []
    return [
        "a look missed what the looks before it predicted by more than chance"
        f" (p = {fit.closed.surprises.min():.1g}): intervals may be too narrow; release again with more budget"
    ]


def most_spread(fit: Fit) -> float:
    """The standard deviation of the linear predictor beyond which effects are strong."""
    return _STRONG_FROM_AFAR if float(np.median(fit.inflation[0])) > _FAR else _STRONG


def of_strength(fit: Fit) -> list[str]:
    """Effects that decide."""
    messages = []
    if fit.predictor_stddev > most_spread(fit):
        messages.append(
            f"the linear predictor has standard deviation {fit.predictor_stddev:.1f}: some rows are all but decided,"
            " and effects this strong may be larger than their intervals say"
        )
    return messages + _deciding_warnings(fit)


def of_powers(fit: Fit) -> list[str]:
    """A number and a function of it that rise together, as a power does of a number far from zero: by the survey."""
    messages = []
    for release in fit.releases:
        record = release.survey_record
        assert record is not None
        sources = [each.factors[0].source for each in release.design.columns if len(each.factors) == 1]
        numbers = [each for each in sources if isinstance(each, Expression)]
        for number in (each for each in numbers if each.is_column):
            place = record.survey.place_of(number)
            values = np.clip(place.centre + place.scale * _NORMAL, number.lower, number.upper)
            for other in numbers:
                if other is number or other.columns != number.columns:
                    continue
                both = np.corrcoef(values, other.evaluate({number.columns[0]: values}))
                together = abs(float(both[0, 1])) if np.isfinite(both).all() else 1.0
                if together > _TOGETHER:
                    messages.append(
                        f"{number.text} and {other.text} rise together (correlation {together:.2f}): intervals of such"
                        f" pairs may be too narrow; ask for a release with {number.text} counted from about"
                        f" {plain_number(place.centre)} inside the function"
                    )
    return messages


def of_events(fit: Fit) -> list[str]:
    """Outcomes that are so rare that the release cannot tell how rare, if there are any."""
    family = fit.releases[0].design.family
    if fit.closed is None or family.rare_events is None or not fit.releases[0].design.intercept:
        return []
    means, stddevs = _moments(fit)
    typical = float(family.inverse_link(means[:1])[0])  # of a row with average columns
    if stddevs[0] < _HARDLY_ANY or typical > _RARE_EVENTS:
        return []
    return [
        f"hardly any {family.rare_events}, or none: about {typical:.2g} a row, within a factor of"
        f" {math.exp(min(2 * stddevs[0], 20)):.0f}, so that there is little to tell effects from"
    ]


def of_survey(fit: Fit) -> list[str]:
    """Columns that the survey doubts."""
    messages = []
    for survey in _surveys(fit):
        messages += [f"the survey says of {problem}" for problem in survey.problems]
        messages += [
            f"{subject.name}: the survey could not see how far its values reach, because nearly all rows have one value"
            " or because the bounds are wide for so small a budget: its coefficient is not to be trusted; release again"
            " with more budget or tighter bounds"
            for subject, place in zip(survey.subjects, survey.places, strict=True)
            if not place.seen
        ]
    return messages


def of_levels(fit: Fit) -> list[str]:
    """Levels that hardly occur."""
    messages = []
    for release in fit.releases:
        assert release.survey_record is not None
        survey = release.survey_record.survey
        for subject, place in zip(survey.subjects, survey.places, strict=True):
            rare = [
                str(level)
                for level, share in zip(getattr(subject.source, "levels", ()), place.shares, strict=False)
                if share < _RARE * place.stddev
            ]
            if rare:
                messages.append(
                    f"{subject.name}: the survey cannot tell whether any row has {_listed(rare)} (fewer than about"
                    f" {2 * _RARE * place.stddev * release.num_rows:.0f} rows): what is said of it leans on the prior"
                )
    return messages


def of_missing(fit: Fit) -> list[str]:
    """A noticeable share of rows that do not count, and columns of which a fill stands for many cells."""
    messages = []
    for release in fit.releases:
        messages += _rows_left_out(release)
        record = release.survey_record
        assert record is not None
        noise = record.survey.stddev / release.num_rows
        for column, missing in zip(record.design.table_columns, record.survey.missing, strict=True):
            share = missing / release.num_rows
            filled = column.fill is not None and not column.missing_is_level
            if filled and share - _CLEARLY * noise > _MANY_MISSING:
                messages.append(
                    f"{column.name}: about {100 * share:.0f} % of its cells hold no value, and each was taken for"
                    f" {column.fill}: what is said of it leans on that"
                )
    return messages


def of_bounds(fit: Fit) -> list[str]:
    """Declared bounds at which values pile up."""
    found = [
        (heap, release)
        for release in fit.releases
        if release.survey_record is not None
        for heap in heaps(release.survey_record)
    ]
    return [
        f"{heap.name}: about {heap.share:.0%} of its values are at its {heap.side} bound, {_bound_text(heap, release)},"
        " far more than lead up to it: unless nothing can lie beyond, values were clamped, and its effect may be"
        " misread; ask for a release with wider bounds"
        for heap, release in found
    ]


def _bound_text(heap: Heap, release: Release) -> str:
    column = release.design.schema.columns.get(heap.name.strip("`"))
    return str(date_of(heap.bound)) if column is not None and column.dates else f"{heap.bound:,.12g}"


def _rows_left_out(release: Release) -> list[str]:
    number, stddev = release.counted
    share = 1 - number / release.num_rows
    if release.design.every_row_counts or share < max(_NOTICEABLE, _RARE * stddev / release.num_rows):
        return []
    told = "are outside of the condition or lack a value" if release.design.where else "lack a value"
    return [
        f"about {share:.0%} of {release.num_rows:,} rows {told} and do not count: the estimates are of the others, who"
        " may differ"
    ]


def _surveys(fit: Fit) -> list[Survey]:
    return [release.survey_record.survey for release in fit.releases if release.survey_record is not None]


def _deciding_warnings(fit: Fit) -> list[str]:
    """Levels that may all but decide an outcome of two levels: looks are linear and cannot tell how far that goes."""
    if fit.releases[0].design.family.outcome_limits != (0.0, 1.0):
        return []
    matrix, _ = fit.releases[0].design.to_original_units()
    means, stddevs = _moments(fit, matrix)
    columns = [column for term in fit.releases[0].design.terms for column in term.columns]
    levels = {column.name for column in columns if all(isinstance(factor.source, Column) for factor in column.factors)}
    # One standard deviation further it would, or two where the effect is clearly not zero; where the deviation itself
    # is as large as that, the interval reaches from nothing to an effect that decides.
    deciding, open_ended = [], []
    for name, mean, stddev in zip(fit.names, np.abs(means), stddevs, strict=True):
        if name not in levels:
            continue
        if mean > stddev and mean + (2 if mean > 2 * stddev else 1) * stddev > _DECIDING:
            deciding.append(name)
        elif stddev > _DECIDING:
            open_ended.append(name)
    messages = []
    if deciding:
        messages.append(
            f"{_listed(deciding)} all but decides the outcome, or may: read its effect as at least so large, its"
            " interval says nothing of how much larger it may be"
        )
    if open_ended:
        messages.append(
            f"{_listed(open_ended)}: the release cannot tell no effect from one that decides the outcome; release again"
            " with more budget"
        )
    return messages


def of_prior(fit: Fit) -> list[str]:
    """Where the posterior is the prior, and where the release's own estimate is far from the prior's zero.

    Of a normal prior and a normal likelihood: with r = sd^2 / scale^2 that estimate is mean / (1 - r), and its variance
    with the prior's scale^2 / (1 - r).
    """
    if not isinstance(fit.prior, NormalPrior):
        return []
    names, (mean, stddev), scales = np.array(fit.names), _moments(fit), fit.prior.scales(fit.names)
    if fit.closed is not None:  # the prior of an intercept is around the survey's
        mean = mean - fit.closed.prior.mean
    share = stddev / scales
    left = np.maximum(1 - share**2, 0.01)  # not zero where the posterior is the prior
    apart = np.abs(mean) / (scales * np.sqrt(left))
    # A posterior as wide as the prior, and within it, is the prior's: what little moved it is not worth a conflict.
    is_prior = (share > _PRIOR_SHARE) & ((apart <= _CONFLICT) | (np.abs(mean) < _WITHIN * scales))
    is_torn = (apart > _CONFLICT) & ~is_prior
    torn, weak = list(names[is_torn]), list(names[is_prior])
    messages = []
    if len(weak):
        messages.append(f"the release says little about {_listed(weak)}: the posterior is close to the prior")
    if len(torn):
        farthest = apart[is_torn].max()
        number = f"{farthest:.1f}" if farthest < _FAR_APART else f"more than {_FAR_APART}"
        messages.append(
            f"prior and release disagree about {_listed(torn)}, by {number} standard deviations: the posterior is"
            " a compromise that few would share; use a wider prior"
        )
    return messages


def _discrepancy_warnings(fit: Fit) -> list[str]:
    """How far a match of moments may be off: it is right for Gaussian predictors and a right regression only."""
    mean, stddev = _moments(fit)
    size = float(np.sqrt(np.mean(mean**2)))
    share = fit.releases[0].design.family.moments_discrepancy
    spread = float(np.median(stddev))
    ratio = share * size / spread if spread > 0 else 0.0
    if ratio < 1:
        return []
    return [
        f"moments assume Gaussian predictors; on real tables their coefficients were off by up to {share:.0%} of their"
        f" typical size, here {ratio:.1f} posterior standard deviations: read the intervals as too narrow where columns"
        " are binary or skewed"
    ]


def _size_warnings(release: Release) -> list[str]:
    """Where the normal approximation of the sums is doubtful."""
    dimension = release.design.dimension
    if release.num_rows < 20 * (dimension + 1):
        return [f"{release.num_rows} rows for {dimension} columns: the normal approximation of the sums is doubtful"]
    total = {(block.y_power, block.degree): block.values for block in release.blocks}.get((1, 0))
    family = release.design.family
    if total is None or family.rare_events is None:
        return []
    events = float(total[0]) if family.coding == "count" else (release.num_rows - abs(float(total[0]))) / 2
    if events < 10 * (dimension + 1):
        return [f"about {max(events, 0):.0f} {family.rare_events}: the normal approximation of the sums is doubtful"]
    return []


def _moments(fit: Fit, matrix: Floats | None = None) -> tuple[Floats, Floats]:
    """Posterior means and standard deviations, scaled units, or of a matrix times them: of a normal posterior exactly,
    so that no seed decides.
    """
    turn = np.eye(len(fit.names)) if matrix is None else matrix
    if fit.closed is not None and isinstance(fit.prior, NormalPrior):
        posterior = fit.closed.posterior
        return turn @ posterior.mean, np.sqrt(np.einsum("ij,jk,ik->i", turn, posterior.covariance, turn))
    draws = fit.coefficients.reshape(-1, len(fit.names)) @ turn.T
    return draws.mean(axis=0), draws.std(axis=0)


def _listed(names: Sequence[str]) -> str:
    """Names, and of many how many more."""
    shown = list(names[:_MOST_NAMED])
    return ", ".join(shown if len(names) == len(shown) else [*shown, f"and {len(names) - len(shown)} more"])
