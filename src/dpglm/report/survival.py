"""Survival curves of a fit of person-periods: a section of the page, and a plot. Other fits have none.

Between the ends of periods a curve falls as with a constant hazard: the model does not say how.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.describe import tail_of
from dpglm.analyst.result import Fit
from dpglm.analyst.survival import period_column, survival_draws
from dpglm.analyst.typical import predictors, reference_point, typical
from dpglm.formats import listed, number
from dpglm.report.effects import Effect
from dpglm.report.plots import _axes, _finished, _plain
from dpglm.report.summary import Summary
from dpglm.report.svg import curve, escape
from dpglm.report.words import shown_value
from dpglm.schema import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

_POINTS = 61
_MOST_LEVELS, _MOST_CARDS = 6, 24
_LEAST = 1e-9
_LINE = 60  # characters of a title
_COLORS = ("#1d5fa6", "#c2571a", "#2e7d4f", "#8d3b8f", "#666f7a")


def plot_survival(
    fit: Fit,
    at: Mapping[str, Any] | None = None,
    *,
    prob: float = 0.95,
    period: str | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    textsize: float | None = None,
) -> Axes:
    """Survival curves with their bands, one a profile, of a release of person-periods.

    Parameters
    ----------
    at
        Profiles, as for ``Fit.survival``: ``{"arm": ["placebo", "drug"]}``.
    period
        The column of periods, where another one looks like one.
    prob, ax, figsize, textsize
        As in ``plot_forest``.
    """
    tail = tail_of(prob)
    ax = _axes(fit, ax, figsize or (6, 4))
    profiles, times, curves = survival_draws(fit, at, period)
    varied = [name for name, values in profiles.items() if len(set(values)) > 1]
    columns = fit.releases[0].design.schema.columns
    for place, draws in enumerate(curves):
        color = _COLORS[place % len(_COLORS)]
        label = ", ".join(_plain(f"{name} = {shown_value(profiles[name][place], columns[name])}") for name in varied)
        low, high = np.quantile(draws, [tail, 1 - tail], axis=1)
        x, parts = _between(times, np.stack([draws.mean(axis=1), low, high]))
        ax.fill_between(x, parts[1], parts[2], color=color, alpha=0.2, linewidth=0)
        ax.plot(x, parts[0], color=color, label=label)
        ax.plot(times, draws.mean(axis=1), linestyle="none", marker="o", markersize=3, color=color)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(times[0], times[-1])
    ax.set_xlabel("time")
    ax.set_ylabel("without the event")
    same = [f"{name} = {shown_value(each[0], columns[name])}" for name, each in profiles.items() if name not in varied]
    if same:
        ax.set_title(_plain(textwrap.fill(f"at {listed(same)}", _LINE)))
    if varied:
        ax.legend(frameon=False)
    return _finished(ax, textsize)


def section(summary: Summary, data: dict[str, Any]) -> str:
    """The page's section, or nothing where the release is not one of person-periods."""
    fit = summary.fit
    found = period_column(fit)
    if found is None:
        return ""
    others = [column for column in predictors(fit.releases[0].design) if column.name != found[0].name]
    cards = [card for column in others for card in _cards(summary, column, found[1].breaks, data)][:_MOST_CARDS]
    cards = cards or [_card(summary, None, None, 0, found[1].breaks, data)]
    unit = fit.releases[0].design.schema.dataset.unit
    ratio = ""
    if fit.ratio_name == "hazard_ratio":
        ratio = " e to a coefficient is a hazard ratio, as of a Cox model: how many times as fast the event comes."
    intro = (
        f"A row of the table is {unit} in one period of “{found[0].name}” in which they were at risk.{ratio} Below: how"
        f" many are still without the event at each time, with {100 * summary.prob:g} % bands, point by point."
        f" The other predictors stay {_others(summary, found[0].name)}."
    )
    return (
        '<section id="survival" aria-labelledby="survival-h"><h2 id="survival-h">Survival</h2>'
        f'<p class="note">{escape(intro)}</p><div class="cards">{"".join(cards)}</div></section>'
    )


def _others(summary: Summary, period: str) -> str:
    columns = summary.fit.releases[0].design.schema.columns
    values = [
        f"{name} = {shown_value(each, columns[name])}" for name, each in summary.reference.items() if name != period
    ]
    return f"at {listed(values)}" if values else "as they are"


def _cards(summary: Summary, column: Column, breaks: Sequence[float], data: dict[str, Any]) -> list[str]:
    """One a level; of a number, where it is low, typical and high."""
    if column.has_levels:
        values: list[Any] = list(column.levels[:_MOST_LEVELS])
    else:
        place = typical(summary.fit.releases[0], column)
        values = list(dict.fromkeys([place.low, place.centre, place.high]))
    return [_card(summary, column, value, place, breaks, data) for place, value in enumerate(values)]


def _card(
    summary: Summary, column: Column | None, value: Any, place: int, breaks: Sequence[float], data: dict[str, Any]
) -> str:
    fit = summary.fit
    point = dict(reference_point(fit.releases[0]) | dict(summary.reference))
    found = period_column(fit)
    assert found is not None
    del point[found[0].name]
    if column is not None:
        point[column.name] = value
    _, times, curves = survival_draws(fit, point)
    tail = tail_of(summary.prob)
    ends = np.quantile(curves[0], [tail, 1 - tail], axis=1)
    x, (mean, lower, upper) = _between(times, np.stack([curves[0].mean(axis=1), *ends]))
    name = "all" if column is None else f"{column.name} = {shown_value(value, column)}"
    identity = f"survival-{0 if column is None else list(summary.reference).index(column.name)}-{place}"
    data[identity] = {
        "name": "time", "outcome": f"still without the event ({name})", "prob": f"{100 * summary.prob:g}",
        "low": float(breaks[0]), "high": float(breaks[-1]),
        **{part: each.round(4).tolist() for part, each in (("mean", mean), ("lower", lower), ("upper", upper))},
    }  # fmt: skip
    along = Column("time", "numeric", 0.0, float(breaks[0]), float(breaks[-1]))
    effect = Effect(along, tuple(float(each) for each in x), mean, lower, upper)
    said = f"{number(mean[-1])} ({number(lower[-1])} to {number(upper[-1])}) without the event at {breaks[-1]:g}"
    drawing = curve(identity, effect, 0.0, 1.0, f"Survival of {name}", said)
    return f'<div class="card wide"><h3>{escape(name)}</h3>{drawing}<p>{escape(said)}</p></div>'


def _between(times: Floats, parts: Floats) -> tuple[Floats, Floats]:
    """Curves at even times, straight on a logarithmic scale between the ends of periods."""
    x = np.linspace(times[0], times[-1], _POINTS)
    logs = np.log(np.maximum(parts, _LEAST))
    return x, np.stack([np.exp(np.interp(x, times, each)) for each in logs])
