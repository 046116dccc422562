"""In the other environment: dp_auditorium's four property testers, by its runner, on samples that are given.

Reads a file of arrays, writes another: of every tester the bound it found, the one it rejects beyond, and whether it
rejected the claim. Bounds are on delta; that of Rényi on the divergence of order two.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ORDER, LONGEST = 2.0, 0.5  # of Rényi's divergence, and what its model may say at most
BINS, RANGE, BANDWIDTH = 20, 10.0, 0.1


def load(clone: Path) -> None:
    """The package without what searches for tables, which wants more packages."""
    for name in ("", ".generators"):
        package = ModuleType(f"dp_auditorium{name}")
        package.__path__ = [str(clone / "python/dp_auditorium/dp_auditorium" / name.strip("."))]
        sys.modules[package.__name__] = package


def testers(epsilon: float, delta: float, mu: float) -> dict[str, Any]:
    """As their authors set them up, with more epochs for few samples."""
    config = importlib.import_module("dp_auditorium.configs.property_tester_config")
    prop = importlib.import_module("dp_auditorium.configs.privacy_property")
    own = importlib.import_module("dp_auditorium.testers")
    stick = importlib.import_module("dp_auditorium.testers.hockey_stick_tester")
    renyi = importlib.import_module("dp_auditorium.testers.renyi_tester")
    claim = prop.ApproximateDp(epsilon, delta)
    curve = prop.PrivacyProperty(renyi_dp=prop.RenyiDp(ORDER, ORDER * mu**2 / 2))
    return {
        "histogram": own.HistogramTester(config.HistogramPropertyTesterConfig(False, BINS, -RANGE, RANGE, claim)),
        "hockey stick": own.HockeyStickPropertyTester(
            config.HockeyStickPropertyTesterConfig(config.TrainingConfig(20, 100, 1e-2), claim),
            stick.make_default_hs_base_model(),
        ),
        "MMD": own.MMDPropertyTester(config.MMDPropertyTesterConfig(config.Kernel.KERNEL_RBF, BANDWIDTH, claim)),
        "Rényi": own.RenyiPropertyTester(
            config.RenyiPropertyTesterConfig(ORDER, config.TrainingConfig(20, 100, 1e-3, LONGEST), curve),
            renyi.make_default_renyi_base_model(),
        ),
    }  # fmt: skip


def main() -> None:
    path = Path(sys.argv[1])
    data = np.load(path)
    load(Path(str(data["clone"])))
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    runner = importlib.import_module("dp_auditorium.privacy_test_runner")
    config = importlib.import_module("dp_auditorium.configs.privacy_test_runner_config")
    constant = importlib.import_module("dp_auditorium.generators.constant_dataset_generator")
    samples, epsilon, delta, mu = data["ratios"], float(data["epsilon"]), float(data["delta"]), float(data["mu"])
    names, bounds, limits, rejected = [], [], [], []
    for name, tester in testers(epsilon, delta, mu).items():
        flat = name in ("histogram", "MMD")
        asked = config.PrivacyTestRunnerConfig(
            getattr(config.PropertyTester, {"hockey stick": "HOCKEY_STICK_TESTER", "Rényi": "RENYI_TESTER"}.get(
                name, f"{name.upper()}_TESTER")),
            1, float(data["alpha"]), samples.shape[1], config.PostProcessing.NONE,
        )  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()):
            told = runner.PrivacyTestRunner(asked, constant.ConstantDatasetGenerator((0, 1)), tester).test_privacy(
                lambda table, number, flat=flat: samples[table, :number] if flat else samples[table, :number, None], ""
            )
        names.append(name)
        bounds.append(float(told.lower_bound_divergence_estimates[-1]))
        limits.append(ORDER * mu**2 / 2 if name == "Rényi" else delta)
        rejected.append(told.found_privacy_violation is not None)
    np.savez(path.with_suffix(".answer.npz"), names=names, bounds=bounds, limits=limits, rejected=rejected)


if __name__ == "__main__":
    main()
