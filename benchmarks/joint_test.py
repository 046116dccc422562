"""How often the joint test of coefficients has a small p value, where they are zero and where they are not.

Simulated tables: a number with an effect, a factor of four levels and a skewed number, which have none or some. Counts
are overdispersed, residuals of the linear outcome heavy-tailed.

    python benchmarks/joint_test.py [TABLES]
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpglm
from dpglm.custodian.build import Request, build_release
from seeded_noise import SeededNoise

TABLES, SEED = 150, 20261119
CELLS = ((3_000, 1.0), (20_000, 0.5))  # rows, epsilon
OUTCOMES = {"logistic": "sick", "poisson": "visits", "linear": "cost"}
COLUMNS: dict[str, Any] = {
    "a": {"type": "numeric", "lower": -40, "upper": 60},
    "b": {"type": "numeric", "lower": 0, "upper": 200},
    "g": {"type": "categorical", "levels": ["w", "x", "y", "z"]},
    "sick": {"type": "binary", "levels": [0, 1]},
    "visits": {"type": "count", "upper": 80},
    "cost": {"type": "numeric", "lower": -1000, "upper": 2000},
}


def table_of(rows: int, number: int, effect: float) -> pd.DataFrame:
    rng = np.random.default_rng([SEED, rows, number])
    a, b, level = rng.normal(10, 5, rows), rng.lognormal(1.5, 0.8, rows), rng.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])
    more = effect * np.array([0, 0.3, -0.2, 0.4])[level]
    mean = np.exp(0.4 + 0.05 * (a - 10) + more)
    return pd.DataFrame(
        {
            "a": a, "b": b, "g": np.array(list("wxyz"))[level],
            "sick": (rng.random(rows) < 1 / (1 + np.exp(1 - 0.1 * a - more))).astype(int),
            "visits": rng.negative_binomial(2, 2 / (2 + mean)),
            "cost": 100 + 2 * a + 40 * more + 30 * rng.standard_t(4, rows),
        }
    )  # fmt: skip


def main() -> None:
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else TABLES
    warnings.simplefilter("ignore", dpglm.FitWarning)
    for family, outcome in OUTCOMES.items():
        for rows, epsilon in CELLS:
            dataset = {"name": "simulated", "rows": rows, "unit": "one person"}
            schema = dpglm.Schema.from_dict({"dataset": dataset, "columns": COLUMNS})
            request = Request(f"{outcome} ~ a + g + b", schema, family, epsilon, 1e-6)
            for effect, number in ((0.0, tables), (1.0, tables // 4)):
                chances = np.array(
                    [
                        dpglm.fit(build_release(table_of(rows, each, effect), request, SeededNoise(each)))
                        .test(["g", "b"])
                        .p_value
                        for each in range(number)
                    ]
                )
                found = (
                    f"p < 0.05 in {np.mean(chances < 0.05):.1%} of {number}, p < 0.2 in {np.mean(chances < 0.2):.1%}"
                )
                print(f"{family}, {rows:,} rows, epsilon {epsilon:g}, effect {effect:g}: {found}", flush=True)


if __name__ == "__main__":
    main()
