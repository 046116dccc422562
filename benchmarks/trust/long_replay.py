"""The long form of record and replay: ten thousand pairs of neighbouring tables a family.

python -m trust replay
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from trust.audit import Violation, audit
from trust.cases import draw_case
from trust.large import check_large_table, fitted_case, temporary_folder
from trust.replay import remembered

SEED = 2024
TABLES = 8  # of a case: every two of them differ in one row


def run(wanted: int, family: str) -> dict[str, Any]:
    chance, start = Random(f"{SEED} {family}"), time.perf_counter()
    pairs = cases = staged = 0
    worst, violations = 0.0, []
    sources: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name, remembered():
        folder = Path(name)
        while pairs < wanted:
            case = draw_case(chance, family, TABLES)
            cases, staged = cases + 1, staged + (case.stages > 1)
            sources["command line" if case.command_line else case.source] += 1
            found, share = _audited(case, folder, violations)
            pairs, worst = pairs + found, max(worst, share)
            if cases % 50 == 0:
                print(f"{family}: {pairs} pairs, {len(violations)} violations", flush=True)
        fitted = 0
        for stages in (2, 3):
            found, share = _audited(fitted_case(family, stages, TABLES, seed=stages), folder, violations, fits=True)
            fitted, worst = fitted + found, max(worst, share)
        large = sum(check_large_table(chance, family) for _ in range(5))
    return {
        "seed": SEED, "pairs": pairs, "cases": cases, "staged_cases": staged, "pairs_with_real_fits": fitted,
        "rows_of_large_tables": large, "largest_share_of_mu_squared": worst, "violations": violations,
        "sources": dict(sources), "seconds": round(time.perf_counter() - start),
    }  # fmt: skip


def _audited(case: Any, folder: Path, violations: list[str], fits: bool = False) -> tuple[int, float]:
    try:
        found, share = audit(case, folder, fits)
        return found, float(share)
    except Violation as violation:
        violations.append(f"{violation} in {case}"[:3000])
        print(violations[-1], flush=True)
        return 0, 0.0
