"""``python -m evidence PART``, in ``benchmarks``: one part, or all that this machine can run, and the page."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

PARTS = (
    "accounting", "recorder", "attacked", "published", "feasibility", "head_to_head", "statsmodels", "napsu",
    "calibrated", "page",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=(*PARTS, "marks"), nargs="*")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of public tables")
    parser.add_argument("--python", help="an interpreter that has the other packages")
    parser.add_argument("--twinify", help="an interpreter that has twinify")
    parser.add_argument("--tools", help="an interpreter that has TensorFlow and PyTorch")
    for tool in ("recorder", "auditorium", "sniper", "statsmodels"):
        parser.add_argument(f"--{tool}", type=Path, help="a clone of its repository: see the part of this name")
    parser.add_argument("--repetitions", type=int, help="fewer or more than what is published")
    options = parser.parse_args()
    for part in options.part or PARTS:
        importlib.import_module(f"evidence.{part}").run(options)


if __name__ == "__main__":
    main()
