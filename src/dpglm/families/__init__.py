"""Families of outcomes: one file each, and the tables of them. A new family or link is one file and one entry here."""

from __future__ import annotations

import difflib

from dpglm.errors import InputError
from dpglm.families.base import Family
from dpglm.families.counts import Counts
from dpglm.families.linear import Linear
from dpglm.families.logistic import ComplementaryLogLog, Logistic, Probit

__all__ = ["ALIASES", "EVERY_FAMILY", "FAMILIES", "LARGEST_COUNT", "OTHER_LINKS", "Family", "family_named"]

LARGEST_COUNT = 5_000  # bound of a count outcome of moments: the time of their fit grows with it

FAMILIES: dict[str, Family] = {family.name: family for family in (Logistic(), Counts(), Linear())}
OTHER_LINKS: dict[tuple[str, str], Family] = {
    (family.name, family.link): family for family in (Probit(), ComplementaryLogLog())
}
EVERY_FAMILY = (*FAMILIES.values(), *OTHER_LINKS.values())
ALIASES = {"binomial": "logistic", "gaussian": "linear", "count": "poisson"}  # what other packages call them


def family_named(name: object, link: object = None) -> Family:
    """The family with its own link or another, or an error that lists what there is. A ``Family`` is itself."""
    family = name if isinstance(name, Family) else _of_name(name)
    if link is None or link == family.link:
        return family
    links = {FAMILIES[family.name].link: FAMILIES[family.name]} if family.name in FAMILIES else {}
    links |= {of_link: other for (owner, of_link), other in OTHER_LINKS.items() if owner == family.name}
    if isinstance(link, str) and link in links:
        return links[link]
    rule = f"must be one of {', '.join(links)} for family {family.name!r}"
    raise InputError("link", link, rule, _hint(link, list(links)))


def _of_name(name: object) -> Family:
    if isinstance(name, str) and ALIASES.get(name, name) in FAMILIES:
        return FAMILIES[ALIASES.get(name, name)]
    raise InputError("family", name, f"must be one of {', '.join(FAMILIES)}", _hint(name, [*FAMILIES, *ALIASES]))


def _hint(given: object, known: list[str]) -> str:
    near = difflib.get_close_matches(str(given), known, n=1)
    return f"did you mean {near[0]!r}?" if near else "choose one of them"
