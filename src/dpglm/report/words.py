"""The sentences of a report: question, findings, what privacy costs, a methods paragraph, how to reproduce it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior, distribution_text
from dpglm.analyst.result import UNITS, Fit
from dpglm.formula import Design
from dpglm.release_file import Release
from dpglm.report.effects import predictors, reference_point
from dpglm.report.summary import Estimate, Summary
from dpglm.schema import Column, Level

REFERENCES = (
    "Kulkarni, Jälkö, Koskela, Kaski, Honkela (2021). Differentially Private Bayesian Inference for Generalized Linear"
    " Models. International Conference on Machine Learning.",
    "Dong, Roth, Su (2022). Gaussian Differential Privacy. Journal of the Royal Statistical Society, Series B, 84(1).",
)
_LIBRARIES = ("dpglm", "numpyro", "jax", "numpy", "arviz")
_REGRESSIONS = {"logistic": "logistic regression", "poisson": "count regression", "linear": "linear regression"}


def number(value: float, digits: int = 3) -> str:
    """A number as people write it: three digits that matter, no exponent where none is needed, a true minus sign."""
    return plain_number(value, digits).replace("-", "−")


def plain_number(value: float, digits: int = 3) -> str:
    """The same with an ordinary hyphen, as programs read it.

    >>> plain_number(0.0451234), plain_number(-6.474), plain_number(123456.0), plain_number(1e-9)
    ('0.0451', '-6.47', '123456', '1.00e-09')
    """
    if not math.isfinite(value):
        return "n/a"
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    decimals = 0 if value == 0 else max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def times(factor: float) -> str:
    """How many times as wide; never less than once."""
    return f"{max(factor, 1.0):.2f} ×" if math.isfinite(factor) else "n/a"


def count(number_of: float) -> str:
    """A number of things, with separators."""
    return f"{number_of:,.0f}" if math.isfinite(number_of) else "n/a"


def small(value: float) -> str:
    """A tiny probability without the padding of its exponent.

    >>> small(1e-06)
    '1e-6'
    """
    return f"{value:g}".replace("e-0", "e-")


def percent(share: float, draws: int) -> str:
    """A probability estimated by draws: never exactly 0 or 100 %."""
    finest = max(0.001, 1 / draws)
    if share > 1 - finest:
        return f"> {100 * (1 - finest):.1f} %"
    if share < finest:
        return f"< {100 * finest:.1f} %"
    return f"{100 * share:.1f} %"


def listed(items: Sequence[str]) -> str:
    """``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def outcome_words(design: Design) -> str:
    """What is predicted: a probability, an expected count or a mean."""
    source = design.outcome.source
    if isinstance(source, Column):
        return f"probability that {source.name} is {source.levels[design.outcome.level]}"
    return f"expected value of {design.outcome.name}"


def question(design: Design) -> str:
    """The regression as a question."""
    source = design.outcome.source
    what = f"{source.name} ({_against(source, design)})" if isinstance(source, Column) else design.outcome.name
    return f"How does {what} depend on {listed([column.name for column in predictors(design)])}?"


def _against(column: Column, design: Design) -> str:
    level = design.outcome.level
    return f"{column.levels[level]} rather than {column.levels[1 - level]}"


def findings(summary: Summary) -> list[str]:
    """Two or three sentences: which effects have a clear sign, which do not, what privacy costs."""
    slopes = [each for each in summary.coefficients if each.name != "Intercept"]
    estimates = [(each.name, each.units[UNITS[0]]) for each in slopes]
    up = [name for name, estimate in estimates if estimate.clear and estimate.positive >= 0.5]
    down = [name for name, estimate in estimates if estimate.clear and estimate.positive < 0.5]
    open_ = [name for name, estimate in estimates if not estimate.clear]
    design = summary.fit.releases[0].design
    sentences = []
    for names, direction, side in ((up, "up", "above"), (down, "down", "below")):
        if names and _is_additive(design):
            sentences.append(f"The {outcome_words(design)} goes {direction} with {listed(names)}.")
        elif names:
            sentences.append(f"Clearly {side} zero: {listed(names)}.")
    if open_:
        stay = "their signs stay open" if len(open_) > 1 else "its sign stays open"
        sentences.append(f"For {listed(open_)} the {100 * summary.prob:g} % interval holds zero: {stay}.")
    return sentences


def _is_additive(design: Design) -> bool:
    """Whether each coefficient speaks for itself: no products, and no column in two terms."""
    by_term = [[factor for column in term.columns for factor in column.factors] for term in design.terms]
    used = [{name for factor in factors for name in factor.column_names} for factors in by_term]
    single = all(len(column.factors) == 1 for term in design.terms for column in term.columns)
    return single and sum(map(len, used)) == len(set().union(*used))


def inflation_words(summary: Summary, units: str) -> str:
    """What privacy costs, in widths and in rows."""
    values = [each.units[units].inflation for each in summary.coefficients if each.name != "Intercept"]
    values = sorted(value for value in values if math.isfinite(value))
    if not values:
        return "How much of the width is privacy could not be worked out for this fit."
    low, high = max(values[0], 1.0), max(values[-1], 1.0)
    rows = sorted(summary.rows / max(value, 1.0) ** 2 for value in (low, high))
    span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    about = [f"{float(f'{each:.2g}'):,.0f}" for each in rows]
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
    effect = {"odds_ratio": "log odds", "rate_ratio": "log rate"}.get(summary.ratio_name or "", "linear predictor")
    if summary.fit.link == "identity":
        effect = "outcome"
    if units == "original":
        return (
            f"Change of the {effect} for one more unit of the column as it is in the table, or for this level instead"
            " of the reference level. Each row has its own scale, so that small units stay visible."
        )
    return (
        "Columns are scaled by their declared bounds: a number runs from −1 to 1, two levels are −1 and 1, more"
        f" levels 0 or 1. Change of the {effect} for one such unit; all rows share one scale, so sizes compare."
    )


def shown_value(value: Level, column: Column) -> str:
    """A value of a predictor as text."""
    return str(value) if column.has_levels or isinstance(value, str | bool) else f"{float(value):.6g}"


def reference_words(summary: Summary) -> str:
    """Where the other predictors stand in the plots of effects."""
    columns = summary.fit.releases[0].design.schema.columns
    values = [f"{name} = {shown_value(value, columns[name])}" for name, value in summary.reference.items()]
    return f"The other predictors stay at {listed(values)}."


def prior_words(fit: Fit) -> str:
    """The prior, for a methods section."""
    prior = fit.prior
    if isinstance(prior, NormalPrior):
        return (
            "independent normal priors with mean 0 and standard deviation"
            f" {prior.slopes:g} (slopes) and {prior.intercept:g} (intercept)"
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
    text = (
        f"We fitted a Bayesian {_REGRESSIONS[design.family.name]} with {fit.link} link ({design.formula})"
        f" to {_tables(fit)}. A release consists of sums of low-order products of the columns, clamped to publicly"
        " declared bounds, plus discrete Gaussian noise; no row was seen in the analysis. "
    )
    if any(len(release.stages) > 1 for release in fit.releases):
        text += (
            "Later stages are sums of the rows' scores and information, of bounded leverage, at a centre that the"
            " earlier stages showed, with noise of the same kind. "
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
    if fit.options.get("dispersion") is not None and design.family.name == "poisson":
        text += f", and dispersion {fit.options['dispersion']}"
    return f"{text}. {_sampler(summary)} Intervals are equal-tailed {100 * summary.prob:g} % posterior intervals."


def _tables(fit: Fit) -> str:
    parts = []
    for release in fit.releases:
        dataset = release.design.schema.dataset
        kind = "differentially private " if release.private else ""
        stages = f" in {len(release.stages)} stages" if len(release.stages) > 1 else ""
        parts.append(
            f"a {kind}release{stages} of “{dataset.name}” (N = {dataset.rows:,}; one row is {dataset.unit}),"
            f" {privacy_words(release)}"
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
        for key, value in {**chosen, "method": fit.method, "draws": draws, "chains": chains, "seed": seed}.items():
            if (key, value) not in (("method", "nuts"), ("chains", 4)) and (key, fit.method) != ("chains", "laplace"):
                arguments += [f"--{key}", str(value)]
        report = ["dpglm", "report", "again.fit.npz"]
        if summary.prob != 0.95:
            report += ["--prob", f"{summary.prob:g}"]
        usual = reference_point(fit.releases[0].design)
        for name, value in summary.reference.items():
            report += [] if value == usual[name] else ["--at", f"{name}={value}"]
        both = ([*arguments, "--output", "again.fit.npz"], [*report, "--output", "again.html"])
        return "\n".join(" ".join(shlex.quote(part) for part in command) for command in both)
    keywords: dict[str, Any] = {**chosen, **unusual, "method": fit.method, "draws": draws, "seed": seed}
    if fit.method == "nuts":
        keywords["chains"] = chains
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


def versions() -> dict[str, str]:
    """What wrote this page."""
    return {name: _installed(name) for name in _LIBRARIES}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
