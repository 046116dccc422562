"""Persons whose rows end with an event: what they add to a look, against one row at a time; bounded, and attacked."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpglm
from dpglm.custodian import bounded_rows
from dpglm.custodian.bounded_rows import bounded_units, on_grid, outcomes, standard_rows, whitened
from dpglm.custodian.followed import shares_by_past, spent_before
from dpglm.custodian.look_plan import look_noise
from dpglm.custodian.mechanism import monomial_stddevs
from dpglm.custodian.rows import FixedPointRows
from dpglm.custodian.sums import BlockShape, block_sums
from dpglm.custodian.units import Units
from dpglm.errors import InputError
from dpglm.families import EVERY_FAMILY
from dpglm.formula import Design, build_design
from dpglm.grid import Grid
from dpglm.looks.coding import standard_design
from dpglm.looks.questions import Place
from dpglm.looks.survey import Survey, subjects
from dpglm.looks.viewpoint import LOOK_BLOCKS, VECTOR_BITS, Viewpoint
from dpglm.release_file import read_release
from dpglm.schema import Schema

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.FitWarning")  # noise is random, and may deserve one
LONGEST = 2**VECTOR_BITS
COLUMNS = {
    "wave": {"type": "categorical", "levels": ["first", "second", "third", "fourth", "fifth"]},
    "sick": {"type": "binary", "levels": [0, 1]},
    "score": {"type": "numeric", "lower": -3, "upper": 10},
    "a": {"type": "numeric", "lower": -1, "upper": 1},
    "c": {"type": "numeric", "lower": -1, "upper": 1},
}
DATASET = {"name": "panel", "units": 10, "unit": "one person", "unit_column": "id", "unit_order": "wave"}
SCHEMA = Schema.from_dict({"dataset": DATASET, "columns": COLUMNS})
FAMILIES = {family.link: family for family in EVERY_FAMILY}
MODELS = [("cloglog", "sick ~ a + c"), ("logit", "sick ~ a"), ("probit", "sick ~ a + c - 1")]
SIZES = (1, 2, 5, 3)


def design_of(link: str, formula: str) -> Design:
    design = build_design(formula, SCHEMA, FAMILIES[link])
    told = tuple(Place(0.0, 1.0, (0.6, 0.4), 0.01) for _ in subjects(design))
    return standard_design(design, Survey(subjects(design), told, (), 10.0, 1.0, (), 10.0, 10.0))


def units_of(sizes: tuple[int, ...]) -> Units:
    starts = np.cumsum([0, *sizes[:-1]])
    return Units(np.repeat(np.arange(len(sizes)), sizes), starts)


def case(number: int, sizes: tuple[int, ...] = SIZES) -> tuple[FixedPointRows, Design, Viewpoint, Units]:
    """Rows of persons in any order of their waves, some of which do not count."""
    rng, units = np.random.default_rng(number), units_of(sizes)
    design, many = design_of(*MODELS[number % len(MODELS)]), sum(sizes)
    cells = {name: np.where(rng.random(many) < 0.05, np.nan, rng.uniform(-1, 1, many)) for name in "ac"}
    cells |= {"sick": rng.integers(0, 2, many), "wave": rng.choice(COLUMNS["wave"]["levels"], many)}
    batch = pa.record_batch({column.name: pa.array(cells[column.name]) for column in design.table_columns})
    rows, size = standard_rows(batch, design), len(design.coefficient_names)
    view = Viewpoint(tuple(rng.normal(size=size)), tuple(map(tuple, rng.normal(size=(size, size)))), 1.0, 1.0, 1.0, 4.0)
    typical = float(np.median(np.sqrt(whitened(rows, design, view)[3])))  # so that bounds matter, but not to all
    bounds = typical * rng.choice([0.5, 2, 100]), typical**2 * rng.choice([1, 50])
    return rows, design, on_grid(replace(view, score_bound=float(bounds[0]), information_bound=float(bounds[1]))), units


def part(rows: FixedPointRows, which: Any) -> FixedPointRows:
    counts = None if rows.counts is None else rows.counts[which]
    assert rows.order is not None
    return replace(rows, x=rows.x[:, which], y=rows.y[which], counts=counts, order=rows.order[which])


def lengths_of(rows: FixedPointRows, design: Design, view: Viewpoint, units: Units) -> np.ndarray:
    """Squared, as Python integers: of scores, and of all information vectors of a person."""
    score, information = bounded_units(rows, design, view, units)
    squared = [sum(int(value) ** 2 for value in column) for column in information.T]
    of_persons = [sum(squared[n] for n in np.flatnonzero(units.index == each)) for each in range(units.number)]
    return np.array([[sum(int(value) ** 2 for value in column) for column in score.T], of_persons], dtype=object)


@pytest.mark.parametrize("number", range(9))
def test_scores_are_sums_over_rows_each_by_its_own_share(number: int) -> None:
    rows, design, view, units = case(number)
    score, _ = bounded_units(rows, design, view, units)
    _, u, z, squared = whitened(rows, design, view)
    table = view.residual_table(design.family, design.response_range)
    mean, low, high, largest = table.at(u, table.mean, table.low, table.high, table.largest)
    counts = np.ones(rows.num_rows) if rows.counts is None else rows.counts.astype(float)
    residual = (np.clip(outcomes(rows, design, view), low, high) - mean) * counts
    length, expected = largest * np.sqrt(squared) * counts, (mean - low) * np.sqrt(squared) * counts
    assert rows.order is not None
    kappa = shares_by_past(units.index, rows.order, length, expected, view.score_bound)
    for person in range(units.number):
        own = units.index == person
        wanted = (z[:, own] * (kappa * residual)[own]).sum(axis=1) * view.longest / view.score_bound
        if np.linalg.norm(wanted) < LONGEST:  # else the event came more than once, which survival data do not have
            np.testing.assert_allclose(score[:, person], wanted, atol=1.0)
        else:
            assert not score[:, person].any()


@pytest.mark.parametrize("number", range(4))
def test_the_order_in_which_rows_stand_makes_no_difference(number: int) -> None:
    rows, design, view, units = case(number)
    order = np.lexsort((np.random.default_rng(number).random(rows.num_rows), units.index))
    assert (np.diff(order) != 1).any()
    score, information = bounded_units(rows, design, view, units)
    mixed, mixed_information = bounded_units(part(rows, order), design, view, units)
    np.testing.assert_array_equal(mixed, score)
    np.testing.assert_array_equal(mixed_information, information[:, order])


@pytest.mark.parametrize("sizes", [(1, 2, 5), (10_000,), (1,) * 20])
@pytest.mark.parametrize("number", range(3))
def test_persons_are_within_their_bounds_whatever_their_rows_hold(sizes: tuple[int, ...], number: int) -> None:
    rows, design, view, units = case(number, sizes)
    assert (lengths_of(rows, design, view, units) <= LONGEST**2).all()
    again = part(rows, np.zeros(rows.num_rows, dtype=np.int64))  # one row again and again, in one wave
    assert (lengths_of(again, design, view, units) <= LONGEST**2).all()


@pytest.mark.parametrize("number", range(3))
def test_no_person_moves_a_look_by_more_than_its_mu(number: int) -> None:
    """Nine persons of 1 to 50 rows, each in the place of each other."""
    sizes = (1, 1, 2, 2, 3, 5, 13, 34, 50)
    rows, design, view, units = case(number, sizes)
    noise = look_noise(0.7, view.dimension, 0.2, SCHEMA.dataset.protection)
    score, information = bounded_units(rows, design, view, units)
    stddevs = [
        monomial_stddevs(b, Fraction(s), view.dimension) for b, s in zip(LOOK_BLOCKS, noise.grid_stddevs, strict=True)
    ]
    added = []
    for person in range(units.number):
        own = information[:, units.index == person]
        alone = score[:, [person]]
        grid = Grid(VECTOR_BITS, 0)
        of_score = block_sums(FixedPointRows(alone, np.zeros(1), grid), (BlockShape(0, 1), BlockShape(0, 2))).values
        of_information = block_sums(FixedPointRows(own, np.zeros(own.shape[1]), grid), (BlockShape(0, 2),)).values
        added.append((of_score[0], of_information[0], of_score[1]))
    worst = max(
        sum(
            ((Fraction(a - b)) / Fraction(s)) ** 2
            for mine, theirs, scales in zip(one, other, stddevs, strict=True)
            for a, b, s in zip(mine, theirs, scales, strict=True)
        )
        for one in added
        for other in added
    )
    assert 0 < worst <= Fraction(noise.mu) ** 2


def quiet_person(events: bool) -> tuple[FixedPointRows, Design, Viewpoint, Units]:
    """Thirty waves of one person, with the event in all of them or in none."""
    design = design_of("cloglog", "sick ~ a + c - 1")
    cells = {"sick": [int(events)] * 30, "a": [0.7] * 30, "c": [0.7] * 30, "wave": ["first"] * 30}
    batch = pa.record_batch({column.name: pa.array(cells[column.name]) for column in design.table_columns})
    rows = replace(standard_rows(batch, design), order=np.arange(30.0))
    return rows, design, Viewpoint((-1.0, -1.0), ((4.0, 0.0), (0.0, 4.0)), 5.0, 400.0, 1.0, 4.0), units_of((30,))


def test_an_event_that_comes_again_and_again_is_left_out_and_none_at_all_is_within_the_bound() -> None:
    again, none = (bounded_units(*quiet_person(events))[0] for events in (True, False))
    assert not again.any()
    assert 0.5 * LONGEST < math.sqrt(sum(int(value) ** 2 for value in none[:, 0])) <= LONGEST


def test_planted_bugs_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the last check a person with many events is too long; rows that are bounded one by one are, too."""
    monkeypatch.setattr(bounded_rows, "_held", lambda vectors: vectors)
    assert not (lengths_of(*quiet_person(True)) <= LONGEST**2).all()
    assert (lengths_of(*quiet_person(False)) <= LONGEST**2).all()
    monkeypatch.setattr(
        bounded_rows, "shares_by_past",
        lambda person, period, length, expected, bound: np.minimum(1.0, bound / np.maximum(length, 1e-300)),
    )  # fmt: skip
    assert not (lengths_of(*quiet_person(False)) <= LONGEST**2).all()


def test_what_earlier_rows_expect_is_counted_without_those_of_the_same_wave() -> None:
    person, wave = np.array([0, 0, 0, 1, 0]), np.array([2.0, 1.0, 2.0, 1.0, 3.0])
    told = spent_before(person, wave, np.array([0.5, 0.25, 1.0, 9.0, 3.0]), 1.0)
    np.testing.assert_allclose(told, [0.25, 0.0, 0.25, 0.0, 1.75], atol=1e-5)
    assert len(spent_before(person[:0], wave[:0], wave[:0], 1.0)) == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"unit_order": "visit"}, "unit_order = visit: is not a declared column"),
        ({"unit_column": None, "units": None, "rows": 10}, "belongs to a dataset with a unit_column"),
    ],
)
def test_an_order_is_a_declared_column_of_persons_with_several_rows(changed: dict[str, Any], said: str) -> None:
    dataset = {key: value for key, value in {**DATASET, **changed}.items() if value is not None}
    with pytest.raises(InputError, match=said):
        Schema.from_dict({"dataset": dataset, "columns": COLUMNS})


def test_only_events_end_rows() -> None:
    with pytest.raises(InputError, match="a linear outcome is none"):
        build_design("score ~ a", SCHEMA, "linear")


def test_a_release_of_person_periods_states_its_order_and_is_read_back() -> None:
    rng = np.random.default_rng(3)
    people = 3_000
    x = rng.normal(size=people)
    days, end = rng.exponential(np.exp(5.5 - 0.5 * x)), rng.uniform(50, 600, people)
    table = pd.DataFrame({
        "id": np.arange(people), "x": x, "days": np.minimum(days, end), "dead": np.where(days <= end, "yes", "no"),
    })  # fmt: skip
    schema = dpglm.Schema.from_dict(
        {
            "dataset": {"name": "cohort", "rows": people, "unit": "one person"},
            "columns": {
                "x": {"type": "numeric", "lower": -10, "upper": 10},
                "days": {"type": "numeric", "lower": 0, "upper": 5000},
                "dead": {"type": "binary", "levels": ["no", "yes"]},
            },
        }
    )
    followed: dict[str, Any] = {"unit": "id", "time": "days", "event": "dead", "breaks": [0, 100, 200, 400]}
    declared = dpglm.person_period_schema(schema, **followed)
    assert declared.dataset.unit_order == "period"
    release = dpglm.release(
        dpglm.person_periods(table, schema=schema, **followed), "dead ~ period + x", schema=declared,
        family="binomial", link="cloglog", epsilon=3.0, delta=1e-6, ledger=None,
    )  # fmt: skip
    assert read_release(release.to_json()).design == release.design
    told = dpglm.fit(release, seed=1).summary().loc["x"]
    assert abs(told["mean"] - 0.5) < 5 * told["sd"] < 1.0
    assert release.survey_record is not None
    share = release.survey_record.survey.places[0].shares[1]  # of rows, not of people
    long = dpglm.person_periods(table, schema=schema, **followed)().read_all().to_pandas()["dead"].dropna()
    assert share == pytest.approx((long == "yes").mean(), rel=0.15)
