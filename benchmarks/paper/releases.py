"""Many releases of simulated and real tables, by the custodian's code, with noise that can be repeated."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpglm.analyst.priors import NormalPrior, SphericalPrior
from dpglm.custodian.by_moments import noisy_moments
from dpglm.custodian.mechanism import Mechanism, calibrate
from dpglm.custodian.rows import FixedPointRows, fixed_point_rows
from dpglm.custodian.sums import block_sums
from dpglm.custodian.tables import open_table
from dpglm.releases import Release, Stage
from paper.seed import SEED
from paper.tables import Table
from seeded_noise import SeededNoise

DELTA = 1e-5


@dataclass(frozen=True)
class Reading:
    """How a release is made and read. The defaults are dpglm's own."""

    statistics: str = "full"
    allocation: str = "auto"
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

    def options(self) -> dict[str, Any]:
        """What ``dpglm.fit`` is asked."""
        return {
            "link": self.link,
            "dispersion": self.dispersion,
            "moments": self.moments,
            "noise_aware": self.noise_aware,
        }


def released(tables: Sequence[Table], epsilons: Sequence[float], reading: Reading, seed: int) -> list[Release]:
    """One release a table and epsilon. The noise depends on the seed and on the position in the list alone."""
    mechanisms: dict[Any, Mechanism] = {}
    made = []
    for number, (table, epsilon) in enumerate(zip(tables, epsilons, strict=True)):
        key = (epsilon, table.design.formula, table.design.schema.dataset.rows)
        if key not in mechanisms:
            mechanisms[key] = calibrate(
                table.design, epsilon, DELTA, table.radius, reading.allocation, reading.statistics
            )
        chosen = mechanisms[key]
        sums = block_sums(_grid_rows(table, chosen), chosen.blocks)
        stage = Stage(
            "moments", chosen.allocation, chosen.mu, noisy_moments(sums, chosen, SeededNoise([SEED, seed, number]))
        )
        facts = (uuid.uuid4().hex, "2026-01-01T00:00:00Z", {}, table.design, chosen.radius, chosen.grid)
        made.append(Release(*facts, (stage,), chosen.guarantee(epsilon, DELTA), None, False))
    return made


def _grid_rows(table: Table, chosen: Mechanism) -> FixedPointRows:
    (batch,) = open_table(table.frame, table.design.table_columns).batches()
    return fixed_point_rows(batch, table.design, chosen.grid, chosen.radius)
