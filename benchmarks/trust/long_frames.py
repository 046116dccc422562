"""The long form of the audit of frames: ten thousand pairs of neighbours a family, in every kind of frame.

python -m trust frames
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from trust.audit import Violation
from trust.former_cells import FORMER, planted
from trust.frames import audit_frames, draw_case

SEED = 2026
CANDIDATES = 6  # of a case: every two of them make neighbouring frames
MOST_CASES = 300


def run(wanted: int, family: str) -> dict[str, Any]:
    chance, start = Random(f"{SEED} {family}"), time.perf_counter()
    pairs = cases = refused = 0
    worst, violations = 0.0, []
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        while pairs < wanted:
            case = draw_case(chance, family, CANDIDATES)
            cases += 1
            try:
                found, share, not_made = audit_frames(case, Path(folder))
            except Violation as violation:
                violations.append(f"{violation} in {case}"[:3000])
                print(violations[-1], flush=True)
                continue
            pairs, refused, worst = pairs + found, refused + not_made, max(worst, float(share))
            kinds[case.kind] += found
    return {
        "seed": SEED, "pairs": pairs, "cases": cases, "frames_not_made": refused, "kinds": dict(kinds),
        "largest_share_of_mu_squared": worst, "violations": violations,
        "former": {name: caught(name, family) for name in FORMER}, "seconds": round(time.perf_counter() - start),
    }  # fmt: skip


def caught(name: str, family: str) -> list[Any]:
    """After how many cases this way to read cells is convicted, and of what; nothing where it is not."""
    chance = Random(f"{SEED} {name} {family}")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"), planted(name):
        for number in range(1, MOST_CASES + 1):
            try:
                audit_frames(draw_case(chance, family, CANDIDATES), Path(folder))
            except Violation as violation:
                return [number, str(violation)]
    return []
