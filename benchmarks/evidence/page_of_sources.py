"""The page's part on where every published number is from, and what changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evidence.stamp import changed, sha_of, stored
from evidence.words import table
from machine import RESULTS

SHOWN = 4


def lines() -> list[str]:
    """A line a results file: its commit, and the files under it that do something else since.

    Of results that no mark was taken of, or that were measured anew since, the line says so.
    """
    marks = stored("evidence_marks")
    if marks is None:
        return ["No marks were taken."]
    rows = []
    for path in sorted(RESULTS.iterdir()):
        if path.suffix not in (".json", ".jsonl") or path.stem.startswith(("evidence_", "real_former")):
            continue
        each: dict[str, Any] = marks["results"].get(path.name, {})
        if each.get("sha") != sha_of(path):
            rows.append({"results": f"`{path.name}`", "commit": "measured since the last mark", "changed since": "–"})
            continue
        since = changed(each["marks"], each["code"])
        more = f" and {len(since) - SHOWN} more" if len(since) > SHOWN else ""
        names = ", ".join(Path(name).name for name in since[:SHOWN]) + more if since else "nothing"
        rows.append(
            {
                "results": f"`{path.name}`",
                "commit": f"{each['commit']} ({each['of']})",
                "changed since": f"{names} ({len(since)})" if since else names,
            }
        )
    return [
        "Every part above names its commit.",
        "Of the other measured pages: the commit of each results file (at which it was *measured*, where the file names"
        " it, or that *stored* it), and files that its numbers depend on that are new since or do something else.",
        "Comments, docstrings and layout do not count; that a file changed does not say that a number did.",
        "`tests/test_published_pages.py` fails when this list is no longer true: `python -m evidence marks page` mends"
        " it.",
        "", *table(rows),
    ]  # fmt: skip
