"""What a budget buys, before it is spent: expected widths, errors and power, from public numbers alone. No row is read.

A release by looks is followed look by look at a nominal table (``nominal``), by the code that chooses the bounds of a
release and reads it: the plan is truthful where the table is as assumed. One of moments is judged at the public nominal
point of its noise allocation (docs/moments.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpglm.custodian.allocation import coefficient_stddevs
from dpglm.custodian.assumptions import Assumptions, Stated
from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.nominal import Told, nominal_survey, told_by_looks
from dpglm.custodian.outlook import MOVES, NORMAL, Expected, ExpectedCoefficient, Needed, Outlook
from dpglm.errors import InputError
from dpglm.families import family_named
from dpglm.formula import Design, build_design
from dpglm.looks.survey import Survey
from dpglm.privacy import finite_number
from dpglm.protection import ADDED_OR_REMOVED, REPLACED
from dpglm.releases import Release
from dpglm.schema import Schema

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_FACTORS = (0.25, 1.0, 4.0)  # of the declared number of rows
_EFFECTS = {"looks": 0.2, "moments": 1.0}
_LEAST_EPSILON, _MOST_EPSILON, _LEAST_ROWS, _MOST_ROWS = 0.01, 30.0, 50, 10**9
_QUANTILES = ndtri((np.arange(2_000) + 0.5) / 2_000)  # of the normal distribution, evenly
_HALVINGS = 11  # of the range in which a budget or a number of rows is searched


def plan(
    formula: str,
    *,
    schema: Schema,
    family: str,
    epsilon: float | Sequence[float] = EPSILONS,
    delta: float = 1e-6,
    rows: int | Sequence[int] | None = None,
    effect: float | None = None,
    method: str = "looks",
    outcome: float | None = None,
    spreads: Mapping[str, float] | None = None,
    shares: Mapping[str, Sequence[float]] | None = None,
    overlap: Mapping[str, float] | None = None,
    strength: float | None = None,
    dispersion: float | None = None,
    half_width: float | None = None,
    survey: Release | None = None,
    link: str | None = None,
    where: str | None = None,
    weights: str | None = None,
    complete: float | None = None,
    design_effect: float | None = None,
    rows_per_unit: float | None = None,
    likeness: Mapping[str, float] | None = None,
) -> Outlook:
    """Expected interval widths, errors and power by epsilon and number of rows, from public numbers alone.

    Parameters
    ----------
    formula, schema, family
        As for ``release``. Of the schema its bounds and, unless ``rows`` are given, its number of rows.
    epsilon, rows
        One or several. Rows: by default a quarter of the declared number, that number, and four times as many. Where
        people have several rows, people.
    effect
        For the power: how much the linear predictor changes when a column moves. By looks, log-odds, log-rate or
        standard deviations of the outcome when it moves by one standard deviation (default 0.2). By moments, log-odds,
        log-rate or a share of the outcome's range when it moves across its whole declared range (default 1).
    method
        "looks" (default) or "moments", as for ``release``.
    outcome
        By looks: the share of rows with the second level (default 0.3), or the mean count (default 1). Where an event
        ends a person's rows (``unit_order``), the share of people who ever have it.
    spreads, shares
        By looks: what you expect of columns, ``{"age": 15}`` (standard deviations; then widths are told in the column's
        own unit, too) and ``{"smoker": [0.6, 0.3, 0.1]}`` (shares of the levels, in their order; default: equal).
    overlap
        By looks: how much the other columns tell of one, ``{"age": 0.3}`` (R² of its regression on them; default: 0).
        Its interval is 1 / √(1 − R²) times as wide, with privacy and without.
    strength
        By looks: the standard deviation of the linear predictor over rows (default 0.5), how strong all effects are
        together; of a numeric outcome, in its own standard deviations.
    dispersion
        By looks, of counts: their variance over their mean (default 3).
    half_width
        Also tell the smallest epsilon, and the smallest number of rows, for an average interval this narrow.
    survey
        An earlier release of the same dataset: centres, scales and shares are those of its survey, and a release that
        uses it again is planned.
    link, where, weights
        As for ``release``.
    complete
        By looks: the share of rows that count, where some may lack a value or lie outside of ``where`` (default: 1).
    design_effect
        Of ``weights``: the mean of their squares over the square of their mean. Default: that of weights spread evenly
        between the declared bounds of their column.
    rows_per_unit
        Where people have several rows (``unit_column``): how many on average (default 5), some fewer and some more.
    likeness
        The same: how alike two rows of a person are, ``{"wage": 0.6, "hours": 0.3}``. Of the outcome the correlation
        of what predictors leave of it (default 0.5), of a predictor its own (default 1: the same in all rows). Widths
        are cluster-robust, with privacy and without.
    """
    if method not in MOVES:
        raise InputError("method", method, f"must be one of {', '.join(MOVES)}", "correct it")
    size = finite_number(_EFFECTS[method] if effect is None else effect)
    if size is None or size <= 0:
        raise InputError("effect", effect, "must be a number above 0", "write for example effect=0.5")
    chosen = family_named(family, link)
    for name, given in (("link", link), ("where", where), ("weights", weights)):
        if method == "moments" and given is not None:
            raise InputError(name, given, "belongs to method='looks'", "leave it out")
    design = build_design(formula, schema, chosen, where=where, weights=weights)
    stated = Stated(
        outcome, spreads, shares, overlap, strength, dispersion, complete, design_effect, rows_per_unit, likeness
    )
    assumed = stated.of(design, method, survey is not None)
    planner = _Planner(design, delta, size, method, assumed, _surveyed(survey, design, method))
    dataset = schema.dataset
    declared = dataset.number
    if declared is None and rows is None:
        relation = dataset.protection.neighbours
        raise InputError("rows", None, f"is private where neighbours are {relation}", "say for how many to plan")
    wanted = [max(2, round(factor * (declared or 1))) for factor in _FACTORS] if rows is None else _sizes(rows)
    epsilons = _several("epsilon", epsilon)
    cases = tuple(planner.expected(number, each) for number in wanted for each in epsilons)
    needed = () if half_width is None else planner.needed(half_width, wanted, [float(each) for each in epsilons])
    made = Outlook(
        formula, design.family.name, len(design.coefficient_names), float(delta), size, method, assumed.outcome, cases,
        needed, survey is not None, design.family.link, dataset.protection.neighbours, dataset.counted, dataset.unit,
        planner.assumed_of_rows,
    )  # fmt: skip
    if method == "moments":
        return made
    other = planner.with_the_other_promise
    return replace(made, other_promise=tuple(other.expected(each.rows, each.epsilon).inflation for each in made.shown))


@dataclass(frozen=True)
class _Planner:
    """Everything but the number of rows and the budget."""

    design: Design
    delta: float
    effect: float
    method: str
    assumed: Assumptions
    survey: Survey | None

    def expected(self, rows: int, epsilon: Any) -> Expected:
        """One case."""
        design = self.design.of_size(rows)
        if self.method == "moments":
            inflation, stddev = _told_by_moments(design, epsilon, self.delta)
            return Expected(rows, float(epsilon), inflation, NORMAL * stddev, _power(self.effect, stddev))
        survey = nominal_survey(design, self.assumed) if self.survey is None else _of_size(self.survey, rows)
        stated = frozenset(self.assumed.spreads or ()) if self.survey is None else None
        told = told_by_looks(design, epsilon, self.delta, survey, self.assumed, stated)
        stddev = math.sqrt(sum(each.stddev**2 for each in told) / len(told))
        inflation = math.sqrt(sum((each.stddev / each.plain) ** 2 for each in told) / len(told))
        coefficients = tuple(self._coefficient(each) for each in told)
        return Expected(
            rows, float(epsilon), inflation, NORMAL * stddev, _power(self.effect, stddev), coefficients
        )  # fmt: skip

    @property
    def with_the_other_promise(self) -> _Planner:
        """The same where a unit is added or removed and not replaced, and their number private; or the reverse."""
        schema = self.design.schema
        promised = schema.dataset.protection
        other = replace(promised, neighbours=ADDED_OR_REMOVED if promised.replaced else REPLACED)
        dataset = replace(schema.dataset, protection=other)
        return replace(self, design=replace(self.design, schema=replace(schema, dataset=dataset)))

    @property
    def assumed_of_rows(self) -> tuple[str, ...]:
        """Which rows count, what they weigh and whose they are, in words."""
        if self.method == "moments":
            return ()
        return self.assumed.of_rows(self.design, self.survey is not None)

    def _coefficient(self, told: Told) -> ExpectedCoefficient:
        lost, _ = _mismatches(self.effect, told)
        _, false = _mismatches(0.0, told)
        original = None if told.unit is None else NORMAL * told.stddev * told.unit
        return ExpectedCoefficient(
            told.name, NORMAL * told.stddev, original, told.stddev / told.plain, _power(self.effect, told.stddev),
            _above(self.effect / told.stddev), lost, false,
        )  # fmt: skip

    def needed(self, half_width: object, rows: Sequence[int], epsilons: Sequence[float]) -> tuple[Needed, ...]:
        """The smallest epsilon for each number of rows, and the smallest number of rows for each epsilon."""
        wanted = finite_number(half_width)
        if wanted is None or wanted <= 0:
            raise InputError("half_width", half_width, "must be a number above 0", "write for example half_width=0.1")
        found = []
        for number in rows:
            least = _smallest(
                lambda each, number=number: self.expected(number, each).half_width <= wanted,
                _LEAST_EPSILON, _MOST_EPSILON,
            )  # fmt: skip
            found.append(Needed(wanted, number, least, is_epsilon=True))
        for epsilon in epsilons:
            fewest = _smallest(
                lambda each, epsilon=epsilon: self.expected(round(each), epsilon).half_width <= wanted,
                _LEAST_ROWS, _MOST_ROWS,
            )  # fmt: skip
            found.append(Needed(wanted, None if fewest is None else _rounded_up(fewest), epsilon, is_epsilon=False))
        return tuple(found)


def _of_size(survey: Survey, rows: int) -> Survey:
    """A survey as of this many rows."""
    return replace(survey, rows=rows * min(survey.rows / survey.total, 1.0), total=float(rows))


def _smallest(is_enough: Any, low: float, high: float) -> float | None:
    """Where a condition that holds from some number on begins to hold, by halving on a logarithmic scale."""
    if not is_enough(high):
        return None
    if is_enough(low):
        return low
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _rounded_up(rows: float) -> int:
    """Two digits: more would claim too much."""
    unit = 10 ** max(math.floor(math.log10(rows)) - 1, 0)
    return int(math.ceil(rows / unit) * unit)


def _mismatches(effect: float, told: Told) -> tuple[float, float]:
    """Chances that an estimate is significant without privacy alone, and with privacy alone."""
    alone = effect + told.plain * _QUANTILES  # estimates without privacy
    extra = math.sqrt(max(told.stddev**2 - told.plain**2, 1e-12 * told.plain**2))
    within = np.array(
        [
            _above((-NORMAL * told.stddev - each) / extra) - _above((NORMAL * told.stddev - each) / extra)
            for each in alone.tolist()
        ]
    )
    significant = np.abs(alone) > NORMAL * told.plain
    return float(np.mean(np.where(significant, within, 0.0))), float(np.mean(np.where(significant, 0.0, 1 - within)))


def _power(effect: float, stddev: float) -> float:
    return _above(NORMAL - effect / stddev) + _above(NORMAL + effect / stddev)


def _surveyed(survey: object, design: Design, method: str) -> Survey | None:
    if survey is None:
        return None
    if method != "looks":
        raise InputError("survey", "(a release)", "belongs to method='looks'", "leave it out")
    if not isinstance(survey, Release) or survey.survey_record is None:
        raise InputError("survey", type(survey).__name__, "must be a release by looks", "leave it out, or pass one")
    return survey.survey_record.survey_of(design)


def _told_by_moments(design: Design, epsilon: Any, delta: Any) -> tuple[float, float]:
    """Inflation, and the standard deviation of the effect of a column's whole range."""
    made = calibrate(design, epsilon, delta, None, "auto", "full")
    rows = design.schema.dataset.planned
    arguments = (design.family, made.blocks, design.dimension, rows, made.radius, design.response_range)
    plain = coefficient_stddevs([1e-6 * noise for noise in made.noise_stddevs], *arguments)
    noisy = coefficient_stddevs(made.noise_stddevs, *arguments)
    inflation = math.sqrt(noisy[1] / plain[1] * noisy[2] / plain[2])
    # A range is two scaled units long, and so is that of a linear outcome, whose share is asked for.
    return inflation, inflation * plain[2] * (1 if design.family.coding == "scaled" else 2)


def _sizes(rows: Any) -> list[int]:
    sizes = _several("rows", rows)
    for value in sizes:
        number = finite_number(value)
        if number is None or number < 2 or number != int(number):
            raise InputError("rows", value, "must be a whole number of at least 2", "correct it")
    return [int(value) for value in sizes]


def _several(name: str, values: Any) -> list[Any]:
    """One value or several."""
    listed = list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]
    if not listed:
        raise InputError(name, values, "must hold at least one number", "leave it out for the default")
    return listed


def _above(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2))
