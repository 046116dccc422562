"""What runs on the custodian's side: the installed packages that a release loads, measured in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from typing import Any

_RELEASE = """
import json, sys
import pyarrow as pa
import dpglm
from dpglm.custodian.ledger import Ledger
{before}
schema = dpglm.Schema.from_dict({{
    "dataset": {{"name": "t", "rows": 4}},
    "columns": {{
        "y": {{"type": "binary", "levels": ["no", "yes"], "fill": "no"}},
        "x": {{"type": "numeric", "lower": 0, "upper": 1}},
    }},
}})
Ledger.create("{folder}/a.ledger", schema.dataset, epsilon=9, delta=1e-5)
table = pa.table({{"y": ["no", "yes", "no", "yes"], "x": [0.1, 0.5, 0.9, 0.3]}})
dpglm.release(
    table, "y ~ x", schema=schema, family="logistic", epsilon=1, delta=1e-6, ledger="{folder}/a.ledger"
).save("{folder}/a.json")
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def loaded_by_a_release(folder: str, before: str = "") -> set[str]:
    """Names of the installed packages that a whole release loads (not Python's own modules)."""
    code = _RELEASE.format(folder=folder, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout.strip().splitlines()[-1]))
    owners = packages_distributions()
    return {package for module in modules for package in owners.get(module, ())} - {"dpglm"}


def run() -> dict[str, Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        packages = loaded_by_a_release(folder)
    found = {name: version(name) for name in sorted(packages, key=str.lower)}
    return {"loaded": found, "audit": advisories()}


def advisories() -> dict[str, Any]:
    """What a database of advisories says about the installed versions; why not, where it cannot be asked."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable"],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        packages = [each for each in json.loads(done.stdout)["dependencies"] if "vulns" in each]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        packages = []
    if not packages:  # the program is not installed, or its database cannot be reached
        return {"asked": False}
    hits = {each["name"]: [found["id"] for found in each["vulns"]] for each in packages if each["vulns"]}
    return {"asked": True, "packages": len(packages), "advisories": hits}
