"""Coverage and sharpness on real and misspecified tables: staged releases beside one stage and no privacy.

Tables of size N are drawn, with replacement, from a full table whose own estimate is the population value. Every
release is made by the custodian's code from the drawn rows (exact integers, the real plan and bounds); only its noise
comes from a seeded generator, and first stages are approximated in batches. Posteriors are Laplace approximations with
an importance-sampling check, or NUTS for a spanning subset. Resumable: finished cells are kept in a results file.
"""

from __future__ import annotations

import argparse
import json
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from dpglm.analyst.fit import Asked, fit_many
from dpglm.analyst.looks import first_looks
from dpglm.analyst.posteriors import fit_staged
from dpglm.analyst.priors import NormalPrior
from dpglm.custodian.build import add_stages, noisy_moments
from dpglm.custodian.rows import FixedPointRows
from dpglm.custodian.stages import Plan, plan_stages
from dpglm.custodian.sums import block_sums
from dpglm.release_file import Release, Stage
from machine import RESULTS, machine
from real_tables import LOADERS, Table, load, maximum_likelihood
from seeded_noise import SeededNoise

SEED, DELTA, REPETITIONS = 20261115, 1e-5, 50
EPSILONS = (0.3, 1.0, 3.0, 10.0)
SIZES = (2_000, 10_000, 40_000)
OUTPUT = RESULTS / "real.jsonl"
# What NUTS runs on: every family, size and epsilon, and where a Laplace approximation is least to be trusted.
SPANNING = (
    ("adult", 2_000, 0.3), ("adult", 2_000, 3.0), ("adult", 10_000, 0.3), ("adult", 40_000, 0.3),
    ("adult", 40_000, 1.0), ("acs_high_income", 2_000, 0.3), ("acs_high_income", 2_000, 10.0),
    ("fair_affairs", 2_000, 1.0), ("simulated_logistic", 40_000, 10.0), ("simulated_linear", 2_000, 3.0),
    ("acs_log_income", 10_000, 0.3), ("adult_hours", 40_000, 1.0), ("simulated_counts", 10_000, 1.0),
    ("simulated_counts", 10_000, 10.0),
)  # fmt: skip
OPTIONS = {"link": None, "dispersion": None, "moments": "exact", "noise_aware": True}


def grid_rows(x: np.ndarray, y: np.ndarray, plan: Plan) -> FixedPointRows:
    """Scaled rows on the plan's grid, as the custodian rounds them."""
    grid = plan.first.grid
    scaled = np.rint(y / float(grid.unit(1, 0)))
    return FixedPointRows(np.rint(x.T * 2.0**grid.exponent), scaled, grid)


def releases_of(table: Table, samples: list[Any], plan: Plan, rng: np.random.Generator) -> tuple[list[Release], Any]:
    """One release a sample, with the first looks of all of them."""
    noise = SeededNoise(rng)
    made = []
    for x, y in samples:
        rows = grid_rows(x, y, plan)
        blocks = noisy_moments(block_sums(rows, plan.first.blocks), plan.first, noise)
        stage = Stage("moments", plan.first.allocation, plan.first.mu, blocks)
        made.append(
            Release(
                uuid.uuid4().hex, "2026-01-01T00:00:00Z", {}, table.of_size(len(y)), plan.first.radius, plan.first.grid,
                (stage,), plan.privacy, None, False,
            )
        )  # fmt: skip
    if not plan.later:
        return made, None
    firsts = first_looks(made)
    staged = []
    for release, first, (x, y) in zip(made, firsts, samples, strict=True):
        rows = grid_rows(x, y, plan)
        staged.append(add_stages(release, first, plan, lambda sums_of, rows=rows: sums_of(rows), noise))
    return staged, [[first] for first in firsts]


def run_cell(table: Table, rows: int, epsilon: float, stages: Any, method: str, repetitions: int) -> dict[str, Any]:
    """Coverage, width and error of one cell, over samples of the table."""
    started = time.time()
    key = [SEED, list(LOADERS).index(table.name), rows, int(epsilon * 1000)]
    rng = np.random.default_rng(key)  # the same samples for every method
    family = table.design.family.name
    population, _, _ = maximum_likelihood(family, table.x, table.y)
    samples = []
    for _ in range(repetitions):
        chosen = rng.integers(0, len(table.y), rows)
        samples.append((table.x[chosen], table.y[chosen]))
    own = [maximum_likelihood(family, x, y) for x, y in samples]
    prior = np.diag(np.asarray(NormalPrior().scales(table.design.coefficient_names)) ** -2.0)
    # What the rows give without privacy: the posterior's standard deviation, sandwich where the family needs it.
    ideal = np.array(
        [
            np.sqrt(np.diag(np.linalg.inv((information if family == "logistic" else np.linalg.inv(sandwich)) + prior)))
            for _, information, sandwich in own
        ]
    )
    estimates = np.array([estimate for estimate, _, _ in own])
    errors = np.array([np.sqrt(np.diag(sandwich)) for _, _, sandwich in own])
    result: dict[str, Any] = {
        "table": table.name, "family": family, "rows": rows, "epsilon": epsilon, "stages": stages, "method": method,
        "repetitions": repetitions, "names": list(table.design.coefficient_names),
        "plain_cover": _by_coefficient(np.abs(estimates - population) < 1.96 * errors),
    }  # fmt: skip
    plan = plan_stages(table.of_size(rows), epsilon, DELTA, None, "auto", "full", stages)
    made, firsts = releases_of(table, samples, plan, np.random.default_rng([*key, 1]))
    draws = 1000 if method == "laplace" else 500
    if plan.later:
        groups = [(release,) for release in made]
        fits = fit_staged(groups, Asked(None, method, draws, 2, 1, None, OPTIONS), firsts)
    else:
        fits = fit_many(made, method=method, draws=draws, chains=2, seed=1, progress=False)
    flat = np.array([fit.draws("scaled").reshape(-1, len(population)) for fit in fits])
    lower, upper = np.quantile(flat, [0.025, 0.975], axis=1)
    means, stddevs_ = flat.mean(axis=1), flat.std(axis=1)
    result |= {
        "stages_used": 1 + len(plan.later),
        "cover": _by_coefficient((lower <= population) & (population <= upper)),
        "sd": _by_coefficient(stddevs_ / ideal),
        "rmse": np.sqrt(np.mean(((means - estimates) / ideal) ** 2, axis=0)).round(4).tolist(),
        "bias": _by_coefficient((means - population) / stddevs_),
        "inflation": float(np.mean([fit.inflation[1] for fit in fits])),
        "r_hat": float(np.max([fit.diagnostics.r_hat.max() for fit in fits])),
    }
    if plan.later:
        table_draws = np.array([fit.draws("scaled", "table").reshape(-1, len(population)) for fit in fits])
        low, high = np.quantile(table_draws, [0.025, 0.975], axis=1)
        result["table_cover"] = _by_coefficient((low <= estimates) & (estimates <= high))
    if method == "laplace":
        result["pareto_k"] = float(np.median([fit.diagnostics.pareto_k for fit in fits]))
    result["seconds"] = round(time.time() - started, 1)
    return result


def _by_coefficient(values: np.ndarray) -> list[float]:
    return np.asarray(values, dtype=float).mean(axis=0).round(4).tolist()


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """Cells that are done, by key."""
    if not path.exists():
        return {}
    cells = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {_key(cell): cell for cell in cells if "table" in cell}


def _key(cell: dict[str, Any]) -> str:
    return "|".join(str(cell[name]) for name in ("table", "rows", "epsilon", "stages", "method"))


def _twin(done: dict[str, dict[str, Any]], cell: dict[str, Any], table: Table) -> dict[str, Any] | None:
    """What the rule gives where the number that it chooses is done already: samples, noise and fits are the same."""
    if cell["stages"] != "auto":
        return None
    plan = plan_stages(table.of_size(cell["rows"]), cell["epsilon"], DELTA, None, "auto", "full", "auto")
    fixed = done.get(_key(cell | {"stages": len(plan.mus)}))
    return None if fixed is None else fixed | {"stages": "auto"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of public tables")
    parser.add_argument("--tables", nargs="*", default=list(LOADERS))
    parser.add_argument("--rows", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--stages", nargs="*", default=["1", "2", "3", "auto"])
    parser.add_argument("--method", default="laplace", choices=("laplace", "nuts"))
    parser.add_argument("--spanning", action="store_true", help="only the cells of the spanning subset")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    done = finished(options.output)
    options.output.parent.mkdir(exist_ok=True)
    for name in options.tables:
        table = None
        for rows in options.rows:
            for epsilon in options.epsilons:
                for text in options.stages:
                    stages = text if text == "auto" else int(text)
                    cell = {"table": name, "rows": rows, "epsilon": epsilon, "stages": stages, "method": options.method}
                    if _key(cell) in done or (options.spanning and (name, rows, epsilon) not in SPANNING):
                        continue
                    table = table or load(name, options.data)
                    if table is None or rows > 1.05 * len(table.y):
                        continue
                    result = _twin(done, cell, table)
                    result = result or run_cell(table, rows, epsilon, stages, options.method, options.repetitions)
                    result["machine"] = machine()["processor"]
                    done[_key(cell)] = result
                    with options.output.open("a") as stream:
                        stream.write(json.dumps(result) + "\n")
                    if not options.quiet:
                        print(_line(result), flush=True)


def _line(cell: dict[str, Any]) -> str:
    cover = np.array(cell["cover"])
    return (
        f"{cell['table']:18s} N={cell['rows']:<6d} eps={cell['epsilon']:<4g} stages={cell['stages']}"
        f"({cell['stages_used']}) plain {np.mean(cell['plain_cover']):.3f} | cover {cover.mean():.3f} min"
        f" {cover.min():.2f} sd {np.mean(cell['sd']):.2f} rmse {np.sqrt(np.mean(np.square(cell['rmse']))):.2f}"
        f" | table {np.mean(cell.get('table_cover', [np.nan])):.3f} k {cell.get('pareto_k', 0):.2f}"
        f" z {np.round(cell['bias'], 1).tolist()} {cell['seconds']} s"
    )


if __name__ == "__main__":
    main()
