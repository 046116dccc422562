"""What people call the coefficients: labels of the schema, reference levels by name, effects by round steps.

A coefficient of a number is per unit of its column, which is often far from what people would say: per dollar. Here it
is given for a round step near the column's scale, "per 1,000"; the reader may choose another step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real

from dpglm.analyst.typical import is_of_dates, round_step
from dpglm.errors import InputError
from dpglm.expressions import Expression
from dpglm.formula import Design, DesignColumn, Factor, Term
from dpglm.releases import Release
from dpglm.schema import Column, Schema

_NAME = re.compile(r"`[^`]*`|[^\W\d]\w*")


@dataclass(frozen=True)
class Named:
    """A coefficient as people call it.

    ``step`` is how many units of its column the effect is for; ``what`` is its level or number, and ``versus`` the
    reference level, None where there is none. A level alone has a ``level``, and a ``group``: the column's name and
    label, which the other levels share.
    """

    name: str
    what: str
    step: float
    versus: str | None
    level: str = ""
    group: tuple[str, str] | None = None

    @property
    def label(self) -> str:
        """In one line: ``Age, per 10`` or ``Smoking: former (vs. never)``."""
        versus = "" if self.versus is None else f" (vs. {self.versus})"
        return f"{self.what}{versus}"


def named_coefficients(release: Release, per: Mapping[str, float] | float | None = None) -> tuple[Named, ...]:
    """The coefficients in their order. ``per`` is a step for all numbers, or some by column; None for round ones."""
    design = release.design
    steps = steps_of(release, per)
    found = [Named("Intercept", "Intercept", 1.0, None)] if design.intercept else []
    return tuple(found + [_named(column, term, design, steps) for term in design.terms for column in term.columns])


def outcome_title(design: Design) -> str:
    """The outcome, with the level that is told of."""
    source = design.outcome.source
    if isinstance(source, Column):
        return f"{source.title}: {source.levels[design.outcome.level]}"
    return expression_title(source, design.schema)


def expression_title(source: Expression, schema: Schema) -> str:
    """An expression with the labels of its columns; a plain column is its label.

    >>> from dpglm.expressions import parse_expression
    >>> column = {"type": "numeric", "lower": 1, "upper": 9, "label": "Income in $"}
    >>> schema = Schema.from_dict({"dataset": {"name": "d", "rows": 9}, "columns": {"income": column}})
    >>> expression_title(parse_expression("log(income)", schema), schema)
    'log(Income in $)'
    """
    if source.text in source.columns:
        return schema.columns[source.text].title

    def titled(found: re.Match[str]) -> str:
        name = found[0].strip("`")
        return schema.columns[name].title if name in source.columns else found[0]

    return _NAME.sub(titled, source.text)


def step_text(step: float) -> str:
    """
    >>> step_text(1000.0), step_text(0.5)
    ('1,000', '0.5')
    """
    return f"{step:,.0f}" if step == int(step) and step < 1e15 else f"{step:g}"


def steps_of(release: Release, per: Mapping[str, float] | float | None) -> dict[str, float]:
    """How many units an effect is for, by the text of a numeric factor."""
    columns = [column for term in release.design.terms for column in term.columns]
    factors = {f.source.text: f for c in columns for f in c.factors if isinstance(f.source, Expression)}
    if per is None or isinstance(per, Mapping):
        given = {} if per is None else dict(per)
        for name in given:
            if name not in factors:
                known = ", ".join(factors) or "there are no numbers"
                raise InputError("per", name, f"must name a numeric term ({known})", "correct the name")
        chosen = {name: given.get(name, round_step(release, factor)) for name, factor in factors.items()}
    else:
        chosen = dict.fromkeys(factors, per)
    for name, step in chosen.items():
        if isinstance(step, bool) or not isinstance(step, Real) or not math.isfinite(step) or step <= 0:
            raise InputError(f"per[{name!r}]", step, "must be a number above 0", 'write for example per={"age": 10}')
    return {name: float(step) for name, step in chosen.items()}


def _named(column: DesignColumn, term: Term, design: Design, steps: Mapping[str, float]) -> Named:
    whats, versus, step = [], [], 1.0
    for factor in column.factors:
        if isinstance(factor.source, Expression):
            own = steps[factor.source.text]
            step *= own
            per = f", per {step_text(own)}" if own != 1 else ""
            if is_of_dates(factor.source, design.schema):
                per = f"{per} days" if per else ", per day"
            whats.append(expression_title(factor.source, design.schema) + per)
        else:
            whats.append(f"{factor.source.title}: {factor.source.levels[factor.level]}")
            if not _has_every_level(factor, term.columns):
                versus.append(str(factor.source.levels[0]))
    named = Named(column.name, " × ".join(whats), step, " × ".join(versus) if versus else None)
    factor, source = column.factors[0], column.factors[0].source
    if len(column.factors) > 1 or isinstance(source, Expression):
        return named
    return replace(named, level=str(source.levels[factor.level]), group=(source.name, source.title))


def _has_every_level(factor: Factor, columns: Sequence[DesignColumn]) -> bool:
    """Whether the term has the reference level too, so that nothing is compared with it."""
    return any(each.source == factor.source and each.level == 0 for column in columns for each in column.factors)
