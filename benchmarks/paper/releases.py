"""Many releases of simulated and real tables, by the custodian's code, with noise that can be repeated."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpglm.analyst.looks import first_looks
from dpglm.analyst.priors import NormalPrior, SphericalPrior
from dpglm.custodian.build import add_stages, noisy_moments
from dpglm.custodian.rows import FixedPointRows, fixed_point_rows
from dpglm.custodian.stages import Plan, plan_stages
from dpglm.custodian.sums import block_sums
from dpglm.custodian.tables import open_table
from dpglm.release_file import Release, Stage
from paper.seed import SEED
from paper.tables import Table
from seeded_noise import SeededNoise

DELTA = 1e-5


@dataclass(frozen=True)
class Reading:
    """How a release is made and read. The defaults are dpglm's own."""

    statistics: str = "full"
    allocation: str = "auto"
    stages: int | str = 1
    moments: str = "exact"
    noise_aware: bool = True
    link: str | None = None
    dispersion: float | None = None
    slopes: float = NormalPrior().slopes  # prior standard deviation
    largest_squared_norm: float | None = None  # the paper's prior, with this public bound, in place of the normal one

    @property
    def prior(self) -> NormalPrior | SphericalPrior:
        if self.largest_squared_norm is not None:
            return SphericalPrior(self.largest_squared_norm)
        return NormalPrior(slopes=self.slopes)

    def drawn_coefficients(self, names: tuple[str, ...], generator: np.random.Generator) -> np.ndarray:
        """A draw from the prior; those whose slopes leave the ball, where there is one, are drawn again."""
        scales = self.prior.scales(names)
        first = int(names[0] == "Intercept")
        while True:
            drawn = scales * generator.normal(size=len(names))
            if np.sum(drawn[first:] ** 2) <= (self.largest_squared_norm or np.inf):
                return drawn

    def options(self, staged: bool) -> dict[str, Any]:
        """What ``dpglm.fit`` is asked; the dispersion of staged counts is measured."""
        return {
            "link": self.link,
            "dispersion": None if staged else self.dispersion,
            "moments": self.moments,
            "noise_aware": self.noise_aware,
        }


def released(tables: Sequence[Table], epsilons: Sequence[float], reading: Reading, seed: int) -> list[Release]:
    """One release a table and epsilon. The noise depends on the seed and on the position in the list alone."""
    plans: dict[Any, Plan] = {}
    made, plans_of = [], []
    for number, (table, epsilon) in enumerate(zip(tables, epsilons, strict=True)):
        key = (epsilon, table.design.formula, table.design.schema.dataset.rows)
        if key not in plans:
            plans[key] = plan_stages(
                table.design, epsilon, DELTA, table.radius, reading.allocation, reading.statistics, reading.stages
            )
        plan = plans[key]
        sums = block_sums(_grid_rows(table, plan), plan.first.blocks)
        blocks = noisy_moments(sums, plan.first, SeededNoise([SEED, seed, number]))
        stage = Stage("moments", plan.first.allocation, plan.first.mu, blocks)
        facts = (uuid.uuid4().hex, "2026-01-01T00:00:00Z", {}, table.design, plan.first.radius, plan.first.grid)
        made.append(Release(*facts, (stage,), plan.privacy, None, False))
        plans_of.append(plan)
    staged = [number for number, plan in enumerate(plans_of) if plan.later]
    if staged:
        for number, first in zip(staged, first_looks([made[n] for n in staged]), strict=True):
            rows = _grid_rows(tables[number], plans_of[number])
            noise = SeededNoise([SEED, seed, number, 1])
            look = lambda sums_of, rows=rows: sums_of(rows)  # noqa: E731
            made[number] = add_stages(made[number], first, plans_of[number], look, noise)
    return made


def _grid_rows(table: Table, plan: Plan) -> FixedPointRows:
    (batch,) = open_table(table.frame, table.design.table_columns).batches()
    return fixed_point_rows(batch, table.design, plan.first.grid, plan.first.radius)
