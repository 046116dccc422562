"""Who is in the table: the survey as the first table of a paper has it, each number with its noise."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

from dpglm.analyst.labels import expression_title
from dpglm.analyst.result import Fit
from dpglm.expressions import Expression
from dpglm.formats import noisy_share, plain_number
from dpglm.looks.survey import SurveyRecord, survey_rows
from dpglm.report.svg import escape
from dpglm.values import date_of

_MOST_LEVELS = 8  # of a column, shown before the rest is folded away
_MOST_LINES = 18


def people(fit: Fit) -> str:
    """What the surveys saw of the tables, as a section. Nothing where there is none."""
    records = {
        release.survey_record.release_id: release.survey_record
        for release in fit.releases
        if release.survey_record is not None
    }
    if not records:
        return ""
    tables = "".join(_survey_table(record) for record in records.values())
    return (
        '<section id="people" aria-labelledby="people-h"><h2 id="people-h">Who is in the table</h2>'
        '<p class="note">What the survey saw, through noise that was paid for: of a number its centre, about where half'
        " of the values lie to each side, and in brackets its scale, about how far they lie from it (the root mean"
        " square), both good to a fraction of the scale; of a level the share of rows that have it. ± is for"
        f" 95 %.</p>{tables}</section>"
    )


def _survey_table(record: SurveyRecord) -> str:
    survey, dataset, design = record.survey, record.design.schema.dataset, record.design
    columns = design.schema.columns
    titles = {
        subject.name: expression_title(subject.source, design.schema)
        if isinstance(subject.source, Expression)
        else columns[subject.name].title
        for subject in survey.subjects
    }
    bodies = []
    for name, found in groupby(survey_rows(record), key=lambda row: row["column"]):
        rows = list(found)
        missing = "–" if rows[0]["missing"] is None else noisy_share(rows[0]["missing"], rows[0]["missing_noise"])
        if rows[0]["level"] is None:
            is_count = name == design.outcome.name and design.family.coding == "count"
            of_dates = name in columns and columns[name].dates
            bodies.append([_line(titles[name], _place(rows[0], is_count, of_dates), missing)])
        else:
            lines = [_line(str(row["level"]), noisy_share(row["share"], row["noise"]), "", inside=True) for row in rows]
            bodies.append([_line(titles[name], "", missing), *lines])
    counted = ""
    if not design.every_row_counts:
        number, stddev = record.counted(design)
        share = noisy_share(number / survey.total, stddev / survey.total)
        counted = f" About {share} of them count, and shares are of these."
    about = "about " if dataset.number is None else ""
    caption = f"{dataset.name}: {about}{survey.total:,.0f} {dataset.counted}, each {dataset.unit}.{counted}"
    head = "".join(f'<th scope="col">{text}</th>' for text in ("column", "centre (scale), or share", "missing"))

    def table(groups: list[list[str]]) -> str:
        body = "".join(f"<tbody>{''.join(lines)}</tbody>" for lines in groups)
        return f'<table class="people"><thead><tr>{head}</tr></thead>{body}</table>'

    short: list[list[str]] = []
    rest: list[list[str]] = []
    for group in bodies:
        fits = len(group) <= _MOST_LEVELS + 1 and sum(len(each) for each in short) + len(group) <= _MOST_LINES
        (short if fits else rest).append(group)
    shown = f'<p class="note">{escape(caption)}</p>{table(short) if short else ""}'
    if not rest:
        return shown
    words = f"Show {len(rest)} more columns" if len(rest) > 1 else "Show one more column"
    return f'{shown}<details class="fold"><summary>{words}</summary>{table(rest)}</details>'


def _line(name: str, value: str, missing: str, *, inside: bool = False) -> str:
    kind = ' class="level-name"' if inside else ""
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in (value, missing))
    return f'<tr><th scope="row"{kind}>{escape(name)}</th>{cells}</tr>'


def _place(row: dict[str, Any], is_count: bool, of_dates: bool = False) -> str:
    """A centre, to a twentieth of its scale, and the scale; of counts of an outcome the mean; of dates in days."""
    if of_dates:
        return f"{date_of(row['centre'])} ({plain_number(row['scale'], 2)} d)"
    centre = rounded(row["centre"], row["scale"])
    return f"mean {centre}" if is_count else f"{centre} ({plain_number(row['scale'], 2)})"


def rounded(centre: float, scale: float) -> str:
    """With the digits that tell a twentieth of the scale.

    >>> rounded(51.63, 13.0), rounded(4e-10, 2700.0), rounded(123456.0, 9000.0)
    ('51.6', '0', '123,500')
    """
    decimals = -math.floor(math.log10(scale / 20)) if scale > 0 else 2
    text = f"{round(centre, decimals) + 0.0:,.{max(decimals, 0)}f}"
    return text.replace("-", "−")
