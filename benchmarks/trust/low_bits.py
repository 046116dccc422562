"""Mironov's attack on floating-point noise, and why it has nothing to hold on to here.

A sum plus floating-point noise can take only some of the doubles near it, and *which* ones depends on the sum: an
output that one table can give and its neighbour cannot tells them apart for certain, whatever epsilon is. Here
outputs are integers, the noise can be every integer, and so every output of one table is possible for every
neighbour.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_NEIGHBOURHOOD = np.arange(-64, 65)


def float_laplace(value: float, scale: float, size: int, seed: int) -> Floats:
    """The textbook's sampler: a uniform number of 53 bits, a logarithm, a sign, a sum."""
    chance = np.random.default_rng(seed)
    uniform = (chance.integers(1, 2**53, size)).astype(np.float64) * 2.0**-53
    return np.asarray(value + np.where(chance.random(size) < 0.5, -1.0, 1.0) * (-scale * np.log(uniform)))


def could_be(outputs: Floats, value: float, scale: float) -> npt.NDArray[np.bool_]:
    """Whether the sampler above can give each output at all, were this the true value: all uniforms near are tried."""
    noise = outputs - value
    nearest = np.rint(np.exp(-np.abs(noise) / scale) * 2.0**53)
    candidates = np.clip(nearest[:, None] + _NEIGHBOURHOOD, 1, 2.0**53 - 1) * 2.0**-53
    magnitude = -scale * np.log(candidates)
    reached = value + np.where(noise < 0, -1.0, 1.0)[:, None] * magnitude
    return np.asarray((reached == outputs[:, None]).any(axis=1))


def told_apart(outputs: Floats, value: float, neighbour: float, scale: float) -> float:
    """Share of the outputs of ``value`` that ``neighbour`` cannot give: each tells the two apart for certain."""
    ours = could_be(outputs, value, scale)
    return float((ours & ~could_be(outputs, neighbour, scale)).mean())
