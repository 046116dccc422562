"""Coverage, width and error of releases by looks on real and misspecified tables, whatever the declared bounds.

Tables of size N are drawn, with replacement, from a full table whose own estimate is the population value. Every
release is made by the custodian's code from a data frame of the drawn rows, and fitted by the analyst's; only its noise
comes from a seeded generator. Bounds are those of a careful custodian, and 5, 30 and 300 times as wide, and none. The
same samples serve every budget and every width. Resumable: finished cells are kept in a results file.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.errors import SurveyError
from machine import RESULTS, commit, machine
from other_tables import OTHERS
from real_tables import LOADERS, frame_of, maximum_likelihood, rows_of, widened
from seeded_noise import SeededNoise

SEED, DELTA, REPETITIONS = 20261118, 1e-5, 50
EPSILONS, SIZES, WIDTHS = (0.3, 1.0, 3.0, 10.0), (2_000, 10_000, 40_000), (1.0, 5.0, 30.0, 300.0, None)
LEVELS = (0.5, 0.9, 0.95, 0.99)
OUTPUT = RESULTS / "real.jsonl"
TABLES = LOADERS | OTHERS
_QUANTILES = (0.6744897501960817, 1.6448536269514722, 1.959963984540054, 2.5758293035489004)


@lru_cache(maxsize=2)
def whole(name: str, folder: Path) -> Any:
    """A table with its population values."""
    loaded = frame_of(TABLES[name], folder)
    if loaded is None:
        return None
    frame, columns, formula, family = loaded
    x, y = rows_of(frame, columns, formula)
    return frame, columns, formula, family, x, y, maximum_likelihood(family, x, y)[0]


def run_sample(
    name: str, folder: Path, rows: int, number: int, epsilons: tuple[float, ...], widths: tuple[float | None, ...]
) -> list[dict[str, Any]]:
    """One drawn table: every budget and width. Numbers are by coefficient, in the user's units."""
    frame, columns, formula, family, x, y, population = whole(name, folder)
    key = [SEED, list(TABLES).index(name), rows, number]
    chosen = np.random.default_rng(key).integers(0, len(y), rows)
    estimate, _, sandwich = maximum_likelihood(family, x[chosen], y[chosen])
    error = np.sqrt(np.diag(sandwich))
    drawn = frame.iloc[chosen].reset_index(drop=True)
    results = []
    for epsilon in epsilons:
        for width in widths:
            # Cells differ in their noise, too.
            noise = SeededNoise(np.random.default_rng([*key, int(1000 * epsilon), int(10 * (width or 0))]))
            schema = {
                "dataset": {"name": name, "rows": rows, "unit": "one row"},
                "columns": widened(columns, width),
            }
            stopped = False
            started = time.perf_counter()
            try:
                made = build_release(drawn, Request(formula, schema, family, epsilon, DELTA), noise)
            except SurveyError as stop:
                stopped = True
                request = Request(formula, schema, family, epsilon, DELTA, survey=stop.release)
                made = build_release(drawn, request, noise)
            released = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = dpglm.fit(made, seed=1)
            summary = fit.summary_rows()
            ended = time.perf_counter()
            mean, stddev = (np.array([row[part] for row in summary]) for part in ("mean", "sd"))
            table = fit.summary_rows(target="table")
            own = np.array([[row["mean"], row["sd"]] for row in table]).T
            results.append(
                {
                    "epsilon": epsilon, "width": width, "z": (mean - population) / stddev, "sd": stddev / error,
                    "error": (mean - estimate) / error, "plain": (estimate - population) / error,
                    "table": (own[0] - estimate) / own[1], "stated": fit.inflation[0], "warned": bool(fit.warnings),
                    "surprised": bool(fit.closed is not None and fit.closed.surprises.min(initial=1.0) < 1e-3),
                    "stopped": stopped, "release": released - started, "fit": ended - released,
                }
            )  # fmt: skip
    return results


def run_chunk(job: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Some samples of one table and size."""
    name, folder, rows, numbers, epsilons, widths = job
    return [result for number in numbers for result in run_sample(name, folder, rows, number, epsilons, widths)]


def cell_of(name: str, family: str, rows: int, names: list[str], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Averages over the samples of a cell."""
    stack = {key: np.array([part[key] for part in parts]) for key in ("z", "sd", "error", "plain", "table", "stated")}
    z = stack["z"]
    return {
        "table": name, "family": family, "rows": rows, "epsilon": parts[0]["epsilon"], "width": parts[0]["width"],
        "repetitions": len(parts), "names": names,
        "cover": {str(level): _by(np.abs(z) <= q) for level, q in zip(LEVELS, _QUANTILES, strict=True)},
        "plain_cover": _by(np.abs(stack["plain"]) <= _QUANTILES[2]),
        "table_cover": _by(np.abs(stack["table"]) <= _QUANTILES[2]),
        "z": _short(np.sqrt(np.mean(np.minimum(z**2, 100), axis=0))), "bias": _by(np.clip(z, -10, 10)),
        "sd": _short(np.median(stack["sd"], axis=0)), "rmse": _short(np.sqrt(np.mean(stack["error"] ** 2, axis=0))),
        "median_error": _short(np.median(np.abs(stack["error"]), axis=0)),
        "stated": _short(np.median(stack["stated"] / stack["sd"], axis=0)),
        "warned": float(np.mean([part["warned"] for part in parts])),
        "surprised": float(np.mean([part["surprised"] for part in parts])),
        "stopped": float(np.mean([part["stopped"] for part in parts])),
        "release_seconds": round(float(np.median([part["release"] for part in parts])), 4),
        "fit_seconds": round(float(np.median([part["fit"] for part in parts])), 4),
    }  # fmt: skip


def _by(values: np.ndarray) -> list[float]:
    return _short(np.asarray(values, dtype=float).mean(axis=0))


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """Cells that are done, by key."""
    if not path.exists():
        return {}
    cells = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {key_of(cell): cell for cell in cells}


def key_of(cell: dict[str, Any]) -> str:
    return "|".join(str(cell[name]) for name in ("table", "rows", "epsilon", "width"))


def cells(
    name: str, rows: int, options: argparse.Namespace, done: dict[str, Any], pool: ProcessPoolExecutor
) -> Iterator[dict[str, Any]]:
    """The missing cells of a table and a size."""
    wanted = [(epsilon, width) for epsilon in options.epsilons for width in options.widths]
    wanted = [
        (epsilon, width)
        for epsilon, width in wanted
        if key_of({"table": name, "rows": rows, "epsilon": epsilon, "width": width}) not in done
    ]
    loaded = whole(name, options.data) if wanted else None
    if loaded is None or rows > 1.05 * len(loaded[0]):
        return
    epsilons, widths = (tuple(dict.fromkeys(part)) for part in zip(*wanted, strict=True))
    numbers = np.array_split(np.arange(options.repetitions), min(options.jobs, options.repetitions))
    jobs = [(name, options.data, rows, chunk.tolist(), epsilons, widths) for chunk in numbers]
    parts = [part for result in as_completed([pool.submit(run_chunk, job) for job in jobs]) for part in result.result()]
    columns = loaded[2].split("~")[1].split("+")
    names = ["Intercept", *(column.strip() for column in columns)]
    for epsilon, width in wanted:
        own = [part for part in parts if (part["epsilon"], part["width"]) == (epsilon, width)]
        yield cell_of(name, loaded[3], rows, names, own)


def line(cell: dict[str, Any]) -> str:
    """A cell for the eye."""
    cover = np.array(cell["cover"]["0.95"])
    return (
        f"{cell['table']:18s} N={cell['rows']:<6d} eps={cell['epsilon']:<4g} width={cell['width']!s:5s}"
        f" plain {np.mean(cell['plain_cover']):.3f} | cover {cover.mean():.3f} min {cover.min():.2f}"
        f" z {np.sqrt(np.mean(np.square(cell['z']))):.2f} sd {np.mean(cell['sd']):.2f}"
        f" rmse {np.sqrt(np.mean(np.square(cell['rmse']))):.2f} stated {np.mean(cell['stated']):.2f}"
        f" table {np.mean(cell['table_cover']):.3f} warned {cell['warned']:.2f} surprised {cell['surprised']:.2f}"
        f" stopped {cell['stopped']:.2f} ms {1000 * cell['release_seconds']:.0f}+{1000 * cell['fit_seconds']:.0f}"
    )


def _width(text: str) -> float | None:
    return None if text == "none" else float(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of public tables")
    parser.add_argument("--tables", nargs="*", default=list(LOADERS))
    parser.add_argument("--rows", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--widths", nargs="*", type=_width, default=list(WIDTHS), help="or none")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    done = finished(options.output)
    options.output.parent.mkdir(exist_ok=True)
    facts = {"machine": machine()["processor"], "commit": commit()}
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.tables:
            for rows in options.rows:
                for cell in cells(name, rows, options, done, pool):
                    with options.output.open("a") as stream:
                        stream.write(json.dumps(cell | facts) + "\n")
                    print(line(cell), flush=True)


if __name__ == "__main__":
    main()
