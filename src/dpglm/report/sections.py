"""The words and tables of the page as HTML text, one function a part. Texts from outside go through ``escape``."""

from __future__ import annotations

import math

from dpglm.analyst.result import UNITS, Fit
from dpglm.formats import count, percent, plain_number, small, times
from dpglm.looks.survey import SurveyRecord, survey_rows
from dpglm.report import words
from dpglm.report.charts import both
from dpglm.report.summary import Summary
from dpglm.report.svg import escape
from dpglm.statement import CAVEATS


def numbers(summary: Summary) -> str:
    """Everything as a table, and the table's own estimate where it is known."""
    return both(_numbers, summary) + both(_own_table, summary)


def chips(summary: Summary) -> str:
    """The facts under the title."""
    fit = summary.fit
    first = fit.releases[0]
    chips = [("rows", f"{summary.rows:,}")]
    if any(not release.design.every_row_counts for release in fit.releases):
        chips.append(("that count", f"about {summary.counted:,.0f}"))
    chips.append(("one row is", first.design.schema.dataset.unit))
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
    healthy = all(each.good for each in summary.health)
    trust = "The sampler reports no problem." if healthy else "The sampler reports a problem: see below."
    if summary.fit.closed is not None:
        trust = "The looks agree with each other." if healthy else "The looks do not agree with each other: see below."
    return f'<ul class="findings">{items}{cost}<li class="{"good" if healthy else "bad"}">{trust}</li></ul>'


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


def people(fit: Fit) -> str:
    """What the surveys saw of the tables: each as a table with its noise. Nothing where there is none."""
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
        '<p class="note">What the survey saw, through noise that was paid for. A centre is about where half of the'
        " values lie to each side, a scale about how far they lie from it (the root mean square); both come from noisy"
        f" counts of rows and are good to a fraction of the scale.</p>{tables}</section>"
    )


def _survey_table(record: SurveyRecord) -> str:
    dataset = record.design.schema.dataset
    rows = record.survey.total
    lines: list[str] = []
    named: set[str] = set()
    for row in survey_rows(record):
        name = row["column"] if row["level"] is None else f"{row['column']} = {row['level']}"
        is_count = row["column"] == record.design.outcome.name and record.design.family.coding == "count"
        digits = 2 if row["centre"] is None else _digits(row["centre"], row["scale"])
        cells = [
            _share(row["share"], row["noise"]),
            "–" if row["centre"] is None else f"{'mean ' * is_count}{plain_number(row['centre'], digits)}",
            "–" if row["scale"] is None or is_count else plain_number(row["scale"], 2),
            "" if row["column"] in named else _share(row["missing"], row["missing_noise"]),
        ]
        named.add(row["column"])
        body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{body}</tr>')
    head = "".join(f'<th scope="col">{text}</th>' for text in ("", "rows", "centre", "scale", "missing"))
    counted = ""
    if not record.design.every_row_counts:
        number, stddev = record.counted(record.design)
        counted = f" About {_share(number / rows, stddev / rows)} of them count, and shares are of these."
    about = "about " if dataset.number is None else ""
    caption = f"{dataset.name}, {about}{rows:,.0f} rows, each {dataset.unit}.{counted} ± is for 95 %."
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Who is in the table"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _share(share: float | None, noise: float) -> str:
    """A noisy share of rows, never outside what a share can be."""
    if share is None:
        return "–"
    return f"{100 * min(max(share, 0.0), 1.0):.1f} % ± {196 * noise:.1f}"


def _digits(centre: float, scale: float) -> int:
    """As many as tell a twentieth of the scale."""
    return max(1, 1 + math.floor(math.log10(max(abs(centre), scale))) - math.floor(math.log10(scale / 20)))


def _numbers(summary: Summary, units: str) -> str:
    ratio = summary.ratio_name if units == "original" else None
    heads = ["mean", "sd", "lower", "upper", "P(sign)", "sign is clear"]
    heads += [f"{ratio.replace('_', ' ')} and interval"] if ratio else []
    sampled = summary.fit.diagnostics is not None
    heads += ["width by privacy", *(["effective draws", "R-hat"] if sampled else [])]
    rows = []
    for each in summary.coefficients:
        estimate = each.units[units]
        cells = [plain_number(part) for part in (estimate.mean, estimate.sd, estimate.lower, estimate.upper)]
        cells += [percent(estimate.p_sign, summary.draws), "yes" if estimate.clear else "no"]
        if ratio and estimate.ratio is not None:
            middle, lower, upper = (plain_number(part, 4) for part in estimate.ratio)
            cells.append("–" if each.name == "Intercept" else f"{middle} ({lower} to {upper})")
        cells += [times(estimate.inflation)]
        cells += [count(each.ess), plain_number(each.r_hat, 4)] if sampled else []
        body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{escape(each.name)}</th>{body}</tr>')
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ("coefficient", *heads))
    caption = f"Posterior of the coefficients in {units} units; {100 * summary.prob:g} % intervals."
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table of coefficients"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _own_table(summary: Summary, units: str) -> str:
    """What this very table would say without noise: narrower, and silent about other samples."""
    rows = []
    for each in summary.coefficients:
        if each.own_table is None:
            return ""
        estimate = each.own_table[units]
        cells = [plain_number(part) for part in (estimate.mean, estimate.sd, estimate.lower, estimate.upper)]
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{escape(each.name)}</th>{body}</tr>')
    head = "".join(f'<th scope="col">{text}</th>' for text in ("coefficient", "mean", "sd", "lower", "upper"))
    caption = (
        "The estimate that this very table would give without privacy noise. Its intervals hold privacy noise only:"
        " they say nothing about other people than those in the table."
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="The table\'s own estimate"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
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
