"""What a release, or a ledger with its kept releases, says to a review board: plain facts, no words yet.

Everything here is in the release files or the ledger already; no row is read, and nothing is estimated.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from dpglm.errors import InputError
from dpglm.privacy import compose, delta_of, rho_of
from dpglm.protection import Protection
from dpglm.release_file import read_release
from dpglm.releases import Release
from dpglm.schema import Column


@dataclass(frozen=True)
class Spent:
    """What all releases together cost: (epsilon, delta) and mu; of a ledger, also what they may cost at most."""

    epsilon: float
    delta: float
    mu: float
    cap_epsilon: float | None = None
    remaining_epsilon: float | None = None

    @property
    def rho(self) -> float:
        return rho_of(self.mu)

    @property
    def best_guess(self) -> float:
        """How often the best test that there is tells two versions of a row apart: (1 + total variation) / 2."""
        return (1 + delta_of(self.mu, 0.0)) / 2

    def belief_after(self, before: float) -> float:
        """The most that a belief of this probability can become: its odds times e^epsilon."""
        if self.epsilon > 700:
            return 1.0
        odds = math.exp(self.epsilon) * before / (1 - before)
        return odds / (1 + odds)


@dataclass(frozen=True)
class Unfinished:
    """A charge whose release was not finished: it counts, and nothing of it was kept."""

    release_id: str
    time: str
    formula: str
    mu: float


@dataclass(frozen=True)
class Facts:
    """About one dataset: who is protected, what was released of it, and what that cost.

    ``rows`` is None where their number is private, or nothing was released. ``ledger`` says whether the facts are a
    ledger's, which counts every release that went through it; without one they are those of a single release.
    """

    name: str
    id: str
    unit: str
    rows: int | None
    relation: str
    releases: tuple[Release, ...]
    unfinished: tuple[Unfinished, ...]
    spent: Spent
    ledger: bool

    @property
    def protection(self) -> Protection:
        return Protection.named(self.relation)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every declared column that some release used, once."""
        found = {column.name: column for release in self.releases for column in release.design.table_columns}
        return tuple(found.values())

    @property
    def private(self) -> bool:
        return all(release.private for release in self.releases)

    @property
    def published(self) -> str | None:
        """When the latest release was made."""
        return max((release.time for release in self.releases), default=None)


def facts_of(source: object) -> Facts:
    """The facts of a release, or of a ledger and the releases that it keeps."""
    if isinstance(source, Release):
        return _of_release(source)
    if hasattr(source, "entries") and hasattr(source, "export"):
        return _of_ledger(source)
    raise InputError(
        "source", type(source).__name__, "must be a Release or a Ledger",
        "use dpglm.load_release(path) or dpglm.Ledger.open(path)",
    )  # fmt: skip


def checksum(release: Release) -> str:
    """The digest that the release file carries."""
    return str(json.loads(release.to_json())["checksum"])


def noisy_numbers(release: Release) -> int:
    """How many integers the file holds that depend on the rows, each through its noise."""
    record, profile = release.survey_record, release.profile
    surveyed = 0 if record is None else sum(len(integers) for _, integers in record.asked)
    profiled = 0 if profile is None else sum(len(counts) for counts in profile.counts)
    return surveyed + profiled + sum(len(block.integers) for stage in release.stages for block in stage.blocks)


def _of_release(release: Release) -> Facts:
    dataset, privacy = release.design.schema.dataset, release.privacy
    spent = Spent(privacy.epsilon, privacy.delta, privacy.mu)
    return Facts(
        dataset.name, dataset.id, dataset.unit, dataset.number, dataset.protection.relation, (release,), (), spent,
        ledger=False,
    )  # fmt: skip


def _of_ledger(ledger: Any) -> Facts:
    summary = ledger.summary()
    charged: dict[str, list[Any]] = {}
    for entry in ledger.entries():
        charged.setdefault(entry.release_id, []).append(entry)
    releases, unfinished = [], []
    for identity, entries in charged.items():
        if any(entry.has_release for entry in entries):
            releases.append(read_release(ledger.export(identity), f"release {identity} of the ledger"))
        else:
            formula = str(entries[0].description.get("formula", ""))
            unfinished.append(
                Unfinished(identity, entries[0].time, formula, compose(entry.mu for entry in entries))
            )  # fmt: skip
    dataset = releases[-1].design.schema.dataset if releases else None
    spent = Spent(
        summary.spent_epsilon, summary.cap_delta, summary.spent_mu, summary.cap_epsilon, summary.remaining_epsilon
    )  # fmt: skip
    return Facts(
        summary.dataset_id if dataset is None else dataset.name, summary.dataset_id, summary.unit,
        None if dataset is None else dataset.number, summary.neighbouring_relation, tuple(releases), tuple(unfinished),
        spent, ledger=True,
    )  # fmt: skip
