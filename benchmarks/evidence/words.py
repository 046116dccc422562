"""Numbers as the page writes them."""

from __future__ import annotations

from typing import Any


def percent(share: Any) -> str:
    return f"{100 * float(share):.0f} %"


def decimal(value: Any) -> str:
    return "–" if value is None else f"{float(value):.2f}"


def table(rows: list[dict[str, str]]) -> list[str]:
    """Markdown of rows by column."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
