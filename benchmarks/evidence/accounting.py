"""What other people's accountants say of releases by looks, and what their auditor proves of them.

    python -m evidence accounting --python INTERPRETER     one that has autodp and privacy-estimates

Guarantee under test: the (epsilon, delta) of a release is never below what others find for the noise in it. They are
given noise over sensitivity of survey, profile and every look: of looks the scales of the noise that is drawn, over a
sensitivity that is searched for here, not taken from the proof. Composition is theirs. Seconds.

The audit draws real noise: there is no seed. Its viewpoints are chosen against the two tables (trust/chain.py), and its
events were fixed before it ran.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dpglm.custodian.look_plan import LookNoise, LookPlan, plan_looks
from dpglm.custodian.noise import OperatingSystemNoise
from dpglm.formula import build_design
from dpglm.protection import ADDED_OR_REMOVED, REPLACED
from dpglm.schema import Schema
from evidence import foreign
from evidence.stamp import save_stamped
from real_tables import count, number, two
from trust.chain import DELTA, THRESHOLDS, LessNoise, losses

SOURCES = (
    "src/dpglm/privacy.py", "src/dpglm/protection.py", "src/dpglm/custodian/look_plan.py",
    "src/dpglm/custodian/sensitivity.py",
)  # fmt: skip
AUDITED = (*SOURCES, "src/dpglm/custodian/by_looks.py", "src/dpglm/custodian/bounded_rows.py")
EPSILONS, DELTAS, ROWS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0), (1e-3, 1e-6, 1e-9), (1_000, 1_000_000)
FORMULAS = {"logistic": "b ~ n", "poisson": "c ~ n + m + b", "linear": "m ~ n + b + c + I(n**2) + I(c**2) + n:b"}
COLUMNS = {"b": two(0, 1), "c": count(50), "n": number(0, 100), "m": number(-1, 1)}
AUDIT_EPSILON, ALPHA = 3.0, 1e-3


class Planned(NamedTuple):
    """A budget divided by the product: of which design, and how."""

    neighbours: str
    family: str
    rows: int | None
    epsilon: float
    delta: float
    plan: LookPlan


def plans() -> list[Planned]:
    """Of three designs of 2, 4 and 7 coefficients, and of both neighbouring relations."""
    found = []
    for neighbours, all_rows in ((REPLACED, ROWS), (ADDED_OR_REMOVED, (None,))):
        for rows, (family, formula) in product(all_rows, FORMULAS.items()):
            used = {name: declared for name, declared in COLUMNS.items() if name in formula.replace("**", "")}
            dataset = {"name": "t", "unit": "one row", "neighbours": neighbours} | ({"rows": rows} if rows else {})
            design = build_design(formula, Schema.from_dict({"dataset": dataset, "columns": used}), family)
            for epsilon, delta in product(EPSILONS, DELTAS):
                plan = plan_looks(design, epsilon, delta)
                found.append(Planned(neighbours, family, rows, epsilon, delta, plan))
    return found


def searched_mu(noise: LookNoise, neighbours: str) -> float:
    """How far rows can move a look, in noise: the largest of a search over lengths, and the angle between two rows.

    A row has a score of length a, and an information of length b squared on the same line; all are at most 1. Of a row
    that is added or removed the other has none.
    """
    score, information, square = (scale / unit for scale, unit in zip(noise.grid_stddevs, _UNITS, strict=True))
    lengths, cosine = np.linspace(0, 1, 5), np.linspace(-1, 1, 4001)
    others = lengths if neighbours == REPLACED else np.zeros(1)
    best = 0.0
    for one, long, other, short in product(lengths, lengths, others, others):
        moved = (one**2 + other**2 - 2 * one * other * cosine) / score**2
        moved += (one**4 + other**4 - 2 * (one * other * cosine) ** 2) / square**2
        moved += (long**4 + short**4 - 2 * (long * short * cosine) ** 2) / information**2
        best = max(best, float(moved.max()))
    return float(np.sqrt(best))


_UNITS = (2.0**20, 2.0**40, 2.0**40)  # grid steps a bound, of a score and of squares


def multipliers(each: Planned) -> list[float]:
    """Noise over sensitivity of every part."""
    plan = each.plan
    parts = [plan.survey_mu, plan.profile_mu, *(searched_mu(look, each.neighbours) for look in plan.looks)]
    return [1 / part for part in parts]


def pld_delta(found: list[float], epsilon: float) -> float:
    """An upper bound on their delta, from dp-accounting's privacy loss distributions (connected dots)."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    width = min(2e-4, epsilon / 2_000)
    each = [pld.from_gaussian_mechanism(sigma, value_discretization_interval=width) for sigma in found]
    whole = each[0]
    for part in each[1:]:
        whole = whole.compose(part)
    return float(whole.get_delta_for_epsilon(epsilon))


def accounted(python: str) -> list[dict[str, Any]]:
    """Every plan, as stated and as others find it."""
    found = plans()
    budgets: list[dict[str, Any]] = [
        {name: value for name, value in each._asdict().items() if name != "plan"} | {"multipliers": multipliers(each)}
        for each in found
    ]
    answer = foreign.call(python, "foreign_accounting", {"budgets": budgets})
    for each, autodp, fourier in zip(budgets, answer["autodp"], answer["fourier"], strict=True):
        each["pld"] = pld_delta(each.pop("multipliers"), each["epsilon"]) / each["delta"]
        each["autodp"], each["fourier"] = autodp / each["epsilon"], [share / each["delta"] for share in fourier]
    return budgets


def audited(python: str, releases: int) -> list[dict[str, Any]]:
    """What an attacker who knows both tables proves, by privacy-estimates; also of too little noise."""
    found, asked = [], []
    for told, noise, worst, number_of in (
        ("viewpoints against the two rows", OperatingSystemNoise(), True, releases),
        ("the rule's viewpoints", OperatingSystemNoise(), False, releases // 2),
        ("a sixth of the noise", LessNoise(1 / 6), True, releases // 2),
    ):
        first, second, _ = losses(AUDIT_EPSILON, number_of, noise, worst)
        for threshold in THRESHOLDS:
            right, wrong = int((first > threshold).sum()), int((second > threshold).sum())
            events = {"TP": right, "FN": number_of - right, "FP": wrong, "TN": number_of - wrong}
            asked.append({"events": events, "delta": DELTA, "alpha": ALPHA / len(THRESHOLDS)})
        found.append({"what": told, "releases": 2 * number_of, "claimed": AUDIT_EPSILON})
    bounds = iter(foreign.call(python, "foreign_accounting", {"attacks": asked})["attacks"])
    for each in found:
        own = [next(bounds) for _ in THRESHOLDS]
        each["proved"] = {method: max(bound[method] for bound in own) for method in own[0]}
    return found


def run(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    packages = foreign.versions(options.python, "autodp", "privacy-estimates")
    budgets = accounted(options.python)
    print(max(each["pld"] for each in budgets), max(each["autodp"] for each in budgets), flush=True)
    save_stamped("evidence_accounting", {"budgets": budgets, "packages": packages}, started, SOURCES)
    started = time.perf_counter()
    audit = audited(options.python, options.repetitions or 300)
    facts = {"attacks": audit, "delta": DELTA, "confidence": 1 - ALPHA, "packages": packages}
    save_stamped("evidence_audit", facts, started, AUDITED)
