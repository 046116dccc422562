"""Checks of the real sampler that a stand-in cannot make: no seed, no repetition, and the spread that was asked for."""

from __future__ import annotations

import random
import time
from unittest.mock import patch

import numpy as np
from scipy.stats import chi2

from dpglm.custodian.noise import OperatingSystemNoise
from trust.audit import require

SCALES = (2.0**12 + 0.5, 1e9, 2.0**40 / 3)
DRAWS = 1000


def check_sampler() -> None:
    """Chance: a sound sampler fails the test of spread once in 10^9 runs, the others never in practice."""
    source = OperatingSystemNoise()
    # Clock, process and every seed that Python has are the same twice: the draws are not.
    again = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)
        with patch.object(time, "time", lambda: 0.0), patch.object(time, "time_ns", lambda: 0):
            again.append(source.draw(2.0**40, 8))
    require("sampler", again[0] != again[1], "the noise follows from a seed or a clock")
    for scale in SCALES:
        values = source.draw(scale, DRAWS)
        require("sampler", all(isinstance(value, int) for value in values), "noise is not whole numbers")
        require("sampler", len(set(values)) > DRAWS / 2, "noise repeats itself")
        squares = sum((value / scale) ** 2 for value in values)
        low, high = chi2.ppf([5e-10, 1 - 5e-10], DRAWS)
        require("sampler", low < squares < high, f"noise of scale {scale:g} has spread {(squares / DRAWS) ** 0.5:.3f}")
