"""Published release files as witnesses of a ledger.

A hash chain shows an edited ledger. It cannot show one that was put back from an older copy, or a copy that somebody
else spends from: every state of a ledger was sound once. The files that were published say otherwise: each states
its identity, its entry's number, its cost, the cap, and what had been spent by then.

Guarantee: if this passes, every one of the files is charged in this ledger, in full, at the place that it states, and
what was spent up to there is what it states. Edge case: releases of which no file is shown are not known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from dpglm.custodian.ledger import UNITS, Entry, Ledger
from dpglm.errors import FileError
from dpglm.release_file import read_release
from dpglm.releases import Release

_COUNT = "find the ledger that it was charged to; until then count its cost as spent"
_RESTORE = "restore the newest backup of the ledger, and count what was released since"


def check_published(ledger: Ledger, releases: Mapping[str, Release]) -> None:
    """Raise a FileError for the first release, by the name it has here, that this ledger does not account for."""
    entries = ledger.entries()
    for name, release in releases.items():
        problem = _problem(ledger, entries, release)
        if problem is not None:
            raise FileError("release", name, *problem)


def _problem(ledger: Ledger, entries: tuple[Entry, ...], release: Release) -> tuple[str, str] | None:
    """What is wrong, and what to do; None where the ledger and the file agree."""
    fact, dataset = release.ledger, release.design.schema.dataset
    if (dataset.id, dataset.unit) != (ledger.dataset_id, ledger.unit):
        return f"is of dataset {dataset.id!r} ({dataset.unit}), not of this ledger's", "verify it with its own ledger"
    if fact is None:
        return "was made without a ledger: nothing counts it", "count its cost by hand"
    own = [entry for entry in entries if entry.release_id == release.id]
    if not own and fact.entry > len(entries):
        rule = f"is entry {fact.entry}, and this ledger has {len(entries)}: it was rolled back, or is a copy"
        return rule, _RESTORE
    if not own:
        return f"is entry {fact.entry}, which is another release here: it was charged to a copy of this ledger", _COUNT
    if own[-1].number != fact.entry:
        return f"is entry {fact.entry}, and this ledger has it as entry {own[-1].number}", _RESTORE
    if (fact.cap_epsilon, fact.cap_delta) != (ledger.cap_epsilon, ledger.cap_delta):
        return f"was charged under a cap of epsilon {fact.cap_epsilon:g}, this ledger's is another", _RESTORE
    costs = [math.ceil(Fraction(mu * mu) * UNITS) for mu in release.costs]
    # One that stopped between looks, as the ledger kept it, has paid for more than it holds.
    if [entry.mu_squared_units for entry in own][: len(costs)] != costs:
        return "cost another amount than this ledger's entries say", _RESTORE
    if fact.spent_mu != ledger.summary(through=fact.entry).spent_mu:
        return f"says that another amount had been spent by entry {fact.entry}: earlier entries differ", _RESTORE
    if own[-1].has_release and read_release(ledger.export(release.id), "kept release") != release:
        return "differs from the release that the ledger keeps", "publish what `dpglm ledger export` writes"
    return None
