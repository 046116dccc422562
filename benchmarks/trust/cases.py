"""Random releases to audit: a schema, a formula, a budget, a table, and rows that may take one row's place.

Everything is drawn from a ``random.Random``. The long run seeds one; the tests let hypothesis drive one, so that it
can shrink what fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from dpglm.custodian.look_plan import plan_looks
from dpglm.custodian.mechanism import calibrate
from dpglm.errors import InputError
from dpglm.formula import Design, build_design
from dpglm.schema import Column, Schema
from trust.sources import SOURCES

Person = tuple[Any, ...]  # of rows
Row = tuple[Any, ...] | bytes  # bytes: a line of a CSV file as it stands, with a wrong number of fields

FAMILIES = ("logistic", "poisson", "linear")
LINKS = (None, "probit", "cloglog")  # of two levels, by looks
NAMES = ("age", "dose", "the kind", "été", "x.1", "class", 'a "b"', "c\\d", "1st", "Ω", "visits", "y", "N", "-")
LEVELS: tuple[tuple[Any, ...], ...] = (
    ("no", "yes"), (0, 1), (False, True), ("0", "1.0", "2"), ("a", "A", "ä"), ("north", "south", "east", "west"),
    (-1.5, 0.25, 3), ("true", "maybe"), (" ", "x y"), ("1e3", "2"), ('"', "'", ","), (1, "one"),
)  # fmt: skip
STRANGE: tuple[Any, ...] = (
    None, math.nan, math.inf, -math.inf, 1e308, -1e308, -0.0, 5e-324, -5e-324, 2**63, -(2**63), 2**64 + 1, 10**300,
    -(10**308), "9" * 400, "9" * 401, "1e999", "-1e999", "NaN", "inf", "-Infinity", "", " ", "0x10", "1_000", "1,5",
    "٣", "３", "TRUE", "false", True, False, "zx9\x00secret", "sécret", b"\xff\xfe", b"\xc3", "+3", " 7 ", "7\r",
    "\t1", ".5", "5.", ".", "e", "-", "1e", "two\nlines", '"', "=1+1", "None", "nan ", "1e-400", "-1e-400",
    "1" + "0" * 310, "no", "1",
)  # fmt: skip
BOUNDS = (
    (0, 1),
    (-1, 1),
    (20, 90),
    (-3, 10),
    (0.1, 3),
    (1e-9, 3e-9),
    (-1e100, 1e100),
    (0, 1e6),
    (1e5, 1e5 + 1),
    (-7, -2),
)


@dataclass(frozen=True)
class Case:
    """One release to be made of several tables: ``rows`` with each of ``candidates`` put in at ``position``.

    ``hashed``: the viewpoints of looks follow from a hash of what was released (``viewpoints.py``). ``again``: an
    earlier release's survey is used.
    """

    family: str
    formula: str
    schema: dict[str, Any]
    epsilon: float
    delta: float
    method: str
    hashed: bool
    again: bool
    radius: float | None
    allocation: str
    statistics: Any
    source: str
    command_line: bool
    rows: tuple[Row, ...]
    position: int
    candidates: tuple[Any, ...]
    seed: int
    link: str | None = None
    where: str | None = None
    weights: str | None = None

    @property
    def design(self) -> Design:
        schema = Schema.from_dict(self.schema)
        return build_design(self.formula, schema, self.family, self.link, self.where, self.weights)

    @property
    def added(self) -> bool:
        """Whether the first candidate is no row, and each of the others one that is added."""
        return self.candidates[0] is None

    @property
    def people(self) -> bool:
        """Whether candidates are people, each a list of rows, whose last cell is an id."""
        return "unit_column" in self.schema["dataset"]

    def table_rows(self, candidate: Any) -> list[Row]:
        if self.people:
            together = [*self.rows, *(candidate or ())]
            Random(self.seed).shuffle(together)
            return together
        put_in = [] if candidate is None else [candidate]
        return [*self.rows[: self.position], *put_in, *self.rows[self.position :]]


def draw_case(chance: Random, family: str, tables: int = 5) -> Case:
    """A case whose release is not refused; ``tables`` of them are neighbours of each other."""
    while True:
        case = _who_counts(_draw(chance, family, tables))
        try:
            if case.method == "looks":
                plan_looks(case.design, case.epsilon, case.delta)
            else:
                calibrate(case.design, case.epsilon, case.delta, case.radius, case.allocation, case.statistics)
        except InputError:
            continue
        return case


def _draw(chance: Random, family: str, tables: int) -> Case:
    names = chance.sample(NAMES, chance.randint(2, 4))
    columns = {names[0]: _outcome(chance, family)} | {name: _predictor(chance) for name in names[1:]}
    rows = chance.choice((1, 2, 3, 5, 9))
    schema = {"dataset": {"name": "a table", "rows": rows, "unit": "one patient"}, "columns": columns}
    declared = [Schema.from_dict(schema).columns[name] for name in names]
    source = chance.choice(SOURCES)
    looks = chance.random() < 0.7
    in_a_file = source.partition(" ")[0] in ("csv", "tsv", "parquet")
    command_line = looks and in_a_file and chance.random() < 0.4
    row_of = _RowMaker(chance, declared, source)
    made = Case(
        family=family,
        formula=_formula(chance, declared),
        schema=schema,
        epsilon=10 ** chance.uniform(-2, 1),
        delta=10 ** chance.uniform(-12, -2),
        method="looks" if looks else "moments",
        hashed=looks and chance.random() < 0.6,
        again=looks and not command_line and chance.random() < 0.2,
        radius=None if looks else chance.choice((None, None, 10 ** chance.uniform(-2, 0.3))),
        allocation="auto" if looks else chance.choice(("equal", "equal", "auto")),
        statistics="full" if looks else _statistics(chance),
        source=source,
        command_line=command_line,
        rows=tuple(row_of() for _ in range(rows - 1)),
        position=chance.randrange(rows),
        candidates=tuple(row_of(extreme=number < 2) for number in range(tables)),
        seed=chance.randrange(2**32),
    )
    return replace(made, link=LINKS[made.seed % 3]) if looks and family == "logistic" else made


def _who_counts(case: Case) -> Case:
    """In half of the releases by looks rows may fail to count: columns without a fill, and a condition."""
    chance = Random(case.seed)
    if case.method == "moments" or chance.random() < 0.5:
        return case
    columns = {name: dict(column) for name, column in case.schema["columns"].items()}
    for number, column in enumerate(columns.values()):
        kind = chance.choice(("fill", "nothing", "level"))
        if kind != "fill":
            column.pop("fill", None)
        if kind == "level" and "levels" in column and number:
            column["missing"] = "level"
    schema = {**case.schema, "columns": columns}
    name = chance.choice(list(columns))
    column = Schema.from_dict(schema).columns[name]
    if column.has_levels:
        conditions = [f"`{name}` in [{level!r}]" for level in column.levels]
    else:
        middle = (column.lower + column.upper) / 2
        conditions = [f"`{name}` <= {middle!r}", f"not {middle!r} < `{name}`", f"`{name}` == `{name}`"]
    where = chance.choice([*conditions, None, None])
    positive = [n for n, column in columns.items() if column.get("lower", 0) >= 0 and "upper" in column]
    weights = chance.choice([*positive, None, None])
    case = replace(case, schema=schema, where=where, weights=weights)
    case = _added(case) if chance.random() < 0.5 else case
    return _of_people(case, chance) if chance.random() < 0.4 else case


def _of_people(case: Case, chance: Random) -> Case:
    """The same release where rows belong to people, who may have several; some rows belong to nobody."""

    def cells(row: Row, who: Any) -> Row:
        return ((None,) * len(case.schema["columns"]) if isinstance(row, bytes) else row) + (who,)

    ids = [None if chance.random() < 0.1 else chance.randint(1, 4) for _ in case.rows]
    rows = tuple(cells(row, who) for row, who in zip(case.rows, ids, strict=True))
    spelled = ("9", "09", 9, "9.0")
    candidates = tuple(
        None if row is None else tuple(
            cells(chance.choice([row, row, *case.candidates[-2:]]) or row, chance.choice(spelled))
            for _ in range(chance.choice((1, 2, 3, 12)))
        )
        for row in case.candidates
    )  # fmt: skip
    dataset = {key: value for key, value in case.schema["dataset"].items() if key != "rows"} | {"unit_column": "who"}
    if not case.added:
        dataset["units"] = len(set(ids) - {None}) + 1
    source = case.source.replace("pandas category", "pandas object")
    return replace(
        case, schema={**case.schema, "dataset": dataset}, rows=rows, candidates=candidates, source=source
    )  # fmt: skip


def _added(case: Case) -> Case:
    """The same release where a row is added or removed, and their number private."""
    dataset = {key: value for key, value in case.schema["dataset"].items() if key != "rows"}
    schema = {**case.schema, "dataset": dataset | {"neighbours": "added-or-removed"}}
    return replace(case, schema=schema, candidates=(None, *case.candidates[1:]))


def _outcome(chance: Random, family: str) -> dict[str, Any]:
    if family == "logistic":
        return _levels(chance, "binary", chance.choice([levels for levels in LEVELS if len(levels) == 2]))
    if family == "poisson" or chance.random() < 0.2:
        return _count(chance)
    return _numeric(chance)


def _predictor(chance: Random) -> dict[str, Any]:
    kind = chance.choice(("numeric", "numeric", "count", "levels"))
    if kind == "levels":
        levels = chance.choice(LEVELS)
        return _levels(chance, "binary" if len(levels) == 2 else "categorical", levels)
    return _count(chance) if kind == "count" else _numeric(chance)


def _numeric(chance: Random) -> dict[str, Any]:
    lower, upper = chance.choice(BOUNDS)
    fill = {"fill": chance.choice((lower, upper))} if chance.random() < 0.3 else {}
    return {"type": "numeric", "lower": lower, "upper": upper, **fill}


def _count(chance: Random) -> dict[str, Any]:
    upper = chance.choice((1, 2, 7, 20, 100))
    return {"type": "count", "upper": upper, "fill": chance.choice((0, upper))}


def _levels(chance: Random, kind: str, levels: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "type": kind, "levels": list(levels), "fill": chance.choice(levels), "reference": chance.choice(levels)
    }  # fmt: skip


def _formula(chance: Random, columns: list[Column]) -> str:
    """Every predictor, perhaps transformed, perhaps multiplied; one may be an offset; perhaps no intercept."""
    outcome, *predictors = (f"`{column.name}`" for column in columns)
    terms = []
    for name, column in zip(predictors, columns[1:], strict=True):
        forms = (
            ["{}"] if column.has_levels else ["{}", "{}", "I({}**2)", "sqrt({})", "log({})", "exp({})", "I({}/3 - 1)"]
        )
        terms.append(chance.choice(forms).format(name))
    if len(terms) > 1 and chance.random() < 0.2 and not columns[-1].has_levels:
        terms[-1] = f"offset({predictors[-1]})"
    elif len(terms) > 1 and chance.random() < 0.4:
        terms.append(chance.choice((f"{terms[0]}:{terms[1]}", f"{terms[0]}*{terms[-1]}")))
    return f"{outcome} ~ {' + '.join(terms)}{chance.choice(('', '', ' - 1'))}"


def _statistics(chance: Random) -> Any:
    blocks = [(1, 0), (0, 1), (0, 2), (1, 1), (2, 0), (1, 2), (2, 1), (0, 3)]
    return chance.choice(("full", "full", "paper", chance.sample(blocks, chance.randint(1, 4))))


@dataclass(frozen=True)
class _RowMaker:
    chance: Random
    columns: list[Column]
    source: str

    def __call__(self, extreme: bool = False) -> Row:
        """A row of cells; ``extreme`` ones sit at the ends of all ranges, where two rows are furthest apart."""
        chance = self.chance
        if extreme:
            return tuple(_end(chance, column) for column in self.columns)
        if "csv" in self.source and chance.random() < 0.05:
            return b",".join([b"zx9secret"] * chance.choice([n for n in range(1, 7) if n != len(self.columns)]))
        strange = chance.choice((0.0, 0.3, 1.0))
        return tuple(
            chance.choice(STRANGE) if chance.random() < strange else _cell(chance, column) for column in self.columns
        )


def _end(chance: Random, column: Column) -> Any:
    return chance.choice(column.levels if column.has_levels else (column.lower, column.upper))


def _cell(chance: Random, column: Column) -> Any:
    if column.has_levels:
        return chance.choice(column.levels)
    width = column.upper - column.lower
    value = chance.choice((column.lower, column.upper, chance.uniform(column.lower - width, column.upper + width)))
    return chance.choice((value, round(value), str(value))) if abs(value) < 1e15 else value


def stopped_case(chance: Random, tables: int = 3) -> Case:
    """A case that its survey stops: nearly no row has a value in one column, and rows are enough to show it."""
    rows, chosen = 6_000, chance.choice((("linear", "y ~ a + b"), ("poisson", "n ~ a + b"), ("logistic", "k ~ a + b")))
    columns = {
        "y": {"type": "numeric", "lower": -3, "upper": 10}, "n": {"type": "count", "upper": 20, "fill": 0},
        "k": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        "a": {"type": "numeric", "lower": -1e100, "upper": 1e100}, "b": {"type": "numeric", "lower": 0, "upper": 1},
    }  # fmt: skip
    family, formula = chosen
    outcome = formula[0]
    schema = {"dataset": {"name": "a table", "rows": rows, "unit": "one patient"},
              "columns": {name: columns[name] for name in (outcome, "a", "b")}}  # fmt: skip
    declared = [Schema.from_dict(schema).columns[name] for name in (outcome, "a", "b")]
    source = chance.choice(("arrow binary", "csv", "parquet"))
    row_of = _RowMaker(chance, declared, source)
    ordinary = [(_cell(chance, declared[0]), chance.gauss(0, 1), None) for _ in range(20)]
    return Case(
        family=family, formula=formula, schema=schema, epsilon=10.0, delta=0.01, method="looks", hashed=False,
        again=False, radius=None, allocation="auto", statistics="full", source=source, command_line=False,
        rows=tuple(ordinary[number % 20] for number in range(rows - 1)), position=chance.randrange(rows),
        candidates=tuple(row_of(extreme=number < 2) for number in range(tables)), seed=chance.randrange(2**32),
    )  # fmt: skip
