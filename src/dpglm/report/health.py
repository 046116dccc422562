"""Can the numbers be trusted? What the sampler says about itself, or the looks and the survey about each other.

A check of looks is bad where ``fit.warnings`` has something to say about its subject, and only there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpglm.analyst.cautions import (
    LEAST_CHANCE,
    WANTED_ESS,
    most_spread,
    of_agreement,
    of_bounds,
    of_levels,
    of_missing,
    of_prior,
    of_strength,
    of_survey,
)
from dpglm.analyst.labels import expression_title
from dpglm.analyst.result import Fit
from dpglm.expressions import Expression
from dpglm.formats import noisy_share, some
from dpglm.releases import Release

LARGEST_R_HAT, LARGEST_PARETO_K, LARGEST_DIVERGENT_SHARE = 1.01, 0.7, 0.001
_MOSTLY_BOUNDING = 0.5  # of a variance


@dataclass(frozen=True)
class Health:
    """One check: what was found, whether it is good, and what it means."""

    label: str
    value: str
    good: bool
    words: str


def health_of(fit: Fit) -> tuple[Health, ...]:
    """R-hat, effective draws and divergences, or what a Laplace approximation has instead."""
    diagnostics = fit.diagnostics
    chains, draws = fit.coefficients.shape[:2]
    if diagnostics is None:
        return _of_looks(fit)
    if fit.method == "laplace":
        k = diagnostics.pareto_k if diagnostics.pareto_k is not None else math.nan
        good = k < LARGEST_PARETO_K
        words = "The Gaussian approximation fits." if good else "The approximation is not to be trusted: use NUTS."
        found = "Found." if diagnostics.mode_converged else "No clear peak was found: use NUTS."
        return (
            Health("Pareto k", f"{k:.2f}", good, f"{words} It should be below {LARGEST_PARETO_K}."),
            Health("Peak", "yes" if diagnostics.mode_converged else "no", diagnostics.mode_converged, found),
        )
    r_hat = float(np.max(diagnostics.r_hat))
    ess = float(min(diagnostics.ess_bulk.min(), diagnostics.ess_tail.min()))
    share = diagnostics.divergences / (chains * draws)
    if math.isnan(r_hat):
        agreement = Health("R-hat", "none", False, "One chain has nothing to agree with: run four.")
    else:
        good = r_hat <= LARGEST_R_HAT
        words = f"The {chains} chains agree." if good else "The chains disagree: run longer before you use this."
        agreement = Health("Largest R-hat", f"{r_hat:.3f}", good, f"{words} It should be at most {LARGEST_R_HAT}.")
    enough = ess >= WANTED_ESS
    words = "Enough for stable interval ends." if enough else "Interval ends may still move: run longer."
    smooth = share <= LARGEST_DIVERGENT_SHARE
    tails = "The sampler met no obstacle." if smooth else "The tails may be missed: read intervals with care."
    return (
        agreement,
        Health(
            "Fewest effective draws",
            f"{ess:,.0f}" if math.isfinite(ess) else "n/a",
            enough,
            f"{words} {WANTED_ESS:,} are wanted.",
        ),
        Health("Divergent steps", f"{diagnostics.divergences:,} of {chains * draws:,}", smooth, tails),
    )


def _of_looks(fit: Fit) -> tuple[Health, ...]:
    """Looks, missing values, rows that lie far out, declared bounds, rare levels, the prior, strong effects."""
    return (_agreement(fit), _missing(fit), _far_rows(fit), _bounds(fit), _survey(fit), _prior(fit), _strength(fit))


def _agreement(fit: Fit) -> Health:
    assert fit.closed is not None
    chance = float(fit.closed.surprises.min()) if fit.closed.surprises.size else 1.0
    agree = not of_agreement(fit)
    words = "Each look found what the ones before it pointed to." if agree else "A look missed what others pointed to."
    shown = f"{chance:.2f}" if chance >= 0.01 else f"{chance:.0e}"
    return Health("Agreement of looks", shown, agree, f"{words} The chance should be above {LEAST_CHANCE:g}.")


def _missing(fit: Fit) -> Health:
    """Of the table that lacks most: how many rows count, or where all do, which column lacks most cells."""
    found: list[tuple[float, str, str]] = []
    for release in fit.releases:
        record = release.survey_record
        assert record is not None
        rows, noise = release.num_rows, record.survey.stddev / release.num_rows
        if not release.design.every_row_counts:
            number, stddev = release.counted
            found.append((1 - number / rows, f"{noisy_share(number / rows, stddev / rows)} of the rows count", ""))
            continue
        share, title = max(
            (missing / rows, column.title)
            for column, missing in zip(record.design.table_columns, record.survey.missing, strict=True)
        )
        words = f"No column clearly lacks many; the survey sees most in {title}, through its noise."
        found.append((share, f"{noisy_share(share, noise)} in a column at most", words))
    _, value, words = max(found)
    messages = of_missing(fit)
    return Health(
        "Missing values", value, not messages, f"{_told(messages) or words} {_fill_words(fit.releases[0])}".strip()
    )


def _fill_words(release: Release) -> str:
    """What the schema does with a missing value."""
    columns = release.design.table_columns
    levels = [column.title for column in columns if column.missing_is_level]
    dropped = [column.title for column in columns if column.fill is None]
    filled = [column for column in columns if column.fill is not None and not column.missing_is_level]
    parts = [f"A row without a value in {some(dropped, 4)} does not count."] if dropped else []
    if filled:
        shown = [f"{column.title}: {_shown(column.fill)}" for column in filled]
        parts.append(f"A missing value was taken for the declared fill ({some(shown, 4)}).")
    parts += [f"A missing value of {some(levels, 4)} is a level of its own."] if levels else []
    return " ".join(parts)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _far_rows(fit: Fit) -> Health:
    """How much of the variance stands for what bounding shifts."""
    assert fit.closed is not None
    share = np.diag(fit.closed.bounding) / np.diag(fit.closed.posterior.covariance)
    worst = int(np.argmax(share))
    part = 100 * (1 - math.sqrt(max(1 - float(share[worst]), 0.0)))
    good = float(share[worst]) <= _MOSTLY_BOUNDING
    words = (
        "Rows that lie far from the others are drawn in before they are added. Intervals are wider for what that may"
        f" shift, most of all that of {fit.names[worst]}."
    )
    return Health("Rows that lie far out", f"≤ {max(part, 0.1):.1f} % of a width", good, words)


def _bounds(fit: Fit) -> Health:
    """Whether the survey sees usual values at a declared bound, where larger ones would have been clamped."""
    near = []
    for release in fit.releases:
        survey = release.survey_record.survey if release.survey_record is not None else None
        for subject, place in () if survey is None else zip(survey.subjects, survey.places, strict=True):
            source = subject.source
            if isinstance(source, Expression):
                above, below = place.centre + place.scale >= source.upper, place.centre - place.scale <= source.lower
                if above or (below and source.lower != 0):
                    near.append(expression_title(source, release.design.schema))
    words = "Values outside the declared bounds were clamped to them. "
    messages = of_bounds(fit)
    if messages:
        return Health("Declared bounds", "too tight?", False, words + _told(messages))
    words += (
        f"Usual values of {some(list(dict.fromkeys(near)), 4)} reach one: if real ones go further, ask the custodian."
        if near
        else "The survey sees the usual values well inside."
    )
    return Health("Declared bounds", "reached" if near else "wide enough", True, words)


def _survey(fit: Fit) -> Health:
    messages = of_levels(fit) + of_survey(fit)
    words = _told(messages) or "Every level has rows, and the scale of every number was seen."
    return Health("Rare levels, unseen scales", str(len(messages)) if messages else "none", not messages, words)


def _prior(fit: Fit) -> Health:
    messages = of_prior(fit)
    words = _told(messages) or "Every coefficient is told by the release; the prior hardly has a say."
    return Health("What the prior decides", str(len(messages)) if messages else "nothing", not messages, words)


def _strength(fit: Fit) -> Health:
    messages = of_strength(fit)
    words = _told(messages) or f"No effect all but decides the outcome. It should be below {most_spread(fit):g}."
    return Health("Spread of the linear predictor", f"{fit.predictor_stddev:.2f}", not messages, words)


def _told(messages: Sequence[str]) -> str:
    """What was found, once: the notes at the top have it in full."""
    if len(messages) < 2:
        return "".join(f"{message}." for message in messages)
    return f"{messages[0]}. {len(messages) - 1} more such notes are at the top."
