"""Planted bugs of the looks: their vectors, their noise, and where they look from."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from dpglm.custodian import bounded_rows, by_looks, look_plan
from dpglm.custodian.charge import Account
from dpglm.custodian.noise import NoiseSource
from dpglm.protection import Protection
from trust.planting import Replacement, planted

VECTORS, HELD, NOISY_LOOK, EXACT = (
    bounded_rows.bounded_vectors,
    bounded_rows._held,
    by_looks._noisy_look,
    by_looks.exact_sums,
)
SPEND, SCALES, SQUARED_MU = Account.spend, look_plan.LookNoise.grid_stddevs, look_plan.look_squared_mu


@planted("rows of a look not shortened", where="looks")
def _() -> list[Replacement]:
    """Two walls stand against it: kappa and the check of lengths."""
    free = SimpleNamespace(**{**vars(np), "minimum": lambda first, second: first * np.ones_like(second)})
    return [(bounded_rows, "np", free), (bounded_rows, "_held", lambda vectors: vectors)]


@planted("the score bounded by the root of its bound", where="looks")
def _() -> list[Replacement]:
    def longer(rows: Any, design: Any, view: Any) -> Any:
        score, information = VECTORS(rows, design, view)
        return np.rint(score * 1.01), information

    return [(bounded_rows, "bounded_vectors", longer)]


@planted("whitened rows scaled by the longest in their batch", where="looks")
def _() -> list[Replacement]:
    def scaled(rows: Any, design: Any, view: Any) -> Any:
        score, information = VECTORS(rows, design, view)
        longest = np.sqrt((information**2).sum(axis=0)).max()
        return score, np.rint(information * (2.0**20 - 20) / max(longest, 1.0))

    return [(bounded_rows, "bounded_vectors", scaled)]


@planted("score and information on different lines", where="looks")
def _() -> list[Replacement]:
    def turned(rows: Any, design: Any, view: Any) -> Any:
        score, information = VECTORS(rows, design, view)
        return score, np.roll(information, 1, axis=0) * np.sign(score + 0.5)

    return [(bounded_rows, "bounded_vectors", turned)]


def with_exact_sums(wrong: Any) -> list[Replacement]:
    """``wrong`` is the next viewpoint, given the exact sums of the look before."""
    seen: list[Any] = []
    real = by_looks.on_grid

    def summed(source: Any, design: Any, of_batch: Any, counter: Any = None) -> Any:
        found = EXACT(source, design, of_batch, counter)
        if isinstance(of_batch, partial) and of_batch.func is bounded_rows.look_sums:
            seen[:] = [found]
        return found

    def following(view: Any) -> Any:
        return real(wrong(view, seen[0]) if seen else view)

    return [(by_looks, "exact_sums", summed), (by_looks, "on_grid", following)]


@planted("a centre from the exact scores", where="looks")
def _() -> list[Replacement]:
    return with_exact_sums(
        lambda view, sums: replace(view, centre=tuple(c + s * 2.0**-22 for c, s in zip(
            view.centre, (*sums.values[0], 0), strict=False)))
    )  # fmt: skip


@planted("a whitening from the exact information", where="looks")
def _() -> list[Replacement]:
    def whitened(view: Any, sums: Any) -> Any:
        factor = 1 + abs(sums.values[1][0]) * 2.0**-40
        return replace(view, whitening=tuple(tuple(w * factor for w in line) for line in view.whitening))

    return with_exact_sums(whitened)


@planted("bounds from the exact sums", where="looks")
def _() -> list[Replacement]:
    return with_exact_sums(
        lambda view, sums: replace(view, score_bound=view.score_bound * (1 + abs(sums.values[0][0]) * 2.0**-20))
    )


@planted("the score's noise too fine", where="looks")
def _() -> list[Replacement]:
    def finer(self: Any) -> tuple[float, float, float]:
        score, information, square = SCALES.__get__(self)
        return score * 0.97, information, square

    return [(look_plan.LookNoise, "grid_stddevs", property(finer))]


@planted("the score's square with the score's own noise", where="looks")
def _() -> list[Replacement]:
    def finer(self: Any) -> tuple[float, float, float]:
        score, information, square = SCALES.__get__(self)
        return score, information, square / math.sqrt(2)

    return [(look_plan.LookNoise, "grid_stddevs", property(finer))]


@planted("the information thought free", where="looks")
def _() -> list[Replacement]:
    def forgetful(score: float, information: float, dimension: int, *protection: Protection) -> float:
        return SQUARED_MU(score, information * 1e6, dimension, *protection)

    return [(look_plan, "look_squared_mu", forgetful)]


@planted("opposite scores forgotten", where="looks")
def _() -> list[Replacement]:
    def one_sided(score: float, information: float, dimension: int, *protection: Protection) -> float:
        return SQUARED_MU(score * 2 / math.sqrt(3), information, dimension, *protection)

    return [(look_plan, "look_squared_mu", one_sided)]


@planted("the first look's noise again in the later ones", where="looks")
def _() -> list[Replacement]:
    remembered: dict[int, list[float]] = {}

    class Again:
        private = True

        def __init__(self, source: NoiseSource) -> None:
            self.source = source

        def draw(self, stddev: float, size: int) -> list[int]:
            if size not in remembered:
                remembered[size] = [value / stddev for value in self.source.draw(stddev, size)]
            return [round(value * stddev) for value in remembered[size]]

    return [(by_looks, "_noisy_look", lambda *look: NOISY_LOOK(*look[:3], Again(look[3])))]


@planted("only the first look charged", where="looks")
def _() -> list[Replacement]:
    def first(self: Any, mus: Any, privacy: Any, parts: Any) -> None:
        SPEND(self, list(mus)[:1], privacy, list(parts)[:1])

    return [(Account, "spend", first)]


@planted("looks charged one behind", where="looks")
def _() -> list[Replacement]:
    """Every look is paid for after it was taken."""
    waiting: list[Any] = []

    def later(self: Any, mus: Any, privacy: Any, parts: Any) -> None:
        if list(parts) == ["survey"]:
            SPEND(self, mus, privacy, parts)
        else:
            waiting.append((self, mus, privacy, parts))

    def noisy(*look: Any) -> Any:
        found = NOISY_LOOK(*look)
        while waiting:
            SPEND(*waiting.pop())
        return found

    return [(Account, "spend", later), (by_looks, "_noisy_look", noisy)]
