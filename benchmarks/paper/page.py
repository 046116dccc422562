"""Writes docs/experiments.md and its figures from the scored lines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from machine import RESULTS
from paper.figures import draw_all
from paper.lines import METHODS, Line, Study, coverage, mean_ks, standard_error, typical_error, typical_width
from paper.lines import by_repetition as by
from paper.verdicts import Verdict, variants, verdicts

DOCS = Path(__file__).parent.parent.parent / "docs"
ABLATIONS = {
    "paper_equal": "paper's blocks, equal noise (the paper)",
    "paper_auto": "paper's blocks, `auto`",
    "full_equal": "full blocks, equal noise",
    "full_auto": "full blocks, `auto` (default)",
    "paper_equal_naive": "paper's blocks, equal noise, naive",
    "full_auto_naive": "full blocks, `auto`, naive",
}
HEAD = """# The paper's experiments

Written by `make bench-paper` (`benchmarks/paper/`). Do not edit.

The experiments of Kulkarni, Jälkö, Koskela, Kaski & Honkela (2021) with dpglm, beside what the paper compares with
(`dpglm.paper.baselines`). δ = 1e-5 and one replaced row throughout, for every private method. The score is the
paper's: the Kolmogorov–Smirnov distance (KS) of each coefficient's posterior to the non-private one (NUTS on the rows,
same prior, same scaling), mean over coefficients, then over repetitions. 0 is the same posterior, 1 is no overlap.

**How to read a KS.** A private posterior that is right, but *k* times wider, is not at a small distance: its centre is
off by about its own width, as it says. For large *k* the mean KS of a right posterior tends to 3/4; one that is so wide
that it says nothing is at 1/2. So KS alone neither rewards honesty nor punishes vagueness, and the tables give width
and error beside it, both in standard deviations of the non-private posterior.

**Methods.** *dpglm*: one stage, as in the paper, with dpglm's statistics and `auto` allocation. *staged*: the
default, `stages="auto"`, where its rule takes more than one stage. *paper's blocks*: the paper's statistics and equal
noise, which know no intercept and no mean. *Taylor*: the paper's series. *naive*: the release taken for exact.
*DP-SGLD*: batches of √N rows, 10,000 iterations, 6,000 burn-in, clipped gradients, accounted with privacy loss
distributions of Poisson batches for a replaced row. dpglm and the non-private posterior are by NUTS, four chains. A
method with a star is a Gaussian at the mode: naive and Taylor posteriors are often pressed against an edge of what
sums can be, where NUTS takes hours; *dpglm\\** is there to compare like with like. Everything is in scaled units.

"""


CLAIMS = """Of dpglm as it comes, in stages where the rule takes them, on the paper's tables: the simulated ones with
the paper's priors, which every method has, the real ones with dpglm's.
"""


VARIANTS = """Of one stage alone, of the paper's blocks, and of dpglm's own prior on the synthetic tables, which needs
no bound from the truth. Not all of it holds; the reasons are below.
"""


WHY = """**Why not, where it does not hold.**

* *DP-SGLD and one stage.* Its search may look at the score itself, on simulated tables, and KS cannot tell little
  knowledge from a vague guess (above). On the synthetic tables its gradients are clipped at a tenth to a half of the
  longest one, which one stage with R = 1 cannot do, and one stage pays for what this model does not have: sums that
  only an intercept and non-zero means need. With the paper's prior, whose ball ends at three times the true squared
  norm, no chain can run away, however hot; up to ε ≈ 0.5 its mean is then as near as that of one stage. It does not
  say how near: its intervals are up to three times as wide as without privacy, wider than those of the prior alone, and
  cover 99 % (Coverage, below). On Adult one stage is held back by its Gaussian model of the predictors, not by noise.
  In stages, whose later looks are bounded closely too, none of this is left. Counts (not part of the claim) pay most:
  sums of y x xᵀ with y up to 5 need much noise, and at ε = 1.1 the noisy gradients, which are clipped at a tenth of
  that, are closer.
* *The limit, one stage.* It takes its sums at θ = 0, where steep slopes show little, so its posterior widens; and its
  Gaussian model of the predictors, from which rows held in a ball differ a little, decides more and more. From ‖θ‖ = 6
  on its error is larger than its width says. In stages it is near the non-private one at every norm.
* *KS over ε with dpglm's prior.* At ε = 0.001 the posterior is the prior, which is centred at zero, near these true
  values: KS is about 1/2. The first information moves the centre by as much as the width says, which is *farther* in
  KS; from there on KS falls. With the paper's prior the way is short, and KS falls from the start. The 500 rows of
  counts stay near that first part up to ε = 1.1 in one stage: the width shrinks by a few per cent only, and it takes
  200 tables to see KS fall. In stages the first information comes at ε = 0.5, and KS falls from there on.
* *Coverage in stages at ε = 0.3 with dpglm's prior.* Strong effects seen through much noise:
  [also with looks](tried.md#weak). They are common under dpglm's wide prior and rare under the paper's, where stages
  cover at their rate.
"""


def write_page(path: Path) -> None:
    """The page, and its figures beside it."""
    study = Study.load(path)
    drawn = draw_all(study, DOCS)
    parts = [HEAD, _verdicts(study), _real(study, drawn), _curves(study, drawn), _limit(study, drawn)]
    parts += [_significance(study, drawn), _ablation(study), _coverage(study), _search(study), _others(), _facts(study)]
    (DOCS / "experiments.md").write_text("\n".join(part for part in parts if part), encoding="utf-8")


def _verdicts(study: Study) -> str:
    def table(found: list[Verdict]) -> list[str]:
        lines = [f"| {each.claim} | {'yes' if each.holds else '**no**'} | {each.evidence} |" for each in found]
        return ["| claim | holds | numbers |", "|---|---|---|", *lines, ""]

    claims = ["## What should hold, and does it\n", CLAIMS, *table(verdicts(study))]
    return "\n".join([*claims, "### The same in other settings\n", VARIANTS, *table(variants(study)), WHY])


def _table(study: Study, experiment: str, methods: list[str]) -> list[str]:
    """KS (its standard error), width and error of each method, one line an epsilon."""
    present = [m for m in methods if study.of(experiment, m)]
    names = [METHODS[m] + ("\\*" if study.of(experiment, m)[0]["sampler"] == "laplace" else "") for m in present]
    lines = ["| ε | " + " | ".join(names) + " |", "|---|" + "---|" * len(present)]
    for epsilon in study.values(experiment, "epsilon"):
        cells = [_cell(study.one(experiment, m, epsilon=epsilon)) for m in present]
        lines.append(f"| {epsilon:g} | " + " | ".join(cells) + " |")
    return lines


def _cell(line: Line | None) -> str:
    if line is None:
        return ""
    width, error = typical_width(line), typical_error(line)
    return f"{mean_ks(line):.2f} ± {standard_error(by(line)):.2f} ({_short(width)}; {_short(error)})"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


COLUMNS = ["dpglm", "staged", "paper_blocks", "dpglm_laplace", "taylor", "naive", "dp_sgld"]
KEY = "KS ± standard error (median width; median error). "


def _real(study: Study, drawn: list[str]) -> str:
    parts = []
    for number, name, text in (
        (1, "diabetes", "Four columns and an intercept, 768 rows (the paper's 758 could not be reproduced)."),
        (2, "adult", "8,000 random rows of Adult, the paper's seven columns, one number each, and an intercept."),
    ):
        if not study.of(name):
            continue
        parts += [f"## {number}. {name.capitalize()}\n", text + " Twenty releases of the one table. " + KEY + "\n"]
        parts += [*_table(study, name, COLUMNS), ""]
        if name in drawn:
            parts += [f"![Posteriors of {name}](experiments_{name}.png)\n",
                      "The first release of each ε; heights are scaled to one.\n"]  # fmt: skip
    if parts:
        parts.append(
            "At these sizes and ε little can be learned: noise of the release alone is several times the sampling"
            " error. dpglm says so by its width. On Adult the one-stage posterior does not come near the non-private"
            " one as ε grows: its model of the predictors is Gaussian, the columns are mostly yes and no, and a release"
            " in stages, which the rule takes from ε = 0.3 on, repairs it.\n"
        )
    return "\n".join(parts)


def _curves(study: Study, drawn: list[str]) -> str:
    parts = []
    for number, name, text in (
        (3, "synthetic", "Logistic, N = 1,000, θ = (−0.9, −0.5, 0.3), a random covariance, rows in the unit ball, no"
         " intercept. The paper's prior of logistic slopes: a standard normal held in a ball, here of three times the"
         " true squared norm;"),
        (4, "counts", "Poisson with softplus link, N = 500, θ = (0.3, −0.6, 0.8), R_x = 1, R_y = 5, the paper's"
         " standard normal prior;"),
    ):  # fmt: skip
        if not study.of(name):
            continue
        tables = study.of(name)[0]["repetitions"]
        parts += [f"## {number}. {name.capitalize()}\n", f"{text} {tables} tables. {KEY}\n"]
        parts += [*_table(study, name, COLUMNS), ""]
        if name in drawn:
            parts += [f"![Distribution functions and distances, {name}](experiments_{name}.png)\n",
                      "The first table; the dotted line is the true value. Right: distances over ε, with standard"
                      " errors.\n"]  # fmt: skip
        if name == "synthetic" and study.of("synthetic_wide"):
            parts += ["The same tables and releases with dpglm's own prior, which needs no bound from the truth. Every"
                      " method has it, and so has the non-private posterior.\n",
                      *_table(study, "synthetic_wide", COLUMNS), ""]  # fmt: skip
    if study.of("counts_log"):
        parts += ["Stages have the log link, so in stages the same tables are compared with the non-private posterior"
                  " of that link, from the ε on at which the rule takes stages.\n",
                  *_table(study, "counts_log", COLUMNS), ""]  # fmt: skip
    return "\n".join(parts)


def _limit(study: Study, drawn: list[str]) -> str:
    if not study.of("limit"):
        return ""
    epsilons = study.values("limit", "epsilon")
    rows = study.one("limit", "dpglm")
    parts = ["## 5. The limit: large slopes\n",
             f"Logistic, N = 10,000, slopes of norm ‖θ‖ in {rows['repetitions']} random directions, rows of the"
             " synthetic table. By NUTS.\n"]  # fmt: skip
    if "limit" in drawn:
        parts.append("![Distance over the norm of the slopes](experiments_limit.png)\n")
    present = [m for m in ("dpglm", "staged", "taylor") if study.of("limit", m)]
    parts.append("| ‖θ‖ | " + " | ".join(f"{METHODS[m]}, ε = {e:g}" for e in epsilons for m in present) + " |")
    parts.append("|---|" + "---|" * len(epsilons) * len(present))
    for norm in study.values("limit", "norm"):
        cells = []
        for epsilon in epsilons:
            found = (study.one("limit", m, epsilon=epsilon, norm=norm) for m in present)
            cells += [_cell(line) for line in found]
        parts.append(f"| {norm:g} | " + " | ".join(cells) + " |")
    worst = max(line["r_hat"] for line in study.of("limit", "taylor"))
    parts.append(
        f"\nTaylor's posterior has cliffs, where the series makes impossible moments: its R-hat is up to {worst:.2f}.\n"
    )
    return "\n".join(parts)


def _significance(study: Study, drawn: list[str]) -> str:
    if not study.of("significance"):
        return ""
    slopes = study.of("significance")[0]["slopes"]
    repetitions = study.of("significance", "dpglm")[0]["repetitions"]
    parts = ["## 6. Which coefficients differ from zero\n",
             f"Logistic with an intercept, five predictors with slopes {slopes}; {repetitions} tables a cell. Share of"
             " 95 % intervals that exclude zero, in per cent; all posteriors are Gaussians at the mode.\n"]  # fmt: skip
    if "significance" in drawn:
        parts.append("![Power and error rate](experiments_significance.png)\n")
    parts += ["| N | ε | method | error rate (slopes of 0) | " + " | ".join(f"slope {s:g}" for s in slopes if s) + " |",
              "|---|---|---|---|" + "---|" * sum(s != 0 for s in slopes)]  # fmt: skip
    order = {"non_private": 0, "dpglm": 1, "staged": 2}
    found = sorted(study.of("significance"), key=lambda one: (one["rows"], one.get("epsilon", 9), order[one["method"]]))
    for line in found:
        share = 100 * np.array(line["excludes_zero"]).mean(axis=0)
        zero = np.mean([share[n] for n, slope in enumerate(slopes) if slope == 0])
        rest = " | ".join(f"{share[n]:.0f}" for n, slope in enumerate(slopes) if slope)
        epsilon = f"{line['epsilon']:g}" if "epsilon" in line else ""
        parts.append(f"| {line['rows']:,} | {epsilon} | {METHODS[line['method']]} | {zero:.0f} | {rest} |")
    return "\n".join(parts) + "\n"


def _ablation(study: Study) -> str:
    parts = []
    for name, text in (
        ("ablation_centred", "**Centred**: the synthetic table, where the paper's model is right."),
        ("ablation_off_centre", "**Off centre**: an intercept of −1 and predictors with means (0.4, −0.3, 0.2), where"
         " it is not. The paper's model is compared on the slopes, the only ones it has."),
    ):  # fmt: skip
        present = [method for method in ABLATIONS if study.of(name, method)]
        if not present:
            continue
        epsilons = study.values(name, "epsilon")
        parts += [text + " " + KEY + "Then the share of 95 % intervals that cover the true value.\n"]
        parts += [
            "| | " + " | ".join(f"ε = {e:g} | cover" for e in epsilons) + " |",
            "|---|" + "---|---|" * len(epsilons),
        ]
        for method in present:
            found = [study.one(name, method, epsilon=epsilon) for epsilon in epsilons]
            cells = [f"{_cell(line)} | {100 * coverage(line)[0]:.0f} %" if line else " | " for line in found]
            parts.append(f"| {ABLATIONS[method]} | " + " | ".join(cells) + " |")
        parts.append("")
    parts.append(
        "For the paper's two blocks `auto` finds nothing better than equal noise: the first two lines agree.\n"
    )
    return "\n".join(["## 7. Ablation\n", *parts]) if len(parts) > 1 else ""


def _coverage(study: Study) -> str:
    if not study.of("coverage"):
        return ""
    parts = ["## Coverage\n", "θ drawn from the prior, logistic tables of 1,000 rows: a right posterior covers in 95 %"
             " of cases. Share of 95 % intervals that contain the true coefficient ± standard error; then the median"
             " width.\n"]  # fmt: skip
    for experiment, prior in (("coverage", "The paper's prior"), ("coverage_wide", "dpglm's own, wide prior")):
        plain = study.one(experiment, "non_private")
        if plain is None:
            continue
        epsilons = study.values(experiment, "epsilon")
        parts += [f"{prior}, {plain['repetitions']} tables:\n"]
        parts += ["| method | " + " | ".join(f"ε = {e:g}" for e in epsilons) + " |", "|---|" + "---|" * len(epsilons)]
        parts.append("| non-private | " + " | ".join([_covered(plain)] * len(epsilons)) + " |")
        for method in ("dpglm", "staged", "naive", "dp_sgld"):
            found = [study.one(experiment, method, epsilon=epsilon) for epsilon in epsilons]
            if any(found):
                parts.append(f"| {METHODS[method]} | " + " | ".join(_covered(line) for line in found) + " |")
        parts.append("")
    return "\n".join(parts)


def _covered(line: Line | None) -> str:
    if line is None:
        return ""
    share, error = coverage(line)
    return f"{100 * share:.1f} ± {100 * error:.1f} % (× {_short(typical_width(line))})"


def _search(study: Study) -> str:
    searches = [line for line in study.lines if line["method"] == "search"]
    if not searches:
        return ""
    tried = searches[0]["settings_tried"]
    parts = ["## How DP-SGLD was tuned\n",
             f"For each size, design and ε, {tried} settings (learning rate, clipping norm, constant or decaying step)"
             " on six tables simulated from the prior; the setting with the least mean KS to the non-private posteriors"
             " of the simulated tables is used. No real row and no table of an experiment has a say. One rule: no chain"
             " so hot that privacy's noise alone spreads it beyond the prior. The rule came after a first run without"
             " it, in which the search chose chains up to 10⁵ times too wide at the smallest ε (the note on KS above):"
             " they cover always and tell nothing, and their KS was level with dpglm's. The last column is what such a"
             " search reaches on the simulated tables. With ε very large the same code samples the non-private"
             " posterior (`tests/baselines/test_langevin.py`).\n",
             "| experiment | ε | noise multiplier | learning rate | clipping norm | decay | best KS, however hot |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for search in searches:
        name = search["experiment"].removeprefix("tuning_")
        for epsilon, hot in zip(search["epsilons"], search["best_however_hot"], strict=True):
            line = study.one(name, "dp_sgld", epsilon=epsilon)
            if line is not None:
                s = line["settings"]
                parts.append(f"| {name} | {epsilon:g} | {s['noise_multiplier']:.1f} | {s['learning_rate']:.0e}"
                             f" | {s['clipping_norm']:.2f} | {s['decay']:g} | {hot:.2f} |")  # fmt: skip
    return "\n".join(parts) + "\n"


def _others() -> str:
    path = RESULTS / "paper_point_estimates.json"
    if not path.exists():
        return ""
    results = json.loads(path.read_text())["results"]
    parts = ["## Point estimates that people use today\n",
             "diffprivlib's LogisticRegression (objective perturbation) and LinearRegression (functional mechanism):"
             " pure ε, no intervals. Root mean square distance from the non-private estimate, in its standard errors,"
             " median over 20 runs; dpglm in stages where the rule takes them.\n",
             "| table | ε | diffprivlib | posterior mean of dpglm |", "|---|---|---|---|"]  # fmt: skip
    parts += [
        f"| {r['table']} | {r['epsilon']:g} | {_short(r['diffprivlib'])} | {_short(r['dpglm'])} |" for r in results
    ]
    return "\n".join(parts) + "\n"


def _facts(study: Study) -> str:
    devices = sorted({line["device"] for line in study.lines if line.get("device")})
    processor = study.lines[0]["processor"]
    return (
        "## Facts\n\n"
        f"Seed {study.lines[0]['seed']}. Sampled on: {', '.join(devices)}; releases made and scored on {processor}."
        " Noise of the releases comes from a seeded generator. Jobs are prepared, sampled and scored separately, so"
        " that sampling can run on another machine (`python -m paper --help`, with `benchmarks/` on the path).\n"
    )
