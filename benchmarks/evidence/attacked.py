"""Two tools that learn to tell two tables apart, on the same releases of them: dp_auditorium and DP-Sniper.

    python -m evidence attacked --tools INTERPRETER --auditorium CLONE --sniper CLONE

The interpreter has tensorflow-cpu 2.15, PyTorch, scikit-learn and pandas; the clones are of google/differential-privacy
and eth-sri/dp-sniper.

Guarantee under test: (epsilon, delta) of a release, whatever its looks look at. The tables differ in one row, looks
stand where its two contents are as far apart as any (trust/chain.py), and a survey of before is used again, so that a
release is the profile and five looks: the same exact sums every time, and real noise. dp_auditorium is given the exact
log likelihood ratio of each release, in units of the planted noise; DP-Sniper all of its numbers, in units of their
noise, and finds its own way to tell. Both are given releases with too little noise, which they must convict. There is
no seed of the noise; what is tested was fixed before. Twelve minutes.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from dpglm.custodian import charge
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import NoiseSource, OperatingSystemNoise
from evidence import foreign
from evidence.accounting import AUDITED
from evidence.stamp import save_stamped
from trust.chain import DELTA, LessNoise, replayed, request, tables, transcript, two_rows, worst_looks

ROWS, ALPHA = 60, 0.01
BUDGETS = {3.0: (6, 3_000), 0.5: (20, 2_000)}  # epsilon: the planted noise is so much less; releases of a table
TRAINED, AIMED = 0.4, 0.2  # DP-Sniper's shares of releases: to learn, to choose its threshold; others to judge


def drawn(epsilon: float, noise: NoiseSource, number: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Of each table's releases all numbers over their noise (table, release, number); their log likelihood ratios; mu.

    One table's sums are found once: they are the same for every release, which is checked.
    """
    both = tables(ROWS)
    with patch.object(charge, "version", lambda _: "1"):
        first = build_release(both[0], request(20.0, rows=ROWS), OperatingSystemNoise())
    asked: Request = replace(request(epsilon, rows=ROWS), survey=first)
    with worst_looks(two_rows(both), epsilon, rows=ROWS, survey_is_known=True):
        one = transcript(both[0], asked, noise)
        other = replayed(both[1], asked, one)
        stddevs = np.array(_flat(one.stddevs))
        sums = np.array([[float(n) for n in _flat(each.values)] for each in (one, other)]) / stddevs
        outputs = np.empty((2, number, len(stddevs)))
        for table, exact in enumerate((one, other)):
            for place in range(number):
                each = transcript(both[table], asked, noise)
                assert each.values == exact.values
                outputs[table, place] = np.array([float(n) for n in _flat(each.outputs)]) / stddevs
    # Sums may be large beside their noise: what both tables share is taken off.
    apart, outputs = sums[0] - sums[1], outputs - sums.mean(axis=0)
    return outputs, outputs @ apart, one.release.privacy.mu


def _flat(parts: tuple[tuple[Any, ...], ...]) -> list[Any]:
    return [value for part in parts for value in part]


def run(options: argparse.Namespace) -> None:
    if not (options.tools and options.auditorium and options.sniper):
        return
    started, found = time.perf_counter(), []
    for epsilon, (less, number) in BUDGETS.items():
        number = options.repetitions or number
        for told, noise in (("as stated", OperatingSystemNoise()), (f"1/{less} of it", LessNoise(1 / less))):
            outputs, ratios, mu = drawn(epsilon, noise, number)
            asked = {"epsilon": epsilon, "delta": DELTA, "alpha": ALPHA, "mu": mu}
            auditorium = foreign.call_on_arrays(
                options.tools, "foreign_auditorium", clone=str(options.auditorium), ratios=less * ratios / mu, **asked
            )
            sniper = foreign.call_on_arrays(
                options.tools, "foreign_sniper", clone=str(options.sniper), outputs=outputs,
                shares=np.array([TRAINED, AIMED]), **asked,
            )  # fmt: skip
            found.append(
                {"epsilon": epsilon, "noise": told, "releases": number, "mu": mu}
                | {"auditorium": _plain(auditorium), "sniper": _plain(sniper)}
            )
            print(found[-1], flush=True)
    packages = foreign.versions(options.tools, "tensorflow-cpu", "torch")
    packages |= {"dp_auditorium": foreign.commit_of(options.auditorium), "dp-sniper": foreign.commit_of(options.sniper)}
    facts = {
        "delta": DELTA,
        "alpha": ALPHA,
        "rows": ROWS,
        "numbers": outputs.shape[-1],
        "packages": packages,
        "found": found,
    }
    save_stamped("evidence_attacked", facts, started, AUDITED)


def _plain(answer: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in answer.items()}
