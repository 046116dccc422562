"""What a plan found: expected intervals, errors and power by case, as tables, plain values and a picture."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dpglm.families import family_named
from dpglm.protection import REPLACED
from dpglm.statement import LARGE, LARGE_EPSILON
from dpglm.terminal import aligned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NORMAL = 1.959963984540054
MOVES = {"looks": "one standard deviation of a column", "moments": "a column's whole range"}
_COLORS = ("#5b2a86", "#1d5fa6", "#2a8f7b", "#c77f1b", "#b3362f", "#444444")
# A survey of 1,017 members of the American Economic Association asked what they would accept of private tables: the
# median, and the strict quarter, of how much wider an interval may be; and the median of other errors.
_ACCEPTED, _ACCEPTED_BY_STRICT, _SIGN_MISMATCH, _SIGNIFICANCE_MISMATCH = 1.25, 1.1, 0.05, 0.1


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
        shown = round(self.inflation, 2)
        if shown <= _ACCEPTED_BY_STRICT:
            return f"{wide}: narrow enough for the strict quarter of economists who were asked"
        if shown <= _ACCEPTED:
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
    link: str | None = None
    neighbours: str = REPLACED
    counted: str = "rows"  # or units, where these have several
    unit: str = "one row"
    of_rows: tuple[str, ...] = ()  # which rows count, what they weigh and whose they are, as assumed
    other_promise: tuple[float, ...] = ()  # inflation of ``shown`` cases if a unit were added or removed, or replaced

    def __str__(self) -> str:
        what, move = self._what, MOVES[self.method]
        inflation = self._table(lambda case: _short(case.inflation))
        half_width = self._table(lambda case: f"± {_short(case.half_width)}")
        power = self._table(lambda case: f"{100 * case.power:.0f} %")
        return (
            f"{self.formula} ({self._model}, {self.coefficients} coefficients, delta = {self.delta:g})\n\n"
            f"times as wide as without privacy:\n{inflation}\n{self._of_the_other_promise()}\n"
            f"95 % interval of the effect of {move}, {what}:\n{half_width}\n\n"
            f"chance that it excludes zero where that effect is {self.effect:g}:\n{power}\n\n"
            f"{self._of_coefficients()}{self._of_needs()}{self._verdicts()}{self._footnote}"
        )

    def _repr_html_(self) -> str:
        """For a notebook."""
        from dpglm.notebook import folded_html, list_html, paragraph_html, table_html

        head = (f"epsilon, {self.counted}", "times as wide as without privacy", "± of a 95 % interval", "power")
        rows = [
            (
                f"{case.epsilon:g}, {case.rows:,}", _short(case.inflation), f"± {_short(case.half_width)}",
                f"{100 * case.power:.0f} %",
            )
            for case in self.cases
        ]  # fmt: skip
        move = f"± and power are of the effect of {MOVES[self.method]}, {self._what}, the power for {self.effect:g}"
        caption = f"{self.formula} ({self._model}, {self.coefficients} coefficients, delta = {self.delta:g})"
        text = table_html(caption, head, rows, [f"{move}.", self._footnote])
        if self.shown[0].coefficients:
            case = min(self.shown, key=lambda each: abs(math.log(each.epsilon)))
            each_head = ("coefficient", "± per sd", "± in its unit", "times as wide", "power", "wrong sign")
            own = [
                (
                    each.name, _digits(each.half_width), "–" if each.original is None else _digits(each.original),
                    _short(each.inflation), f"{100 * each.power:.0f} %", f"{100 * each.wrong_sign:.0f} %",
                )
                for each in case.coefficients
            ]  # fmt: skip
            title = f"By coefficient, {case.rows:,} {self.counted} and epsilon {case.epsilon:g}"
            text += folded_html(title, table_html(title, each_head, own))
        needs = [line for line in (self._of_the_other_promise() + self._of_needs()).split("\n") if line]
        verdicts = [] if self.method == "moments" else self._verdicts().strip().split("\n")
        return text + list_html(needs) + "".join(paragraph_html(line) for line in verdicts)

    @property
    def shown(self) -> tuple[Expected, ...]:
        """The cases that are told by coefficient: those of the middle number of rows."""
        rows = sorted({case.rows for case in self.cases})
        return tuple(case for case in self.cases if case.rows == rows[len(rows) // 2])

    @property
    def _model(self) -> str:
        """The family, and a link that is not its own."""
        own = self.link is None or self.link == family_named(self.family).link
        return self.family if own else f"{self.family}, {self.link} link"

    @property
    def _what(self) -> str:
        """What a coefficient changes, in the units of this plan."""
        family = family_named(self.family, self.link)
        if family.coding != "scaled":
            return family.effect
        return "standard deviations of the outcome" if self.method == "looks" else "a share of the outcome's range"

    def _of_the_other_promise(self) -> str:
        """How wide intervals would be for the promise that is not given: one line."""
        if not self.other_promise:
            return ""
        replaced = self.neighbours == REPLACED
        verbs = ("added or removed", "replaced") if replaced else ("replaced", "added or removed")
        meaning = "private, and what is in a row would be half" if replaced else "public, and what is in a row twice"
        wide = [
            f"{_short(inflation)} (epsilon {case.epsilon:g})"
            for case, inflation in zip(self.shown, self.other_promise, strict=True)
        ]
        return (
            f"If {self.unit} were {verbs[0]}, not {verbs[1]}: {', '.join(wide)} with {self.shown[0].rows:,}"
            f" {self.counted}; their number would be {meaning} as well protected.\n"
        )

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
            f"by coefficient, {case.rows:,} {self.counted} and epsilon {case.epsilon:g}, for an effect of"
            f" {self.effect:g} (lost: significant without privacy alone; false: with it alone, without an effect):\n"
            f"{aligned(head, rows)}\n\n"
        )

    def _of_needs(self) -> str:
        lines = []
        for need in self.needed:
            asked = f"for ± {need.half_width:g}"
            if need.is_epsilon:
                found = "none will do" if need.epsilon is None else f"{need.epsilon:.3g}"
                lines.append(f"smallest epsilon {asked} with {need.rows:,} {self.counted}: {found}")
            else:
                found = "none will do" if need.rows is None else f"{need.rows:,}"
                lines.append(f"smallest number of {self.counted} {asked} with epsilon {need.epsilon:g}: {found}")
        return "".join(f"{line}\n" for line in lines) + ("\n" if lines else "")

    def _verdicts(self) -> str:
        if self.method == "moments":
            return ""
        lines = [f"epsilon {case.epsilon:g}, {case.rows:,} {self.counted}: {case.verdict}" for case in self.shown]
        mismatch = f"a wrong sign in {_SIGN_MISMATCH:.0%} and another significance in {_SIGNIFICANCE_MISMATCH:.0%}"
        return "\n".join(lines) + f"\n(1,017 members of the AEA; half of them accept {mismatch} of cases.)\n\n"

    @property
    def _footnote(self) -> str:
        """What was assumed, and what an epsilon that is too large promises."""
        large = any(case.epsilon > LARGE_EPSILON for case in self.cases)
        return f"{self._assumed}\n{LARGE}" if large else self._assumed

    @property
    def _assumed(self) -> str:
        family = family_named(self.family, self.link)
        if self.method == "moments":
            return (
                "From public numbers and a typical table; no row was read. Skewed or correlated columns and rare"
                " outcomes need more; where privacy doubles a width, real tables were wider than expected by"
                f" {family.moments_surplus}."
            )
        of_rows = f" Assumed, too: {'; '.join(self.of_rows)}." if self.of_rows else ""
        if self.surveyed:
            return (
                "From a survey that is released already; no row was read. Assumed are columns without relation to each"
                f" other: a column that others tell much of has a wider interval, with privacy and without.{of_rows}"
            )
        return (
            "From public numbers and a nominal table; no row was read. Assumed are columns without relation to each"
            f" other, and {family.assumption.format(self.outcome)}. Two levels of equal shares are two standard"
            f" deviations apart.{of_rows} Correlated or skewed columns and rare levels need more."
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
        ax.set_xlabel(self.counted)
        ax.set_ylabel(f"± {self._what}, by {MOVES[self.method]}")
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
        head = (self.counted, *(f"epsilon {epsilon:g}" for epsilon in epsilons))
        return aligned(head, [(f"{number:,}", *cells) for number, cells in rows.items()])


def _times(value: float) -> str:
    return f"{_short(value)} times"


def _digits(value: float) -> str:
    return f"{value:.2g}"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
