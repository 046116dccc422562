"""Without noise a release should say what the rows say: its posterior against NUTS on the rows, as epsilon grows.

    python benchmarks/no_noise_limit.py
    python benchmarks/no_noise_limit.py --summary      the page and the picture again, from the kept results

Writes benchmarks/results/no_noise_limit.json, docs/no_noise_limit.md and docs/no_noise_limit.png. About ten minutes on
one core. Both posteriors are by NUTS, with the same prior; ``moments="taylor"`` is by Laplace.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS

from machine import RESULTS, save
from repeated import Floats, posteriors, released

mpl.use("Agg")

DOCS = Path(__file__).parent.parent / "docs"
SEED = 20261115
ROWS, TABLES = 20_000, 3
NORMS = (1.0, 3.0, 6.0)  # of the slopes in scaled units; sd(u) is a third of it
EPSILONS = (1.0, 10.0, 100.0, 1000.0)
DRAWS = 2_000
INTERCEPT = 0.3
STDDEV = np.sqrt(2) / 6  # with correlation 1/2 along (1, 1, 1): sd(u) = norm STDDEV sqrt(2)
# What is asked for at the largest epsilon: mean within so many standard deviations, sd within this share.
REQUIRED = {1.0: (0.2, 0.05), 3.0: (0.2, 0.05), 6.0: (0.5, 0.15)}


def rows_of(norm: float, number: int) -> pd.DataFrame:
    generator = np.random.default_rng([SEED, int(norm), number])
    covariance = STDDEV**2 * (np.eye(3) + np.ones((3, 3))) / 2
    x = np.clip(generator.multivariate_normal(np.zeros(3), covariance, size=ROWS), -1, 1)
    u = INTERCEPT + x.sum(axis=1) * norm / np.sqrt(3)
    y = (generator.uniform(size=ROWS) < 1 / (1 + np.exp(-u))).astype(int)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})


def on_the_rows(frames: list[pd.DataFrame]) -> Floats:
    """Draws of the non-private posteriors, default prior, (tables, draws, coefficients)."""

    def model(x: jax.Array, y: jax.Array) -> None:
        theta = numpyro.sample("theta", dist.Normal(0, jnp.array([5.0, 2.5, 2.5, 2.5])).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ theta), obs=y)

    sampler = MCMC(NUTS(model), num_warmup=300, num_samples=DRAWS, jit_model_args=True, progress_bar=False)
    draws = []
    for number, frame in enumerate(frames):
        x = jnp.asarray(np.column_stack([np.ones(ROWS), frame[["a", "b", "c"]].to_numpy()]))
        sampler.run(jax.random.key(number), x, jnp.asarray(frame["y"].to_numpy()))
        draws.append(np.asarray(sampler.get_samples()["theta"]))
    return np.stack(draws)


def compared(private: Floats, rows: Floats) -> dict[str, list[float]]:
    """Difference of means in the rows' standard deviations, and ratio of standard deviations."""
    difference = (private.mean(axis=1) - rows.mean(axis=1)) / rows.std(axis=1)
    ratio = private.std(axis=1) / rows.std(axis=1)
    return {
        "mean_difference": np.round(difference, 3).tolist(),
        "largest_mean_difference": round(float(np.abs(difference).max()), 3),
        "sd_ratio": np.round(ratio, 3).tolist(),
        "mean_sd_ratio": round(float(ratio.mean()), 3),
    }


def measure() -> dict[str, dict]:
    frames = {norm: [rows_of(norm, number) for number in range(TABLES)] for norm in NORMS}
    rows = {norm: on_the_rows(frames[norm]) for norm in NORMS}
    cases = [(norm, epsilon, number) for norm in NORMS for epsilon in EPSILONS for number in range(TABLES)]
    groups = [[released(frames[norm][number], epsilon, number)] for norm, epsilon, number in cases]
    exact = posteriors(groups, "nuts", DRAWS).draws
    last = [n for n, (_, epsilon, _) in enumerate(cases) if epsilon == EPSILONS[-1]]
    taylor = posteriors([groups[n] for n in last], "laplace", DRAWS, moments="taylor").draws
    results: dict[str, dict] = {}
    for place, norm in enumerate(NORMS):
        entries = {}
        for epsilon in EPSILONS:
            chosen = [n for n, case in enumerate(cases) if case[:2] == (norm, epsilon)]
            entries[f"{epsilon:g}"] = compared(exact[chosen], rows[norm])
        entries["taylor"] = compared(taylor[place * TABLES : (place + 1) * TABLES], rows[norm])
        results[f"{norm:g}"] = entries
    return results


def holds(norm: float, entry: dict) -> bool:
    mean, sd = REQUIRED[norm]
    return entry["largest_mean_difference"] <= mean and abs(entry["mean_sd_ratio"] - 1) <= sd


def page(results: dict[str, dict]) -> str:
    head = "| norm | sd(u) | moments | ε | largest difference of means | sd ratio, mean | asked for | holds |"
    lines = [
        "# The limit without noise",
        "",
        "Written by `python benchmarks/no_noise_limit.py`. Do not edit.",
        "",
        "![Posterior of the release against the rows](no_noise_limit.png)",
        "",
        f"Logistic regression, {ROWS:,} rows, three Gaussian predictors (correlation 1/2), slopes along (1, 1, 1) in",
        f"scaled units, {TABLES} tables a line, seed {SEED}. A release's posterior is compared with NUTS on the rows",
        "themselves, same prior: difference of means in standard deviations of the rows' posterior (the largest over",
        "tables and coefficients), and the ratio of standard deviations (mean over tables and coefficients; a single",
        f"one has a Monte Carlo error of about 3 % at {DRAWS:,} draws). At the largest ε the noise is negligible, and",
        "what remains is that a few moments stand for the rows. `taylor` is the paper's expansion of the link.",
        "",
        head,
        "|" + "---|" * (head.count("|") - 1),
    ]
    for norm, entries in results.items():
        for name, entry in entries.items():
            last = name in (f"{EPSILONS[-1]:g}", "taylor")
            moments, epsilon = ("taylor", f"{EPSILONS[-1]:g}") if name == "taylor" else ("exact", name)
            mean, sd = REQUIRED[float(norm)]
            asked = f"{mean:g} sd, {100 * sd:.0f} %" if last else ""
            verdict = ("yes" if holds(float(norm), entry) else "no") if last else ""
            numbers = f"{entry['largest_mean_difference']:.2f} | {entry['mean_sd_ratio']:.3f}"
            lines.append(
                f"| {norm} | {float(norm) / 3:.2g} | {moments} | {epsilon} | {numbers} | {asked} | {verdict} |"
            )
    return "\n".join(lines) + "\n"


def picture(results: dict[str, dict]) -> None:
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for (norm, entries), colour in zip(results.items(), ("tab:blue", "tab:orange", "tab:green"), strict=True):
        exact = [entries[f"{epsilon:g}"] for epsilon in EPSILONS]
        label = f"norm {norm}, sd(u) = {float(norm) / 3:.2g}"
        left.loglog(EPSILONS, [each["largest_mean_difference"] for each in exact], "o-", color=colour, label=label)
        left.plot(1.6 * EPSILONS[-1], entries["taylor"]["largest_mean_difference"], "x", color=colour, markersize=9)
        right.loglog(EPSILONS, [each["mean_sd_ratio"] for each in exact], "o-", color=colour)
        right.plot(1.6 * EPSILONS[-1], entries["taylor"]["mean_sd_ratio"], "x", color=colour, markersize=9)
    left.plot([], [], "kx", label="taylor, at the largest ε")
    left.set(xlabel="ε", ylabel="largest difference of means / sd", title="Posterior mean against the rows'")
    right.set(xlabel="ε", ylabel="sd ratio (mean)", title="Posterior sd over the rows'")
    right.axhline(1.0, color="0.6", linewidth=0.8)
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(DOCS / "no_noise_limit.png", dpi=110)
    plt.close(figure)


def main() -> None:
    if "--summary" in sys.argv:
        kept = json.loads((RESULTS / "no_noise_limit.json").read_text())["results"]
        results = {norm: entries for norm, entries in kept.items() if norm != "seed"}
    else:
        results = measure()
        save("no_noise_limit", {"seed": SEED, **results})
    picture(results)
    (DOCS / "no_noise_limit.md").write_text(page(results))


if __name__ == "__main__":
    main()
