"""Speed of releases by looks and of their fits, beside a plain pass of NumPy over the same rows; writes a page.

A plain pass is what a look must at least do: z = x W', and the three sums z'r, z'Wz and z'r^2 z, in double precision,
all rows in memory. Releases read a data frame, with noise of the operating system.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpglm
from machine import commit, machine, save

DOCS = Path(__file__).parent.parent / "docs"
SIZES = ((50_000, 6), (50_000, 31), (200_000, 61), (1_000_000, 101))
GROWTH = (6, 11, 21, 41, 81, 141, 200)
FITS = 1_000


def table(rows: int, coefficients: int) -> tuple[pd.DataFrame, dict[str, Any], str]:
    """Normal predictors, some of which matter, with bounds thirty times as wide as needed."""
    rng = np.random.default_rng([rows, coefficients])
    x = rng.normal(size=(rows, coefficients - 1))
    frame = pd.DataFrame(x, columns=[f"x{n}" for n in range(coefficients - 1)])
    frame["y"] = (rng.random(rows) < 1 / (1 + np.exp(-0.4 * x[:, :4].sum(axis=1)))).astype(int)
    columns: dict[str, Any] = {name: {"type": "numeric", "lower": -100, "upper": 100} for name in frame.columns[:-1]}
    columns["y"] = {"type": "binary", "levels": [0, 1], "fill": 0}
    schema = {"dataset": {"name": "speed", "rows": rows, "unit": "one row"}, "columns": columns}
    return frame, schema, "y ~ " + " + ".join(frame.columns[:-1])


def released(rows: int, coefficients: int) -> dpglm.Release:
    frame, schema, formula = table(rows, coefficients)
    parsed = dpglm.Schema.from_dict(schema)
    return dpglm.release(frame, formula, schema=parsed, family="logistic", epsilon=1.0, delta=1e-6, ledger=None)


def plain_pass(frame: pd.DataFrame) -> None:
    x = np.column_stack([np.ones(len(frame)), frame.iloc[:, :-1].to_numpy()])
    z = x @ np.eye(x.shape[1])
    residual = frame["y"].to_numpy() - 0.5
    scored = z * residual[:, None]
    assert np.isfinite(scored.sum() + ((z * 0.25).T @ z).sum() + (scored.T @ scored).sum())


def best(function: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the quickest of some runs."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def sizes() -> list[dict[str, Any]]:
    results = []
    for rows, coefficients in SIZES:
        frame, schema, formula = table(rows, coefficients)
        parsed, times = dpglm.Schema.from_dict(schema), 1 if rows > 500_000 else 3

        def release(frame: Any = frame, formula: str = formula, parsed: Any = parsed) -> dpglm.Release:
            return dpglm.release(frame, formula, schema=parsed, family="logistic", epsilon=1.0, delta=1e-6, ledger=None)

        made = release()
        results.append(
            {
                "rows": rows, "coefficients": coefficients, "release": best(release, times),
                "plain": best(lambda frame=frame: plain_pass(frame), times),
                "fit": best(lambda made=made: dpglm.fit(made)),
            }
        )  # fmt: skip
        print(results[-1], flush=True)
    return results


def growth() -> list[dict[str, float]]:
    """A fit by its number of coefficients; the release is of few rows, which a fit does not see."""
    results = []
    for coefficients in GROWTH:
        made = released(4_000, coefficients)
        results.append({"coefficients": coefficients, "fit": best(lambda made=made: dpglm.fit(made))})
        print(results[-1], flush=True)
    return results


def many() -> float:
    """A thousand fits of five predictors, each of a release that was never fitted before."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.release.json") for number in range(20)]
        for path in paths:
            released(5_000, 6).save(path)
        made = [dpglm.load_release(path) for path in paths * (FITS // len(paths))]
    started = time.perf_counter()
    dpglm.fit_many(made)
    return time.perf_counter() - started


def command() -> dict[str, float]:
    """`dpglm fit` from the shell to its table: the first time, and the best of five."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.release.json")
        released(20_000, 6).save(path)

        def run() -> None:
            words = [sys.executable, "-m", "dpglm", "fit", str(path), "--output", str(Path(folder, "a.npz")), "--force"]
            subprocess.run(words, check=True, capture_output=True)

        first = best(run, 1)
        return {"first": first, "best": best(run, 5)}


def page(results: dict[str, Any], facts: dict[str, Any], of: str) -> str:
    lines = [
        "# Speed of looks", "",
        f"Written by `python benchmarks/looks_speed.py` ({facts['processor']}, {facts['cores']} cores; commit {of})."
        " Do not edit.", "",
        "A plain pass is one look's arithmetic in NumPy, rows in memory; a release reads the frame seven times:"
        " a survey, a profile and five looks.", "",
        "| rows | coefficients | release, s | plain pass, s | release over seven plain passes | fit, s |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| {each['rows']:,} | {each['coefficients']} | {each['release']:.2f} | {each['plain']:.3f} |"
        f" {each['release'] / each['plain'] / 7:.1f} | {each['fit']:.3f} |"
        for each in results["sizes"]
    ]
    lines += ["", "A fit by the number of coefficients:", "", "| coefficients | fit, s |", "|---|---|"]
    lines += [f"| {each['coefficients']} | {each['fit']:.3f} |" for each in results["growth"]]
    first, last = results["growth"][-4], results["growth"][-1]
    power = np.log(last["fit"] / first["fit"]) / np.log(last["coefficients"] / first["coefficients"])
    lines += [
        "",
        f"From {first['coefficients']} to {last['coefficients']} coefficients the time grows as their number to the"
        f" power {power:.1f}.",
        f"{FITS:,} fits of five predictors by `fit_many` take {results['many']:.1f} s.",
        f"`dpglm fit` of five predictors, from the shell to the table: {results['command']['best']:.2f} s"
        f" ({results['command']['first']:.2f} s the first time).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    results = {"sizes": sizes(), "growth": growth(), "many": many(), "command": command()}
    save("looks_speed", results)
    (DOCS / "looks_speed.md").write_text(page(results, machine(), commit()), encoding="utf-8")


if __name__ == "__main__":
    main()
