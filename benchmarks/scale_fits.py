"""Many predictors and many fits: cost of the likelihood, fits of 50 and 100 columns, a thousand fits in one batch.

    python benchmarks/scale_fits.py                          what two cores can do; adds to results/scale_fits.json
    python benchmarks/scale_fits.py --releases FOLDER        only make the releases that the fits need
    python benchmarks/scale_fits.py --from FOLDER --output FILE --parts wide many    on another machine
    python benchmarks/scale_fits.py --merge FILE             add that machine's results

Releases are made by the custodian's code with seeded noise. Fits run on whatever device JAX finds first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from machine import RESULTS, machine

SEED = 20261115
EPSILON, DELTA = 1.0, 1e-6
GRADIENT_COLUMNS = (10, 20, 30, 50, 70, 100)
LARGEST_DENSE = 30
WIDE = {50: 1_000_000, 100: 1_000_000}  # columns: rows
DRAWS = 1_000
MANY, MANY_COLUMNS, MANY_ROWS = 1_000, 5, 20_000
ONE_BY_ONE = 5
PARTS = ("gradient", "wide", "widest", "many", "same")
STORED = RESULTS / "scale_fits.json"


def release_of(columns: int, rows: int, seed: int) -> Any:
    """Gaussian columns, neighbours correlated by 0.5, slopes of norm 3 on columns scaled into the unit ball."""
    from dpglm import Schema
    from dpglm.custodian.build import Request, build_release
    from seeded_noise import SeededNoise

    rng = np.random.default_rng([SEED, columns, seed])
    theta = rng.normal(size=columns)
    theta *= 3 / np.linalg.norm(theta)
    place = np.arange(columns)
    factor = np.linalg.cholesky(0.5 ** np.abs(place[:, None] - place) * 0.3 / columns)
    names = [f"x{j}" for j in range(columns)]

    import pyarrow as pa

    def batches() -> Any:
        left = np.random.default_rng([SEED, columns, seed, 1])
        for first in range(0, rows, 50_000):
            x = left.normal(size=(min(50_000, rows - first), columns)) @ factor.T
            y = (left.random(len(x)) < 1 / (1 + np.exp(-0.3 - x @ theta))).astype(np.int64)
            yield pa.RecordBatch.from_arrays([*(pa.array(x[:, j]) for j in range(columns)), pa.array(y)], [*names, "y"])

    content: dict[str, Any] = {name: {"type": "numeric", "lower": -1, "upper": 1} for name in names}
    content["y"] = {"type": "binary", "levels": [0, 1], "fill": 0}
    schema = Schema.from_dict({"dataset": {"name": "simulated", "rows": rows}, "columns": content})
    request = Request("y ~ " + " + ".join(names), schema, "logistic", EPSILON, DELTA, method="moments", radius=1.0)
    return build_release(pa.Table.from_batches(list(batches())), request, SeededNoise([SEED, columns, seed, 2]))


def make_releases(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(columns, rows, 0) for columns, rows in WIDE.items()]
    wanted += [(MANY_COLUMNS, MANY_ROWS, seed) for seed in range(MANY)]
    for columns, rows, seed in wanted:
        path = folder / f"{columns}-{seed}.json"
        if not path.exists():
            release_of(columns, rows, seed).save(path)


def load(folder: Path, columns: int, seed: int = 0) -> Any:
    import dpglm

    return dpglm.load_release(folder / f"{columns}-{seed}.json")


def timed_fit(run: Any) -> tuple[Any, float]:
    import dpglm

    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)
        made = run()
    return made, time.perf_counter() - start


def gradient(folder: Path) -> list[dict[str, float]]:
    """Seconds for the log density and its gradient at one point, structured and dense."""
    from fit_speed import gradient_seconds, simulated

    rows = []
    for columns in GRADIENT_COLUMNS:
        release = simulated(columns, "full")
        entry = {"columns": columns, "structured": gradient_seconds(release, points=1)[1]}
        if columns <= LARGEST_DENSE:
            entry["dense"] = gradient_seconds(release, dense=True, points=1)[1]
        print(json.dumps(entry), flush=True)
        rows.append(entry)
    return rows


def wide(folder: Path, draws: int, columns: int = 50) -> dict[str, Any]:
    """One fit, compilation included."""
    import dpglm

    release = load(folder, columns)
    fit, seconds = timed_fit(lambda: dpglm.fit(release, draws=draws, progress=False))
    diagnostics = fit.diagnostics
    return {
        "columns": columns, "rows": WIDE[columns], "draws": draws, "seconds": seconds,
        "ess_bulk": float(diagnostics.ess_bulk.min()), "ess_tail": float(diagnostics.ess_tail.min()),
        "r_hat": float(diagnostics.r_hat.max()), "divergences": diagnostics.divergences,
    }  # fmt: skip


def many(folder: Path, draws: int, count: int = MANY) -> dict[str, Any]:
    """A batch of fits, with and without compilation; then some one by one, in one process and as commands.

    On a processor the batch and the loop are timed three times in turn, and the best of each counts.
    """
    import dpglm

    releases = [load(folder, MANY_COLUMNS, seed) for seed in range(count)]
    run_many = partial(dpglm.fit_many, releases, draws=draws, progress=False)

    def run_loop(some: list[Any]) -> list[Any]:
        return [dpglm.fit(each, draws=draws, progress=False) for each in some]

    fits, seconds = timed_fit(run_many)
    r_hats = [float(fit.diagnostics.r_hat.max()) for fit in fits]
    timed_fit(partial(run_loop, releases[:1]))  # compiles
    warm, alone = [], []
    for _ in range(3 if device_name() == "cpu" else 1):
        warm.append(timed_fit(run_many)[1])
        alone.append(timed_fit(partial(run_loop, releases[1 : 1 + ONE_BY_ONE]))[1] / ONE_BY_ONE)
    commands = {}
    if device_name() == "cpu":
        from fit_speed import command_line

        with tempfile.TemporaryDirectory() as cache:
            seconds_of = [command_line(folder / f"{MANY_COLUMNS}-{seed}.json", Path(cache)) for seed in range(4)]
        commands = {"command_seconds": sum(seconds_of[1:]) / 3}  # the first compiles
    return commands | {
        "fits": count, "columns": MANY_COLUMNS, "draws": draws,
        "seconds": seconds, "warm_seconds": min(warm), "one_by_one_seconds": min(alone),
        "r_hat": max(r_hats), "r_hat_above": sum(r_hat >= 1.01 for r_hat in r_hats),
        "ess_bulk": min(float(fit.diagnostics.ess_bulk.min()) for fit in fits),
    }  # fmt: skip


def same(folder: Path) -> dict[str, Any]:
    """Summaries of ten fits, to be compared between devices."""
    import dpglm

    releases = [load(folder, MANY_COLUMNS, seed) for seed in range(10)]
    fits, _ = timed_fit(lambda: dpglm.fit_many(releases, draws=DRAWS, progress=False, seed=7))
    draws = np.stack([fit.draws("scaled") for fit in fits])
    ess = [fit.diagnostics.ess_bulk.tolist() for fit in fits]
    return {"mean": draws.mean(axis=(1, 2)).tolist(), "sd": draws.std(axis=(1, 2)).tolist(), "ess": ess}


def device_name() -> str:
    import jax

    return "gpu" if jax.default_backend() == "gpu" else "cpu"


def stored_results() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {"results": {}, "machine": {}}
    return content


def add(found: dict[str, Any], where: dict[str, Any], output: Path = STORED) -> None:
    content = stored_results() if output == STORED else {"results": {}, "machine": {}}
    for device, parts in found.items():
        content["results"].setdefault(device, {}).update(parts)
        content["machine"][device] = where
    output.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=Path)
    parser.add_argument("--from", dest="folder", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["gradient", "wide", "many", "same"])
    parser.add_argument("--count", type=int, default=MANY, help="fits of the batch")
    parser.add_argument("--draws", type=int, default=DRAWS, help="of each chain")
    parser.add_argument("--output", type=Path, default=STORED)
    parser.add_argument("--merge", type=Path)
    arguments = parser.parse_args()
    if arguments.releases:
        return make_releases(arguments.releases)
    if arguments.merge:
        content = json.loads(arguments.merge.read_text())
        for device, parts in content["results"].items():
            add({device: parts}, content["machine"][device])
        return None
    folder = arguments.folder
    if folder is None:
        folder = Path(tempfile.mkdtemp())
        make_releases(folder)
    found: dict[str, Any] = {}
    for part in arguments.parts:
        run = {
            "gradient": lambda: gradient(folder), "wide": lambda: wide(folder, arguments.draws),
            "widest": lambda: wide(folder, arguments.draws, 100),
            "many": lambda: many(folder, arguments.draws, arguments.count), "same": lambda: same(folder),
        }[part]  # fmt: skip
        found.setdefault(device_name(), {})[part] = run()
        if part != "same":
            print(part, json.dumps(found[device_name()][part]), flush=True)
        add(found, machine(), arguments.output)
    return None


if __name__ == "__main__":
    main()
