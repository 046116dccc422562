"""The table that people paste: what was estimated, in their words and units, with its interval; one fit or several.

Numbers keep the digits that their interval supports. ``records`` hold the same numbers in full.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpglm.analyst import table_formats
from dpglm.analyst.contrasts import described, vector_of
from dpglm.analyst.labels import Named, named_coefficients, outcome_title
from dpglm.analyst.ordered import ordered_columns, own_coefficients, ratios, steps_of
from dpglm.errors import InputError
from dpglm.formats import percent, small

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.analyst.result import Fit
    from dpglm.releases import Release
    from dpglm.schema import Column

_RATIOS = {"odds_ratio": "Odds ratio", "rate_ratio": "Rate ratio", "hazard_ratio": "Hazard ratio"}
_TREND = "Trend: the slope of the straight line through the effects of the levels, equally spaced."
_SAME_ROWS = (
    "Models of the same rows share their sampling error, not their noise: intervals side by side do not tell by how"
    " much a coefficient differs, nor which model is right. Whether terms are needed is tested in the larger model."
)
_MOST_DECIMALS = 12
_SMALL = 10.0  # estimates that keep a decimal, however wide their interval
_WIDE, _LARGEST_RATIO = 10.0, 1000.0


@dataclass(frozen=True)
class Table:
    """A table of texts, and the numbers that they show.

    ``head`` and each of ``rows`` have one text a column, the first the coefficient's label; ``records`` is one dict a
    coefficient or step of ordered levels (of several models: a coefficient and model), with numbers in full. Whatever a
    label or a level holds stays text in every format: nothing of it is markup, code, or a formula of a spreadsheet.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...]

    def to_html(self) -> str:
        """A table element without style sheets or scripts; text editors take it from the clipboard."""
        return table_formats.html_text(self)

    def to_latex(self) -> str:
        """A table environment that needs no package."""
        return table_formats.latex_text(self)

    def to_markdown(self) -> str:
        """A table as GitHub, Quarto and Pandoc read it."""
        return table_formats.markdown_text(self)

    def to_csv(self) -> str:
        """The records, for a program: numbers in full; text that a spreadsheet would run begins with an apostrophe."""
        return table_formats.csv_text(self)

    def to_json(self) -> str:
        """Caption, notes and records."""
        return table_formats.json_text(self)

    def to_docx(self, path: str | Path) -> Path:
        """Write a Word document that holds the table; returns its path."""
        from dpglm.release_file import as_path, write_atomically

        target = as_path("output", path)
        write_atomically(target, table_formats.docx_bytes(self))
        return target

    def to_frame(self) -> pd.DataFrame:
        """The records as a DataFrame."""
        import pandas as pd

        return pd.DataFrame([dict(record) for record in self.records])

    def to_text(self) -> str:
        """As a terminal shows it."""
        return table_formats.plain_text(self)

    def formatted(self, kind: str) -> str:
        """One of ``formats.TABLE_FORMATS``."""
        writers = {
            "table": self.to_text, "markdown": self.to_markdown, "latex": self.to_latex, "html": self.to_html,
            "csv": self.to_csv, "json": self.to_json,
        }  # fmt: skip
        return writers[kind]()

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


def table_of(
    fit: Fit, *, prob: float = 0.95, per: Mapping[str, float] | float | None = None, target: str = "population"
) -> Table:
    """One fit: label, coefficient, ratio where the family has one, probability of the sign."""
    ratio, design = fit.ratio_name, fit.releases[0].design
    records = fit_records(fit, prob=prob, per=per, target=target)
    ordered = ordered_columns(design)
    for column in ordered:
        own = own_coefficients(design, column).values()
        last = max(number for number, record in enumerate(records) if record["coefficient"] in own)
        records[last + 1 : last + 1] = _further_steps(fit, column, prob, target)
    interval = f"{100 * prob:g} % interval"
    effect = design.family.effect if fit.link == design.family.link else "linear predictor"
    head = ["", f"Change of the {effect} ({interval})"]
    head += [f"{_RATIOS[ratio]} ({interval})"] if ratio else []
    rows = [
        (
            record["label"],
            interval_text(record["estimate"], record["lower"], record["upper"]),
            *([_ratio_cell(record, ratio)] if ratio else []),
            percent(record["p_sign"], _draws(fit)),
        )
        for record in records
    ]
    notes = (*_notes(fit, prob, target), *([_TREND] if ordered else []))
    return Table(_caption(fit), (*head, "P(sign)"), tuple(rows), notes, tuple(records))


def compare(
    *fits: Fit,
    names: Sequence[str] | None = None,
    prob: float = 0.95,
    per: Mapping[str, float] | float | None = None,
) -> Table:
    """Several fits side by side: one column a model, one row a coefficient that any of them has.

    Parameters
    ----------
    names
        A heading for each model. Default: Model 1, Model 2 and so on.
    prob
        Probability of the intervals.
    per
        As in ``Fit.table``. A coefficient has one step in all models: that of the first that has it.
    """
    from dpglm.analyst.result import Fit

    for fit in fits:
        if not isinstance(fit, Fit):
            raise InputError("fits", type(fit).__name__, "must be fits", "use dpglm.fit or dpglm.load_fit")
    headings = [f"Model {number}" for number in range(1, len(fits) + 1)] if names is None else [str(n) for n in names]
    if len(fits) < 2 or len(headings) != len(fits):
        rule = "needs two fits or more" if len(fits) < 2 else f"must name all {len(fits)} fits"
        name, value = ("fits", len(fits)) if len(fits) < 2 else ("names", len(headings))
        raise InputError(name, value, rule, "write dpglm.compare(first, second)")
    first: dict[str, Named] = {}
    for fit in fits:
        for named in named_coefficients(fit.releases[0], _of_fit(per, fit)):
            first.setdefault(named.name, named)
    records, cells = [], {name: [""] * len(fits) for name in first}
    for number, (fit, heading) in enumerate(zip(fits, headings, strict=True)):
        for record in fit_records(fit, prob=prob, per=None, named=[first[name] for name in fit.names]):
            name, ratio = record["coefficient"], fit.ratio_name
            cells[name][number] = _estimate_cell(record) if ratio is None else _ratio_cell(record, ratio)
            records.append({"model": heading, **record})
    rows = [(first[name].label, *row) for name, row in cells.items() if {*row} - {"–", ""}]
    rows.append(("Rows", *(f"{_rows(fit):,}" for fit in fits)))
    rows.append(("Privacy", *(_budget(fit) for fit in fits)))
    heads = [f"{heading}: {_shown_as(fit)}" for heading, fit in zip(headings, fits, strict=True)]
    notes = [
        f"{heading}: {fit.releases[0].design.family.regression} of {outcome_title(fit.releases[0].design)},"
        f" {fit.link} link ({fit.releases[0].formula})."
        for heading, fit in zip(headings, fits, strict=True)
    ]
    notes.append(_interval_note(prob))
    notes += [_SAME_ROWS] if _share_rows(fits) else []
    return Table("Models side by side", ("", *heads), tuple(rows), tuple(notes), tuple(records))


def _share_rows(fits: Sequence[Fit]) -> bool:
    """Whether two of the fits are of different releases of one table."""
    seen: dict[str, set[str]] = {}
    for fit in fits:
        for release in fit.releases:
            seen.setdefault(release.dataset_id, set()).add(release.id)
    return any(len(releases) > 1 for releases in seen.values())


def fit_records(
    fit: Fit,
    *,
    prob: float = 0.95,
    per: Mapping[str, float] | float | None = None,
    target: str = "population",
    named: Sequence[Named] | None = None,
) -> list[dict[str, Any]]:
    """One dict a coefficient: its names, its step, and the numbers of ``Fit.summary`` for that step."""
    records = []
    ratio = fit.ratio_name
    chosen = named_coefficients(fit.releases[0], per) if named is None else named
    for each, row in zip(chosen, fit.summary_rows(prob, "original", target), strict=True):
        middle = row["mean"] if ratio is None else math.log(row[ratio])  # of a ratio, the median
        record: dict[str, Any] = {
            "coefficient": each.name,
            "label": each.label,
            "reference": each.versus,
            "per": each.step,
            **{part: float(row[key]) * each.step for part, key in _PARTS.items()},
        }
        if ratio is not None and each.name != "Intercept":
            ends = [middle * each.step, record["lower"], record["upper"]]
            record |= dict(zip((ratio, f"{ratio}_lower", f"{ratio}_upper"), map(_exponential, ends), strict=True))
        records.append(record | {"p_sign": float(row["p_sign"]), "clear": bool(row["significant"])})
    return records


def _further_steps(fit: Fit, column: Column, prob: float, target: str) -> list[dict[str, Any]]:
    """Records of ordered levels' steps beyond those that coefficients are, and of their trend."""
    records = []
    for step in steps_of(fit.releases[0].design, column):
        if list(step.weights.values()) == [1.0]:  # the first, from the reference
            continue
        row = described(fit, vector_of(fit, step.weights), prob, target)
        reference = None if step.versus is None else str(step.versus)
        record: dict[str, Any] = {"coefficient": step.name, "label": step.label, "reference": reference, "per": 1.0}
        record |= {part: float(row[key]) for part, key in _PARTS.items()} | ratios(row, fit.ratio_name)
        records.append(record | {"p_sign": float(row["p_sign"]), "clear": bool(row["significant"])})
    return records


_PARTS = {"estimate": "mean", "sd": "sd", "lower": "lower", "upper": "upper"}


def interval_text(estimate: float, lower: float, upper: float) -> str:
    """An estimate and its interval, with two digits of the interval's width.

    >>> interval_text(0.4512, 0.3371, 0.5652)
    '0.45 (0.34 to 0.57)'
    """
    width = upper - lower
    decimals = 2 if not width > 0 or not math.isfinite(width) else 1 - math.floor(math.log10(width))
    return _with_decimals((estimate, lower, upper), max(decimals, 1) if abs(estimate) < _SMALL else decimals)


def ratio_text(ratio: float, lower: float, upper: float) -> str:
    """A ratio and its interval, with digits by what the interval is relative to its ends.

    >>> ratio_text(1.5699, 1.4009, 1.7593), ratio_text(12.2, 0.51, 291.8), ratio_text(1.0031, 1.0022, 1.004)
    ('1.57 (1.40 to 1.76)', '12 (0.51 to 292)', '1.0031 (1.0022 to 1.0040)')
    >>> ratio_text(1.2, 1e-8, 1e9)
    '1.2 (< 0.001 to > 1,000)'
    """
    if not (0 < lower <= upper < math.inf) or upper / lower > _WIDE:
        return _spans(*map(_wide_ratio, (ratio, lower, upper)))
    relative = min(math.log(upper / lower), 0.3) if upper > lower else 0.01
    decimals = 1 - math.floor(math.log10(ratio * relative))
    return _with_decimals((ratio, lower, upper), max(decimals, 2 if upper < 100 else 0))


def _wide_ratio(value: float) -> str:
    """Two digits; of what is out of all proportion, that it is."""
    if not math.isfinite(value) or value > _LARGEST_RATIO:
        return f"> {_LARGEST_RATIO:,.0f}"
    if value < 1 / _LARGEST_RATIO:
        return f"< {1 / _LARGEST_RATIO:g}"
    return f"{value:,.{max(0, 1 - math.floor(math.log10(value)))}f}"


def _with_decimals(values: Sequence[float], decimals: int) -> str:
    if not all(map(math.isfinite, values)):
        return "n/a"
    if decimals > _MOST_DECIMALS or max(map(abs, values)) >= 1e15:
        return _spans(*(f"{value:.3g}" for value in values))
    texts = [f"{value:,.{max(decimals, 0)}f}" for value in values]
    return _spans(*(text[1:] if text.startswith("-") and not text.strip("-0.,") else text for text in texts))


def _spans(estimate: str, lower: str, upper: str) -> str:
    return f"{estimate} ({lower} to {upper})".replace("-", "−")


def _estimate_cell(record: Mapping[str, Any]) -> str:
    return interval_text(record["estimate"], record["lower"], record["upper"])


def _ratio_cell(record: Mapping[str, Any], ratio: str | None) -> str:
    if ratio is None or ratio not in record:
        return "–"
    return ratio_text(*(record[f"{ratio}{end}"] for end in ("", "_lower", "_upper")))


def _exponential(value: float) -> float:
    return math.exp(min(max(value, -700.0), 700.0))


def _draws(fit: Fit) -> int | None:
    """How finely probabilities are known; None where they are exact."""
    return None if fit.normal_marginals() is not None else int(fit.coefficients[..., 0].size)


def _shown_as(fit: Fit) -> str:
    return "coefficient" if fit.ratio_name is None else _RATIOS[fit.ratio_name].lower()


def _rows(fit: Fit) -> int:
    """Of all tables: releases of one dataset describe the same rows."""
    return sum({release.dataset_id: release.num_rows for release in fit.releases}.values())


def _budget(fit: Fit) -> str:
    return "; ".join(dict.fromkeys(budget_text(release) for release in fit.releases))


def budget_text(release: Release) -> str:
    """ε and δ, or that there are none."""
    privacy = release.privacy
    return f"ε = {privacy.epsilon:g}, δ = {small(privacy.delta)}" if release.private else "NOT PRIVATE"


def _caption(fit: Fit) -> str:
    design = fit.releases[0].design
    regression = design.family.regression
    return f"{regression[0].upper()}{regression[1:]} of {outcome_title(design)} (N = {_rows(fit):,}; {_budget(fit)})"


def _interval_note(prob: float, target: str = "population") -> str:
    covers = "sampling error and privacy noise" if target == "population" else "privacy noise, not sampling error"
    return f"Intervals: equal-tailed {100 * prob:g} % posterior intervals that account for {covers}."


def _notes(fit: Fit, prob: float, target: str) -> tuple[str, ...]:
    first = fit.releases[0]
    what = (
        "Estimates are posterior means; P(sign) is the probability that the effect has the sign of its estimate."
        if fit.ratio_name is None
        else "Estimates are posterior means, ratios posterior medians; P(sign) is the probability that the effect has"
        " the sign of its estimate."
    )
    releases = ", ".join(release.id[:8] for release in fit.releases)
    source = f"{first.formula}, {fit.link} link. Release {releases}."
    return (_interval_note(prob, target), what, source)


def _of_fit(per: Mapping[str, float] | float | None, fit: Fit) -> Mapping[str, float] | float | None:
    """The steps that this model has a column for."""
    if not isinstance(per, Mapping):
        return per
    texts = {factor.key[0] for term in fit.releases[0].design.terms for c in term.columns for factor in c.factors}
    return {name: step for name, step in per.items() if name in texts}
