"""dp-recorder on releases by looks: neighbours of its own making, random releases, planted bugs, too little noise.

    python -m evidence recorder --recorder CLONE     a clone of ObliviousAI/dp-recorder; its packages dpglm has already

Guarantee under test: what docs/looks_privacy.md proves of one replaced, added or removed unit. Noise is real, so there
is no seed of it; tables and neighbours are drawn from a seed. recording.py says what is instrumented. Ten minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

import dpglm
from dpglm.custodian.build import build_release
from dpglm.custodian.noise import NoiseSource, OperatingSystemNoise
from dpglm.protection import ADDED_OR_REMOVED, REPLACED
from dpglm.releases import Release
from evidence import foreign
from evidence.recording import Recording, Verdict, gaussian, load
from evidence.stamp import LOOKS, save_stamped
from real_tables import count, two
from trust.bugs import BUGS
from trust.cases import FAMILIES, Case, draw_case
from trust.chain import DELTA, LessNoise, request, tables, two_rows, worst_looks
from trust.planting import applied, fitting_case
from trust.sources import make_table

SEED, ROWS, EACH, CASES, MOST_CASES = 20261119, 301, 4, 60, 12
FORMULAS = {"logistic": "k ~ x + n", "poisson": "n ~ x + k", "linear": "x ~ k + n"}
COLUMNS = {"x": {"type": "numeric", "lower": -3, "upper": 3}, "k": two(0, 1), "n": count(9)}
DOMAIN = [6, 2, 10]
NEW_ROWS = (
    "copy_random", "uniform_supported", "uniform_domain", "insert_nan", "insert_inf", "insert_large_outliers",
    "insert_shifted_outliers",
)  # fmt: skip
OUT_OF_REACH = {"moments": "releases of moments", "sampler": "the sampler alone", "large": "a table of millions"}
SAMPLED_EPSILON, SAMPLES = 3.0, 4_000
COMPOSED = 8  # random releases of a family: each takes seconds
LEAST_DELTA = 1e-9  # dp-accounting cuts 1e-15 off a tail at every composition
CUSTODIAN = (*LOOKS, "src/dpglm/custodian", "benchmarks/evidence/recording.py")


def their_neighbours(tool: ModuleType) -> Iterator[dict[str, Any]]:
    """By family, relation and unit: neighbours by every strategy that dp-recorder has, and what it says of them."""
    made = importlib.import_module("dp_recorder.auditing.dataset_util").generate_neighbors
    rng = np.random.default_rng(SEED)
    base = np.column_stack([rng.normal(0, 1, ROWS), rng.integers(0, 2, ROWS), rng.poisson(2.0, ROWS)]).astype(float)
    replacing = [("bounded:replace", strategy) for strategy in ("modify_one_attr", *NEW_ROWS)]
    adding = [("unbounded:remove", ""), *(("unbounded:add", strategy) for strategy in NEW_ROWS)]
    for family, formula in FORMULAS.items():
        for neighbours, ways in ((REPLACED, replacing), (ADDED_OR_REMOVED, adding)):
            for people in (False, True):
                make = their_release(family, formula, neighbours, people)
                recording = Recording(tool, make, trusted=("counts", "look"))
                recording.record(base)
                found = []
                for mode, strategy in ways:
                    more = {"strategy": strategy} if strategy else {"idx": ROWS - 1} if people else {}
                    for other in made(base, EACH, mode, domain=DOMAIN, rng=rng, **more):
                        found.append(recording.replay(other))
                yield {"family": family, "neighbours": neighbours, "people": people} | _told(recording, found)


def their_release(family: str, formula: str, neighbours: str, people: bool) -> Callable[[np.ndarray], Release]:
    """Of rows of numbers. People have three rows each; the last one, and a new one, has one."""
    dataset: dict[str, Any] = {"name": "t", "unit": "one patient", "neighbours": neighbours}
    if neighbours == REPLACED:
        dataset |= {"units": (ROWS + 2) // 3} if people else {"rows": ROWS}
    schema = {"dataset": dataset | ({"unit_column": "who"} if people else {}), "columns": COLUMNS}

    def release(rows: np.ndarray) -> Release:
        frame, row = pd.DataFrame(rows, columns=list(COLUMNS)), np.arange(len(rows))
        if people:
            frame["who"] = np.where(row < ROWS - 1, row // 3, row)
        return _release(frame, schema, formula, family, 1.0, 1e-5)

    return release


def _release(table: Any, schema: Any, formula: str, family: str, epsilon: float, delta: float, **more: Any) -> Release:
    return dpglm.release(
        table, formula, schema=dpglm.Schema.from_dict(schema), family=family, epsilon=epsilon, delta=delta, ledger=None,
        **more,
    )  # fmt: skip


def _told(recording: Recording, found: list[Verdict | None], compose: bool = True) -> dict[str, Any]:
    """Pairs, those convicted, and epsilon of what was declared, composed by dp-recorder, over what is stated."""
    return {
        "pairs": len(found), "convicted": [f"{each.check}: {each.said}" for each in found if each],
        "mechanisms": len(recording.mus), "composed": composed(recording) if compose else None,
    }  # fmt: skip


def composed(recording: Recording) -> float | None:
    """None where the survey stopped the release; or delta is so small that the tails that are cut off count."""
    if recording.made is None or recording.made.privacy.delta < LEAST_DELTA:
        return None
    stated = recording.made.privacy
    recording.auditor.compute_overall_pld()
    return float(recording.auditor.get_overall_current_guarantee(stated.delta) / stated.epsilon)


def of_case(tool: ModuleType, case: Case, folder: Path) -> Recording:
    """A random release; it is made through the library, with a survey of its own."""

    def release(candidate: Any) -> Release:
        table = make_table(
            case.source, case.table_rows(candidate), case.design.source_columns, folder, Random(case.seed)
        )
        return _release(
            table, case.schema, case.formula, case.family, case.epsilon, case.delta, link=case.link, where=case.where,
            weights=case.weights,
        )  # fmt: skip

    return Recording(tool, release, case.hashed, ("counts", "look"), min(1e-4, case.epsilon / 2_000))


def random_cases(tool: ModuleType, cases: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Releases of random schemas, formulas, sources and rows, by family; a table against its neighbours."""
    results: dict[str, dict[str, Any]] = {}
    for family in FAMILIES:
        chance = Random(f"{SEED} {family}")
        total: dict[str, Any] = {"releases": 0, "added": 0, "people": 0, "pairs": 0, "convicted": [], "composed": 0.0}
        while total["releases"] < cases:
            case = draw_case(chance, family)
            if case.method == "looks":
                recording = of_case(tool, case, folder)
                recording.record(case.candidates[0])
                found = [recording.replay(other) for other in case.candidates[1:]]
                told = _told(recording, found, compose=total["releases"] < COMPOSED)
                total["releases"] += 1
                total["added"] += case.added
                total["people"] += case.people
                total["pairs"] += told["pairs"]
                total["convicted"] += told["convicted"]
                total["composed"] = max(total["composed"], told["composed"] or 0.0)
        results[family] = total
    return results


def planted_bugs(tool: ModuleType, most: int, folder: Path) -> list[dict[str, Any]]:
    """Every planted bug of releases by looks, and the case at which dp-recorder convicts it, and of what."""
    results = []
    for bug in BUGS:
        if bug.where in OUT_OF_REACH:
            results.append({"bug": bug.name, "check": None, "case": None, "why": OUT_OF_REACH[bug.where]})
            continue
        chance, verdict, case = Random(f"{SEED} {bug.name}"), None, 0
        with applied(bug):
            while verdict is None and case < most:
                drawn = fitting_case(bug.where, chance, FAMILIES[case % 3])
                if drawn.method == "looks":
                    case += 1
                    verdict = convicted(tool, drawn, folder)
        found = {"check": verdict.check, "case": case} if verdict else {"check": None, "case": None}
        results.append({"bug": bug.name, **found})
        print(f"{bug.name:60} {verdict}", flush=True)
    return results


def convicted(tool: ModuleType, case: Case, folder: Path) -> Verdict | None:
    """The first verdict on two of a case's tables; or that what was composed is more than what was charged."""
    first, *others = case.candidates  # two of them lie at the ends of all ranges, or are no row and one there
    recording = of_case(tool, case, folder)
    recording.record(first)
    for other in others:
        if verdict := recording.replay(other):
            return verdict
    return overspent(recording, case.delta)


def overspent(recording: Recording, delta: float) -> Verdict | None:
    """Whether the survey, or what follows it, composes to more than was charged for it."""
    log = [entry for entry in recording.auditor.log if entry.kind != "EQ"]
    after = next((place for place, entry in enumerate(log) if entry.kind == "look"), len(log))
    for part, charged in ((log[:after], recording.charged[:1]), (log[after:], recording.charged[1:])):
        paid = math.hypot(*charged)
        if math.hypot(*(entry.sensitivity_val for entry in part)) > paid * (1 + 1e-9):
            recording.auditor.log = part
            recording.auditor.compute_overall_pld()
            spent = recording.auditor.get_overall_current_guarantee(delta)
            covered = gaussian(recording.width, paid).get_epsilon_for_delta(delta) if paid else 0.0
            return Verdict("budget", f"composed {spent:.4g}, charged {covered:.4g}")
    return None


def sampled(tool: ModuleType, noise: NoiseSource, samples: int) -> dict[str, Any]:
    """The looks' noise as its sampling sees it; survey and profile are trusted. Looks stand where two rows differ most.

    It learns to tell what a look gives on the two tables apart, bounds both errors, makes them a privacy loss, and
    composes all: more than the stated epsilon convicts.
    """
    both = tables()
    recording = Recording(
        tool, lambda table: build_release(table, request(SAMPLED_EPSILON), noise), trusted=("counts",)
    )
    with worst_looks(two_rows(both), SAMPLED_EPSILON), contextlib.redirect_stderr(io.StringIO()):
        recording.record(both[0])
        verdict = recording.replay(both[1])
        for entry in recording.auditor.log:
            if entry.kind == "look":
                entry.func = _numbers(entry.func)
        recording.auditor.run_distributional_audit(n_samples=samples)
    looks = [entry.empirical_epsilon_lb for entry in recording.auditor.log if entry.kind == "look"]
    share = composed(recording)
    return {"verdict": verdict and verdict.check, "looks": looks, "composed": share and share * SAMPLED_EPSILON}


def _numbers(look: Callable[..., Any]) -> Callable[..., Any]:
    """A look as numbers, in units of its noise."""

    def numbers(**given: Any) -> Any:
        return [
            n / s for block in look(**given) for n, s in zip(block.integers, block.grid_stddevs, strict=True)
        ]  # fmt: skip

    return numbers


def run(options: argparse.Namespace) -> None:
    if not options.recorder:
        return
    started = time.perf_counter()
    tool = load(options.recorder)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(action="ignore"):
        theirs = list(their_neighbours(tool))
        print([(each["pairs"], each["convicted"], each["composed"]) for each in theirs], flush=True)
        drawn = random_cases(tool, options.repetitions or CASES, Path(name))
        print(drawn, flush=True)
        noise = {
            told: sampled(tool, source, SAMPLES)
            for told, source in (("as stated", OperatingSystemNoise()), ("a sixth of it", LessNoise(1 / 6)))
        }
        print(noise, flush=True)
        packages = {"dp-recorder": foreign.commit_of(options.recorder)}
        facts = {
            "seed": SEED, "packages": packages, "neighbours": theirs, "random": drawn, "noise": noise,
            "sampled": {"epsilon": SAMPLED_EPSILON, "delta": DELTA, "samples": SAMPLES},
        }  # fmt: skip
        save_stamped("evidence_recorder", facts, started, CUSTODIAN)
        started, bugs = time.perf_counter(), planted_bugs(tool, MOST_CASES, Path(name))
    facts = {"seed": SEED, "packages": packages, "most_cases": MOST_CASES, "bugs": bugs}
    save_stamped("evidence_planted", facts, started, (*CUSTODIAN, "benchmarks/trust"))
