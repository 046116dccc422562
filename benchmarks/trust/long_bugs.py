"""All planted bugs, and what catches each; printed as a table."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trust.bugs import BUGS, catch
from trust.large import temporary_folder

SEED = 1


def run() -> dict[str, Any]:
    caught, missed = [], []
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name, warnings.catch_warnings(action="ignore"):
        for bug in BUGS:
            found = catch(bug, SEED, Path(name))
            if found is None:
                missed.append(bug.name)
            else:
                caught.append(asdict(found))
            print(f"{bug.name:55} {'MISSED' if found is None else found.check}", flush=True)
    return {"seed": SEED, "caught": caught, "missed": missed}
