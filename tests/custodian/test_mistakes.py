"""A user's mistakes: each is one line that says name, value, rule and remedy, before rows are read and at no cost."""

from __future__ import annotations

import copy
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpglm
from dpglm.custodian import tables
from dpglm.errors import BudgetError, FileError, InputError
from dpglm.privacy import mu_of

ROWS = 40
SCHEMA: dict[str, Any] = {
    "dataset": {"name": "patients-2024", "rows": ROWS, "unit": "one patient"},
    "columns": {
        "age": {"type": "numeric", "lower": 20, "upper": 90},
        "bmi": {"type": "numeric", "lower": -5, "upper": 60},
        "smoker": {"type": "categorical", "levels": ["never", "former", "current"], "fill": "never"},
        "diabetes": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        "visits": {"type": "count", "upper": 20, "fill": 0},
    },
}
# Cells that no public text holds: if a message quotes a row, it quotes one of these.
SECRETS = ("77.7770077", "zx9secret", "31.4159031")
CELLS: dict[str, Any] = {
    "age": [77.7770077] * ROWS,
    "bmi": [31.4159031] * ROWS,
    "smoker": ["zx9secret"] * ROWS,
    "diabetes": ["yes"] * ROWS,
    "visits": [3] * ROWS,
}


class WatchedTable:
    """Exports an Arrow stream, and notes when it is asked for one and when a batch is taken from it."""

    def __init__(self, cells: dict[str, Any] = CELLS) -> None:
        self.table = pa.table(cells)
        self.opened = self.read = False

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.opened = True

        def batches() -> Iterator[pa.RecordBatch]:
            self.read = True
            yield from self.table.to_batches()

        return pa.RecordBatchReader.from_batches(self.table.schema, batches()).__arrow_c_stream__(requested_schema)


class Call:
    """One call of ``dpglm.release`` that would succeed, in a folder with a ledger; a mistake changes its arguments."""

    def __init__(self, folder: Path, ledger: Path) -> None:
        self.folder = folder
        self.table = WatchedTable()
        self.ledger = dpglm.Ledger.open(shutil.copy(ledger, folder))
        self.arguments: dict[str, Any] = {
            "table": self.table,
            "formula": "diabetes ~ age + bmi + smoker",
            "schema": copy.deepcopy(SCHEMA),
            "family": "logistic",
            "epsilon": 1.0,
            "delta": 1e-6,
            "ledger": self.ledger.path,
        }

    def run(self) -> dpglm.Release:
        arguments = dict(self.arguments)
        return dpglm.release(arguments.pop("table"), arguments.pop("formula"), **arguments)

    def written(self) -> set[str]:
        """Files of the folder, without those that SQLite keeps beside a ledger."""
        return {
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.suffix[-4:] not in {"-wal", "-shm"}
        }


@pytest.fixture(scope="module")
def new_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unused ledger. Making one waits for the disk, so it is made once and copied."""
    dataset = dpglm.Schema.from_dict(SCHEMA).dataset
    path = tmp_path_factory.mktemp("new") / "patients.ledger"
    return dpglm.Ledger.create(path, dataset, epsilon=2.0, delta=1e-5).path


@pytest.fixture
def call(new_ledger: Path) -> Iterator[Call]:
    with tempfile.TemporaryDirectory() as folder:  # short, because messages cut what is long
        yield Call(Path(folder), new_ledger)


Mistake = Callable[[Call], None]


def argument(name: str, value: Any) -> Mistake:
    def change(call: Call) -> None:
        call.arguments[name] = value

    return change


def of_moments(name: str, value: Any) -> Mistake:
    """An option that only moments have."""

    def change(call: Call) -> None:
        call.arguments |= {"method": "moments", name: value}

    return change


def schema(path: str, value: Any) -> Mistake:
    """Change one entry of the schema; ``...`` removes it."""

    def change(call: Call) -> None:
        *parents, last = path.split(".")
        inner = call.arguments["schema"]
        for parent in parents:
            inner = inner[parent]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value

    return change


def file(name: str, content: bytes, argument: str) -> Mistake:
    def change(call: Call) -> None:
        path = call.folder / name
        path.write_bytes(content)
        call.arguments[argument] = str(path)

    return change


def path(name: str, argument: str, folder: bool = False) -> Mistake:
    def change(call: Call) -> None:
        if folder:
            (call.folder / name).mkdir(parents=True)
        call.arguments[argument] = call.folder / name

    return change


def cells(**columns: Any) -> Mistake:
    """Other columns of the table; ``None`` removes one."""

    def change(call: Call) -> None:
        kept = {name: value for name, value in (CELLS | columns).items() if value is not None}
        call.table = call.arguments["table"] = WatchedTable(kept)

    return change


def twice(call: Call) -> None:
    call.table.table = pa.Table.from_arrays([*call.table.table.columns, pa.array([1.0] * ROWS)], [*CELLS, "age"])


def other_ledger(**dataset: Any) -> Mistake:
    def change(call: Call) -> None:
        declared = {**SCHEMA, "dataset": SCHEMA["dataset"] | dataset}
        other = dpglm.Schema.from_dict(declared).dataset
        (call.folder / "elsewhere").mkdir()
        path = call.folder / "elsewhere" / "other.ledger"
        call.arguments["ledger"] = dpglm.Ledger.create(path, other, epsilon=1, delta=1e-5)

    return change


def spent_ledger(call: Call) -> None:
    call.ledger.spend(release_id="earlier", mu_squared=0.9 * mu_of(2.0, 1e-5) ** 2, description={})


def tiny_budget(call: Call) -> None:
    call.arguments |= {"epsilon": 1e-9, "delta": 1e-12}


def tiny_budget_of_moments(call: Call) -> None:
    tiny_budget(call)
    call.arguments |= {"method": "moments", "statistics": [(0, 6)]}


def someone_elses_database(call: Call) -> None:
    connection = sqlite3.connect(call.folder / "other.db")
    connection.execute("CREATE TABLE entries (number)")
    connection.commit()
    connection.close()
    call.arguments["ledger"] = call.folder / "other.db"


def pandas_table(rows: int = ROWS, **columns: Any) -> Mistake:
    def change(call: Call) -> None:
        frame = pd.DataFrame(CELLS | columns)
        call.arguments["table"] = pd.concat([frame] * 2, ignore_index=True).iloc[:rows]

    return change


def parquet_table(rows: int = ROWS, columns: tuple[str, ...] = tuple(CELLS)) -> Mistake:
    def change(call: Call) -> None:
        table = pa.concat_tables([call.table.table] * 2).slice(0, rows).select(columns)
        pq.write_table(table, call.folder / "patients.parquet")
        call.arguments["table"] = call.folder / "patients.parquet"

    return change


HUGE = 10**400

# What is wrong, the argument or entry that the message names, a part of the value as shown, a part of the rule.
# None of these may even ask the table for its header.
BEFORE_THE_TABLE: list[tuple[Mistake, str, str, str]] = [
    # the schema
    (schema("columns.age.lower", 90), "columns.age.lower", "90", "below upper = 90"),
    (schema("columns.age.lower", 95), "columns.age.lower", "95", "below upper = 90"),
    (schema("columns.age.upper", math.nan), "columns.age.upper", "nan", "must be a number"),
    (schema("columns.age.upper", math.inf), "columns.age.upper", "inf", "must be a number"),
    (schema("columns.age.upper", "90"), "columns.age.upper", "90", "must be a number"),
    (schema("columns.age.fill", 100), "columns.age.fill", "100", "must lie in [20, 90]"),
    (schema("columns.age.type", "float"), "columns.age.type", "float", "must be one of numeric"),
    (schema("columns.age.min", 20), "columns.age.min", "20", "not a known key"),
    (schema("columns.smoker.fill", "Never"), "columns.smoker.fill", "Never", "one of the levels"),
    (schema("columns.smoker.levels", ["never"] * 2), "columns.smoker.levels", "['never', 'never']", "must differ"),
    (schema("columns.smoker.levels", ...), "columns.smoker.levels", "None", "must be a list"),
    (schema("columns.smoker.reference", "none"), "columns.smoker.reference", "none", "one of the levels"),
    (schema("columns.diabetes.levels", ["a", "b", "c"]), "columns.diabetes.levels", "['a', 'b', 'c']", "two levels"),
    (schema("dataset", ...), "dataset", "None", "is missing"),
    (schema("dataset.name", ...), "dataset.name", "None", "is missing"),
    (schema("dataset.rows", ...), "dataset.rows", "None", "whole number"),
    (schema("dataset.rows", 0), "dataset.rows", "0", "whole number"),
    (schema("dataset.rows", 40.0), "dataset.rows", "40.0", "whole number"),
    (schema("dataset.rows_per_unit", 3), "dataset.rows_per_unit", "3", "a row is a unit"),
    (argument("schema", None), "schema", "NoneType", "must be a Schema"),
    (argument("schema", 5), "schema", "int", "must be a Schema"),
    (path("missing.toml", "schema"), "schema", "missing.toml", "cannot be read"),
    (path("folder.toml", "schema", folder=True), "schema", "folder.toml", "cannot be read"),
    (file("schema.toml", b"[dataset", "schema"), "schema", "schema.toml", "not valid TOML"),
    (file("schema.toml", b"PAR1\x00\xff", "schema"), "schema", "schema.toml", "not valid TOML"),
    # the formula
    (argument("formula", "diabetes ~ agee"), "column", "agee", "not declared"),
    (argument("formula", "diabets ~ age"), "column", "diabets", "not declared"),
    (argument("formula", "diabetes ~ income"), "column", "income", "not declared"),
    (argument("formula", "diabetes ~ age + diabetes"), "outcome", "diabetes", "also among the predictors"),
    (argument("formula", "diabetes ~ 1"), "formula", "diabetes ~ 1", "at least one predictor"),
    (argument("formula", "age + bmi"), "formula", "age + bmi", "one outcome"),
    (argument("formula", "diabetes + visits ~ age"), "formula", "diabetes + visits ~ age", "one outcome"),
    (argument("formula", "diabetes ~ age +* bmi"), "formula", "diabetes ~ age +* bmi", "cannot be parsed"),
    (argument("formula", ""), "formula", "", "must be text"),
    (argument("formula", None), "formula", "None", "must be text"),
    (argument("formula", ["diabetes", "age"]), "formula", "['diabetes', 'age']", "must be text"),
    (argument("formula", "diabetes ~ ."), "formula", "diabetes ~ .", "would look at the table"),
    (argument("formula", "diabetes ~ scale(age)"), "formula", "scale(age)", "would look at the data"),
    (argument("formula", "diabetes ~ poly(age, 2)"), "formula", "poly(age, 2)", "would look at the data"),
    (argument("formula", "diabetes ~ bs(age, df=4)"), "formula", "bs(age, df=4)", "knots by the data"),
    (argument("formula", "diabetes ~ C(smoker)"), "formula", "C(smoker)", "would look at the data"),
    (argument("formula", "diabetes ~ log(bmi)"), "formula", "log(bmi)", "lower bound above 0, got -5"),
    (argument("formula", "diabetes ~ I(1/bmi)"), "formula", "I(1 / bmi)", "range that holds 0"),
    (argument("formula", "diabetes ~ log(smoker)"), "formula", "log(smoker)", "has levels"),
    (argument("formula", "diabetes ~ exp(I(9*age))"), "formula", "exp(I(9 * age))", "too large"),
    (argument("formula", "diabetes ~ age.max()"), "formula", "age.max()", "only I, log, sqrt, exp"),
    (argument("formula", "diabetes ~ age + offset(smoker)"), "offset", "smoker", "must be numeric"),
    (argument("formula", "diabetes ~ (age + bmi)**20"), "formula", "diabetes ~ (age + bmi)**20", "powers of terms"),
    # the family
    (argument("family", "logit"), "family", "logit", "must be one of logistic, poisson, linear"),
    (argument("family", None), "family", "None", "must be one of logistic, poisson, linear"),
    (argument("family", "poisson"), "outcome", "diabetes", "poisson needs a count column"),
    (argument("formula", "visits ~ age"), "outcome", "visits", "logistic needs a binary column"),
    # the budget
    *[(argument("epsilon", value), "epsilon", str(value)[:70], "must be a number above 0")
      for value in (0, 0.0, -1, math.nan, math.inf, -math.inf, "1", None, True, [1], 1e10, 1e-300, Decimal(1), 1 + 0j)],
    *[(argument("delta", value), "delta", str(value)[:70], "above 0 and below 1")
      for value in (0, 1, 1.0, -1e-6, 2, math.nan, math.inf, "1e-6", None, False, 1e-200)],
    (tiny_budget, "epsilon", "1e-09", "so small"),
    (tiny_budget_of_moments, "epsilon", "1e-09", "so small"),
    (argument("epsilon", 1e8), "epsilon", "100000000.0", "so large"),
    (argument("epsilon", 3.0), "cost of the release", "epsilon", "would exceed the cap"),
    (spent_ledger, "cost of the release", "epsilon", "would exceed the cap"),
    # further options
    (argument("method", "stages"), "method", "stages", "must be one of looks, moments"),
    (argument("method", None), "method", "None", "must be one of looks, moments"),
    (argument("survey", "yesterday's"), "survey", "str", "must be a release by looks"),
    (of_moments("survey", "yesterday's"), "survey", "(a release)", "belongs to method='looks'"),
    *[(argument(name, value), name, str(value), "belongs to method='moments'")
      for name, value in (("radius", 1.0), ("allocation", "equal"), ("statistics", "paper"))],
    *[(of_moments("radius", value), "radius", str(value)[:70], "must be a number of at least 0.001")
      for value in (0, -1, math.nan, math.inf, "1", True)],
    *[(argument(name, HUGE), name, str(HUGE)[:70], "must be a number") for name in ("epsilon", "delta")],
    (of_moments("radius", HUGE), "radius", str(HUGE)[:70], "must be a number"),
    (of_moments("allocation", "best"), "allocation", "best", "must be"),
    (of_moments("allocation", None), "allocation", "None", "must be"),
    (of_moments("statistics", "all"), "statistics", "all", "'full', 'paper' or a list of pairs"),
    (of_moments("statistics", []), "statistics", "[]", "at least one block"),
    (of_moments("statistics", [(1, 1), (1, 1)]), "statistics", "[(1, 1), (1, 1)]", "none twice"),
    (of_moments("statistics", [(0, 9)]), "block", "(0, 9)", "degree 0 to 6"),
    (of_moments("statistics", 5), "statistics", "5", "pairs"),
    # the ledger
    (path("missing.ledger", "ledger"), "ledger", "missing.ledger", "no such file"),
    (path("folder", "ledger", folder=True), "ledger", "folder", "no such file"),
    (file("text.ledger", b"not a database at all, and long enough", "ledger"), "ledger", "text.ledger", "is not a"),
    (file("empty.ledger", b"", "ledger"), "ledger", "empty.ledger", "is not a"),
    (someone_elses_database, "ledger", "other.db", "is not a"),
    (other_ledger(name="patients-2023"), "dataset.id", "patients-2024", "is for 'patients-2023'"),
    (other_ledger(unit="one visit"), "dataset.unit", "one patient", "is for 'one visit'"),
    (argument("ledger", 5), "ledger", "5", "must be a path, a Ledger or None"),
    (argument("ledger", False), "ledger", "False", "must be a path, a Ledger or None"),
    # the table, where a look at the argument is enough
    (argument("table", None), "table", "NoneType", "must be a path"),
    (argument("table", 5), "table", "int", "must be a path"),
    (argument("table", ""), "table", "", "must not be empty"),
    (argument("table", [[1, 2]]), "table", "list", "must be a path"),
    (argument("table", CELLS), "table", "dict", "must be a path"),
    (argument("table", np.zeros((3, 3))), "table", "ndarray", "must be a path"),
    (path("missing.csv", "table"), "table", "missing.csv", "does not exist"),
    (path("folder", "table", folder=True), "table", "folder", "holds no file"),
    (file("patients.xlsx", b"PK", "table"), "table", "patients.xlsx", "must end in one of .csv"),
    (file("patients.csv", b"", "table"), "table", "patients.csv", "is empty"),
    (file("patients.csv", b"\nage,bmi\n1,2\n", "table"), "table", "patients.csv", "has a blank first line"),
    (file("patients.csv.gz", b"age,bmi\n1,2\n", "table"), "table", "patients.csv.gz", "cannot be read"),
    (file("patients.parquet", b"age,bmi\n1,2\n", "table"), "table", "patients.parquet", "not"),
    (file("patients.csv", b"age,bmi,diabetes\n1,2,zx9secret\n", "table"), "column", "smoker", "not in the table"),
    (file("patients.csv", b"age;bmi;diabetes;smoker\n1;2;3;4\n", "table"), "column", "diabetes", "not in the table"),
    (file("patients.csv", b"zx9,age,bmi,diabetes,smoker,age\n", "table"), "column", "age", "appears twice"),
    (parquet_table(columns=("age", "bmi", "diabetes")), "column", "smoker", "not in the table"),
    (parquet_table(rows=39), "dataset.rows", "40", "has 39 rows"),
    (pandas_table(rows=41), "dataset.rows", "40", "has 41 rows"),
    (pandas_table(rows=0), "dataset.rows", "40", "has 0 rows"),
]  # fmt: skip

# These need the header, which is public, but no rows.
BEFORE_THE_ROWS: list[tuple[Mistake, str, str, str]] = [
    (cells(smoker=None), "column", "smoker", "not in the table"),
    (cells(smoker=None, Smoker=["never"] * ROWS), "column", "smoker", "not in the table"),
    (twice, "column", "age", "appears twice"),
]

# And these cannot be known before the rows are counted.
AFTER_THE_ROWS: list[tuple[Mistake, str, str, str]] = [
    (schema("dataset.rows", 39), "dataset.rows", "39", "has 40 rows"),
    (schema("dataset.rows", 41), "dataset.rows", "41", "has 40 rows"),
    (cells(**{name: values[:0] for name, values in CELLS.items()}), "dataset.rows", "40", "has 0 rows"),
    (
        file("patients.csv", b"age,bmi,smoker,diabetes\n77.7770077,31.4159031,zx9secret,yes\n", "table"),
        "dataset.rows", "40", "has 1 rows",
    ),
]  # fmt: skip


def assert_well_said(error: InputError, name: str, value: str, rule: str) -> None:
    message = str(error)
    assert message.splitlines() == [message]
    assert message.isprintable()
    assert len(message) < 500
    assert message.startswith(f"{name} = ")
    assert value in message.removeprefix(f"{name} = ")
    assert rule in error.rule
    assert rule in message
    assert len(error.remedy) > 3
    assert message.endswith(error.remedy)
    assert not [secret for secret in SECRETS if secret in message]


def make_mistake(call: Call, mistake: Mistake, name: str, value: str, rule: str) -> InputError:
    """Make it, and check what is said and that nothing was spent or written."""
    mistake(call)
    entries, files = call.ledger.entries(), call.written()
    with pytest.raises(InputError) as caught:
        call.run()
    assert_well_said(caught.value, name, value, rule)
    assert call.ledger.entries() == entries
    assert call.written() == files
    return caught.value


@pytest.fixture
def no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a row fails, from whatever kind of table."""

    def refuse(self: tables.Source) -> None:
        raise AssertionError("rows were read")

    kinds = tables.Source.__subclasses__()
    assert len(kinds) >= 3
    for kind in kinds:
        monkeypatch.setattr(kind, "batches", refuse)


@pytest.mark.parametrize(("method", "charges"), [("looks", 7), ("moments", 1)])
def test_without_a_mistake_there_is_a_release(method: str, charges: int, call: Call) -> None:
    # Otherwise all that follows could fail for another reason.
    call.arguments["method"] = method
    release = call.run()
    assert call.table.opened
    assert call.table.read
    assert release.num_rows == ROWS
    assert len(call.ledger.entries()) == charges


@pytest.mark.parametrize("method", ["looks", "moments"])
def test_the_watch_works(method: str, call: Call, no_rows: None) -> None:
    """Reading rows is noticed: by its own error where a stream is kept, elsewhere by one that quotes nothing."""
    call.arguments["method"] = method
    with pytest.raises((InputError, AssertionError), match=r"could not be processed|rows were read"):
        call.run()
    assert call.table.opened
    assert not call.table.read


def identity(case: object) -> str | None:
    return case.replace(" ", "_")[:40] if isinstance(case, str) else None


@pytest.mark.usefixtures("no_rows")
@pytest.mark.parametrize(("mistake", "name", "value", "rule"), BEFORE_THE_TABLE, ids=identity)
def test_a_mistake_is_said_before_the_table_is_opened(
    mistake: Mistake, name: str, value: str, rule: str, call: Call
) -> None:
    make_mistake(call, mistake, name, value, rule)
    assert not call.table.opened


@pytest.mark.usefixtures("no_rows")
@pytest.mark.parametrize(("mistake", "name", "value", "rule"), BEFORE_THE_ROWS, ids=identity)
def test_a_mistake_in_the_header_is_said_before_a_row_is_read(
    mistake: Mistake, name: str, value: str, rule: str, call: Call
) -> None:
    make_mistake(call, mistake, name, value, rule)
    assert call.table.opened
    assert not call.table.read


@pytest.mark.parametrize(("mistake", "name", "value", "rule"), AFTER_THE_ROWS, ids=identity)
def test_a_mistake_found_after_reading_costs_nothing(
    mistake: Mistake, name: str, value: str, rule: str, call: Call
) -> None:
    make_mistake(call, mistake, name, value, rule)
    # The budget is whole: the same call without the mistake may still use it.
    assert call.ledger.summary().spent_epsilon == 0


def test_more_than_forty_mistakes_are_tried() -> None:
    assert len(BEFORE_THE_TABLE) + len(BEFORE_THE_ROWS) + len(AFTER_THE_ROWS) > 100


def test_a_file_that_ends_in_the_middle_costs_nothing_and_quotes_nothing(call: Call) -> None:
    whole = call.folder / "patients.parquet"
    pq.write_table(call.table.table, whole, compression="none", use_dictionary=False)
    content = bytearray(whole.read_bytes())
    content[4:60] = b"\xff" * 56  # the first pages; header and footer stay
    whole.write_bytes(content)
    call.arguments["table"] = whole
    with pytest.raises(FileError) as caught:
        call.run()
    assert_well_said(caught.value, "table", "patients.parquet", "could not be read to its end")
    assert call.ledger.entries() == ()


def test_a_stream_that_breaks_costs_nothing_and_quotes_nothing(call: Call) -> None:
    class Breaking(WatchedTable):
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            def batches() -> Iterator[pa.RecordBatch]:
                yield from self.table.slice(0, 5).to_batches()
                raise RuntimeError("cannot parse zx9secret")

            reader = pa.RecordBatchReader.from_batches(self.table.schema, batches())
            return reader.__arrow_c_stream__(requested_schema)

    call.arguments["table"] = Breaking()
    with pytest.raises(InputError) as caught:
        call.run()
    assert_well_said(caught.value, "table", "Breaking", "could not be read to its end")
    assert call.ledger.entries() == ()


def test_cells_of_every_wrong_kind_are_no_mistake(call: Call) -> None:
    # They are filled or clamped, without a word; nothing about a row may show.
    odd = [None, math.nan, math.inf, "zx9secret", 1e300, "", "-", b"\xff"]
    frame = pd.DataFrame({name: pd.Series(odd * 5, dtype=object) for name in CELLS})
    call.arguments["table"] = frame
    assert call.run().num_rows == ROWS


def test_moments_need_declared_bounds(call: Call, no_rows: None) -> None:
    """They are scaled by them; nothing is read from the rows in their place."""
    for bound in ("lower", "upper"):
        schema(f"columns.age.{bound}", ...)(call)
    call.arguments["method"] = "moments"
    with pytest.raises(InputError, match=r"has no declared bounds|never read from the rows"):
        call.run()
    assert not call.table.opened
    assert call.ledger.entries() == ()


@pytest.mark.parametrize("name", ["schema", "family", "epsilon", "delta", "ledger"])
def test_what_must_be_decided_has_no_default(name: str, call: Call) -> None:
    del call.arguments[name]
    with pytest.raises(TypeError, match=name):
        call.run()
    assert not call.table.opened


def test_a_cap_can_be_used_up_but_not_exceeded(call: Call) -> None:
    call.run()
    call.run()
    call.run()
    call.run()
    with pytest.raises(BudgetError) as caught:
        call.run()
    spent = len(call.ledger.entries())
    assert_well_said(caught.value, "cost of the release", "epsilon", "would exceed the cap")
    left = call.ledger.summary().remaining_epsilon
    assert f"ask for epsilon = {left:.6g} or less" in str(caught.value)
    assert len(call.ledger.entries()) == spent
    call.ledger.verify()


# Calls around a release


def other_calls(call: Call) -> list[tuple[str, Callable[[], Any], str, str]]:
    folder, release = call.folder, call.run()
    (folder / "text.json").write_text("text")
    dataset = dpglm.Schema.from_dict(SCHEMA).dataset

    def create(path: Path, epsilon: float = 1, delta: float = 1e-6) -> Callable[[], Any]:
        return lambda: dpglm.Ledger.create(path, dataset, epsilon=epsilon, delta=delta)

    return [
        ("output", lambda: release.save(folder / "missing" / "a.json"), "a.json", "cannot be written"),
        ("output", lambda: release.save(folder), str(folder)[:30], "cannot be written"),
        ("release", lambda: dpglm.load_release(folder / "missing.json"), "missing.json", "cannot be read"),
        ("release", lambda: dpglm.load_release(folder), str(folder)[:30], "cannot be read"),
        ("release", lambda: dpglm.load_release(folder / "text.json"), "text.json", "not valid JSON"),
        ("release", lambda: dpglm.load_release(call.ledger.path), "patients.ledger", "not"),
        ("ledger", create(call.ledger.path), "patients.ledger", "exists already"),
        ("ledger", create(folder / "no" / "new.ledger"), "new.ledger", "cannot be created"),
        ("epsilon", create(folder / "new.ledger", epsilon=0), "0", "above 0"),
        ("delta", create(folder / "new.ledger", delta=1), "1", "below 1"),
        ("ledger", lambda: dpglm.Ledger.open(folder / "text.json"), "text.json", "is not a dpglm ledger"),
        ("column", lambda: dpglm.check(pa.table({"age": [1.0]}), SCHEMA), "bmi", "not in the table"),
        ("schema", lambda: dpglm.check(pa.table({"age": [1.0]}), None), "NoneType", "must be a Schema"),
        ("table", lambda: dpglm.check(folder / "missing.csv", SCHEMA), "missing.csv", "does not exist"),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(14))
def test_mistakes_in_the_calls_around_a_release(number: int, call: Call) -> None:
    name, mistake, value, rule = other_calls(call)[number]
    before = call.written()
    with pytest.raises(InputError) as caught:
        mistake()
    assert_well_said(caught.value, name, value, rule)
    assert call.written() == before
