"""What a published number was measured on, and where results go."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """The facts that make a timing comparable."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = models[0] if models else model
    libraries = ("numpy", "jax", "pyarrow", "opendp")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in libraries if find_spec(name)},
    }


def commit() -> str:
    """The commit that the numbers are of; with a plus where files differ from it."""
    asked = os.environ.get("DPGLM_COMMIT")
    if asked:
        return asked
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=RESULTS.parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def save(name: str, results: Any) -> Path:
    """Write results beside the machine's facts."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "commit": commit(), "results": results}, indent=1) + "\n")
    return path
