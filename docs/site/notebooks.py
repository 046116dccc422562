"""Pages as notebooks: prose becomes Markdown cells, what runs becomes code cells. The page is the only source.

``python docs/site/notebooks.py`` writes them into build/site/notebooks. MkDocs makes the same files, and a link to each
at the top of its page.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGES = ("custodian", "analyst", "choosing", "reading", "bounds", "missing", "survival", "private_n", "weights",
         "repeated_rows")  # fmt: skip
DOCS = Path(__file__).resolve().parent.parent
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
_FILE = re.compile(r"# (\S+\.toml)\n")
_FOLDER = """\
# A new folder: what is written goes there, and a second run starts afresh.
import os
import tempfile

os.chdir(tempfile.mkdtemp())"""


def notebook_text(page: str) -> str:
    """The notebook of a page, as JSON (nbformat 4.5).

    Every ``python`` block is a cell, every ``sh`` block a cell that a shell runs, and every ``toml`` block that begins
    with a file's name a cell that writes it. Other blocks are only shown. Links lead to the pages one folder up.
    """
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    title, _, rest = text.partition("\n")
    name = title.lstrip("# ")
    said = f"{title}\n\n*This is the page [{name}](../{page}.html) as a notebook: run its cells in order.*"
    cells = [("markdown", said), ("code", _FOLDER)]
    done = 0
    for found in _FENCE.finditer(rest):
        code = _code(found[1], found[2])
        if code is not None:
            cells += [("markdown", _linked(rest[done : found.start()], page)), ("code", code)]
            done = found.end()
    cells.append(("markdown", _linked(rest[done:], page)))
    return _json(page, [(kind, source.strip("\n")) for kind, source in cells if source.strip()])


def _code(language: str, block: str) -> str | None:
    """A block as a cell; None where it is only shown."""
    if language == "python":
        return block
    if language == "sh" and block.startswith("dpglm "):
        return f"%%sh\n{block}"
    if language == "toml" and (name := _FILE.match(block)):
        return f"%%writefile {name[1]}\n{block}"
    return None


def _linked(prose: str, page: str) -> str:
    """Links that lead from the folder of notebooks to the pages; blocks that are only shown stay as they are."""

    def led(found: re.Match[str]) -> str:
        target = re.sub(r"\.md$", ".html", found[1]) or f"{page}.html"
        return f"](../{target}{found[2] or ''})"

    parts = re.split(r"(^```.*?^```$)", prose, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(led, part) for part in parts)


def _json(page: str, cells: list[tuple[str, str]]) -> str:
    def cell(number: int, kind: str, source: str) -> dict[str, Any]:
        run = {"execution_count": None, "outputs": []} if kind == "code" else {}
        lines = source.splitlines(keepends=True)
        return {"cell_type": kind, "id": f"{page}-{number}", "metadata": {}, **run, "source": lines}

    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": [cell(number, *each) for number, each in enumerate(cells)],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Put the notebooks among the files of the site."""
    from mkdocs.structure.files import File

    for page in PAGES:
        files.append(File.generated(config, f"notebooks/{page}.ipynb", content=notebook_text(page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Say on a page that it is a notebook, too."""
    name = page.file.src_uri.removesuffix(".md")
    if name not in PAGES:
        return markdown
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n[This page as a notebook](notebooks/{name}.ipynb)" + "{: download }\n" + rest


def main() -> None:
    """Write all of them."""
    folder = DOCS.parent / "build" / "site" / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        (folder / f"{page}.ipynb").write_text(notebook_text(page), encoding="utf-8")
    print(f"{len(PAGES)} notebooks in {folder}")


if __name__ == "__main__":
    main()
