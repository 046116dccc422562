"""Planted bugs of the profile: its cells, its cost, its noise, from where it measures, and what it leads to."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpglm import release_file
from dpglm.custodian import bounded_rows, by_looks, look_plan, profile_counts
from dpglm.custodian.charge import Account
from dpglm.custodian.survey_counts import STEPS
from trust.planting import Replacement, planted

COUNTS, PROFILED, CELLS, FAR_CELLS, EXACT = (
    by_looks.profile_counts,
    by_looks._profiled,
    profile_counts._cells,
    profile_counts._far_cells,
    by_looks.exact_sums,
)
CHANGE, SPEND, ON_GRID, PLAN = look_plan.squared_change, Account.spend, by_looks.on_grid, by_looks.plan_looks


def with_cells(wrong: Any) -> list[Replacement]:
    """``wrong`` is of the counts of a histogram, and of the rows that none of its cells holds."""

    def counted(batch: Any, *arguments: Any, **given: Any) -> Any:
        found = COUNTS(batch, *arguments, **given)
        return replace(found, cells=tuple(wrong(cells, batch.num_rows * STEPS - cells.sum()) for cells in found.cells))

    return [(by_looks, "profile_counts", counted)]


@planted("a profile's rows counted beyond each rung, not between two", where="looks")
def _() -> list[Replacement]:
    return with_cells(lambda cells, _: np.cumsum(cells[::-1])[::-1])


@planted("a profile's row counted in its cell and in the next", where="looks")
def _() -> list[Replacement]:
    return with_cells(lambda cells, _: cells + np.append(0, cells[:-1]))


@planted("a profile's near rows taken off its first cell", where="looks")
def _() -> list[Replacement]:
    return with_cells(lambda cells, near: np.append(cells[0] - near, cells[1:]))


@planted("a profile's lengths in those of their batch", where="looks")
def _() -> list[Replacement]:
    def scaled(reach: Any, rungs: Any) -> Any:
        finite = np.nan_to_num(reach, posinf=0.0, neginf=0.0)
        return CELLS(3 * reach / max(float(np.sqrt(np.mean(finite**2))), 1e-9), rungs)

    return [(profile_counts, "_cells", scaled)]


def with_far_cells(wrong: Any) -> list[Replacement]:
    """``wrong`` is of the counts of far rows, (rungs, coefficients)."""

    def counted(batch: Any, design: Any, view: Any) -> Any:
        found = COUNTS(batch, design, view)
        far = wrong(found.cells[1].reshape(-1, view.dimension)).ravel()
        return replace(found, cells=(found.cells[0], far, *found.cells[2:]))

    return [(by_looks, "profile_counts", counted)]


@planted("a far row counted in the cell of every coefficient", where="looks")
def _() -> list[Replacement]:
    return with_far_cells(lambda far: np.repeat(far.sum(axis=1, keepdims=True), far.shape[1], axis=1))


@planted("a far row counted at every rung that it is beyond", where="looks")
def _() -> list[Replacement]:
    return with_far_cells(lambda far: np.stack([far[0] + far[1], far[1]]))


@planted("a far row counted for the next coefficient, too", where="looks")
def _() -> list[Replacement]:
    return with_far_cells(lambda far: far + np.roll(far, 1, axis=1))


@planted("a far row's coefficient by the longest of its batch", where="looks")
def _() -> list[Replacement]:
    def of_batch(reach: Any, x: Any, view: Any) -> Any:
        return FAR_CELLS(reach, x / np.maximum(np.abs(x).max(axis=1, keepdims=True, initial=0.0), 1e-9), view)

    return [(profile_counts, "_far_cells", of_batch)]


@planted("a profile's typical length taken from the rows", where="looks")
def _() -> list[Replacement]:
    def profiled(source: Any, seen: Any, plan: Any, noise: Any, counter: Any, coded: Any) -> Any:
        def typical(view: Any) -> Any:
            found = ON_GRID(view)
            squared = [
                bounded_rows.whitened(bounded_rows.standard_rows(batch, coded), coded, found)[3]
                for batch in source.batches()
            ]
            return replace(found, score_bound=float(np.sqrt(np.mean(np.concatenate(squared)))))

        by_looks.on_grid = typical
        try:
            return PROFILED(source, seen, plan, noise, counter, coded)
        finally:
            by_looks.on_grid = ON_GRID

    return [(by_looks, "_profiled", profiled)]


@planted("bounds from the exact profile", where="looks")
def _() -> list[Replacement]:
    seen: list[Any] = []

    def summed(source: Any, design: Any, of_batch: Any, counter: Any = None) -> Any:
        found = EXACT(source, design, of_batch, counter)
        if isinstance(of_batch, partial) and of_batch.func is COUNTS:
            seen[:] = [found]
        return found

    def following(view: Any) -> Any:
        found = ON_GRID(view)
        return replace(found, score_bound=found.score_bound * (1 + int(seen[0].cells[0].sum()))) if seen else found

    return [(by_looks, "exact_sums", summed), (by_looks, "on_grid", following)]


@planted("a profile thought to change by one row in one cell", where="looks")
def _() -> list[Replacement]:
    def half(*of: Any) -> float:
        return CHANGE(*of) / 2

    return [(look_plan, "squared_change", half), (release_file, "squared_change", half)]


@planted("a profile's histogram of far rows thought free", where="looks")
def _() -> list[Replacement]:
    def without(family: Any, protection: Any) -> int:
        return CHANGE(family, protection) - protection.cells_changed

    return [(look_plan, "squared_change", without), (release_file, "squared_change", without)]


@planted("all histograms of a profile but the first thought free", where="looks")
def _() -> list[Replacement]:
    def first(_: Any, protection: Any) -> int:
        return protection.cells_changed

    return [(look_plan, "squared_change", first), (release_file, "squared_change", first)]


@planted("noise on a profile's first histogram only", where="looks")
def _() -> list[Replacement]:
    class Once:
        private = True

        def __init__(self, source: Any) -> None:
            self.source, self.drawn = source, False

        def draw(self, stddev: float, size: int) -> list[int]:
            if self.drawn:
                return [0] * size
            self.drawn = True
            return list(self.source.draw(stddev, size))

    return [(by_looks, "_profiled", lambda *given: PROFILED(*given[:3], Once(given[3]), *given[4:]))]


@planted("a profile's noise in steps of whole rows", where="looks")
def _() -> list[Replacement]:
    """As a count would be: too coarse for the proof's bound on discreteness."""

    class Whole:
        private = True

        def __init__(self, source: Any) -> None:
            self.source = source

        def draw(self, stddev: float, size: int) -> list[int]:
            return [value // 2**20 * 2**20 for value in self.source.draw(stddev, size)]

    return [(by_looks, "_profiled", lambda *given: PROFILED(*given[:3], Whole(given[3]), *given[4:]))]


@planted("a profile that is not charged", where="looks")
def _() -> list[Replacement]:
    def unless_profile(self: Account, mus: Any, privacy: Any, parts: Any) -> None:
        kept = [(mu, part) for mu, part in zip(mus, parts, strict=True) if part != "profile"]
        SPEND(self, [mu for mu, _ in kept], privacy, [part for _, part in kept])

    return [(Account, "spend", unless_profile)]


@planted("a profile on top of looks that use the whole budget", where="looks")
def _() -> list[Replacement]:
    """A plan's own certificate would refuse it, so that the looks are given more after it."""
    more = 1 / math.sqrt(1 - look_plan.PROFILE_SHARE)

    def larger(*given: Any, **options: Any) -> Any:
        plan = PLAN(*given, **options)
        looks = tuple(
            look_plan.LookNoise(look.score / more, look.information / more, look.mu * more) for look in plan.looks
        )
        return replace(plan, looks=looks)

    return [(by_looks, "plan_looks", larger)]
