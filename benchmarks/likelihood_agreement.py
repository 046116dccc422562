"""The structured likelihood against the dense one, up to 12 predictors, over rows and noise of every size.

    python benchmarks/likelihood_agreement.py

Writes benchmarks/results/likelihood_agreement.json and docs/likelihood_agreement.md. About three minutes on one core.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpglm.families import FAMILIES
from dpglm.paper.assemble import prepare
from dpglm.paper.likelihood import dense_log_likelihood, log_likelihood
from dpglm.paper.moments import statistics_covariance, statistics_mean
from dpglm.paper.outcomes import outcome_integrals, outcome_of
from machine import save

DOCS = Path(__file__).parent.parent / "docs"
SEED = 20261115
DIMENSIONS = (1, 2, 5, 8, 12)
ROWS = (1e2, 1e3, 1e5, 1e7, 1e9)
NOISE = (1e-3, 1e-1, 1e1, 1e3, 1e4)
RANGES = {"logistic": (-1.0, 1.0), "poisson": (0.0, 15.0), "linear": (-1.0, 1.0)}
SPREADS = {"logistic": 1.0, "poisson": 2.0, "linear": 0.04}
TOLERANCE = 1e-8


def model(family: str, dimension: int, seed: int) -> tuple[Any, ...]:
    """Mean, covariance, w and integrals of a random model inside the bounds."""
    generator = np.random.default_rng([SEED, dimension, seed])
    vectors = np.linalg.qr(generator.normal(size=(dimension, dimension)))[0]
    covariance = (vectors * np.linspace(0.01, 0.09, dimension)) @ vectors.T
    covariance = (covariance + covariance.T) / 2
    mean = 0.2 * generator.normal(size=dimension)
    slopes = generator.normal(size=dimension) * (2.0 if family == "logistic" else 0.7) / np.sqrt(dimension)
    w = covariance @ slopes
    blocks = FAMILIES[family].full_blocks
    largest_q = 2 * max(block.y_power for block in blocks)
    integrals = jax.jit(partial(outcome_integrals, outcome_of(family, None, RANGES[family])), static_argnums=3)(
        0.2 + mean @ slopes, slopes @ w, SPREADS[family], largest_q
    )
    return tuple(map(jnp.asarray, (mean, covariance, w, integrals)))


def largest_difference(family: str, dimension: int) -> float:
    """The largest relative difference over rows and noise, for releases drawn from the model itself."""
    blocks = FAMILIES[family].full_blocks
    chosen = model(family, dimension, 0)
    mean, covariance = (np.asarray(f(blocks, *chosen)) for f in (statistics_mean, statistics_covariance))
    roots = np.concatenate([np.sqrt(block.multiplicities(dimension)) for block in blocks])
    ends = np.cumsum([block.size(dimension) for block in blocks])[:-1]
    values, vectors = np.linalg.eigh(covariance)
    generator = np.random.default_rng([SEED, dimension])
    functions = [jax.jit(partial(f, blocks)) for f in (log_likelihood, dense_log_likelihood)]
    worst = 0.0
    for rows in ROWS:
        for noise in NOISE:
            scatter = vectors @ (np.sqrt(rows * np.maximum(values, 0)) * generator.normal(size=len(values)))
            drawn = rows * mean + scatter + noise * generator.normal(size=len(mean))
            observed = prepare(blocks, dimension, np.split(drawn / roots, ends))
            stddevs = noise * np.linspace(1, 2, len(blocks))
            structured, dense = (float(f(observed, rows, stddevs, *chosen)) for f in functions)
            worst = max(worst, abs(structured - dense) / abs(dense))
    return worst


def main() -> None:
    results = {
        family: {str(dimension): float(f"{largest_difference(family, dimension):.2g}") for dimension in DIMENSIONS}
        for family in FAMILIES
    }
    save("likelihood_agreement", {"seed": SEED, "tolerance": TOLERANCE, **results})
    lines = [
        "# The structured likelihood and the dense one",
        "",
        "Written by `python benchmarks/likelihood_agreement.py`. Do not edit.",
        "",
        f"The largest relative difference of the two log likelihoods over {len(ROWS)} numbers of rows ({ROWS[0]:g} to",
        f"{ROWS[-1]:g}) times {len(NOISE)} noise levels ({NOISE[0]:g} to {NOISE[-1]:g}); releases drawn from the model",
        f"(seed {SEED}). Asked for: {TOLERANCE:g}. Gradients are compared in `tests/paper/test_likelihood.py`.",
        "",
        "| family | " + " | ".join(f"d = {dimension}" for dimension in DIMENSIONS) + " |",
        "|" + "---|" * (len(DIMENSIONS) + 1),
    ]
    lines += [f"| {family} | " + " | ".join(f"{v:.1e}" for v in row.values()) + " |" for family, row in results.items()]
    (DOCS / "likelihood_agreement.md").write_text("\n".join(lines) + "\n")
    assert all(value <= TOLERANCE for row in results.values() for value in row.values()), results


if __name__ == "__main__":
    main()
