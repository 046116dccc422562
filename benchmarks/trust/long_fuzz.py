"""The long form of the fuzzing: a million hostile inputs. Progress goes to standard output."""

from __future__ import annotations

import resource
import tempfile
import time
import warnings
from pathlib import Path
from random import Random
from typing import Any

from trust.fuzz import Fuzzer
from trust.guard import MEGABYTES, SECONDS, Guard, limits
from trust.large import temporary_folder
from trust.seeds import make_seeds

SEED = 77
RUNS = {  # kind and cases; several runs of a kind can go side by side
    "schema": ("schema", 600_000),
    "schema-2": ("schema", 200_000),
    "formula": ("formula", 100_000),
    "formula-2": ("formula", 50_000),
    "release": ("release", 40_000),
    "fit": ("fit", 20_000),
    "ledger": ("ledger", 15_000),
}


def run(name: str, share: float = 1.0) -> dict[str, Any]:
    kind, cases = RUNS[name][0], round(RUNS[name][1] * share)
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as place, warnings.catch_warnings(action="ignore"):
        folder = Path(place)
        guard = Guard(folder)
        fuzzer = Fuzzer(guard, make_seeds(folder), Random(f"{SEED} {name}"))
        start, before = time.perf_counter(), _megabytes()
        with limits():
            for number in range(cases):
                fuzzer.case(kind)
                if number % 10_000 == 0:
                    print(f"{name}: {number} cases, {len(guard.breaches)} breaches", guard.breaches[-1:], flush=True)
        left = sorted(path.name for path in folder.iterdir())
    return {
        "kind": kind, "seed": f"{SEED} {name}", "cases": guard.cases, "accepted": guard.accepted,
        "breaches": guard.breaches[:20],
        "number_of_breaches": len(guard.breaches), "slowest_case_seconds": round(guard.slowest, 2),
        "limit_seconds": SECONDS, "limit_megabytes": MEGABYTES, "grown_megabytes": round(_megabytes() - before),
        "files_left": left, "seconds": round(time.perf_counter() - start),
    }  # fmt: skip


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
