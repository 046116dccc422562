"""Everything about a release that is known before a row is read: blocks, noise, grid and the certified guarantee.

Guarantee: adding discrete Gaussian noise with ``Mechanism.grid_stddevs`` to the exact integer sums of rows in the
declared ball and response range costs at most ``Mechanism.mu`` for one replaced row (docs/privacy.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpglm.blocks import BlockShape, refuse_many_monomials
from dpglm.custodian.allocation import allocate
from dpglm.custodian.noise import LARGEST_GRID_NOISE
from dpglm.custodian.sensitivity import sensitivity
from dpglm.errors import InputError
from dpglm.families import LARGEST_COUNT
from dpglm.formula import Design
from dpglm.grid import Grid
from dpglm.privacy import SMALLEST_GRID_NOISE, Privacy, check_epsilon_delta, compose, finite_number, mu_of
from dpglm.protection import ONE_ROW_REPLACED

_FINEST = 20  # bits of the grid, where nothing else limits them
_COARSEST = 5
_PRODUCT_BITS = 42  # of the longest monomial: 2^11 rows go through one exact matrix product
_MOST_PRODUCT_BITS = 48  # where large budgets need a finer grid, at fewer rows a product


@dataclass(frozen=True)
class Mechanism:
    """A calibrated mechanism. ``noise_stddevs`` are isometric, in data units.

    ``grid_stddevs`` one a monomial, in grid units.
    """

    blocks: tuple[BlockShape, ...]
    allocation: str
    noise_stddevs: tuple[float, ...]
    grid_stddevs: tuple[tuple[float, ...], ...]
    multiplicities: tuple[tuple[int, ...], ...]
    grid: Grid
    radius: float
    mu: float

    @property
    def smallest_grid_noise(self) -> float:
        return min(map(min, self.grid_stddevs))

    @property
    def coordinates(self) -> int:
        return sum(map(len, self.grid_stddevs))

    def guarantee(self, epsilon: float, delta: float) -> Privacy:
        """What a release with this noise promises."""
        return Privacy.certified(
            epsilon, delta, compose([self.mu]), [(self.mu, self.smallest_grid_noise, self.coordinates)]
        )


def calibrate(
    design: Design, epsilon: object, delta: object, radius: object, allocation: object, statistics: object
) -> Mechanism:
    """Choose noise and grid so that the moments cost at most (epsilon, delta). Reads no rows."""
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    dataset = design.schema.dataset
    if dataset.protection != ONE_ROW_REPLACED or dataset.rows is None:
        rule = "belongs to method='looks': moments protect one replaced row"
        raise InputError("neighbouring relation", dataset.protection.relation, rule, "declare rows, or use looks")
    if design.family.coding == "count" and design.response_range[1] > LARGEST_COUNT:
        rule = (
            f"is a count with an upper bound of {design.response_range[1]:,.0f}, moments take {LARGEST_COUNT:,} at most"
        )
        raise InputError("outcome", design.outcome.name, rule, "declare a smaller one: larger counts are clamped to it")
    for column in design.table_columns:
        if column.is_wide:
            rule = "has no declared bounds, which moments are scaled by"
            raise InputError("column", column.name, rule, "declare lower and upper, or use method='looks'")
    bounded = _radius(radius, design)
    blocks = design.family.blocks(statistics)
    refuse_many_monomials(blocks, design.dimension)
    mu = mu_of(epsilon, delta)
    rows, dimension, response = dataset.rows, design.dimension, design.response_range
    ratios = allocate(allocation, design.family, blocks, dimension, rows, mu, bounded, response)
    # mu is inversely proportional to the noise: scale the ratios so that the certified bound is the target.
    at_ratios = math.sqrt(sensitivity(blocks, ratios, bounded, response).mu_squared)
    # The bound is found anew for the final noise, within 1e-11 of the same: the margin keeps it at or below the target.
    noise = tuple(ratio * at_ratios / mu * (1 + 1e-10) for ratio in ratios)
    grid = _grid(design, blocks, noise, epsilon)
    grid_stddevs = tuple(
        _grid_stddevs(block, stddev, grid, dimension) for block, stddev in zip(blocks, noise, strict=True)
    )
    achieved = math.sqrt(sensitivity(blocks, noise, bounded, response).mu_squared) * (1 + 1e-15)
    multiplicities = tuple(tuple(block.multiplicities(dimension).tolist()) for block in blocks)
    return Mechanism(blocks, str(allocation), noise, grid_stddevs, multiplicities, grid, bounded, achieved)


def _radius(radius: object, design: Design) -> float:
    """The ball that rows are held in: the box's own, or a smaller one that the user asks for."""
    squared = design.largest_squared_norm
    largest = math.sqrt(squared)
    if Fraction(largest) ** 2 < squared:
        largest = math.nextafter(largest, math.inf)
    if radius is None:
        return largest
    asked = finite_number(radius)
    if asked is None or asked < 1e-3:
        raise InputError("radius", radius, "must be a number of at least 0.001", "leave it out for no projection")
    return min(asked, largest)


def _grid(design: Design, blocks: tuple[BlockShape, ...], noise: tuple[float, ...], epsilon: float) -> Grid:
    """The finest grid whose products and noise fit: products into float64, noise into the sampler's 64 bits."""
    largest_y = max(abs(bound) for bound in design.response_range)
    response_exponent = math.ceil(math.log2(largest_y))
    order = max(block.order for block in blocks)
    finest = min(
        math.floor((math.log2(LARGEST_GRID_NOISE / stddev) + response_exponent * block.y_power) / block.order)
        for block, stddev in zip(blocks, noise, strict=True)
    )
    exponent = min(_FINEST, _PRODUCT_BITS // order, finest)
    if exponent < _COARSEST:
        raise InputError(
            "epsilon",
            epsilon,
            "is so small that the noise does not fit the sampler",
            "use a larger epsilon, or smaller bounds of the outcome",
        )
    grid = Grid(exponent, response_exponent)
    while _finest_noise(blocks, noise, grid, design.dimension) < 4 * SMALLEST_GRID_NOISE:
        if grid.exponent >= min(_FINEST, _MOST_PRODUCT_BITS // order, finest):
            break
        grid = Grid(grid.exponent + 1, response_exponent)
    if _finest_noise(blocks, noise, grid, design.dimension) < SMALLEST_GRID_NOISE:
        raise InputError("epsilon", epsilon, "is so large that the noise is finer than the grid", "use a smaller one")
    return grid


def _finest_noise(blocks: tuple[BlockShape, ...], noise: tuple[float, ...], grid: Grid, dimension: int) -> float:
    pairs = zip(blocks, noise, strict=True)
    return min(min(_grid_stddevs(block, stddev, grid, dimension)) for block, stddev in pairs)


def _grid_stddevs(block: BlockShape, stddev: float, grid: Grid, dimension: int) -> tuple[float, ...]:
    return monomial_stddevs(block, Fraction(stddev) / grid.unit(block.y_power, block.degree), dimension)


def monomial_stddevs(block: BlockShape, target: Fraction, dimension: int) -> tuple[float, ...]:
    """target / sqrt(multiplicity), rounded up: a monomial stands for that many isometric coordinates."""
    by_multiplicity = {}
    for multiplicity in set(block.multiplicities(dimension).tolist()):
        scale = float(target) / math.sqrt(multiplicity)
        while Fraction(scale) ** 2 * multiplicity < target**2:
            scale = math.nextafter(scale, math.inf)
        by_multiplicity[multiplicity] = scale
    return tuple(by_multiplicity[multiplicity] for multiplicity in block.multiplicities(dimension).tolist())
