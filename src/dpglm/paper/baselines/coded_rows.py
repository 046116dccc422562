"""A table -> its rows as a release sees them: clamped, coded, projected and rounded, but with no noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.custodian.build import as_schema
from dpglm.custodian.rows import fixed_point_rows
from dpglm.custodian.tables import open_table
from dpglm.errors import InputError
from dpglm.formula import Design, build_design
from dpglm.grid import Grid

Floats = npt.NDArray[np.float64]

_GRID_BITS = 20  # the finest grid of a release


@dataclass(frozen=True)
class ScaledRows:
    """Rows in the coding of a release. Sensitive: one entry a person."""

    design: Design
    x: Floats  # (rows, dimension)
    y: Floats  # -1 and 1, counts, or bounds mapped to [-1, 1]

    @property
    def matrix(self) -> Floats:
        """x, with a first column of ones where the model has an intercept: (rows, coefficients)."""
        if not self.design.intercept:
            return self.x
        return np.column_stack([np.ones(len(self.x)), self.x])


def scaled_rows(
    table: Any, formula: str, *, schema: object, family: str, radius: float | None = None, design: Design | None = None
) -> ScaledRows:
    """The rows that ``dpglm.release`` with the same arguments would sum.

    ``design`` saves parsing the formula again, where many tables share one.
    """
    design = design or build_design(formula, as_schema(schema), family)
    if design.offset is not None:
        raise InputError("formula", design.formula, "has an offset, which the baselines do not know", "leave it out")
    largest = max(abs(bound) for bound in design.response_range)
    grid = Grid(_GRID_BITS, math.ceil(math.log2(largest)))
    held = math.inf if radius is None else float(radius)
    ball = min(held, math.sqrt(design.largest_squared_norm))
    batches = open_table(table, design.table_columns).batches()
    parts = [fixed_point_rows(batch, design, grid, ball) for batch in batches]
    x = np.concatenate([part.x for part in parts], axis=1).T * float(grid.unit(0, 1))
    y = np.concatenate([part.y for part in parts]) * float(grid.unit(1, 0))
    return ScaledRows(design, np.ascontiguousarray(x), y)
