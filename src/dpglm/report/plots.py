"""Plots of a fit with matplotlib, in ArviZ's manner: keyword-only options, ``ax=None``, and the axes come back.

Intervals are those of ``Fit.summary``: equal-tailed, of probability ``prob``.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpglm.analyst.result import Fit
from dpglm.analyst.typical import reference_point
from dpglm.errors import InputError
from dpglm.formats import listed
from dpglm.report.effects import effect
from dpglm.report.summary import Estimate, estimates
from dpglm.report.words import outcome_words, shown_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POSTERIOR, PRIVACY, SOFT = "#1d5fa6", "#f0b483", "#666f7a"
_LONGEST_NAME, _LONGEST_LINE = 32, 44  # characters


def plot_forest(
    fit: Fit,
    *,
    var_names: Sequence[str] | None = None,
    prob: float = 0.95,
    units: str = "scaled",
    target: str = "population",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    textsize: float | None = None,
) -> Axes:
    """Intervals of the coefficients: thin for all of it, thick for the middle half, a dot at the mean.

    Parameters
    ----------
    var_names
        Coefficients to show. Default: all.
    prob
        Probability of the intervals.
    units
        "scaled" (default: standard units, so sizes compare; of moments, scaled by the bounds) or "original".
    target
        "population", or "table" for the estimate of this very table, which looks at one table tell.
    ax, figsize, textsize
        As in ArviZ.
    """
    chosen = _chosen(fit, var_names, prob, units, target)
    ax = _axes(fit, ax, figsize or (7, 0.6 + 0.42 * len(chosen)))
    ax.axvline(0, color=SOFT, linestyle="--", linewidth=1, zorder=0)
    for place, (_, estimate) in enumerate(reversed(chosen)):
        color = POSTERIOR if estimate.clear else SOFT
        ax.plot([estimate.lower, estimate.upper], [place, place], color=color, linewidth=1.5, solid_capstyle="round")
        ax.plot([estimate.inner_lower, estimate.inner_upper], [place, place], color=color, linewidth=5, alpha=0.5)
        face = color if estimate.clear else "white"
        ax.plot([estimate.mean], [place], marker="o", color=color, markerfacecolor=face)
    ax.set_yticks(range(len(chosen)), [_short(name) for name, _ in reversed(chosen)])
    ax.set_ylim(-0.6, len(chosen) - 0.4)
    ax.set_title(f"{100 * prob:g} % intervals, {units} units")
    return _finished(ax, textsize)


def plot_posterior(
    fit: Fit,
    *,
    var_names: Sequence[str] | None = None,
    prob: float = 0.95,
    units: str = "original",
    target: str = "population",
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
    textsize: float | None = None,
) -> Any:
    """Posterior density of each coefficient, with its prior (dashed) and zero.

    Parameters
    ----------
    ax
        As many axes as coefficients, in any shape. Default: a new figure. They come back as an array; one as itself.
    var_names, prob, units, target, figsize, textsize
        As in ``plot_forest``.
    """
    chosen = _chosen(fit, var_names, prob, units, target)
    axes = _grid_of_axes(ax, len(chosen), figsize)
    for axis, (name, estimate) in zip(axes, chosen, strict=True):
        curve = estimate.density
        axis.set_title(_short(name))
        axis.set_yticks([])
        axis.locator_params(axis="x", nbins=5)
        if curve is not None:
            inside = (curve.x >= estimate.lower) & (curve.x <= estimate.upper)
            axis.fill_between(curve.x, curve.y, where=inside, color=POSTERIOR, alpha=0.3, linewidth=0)
            axis.plot(curve.x, curve.y, color=POSTERIOR)
            if estimate.prior is not None:
                axis.plot(curve.x, estimate.prior, color=SOFT, linestyle="--", linewidth=1.2)
            axis.set_xlim(curve.x[0], curve.x[-1])
            axis.set_ylim(0, None)
            if curve.x[0] <= 0 <= curve.x[-1]:
                axis.axvline(0, color=SOFT, linestyle=":", linewidth=1)
        _finished(axis, textsize)
    return axes[0] if len(axes) == 1 else axes


def plot_effect(
    fit: Fit,
    predictor: str,
    *,
    prob: float = 0.95,
    at: Mapping[str, Any] | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    textsize: float | None = None,
) -> Axes:
    """The predicted outcome along one predictor, two scales around its centre by the survey, or over its levels.

    A release of moments has no survey: there it runs between the declared bounds.

    Parameters
    ----------
    predictor
        A column of the table.
    at
        Where the other predictors stand. Default: their centre and most common level by the survey (of moments, the
        middle of their bounds and the reference level).
    prob, ax, figsize, textsize
        As in ``plot_forest``.
    """
    found = effect(fit, predictor, prob=prob, at=at)
    design = fit.releases[0].design
    ax = _axes(fit, ax, figsize or (5.5, 3.6))
    if found.column.has_levels:
        places = np.arange(len(found.values))
        errors = np.abs(np.stack([found.mean - found.lower, found.upper - found.mean]))
        ax.errorbar(places, found.mean, yerr=errors, fmt="o", color=POSTERIOR, capsize=4)
        labels = [_short(str(level)) for level in found.values]
        crowded = sum(map(len, labels)) > _LONGEST_LINE
        ax.set_xticks(places, labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
        ax.margins(x=0.2)
    else:
        x = [float(value) for value in found.values]
        ax.fill_between(x, found.lower, found.upper, color=POSTERIOR, alpha=0.25, linewidth=0)
        ax.plot(x, found.mean, color=POSTERIOR)
    others = {name: value for name, value in reference_point(fit.releases[0], at).items() if name != predictor}
    ax.set_xlabel(_plain(predictor))
    ax.set_ylabel(_plain(outcome_words(design)))
    if others:
        columns = design.schema.columns
        text = "at " + listed([f"{n} = {shown_value(v, columns[n])}" for n, v in others.items()])
        ax.set_title(_plain(textwrap.fill(text, _LONGEST_LINE)))
    return _finished(ax, textsize)


def plot_privacy(
    fit: Fit,
    *,
    var_names: Sequence[str] | None = None,
    units: str = "original",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    textsize: float | None = None,
) -> Axes:
    """How much of each interval's width would be there without privacy, and how much privacy noise adds.

    Parameters
    ----------
    var_names, units, ax, figsize, textsize
        As in ``plot_forest``.
    """
    chosen = _chosen(fit, var_names, 0.95, units)
    ax = _axes(fit, ax, figsize or (7, 1.0 + 0.42 * len(chosen)))
    places = np.arange(len(chosen))[::-1]
    shares = np.array([estimate.noise_free_share for _, estimate in chosen])
    known = np.nan_to_num(shares, nan=0.0)
    ax.barh(places, 100 * known, color=POSTERIOR, height=0.55, label="without privacy")
    added = np.where(np.isfinite(shares), 100 * (1 - known), 0.0)
    ax.barh(places, added, left=100 * known, color=PRIVACY, height=0.55, label="added by privacy noise")
    for place, (_, estimate) in zip(places, chosen, strict=True):
        times = f" {max(estimate.inflation, 1.0):.2f} ×" if math.isfinite(estimate.inflation) else " n/a"
        ax.text(100, place, times, va="center")
    ax.set_yticks(places, [_short(name) for name, _ in chosen])
    ax.set_xlim(0, 112)
    ax.set_xticks([0, 25, 50, 75, 100])
    ax.set_xlabel("share of the interval's width, %")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return _finished(ax, textsize)


def _chosen(
    fit: Fit, names: Sequence[str] | None, prob: float, units: str, target: str = "population"
) -> list[tuple[str, Estimate]]:
    _check_fit(fit)
    found = dict(zip(fit.names, estimates(fit, prob=prob, units=units, target=target), strict=True))
    wanted = [names] if isinstance(names, str) else list(fit.names) if names is None else list(names)
    for name in wanted:
        if name not in found:
            raise InputError("var_names", name, f"must be among {', '.join(found)}", "correct the name")
    if not wanted:
        raise InputError("var_names", wanted, "must name at least one coefficient", "leave it out for all")
    return [(name, found[name]) for name in wanted]


def _check_fit(fit: object) -> None:
    if not isinstance(fit, Fit):
        raise InputError("fit", type(fit).__name__, "must be a Fit", "use dpglm.fit or dpglm.load_fit")


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise InputError(
            "matplotlib", "not installed", "is needed for plots", "run: python -m pip install matplotlib"
        ) from None
    return plt


def _axes(fit: Fit, ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    _check_fit(fit)
    plt = _pyplot()
    if ax is not None:
        return ax
    made: Axes = plt.subplots(figsize=figsize, layout="constrained")[1]
    return made


def _grid_of_axes(ax: Any, count: int, figsize: tuple[float, float] | None) -> Any:
    plt = _pyplot()
    if ax is not None:
        axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        if len(axes) != count:
            raise InputError("ax", len(axes), f"must hold {count} axes, one a coefficient", "or leave it out")
        return axes
    across = min(count, 3)
    down = -(-count // across)
    _, grid = plt.subplots(down, across, figsize=figsize or (3.4 * across, 2.4 * down), layout="constrained")
    axes = np.atleast_1d(grid).ravel()
    for unused in axes[count:]:
        unused.set_visible(False)
    return axes[:count]


def _plain(text: str) -> str:
    """Text as it is: matplotlib would read what stands between dollar signs as mathematics."""
    return text.replace("$", r"\$")


def _short(name: str) -> str:
    """A name, the middle of a long one left out."""
    half = _LONGEST_NAME // 2
    return _plain(name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[-half:]}")


def _finished(ax: Axes, textsize: float | None) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    if textsize is not None:
        labels = [*ax.get_xticklabels(), *ax.get_yticklabels(), *ax.texts]
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *labels):
            text.set_fontsize(textsize)
    return ax
