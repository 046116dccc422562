"""Planted bugs of the noise, of the ledger, and of later stages."""

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

from dpglm.centring import ResidualTable
from dpglm.custodian import build, centred_rows, stages
from dpglm.custodian.ledger import Ledger
from dpglm.custodian.noise import OperatingSystemNoise
from trust.planting import Replacement, planted

NOISY, ADD_NOISE, SPEND, BUILD = build.noisy_moments, build.add_noise, build._spend, build.build_release
RELEASE, ADD_STAGES, ON_GRID, KEEP = build.Release, build.add_stages, build._on_grid, Ledger.keep
VECTORS, AT = centred_rows.bounded_vectors, ResidualTable.at
GRID_NOISE = stages.CentredNoise.grid_stddevs.fget  # type: ignore[attr-defined]


@planted("noise on every row instead of on the sum")
def _() -> list[Replacement]:
    def on_rows(values: Any, stddevs: Any, source: Any) -> Any:
        first = ADD_NOISE(values, stddevs, source)
        return tuple(a + b for a, b in zip(first, ADD_NOISE([0] * len(values), stddevs, source), strict=True))

    return [(build, "add_noise", on_rows)]


@planted("half the noise that the file states")
def _() -> list[Replacement]:
    return [(build, "add_noise", lambda values, stddevs, source: ADD_NOISE(values, [s / 2 for s in stddevs], source))]


@planted("the same noise in every block")
def _() -> list[Replacement]:
    return [(build, "noisy_moments", lambda found, chosen, noise: NOISY(found, chosen, _Remembering(noise)))]


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

    return [(build, "add_noise", when_needed)]


@planted("negative noisy sums set to zero")
def _() -> list[Replacement]:
    def positive(*arguments: Any) -> Any:
        return tuple(max(value, 0) for value in ADD_NOISE(*arguments))

    return [(build, "add_noise", positive)]


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

    def later(book: Any, *arguments: Any) -> Any:
        waiting[:] = arguments
        return None

    def keep(self: Ledger, release_id: str, text: str) -> None:
        SPEND(self, *waiting)
        KEEP(self, release_id, text)

    return [(build, "_spend", later), (Ledger, "keep", keep)]


@planted("a refund when a release fails")
def _() -> list[Replacement]:
    def refunding(*arguments: Any) -> Any:
        try:
            return BUILD(*arguments)
        except Exception:
            if arguments[6] is not None:
                with closing(sqlite3.connect(arguments[6])) as connection, connection:
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

    return [(build, "noisy_moments", scaled)]


@planted("an identity from the rows")
def _() -> list[Replacement]:
    seen: list[str] = []

    def noisy(found: Any, *arguments: Any) -> Any:
        seen[:] = [hashlib.sha256(str(found.values).encode()).hexdigest()[:32]]
        return NOISY(found, *arguments)

    return [(build, "noisy_moments", noisy), (build, "Release", lambda **facts: RELEASE(**{**facts, "id": seen[0]}))]


@planted("only the first stage charged", where="stages")
def _() -> list[Replacement]:
    real = Ledger.spend_stages
    return [(Ledger, "spend_stages", lambda self, release_id, stages: real(
        self, release_id=release_id, stages=stages[:1]))]  # fmt: skip


@planted("a centre from the exact sums", where="stages")
def _() -> list[Replacement]:
    exact: list[int] = []

    def noisy(found: Any, *arguments: Any) -> Any:
        exact[:] = [sum(found.values[0])]
        return NOISY(found, *arguments)

    def moved(centring: Any, grid: Any) -> Any:
        return ON_GRID(replace(centring, centre=tuple(c + exact[0] % 1009 * 2.0**-10 for c in centring.centre)), grid)

    return [(build, "noisy_moments", noisy), (build, "_on_grid", moved)]


@planted("rows of a later stage not shortened", where="stages")
def _() -> list[Replacement]:
    def unbounded(fixed: Any, design: Any, centring: Any) -> Any:
        wide = replace(centring, score_bound=1e3, information_bound=1e3)
        score, information = VECTORS(fixed, design, wide)
        return (
            np.rint(score * (wide.score_bound / centring.score_bound)),
            np.rint(information * math.sqrt(wide.information_bound / centring.information_bound)),
        )

    return [(centred_rows, "bounded_vectors", unbounded)]


@planted("outcomes of a later stage not clipped", where="stages")
def _() -> list[Replacement]:
    def without_clip(table: Any, u: Any, *columns: Any) -> Any:
        mean, weight, low, high, largest = AT(table, u, *columns)
        return mean, weight, low - 1e6, high + 1e6, largest / 1e3

    return [(ResidualTable, "at", without_clip), (centred_rows, "_held", lambda vectors: vectors)]


@planted("the score's noise too fine", where="stages")
def _() -> list[Replacement]:
    def finer(noise: Any) -> tuple[float, float, float]:
        score, information, square = GRID_NOISE(noise)
        return score / 3, information, square

    return [(stages.CentredNoise, "grid_stddevs", property(finer))]


@planted("the first stage's noise again in the later ones", where="stages")
def _() -> list[Replacement]:
    def repeating(release: Any, first: Any, plan: Any, look: Any, noise: Any) -> Any:
        return ADD_STAGES(release, first, plan, look, _Remembering(noise))

    return [(build, "add_stages", repeating)]


@planted("the number of stages decided by the rows", where="stages")
def _() -> list[Replacement]:
    exact: list[int] = []

    def noisy(found: Any, *arguments: Any) -> Any:
        exact[:] = [sum(map(sum, found.values))]
        return NOISY(found, *arguments)

    def fewer(release: Any, first: Any, plan: Any, *arguments: Any) -> Any:
        return ADD_STAGES(release, first, replace(plan, later=plan.later[: 1 - exact[0] % 2]), *arguments)

    return [(build, "noisy_moments", noisy), (build, "add_stages", fewer)]
