"""Rows of a look: exact products, bounded parallel integer vectors, whatever a row or a viewpoint holds.

And the sensitivity of a look over real rows: neighbours of every kind, in exact arithmetic, never move it by more than
its mu.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpglm.custodian import bounded_rows
from dpglm.custodian.bounded_rows import bounded_vectors, exact_multipliers, look_sums, on_grid, standard_rows
from dpglm.custodian.look_plan import LookNoise, look_noise
from dpglm.custodian.mechanism import monomial_stddevs
from dpglm.custodian.rows import FixedPointRows
from dpglm.families import EVERY_FAMILY
from dpglm.families.residuals import ResidualTable
from dpglm.formula import Design, build_design
from dpglm.looks.coding import LARGEST, ROW_BITS, standard_design
from dpglm.looks.questions import Place
from dpglm.looks.survey import Survey, subjects
from dpglm.looks.viewpoint import LOOK_BLOCKS, VECTOR_BITS, Viewpoint
from dpglm.schema import Schema

NAMES = ("sick", "visits", "score", "a", "b", "c", "hours")
SCHEMA = Schema.from_dict(
    {
        "dataset": {"name": "patients", "rows": 10, "unit": "one patient"},
        "columns": {
            "sick": {"type": "binary", "levels": [0, 1], "fill": 0},
            "visits": {"type": "count", "upper": 9, "fill": 1},
            "score": {"type": "numeric", "lower": -3, "upper": 10, "fill": 2},
            "a": {"type": "numeric", "lower": -1, "upper": 1, "fill": 0.25},
            "b": {"type": "numeric", "lower": 20, "upper": 90, "fill": 30},
            "c": {"type": "numeric", "lower": -1, "upper": 1, "fill": 0},
            "hours": {"type": "numeric", "lower": -1, "upper": 1, "fill": 0},
        },
    }
)
FAMILIES = {family.link: family for family in EVERY_FAMILY}
FORMULAS = [
    (link, f"{outcome} ~ {terms}")
    for (link, outcome), terms in product(
        (("logit", "sick"), ("log", "visits"), ("identity", "score"), ("probit", "sick"), ("cloglog", "sick")),
        ("a + b", "a + b + c - 1", "a + c + offset(hours)", "a + c - 1 + offset(hours)"),
    )
]
RUBBISH: list[Any] = [
    None, b"", b"NaN", b"-inf", b"inf", b"1e308", b"-1e308", b"1e999", b"-0.0", b"1e-320", b"secret", b"\xff",
    b"9" * 399,
]  # fmt: skip


def survey_of(design: Design, places: dict[str, tuple[float, float]] | None = None) -> Survey:
    """A survey that says so of its numeric columns; by default, where all coordinates stay as they are."""
    told = [Place(*(places or {}).get(each.name, (0.0, 1.0)), (0.6, 0.4), 0.01) for each in subjects(design)]
    return Survey(subjects(design), tuple(told), (), 10.0, 1.0, (), 10.0, 10.0)


def design_of(link: str, formula: str, places: dict[str, tuple[float, float]] | None = None) -> Design:
    design = build_design(formula, SCHEMA, FAMILIES[link])
    return standard_design(design, survey_of(design, places))


def table_of(cells: dict[str, list[Any]], design: Design) -> pa.RecordBatch:
    names = [column.name for column in design.table_columns]
    return pa.record_batch({name: pa.array(cells[name], pa.binary()) for name in names})


def as_bytes(values: Any) -> list[bytes]:
    return [repr(float(value)).encode() for value in values]


def random_cells(size: int, rng: np.random.Generator) -> dict[str, list[Any]]:
    """Cells inside the bounds, at their ends, far outside, and rubbish."""

    def column(low: float, high: float, whole: bool = False) -> list[Any]:
        values = rng.uniform(low, high, size)
        kind = rng.random(size)
        values = np.where(kind < 0.5, rng.choice([low, high, (low + high) / 2], size), values)
        values = np.where(kind > 0.95, rng.choice([-1e9, 1e9, 1e-9], size), values)
        cells: list[Any] = as_bytes(np.rint(values) if whole else values)
        return [RUBBISH[rng.integers(len(RUBBISH))] if rng.random() < 0.05 else cell for cell in cells]

    return {
        "sick": column(0, 1, whole=True), "visits": column(0, 9, whole=True), "score": column(-3, 10),
        "a": column(-1, 1), "b": column(20, 90), "c": column(-1, 1), "hours": column(-1, 1),
    }  # fmt: skip


def rows_of(cells: dict[str, list[Any]], design: Design) -> FixedPointRows:
    return standard_rows(table_of(cells, design), design)


def random_view(design: Design, rng: np.random.Generator) -> Viewpoint:
    """A centre near or far, any whitening, bounds that clip nothing, some rows or all of them."""
    size = len(design.coefficient_names)
    whitening = rng.normal(size=(size, size)) * 10 ** rng.uniform(-2, 3)
    if rng.random() < 0.5:
        whitening = np.diag(np.exp(rng.normal(size=size))) * 10 ** rng.uniform(-1, 2)
    centre = rng.normal(size=size + (design.offset is not None)) * 10 ** rng.uniform(-2, 2)
    if rng.random() < 0.2:
        centre = centre * 0
    return on_grid(
        Viewpoint(
            tuple(centre.tolist()),
            tuple(map(tuple, whitening.tolist())),
            score_bound=float(10 ** rng.uniform(-2, 3)),
            information_bound=float(10 ** rng.uniform(-2, 3)),
            spread=float(rng.choice([1.0, 1.7, 10 ** rng.uniform(-4, 3)])),
            clip=float(rng.choice([6.0, 0.5, 3.0])),
        )
    )


def case(number: int) -> tuple[Design, np.random.Generator]:
    """A survey may be wrong by far: then rows are thousands of scales away, and clamped, or all at one place."""
    rng = np.random.default_rng(number)
    places = {name: (rng.uniform(-1, 30), 10 ** rng.uniform(-4, 2)) for name in NAMES}
    return design_of(*FORMULAS[number % len(FORMULAS)], places), rng


# Exactness


def slow_vectors(rows: FixedPointRows, design: Design, view: Viewpoint) -> tuple[np.ndarray, np.ndarray]:
    """The same, one row at a time: u and z as fractions, the rest as Python floats."""
    table = view.residual_table(design.family, design.response_range)
    scores, informations = [], []
    for n in range(rows.num_rows):
        x = [Fraction(int(value), 2**ROW_BITS) for value in rows.x[:, n]]
        if design.intercept:
            x = [Fraction(1), *x]
        exact_u = sum(Fraction(c) * value for c, value in zip(view.centre, x, strict=True))
        exact_z = [
            sum((Fraction(w) * value for w, value in zip(line, x, strict=False)), Fraction(0))
            for line in view.whitening
        ]
        u, z = float(exact_u), [float(value) for value in exact_z]
        assert Fraction(u) == exact_u
        assert [Fraction(value) for value in z] == exact_z
        columns = (table.mean, table.weight, table.low, table.high, table.largest)
        position = min(max((u - table.start) / table.step, 0.0), len(table.mean) - 1.0)
        left = min(math.floor(position), len(table.mean) - 2)
        mean, weight, low, high, largest = (
            float(column[left]) + (float(column[left + 1]) - float(column[left])) * (position - left)
            for column in columns
        )
        y = float(design.family.values(np.array(rows.y[n] * float(rows.grid.unit(1, 0))), view.spread))
        residual = min(max(y, low), high) - mean
        squared = 0.0
        for value in z:
            squared += value * value
        squared = max(squared, 1e-300)
        kappa = min(1.0, view.score_bound / max(largest * math.sqrt(squared), 1e-300))
        shorter = min(kappa, view.information_bound / max(weight * squared, 1e-300))
        score = kappa * residual * (view.longest / view.score_bound)
        information = math.sqrt(shorter * weight) * (view.longest / math.sqrt(view.information_bound))
        scores.append([round(value * score) for value in z])
        informations.append([round(value * information) for value in z])
    return np.array(scores).T, np.array(informations).T


@pytest.mark.parametrize("number", range(24))
def test_products_are_exact_and_every_row_is_what_it_is_alone(number: int) -> None:
    design, rng = case(number)
    rows = rows_of(random_cells(40, rng), design)
    view = random_view(design, rng)
    score, information = bounded_vectors(rows, design, view)
    slow_score, slow_information = slow_vectors(rows, design, view)
    np.testing.assert_array_equal(score, slow_score)
    np.testing.assert_array_equal(information, slow_information)
    for start, stop in ((0, 1), (7, 20), (39, 40)):
        part = FixedPointRows(rows.x[:, start:stop], rows.y[start:stop], rows.grid)
        np.testing.assert_array_equal(bounded_vectors(part, design, view)[0], score[:, start:stop])


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e3, 1e9, 1e200])
def test_multipliers_make_products_exact_and_stay_near(scale: float) -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4, 30)) * scale
    rounded = exact_multipliers(values)
    largest = np.abs(values).sum(axis=1).max()
    assert np.abs(rounded - values).max() <= max(2.0**-25, largest * LARGEST * 2.0**-30)
    reach = int(LARGEST * 2**ROW_BITS)
    x = rng.integers(-reach, reach + 1, (30, 500)) / 2**ROW_BITS
    x[:, :50] = rng.choice([-LARGEST, LARGEST], (30, 50))
    for line, found in zip(rounded[:2], rounded[:2] @ x, strict=True):
        for n in range(0, 500, 25):
            assert Fraction(found[n]) == sum(Fraction(a) * Fraction(b) for a, b in zip(line, x[:, n], strict=True))
    unrounded = rng.normal(size=(1, 30)) * 3  # without it they are not
    x = rng.integers(-(2**20), 2**20 + 1, (30, 50)) / 2**20
    exact = [sum(Fraction(a) * Fraction(b) for a, b in zip(unrounded[0], x[:, n], strict=True)) for n in range(50)]
    assert any(Fraction(found) != value for found, value in zip((unrounded @ x)[0], exact, strict=True))


def test_sums_are_exact_and_may_pass_64_bits() -> None:
    design, rng = case(0)
    batch = table_of(random_cells(3000, rng), design)
    view = replace(random_view(design, rng), score_bound=1e-3, information_bound=1e-3)
    sums = look_sums(batch, design, view)
    rows = standard_rows(batch, design)
    score, information = ([[int(n) for n in line] for line in v] for v in bounded_vectors(rows, design, view))
    upper = np.triu_indices(view.dimension)
    assert sums.values[0] == tuple(sum(line) for line in score)
    for values, lines in ((sums.values[1], information), (sums.values[2], score)):
        assert values == tuple(
            sum(a * b for a, b in zip(lines[i], lines[j], strict=True)) for i, j in zip(*upper, strict=True)
        )
    total = sums
    for _ in range(16):
        total = total + total
    assert total.num_rows == 3000 * 2**16
    assert max(max(block) for block in total.values) > 2**64
    assert total.values == tuple(tuple(value * 2**16 for value in block) for block in sums.values)


def test_rows_are_in_standard_units_and_clamped_far_from_their_centre() -> None:
    places = {"a": (0.25, 0.5), "c": (0.0, 0.5 / LARGEST), "score": (2.0, 4.0)}
    design = design_of("identity", "score ~ a + c", places)
    cells = {"a": as_bytes([0.25, 0.75, -1e9]), "c": as_bytes([0.0, 1.0, -0.25]), "score": as_bytes([2, 6, -3])}
    rows = rows_of(cells, design)
    np.testing.assert_allclose(rows.x / 2.0**ROW_BITS, [[0, 1, -2.5], [0, LARGEST, -LARGEST / 2]], rtol=1e-8)
    np.testing.assert_allclose(rows.y * float(rows.grid.unit(1, 0)), [0, 1, -1.25], atol=2.0**-18)


# Lengths and directions


def too_long(vectors: np.ndarray) -> np.ndarray:
    return np.array([sum(int(n) ** 2 for n in vector) > 4**VECTOR_BITS for vector in vectors.T])


def off_the_line(vectors: np.ndarray, z: np.ndarray) -> float:
    """How far integer vectors are from the lines of their rows."""
    unit = z / np.maximum(np.sqrt((z * z).sum(axis=0)), 1e-300)
    return float(np.sqrt(((vectors - unit * (vectors * unit).sum(axis=0)) ** 2).sum(axis=0)).max())


@settings(max_examples=50, deadline=None)
@given(number=st.integers(0, 10**6))
def test_every_row_becomes_two_bounded_vectors_on_one_line(number: int) -> None:
    """Whatever row and view; and the filter, though it is there, has nothing to do."""
    design, rng = case(number)
    rows = rows_of(random_cells(60, rng), design)
    view = random_view(design, rng)
    longest = []

    def watched(vectors: np.ndarray) -> np.ndarray:
        longest.append(np.sqrt((vectors * vectors).sum(axis=0).max()))
        return held(vectors)

    held = bounded_rows._held
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_rows, "_held", watched)
        score, information = bounded_vectors(rows, design, view)
    assert max(longest) <= 2.0**VECTOR_BITS - math.sqrt(view.dimension) / 2 + 1e-3
    x = rows.x / 2.0**ROW_BITS
    if design.intercept:
        x = np.concatenate([np.ones((1, rows.num_rows)), x])
    z = view.whitening_matrix @ x[: view.dimension]
    for vectors in (score, information):
        assert not too_long(vectors).any()
        assert (vectors == np.rint(vectors)).all()
        assert off_the_line(vectors, z) <= math.sqrt(view.dimension) / 2 + 1e-6


def test_vectors_that_are_too_long_become_zero() -> None:
    limit = 2.0**VECTOR_BITS
    vectors = np.array([[limit, limit, -limit, limit + 1, np.nan, np.inf, 1e300, 3.0], [0, 1, 0, 0, 1, 0, 1e300, 4.0]])
    with np.errstate(all="ignore"):  # as its caller has it
        held = bounded_rows._held(vectors)
    np.testing.assert_array_equal(held, [[limit, 0, -limit, 0, 0, 0, 0, 3], [0, 0, 0, 0, 0, 0, 0, 4]])
    assert not too_long(held).any()
    inside = vectors[:, [0, 2, 7]]
    assert bounded_rows._held(inside) is inside


def test_the_filter_holds_when_a_bound_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual table that understates its largest residual makes vectors too long: they are dropped, not released."""
    design, rng = case(0)
    rows = rows_of(random_cells(500, rng), design)
    view = replace(random_view(design, rng), score_bound=0.1, information_bound=1e3)
    before, _ = bounded_vectors(rows, design, view)
    monkeypatch.setattr(ResidualTable, "largest", property(lambda table: np.maximum(table.mean, 1 - table.mean) / 2))
    after, _ = bounded_vectors(rows, design, view)
    assert not too_long(after).any()
    assert (before != 0).any(axis=0).sum() > (after != 0).any(axis=0).sum()
    monkeypatch.setattr(bounded_rows, "_held", lambda vectors: vectors)
    assert too_long(bounded_vectors(rows, design, view)[0]).any()  # so the filter had something to do


# Edge cases


def test_a_row_at_the_origin_contributes_nothing() -> None:
    for link, formula in (f for f in FORMULAS if "- 1" in f[1] and "b" not in f[1]):
        design = design_of(link, formula)
        cells = {name: as_bytes([0.0]) for name in NAMES} | {"hours": as_bytes([1.0])}
        for seed in range(20):
            view = random_view(design, np.random.default_rng(seed))
            for vectors in bounded_vectors(rows_of(cells, design), design, view):
                assert not vectors.any()


EXTREMES: dict[str, dict[str, Any]] = {
    "u far outside the table": {"centre": 1e9},
    "u at the end": {"centre": 24.0},
    "tiny spread": {"spread": 1e-12},
    "huge spread": {"spread": 1e12},
    "tiny clip": {"clip": 1e-9},
    "huge clip": {"clip": 1e9},
    "tiny score bound": {"score_bound": 1e-200},
    "huge score bound": {"score_bound": 1e200},
    "tiny information bound": {"information_bound": 1e-200},
    "huge information bound": {"information_bound": 1e200},
    "bounds that overflow": {"score_bound": 5e-324, "information_bound": 5e-324},
    "zero whitening": {"whitening": 0.0},
    "huge whitening": {"whitening": 1e150},
    "whitening that overflows": {"whitening": 1e300},
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize(("link", "formula"), FORMULAS[::3], ids=str)
def test_extreme_viewpoints_are_bounded_and_silent(name: str, link: str, formula: str) -> None:
    """No warning either (warnings are errors here): one that only some rows cause would say something about them."""
    design = design_of(link, formula)
    rng = np.random.default_rng(4)
    changes = dict(EXTREMES[name])
    view = random_view(design, rng)
    if "centre" in changes:
        changes["centre"] = tuple(changes["centre"] * value for value in np.sign(rng.normal(size=len(view.centre))))
    if "whitening" in changes:
        changes["whitening"] = tuple(map(tuple, (changes["whitening"] * np.eye(view.dimension)).tolist()))
    rows = rows_of(random_cells(200, rng), design)
    for vectors in bounded_vectors(rows, design, on_grid(replace(view, **changes))):
        assert np.isfinite(vectors).all()
        assert not too_long(vectors).any()


def test_far_predictors_are_as_those_at_the_end_of_the_table() -> None:
    ends = {"logit": ((0, 1), 24.0), "log": ((0, 9), math.log(9)), "identity": ((-1, 1), 3)}
    ends |= {"probit": ((0, 1), 7.0), "cloglog": ((0, 1), 3.0)}
    for link, (response, end) in ends.items():
        table = FAMILIES[link].residual_table(1.0, 6.0, response)
        last = table.start + table.step * (len(table.mean) - 1)
        assert last >= end - 1e-9
        columns = (table.mean, table.weight, table.low, table.high)
        for far, near in ((1e9, last), (-1e9, table.start)):
            for a, b in zip(table.at(np.array([far]), *columns), table.at(np.array([near]), *columns), strict=True):
                assert a == pytest.approx(b, rel=1e-9)


@pytest.mark.parametrize("cell", [None, b"NaN", b"1e999", b"secret"], ids=str)
def test_rubbish_is_the_fill_value(cell: Any) -> None:
    fills = {"sick": 0, "visits": 1, "score": 2, "a": 0.25, "b": 30, "c": 0, "hours": 0}
    for number in range(0, 12, 3):
        design, rng = case(number)
        view = random_view(design, rng)
        rubbish = table_of({name: [cell] for name in NAMES}, design)
        filled = table_of({name: as_bytes([fills[name]]) for name in NAMES}, design)
        assert look_sums(rubbish, design, view) == look_sums(filled, design, view)


def test_the_largest_residual_covers_every_outcome_between_the_points_of_the_table() -> None:
    rng = np.random.default_rng(6)
    cases = [("logit", (0, 1)), ("probit", (0, 1)), ("cloglog", (0, 1)), ("log", (0, 1)), ("log", (0, 40))]
    for link, response in (*cases, ("identity", (-1, 1))):
        for spread, clip in product((1e-3, 0.8, 1.0, 4.0), (0.5, 6.0)):
            table = FAMILIES[link].residual_table(spread, clip, response)
            u = rng.uniform(table.start - 1, table.start + table.step * len(table.mean) + 1, 5000)
            mean, weight, low, high, largest = table.at(
                u, table.mean, table.weight, table.low, table.high, table.largest
            )
            assert (weight >= 0).all()
            assert (low <= high).all()
            scale = np.maximum(np.abs(mean), largest)
            assert (np.maximum(high - mean, mean - low) <= largest + 1e-12 * scale).all()


def test_the_table_of_linear_outcomes_is_to_the_last_bit_that_of_scipys_distribution() -> None:
    """Which takes long to import; but integers of a release depend on every bit."""
    from scipy.stats import norm

    table = FAMILIES["identity"].residual_table(0.3, 4.3, (-1, 1))
    np.testing.assert_array_equal(table.weight, (2 * norm.cdf(4.3) - 1) / 0.3)


@pytest.mark.parametrize("spread", [0.5, 1.0, 1.001, 1.7, 4.0, 60.0])
@pytest.mark.parametrize("upper", [1, 40, 700])
def test_the_mean_of_a_clipped_count_is_the_sum_over_all_counts(spread: float, upper: int) -> None:
    from scipy.stats import nbinom, poisson

    table = FAMILIES["log"].residual_table(spread, 4.3, (0, upper))
    few = np.arange(0, len(table.mean), 97)
    mu = np.exp(table.start + table.step * few)[:, None]
    beyond = poisson(mu) if spread <= 1 else nbinom(mu / (spread - 1), 1 / spread)
    counts, cap = np.arange(upper), table.high[few]
    # E[min(y, c)] is the sum of P(y > j) over j < c, the last one in part
    expected = np.sum(beyond.sf(counts) * np.clip(cap[:, None] - counts, 0, 1), axis=1)
    np.testing.assert_allclose(table.mean[few], expected, rtol=1e-11)


def test_a_table_of_large_counts_takes_no_longer_than_one_of_small_counts() -> None:
    table = FAMILIES["log"].residual_table(3.0, 4.3, (0, 10**9))  # not one count after another
    assert np.isfinite(table.mean).all()
    assert (np.diff(table.mean) > 0).all()
    assert (table.weight > 0).all()


# Sensitivity over real rows


def features(rows: FixedPointRows, design: Design, view: Viewpoint) -> np.ndarray:
    """Integers that a row adds to a look, (rows, coordinates): score, upper triangles of information and square."""
    score, information = bounded_vectors(rows, design, view)
    i, j = np.triu_indices(view.dimension)
    return np.concatenate([score, information[i] * information[j], score[i] * score[j]]).T


def noise_of(noise: LookNoise, view: Viewpoint) -> np.ndarray:
    """One number a coordinate, in grid steps: the square of the score has sqrt(2) times the score's noise."""
    return np.concatenate(
        [
            monomial_stddevs(block, Fraction(target), view.dimension)
            for block, target in zip(LOOK_BLOCKS, noise.grid_stddevs, strict=True)
        ]
    )


def exact_move(first: np.ndarray, second: np.ndarray, stddevs: np.ndarray) -> Fraction:
    """Squared distance in noise standard deviations: integers and the sampler's scales as rationals."""
    return sum(
        ((Fraction(int(a)) - Fraction(int(b))) / Fraction(s)) ** 2
        for a, b, s in zip(first, second, stddevs, strict=True)
    )


def worst_pair(values: np.ndarray, stddevs: np.ndarray, limit: Fraction) -> tuple[float, int, int, int]:
    """Check every pair; return the worst and their number.

    Float64 errs by less than 1e-13 of the distance, so that pairs 1e-6 below the limit are below it. All others, and
    the worst in any case, are decided in rationals.
    """
    first, second = np.triu_indices(len(values), 1)
    moved = (((values[first] - values[second]) / stddevs) ** 2).sum(axis=1)
    close = np.flatnonzero(moved > float(limit) * (1 - 1e-6))
    worst = int(np.argmax(moved))
    for n in {*close.tolist(), worst}:
        assert exact_move(values[first[n]], values[second[n]], stddevs) <= limit
    assert moved[worst] <= float(limit)
    return float(moved[worst] / float(limit)), int(first[worst]), int(second[worst]), len(first)


def climb(
    cells: dict[str, list[Any]], start: tuple[int, int], design: Design, view: Viewpoint,
    stddevs: np.ndarray, limit: Fraction, rng: np.random.Generator,
) -> float:  # fmt: skip
    """Improve a pair of rows by changing cells at random, forty candidates at a time."""
    bounds = {"sick": (0, 1), "visits": (0, 9), "score": (-3, 10), "b": (20, 90)}
    current = [{name: column[n] for name, column in cells.items()} for n in start]
    best = 0.0
    for step in range(12):
        candidates: list[list[dict[str, Any]]] = [current]
        for _ in range(40):
            pair = [dict(row) for row in current]
            for row in pair:
                for name in rng.choice(NAMES, rng.integers(0, 3)):
                    low, high = bounds.get(str(name), (-1, 1))
                    try:
                        middle = float(row[str(name)])
                    except (TypeError, ValueError):
                        middle = low
                    moved = middle + rng.normal() * (high - low) * 0.7**step
                    row[str(name)] = as_bytes([np.rint(moved) if name in ("sick", "visits") else moved])[0]
            candidates.append(pair)
        flat = {name: [row[name] for pair in candidates for row in pair] for name in NAMES}
        values = features(rows_of(flat, design), design, view)
        moved = (((values[::2] - values[1::2]) / stddevs) ** 2).sum(axis=1)
        winner = int(np.argmax(moved))
        current = candidates[winner]
        best = float(moved[winner]) / float(limit)
        assert exact_move(values[2 * winner], values[2 * winner + 1], stddevs) <= limit
    return best


@pytest.mark.parametrize("number", range(24))
def test_no_two_rows_move_a_look_by_more_than_its_mu(number: int) -> None:
    """24 designs and viewpoints, 1,225 pairs each, then 480 more while climbing from the worst: above 40,000 pairs."""
    design, rng = case(number)
    view = random_view(design, rng)
    noise = look_noise(float(10 ** rng.uniform(-1, 0.5)), view.dimension, (0.2, 0.1)[number % 2])
    stddevs = noise_of(noise, view)
    cells = random_cells(50, rng)
    limit = Fraction(noise.mu) ** 2
    values = features(rows_of(cells, design), design, view)
    _, first, second, pairs = worst_pair(values, stddevs, limit)
    assert pairs == 1225
    climb(cells, (first, second), design, view, stddevs, limit, rng)


def witness(last: bool, shrunk: str | None = None, link: str = "logit") -> float:
    """Squared move over mu^2 of rows with two outcomes that attain the bound: the offset moves u alone.

    Last look: opposite scores, at u = 0.75 with all of the information and at u = 24 with none. Earlier: two rows at
    u = 0.75 with the cosine of the proof. ``shrunk`` names a noise that is made 1 % smaller.
    """
    design = design_of(link, "sick ~ a + c - 1 + offset(hours)")
    table = design.family.residual_table(1.0, 6.0, design.response_range)
    weight, largest = table.at(np.array([0.75]), table.weight, table.largest)
    bounds = 2 * float(largest[0]), 4 * float(weight[0])  # rows of length 2 after whitening reach both
    view = on_grid(Viewpoint((0.0, 0.0, 24.0), ((4.0, 0.0), (0.0, 4.0)), *bounds, 1.0, 6.0))
    noise = look_noise(0.7, 2, 0.1 if last else 0.2)
    y, x = noise.score**-2, noise.information**-2
    cosine = -1.0 if last else -y / (y + 2 * x)
    a, c = 0.5 * cosine, 0.5 * math.sqrt(1 - cosine * cosine)
    hours = [0.75 / 24, 1.0 if last else 0.75 / 24]
    cells = {"sick": as_bytes([0, 0]), "a": as_bytes([0.5, a]), "c": as_bytes([0, c]), "hours": as_bytes(hours)}
    values = features(rows_of(cells, design), design, view)
    used = noise if shrunk is None else replace(noise, **{shrunk: getattr(noise, shrunk) * 0.99})
    return float(exact_move(values[0], values[1], noise_of(used, view)) / Fraction(noise.mu) ** 2)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
@pytest.mark.parametrize("last", [True, False])
def test_real_rows_attain_the_bound(last: bool, link: str) -> None:
    assert 0.999 < witness(last, link=link) <= 1


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("shrunk", ["score", "information"])
def test_the_search_rejects_less_noise(shrunk: str, last: bool) -> None:
    assert witness(last, shrunk) > 1.001
