"""The scored lines of all experiments, and the few numbers that tables, figures and verdicts take from them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Line = dict[str, Any]

METHODS = {
    "non_private": "non-private",
    "dpglm": "dpglm",
    "staged": "dpglm, staged",
    "paper_blocks": "paper's blocks",
    "dpglm_laplace": "dpglm",
    "taylor": "Taylor",
    "naive": "naive",
    "dp_sgld": "DP-SGLD",
}


@dataclass(frozen=True)
class Study:
    """Every line, found by what it is about."""

    lines: tuple[Line, ...]

    @classmethod
    def load(cls, path: Path) -> Study:
        return cls(tuple(json.loads(line) for line in path.read_text().splitlines() if line.strip()))

    def of(self, experiment: str, method: str | None = None, **condition: Any) -> list[Line]:
        """Lines of an experiment, in the order of their epsilons."""
        wanted = {"experiment": experiment, **condition} | ({} if method is None else {"method": method})
        found = [line for line in self.lines if all(line.get(name) == value for name, value in wanted.items())]
        return sorted(found, key=lambda line: line.get("epsilon", 0.0))

    def one(self, experiment: str, method: str, **condition: Any) -> Line | None:
        found = self.of(experiment, method, **condition)
        return found[0] if found else None

    def values(self, experiment: str, name: str) -> list[Any]:
        """The distinct values of a condition, sorted."""
        return sorted({line[name] for line in self.of(experiment) if name in line})


def by_repetition(line: Line) -> np.ndarray:
    """Kolmogorov-Smirnov distances, mean over coefficients: one a repetition."""
    return np.array(line["ks"]).mean(axis=1)


def mean_ks(line: Line) -> float:
    return float(by_repetition(line).mean())


def standard_error(values: Iterable[float]) -> float:
    """Of a mean over repetitions."""
    each = np.asarray(list(values))
    return float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0


def coverage(line: Line) -> tuple[float, float]:
    """Share of 95 % intervals that cover, over all coefficients, and its standard error (by table)."""
    each = np.array(line["cover"]).mean(axis=1)
    return float(each.mean()), standard_error(each)


def typical_width(line: Line) -> float:
    """Posterior standard deviation over the non-private one: median over repetitions and coefficients."""
    return float(np.median(np.array(line["width"])))


def typical_error(line: Line) -> float:
    """Distance of the posterior mean from the non-private one in its standard deviations: root mean square.

    The median over repetitions stands for runs of which a few ran away.
    """
    return float(np.median(np.sqrt(np.mean(np.square(line["error"]), axis=1))))
