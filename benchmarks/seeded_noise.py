"""Noise of the right size that a study can repeat: not private."""

from __future__ import annotations

import numpy as np


class SeededNoise:
    """Rounded normals: at the scales of a release the discrete Gaussian to six digits."""

    private = False

    def __init__(self, seed: int | list[int] | np.random.Generator) -> None:
        self.generator = np.random.default_rng(seed)

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        return [round(number) for number in self.generator.normal(0, grid_stddev, size).tolist()]
