"""In the other environment: DP-Sniper's attack, learned on some releases and judged on others.

Reads a file of arrays, writes another: the shares of releases of the two tables in the set that it attacks with, and
its lower bounds on epsilon, without delta as its authors have it, and with delta taken off the first probability.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

import numpy as np

SMALLEST = 0.01  # probability that it attacks with: its default


def main() -> None:
    path = Path(sys.argv[1])
    data = np.load(path)
    sys.path.insert(0, str(data["clone"]))
    outputs, (trained, aimed) = data["outputs"], data["shares"]
    number, size = outputs.shape[1:]
    steps, aims = int(trained * number), int(aimed * number)
    judged = number - steps - aims
    config = importlib.import_module("dpsniper.search.ddconfig").DDConfig(
        SMALLEST, steps, aims, judged, judged, n_processes=1, confidence=1 - float(data["alpha"])
    )
    mechanism = importlib.import_module("dpsniper.mechanisms.abstract").Mechanism
    factories = importlib.import_module("dpsniper.classifiers.classifier_factory")
    optimizers = importlib.import_module("dpsniper.classifiers.torch_optimizer_factory")
    bounds = importlib.import_module("dpsniper.probability.binomial_cdf")

    class Releases(mechanism):
        """Each release is given out once."""

        def __init__(self) -> None:
            self.given = [0, 0]

        def m(self, a: int, n_samples: int = 1) -> np.ndarray:
            start = self.given[a]
            self.given[a] += n_samples
            assert self.given[a] <= number
            return outputs[a, start : start + n_samples]

    with (
        tempfile.TemporaryDirectory() as folder,
        importlib.import_module("dpsniper.utils.initialization").initialize_dpsniper(config, folder, torch_threads=1),
    ):
        releases = Releases()
        learner = factories.LogisticRegressionFactory(
            in_dimensions=size, optimizer_factory=optimizers.AdamOptimizerFactory(learning_rate=0.1), epochs=100
        )
        attack = (
            importlib.import_module("dpsniper.attack.dpsniper").DPSniper(releases, learner, config).best_attack(0, 1)
        )
        estimators = importlib.import_module("dpsniper.probability.estimators")
        share = estimators.PrEstimator(releases, judged, config)
        first, second = share.compute_pr_estimate(0, attack), share.compute_pr_estimate(1, attack)
        epsilon = estimators.EpsEstimator(share)
        pure = epsilon._compute_lcb(first, second)
        level = float(data["alpha"]) / 2
        low = bounds.lcb(judged, int(first * judged), level) - float(data["delta"])
        proved = epsilon._compute_eps(low, bounds.ucb(judged, int(second * judged), level))
    np.savez(path.with_suffix(".answer.npz"), shares=[first, second], pure=pure, proved=max(proved, 0.0), judged=judged)


if __name__ == "__main__":
    main()
