"""Good files to start from: releases of every family, fits, schemas, formulas and ledgers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpglm
from dpglm.analyst.priors import NormalPrior
from dpglm.analyst.result import Diagnostics, Fit
from dpglm.custodian.ledger import Ledger
from dpglm.release_file import _validator
from dpglm.releases import Release
from dpglm.schema import Schema

ROWS = 12
SCHEMA: dict[str, Any] = {
    "dataset": {"name": "patients", "id": "p-1", "rows": ROWS, "unit": "one patient"},
    "columns": {
        "y": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        "count": {"type": "count", "upper": 20, "fill": 0},
        "score": {"type": "numeric", "lower": -3.5, "upper": 10},
        "x": {"type": "numeric", "lower": 0.1, "upper": 3},
        "z": {"type": "numeric", "lower": 20, "upper": 90, "fill": 45},
        "kind": {"type": "categorical", "levels": ["a", "b", 3, True], "fill": "b", "reference": "b"},
        "odd name": {"type": "numeric", "lower": 0, "upper": 1},
    },
}
FORMULAS = (
    "y ~ x + z", "count ~ log(x) + z + kind", "score ~ x*z + offset(`odd name`)", "y ~ kind:x + I(z**2) - 1",
    "score ~ (x + z + kind)**2", "y ~ exp(x) + sqrt(z) + I(x/z) + `odd name`",
)  # fmt: skip


@dataclass(frozen=True)
class Seeds:
    releases: list[str]
    fits: list[bytes]
    schemas: list[bytes]
    formulas: tuple[str, ...]
    ledgers: list[bytes]
    schema: Schema
    schema_dict: dict[str, Any]


def make_seeds(folder: Path) -> Seeds:
    schema = Schema.from_dict(SCHEMA)
    next(_validator().iter_errors({}))  # its libraries write code of their own when they are first used
    numbers = np.random.default_rng(5)
    table = pa.table({
        "y": numbers.choice(["no", "yes"], ROWS), "count": numbers.integers(0, 20, ROWS),
        "score": numbers.uniform(-3, 9, ROWS), "x": numbers.uniform(0.1, 3, ROWS), "z": numbers.uniform(20, 90, ROWS),
        "kind": numbers.choice(["a", "b", "3"], ROWS), "odd name": numbers.random(ROWS),
    })  # fmt: skip
    book = Ledger.create(folder / "seed.ledger", schema.dataset, epsilon=9.0, delta=1e-5)
    empty = book.path.read_bytes()

    def release(formula: str, family: str, ledger: Path | None = None, method: str = "moments") -> Release:
        return dpglm.release(
            table, formula, schema=schema, family=family, epsilon=1.0, delta=1e-6, ledger=ledger, method=method,
            allocation="equal" if method == "moments" else "auto",
        )  # fmt: skip

    releases = [
        release(FORMULAS[0], "logistic", ledger=book.path), release(FORMULAS[1], "poisson", ledger=book.path),
        release(FORMULAS[2], "linear"), release(FORMULAS[0], "logistic", book.path, "looks"),
    ]  # fmt: skip
    fits = []
    with warnings.catch_warnings(action="ignore"):  # so few rows tell a fit little
        of_looks = dpglm.fit(releases[3], draws=10)
    for number, fit in enumerate((_small_fit(releases[0]), _small_fit(releases[2]), of_looks)):
        path = folder / f"seed-{number}.fit.npz"
        fit.save(path)
        fits.append(path.read_bytes())
    toml = schema.to_toml().encode()
    return Seeds(
        [made.to_json() for made in releases], fits, [toml, toml.replace(b"\n", b"\r\n"), b""], FORMULAS,
        [book.path.read_bytes(), empty], schema, SCHEMA,
    )  # fmt: skip


def _small_fit(release: Release) -> Fit:
    """A fit file as ``Fit.save`` writes it, without the sampling."""
    count = len(release.design.coefficient_names)
    chance = np.random.default_rng(1)
    ones = np.ones(count)
    diagnostics = Diagnostics(ones * 400, ones * 400, ones, 0, 0.9, True, None)
    spread = chance.random((2, 5)) + 0.5 if release.family == "linear" else None
    return Fit(
        (release,), chance.normal(size=(2, 5, count)), spread, 1.0, np.ones((2, count)), diagnostics, NormalPrior(),
        "nuts", {"link": None}, None,
    )  # fmt: skip
