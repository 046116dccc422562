"""The tables of the experiments: simulated ones as in the paper, and its two real ones where their files are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpglm import Schema
from dpglm.formula import Design, build_design
from dpglm.paper.baselines import ScaledRows, scaled_rows
from paper.seed import SEED

ADULT_ROWS = 8_000
SYNTHETIC_SLOPES = (-0.9, -0.5, 0.3)  # the paper's, and those of its Poisson experiment
COUNT_SLOPES = (0.3, -0.6, 0.8)
LARGEST_COUNT = 5


@dataclass(frozen=True)
class Table:
    """A table with its design; rows longer than the radius are projected, as a release does it."""

    frame: pd.DataFrame
    design: Design
    radius: float | None
    truth: np.ndarray | None = None

    @cached_property
    def rows(self) -> ScaledRows:
        return scaled_rows(self.frame, "", schema=None, family="", radius=self.radius, design=self.design)


def random_covariance(dimension: int, seed: int, trace: float = 0.3) -> np.ndarray:
    """Positive definite and not diagonal; its trace lets a few rows in a hundred be longer than one, at the default."""
    factor = np.random.default_rng([SEED, seed]).normal(size=(dimension, dimension + 1))
    covariance = factor @ factor.T
    return trace * covariance / np.trace(covariance)


def simulated(
    family: str,
    rows: int,
    slopes: np.ndarray,
    generator: np.random.Generator,
    covariance: np.ndarray,
    *,
    intercept: float | None = None,
    means: np.ndarray | None = None,
    radius: float | None = 1.0,
) -> Table:
    """Gaussian predictors and outcomes of the model; no intercept unless one is given."""
    dimension = len(slopes)
    x = generator.multivariate_normal(np.zeros(dimension) if means is None else means, covariance, size=rows)
    # What the custodian does to long rows is done before outcomes are drawn: the model is right for the rows it sees.
    if radius is not None:
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True) / radius)
    x = np.clip(x, -1, 1)
    u = x @ slopes + (intercept or 0.0)
    if family == "logistic":
        y = (generator.random(rows) < 1 / (1 + np.exp(-u))).astype(int)
    else:
        y = generator.poisson(np.log1p(np.exp(u)))  # the paper's softplus
    names = [f"x{number}" for number in range(1, dimension + 1)]
    frame = pd.DataFrame(x, columns=names).assign(y=y)
    outcome = {"type": "binary", "levels": [0, 1], "fill": 0}
    if family == "poisson":
        outcome = {"type": "count", "upper": LARGEST_COUNT, "fill": 0}
    formula = "y ~ " + " + ".join(names) + ("" if intercept is not None else " - 1")
    columns = {name: {"type": "numeric", "lower": -1, "upper": 1} for name in names}
    truth = np.asarray(slopes if intercept is None else [intercept, *slopes], dtype=float)
    return Table(frame, _design("simulated", rows, {**columns, "y": outcome}, formula, family), radius, truth)


def synthetic(number: int, rows: int = 1_000) -> Table:
    """Experiment 3: one covariance, drawn once; a new table a repetition."""
    generator = np.random.default_rng([SEED, 3, number])
    return simulated("logistic", rows, np.array(SYNTHETIC_SLOPES), generator, random_covariance(3, 3))


def counts(number: int, rows: int = 500) -> Table:
    """Experiment 4."""
    generator = np.random.default_rng([SEED, 4, number])
    return simulated("poisson", rows, np.array(COUNT_SLOPES), generator, random_covariance(3, 4))


def diabetes(folder: Path, fetch: bool = False) -> Table | None:
    """Age, pregnancies, pedigree and insulin; bounds from general knowledge. The file has 768 rows, the paper's 758."""
    columns = {
        "age": _number(20, 80), "pregnancies": _number(0, 14), "pedigree": _number(0, 2), "insulin": _number(0, 400),
        "outcome": _two(0, 1),
    }  # fmt: skip
    frame = _read(folder / "pima.csv.gz", _fetched_diabetes if fetch else None)
    if frame is None:
        return None
    formula = "outcome ~ age + pregnancies + pedigree + insulin"
    return Table(frame[list(columns)], _design("diabetes", len(frame), columns, formula, "logistic"), None)


def adult(folder: Path, fetch: bool = False) -> Table | None:
    """The paper's seven columns, one number each: those with many levels as the yes or no that tells most."""
    frame = _read(folder / "adult.csv.gz", _fetched_adult if fetch else None)
    if frame is None:
        return None
    frame = frame.sample(ADULT_ROWS, random_state=SEED, ignore_index=True)
    coded = pd.DataFrame(
        {
            "age": frame["age"],
            "workclass": (frame["workclass"] == "Private").astype(int),
            "education": frame["education_num"],
            "marital": frame["marital_status"].isin(["Married-civ-spouse", "Married-AF-spouse"]).astype(int),
            "occupation": frame["occupation"].isin(["Exec-managerial", "Prof-specialty"]).astype(int),
            "relationship": (frame["relationship"] == "Own-child").astype(int),
            "gender": (frame["sex"] == "Male").astype(int),
            "income": frame["income"],
        }
    )
    numbers = {"age": _number(17, 90), "education": _number(1, 16)}
    columns = {name: numbers.get(name, _two(0, 1)) for name in coded}
    formula = "income ~ " + " + ".join(name for name in coded if name != "income")
    return Table(coded, _design("adult", len(coded), columns, formula, "logistic"), None)


def _read(path: Path, fetch: Callable[[], pd.DataFrame] | None) -> pd.DataFrame | None:
    """The file where it is; else what a public loader gives, if it was asked for."""
    if path.exists():
        return pd.read_csv(path)
    return None if fetch is None else fetch()


def _openml(name: str, version: int) -> pd.DataFrame:
    """By scikit-learn's loader, which keeps what it downloads."""
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise SystemExit(
            "--fetch needs scikit-learn: pip install scikit-learn, or give the files with --data"
        ) from None
    return fetch_openml(name, version=version, as_frame=True).frame


def _fetched_diabetes() -> pd.DataFrame:
    frame = _openml("diabetes", 1)
    names = {"age": "age", "preg": "pregnancies", "pedi": "pedigree", "insu": "insulin"}
    outcome = (frame["class"].astype(str) == "tested_positive").astype(int)
    return frame[list(names)].rename(columns=names).assign(outcome=outcome)


def _fetched_adult() -> pd.DataFrame:
    frame = _openml("adult", 2).rename(columns=lambda name: name.replace("-", "_"))
    return frame.assign(income=(frame["class"].astype(str) == ">50K").astype(int))


def _number(lower: float, upper: float) -> dict[str, Any]:
    return {"type": "numeric", "lower": lower, "upper": upper}


def _two(first: Any, second: Any) -> dict[str, Any]:
    return {"type": "binary", "levels": [first, second], "fill": first}


def _design(name: str, rows: int, columns: dict[str, Any], formula: str, family: str) -> Design:
    schema = Schema.from_dict({"dataset": {"name": name, "rows": rows, "unit": "one row"}, "columns": columns})
    return build_design(formula, schema, family)
