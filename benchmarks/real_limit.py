"""As N grows at a fixed epsilon, the staged posterior goes to the non-private one, also where the regression is wrong.

Kolmogorov-Smirnov distance between the marginal posteriors of each coefficient, private and not, on the simulated
logistic table of real_tables.py (binary, skewed and heavy-tailed columns, a misspecified regression).
"""

from __future__ import annotations

import argparse

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from scipy.stats import kstest, norm

from dpglm.analyst.fit import Asked, fit_many
from dpglm.analyst.posteriors import fit_staged
from dpglm.analyst.priors import NormalPrior
from dpglm.custodian.stages import plan_stages
from machine import save
from real import DELTA, OPTIONS, SEED, releases_of
from real_page import DOCS
from real_tables import load, maximum_likelihood

SIZES = (3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def distance(table, rows: int, epsilon: float, stages, repetitions: int) -> float:
    """Mean over coefficients and samples."""
    rng = np.random.default_rng([SEED, rows])
    samples = []
    for _ in range(repetitions):
        chosen = rng.integers(0, len(table.y), rows)
        samples.append((table.x[chosen], table.y[chosen]))
    plan = plan_stages(table.of_size(rows), epsilon, DELTA, None, "auto", "full", stages)
    made, firsts = releases_of(table, samples, plan, rng)
    asked = Asked(None, "laplace", 4000, 1, 1, None, OPTIONS)
    if plan.later:
        fits = fit_staged([(release,) for release in made], asked, firsts)
    else:
        fits = fit_many(made, method="laplace", draws=4000, seed=1, progress=False)
    prior = np.diag(np.asarray(NormalPrior().scales(table.design.coefficient_names)) ** -2.0)
    found = []
    for fit, (x, y) in zip(fits, samples, strict=True):
        estimate, information, _ = maximum_likelihood("logistic", x, y)
        covariance = np.linalg.inv(information + prior)
        mean = covariance @ information @ estimate
        for draws, center, variance in zip(fit.draws("scaled")[0].T, mean, np.diag(covariance), strict=True):
            found.append(kstest(draws, norm(center, np.sqrt(variance)).cdf).statistic)
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 10.0])
    options = parser.parse_args()
    table = load("simulated_logistic", DOCS)
    results = []
    for epsilon in options.epsilons:
        for rows in SIZES:
            for stages in ("auto", 1):
                value = distance(table, rows, epsilon, stages, options.repetitions)
                results.append({"rows": rows, "epsilon": epsilon, "stages": stages, "distance": value})
                print(results[-1], flush=True)
    save("real_limit", results)
    figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for epsilon, colour in zip(options.epsilons, ("#1f6f8b", "#c1502e"), strict=False):
        for stages, line in (("auto", "-o"), (1, "--s")):
            own = [each for each in results if each["epsilon"] == epsilon and each["stages"] == stages]
            label = f"ε = {epsilon:g}, {'staged' if stages == 'auto' else 'one stage'}"
            axis.plot(
                [each["rows"] for each in own], [each["distance"] for each in own], line, color=colour, label=label
            )
    axis.set(xscale="log", yscale="log", xlabel="rows N", ylabel="KS distance to the non-private posterior")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "real_limit.png", dpi=130)


if __name__ == "__main__":
    main()
