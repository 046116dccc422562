"""The audit of one case: releases of neighbouring tables, watched and compared. A breach raises a ``Violation``.

What is checked, by the name that a violation carries:

    outcome       same success, or the same error in the same words; the same exit code
    words         same standard output and error, log lines and warnings
    file          same bytes in the file and in the ledger's copy, given the same noisy integers
    flow          same charges, draws and calls of functions, in the same number and order
    account       what is charged is at least what is claimed; the claim gives the stated epsilon and delta
    order         what a part costs is in the ledger, on disk, when its first noise is drawn
    noise         every released integer has a draw of its own, of the scale that the file states
    sums          released integers less noise are the sum over rows of what each row gives alone
    sensitivity   in units of its noise one row moves every answer of the survey by what the question states, every
                  histogram of the profile by a row in two cells, survey, profile and every look by at most their mu,
                  and all of it together by mu, in exact arithmetic
    refund        a release that fails after a charge stays charged, and the ledger keeps no more than was released
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from dpglm.custodian import bounded_rows, by_looks
from dpglm.custodian.grouping import GroupedSource
from dpglm.custodian.ledger import UNITS, Ledger
from dpglm.custodian.rows import fixed_point_rows
from dpglm.custodian.tables import open_table
from dpglm.errors import FileError
from dpglm.looks.profile import Profile
from dpglm.looks.questions import COUNT_BITS, Question
from dpglm.looks.viewpoint import VECTOR_BITS, Viewpoint
from dpglm.release_file import read_release
from dpglm.releases import Block, Release, Stage
from trust.cases import Case
from trust.questions import most_units
from trust.replay import Observation, observe
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


@dataclass(frozen=True)
class Part:
    """Integers that were released together: an answer of the survey, a histogram, or a block of a look or of moments.

    ``place`` says of what, as the ledger does. ``squared_mu`` is what an answer or a histogram may cost by itself.
    """

    place: str
    content: Question | tuple[Profile, int] | tuple[Stage, Block]
    integers: tuple[int, ...]
    grid_stddevs: tuple[float, ...]
    squared_mu: Fraction | None = None


def parts_of(release: Release) -> list[Part]:
    """All noisy integers that this release drew noise for, in order."""
    found = []
    record = release.survey_record
    if record is not None and record.release_id == release.id:
        for question, integers in record.asked:
            stddev = record.stddev * 2.0**COUNT_BITS / question.sharper
            cost = Fraction(question.squared_change) * Fraction(question.sharper) ** 2 / Fraction(record.stddev) ** 2
            found.append(Part("survey", question, integers, (stddev,) * len(integers), cost))
    for place, stage in enumerate(release.stages, 1):
        name = f"look {place}" if release.method == "looks" else "moments"
        found += [Part(name, (stage, block), block.integers, block.grid_stddevs) for block in stage.blocks]
        if place == 2 and release.profile is not None:
            found += _histograms(release.profile, release.design.schema.dataset.number is not None)
    return found


def _histograms(profile: Profile, replaced: bool) -> list[Part]:
    """A replaced row leaves one cell of each for another: two counts, each by one; an added one changes one."""
    cost, stddev = (2 if replaced else 1) / Fraction(profile.stddev) ** 2, profile.stddev * 2.0**COUNT_BITS
    return [
        Part("profile", (profile, number), counts, (stddev,) * len(counts), cost)
        for number, counts in enumerate(profile.counts)
    ]


def places(release: Release) -> list[str]:
    """What was released, in order: one name for each of its costs."""
    return list(dict.fromkeys(part.place for part in parts_of(release)))


def audit(case: Case, folder: Path) -> tuple[int, dict[str, Fraction]]:
    """Audit every two tables of the case.

    How many pairs; and by which share of mu^2 one row moved a survey, a profile, a look or moments, and all of it, at
    most.
    """
    chance = Random(case.seed)
    book = _empty_ledger(case, folder) if chance.random() < 0.5 else None
    # Lines of a CSV file that are no rows of their table are counted by its reader: another way through the code.
    # Tables of different sizes take different ways.
    same_way = not case.added and not case.people and not any(isinstance(row, bytes) for row in case.candidates)
    count_calls = chance.random() < 0.1 and same_way
    earlier = _read(observe(case, case.candidates[-1], folder, None)) if case.again else None
    if count_calls:
        observe(case, case.candidates[0], folder, book, earlier=earlier)  # what is remembered, is remembered now
    first = observe(case, case.candidates[0], folder, book, count_calls=count_calls, earlier=earlier)
    if case.command_line and "only the survey was spent" in first.printed:  # its file is not written
        return audit(replace(case, command_line=False), folder)
    stopped = first.error.startswith("SurveyError")
    require(
        "outcome",
        (stopped or not first.error) and first.file is not None,
        f"there is no release: {first.error} {first.printed[-300:]}",
    )
    release = _read(first)
    check_noise(first, release)
    outputs = [noised.output for noised in first.noised]
    seen = [first]
    for candidate in case.candidates[1:]:
        seen.append(observe(case, candidate, folder, book, outputs, count_calls=count_calls, earlier=earlier))
        compare(first, seen[-1])
        check_noise(seen[-1], release)
    check_account(first, release, case)
    check_sums(case, seen, release, folder)
    worst: dict[str, Fraction] = {}
    pairs = [(first, other) for other in seen[1:]] if case.added else list(combinations(seen, 2))
    for one, other in pairs:
        for name, share in check_sensitivity(release, one, other).items():
            worst[name] = max(share, worst.get(name, share))
    if book is not None and chance.random() < 0.3:
        draws = sum(event[0] == "draw" for event in first.events)
        check_refund(case, folder, book, chance.randint(1, draws), release, outputs, earlier)
    return len(pairs), worst


def _read(seen: Observation) -> Release:
    """The release as an analyst reads it from the file."""
    require("outcome", seen.file is not None, f"there is no release: {seen.error}")
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
    parts = parts_of(release)
    require("noise", len(parts) == len(seen.noised), "noise is not added once to every answer and block")
    for part, noised in zip(parts, seen.noised, strict=True):
        require("noise", part.integers == noised.output, "the file does not hold the noisy integers")
        require("noise", part.grid_stddevs == noised.stddevs, "the file states another scale than was drawn")
        waiting = {stddev: list(values) for stddev, values in noised.draws}
        size = sum(len(values) for _, values in noised.draws)
        require("noise", size == len(noised.sums) and len(waiting) == len(noised.draws), "not one draw an integer")
        for value, stddev, output in zip(noised.sums, noised.stddevs, noised.output, strict=True):
            require("noise", bool(waiting.get(stddev)), f"no draw of scale {stddev}")
            require("noise", value + waiting[stddev].pop(0) == output, "the output is not sum plus noise")
    draws = sum(event[0] == "draw" for event in seen.events)
    require("noise", draws == sum(len(noised.draws) for noised in seen.noised), "noise was drawn elsewhere")


def check_account(seen: Observation, release: Release, case: Case) -> None:
    """Charges cover the parts, whose mu^2 gives (epsilon, delta) by a formula of our own; charges before noise."""
    costs = release.costs
    squared = sum(Fraction(cost) ** 2 for cost in costs)
    mu = math.sqrt(squared)
    stated = release.privacy
    require("account", Fraction(stated.mu) ** 2 >= squared, "mu is smaller than its parts")
    require("account", stated.epsilon <= case.epsilon and stated.delta <= case.delta, "more than was asked for")
    stated_rows = release.design.schema.dataset.number
    number = case.schema["dataset"]["units"] if case.people and not case.added else len(case.rows) + 1
    require("account", stated_rows == (None if case.added else number), "another number of rows")
    # delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
    delta = math.exp(log_ndtr(mu / 2 - stated.epsilon / mu)) - math.exp(
        stated.epsilon + log_ndtr(-mu / 2 - stated.epsilon / mu)
    )
    require("account", delta <= stated.delta, f"mu needs delta = {delta}")
    surveyed = sum((part.squared_mu or 0 for part in parts_of(release) if part.place == "survey"), Fraction(0))
    if surveyed and release.survey_record is not None:
        squared_mu = Fraction(release.survey_record.mu) ** 2
        require("account", surveyed <= squared_mu, "the survey cost more than it states")
        most = most_units(case.design) / Fraction(release.survey_record.stddev) ** 2
        require("account", most <= squared_mu, "the survey could have cost more than it states")
    if release.profile is not None:
        profiled = sum(
            (part.squared_mu or 0 for part in _histograms(release.profile, stated_rows is not None)), Fraction(0)
        )
        require("account", profiled <= Fraction(release.profile.mu) ** 2, "the profile cost more than it states")
    if not seen.entries:
        return
    said = [json.loads(entry[4]).get("part") for entry in seen.entries]
    require("account", release.method == "moments" or said == places(release), "other parts are charged than were made")
    units = [entry[2] for entry in seen.entries]
    require("account", len(units) == len(costs), "not one entry a part")
    for charged, cost in zip(units, costs, strict=True):
        require("account", Fraction(charged, UNITS) >= Fraction(cost * cost), "a part is not charged in full")
    require("account", seen.kept == seen.file, "the ledger keeps another release")
    spent = sum(len(event[1]) for event in seen.events if event[0] == "spend")
    require("order", spent == len(units), "charged otherwise than by spending")
    committed = iter([event[3] for event in seen.events if event[0] == "draw"])
    for part, noised in zip(parts_of(release), seen.noised, strict=True):
        needed = 1 if part.place == "survey" else len(units)
        for _ in noised.draws:
            require("order", next(committed) >= needed, "the charge was not on disk when noise was drawn")


def check_sums(case: Case, seen: list[Observation], release: Release, folder: Path) -> None:
    """Integers less noise are sums over rows, each row by itself, in Python's integers."""
    alone: dict[Any, list[list[int]]] = {}

    def features(row: Any) -> list[list[int]]:
        key = tuple(map(id, row)) if case.people else id(row)
        if key not in alone:
            alone[key] = _features_alone(case, row, release, folder)
        return alone[key]

    for candidate, one in zip(case.candidates, seen, strict=True):
        with warnings.catch_warnings(action="ignore"):
            rows = case.table_rows(candidate)
            table = list(map(features, by_person(rows) if case.people else rows))
        for number, noised in enumerate(one.noised):
            nothing = [0] * len(noised.sums)
            expected = tuple(map(sum, zip(nothing, *(row[number] for row in table), strict=True)))
            require("sums", expected == noised.sums, f"part {number} is not the sum over rows")


def by_person(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of each person, who are told apart by value; rows of nobody left out."""
    found: dict[float, list[Any]] = {}
    for row in rows:
        if row[-1] is not None:
            found.setdefault(float(row[-1]), []).append(row)
    return list(map(tuple, found.values()))


def _person_alone(case: Case, rows: Sequence[Any], release: Release, folder: Path) -> list[list[int]]:
    """What one person with all of their rows gives, in whatever order."""
    columns = case.design.source_columns
    backwards = list(reversed(rows))
    alone = open_table(make_table(case.source, backwards, columns, folder, Random(0)), columns)
    batches = list(GroupedSource(alone).batches())
    require("sums", len(batches) == 1, "the rows of a person do not come together")
    (batch,) = batches
    require("sums", by_looks.table_counts(batch, case.design).num_rows == 1, "a person alone is not one unit")
    counts, found = by_looks.table_counts(batch, case.design), []
    for part in parts_of(release):
        if isinstance(part.content, Question):
            found.append(list(counts.answers(part.content)))
            continue
        stage, block = part.content
        if isinstance(stage, Profile):
            cells = by_looks.profile_counts(batch, release.design, stage.view).cells[block].tolist()
            require("sums", sum(cells) <= 2**COUNT_BITS and min(cells) >= 0, "a person is more than one")
            found.append(cells)
            continue
        sums = bounded_rows.look_sums(batch, release.design, stage.viewpoint)
        found.append(list(sums.values[[shape.y_power for shape in sums.blocks].index(block.y_power)])
                     if block.degree == 1 else list(sums.values[1 if block.y_power == 0 else 2]))  # fmt: skip
        score, information = sums.values[0], sums.values[1]
        size = len(score)
        trace = sum(information[place] for place in np.cumsum([0, *range(size, 1, -1)]).tolist())
        require("sums", sum(value * value for value in score) <= 4**VECTOR_BITS, "a score leaves its bound")
        require("sums", 0 <= trace <= 4**VECTOR_BITS, "an information leaves its bound")
    return found


def _features_alone(case: Case, row: Any, release: Release, folder: Path) -> list[list[int]]:
    if case.people:
        return _person_alone(case, row, release, folder)
    columns = case.design.table_columns
    table = make_table(case.source, [row], columns, folder, Random(0))
    batches = [batch for batch in open_table(table, columns).batches() if batch.num_rows]
    require("sums", [batch.num_rows for batch in batches] == [1], "a row alone is not one row")
    if release.method == "looks":
        return _looks_alone(batches[0], case, release)
    rows = fixed_point_rows(batches[0], release.design, release.grid, release.radius)
    require("sums", bool(np.isfinite(rows.x).all() and np.isfinite(rows.y).all()), "a row holds what is no number")
    x, y = [int(value) for value in rows.x[:, 0]], int(rows.y[0])
    return [
        [y**block.y_power * math.prod(x[index] for index in indices) for indices in block.shape.monomials(len(x))]
        for block in release.blocks
    ]


def _looks_alone(batch: Any, case: Case, release: Release) -> list[list[int]]:
    """What one row gives every answer of the survey, every histogram and every block, in Python's integers."""
    found = []
    counts, rows = by_looks.table_counts(batch, case.design), bounded_rows.standard_rows(batch, release.design)
    for part in parts_of(release):
        if isinstance(part.content, Question):
            found.append(list(counts.answers(part.content)))
            continue
        stage, block = part.content
        if isinstance(stage, Profile):
            cells = by_looks.profile_counts(batch, release.design, stage.view).cells[block].tolist()
            one = 2**COUNT_BITS
            require("sums", sum(cells) in (0, one) and min(cells) == 0, "a row is not in one cell, or none, alone")
            found.append(cells)
            continue
        assert isinstance(stage.viewpoint, Viewpoint)
        pair = bounded_rows.bounded_vectors(rows, release.design, stage.viewpoint)
        score, information = ([int(value) for value in vectors[:, 0]] for vectors in pair)
        for vector in (score, information):
            require("sums", sum(value * value for value in vector) <= 4**VECTOR_BITS, "a vector leaves its bound")
        vector = information if block.y_power == 0 else score
        found.append([math.prod(vector[index] for index in indices) for indices in block.shape.monomials(len(vector))])
    return found


def moved(one: Observation, other: Observation) -> list[Fraction]:
    """Squared move of every part, in its noise."""
    found = []
    for mine, theirs in zip(one.noised, other.noised, strict=True):
        squares: dict[float, int] = {}
        for a, b, stddev in zip(mine.sums, theirs.sums, mine.stddevs, strict=True):
            squares[stddev] = squares.get(stddev, 0) + (a - b) ** 2
        found.append(sum((Fraction(square) / Fraction(s) ** 2 for s, square in squares.items()), Fraction(0)))
    return found


def check_sensitivity(release: Release, one: Observation, other: Observation) -> dict[str, Fraction]:
    """The noise of a part had to move by at most its mu; the largest shares of mu^2 are returned."""
    parts, moves = parts_of(release), moved(one, other)
    for number, (part, move) in enumerate(zip(parts, moves, strict=True)):
        if part.squared_mu is not None:
            share = move / part.squared_mu
            # The quotient that is its noise is rounded; the survey's sum, below, is exact and has room for that.
            within = share <= 1 + Fraction(1, 10**12)
            require("sensitivity", within, f"one row moves answer {number + 1} by {float(share):.6g} mu^2")
    shares: dict[str, Fraction] = {}
    for place, mu in zip(places(release), release.costs, strict=True):
        share = _total(moves, [part.place == place for part in parts]) / Fraction(mu) ** 2
        require("sensitivity", share <= 1, f"one row moves {place} by {float(share):.6g} mu^2")
        name = "looks" if place.startswith("look") else place
        shares[name] = max(share, shares.get(name, share))
    whole = sum(moves, Fraction(0)) / Fraction(release.privacy.mu) ** 2
    require("sensitivity", whole <= 1, f"one row moves the release by {float(whole):.6g} mu^2")
    return shares | {"whole": whole}


def _total(moves: Sequence[Fraction], which: Sequence[bool]) -> Fraction:
    return sum((move for move, wanted in zip(moves, which, strict=True) if wanted), Fraction(0))


def check_refund(
    case: Case,
    folder: Path,
    book: Path,
    fail: int,
    release: Release,
    outputs: list[tuple[int, ...]],
    earlier: Release | None,
) -> None:
    """The sampler fails at this draw: charges stay, what was released is kept, and no table is told from another."""
    seen = [observe(case, one, folder, book, outputs, fail, earlier=earlier) for one in case.candidates[:2]]
    one, other = seen
    place, made = parts_of(release)[len(one.noised)].place, places(release)
    require("refund", bool(one.error) and "SurveyError" not in one.error, "a release without its noise")
    paid = 1 if place == "survey" else len(release.costs)
    require("refund", len(one.entries) == paid, "a failed release was not charged, or was refunded")
    if release.method == "looks" and place not in ("survey", made[0]):
        require("refund", one.kept is not None, "what was released before the failure is not kept")
    if one.kept is not None:
        kept = read_release(one.kept)
        require("refund", kept.stages == release.stages[: len(kept.stages)], "another release is kept")
        require("refund", kept.profile in (None, release.profile), "another profile is kept")
        require("refund", places(kept) == made[: made.index(place)], "not all is kept, or more than was released")
        require("refund", kept.survey_record == release.survey_record, "another survey is kept")
    require("refund", one.file is None, "a failed release was made")
    require("outcome", one.error == other.error, "the error of a failed release depends on the rows")
    require("words", one.printed == other.printed, "the words of a failed release depend on the rows")
    require("account", one.entries == other.entries, "the charge of a failed release depends on the rows")
    require("file", one.kept == other.kept, "what is kept of a failed release depends on the rows")


def _empty_ledger(case: Case, folder: Path) -> Path:
    (folder / "empty").mkdir(exist_ok=True)  # a folder holds one ledger of a dataset, and the replay makes its own
    path = folder / "empty" / "empty.ledger"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    dataset = case.design.schema.dataset
    return Ledger.create(path, dataset, epsilon=case.epsilon * 2, delta=min(case.delta * 2, 0.5)).path


def _difference(one: Any, other: Any) -> str:
    """The first place where two things differ, short."""
    a, b = str(one), str(other)
    place = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"...{a[max(place - 20, 0) : place + 40]!r} and ...{b[max(place - 20, 0) : place + 40]!r}"
