"""What should hold, each with the numbers that decide it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from paper.lines import METHODS, Line, Study, by_repetition, coverage, mean_ks, standard_error, typical_width

FROM_EPSILON = 0.1
NOISE_MATTERS = 1.2  # where dpglm's posterior is wider than the non-private one by this factor
ERRORS = 2.6  # standard errors of a paired difference: 1 in 200 by chance, on one side
SMALLEST_NORM = 4.0
PRODUCT = ("staged", "dpglm")  # staged where the rule takes stages, else one stage
TOLD = {"synthetic_wide": "synthetic with dpglm's prior"}
RESOLUTION = 1 / 400  # of a distance: posteriors are kept as 401 quantiles


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds, and where it does not or how clearly it does."""

    claim: str
    holds: bool
    evidence: str


def verdicts(study: Study) -> list[Verdict]:
    """The claims: dpglm's default, stages where the rule takes them, on the paper's tables with the paper's priors."""
    return [
        _below(study, PRODUCT, "dp_sgld", ("diabetes", "adult", "synthetic"), everywhere=True),
        _below(study, PRODUCT, "naive", ("diabetes", "adult", "synthetic", "counts"), everywhere=False),
        _not_above_taylor(study),
        _half_of_taylor(study, PRODUCT),
        _fall(f"{_told(PRODUCT)}: KS falls as ε grows (synthetic)", _product(study, PRODUCT, "synthetic")),
        _fall("dpglm in one stage: the same (counts, ε from 0.1 to 1.1)", study.of("counts", "dpglm")),
        _fall("dpglm in stages: the same (counts, log link, ε from 0.5 to 10)", study.of("counts_log", "staged")),
        _chains_agree(study),
        *_covers(study, "coverage"),
    ]


def variants(study: Study) -> list[Verdict]:
    """The same of one stage alone, of the paper's blocks, and with dpglm's own wide prior on the synthetic tables."""
    wide = _product(study, PRODUCT, "synthetic_wide")
    return [
        _below(study, ("dpglm",), "dp_sgld", ("diabetes", "adult", "synthetic"), everywhere=True),
        _below(study, ("paper_blocks",), "dp_sgld", ("synthetic",), everywhere=True),
        _half_of_taylor(study, ("dpglm",)),
        _fall("dpglm in one stage: KS falls as ε grows (synthetic)", study.of("synthetic", "dpglm")),
        _fall("dpglm with the paper's blocks: the same (synthetic)", study.of("synthetic", "paper_blocks")),
        _below(study, PRODUCT, "dp_sgld", ("synthetic_wide",), everywhere=True),
        _below(study, ("dpglm",), "dp_sgld", ("synthetic_wide",), everywhere=True),
        _below(study, ("paper_blocks",), "dp_sgld", ("synthetic_wide",), everywhere=True),
        _below(study, PRODUCT, "naive", ("synthetic_wide",), everywhere=False),
        _fall(
            f"{_told(PRODUCT)}: KS falls as ε grows ({TOLD['synthetic_wide']}, ε ≥ {FROM_EPSILON:g})",
            [line for line in wide if line["epsilon"] >= FROM_EPSILON],
        ),
        _fall(f"the same from ε = 0.001 on ({TOLD['synthetic_wide']})", wide),
        *_covers(study, "coverage_wide"),
    ]


def _product(study: Study, methods: tuple[str, ...], experiment: str) -> list[Line]:
    """The first method that there is for each condition: staged where the rule takes stages, else one stage."""
    found: dict[tuple[float, float], Line] = {}
    for method in reversed(methods):
        for line in study.of(experiment, method):
            found[line["epsilon"], line.get("norm", 0.0)] = line
    return [found[key] for key in sorted(found)]


def _told(methods: tuple[str, ...]) -> str:
    names = {"staged": "dpglm, in stages where the rule takes them", "paper_blocks": "dpglm with the paper's blocks"}
    return names.get(methods[0], "dpglm in one stage")


def _below(
    study: Study, methods: tuple[str, ...], other: str, experiments: tuple[str, ...], everywhere: bool
) -> Verdict:
    """Mean distance below the other's, cell by cell."""
    passed, failed = [], []
    for experiment in experiments:
        for line in _product(study, methods, experiment):
            if line["epsilon"] < FROM_EPSILON or (not everywhere and typical_width(line) < NOISE_MATTERS):
                continue
            theirs = study.one(experiment, other, epsilon=line["epsilon"])
            if theirs is None:
                continue
            gap = np.hypot(standard_error(by_repetition(line)), standard_error(by_repetition(theirs)))
            numbers = f"{mean_ks(line):.3f} against {mean_ks(theirs):.3f} (± {gap:.3f})"
            text = f"{TOLD.get(experiment, experiment)} ε = {line['epsilon']:g}: {numbers}"
            (passed if mean_ks(line) < mean_ks(theirs) else failed).append(text)
    where = "at every ε ≥ 0.1" if everywhere else f"where noise widens the posterior by {NOISE_MATTERS:g} or more"
    of = ", ".join(TOLD.get(experiment, experiment) for experiment in experiments)
    claim = f"{_told(methods)}: mean KS below {METHODS[other]}'s ({of}), {where}"
    return Verdict(claim, not failed, _evidence(passed, failed))


def _not_above_taylor(study: Study) -> Verdict:
    passed, failed = [], []
    for experiment in ("diabetes", "adult", "synthetic", "synthetic_wide", "counts", "limit"):
        ours = study.of(experiment, "dpglm_laplace") or study.of(experiment, "dpglm")
        for line in ours:
            condition = {name: line[name] for name in ("epsilon", "norm") if name in line}
            theirs = study.one(experiment, "taylor", **condition)
            if theirs is None:
                continue
            gap = by_repetition(line) - by_repetition(theirs)
            told = ", ".join(f"{name} {value:g}" for name, value in condition.items())
            text = f"{TOLD.get(experiment, experiment)} {told}: {gap.mean():+.3f} ± {standard_error(gap):.3f}"
            (failed if gap.mean() > max(ERRORS * standard_error(gap), RESOLUTION) else passed).append(text)
    claim = f"mean KS of dpglm not above Taylor's by more than {ERRORS:g} standard errors of the paired difference"
    return Verdict(claim, not failed, _evidence(passed, failed))


def _half_of_taylor(study: Study, methods: tuple[str, ...]) -> Verdict:
    passed, failed = [], []
    for line in _product(study, methods, "limit"):
        theirs = study.one("limit", "taylor", epsilon=line["epsilon"], norm=line["norm"])
        if line["norm"] < SMALLEST_NORM or theirs is None:
            continue
        text = f"‖θ‖ = {line['norm']:g}, ε = {line['epsilon']:g}: {mean_ks(line):.2f} against {mean_ks(theirs):.2f}"
        (passed if mean_ks(line) <= 0.5 * mean_ks(theirs) else failed).append(text)
    claim = f"{_told(methods)}: at most half of Taylor's KS where ‖θ‖ ≥ {SMALLEST_NORM:g} and ε ≥ 1"
    return Verdict(claim, not failed, _evidence(passed, failed))


def _fall(claim: str, lines: list[Line]) -> Verdict:
    steps = []
    for before, after in pairwise(lines):
        rise = by_repetition(after) - by_repetition(before)
        if rise.mean() > ERRORS * standard_error(rise):
            steps.append(f"ε {before['epsilon']:g} to {after['epsilon']:g}: {rise.mean():+.3f}")
    if not lines:
        return Verdict(claim, False, "not measured")
    first, last = lines[0], lines[-1]
    fall = by_repetition(first) - by_repetition(last)
    told = f"{mean_ks(first):.2f} at ε = {first['epsilon']:g}, {mean_ks(last):.2f} at ε = {last['epsilon']:g}"
    told += f" (a fall of {fall.mean():.3f} ± {standard_error(fall):.3f}); median width {typical_width(first):.1f} and"
    told += f" {typical_width(last):.1f}"
    falls = fall.mean() > ERRORS * standard_error(fall)
    return Verdict(claim, falls and not steps, "; ".join([told, *steps]))


def _chains_agree(study: Study) -> Verdict:
    # One chain has no R-hat, nor has a Gaussian at the mode; Taylor's cliffs are its own.
    lines = [line for line in study.lines if line["method"] != "taylor" and np.isfinite(line["r_hat"])]
    worst = max(lines, key=lambda line: line["r_hat"])
    posteriors = sum(line.get("repetitions", 0) for line in lines)
    high = [line for line in lines if line["r_hat"] >= 1.01]
    told = f"largest {worst['r_hat']:.4f} ({worst['experiment']}, {worst['method']}) among {posteriors:,} posteriors"
    if high:
        told += "; above: " + ", ".join(f"{line['experiment']} {line['method']} {line['r_hat']:.3f}" for line in high)
    return Verdict("R-hat below 1.01 for every posterior of dpglm and of the rows", not high, told)


def _covers(study: Study, experiment: str) -> list[Verdict]:
    """Noise-aware intervals at their nominal rate, the others not."""
    drawn = "θ drawn from the paper's prior" if experiment == "coverage" else "θ drawn from dpglm's prior"
    found = []
    for method, told in (("dpglm", "dpglm in one stage"), ("staged", "dpglm in stages, where the rule takes them,")):
        shares = [(line["epsilon"], coverage(line)) for line in study.of(experiment, method)]
        numbers = "; ".join(f"ε = {epsilon:g}: {_percent(share)}" for epsilon, share in shares)
        claim = f"95 % intervals of {told} cover at their nominal rate, {drawn}"
        found.append(Verdict(claim, bool(shares) and all(_nominal(share) for _, share in shares), numbers))
    passed, failed = [], []
    for method in ("naive", "dp_sgld"):
        for line in study.of(experiment, method):
            text = f"{METHODS[method]} ε = {line['epsilon']:g}: {_percent(coverage(line))}"
            (failed if _nominal(coverage(line)) else passed).append(text)
    others = Verdict(f"those of naive and of DP-SGLD do not, {drawn}", not failed, "; ".join(failed or passed))
    return [*found, others]


def _nominal(found: tuple[float, float]) -> bool:
    share, error = found
    return abs(share - 0.95) <= max(ERRORS * error, 1e-9)


def _percent(found: tuple[float, float]) -> str:
    return f"{100 * found[0]:.1f} ± {100 * found[1]:.1f} %"


def _evidence(passed: list[str], failed: list[str]) -> str:
    if not passed and not failed:
        return "not measured"
    if failed:
        return f"{len(failed)} of {len(failed) + len(passed)} cells fail: " + "; ".join(failed)
    return f"all {len(passed)} cells; " + "; ".join(passed[:1] + passed[-1:])
