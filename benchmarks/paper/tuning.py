"""The search for the settings of noisy gradients: on tables simulated from the prior, never on those it is scored on.

The score is the very distance that the experiments report, so the search favours the method. One rule keeps it sane:
no chain may be so hot that privacy's noise alone spreads it beyond the prior. Without the rule the best score at small
epsilons belongs to chains ten thousand times too wide, since a distribution that is wide enough is at a distance of
about one half from everything.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from dpglm.paper.baselines.coded_rows import ScaledRows
from dpglm.paper.baselines.langevin_accounting import noise_multiplier
from dpglm.paper.baselines.on_rows import stacked_rows
from dpglm.paper.outcomes import outcome_of
from paper.jobs import PosteriorJob, TuningJob, save_job
from paper.releases import DELTA, Reading
from paper.seed import SEED
from paper.tables import LARGEST_COUNT, Table

TABLES = 6
LEARNING_RATES = tuple(10.0 ** (power / 2) for power in range(-14, -1))  # 1e-7 to 0.1
CLIPPING_SHARES = (0.1, 0.25, 0.5, 1.0)  # of the longest gradient that a typical row can have
DECAYS = (0.0, 0.5)


def write_search(
    name: str, like: Table, epsilons: tuple[float, ...], reading: Reading, folder: Path, draws: int,
    length: tuple[int, int], *, coarse: bool = False,
) -> None:  # fmt: skip
    """The job of one search, for tables of this design and size."""
    if (folder / f"{name}.job").exists():
        return
    design = like.design
    tables = prior_predictive_tables(like, reading)
    model, data = stacked_rows(tables, reading.link, reading.dispersion, reading.prior)
    arrays = tuple(part._make(map(np.asarray, part)) for part in data)
    sampler = "laplace" if coarse else "nuts"
    rows = PosteriorJob(model, arrays, np.zeros((len(tables), model.size)), draws, sampler)
    longest = np.sqrt(_radius(like) ** 2 + design.intercept)
    rates, shares, decays = LEARNING_RATES, CLIPPING_SHARES, DECAYS
    if coarse:
        rates, shares, decays = LEARNING_RATES[4:12:3], (0.5,), (0.0,)
    grid = np.array([(rate, share * longest, decay) for rate, share, decay in product(rates, shares, decays)])
    job = TuningJob(
        rows=rows,
        outcome=outcome_of(design.family.name, reading.link, design.response_range),
        noise=np.array([noise_multiplier(e, DELTA, len(like.rows.y) ** -0.5, length[0]) for e in epsilons]),
        grid=grid,
        iterations=length[0],
        burn_in=length[1],
    )
    save_job(folder, name, job)


def hottest(like: Table, reading: Reading) -> float:
    """The temperature at which the posterior of a nominal public table, drawn wider by its root, is the prior.

    The nominal table is that of the noise allocation: slopes of zero, predictors with variance R^2 / (3 d).
    """
    information = len(like.frame) * _radius(like) ** 2 / (3 * like.design.dimension) / 4
    return information * _prior_variance(reading, like.design.dimension)


def _prior_variance(reading: Reading, dimension: int) -> float:
    """Of a slope. A standard normal in a ball has less than one: P(chi2(d + 2) < r^2) / P(chi2(d) < r^2)."""
    squared = reading.largest_squared_norm
    if squared is None:
        return reading.slopes**2
    return float(chi2.cdf(squared, dimension + 2) / chi2.cdf(squared, dimension))


def prior_predictive_tables(like: Table, reading: Reading) -> list[ScaledRows]:
    """Coefficients from the prior, predictors from a random Gaussian inside the bounds; only the shape is looked at.

    A share of ones between 5 and 95 % is taken for known: nobody would run a regression on less.
    """
    design, rows = like.design, len(like.frame)
    generator = np.random.default_rng([SEED, 9, design.dimension, rows])
    found: list[ScaledRows] = []
    while len(found) < TABLES:
        factor = generator.normal(size=(design.dimension, design.dimension + 1))
        covariance = factor @ factor.T
        covariance *= generator.uniform(0.1, 0.5) * _radius(like) ** 2 / np.trace(covariance)
        x = generator.multivariate_normal(np.zeros(design.dimension), covariance, size=rows)
        if design.intercept:
            x += generator.uniform(-0.4, 0.4, design.dimension)
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True) / _radius(like))
        table = ScaledRows(design, np.clip(x, -1, 1), np.zeros(rows))
        u = table.matrix @ reading.drawn_coefficients(design.coefficient_names, generator)
        if design.family.name == "poisson":
            y = np.minimum(generator.poisson(np.log1p(np.exp(u))), LARGEST_COUNT).astype(float)
        else:
            y = np.where(generator.random(rows) < 1 / (1 + np.exp(-u)), 1.0, -1.0)
            if not 0.05 < np.mean(y > 0) < 0.95:
                continue
        found.append(replace(table, y=y))
    return found


def _radius(like: Table) -> float:
    return like.radius or float(np.sqrt(like.design.largest_squared_norm))
