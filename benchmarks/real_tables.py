"""The tables of the study of real data: three simulated ones that break the model's assumptions, and public ones.

Public tables are read from a folder by path and are skipped where they are absent. Bounds are what a custodian
would declare from general knowledge, not the tables' extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpglm import Schema
from dpglm.formula import Design, build_design

SIMULATED_ROWS = 1_000_000

Loaded = tuple[pd.DataFrame, dict[str, Any], str, str]  # rows, schema, formula, family


@dataclass(frozen=True)
class Table:
    """Scaled predictors (rows, dimension) and the coded outcome of a whole table: the population of the study."""

    name: str
    design: Design
    x: np.ndarray
    y: np.ndarray

    def of_size(self, rows: int) -> Design:
        """The design of a sample of this many rows."""
        return self.design.of_size(rows)


def number(lower: float, upper: float) -> dict[str, Any]:
    return {"type": "numeric", "lower": lower, "upper": upper}


def two(first: Any, second: Any) -> dict[str, Any]:
    return {"type": "binary", "levels": [first, second], "fill": first}


def count(upper: int) -> dict[str, Any]:
    return {"type": "count", "upper": upper, "fill": 0}


def _adult(folder: Path) -> Loaded:
    frame = pd.read_csv(folder / "adult.csv.gz")
    frame["married"] = frame["marital_status"].str.contains("Married").astype(int)
    columns = {
        "income": two(0, 1), "age": number(17, 90), "education_num": number(1, 16), "hours_per_week": number(1, 99),
        "capital_gain": number(0, 20_000), "capital_loss": number(0, 4_000), "married": two(0, 1),
        "sex": two("Female", "Male"),
    }  # fmt: skip
    formula = "income ~ age + education_num + hours_per_week + capital_gain + capital_loss + married + sex"
    return frame, columns, formula, "logistic"


def _adult_hours(folder: Path) -> Loaded:
    frame, columns, _, _ = _adult(folder)
    return frame, columns, "hours_per_week ~ age + education_num + married + sex", "linear"


def _acs(folder: Path, outcome: str) -> tuple[pd.DataFrame, dict[str, Any], str]:
    frame = pd.read_csv(folder / "acs_pums_10000.csv.gz")
    frame["high"] = (frame["income"] > 50_000).astype(int)
    frame["log_income"] = np.log10(np.maximum(frame["income"], 1_000))
    columns = {
        "high": two(0, 1), "log_income": number(3, 6), "sex": two(0, 1), "age": number(18, 100),
        "educ": number(1, 16), "married": two(0, 1),
    }  # fmt: skip
    predictors = [name for name in ("sex", "age", "educ", "married") if name != outcome]
    return frame, columns, f"{outcome} ~ {' + '.join(predictors)}"


def _raw_gain(folder: Path) -> Loaded:
    """Capital gain as it stands: nine in ten are zero, the largest is 99,999."""
    frame, columns, _, _ = _adult(folder)
    columns = columns | {"capital_gain": number(0, 100_000)}
    return frame, columns, "income ~ age + education_num + capital_gain + sex", "logistic"


def _raw_income(folder: Path) -> Loaded:
    """Income as it stands, a skewed predictor, some of it negative."""
    frame, columns, _ = _acs(folder, "married")
    columns = columns | {"income": number(-10_000, 500_000)}
    return frame, columns, "married ~ income + sex + age + educ", "logistic"


def _fair(folder: Path) -> Loaded:
    frame = pd.read_csv(folder / "fair_affairs.csv.gz")
    frame["any"] = (frame["affairs"] > 0).astype(int)
    columns = {
        "any": two(0, 1), "rate_marriage": number(1, 5), "age": number(17, 45), "yrs_married": number(0, 25),
        "children": number(0, 6), "religious": number(1, 4), "educ": number(9, 20),
    }  # fmt: skip
    return frame, columns, "any ~ rate_marriage + age + yrs_married + children + religious + educ", "logistic"


def _randhie(folder: Path) -> Loaded:
    frame = pd.read_csv(folder / "randhie.csv.gz")
    columns = {
        "mdvis": count(40), "lncoins": number(0, 5), "idp": two(0, 1), "lpi": number(0, 8), "fmde": number(0, 9),
        "physlm": number(0, 1), "disea": number(0, 60), "hlthg": two(0, 1), "hlthf": two(0, 1), "hlthp": two(0, 1),
    }  # fmt: skip
    formula = "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp"
    return frame, columns, formula, "poisson"


def _doctor(folder: Path) -> Loaded:
    frame = pd.read_csv(folder / "doctor_visits.csv.gz")
    columns = {
        "visits": count(10), "gender": two("male", "female"), "age": number(0.15, 0.75), "income": number(0, 1.5),
        "illness": number(0, 5), "reduced": number(0, 14), "health": number(0, 12), "private": two("no", "yes"),
    }  # fmt: skip
    return frame, columns, "visits ~ gender + age + income + illness + reduced + health + private", "poisson"


def _simulated(family: str) -> Loaded:
    """Binary, skewed, heavy-tailed and correlated columns, and a regression that misses curves and interactions."""
    rng = np.random.default_rng(5)
    rows = SIMULATED_ROWS
    z = rng.normal(size=(rows, 4))
    frame = pd.DataFrame(
        {
            "treated": (z[:, 0] > 0.8).astype(int),
            "dose": np.exp(0.8 * z[:, 1] + 0.4 * z[:, 0]),
            "score": 0.5 * rng.standard_t(3, size=rows) + 0.6 * z[:, 2],
            "trend": 0.8 * z[:, 2] + 0.6 * z[:, 3],
            "rare": (rng.random(rows) < 0.1).astype(int),
        }
    )
    u = -0.8 + 0.8 * frame["treated"] + 0.5 * np.log1p(frame["dose"]) + 0.5 * np.tanh(frame["score"])
    u += -0.5 * frame["trend"] + 0.3 * frame["trend"] * frame["treated"] - 0.2 * (frame["score"] > 1)
    u += 1.0 * frame["rare"] * (frame["trend"] > 0)
    columns = {
        "treated": two(0, 1), "dose": number(0, 10), "score": number(-5, 5), "trend": number(-3.5, 3.5),
        "rare": two(0, 1),
    }  # fmt: skip
    if family == "logistic":
        frame["y"], columns["y"] = (rng.random(rows) < 1 / (1 + np.exp(-u))).astype(int), two(0, 1)
    elif family == "poisson":
        mean, dispersion = np.exp(0.6 * u), 3.0
        frame["y"], columns["y"] = rng.negative_binomial(mean / (dispersion - 1), 1 / dispersion), count(20)
    else:
        noise = 0.7 * rng.standard_t(5, size=rows) * (1 + 0.3 * frame["treated"])
        frame["y"], columns["y"] = u + noise, number(-5, 5)
    return frame, columns, "y ~ treated + dose + score + trend + rare", family


LOADERS: dict[str, Callable[[Path], Loaded]] = {
    "adult": _adult,
    "acs_high_income": lambda folder: (*_acs(folder, "high"), "logistic"),
    "acs_married": lambda folder: (*_acs(folder, "married"), "logistic"),
    "fair_affairs": _fair,
    "raw_gain": _raw_gain,
    "raw_income": _raw_income,
    "simulated_logistic": lambda folder: _simulated("logistic"),
    "randhie": _randhie,
    "doctor_visits": _doctor,
    "simulated_counts": lambda folder: _simulated("poisson"),
    "acs_log_income": lambda folder: (*_acs(folder, "log_income"), "linear"),
    "adult_hours": _adult_hours,
    "simulated_linear": lambda folder: _simulated("linear"),
}


# Tables that constants of the method may be chosen on. All others, here and in ``other_tables``, only report.
CHOSEN_ON = (
    "adult", "acs_married", "raw_income", "simulated_logistic", "randhie", "simulated_counts", "acs_log_income",
    "simulated_linear",
)  # fmt: skip


def load(name: str, folder: Path) -> Table | None:
    """A table by name, or None where its file is absent."""
    try:
        frame, columns, formula, family = LOADERS[name](folder)
    except FileNotFoundError:
        return None
    used = {
        key: value for key, value in columns.items() if key in formula.replace("~", "+").replace(" ", "").split("+")
    }
    schema = Schema.from_dict({"dataset": {"name": name, "rows": len(frame), "unit": "one row"}, "columns": used})
    design = build_design(formula, schema, family)
    values = {}
    for column in design.table_columns:
        if column.has_levels:
            position = {str(level): n for n, level in enumerate(column.levels)}
            values[column.name] = frame[column.name].astype(str).map(position).to_numpy(dtype=float)
        else:
            values[column.name] = np.clip(frame[column.name].to_numpy(dtype=float), column.lower, column.upper)
    return Table(name, design, design.predictors(values, len(frame)).T, design.outcome.evaluate(values))


def frame_of(loader: Callable[[Path], Loaded], folder: Path) -> Loaded | None:
    """The raw columns of a table, numbers clamped to the bounds of a careful custodian; schema, formula and family."""
    try:
        frame, columns, formula, family = loader(folder)
    except FileNotFoundError:
        return None
    words = formula.replace("~", "+").replace(" ", "").split("+")
    used = {key: value for key, value in columns.items() if key in words}
    frame = frame[list(used)].copy()
    for key, declared in used.items():
        if "levels" not in declared:
            frame[key] = frame[key].astype(float).clip(declared.get("lower", 0), declared["upper"])
    return frame, used, formula, family


def widened(columns: dict[str, Any], times: float | None) -> dict[str, Any]:
    """The same columns with bounds so many times as wide, mostly upward, as people declare them; None without any."""
    result = {}
    for key, declared in columns.items():
        if "levels" in declared:
            result[key] = declared
        elif times is None:
            result[key] = {part: value for part, value in declared.items() if part not in ("lower", "upper")}
        elif declared["type"] == "count":
            result[key] = declared | {"upper": int(declared["upper"] * times)}
        else:
            more = (declared["upper"] - declared["lower"]) * (times - 1)
            result[key] = declared | {
                "lower": declared["lower"] - 0.25 * more,
                "upper": declared["upper"] + 0.75 * more,
            }
    return result


def rows_of(frame: pd.DataFrame, columns: dict[str, Any], formula: str) -> tuple[np.ndarray, np.ndarray]:
    """Predictors and outcome in the user's units, in the order of the coefficients."""
    outcome, right = (part.strip() for part in formula.split("~"))

    def numbers(key: str) -> np.ndarray:
        levels = columns[key].get("levels")
        return (frame[key] == levels[1]).to_numpy(float) if levels else frame[key].to_numpy(float)

    return np.column_stack([numbers(key.strip()) for key in right.split("+")]), numbers(outcome)


def maximum_likelihood(family: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimate, information and sandwich covariance of a regression on the rows; outcomes of two levels are 0 and 1.

    Computed with standardised columns, and returned in the units given.
    """
    centre, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-12)
    rows = np.column_stack([np.ones(len(x)), (x - centre) / scale])
    theta = np.zeros(rows.shape[1])
    if family == "linear":
        theta = np.linalg.lstsq(rows, y, rcond=None)[0]
        residual = y - rows @ theta
        variance = residual @ residual / len(y)
        information = rows.T @ rows / variance
        scores = rows * (residual / variance)[:, None]
    else:
        if family == "poisson":
            theta[0] = np.log(y.mean() + 0.01)
        for _ in range(100):
            u = np.clip(rows @ theta, -30, 30)
            mean = 1 / (1 + np.exp(-u)) if family == "logistic" else np.exp(u)
            residual = y - mean
            weight = mean * (1 - mean) if family == "logistic" else mean
            information = (rows * weight[:, None]).T @ rows
            step = np.linalg.solve(information + 1e-9 * np.eye(len(theta)), rows.T @ residual)
            theta = theta + step * min(1.0, 3 / max(np.abs(step).max(), 1e-12))
            if np.abs(step).max() < 1e-9:
                break
        scores = rows * residual[:, None]
    inverse = np.linalg.inv(information)
    turn = np.eye(len(theta))
    turn[0, 1:], turn[1:, 1:] = -centre / scale, np.diag(1 / scale)
    back = np.linalg.inv(turn)
    return turn @ theta, back.T @ information @ back, turn @ inverse @ (scores.T @ scores) @ inverse @ turn.T
