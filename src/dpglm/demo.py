"""The whole story on a simulated table: schema, ledger, release, fit, report, and the answer only the demo may see.

    python -m dpglm.demo [FOLDER]

The table is simulated here, and says so: no real person is in it, and the true coefficients are known.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpglm
from dpglm.errors import FileError
from dpglm.terminal import aligned

SEED = 7
ROWS = 8_000
FORMULA = "diabetes ~ age + bmi + smoker"
EPSILON, DELTA, CAP = 1.0, 1e-6, 3.0
SCHEMA = f"""[dataset]
name = "simulated patients"
rows = {ROWS}
unit = "one patient"

[columns.age]
type = "numeric"
label = "Age in years"
lower = 0
upper = 150

[columns.bmi]
type = "numeric"
label = "Body mass index"
lower = 0
upper = 1000

[columns.smoker]
type = "categorical"
label = "Smoking"
levels = ["never", "former", "current"]
fill = "never"

[columns.diabetes]
type = "binary"
label = "Diabetes"
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
    x = np.column_stack([np.ones(len(table)), table["age"], table["bmi"], *smoker])
    y = (table["diabetes"] == "yes").astype(float).to_numpy()
    theta = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-x @ theta))
        information = (x * (p * (1 - p))[:, None]).T @ x
        theta = theta + np.linalg.solve(information, x.T @ (y - p))
    return theta, np.sqrt(np.diag(np.linalg.inv(information)))


def run(folder: Path, *, quiet: bool = False, seed: int = 1) -> None:
    """Write schema, table, ledger, release, fit and report into a new or empty folder, and print what happens."""
    say: Callable[[str], None] = _silent if quiet else _say
    start = time.perf_counter()
    _make(folder)
    files = {name: folder / f"patients.{name}" for name in ("toml", "csv", "ledger")}
    released, fitted, page = (folder / f"diabetes.{end}" for end in ("release.json", "fit.npz", "html"))

    say("1. THE CUSTODIAN has the rows. A person declared levels, their number, and bounds, which may be generous:")
    say("   here a body mass index from 0 to 1,000. Where the columns live is found out through noise.")
    files["toml"].write_text(SCHEMA)
    table = simulated_table()
    table.to_csv(files["csv"], index=False)
    schema = dpglm.Schema.load(files["toml"])
    say(f"   {ROWS:,} simulated patients in {files['csv'].name}, schema in {files['toml'].name}.")

    say(f"\n2. A LEDGER caps what may ever be released about them: epsilon = {CAP:g} in all.")
    ledger = dpglm.Ledger.create(files["ledger"], schema.dataset, epsilon=CAP, delta=DELTA)
    release = dpglm.release(
        files["csv"], FORMULA, schema=schema, family="logistic", epsilon=EPSILON, delta=DELTA, ledger=ledger,
    )  # fmt: skip
    release.save(released)
    left = ledger.summary().remaining_epsilon
    say(f"   One release of epsilon = {EPSILON:g} leaves {left:.3g} for one more.")

    say(f"\n3. THE RELEASE is one small file ({released.stat().st_size / 1000:.0f} kB). What it promises:")
    say(_indented(release.statement))

    say("\n4. THE ANALYST has that file and nothing else, and fits it in closed form.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)  # shown below as notes
        fit = dpglm.fit(dpglm.load_release(released), seed=seed)
    fit.save(fitted)
    say("   The posterior, beside the non-private fit and the truth that only this demo may see:\n")
    say(_indented(_comparison(fit, table), width=None))
    for warning in fit.warnings:
        say(f"   note: {warning}")

    dpglm.report(fit, page)
    say(f"\n5. THE REPORT is one web page that needs no network ({page.stat().st_size / 1000:.0f} kB). Open it:")
    say(f"   {page.resolve().as_uri()}")
    say(f"\nDone in {time.perf_counter() - start:.1f} s. To try next, in {folder}:")
    say(_indented(_next_steps(), width=None))


def _comparison(fit: Any, table: Any) -> str:
    estimate, error = plain_fit(table)
    head = ("coefficient", "mean", "95 % interval", "privacy", "| non-private", "its 95 % interval", "truth")
    rows = []
    for index, (name, row) in enumerate(fit.summary().iterrows()):
        low, high = estimate[index] - 1.96 * error[index], estimate[index] + 1.96 * error[index]
        rows.append(
            (
                str(name), f"{row['mean']:.3f}", f"{row['lower']:.3f} to {row['upper']:.3f}",
                f"{row['inflation']:.2f} x as wide", f"| {estimate[index]:11.3f}", f"{low:.3f} to {high:.3f}",
                f"{TRUTH[str(name)]:.3f}",
            )
        )  # fmt: skip
    return aligned(head, rows)


def _next_steps() -> str:
    return """dpglm ledger show patients.ledger
dpglm report diabetes.fit.npz --output at-40.html --at age=40
dpglm release patients.csv --schema patients.toml --formula "diabetes ~ age * bmi" \\
  --family logistic --epsilon 2 --delta 1e-6 --ledger patients.ledger \\
  --survey diabetes.release.json --output second.release.json
dpglm init patients.csv        (the first step with a table of your own; then docs/custodian.md)"""


def _make(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError("folder", str(folder), "must be new or empty", "choose another name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError("folder", str(folder), f"cannot be made ({error.strerror})", "choose another place") from None


def _indented(text: str, width: int | None = 105) -> str:
    import textwrap

    lines = textwrap.wrap(text, width) if width else text.split("\n")
    return "\n".join(f"   {line}" for line in lines)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _silent(text: str) -> None:
    del text


def main() -> None:
    """Run in the folder given, or in a new temporary one; a mistake is one line, as on the command line."""
    from dpglm.cli import main as command_line

    command_line(["demo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
