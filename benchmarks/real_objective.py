"""Objective perturbation on the samples of real.py: diffprivlib's logistic regression, a point estimate, pure epsilon.

diffprivlib wants other versions of scikit-learn than the newest, so it runs in an environment of its own: this script
writes the samples of each cell to a file and calls itself there. Its neighbours and norm bound of rows are
those of the release; delta is zero: the stronger promise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def estimate(path: Path) -> None:
    """In the other environment: coefficients of every sample."""
    import warnings

    from diffprivlib.models import LogisticRegression

    warnings.simplefilter("ignore")
    data = np.load(path)
    x, y, epsilon = data["x"], data["y"], float(data["epsilon"])
    found = []
    for rows, outcome in zip(x, y, strict=True):
        # A row with its intercept has norm at most sqrt(d + 1); hardly any regularisation.
        model = LogisticRegression(epsilon=epsilon, data_norm=np.sqrt(rows.shape[1]), C=1.0, max_iter=1000)
        model.fit(rows, outcome)
        found.append(np.concatenate([model.intercept_, model.coef_[0]]))
    np.save(path.with_suffix(".npy"), np.array(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", help="interpreter that has diffprivlib")
    parser.add_argument("--samples", type=Path, help="(used by the script itself)")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    if options.samples:
        estimate(options.samples)
        return
    from machine import save
    from real import EPSILONS, SEED, SIZES
    from real_tables import LOADERS, load, maximum_likelihood

    results = []
    for name in ("adult", "acs_high_income", "acs_married", "fair_affairs", "simulated_logistic"):
        table = load(name, options.data)
        for rows in SIZES:
            if table is None or rows > 1.05 * len(table.y):
                continue
            for epsilon in EPSILONS:
                rng = np.random.default_rng([SEED, list(LOADERS).index(name), rows, int(epsilon * 1000)])
                chosen = [rng.integers(0, len(table.y), rows) for _ in range(options.repetitions)]
                own = [maximum_likelihood("logistic", table.x[each], table.y[each]) for each in chosen]
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder, "samples.npz")
                    samples = {"x": [table.x[each] for each in chosen], "y": [table.y[each] for each in chosen]}
                    np.savez(path, epsilon=epsilon, **samples)
                    subprocess.run([options.python, __file__, "--samples", str(path)], check=True)
                    found = np.load(path.with_suffix(".npy"))
                errors = [
                    (theta - estimate) / np.sqrt(np.diag(np.linalg.inv(information)))
                    for theta, (estimate, information, _) in zip(found, own, strict=True)
                ]
                cell = {"table": name, "rows": rows, "epsilon": epsilon, "repetitions": options.repetitions,
                        "rmse": float(np.sqrt(np.mean(np.square(errors))))}  # fmt: skip
                results.append(cell)
                print(json.dumps(cell), flush=True)
    print(f"written to {save('real_objective', results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
