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
from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.nominal import PREDICTOR_STDDEV, Assumptions, Told, nominal_survey, told_by_looks
from dpglm.custodian.outlook import MOVES, NORMAL, Expected, ExpectedCoefficient, Needed, Outlook
from dpglm.errors import InputError
from dpglm.families import Family, family_named
from dpglm.formula import Design, build_design
from dpglm.looks.survey import Survey, subjects
from dpglm.privacy import finite_number
from dpglm.protection import REPLACED
from dpglm.releases import Release
from dpglm.schema import Schema

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_FACTORS = (0.25, 1.0, 4.0)  # of the declared number of rows
_EFFECTS = {"looks": 0.2, "moments": 1.0}
_LEAST_EPSILON, _MOST_EPSILON, _LEAST_ROWS, _MOST_ROWS = 0.01, 30.0, 50, 10**9
_QUANTILES = ndtri((np.arange(2_000) + 0.5) / 2_000)  # of the normal distribution, evenly
_LEAST_STRENGTH, _MOST_STRENGTH = 0.01, 0.99
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
) -> Outlook:
    """Expected interval widths, errors and power by epsilon and number of rows, from public numbers alone.

    Parameters
    ----------
    formula, schema, family
        As for ``release``. Of the schema its bounds and, unless ``rows`` are given, its number of rows.
    epsilon, rows
        One or several. Rows: by default a quarter of the declared number, that number, and four times as many.
    effect
        For the power: how much the linear predictor changes when a column moves. By looks, log-odds, log-rate or
        standard deviations of the outcome when it moves by one standard deviation (default 0.2). By moments, log-odds,
        log-rate or a share of the outcome's range when it moves across its whole declared range (default 1).
    method
        "looks" (default) or "moments", as for ``release``.
    outcome
        By looks: the share of rows with the second level (default 0.3), or the mean count (default 1).
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
    link
        As for ``release``.
    """
    if method not in MOVES:
        raise InputError("method", method, f"must be one of {', '.join(MOVES)}", "correct it")
    size = finite_number(_EFFECTS[method] if effect is None else effect)
    if size is None or size <= 0:
        raise InputError("effect", effect, "must be a number above 0", "write for example effect=0.5")
    chosen = family_named(family, link)
    if method == "moments" and link is not None:
        raise InputError("link", link, "belongs to method='looks'", "leave it out")
    typical = _outcome(outcome, chosen, method)
    design = build_design(formula, schema, chosen)
    strong = _number("strength", strength, method, _LEAST_STRENGTH, PREDICTOR_STDDEV)
    assumed = Assumptions(
        typical, _spreads(spreads, design, method), _shares(shares, design, method), _overlap(overlap, design, method),
        strong, _spread(dispersion, strong, design.family, method),
    )  # fmt: skip
    planner = _Planner(design, delta, size, method, assumed, _surveyed(survey, design, method))
    declared = schema.dataset.number
    if declared is None and rows is None:
        relation = schema.dataset.protection.neighbours
        raise InputError("rows", None, f"is private where neighbours are {relation}", "say for how many to plan")
    wanted = [max(2, round(factor * (declared or 1))) for factor in _FACTORS] if rows is None else _sizes(rows)
    epsilons = _several("epsilon", epsilon)
    cases = tuple(planner.expected(number, each) for number in wanted for each in epsilons)
    needed = () if half_width is None else planner.needed(half_width, wanted, [float(each) for each in epsilons])
    replaced = (
        ()
        if schema.dataset.protection.replaced
        else tuple(planner.with_replaced_rows.expected(case.rows, case.epsilon).inflation for case in cases)
    )
    return Outlook(
        formula, design.family.name, len(design.coefficient_names), float(delta), size, method, typical, cases, needed,
        survey is not None, design.family.link, schema.dataset.protection.neighbours, replaced,
    )  # fmt: skip


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
    def with_replaced_rows(self) -> _Planner:
        """The same where a row is replaced, and their number public."""
        schema = self.design.schema
        dataset = replace(schema.dataset, protection=replace(schema.dataset.protection, neighbours=REPLACED))
        return replace(self, design=replace(self.design, schema=replace(schema, dataset=dataset)))

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


def _spreads(spreads: object, design: Design, method: str) -> dict[str, float] | None:
    """Stated standard deviations, of numeric columns that the formula has."""
    if spreads is None:
        return None
    names = [subject.name for subject in subjects(design) if subject.is_numeric]
    found = {}
    for name, value in _stated("spreads", spreads, names, method).items():
        number = finite_number(value)
        if number is None or number <= 0:
            raise InputError(f"spreads[{name!r}]", value, "must be a number above 0", "correct it")
        found[name] = number
    return found


def _shares(shares: object, design: Design, method: str) -> dict[str, tuple[float, ...]] | None:
    """Stated shares of levels, which add up to one."""
    if shares is None:
        return None
    levels = {subject.name: subject.cells for subject in subjects(design) if not subject.is_numeric}
    found = {}
    for name, values in _stated("shares", shares, list(levels), method).items():
        numbers = [finite_number(value) for value in values] if isinstance(values, Sequence) else []
        if len(numbers) != levels[name] or not all(number is not None and 0 < number < 1 for number in numbers):
            rule = f"must be {levels[name]} shares between 0 and 1, one a level"
            raise InputError(f"shares[{name!r}]", values, rule, "correct it")
        total = sum(number for number in numbers if number is not None)
        found[name] = tuple(number / total for number in numbers if number is not None)
    return found


def _overlap(overlap: object, design: Design, method: str) -> dict[str, float] | None:
    """Stated shares of columns' variance that the others explain."""
    if overlap is None:
        return None
    names = [subject.name for subject in subjects(design)[1:]]
    found = {}
    for name, value in _stated("overlap", overlap, names, method).items():
        number = finite_number(value)
        if number is None or not 0 <= number < 1:
            raise InputError(f"overlap[{name!r}]", value, "must be at least 0 and below 1", "correct it")
        found[name] = number
    return found


def _number(argument: str, given: object, method: str, least: float, default: float) -> float:
    """A stated number above another."""
    if given is None:
        return default
    if method != "looks":
        raise InputError(argument, given, "belongs to method='looks'", "leave it out")
    number = finite_number(given)
    if number is None or number < least:
        raise InputError(argument, given, f"must be a number of at least {least:g}", "correct it")
    return number


def _spread(dispersion: object, strength: float, family: Family, method: str) -> float:
    """What effects leave of an outcome's variance: of counts, stated over their mean; of a number, in its own."""
    if dispersion is not None and family.coding != "count":
        raise InputError("dispersion", dispersion, "belongs to counts", "leave it out")
    if family.coding == "scaled":
        if strength > _MOST_STRENGTH:
            rule = f"is in standard deviations of the outcome, and at most {_MOST_STRENGTH:g}"
            raise InputError("strength", strength, rule, "use a smaller one")
        return 1 - strength**2
    return _number("dispersion", dispersion, method, family.least_spread, family.first_spread)


def _stated(argument: str, given: object, names: list[str], method: str) -> Mapping[str, Any]:
    if method != "looks":
        raise InputError(argument, given, "belongs to method='looks'", "leave it out")
    if not isinstance(given, Mapping):
        raise InputError(argument, given, "must be a dict by column", "correct it")
    for name in given:
        if name not in names:
            raise InputError(argument, name, f"must be among {', '.join(names) or 'none'}", "correct the name")
    return given


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


def _outcome(outcome: object, family: Family, method: str) -> float | None:
    """What is assumed of the outcome."""
    if outcome is None:
        return family.typical_outcome if method == "looks" else None
    if method != "looks" or family.typical_outcome is None:
        raise InputError("outcome", outcome, "belongs to two levels or counts, by looks", "leave it out")
    value, (low, high) = finite_number(outcome), family.outcome_limits
    if value is None or not low < value < high:
        raise InputError("outcome", outcome, f"must lie between {low:g} and {high:g}", "correct it")
    return value


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
