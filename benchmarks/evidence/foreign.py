"""Scripts that run in an environment of their own, because their packages want other versions than dpglm."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


def versions(python: str, *packages: str) -> dict[str, str]:
    """Of packages in that environment."""
    program = "import json, sys; from importlib.metadata import version as v; print(json.dumps({n: v(n) for n in sys.argv[1:]}))"  # noqa: E501
    return json.loads(subprocess.run([python, "-c", program, *packages], check=True, capture_output=True).stdout)


def commit_of(clone: Path) -> str:
    """Of somebody's repository."""
    asked = ["git", "-C", str(clone), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "a copy without history"


def call(python: str, script: str, asked: Any) -> Any:
    """What a script of this folder makes of ``asked``; both are JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "asked.json")
        path.write_text(json.dumps(asked))
        subprocess.run([python, str(HERE / f"{script}.py"), str(path)], check=True)
        return json.loads(path.with_suffix(".answer.json").read_text())


def call_on_arrays(python: str, script: str, **arrays: Any) -> dict[str, np.ndarray]:
    """The same of arrays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "asked.npz")
        np.savez(path, **arrays)
        subprocess.run([python, str(HERE / f"{script}.py"), str(path)], check=True)
        with np.load(path.with_suffix(".answer.npz")) as found:
            return dict(found)
