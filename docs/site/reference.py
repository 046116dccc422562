"""What MkDocs does beyond pages: the reference from docstrings and help texts, and the list of measured pages.

A line ``::: dpglm.Fit`` becomes the signature and docstring of that name, with its public members if it is a class. A
line ``::: command release`` becomes the help text of that command. So neither can fall behind the code.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import os
import re
from pathlib import Path
from typing import Any

_FOR_WRITERS = re.compile(r"\s*Do not edit(?::[^\n]*)?\.?(?=\n|$)")  # said in pages that a script wrote
MARKER = re.compile(r"^::: (.+)$", re.MULTILINE)
_SECTION = re.compile(r"^(Parameters|Guarantees|Edge cases)\n(?:-+\n)?", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Put every page that the navigation does not name into its section "Measured"."""
    pages = {path.name for path in Path(config["docs_dir"]).glob("*.md")}
    measured = sorted(pages - set(_named(config["nav"])), key=lambda name: _title(config, name))
    for section in config["nav"]:
        if "Measured" in section:
            section["Measured"] = [{_title(config, name): name} for name in measured]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the reference, and leave out what is said to those who would edit a page."""
    markdown = _FOR_WRITERS.sub("", markdown, count=1)
    return MARKER.sub(lambda found: reference(found[1].strip()), markdown)


def _named(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [name for part in (nav.values() if isinstance(nav, dict) else nav) for name in _named(part)]


def _title(config: Any, name: str) -> str:
    first = Path(config["docs_dir"], name).read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("#").strip().replace("`", "")


def reference(name: str) -> str:
    """Markdown about one public name, or about one command."""
    if name.startswith("command"):
        return _help(name.split()[1:])
    module, _, attribute = name.rpartition(".")
    thing = getattr(importlib.import_module(module), attribute)
    if attribute == "report":  # a package that can be called: the function says more
        thing = importlib.import_module("dpglm.report.html").report
    parts = [f"### `{name}`" + " {: .api }", _signature(attribute, thing), text_of(inspect.getdoc(thing) or "")]
    if inspect.isclass(thing) and not issubclass(thing, Exception | enum.Enum):
        parts += _fields(thing) + [part for member in _members(thing) for part in _member(thing, member)]
    return "\n\n".join(part for part in parts if part)


def _fields(thing: type) -> list[str]:
    if not dataclasses.is_dataclass(thing):
        return []
    names = [f"`{field.name}`" for field in dataclasses.fields(thing) if not field.name.startswith("_")]
    return ["Fields: " + ", ".join(names) + "."] if names else []


def _members(thing: type) -> list[str]:
    """Public methods and properties that the class itself defines and that say what they do."""
    found = []
    for name, member in vars(thing).items():
        target = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and callable(target) and inspect.getdoc(target):
            found.append(name)
    return found


def _member(thing: type, name: str) -> list[str]:
    member = inspect.getattr_static(thing, name)
    if isinstance(member, property):
        return [f"#### `{thing.__name__}.{name}`" + " {: .api }", text_of(inspect.getdoc(member.fget) or "")]
    bound = getattr(thing, name)
    head = f"#### `{thing.__name__}.{name}`" + " {: .api }"
    return [head, _signature(f"{thing.__name__}.{name}", bound), text_of(inspect.getdoc(bound) or "")]


def _signature(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and (issubclass(thing, Exception) or dataclasses.is_dataclass(thing)):
        return ""
    parameters = []
    signature = inspect.signature(thing)
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parameters.append("*")
            starred = True
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parameters.append(parameter.name + default)
    line = f"{name}({', '.join(parameters)})"
    if len(line) > 88:
        line = f"{name}(\n    " + ",\n    ".join(parameters) + ",\n)"
    return f"```python\n{line}\n```"


def text_of(docstring: str) -> str:
    """A docstring as Markdown: its sections as lists, its examples as code, its double backquotes single."""
    text = docstring.replace("``", "`")
    parts = _SECTION.split(text)
    body = _examples(parts[0]).rstrip()
    for title, content in zip(parts[1::2], parts[2::2], strict=True):
        body += f"\n\n**{title}**\n\n" + (_parameters(content) if title == "Parameters" else inspect.cleandoc(content))
    return body.strip()


def _parameters(content: str) -> str:
    """``name`` lines with indented text below become a list; what follows the list stays as it is."""
    lines, tail = [], []
    for line in content.rstrip().split("\n"):
        if tail or (line and not line.startswith(" ") and not re.fullmatch(r"[\w, ]+", line)):
            tail.append(line)
        elif line.startswith(" "):
            lines[-1] += " " + line.strip()
        elif line:
            names = ", ".join(f"`{name.strip()}`" for name in line.split(","))
            lines.append(f"* {names}:")
    return "\n".join(lines) + "\n\n" + "\n".join(tail)


def _examples(text: str) -> str:
    def fenced(found: re.Match[str]) -> str:
        return "\n```pycon\n" + inspect.cleandoc(found[0]) + "\n```\n"

    return re.sub(r"(?:^[ ]*>>> .*\n?(?:^(?!\s*$).*\n?)*)", fenced, text, flags=re.MULTILINE)


def _help(words: list[str]) -> str:
    """What ``dpglm WORDS --help`` prints, without colours, at a width that fits a page."""
    os.environ.update(TERMINAL_WIDTH="100", COLUMNS="100", NO_COLOR="1")
    from typer.testing import CliRunner

    from dpglm.cli import app

    printed = CliRunner().invoke(app, [*words, "--help"], prog_name="dpglm").output
    lines = [line.rstrip() for line in printed.split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    return f"```text\n{text}\n```"
