"""What a budget buys, before it is spent: expected widths and power, from public numbers alone. No row is read.

A release by looks is followed look by look at a nominal table (``nominal``). One of moments is judged at the public
nominal point of its noise allocation (docs/method.md, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dpglm.custodian.allocation import coefficient_stddevs
from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.nominal import told_by_looks
from dpglm.errors import InputError
from dpglm.families import Family, family_named
from dpglm.formula import Design, build_design
from dpglm.privacy import finite_number
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


@dataclass(frozen=True)
class Expected:
    """One case. ``half_width`` is of the 95 % interval for the effect of moving a column: by looks, by one of its
    standard deviations; by moments, across its whole range.
    """

    rows: int
    epsilon: float
    inflation: float
    half_width: float
    power: float


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
            f"{self._footnote}"
        )

    @property
    def _what(self) -> str:
        """What a coefficient changes, in the units of this plan."""
        family = family_named(self.family)
        if family.coding != "scaled":
            return family.effect
        return "standard deviations of the outcome" if self.method == "looks" else "a share of the outcome's range"

    @property
    def _footnote(self) -> str:
        family = family_named(self.family)
        if self.method == "moments":
            return (
                "From public numbers and a typical table; no row was read. Skewed or correlated columns and rare"
                " outcomes need more; where privacy doubles a width, real tables were wider than expected by"
                f" {family.moments_surplus}."
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
) -> Outlook:
    """Expected interval widths and power by epsilon and number of rows, from public numbers alone.

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
    """
    if method not in _MOVES:
        raise InputError("method", method, f"must be one of {', '.join(_MOVES)}", "correct it")
    size = finite_number(_EFFECTS[method] if effect is None else effect)
    if size is None or size <= 0:
        raise InputError("effect", effect, "must be a number above 0", "write for example effect=0.5")
    typical = _outcome(outcome, family_named(family), method)
    design = build_design(formula, schema, family_named(family).name)
    declared = schema.dataset.rows
    wanted = [max(2, round(factor * declared)) for factor in _FACTORS] if rows is None else _sizes(rows)
    cases = tuple(
        expected(design.of_size(number), each, delta, size, method, typical)
        for number in wanted
        for each in _several("epsilon", epsilon)
    )
    coefficients = len(design.coefficient_names)
    return Outlook(formula, design.family.name, coefficients, float(delta), size, method, typical, cases)


def expected(
    design: Design, epsilon: Any, delta: Any, effect: float, method: str = "looks", outcome: float | None = None
) -> Expected:
    """One case; the number of rows is the design's."""
    if method == "looks":
        told = told_by_looks(design, epsilon, delta, design.family.typical_outcome if outcome is None else outcome)
        inflation, stddev = told.inflation, told.stddev
    else:
        inflation, stddev = _told_by_moments(design, epsilon, delta)
    power = _above(_NORMAL - effect / stddev) + _above(_NORMAL + effect / stddev)
    return Expected(design.schema.dataset.rows, float(epsilon), inflation, _NORMAL * stddev, power)


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


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
