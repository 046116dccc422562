"""What a person adds to a look: against one row at a time, bounded whatever the rows hold, attacked with many rows."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpglm.custodian import bounded_persons as module
from dpglm.custodian.bounded_persons import person_sums, person_vectors
from dpglm.custodian.bounded_rows import bounded_vectors, on_grid, outcomes, standard_rows, whitened
from dpglm.custodian.followed import shares_by_past, shares_together
from dpglm.custodian.look_plan import look_noise
from dpglm.custodian.mechanism import monomial_stddevs
from dpglm.custodian.rows import FixedPointRows
from dpglm.families import EVERY_FAMILY
from dpglm.formula import Design, build_design
from dpglm.looks.coding import standard_design
from dpglm.looks.survey import Place, Survey, subjects
from dpglm.looks.viewpoint import LOOK_BLOCKS, Viewpoint
from dpglm.protection import Protection
from dpglm.schema import Schema

LONGEST = 2**20
PROTECTION = Protection(several_rows=True)
SIZES = (1, 2, 50, 3)


SCHEMA = Schema.from_dict(
    {
        "dataset": {"name": "panel", "rows": 10, "unit": "one person"},
        "columns": {
            "sick": {"type": "binary", "levels": [0, 1]},
            "visits": {"type": "count", "upper": 9},
            "score": {"type": "numeric", "lower": -3, "upper": 10},
            "a": {"type": "numeric", "lower": -1, "upper": 1},
            "c": {"type": "numeric", "lower": -1, "upper": 1},
        },
    }
)
MODELS = [("cloglog", "sick ~ a + c"), ("logit", "sick ~ a"), ("log", "visits ~ a + c - 1"), ("identity", "score ~ a")]
FAMILIES = {family.link: family for family in EVERY_FAMILY}


def design_of(link: str, formula: str) -> Design:
    design = build_design(formula, SCHEMA, FAMILIES[link])
    told = [Place(0.0, 1.0, (0.6, 0.4), 0.01) for _ in subjects(design)]
    return standard_design(design, Survey(subjects(design), tuple(told), (), 10.0, 1.0, (), 10.0, 10.0))


def rows_of(cells: dict[str, Any], design: Design) -> FixedPointRows:
    names = [column.name for column in design.table_columns]
    return standard_rows(pa.record_batch({name: pa.array(cells[name]) for name in names}), design)


def case(number: int, sizes: tuple[int, ...] = SIZES) -> tuple[FixedPointRows, Design, Viewpoint, np.ndarray, Any]:
    """Rows of persons, mixed, some of which do not count; every second case has periods."""
    rng = np.random.default_rng(number)
    design = design_of(*MODELS[number % len(MODELS)])
    person = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    many = len(person)
    cells = {name: np.where(rng.random(many) < 0.05, np.nan, rng.uniform(-1, 1, many)) for name in "ac"}
    cells |= {"sick": rng.integers(0, 2, many), "visits": rng.integers(0, 10, many), "score": rng.uniform(-3, 10, many)}
    rows, size = rows_of(cells, design), len(design.coefficient_names)
    whitening = rng.normal(size=(size, size)) * 10 ** rng.uniform(-1, 2)
    view = Viewpoint(tuple(rng.normal(size=size)), tuple(map(tuple, whitening)), 1.0, 1.0, 1.7, 3.0)
    typical = float(np.median(np.sqrt(whitened(rows, design, view)[3])))  # so that bounds matter, but not to all
    bounds = typical * rng.choice([0.5, 3, 100]), typical**2 * rng.choice([1, 50])
    view = on_grid(replace(view, score_bound=float(bounds[0]), information_bound=float(bounds[1])))
    return rows, design, view, person, rng.integers(0, 6, many) if number % 2 else None


def part(rows: FixedPointRows, which: Any) -> FixedPointRows:
    counts = None if rows.counts is None else rows.counts[which]
    return FixedPointRows(rows.x[:, which], rows.y[which], rows.grid, counts)


def lengths_of(rows: FixedPointRows, design: Design, view: Viewpoint, person: np.ndarray, period: Any) -> np.ndarray:
    """Squared: of scores, and of all information vectors of a person."""
    score, information = person_vectors(rows, design, view, person, period)
    squared = [sum(int(value) ** 2 for value in column) for column in information.T]
    of_persons = [sum(squared[n] for n in np.flatnonzero(person == each)) for each in np.unique(person)]
    return np.array([[sum(int(value) ** 2 for value in column) for column in score.T], of_persons], dtype=object)


@pytest.mark.parametrize("number", range(10))
def test_scores_are_sums_over_the_rows_of_a_person(number: int) -> None:
    rows, design, view, person, period = case(number)
    score, information = person_vectors(rows, design, view, person, period)
    _, u, z, squared = whitened(rows, design, view)
    table = view.residual_table(design.family, design.response_range)
    mean, weight, low, high, largest = table.at(u, table.mean, table.weight, table.low, table.high, table.largest)
    residual = np.clip(outcomes(rows, design, view), low, high) - mean
    counts = np.ones(len(person)) if rows.counts is None else rows.counts.astype(float)
    length, expected = largest * np.sqrt(squared) * counts, (mean - low) * np.sqrt(squared) * counts
    if period is None:
        kappa = shares_together(person, length, view.score_bound)
    else:
        kappa = shares_by_past(person, period, length, expected, view.score_bound)
    for each in range(len(SIZES)):
        own = person == each
        wanted = (z[:, own] * (kappa * residual * counts)[own]).sum(axis=1) * view.longest / view.score_bound
        if np.linalg.norm(wanted) < LONGEST:
            np.testing.assert_allclose(score[:, each], wanted, atol=1.0)
    energy = (information**2).sum(axis=0) / view.longest**2 * view.information_bound
    free = kappa * weight * squared * counts
    shares = shares_together(person, free * kappa, view.information_bound)
    assert (energy <= free * (1 + 1e-6) + 1e-9 * view.information_bound).all()
    loose = shares > 0.999
    np.testing.assert_allclose(energy[loose], free[loose], rtol=0.01, atol=1e-3 * view.information_bound)


@pytest.mark.parametrize("number", range(0, 10, 3))
def test_order_and_company_of_rows_make_no_difference(number: int) -> None:
    rows, design, view, person, period = case(number)
    whole = person_sums(rows, design, view, person, period)
    order = np.random.default_rng(number).permutation(len(person))
    mixed = person_sums(part(rows, order), design, view, person[order], None if period is None else period[order])
    assert mixed == whole
    parts = [person == each for each in range(len(SIZES))]
    sums = [
        person_sums(part(rows, own), design, view, person[own], None if period is None else period[own])
        for own in parts
    ]
    total = sums[0]
    for more in sums[1:]:
        total = total + more
    assert total == whole


def test_one_row_a_person_is_as_without_persons() -> None:
    rows, design, view, _, _ = case(4, sizes=(1,) * 40)
    score, information = person_vectors(rows, design, view, np.arange(40))
    alone, info = bounded_vectors(rows, design, view)
    np.testing.assert_allclose(score, alone, atol=2.0)
    np.testing.assert_allclose(information, info, atol=2.0)


@pytest.mark.parametrize("sizes", [(1, 2, 50), (10_000,), (1,) * 20])
@pytest.mark.parametrize("number", range(4))
def test_persons_are_within_their_bounds_whatever_their_rows_hold(sizes: tuple[int, ...], number: int) -> None:
    rows, design, view, person, period = case(number, sizes)
    assert (lengths_of(rows, design, view, person, period) <= LONGEST**2).all()
    same = FixedPointRows(np.repeat(rows.x[:, :1], len(person), axis=1), np.repeat(rows.y[:1], len(person)), rows.grid)
    assert (lengths_of(same, design, view, person, period) <= LONGEST**2).all()  # one row again and again


def squared_move(one: Any, other: Any, noise: Any, dimension: int) -> Fraction:
    total = Fraction(0)
    for block, mine, theirs, stddev in zip(LOOK_BLOCKS, one.values, other.values, noise.grid_stddevs, strict=True):
        scales = monomial_stddevs(block, Fraction(stddev), dimension)
        total += sum((Fraction(a - b) / Fraction(s)) ** 2 for a, b, s in zip(mine, theirs, scales, strict=True))
    return total


@pytest.mark.parametrize("number", range(6))
def test_no_person_moves_a_look_by_more_than_its_mu(number: int) -> None:
    """Twelve persons of 1 to 50 rows, each in the place of each other."""
    sizes = (1, 1, 2, 2, 3, 5, 8, 13, 21, 34, 50, 50)
    rows, design, view, person, period = case(number, sizes)
    noise = look_noise(0.7, view.dimension, 0.2, PROTECTION)
    sums = []
    for each in range(len(sizes)):
        own = person == each
        sums.append(person_sums(part(rows, own), design, view, person[own], None if period is None else period[own]))
    worst = max(squared_move(sums[a], sums[b], noise, view.dimension) for a in range(len(sizes)) for b in range(a))
    assert worst <= Fraction(noise.mu) ** 2


def repeated_event() -> tuple[FixedPointRows, Design, Viewpoint, np.ndarray, np.ndarray]:
    """A table that is no survival data: the event comes in every period of a person."""
    design = design_of("cloglog", "sick ~ a + c - 1")
    cells = {"sick": [1] * 30, "a": [0.7] * 30, "c": [0.7] * 30}
    view = Viewpoint((-1.0, -1.0), ((4.0, 0.0), (0.0, 4.0)), 5.0, 400.0, 1.0, 4.0)
    return rows_of(cells, design), design, view, np.zeros(30, dtype=np.int64), np.arange(30)


BUGS: dict[str, tuple[str, Any]] = {
    "scores are not held": ("_held", lambda vectors: vectors),
    "rows are bounded one by one": (
        "shares_by_past",
        lambda person, period, length, expected, bound: np.minimum(1.0, bound / length),
    ),
}


def test_a_person_whom_the_event_befalls_again_and_again_is_held() -> None:
    assert (lengths_of(*repeated_event()) <= LONGEST**2).all()


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the last check a person with many events is too long; with it, but bounded by row, nothing is right."""
    monkeypatch.setattr(module, *BUGS[name])
    if name == "scores are not held":
        assert not (lengths_of(*repeated_event()) <= LONGEST**2).all()
        return
    rows, design, view, person, period = repeated_event()
    monkeypatch.setattr(module, "_held", lambda vectors: vectors)
    quiet = replace(rows, y=np.zeros_like(rows.y))  # no event: the sum of what 30 rows expect
    score, _ = person_vectors(quiet, design, view, person, period)
    assert math.sqrt(sum(int(value) ** 2 for value in score[:, 0])) > LONGEST


def test_information_that_is_not_bounded_together_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, design, view, person, period = repeated_event()
    view = replace(view, score_bound=1e6, information_bound=2.0)
    assert (lengths_of(rows, design, view, person, period) <= LONGEST**2).all()
    assert person_vectors(rows, design, view, person, period)[1].any()
    monkeypatch.setattr(module, "shares_together", lambda person, length, bound: np.minimum(1.0, bound / length))
    assert not person_vectors(rows, design, view, person, period)[1].any()
    monkeypatch.setattr(module, "_within_trace", lambda vectors, code, persons: vectors)
    assert not (lengths_of(rows, design, view, person, period) <= LONGEST**2).all()
