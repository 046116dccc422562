"""Planted bugs of the noise and of the ledger."""

from __future__ import annotations

import hashlib
import math
import random
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpglm.custodian import build, by_looks, by_moments
from dpglm.custodian.charge import Account
from dpglm.custodian.ledger import Ledger
from dpglm.custodian.noise import OperatingSystemNoise
from trust.planting import Replacement, planted

NOISY, NOISY_LOOK, ADD_NOISE = by_moments.noisy_moments, by_looks._noisy_look, by_looks.add_noise
SPEND, BUILD, RELEASE, KEEP = Account.spend, build.build_release, by_looks.Release, Ledger.keep


def adding(wrong: Any) -> list[Replacement]:
    """Another ``add_noise`` in both mechanisms."""
    return [(by_looks, "add_noise", wrong), (by_moments, "add_noise", wrong)]


@planted("noise on every row instead of on the sum")
def _() -> list[Replacement]:
    def on_rows(values: Any, stddevs: Any, source: Any) -> Any:
        first = ADD_NOISE(values, stddevs, source)
        return tuple(a + b for a, b in zip(first, ADD_NOISE([0] * len(values), stddevs, source), strict=True))

    return adding(on_rows)


@planted("half the noise that the file states")
def _() -> list[Replacement]:
    return adding(lambda values, stddevs, source: ADD_NOISE(values, [s / 2 for s in stddevs], source))


@planted("the same noise in every block")
def _() -> list[Replacement]:
    return [
        (by_moments, "noisy_moments", lambda found, chosen, noise: NOISY(found, chosen, _Remembering(noise))),
        (by_looks, "_noisy_look", lambda *look: NOISY_LOOK(*look[:3], _Remembering(look[3]))),
    ]


@dataclass
class _Remembering:
    """A source that draws once and stretches what it drew."""

    source: Any
    private: bool = True
    first: tuple[float, int] | None = None

    def draw(self, stddev: float, size: int) -> list[int]:
        if self.first is None:
            self.first = stddev, self.source.draw(stddev, 1)[0]
        return [round(self.first[1] * stddev / self.first[0])] * size


@planted("no noise on sums that are zero")
def _() -> list[Replacement]:
    def when_needed(values: Any, stddevs: Any, source: Any) -> Any:
        return ADD_NOISE(values, stddevs, source) if any(values) else tuple(values)

    return adding(when_needed)


@planted("negative noisy sums set to zero")
def _() -> list[Replacement]:
    def positive(*arguments: Any) -> Any:
        return tuple(max(value, 0) for value in ADD_NOISE(*arguments))

    return adding(positive)


@planted("a seed from the clock", where="sampler")
def _() -> list[Replacement]:
    def seeded(_: Any, stddev: float, size: int) -> list[int]:
        chance = random.Random(time.time_ns())
        return [round(chance.gauss(0, stddev)) for _ in range(size)]

    return [(OperatingSystemNoise, "draw", seeded)]


@planted("NumPy's global generator instead of the sampler", where="sampler")
def _() -> list[Replacement]:
    def seeded(_: Any, stddev: float, size: int) -> list[int]:
        return [int(value) for value in np.random.normal(0, stddev, size)]

    return [(OperatingSystemNoise, "draw", seeded)]


@planted("the sampler given the variance's root twice", where="sampler")
def _() -> list[Replacement]:
    real = OperatingSystemNoise.draw
    return [(OperatingSystemNoise, "draw", lambda self, stddev, size: real(self, math.sqrt(stddev), size))]


@planted("the charge after the noise")
def _() -> list[Replacement]:
    waiting: list[Any] = []

    def keep(self: Ledger, release_id: str, text: str) -> None:
        for arguments in waiting:
            SPEND(*arguments)
        waiting.clear()
        KEEP(self, release_id, text)

    return [(Account, "spend", lambda *arguments: waiting.append(arguments)), (Ledger, "keep", keep)]


@planted("a refund when a release fails")
def _() -> list[Replacement]:
    def refunding(table: Any, request: Any, *arguments: Any) -> Any:
        try:
            return BUILD(table, request, *arguments)
        except Exception:
            if request.ledger is not None:
                with closing(sqlite3.connect(request.ledger)) as connection, connection:
                    connection.execute("DELETE FROM releases")
                    connection.execute("DELETE FROM entries")
                    connection.execute("DELETE FROM sqlite_sequence")
            raise

    return [(build, "build_release", refunding)]


@planted("half the cost charged")
def _() -> list[Replacement]:
    real = Ledger.spend_stages
    return [(Ledger, "spend_stages", lambda self, release_id, stages: real(
        self, release_id=release_id, stages=[(cost / 2, said) for cost, said in stages]))]  # fmt: skip


@planted("a noise scale from the data")
def _() -> list[Replacement]:
    def scaled(found: Any, chosen: Any, noise: Any) -> Any:
        widened = tuple(tuple(s * (1 + found.values[0][0] % 2 * 1e-9) for s in each) for each in chosen.grid_stddevs)
        return NOISY(found, replace(chosen, grid_stddevs=widened), noise)

    def scaled_look(found: Any, view: Any, chosen: Any, noise: Any) -> Any:
        widened = replace(chosen, score=chosen.score * (1 + found.values[0][0] % 2 * 1e-9))
        return NOISY_LOOK(found, view, widened, noise)

    return [(by_moments, "noisy_moments", scaled), (by_looks, "_noisy_look", scaled_look)]


@planted("an identity from the rows")
def _() -> list[Replacement]:
    seen: list[str] = []

    def noisy(found: Any, *arguments: Any) -> Any:
        seen[:] = [hashlib.sha256(str(found.values).encode()).hexdigest()[:32]]
        return NOISY(found, *arguments)

    def noisy_look(found: Any, *arguments: Any) -> Any:
        seen[:] = [hashlib.sha256(str(found.values).encode()).hexdigest()[:32]]
        return NOISY_LOOK(found, *arguments)

    def named(*facts: Any) -> Any:
        return RELEASE(*(seen or facts[:1]), *facts[1:])

    return [
        (by_moments, "noisy_moments", noisy), (by_looks, "_noisy_look", noisy_look),
        (by_moments, "Release", named), (by_looks, "Release", named),
    ]  # fmt: skip
