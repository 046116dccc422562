"""The commands that a walk stands for: what the studio does can be done, repeated and read in a terminal."""

from __future__ import annotations

import shlex

from dpglm.studio.walk import STEPS, Walk

_WIDTH = 76


def commands(walk: Walk) -> list[str]:
    """Those of the steps so far, each as it would be typed."""
    if walk.schema_file is None:
        return [_line(["dpglm", "init", walk.table])]
    schema = ["--schema", str(walk.schema_file)]
    lines = [_line(["dpglm", "check", walk.table, *schema])]
    if walk.design is None:
        return lines
    regression = ["--formula", walk.design.formula, "--family", walk.family]
    regression += ["--link", walk.link] if walk.link else []
    regression += ["--where", walk.where] if walk.where else []
    regression += ["--weights", walk.weights] if walk.weights else []
    if walk.survey:
        export = ["--release-id", walk.survey, "--output", str(walk.survey_file)]
        lines.append(_line(["dpglm", "ledger", "export", str(walk.ledger), *export]))
        regression += ["--survey", str(walk.survey_file)]
    lines.append(_line(["dpglm", "plan", *schema, *regression, "--epsilon", walk.epsilon, "--delta", walk.delta]))
    if walk.reached < STEPS.index("review"):
        return lines
    if (walk.opened_ledger or not walk.ledger.exists()) and not walk.survey:
        cap = ["--epsilon", walk.cap_epsilon, "--delta", walk.cap_delta]
        lines.append(_line(["dpglm", "ledger", "init", str(walk.ledger), *schema, *cap]))
    budget = ["--epsilon", walk.epsilon, "--delta", walk.delta]
    files = ["--ledger", str(walk.ledger), "--output", str(walk.release_file)]
    lines.append(_line(["dpglm", "release", walk.table, *schema, *regression, *budget, *files]))
    lines.append(_line(["dpglm", "statement", str(walk.ledger), "--output", str(walk.statement_file)]))
    return lines


def _line(words: list[str]) -> str:
    """Quoted for a shell; an option and its value stay together where a long line is broken.

    >>> print(_line(["dpglm", "check", "a table.csv", "--schema", "a" * 60]))
    dpglm check 'a table.csv' \\
      --schema aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    """
    parts: list[str] = []
    for word in map(shlex.quote, words):
        if word.startswith("--") or not parts:
            parts.append(word)
        else:
            parts[-1] += f" {word}"
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) > _WIDTH:
            lines.append(f"  {part}")
        else:
            lines[-1] += f" {part}"
    return " \\\n".join(lines)
