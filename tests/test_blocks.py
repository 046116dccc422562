"""Blocks: the kernel identity of isometric coordinates, and that the paper's printed multipliers do not keep it."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from dpglm.blocks import LARGEST_DEGREE, LARGEST_Y_POWER, BlockShape, check_blocks
from dpglm.errors import InputError
from dpglm.families import FAMILIES

SHAPES = [
    BlockShape(y_power, degree)
    for y_power in range(LARGEST_Y_POWER + 1)
    for degree in range(LARGEST_DEGREE + 1)
    if y_power + degree
]


def rows(seed: int, dimension: int, size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, dimension)), rng.normal(size=size)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inner_products_are_a_kernel(shape: BlockShape, dimension: int) -> None:
    # <phi(x, y), phi(x', y')> = (y y')^q <x, x'>^k; seed 1.
    x, y = rows(1, dimension)
    features = shape.features(x, y)
    kernel = np.outer(y, y) ** shape.y_power * (x @ x.T) ** shape.degree
    np.testing.assert_allclose(features @ features.T, kernel, rtol=1e-10, atol=1e-10 * np.abs(kernel).max())


@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_the_papers_printed_multipliers_of_degree_3_fail_the_identity(dimension: int) -> None:
    # The paper prints 1, sqrt 3, sqrt 3 for x_i^3, x_i^2 x_j, x_i x_j x_k: the last one must be sqrt 6 (an erratum
    # that shows from three columns on). With two columns there is no such monomial, and both agree. Seed 2.
    shape = BlockShape(0, 3)
    x, y = rows(2, dimension)
    kernel = (x @ x.T) ** 3
    distinct = np.array([len(set(indices)) for indices in shape.monomials(dimension)])
    printed = np.select([distinct == 1, distinct == 2], [1.0, math.sqrt(3)], math.sqrt(3))
    right = np.select([distinct == 1, distinct == 2], [1.0, math.sqrt(3)], math.sqrt(6))
    plain = shape.features(x, y) / np.sqrt(shape.multiplicities(dimension))
    error = [np.abs((plain * scale) @ (plain * scale).T - kernel).max() for scale in (printed, right)]
    assert error[1] < 1e-9
    assert (error[0] > 1e-3) == (dimension > 2)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("degree", range(LARGEST_DEGREE + 1))
def test_monomials_and_multiplicities_are_those_of_the_expanded_power(degree: int, dimension: int) -> None:
    shape = BlockShape(1, degree)
    expanded = Counter(tuple(sorted(indices)) for indices in itertools.product(range(dimension), repeat=degree))
    monomials = shape.monomials(dimension)
    assert dict(zip(monomials, shape.multiplicities(dimension).tolist(), strict=True)) == dict(expanded)
    assert list(monomials) == sorted(monomials)
    assert shape.size(dimension) == len(monomials)
    assert shape.multiplicities(dimension).sum() == dimension**degree


def test_multiplicities_cannot_be_changed_by_a_caller() -> None:
    with pytest.raises(ValueError, match="read-only"):
        BlockShape(0, 2).multiplicities(3)[0] = 5


def test_order_counts_the_numbers_that_are_multiplied() -> None:
    assert [shape.order for shape in (BlockShape(2, 0), BlockShape(0, 2), BlockShape(1, 2))] == [2, 2, 3]


@pytest.mark.parametrize("pair", [(-1, 1), (3, 0), (0, 7), (0, -1), (1.0, 1), ("1", 1), (0, None)])
def test_a_block_out_of_range_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="y power is 0 to 2, degree 0 to 6"):
        BlockShape(*pair)


def test_the_number_of_rows_is_no_block() -> None:
    with pytest.raises(InputError, match="public already"):
        BlockShape(0, 0)


@pytest.mark.parametrize(
    "pairs", [[], [(1, 1), (1, 1)], [(1,)], [(1, 1, 1)], 5, None, [5], [(0, 0)], [(9, 9)], "full", [("a", "b")]]
)
def test_a_list_that_names_no_blocks_is_refused_in_one_line(pairs: object) -> None:
    with pytest.raises(InputError) as caught:
        check_blocks(pairs)
    assert str(caught.value).splitlines() == [str(caught.value)]


def test_pairs_become_shapes_in_their_order() -> None:
    assert check_blocks([(1, 1), (0, 2)]) == (BlockShape(1, 1), BlockShape(0, 2))


@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_familys_paper_blocks_are_among_its_full_ones(name: str) -> None:
    family = FAMILIES[name]
    assert set(family.blocks("paper")) < set(family.blocks("full"))
    assert family.blocks([(1, 1)]) == (BlockShape(1, 1),)
    with pytest.raises(InputError, match="'full', 'paper' or a list of pairs"):
        family.blocks("papers")
