"""In the other environment: what autodp and privacy-estimates say. Reads a file of JSON, writes another."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any


def autodp_epsilon(multipliers: list[float], delta: float) -> float:
    """Of composed Gaussian mechanisms, by autodp's analytic formula; a multiplier is noise over sensitivity."""
    from autodp.mechanism_zoo import ExactGaussianMechanism
    from autodp.transformer_zoo import ComposeGaussian

    parts = [ExactGaussianMechanism(sigma) for sigma in multipliers]
    return float(ComposeGaussian()(parts, [1] * len(parts)).get_approxDP(delta))


def fourier_deltas(multipliers: list[float], epsilon: float) -> list[float]:
    """Their delta by autodp's analytical Fourier accountant (Zhu, Dong & Wang 2022); and, to see how precise it is,
    that of one Gaussian mechanism that is the same as all of them.
    """
    from autodp.mechanism_zoo import GaussianMechanism
    from autodp.transformer_zoo import ComposeAFA

    one = sum(1 / sigma**2 for sigma in multipliers) ** -0.5
    found = []
    for sigmas in (multipliers, [one]):
        parts = [GaussianMechanism(sigma, phi_off=False, RDP_off=True, approxDP_off=True) for sigma in sigmas]
        found.append(float(ComposeAFA()(parts, [1] * len(parts)).approx_delta(epsilon)))
    return found


def lower_bounds(events: dict[str, int], delta: float, alpha: float) -> dict[str, float]:
    """Of epsilon, at confidence 1 - alpha, from what an attacker guessed."""
    from privacy_estimates import AttackResults, compute_eps_lo

    counted = AttackResults(**events)
    return {
        method: float(compute_eps_lo(counted, delta=delta, alpha=alpha, method=method))
        for method in ("beta", "joint-beta")
    }


def main() -> None:
    warnings.simplefilter("ignore")
    path = Path(sys.argv[1])
    asked = json.loads(path.read_text())
    answer: dict[str, Any] = {
        "autodp": [autodp_epsilon(each["multipliers"], each["delta"]) for each in asked.get("budgets", [])],
        "fourier": [fourier_deltas(each["multipliers"], each["epsilon"]) for each in asked.get("budgets", [])],
        "attacks": [lower_bounds(each["events"], each["delta"], each["alpha"]) for each in asked.get("attacks", [])],
    }
    path.with_suffix(".answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
