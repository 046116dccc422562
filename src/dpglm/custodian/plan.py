"""What a budget buys, before it is spent: expected widths, errors and power, from public numbers alone. No row is read.

A release by looks is followed look by look at a nominal table (``nominal``), by the code that chooses the bounds of a
release and reads it: the plan is truthful where the table is as assumed. One of moments is judged at the public nominal
point of its noise allocation (docs/moments.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from dpglm.custodian.allocation import coefficient_stddevs
from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.nominal import Assumptions, Told, nominal_survey, told_by_looks
from dpglm.errors import InputError
from dpglm.families import Family, family_named
from dpglm.formula import Design, build_design
from dpglm.looks.survey import Survey, subjects
from dpglm.privacy import finite_number
from dpglm.releases import Release
from dpglm.schema import Schema
from dpglm.terminal import aligned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_FACTORS = (0.25, 1.0, 4.0)  # of the declared number of rows
_NORMAL = 1.959963984540054
_EFFECTS = {"looks": 0.2, "moments": 1.0}
_MOVES = {"looks": "one standard deviation of a column", "moments": "a column's whole range"}
_COLORS = ("#5b2a86", "#1d5fa6", "#2a8f7b", "#c77f1b", "#b3362f", "#444444")
# A survey of 1,017 members of the American Economic Association asked what they would accept of private tables: the
# median, and the strict quarter, of how much wider an interval may be; and the median of other errors.
_ACCEPTED, _ACCEPTED_BY_STRICT, _SIGN_MISMATCH, _SIGNIFICANCE_MISMATCH = 1.25, 1.1, 0.05, 0.1
_LEAST_EPSILON, _MOST_EPSILON, _LEAST_ROWS, _MOST_ROWS = 0.01, 30.0, 50, 10**9
_QUANTILES = ndtri((np.arange(2_000) + 0.5) / 2_000)  # of the normal distribution, evenly
_HALVINGS = 11  # of the range in which a budget or a number of rows is searched


@dataclass(frozen=True)
class ExpectedCoefficient:
    """One slope. ``half_width`` is of the 95 % interval for its column moved by one standard deviation, ``original`` of
    that in the user's own unit, or None where nobody stated the column's spread.

    For an effect of the plan's size: ``power`` is the chance that the interval excludes zero, ``wrong_sign`` that the
    estimate has the other sign, ``lost`` that it is significant without privacy and not with it. ``false`` is the
    chance of the reverse where there is no effect.
    """

    name: str
    half_width: float
    original: float | None
    inflation: float
    power: float
    wrong_sign: float
    lost: float
    false: float


@dataclass(frozen=True)
class Expected:
    """One case. ``half_width`` is of the 95 % interval for the effect of moving a column: by looks, by one of its
    standard deviations; by moments, across its whole range. Of an average coefficient; ``coefficients`` has each.
    """

    rows: int
    epsilon: float
    inflation: float
    half_width: float
    power: float
    coefficients: tuple[ExpectedCoefficient, ...] = ()

    @property
    def verdict(self) -> str:
        """Whether people would accept such intervals."""
        wide = f"intervals {_times(self.inflation)} as wide as without privacy"
        if self.inflation <= _ACCEPTED_BY_STRICT:
            return f"{wide}: narrow enough for the strict quarter of economists who were asked"
        if self.inflation <= _ACCEPTED:
            return f"{wide}: narrow enough for half of the economists who were asked"
        return f"{wide}: more than the {_ACCEPTED:g} times that half of the economists who were asked accept"


@dataclass(frozen=True)
class Needed:
    """What a half-width takes: the smallest epsilon for these rows, or rows for this epsilon; None where none does."""

    half_width: float
    rows: int | None
    epsilon: float | None
    is_epsilon: bool


@dataclass(frozen=True)
class Outlook:
    """What ``plan`` expects: printed as tables, ``to_dict`` for scripts, ``plot`` for eyes."""

    formula: str
    family: str
    coefficients: int
    delta: float
    effect: float
    method: str
    outcome: float | None
    cases: tuple[Expected, ...]
    needed: tuple[Needed, ...] = ()
    surveyed: bool = False

    def __str__(self) -> str:
        what, move = self._what, _MOVES[self.method]
        inflation = self._table(lambda case: _short(case.inflation))
        half_width = self._table(lambda case: f"± {_short(case.half_width)}")
        power = self._table(lambda case: f"{100 * case.power:.0f} %")
        return (
            f"{self.formula} ({self.family}, {self.coefficients} coefficients, delta = {self.delta:g})\n\n"
            f"times as wide as without privacy:\n{inflation}\n\n"
            f"95 % interval of the effect of {move}, {what}:\n{half_width}\n\n"
            f"chance that it excludes zero where that effect is {self.effect:g}:\n{power}\n\n"
            f"{self._of_coefficients()}{self._of_needs()}{self._verdicts()}{self._footnote}"
        )

    @property
    def shown(self) -> tuple[Expected, ...]:
        """The cases that are told by coefficient: those of the middle number of rows."""
        rows = sorted({case.rows for case in self.cases})
        return tuple(case for case in self.cases if case.rows == rows[len(rows) // 2])

    @property
    def _what(self) -> str:
        """What a coefficient changes, in the units of this plan."""
        family = family_named(self.family)
        if family.coding != "scaled":
            return family.effect
        return "standard deviations of the outcome" if self.method == "looks" else "a share of the outcome's range"

    def _of_coefficients(self) -> str:
        """A line a coefficient, of the middle number of rows and the epsilon nearest to one."""
        if not self.shown[0].coefficients:
            return ""
        case = min(self.shown, key=lambda each: abs(math.log(each.epsilon)))
        head = ("coefficient", "± per sd", "± in its unit", "times as wide", "power", "wrong sign", "lost", "false")
        rows = [
            (
                each.name, _digits(each.half_width), "-" if each.original is None else _digits(each.original),
                _short(each.inflation), *(f"{100 * chance:.0f} %" for chance in (each.power, each.wrong_sign)),
                *(f"{100 * chance:.0f} %" for chance in (each.lost, each.false)),
            )
            for each in case.coefficients
        ]  # fmt: skip
        return (
            f"by coefficient, {case.rows:,} rows and epsilon {case.epsilon:g}, for an effect of {self.effect:g}"
            f" (lost: significant without privacy alone; false: with it alone, without an effect):\n"
            f"{aligned(head, rows)}\n\n"
        )

    def _of_needs(self) -> str:
        lines = []
        for need in self.needed:
            asked = f"for ± {need.half_width:g}"
            if need.is_epsilon:
                found = "none will do" if need.epsilon is None else f"{need.epsilon:.3g}"
                lines.append(f"smallest epsilon {asked} with {need.rows:,} rows: {found}")
            else:
                found = "none will do" if need.rows is None else f"{need.rows:,}"
                lines.append(f"smallest number of rows {asked} with epsilon {need.epsilon:g}: {found}")
        return "".join(f"{line}\n" for line in lines) + ("\n" if lines else "")

    def _verdicts(self) -> str:
        if self.method == "moments":
            return ""
        lines = [f"epsilon {case.epsilon:g}, {case.rows:,} rows: {case.verdict}" for case in self.shown]
        mismatch = f"a wrong sign in {_SIGN_MISMATCH:.0%} and another significance in {_SIGNIFICANCE_MISMATCH:.0%}"
        return "\n".join(lines) + f"\n(1,017 members of the AEA; half of them accept {mismatch} of cases.)\n\n"

    @property
    def _footnote(self) -> str:
        family = family_named(self.family)
        if self.method == "moments":
            return (
                "From public numbers and a typical table; no row was read. Skewed or correlated columns and rare"
                " outcomes need more; where privacy doubles a width, real tables were wider than expected by"
                f" {family.moments_surplus}."
            )
        if self.surveyed:
            return (
                "From a survey that is released already; no row was read. Assumed are columns without relation to each"
                " other: a column that others tell much of has a wider interval, with privacy and without."
            )
        return (
            "From public numbers and a nominal table; no row was read. Assumed are columns without relation to each"
            f" other, and {family.assumption.format(self.outcome)}. Two levels of equal shares are two standard"
            " deviations apart. Correlated or skewed columns and rare levels need more."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Half-widths by the number of rows, a line for each epsilon, and the one without privacy."""
        import matplotlib.pyplot as plt
        from matplotlib.ticker import LogLocator

        if ax is None:
            _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
        for number, epsilon in enumerate(self._epsilons()):
            cases = [case for case in self.cases if case.epsilon == epsilon]
            widths, color = [case.half_width for case in cases], _COLORS[number % len(_COLORS)]
            ax.plot([case.rows for case in cases], widths, color=color, marker="o", label=f"ε = {epsilon:g}")
        plain = {case.rows: case.half_width / case.inflation for case in self.cases}
        ax.plot(list(plain), list(plain.values()), "--", color="#666f7a", label="without privacy")
        ax.axhline(self.effect, color="#b9c0c8", linewidth=1, zorder=0)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(list(plain), [f"{rows:,}" for rows in plain])
        ax.minorticks_off()
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_xlabel("rows")
        ax.set_ylabel(f"± {self._what}, by {_MOVES[self.method]}")
        ax.set_title(f"Expected 95 % intervals, δ = {self.delta:g}; grey: an effect of {self.effect:g}", fontsize=10)
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _epsilons(self) -> list[float]:
        return list(dict.fromkeys(case.epsilon for case in self.cases))

    def _table(self, shown: Any) -> str:
        epsilons = self._epsilons()
        rows: dict[int, list[str]] = {}
        for case in self.cases:
            rows.setdefault(case.rows, []).append(shown(case))
        head = ("rows", *(f"epsilon {epsilon:g}" for epsilon in epsilons))
        return aligned(head, [(f"{number:,}", *cells) for number, cells in rows.items()])


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
    half_width: float | None = None,
    survey: Release | None = None,
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
    half_width
        Also tell the smallest epsilon, and the smallest number of rows, for an average interval this narrow.
    survey
        An earlier release of the same dataset: centres, scales and shares are those of its survey, and a release that
        uses it again is planned.
    """
    if method not in _MOVES:
        raise InputError("method", method, f"must be one of {', '.join(_MOVES)}", "correct it")
    size = finite_number(_EFFECTS[method] if effect is None else effect)
    if size is None or size <= 0:
        raise InputError("effect", effect, "must be a number above 0", "write for example effect=0.5")
    typical = _outcome(outcome, family_named(family), method)
    design = build_design(formula, schema, family_named(family).name)
    assumed = Assumptions(typical, _spreads(spreads, design, method), _shares(shares, design, method))
    planner = _Planner(design, delta, size, method, assumed, _surveyed(survey, design, method))
    declared = schema.dataset.rows
    wanted = [max(2, round(factor * declared)) for factor in _FACTORS] if rows is None else _sizes(rows)
    epsilons = _several("epsilon", epsilon)
    cases = tuple(planner.expected(number, each) for number in wanted for each in epsilons)
    needed = () if half_width is None else planner.needed(half_width, wanted, [float(each) for each in epsilons])
    return Outlook(
        formula, design.family.name, len(design.coefficient_names), float(delta), size, method, typical, cases, needed,
        survey is not None,
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
            return Expected(rows, float(epsilon), inflation, _NORMAL * stddev, _power(self.effect, stddev))
        survey = nominal_survey(design, self.assumed) if self.survey is None else self.survey
        stated = frozenset(self.assumed.spreads or ()) if self.survey is None else None
        told = told_by_looks(design, epsilon, self.delta, survey, stated)
        stddev = math.sqrt(sum(each.stddev**2 for each in told) / len(told))
        inflation = math.sqrt(sum((each.stddev / each.plain) ** 2 for each in told) / len(told))
        coefficients = tuple(self._coefficient(each) for each in told)
        return Expected(
            rows, float(epsilon), inflation, _NORMAL * stddev, _power(self.effect, stddev), coefficients
        )  # fmt: skip

    def _coefficient(self, told: Told) -> ExpectedCoefficient:
        lost, _ = _mismatches(self.effect, told)
        _, false = _mismatches(0.0, told)
        original = None if told.unit is None else _NORMAL * told.stddev * told.unit
        return ExpectedCoefficient(
            told.name, _NORMAL * told.stddev, original, told.stddev / told.plain, _power(self.effect, told.stddev),
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
            _above((-_NORMAL * told.stddev - each) / extra) - _above((_NORMAL * told.stddev - each) / extra)
            for each in alone.tolist()
        ]
    )
    significant = np.abs(alone) > _NORMAL * told.plain
    return float(np.mean(np.where(significant, within, 0.0))), float(np.mean(np.where(significant, 0.0, 1 - within)))


def _power(effect: float, stddev: float) -> float:
    return _above(_NORMAL - effect / stddev) + _above(_NORMAL + effect / stddev)


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
    rows = design.schema.dataset.rows
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


def _times(value: float) -> str:
    return f"{_short(value)} times"


def _digits(value: float) -> str:
    return f"{value:.2g}"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
