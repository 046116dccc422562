"""Ordered levels: the step from each level to the next, and their trend.

They are contrasts of the coefficients that a release holds: the same model in other words, with the same prior. So a
release does not depend on whether levels are declared to be ordered, and the analyst may order them, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dpglm.analyst.contrasts import described, vector_of
from dpglm.analyst.typical import predictors
from dpglm.errors import InputError
from dpglm.formula import Design
from dpglm.schema import Column
from dpglm.values import Level

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.analyst.result import Fit

_LEAST = 3  # levels of which there is a trend


@dataclass(frozen=True)
class Step:
    """From one level to the next; ``versus`` is None for the trend: the least squares line through equally spaced
    levels, per level.
    """

    column: Column
    level: Level | None
    versus: Level | None
    weights: Mapping[str, float]

    @property
    def name(self) -> str:
        """As a program would name it."""
        column = self.column.name
        if self.versus is None:
            return f"trend({column})"
        return f"{column}[{self.level}] - {column}[{self.versus}]"

    @property
    def label(self) -> str:
        """As people call it."""
        if self.versus is None:
            return f"{self.column.title}: trend, per level"
        return f"{self.column.title}: {self.level} (vs. {self.versus})"


def steps(fit: Fit, column: str | None, order: Sequence[Level] | None, prob: float) -> pd.DataFrame:
    """``Fit.steps``."""
    import pandas as pd

    found = [step for each in _asked(fit, column, order) for step in steps_of(fit.releases[0].design, each, order)]
    rows = []
    for step in found:
        row = described(fit, vector_of(fit, step.weights), prob)
        row |= ratios(row, fit.ratio_name)
        ends = {"column": step.column.name, "level": step.level, "versus": step.versus}
        rows.append(ends | {key: value for key, value in row.items() if key != "median"})
    return pd.DataFrame(rows, index=pd.Index([step.name for step in found], name="step"))


def ratios(row: Mapping[str, Any], name: str | None) -> dict[str, float]:
    """The odds, rate or hazard ratio of a described effect, where the link has one."""
    if name is None:
        return {}
    values = np.exp(np.clip([row["median"], row["lower"], row["upper"]], -700, 700))
    return dict(zip((name, f"{name}_lower", f"{name}_upper"), map(float, values), strict=True))


def ordered_columns(design: Design) -> list[Column]:
    """The predictors whose levels are declared to be ordered, and that stand by themselves in the formula."""
    return [column for column in predictors(design) if column.ordered and own_coefficients(design, column)]


def steps_of(design: Design, column: Column, order: Sequence[Level] | None = None) -> list[Step]:
    """The steps of a column in its order or another, and of three levels or more their trend."""
    coefficients = own_coefficients(design, column)
    by_text = {str(level): level for level in column.levels}
    levels = column.own_levels if order is None else tuple(by_text[str(level)] for level in order)

    def difference(level: Level, versus: Level) -> dict[str, float]:
        """The reference level has no coefficient, unless the model has no intercept."""
        ends = ((coefficients.get(level), 1.0), (coefficients.get(versus), -1.0))
        return {name: sign for name, sign in ends if name is not None}

    found = [Step(column, level, versus, difference(level, versus)) for versus, level in pairwise(levels)]
    if len(levels) >= _LEAST:
        scores = np.arange(len(levels)) - (len(levels) - 1) / 2
        slopes = {
            coefficients[level]: float(score / (scores @ scores))
            for level, score in zip(levels, scores, strict=True)
            if level in coefficients and not math.isclose(score, 0)
        }
        found.append(Step(column, None, None, slopes))
    return found


def own_coefficients(design: Design, column: Column) -> dict[Level, str]:
    """The coefficient of each level by itself."""
    alone = [each for term in design.terms for each in term.columns if len(each.factors) == 1]
    return {column.levels[each.factors[0].level]: each.name for each in alone if each.factors[0].source == column}


def _asked(fit: Fit, name: str | None, order: Sequence[Level] | None) -> list[Column]:
    design = fit.releases[0].design
    if name is None and order is not None:
        raise InputError("column", None, "must be named where its order is given", "name the column")
    if name is None:
        found = ordered_columns(design)
        if not found:
            rule = "none of the formula is declared with ordered = true"
            raise InputError("column", None, rule, 'name one: fit.steps("education")')
        return found
    column = {each.name: each for each in predictors(design)}.get(name) if isinstance(name, str) else None
    if column is None or not column.has_levels or not own_coefficients(design, column):
        rule = "must be a predictor with levels that stands by itself in the formula"
        raise InputError("column", name, rule, "correct the name")
    if order is not None:
        known = set(map(str, column.levels))
        listed = list(map(str, order)) if isinstance(order, list | tuple) else []
        if len(listed) < 2 or len(set(listed)) != len(listed) or not set(listed) <= known:
            rule = f"must list two levels or more of {', '.join(map(str, column.levels))}, each once"
            raise InputError("order", order, rule, "correct the list")
    return [column]
