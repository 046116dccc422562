"""What a notebook shows of a schema, a release, a plan, a check or a fit: HTML without style sheets or scripts.

Names and levels may come from a stranger's file: every text is escaped here.
"""

from __future__ import annotations

import html
from collections.abc import Sequence


def table_html(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A table whose first column names its rows."""
    heads = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in head)
    body = "".join(
        f'<tr><th scope="row" align="left">{html.escape(label)}</th>'
        + "".join(f'<td align="right">{html.escape(cell)}</td>' for cell in cells)
        + "</tr>\n"
        for label, *cells in rows
    )
    foot = "<br>".join(html.escape(note) for note in notes)
    if foot:
        foot = f'<tfoot><tr><td colspan="{len(head)}" align="left"><small>{foot}</small></td></tr></tfoot>\n'
    return (
        f"<table>\n<caption>{html.escape(caption)}</caption>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{body}</tbody>\n{foot}</table>\n"
    )


def paragraph_html(text: str, *, strong: bool = False, alarm: bool = False) -> str:
    """A paragraph; an alarm is read out by a screen reader."""
    held = f"<strong>{html.escape(text)}</strong>" if strong or alarm else html.escape(text)
    return f'<p role="alert">{held}</p>\n' if alarm else f"<p>{held}</p>\n"


def list_html(items: Sequence[str]) -> str:
    """A list; nothing where it is empty."""
    return f"<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in items)}</ul>\n" if items else ""


def folded_html(summary: str, content: str) -> str:
    """HTML behind a line that opens it."""
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>\n"
