"""In the other environment: bands of ArviZ for ranks, and joint coverage by tarp. Reads a file of arrays, writes"
" another."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

BAND, SIMULATIONS, REFERENCES = 0.99, 5_000, 20


def outside(ranks: np.ndarray) -> tuple[float, float]:
    """The share of points at which the ranks leave ArviZ's simultaneous band (Säilynoja et al. 2022), and how far in
    the middle of all points they are from even.
    """
    from arviz_stats.ecdf_utils import ecdf_pit

    points, ecdf, lower, upper = ecdf_pit(ranks, BAND, SIMULATIONS, rng=np.random.default_rng(1))
    return float(np.mean((ecdf < lower) | (ecdf > upper))), float(np.abs(ecdf - points).max())


def farthest(draws: np.ndarray, truth: np.ndarray) -> float:
    """Expected coverage less credibility (tarp, Lemos et al. 2023), the largest; mean over sets of random"
    " references."""
    from tarp import get_tarp_coverage

    found = []
    for seed in range(REFERENCES):
        coverage, level = get_tarp_coverage(draws, truth, references="random", metric="euclidean", seed=seed)
        found.append(np.abs(coverage - level).max())
    return float(np.mean(found))


def main() -> None:
    path = Path(sys.argv[1])
    data = np.load(path)
    answer = {}
    for name in data["names"]:
        draws, truth = data[f"{name}_draws"], data[f"{name}_truth"]  # (draws, tables, coefficients), (tables, ...)
        ranks = (draws < truth).mean(axis=0)
        answer[f"{name}_bands"] = np.array([outside(ranks[:, n]) for n in range(truth.shape[1])])
        answer[f"{name}_tarp"] = np.array(farthest(draws, truth))
    np.savez(path.with_suffix(".answer.npz"), **answer)


if __name__ == "__main__":
    main()
