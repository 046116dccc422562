"""Whether the intervals are honest: coverage and simulation-based calibration (SBC) on simulated tables.

    python benchmarks/calibration.py --cells nuts               24 coverage cells by NUTS (resumable)
    python benchmarks/calibration.py --cells sbc|laplace|all    21 SBC cells by NUTS; the rest of the grid by Laplace
    python benchmarks/calibration.py --summary                  docs/calibration.md and docs/calibration.png
    python benchmarks/calibration.py --quick --output FILE      two tiny cells

On another machine, for example one with a GPU, that has only JAX, NumPyro, NumPy and SciPy:

    python benchmarks/calibration.py --bundle plans.json        here: everything that needs the custodian's libraries
    PYTHONPATH=src python benchmarks/calibration.py --from-bundle plans.json --cells nuts --merge 4 --output FILE

Chains of a batch wait for the slowest of them. A GPU hardly notices more chains: ``--merge`` fits several cells with
one model together, ``--workers`` simulates rows meanwhile. Processor cores do better apart, with small batches: start
one process a core with ``--share 0/16`` ... ``--share 15/16`` and ``--batch 16``, then ``--collect``.

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
import re
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

from calibration_cells import (
    FAMILIES,
    Cell,
    Floats,
    Plan,
    Simulated,
    assembled,
    cells,
    check_prior_draws,
    coverage_sums,
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
from calibration_page import LEVELS, Record, percent, write_page
from dpglm.analyst.convergence import convergence
from dpglm.paper.batches import coefficients_of, evaluate
from dpglm.paper.model import ModelShape, initial_point
from dpglm.paper.modes import find_modes
from dpglm.paper.sampler import sample_chains

SEED = 20261115
BINS = 20
CHAINS = 4
SAMPLER = "dpglm.paper.nuts with the warm-up of dpglm.fit"
MATCHING = ("seed", "draws", "batch")  # settings that batches of one cell must share
LARGEST_R_HAT = 1.01
LARGEST_PARETO_K = 0.7
DEFAULT_OUTPUT = Path(__file__).parent / "results" / "calibration.jsonl"


# One batch: from simulated releases to the position of the truth among the draws.


def fit_batch(plans: Sequence[Plan], batch: Sequence[Simulated], settings: argparse.Namespace, seed: int) -> Record:
    """Fit some replications of cells with one model; everything in the result has one entry a replication."""
    shape, cell = plans[0].model, plans[0].cell
    assert all(plan.model == shape and plan.cell.method == cell.method for plan in plans)
    data = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(each.data for each in batch))
    truth = np.concatenate([each.truth for each in batch])
    start = np.stack([initial_point(shape, each) for each in _unstacked(data)])
    data = jax.tree.map(jax.numpy.asarray, data)
    laplace = find_modes(shape, data, start)
    result: Record = {"mode_converged": laplace.converged.tolist()}
    ranked = truth.shape[1]
    if cell.method == "nuts":
        chains = sample_chains(
            shape, data, laplace, chains=CHAINS, draws=settings.draws, seed=seed,
            progress=_show_progress if settings.progress else None,
        )  # fmt: skip
        free = _with_coefficients(shape, data, chains.draws)
        result["r_hat"] = [float(f"{convergence(each[..., :ranked])[2].max():.5g}") for each in free]
        result["divergences"] = chains.divergences.tolist()
        result["steps"] = np.round(chains.steps, 2).tolist()
        weights = None
    else:
        free, weights, result["pareto_k"] = laplace_draws(shape, data, laplace, CHAINS * settings.draws, seed)
        free = _with_coefficients(shape, data, free[:, None])
    pooled = free.reshape(len(free), -1, free.shape[-1])[..., :ranked]
    below = pooled < truth[:, None]
    result["position"] = np.round(below.mean(axis=1), 5).tolist()
    if weights is not None:
        result["weighted_position"] = np.round(np.einsum("rn,rnk->rk", weights, below), 5).tolist()
    count = len(plans[0].names)
    scales = np.asarray(cell.prior.scales(plans[0].names))
    result["posterior_to_prior"] = np.round(pooled[..., :count].std(axis=1) / scales, 4).tolist()
    return result


def _with_coefficients(shape: ModelShape, data: Any, free: Floats) -> Floats:
    """Draws, (posteriors, chains, draws, size), whose first entries are the coefficients themselves."""
    coefficients = coefficients_of(shape, data, free)
    return np.concatenate([coefficients, free[..., coefficients.shape[-1] :]], axis=-1)


def _show_progress(done: int, total: int) -> None:
    print(f"    {done}/{total} transitions, {time.process_time():.0f} s of processor time", flush=True)


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


# Batches of replications, each kept, until a cell has all of them.


@dataclass(frozen=True)
class Task:
    """The same replications of one cell, or of several with one model: these are fitted in one batch."""

    plans: tuple[Plan, ...]
    first: int


def tasks_of(plans: Sequence[Plan], parts: Sequence[Record], settings: argparse.Namespace) -> list[Task]:
    """What is left to do, in the order of the cells."""
    groups: dict[Any, list[Plan]] = {}
    for plan in plans:
        key = (plan.model, plan.cell.method, plan.cell.kind) if settings.merge else plan.cell
        groups.setdefault(key, []).append(plan)
    done = {(part["cell"], part["first"]) for part in parts}
    tasks = []
    for group in groups.values():
        for size in range(0, len(group), settings.merge or 1):
            members = group[size : size + (settings.merge or 1)]
            for first in range(0, settings.replications, settings.batch):
                left = tuple(plan for plan in members if (plan.cell.name, first) not in done)
                if left:
                    tasks.append(Task(left, first))
    return tasks[settings.share[0] :: settings.share[1]]


def replications_of(task: Task, settings: argparse.Namespace) -> range:
    return range(task.first, min(task.first + settings.batch, settings.replications))


def run_task(task: Task, settings: argparse.Namespace, waiting: dict[Any, Any]) -> list[Record]:
    """Fit one task; one part for each of its cells."""
    start = time.perf_counter()
    replications = replications_of(task, settings)
    simulated = []
    for plan in task.plans:
        futures = waiting.pop((plan.cell, task.first), None)
        if futures is None:
            simulated.append(simulate(plan, replications, settings.seed))
        else:
            simulated.append(assembled(plan, list(chain.from_iterable(each.result() for each in futures))))
    simulation_seconds = time.perf_counter() - start
    fitted = fit_batch(task.plans, simulated, settings, settings.seed + task.first)
    seconds, count = time.perf_counter() - start, len(replications)
    facts = {name: getattr(settings, name) for name in MATCHING}
    parts = []
    for number, plan in enumerate(task.plans):
        own = {key: values[number * count : (number + 1) * count] for key, values in fitted.items()}
        part = {
            "cell": plan.cell.name, "first": task.first, **facts, **own,
            "seconds": round(seconds / len(task.plans), 2),
            "simulation_seconds": round(simulation_seconds / len(task.plans), 2), "machine": machine_facts(),
        }  # fmt: skip
        append(parts_path(settings.output), part)
        parts.append(part)
    names = ", ".join(plan.cell.name for plan in task.plans)
    print(f"  {names}: {replications} in {seconds:.1f} s (simulation {simulation_seconds:.1f} s)", flush=True)
    return parts


def simulate_ahead(tasks: Sequence[Task], settings: argparse.Namespace, pool: Any) -> dict[Any, Any]:
    """Coverage cells' rows by other processes, in the order in which they will be wanted."""
    waiting = {}
    for task in tasks:
        replications = replications_of(task, settings)
        for plan in task.plans:
            if plan.cell.kind == "coverage":
                pieces = [replications[n : n + 50] for n in range(0, len(replications), 50)]
                waiting[plan.cell, task.first] = [
                    pool.submit(coverage_piece, plan, settings.seed, piece) for piece in pieces
                ]
    return waiting


def coverage_piece(plan: Plan, seed: int, replications: range) -> list[list[Floats]]:
    return [coverage_sums(plan, seed, n) for n in replications]


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
        "chains": CHAINS,
        "sampler": SAMPLER if plan.cell.method == "nuts" else "laplace",
        "coefficients": list(plan.names),
        **calibration_of(position[:, :count]),
        "posterior_to_prior": round(float(np.mean(gathered["posterior_to_prior"])), 4),
        "modes_not_converged": round(1 - float(np.mean(gathered["mode_converged"])), 4),
    }
    if "r_hat" in gathered:
        record["share_r_hat_above_1.01"] = round(float(np.mean(np.array(gathered["r_hat"]) > LARGEST_R_HAT)), 4)
        record["divergences"] = int(np.sum(gathered["divergences"]))
        record["mean_steps"] = round(float(np.mean(gathered["steps"])), 1)
    if "pareto_k" in gathered:
        k = np.array(gathered["pareto_k"])
        record["mean_pareto_k"] = round(float(k.mean()), 3)
        record["share_pareto_k_above_0.7"] = round(float((k > LARGEST_PARETO_K).mean()), 4)
        record["importance_weighted"] = calibration_of(np.array(gathered["weighted_position"])[:, :count])
    if position.shape[1] > count:
        record["nuisance"] = calibration_of(position[:, count:])
    record["seconds"] = round(sum(part["seconds"] for part in parts), 1)
    record["simulation_seconds"] = round(sum(part["simulation_seconds"] for part in parts), 1)
    return record | parts[0]["machine"]


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
    wanted = [cell for cell in cells(settings.cells) if re.search(settings.only, cell.name)]
    if not settings.from_bundle:
        verify()
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + settings.time_limit
    finished = {record["name"] for record in read(settings.output)}
    print(f"{len(wanted)} cells, {sum(c.name in finished for c in wanted)} of them done; {machine_facts()}", flush=True)
    bundled = load_plans(settings.from_bundle) if settings.from_bundle else {}
    plans = [bundled.get(cell) or make_plan(cell) for cell in wanted if cell.name not in finished]
    for plan in plans:
        if plan.cell.kind == "sbc":
            check_prior_draws(plan)
    parts = usable(read(parts_path(settings.output)), settings)
    tasks = tasks_of(plans, parts, settings)
    os.environ["JAX_PLATFORMS"] = "cpu"  # for the processes that simulate: this one has its device already
    with ProcessPoolExecutor(max(1, settings.workers), mp_context=get_context("spawn")) as pool:
        waiting = simulate_ahead(tasks, settings, pool) if settings.workers else {}
        for task in tasks:
            if time.monotonic() > deadline:
                print("time limit reached: start again to go on", flush=True)
                break
            parts += run_task(task, settings, waiting)
            if settings.share == (0, 1):
                finish(task.plans, parts, settings)
        pool.shutdown(cancel_futures=True)


def finish(plans: Iterable[Plan], parts: Sequence[Record], settings: argparse.Namespace) -> None:
    """Write the line of each cell that has all its replications."""
    for plan in plans:
        own = sorted((part for part in parts if part["cell"] == plan.cell.name), key=lambda part: part["first"])
        if sum(len(part["position"]) for part in own) >= settings.replications:
            record = cell_record(plan, own, settings)
            append(settings.output, record)
            print(line_of(record), flush=True)


def collect(settings: argparse.Namespace) -> None:
    """After several processes shared the work: lines of the cells that are complete."""
    finished = {record["name"] for record in read(settings.output)}
    parts = usable(read(parts_path(settings.output)), settings)
    plans = load_plans(settings.from_bundle) if settings.from_bundle else {}
    wanted = {part["cell"] for part in parts} - finished
    left = [cell for cell in cells("all") if cell.name in wanted]
    finish([plans.get(cell) or make_plan(cell) for cell in left], parts, settings)


def usable(parts: Iterable[Record], settings: argparse.Namespace) -> list[Record]:
    """Earlier batches with the same settings, each once."""
    found = {}
    for part in parts:
        if all(part.get(name) == getattr(settings, name) for name in MATCHING):
            found[part["cell"], part["first"]] = part
    return list(found.values())


def line_of(record: Record) -> str:
    shares = " ".join(f"{level} %: {percent(record, level)}" for level in (50, 90, 95))
    return f"{record['name']}: {shares}, rank p = {record['rank_p_value']:.2g}, {record['seconds']:.0f} s"


def parts_path(output: Path) -> Path:
    return output.with_suffix(".parts.jsonl")


def append(path: Path, record: Record) -> None:
    """In one write, so that several processes may append to one file."""
    with path.open("ab", buffering=0) as stream:
        stream.write((json.dumps(record) + "\n").encode())


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
    from dpglm.custodian.build import Request, build_release
    from dpglm.custodian.noise import FixedNoise
    from dpglm.paper.assemble import assemble

    for family in FAMILIES:
        cell = Cell("coverage", "laplace", family, 2, 3.0, 2_000, 1.0)
        plan = make_plan(cell)
        releases, tables = [], []
        for replication in range(2):
            x, y = draw_rows(cell, np.random.default_rng(replication))
            columns = {f"x{j}": x[:, j] for j in range(cell.dimension)}
            columns["y"] = (y > 0).astype(float) if family == "logistic" else y
            request = Request(formula_of(cell), schema_of(cell), family, cell.epsilon, 1e-6, method="moments")
            release = build_release(pa.table(columns), request, FixedNoise())
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
            with_coefficients = _with_coefficients(plan.model, (stacked,), free[:, None])
            for number, fit in enumerate(dpglm.fit_many(releases, method="laplace", draws=400, seed=0)):
                theirs = np.asarray(fit.draws("scaled")).reshape(-1, len(plan.names))
                assert np.allclose(theirs, with_coefficients[number, 0, :, : len(plan.names)], atol=1e-9)
                assert abs(tails[number] - fit.diagnostics.pareto_k) < 0.02
    print("verified: plans, sums and draws are those of dpglm.release and dpglm.fit_many", flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", choices=("nuts", "laplace", "sbc", "all"), default="all")
    parser.add_argument("--only", default="", help="cells whose name matches this regular expression")
    parser.add_argument("--quick", action="store_true", help="two tiny cells")
    parser.add_argument("--replications", type=int, help="tables a cell (400; quick: 8)")
    parser.add_argument("--draws", type=int, help=f"draws of each of {CHAINS} chains (400; quick: 100)")
    parser.add_argument("--batch", type=int, help="tables of a cell fitted at once (100; 400 on a GPU)")
    parser.add_argument("--merge", type=int, default=0, help="fit up to this many cells with one model in one batch")
    parser.add_argument("--workers", type=int, default=0, help="processes that simulate rows ahead")
    parser.add_argument("--share", type=_share, default=(0, 1), help="K/M: every M-th batch from the K-th on")
    parser.add_argument("--progress", action="store_true", help="print a line every 50 transitions")
    parser.add_argument("--collect", action="store_true", help="write the lines of cells that shares completed")
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
    settings.draws = settings.draws or (100 if settings.quick else 400)
    settings.batch = settings.batch or (100 if jax.default_backend() == "cpu" else 400)
    return settings


def _share(text: str) -> tuple[int, int]:
    number, count = map(int, text.split("/"))
    return number, count


def main(arguments: Sequence[str] | None = None) -> None:
    settings = parse(arguments)
    if settings.summary:
        records = read(settings.output)
        if not records:
            sys.exit(f"{settings.output} holds no finished cell")
        write_page(records)
        print(f"{len(records)} cells -> docs/calibration.md, docs/calibration.png")
    elif settings.collect:
        collect(settings)
    elif settings.bundle:
        verify()
        everything = cells("quick") + cells("all")
        save_plans([make_plan(cell) for cell in everything], settings.bundle)
        print(f"{len(everything)} plans -> {settings.bundle}")
    else:
        run(settings)


if __name__ == "__main__":
    main()
