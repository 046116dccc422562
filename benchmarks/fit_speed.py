"""How fast a fit is: against Stan running the paper's model on the same release, and as columns are added.

    python benchmarks/fit_speed.py --stan-python PATH        everything; PATH is a Python that has PyStan 3
    python benchmarks/fit_speed.py --growth                  only how cost grows with the number of columns
    python benchmarks/fit_speed.py --page                    only write the page again from the stored results

Stan runs the paper's model, as printed but for what the page says, in two programs: paper_model_as_written.stan, entry
by entry, and paper_model.stan, vectorised by hand. It has a process and an interpreter of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fit_speed_page import write_page
from machine import RESULTS, machine, save
from seeded_noise import SeededNoise

HERE = Path(__file__).parent
SEED = 20240611
ROWS, EPSILON, DELTA = 10_000, 1.0, 1e-5
COMPARED = (3, 7, 10)
WANTED = {3: 2, 7: 10, 10: 100}  # times Stan's effective draws a second
GROWTH = (5, 10, 20, 30, 40, 60)
LARGEST_DENSE, LARGEST_FIT, LARGEST_COUNT = 20, 30, 30
CHAINS = 4
NORM_BOUND = 6.75  # of the paper's prior: three times the squared norm of the coefficients


def simulated(dimension: int, statistics_list: str, family: str = "logistic") -> Any:
    """Gaussian columns with correlation 0.5 between neighbours, rows in the unit ball, coefficients of norm 1.5."""
    import pandas as pd

    from dpglm import Schema
    from dpglm.custodian.build import Request, build_release

    rng = np.random.default_rng([SEED, dimension])
    place = np.arange(dimension)
    covariance = 0.5 ** np.abs(place[:, None] - place) * 0.3 / dimension
    x = rng.multivariate_normal(np.zeros(dimension), covariance, size=ROWS)
    theta = rng.normal(size=dimension)
    u = x @ (1.5 * theta / np.linalg.norm(theta))
    columns: dict[str, Any] = {f"x{j}": {"type": "numeric", "lower": -1, "upper": 1} for j in range(dimension)}
    if family == "logistic":
        y = (rng.random(ROWS) < 1 / (1 + np.exp(-u))).astype(int)
        columns["y"] = {"type": "binary", "levels": [0, 1], "fill": 0}
    else:
        y = rng.poisson(np.exp(0.5 + u))
        columns["y"] = {"type": "count", "upper": 10, "fill": 0}
    table = pd.DataFrame({**{f"x{j}": x[:, j] for j in range(dimension)}, "y": y})
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(dimension)) + (" - 1" if statistics_list == "paper" else "")
    schema = Schema.from_dict({"dataset": {"name": "s", "rows": ROWS}, "columns": columns})
    request = Request(
        formula, schema, family, EPSILON, DELTA, method="moments", radius=1.0, allocation="equal",
        statistics=statistics_list,
    )  # fmt: skip
    return build_release(table, request, SeededNoise(dimension))


# Stan, in a process of its own and with its own interpreter.


def stan_data(release: Any) -> dict[str, Any]:
    """The release's numbers in isometric coordinates, as paper_model.stan wants them."""
    dimension = release.design.dimension
    sums, noise = [], []
    for block in release.blocks:
        scale = np.sqrt(np.asarray(block.shape.multiplicities(dimension), dtype=float))
        sums += (np.asarray(block.values, dtype=float) * scale).tolist()
        noise += [block.noise_stddev] * len(scale)
    return {
        "d": dimension, "M": len(sums), "N": release.num_rows, "z": sums, "noise": noise, "s": NORM_BOUND,
    }  # fmt: skip


def inner_stan(program: str, data_file: str, output: str) -> None:
    """Runs under the interpreter that has PyStan: build, sample, and write draws and times."""
    import stan

    code = (HERE / f"{program}.stan").read_text()
    start = time.perf_counter()
    model = stan.build(code, data=json.loads(Path(data_file).read_text()), random_seed=SEED)
    built, before = time.perf_counter(), processor_seconds()
    result = model.sample(num_chains=CHAINS, num_warmup=1000, num_samples=1000)
    sampled = time.perf_counter()
    theta = result["theta"]  # (d, draws x chains), chains vary fastest
    draws = theta.reshape(len(theta), -1, CHAINS).transpose(2, 1, 0)
    np.savez(
        output, draws=draws, build=built - start, sample=sampled - built, leapfrogs=result["n_leapfrog__"].mean(),
        divergent=result["divergent__"].sum(), processor=processor_seconds() - before,
    )  # fmt: skip


def processor_seconds() -> float:
    """Of this process and of its children at work: unlike the clock, it does not count what others do meanwhile."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == os.getpid():
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def run_stan(program: str, stan_python: str, release: Any, folder: Path, cache: Path) -> dict[str, Any]:
    data, output = folder / "stan.json", folder / "stan.npz"
    data.write_text(json.dumps(stan_data(release)))
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [stan_python, __file__, "--inner-stan", program, str(data), str(output)]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if finished.returncode:
        sys.exit(f"Stan did not run: {finished.stderr[-2000:]}")
    with np.load(output) as stored:
        facts = {name: stored[name] for name in stored.files}
    draws = facts.pop("draws")
    numbers = {name: float(value) for name, value in facts.items()}
    return {**numbers, "ess": smallest_ess(draws), "mean": draws.mean(axis=(0, 1)), "sd": draws.std(axis=(0, 1))}


def smallest_ess(draws: Any) -> float:
    from dpglm.analyst.convergence import convergence

    return float(convergence(draws)[0].min())


# dpglm: the command line from a cold and from a warm cache, and sampling alone.


def command_line(release_file: Path, cache: Path) -> float:
    """Seconds from `dpglm fit` to the end of its table."""
    command = [
        sys.executable,
        "-m",
        "dpglm",
        "fit",
        str(release_file),
        "--output",
        str(cache / "fit.npz"),
        "--force",
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    for name in ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):  # as a user has it
        environment.pop(name, None)
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - start


def run_dpglm(release: Any, folder: Path, name: str, options: dict[str, Any]) -> dict[str, Any]:
    import dpglm

    runs = []
    for seed in range(4):  # the first compiles
        start, before = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpglm.FitWarning)
            fit = dpglm.fit(release, seed=seed, progress=False, **options)
        seconds, processor = time.perf_counter() - start, time.process_time() - before
        runs.append((seconds, processor, float(fit.diagnostics.ess_bulk.min())))
    draws = fit.draws("scaled")
    result = {
        "sample": statistics.median(seconds for seconds, _, _ in runs[1:]),
        "processor": statistics.median(processor for _, processor, _ in runs[1:]),
        "ess": statistics.median(ess for _, _, ess in runs[1:]),
        "divergent": fit.diagnostics.divergences,
        "mean": draws.mean(axis=(0, 1)),
        "sd": draws.std(axis=(0, 1)),
    }
    if name == "default":
        path = folder / "release.json"
        release.save(path)
        cache = Path(tempfile.mkdtemp(dir=folder))
        result["cold"] = command_line(path, cache)
        result["warm"] = min(command_line(path, cache) for _ in range(2))
    return result


def compare(stan_python: str, dimensions: Sequence[int], cache: str | None) -> list[dict[str, Any]]:
    """Stan and dpglm in turn on one release a dimension."""
    import dpglm

    variants = {
        "default": {},
        "same model": {"moments": "taylor", "prior": dpglm.SphericalPrior(NORM_BOUND)},
    }
    results = []
    with tempfile.TemporaryDirectory() as folder:
        stan_cache = Path(cache or folder) / "stan-cache"
        for dimension in dimensions:
            release = simulated(dimension, "paper")
            stan, vectorised = (
                run_stan(program, stan_python, release, Path(folder), stan_cache)
                for program in ("paper_model_as_written", "paper_model")
            )
            entry: dict[str, Any] = {
                "columns": dimension, "stan": _rounded(stan), "vectorised": _rounded(vectorised), "dpglm": {},
            }  # fmt: skip
            for name, options in variants.items():
                ours = run_dpglm(release, Path(folder), name, options)
                ours["apart"] = float(np.max(np.abs(ours.pop("mean") - stan["mean"]) / stan["sd"]))
                ours["width"] = [
                    float(each) for each in (np.min(ours["sd"] / stan["sd"]), np.max(ours["sd"] / stan["sd"]))
                ]
                ours.pop("sd")
                for name_of, other in (("times_stan", stan), ("times_vectorised", vectorised)):
                    for clock, suffix in (("sample", ""), ("processor", "_processor")):
                        ours[name_of + suffix] = ours["ess"] / ours[clock] / (other["ess"] / other[clock])
                entry["dpglm"][name] = _rounded(ours)
            entry["wanted"] = WANTED[dimension]
            print(json.dumps(entry), flush=True)
            results.append(entry)
    return results


def _rounded(facts: dict[str, Any]) -> dict[str, Any]:
    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return _rounded(value)
        return [short(each) for each in value] if isinstance(value, list | np.ndarray) else float(f"{value:.4g}")

    return {name: short(value) for name, value in facts.items()}


# How cost grows with the number of columns.


def gradient_seconds(release: Any, dense: bool = False, points: int = CHAINS) -> tuple[float, float]:
    """(seconds of compilation, seconds for value and gradient at some points), the fastest of several calls."""
    from functools import partial

    import jax

    from dpglm.paper import likelihood, model
    from dpglm.paper.assemble import assemble, starts

    options: dict[str, Any] = {"link": None, "dispersion": None, "moments": "exact", "noise_aware": True}
    shape, data = assemble([release], prior=None, **options)
    positions = jax.numpy.tile(jax.numpy.asarray(starts(shape, [data])), (points, 1))
    structured = model.log_likelihood
    try:
        if dense:
            model.log_likelihood = likelihood.dense_log_likelihood
        together = jax.vmap(jax.value_and_grad(partial(model.log_density, shape, data)))
        start = time.perf_counter()
        program = jax.jit(together).lower(positions).compile()
        compiled = time.perf_counter() - start
    finally:
        model.log_likelihood = structured
    times = []
    while len(times) < 5 or (sum(times) < 1.5 and len(times) < 300):
        start = time.perf_counter()
        jax.block_until_ready(program(positions))
        times.append(time.perf_counter() - start)
    return compiled, min(times)


def growth() -> list[dict[str, Any]]:
    import dpglm

    results = []
    for dimension in GROWTH:
        release = simulated(dimension, "full")
        compiled, seconds = gradient_seconds(release)
        entry: dict[str, Any] = {"columns": dimension, "compile": compiled, "gradient": seconds}
        if dimension <= LARGEST_DENSE:
            entry["dense_gradient"] = gradient_seconds(release, dense=True)[1]
        if dimension <= LARGEST_COUNT:
            entry["count_compile"], entry["count_gradient"] = gradient_seconds(simulated(dimension, "full", "poisson"))
        if dimension <= LARGEST_FIT:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", dpglm.FitWarning)
                dpglm.fit(release, draws=100, progress=False)
                start = time.perf_counter()
                fit = dpglm.fit(release, draws=1000, progress=False)
            entry["fit"] = time.perf_counter() - start
            entry["effective_draw"] = entry["fit"] / float(fit.diagnostics.ess_bulk.min())
        print(json.dumps(_rounded(entry)), flush=True)
        results.append(_rounded(entry))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stan-python", help="an interpreter that has PyStan 3")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--no-growth", action="store_true", help="only the comparison with Stan")
    parser.add_argument("--columns", type=int, nargs="+", default=COMPARED, help="of the comparison with Stan")
    parser.add_argument("--stan-cache", help="keep Stan's built model here; its build is then measured only once")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--inner-stan", nargs=3)
    arguments = parser.parse_args()
    if arguments.inner_stan:
        return inner_stan(*arguments.inner_stan)
    stored = RESULTS / "fit_speed.json"
    results: dict[str, Any] = json.loads(stored.read_text())["results"] if stored.exists() else {}
    where = json.loads(stored.read_text())["machine"] if stored.exists() else machine()
    if not arguments.page:
        results |= {"seed": SEED, "setting": {"rows": ROWS, "epsilon": EPSILON, "delta": DELTA}}
        if not arguments.growth:
            if not arguments.stan_python:
                sys.exit("give --stan-python: an interpreter with PyStan 3 (`make bench-fit` sets one up)")
            results["compared"] = compare(arguments.stan_python, arguments.columns, arguments.stan_cache)
            save("fit_speed", results)
        if not arguments.no_growth:
            results["growth"] = growth()
        save("fit_speed", results)
        where = machine()
    write_page(results, where)
    return None


if __name__ == "__main__":
    main()
