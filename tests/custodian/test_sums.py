"""Block sums are exact integers: against a slow sum in Python integers, at the largest magnitudes, in any split."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpglm.blocks import BlockShape
from dpglm.custodian import mechanism, sums
from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.rows import FixedPointRows
from dpglm.custodian.sums import EXACT_BITS, BlockSums, block_sums, rows_at_once, zero_sums
from dpglm.errors import InputError
from dpglm.formula import build_design
from dpglm.grid import Grid
from dpglm.schema import Schema

SHAPES = [BlockShape(q, k) for q in range(3) for k in range(7) if q + k]


def slow_sums(x: np.ndarray, y: np.ndarray, block: BlockShape) -> tuple[int, ...]:
    """The definition: one Python integer product after the other."""
    rows = [([int(value) for value in column], int(outcome)) for column, outcome in zip(x.T, y, strict=True)]
    return tuple(
        sum(outcome**block.y_power * math.prod(row[index] for index in indices) for row, outcome in rows)
        for indices in itertools.combinations_with_replacement(range(len(x)), block.degree)
    )


def random_rows(rng: np.random.Generator, dimension: int, count: int, exponent: int) -> FixedPointRows:
    largest = 2**exponent
    x = rng.integers(-largest, largest, (dimension, count), endpoint=True).astype(np.float64)
    y = rng.integers(-largest, largest, count, endpoint=True).astype(np.float64)
    return FixedPointRows(x, y, Grid(exponent, 0))


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("block", SHAPES, ids=lambda block: f"{block.y_power}{block.degree}")
def test_equal_to_slow_integer_sums(block: BlockShape, dimension: int) -> None:
    rng = np.random.default_rng([block.y_power, block.degree, dimension])
    rows = random_rows(rng, dimension, 9, min(20, 50 // block.order))
    assert block_sums(rows, (block,)).values == (slow_sums(rows.x, rows.y, block),)


def test_several_blocks_at_once_and_far_more_rows_than_one_product_holds() -> None:
    blocks = (BlockShape(1, 0), BlockShape(0, 1), BlockShape(1, 2), BlockShape(0, 3), BlockShape(2, 0))
    rows = random_rows(np.random.default_rng(1), 2, 3000, 17)
    assert rows_at_once(blocks, rows.grid) == 4  # 51 bits a product: 750 products
    expected = tuple(slow_sums(rows.x, rows.y, block) for block in blocks)
    assert block_sums(rows, blocks) == BlockSums(blocks, expected, 3000)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_64_bits_are_exact(sign: int) -> None:
    block, exponent, count = BlockShape(0, 3), 17, 10_001
    rows = FixedPointRows(np.full((1, count), sign * 2.0**exponent), np.zeros(count), Grid(exponent, 0))
    once = block_sums(rows, (block,))
    assert once.values == ((sign * count * 2**51,),)
    assert abs(once.values[0][0]) > 2**64
    total = zero_sums((block,), 1)
    for _ in range(1000):
        total += once
    assert total == BlockSums((block,), ((sign * 1000 * count * 2**51,),), 1000 * count)


def test_an_odd_unit_survives_next_to_the_largest_numbers() -> None:
    """2^53 + 1 has no float64: the last unit is lost as soon as anything larger is added up in floating point."""
    block, largest = BlockShape(0, 1), 2**20
    rows_needed = 2**34  # of the largest number; as merged sums, since nobody has that much memory
    many = BlockSums((block,), ((rows_needed * largest,),), rows_needed)
    one = block_sums(FixedPointRows(np.ones((1, 1)), np.zeros(1), Grid(20, 0)), (block,))
    assert (many + one).values == ((2**54 + 1,),)
    assert float(2**54) + 1.0 == 2.0**54


def test_chunk_borders_at_the_largest_magnitude(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_CHUNKS_IN_64_BITS", 2)
    block, grid = BlockShape(0, 2), Grid(20, 0)
    step = rows_at_once((block,), grid)
    assert step == 2**13
    for count in (0, 1, step - 1, step, step + 1, 2 * step, 2 * step + 1, 5 * step + 3):
        x = np.full((2, count), 2.0**20)
        x[1] *= -1
        assert block_sums(FixedPointRows(x, np.zeros(count), grid), (block,)).values == (
            (count * 2**40, -count * 2**40, count * 2**40),
        )


def test_merging_does_not_depend_on_the_split() -> None:
    blocks = (BlockShape(1, 1), BlockShape(0, 2), BlockShape(1, 2))
    rng = np.random.default_rng(2)
    rows = random_rows(rng, 3, 500, 14)
    whole = block_sums(rows, blocks)
    for parts in (2, 7, 500):
        borders = np.sort(rng.integers(0, 501, parts - 1))
        pieces = [
            block_sums(FixedPointRows(x, y, rows.grid), blocks)
            for x, y in zip(np.split(rows.x, borders, axis=1), np.split(rows.y, borders), strict=True)
        ]
        rng.shuffle(pieces)
        assert sum(pieces, zero_sums(blocks, 3)) == whole
    assert whole + zero_sums(blocks, 3) == whole


def test_sums_of_other_blocks_do_not_merge() -> None:
    with pytest.raises(ValueError, match="zip"):
        zero_sums((BlockShape(0, 1),), 2) + zero_sums((BlockShape(0, 1),), 3)


def test_row_order_changes_nothing_but_would_change_sums_of_unrounded_floats() -> None:
    """The planted bug: sums of the unrounded numbers differ between orders of the same rows."""
    rng = np.random.default_rng(3)
    x, block, grid = rng.uniform(-1, 1, 4000), BlockShape(0, 2), Grid(20, 0)
    orders = [rng.permutation(len(x)) for _ in range(10)]

    def exact(numbers: np.ndarray) -> tuple[tuple[int, ...], ...]:
        rounded = np.rint(numbers * 2.0**20)[None]
        return block_sums(FixedPointRows(rounded, np.zeros(len(numbers)), grid), (block,)).values

    def planted(numbers: np.ndarray) -> float:
        return float(np.cumsum(numbers * numbers)[-1])

    assert len({exact(x[order]) for order in orders}) == 1
    assert len({planted(x[order]) for order in orders}) > 1


def possible_grids() -> list[tuple[int, int]]:
    """(order of the longest block, bits) of every grid that ``mechanism._grid`` can choose."""
    return [
        (order, exponent)
        for order in range(1, 9)
        for exponent in range(1, min(mechanism._FINEST, mechanism._MOST_PRODUCT_BITS // order) + 1)
    ]


def test_no_partial_sum_can_exceed_what_float64_and_int64_hold() -> None:
    grids = possible_grids()
    assert len(grids) > 50
    for order, exponent in grids:
        rows = rows_at_once((BlockShape(min(order, 2), order - min(order, 2)),), Grid(exponent, 0))
        largest_product = (2**exponent) ** order
        assert rows >= 1
        assert rows * largest_product <= 2**EXACT_BITS == 2**53
        assert sums._CHUNKS_IN_64_BITS * rows * largest_product < 2**63


def test_one_more_doubling_of_rows_would_not_be_exact() -> None:
    """The planted bug: with twice the rows a product, an odd total above 2^53 loses its unit."""
    exponent, block = 20, BlockShape(0, 2)
    x = np.full((1, 2 * rows_at_once((block,), Grid(exponent, 0)) + 1), 2.0**exponent)
    x[0, -1] = 1.0
    rows = FixedPointRows(x, np.zeros(x.shape[1]), Grid(exponent, 0))
    assert block_sums(rows, (block,)).values == ((2**54 + 1,),)
    assert int(sums._chunk_sums(rows.x, rows.y, block)[0]) == 2**54


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_the_mechanism_stays_on_these_grids(family: str) -> None:
    grids, found = possible_grids(), set()
    for epsilon, upper in itertools.product([1e-3, 1.0, 50.0, 1000.0], [1, 20, 3 * 10**6]):
        schema = Schema.from_dict(
            {
                "dataset": {"name": "t", "rows": 1000},
                "columns": {
                    "a": {"type": "numeric", "lower": -1, "upper": 1},
                    "sick": {"type": "binary", "levels": [0, 1], "fill": 0},
                    "visits": {"type": "count", "upper": upper},
                    "score": {"type": "numeric", "lower": 0, "upper": upper},
                },
            }
        )
        outcome = {"logistic": "sick", "poisson": "visits", "linear": "score"}[family]
        for statistics in ("full", [(0, 1), (0, 4)], [(2, 6)]):
            try:
                chosen = calibrate(
                    build_design(f"{outcome} ~ a", schema, family), epsilon, 1e-6, None, "equal", statistics
                )
            except InputError:
                continue
            order = max(block.order for block in chosen.blocks)
            assert (order, chosen.grid.exponent) in grids
            assert (
                max(map(abs, build_design(f"{outcome} ~ a", schema, family).response_range))
                <= 2**chosen.grid.response_exponent
            )
            found.add((order, chosen.grid.exponent))
    assert len(found) >= 3
