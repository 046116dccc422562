"""The tables of the study of hard cases: what a look finds hard, and ordinary ones beside it. All simulated anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from real_tables import count, number, two

FAMILIES = ("logistic", "poisson", "linear")
OUTCOMES = {"logistic": two(0, 1), "poisson": count(200), "linear": number(-50, 50)}
LARGE = 200_000
CERTAIN = 40.0  # a coefficient that decides the outcome
LEVEL, FLAG, STRONG, RARE, TWINS, NO_COLUMN, NO_OUTCOME, ORDINARY = (
    "A level with few rows", "A flag that decides the outcome", "Strong effects at a small signal",
    "An outcome of 1 in 500", "Two columns that say the same", "A column that says nothing",
    "An outcome that says nothing", "Ordinary tables",
)  # fmt: skip


class Drawn(NamedTuple):
    """A table: its columns as declared, each coefficient's numbers by row and true value, and what is odd about it."""

    frame: pd.DataFrame
    columns: dict[str, Any]
    numbers: dict[str, np.ndarray]
    truth: dict[str, float]
    spread: float = 1.0  # of a linear outcome
    unreadable: str = ""  # a column whose cells hold what the schema does not know


@dataclass(frozen=True)
class Case:
    """Tables of one kind; ``own`` are the coefficients in question, and their sum where ``summed``."""

    title: str
    what: str
    family: str
    rows: tuple[int, ...]
    draw: Callable[[np.random.Generator, int], Drawn]
    epsilons: tuple[float, ...] = (1.0,)
    own: tuple[str, ...] = ()
    summed: bool = False
    unknown: tuple[str, ...] | None = ()  # coefficients without a true value; None: all


def plain(rng: np.random.Generator, rows: int, intercept: float = -0.3) -> Drawn:
    """Two normal columns and one of two levels."""
    x, sex = rng.normal(size=(2, rows)), rng.random(rows) < 0.4
    frame = pd.DataFrame({"x1": x[0], "x2": x[1], "sex": np.where(sex, "female", "male")})
    columns = {"x1": number(-20, 20), "x2": number(-20, 20), "sex": two("male", "female")}
    numbers = {"Intercept": np.ones(rows), "x1": x[0], "x2": x[1], "sex[female]": sex.astype(float)}
    truth = {"Intercept": intercept, "x1": 0.5, "x2": -0.3, "sex[female]": 0.4}
    return Drawn(frame, columns, numbers, truth)


def with_level(rng: np.random.Generator, rows: int, third: int, effect: float = 0.8) -> Drawn:
    """A factor with so many rows in its third level."""
    drawn = plain(rng, rows)
    level = (rng.random(rows) < 0.4).astype(int)
    level[rng.permutation(rows)[:third]] = 2
    levels = ["usual", "frequent", "scarce"]
    drawn.frame["group"] = np.array(levels)[level]
    drawn.columns["group"] = {"type": "categorical", "levels": levels, "fill": "usual"}
    for place, size in ((1, 0.3), (2, effect)):
        drawn.numbers[f"group[{levels[place]}]"] = (level == place).astype(float)
        drawn.truth[f"group[{levels[place]}]"] = size
    return drawn


def with_flag(rng: np.random.Generator, rows: int) -> Drawn:
    drawn, flag = plain(rng, rows), rng.random(rows) < 0.03
    drawn.frame["flag"] = np.where(flag, "marked", "unmarked")
    drawn.columns["flag"] = two("unmarked", "marked")
    drawn.numbers["flag[marked]"], drawn.truth["flag[marked]"] = flag.astype(float), CERTAIN
    return drawn


def with_number(drawn: Drawn, name: str, values: np.ndarray, effect: float) -> Drawn:
    drawn.frame[name], drawn.columns[name] = values, number(-20, 20)
    drawn.numbers[name], drawn.truth[name] = values, effect
    return drawn


def with_twins(rng: np.random.Generator, rows: int, correlation: float) -> Drawn:
    twin, other = rng.normal(size=(2, rows))
    copy = correlation * twin + math.sqrt(1 - correlation**2) * other
    return with_number(with_number(plain(rng, rows), "twin", twin, 0.5), "copy", copy, 0.1)


def with_flat(rng: np.random.Generator, rows: int) -> Drawn:
    return with_number(plain(rng, rows), "flat", np.full(rows, 7.0), 0.0)


def with_unreadable(rng: np.random.Generator, rows: int) -> Drawn:
    return with_number(plain(rng, rows), "garbled", rng.normal(size=rows), 0.0)._replace(unreadable="garbled")


def outcome_unreadable(rng: np.random.Generator, rows: int) -> Drawn:
    return plain(rng, rows)._replace(unreadable="y")


def outcome_constant(rng: np.random.Generator, rows: int) -> Drawn:
    drawn = plain(rng, rows, -CERTAIN)
    return drawn._replace(
        truth={name: effect * (name == "Intercept") for name, effect in drawn.truth.items()}, spread=0.0
    )


def strong(rng: np.random.Generator, rows: int) -> Drawn:
    """Five normal columns; the linear predictor's standard deviation is 4."""
    effects = np.array([1, -0.8, 0.6, -0.4, 0.2])
    drawn = Drawn(pd.DataFrame(index=range(rows)), {}, {"Intercept": np.ones(rows)}, {"Intercept": 0.0})
    for place, effect in enumerate(4 * effects / np.linalg.norm(effects), 1):
        drawn = with_number(drawn, f"x{place}", rng.normal(size=rows), float(effect))
    return drawn


def ordinary(rng: np.random.Generator, rows: int) -> Drawn:
    return with_level(rng, rows, rows // 5)


def with_outcome(drawn: Drawn, family: str, rng: np.random.Generator) -> pd.DataFrame:
    """The rows of the table."""
    u = np.sum([effect * drawn.numbers[name] for name, effect in drawn.truth.items()], axis=0)
    if family == "logistic":
        y: Any = (rng.random(len(u)) < 1 / (1 + np.exp(-u))).astype(int)
    else:
        y = rng.poisson(np.exp(u)) if family == "poisson" else u + drawn.spread * rng.normal(size=len(u))
    frame = drawn.frame.assign(y=y)
    return frame.assign(**{drawn.unreadable: "see page 2"}) if drawn.unreadable else frame


def error_without_privacy(drawn: Drawn, family: str, sums: np.ndarray) -> np.ndarray:
    """Standard errors from the information of the same rows at the true coefficients."""
    rows = np.column_stack(list(drawn.numbers.values()))
    u = np.clip(rows @ np.array(list(drawn.truth.values())), -15, 15)
    weight = {"logistic": 1 / (2 + np.exp(u) + np.exp(-u)), "poisson": np.exp(u), "linear": np.ones(len(u))}[family]
    information = (rows * weight[:, None]).T @ rows
    covariance = np.linalg.inv(information + 1e-9 * np.eye(len(information)))
    return np.asarray(np.sqrt(np.abs(np.einsum("ij,jk,ik->i", sums, covariance, sums))))


CASES = (
    *(
        Case(LEVEL, f"{few:,} rows", family, rows, partial(with_level, third=few), own=("group[scarce]",))
        for family, rows in (("logistic", (20_000, LARGE)), ("linear", (20_000,)))
        for few in (0, 10, 100, 1_000)
    ),
    Case(
        FLAG, "", "logistic", (5_000, 20_000), with_flag, (1.0, 3.0),
        own=("flag[marked]",), unknown=("flag[marked]",),
    ),
    Case(STRONG, "", "logistic", (5_000,), strong, (0.3, 1.0)),
    *(Case(RARE, "", family, (20_000, 100_000), partial(plain, intercept=-6.57)) for family in FAMILIES[:2]),
    *(
        Case(TWINS, what, family, (10_000,), partial(with_twins, correlation=r), own=("twin", "copy"), summed=True)
        for what, r in (("identical", 1.0), ("correlated 0.99", 0.99))
        for family in FAMILIES
    ),
    *(
        Case(title, what, family, (5_000, 50_000), draw, own=own, unknown=own or None)
        for title, what, draw, own in (
            (NO_COLUMN, "constant", with_flat, ("flat",)), (NO_COLUMN, "unreadable", with_unreadable, ("garbled",)),
            (NO_OUTCOME, "constant", outcome_constant, ()), (NO_OUTCOME, "unreadable", outcome_unreadable, ()),
        )
        for family in FAMILIES
    ),
    *(Case(ORDINARY, "", family, (2_000, 20_000), ordinary, (0.3, 1.0, 3.0)) for family in FAMILIES),
)  # fmt: skip

NOTHING = f"{NO_COLUMN}, or an outcome"
# Warnings by what is said in each, and the tables that each is for.
KINDS: dict[str, tuple[str, Callable[[dict[str, Any]], bool]]] = {
    "a look missed what the looks before it": (STRONG, lambda cell: cell["case"] == STRONG),
    "the linear predictor has standard deviation": (STRONG, lambda cell: cell["case"] == STRONG),
    "all but decides the outcome": (FLAG, lambda cell: cell["case"] == FLAG),
    "cannot tell no effect from one that decides": (FLAG, lambda cell: cell["case"] == FLAG),
    "so that there is little to tell effects from": (
        f"{NO_OUTCOME}: constant; {RARE}", lambda cell: cell["case"] in (NO_OUTCOME, RARE),
    ),
    "prior and release disagree": (FLAG, lambda cell: cell["case"] == FLAG),
    "the survey cannot tell whether any row has": (
        f"{LEVEL}, 0 to 100", lambda cell: cell["case"] == LEVEL and cell["what"] != "1,000 rows",
    ),
    "the release says little about": (RARE, lambda cell: cell["case"] == RARE),
    "the survey could not see how far": (NO_COLUMN, lambda cell: cell["case"] == NO_COLUMN),
    "the survey says of": (NOTHING, lambda cell: cell["case"] in (NO_COLUMN, NO_OUTCOME)),
    "lack a value and do not count": (NOTHING, lambda cell: cell["case"] in (NO_COLUMN, NO_OUTCOME)),
    "of its cells hold no value": (NOTHING, lambda cell: cell["case"] in (NO_COLUMN, NO_OUTCOME)),
    "the survey stops the release": (NOTHING, lambda cell: cell["case"] in (NO_COLUMN, NO_OUTCOME)),
}  # fmt: skip
