"""What a user's mistake looks like: one line that says name, value, rule and remedy."""

from __future__ import annotations

from typing import Any

_LONGEST_VALUE = 200
_LONGEST_PART = 300


class DpglmError(Exception):
    """Base of every error that dpglm raises on purpose."""


class InputError(DpglmError, ValueError):
    """Something the user wrote (an argument, a schema, a formula, a file) breaks a rule.

    >>> str(InputError("epsilon", -1, "must be a number above 0", "write for example epsilon=1"))
    'epsilon = -1: must be a number above 0; write for example epsilon=1'
    """

    def __init__(self, name: str, value: object, rule: str, remedy: str) -> None:
        self.name, self.value, self.rule, self.remedy = name, value, rule, remedy
        name, rule, remedy = (_short(part, _LONGEST_PART) for part in (name, rule, remedy))
        super().__init__(_one_line(f"{name} = {_shown(value)}: {rule}; {remedy}"))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.value, self.rule, self.remedy)


class BudgetError(InputError):
    """A release that the ledger refuses: it would exceed the cap, or the ledger is another dataset's."""


class SurveyError(InputError):
    """A survey says that a column cannot be used: the release stops, and only the survey is spent.

    ``release`` holds the survey. Passed as ``survey=`` it lets a release go on all the same.
    """

    def __init__(self, release: Any) -> None:
        self.release = release
        record = release.survey_record
        problems = "; ".join(record.survey.problems)
        spent = f"only the survey was spent ({(record.mu / release.privacy.mu) ** 2:.0%} of the budget, as mu squared)"
        remedy = f"{spent}; correct the schema or the formula, or pass this survey to release all the same"
        super().__init__("survey", release.id, f"says that {problems}", remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.release,)


class FileError(InputError):
    """A file that cannot be read, written or believed."""


def _shown(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RecursionError, ValueError):  # nested, or a number, beyond what Python writes
        text = f"({type(value).__name__})"
    return _short(text, _LONGEST_VALUE)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
