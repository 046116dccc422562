"""The charts of the page as HTML text: forest, densities, predicted outcomes, average effects, shares of privacy.

Every text from outside goes through ``escape``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from dpglm.analyst.result import UNITS
from dpglm.analyst.table import interval_text, ratio_text
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
    ratio_ticks,
    scale,
    share_bar,
    strip,
    swatch,
    tick_labels,
    ticks,
)

_MOST_ROWS, _MOST_CHANGES, _MOST_BARS, _MOST_CARDS, _MOST_LEVELS = (
    10,
    8,
    6,
    6,
    6,
)  # shown before the rest is folded away
_FARTHEST = 5.0  # of the range of a forest, by what half of the intervals reach
_FARTHEST_RATIO = math.log(100)


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


def folded(parts: Sequence[str], shown: int, what: str, after: str = "") -> str:
    """The first of many parts, and the others behind a line that opens them; ``after`` closes each of both."""
    if len(parts) <= shown + 2:
        return "".join(parts) + after
    rest = "".join(parts[shown:]) + after
    words = f"Show {len(parts) - shown} more {what}"
    return f'{"".join(parts[:shown])}{after}<details class="fold"><summary>{words}</summary>{rest}</details>'


def forest(summary: Summary) -> str:
    """Intervals of all coefficients but the intercept on one scale."""
    return both(_forest, summary)


def _forest(summary: Summary, units: str) -> str:
    low, high = shared_range([each.units[units] for each in summary.slopes], summary.ratio_name is not None)
    ratio = summary.ratio_name if units == "original" else None
    value = f"{ratio.replace('_', ' ')}" if ratio else "mean"
    heads = (
        f'<div class="row head" aria-hidden="true"><span class="name"></span><span class="plotcell"></span>'
        f'<span class="value">{value}, {100 * summary.prob:g} % interval</span>'
        '<span class="sign">sign, P(sign)</span></div>'
    )
    rows = [
        head + _forest_row(each, units, low, high, summary, inside)
        for each, inside, head in _grouped(summary.slopes, units)
    ]
    if ratio:
        values = ratio_ticks(low, high)
        marks = axis([math.log(each) for each in values], scale(low, high), [f"{each:g}" for each in values])
    else:
        marks = axis(ticks(low, high), scale(low, high))
    foot = f'<div class="row foot"><span></span><div class="plotcell">{marks}</div></div>'
    prob = f"{100 * summary.prob:g} %"
    none = "no effect (1)" if ratio else "no effect (0)"
    legend = _legend(
        ("dot", "mean, sign is clear"), ("hollow", "mean, sign is open"), ("thick", "middle half"), ("thin", prob),
        ("zero", none),
    )  # fmt: skip
    intercept = "".join(
        f'<p class="note">The intercept is {escape(words.interval_words(each.units[units], summary.prob))}.</p>'
        for each in summary.coefficients
        if each.name == "Intercept"
    )
    body = folded(rows, _MOST_ROWS, "coefficients", foot)
    return f'<p class="note">{escape(words.unit_words(units, summary))}</p>{legend}{heads}{body}{intercept}'


def shared_range(estimates: Sequence[Estimate], logarithms: bool = False) -> tuple[float, float]:
    """One range for all, with zero in it; a few that reach much farther than the others do not squeeze them."""
    reaches = sorted(max(abs(each.lower), abs(each.upper)) for each in estimates)
    most = _FARTHEST * reaches[len(reaches) // 2] or 1.0
    if logarithms:
        most = min(most, max(_FARTHEST_RATIO, 2 * reaches[0]))
    low = max(-most, min(0.0, *(each.lower for each in estimates)))
    high = min(most, max(0.0, *(each.upper for each in estimates)))
    pad = 0.04 * (high - low)
    return low - pad, high + pad


def _grouped(coefficients: Sequence[Coefficient], units: str) -> Iterator[tuple[Coefficient, bool, str]]:
    """Each, whether it is one of several levels of its column, and before the first of these a line that says so."""
    groups = groupby(coefficients, key=lambda each: each.named.group if units == "original" else None)
    for group, members in groups:
        own = list(members)
        several = group is not None and len(own) > 1
        for position, each in enumerate(own):
            starts = several and position == 0
            yield each, several, _group_head(group[1], each.named.versus) if group is not None and starts else ""


def _group_head(title: str, versus: str | None) -> str:
    small = "" if versus is None else f" <small>vs. {escape(versus)}</small>"
    return f'<div class="row group"><span class="name">{escape(title)}{small}</span></div>'


def _forest_row(each: Coefficient, units: str, low: float, high: float, summary: Summary, inside: bool = False) -> str:
    estimate = each.units[units]
    kind = "clear" if estimate.clear else "open"
    sign = f"{estimate.sign}, {percent(estimate.p_sign, summary.draws)}"
    tip = (
        f"{name_of(each, units)}\nmean {number(estimate.mean)}, sd {number(estimate.sd)}\n"
        f"{100 * summary.prob:g} %: {number(estimate.lower)} to {number(estimate.upper)}\n"
        f"50 %: {number(estimate.inner_lower)} to {number(estimate.inner_upper)}\n{sign}"
    )
    tip = "\n".join([tip, *_ratio(each, estimate, summary)])
    drawing = strip(estimate, low, high, _spoken(each, units, summary))
    shown = interval_text(estimate.mean, estimate.lower, estimate.upper)
    if estimate.ratio is not None and units == "original":
        shown = ratio_text(*estimate.ratio)
    middle, _, interval = shown.partition(" (")
    name = escape(each.named.level) if inside else _name(each, units)
    return (
        f'<div class="row {kind}{" inside" * inside}" tabindex="0" data-tip="{escape(tip)}">'
        f'<span class="name">{name}</span>'
        f'<div class="plotcell">{drawing}</div>'
        f'<span class="value">{escape(middle)} <small>{escape(interval.removesuffix(")"))}</small></span>'
        f'<span class="sign">{escape(sign)}</span></div>'
    )


def name_of(each: Coefficient, units: str) -> str:
    """A coefficient as people call it; in scaled units without the step."""
    return each.named.label if units == "original" else each.name


def _name(each: Coefficient, units: str) -> str:
    """The same as HTML, the reference level smaller."""
    if units != "original" or each.named.versus is None:
        return escape(name_of(each, units))
    return f"{escape(each.named.what)} <small>vs. {escape(each.named.versus)}</small>"


def average(summary: Summary) -> str:
    """Average marginal effects, as a section; nothing where there are none."""
    if not summary.average:
        return ""
    found = summary.average
    share = summary.fit.releases[0].design.family.outcome_limits == (0.0, 1.0)
    unit = 100.0 if share else 1.0
    low = min(0.0, *(each.lower for each in found))
    high = max(0.0, *(each.upper for each in found))
    pad = 0.04 * (high - low)
    low, high = low - pad, high + pad
    to_percent = scale(low, high)
    rows = []
    for column, members in groupby(found, key=lambda each: each.column):
        own = list(members)
        for position, each in enumerate(own):
            head = _group_head(column.title, str(column.levels[0])) if len(own) > 1 and position == 0 else ""
            shown = interval_text(unit * each.mean, unit * each.lower, unit * each.upper)
            sign = f"{'positive' if each.mean > 0 else 'negative'}, {percent(each.p_sign, summary.draws)}"
            text = f"{each.label}: {shown}{' percentage points' if share else ''}; {sign}"
            drawing = level_strip(each.mean, each.lower, each.upper, to_percent, text, clear=each.clear, zero=True)
            middle, _, interval = shown.partition(" (")
            kind = ("clear" if each.clear else "open") + (" inside" if len(own) > 1 else "")
            name = str(each.level) if len(own) > 1 else each.label
            rows.append(
                f'{head}<div class="row {kind}" tabindex="0" data-tip="{escape(text)}">'
                f'<span class="name">{escape(name)}</span><div class="plotcell">{drawing}</div>'
                f'<span class="value">{escape(middle)} <small>{escape(interval.removesuffix(")"))}</small></span>'
                f'<span class="sign">{escape(sign)}</span></div>'
            )
    values = ticks(unit * low, unit * high)
    marks = axis([value / unit for value in values], to_percent, tick_labels(values))
    foot = f'<div class="row foot"><span></span><div class="plotcell">{marks}</div></div>'
    body = f'<p class="note">{escape(words.average_words(summary))}</p>{folded(rows, _MOST_CHANGES, "changes", foot)}'
    title = '<h2 id="average-h">What a change does on average</h2>'
    return f'<section id="average" aria-labelledby="average-h">{title}{body}</section>'


def _ratio(each: Coefficient, estimate: Estimate, summary: Summary) -> list[str]:
    """The odds, rate or hazard ratio of one more unit, where there is one."""
    if estimate.ratio is None or summary.ratio_name is None or each.name == "Intercept":
        return []
    ratio, lower, upper = (number(part, 4) for part in estimate.ratio)  # near 1, the fourth digit tells
    return [f"{summary.ratio_name.replace('_', ' ')} {ratio} ({lower} to {upper})"]


def _spoken(each: Coefficient, units: str, summary: Summary) -> str:
    estimate = each.units[units]
    probability = percent(estimate.p_sign, summary.draws)
    interval = words.interval_words(estimate, summary.prob)
    return f"{name_of(each, units)}: {interval}; {estimate.sign} with probability {probability}"


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
                    "name": name_of(each, units),
                    "low": _short(x[0]),
                    "high": _short(x[-1]),
                    "below": [round(float(share), 3) for share in estimate.density.below],
                }
            drawing = density(identity, estimate, f"Posterior of {name_of(each, units)}, {units} units", text)
            caption = "\n".join([words.interval_words(estimate, summary.prob), *_ratio(each, estimate, summary)])
            drawings.append(in_units(units, f"{drawing}<p>{escape(caption)}</p>"))
        title = "".join(f'<span class="in-{units}">{_name(each, units)}</span>' for units in UNITS)
        cards.append(f'<div class="card"><h3>{title}</h3>{"".join(drawings)}</div>')
    cards_of_all = f'<div class="cards">{"".join(cards)}</div>'
    return f'<details class="fold"><summary>Show {len(cards)} curves</summary>{legend}{cards_of_all}</details>'


def effects(summary: Summary, data: dict[str, Any]) -> str:
    """Predicted outcomes along each predictor."""
    outcome = words.outcome_words(summary.fit.releases[0].design)
    low, high = outcome_range(summary.effects, summary.fit.releases[0].design.family)
    cards = []
    for index, effect in enumerate(summary.effects):
        name = effect.column.title
        if effect.column.has_levels:
            cards.append(_level_card(effect, low, high, outcome, summary.prob))
            continue
        identity = f"effect-{index}"
        x = [float(value) for value in effect.values]
        data[identity] = {
            "name": name,
            "dates": effect.column.dates,
            "outcome": outcome,
            "prob": f"{100 * summary.prob:g}",
            "low": x[0] if effect.column.dates else _short(x[0]),
            "high": x[-1] if effect.column.dates else _short(x[-1]),
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
    shown = len(cards) if len(cards) <= _MOST_CARDS else _MOST_CARDS // 2
    grids = [f'<div class="cards">{"".join(part)}</div>' for part in (cards[:shown], cards[shown:])]
    if shown == len(cards):
        return f'<p class="note">{escape(intro)}</p>{grids[0]}'
    more = f"Show {len(cards) - shown} more predictors"
    rest = f'<details class="fold"><summary>{more}</summary>{grids[1]}</details>'
    return f'<p class="note">{escape(intro)}</p>{grids[0]}{rest}'


def _level_card(effect: Effect, low: float, high: float, outcome: str, prob: float) -> str:
    to_percent = scale(low, high)
    rows = []
    for level, mean, lower, upper in zip(effect.values, effect.mean, effect.lower, effect.upper, strict=True):
        shown, _, interval = interval_text(mean, lower, upper).partition(" (")
        interval = interval.removesuffix(")")
        text = f"{effect.column.title} = {level}\n{outcome}: {shown}\n{100 * prob:g} %: {interval}"
        drawing = level_strip(mean, lower, upper, to_percent, text.replace("\n", "; "))
        rows.append(
            f'<div class="level" tabindex="0" data-tip="{escape(text)}"><span>{escape(level)}</span>'
            f'<span class="value">{escape(shown)} <small>{escape(interval)}</small></span><div>{drawing}</div></div>'
        )
    marks = axis(ticks(low, high, 4), to_percent)
    body = folded(rows, _MOST_LEVELS, "levels", f"<div>{marks}</div>")
    return f'<div class="card"><h3>{escape(effect.column.title)}</h3>{body}</div>'


def privacy(summary: Summary) -> str:
    """What share of each interval is privacy noise."""
    return both(_privacy, summary)


def _privacy(summary: Summary, units: str) -> str:
    rows = []
    for each in summary.coefficients:
        estimate = each.units[units]
        share = estimate.noise_free_share
        name = name_of(each, units)
        if not math.isfinite(share):
            rows.append(f'<div class="row bar"><span class="name">{escape(name)}</span><span>n/a</span></div>')
            continue
        text = f"{name}: {100 * share:.0f} % of the width is sampling, {100 * (1 - share):.0f} % privacy noise"
        rows.append(
            f'<div class="row bar" tabindex="0" data-tip="{escape(text)}">'
            f'<span class="name">{_name(each, units)}</span>'
            f'<div class="plotcell">{share_bar(share, text)}</div>'
            f'<span class="value">{times(estimate.inflation)} as wide</span></div>'
        )
    legend = _legend(("sampling", "would be there without privacy"), ("privacy", "added by privacy noise"))
    bars = folded(rows, _MOST_BARS, "coefficients")
    return f'<p class="note">{escape(words.inflation_words(summary, units))}</p>{legend}{bars}'


def _short(value: float) -> float:
    """Four digits are enough to hover at."""
    number_ = float(f"{value:.5g}")
    return number_ if math.isfinite(number_) else 0.0
