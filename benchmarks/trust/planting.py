"""Planted bugs. Each is a small mistake of the kind that privacy software has had; the audit must catch every one.

A bug is a list of replacements. ``where`` says which of the audit's inputs can show it at all: any case, one of looks
from a hash, one with a survey of its own, one where a row is added or removed, one of weighted rows, one of people, one
of moments, a large table, or the real sampler.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from trust.audit import Violation, audit
from trust.cases import FAMILIES, Case, draw_case
from trust.large import check_large_table
from trust.sampler import check_sampler

MOST_CASES, TABLES = 60, 4

Replacement = tuple[Any, str, Any]


@dataclass(frozen=True)
class Bug:
    name: str
    where: str
    replacements: Callable[[], list[Replacement]]


@dataclass(frozen=True)
class Catch:
    """Which check of the audit caught a bug, after how many cases, and what it said."""

    bug: str
    check: str
    cases: int
    said: str


BUGS: list[Bug] = []


def planted(name: str, where: str = "any") -> Callable[[Callable[[], list[Replacement]]], None]:
    return lambda replacements: BUGS.append(Bug(name, where, replacements))


@contextmanager
def applied(bug: Bug) -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, value in bug.replacements():
            stack.enter_context(patch.object(target, name, value))
        yield


def catch(bug: Bug, seed: int, folder: Path) -> Catch | None:
    """Run the audit on the bug until it is caught, or give up."""
    chance = random.Random(f"{seed} {bug.name}")
    with applied(bug):
        for number in range(1, MOST_CASES + 1):
            family = FAMILIES[number % 3]
            try:
                if bug.where == "sampler":
                    check_sampler()
                elif bug.where == "large":
                    check_large_table(chance, family)
                else:
                    audit(fitting_case(bug.where, chance, family), folder)
            except Violation as violation:
                said = str(violation).partition(": ")[2]
                return Catch(bug.name, violation.check, number, said[:120])
    return None


def fitting_case(where: str, chance: random.Random, family: str) -> Case:
    while True:
        case = draw_case(chance, family, TABLES)
        looks = case.method == "looks"
        fits = {
            "looks": case.hashed,
            "survey": looks and not case.again,
            "moments": not looks,
            "added": case.added,
            "weights": case.weights is not None,
            "people": case.people,
        }
        if fits.get(where, True):
            return case
