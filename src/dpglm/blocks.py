"""Statistic blocks: y^q times the k-th symmetric tensor power of x.

A block is stored as plain monomials, in the order of ``itertools.combinations_with_replacement``. In *isometric*
coordinates each monomial is multiplied by the square root of its multinomial coefficient, and then inner
products are a kernel (model of the sensitivity, docs/moments.md section 2)::

    <phi(x, y), phi(x', y')> = (y y')^q <x, x'>^k
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError

LARGEST_DEGREE = 6
LARGEST_Y_POWER = 2
MOST_MONOMIALS = 100_000  # of all blocks of a look together; a file may hold as many of one


@dataclass(frozen=True, order=True)
class BlockShape:
    """A block (y power, degree in x), for example (1, 1) for the sums of y x_j.

    >>> BlockShape(0, 2).monomials(2)
    ((0, 0), (0, 1), (1, 1))
    >>> BlockShape(0, 2).multiplicities(2).tolist()
    [1, 2, 1]
    """

    y_power: int
    degree: int

    def __post_init__(self) -> None:
        whole = isinstance(self.y_power, int) and isinstance(self.degree, int)
        if not whole or not 0 <= self.y_power <= LARGEST_Y_POWER or not 0 <= self.degree <= LARGEST_DEGREE:
            raise InputError(
                "block",
                (self.y_power, self.degree),
                f"y power is 0 to {LARGEST_Y_POWER}, degree 0 to {LARGEST_DEGREE}",
                "choose a smaller block",
            )
        if self.y_power == self.degree == 0:
            raise InputError("block", (0, 0), "is the number of rows, which is public already", "leave it out")

    @property
    def order(self) -> int:
        """How many grid numbers are multiplied in one monomial."""
        return self.y_power + self.degree

    def monomials(self, dimension: int) -> tuple[tuple[int, ...], ...]:
        """The distinct monomials of x, each as its sorted column indices."""
        return _monomials(dimension, self.degree)

    def multiplicities(self, dimension: int) -> npt.NDArray[np.int64]:
        """Multinomial coefficient of each monomial."""
        return _multiplicities(dimension, self.degree)

    def size(self, dimension: int) -> int:
        """How many monomials there are, without making any."""
        return math.comb(dimension + self.degree - 1, self.degree)

    def features(self, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Isometric statistics of rows: x is (rows, dimension), y is (rows,). The slow, plain definition."""
        dimension = x.shape[1]
        columns = [np.prod(x[:, list(indices)], axis=1) for indices in self.monomials(dimension)]
        plain = np.stack(columns, axis=1) * (y**self.y_power)[:, None]
        return plain * np.sqrt(self.multiplicities(dimension))


def check_blocks(pairs: object) -> tuple[BlockShape, ...]:
    """A user's list of (y power, degree) pairs as shapes, or an InputError."""
    try:
        shapes = tuple(BlockShape(*pair) for pair in pairs)  # type: ignore[attr-defined]
    except TypeError:
        raise InputError(
            "statistics", pairs, "must be 'full', 'paper' or (y power, degree) pairs", "correct it"
        ) from None
    if not shapes or len(set(shapes)) != len(shapes):
        raise InputError("statistics", pairs, "must name at least one block, and none twice", "correct the list")
    return shapes


def refuse_many_monomials(blocks: Sequence[BlockShape], dimension: int) -> None:
    """Before any is made: a block of degree 6 has 3 * 10^11 over 250 columns."""
    number = sum(block.size(dimension) for block in blocks)
    if number > MOST_MONOMIALS:
        rule = f"the blocks have {number:,} monomials of {dimension} columns, at most {MOST_MONOMIALS:,} are allowed"
        raise InputError(
            "statistics", [(b.y_power, b.degree) for b in blocks], rule, "use smaller degrees or fewer terms"
        )


@lru_cache(maxsize=64)
def _monomials(dimension: int, degree: int) -> tuple[tuple[int, ...], ...]:
    return tuple(combinations_with_replacement(range(dimension), degree))


@lru_cache(maxsize=64)
def _multiplicities(dimension: int, degree: int) -> npt.NDArray[np.int64]:
    counts = [
        math.factorial(degree) // math.prod(math.factorial(repeats) for repeats in Counter(indices).values())
        for indices in _monomials(dimension, degree)
    ]
    result = np.array(counts, dtype=np.int64)
    result.setflags(write=False)
    return result
