"""One self-contained page: no network, no third-party code, a policy that runs only this page's own script.

Names and levels come from a schema that a stranger may have written. Text enters through ``escape``; data enters as
JSON in which ``<``, ``>`` and ``&`` are written as escapes, so that nothing in it can end the element that holds it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from dpglm.analyst.result import Fit
from dpglm.errors import FileError, InputError
from dpglm.release_file import as_path, write_atomically
from dpglm.report import charts, sections, survival, words
from dpglm.report.people import people
from dpglm.report.summary import Summary, summarize
from dpglm.report.svg import escape

if TYPE_CHECKING:
    from os import PathLike


def report(
    fit: Fit,
    path: str | PathLike[str],
    *,
    prob: float = 0.95,
    at: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a self-contained HTML page about a fit; returns its path.

    Parameters
    ----------
    fit
        What ``dpglm.fit`` or ``dpglm.load_fit`` returned.
    path
        The file to write: all of it or nothing.
    prob
        Probability of the intervals.
    at
        Where the other predictors stand in the plots of predicted outcomes, for example ``{"age": 40}``. Default: the
        centre and the most common level that the survey shows (of moments, the middle of the declared bounds and the
        reference level).
    overwrite
        Replace an existing file.
    """
    if not isinstance(fit, Fit):
        raise InputError("fit", type(fit).__name__, "must be a Fit", "use dpglm.fit or dpglm.load_fit")
    target = as_path("output", path)
    if target.exists() and not target.is_file():
        raise FileError("output", str(target), "is not an ordinary file", "name a file to write")
    if target.exists() and not overwrite:
        raise FileError("output", str(target), "exists already", "choose another name, or say overwrite=True")
    write_atomically(target, page(summarize(fit, prob=prob, at=at)).encode())
    return target


def page(summary: Summary) -> str:
    """The page's text."""
    style, script = _resource("page.css"), _resource("page.js")
    design = summary.fit.releases[0].design
    data: dict[str, Any] = {}
    content = {
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "version": escape(words.versions(summary.fit)["dpglm"]),
        "title": escape(f"{design.formula} · dpglm"),
        "question": escape(words.question(design)),
        "formula": escape(design.formula),
        "chips": sections.chips(summary),
        "alarm": sections.alarm(summary.fit),
        "findings": sections.findings(summary),
        "promise": sections.promise(summary),
        "warnings": sections.warnings(summary.fit),
        "forest": charts.forest(summary),
        "densities": charts.densities(summary, data),
        "survival": survival.section(summary, data),
        "effects": charts.effects(summary, data),
        "privacy": charts.privacy(summary),
        "average": charts.average(summary),
        "people": people(summary.fit),
        "health": sections.health(summary),
        "numbers": sections.numbers(summary),
        "methods": sections.methods(summary),
        "reproduce": sections.reproduce(summary),
    }
    return Template(_resource("page.html")).substitute(content, data=safe_json(data))


def safe_json(data: Any) -> str:
    """JSON that can stand inside a script element whatever text it holds.

    >>> safe_json("</script><!-- & ")
    '"\\\\u003c/script\\\\u003e\\\\u003c!-- \\\\u0026 "'
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(style: str, script: str) -> str:
    """Content security policy: this page's own style and script by their digests, and nothing else."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)};"
        " base-uri 'none'; form-action 'none'"
    )


def _resource(name: str) -> str:
    return files("dpglm.report").joinpath(name).read_text(encoding="utf-8")
