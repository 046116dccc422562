"""Families of outcomes: one file each, and the table of them. A new family is one file and one entry here."""

from __future__ import annotations

import difflib

from dpglm.errors import InputError
from dpglm.families.base import Family
from dpglm.families.counts import Counts
from dpglm.families.linear import Linear
from dpglm.families.logistic import Logistic

__all__ = ["FAMILIES", "LARGEST_COUNT", "Family", "family_named"]

LARGEST_COUNT = 5_000  # bound of a count outcome of moments: the time of their fit grows with it

FAMILIES: dict[str, Family] = {family.name: family for family in (Logistic(), Counts(), Linear())}


def family_named(name: object) -> Family:
    """The family, or an error that lists what there is."""
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    near = difflib.get_close_matches(str(name), list(FAMILIES), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "choose one of them"
    raise InputError("family", name, f"must be one of {', '.join(FAMILIES)}", hint)
