"""The calibration study's cells: which there are, what is public about each, and how its tables are simulated.

Two kinds of cells. In a *coverage* cell the parameters are fixed, rows are drawn, clamped and summed, and privacy noise
is added. In an *sbc* cell (simulation-based calibration) every parameter, nuisance included, is drawn from the model's
prior and the sums from the model's own normal approximation: an exact check of the inference code, not of the model.

A ``Plan`` is what the custodian's code says about a cell (statistics, noise, units). Making it takes the custodian's
libraries; plans travel as JSON, so that the machine that samples needs only JAX, NumPyro, NumPy and SciPy.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dpglm.analyst.priors import NormalPrior
from dpglm.blocks import BlockShape
from dpglm.paper.model import ModelShape, TableData, TableShape, constrain, table_coefficients, with_level
from dpglm.paper.moments import statistics_covariance, statistics_mean
from dpglm.paper.outcomes import outcome_integrals, outcome_of

Floats = npt.NDArray[np.float64]

DELTA = 1e-6
COUNT_BOUND = 15
COUNT_MEAN = 1.5
DISPERSION = 2.0
RESIDUAL_STDDEV = 0.2

FAMILIES = ("logistic", "poisson", "linear")
DIMENSIONS = (3, 6)
EPSILONS = (0.1, 0.3, 1.0, 3.0)
ROWS = (500, 10_000, 100_000)
# Norms of the slopes. A linear outcome lies in [-1, 1] too, so norms above 3 would clamp most of it.
NORMS = {"logistic": (1.0, 3.0, 6.0), "poisson": (1.0, 3.0, 6.0), "linear": (1.0, 2.0, 3.0)}

# (dimension, epsilon, rows, position of the norm): by NUTS for each family, the most informative first.
_BY_NUTS = (
    (3, 1.0, 10_000, 1),
    (6, 1.0, 100_000, 2),
    (3, 0.1, 100_000, 0),
    (6, 3.0, 10_000, 0),
    (3, 0.3, 100_000, 2),
    (6, 0.1, 100_000, 1),
    (3, 3.0, 500, 0),
    (6, 0.3, 10_000, 1),
)
# The last three stand beside coverage cells that say little: what fixed parameters cannot promise, the prior's must.
_SBC = (
    (3, 1.0, 10_000),
    (6, 1.0, 10_000),
    (3, 0.1, 10_000),
    (6, 3.0, 100_000),
    (3, 3.0, 500),
    (6, 0.3, 10_000),
    (6, 0.1, 100_000),
)

# Why a cell is outside its band, where ``calibration.cause_of`` has no rule for it: filled in by people who looked.
CAUSES: dict[str, str] = {
    "coverage-nuts-poisson-d3-eps1-n10000-theta3": "one of three levels; the same tables with 1,000 draws instead of "
    "800 gave 50.8, 92.2 and 96.4, inside",
    "coverage-nuts-linear-d6-eps3-n10000-theta1": "one of three levels; posterior means are about 0.2 standard "
    "deviations too large in size (mean ranks 0.43 and 0.57, by the sign of the slope), as fixed parameters allow; in "
    "the cell with 100,000 rows and ε = 1 mean ranks are within 0.03 of one half",
    "coverage-nuts-linear-d6-eps0.1-n100000-theta2": "the noise hides the predictors' covariance, and its prior shows: "
    "too wide; with parameters from the prior it is not (sbc-nuts-linear-d6-eps0.1-n100000: inside)",
}


@dataclass(frozen=True)
class Cell:
    """One setting of the study. ``norm`` is that of the slopes in scaled units; an sbc cell has none."""

    kind: str  # "coverage" or "sbc"
    method: str  # "nuts" or "laplace"
    family: str
    dimension: int
    epsilon: float
    rows: int
    norm: float | None

    @property
    def name(self) -> str:
        norm = "" if self.norm is None else f"-theta{self.norm:g}"
        return (
            f"{self.kind}-{self.method}-{self.family}-d{self.dimension}-eps{self.epsilon:g}-n{self.rows}{norm}"
        )  # fmt: skip

    @property
    def prior(self) -> NormalPrior:
        """The default; for sbc a narrower one, since parameters are drawn from it."""
        return NormalPrior(slopes=1.0, intercept=1.0) if self.kind == "sbc" else NormalPrior()


@dataclass(frozen=True)
class Plan:
    """What is public about a cell's releases."""

    cell: Cell
    names: tuple[str, ...]
    blocks: tuple[tuple[int, int], ...]
    noise_stddevs: tuple[float, ...]
    units: tuple[float, ...]
    response_range: tuple[float, float]

    @property
    def shapes(self) -> tuple[BlockShape, ...]:
        return tuple(BlockShape(*pair) for pair in self.blocks)

    @property
    def model(self) -> ModelShape:
        cell, shapes = self.cell, self.shapes
        outcome = outcome_of(cell.family, None, self.response_range)
        table = TableShape(shapes, outcome, cell.dimension, has_intercept=True, has_offset=False, zero_mean=False)
        return ModelShape(self.names, (table,), cell.prior, None, "exact")


@dataclass(frozen=True)
class Simulated:
    """Some replications: stacked data, and the true value of each free parameter that is ranked."""

    data: tuple[TableData, ...]
    truth: Floats  # (replications, ranked parameters)


def cells(which: str) -> list[Cell]:
    """The cells of "nuts", "laplace", "sbc", "quick" or "all"."""
    by_nuts = [
        Cell("coverage", "nuts", family, d, epsilon, rows, NORMS[family][position])
        for d, epsilon, rows, position in _BY_NUTS
        for family in FAMILIES
    ]
    if which == "nuts":
        return by_nuts
    if which == "laplace":
        taken = {(c.family, c.dimension, c.epsilon, c.rows, c.norm) for c in by_nuts}
        grid = product(ROWS[::-1], EPSILONS[::-1], range(3), FAMILIES, DIMENSIONS)
        points = [(family, d, epsilon, rows, NORMS[family][n]) for rows, epsilon, n, family, d in grid]
        return [Cell("coverage", "laplace", *point) for point in points if point not in taken]
    if which == "sbc":
        return [Cell("sbc", "nuts", family, d, epsilon, rows, None) for d, epsilon, rows in _SBC for family in FAMILIES]
    if which == "quick":
        return [
            Cell("coverage", "laplace", "logistic", 2, 3.0, 2_000, 1.0),
            Cell("sbc", "nuts", "logistic", 2, 3.0, 2_000, None),
        ]
    assert which == "all"
    return cells("nuts") + cells("sbc") + cells("laplace")


# Plans: they need the custodian's libraries.


def schema_of(cell: Cell) -> dict[str, Any]:
    """The declared columns: x in [-1, 1], so that scaled units are the user's."""
    outcomes = {
        "logistic": {"type": "binary", "levels": [0, 1], "fill": 0},
        "poisson": {"type": "count", "upper": COUNT_BOUND},
        "linear": {"type": "numeric", "lower": -1, "upper": 1},
    }
    columns: dict[str, Any] = {f"x{j}": {"type": "numeric", "lower": -1, "upper": 1} for j in range(cell.dimension)}
    columns["y"] = outcomes[cell.family]
    return {"dataset": {"name": "calibration", "rows": cell.rows}, "columns": columns}


def formula_of(cell: Cell) -> str:
    return "y ~ " + " + ".join(f"x{j}" for j in range(cell.dimension))


def make_plan(cell: Cell) -> Plan:
    """Calibrate a cell's mechanism, as ``dpglm.release`` does."""
    from dpglm.custodian.mechanism import calibrate
    from dpglm.formula import build_design
    from dpglm.schema import Schema

    design = build_design(formula_of(cell), Schema.from_dict(schema_of(cell)), cell.family)
    mechanism = calibrate(design, cell.epsilon, DELTA, None, "auto", "full")
    return Plan(
        cell=cell,
        names=design.coefficient_names,
        blocks=tuple((block.y_power, block.degree) for block in mechanism.blocks),
        noise_stddevs=mechanism.noise_stddevs,
        units=tuple(float(mechanism.grid.unit(block.y_power, block.degree)) for block in mechanism.blocks),
        response_range=design.response_range,
    )


def save_plans(plans: Iterable[Plan], path: Path) -> None:
    path.write_text(json.dumps([asdict(plan) for plan in plans], indent=0) + "\n")


def load_plans(path: Path) -> dict[Cell, Plan]:
    """The plans of a bundle, by cell."""
    plans = {}
    for facts in json.loads(path.read_text()):
        cell = Cell(**facts["cell"])
        plans[cell] = Plan(
            cell=cell,
            names=tuple(facts["names"]),
            blocks=tuple(tuple(pair) for pair in facts["blocks"]),
            noise_stddevs=tuple(facts["noise_stddevs"]),
            units=tuple(facts["units"]),
            response_range=tuple(facts["response_range"]),
        )
    return plans


# Tables.


def generator(seed: int, cell: Cell, replication: int) -> np.random.Generator:
    """Each replication has a stream of its own, so that results do not depend on how they are batched."""
    return np.random.default_rng([seed, zlib.crc32(cell.name.encode()), replication])


def true_predictors(dimension: int) -> tuple[Floats, Floats]:
    """Mean and covariance of x: the bounds are at least 3.5 standard deviations away."""
    position = np.arange(dimension)
    stddevs = np.linspace(0.26, 0.22, dimension)
    correlation = 0.3 ** np.abs(position[:, None] - position)
    return 0.08 * np.cos(2.0 * position), correlation * np.outer(stddevs, stddevs)


def true_coefficients(cell: Cell) -> Floats:
    """Intercept and slopes: alternating signs, falling sizes, the stated norm."""
    assert cell.norm is not None
    sizes = np.linspace(1.0, 0.4, cell.dimension) * (-1.0) ** np.arange(cell.dimension)
    slopes = cell.norm * sizes / np.linalg.norm(sizes)
    mean, covariance = true_predictors(cell.dimension)
    intercept = {"logistic": 0.3, "linear": 0.1}.get(cell.family)
    if intercept is None:  # counts: E[y] before the clamp is COUNT_MEAN
        intercept = np.log(COUNT_MEAN) - mean @ slopes - slopes @ covariance @ slopes / 2
    return np.concatenate([[intercept], slopes])


def draw_rows(cell: Cell, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Clamped rows in the coding of the blocks."""
    mean, covariance = true_predictors(cell.dimension)
    coefficients = true_coefficients(cell)
    x = mean + rng.normal(size=(cell.rows, cell.dimension)) @ np.linalg.cholesky(covariance).T
    u = coefficients[0] + x @ coefficients[1:]
    if cell.family == "logistic":
        y = np.where(rng.random(cell.rows) < 1 / (1 + np.exp(-u)), 1.0, -1.0)
    elif cell.family == "poisson":  # negative binomial with variance DISPERSION times the mean
        y = np.minimum(rng.negative_binomial(np.exp(u) / (DISPERSION - 1), 1 / DISPERSION), COUNT_BOUND).astype(float)
    else:
        y = np.clip(u + RESIDUAL_STDDEV * rng.normal(size=cell.rows), -1, 1)
    return np.clip(x, -1, 1), y


def exact_sums(plan: Plan, x: Floats, y: Floats) -> list[Floats]:
    """Sums of plain monomials, one array a block."""
    upper = np.triu_indices(plan.cell.dimension)
    sums = []
    for y_power, degree in plan.blocks:
        weight = y**y_power
        if degree == 0:
            sums.append(np.atleast_1d(weight.sum()))
        elif degree == 1:
            sums.append(weight @ x)
        else:
            sums.append(((x * weight[:, None]).T @ x)[upper])
    return sums


def noisy_sums(plan: Plan, sums: list[Floats], rng: np.random.Generator) -> list[Floats]:
    """Privacy noise, then the release's integer units."""
    noisy = []
    for shape, total, stddev, unit in zip(plan.shapes, sums, plan.noise_stddevs, plan.units, strict=True):
        scales = stddev / np.sqrt(shape.multiplicities(plan.cell.dimension))
        noisy.append(np.round((total + scales * rng.normal(size=total.shape)) / unit) * unit)
    return noisy


def table_data(plan: Plan, sums: Sequence[Floats]) -> TableData:
    """Releases as the model takes them: what ``dpglm.paper.assemble`` makes (``calibration.verify`` compares).

    Each array of ``sums`` may have a leading axis, one entry a replication; then every array of the result has it.
    """
    dimension, count = plan.cell.dimension, len(plan.names)
    leading = sums[0].shape[:-1]
    rows, columns = np.triu_indices(dimension)
    observed = []
    for shape, block in zip(plan.shapes, sums, strict=True):
        if shape.degree == 2:
            tensor = np.empty((*leading, dimension, dimension))
            tensor[..., rows, columns] = tensor[..., columns, rows] = block
        else:
            tensor = block[..., 0] if shape.degree == 0 else block
        observed.append(jnp.asarray(tensor))

    def everywhere(array: Any) -> jax.Array:
        return jnp.asarray(np.broadcast_to(array, (*leading, *np.shape(array))))

    return TableData(
        observed=tuple(observed),
        num_rows=everywhere(float(plan.cell.rows)),
        noise_stddevs=everywhere(plan.noise_stddevs),
        lower=everywhere(-np.ones(dimension)),
        upper=everywhere(np.ones(dimension)),
        matrix=everywhere(np.eye(count)),
        shift=everywhere(np.zeros(count)),
        offset=everywhere(0.0),
        spread_scale=everywhere(1.0),
    )


def simulate(plan: Plan, replications: range, seed: int) -> Simulated:
    """These replications of a cell."""
    if plan.cell.kind == "sbc":
        pairs = [_sbc_replication(plan, generator(seed, plan.cell, n)) for n in replications]
        truths, sums = zip(*pairs, strict=True)
        return assembled(plan, sums, np.array(truths))
    return assembled(plan, [coverage_sums(plan, seed, n) for n in replications])


def assembled(plan: Plan, sums: Sequence[list[Floats]], truth: Floats | None = None) -> Simulated:
    """Noisy sums of some replications as data; the truth is that of the cell unless it is given."""
    if truth is None:
        truth = np.tile(true_coefficients(plan.cell), (len(sums), 1))
    return Simulated((table_data(plan, [np.stack(block) for block in zip(*sums, strict=True)]),), truth)


def coverage_sums(plan: Plan, seed: int, replication: int) -> list[Floats]:
    """Rows, sums, noise: NumPy alone, so that other processes can do it."""
    rng = generator(seed, plan.cell, replication)
    return noisy_sums(plan, exact_sums(plan, *draw_rows(plan.cell, rng)), rng)


def _sbc_replication(plan: Plan, rng: np.random.Generator) -> tuple[Floats, list[Floats]]:
    """All parameters from the prior; the noisy sums from the model's normal distribution."""
    shape = plan.model
    free = prior_draw(shape, rng)
    mean, covariance = _model_moments(shape)(_empty(plan), with_level(shape, (_empty(plan),), free))
    noise = np.concatenate(
        [np.full(b.size(plan.cell.dimension), s) for b, s in zip(plan.shapes, plan.noise_stddevs, strict=True)]
    )
    factor = np.linalg.cholesky(plan.cell.rows * np.asarray(covariance) + np.diag(noise**2))
    isometric = plan.cell.rows * np.asarray(mean) + factor @ rng.normal(size=len(noise))
    roots = np.concatenate([np.sqrt(block.multiplicities(plan.cell.dimension)) for block in plan.shapes])
    ends = np.cumsum([block.size(plan.cell.dimension) for block in plan.shapes])[:-1]
    return free, np.split(isometric / roots, ends)


@lru_cache(maxsize=16)
def _empty(plan: Plan) -> TableData:
    """Data without observations, for functions that look at the bounds only."""
    return table_data(plan, [np.zeros(block.size(plan.cell.dimension)) for block in plan.shapes])


@lru_cache(maxsize=16)
def _model_moments(shape: ModelShape) -> Any:
    """Mean and covariance of one row's statistics at a free vector, by the dense reference formulas."""
    table = shape.tables[0]

    def moments(data: TableData, free: jax.Array) -> tuple[jax.Array, jax.Array]:
        parameters, _ = constrain(shape, (data,), free)
        its = parameters.tables[0]
        intercept, slopes = table_coefficients(table, data, parameters.coefficients)
        w = its.covariance @ slopes
        integrals = outcome_integrals(
            table.outcome, intercept + its.mean @ slopes, slopes @ w, parameters.spread, table.largest_q
        )
        arguments = (table.blocks, its.mean, its.covariance, w, integrals)
        return statistics_mean(*arguments), statistics_covariance(*arguments)

    return jax.jit(moments)


# The prior of the free vector, written down a second time: ``check_prior_draws`` compares it with the model's.


def _lkj_shapes(dimension: int) -> Floats:
    """Partial correlations below the diagonal, row by row: (z + 1)/2 ~ Beta(b, b), b by column (LKJ 2009), eta = 2."""
    _, columns = np.tril_indices(dimension, -1)
    return 2.0 + (dimension - 2 - columns) / 2


_LOG_SPREAD = {"poisson": (0.0, 1.5), "linear": (-2.3, 1.5)}


def prior_draw(shape: ModelShape, rng: np.random.Generator) -> Floats:
    """From the prior: coefficients, spread, means, variance shares, partial correlations, all but the first free."""
    table = shape.tables[0]
    parts = [np.asarray(shape.prior.scales(shape.names)) * rng.normal(size=len(shape.names))]
    if shape.has_spread:
        center, scale = _LOG_SPREAD[table.outcome.family_name]
        parts.append(np.atleast_1d(center + scale * rng.normal()))
    parts.append(rng.logistic(size=2 * table.dimension))  # logit of a uniform share
    shapes = _lkj_shapes(table.dimension)
    parts.append(np.arctanh(2 * rng.beta(shapes, shapes) - 1))
    return np.concatenate(parts)


def prior_log_density(shape: ModelShape, free: Floats) -> float:
    """Log density of ``prior_draw``, from SciPy's distributions."""
    from scipy import stats

    table, position = shape.tables[0], len(shape.names)
    total = stats.norm.logpdf(free[:position], scale=np.asarray(shape.prior.scales(shape.names))).sum()
    if shape.has_spread:
        total += stats.norm.logpdf(free[position], *_LOG_SPREAD[table.outcome.family_name])
        position += 1
    total += stats.logistic.logpdf(free[position : position + 2 * table.dimension]).sum()
    partial_correlations = np.tanh(free[position + 2 * table.dimension :])
    shapes = _lkj_shapes(table.dimension)
    densities = stats.beta.logpdf((partial_correlations + 1) / 2, shapes, shapes) + np.log1p(-(partial_correlations**2))
    return float(total + densities.sum())


def check_prior_draws(plan: Plan, draws: int = 20) -> None:
    """The model's log prior and the sampled one differ by a constant only."""
    rng = np.random.default_rng(0)
    shape = plan.model
    empty = _empty(plan)
    log_prior = jax.jit(lambda free: constrain(shape, (empty,), free)[1])
    points = [prior_draw(shape, rng) for _ in range(draws)]
    differences = [
        float(log_prior(with_level(shape, (empty,), point))) - prior_log_density(shape, point) for point in points
    ]
    assert np.ptp(differences) < 1e-8, f"{plan.cell.name}: draws are not from the model's prior"
