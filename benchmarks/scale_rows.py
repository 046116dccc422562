"""Tables that memory does not hold: Spark, folders, and rows that are generated while they are read.

    python benchmarks/scale_rows.py [--rows 4000000] [--generated 30000000] [--folder FOLDER] [--only spark ...]

Releases are by looks, which read every row seven times. Noise comes from a seed, so that two releases of the same sums
hold the same integers; none of them is private. What is measured runs in processes of its own, so that peak memory is
its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from machine import RESULTS, save
from scale_spark import spark_part, speculation_part
from scale_tables import FILES, SEED, columns_of, integers_of, passes_of, released, timed, write_folder

BATCH = 2**16
WARM, FEW = 20_000, 1_000_000  # rows
HALF_BITS = 10  # of the integers of a look, which have twice as many
PARTS = ("spark", "speculation", "folder", "generated")


def usage() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measured(table: Any, rows: int, noise: Any = None) -> tuple[dict[str, Any], Any]:
    """Seconds and memory of a release, and the release."""
    import pandas as pd

    released(pd.DataFrame(columns_of(WARM, 0)), WARM)  # libraries load here
    before, _ = usage()
    seconds, release = timed(released, table, rows, noise)
    processor, peak = usage()
    facts = {"seconds": seconds, "processor_seconds": processor - before, "peak_mib": round(peak)}
    return facts | {"passes": passes_of(release)}, release


def folder_pass(table: str, rows: int, cores: int) -> dict[str, Any]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    facts, release = measured(table, rows)
    return {**facts, "integers": hash(tuple(integers_of(release)))}


@dataclass
class Generated:
    """Rows that exist only while they are read."""

    rows: int

    def __call__(self) -> Any:
        import pyarrow as pa

        first = pa.record_batch(columns_of(1, 0))
        return pa.RecordBatchReader.from_batches(first.schema, self.batches())

    def batches(self) -> Iterator[Any]:
        import pyarrow as pa

        for number, start in enumerate(range(0, self.rows, BATCH)):
            yield pa.record_batch(columns_of(min(BATCH, self.rows - start), number))


def generated_pass(rows: int) -> dict[str, Any]:
    """Seconds and memory of a release without noise, and whether its totals are those of Python integers."""
    from dpglm.custodian.noise import FixedNoise

    result, release = measured(Generated(rows), rows, FixedNoise(0))
    *_, score, information, square = integers_of(release)[: -len(release.profile.counts)]
    exact = summed_again(Generated(rows), release) == [*score, *information, *square]
    assert exact, "a total is not that of Python integers"
    return result | {"rows": rows, "totals_are_exact": exact, "largest_total": str(max(map(abs, square)))}


def summed_again(table: Any, release: Any) -> list[int]:
    """The sums of the last look, from the vectors of its rows: products of halves of integers, and Python integers."""
    from dpglm.custodian.bounded_rows import bounded_vectors, standard_rows
    from dpglm.custodian.tables import open_table

    design, view = release.design, release.stages[-1].viewpoint
    upper = np.triu_indices(view.dimension)
    scores, informations, squares = [0] * view.dimension, [0] * len(upper[0]), [0] * len(upper[0])
    for batch in open_table(table, design.table_columns).repeatable().batches():
        score, information = bounded_vectors(standard_rows(batch, design), design, view)
        scores = [total + int(values.sum()) for total, values in zip(scores, score.astype(np.int64), strict=True)]
        for totals, vectors in ((informations, information), (squares, score)):
            high = np.floor(vectors * 2.0**-HALF_BITS)
            low = vectors - high * 2.0**HALF_BITS
            mixed = high @ low.T
            products = ((high @ high.T)[upper], (mixed + mixed.T)[upper], (low @ low.T)[upper])  # below 2^53: exact
            for place, (top, middle, bottom) in enumerate(zip(*products, strict=True)):
                totals[place] += (int(top) << 2 * HALF_BITS) + (int(middle) << HALF_BITS) + int(bottom)
    return [*scores, *informations, *squares]


def in_a_process(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, __file__, "--inner", *map(str, arguments)]
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # integers are compared by their hash
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


def folder_part(table: Path, rows: int) -> dict[str, Any]:
    others = os.getloadavg()[0]  # processes that wanted a core meanwhile, or shortly before
    runs = [{cores: in_a_process("folder", table, rows, cores) for cores in (1, 2)} for _ in range(3)]
    assert len({run[cores]["integers"] for run in runs for cores in run}) == 1
    best = {cores: min((run[cores] for run in runs), key=lambda run: run["seconds"]) for cores in (1, 2)}
    return {
        "rows": rows,
        "files": FILES,
        "passes": best[2]["passes"],
        "seconds_one_core": round(best[1]["seconds"], 2),
        "seconds_two_cores": round(best[2]["seconds"], 2),
        "cores_at_work": round(best[2]["processor_seconds"] / best[2]["seconds"], 2),
        "others": round(others, 1),
        "peak_mib": max(run[2]["peak_mib"] for run in runs),
    }


def generated_part(many: int) -> dict[str, Any]:
    runs = [in_a_process("generated", FEW) for _ in range(3)]
    long = in_a_process("generated", many)
    runs += [in_a_process("generated", FEW) for _ in range(2)]
    seconds, processor = (median(run[kind] for run in runs) for kind in ("seconds", "processor_seconds"))
    ratio = (FEW / seconds) / (many / long["seconds"])
    return {
        "few": {"rows": FEW, "seconds": round(seconds, 3), "processor_seconds": round(processor, 3), "runs": len(runs)},
        "many": {
            **long,
            "seconds": round(long["seconds"], 1),
            "processor_seconds": round(long["processor_seconds"], 1),
        },
        "throughput_ratio": round(ratio, 2),
        "processor_ratio": round((long["processor_seconds"] / many) / (processor / FEW), 2),
        "few_peak_mib": max(run["peak_mib"] for run in runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--generated", type=int, default=30_000_000)
    parser.add_argument("--folder", type=Path, help="where the table is written for a while; default: a temporary one")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--inner", nargs="+")
    arguments = parser.parse_args()
    if arguments.inner:
        kind, *rest = arguments.inner
        if kind == "folder":
            result = folder_pass(rest[0], int(rest[1]), int(rest[2]))
        else:
            result = generated_pass(*map(int, rest))
        print(json.dumps(result))
        return
    kept = RESULTS / "scale_rows.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    rows = arguments.rows // FILES * FILES
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        table = Path(folder) / "table"
        if set(arguments.only) != {"generated"}:
            write_folder(table, rows)
        for part in arguments.only:
            if part in ("spark", "speculation") and shutil.which("java") is None:
                print(f"no Java: {part} is left out")
                continue
            results[part] = generated_part(arguments.generated) if part == "generated" else PASSES[part](table, rows)
            print(part, json.dumps(results[part]), flush=True)
            save("scale_rows", {**results, "seed": SEED})


PASSES = {"spark": spark_part, "speculation": speculation_part, "folder": folder_part}

if __name__ == "__main__":
    main()
