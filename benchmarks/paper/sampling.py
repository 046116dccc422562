"""Run the jobs of a folder that have no result yet, a few at a time, each in a process of its own.

    python -m paper.sampling FOLDER --workers 4

Needs JAX, NumPy and SciPy, and the source of dpglm on the path: jobs can be carried to a machine with a GPU and their
results back. Chains of noisy gradients come last, since they wait for the search for their settings.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np


def run_job(path: Path) -> None:
    """In a process of its own: one job, its result beside it."""
    import jax

    started = time.time()
    result = pickle.loads(path.read_bytes()).run(path.parent)
    device = jax.devices()[0].device_kind
    facts = {"seconds": np.array(time.time() - started), "device": np.array(device)}
    partial = path.with_suffix(".partial.npz")
    np.savez_compressed(partial, **result, **facts)
    partial.rename(path.with_suffix(".npz"))
    print(f"{path.stem}: {time.time() - started:.0f} s on {device}", flush=True)


def run_folder(folder: Path, workers: int) -> list[str]:
    """All jobs without a result; returns the names of those that failed. With no workers: here, one by one."""
    waiting = [path for path in sorted(folder.glob("*.job")) if not path.with_suffix(".npz").exists()]
    waiting.sort(key=lambda path: not path.stem.startswith("tuning"))  # the longest ones first
    failed: list[str] = []
    for last in (False, True):
        chosen = [path for path in waiting if path.stem.endswith("dp_sgld") == last]
        if workers == 0:
            for path in chosen:
                run_job(path)
            continue
        with ThreadPoolExecutor(workers) as pool:
            failed += [name for name in pool.map(_in_process, chosen) if name]
    return failed


def _in_process(path: Path) -> str | None:
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, "-m", "paper.sampling", str(path)]
    return path.stem if subprocess.run(command, env=environment, check=False).returncode else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="a folder of jobs, or one job")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    if options.path.is_dir():
        failed = run_folder(options.path, options.workers)
        sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
    run_job(options.path)


if __name__ == "__main__":
    main()
