"""In the other environment: NAPSU-MQ of twinify, and a logistic regression on its synthetic tables by Rubin's rules.

Reads a file of arrays, writes another. The whole table of counts over all columns is its one query, which has every
interaction that the regression needs; its rows are rows of integers, the outcome last. Most of a fit is compiling, and
compiled code is used for seconds, so it is the plainest. No fit is begun after a number of seconds that is given.
Seconds of a fit are of the processor.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np

COPIES = 100
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")


def main() -> None:
    import d3p.random
    import pandas as pd
    from twinify.napsu_mq.napsu_mq import NapsuMQModel
    from twinify.napsu_mq.rubins_rules import conf_int

    warnings.simplefilter("ignore")
    path = Path(sys.argv[1])
    data = np.load(path)
    values, names = data["rows"], [str(name) for name in data["names"]]
    levels = [np.unique(data["levels"][n][data["levels"][n] >= 0]) for n in range(len(names))]
    epsilon, delta = float(data["epsilon"]), float(data["delta"])
    found, seconds, first = [], [], time.perf_counter()
    for number, rows in enumerate(values):
        if time.perf_counter() - first > float(data["limit"]):
            break
        started = time.process_time()
        frame = pd.DataFrame({n: pd.Categorical(rows[:, i], levels[i]) for i, n in enumerate(names)})
        model = NapsuMQModel(column_feature_set=[], use_laplace_approximation=True)
        result = model.fit(frame, d3p.random.PRNGKey(number), epsilon, delta, query_sets=[tuple(names)])
        copies = result.generate(d3p.random.PRNGKey(1000 + number), COPIES, len(rows), single_dataframe=False)
        estimates, variances = [], []
        for copy in copies:
            estimate, variance = logistic(copy.astype(float).to_numpy())
            estimates.append(estimate)
            variances.append(variance)
        estimates, variances = np.array(estimates), np.array(variances)
        intervals = [conf_int(estimates[:, n], variances[:, n], 0.95) for n in range(estimates.shape[1])]
        found.append(np.column_stack([estimates.mean(axis=0), np.array(intervals)]))
        seconds.append(time.process_time() - started)
        print("napsu", epsilon, number, round(seconds[-1]), flush=True)
    np.savez(path.with_suffix(".answer.npz"), found=np.array(found), seconds=np.array(seconds))


def logistic(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimate and its variances by maximum likelihood."""
    x, y = np.column_stack([np.ones(len(rows)), rows[:, :-1]]), rows[:, -1]
    theta = np.zeros(x.shape[1])
    for _ in range(50):
        mean = 1 / (1 + np.exp(-np.clip(x @ theta, -30, 30)))
        information = (x * (mean * (1 - mean))[:, None]).T @ x + 1e-9 * np.eye(len(theta))
        step = np.linalg.solve(information, x.T @ (y - mean))
        theta = theta + step
        if np.abs(step).max() < 1e-8:
            break
    return theta, np.diag(np.linalg.inv(information))


if __name__ == "__main__":
    main()
