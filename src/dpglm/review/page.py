"""The page and the record as files. Names come from a schema that a stranger may have written: all enter escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from dpglm.errors import FileError, InputError
from dpglm.release_file import as_path, write_atomically
from dpglm.review import words
from dpglm.review.facts import Facts, checksum, facts_of
from dpglm.review.registry import blanks, record
from dpglm.terminal import kind_of

if TYPE_CHECKING:
    from os import PathLike

_BELIEFS = (0.01, 0.1, 0.5, 0.9)


def review_statement(
    source: object,
    path: str | PathLike[str],
    *,
    curator: str | None = None,
    use: str | None = None,
    region: str | None = None,
    overwrite: bool = False,
) -> tuple[Path, Path]:
    """Write a page for a review board or a data protection officer, and a record for machines beside it.

    Parameters
    ----------
    source
        A ``dpglm.Release``, or a ``dpglm.Ledger``, which knows of all releases of its dataset.
    path
        The page to write, ``….html``; the record gets its name with ``.json``. Each is written whole or not at all.
    curator, use, region
        Who publishes, what for, and which region the data describe: the record wants it, and dpglm cannot know it.
    overwrite
        Replace existing files.

    The page says what was promised to whom, what was spent, what is not protected and what a person has to answer; the
    record has the fields of the OpenDP deployments registry. Both are made of what the releases and the ledger say:
    no row is read and nothing is spent.
    """
    target = as_path("output", path)
    beside = target.with_suffix(".json")
    if target == beside:
        raise InputError("output", str(target), "is the name of the record beside the page", "name a .html file")
    if kind_of(beside) == "a release":
        rule = "is a release, and the record beside the page would replace it"
        raise FileError("output", str(beside), rule, "choose another name")
    for file in (target, beside):
        if file.exists() and not file.is_file():
            raise FileError("output", str(file), "is not an ordinary file", "name a file to write")
        if file.exists() and not overwrite:
            raise FileError("output", str(file), "exists already", "choose another name, or say overwrite=True")
    facts = facts_of(source)
    made = record(facts, curator=_told("curator", curator), use=_told("use", use), region=_told("region", region))
    write_atomically(beside, (json.dumps(made, indent=1, allow_nan=False) + "\n").encode())
    write_atomically(target, statement_page(facts, made).encode())
    return target, beside


def statement_page(facts: Facts, made: dict[str, Any]) -> str:
    """The page's text."""
    import dpglm

    style = files("dpglm.review").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    content = {
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        "style": style,
        "version": escape(dpglm.__version__),
        "title": escape(f"{facts.name}: statement on privacy"),
        "name": escape(facts.name),
        "cautions": _cautions(facts),
        "summary": _paragraphs(words.summary(facts)),
        "promise": _paragraphs(words.promise(facts)) + _beliefs(facts) if facts.spent.mu > 0 else _nothing(),
        "spent": _spent(facts),
        "released": _released(facts),
        "not_protected": _listed(words.not_protected(facts)),
        "questions": "".join(f"<li>{escape(each)}</li>" for each in words.questions(facts)),
        "check": _check(facts),
        "blanks": _blanks(made),
    }
    return Template(files("dpglm.review").joinpath("page.html").read_text(encoding="utf-8")).substitute(content)


def escape(text: object) -> str:
    """Text for an element or an attribute."""
    return html.escape(str(text), quote=True)


def _told(name: str, given: str | None) -> str | None:
    if given is None or (isinstance(given, str) and given.strip()):
        return given
    raise InputError(name, given, "must be text", "leave it out, or say it")


def _paragraphs(sentences: list[str]) -> str:
    return "".join(f"<p>{escape(each)}</p>" for each in sentences)


def _listed(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in sentences) + "</ul>"


def _nothing() -> str:
    return "<p>Nothing was released, so there is nothing to promise yet.</p>"


def _cautions(facts: Facts) -> str:
    said = words.cautions(facts)
    if not said:
        return ""
    head = '<section class="cautions" aria-labelledby="cautions-h"><h2 id="cautions-h">Read this first</h2>'
    return f"{head}{_listed(said)}</section>"


def _beliefs(facts: Facts) -> str:
    rows = "".join(
        f"<tr><td>{100 * before:g} %</td><td>at most {words.times_in_hundred(after)} %</td></tr>"
        for before, after in ((each, facts.spent.belief_after(each)) for each in _BELIEFS)
    )
    return _table(
        "What may be learnt about one person, at most", ("held probable before", "afterwards"), rows, "narrow"
    )


def _spent(facts: Facts) -> str:
    spent = facts.spent
    whole = "spent so far" if facts.ledger else "spent by this release"
    other = f"μ = {words.up(spent.mu)}, ρ = {words.up(spent.rho)}"
    lines = [(whole, f"ε = {words.up(spent.epsilon)} at δ = {words.small(spent.delta)} ({other})")]
    if spent.cap_epsilon is not None and spent.remaining_epsilon is not None:
        lines.append(("cap of all releases together", f"ε = {spent.cap_epsilon:g} at δ = {words.small(spent.delta)}"))
        lines.append(("left for one more release", f"ε = {words.down(spent.remaining_epsilon)}"))
    else:
        fact = facts.releases[0].ledger
        if fact is not None:
            told = f"ε = {words.up(fact.spent_epsilon)} of {fact.cap_epsilon:g} (at δ = {words.small(fact.cap_delta)})"
            lines.append(("spent by all releases of the ledger, after this one", told))
    body = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in lines)
    note = "ε of several releases do not add up: the ledger adds up μ², and tells ε of the sum."
    return f'<dl>{body}</dl><p class="note">{note}</p>' if facts.ledger else f"<dl>{body}</dl>"


def _released(facts: Facts) -> str:
    heads = ("made on", "what for", "cost", "what is in the file")
    lines = [
        (release.time[:10], f"{release.design.family.regression}, {release.formula}{words.weighed(release)}",
         f"ε = {release.privacy.epsilon:g}, δ = {words.small(release.privacy.delta)}", words.released(release))
        for release in facts.releases
    ] + [
        (each.time[:10], each.formula, f"μ = {words.up(each.mu)}", "not finished; charged all the same")
        for each in facts.unfinished
    ]  # fmt: skip
    if not lines:
        return "<p>Nothing.</p>"
    rows = "".join(
        "<tr>" + "".join(
            f'<td data-head="{escape(head)}">{escape(cell)}</td>' for head, cell in zip(heads, line, strict=True)
        ) + "</tr>"
        for line in lines
    )  # fmt: skip
    columns = "".join(
        f'<tr><th scope="row">{escape(column.name)}</th><td>{escape(words.declared(column))}</td></tr>'
        for column in facts.columns
    )
    declared = _table("Columns that were used, as they were declared in public", ("column", "declared"), columns)
    return _table("Releases", heads, rows, "stacked") + declared


def _table(caption: str, heads: tuple[str, ...], rows: str, kind: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="{kind}">'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _check(facts: Facts) -> str:
    """How somebody else finds out that this page is true."""
    identities = "".join(
        f"<dt>release {escape(release.id)}</dt><dd>SHA-256 <code>{escape(checksum(release))}</code></dd>"
        for release in facts.releases
    )
    versions = sorted({f"{name} {number}" for release in facts.releases for name, number in release.versions.items()})
    made = f"<dt>made with</dt><dd>{escape(', '.join(versions))}</dd>" if versions else ""
    return (
        "<p>The promise is computed from what a release file says of itself, and reading a file checks that its noise,"
        " its parts and its promise fit together. That the ledger counts every release that you were shown, and is not"
        " an old copy of itself, is checked by whoever holds it:</p>"
        f"<pre>dpglm ledger verify LEDGER --against RELEASE …</pre><dl>{identities}{made}</dl>"
    )


def _blanks(made: dict[str, Any]) -> str:
    missing = blanks(made)
    if not missing:
        return ""
    names = ", ".join(f"<code>{escape(each)}</code>" for each in missing)
    return f'<p class="note">Still to be filled in there: {names}.</p>'
