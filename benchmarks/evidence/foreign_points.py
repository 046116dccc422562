"""In the other environment: diffprivlib's logistic and linear regression. Reads a file of arrays, writes another."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np


def main() -> None:
    from diffprivlib.models import LinearRegression, LogisticRegression

    warnings.simplefilter("ignore")
    path = Path(sys.argv[1])
    data = np.load(path)
    epsilon, found, seconds = float(data["epsilon"]), [], []
    for number, (x, y) in enumerate(zip(data["x"], data["y"], strict=True)):
        started = time.perf_counter()
        if str(data["family"]) == "logistic":
            norm = float(np.sqrt(x.shape[1]))
            model = LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=1000, random_state=number)
        else:
            model = LinearRegression(epsilon=epsilon, bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=number)
        model.fit(x, y)
        seconds.append(time.perf_counter() - started)
        found.append(np.concatenate([np.atleast_1d(model.intercept_), np.atleast_2d(model.coef_)[0]]))
    np.savez(path.with_suffix(".answer.npz"), found=np.array(found), seconds=np.array(seconds))


if __name__ == "__main__":
    main()
