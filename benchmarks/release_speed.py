"""How fast a release is: the whole pass against a plain, non-private pass over the same Parquet file.

    python benchmarks/release_speed.py [--rows 10000000]

The plain pass reads the file in batches and accumulates float64 X'X and X'y with NumPy. Each runs in a process of
its own, so that peak memory is its own; both are run three times in turn and the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from machine import save

SEED = 20240607
CHUNK = 500_000


def write_table(path: Path, rows: int, dimension: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(SEED)
    writer = None
    for start in range(0, rows, CHUNK):
        size = min(CHUNK, rows - start)
        x = rng.normal(size=(dimension, size))
        y = (rng.random(size) < 1 / (1 + np.exp(-x.sum(axis=0) / np.sqrt(dimension)))).astype(np.float64)
        table = pa.table({**{f"x{j}": x[j] for j in range(dimension)}, "y": y})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def plain_pass(path: str, dimension: int) -> float:
    import pyarrow.parquet as pq

    start = time.perf_counter()
    names = [f"x{j}" for j in range(dimension)]
    gram, moment = np.zeros((dimension, dimension)), np.zeros(dimension)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=2**16, columns=[*names, "y"]):
            x = np.column_stack([batch.column(j).to_numpy(zero_copy_only=False) for j in range(dimension)])
            y = batch.column(dimension).to_numpy(zero_copy_only=False)
            gram += x.T @ x
            moment += x.T @ y
    return time.perf_counter() - start


def schema_of(rows: int, dimension: int) -> dict:
    columns = {f"x{j}": {"type": "numeric", "lower": -4, "upper": 4} for j in range(dimension)}
    columns["y"] = {"type": "binary", "levels": [0, 1], "fill": 0}
    return {"dataset": {"name": "speed", "rows": rows}, "columns": columns}


def release_pass(path: str, rows: int, dimension: int) -> float:
    import pyarrow as pa

    import dpglm

    # Loading libraries is not part of either pass: one release of ten rows loads them.
    few = pa.table({name: np.zeros(10) for name in schema_of(10, dimension)["columns"]})
    small = dpglm.Schema.from_dict(schema_of(10, dimension))
    asked = {"family": "logistic", "epsilon": 1, "delta": 1e-6, "ledger": None, "method": "moments"}
    dpglm.release(few, "y ~ x0", schema=small, **asked)
    schema = dpglm.Schema.from_dict(schema_of(rows, dimension))
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(dimension))
    start = time.perf_counter()
    dpglm.release(path, formula, schema=schema, **asked)
    return time.perf_counter() - start


def ledger_and_noise(dimension: int) -> float:
    """Seconds for the ledger entry, all noise, and keeping the release, for a table of ten rows."""
    import pandas as pd

    import dpglm

    schema = dpglm.Schema.from_dict(schema_of(10, dimension))
    table = pd.DataFrame({name: np.zeros(10) for name in schema.columns})
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(dimension))
    arguments = {"schema": schema, "family": "logistic", "epsilon": 0.1, "delta": 1e-6, "method": "moments"}
    dpglm.release(table, formula, **arguments, ledger=None)  # libraries load here
    with tempfile.TemporaryDirectory() as folder:
        ledger = dpglm.Ledger.create(Path(folder) / "speed.ledger", schema.dataset, epsilon=10, delta=1e-6)
        start = time.perf_counter()
        dpglm.release(table, formula, **arguments, ledger=ledger)
        return time.perf_counter() - start


def in_a_process(*arguments: object) -> dict[str, float]:
    command = [sys.executable, __file__, "--inner", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def inner(kind: str, path: str, rows: int, dimension: int) -> None:
    seconds = plain_pass(path, dimension) if kind == "plain" else release_pass(path, rows, dimension)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mib": peak}))


def compare(folder: Path, rows: int, dimension: int) -> dict[str, float]:
    path = folder / f"speed-{rows}-{dimension}.parquet"
    write_table(path, rows, dimension)
    runs = [{kind: in_a_process(kind, path, rows, dimension) for kind in ("plain", "release")} for _ in range(3)]
    path.unlink()
    plain, release = (min(run[kind]["seconds"] for run in runs) for kind in ("plain", "release"))
    result = {
        "rows": rows,
        "columns": dimension,
        "plain_seconds": round(plain, 3),
        "release_seconds": round(release, 3),
        "ratio": round(release / plain, 2),
        "rows_per_second": round(rows / release),
        "peak_mib": round(max(run["release"]["peak_mib"] for run in runs)),
    }
    print(result, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--inner", nargs=4)
    arguments = parser.parse_args()
    if arguments.inner:
        kind, path, rows, dimension = arguments.inner
        return inner(kind, path, int(rows), int(dimension))
    rows = arguments.rows
    with tempfile.TemporaryDirectory() as folder:
        results = {
            "main": compare(Path(folder), rows, 10),
            "linear_in_rows": [compare(Path(folder), rows // part, 10) for part in (10, 3)],
            "by_columns": [compare(Path(folder), rows * 5 // (d * 5 if d > 5 else 10), d) for d in (5, 30, 100)],
            "ledger_and_noise_seconds_30_columns": round(ledger_and_noise(30), 3),
            "seed": SEED,
        }
    print("ledger and noise, d = 30:", results["ledger_and_noise_seconds_30_columns"], "s")
    print("written to", save("release_speed", results).name)
    return None


if __name__ == "__main__":
    main()
