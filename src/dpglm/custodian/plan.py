"""What a budget buys, before it is spent: expected widths and power, from public numbers alone. No row is read.

A release of one stage is judged at the public nominal point of the noise allocation (docs/method.md, section 4). A
staged release is judged by its later looks (docs/stages.md): in whitened coordinates the rows leave a variance of 1/N,
and the noise of the scores adds its own variance over N squared. Looks add up by precision. What the first look tells,
and what bounds take from the information, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dpglm.custodian.allocation import coefficient_stddevs, nominal_point
from dpglm.custodian.stages import Plan, plan_stages
from dpglm.errors import InputError
from dpglm.families import family_named
from dpglm.formula import Design, build_design
from dpglm.privacy import finite_number
from dpglm.schema import Schema
from dpglm.terminal import aligned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_FACTORS = (0.25, 1.0, 4.0)  # of the declared number of rows
MEAN_WEIGHT = 0.2  # p (1 - p) of an average row; 0.25 at one half, 0.09 at one in ten
_NORMAL = 1.959963984540054
_WHAT = {"logistic": "log-odds", "poisson": "log-rate", "linear": "a share of the outcome's range"}
_WIDER = {"logistic": "a half", "poisson": "a factor of three", "linear": "a fifth"}  # docs/widths.md, small signals
_COLORS = ("#5b2a86", "#1d5fa6", "#2a8f7b", "#c77f1b", "#b3362f", "#444444")


@dataclass(frozen=True)
class Expected:
    """One case. ``half_width`` is of the 95 % interval for the effect of moving a column across its whole range."""

    rows: int
    epsilon: float
    stages: int
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
    cases: tuple[Expected, ...]

    def __str__(self) -> str:
        what = _WHAT[self.family]
        inflation = self._table(lambda case: f"{_short(case.inflation)}{'*' if case.stages == 1 else ''}")
        half_width = self._table(lambda case: f"± {_short(case.half_width)}")
        power = self._table(lambda case: f"{100 * case.power:.0f} %")
        return (
            f"{self.formula} ({self.family}, {self.coefficients} coefficients, delta = {self.delta:g})\n\n"
            f"times as wide as without privacy (* one stage):\n{inflation}\n\n"
            f"95 % interval of the effect of a column's whole range, {what}:\n{half_width}\n\n"
            f"chance that it excludes zero where that effect is {self.effect:g}:\n{power}\n\n"
            "From public numbers and a typical table; no row was read. Skewed or correlated columns and rare outcomes"
            f" need more; where privacy doubles a width, real tables were wider than expected by {_WIDER[self.family]}."
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
        ax.set_ylabel(f"± {_WHAT[self.family]}, over a column's whole range")
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
    effect: float = 1.0,
    stages: int | str = "auto",
) -> Outlook:
    """Expected interval widths and power by epsilon and number of rows, from public numbers alone.

    Parameters
    ----------
    formula, schema, family
        As for ``release``. Of the schema its bounds and, unless ``rows`` are given, its number of rows.
    epsilon, rows
        One or several. Rows: by default a quarter of the declared number, that number, and four times as many.
    effect
        For the power: how much the linear predictor (log-odds or log-rate; linear: the mean, as a share of the
        outcome's range) changes when a column moves across its whole declared range.
    """
    size = finite_number(effect)
    if size is None or size <= 0:
        raise InputError("effect", effect, "must be a number above 0", "write for example effect=1")
    design = build_design(formula, schema, family_named(family).name)
    declared = schema.dataset.rows
    wanted = [max(2, round(factor * declared)) for factor in _FACTORS] if rows is None else _sizes(rows)
    cases = tuple(
        expected(design.of_size(number), each, delta, size, stages)
        for number in wanted
        for each in _several("epsilon", epsilon)
    )
    return Outlook(formula, design.family.name, len(design.coefficient_names), float(delta), size, cases)


def expected(design: Design, epsilon: Any, delta: Any, effect: float = 1.0, stages: int | str = "auto") -> Expected:
    """One case; the number of rows is the design's."""
    made = plan_stages(design, epsilon, delta, None, "auto", "full", stages)
    first, rows = made.first, design.schema.dataset.rows
    arguments = (design.family, first.blocks, design.dimension, rows, first.radius, design.response_range)
    plain = coefficient_stddevs([1e-6 * noise for noise in first.noise_stddevs], *arguments)
    if made.later:
        inflation = _of_looks(design, made)
    else:
        noisy = coefficient_stddevs(first.noise_stddevs, *arguments)
        inflation = math.sqrt(noisy[1] / plain[1] * noisy[2] / plain[2])
    # A range is two scaled units long, and so is that of a linear outcome, whose share is asked for.
    stddev = inflation * plain[2] * (1 if design.family.name == "linear" else 2)
    power = _above(_NORMAL - effect / stddev) + _above(_NORMAL + effect / stddev)
    return Expected(rows, made.privacy.epsilon, len(made.mus), inflation, _NORMAL * stddev, power)


def _of_looks(design: Design, made: Plan) -> float:
    """Of a staged release: the noise of its later looks beside the sampling error, for rows like normal ones."""
    import numpy as np

    from dpglm.analyst.looks import Knowledge, dispersion_of, next_centring, normal_points

    size, spread = len(design.coefficient_names), nominal_point(design.family, design.response_range).spread
    nothing, identity = np.zeros(size), np.eye(size)
    known = Knowledge(
        first_mean=nothing, first_covariance=identity, discrepancy=0.0, precision=identity, shift=nothing,
        information=identity, error=0 * identity, centre=nothing, covariance=identity, mean_weight=MEAN_WEIGHT,
        spread=spread, tolerance=0.0, first=None,  # type: ignore[arg-type]
    )  # fmt: skip
    rows, dispersion = design.schema.dataset.rows, dispersion_of(design, spread)
    facts: Any = _Facts(design, made.privacy, rows)
    lengths, told = np.linalg.norm(normal_points(size), axis=1), 0.0
    for look in made.later:
        centring = next_centring(facts, known, look.mu)
        # The longest score of a row of unit length; a bound takes its share of the slope.
        if design.family.name == "logistic":
            largest = (1 + math.sqrt(1 - 4 * MEAN_WEIGHT)) / 2 / math.sqrt(MEAN_WEIGHT)
        else:
            largest = centring.clip * math.sqrt(dispersion)
        kept = np.minimum(1.0, centring.score_bound / (largest * lengths))
        slope = float(np.sum(kept * lengths**2) / np.sum(lengths**2))
        told += rows * dispersion * (slope / (look.score * centring.score_bound)) ** 2
    return math.sqrt(1 + 1 / told)


@dataclass(frozen=True)
class _Facts:
    """What ``next_centring`` asks a release for."""

    design: Design
    privacy: Any
    num_rows: int


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
