"""Average marginal effects: what a change of one predictor does to the expected outcome, averaged over rows.

No row of the table is here. By default the average is over typical rows: each column is spread as the survey shows it
(a number like a normal distribution with its centre and scale, inside its bounds; levels by their shares), and columns
are taken as independent. That is said wherever these effects are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.describe import describe, tail_of
from dpglm.analyst.labels import step_text, steps_of
from dpglm.analyst.prediction import coded_cells, expected, own_coefficients, some_draws, with_intercept
from dpglm.analyst.typical import numeric_places, place_of, predictors, typical
from dpglm.errors import InputError
from dpglm.expressions import Expression
from dpglm.looks.questions import thresholds
from dpglm.releases import Release
from dpglm.schema import Column
from dpglm.values import Level

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.analyst.result import Fit

Floats = npt.NDArray[np.float64]

TYPICAL_ROWS = (
    "averaged over typical rows built from the survey: each column as the survey shows it, the columns as if they were"
    " independent"
)
_ROWS = 300
_DRAWS = 2_000
_LARGEST_SPREAD = 8.0  # scales from the centre


@dataclass(frozen=True)
class MarginalEffect:
    """The average change of the expected outcome when a column changes as ``label`` says.

    ``level`` is None of a number.
    """

    column: Column
    label: str
    level: Level | None
    mean: float
    sd: float
    lower: float
    upper: float
    p_sign: float
    clear: bool


def marginal_effects(fit: Fit, prob: float, per: Mapping[str, float] | float | None, rows: Any) -> pd.DataFrame:
    """``Fit.marginal_effects``."""
    import pandas as pd

    found = all_effects(fit, prob, per, rows)
    table = pd.DataFrame(
        {"column": [each.column.name for each in found]}
        | {name: [getattr(each, name) for each in found] for name in ("mean", "sd", "lower", "upper", "p_sign")}
        | {"significant": [each.clear for each in found]},
        index=pd.Index([each.label for each in found], name="change"),
    )
    table.attrs["rows"] = TYPICAL_ROWS if rows is None else "averaged over the rows that were given"
    return table


def all_effects(
    fit: Fit, prob: float, per: Mapping[str, float] | float | None = None, rows: Any = None
) -> list[MarginalEffect]:
    """One a numeric predictor and one a level but the reference, in formula order."""
    tail_of(prob)
    release = fit.releases[0]
    design = release.design
    values = typical_rows(release) if rows is None else _given_rows(rows, release)
    number = len(next(iter(values.values())))
    draws = some_draws(fit)
    own = own_coefficients(design, draws[:: max(1, len(draws) // _DRAWS)])
    signs = _signs(fit, prob)

    def outcome(name: str, column: Floats) -> Floats:
        x = with_intercept(design.predictors({**values, name: column}, number).T, design)
        return np.asarray(expected(fit, x, own, 0).mean(axis=0))

    steps = steps_of(release, per)
    found = []
    for column in predictors(design):
        name, at = column.name, values[column.name]
        changes: list[tuple[str, Level | None, str, Floats]]
        if column.has_levels:
            base = outcome(name, np.zeros(number))
            changes = [
                (f"{column.title}: {level} (vs. {column.levels[0]})", level, f"{name}[{level}]",
                 outcome(name, np.full(number, float(code))) - base)
                for code, level in enumerate(column.levels) if code
            ]  # fmt: skip
        else:
            step = _step_of(column, steps, release)
            up, down = at + step / 2, at - step / 2  # around where it is, whole, inside what is declared
            over = np.maximum(up - column.upper, 0.0) - np.maximum(column.lower - down, 0.0)
            change = outcome(name, up - over) - outcome(name, down - over)
            unit = f" day{'s' * (step != 1)}" * column.dates
            changes = [(f"{column.title}, {step_text(step)}{unit} more", None, name, change)]
        for label, level, key, change in changes:
            told = describe(change, prob)
            p_sign, clear = signs.get(key, (told["p_sign"], told["significant"]))
            mean, sd, lower, upper = (float(told[part]) for part in ("mean", "sd", "lower", "upper"))
            found.append(MarginalEffect(column, label, level, mean, sd, lower, upper, float(p_sign), bool(clear)))
    return found


def typical_rows(release: Release) -> dict[str, Floats]:
    """Rows as the survey would have them: numbers, and positions of levels. Nothing of it is random."""
    if release.survey_record is None:
        rule = "has no survey, from which typical rows could be built"
        raise InputError("rows", release.method, rule, "give rows to average over")
    design = release.design
    needed = dict.fromkeys(name for column in design.columns for f in column.factors for name in f.column_names)
    rows = {}
    for number, name in enumerate(needed):
        order = np.random.default_rng(number).permutation(_ROWS)
        ranks = (order + 0.5) / _ROWS  # each column's even ranks, in an order of its own
        column = design.schema.columns[name]
        rows[name] = _levels(release, column, ranks) if column.has_levels else _numbers(release, column, ranks)
    return rows


def _levels(release: Release, column: Column, ranks: Floats) -> Floats:
    place = place_of(release, column)
    assert place is not None
    shares = np.maximum(place.shares, 0.0)
    if not shares.sum() > 0:
        return np.zeros(len(ranks))
    return np.asarray(np.searchsorted(np.cumsum(shares / shares.sum())[:-1], ranks), dtype=np.float64)


def _numbers(release: Release, column: Column, ranks: Floats) -> Floats:
    """Of a normal distribution; where the survey saw an expression of the column alone, of the expression."""
    about = [each for each in numeric_places(release) if each[0].columns == (column.name,)]
    if not about:  # it stands only beside others inside expressions
        return np.full(len(ranks), typical(release, column).centre)
    source, place = min(about, key=lambda each: each[0].text != column.name)
    normal = NormalDist(place.centre, max(place.scale, 1e-300))
    drawn = np.array([normal.inv_cdf(rank) for rank in ranks.tolist()])
    if source.text != column.name:
        grid = np.array([column.lower, *thresholds(column.lower, column.upper), column.upper])
        drawn = _solved(source, grid, drawn, place.scale)
    drawn = np.clip(drawn, column.lower, column.upper)
    return np.asarray(np.round(drawn) if column.type == "count" else drawn)


def _solved(source: Expression, grid: Floats, wanted: Floats, scale: float) -> Floats:
    """The points of a grid where an expression of one column is nearest to what is wanted."""
    values = source.evaluate({source.columns[0]: grid})
    order = np.argsort(values)
    place = np.clip(np.searchsorted(values[order], wanted), 1, len(grid) - 1)
    lower, upper = order[place - 1], order[place]
    nearer = np.abs(values[upper] - wanted) < np.abs(values[lower] - wanted)
    return np.asarray(np.where(nearer, grid[upper], grid[lower]))


def _given_rows(rows: Any, release: Release) -> dict[str, Floats]:
    values = coded_cells(rows, release.design)
    if not len(next(iter(values.values()))):
        raise InputError("rows", 0, "must hold at least one row", "give rows to average over")
    return values


def _step_of(column: Column, steps: Mapping[str, float], release: Release) -> float:
    """The step of the column itself; where it stands only inside expressions, a round one near its typical width."""
    if column.name in steps:
        return min(steps[column.name], column.upper - column.lower)
    along = typical(release, column)
    return min(float(f"{(along.high - along.low) / 4:.1g}"), column.upper - column.lower)


def _signs(fit: Fit, prob: float) -> dict[str, tuple[float, bool]]:
    """Of columns that one coefficient alone speaks for: an average effect has its coefficient's sign."""
    terms = fit.releases[0].design.terms
    used: dict[str, int] = {}
    for term in terms:
        for name in {name for column in term.columns for factor in column.factors for name in factor.column_names}:
            used[name] = used.get(name, 0) + 1
    alone = {
        column.name
        for term in terms
        for column in term.columns
        if len(column.factors) == 1 and used[column.factors[0].column_names[0]] == 1
        and (not isinstance(column.factors[0].source, Expression) or column.name in used)
    }  # fmt: skip
    rows = zip(fit.names, fit.summary_rows(prob), strict=True)
    return {name: (row["p_sign"], row["significant"]) for name, row in rows if name in alone}
