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
from trust.cases import draw_case, stopped_case
from trust.large import check_large_table, temporary_folder
from trust.replay import remembered

SEED = 2024
TABLES = 8  # of a case: every two of them differ in one row


def run(wanted: int, family: str) -> dict[str, Any]:
    chance, start = Random(f"{SEED} {family}"), time.perf_counter()
    pairs = cases = 0
    worst: dict[str, float] = {}
    violations: list[str] = []
    sources: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name, remembered():
        folder = Path(name)
        while pairs < wanted:
            case = draw_case(chance, family, TABLES)
            cases += 1
            sources["command line" if case.command_line else case.source] += 1
            kinds[case.method + " from a hash" * case.hashed + " of a known survey" * case.again] += 1
            found, shares = _audited(case, folder, violations)
            pairs += found
            worst |= {name: max(share, worst.get(name, share)) for name, share in shares.items()}
            if cases % 50 == 0:
                print(f"{family}: {pairs} pairs, {len(violations)} violations", flush=True)
        for _ in range(round(wanted / 100)):
            pairs += _audited(stopped_case(chance), folder, violations)[0]
            kinds["stopped by the survey"] += 1
        large = sum(check_large_table(chance, family) for _ in range(5))
    return {
        "seed": SEED, "pairs": pairs, "cases": cases,
        "rows_of_large_tables": large, "largest_shares_of_mu_squared": worst, "violations": violations,
        "sources": dict(sources), "kinds": dict(kinds), "seconds": round(time.perf_counter() - start),
    }  # fmt: skip


def _audited(case: Any, folder: Path, violations: list[str]) -> tuple[int, dict[str, float]]:
    try:
        found, shares = audit(case, folder)
        return found, {name: float(share) for name, share in shares.items()}
    except Violation as violation:
        violations.append(f"{violation} in {case}"[:3000])
        print(violations[-1], flush=True)
        return 0, {}
