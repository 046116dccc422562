"""The long form of the ledger's trials: kills, failing disks, power cuts and races. Needs a C compiler."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from trust.large import temporary_folder
from trust.shim import run_with_shim

SEED = 3
HOURS = 2 * 3600.0
# module, variant, rounds; the last three are wrong on purpose and must be convicted
TRIALS = {
    "kills and failing disks": ("trust.crashes", "right", 1000),
    "power cuts": ("trust.powercut", "right", 2000),
    "races": ("trust.races", "right", 100),
    "kills, noise before the charge": ("trust.crashes", "noise first", 60),
    "power cuts, without waiting for the disk": ("trust.powercut", "no sync", 200),
    "races, cap checked outside of the transaction": ("trust.races", "check outside", 10),
}


def run(name: str, share: float = 1.0) -> dict[str, Any]:
    module, variant, rounds = TRIALS[name]
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        arguments = [str(SEED), str(max(round(rounds * share), 1)), variant]
        found = {"seed": SEED, "variant": variant, **run_with_shim(module, arguments, Path(folder), HOURS)}
    print(name, found, flush=True)
    return found
