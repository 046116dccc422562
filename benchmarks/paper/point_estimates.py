"""What people use today: diffprivlib's logistic and linear regression. Point estimates, pure epsilon, no intervals.

    python -m paper.point_estimates --python INTERPRETER     one that has diffprivlib

diffprivlib wants other versions of scikit-learn than the newest, so it runs in an environment of its own: this script
writes the rows of each case to a file and calls itself there. Row norms and neighbours are those of the release; delta
is zero: the stronger promise. Writes benchmarks/results/paper_point_estimates.json.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

RUNS = 20
LINEAR_SLOPES = (0.3, -0.2, 0.1)
LINEAR_EPSILONS = (0.1, 0.3, 1.0)


def estimate(path: Path) -> None:
    """In the other environment: coefficients of every run, the intercept first where there is one."""
    import warnings

    from diffprivlib.models import LinearRegression, LogisticRegression

    warnings.simplefilter("ignore")
    data = np.load(path)
    intercept, epsilon = bool(data["intercept"]), float(data["epsilon"])
    found = []
    for number, (x, y) in enumerate(zip(data["x"], data["y"], strict=True)):
        if str(data["family"]) == "logistic":
            options = {"data_norm": float(data["radius"]), "C": 1.0, "max_iter": 1000}
            model = LogisticRegression(epsilon=epsilon, fit_intercept=intercept, random_state=number, **options)
        else:
            bounds = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
            model = LinearRegression(epsilon=epsilon, fit_intercept=intercept, random_state=number, **bounds)
        model.fit(x, y)
        first = np.atleast_1d(model.intercept_) if intercept else []
        found.append(np.concatenate([first, np.atleast_2d(model.coef_)[0]]))
    np.save(path.with_suffix(".npy"), np.array(found))


def private(python: str, **arrays: Any) -> np.ndarray:
    """Estimates of diffprivlib for some runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.npz")
        np.savez(path, **arrays)
        subprocess.run([python, __file__, "--rows", str(path)], check=True)
        return np.load(path.with_suffix(".npy"))


def logistic_results(python: str, folder: Path, study_path: Path) -> list[dict[str, Any]]:
    """On the tables of experiments 1 to 3, at their epsilons near 0.1, 0.3 and 1."""
    from paper.lines import Study, typical_error
    from paper.significance import posterior_mode
    from paper.tables import adult, diabetes, synthetic

    study = Study.load(study_path)
    cases = {"diabetes": [diabetes(folder)] * RUNS, "adult": [adult(folder)] * RUNS,
             "synthetic": [synthetic(number) for number in range(RUNS)]}  # fmt: skip
    results = []
    for name, tables in cases.items():
        lines = study.of(name, "dpglm")
        if tables[0] is None or not lines:
            continue
        modes = [posterior_mode(table) for table in tables]
        design = tables[0].design
        radius = tables[0].radius or design.largest_squared_norm**0.5
        for wanted in (0.1, 0.3, 1.0):
            line = min(lines, key=lambda line: abs(line["epsilon"] - wanted))
            found = private(
                python, x=[t.rows.x for t in tables], y=[t.rows.y for t in tables], epsilon=line["epsilon"],
                intercept=design.intercept, family="logistic", radius=radius,
            )  # fmt: skip
            ours = study.one(name, "staged", epsilon=line["epsilon"]) or line
            results.append({"table": f"{name} (logistic)", "epsilon": line["epsilon"],
                            "diffprivlib": _error(found, modes), "dpglm": typical_error(ours)})  # fmt: skip
    return results


def linear_results(python: str) -> list[dict[str, Any]]:
    """A linear table of 1,000 rows; dpglm by the Laplace approximation."""
    import pandas as pd

    import dpglm
    from dpglm.custodian.build import Request, build_release
    from paper.seed import SEED
    from seeded_noise import SeededNoise

    rows, results = 1_000, []
    columns = {name: {"type": "numeric", "lower": -1, "upper": 1} for name in ("a", "b", "c", "y")}
    schema = {"dataset": {"name": "linear", "rows": rows}, "columns": columns}
    tables, modes = [], []
    for number in range(RUNS):
        rng = np.random.default_rng([SEED, 10, number])
        x = np.clip(0.4 * rng.normal(size=(rows, 3)), -1, 1)
        y = np.clip(0.1 + x @ np.array(LINEAR_SLOPES) + 0.2 * rng.normal(size=rows), -1, 1)
        tables.append(pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}))
        matrix = np.column_stack([np.ones(rows), x])
        theta = np.linalg.lstsq(matrix, y, rcond=None)[0]
        variance = np.sum((y - matrix @ theta) ** 2) / (rows - 4)
        modes.append((theta, np.sqrt(np.diag(variance * np.linalg.inv(matrix.T @ matrix)))))
    for epsilon in LINEAR_EPSILONS:
        found = private(
            python, x=[t[["a", "b", "c"]].to_numpy() for t in tables], y=[t["y"].to_numpy() for t in tables],
            epsilon=epsilon, intercept=True, family="linear", radius=1.0,
        )  # fmt: skip
        request = Request("y ~ a + b + c", schema, "linear", epsilon, 1e-5, method="moments")
        releases = [
            build_release(table, request, SeededNoise([SEED, 10, number])) for number, table in enumerate(tables)
        ]
        fits = dpglm.fit_many(releases, method="laplace", progress=False)
        means = np.array([fit.draws().reshape(-1, 4).mean(axis=0) for fit in fits])
        results.append({"table": "simulated (linear, N = 1,000)", "epsilon": epsilon,
                        "diffprivlib": _error(found, modes), "dpglm": _error(means, modes)})  # fmt: skip
    return results


def _error(found: np.ndarray, modes: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Median over runs of the root mean square distance, in standard errors of the non-private estimate."""
    each = [np.sqrt(np.mean(((theta - mode) / sd) ** 2)) for theta, (mode, sd) in zip(found, modes, strict=True)]
    return float(np.median(each))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="interpreter that has diffprivlib")
    parser.add_argument("--rows", type=Path, help="(used by the script itself)")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    if options.rows:
        estimate(options.rows)
        return
    from machine import RESULTS, save

    results = logistic_results(options.python, options.data, RESULTS / "paper.jsonl") + linear_results(options.python)
    save("paper_point_estimates", results)


if __name__ == "__main__":
    main()
