"""The sentences of a report: question, findings, what privacy costs, a methods paragraph, how to reproduce it."""

from __future__ import annotations

import json
import math
import re
import shlex
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpglm.analyst.closed_form import CLOSED_FORM
from dpglm.analyst.labels import expression_title, outcome_title
from dpglm.analyst.marginal import TYPICAL_ROWS
from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior, distribution_text
from dpglm.analyst.result import UNITS, Fit
from dpglm.analyst.typical import predictors, reference_point
from dpglm.expressions import Expression
from dpglm.formats import listed, number, small, some
from dpglm.formula import Design
from dpglm.releases import Release
from dpglm.report.effects import is_additive
from dpglm.report.summary import Coefficient, Estimate, Summary
from dpglm.schema import Column
from dpglm.values import Level, date_of

REFERENCES = (
    "Kulkarni, Jälkö, Koskela, Kaski, Honkela (2021). Differentially Private Bayesian Inference for Generalized Linear"
    " Models. International Conference on Machine Learning.",
    "Dong, Roth, Su (2022). Gaussian Differential Privacy. Journal of the Royal Statistical Society, Series B, 84(1).",
)
_LIBRARIES = {"looks": ("dpglm", "numpy", "scipy"), "moments": ("dpglm", "numpyro", "jax", "numpy", "arviz")}


def outcome_words(design: Design) -> str:
    """What is predicted: a probability, an expected count or a mean."""
    source = design.outcome.source
    if isinstance(source, Column):
        return f"probability that {source.title} is {source.levels[design.outcome.level]}"
    return f"expected value of {outcome_title(design)}"


def question(design: Design) -> str:
    """The regression as a question."""
    source = design.outcome.source
    what = f"{source.title} ({_against(source, design)})" if isinstance(source, Column) else outcome_title(design)
    return f"How does {what} depend on {some([column.title for column in predictors(design)])}?"


def _against(column: Column, design: Design) -> str:
    level = design.outcome.level
    return f"{column.levels[level]} rather than {column.levels[1 - level]}"


def findings(summary: Summary) -> list[str]:
    """A few sentences: which effects have a clear sign, which do not."""
    design = summary.fit.releases[0].design
    clear = [each for each in summary.slopes if each.units[UNITS[0]].clear]
    open_ = [each for each in summary.slopes if not each.units[UNITS[0]].clear]
    sentences = []
    for up in (True, False):
        found = [each for each in clear if (each.units[UNITS[0]].positive >= 0.5) == up]
        if found and is_additive(design):
            sentences.append(_direction(found, up, design))
        elif found:
            sentences.append(
                f"Clearly {'above' if up else 'below'} zero: {some([each.named.label for each in found])}."
            )
    if open_:
        stay = "their signs stay open" if len(open_) > 1 else "its sign stays open"
        names = some([each.named.label for each in open_])
        sentences.append(f"For {names} the {100 * summary.prob:g} % interval holds zero: {stay}.")
    return sentences


def _direction(found: list[Coefficient], up: bool, design: Design) -> str:
    """Where the outcome goes with numbers, and for which levels it is higher or lower than for which."""
    columns = {column.name: column for term in design.terms for column in term.columns}
    numbers: list[str] = []
    levels: dict[tuple[str, str | None], list[str]] = {}
    for each in found:
        (factor,) = columns[each.name].factors
        if isinstance(factor.source, Expression):
            numbers.append(expression_title(factor.source, design.schema))
        else:
            own = levels.setdefault((factor.source.title, each.named.versus), [])
            own.append(str(factor.source.levels[factor.level]))
    parts = [f"goes {'up' if up else 'down'} with {some(numbers)}"] if numbers else []
    compared = [
        f"where {title} is {some(own, word='or')}" + ("" if versus is None else f" than where it is {versus}")
        for (title, versus), own in levels.items()
    ]
    if compared:
        parts.append(f"is {'higher' if up else 'lower'} {some(compared)}")
    return f"The {outcome_words(design)} {'; it '.join(parts)}."


def inflation_words(summary: Summary, units: str) -> str:
    """What privacy costs, in widths and in rows."""
    values = [each.units[units].inflation for each in summary.slopes]
    values = sorted(value for value in values if math.isfinite(value))
    if not values:
        return "How much of the width is privacy could not be worked out for this fit."
    low, high = max(values[0], 1.0), max(values[-1], 1.0)
    rows = sorted(summary.rows / max(value, 1.0) ** 2 for value in (low, high))
    span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    about = [f"{min(float(f'{each:.2g}'), summary.rows):,.0f}" for each in rows]
    equal = about[0] if about[0] == about[1] else f"{about[0]} to {about[1]}"
    return (
        f"Privacy noise makes the intervals {span} times as wide as they would be without it. That is about as much as"
        f" a study of {equal} of the {summary.rows:,} rows, without privacy, would tell."
    )


def interval_words(estimate: Estimate, prob: float) -> str:
    """Mean and interval on one line."""
    return f"{number(estimate.mean)} ({100 * prob:g} %: {number(estimate.lower)} to {number(estimate.upper)})"


def unit_words(units: str, summary: Summary) -> str:
    """What one unit of a coefficient is."""
    family = summary.fit.releases[0].design.family
    effect = family.effect if summary.fit.link == family.link else "linear predictor"
    if units == "original":
        return (
            f"Change of the {effect} for a step of a number, as named beside it, or for this level instead of the one"
            " that it is compared with (vs.). Steps are round numbers near the column's scale: all share one scale."
        )
    if summary.fit.closed is not None:
        return (
            "Columns are in standard units: centred and divided by the scale that the survey shows. Change of the"
            f" {effect} for one such unit; all rows share one scale, so sizes compare."
        )
    return (
        "Columns are scaled by their declared bounds: a number runs from −1 to 1, two levels are −1 and 1, more"
        f" levels 0 or 1. Change of the {effect} for one such unit; all rows share one scale, so sizes compare."
    )


def average_words(summary: Summary) -> str:
    """What average marginal effects are, and over what."""
    design = summary.fit.releases[0].design
    unit = "percentage points" if design.family.outcome_limits == (0.0, 1.0) else "units of the outcome"
    return (
        f"By how much the {outcome_words(design)} changes when one predictor changes and the rest stays as it is, in"
        f" {unit}: {TYPICAL_ROWS}. No row of the table was used."
    )


def shown_value(value: Level, column: Column) -> str:
    """A value of a predictor as text."""
    if column.has_levels or isinstance(value, str | bool):
        return str(value)
    return date_of(float(value)) if column.dates else f"{float(value):.6g}"


def reference_words(summary: Summary) -> str:
    """Where the other predictors stand in the plots of effects."""
    columns = summary.fit.releases[0].design.schema.columns
    values = [
        f"{columns[name].title} = {shown_value(value, columns[name])}" for name, value in summary.reference.items()
    ]
    return f"The other predictors stay at {listed(values)}."


def span_words(summary: Summary) -> str:
    """How far numbers run in the plots of effects."""
    if summary.fit.closed is None:
        return "between its declared bounds"
    return "as far as two scales to each side of its centre, as the survey shows them"


def choice_words(summary: Summary) -> str:
    """Where these points come from."""
    if summary.fit.closed is None:
        return "These points are public choices, not values of the table."
    return "These are typical values: centres and most common levels, as the noisy survey shows them."


def prior_words(fit: Fit) -> str:
    """The prior, for a methods section."""
    prior = fit.prior
    if isinstance(prior, NormalPrior):
        around = "" if fit.closed is None else ", the latter around the value that the survey shows"
        return (
            "independent normal priors with mean 0 and standard deviation"
            f" {prior.slopes:g} (slopes) and {prior.intercept:g} (intercept){around}"
        )
    if isinstance(prior, SphericalPrior):
        return (
            "a spherical prior (uniform direction, squared norm chi-square truncated at"
            f" {prior.largest_squared_norm:g}) and a normal prior with standard deviation {prior.intercept:g} for the"
            " intercept"
        )
    chosen = [f"{name}: {distribution_text(each)}" for name, each in prior.distributions]
    return f"priors chosen by hand ({'; '.join(chosen)})"


def privacy_words(release: Release) -> str:
    """The guarantee in the notation of a paper."""
    privacy = release.privacy
    if not release.private:
        return "which is NOT private (fixed noise, for tests)"
    return (
        f"which satisfies (ε = {privacy.epsilon:g}, δ = {small(privacy.delta)})-differential privacy for the"
        f" replacement of one row (μ = {privacy.mu:.3g} in Gaussian differential privacy, ρ = {privacy.rho:.3g} in"
        " zero-concentrated differential privacy)"
    )


def methods(summary: Summary) -> str:
    """A paragraph that can be pasted into a paper."""
    fit = summary.fit
    design = fit.releases[0].design
    how = _by_moments(summary) if fit.closed is None else _by_looks(fit)
    return (
        f"We fitted a Bayesian {design.family.regression} with {fit.link} link ({design.formula}) to {_tables(fit)}."
        f" {how} Intervals are equal-tailed {100 * summary.prob:g} % posterior intervals."
    )


def _by_looks(fit: Fit) -> str:
    text = (
        "A release consists of a survey and of looks. The survey counts, with noise, how many rows lie in chosen ranges"
        " of each column; it gives every column a centre and a scale, by which it is standardised. A look is the sum"
        " of the rows' scores, of their information and of the scores' squares, each row's part bounded, at the"
        " estimate that the looks before it gave, plus discrete Gaussian noise; no row was seen in the analysis. Each"
        " look was linearised around the estimate, and all were combined by their precision into a Gaussian likelihood"
        " that accounts for privacy noise and, with a sandwich covariance, for sampling error (after Kulkarni et al."
        f" 2021; dpglm {_installed('dpglm')}), with {prior_words(fit)}, on standardised columns."
    )
    chains, draws, _ = fit.coefficients.shape
    if fit.method == CLOSED_FORM:
        return f"{text} The posterior is normal and was computed in closed form."
    return f"{text} We drew {chains * draws:,} draws by elliptical slice sampling."


def _by_moments(summary: Summary) -> str:
    fit = summary.fit
    text = (
        "A release consists of sums of low-order products of the columns, clamped to publicly declared bounds, plus"
        " discrete Gaussian noise; no row was seen in the analysis. "
    )
    if fit.options.get("noise_aware", True):
        text += (
            "The coefficients were inferred from the released sums alone, treating the true sums as unknown, so that"
            " intervals account for sampling error and for privacy noise (Kulkarni et al. 2021; dpglm"
            f" {_installed('dpglm')})"
        )
    else:
        text += f"The privacy noise was ignored in the inference (dpglm {_installed('dpglm')})"
    text += f", with {prior_words(fit)}, on columns scaled by their bounds"
    special = {"taylor": "a Taylor expansion of the moments", "numeric": "numerical moments"}
    moments = str(fit.options.get("moments", "exact"))
    if moments in special:
        text += f", and {special[moments]}"
    if fit.options.get("dispersion") is not None and fit.releases[0].design.family.coding == "count":
        text += f", and dispersion {fit.options['dispersion']}"
    return f"{text}. {_sampler(summary)}"


def means(release: Release) -> str:
    """What a release holds, in two words."""
    return "moments" if release.method == "moments" else f"a survey and {len(release.stages)} looks"


def _tables(fit: Fit) -> str:
    parts = []
    for release in fit.releases:
        dataset = release.design.schema.dataset
        kind = "differentially private " if release.private else ""
        counted = "" if release.design.every_row_counts else f", of which about {release.counted.number:,.0f} count"
        rows = f"{'= ' if dataset.number is not None else 'about '}{release.num_rows:,}"
        parts.append(
            f"a {kind}release by {means(release)} of “{dataset.name}” (N {rows}{counted}; one {dataset.counted[:-1]} is"
            f" {dataset.unit}), {privacy_words(release)}"
        )
    return listed(parts)


def _sampler(summary: Summary) -> str:
    fit = summary.fit
    chains, draws, _ = fit.coefficients.shape
    if fit.method == "laplace":
        return f"The posterior was approximated by a Gaussian at its mode (Pareto k {summary.health[0].value})."
    values = {each.label: each.value for each in summary.health}
    checks = "; ".join(f"{label[0].lower()}{label[1:]}: {value}" for label, value in values.items())
    return f"We drew {chains} chains of {draws:,} draws with the No-U-Turn sampler ({checks})."


def reproduce(summary: Summary) -> str:
    """Commands that give this fit and this page again, from the release files."""
    fit = summary.fit
    chains, draws, _ = fit.coefficients.shape
    options = fit.options
    files = [f"{release.id}.release.json" for release in fit.releases]
    seed = options.get("seed", 0)
    unusual = {
        key: value for key, value in options.items() if (key, value) in (("moments", "taylor"), ("moments", "numeric"))
    } | ({} if options.get("noise_aware", True) else {"noise_aware": False})
    chosen = {key: options[key] for key in ("link", "dispersion") if options.get(key) is not None}
    if fit.prior == NormalPrior() and not unusual and not isinstance(chosen.get("dispersion"), str):
        arguments = ["dpglm", "fit", *files]
        sampled = {"method": fit.method, "draws": draws, "chains": chains} if fit.closed is None else {"draws": draws}
        for key, value in {**chosen, **sampled, "seed": seed}.items():
            if (key, value) not in (("method", "nuts"), ("chains", 4)) and (key, fit.method) != ("chains", "laplace"):
                arguments += [f"--{key}", str(value)]
        report = ["dpglm", "report", "again.fit.npz"]
        if summary.prob != 0.95:
            report += ["--prob", f"{summary.prob:g}"]
        usual = reference_point(fit.releases[0])
        for name, value in summary.reference.items():
            report += [] if value == usual[name] else ["--at", f"{name}={value}"]
        both = ([*arguments, "--output", "again.fit.npz"], [*report, "--output", "again.html"])
        return "\n".join(" ".join(shlex.quote(part) for part in command) for command in both)
    keywords: dict[str, Any] = {**chosen, **unusual, "draws": draws, "seed": seed}
    keywords |= {"method": fit.method} if fit.closed is None else {}
    keywords |= {"chains": chains} if fit.method != "laplace" else {}
    given = "".join(f", {key}={value!r}" for key, value in keywords.items())
    prior = "" if fit.prior == NormalPrior() else f", prior={_prior_code(fit.prior)}"
    loaded = ", ".join(f"dpglm.load_release({file!r})" for file in files)
    return f"fit = dpglm.fit([{loaded}]{prior}{given})\ndpglm.report(fit, 'again.html')"


def _prior_code(prior: NormalPrior | SphericalPrior | CustomPrior) -> str:
    if isinstance(prior, CustomPrior):
        texts = {name: distribution_text(each) for name, each in prior.distributions}
        texts = {name: re.sub(r"\b([A-Z]\w*\()", r"numpyro.distributions.\1", text) for name, text in texts.items()}
        code = {name: text if text.endswith(")") else "..." for name, text in texts.items()}
        return "{" + ", ".join(f"{name!r}: {each}" for name, each in code.items()) + "}"
    return f"dpglm.{prior!r}"


def checksum(release: Release) -> str:
    """The digest that the release file carries."""
    return str(json.loads(release.to_json())["checksum"])


def versions(fit: Fit) -> dict[str, str]:
    """What made this fit and wrote this page."""
    return {name: _installed(name) for name in _LIBRARIES[fit.releases[0].method]}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
