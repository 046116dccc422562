"""Writes docs/calibration.md and its picture from the finished cells of the calibration study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration_cells import CAUSES, FAMILIES

DOCS = Path(__file__).parent.parent / "docs"
LEVELS = (0.5, 0.9, 0.95)
WEAK = 0.2  # posterior over prior standard deviation from which the prior may show
DOUBTFUL_SHARE = 0.05  # of a cell's fits above that: the Laplace approximation does not serve there

Record = dict[str, Any]

TITLES = {
    ("coverage", "nuts"): "Coverage at fixed parameters, by NUTS",
    ("sbc", "nuts"): "Simulation-based calibration, by NUTS",
    ("coverage", "laplace"): "Coverage at fixed parameters, by the Laplace approximation",
}
_HEAD = "| family | d | ε | N | norm | 50 % | 90 % | 95 % | rank p | post/prior |"
_KIND_HEAD = {"nuts": " R-hat > 1.01 |", "laplace": " Pareto k | k > 0.7 | weighted 95 % |"}


def write_page(records: Sequence[Record], docs: Path = DOCS) -> None:
    """The page and its picture."""
    picture(records, docs / "calibration.png")
    (docs / "calibration.md").write_text("\n".join(page(records)) + "\n")


def page(records: Sequence[Record]) -> list[str]:
    lines = [
        "# Calibration",
        "",
        "Written by `python benchmarks/calibration.py --summary`. Do not edit: causes live in `calibration_cells.py`.",
        "",
        "![Coverage by cell](calibration.png)",
        "",
        "**Band.** Coverage of a cell is pooled over coefficients. It is inside when it lies in the central 99 % of a",
        "binomial share at the nominal level. Coefficients of one table share its noise, so the number of trials is",
        "the effective one, judged by the variance between tables: from the number of tables to the number of",
        "intervals. A coverage outside its band is in **bold**. About 1 in 100 of them is outside by chance.",
        "",
        "**Columns.** norm: of the slopes, scaled units. rank p: chi-square test that ranks are uniform, 20 bins, the",
        "smallest over the coefficients times their number; at fixed parameters uniform ranks are promised only where",
        "the prior does not matter. post/prior: mean posterior over prior standard deviation. weighted: with",
        "importance weights, to be believed where Pareto k is below 0.7. R-hat: share of fits where the largest, over",
        "coefficients (and, in simulation-based calibration, all other parameters), is above 1.01. Chains are shorter",
        "here (400 draws; samplers are under Facts) than those of `dpglm.fit`, which draws 1,000 or more.",
        "",
        "**Simulated tables.** Gaussian predictors with bounds at least 3.5 standard deviations away; counts: negative",
        "binomial with variance twice the mean, clamped at 15; linear: residual standard deviation 0.2, clamped at 1.",
        "In simulation-based calibration all parameters are drawn from the prior, those of the predictors too, and the",
        "sums from the model's normal approximation: it checks the inference code; the coverage cells check the model.",
        "",
        "**Elsewhere.** [Several releases together](joint_releases.md), [overdispersed counts](overdispersion.md), and",
        "[the limit without noise](no_noise_limit.md).",
    ]
    for (kind, method), title in TITLES.items():
        chosen = [r for r in records if (r["cell"]["kind"], r["cell"]["method"]) == (kind, method)]
        if chosen:
            head = _HEAD + _KIND_HEAD[method] + (" nuisance rank p |" if kind == "sbc" else "")
            rule = "|" + "---|" * (head.count("|") - 1)
            lines += ["", f"## {title}", "", *_counts(chosen), "", head, rule, *map(_row, chosen)]
    return lines + _outside(records) + _facts(records)


def _counts(records: Sequence[Record]) -> list[str]:
    inside = sum(is_inside(record) for record in records)
    lines = [f"{inside} of {len(records)} cells are inside their band at all three levels."]
    if records[0]["cell"]["method"] == "laplace":
        trusted = [record for record in records if not is_doubtful(record)]
        lines += [
            f"Where at most {100 * DOUBTFUL_SHARE:.0f} % of the fits have Pareto k above 0.7: "
            f"{sum(is_inside(record) for record in trusted)} of {len(trusted)}."
        ]
    return lines


def is_inside(record: Record) -> bool:
    return all(each["inside_band"] for each in record["coverage"].values())


def percent(record: Record, level: int) -> str:
    each = record["coverage"][f"{level / 100:g}"]
    share = f"{100 * each['pooled']:.1f}"
    return share if each["inside_band"] else f"**{share}**"


def _row(record: Record) -> str:
    cell = record["cell"]
    norm = "prior" if cell["norm"] is None else f"{cell['norm']:g}"
    entries = [cell["family"], cell["dimension"], f"{cell['epsilon']:g}", f"{cell['rows']:,}", norm]
    entries += [percent(record, level) for level in (50, 90, 95)]
    entries += [f"{record['rank_p_value']:.2g}", f"{record['posterior_to_prior']:.2f}"]
    if cell["method"] == "nuts":
        entries.append(f"{100 * record['share_r_hat_above_1.01']:.0f} %")
    else:
        share = f"{100 * record['share_pareto_k_above_0.7']:.0f} %"
        entries += [f"{record['mean_pareto_k']:.2f}", share, percent(record["importance_weighted"], 95)]
    if "nuisance" in record:
        entries.append(f"{record['nuisance']['rank_p_value']:.2g}")
    return "| " + " | ".join(map(str, entries)) + " |"


def _outside(records: Sequence[Record]) -> list[str]:
    head = "| cell | 50 % | 90 % | 95 % | post/prior | cause |"
    lines = ["", "## Cells outside their band", ""]
    doubtful = [r for r in records if not is_inside(r) and is_doubtful(r)]
    if doubtful:
        lines += [
            f"{len(doubtful)} cells by the Laplace approximation are outside and have Pareto k above 0.7 in more than",
            f"{100 * DOUBTFUL_SHARE:.0f} % of their fits: there a Gaussian at the mode is not the posterior, and",
            "`dpglm.fit` says so for each such fit. Most of them also say little about the coefficients (post/prior).",
            "They are bold in the table above. The others:",
            "",
        ]
    lines += [head, "|---|---|---|---|---|---|"]
    for record in records:
        if not is_inside(record) and not is_doubtful(record):
            shares = " | ".join(percent(record, level) for level in (50, 90, 95))
            cause = cause_of(record, records)
            lines.append(f"| {record['name']} | {shares} | {record['posterior_to_prior']:.2f} | {cause} |")
    return lines


def is_doubtful(record: Record) -> bool:
    """Whether a cell's Laplace approximations are not to be trusted, by their own diagnostic."""
    return record.get("share_pareto_k_above_0.7", 0.0) > DOUBTFUL_SHARE


def cause_of(record: Record, records: Sequence[Record]) -> str:
    """Why a cell is outside: what people found, the prior where a cell of the same design bears it out, or chance."""
    if record["name"] in CAUSES:
        return CAUSES[record["name"]]
    cell = record["cell"]
    design = [cell[key] for key in ("family", "dimension", "epsilon", "rows")]
    for other in records:
        same = [other["cell"][key] for key in ("family", "dimension", "epsilon", "rows")] == design
        weak = cell["kind"] == "coverage" and record["posterior_to_prior"] > WEAK
        if weak and other["cell"]["kind"] == "sbc" and same and is_inside(other):
            shares = ", ".join(percent(other, level) for level in (50, 90, 95))
            return (
                "the release says little, so the prior shows at fixed parameters; with parameters from the prior, "
                f"same design: {shares}, inside"
            )
    beyond = [
        max(each["band"][0] - each["pooled"], each["pooled"] - each["band"][1])
        for each in record["coverage"].values()
        if not each["inside_band"]
    ]
    return f"{len(beyond)} of 3 levels, by {100 * max(beyond):.1f} points; not explained, perhaps chance"


def _facts(records: Sequence[Record]) -> list[str]:
    machines = {
        f"{r['backend']} ({r['device']}, {r['cores']} cores), Python {r['python']}, "
        + ", ".join(f"{name} {number}" for name, number in r["versions"].items())
        for r in records
    }
    settings = {
        f"seed {r['seed']}, {r['replications']} tables a cell, {r['draws']} draws; {r['sampler']}" for r in records
    }  # fmt: skip
    former = Counter(r["cell"]["family"] for r in records if "NumPyro" in r["sampler"])
    if former:
        listed = ", ".join(f"{count} {family}" for family, count in former.most_common())
        settings.add(f"of the former sampler, NumPyro's: {listed} cells")
    hours = sum(record["seconds"] for record in records) / 3600
    return ["", "## Facts", "", *(f"* {fact}" for fact in sorted(settings | machines)), f"* {hours:.2f} hours in all"]


def picture(records: Sequence[Record], path: Path) -> None:
    """Coverage of each cell, with its band around the nominal level."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    kinds = [key for key in TITLES if any((r["cell"]["kind"], r["cell"]["method"]) == key for r in records)]
    figure, axes = plt.subplots(
        len(LEVELS), len(kinds), figsize=(5.5 * len(kinds), 7), sharex="col", squeeze=False
    )  # fmt: skip
    colours = dict(zip(FAMILIES, ("tab:blue", "tab:orange", "tab:green"), strict=True))
    for column, key in enumerate(kinds):
        chosen = [r for r in records if (r["cell"]["kind"], r["cell"]["method"]) == key]
        for axis, level in zip(axes[:, column], LEVELS, strict=True):
            results = [record["coverage"][f"{level:g}"] for record in chosen]
            bands = np.array([each["band"] for each in results])
            axis.vlines(
                np.arange(len(chosen)), *bands.T, color="0.8", linewidth=float(np.clip(120 / len(chosen), 1, 10))
            )
            axis.axhline(level, color="0.4", linewidth=0.8)
            for family, colour in colours.items():
                for doubtful in (False, True):
                    places = [
                        n
                        for n, record in enumerate(chosen)
                        if record["cell"]["family"] == family and is_doubtful(record) == doubtful
                    ]
                    shares = [results[n]["pooled"] for n in places]
                    axis.plot(
                        places, shares, "o", color=colour, markersize=6 if len(chosen) < 50 else 3,
                        markerfacecolor="none" if doubtful else colour, label=None if doubtful else family,
                    )  # fmt: skip
            if column == 0:
                axis.set_ylabel(f"coverage of {100 * level:g} % intervals")
        axes[0, column].set_title(TITLES[key], fontsize=9)
        axes[-1, column].xaxis.get_major_locator().set_params(integer=True)
        axes[-1, column].set_xlabel("cell, in the order of the table")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle("Coverage by cell (grey: 99 % binomial band; hollow: Pareto k says not to trust it)", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
