"""What a result is of: the commit, and the files that its numbers depend on, so that a page can say what is stale.

A file's mark is of what it does, not of its words: the syntax tree without docstrings, so that comments and layout
change nothing. A result is *as measured* while every file that it names has the mark that it had.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from machine import RESULTS, save

ROOT = Path(__file__).parents[2]
# What decides the numbers of a release by looks, and of its fit.
LOOKS = (
    "src/dpglm/looks", "src/dpglm/families", "src/dpglm/privacy.py", "src/dpglm/analyst/closed_form.py",
    "src/dpglm/custodian/bounded_rows.py", "src/dpglm/custodian/by_looks.py", "src/dpglm/custodian/look_plan.py",
    "src/dpglm/custodian/profile_counts.py", "src/dpglm/custodian/sensitivity.py",
    "src/dpglm/custodian/survey_counts.py",
)  # fmt: skip


def mark_of(path: Path) -> str:
    """Of what a file does."""
    return mark_of_text(path.read_text(encoding="utf-8"))


def mark_of_text(text: str) -> str:
    """Eight digits of the syntax tree. Comments, docstrings and layout do not count."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body and _is_text(body[0]):
            node.body = body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:8]


def sha_of(path: Path) -> str:
    """Of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def marks_of(sources: Iterable[str]) -> dict[str, str]:
    """Of files and of folders of files, by path."""
    paths = [path for name in sources for path in _files(ROOT / name)]
    return {path.relative_to(ROOT).as_posix(): mark_of(path) for path in paths}


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.py")) if path.is_dir() else [path]


def changed(marks: dict[str, str], sources: Iterable[str]) -> list[str]:
    """Files that do something else than they did, are gone, or are new among the sources."""
    now = marks_of(name for name in sources if (ROOT / name).exists())
    return sorted(name for name in marks.keys() | now.keys() if marks.get(name) != now.get(name))


def save_stamped(name: str, results: Any, started: float, sources: Iterable[str]) -> Path:
    """Results beside machine, commit, seconds and marks."""
    sources = list(sources)
    own = {"seconds": round(time.perf_counter() - started), "code": sources, "marks": marks_of(sources)}
    return save(name, own | results)


def stored(name: str) -> dict[str, Any] | None:
    """A results file, where there is one."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
