"""Experiment 6: which coefficients differ from zero. Without privacy by Newton's method on the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dpglm.analyst.priors import NormalPrior
from paper.cells import Cell, sketches
from paper.experiments import SIGNIFICANCE_SLOPES, Experiment
from paper.tables import Table


def plain_lines(experiment: Experiment, folder: Path) -> list[dict[str, Any]]:
    """One line a method, number of rows and epsilon: share of intervals that exclude zero, by coefficient."""
    first = experiment.cells[0]
    tables = {id(table): table for table in first.tables}
    plain = {key: _plain_significant(table) for key, table in tables.items()}
    lines = [_line("non_private", {"rows": rows}, [plain[key] for key, table in tables.items()
             if len(table.frame) == rows], float("nan"), "")
             for rows in sorted({len(table.frame) for table in tables.values()})]  # fmt: skip
    for cell in experiment.cells:
        lines += _private_lines(cell, folder)
    return lines


def _private_lines(cell: Cell, folder: Path) -> list[dict[str, Any]]:
    found = sketches(cell, folder)
    groups: dict[str, list[int]] = {}
    for number in found:
        groups.setdefault(json.dumps(cell.conditions[number]), []).append(number)
    lines = []
    for condition, members in groups.items():
        quantiles = np.array([found[n]["quantiles"] for n in members])
        excludes = (quantiles[:, 10, 1:] > 0) | (quantiles[:, 390, 1:] < 0)
        r_hat = max(float(found[n]["r_hat"].max()) for n in members)
        lines.append(_line(cell.method, json.loads(condition), list(excludes), r_hat, str(found[members[0]]["device"])))
    return lines


def _line(
    method: str, condition: dict[str, Any], excludes: list[np.ndarray], r_hat: float, device: str
) -> dict[str, Any]:
    return {
        "experiment": "significance", "method": method, **condition, "repetitions": len(excludes),
        "slopes": list(SIGNIFICANCE_SLOPES), "excludes_zero": np.array(excludes).astype(int).tolist(),
        "r_hat": round(r_hat, 4), "device": device,
    }  # fmt: skip


def _plain_significant(table: Table) -> np.ndarray:
    mode, stddev = posterior_mode(table)
    return (np.abs(mode) > 1.96 * stddev)[1:]


def posterior_mode(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Mode and standard deviations of a logistic posterior of the rows; at these sizes it is Gaussian."""
    matrix, y = table.rows.matrix, table.rows.y
    precision = np.diag(np.asarray(NormalPrior().scales(table.design.coefficient_names)) ** -2.0)
    theta = np.zeros(matrix.shape[1])
    for _ in range(30):
        mean = 1 / (1 + np.exp(-matrix @ theta))
        information = (matrix * (mean * (1 - mean))[:, None]).T @ matrix + precision
        theta = theta + np.linalg.solve(information, matrix.T @ ((y + 1) / 2 - mean) - precision @ theta)
    return theta, np.sqrt(np.diag(np.linalg.inv(information)))
