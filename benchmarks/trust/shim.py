"""The C shim of ``crash.c``: compiled where there is a compiler, loaded into a program of its own."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dpglm

SOURCE = Path(__file__).with_name("crash.c")


def compiler() -> str | None:
    """A C compiler, on systems where a library can be put before libc."""
    return shutil.which("cc") or shutil.which("gcc") if sys.platform == "linux" else None


def run_with_shim(module: str, arguments: list[str], folder: Path, seconds: float) -> dict[str, Any]:
    """Run ``python -m module`` with the shim; what it prints last is JSON."""
    found = compiler()
    assert found is not None
    library = folder / "crash.so"
    subprocess.run([found, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    path = [str(Path(dpglm.__path__[0]).parent), str(SOURCE.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(path), "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, str(folder)], env=environment, capture_output=True, text=True,
        timeout=seconds,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{module} ended with {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


class Shim:
    """The functions of ``crash.c``, inside a program that was started with it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def arm(self, call: int, action: str = "k", error: int = 0) -> None:
        self._library.trust_arm(ctypes.c_long(call), ord(action), error)

    def count(self) -> int:
        return int(self._library.trust_count())

    def log(self, descriptor: int) -> None:
        self._library.trust_log(descriptor)

    def mark(self, number: int) -> None:
        self._library.trust_mark(number)
