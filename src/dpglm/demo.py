"""The whole story on a simulated table: schema, ledger, release, fit, and the answer that only the demo may see.

    python -m dpglm.demo [FOLDER]

The table is simulated here, and says so: no real person is in it.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dpglm

SEED = 7
ROWS = 8_000
FORMULA = "diabetes ~ age + bmi + smoker"
EPSILON, DELTA = 1.0, 1e-6
SCHEMA = f"""[dataset]
name = "simulated patients"
rows = {ROWS}
unit = "one patient"

[columns.age]
type = "numeric"
lower = 20
upper = 90

[columns.bmi]
type = "numeric"
lower = 15
upper = 45

[columns.smoker]
type = "categorical"
levels = ["never", "former", "current"]
fill = "never"

[columns.diabetes]
type = "binary"
levels = ["no", "yes"]
fill = "no"
"""
TRUTH = {"Intercept": -6.0, "age": 0.045, "bmi": 0.09, "smoker[former]": 0.2, "smoker[current]": 0.6}


def simulated_table() -> Any:
    """Patients who do not exist."""
    import pandas as pd

    rng = np.random.default_rng(SEED)
    age = np.clip(rng.normal(52, 15, ROWS), 18, 95).round()
    bmi = np.clip(rng.normal(27, 4.5, ROWS), 14, 50).round(1)
    smoker = rng.choice(["never", "former", "current"], ROWS, p=[0.5, 0.3, 0.2])
    u = TRUTH["Intercept"] + TRUTH["age"] * age + TRUTH["bmi"] * bmi
    u += np.where(smoker == "former", TRUTH["smoker[former]"], 0) + np.where(
        smoker == "current", TRUTH["smoker[current]"], 0
    )
    sick = rng.random(ROWS) < 1 / (1 + np.exp(-u))
    return pd.DataFrame({"age": age, "bmi": bmi, "smoker": smoker, "diabetes": np.where(sick, "yes", "no")})


def plain_fit(table: Any) -> tuple[Any, Any]:
    """Non-private maximum likelihood and standard errors, by Newton's method: what only the demo may see."""
    smoker = [(table["smoker"] == level).astype(float) for level in ("former", "current")]
    x = np.column_stack([np.ones(len(table)), table["age"].clip(20, 90), table["bmi"].clip(15, 45), *smoker])
    y = (table["diabetes"] == "yes").astype(float).to_numpy()
    theta = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-x @ theta))
        information = (x * (p * (1 - p))[:, None]).T @ x
        theta = theta + np.linalg.solve(information, x.T @ (y - p))
    return theta, np.sqrt(np.diag(np.linalg.inv(information)))


def run(folder: Path) -> None:
    """Write schema, table, ledger, release and fit into a folder, and print what happens."""
    start = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "patients.toml").write_text(SCHEMA)
    table = simulated_table()
    table.to_csv(folder / "patients.csv", index=False)
    schema = dpglm.Schema.load(folder / "patients.toml")
    _say(f"1. The custodian has {ROWS:,} simulated rows and a schema that a person wrote ({folder / 'patients.toml'}).")
    ledger = dpglm.Ledger.create(folder / "patients.ledger", schema.dataset, epsilon=3, delta=DELTA)
    release = dpglm.release(
        folder / "patients.csv", FORMULA, schema=schema, family="logistic", epsilon=EPSILON, delta=DELTA, ledger=ledger
    )
    release.save(folder / "diabetes.release.json")
    _say("2. One release, and what it promises:")
    _say(f"   {release.statement}")
    _say(f"\n{ledger.summary()}\n")
    _say("3. The analyst has the release file and nothing else. Fitting; the first time compiles, half a minute ...")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = dpglm.fit(dpglm.load_release(folder / "diabetes.release.json"), seed=1)
    fit.save(folder / "diabetes.fit.npz")
    summary = fit.summary()[["mean", "sd", "lower", "upper", "p_sign", "significant", "inflation"]]
    estimate, error = plain_fit(table)
    summary["non-private"], summary["its sd"], summary["truth"] = estimate, error, list(TRUTH.values())
    _say("4. The posterior, beside the non-private fit that only this demo may see:\n")
    _say(summary.round(3).to_string())
    for warning in fit.warnings:
        _say(f"note: {warning}")
    seconds = time.perf_counter() - start
    _say(f"\nDone in {seconds:.0f} s. Files are in {folder}. Next: docs/custodian.md, docs/method.md.")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run in the folder given, or in a new temporary one."""
    run(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="dpglm-demo-")))


if __name__ == "__main__":
    main()
