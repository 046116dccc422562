"""What is to be sampled, as plain arrays and shapes: a job can run on any machine that has JAX and this source.

Three kinds: posteriors by NUTS (of releases or of rows), chains of noisy gradients, and the search for their settings.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpglm.analyst.priors import NormalPrior, SphericalPrior
from dpglm.paper.baselines.langevin import BURN_IN, ITERATIONS, chains
from dpglm.paper.batches import coefficients_of
from dpglm.paper.modes import find_modes
from dpglm.paper.outcomes import Outcome
from dpglm.paper.sampler import continue_chains, start_chains
from paper.seed import SEED
from paper.sketches import Sketches, distances, rank_r_hat

CHAINS, DRAWS, MOST_DRAWS, KEPT = 4, 1_000, 32_000, 1_000
LARGEST_R_HAT = 1.008  # more draws are made above this; what is reported must stay below 1.01
KEEP_EVERY = 4  # of the draws of noisy gradients, which are far from independent
Result = dict[str, np.ndarray]


@dataclass(frozen=True)
class PosteriorJob:
    """Posteriors of one shape; ``data`` is stacked. Sampled by NUTS, or approximated by a Gaussian at the mode."""

    model: Any
    data: Any
    start: np.ndarray
    draws: int = DRAWS
    sampler: str = "nuts"

    def run(self, _: Path) -> Result:
        """Chains, each posterior's until they agree, or draws of the Gaussian."""
        laplace = find_modes(self.model, self.data, self.start)
        if self.sampler == "laplace":
            standard = np.random.default_rng(SEED).normal(size=(CHAINS * KEPT, laplace.mode.shape[1]))
            drawn = laplace.mode[:, None] + np.einsum("rij,dj->rdi", laplace.factor, standard)
            return self._sketch(drawn[:, None], range(len(drawn)))
        running = start_chains(self.model, self.data, laplace, chains=CHAINS, seed=SEED)
        count, waiting, draws = len(self.model.names), np.arange(len(self.start)), self.draws
        sampled, parts, places = None, [], []
        while len(waiting):
            running, more = continue_chains(running, draws)
            sampled = more if sampled is None else sampled.joined(more)
            draws = sampled.draws.shape[2]
            r_hat = np.array([rank_r_hat(one[..., :count]) for one in sampled.draws])
            ends = (np.nanmax(r_hat, axis=1) < LARGEST_R_HAT) | (draws >= MOST_DRAWS)
            if ends.any():
                kept = sampled.draws[ends][:, :, :: max(1, draws // KEPT)]
                facts = {"r_hat": r_hat, "divergences": sampled.divergences, "steps": sampled.steps}
                parts.append(self._sketch(kept, waiting[ends]) | {name: values[ends] for name, values in facts.items()})
                places.append(waiting[ends])
            running, sampled, waiting = _of(running, ~ends), _of(sampled, ~ends), waiting[~ends]
        order = np.argsort(np.concatenate(places))
        joined = {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}
        return joined | {"draws": np.array(draws)}

    def _sketch(self, free: np.ndarray, which: Sequence[int] | np.ndarray) -> Result:
        """Of the coefficients of some of the posteriors."""
        data = jax.tree.map(lambda array: np.asarray(array)[np.asarray(which)], self.data)
        return _as_arrays(Sketches.of(coefficients_of(self.model, data, free)))


@dataclass(frozen=True)
class ChainJob:
    """Chains of noisy gradients. ``tuning`` names the search, and ``searched`` says which of its lines each takes."""

    outcome: Outcome
    names: tuple[str, ...]
    prior: NormalPrior | SphericalPrior
    matrices: np.ndarray  # (tables, rows, coefficients)
    outcomes: np.ndarray
    table_of: np.ndarray  # which table each chain sees
    noise: np.ndarray
    tuning: str
    searched: np.ndarray
    hottest: float
    iterations: int = ITERATIONS
    burn_in: int = BURN_IN

    def numbers(self, folder: Path) -> np.ndarray:
        """Noise and settings of each chain: the best of the search among those that are not too hot."""
        search = np.load(folder / f"{self.tuning}.npz")
        hot = temperatures(search["noise"], search["grid"], self.matrices.shape[1]) > self.hottest
        best = np.where(hot, np.inf, search["scores"]).argmin(axis=1)
        return np.column_stack([self.noise, search["grid"][best[self.searched]]])

    def run(self, folder: Path) -> Result:
        """The paper's length, with the settings that the search found best."""
        numbers = self.numbers(folder)
        draws = chains(
            self.outcome, self.names, self.prior, self.matrices[self.table_of], self.outcomes[self.table_of], numbers,
            self.iterations, self.burn_in, SEED, KEEP_EVERY,
        )  # fmt: skip
        return _as_arrays(Sketches.of(draws[:, None])) | {"settings": numbers}


@dataclass(frozen=True)
class TuningJob:
    """Simulated tables from the prior predictive, and the settings to try on them: no real row has a say.

    The score is the mean Kolmogorov-Smirnov distance to the non-private posteriors of the simulated tables.
    """

    rows: PosteriorJob
    outcome: Outcome
    noise: np.ndarray  # one a line of the search: an epsilon
    grid: np.ndarray  # (settings, 3): learning rate, clipping norm, decay
    iterations: int = ITERATIONS
    burn_in: int = BURN_IN

    def run(self, folder: Path) -> Result:
        """Every setting on every table for every epsilon."""
        (data,) = self.rows.data
        rows = self.rows.run(folder)
        tables, settings, lines = len(data.y), len(self.grid), len(self.noise)
        scores = np.empty((lines, settings))
        setting_of, table_of = (part.ravel() for part in np.indices((settings, tables)))
        for line, noise in enumerate(self.noise):
            numbers = np.column_stack([np.full(len(table_of), noise), self.grid[setting_of]])
            draws = chains(
                self.outcome, self.rows.model.names, self.rows.model.prior, data.matrix[table_of], data.y[table_of],
                numbers, self.iterations, self.burn_in, SEED + 1 + line, KEEP_EVERY,
            )  # fmt: skip
            sketches = np.moveaxis(np.quantile(draws, np.linspace(0, 1, 401), axis=1), 0, 1)
            found = [distances(sketch, rows["quantiles"][table]).mean()
                     for sketch, table in zip(sketches, table_of, strict=True)]  # fmt: skip
            scores[line] = np.reshape(found, (settings, tables)).mean(axis=1)
        return {"scores": scores, "grid": self.grid, "noise": self.noise, "r_hat": rows["r_hat"]}


def temperatures(noise: np.ndarray, grid: np.ndarray, rows: int) -> np.ndarray:
    """Variance of privacy's noise over that of Langevin dynamics at the first step, (noise, settings)."""
    return grid[:, 0] * (noise[:, None] * grid[:, 1] / (2 * rows**-0.5)) ** 2


def _of(whole: Any, chosen: np.ndarray) -> Any:
    """Some of the posteriors of a dataclass whose arrays have one entry each; its model is theirs too."""
    fields = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole) if field.name != "shape"}
    parts = {
        name: _of(value, chosen)
        if dataclasses.is_dataclass(value)
        else jax.tree.map(lambda array: np.asarray(array)[chosen], value)
        for name, value in fields.items()
    }
    return dataclasses.replace(whole, **parts)


Job = PosteriorJob | ChainJob | TuningJob


def save_job(folder: Path, name: str, job: Job) -> None:
    """Arrays as NumPy's, so that another version of JAX can read them."""
    plain = jax.tree.map(np.asarray, job.data) if isinstance(job, PosteriorJob) else None
    if isinstance(job, PosteriorJob):
        job = PosteriorJob(job.model, plain, job.start, job.draws, job.sampler)
    (folder / f"{name}.job").write_bytes(pickle.dumps(job))


def _as_arrays(sketches: Sketches) -> Result:
    return {
        "quantiles": sketches.quantiles.astype(np.float32),
        "mean": sketches.mean,
        "stddev": sketches.stddev,
        "r_hat": sketches.r_hat,
    }
