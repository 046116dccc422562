"""Several releases together: whether they describe one regression, and which of them saw the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from dpglm.errors import InputError
from dpglm.releases import Release


def by_dataset(releases: Sequence[Release]) -> list[list[Release]]:
    """The releases of each dataset, in the order in which datasets first come."""
    found: dict[str, list[Release]] = {}
    for release in releases:
        found.setdefault(release.dataset_id, []).append(release)
    return list(found.values())


def check_same_model(releases: Sequence[Release]) -> None:
    """Refuse releases whose family, link, terms, outcome, offset or levels differ, and one given twice."""
    first = releases[0]
    for release in releases:
        if release.family != first.family:
            raise InputError("releases", release.family, f"another one is {first.family}", "fit one family at a time")
        if release.design.family != first.design.family:
            rule = f"another one's link is {first.design.family.link}"
            raise InputError("releases", release.design.family.link, rule, "fit one link at a time")
        if release.design.coefficient_names != first.design.coefficient_names:
            theirs, ours = set(release.design.coefficient_names), set(first.design.coefficient_names)
            differing = sorted(theirs ^ ours) or ["their order"]
            raise InputError("releases", release.formula, f"terms differ: {', '.join(differing)}", "use one formula")
        for role, theirs_named, ours_named in (
            ("outcomes", _outcome_name(release), _outcome_name(first)),
            ("offsets", _offset_name(release), _offset_name(first)),
            ("levels", _levels(release), _levels(first)),
        ):
            if theirs_named != ours_named:
                rule = f"{role} differ: {theirs_named} and {ours_named}"
                raise InputError("releases", release.formula, rule, "use one formula and the same levels")
    identities = [release.id for release in releases]
    for identity in identities:
        if identities.count(identity) > 1:
            raise InputError("releases", identity, "is given twice", "pass each release once")


def _outcome_name(release: Release) -> str:
    """The outcome, with the level that counts as a success: swapped levels would swap every sign."""
    return release.design.outcome.name


def _offset_name(release: Release) -> str:
    return "none" if release.design.offset is None else release.design.offset.name


def _levels(release: Release) -> dict[str, list[object]]:
    """Declared levels of the predictors: an indicator's coefficient also depends on its reference level."""
    used = {name for column in release.design.columns for factor in column.factors for name in factor.column_names}
    declared = (release.design.schema.columns[name] for name in sorted(used))
    return {column.name: list(column.levels) for column in declared if column.has_levels}
