"""Releases -> the shape and the arrays of one model.

Releases of one dataset (same identity) saw the same true sums through several noises: they are combined by
precision, and the rows count once. Different datasets are independent tables that share the coefficients, each with
predictors of its own; their bounds may differ, since coefficients are shared in the user's units.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from dpglm.analyst.joint import by_dataset, check_same_model
from dpglm.analyst.priors import prior_of
from dpglm.blocks import BlockShape
from dpglm.errors import InputError
from dpglm.formula import DesignColumn
from dpglm.paper.model import ModelShape, TableData, TableShape, initial_point
from dpglm.paper.outcomes import METHODS, outcome_of
from dpglm.releases import Block, Release

Floats = npt.NDArray[np.float64]
MOMENTS = (*METHODS, "numeric")
# What "without noise" means to a likelihood that divides by it: far below the sampling error of a single row.
NEGLIGIBLE_NOISE = 1e-6
_DISPERSION_BLOCK = BlockShape(2, 0)


def assemble(
    releases: Sequence[Release], *, link: object, dispersion: object, prior: object, moments: object, noise_aware: bool
) -> tuple[ModelShape, tuple[TableData, ...]]:
    """Check that the releases belong together, and lay out their model."""
    if moments not in MOMENTS:
        raise InputError("moments", moments, f"must be one of {', '.join(MOMENTS)}", "choose one of them")
    if link is not None and not isinstance(link, str):
        raise InputError("link", link, "must be a name", "leave it out for the default")
    check_same_model(releases)
    first = releases[0]
    fixed_spread = _fixed_spread(first, dispersion)
    shapes, data = [], []
    for members in by_dataset(releases):
        shape, arrays = _table(members, first, link, str(moments), noise_aware, fixed_spread)
        shapes.append(shape)
        data.append(arrays)
    names = first.design.coefficient_names
    model = ModelShape(names, tuple(shapes), prior_of(prior, names), fixed_spread, str(moments))
    return model, tuple(data)


def prepare(blocks: Sequence[BlockShape], dimension: int, plain_sums: Sequence[npt.ArrayLike]) -> tuple[Any, ...]:
    """Released sums of plain monomials, one array per block in BlockShape's order, as symmetric tensors.

    A block of degree 0, 1 or 2 becomes an array of shape (), (d,) or (d, d): what both likelihoods take.

    >>> prepare((BlockShape(0, 2),), 2, [[1.0, 2.0, 3.0]])[0].tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    tensors = []
    for block, plain in zip(blocks, plain_sums, strict=True):
        values = np.asarray(plain, dtype=np.float64).reshape(-1)
        if values.shape != (block.size(dimension),):
            rule = f"block ({block.y_power}, {block.degree}) has {block.size(dimension)} sums"
            raise InputError("plain_sums", values.shape, rule, "pass one number for each monomial")
        tensor = np.empty((dimension,) * block.degree)
        for monomial, value in zip(block.monomials(dimension), values, strict=True):
            tensor[monomial] = tensor[monomial[::-1]] = value
        tensors.append(tensor)
    return tuple(tensors)


def stacked(data: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Several releases of one shape, along a new leading axis."""
    return tuple(jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *data))


def starts(shape: ModelShape, data: Sequence[tuple[TableData, ...]]) -> Floats:
    """A starting point for each."""
    return np.stack([initial_point(shape, each) for each in data])


def _table(
    members: Sequence[Release],
    first: Release,
    link: str | None,
    moments: str,
    noise_aware: bool,
    fixed_spread: float | None,
) -> tuple[TableShape, TableData]:
    release = members[0]
    design = release.design
    for other in members[1:]:
        same = (
            other.num_rows == release.num_rows
            and other.radius == release.radius
            and other.response_range == release.response_range
            and other.design.columns == design.columns
        )
        if not same:
            raise InputError(
                "releases",
                other.dataset_id,
                "two releases of one dataset have another coding, radius or number of rows",
                "give different rows a different dataset id, or fit them one by one",
            )
    blocks = _combined([block for member in members for block in member.blocks])
    if fixed_spread is not None:
        # The sum of y^2 tells the dispersion. Where that is given and too small, the slopes would have to explain it.
        blocks = [block for block in blocks if block.shape != _DISPERSION_BLOCK] or blocks
    if moments != "numeric" and any(block.degree > 2 for block in blocks):
        raise InputError("moments", moments, "has no closed form for blocks of degree above 2", "use 'numeric'")
    shapes = tuple(block.shape for block in blocks)
    shape = TableShape(
        blocks=shapes,
        outcome=outcome_of(release.family, link, release.response_range),
        dimension=design.dimension,
        has_intercept=design.intercept,
        has_offset=design.offset is not None,
        zero_mean=(0, 1) not in {(block.y_power, block.degree) for block in shapes},
    )
    ranges = np.array([_column_range(column, release.radius) for column in design.columns])
    matrix, shift = from_shared(first, release)
    outcome_scale = design.outcome.scale if design.family.coding == "scaled" else 1.0
    first_scale = first.design.outcome.scale if design.family.coding == "scaled" else 1.0
    offset = 0.0 if design.offset is None else design.offset.factors[0].scale / outcome_scale
    noise = [block.noise_stddev if noise_aware else NEGLIGIBLE_NOISE for block in blocks]
    return shape, TableData(
        observed=prepare(shapes, design.dimension, [block.values for block in blocks]),
        num_rows=np.asarray(float(release.num_rows)),
        noise_stddevs=np.asarray(noise),
        lower=ranges[:, 0],
        upper=ranges[:, 1],
        matrix=matrix,
        shift=shift,
        offset=np.asarray(offset),
        spread_scale=np.asarray((first_scale / outcome_scale) ** 2),
    )


class _Combined:
    """One block of the true sums, seen through one noise or several."""

    def __init__(self, looks: Sequence[Block]) -> None:
        precisions = np.array([look.noise_stddev**-2.0 for look in looks])
        self.shape, self.degree = looks[0].shape, looks[0].degree
        self.values: Floats = np.einsum("r,rm->m", precisions, [look.values for look in looks]) / precisions.sum()
        self.noise_stddev = float(precisions.sum() ** -0.5)


def _combined(blocks: Sequence[Block]) -> list[_Combined]:
    looks: dict[tuple[int, int], list[Block]] = {}
    for block in blocks:
        looks.setdefault((block.y_power, block.degree), []).append(block)
    return [_Combined(each) for each in looks.values()]


def _column_range(column: DesignColumn, radius: float) -> tuple[float, float]:
    """Smallest and largest value of a product of coded factors, inside the ball."""
    low = high = 1.0
    for factor in column.factors:
        corners = [a * b for a in (low, high) for b in factor.range]
        low, high = min(corners), max(corners)
    return max(low, -radius), min(high, radius)


def from_shared(first: Release, release: Release) -> tuple[Floats, Floats]:
    """Matrix and shift from the first release's scaled coefficients to this one's, through the user's units."""
    first_matrix, first_shift = first.design.to_original_units()
    matrix, shift = release.design.to_original_units()
    inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    return inverse @ first_matrix, inverse @ (first_shift - shift)


def _fixed_spread(release: Release, dispersion: object) -> float | None:
    if release.family != "poisson":
        if dispersion is not None:
            raise InputError("dispersion", dispersion, f"{release.family} has none to set", "leave it out")
        return None
    if dispersion is None or dispersion == "infer":
        return None
    if isinstance(dispersion, bool) or not isinstance(dispersion, Real) or not 1 <= float(dispersion) < 1e6:
        raise InputError("dispersion", dispersion, "must be 'infer' or a number of at least 1", "1 is Poisson")
    return float(dispersion)
