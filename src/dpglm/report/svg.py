"""Small charts as SVG text. Positions are percentages, so that they stretch with the page while text keeps its size.

Every text that comes from outside goes through ``escape``. No style attributes: the page's policy forbids them.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dpglm.formats import number
from dpglm.report.effects import Effect
from dpglm.report.summary import Estimate
from dpglm.values import date_of

Floats = npt.NDArray[np.float64]
Scale = Callable[[float], float]

PLOT_HEIGHT, STRIP_HEIGHT, LEVEL_HEIGHT = 150, 34, 18
_LARGEST_LOGARITHM, _MOST_TICKS = 600.0, 7


def escape(text: object) -> str:
    """Text for an element or an attribute."""
    return html.escape(str(text), quote=True)


def scale(low: float, high: float) -> Scale:
    """Values to percentages; values outside stay at the edge."""
    width = high - low if high > low else 1.0
    return lambda value: min(max(100 * (value - low) / width, 0.0), 100.0)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers inside a range.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not (math.isfinite(low) and math.isfinite(high)) or not high > low:
        return []
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.10g}") for index in range(first, last + 1)]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios whose logarithms lie in a range: as many as there is room for.

    >>> ratio_ticks(-0.75, 0.75), ratio_ticks(-0.1, 0.5)
    ([0.5, 1.0, 2.0], [1.0, 1.2, 1.4, 1.6])
    """
    if not (-_LARGEST_LOGARITHM < low < high < _LARGEST_LOGARITHM):
        return []
    first, last = math.floor(low / math.log(10)), math.ceil(high / math.log(10))
    of_ten = [each * 10.0**power for power in range(first, last + 1) for each in (1, 2, 5)]
    inside = [float(f"{each:.6g}") for each in of_ten if low <= math.log(each) <= high]
    if len(inside) < 3:
        return [each for each in ticks(math.exp(low), math.exp(high), 4) if each > 0]
    while len(inside) > _MOST_TICKS:
        inside = _thinned(inside)
    return inside


def _thinned(values: list[float]) -> list[float]:
    """Powers of ten alone; of many, every other one."""
    powers = [each for each in values if f"{each:e}".startswith("1.000000")]
    return powers if 2 <= len(powers) < len(values) else values[::2]


def tick_labels(values: Sequence[float]) -> list[str]:
    """The same number of decimals for all."""
    if len(values) < 2:
        return [number(value) for value in values]
    step = min(b - a for a, b in pairwise(values))
    if not 1e-4 <= step < 1e6:
        return [number(value, 2) for value in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{value:,.{decimals}f}".replace("-", "−") for value in values]


def strip(estimate: Estimate, low: float, high: float, label: str) -> str:
    """An interval on a line: thin for all of it, thick for its middle half, a dot at the mean, a line at zero.

    Where it goes on beyond the range, an arrow says so.
    """
    to_percent = scale(low, high)
    start, end = to_percent(estimate.lower), to_percent(estimate.upper)
    inner_low, inner_high = to_percent(estimate.inner_lower), to_percent(estimate.inner_upper)
    middle, zero = STRIP_HEIGHT // 2, to_percent(0.0)
    kind = "clear" if estimate.clear else "open"
    left = f'<text class="more" x="0" y="{middle - 6}">◂</text>' if estimate.lower < low else ""
    right = f'<text class="more" x="100%" y="{middle - 6}" text-anchor="end">▸</text>' if estimate.upper > high else ""
    dot = f'<circle cx="{to_percent(estimate.mean):.2f}%" cy="{middle}" r="5"/>' if low < estimate.mean < high else ""
    return (
        f'<svg class="strip {kind}" width="100%" height="{STRIP_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>"
        f'<line class="zero" x1="{zero:.2f}%" x2="{zero:.2f}%" y1="0" y2="{STRIP_HEIGHT}"/>'
        f'<line class="outer" x1="{start:.2f}%" x2="{end:.2f}%" y1="{middle}" y2="{middle}"/>'
        f'<line class="inner" x1="{inner_low:.2f}%" x2="{inner_high:.2f}%" y1="{middle}" y2="{middle}"/>'
        f"{dot}{left}{right}</svg>"
    )


def level_strip(
    mean: float, lower: float, upper: float, to_percent: Scale, label: str, *, clear: bool = True, zero: bool = False
) -> str:
    """A predicted outcome of one level, or a change of the outcome, with a line at zero."""
    middle = LEVEL_HEIGHT // 2
    kind = "clear" if clear else "open"
    at = f"{to_percent(0.0):.2f}%"
    line = f'<line class="zero" x1="{at}" x2="{at}" y1="0" y2="{LEVEL_HEIGHT}"/>' if zero else ""
    return (
        f'<svg class="strip {kind}" width="100%" height="{LEVEL_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{line}"
        f'<line class="outer" x1="{to_percent(lower):.2f}%" x2="{to_percent(upper):.2f}%" y1="{middle}" y2="{middle}"/>'
        f'<circle cx="{to_percent(mean):.2f}%" cy="{middle}" r="5"/></svg>'
    )


def axis(values: Sequence[float], to_percent: Scale, labels: Sequence[str] | None = None) -> str:
    """Labelled ticks under strips."""
    marks = "".join(
        f'<line class="tick" x1="{to_percent(value):.2f}%" x2="{to_percent(value):.2f}%" y1="0" y2="5"/>'
        f'<text x="{to_percent(value):.2f}%" y="18" text-anchor="middle">{label}</text>'
        for value, label in zip(values, tick_labels(values) if labels is None else labels, strict=True)
    )
    return f'<svg class="axis" width="100%" height="22" aria-hidden="true">{marks}</svg>'


def share_bar(share: float, label: str) -> str:
    """A bar of full width: the part that sampling explains, and the part that privacy noise adds."""
    kept = 100 * share
    return (
        f'<svg class="share" width="100%" height="18" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>"
        f'<rect class="sampling" x="0" y="0" width="{kept:.2f}%" height="18"/>'
        f'<rect class="privacy" x="{kept:.2f}%" y="0" width="{100 - kept:.2f}%" height="18"/></svg>'
    )


def swatch(kind: str) -> str:
    """A mark of a legend."""
    line = '<line class="{}" x1="2" x2="24" y1="8" y2="8"/>'
    marks = {
        "dot": '<g class="strip clear"><circle cx="13" cy="8" r="5"/></g>',
        "hollow": '<g class="strip open"><circle cx="13" cy="8" r="5"/></g>',
        "thick": f'<g class="strip">{line.format("inner")}</g>',
        "thin": f'<g class="strip">{line.format("outer")}</g>',
        "zero": f'<g class="plot">{line.format("zero")}</g>',
        "prior": f'<g class="plot">{line.format("prior")}</g>',
        "body": '<g class="plot"><rect class="body" x="2" y="2" width="22" height="12" rx="2"/></g>',
        "tail": '<g class="plot"><rect class="tail" x="2" y="2" width="22" height="12" rx="2"/></g>',
        "sampling": '<g class="share"><rect class="sampling" x="2" y="2" width="22" height="12" rx="2"/></g>',
        "privacy": '<g class="share"><rect class="privacy" x="2" y="2" width="22" height="12" rx="2"/></g>',
    }
    return f'<svg width="26" height="16" aria-hidden="true">{marks[kind]}</svg>'


def density(identity: str, estimate: Estimate, title: str, description: str) -> str:
    """Posterior, its interval, the prior as a dashed line, and zero; the grid's range is the posterior's."""
    curve = estimate.density
    if curve is None:
        return f"<p>{escape(description)}</p>"
    low, high = float(curve.x[0]), float(curve.x[-1])
    to_x = scale(low, high)
    top = float(curve.y.max()) * 1.06
    inside = (curve.x >= estimate.lower) & (curve.x <= estimate.upper)
    shapes = (
        f'<path class="tail" d="{_area(curve.x, curve.y, to_x, top)}"/>'
        f'<path class="body" d="{_area(curve.x[inside], curve.y[inside], to_x, top)}"/>'
        f'<path class="outline" d="{_line(curve.x, curve.y, to_x, top)}"/>'
    )
    if estimate.prior is not None:
        shapes += f'<path class="prior" d="{_line(curve.x, estimate.prior, to_x, top)}"/>'
    zero = ""
    if low <= 0 <= high:
        zero = f'<line class="zero" x1="{to_x(0):.2f}%" x2="{to_x(0):.2f}%" y1="0" y2="{PLOT_HEIGHT}"/>'
    else:
        side, anchor, arrow = ("0", "start", "← zero") if low > 0 else ("100%", "end", "zero →")
        zero = f'<text class="away" x="{side}" y="12" text-anchor="{anchor}">{arrow}</text>'
    return _plot(identity, title, description, zero + _inner(shapes) + _bottom(ticks(low, high, 4), to_x))


def curve(identity: str, effect: Effect, low: float, high: float, title: str, description: str) -> str:
    """The predicted outcome along a numeric predictor: a line and its band."""
    x = np.array([float(value) for value in effect.values])
    to_x = scale(float(x[0]), float(x[-1]))
    mean, lower, upper = (np.clip(part, low, high) - low for part in (effect.mean, effect.lower, effect.upper))
    top = high - low
    band = _points(x, upper, to_x, top) + _points(x[::-1], lower[::-1], to_x, top)
    shapes = f'<path class="band" d="M{" L".join(band)}Z"/><path class="outline" d="{_line(x, mean, to_x, top)}"/>'
    values = ticks(low, high, 4)
    grid = "".join(
        f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        for y, label in (
            (PLOT_HEIGHT * (1 - (value - low) / top), label)
            for value, label in zip(values, tick_labels(values), strict=True)
        )
    )
    of_dates = effect.column.dates
    marks = ticks(float(x[0]), float(x[-1]), 3 if of_dates else 4)
    bottom = _bottom(marks, to_x, [date_of(value) for value in marks] if of_dates else None)
    return _plot(identity, title, description, grid + _inner(shapes) + bottom)


def _plot(identity: str, title: str, description: str, content: str) -> str:
    """A chart that can be hovered and walked with the arrow keys."""
    return (
        f'<svg class="plot" id="{identity}" width="100%" height="{PLOT_HEIGHT + 24}" tabindex="0" role="img"'
        f' aria-labelledby="{identity}-title {identity}-text">'
        f'<title id="{identity}-title">{escape(title)}</title><desc id="{identity}-text">{escape(description)}</desc>'
        f'{content}<line class="cursor" x1="0" x2="0" y1="0" y2="{PLOT_HEIGHT}"/></svg>'
    )


def _inner(shapes: str) -> str:
    """A drawing of 100 x 100 that fills the plot."""
    return (
        f'<svg class="stretch" width="100%" height="{PLOT_HEIGHT}" viewBox="0 0 100 100" preserveAspectRatio="none">'
        f"{shapes}</svg>"
    )


def _bottom(values: Sequence[float], to_x: Scale, labels: Sequence[str] | None = None) -> str:
    places = [f"{to_x(value):.2f}%" for value in values]
    marks = "".join(
        f'<line class="tick" x1="{place}" x2="{place}" y1="{PLOT_HEIGHT}" y2="{PLOT_HEIGHT + 5}"/>'
        f'<text x="{place}" y="{PLOT_HEIGHT + 19}" text-anchor="middle">{label}</text>'
        for place, label in zip(places, tick_labels(values) if labels is None else labels, strict=True)
    )
    return f'<line class="base" x1="0" x2="100%" y1="{PLOT_HEIGHT}" y2="{PLOT_HEIGHT}"/>{marks}'


def _points(x: Floats, y: Floats, to_x: Scale, top: float) -> list[str]:
    heights = np.clip(100 - 100 * y / (top or 1.0), 0, 100)
    return [f"{to_x(float(a)):.1f} {b:.1f}" for a, b in zip(x, heights, strict=True)]


def _line(x: Floats, y: Floats, to_x: Scale, top: float) -> str:
    return "M" + " L".join(_points(x, y, to_x, top))


def _area(x: Floats, y: Floats, to_x: Scale, top: float) -> str:
    if not len(x):
        return ""
    start, end = f"{to_x(float(x[0])):.1f} 100", f"{to_x(float(x[-1])):.1f} 100"
    return f"M{start} L{' L'.join(_points(x, y, to_x, top))} L{end}Z"
