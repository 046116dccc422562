"""Small files that ask for much, each read in a process of its own: how long it took, and how much memory.

``python -m trust.long_bombs FOLDER READER NAME`` reads one, after a good file, so that all libraries are loaded. The
time is the processor's; the memory is the growth of the largest resident size, and the address space is limited.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpglm.errors import InputError
from dpglm.formula import build_design
from dpglm.release_file import load_release
from dpglm.schema import Schema
from trust import bombs
from trust.guard import TooLong, limits
from trust.large import temporary_folder
from trust.seeds import SCHEMA, make_seeds

SIZE_OF_A_SCHEMA = 20_000
PATIENCE = 30  # seconds of the wall, with the start of a process
GOOD = {"release": "good-1.json", "formula": "good.json", "schema": "good.toml"}


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as place, warnings.catch_warnings(action="ignore"):
        folder = Path(place)
        seeds = make_seeds(folder)
        one, looks = seeds.releases[0], seeds.releases[3]
        texts = {("release", name): bombs.sealed(make(one, looks)).encode() for name, make in bombs.RELEASES.items()}
        for name, (columns, right) in bombs.FORMULAS.items():
            texts["release", f"formula: {name}"] = bombs.sealed(bombs.with_formula(one, (columns, right))).encode()
            texts["formula", name] = json.dumps([columns, right]).encode()
        texts |= {("schema", name): make(SIZE_OF_A_SCHEMA) for name, make in bombs.SCHEMAS.items()}
        (folder / GOOD["release"]).write_text(one)
        (folder / GOOD["formula"]).write_text('[{}, "x*z"]')
        (folder / GOOD["schema"]).write_text(Schema.from_dict(SCHEMA).to_toml())
        found = []
        for number, ((reader, name), content) in enumerate(texts.items()):
            (folder / str(number)).write_bytes(content)
            command = [sys.executable, "-m", "trust.long_bombs", place, reader, str(number)]
            try:
                said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
                seen = json.loads(said.stdout) if said.returncode == 0 else {"end": said.stderr[-200:] or "died"}
            except subprocess.TimeoutExpired:
                seen = {"end": f"not within {PATIENCE} s"}
            found.append({"reader": reader, "name": name, "bytes": len(content), **seen})
            print(found[-1], flush=True)
    held = [each for each in found if each["end"] in ("one line", "accepted") and each["seconds"] <= bombs.SECONDS]
    return {
        "cases": len(found), "held": len(held), "limit_seconds": bombs.SECONDS, "limit_megabytes": bombs.MEGABYTES,
        "slowest_seconds": max(each.get("seconds", 0) for each in found),
        "most_megabytes": max(each.get("megabytes", 0) for each in found), "found": found,
    }  # fmt: skip


def _design(path: Path) -> object:
    columns, right = json.loads(path.read_text())
    schema = Schema.from_dict({**SCHEMA, "columns": SCHEMA["columns"] | columns})
    return build_design(f"y ~ {right}", schema, "logistic")


READERS: dict[str, Callable[[Path], object]] = {"release": load_release, "formula": _design, "schema": Schema.load}


def read(folder: Path, reader: str, name: str) -> dict[str, Any]:
    """What became of one file, in this process."""
    warnings.simplefilter("ignore")
    build_design("y ~ x*z", Schema.from_dict(SCHEMA), "logistic")  # loads the parser of formulas
    READERS[reader](folder / GOOD[reader])
    before, start = _most_megabytes(), time.process_time()
    with limits(bombs.MEGABYTES):
        try:
            READERS[reader](folder / name)
            end = "accepted"
        except InputError as error:
            end = "one line" if str(error).splitlines() == [str(error)] else "several lines"
        except (Exception, TooLong) as error:
            end = type(error).__name__
    taken = time.process_time() - start
    return {"end": end, "seconds": round(taken, 2), "megabytes": round(_most_megabytes() - before)}


def _most_megabytes() -> float:
    """The largest resident size so far. ``ru_maxrss`` would be that of the process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), sys.argv[2], sys.argv[3])))
