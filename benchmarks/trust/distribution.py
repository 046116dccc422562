"""The privacy loss that can be seen in moments: many releases of two worst-case neighbours, by the real sampler.

Both tables go through the whole path once (parse, clamp, project, round, sum); those steps have no chance in them.
Then the code that adds noise is run again and again, and every release is reduced to one number: its integers along
the direction in which the two tables differ, in units of noise. No event is more telling than that number's tail, so
the bound

    epsilon >= log((P(event | one) - delta) / P(event | other))

with Clopper-Pearson limits of both probabilities should come close to the claimed epsilon, and must not exceed it. With
half the noise it must.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.stats import beta, chi2_contingency, ks_2samp

import dpglm
from dpglm.custodian import charge
from dpglm.custodian.mechanism import Mechanism, calibrate
from dpglm.custodian.noise import NoiseSource, OperatingSystemNoise, add_noise
from dpglm.custodian.passes import exact_sums, moment_sums
from dpglm.custodian.sensitivity import sensitivity
from dpglm.custodian.sums import BlockSums
from dpglm.custodian.tables import open_table
from dpglm.formula import build_design
from dpglm.release_file import read_release
from dpglm.schema import Schema

EPSILON, DELTA, RADIUS = 1.0, 0.01, 1.0
FORMULA = "y ~ a + b"
SCHEMA: dict[str, Any] = {
    "dataset": {"name": "two tables", "rows": 3, "unit": "one patient"},
    "columns": {
        "y": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        "a": {"type": "numeric", "lower": -1, "upper": 1},
        "b": {"type": "numeric", "lower": -1, "upper": 1},
    },
}
FAILURE = 1e-6  # chance that a sound mechanism is convicted: of all thresholds and both directions together
_AT_ONCE = 1000
THRESHOLDS = np.linspace(-0.5, 4.0, 19)  # fixed in advance, in units of noise

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Neighbours:
    """Two tables that differ in one row as much as the sensitivity allows, and their exact sums."""

    tables: tuple[pa.Table, pa.Table]
    mechanism: Mechanism
    sums: tuple[BlockSums, BlockSums]

    @property
    def squared_distance(self) -> Fraction:
        """In units of noise, exactly."""
        return sum(
            (
                Fraction(a - b) ** 2 / Fraction(stddev) ** 2
                for one, other, stddevs in zip(
                    *(each.values for each in self.sums), self.mechanism.grid_stddevs, strict=True
                )
                for a, b, stddev in zip(one, other, stddevs, strict=True)
            ),
            Fraction(0),
        )


def worst_neighbours() -> Neighbours:
    """Rows at the angle and outcomes of the sensitivity's witness; every angle fits into a ball inside the box."""
    design = build_design(FORMULA, Schema.from_dict(SCHEMA), "logistic")
    chosen = calibrate(design, EPSILON, DELTA, RADIUS, "equal", "full")
    witness = sensitivity(chosen.blocks, chosen.noise_stddevs, RADIUS, (-1.0, 1.0))
    angle = math.acos(min(max(witness.cosine, -1.0), 1.0))
    rows = [(witness.y, 1.0, 0.0), (witness.other_y, math.cos(angle), math.sin(angle))]
    tables = tuple(
        pa.table({
            "y": ["no", "yes", "yes" if y > 0 else "no"], "a": [0.3, -0.2, a], "b": [0.1, 0.9, b],
        })
        for y, a, b in rows
    )  # fmt: skip
    sums = [
        exact_sums(
            open_table(table, design.table_columns), design, partial(moment_sums, design=design, mechanism=chosen)
        )
        for table in tables
    ]
    return Neighbours((tables[0], tables[1]), chosen, (sums[0], sums[1]))


@dataclass(frozen=True)
class HalfNoise:
    """The planted mistake."""

    private: bool = True

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        return OperatingSystemNoise().draw(grid_stddev / 2, size)


def projections(
    neighbours: Neighbours, which: int, releases: int, noise: NoiseSource
) -> tuple[Floats, npt.NDArray[Any]]:
    """Releases of one table along the worst direction (0 is the first table), and the low eight bits of one integer."""
    direction = _direction(neighbours)
    origin = neighbours.sums[0].values
    found, bits = [], []
    for start in range(0, releases, _AT_ONCE):
        count = min(_AT_ONCE, releases - start)
        # The sampler's calls cost more than its draws: the sums of many releases, side by side, are one long block.
        blocks = [
            np.array(add_noise(values * count, stddevs * count, noise), dtype=object).reshape(count, len(values))
            for values, stddevs in zip(neighbours.sums[which].values, neighbours.mechanism.grid_stddevs, strict=True)
        ]
        moved = [(block - np.array(zero, dtype=object)) @ np.array(weights, dtype=object)
                 for block, zero, weights in zip(blocks, origin, direction, strict=True)]  # fmt: skip
        found.append(np.sum(moved, axis=0).astype(np.float64))
        bits.append((blocks[-1][:, 0] % 256).astype(np.int64))
    return np.concatenate(found), np.concatenate(bits)


def whole_path_projections(neighbours: Neighbours, which: int, releases: int) -> Floats:
    """The same from the file: ``dpglm.release``, saved as text and read again, every time."""
    direction, origin = _direction(neighbours), neighbours.sums[0].values
    found = np.empty(releases)
    for number in range(releases):
        made = dpglm.release(
            neighbours.tables[which], FORMULA, schema=Schema.from_dict(SCHEMA), family="logistic", epsilon=EPSILON,
            delta=DELTA, ledger=None, method="moments", radius=RADIUS, allocation="equal",
        )  # fmt: skip
        read = read_release(made.to_json())
        found[number] = _project([block.integers for block in read.blocks], origin, direction)
    return found


def _direction(neighbours: Neighbours) -> list[list[float]]:
    """Unit vector from the first table's sums to the second's, in units of noise, over the noise once more."""
    length = math.sqrt(neighbours.squared_distance)
    one, other = (each.values for each in neighbours.sums)
    return [
        [float(Fraction(b - a) / Fraction(stddev) ** 2) / length for a, b, stddev in zip(*block, strict=True)]
        for block in zip(one, other, neighbours.mechanism.grid_stddevs, strict=True)
    ]


def _project(integers: Sequence[Sequence[int]], origin: Any, direction: list[list[float]]) -> float:
    return sum(
        (value - zero) * weight
        for block in zip(integers, origin, direction, strict=True)
        for value, zero, weight in zip(*block, strict=True)
    )


def epsilon_lower_bound(first: Floats, second: Floats, delta: float) -> float:
    """The largest epsilon that the samples prove, but for a chance of ``FAILURE``; 0 if they prove none."""
    middle = float(np.median(np.concatenate([first, second])))
    level = FAILURE / (2 * len(THRESHOLDS) * 2)
    best = 0.0
    for one, other, sign in ((second, first, 1), (first, second, -1)):
        for threshold in THRESHOLDS:
            events = [int((sign * (sample - middle) > threshold).sum()) for sample in (one, other)]
            low = beta.ppf(level, events[0], len(one) - events[0] + 1) if events[0] else 0.0
            high = beta.ppf(1 - level, events[1] + 1, len(other) - events[1]) if events[1] < len(other) else 1.0
            if low > delta:
                best = max(best, math.log((low - delta) / high))
    return best


def run(releases: int, half_releases: int, whole: int) -> dict[str, Any]:
    """Everything above, as facts for the page. There is no seed: the noise is real."""
    neighbours = worst_neighbours()
    samples = [projections(neighbours, which, releases, OperatingSystemNoise()) for which in (0, 1)]
    halves = [projections(neighbours, which, half_releases, HalfNoise())[0] for which in (0, 1)]
    with patch.object(charge, "version", lambda _: "1"):  # reading a library's version takes longer than the release
        through_files = [whole_path_projections(neighbours, which, whole) for which in (0, 1)]
    bits = np.stack([np.bincount(sample[1], minlength=256) for sample in samples])
    return {
        "epsilon": EPSILON,
        "delta": DELTA,
        "releases_of_each_table": releases,
        "distance_over_mu": math.sqrt(neighbours.squared_distance) / neighbours.mechanism.mu,
        "epsilon_lower_bound": epsilon_lower_bound(samples[0][0], samples[1][0], DELTA),
        "half_noise_releases_of_each_table": half_releases,
        "half_noise_epsilon_lower_bound": epsilon_lower_bound(halves[0], halves[1], DELTA),
        "failure_rate": FAILURE,
        "whole_path_releases_of_each_table": whole,
        "whole_path_same_distribution_p_values": [
            float(ks_2samp(part, sample[0]).pvalue) for part, sample in zip(through_files, samples, strict=True)
        ],
        "low_bits_same_distribution_p_value": float(chi2_contingency(bits).pvalue),
    }
