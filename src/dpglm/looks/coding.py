"""Standard units: a design whose columns are centred and scaled by what a survey showed.

Declared bounds then say only where values are clamped; they may be generous. A product of factors is centred where the
model holds every product with some of them left out, so that it is the same model in the user's columns
(``formula.py``); otherwise its factors are only divided by their size.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt

from dpglm.expressions import Expression
from dpglm.formula import Design, DesignColumn, Factor, Key
from dpglm.grid import Grid
from dpglm.looks.population import Rare
from dpglm.looks.questions import Place
from dpglm.looks.reading import MOST_BLURRED, Belief, Knowledge, Units, beginning
from dpglm.looks.survey import Survey

Floats = npt.NDArray[np.float64]

ROW_BITS = 20  # standardised rows are rounded to steps of 2^-20 scales
LARGEST = 2.0**14  # scales from the centre at which a standardised value, or a product of some, is clamped
_LEAST_SHARE, _CLEAR = 0.002, 2.0
_RARE_OUTCOME, _MOST_DOUBT, _TINY = 0.002, 4.0, 1e-6
_MOST_WIDER = 3.0  # logarithm of how much wider the prior may be where the scale is in doubt
_LONG = 4.5  # standard units: of a level that less than a twentieth of rows have
PRIOR_SLOPES, PRIOR_INTERCEPT = 2.5, 5.0  # standard units, as rstanarm scales its own


def standard_design(design: Design, survey: Survey) -> Design:
    """The same regression in standard units."""
    held = {column.keys for column in design.columns}
    if design.intercept:
        held.add(frozenset())
    terms = tuple(
        replace(term, columns=tuple(_standard_column(column, held, survey) for column in term.columns))
        for term in design.terms
    )
    offset = design.offset
    if offset is not None:
        (factor,) = offset.factors
        offset = replace(offset, factors=(_standard_factor(factor, survey, design.intercept),))
    return replace(
        design, outcome=_outcome(design, survey), terms=terms, offset=offset, limit=LARGEST,
        weight_scale=survey.mean_weight,
    )  # fmt: skip


def _outcome(design: Design, survey: Survey) -> Factor:
    """Two levels as 0 and 1, counts as they are, numbers in standard units."""
    if design.family.coding == "scaled":
        return _standard_factor(design.outcome, survey, design.intercept)
    return replace(design.outcome, center=0.0, scale=1.0)


def _standard_column(column: DesignColumn, held: set[frozenset[Key]], survey: Survey) -> DesignColumn:
    keys = [factor.key for factor in column.factors]
    subsets = chain.from_iterable(combinations(keys, size) for size in range(len(keys) + 1))
    centred = all(column.keys - set(subset) in held for subset in subsets)
    return replace(column, factors=tuple(_standard_factor(factor, survey, centred) for factor in column.factors))


def _standard_factor(factor: Factor, survey: Survey, centred: bool) -> Factor:
    place = survey.place_of(factor.source)
    if isinstance(factor.source, Expression):
        centre, scale = place.centre, place.scale
    else:
        share = _share(place, factor.level)
        centre, scale = share, math.sqrt(share * (1 - share))
    if not centred:
        centre, scale = 0.0, math.hypot(centre, scale)
    return replace(factor, center=_short(centre), scale=_short(scale))


def _short(number: float) -> float:
    """Nine digits: the same on every machine."""
    return float(f"{number:.9g}")


def _share(place: Place, level: int) -> float:
    """Share of a level, away from none and all by what the survey could not see."""
    least = max(_CLEAR * place.stddev, _LEAST_SHARE)
    return min(max(place.shares[level], least), 1 - least) if least < 0.5 else 0.5


def look_grid(design: Design) -> Grid:
    """The grid of standardised rows and of the outcome."""
    largest = max(abs(bound) for bound in design.response_range)
    return Grid(ROW_BITS, max(0, math.ceil(math.log2(largest))))


def default_prior(design: Design, survey: Survey) -> Belief:
    """The default prior of a standard design: around no effects, and the intercept that the survey shows; as much wider
    as the survey doubts the scale of a column.
    """
    size = len(design.coefficient_names)
    mean, scales = np.zeros(size), np.full(size, PRIOR_SLOPES)
    scales[int(design.intercept) :] *= np.exp(np.minimum(_doubt_of_scales(design, survey), _MOST_WIDER))
    if design.intercept:
        mean[0], scales[0] = _first_intercept(design, survey), PRIOR_INTERCEPT
    return Belief(mean, np.diag(scales**2))


def before_looks(design: Design, survey: Survey, belief: Belief) -> Knowledge:
    """What is known of a standard design before its first look, which stands where the survey shows."""
    centre = np.zeros(len(design.coefficient_names))
    if design.intercept:
        centre[0] = _first_intercept(design, survey)
    protection = design.schema.dataset.protection
    followed = design.schema.dataset.unit_order is not None
    robust = design.weights is not None or (protection.several_rows and not followed)
    return beginning(
        design.family, design.response_range, survey.rows * survey.mean_rows, belief, centre, design.intercept,
        offset_slope(design), _rare(design, survey), _blurred(design, survey),
        Units(protection.score_cost, robust, survey.mean_rows, survey.long_rows, followed),
    )  # fmt: skip


def _rare(design: Design, survey: Survey) -> Rare:
    """Rare levels: how long their rows are is known, how many there are as far as the survey saw them."""
    size = len(design.coefficient_names)
    rare = Rare(np.zeros(size), np.ones(size), np.zeros(size))
    followed = design.schema.dataset.unit_order
    for number, column in enumerate(design.columns, design.intercept):
        if any(isinstance(each.source, Expression) or each.source.name == followed for each in column.factors):
            continue  # of periods the survey counts people by the share of their rows, not rows
        found = [_rarer(factor, survey) for factor in column.factors]
        value = math.prod(value for value, _, _ in found)
        if abs(value) > _LONG:
            seen, stddev = math.prod(seen for _, seen, _ in found), max(stddev for _, _, stddev in found)
            rare.values[number] = value
            rare.information[number] = min(max(seen, stddev / 2, _TINY) * value**2, 1.0)
            unseen = stddev / max(seen - stddev, _TINY)
            rare.doubt[number] = min(unseen, _MOST_DOUBT) if len(found) == 1 else 1.0
    return rare


def _blurred(design: Design, survey: Survey) -> Floats:
    """Relative error of the information of each coefficient, because the survey doubts the scale of its column."""
    of_slopes = np.minimum(np.expm1(2 * np.minimum(_doubt_of_scales(design, survey), _MOST_WIDER)), MOST_BLURRED)
    return np.append(np.zeros(int(design.intercept)), of_slopes)


def _doubt_of_scales(design: Design, survey: Survey) -> Floats:
    """By column of a term, the deviation of the logarithm of its scale."""
    columns = chain.from_iterable(term.columns for term in design.terms)
    return np.array([sum(survey.place_of(each.source).doubt for each in column.factors) for column in columns])


def _rarer(factor: Factor, survey: Survey) -> tuple[float, float, float]:
    """What rows with or without a level have, whichever are rarer; their share as it was seen, and its noise."""
    place = survey.place_of(factor.source)
    seen = place.shares[factor.level]
    if factor.center > 0.5:
        return -factor.center / factor.scale, 1 - seen, place.stddev
    return (1 - factor.center) / factor.scale, seen, place.stddev


def _first_intercept(design: Design, survey: Survey) -> float:
    """The linear predictor without effects."""
    place = survey.place_of(design.outcome.source)
    if design.family.coding == "sign":
        least = max(_CLEAR * place.stddev, _RARE_OUTCOME)
        share = min(max(place.shares[1], least), 1 - least) if least < 0.5 else 0.5
        return design.family.linear_predictor(share)
    return design.family.linear_predictor(place.centre) if design.family.coding == "count" else 0.0


def offset_slope(design: Design) -> float | None:
    """The known coefficient of an offset's column, in standard units."""
    if design.offset is None:
        return None
    scale = design.outcome.scale if design.family.coding == "scaled" else 1.0
    return float(design.offset.factors[0].scale / scale)
