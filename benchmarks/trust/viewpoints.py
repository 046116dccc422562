"""Viewpoints from a hash of everything released so far: any function of noisy numbers must keep the guarantee.

The product's own rule gives viewpoints that are sensible; an attack wants strange ones too: far centres, whitenings of
any shape, bounds that clip nothing, some rows or all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from dpglm.custodian import by_looks
from dpglm.looks.profile import Profile
from dpglm.looks.reading import Look
from dpglm.looks.viewpoint import Viewpoint


@dataclass(frozen=True)
class Seen:
    """What a hash knows: how many coefficients there are, and a digest of what was released."""

    size: int
    offset: bool
    digest: str

    def then(self, look: Look) -> Seen:
        """After a look."""
        return self._and(look.score.tolist(), look.information.tolist(), look.square.tolist())

    def profiled(self, profile: Profile) -> Seen:
        """After a profile."""
        return self._and(profile.counts)

    @property
    def numbers(self) -> np.random.Generator:
        """Random numbers that follow from the digest."""
        return np.random.default_rng(int(self.digest, 16) % 2**64)

    def _and(self, *more: Any) -> Seen:
        return Seen(self.size, self.offset, hashlib.sha256(repr((self.digest, *more)).encode()).hexdigest())


def any_viewpoint(size: int, offset: bool, numbers: np.random.Generator) -> Viewpoint:
    """A centre near or far, any whitening, any bounds; not yet on the grid."""
    whitening = numbers.normal(size=(size, size)) * 10 ** numbers.uniform(-2, 3)
    if numbers.random() < 0.5:
        whitening = np.diag(np.exp(numbers.normal(size=size))) * 10 ** numbers.uniform(-1, 2)
    centre = numbers.normal(size=size + offset) * 10 ** numbers.uniform(-3, 1) * (numbers.random() > 0.3)
    return Viewpoint(
        tuple(centre.tolist()),
        tuple(map(tuple, whitening.tolist())),
        score_bound=float(10 ** numbers.uniform(-3, 2)),
        information_bound=float(10 ** numbers.uniform(-3, 2)),
        spread=float(numbers.choice([1.0, 1.7, 10 ** numbers.uniform(-4, 3)])),
        clip=float(numbers.choice([6.0, 0.5, 3.0])),
    )


@contextmanager
def hashed_viewpoints() -> Iterator[None]:
    """While it lasts, looks and the profile are taken from where a hash says."""

    def first(design: Any, survey: Any, _: Any) -> Seen:
        digest = hashlib.sha256(repr(survey).encode()).hexdigest()
        return Seen(len(design.coefficient_names), design.offset is not None, digest)

    def following(seen: Seen, total_mu: float, mu: float) -> Viewpoint:
        return any_viewpoint(seen.size, seen.offset, seen.numbers)

    def profiled(seen: Seen) -> Viewpoint:
        """In units in which rows often fall between the rungs."""
        view, unit = any_viewpoint(seen.size, seen.offset, seen.numbers), 10 ** seen.numbers.uniform(-2.0, 0.5)
        return replace(view, score_bound=float(unit * np.linalg.norm(view.whitening_matrix)))

    with ExitStack() as stack:
        for name, value in (
            ("before_looks", first), ("next_viewpoint", following), ("add_look", Seen.then),
            ("profile_viewpoint", profiled), ("add_profile", Seen.profiled),
        ):  # fmt: skip
            stack.enter_context(patch.object(by_looks, name, value))
        yield
