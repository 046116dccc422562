"""The audit of one case: releases of neighbouring tables, watched and compared. A breach raises a ``Violation``.

What is checked, by the name that a violation carries:

    outcome       same success, or the same error in the same words; the same exit code
    words         same standard output and error, log lines and warnings
    file          same bytes in the file and in the ledger's copy, given the same noisy integers
    flow          same charges, draws and calls of functions, in the same number and order
    account       what is charged is at least what is claimed; the claim gives the stated epsilon and delta
    order         the whole charge is in the ledger, on disk, when the first noise is drawn
    noise         every released integer has a draw of its own, of the scale that the file states
    sums          released integers less noise are the sum over rows of what each row gives alone
    sensitivity   in units of its noise one row moves stage k by at most mu_k, in exact arithmetic
    refund        a release that fails after its charge stays charged, and is not kept
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from dpglm.custodian.centred_rows import bounded_vectors
from dpglm.custodian.ledger import UNITS, Ledger
from dpglm.custodian.rows import fixed_point_rows
from dpglm.custodian.tables import open_table
from dpglm.errors import FileError
from dpglm.formula import Design
from dpglm.release_file import Release, Stage, read_release
from trust.cases import Case, Row
from trust.replay import Observation, given_centrings, observe
from trust.sources import make_table

CHECKS = ("outcome", "words", "file", "flow", "account", "order", "noise", "sums", "sensitivity", "refund")


class Violation(AssertionError):  # noqa: N818 -- it is what the audit is there to find
    """A promise that does not hold; ``check`` says which."""

    def __init__(self, check: str, what: str) -> None:
        super().__init__(f"{check}: {what}")
        self.check = check


def require(check: str, holds: bool, what: str) -> None:
    if not holds:
        raise Violation(check, what)


def audit(case: Case, folder: Path, fits: bool = False) -> tuple[int, Fraction]:
    """Audit every two tables of the case; how many pairs, and the largest share of mu^2 by which one row moved a stage.

    With ``fits`` later stages are centred by the real fits of the noisy earlier ones.
    """
    if case.stages > 1 and not fits:
        with given_centrings():
            return _audit(case, folder)
    return _audit(case, folder)


def _audit(case: Case, folder: Path) -> tuple[int, Fraction]:
    chance = Random(case.seed)
    book = _empty_ledger(case, folder) if chance.random() < 0.5 else None
    # Lines of a CSV file that are no rows of their table are counted by its reader: another way through the code.
    count_calls = chance.random() < 0.1 and not any(isinstance(row, bytes) for row in case.candidates)
    if count_calls:
        observe(case, case.candidates[0], folder, book)  # what is computed once and remembered, is remembered now
    first = observe(case, case.candidates[0], folder, book, count_calls=count_calls)
    require("outcome", not first.error and first.file is not None, f"there is no release: {first.error}")
    release = _read(first)
    check_noise(first, release)
    outputs = [noised.output for noised in first.noised]
    seen = [first]
    for candidate in case.candidates[1:]:
        seen.append(observe(case, candidate, folder, book, outputs, count_calls=count_calls))
        compare(first, seen[-1])
        check_noise(seen[-1], release)
    check_account(first, release, case)
    check_sums(case, seen, release, folder)
    worst = max(check_sensitivity(release, one, other) for one, other in combinations(seen, 2))
    if book is not None and chance.random() < 0.3:
        draws = sum(event[0] == "draw" for event in first.events)
        check_refund(case, folder, book, fail=chance.randint(1, draws))
    return len(seen) * (len(seen) - 1) // 2, worst


def _read(seen: Observation) -> Release:
    """The release as an analyst reads it from the file."""
    assert seen.file is not None
    try:
        return read_release(seen.file)
    except FileError as error:
        raise Violation("file", f"cannot be read: {error.rule}") from None


def compare(one: Observation, other: Observation) -> None:
    """Everything but the noise is the same."""
    for check, name in (
        ("outcome", "error"), ("words", "printed"), ("words", "logged"), ("words", "warned"), ("flow", "events"),
        ("file", "file"), ("file", "kept"), ("file", "written"), ("account", "entries"), ("flow", "calls"),
    ):  # fmt: skip
        mine, theirs = getattr(one, name), getattr(other, name)
        require(check, mine == theirs, f"{name} differs: {_difference(mine, theirs)}")


def check_noise(seen: Observation, release: Release) -> None:
    """Every integer of the file is one sum plus one draw of its own, at the scale that the file states."""
    blocks = [block for stage in release.stages for block in stage.blocks]
    require("noise", len(blocks) == len(seen.noised), "noise is not added once to every block")
    for block, noised in zip(blocks, seen.noised, strict=True):
        require("noise", block.integers == noised.output, "the file does not hold the noisy integers")
        require("noise", block.grid_stddevs == noised.stddevs, "the file states another scale than was drawn")
        waiting = {stddev: list(values) for stddev, values in noised.draws}
        size = sum(len(values) for _, values in noised.draws)
        require("noise", size == len(noised.sums) and len(waiting) == len(noised.draws), "not one draw an integer")
        for value, stddev, output in zip(noised.sums, noised.stddevs, noised.output, strict=True):
            require("noise", bool(waiting.get(stddev)), f"no draw of scale {stddev}")
            require("noise", value + waiting[stddev].pop(0) == output, "the output is not sum plus noise")
    draws = sum(event[0] == "draw" for event in seen.events)
    require("noise", draws == sum(len(noised.draws) for noised in seen.noised), "noise was drawn elsewhere")


def check_account(seen: Observation, release: Release, case: Case) -> None:
    """Charges cover the stages, whose mu^2 gives (epsilon, delta) by a formula of our own; charge before noise."""
    squared = sum(Fraction(stage.mu) ** 2 for stage in release.stages)
    mu = math.sqrt(squared)
    stated = release.privacy
    require("account", Fraction(stated.mu) ** 2 >= squared, "mu is smaller than its stages")
    require("account", stated.epsilon <= case.epsilon and stated.delta <= case.delta, "more than was asked for")
    require("account", release.num_rows == len(case.rows) + 1, "another number of rows")
    # delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
    delta = math.exp(log_ndtr(mu / 2 - stated.epsilon / mu)) - math.exp(
        stated.epsilon + log_ndtr(-mu / 2 - stated.epsilon / mu)
    )
    require("account", delta <= stated.delta, f"mu needs delta = {delta}")
    spends = [event for event in seen.events if event[0] == "spend"]
    if not seen.entries:
        return
    units = [entry[2] for entry in seen.entries]
    require("account", len(units) == len(release.stages), "not one entry a stage")
    for charged, stage in zip(units, release.stages, strict=True):
        require("account", Fraction(charged, UNITS) >= Fraction(stage.mu * stage.mu), "a stage is not charged in full")
    require("account", seen.kept == seen.file, "the ledger keeps another release")
    first_draw = next(number for number, event in enumerate(seen.events) if event[0] == "draw")
    require("order", all(event[0] != "spend" for event in seen.events[first_draw:]), "a charge comes after noise")
    require("order", sum(len(event[1]) for event in spends) == len(units), "charged otherwise than by spending")
    require("order", seen.events[first_draw][3] == len(units), "the charge was not on disk when noise was drawn")


def check_sums(case: Case, seen: list[Observation], release: Release, folder: Path) -> None:
    """Integers less noise are sums over rows, each row by itself, in Python's integers."""
    design = case.design
    alone: dict[int, list[list[int]]] = {}

    def features(row: Row) -> list[list[int]]:
        if id(row) not in alone:
            alone[id(row)] = _features_alone(case, row, design, release, folder)
        return alone[id(row)]

    for candidate, one in zip(case.candidates, seen, strict=True):
        with warnings.catch_warnings(action="ignore"):
            table = [features(row) for row in case.table_rows(candidate)]
        for number, noised in enumerate(one.noised):
            expected = tuple(map(sum, zip(*(row[number] for row in table), strict=True)))
            require("sums", expected == noised.sums, f"block {number} is not the sum over rows")


def _features_alone(case: Case, row: Row, design: Design, release: Release, folder: Path) -> list[list[int]]:
    table = make_table(case.source, [row], design.table_columns, folder, Random(0))
    batches = [batch for batch in open_table(table, design.table_columns).batches() if batch.num_rows]
    require("sums", [batch.num_rows for batch in batches] == [1], "a row alone is not one row")
    rows = fixed_point_rows(batches[0], design, release.grid, release.radius)
    require("sums", bool(np.isfinite(rows.x).all() and np.isfinite(rows.y).all()), "a row holds what is no number")
    x, y = [int(value) for value in rows.x[:, 0]], int(rows.y[0])
    found = []
    for stage in release.stages:
        if stage.centring is None:
            for block in stage.blocks:
                monomials = block.shape.monomials(design.dimension)
                found.append([y**block.y_power * math.prod(x[index] for index in indices) for indices in monomials])
        else:
            score, information = (
                [int(v) for v in part[:, 0]] for part in bounded_vectors(rows, design, stage.centring)
            )
            found.append(score)
            found += [_products(vector, stage) for vector in (information, score)]
    return found


def _products(vector: list[int], stage: Stage) -> list[int]:
    return [vector[i] * vector[j] for i, j in stage.blocks[1].shape.monomials(len(vector))]


def check_sensitivity(release: Release, one: Observation, other: Observation) -> Fraction:
    """The noise of a stage had to move by at most its mu; the largest share of mu^2 is returned."""
    worst, number = Fraction(0), 0
    for position, stage in enumerate(release.stages):
        moved = Fraction(0)
        for mine, theirs in zip(
            one.noised[number : number + len(stage.blocks)],
            other.noised[number : number + len(stage.blocks)],
            strict=True,
        ):
            squares: dict[float, int] = {}
            for a, b, stddev in zip(mine.sums, theirs.sums, mine.stddevs, strict=True):
                squares[stddev] = squares.get(stddev, 0) + (a - b) ** 2
            moved += sum((Fraction(square) / Fraction(stddev) ** 2 for stddev, square in squares.items()), Fraction(0))
        share = moved / Fraction(stage.mu) ** 2
        require("sensitivity", share <= 1, f"one row moves stage {position + 1} by {float(share):.6g} mu^2")
        worst, number = max(worst, share), number + len(stage.blocks)
    return worst


def check_refund(case: Case, folder: Path, book: Path, fail: int) -> None:
    """The sampler fails at this draw: the charge stays, nothing is kept, and no table is told from another."""
    seen = [observe(case, candidate, folder, book, fail=fail) for candidate in case.candidates[:2]]
    require("refund", bool(seen[0].error), "a release without its noise")
    require("refund", len(seen[0].entries) == case.stages, "a failed release was not charged, or was refunded")
    require("refund", seen[0].kept is None and seen[0].file is None, "a failed release was kept")
    require("outcome", seen[0].error == seen[1].error, "the error of a failed release depends on the rows")
    require("words", seen[0].printed == seen[1].printed, "the words of a failed release depend on the rows")
    require("account", seen[0].entries == seen[1].entries, "the charge of a failed release depends on the rows")


def _empty_ledger(case: Case, folder: Path) -> Path:
    path = folder / "empty.ledger"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    dataset = case.design.schema.dataset
    return Ledger.create(path, dataset, epsilon=case.epsilon * 2, delta=min(case.delta * 2, 0.5)).path


def _difference(one: Any, other: Any) -> str:
    """The first place where two things differ, short."""
    a, b = str(one), str(other)
    place = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"...{a[max(place - 20, 0) : place + 40]!r} and ...{b[max(place - 20, 0) : place + 40]!r}"
