"""Whether the intervals are honest: coverage and simulation-based calibration (SBC) on simulated tables.

    python benchmarks/calibration.py --cells nuts               24 coverage cells by NUTS (resumable)
    python benchmarks/calibration.py --cells sbc|laplace|all    12 SBC cells by NUTS; the rest of the grid by Laplace
    python benchmarks/calibration.py --summary                  docs/calibration.md and docs/calibration.png
    python benchmarks/calibration.py --quick --output FILE      two tiny cells

On another machine, for example one with a GPU, that has only JAX, NumPyro, NumPy and SciPy:

    python benchmarks/calibration.py --bundle plans.json        here: everything that needs the custodian's libraries
    PYTHONPATH=src python benchmarks/calibration.py --from-bundle plans.json --cells nuts --output FILE      there

*Coverage* cells fix the parameters (those of x too), draw rows, clamp, sum and add noise. Bayesian intervals promise
nominal coverage on average over the prior, not at each fixed value, so where a release says little the prior shows:
``posterior_to_prior`` (posterior over prior standard deviation) tells which cells these are. *SBC* cells draw all
parameters, nuisance included, from the prior (coefficients: normal with standard deviation 1) and the sums from the
model's own normal approximation; every free parameter's rank must then be uniform, up to Monte Carlo error.

Draws are those of ``dpglm.fit_many``: before a run that has the custodian's libraries, ``verify`` asserts that a cell's
noise, units, sums and posterior draws equal what ``dpglm.release`` and ``dpglm.fit_many`` make of the same rows.

Each batch is appended to OUTPUT.parts.jsonl and each finished cell to OUTPUT; both are read again on the next start.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

from calibration_cells import (
    CAUSES,
    FAMILIES,
    Cell,
    Floats,
    Plan,
    Simulated,
    cells,
    check_prior_draws,
    draw_rows,
    exact_sums,
    formula_of,
    load_plans,
    make_plan,
    save_plans,
    schema_of,
    simulate,
    table_data,
)
from dpglm.analyst.model import ModelShape, initial_point
from dpglm.analyst.sampler import evaluate, find_modes, sample_chains, use_compilation_cache

SEED = 20261115
LEVELS = (0.5, 0.9, 0.95)
BINS = 20
WARMUP = 300
CHAINS = 2
LARGEST_R_HAT = 1.01
LARGEST_PARETO_K = 0.7
HERE = Path(__file__).parent
DEFAULT_OUTPUT = HERE / "results" / "calibration.jsonl"
DOCS = HERE.parent / "docs"

Record = dict[str, Any]


# One batch: from simulated releases to the position of the truth among the draws.


def fit_batch(plan: Plan, simulated: Simulated, draws: int, seed: int) -> Record:
    """Fit some replications; everything in the result has one entry a replication."""
    shape, data = plan.model, simulated.data
    start = np.stack([initial_point(shape, each) for each in _unstacked(data)])
    laplace = find_modes(shape, data, start)
    result: Record = {"mode_converged": laplace.converged.tolist()}
    ranked = simulated.truth.shape[1]
    if plan.cell.method == "nuts":
        chains = sample_chains(shape, data, laplace, chains=CHAINS, warmup=WARMUP, draws=draws, seed=seed)
        free = chains.draws
        result["r_hat"] = [float(split_r_hat(each[..., :ranked]).max()) for each in free]
        result["divergences"] = chains.divergences.tolist()
        weights = None
    else:
        free, weights, result["pareto_k"] = laplace_draws(shape, data, laplace, CHAINS * draws, seed)
    pooled = free.reshape(len(free), -1, free.shape[-1])[..., :ranked]
    below = pooled < simulated.truth[:, None]
    result["position"] = np.round(below.mean(axis=1), 5).tolist()
    if weights is not None:
        result["weighted_position"] = np.round(np.einsum("rn,rnk->rk", weights, below), 5).tolist()
    count = len(plan.names)
    scales = np.asarray(plan.cell.prior.scales(plan.names))
    result["posterior_to_prior"] = np.round(pooled[..., :count].std(axis=1) / scales, 4).tolist()
    return result


def laplace_draws(
    shape: ModelShape, data: Any, laplace: Any, draws: int, seed: int
) -> tuple[Floats, Floats, list[float]]:
    """Draws of the Gaussian at the mode, as ``dpglm.fit`` makes them, their importance weights and tail indices."""
    posteriors, size = laplace.mode.shape
    standard = np.random.default_rng(seed).normal(size=(posteriors, draws, size))
    free = laplace.mode[:, None] + np.einsum("rij,rcj->rci", laplace.factor, standard)
    values, _ = evaluate(shape, data, free)
    log_weights = values + 0.5 * np.sum(standard**2, axis=2)
    log_weights = np.where(np.isfinite(log_weights), log_weights, -1e10)
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    tails = [round(pareto_k(each), 3) for each in weights]
    return free, weights / weights.sum(axis=1, keepdims=True), tails


def _unstacked(data: Any) -> list[Any]:
    count = len(jax.tree.leaves(data)[0])
    arrays = jax.tree.map(np.asarray, data)
    return [jax.tree.map(lambda leaf, n=n: leaf[n], arrays) for n in range(count)]


def split_r_hat(draws: Floats) -> Floats:
    """Split R-hat (Gelman et al. 2013) of each parameter; draws is (chains, draws, parameters)."""
    half = draws.shape[1] // 2
    parts = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((half - 1) / half + between / np.maximum(within, 1e-300))


def pareto_k(weights: Floats) -> float:
    """Tail index of importance weights: generalised Pareto fit (Zhang & Stephens 2009), regularised as in PSIS."""
    count = len(weights)
    tail = int(min(0.2 * count, 3 * math.sqrt(count)))
    ordered = np.sort(weights)
    excess = ordered[-tail:] - ordered[-tail - 1]
    if not excess[-1] > 1e-12:  # all weights equal
        return 0.0
    excess = np.maximum(excess, 1e-300)
    points = 30 + int(math.sqrt(tail))
    b = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    b = b / (3 * excess[tail // 4]) + 1 / excess[-1]
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    profile = tail * (np.log(-b / k) - k - 1)
    posterior = np.exp(profile - profile.max())
    k_hat = np.log1p(-(b @ posterior / posterior.sum()) * excess).mean()
    return float((tail * k_hat + 10 * 0.5) / (tail + 10))


# One cell: batches of replications, each kept, until all are there.


def run_cell(plan: Plan, parts: list[Record], settings: argparse.Namespace, deadline: float) -> list[Record] | None:
    """All batches of a cell, earlier ones included, or None when time ran out."""
    cell, total = plan.cell, settings.replications
    batch = min(settings.batch, total)
    done = sum(len(part["position"]) for part in parts)
    while done < total:
        if time.monotonic() > deadline:
            return None
        start = time.perf_counter()
        # A last, shorter batch is filled up, so that one compiled program serves all.
        simulated = simulate(plan, range(done, done + batch), settings.seed)
        simulation_seconds = time.perf_counter() - start
        fitted = fit_batch(plan, simulated, settings.draws, settings.seed + done)
        kept = {key: values[: total - done] for key, values in fitted.items()}
        part = {
            "cell": cell.name, "first": done, "seed": settings.seed, "draws": settings.draws, **kept,
            "seconds": round(time.perf_counter() - start, 2), "simulation_seconds": round(simulation_seconds, 2),
        }  # fmt: skip
        append(parts_path(settings.output), part)
        parts.append(part)
        done += len(part["position"])
        print(f"  {cell.name}: {done}/{total} replications, {part['seconds']:.1f} s", flush=True)
    return parts


def cell_record(plan: Plan, parts: Sequence[Record], settings: argparse.Namespace) -> Record:
    """A finished cell's line."""
    gathered = {key: list(chain.from_iterable(part[key] for part in parts)) for key in _replication_keys(parts)}
    count = len(plan.names)
    position = np.array(gathered["position"])
    record: Record = {
        "name": plan.cell.name,
        "cell": asdict(plan.cell),
        "seed": settings.seed,
        "replications": len(position),
        "draws": CHAINS * settings.draws,
        "coefficients": list(plan.names),
        **calibration_of(position[:, :count]),
        "posterior_to_prior": round(float(np.mean(gathered["posterior_to_prior"])), 4),
        "modes_not_converged": round(1 - float(np.mean(gathered["mode_converged"])), 4),
    }
    if "r_hat" in gathered:
        record["share_r_hat_above_1.01"] = round(float(np.mean(np.array(gathered["r_hat"]) > LARGEST_R_HAT)), 4)
        record["divergences"] = int(np.sum(gathered["divergences"]))
    if "pareto_k" in gathered:
        k = np.array(gathered["pareto_k"])
        record["mean_pareto_k"] = round(float(k.mean()), 3)
        record["share_pareto_k_above_0.7"] = round(float((k > LARGEST_PARETO_K).mean()), 4)
        record["importance_weighted"] = calibration_of(np.array(gathered["weighted_position"])[:, :count])
    if position.shape[1] > count:
        record["nuisance"] = calibration_of(position[:, count:])
    record["seconds"] = round(sum(part["seconds"] for part in parts), 1)
    record["simulation_seconds"] = round(sum(part["simulation_seconds"] for part in parts), 1)
    return record | machine_facts()


def _replication_keys(parts: Sequence[Record]) -> list[str]:
    return [key for key, value in parts[0].items() if isinstance(value, list)]


def calibration_of(position: Floats) -> Record:
    """Coverage and rank histogram from the truths' positions among the draws, (replications, parameters)."""
    coverage = {}
    for level in LEVELS:
        inside = np.abs(position - 0.5) <= level / 2
        trials = effective_trials(inside)
        low, high = band(level, trials)
        coverage[f"{level:g}"] = {
            "pooled": round(float(inside.mean()), 4),
            "each": np.round(inside.mean(axis=0), 4).tolist(),
            "effective_trials": trials,
            "band": [round(low, 4), round(high, 4)],
            "inside_band": bool(low <= inside.mean() <= high),
        }
    counts = np.stack([np.histogram(column, bins=BINS, range=(0, 1))[0] for column in position.T])
    p_values = stats.chisquare(counts, axis=1).pvalue
    return {
        "coverage": coverage,
        "rank_histogram": counts.sum(axis=0).tolist(),
        "rank_p_values": [float(f"{p:.3g}") for p in p_values],
        # Parameters of one replication are dependent: the smallest p-value times their number is valid regardless.
        "rank_p_value": float(f"{min(1.0, len(p_values) * p_values.min()):.3g}"),
    }


def effective_trials(inside: Any) -> int:
    """How many independent trials the pooled coverage is worth: coefficients of one table share its noise.

    Variance of one independent trial over that of a table's share, from the number of tables to that of intervals.
    """
    tables, parameters = inside.shape
    single = inside.mean() * (1 - inside.mean())
    between = inside.mean(axis=1).var(ddof=1) if tables > 1 else 0.0
    a_table = single / between if between > 0 else 1.0
    return int(tables * np.clip(a_table, 1, parameters))


def band(level: float, trials: int) -> tuple[float, float]:
    """The central 99 % of a binomial share."""
    low, high = stats.binom.interval(0.99, trials, level)
    return float(low) / trials, float(high) / trials


@lru_cache(maxsize=1)
def machine_facts() -> Record:
    device = jax.devices()[0]
    return {
        "backend": jax.default_backend(),
        "device": device.device_kind,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("jax", "numpyro", "numpy", "scipy")},
    }


# The study: cells in order, what is there is skipped.


def run(settings: argparse.Namespace) -> None:
    wanted = [cell for cell in cells(settings.cells) if settings.only in cell.name]
    plans = load_plans(settings.from_bundle) if settings.from_bundle else {}
    use_compilation_cache()
    if not settings.from_bundle:
        verify()
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    finished = {record["name"] for record in read(settings.output)}
    parts = read(parts_path(settings.output))
    deadline = time.monotonic() + settings.time_limit
    print(f"{len(wanted)} cells, {sum(c.name in finished for c in wanted)} of them done; {machine_facts()}", flush=True)
    for cell in wanted:
        if cell.name in finished:
            continue
        plan = plans.get(cell) or make_plan(cell)
        if cell.kind == "sbc":
            check_prior_draws(plan)
        batches = run_cell(plan, usable(parts, cell, settings), settings, deadline)
        if batches is None:
            print("time limit reached: start again to go on", flush=True)
            return
        record = cell_record(plan, batches, settings)
        append(settings.output, record)
        print(line_of(record), flush=True)


def usable(parts: Iterable[Record], cell: Cell, settings: argparse.Namespace) -> list[Record]:
    """Earlier batches of a cell with the same seed and draws, while they follow on each other."""
    found: list[Record] = []
    done = 0
    for part in parts:
        same = (part["cell"], part["seed"], part["draws"]) == (cell.name, settings.seed, settings.draws)
        if same and part["first"] == done < settings.replications:
            found.append(part)
            done += len(part["position"])
    return found


def line_of(record: Record) -> str:
    shares = " ".join(f"{level} %: {_percent(record, level)}" for level in (50, 90, 95))
    return f"{record['name']}: {shares}, rank p = {record['rank_p_value']:.2g}, {record['seconds']:.0f} s"


def parts_path(output: Path) -> Path:
    return output.with_suffix(".parts.jsonl")


def append(path: Path, record: Record) -> None:
    with path.open("a") as stream:
        stream.write(json.dumps(record) + "\n")


def read(path: Path) -> list[Record]:
    """All whole lines; a line that a crash cut short is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            print(f"{path.name}: a broken line is ignored", file=sys.stderr)
    return records


# That the study studies dpglm: the same rows through the public functions.


def verify() -> None:
    """Assert that plans, sums, arrays and draws equal those of ``dpglm.release`` and ``dpglm.fit_many``."""
    import pyarrow as pa

    import dpglm
    from dpglm.analyst.assemble import assemble
    from dpglm.custodian.build import build_release
    from dpglm.custodian.noise import FixedNoise

    for family in FAMILIES:
        cell = Cell("coverage", "laplace", family, 2, 3.0, 2_000, 1.0)
        plan = make_plan(cell)
        releases, tables = [], []
        for replication in range(2):
            x, y = draw_rows(cell, np.random.default_rng(replication))
            columns = {f"x{j}": x[:, j] for j in range(cell.dimension)}
            columns["y"] = (y > 0).astype(float) if family == "logistic" else y
            release = build_release(
                pa.table(columns), formula_of(cell), schema_of(cell), family, cell.epsilon, 1e-6, None, None, "auto",
                "full", FixedNoise(),
            )  # fmt: skip
            sums = exact_sums(plan, x, y)
            for block, total, stddev, unit in zip(release.blocks, sums, plan.noise_stddevs, plan.units, strict=True):
                assert (block.noise_stddev, block.unit) == (stddev, unit)
                assert np.allclose(block.values, total, rtol=0, atol=1e-3 * stddev)  # rows rounded to the grid
            shape, data = assemble(
                [release], link=None, dispersion=None, prior=None, moments="exact", noise_aware=True
            )  # fmt: skip
            ours = table_data(plan, [block.values for block in release.blocks])
            assert shape == plan.model
            assert jax.tree.structure(data[0]) == jax.tree.structure(ours)
            for theirs, mine in zip(jax.tree.leaves(data[0]), jax.tree.leaves(ours), strict=True):
                assert np.allclose(theirs, mine, rtol=1e-12)
            releases.append(release)
            tables.append(ours)
        if family == "logistic":  # one family: the others would only compile other likelihoods
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *tables)
            laplace = find_modes(plan.model, (stacked,), np.stack([initial_point(plan.model, (t,)) for t in tables]))
            free, _, tails = laplace_draws(plan.model, (stacked,), laplace, 400, seed=0)
            for number, fit in enumerate(dpglm.fit_many(releases, method="laplace", draws=400, seed=0)):
                theirs = np.asarray(fit.draws("scaled")).reshape(-1, len(plan.names))
                assert np.allclose(theirs, free[number, :, : len(plan.names)], atol=1e-9)
                assert abs(tails[number] - fit.diagnostics.pareto_k) < 0.02
    print("verified: plans, sums and draws are those of dpglm.release and dpglm.fit_many", flush=True)


# The summary.


def summarise(output: Path, docs: Path = DOCS) -> None:
    """Write docs/calibration.md and docs/calibration.png from the finished cells."""
    records = read(output)
    if not records:
        sys.exit(f"{output} holds no finished cell")
    picture(records, docs / "calibration.png")
    (docs / "calibration.md").write_text("\n".join(page(records)) + "\n")
    print(f"{len(records)} cells -> {docs / 'calibration.md'}, {docs / 'calibration.png'}")


TITLES = {
    ("coverage", "nuts"): "Coverage at fixed parameters, by NUTS",
    ("sbc", "nuts"): "Simulation-based calibration, by NUTS",
    ("coverage", "laplace"): "Coverage at fixed parameters, by the Laplace approximation",
}
_HEAD = "| family | d | ε | N | norm | 50 % | 90 % | 95 % | rank p | post/prior |"
_KIND_HEAD = {"nuts": " R-hat > 1.01 |", "laplace": " Pareto k | k > 0.7 | weighted 95 % |"}


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
        "importance weights, to be believed where Pareto k is below 0.7.",
        "",
        "**Simulated tables.** Gaussian predictors with bounds at least 3.5 standard deviations away; counts: negative",
        "binomial with variance twice the mean, clamped at 15; linear: residual standard deviation 0.2, clamped at 1.",
        "In simulation-based calibration all parameters are drawn from the prior, those of the predictors too, and the",
        "sums from the model's normal approximation: it checks the inference code; the coverage cells check the model.",
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
    return [f"{inside} of {len(records)} cells are inside their band at all three levels."]


def is_inside(record: Record) -> bool:
    return all(each["inside_band"] for each in record["coverage"].values())


def _percent(record: Record, level: int) -> str:
    each = record["coverage"][f"{level / 100:g}"]
    share = f"{100 * each['pooled']:.1f}"
    return share if each["inside_band"] else f"**{share}**"


def _row(record: Record) -> str:
    cell = record["cell"]
    norm = "prior" if cell["norm"] is None else f"{cell['norm']:g}"
    entries = [cell["family"], cell["dimension"], f"{cell['epsilon']:g}", f"{cell['rows']:,}", norm]
    entries += [_percent(record, level) for level in (50, 90, 95)]
    entries += [f"{record['rank_p_value']:.2g}", f"{record['posterior_to_prior']:.2f}"]
    if cell["method"] == "nuts":
        entries.append(f"{100 * record['share_r_hat_above_1.01']:.0f} %")
    else:
        share = f"{100 * record['share_pareto_k_above_0.7']:.0f} %"
        entries += [f"{record['mean_pareto_k']:.2f}", share, _percent(record["importance_weighted"], 95)]
    if "nuisance" in record:
        entries.append(f"{record['nuisance']['rank_p_value']:.2g}")
    return "| " + " | ".join(map(str, entries)) + " |"


def _outside(records: Sequence[Record]) -> list[str]:
    head = "| cell | 50 % | 90 % | 95 % | post/prior | cause |"
    lines = ["", "## Cells outside their band", "", head, "|---|---|---|---|---|---|"]
    for record in records:
        if not is_inside(record):
            shares = " | ".join(_percent(record, level) for level in (50, 90, 95))
            cause = CAUSES.get(record["name"], "")
            lines.append(f"| {record['name']} | {shares} | {record['posterior_to_prior']:.2f} | {cause} |")
    return lines


def _facts(records: Sequence[Record]) -> list[str]:
    machines = {
        f"{r['backend']} ({r['device']}, {r['cores']} cores), Python {r['python']}, "
        + ", ".join(f"{name} {number}" for name, number in r["versions"].items())
        for r in records
    }
    settings = {f"seed {r['seed']}, {r['replications']} tables a cell, {r['draws']} draws" for r in records}
    hours = sum(record["seconds"] for record in records) / 3600
    return ["", "## Facts", "", *(f"* {fact}" for fact in sorted(settings | machines)), f"* {hours:.2f} hours in all"]


def picture(records: Sequence[Record], path: Path) -> None:
    """Coverage of each cell, with its band around the nominal level."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    kinds = [key for key in TITLES if any((r["cell"]["kind"], r["cell"]["method"]) == key for r in records)]
    figure, axes = plt.subplots(
        len(LEVELS), len(kinds), figsize=(5.5 * len(kinds), 7), sharex="col", sharey="row", squeeze=False
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
                places = [n for n, record in enumerate(chosen) if record["cell"]["family"] == family]
                shares = [results[n]["pooled"] for n in places]
                axis.plot(places, shares, "o", color=colour, label=family, markersize=6 if len(chosen) < 50 else 3)
            if column == 0:
                axis.set_ylabel(f"coverage of {100 * level:g} % intervals")
        axes[0, column].set_title(TITLES[key], fontsize=9)
        axes[-1, column].xaxis.get_major_locator().set_params(integer=True)
        axes[-1, column].set_xlabel("cell, in the order of the table")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle("Coverage by cell (grey: 99 % binomial band)", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", choices=("nuts", "laplace", "sbc", "all"), default="all")
    parser.add_argument("--only", default="", help="cells whose name contains this text")
    parser.add_argument("--quick", action="store_true", help="two tiny cells")
    parser.add_argument("--replications", type=int, help="tables a cell (400; quick: 8)")
    parser.add_argument("--draws", type=int, help=f"draws of each of {CHAINS} chains (500; quick: 100)")
    parser.add_argument("--batch", type=int, help="tables fitted at once (100; 400 on a GPU)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--time-limit", type=float, default=math.inf, help="seconds, looked at before each batch")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--bundle", type=Path, help="write the plans of all cells to this file, and stop")
    parser.add_argument("--from-bundle", type=Path, help="take plans from this file")
    parser.add_argument("--summary", action="store_true", help="write docs/calibration.md and .png, and stop")
    settings = parser.parse_args(arguments)
    if settings.quick:
        settings.cells = "quick"
    settings.replications = settings.replications or (8 if settings.quick else 400)
    settings.draws = settings.draws or (100 if settings.quick else 500)
    settings.batch = settings.batch or (100 if jax.default_backend() == "cpu" else 400)
    return settings


def main(arguments: Sequence[str] | None = None) -> None:
    settings = parse(arguments)
    if settings.summary:
        summarise(settings.output)
    elif settings.bundle:
        verify()
        everything = cells("quick") + cells("all")
        save_plans([make_plan(cell) for cell in everything], settings.bundle)
        print(f"{len(everything)} plans -> {settings.bundle}")
    else:
        run(settings)


if __name__ == "__main__":
    main()
