"""The experiments as cells: the paper's four, its limit, significance, an ablation, and coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paper.cells import Cell
from paper.releases import Reading
from paper.seed import SEED
from paper.tables import Table, adult, counts, diabetes, random_covariance, simulated, synthetic

SYNTHETIC_EPSILONS = tuple(np.linspace(0.001, 1.1, 10).round(4).tolist())  # the paper's
COUNT_EPSILONS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.1)
REAL_EPSILONS = (0.1, 0.3, 1.0)
COVERAGE_EPSILONS = (0.1, 0.3, 1.0)
NORMS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
SIGNIFICANCE_SLOPES = (0.0, 0.0, 0.5, 1.0, 2.0)
SIGNIFICANCE_SIZES, SIGNIFICANCE_EPSILONS = (1_000, 4_000, 16_000), (0.1, 0.3, 1.0, 3.0)
# The paper's prior of logistic slopes, with its bound: three times the squared norm of the synthetic ones.
SPHERE = Reading(largest_squared_norm=3 * 1.15)
POISSON = Reading(link="softplus", dispersion=1.0, slopes=1.0)  # the paper's link and prior
OFF_CENTRE = {"intercept": -1.0, "means": np.array([0.4, -0.3, 0.2])}


@dataclass(frozen=True)
class Size:
    """How much of everything: the published study, or a quick look that a test can afford."""

    repetitions: int = 20
    count_repetitions: int = 200  # KS moves little there: many tables to see it fall
    limit_repetitions: int = 5
    limit_rows: int = 10_000
    tables: int = 200  # of coverage
    wide_tables: int = 100  # of coverage with dpglm's own prior
    significance: int = 50
    synthetic_epsilons: tuple[float, ...] = SYNTHETIC_EPSILONS
    draws: int = 1_000
    length: tuple[int, int] = (10_000, 6_000)  # of noisy gradients: iterations, burn-in
    coarse: bool = False  # a small search for the settings of noisy gradients
    sampler: str | None = None  # in place of NUTS


QUICK = Size(2, 2, 2, 1_000, 2, 2, 2, (0.1231, 1.1), 100, (200, 100), True, "laplace")


@dataclass(frozen=True)
class Experiment:
    """Cells that share tables; the first one is without privacy. ``search`` describes noisy gradients' tuning."""

    cells: tuple[Cell, ...]
    search: tuple[str, Table, tuple[float, ...], Reading] | None = None


def experiments(folder: Path, size: Size, quick: bool = False, fetch: bool = False) -> dict[str, Experiment]:
    """All of them, by name; those of real tables where the files are, or where they may be fetched."""
    found: dict[str, Experiment] = {}
    if not quick:
        for name, table in (("diabetes", diabetes(folder, fetch)), ("adult", adult(folder, fetch))):
            if table is not None:
                found[name] = _one_table(name, table, REAL_EPSILONS, size.repetitions)
    tables = [synthetic(number) for number in range(size.repetitions)]
    found["synthetic"] = _many_tables("synthetic", tables, size.synthetic_epsilons, SPHERE)
    found["synthetic_wide"] = _many_tables("synthetic_wide", tables, size.synthetic_epsilons, Reading())
    tables = [counts(number) for number in range(size.count_repetitions)]
    epsilons = COUNT_EPSILONS[-2:] if quick else COUNT_EPSILONS
    found["counts"] = _many_tables("counts", tables, epsilons, POISSON)
    found["limit"] = _limit(size, NORMS[::4] if quick else NORMS)
    if not quick:
        found["significance"] = _significance(size)
    found["ablation_centred"] = _ablation("ablation_centred", [synthetic(n) for n in range(size.repetitions)])
    found["ablation_off_centre"] = _ablation("ablation_off_centre", _off_centre_tables(size.repetitions))
    found["coverage"] = _coverage("coverage", size.tables, SPHERE, 10)
    found["coverage_wide"] = _coverage("coverage_wide", size.wide_tables, Reading(), 8)
    if size.sampler is not None:
        for name, experiment in found.items():
            cells = tuple(replace(cell, sampler=size.sampler) for cell in experiment.cells)
            found[name] = replace(experiment, cells=cells)
    return found


def _one_table(name: str, table: Table, epsilons: Sequence[float], repetitions: int) -> Experiment:
    """A real table: one table, many releases of it."""
    conditions = [{"epsilon": epsilon} for epsilon in epsilons for _ in range(repetitions)]
    tables = [table] * len(conditions)
    rest = {"reference_of": [0] * len(conditions), "tuning": (f"tuning_{name}", tuple(epsilons)), "seed": 1}
    cells = _methods(name, tables, conditions, Reading(), rest)
    cells = (Cell(name, "non_private", [table], [{}]), *cells)
    return Experiment(cells, (f"tuning_{name}", table, tuple(epsilons), Reading()))


def _many_tables(name: str, tables: list[Table], epsilons: Sequence[float], reading: Reading) -> Experiment:
    """A new table a repetition, the same ones for each epsilon."""
    conditions = [{"epsilon": epsilon} for epsilon in epsilons for _ in tables]
    rest = {"reference_of": list(range(len(tables))) * len(epsilons),
            "tuning": (f"tuning_{name}", tuple(epsilons)), "seed": 2}  # fmt: skip
    cells = _methods(name, tables * len(epsilons), conditions, reading, rest)
    first = Cell(name, "non_private", tables, [{}] * len(tables), reading)
    return Experiment((first, *cells), (f"tuning_{name}", tables[0], tuple(epsilons), reading))


def _methods(
    name: str, tables: Sequence[Table], conditions: list[Any], reading: Reading, rest: dict[str, Any]
) -> tuple[Cell, ...]:
    """Every private method, on the same releases where they read one.

    Sums with noise, taken for exact, are often sums that no table has: the naive posterior is pressed against an edge,
    where NUTS takes hours. Taylor's has cliffs, where the series makes impossible moments. Both are Gaussians at the
    mode; Taylor's is compared with the same approximation of dpglm's.
    """
    readings = {
        "dpglm": reading,
        "dpglm_laplace": reading,
        "taylor": replace(reading, moments="taylor"),
        "naive": replace(reading, noise_aware=False),
        "paper_blocks": replace(reading, statistics="paper", allocation="equal"),
        "dp_sgld": reading,
    }
    samplers = {"dpglm_laplace": "laplace", "taylor": "laplace", "naive": "laplace"}
    if name == "adult":  # a sharp posterior: Taylor's can be sampled
        del readings["dpglm_laplace"], samplers["taylor"]
    if tables[0].design.intercept:
        del readings["paper_blocks"]  # they know no intercept
    return tuple(
        Cell(name, method, tables, conditions, its, **rest, sampler=samplers.get(method, "nuts"))
        for method, its in readings.items()
    )


def _limit(size: Size, norms: Sequence[float]) -> Experiment:
    """Larger and larger slopes, in random directions; rows of the synthetic table."""
    tables, conditions = [], []
    for norm in norms:
        for number in range(size.limit_repetitions):
            generator = np.random.default_rng([SEED, 5, number])  # the same directions for every norm
            direction = generator.normal(size=3)
            slopes = norm * direction / np.linalg.norm(direction)
            tables.append(simulated("logistic", size.limit_rows, slopes, generator, random_covariance(3, 3)))
            conditions.append({"norm": norm})
    cells = [Cell("limit", "non_private", tables, conditions)]
    epsilons = (1.0, 3.0)
    both = [{"epsilon": epsilon, **condition} for epsilon in epsilons for condition in conditions]
    reference = list(range(len(tables))) * len(epsilons)
    readings = {"dpglm": Reading(), "taylor": Reading(moments="taylor")}
    for method, reading in readings.items():
        cells.append(Cell("limit", method, tables * 2, both, reading, reference, None, 5))
    return Experiment(tuple(cells))


def _significance(size: Size) -> Experiment:
    """Two slopes of zero and three that are not, an intercept, and predictors with a mean."""
    tables, conditions = [], []
    dimension = len(SIGNIFICANCE_SLOPES)
    for rows in SIGNIFICANCE_SIZES:
        for number in range(size.significance):
            generator = np.random.default_rng([SEED, 6, rows, number])
            tables.append(
                simulated(
                    "logistic", rows, np.array(SIGNIFICANCE_SLOPES), generator, random_covariance(dimension, 6, 0.5),
                    intercept=-0.5, means=np.array([0.2, -0.2, 0.1, 0.0, -0.1]), radius=None,
                )
            )  # fmt: skip
            conditions.append({"rows": rows})
    repeated = [{"epsilon": e, **condition} for e in SIGNIFICANCE_EPSILONS for condition in conditions]
    every = tables * len(SIGNIFICANCE_EPSILONS)
    readings = {"dpglm": Reading()}
    cells = [Cell("significance", name, every, repeated, its, (), None, 6, "laplace") for name, its in readings.items()]
    return Experiment(tuple(cells))


def _ablation(name: str, tables: list[Table]) -> Experiment:
    """What each part of the default contributes, at three epsilons."""
    conditions = [{"epsilon": epsilon} for epsilon in REAL_EPSILONS for _ in tables]
    reference = list(range(len(tables))) * len(REAL_EPSILONS)
    # The paper's statistics know neither an intercept nor a mean of the predictors.
    without = [
        replace(table, design=_without_intercept(table)) if table.design.intercept else table for table in tables
    ]
    parts = {
        "paper_equal": Reading("paper", "equal"),
        "paper_equal_naive": Reading("paper", "equal", noise_aware=False),
        "paper_auto": Reading("paper", "auto"),
        "full_equal": Reading("full", "equal"),
        "full_auto": Reading("full", "auto"),
        "full_auto_naive": Reading("full", "auto", noise_aware=False),
    }
    cells = [Cell(name, "non_private", tables, [{}] * len(tables))]
    for method, reading in parts.items():
        chosen = without if reading.statistics == "paper" else tables
        sampler = "nuts" if reading.noise_aware else "laplace"
        cells.append(Cell(name, method, chosen * 3, conditions, reading, reference, None, 7, sampler))
    return Experiment(tuple(cells))


def _off_centre_tables(repetitions: int) -> list[Table]:
    generators = [np.random.default_rng([SEED, 7, number]) for number in range(repetitions)]
    slopes = np.array([-0.9, -0.5, 0.3])
    return [simulated("logistic", 1_000, slopes, g, random_covariance(3, 3), **OFF_CENTRE) for g in generators]


def _without_intercept(table: Table) -> Any:
    from dpglm.formula import build_design

    return build_design(f"{table.design.formula} - 1", table.design.schema, table.design.family.name)


def _coverage(name: str, repetitions: int, reading: Reading, seed: int) -> Experiment:
    """Coefficients from the prior, a new table each: a right posterior covers at its nominal rate."""
    tables, search = [], f"tuning_{name}"
    for number in range(repetitions):
        generator = np.random.default_rng([SEED, seed, number])
        slopes = reading.drawn_coefficients(("x1", "x2", "x3"), generator)
        tables.append(simulated("logistic", 1_000, slopes, generator, random_covariance(3, 3)))
    conditions = [{"epsilon": epsilon} for epsilon in COVERAGE_EPSILONS for _ in tables]
    rest = {"reference_of": list(range(len(tables))) * 3, "tuning": (search, COVERAGE_EPSILONS), "seed": seed}
    cells = [Cell(name, "non_private", tables, [{}] * len(tables), reading, list(range(len(tables))))]
    readings = {
        "dpglm": reading,
        "naive": replace(reading, noise_aware=False),
        "dp_sgld": reading,
    }
    samplers = {"naive": "laplace"}
    cells += [Cell(name, method, tables * 3, conditions, its, **rest, sampler=samplers.get(method, "nuts"))
              for method, its in readings.items()]  # fmt: skip
    return Experiment(tuple(cells), (search, tables[0], COVERAGE_EPSILONS, reading))
