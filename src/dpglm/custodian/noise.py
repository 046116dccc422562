"""Discrete Gaussian noise on integers, from OpenDP's sampler and the operating system's entropy.

Guarantee: integers n with probability proportional to exp(-n^2 / (2 s^2)), exactly (OpenDP >= 0.16; earlier
versions had a biased sampler), drawn at zero, so that nothing about the sums reaches the sampler. There is no seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# OpenDP's integers have 64 bits and saturate. 40 standard deviations below 2^62 leave e^-800 for that ever to happen.
LARGEST_GRID_NOISE = 2.0**62 / 40


class NoiseSource(Protocol):
    """Where noise comes from; only ``OperatingSystemNoise`` is private."""

    @property
    def private(self) -> bool:
        """Whether a release made with it is private."""
        ...

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        """``size`` integers of this standard deviation."""
        ...


@dataclass(frozen=True)
class OperatingSystemNoise:
    """The real thing."""

    private: bool = True

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        # These alone: OpenDP's prelude loads Polars and scikit-learn where they are installed, beside the rows.
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_gaussian
        from opendp.metrics import l2_distance
        from opendp.mod import enable_features

        assert 0 < grid_stddev <= LARGEST_GRID_NOISE
        assert size > 0
        enable_features("contrib")
        space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
        values = make_gaussian(*space, scale=grid_stddev)([0] * size)
        assert len(values) == size
        assert all(abs(value) < 2**62 for value in values)
        return [int(value) for value in values]


@dataclass(frozen=True)
class FixedNoise:
    """For tests only: the same integers always. A release made with it says that it is not private."""

    value: int = 0
    private: bool = False

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        return [self.value] * size


def add_noise(values: Sequence[int], grid_stddevs: Sequence[float], source: NoiseSource) -> tuple[int, ...]:
    """Each value plus its own noise: one draw per distinct scale, added as Python integers (no overflow)."""
    noisy = list(values)
    for scale in dict.fromkeys(grid_stddevs):
        positions = [n for n, other in enumerate(grid_stddevs) if other == scale]
        for position, noise in zip(positions, source.draw(scale, len(positions)), strict=True):
            noisy[position] += noise
    return tuple(noisy)
