"""In a process of its own: dp-statsmodels' sessions, on samples that are given. Reads a file of arrays, writes another.

Columns, and a linear outcome, lie in [-1, 1], where its one pair of bounds fits all of them and the constant.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def fitted(family: str, x: np.ndarray, y: np.ndarray, epsilon: float, delta: float, seed: int) -> Any:
    """One regression, for all that a session may spend."""
    from dp_statsmodels import Session

    np.random.seed(seed)
    session = Session(epsilon, delta, (-1.0, 1.0), (-1.0, 1.0), random_state=seed)
    return (session.OLS if family == "linear" else session.Logit)(y, x, epsilon=epsilon)


def main() -> None:
    warnings.simplefilter("ignore")
    path = Path(sys.argv[1])
    data = np.load(path)
    sys.path.insert(0, str(data["clone"]))
    found, seconds = [], []
    for number, (x, y) in enumerate(zip(data["x"], data["y"], strict=True)):
        started = time.perf_counter()
        seed = int(data["seed"]) + number
        result = fitted(str(data["family"]), x, y, float(data["epsilon"]), float(data["delta"]), seed)
        found.append(np.column_stack([result.params, result.conf_int(0.05)]))
        seconds.append(time.perf_counter() - started)
    np.savez(path.with_suffix(".answer.npz"), found=np.array(found), seconds=np.array(seconds))


if __name__ == "__main__":
    main()
