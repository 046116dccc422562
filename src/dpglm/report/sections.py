"""The words and tables of the page as HTML text, one function a part. Texts from outside go through ``escape``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpglm.analyst.result import UNITS, Fit
from dpglm.formats import count, number, percent, small, times
from dpglm.report import words
from dpglm.report.charts import both
from dpglm.report.summary import Summary
from dpglm.report.svg import escape
from dpglm.statement import CAVEATS

_MOST_LINES = 40  # of a table, shown before it is folded away


def numbers(summary: Summary) -> str:
    """The table to paste; everything as ``Fit.summary`` gives it; the table's own estimate where it is known."""
    table = summary.fit.table(prob=summary.prob)
    lines = [_line(row, table.head[1:]) for row in table.rows]
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ("coefficient", *table.head[1:]))
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    paste = (
        f'<div id="paste"><table class="stack"><caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        f'<p><button type="button" data-copy="paste" hidden>Copy the table</button></p>{notes}'
    )
    if len(lines) > _MOST_LINES:
        paste = f'<details class="fold"><summary>Show the table of {len(lines)} coefficients</summary>{paste}</details>'
    every = both(_numbers, summary) + both(_own_table, summary)
    return f'{paste}<details class="fold"><summary>All numbers, one unit at a time</summary>{every}</details>'


def _line(row: Sequence[str], heads: Sequence[str]) -> str:
    """A row of a table; on a narrow screen each cell says what it is."""
    label, *cells = row
    names = [head.partition(" (")[0] for head in heads]
    body = "".join(
        f'<td data-label="{escape(name)}">{escape(cell)}</td>' for name, cell in zip(names, cells, strict=True)
    )
    return f'<tr><th scope="row">{escape(label)}</th>{body}</tr>'


def chips(summary: Summary) -> str:
    """The facts under the title."""
    fit = summary.fit
    first = fit.releases[0]
    chips = [(first.design.schema.dataset.counted, f"{summary.rows:,}")]
    if any(not release.design.every_row_counts for release in fit.releases):
        chips.append(("that count", f"about {summary.counted:,.0f}"))
    chips.append((f"one {first.design.schema.dataset.counted[:-1]} is", first.design.schema.dataset.unit))
    if len(fit.releases) > 1:
        chips.append(("releases", str(len(fit.releases))))
    for release in fit.releases:
        chips.append(("ε", f"{release.privacy.epsilon:g}, δ = {small(release.privacy.delta)}"))
        chips.append(("released as", words.means(release)))
    model = first.design.family.regression
    chips += [("model", f"{model}, {fit.link} link"), ("intervals", f"{100 * summary.prob:g} %")]
    unique = dict.fromkeys(chips)
    return "".join(f"<li>{label} {'= ' if label == 'ε' else ''}<b>{escape(value)}</b></li>" for label, value in unique)


def alarm(fit: Fit) -> str:
    """A warning that nobody can miss, where a release is not private."""
    if all(release.private for release in fit.releases):
        return ""
    return (
        '<section class="alarm" role="alert"><p>NOT PRIVATE: a release behind this page was made with fixed noise, for'
        " tests. It reveals exact sums of the rows. Do not publish this page.</p></section>"
    )


def findings(summary: Summary) -> str:
    """The page in a few sentences."""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in words.findings(summary))
    cost = "".join(
        f'<li class="cost in-{units}">{escape(words.inflation_words(summary, units))}</li>' for units in UNITS
    )
    bad = [each.label for each in summary.health if not each.good]
    trust = "Every check found nothing to worry about."
    if bad:
        ask = "asks" if len(bad) == 1 else "ask"
        trust = f"{len(bad)} of {len(summary.health)} checks {ask} for a second look ({', '.join(bad)}): see below."
    return f'<ul class="findings">{items}{cost}<li class="{"bad" if bad else "good"}">{trust}</li></ul>'


def promise(summary: Summary) -> str:
    """The privacy statement, and what it leaves out."""
    statements = "".join(f"<p>{escape(release.statement)}</p>" for release in summary.fit.releases)
    caveats = "".join(f"<li>{escape(caveat)}</li>" for caveat in CAVEATS)
    return f"{statements}<details><summary>What is not protected</summary><ul>{caveats}</ul></details>"


def warnings(fit: Fit) -> str:
    """What a reader should know before anything else."""
    if not fit.warnings:
        return ""
    items = "".join(f"<li>{escape(message)}</li>" for message in fit.warnings)
    return (
        '<section class="warnings" id="warnings" aria-labelledby="warnings-h">'
        f'<h2 id="warnings-h">Read this first</h2><ul>{items}</ul></section>'
    )


def health(summary: Summary) -> str:
    """What the sampler says about itself, or the looks about each other."""
    items = "".join(
        f'<li class="{"good" if each.good else "bad"}"><span>{escape(each.label)}</span><b>{escape(each.value)}</b>'
        f'<span class="verdict">{"✓ good" if each.good else "! look here"}</span><p>{escape(each.words)}</p></li>'
        for each in summary.health
    )
    closing = "Nothing to worry about was found." if not summary.fit.warnings else "See also the notes at the top."
    return f'<ul class="checks">{items}</ul><p class="note">{closing}</p>'


def _numbers(summary: Summary, units: str) -> str:
    """Per unit of a column, as ``Fit.summary`` has it."""
    ratio = summary.ratio_name if units == "original" else None
    sampled = summary.fit.diagnostics is not None
    heads = ["mean (sd)", f"{100 * summary.prob:g} % interval", "P(sign)"]
    heads += [f"{ratio.replace('_', ' ')} and interval"] if ratio else []
    heads += ["width by privacy", *(["effective draws, R-hat"] if sampled else [])]
    lines = []
    rows: Sequence[Mapping[str, Any]] = [each.plain for each in summary.coefficients]
    if units != "original":
        rows = summary.fit.summary_rows(summary.prob, units)
    for each, row in zip(summary.coefficients, rows, strict=True):
        cells = _mean_and_interval(row)
        cells += [percent(row["p_sign"], summary.draws)]
        if ratio:
            middle, lower, upper = (number(row[ratio + end], 4) for end in ("", "_lower", "_upper"))
            cells.append("–" if each.name == "Intercept" else f"{middle} ({lower} to {upper})")
        cells += [times(row["inflation"])]
        cells += [f"{count(row['ess'])}, {number(row['r_hat'], 4)}"] if sampled else []
        lines.append(_line([each.name, *cells], heads))
    caption = f"Posterior of the coefficients in {units} units, for one unit; {100 * summary.prob:g} % intervals."
    return _table(caption, heads, lines)


def _own_table(summary: Summary, units: str) -> str:
    """What this very table would say without noise: narrower, and silent about other samples."""
    if any(each.own_table is None for each in summary.coefficients):
        return ""
    heads = ["mean (sd)", f"{100 * summary.prob:g} % interval"]
    rows = summary.fit.summary_rows(summary.prob, units, "table")
    lines = [_line([name, *_mean_and_interval(row)], heads) for name, row in zip(summary.fit.names, rows, strict=True)]
    caption = (
        "The estimate that this very table would give without privacy noise. Its intervals hold privacy noise only:"
        " they say nothing about other people than those in the table."
    )
    return _table(caption, heads, lines)


def _mean_and_interval(row: Mapping[str, Any]) -> list[str]:
    return [f"{number(row['mean'])} ({number(row['sd'])})", f"{number(row['lower'])} to {number(row['upper'])}"]


def _table(caption: str, heads: Sequence[str], lines: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ("coefficient", *heads))
    return (
        f'<table class="stack"><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def methods(summary: Summary) -> str:
    """A paragraph to paste, and its references."""
    references = "".join(f"<li>{escape(text)}</li>" for text in words.REFERENCES)
    return (
        f'<blockquote id="methods-text">{escape(words.methods(summary))}</blockquote>'
        f'<p><button type="button" data-copy="methods-text" hidden>Copy</button></p>'
        f'<ol class="references">{references}</ol>'
    )


def reproduce(summary: Summary) -> str:
    """Commands, versions, identities."""
    facts: list[tuple[str, str]] = []
    for release in summary.fit.releases:
        made = ", ".join(f"{name} {number_}" for name, number_ in sorted(release.versions.items()))
        facts += [
            ("release id", release.id),
            ("published", release.time),
            ("checksum (SHA-256)", words.checksum(release)),
            ("released with", made),
        ]
    facts.append(("seed", str(summary.fit.options.get("seed", "not recorded"))))
    facts.append(("this page with", ", ".join(f"{name} {text}" for name, text in words.versions(summary.fit).items())))
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return (
        f'<p class="note">The release file is all that is needed. Name it as below, and run:</p>'
        f'<pre id="commands">{escape(words.reproduce(summary))}</pre>'
        f'<p><button type="button" data-copy="commands" hidden>Copy</button></p><dl>{listed}</dl>'
    )
