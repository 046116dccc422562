"""The charts of the page as HTML text: forest, densities, predicted outcomes, shares of privacy.

Every text from outside goes through ``escape``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dpglm.analyst.result import UNITS
from dpglm.formats import number, percent, times
from dpglm.report import words
from dpglm.report.effects import Effect, outcome_range
from dpglm.report.summary import Coefficient, Estimate, Summary
from dpglm.report.svg import (
    axis,
    curve,
    density,
    escape,
    level_strip,
    scale,
    share_bar,
    strip,
    swatch,
    ticks,
)


def in_units(units: str, content: str) -> str:
    """Shown while these units are chosen."""
    return f'<div class="in-{units}">{content}</div>'


def both(part: Callable[[Summary, str], str], summary: Summary) -> str:
    """A part in both kinds of units, one of them hidden."""
    return "".join(in_units(units, part(summary, units)) for units in UNITS)


def _legend(*entries: tuple[str, str]) -> str:
    """What a chart's marks mean: (kind of mark, words)."""
    items = "".join(f"<li>{swatch(kind)}{escape(text)}</li>" for kind, text in entries)
    return f'<ul class="legend">{items}</ul>'


def forest(summary: Summary) -> str:
    """Intervals of all coefficients."""
    return both(_forest, summary)


def _forest(summary: Summary, units: str) -> str:
    estimates = [each.units[units] for each in summary.coefficients]
    low = min(0.0, *(estimate.lower for estimate in estimates))
    high = max(0.0, *(estimate.upper for estimate in estimates))
    pad = 0.04 * (high - low)
    shared = scale(low - pad, high + pad)
    rows = [
        f'<div class="row head" aria-hidden="true"><span class="name">coefficient</span><span class="plotcell"></span>'
        f'<span class="value">mean, {100 * summary.prob:g} % interval</span>'
        '<span class="sign">sign, P(sign)</span></div>'
    ]
    for each, estimate in zip(summary.coefficients, estimates, strict=True):
        reach = 1.12 * max(abs(estimate.lower), abs(estimate.upper))
        to_percent = shared if units == "scaled" else scale(-reach, reach)
        rows.append(_forest_row(each, estimate, strip(estimate, to_percent, _spoken(each, units, summary)), summary))
    if units == "scaled":
        marks = axis(ticks(low - pad, high + pad), shared)
        rows.append(f'<div class="row foot"><span></span><div class="plotcell">{marks}</div></div>')
    prob = f"{100 * summary.prob:g} %"
    legend = _legend(
        ("dot", "mean, sign is clear"), ("hollow", "mean, sign is open"), ("thick", "middle half"), ("thin", prob),
        ("zero", "zero"),
    )  # fmt: skip
    return f'<p class="note">{escape(words.unit_words(units, summary))}</p>{legend}{"".join(rows)}'


def _forest_row(each: Coefficient, estimate: Estimate, drawing: str, summary: Summary) -> str:
    kind = "clear" if estimate.clear else "open"
    sign = f"{estimate.sign}, {percent(estimate.p_sign, summary.draws)}"
    tip = (
        f"{each.name}\nmean {number(estimate.mean)}, sd {number(estimate.sd)}\n"
        f"{100 * summary.prob:g} %: {number(estimate.lower)} to {number(estimate.upper)}\n"
        f"50 %: {number(estimate.inner_lower)} to {number(estimate.inner_upper)}\n{sign}"
    )
    tip = "\n".join([tip, *_ratio(each, estimate, summary)])
    return (
        f'<div class="row {kind}" tabindex="0" data-tip="{escape(tip)}"><span class="name">{escape(each.name)}</span>'
        f'<div class="plotcell">{drawing}</div>'
        f'<span class="value">{number(estimate.mean)} <small>{number(estimate.lower)} to {number(estimate.upper)}'
        f'</small></span><span class="sign">{escape(sign)}</span></div>'
    )


def _ratio(each: Coefficient, estimate: Estimate, summary: Summary) -> list[str]:
    """The odds, rate or hazard ratio of one more unit, where there is one."""
    if estimate.ratio is None or summary.ratio_name is None or each.name == "Intercept":
        return []
    ratio, lower, upper = (number(part, 4) for part in estimate.ratio)  # near 1, the fourth digit tells
    return [f"{summary.ratio_name.replace('_', ' ')} {ratio} ({lower} to {upper})"]


def _spoken(each: Coefficient, units: str, summary: Summary) -> str:
    estimate = each.units[units]
    probability = percent(estimate.p_sign, summary.draws)
    return (
        f"{each.name}: {words.interval_words(estimate, summary.prob)}; {estimate.sign} with probability {probability}"
    )


def densities(summary: Summary, data: dict[str, Any]) -> str:
    """Posterior and prior of each coefficient."""
    prob = f"{100 * summary.prob:g} % interval"
    legend = _legend(("body", f"posterior, {prob}"), ("tail", "outside it"), ("prior", "prior"), ("zero", "zero"))
    legend += (
        '<p class="note hint">Point at a curve, or walk along it with the arrow keys, to read how much lies below.</p>'
    )
    cards = []
    for index, each in enumerate(summary.coefficients):
        drawings = []
        for units in UNITS:
            estimate = each.units[units]
            identity = f"density-{index}-{units}"
            text = _spoken(each, units, summary)
            if estimate.prior is None:
                text += ". The prior is not drawn."
            if estimate.density is not None:
                x = estimate.density.x
                data[identity] = {
                    "name": each.name,
                    "low": _short(x[0]),
                    "high": _short(x[-1]),
                    "below": [round(float(share), 3) for share in estimate.density.below],
                }
            drawing = density(identity, estimate, f"Posterior of {each.name}, {units} units", text)
            caption = "\n".join([words.interval_words(estimate, summary.prob), *_ratio(each, estimate, summary)])
            drawings.append(in_units(units, f"{drawing}<p>{escape(caption)}</p>"))
        cards.append(f'<div class="card"><h3>{escape(each.name)}</h3>{"".join(drawings)}</div>')
    return f'{legend}<div class="cards">{"".join(cards)}</div>'


def effects(summary: Summary, data: dict[str, Any]) -> str:
    """Predicted outcomes along each predictor."""
    outcome = words.outcome_words(summary.fit.releases[0].design)
    low, high = outcome_range(summary.effects, summary.fit.releases[0].design.family)
    cards = []
    for index, effect in enumerate(summary.effects):
        name = effect.column.name
        if effect.column.has_levels:
            cards.append(_level_card(effect, low, high, outcome, summary.prob))
            continue
        identity = f"effect-{index}"
        x = [float(value) for value in effect.values]
        data[identity] = {
            "name": name,
            "outcome": outcome,
            "prob": f"{100 * summary.prob:g}",
            "low": _short(x[0]),
            "high": _short(x[-1]),
            **{part: [_short(value) for value in getattr(effect, part)] for part in ("mean", "lower", "upper")},
        }
        edges = [words.shown_value(value, effect.column) for value in (x[0], x[-1])]
        ends = f"{number(effect.mean[0])} at {edges[0]}, {number(effect.mean[-1])} at {edges[1]}"
        drawing = curve(identity, effect, low, high, f"{outcome} along {name}", ends)
        cards.append(f'<div class="card wide"><h3>{escape(name)}</h3>{drawing}<p>{escape(ends)}</p></div>')
    intro = (
        f"The {outcome}, with its {100 * summary.prob:g} % interval, along each predictor {words.span_words(summary)}."
        f" {words.reference_words(summary)} {words.choice_words(summary)}"
    )
    return f'<p class="note">{escape(intro)}</p><div class="cards">{"".join(cards)}</div>'


def _level_card(effect: Effect, low: float, high: float, outcome: str, prob: float) -> str:
    to_percent = scale(low, high)
    rows = []
    for level, mean, lower, upper in zip(effect.values, effect.mean, effect.lower, effect.upper, strict=True):
        interval = f"{number(lower)} to {number(upper)}"
        text = f"{effect.column.name} = {level}\n{outcome}: {number(mean)}\n{100 * prob:g} %: {interval}"
        drawing = level_strip(mean, lower, upper, to_percent, text.replace("\n", "; "))
        rows.append(
            f'<div class="level" tabindex="0" data-tip="{escape(text)}"><span>{escape(level)}</span>'
            f'<span class="value">{number(mean)} <small>{interval}</small></span><div>{drawing}</div></div>'
        )
    marks = axis(ticks(low, high, 4), to_percent)
    rows.append(f"<div>{marks}</div>")
    return f'<div class="card"><h3>{escape(effect.column.name)}</h3>{"".join(rows)}</div>'


def privacy(summary: Summary) -> str:
    """What share of each interval is privacy noise."""
    return both(_privacy, summary)


def _privacy(summary: Summary, units: str) -> str:
    rows = []
    for each in summary.coefficients:
        estimate = each.units[units]
        share = estimate.noise_free_share
        if not math.isfinite(share):
            rows.append(f'<div class="row bar"><span class="name">{escape(each.name)}</span><span>n/a</span></div>')
            continue
        text = f"{each.name}: {100 * share:.0f} % of the width is sampling, {100 * (1 - share):.0f} % privacy noise"
        rows.append(
            f'<div class="row bar" tabindex="0" data-tip="{escape(text)}"><span class="name">{escape(each.name)}</span>'
            f'<div class="plotcell">{share_bar(share, text)}</div>'
            f'<span class="value">{times(estimate.inflation)} as wide</span></div>'
        )
    legend = _legend(("sampling", "would be there without privacy"), ("privacy", "added by privacy noise"))
    return f'<p class="note">{escape(words.inflation_words(summary, units))}</p>{legend}{"".join(rows)}'


def _short(value: float) -> float:
    """Four digits are enough to hover at."""
    number_ = float(f"{value:.5g}")
    return number_ if math.isfinite(number_) else 0.0
