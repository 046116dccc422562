"""Spark gives the integers of a single machine: whatever the columns, and although tasks fail, die and are repeated.

One real Spark is started for this file, in this process's Java: two cores, and two attempts a task.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpglm
from dpglm.blocks import BlockShape
from dpglm.cli import main
from dpglm.custodian import by_looks, by_moments, spark
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.custodian.passes import exact_sums
from dpglm.custodian.sums import BlockSums
from dpglm.custodian.tables import open_table
from dpglm.errors import FileError, InputError
from dpglm.formula import build_design
from dpglm.schema import Schema

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java 17 or newer, and there is none", allow_module_level=True)

ROWS = 3000
SECRET = "hunter2"
ROOT = Path(__file__).parent.parent.parent
CASES = [
    ("sick ~ `a.b` + site + dose", "logistic", "moments"),
    ("visits ~ `a.b` * arm + site", "poisson", "moments"),
    ("score ~ `a.b` + Arm + site", "linear", "moments"),
]
LOOKS = [(formula, family, "looks") for formula, family, _ in CASES]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Java's standard error goes."""
    return tmp_path_factory.mktemp("log") / "stderr"


@pytest.fixture(scope="module")
def session(log: Path) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    def quietly(step: Callable[[], Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how Spark starts and stops is its own affair
            return step()

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.caseSensitive": "true",  # the table has an arm and an Arm
        # To compile much for a few small jobs does not pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
    }
    kept = os.dup(2)
    with log.open("wb") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2,2]").config(map=settings)
        os.dup2(stream.fileno(), 2)
        try:
            started = quietly(builder.getOrCreate)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        yield started
        quietly(started.stop)


def schema(rows: int = ROWS) -> Schema:
    return Schema.from_dict(
        {
            "dataset": {"name": "patients", "rows": rows},
            "columns": {
                "a.b": {"type": "numeric", "lower": 20, "upper": 90, "fill": 31},
                "site": {"type": "categorical", "levels": ["north", "süd", "east"], "fill": "east"},
                "dose": {"type": "numeric", "lower": 0, "upper": 1},
                "arm": {"type": "binary", "levels": [1, 2], "fill": 1},
                "Arm": {"type": "binary", "levels": [False, True], "fill": False},
                "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
                "visits": {"type": "count", "upper": 9},
                "score": {"type": "numeric", "lower": -5, "upper": 15},
            },
        }
    )


def patients(rows: int = ROWS) -> pa.Table:
    """Every type that Spark and Arrow share, with cells that are missing, infinite, too large or unknown."""
    rng = np.random.default_rng(21)

    def some_missing(values: Any, kind: pa.DataType) -> pa.Array:
        return pa.array([None if rng.random() < 0.05 else value for value in values], kind)

    age = rng.normal(60, 30, rows)
    age[::97] = np.nan
    age[::101] = np.inf
    return pa.table(
        {
            "a.b": some_missing(age, pa.float64()),
            "site": some_missing(rng.choice(["north", "süd", "east", "west"], rows).tolist(), pa.string()),
            "dose": some_missing(
                [Decimal(n) / 100 for n in rng.integers(-20, 120, rows).tolist()], pa.decimal128(9, 2)
            ),
            "arm": some_missing(rng.integers(0, 4, rows).tolist(), pa.int8()),
            "Arm": some_missing((rng.random(rows) < 0.3).tolist(), pa.bool_()),
            "sick": some_missing(rng.choice([b"no", b"yes", b"Yes"], rows).tolist(), pa.binary()),
            "visits": some_missing(rng.poisson(3, rows).tolist(), pa.int64()),
            "score": some_missing(rng.normal(3, 9, rows).astype(np.float32).tolist(), pa.float32()),
            "when": pa.array(np.zeros(rows), pa.float64()).cast(pa.int32()).cast(pa.date32()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spark") / "patients"
    path.mkdir()
    for number, start in enumerate(range(0, ROWS, 1100)):
        pq.write_table(patients().slice(start, 1100), path / f"part-{number}.parquet", row_group_size=400)
    pq.write_table(patients().slice(0, 0), path / "part-9.parquet")
    return path


@pytest.fixture(scope="module")
def frame(session: Any, folder: Path) -> Any:
    return session.read.parquet(str(folder))


Integers = list[tuple[int, ...]]


def integers(table: Any, case: tuple[str, str, str] = CASES[0], rows: int = ROWS) -> Integers:
    formula, family, method = case
    release = build_release(table, Request(formula, schema(rows), family, 1.0, 1e-6, method=method), FixedNoise(5))
    record = release.survey_record
    survey = [] if record is None else [answers for _, answers in record.asked]
    profile = [] if release.profile is None else [*release.profile.counts]
    return survey + profile + [block.integers for stage in release.stages for block in stage.blocks]


@contextlib.contextmanager
def pandas_of_any_version() -> Iterator[None]:
    """What the tests themselves ask of Spark; dpglm's own calls must warn of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


# The same integers


@pytest.mark.parametrize("case", [*CASES, *LOOKS], ids=lambda case: f"{case[1]}-{case[2]}")
def test_the_integers_of_a_single_machine(frame: Any, case: tuple[str, str, str]) -> None:
    """Of looks: of the survey, the profile, and of five passes that each depend on those before."""
    assert integers(frame, case) == integers(patients(), case)


def test_partitions_and_batches_make_no_difference(session: Any, frame: Any) -> None:
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        assert integers(frame.repartition(5)) == integers(patients())
    finally:
        session.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_people_whose_rows_are_in_many_partitions_come_together(session: Any, tmp_path: Path) -> None:
    """By Spark's own shuffle: the integers of a single machine, also where one spells an id otherwise."""
    who = np.random.default_rng(4).integers(0, 300, ROWS)
    spelled = [None if n % 50 == 0 else f"{number:04d}" if n % 3 else str(number) for n, number in enumerate(who)]
    table = patients().append_column("id", pa.array(spelled, pa.string()))
    pq.write_table(table, tmp_path / "panel.parquet", row_group_size=200)
    declared = schema().to_dict()
    declared["dataset"] = {"name": "panel", "unit": "one person", "unit_column": "id", "units": len(set(who.tolist()))}
    request = Request("score ~ `a.b` + site", declared, "linear", 3.0, 1e-6)
    frame = session.read.parquet(str(tmp_path / "panel.parquet")).repartition(5)
    one, other = (build_release(each, request, FixedNoise(5)) for each in (frame, table))
    assert one.survey_record is not None
    assert other.survey_record is not None
    assert [answers for _, answers in one.survey_record.asked] == [answers for _, answers in other.survey_record.asked]
    assert one.profile == other.profile
    assert [stage.blocks for stage in one.stages] == [stage.blocks for stage in other.stages]


def test_one_other_cell_is_seen(frame: Any) -> None:
    """These comparisons can fail: a small change of one cell changes the integers."""
    age = next(age for age in patients()["a.b"].to_pylist() if age is not None and 30 < age < 80)
    changed = f"if(`a.b` = double('{age!r}'), `a.b` + 0.01, `a.b`) as `a.b`"
    assert integers(frame.selectExpr(changed, "site", "dose", "sick")) != integers(patients())


def test_integers_beyond_64_bits_come_back_whole(frame: Any) -> None:
    design = build_design(CASES[0][0], schema(), "logistic")

    def large(rows: Any) -> BlockSums:
        return BlockSums((BlockShape(0, 1),), ((3 * 2**70 * rows.num_rows, -(10**40) * rows.num_rows),), rows.num_rows)

    total = exact_sums(open_table(frame, design.table_columns), design, large)
    assert total.values == ((3 * 2**70 * ROWS, -(10**40) * ROWS),)


# Every partition once


def test_tasks_that_fail_or_die_count_once(session: Any, frame: Any, tmp_path: Path) -> None:
    """First attempts stop half-way: the first partition's by an error, the second's because its process is killed."""
    ledger_of_attempts = str(tmp_path)

    def unlucky(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        for number, batch in enumerate(batches):
            name = f"{partition}-{context.taskAttemptId()}-{number}-{batch.num_rows}"
            Path(ledger_of_attempts, name).touch()
            yield batch
            if attempt == 0 and partition == 0:
                raise RuntimeError("half-way")
            if attempt == 0 and partition == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        with pandas_of_any_version():
            plain = frame.repartition(3).toDF(*(f"c{number}" for number in range(len(frame.columns))))
            risky = plain.mapInArrow(unlucky, plain.schema).toDF(*frame.columns)
        assert integers(risky) == integers(patients())
    finally:
        session.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    seen = [tuple(map(int, path.name.split("-"))) for path in tmp_path.iterdir()]
    attempts = {partition: {seen[1] for seen in seen if seen[0] == partition} for partition in range(3)}
    assert [len(attempts[partition]) for partition in range(3)] == [2, 2, 1]
    # A pass that added up what every attempt read would count these rows twice.
    assert sum(rows for *_, rows in seen) > ROWS


# Mistakes, each in one line, and nothing about a cell anywhere


def refused(table: Any, kind: type[Exception] = InputError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        integers(table, **options)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_headers_are_checked_as_on_a_single_machine(frame: Any) -> None:
    for expressions in (
        ["site", "dose", "sick"],
        ["`a.b`", "site", "dose", "sick", "dose + 1 as dose"],
    ):
        selected = frame.selectExpr(*expressions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            local = selected.limit(3).toArrow()
        assert refused(selected) == refused(local)


def test_columns_of_every_type_are_taken_and_hold_no_numbers(frame: Any) -> None:
    nothing = patients().set_column(patients().schema.get_field_index("a.b"), "a.b", pa.nulls(ROWS))
    for expression in ("when", "array(1)", "named_struct('a', 1)", "make_interval(1)", "timestamp'2024-01-01'"):
        assert integers(frame.selectExpr(f"{expression} as `a.b`", "site", "dose", "sick")) == integers(nothing)


def test_levels_are_compared_by_value_whatever_the_column(frame: Any) -> None:
    expected = integers(patients(), CASES[1])
    for kind in ("double", "decimal(9, 2)", "string", "tinyint"):
        others = (f"`{name}`" for name in ("a.b", "visits", "site"))
        assert integers(frame.selectExpr(f"cast(arm as {kind}) as arm", *others), CASES[1]) == expected


def test_another_number_of_rows_is_refused(frame: Any) -> None:
    assert refused(frame, rows=ROWS - 1) == refused(patients(), rows=ROWS - 1)
    assert "the table has 0 rows" in refused(frame.where("false"))


def test_random_columns_are_refused_where_they_are_needed(frame: Any) -> None:
    assert "holds a random column" in refused(frame.selectExpr("90 * rand() as `a.b`", "site", "dose", "sick"))
    assert "holds a random column" in refused(frame.where("rand() < 0.5"))
    assert integers(frame.selectExpr("*", "uuid() as key")) == integers(patients())


@pytest.fixture
def said(session: Any) -> Iterator[list[str]]:
    """What pyspark's own loggers say."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [spark._python_logger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    for logger in loggers:
        logger.addHandler(handler)
    yield heard
    for logger in loggers:
        logger.removeHandler(handler)


def assert_no_cell(log: Path, before: int) -> None:
    """Python workers of Spark's write there too: that their rows stop coming, say. Only words about cells matter."""
    assert SECRET.encode() not in log.read_bytes()[before:]


BROKEN: dict[str, Callable[[Any], Any]] = {
    "a cast that fails": lambda frame: frame.selectExpr(
        f"cast(concat('{SECRET}', dose) as double) as `a.b`", "site", "dose", "sick"
    ),
    "an error of the user's own": lambda frame: frame.selectExpr(
        f"if(dose is null, raise_error(concat('{SECRET}', site)), 1.0) as `a.b`", "site", "dose", "sick"
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_job_that_fails_is_one_line_that_quotes_nothing(
    frame: Any, log: Path, name: str, said: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    before = log.stat().st_size
    line = refused(BROKEN[name](frame), FileError)
    assert line.startswith("table = a Spark DataFrame: its Spark job did not finish; try its .count()")
    assert capfd.readouterr().err == ""
    assert said == []
    assert_no_cell(log, before)


def test_spark_alone_would_quote_the_cell(
    session: Any, frame: Any, log: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silence is dpglm's doing, and it ends with the pass."""
    logger = session.sparkContext._jvm.org.slf4j.LoggerFactory.getLogger("org.apache.spark")
    with monkeypatch.context() as patch:
        patch.setattr(spark, "_silent", contextlib.nullcontext)
        refused(BROKEN["a cast that fails"](frame), FileError)
    assert SECRET in log.read_text()
    assert SECRET in said[0]
    before = log.stat().st_size
    with spark._silent(frame):
        logger.error("not heard")
    with pytest.raises(ZeroDivisionError), spark._silent(session):
        raise ZeroDivisionError
    logger.error("heard again")
    written = log.read_bytes()[before:]
    assert b"heard again" in written
    assert b"not heard" not in written


def test_a_bug_on_an_executor_says_nothing_about_rows(
    frame: Any, log: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(batch: Any, real: Any, **given: Any) -> Any:
        if batch.num_rows == 0:  # the driver asks what no rows give
            return real(batch, **given)
        raise ValueError(f"{SECRET}: {batch.column(0)[0]}")

    before = log.stat().st_size
    for case, module, name in (
        (CASES[0], by_moments, "moment_sums"), (LOOKS[0], by_looks, "profile_counts"), (LOOKS[0], by_looks, "look_sums")
    ):  # fmt: skip
        monkeypatch.setattr(module, name, partial(broken, real=getattr(module, name)))
        assert "its Spark job did not finish" in refused(frame, FileError, case=case)
    assert_no_cell(log, before)
    assert SECRET not in capfd.readouterr().err


def test_a_task_that_ends_after_the_failure_is_not_told_of(
    frame: Any, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition fails while the other's task is slow: a pass that did not wait for it would let Spark quote it.

    Where it takes too long the log stays off.
    """

    def broken(folder: Path, patience: float) -> Any:
        """The slow task ends a while after the last failure, or as soon as the pass has ended."""

        def uneven(batches: Any) -> Iterator[Any]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            if context.partitionId() == 0:
                if context.attemptNumber() == 1:
                    (folder / "failed").touch()
                raise ValueError(SECRET)
            while not (folder / "failed").exists():
                time.sleep(0.01)
            until = time.monotonic() + patience
            while time.monotonic() < until and not (folder / "ended").exists():
                time.sleep(0.01)
            yield from batches

        folder.mkdir()
        with pandas_of_any_version():
            plain = frame.repartition(2).toDF(*(f"c{number}" for number in range(len(frame.columns))))
            return plain.mapInArrow(uneven, plain.schema).toDF(*frame.columns)

    before = log.stat().st_size
    refused(broken(tmp_path / "awaited", patience=1.0), FileError)
    assert_no_cell(log, before)

    with spark._silent(frame):  # it ends without an error, and restores what the failure left off
        monkeypatch.setattr(spark, "_LONGEST_WAIT", 0.1)
        refused(broken(tmp_path / "too slow", patience=30.0), FileError)
        (tmp_path / "too slow/ended").touch()
        monkeypatch.undo()
        assert spark._tasks_ended(frame.sparkSession.sparkContext)
    assert_no_cell(log, before)

    monkeypatch.setattr(spark, "_tasks_ended", lambda _: True)
    refused(broken(tmp_path / "not awaited", patience=30.0), FileError)
    (tmp_path / "not awaited/ended").touch()
    until = time.monotonic() + 30
    while time.monotonic() < until and SECRET.encode() not in log.read_bytes()[before:]:
        time.sleep(0.05)
    assert SECRET.encode() in log.read_bytes()[before:]


def test_another_version_on_the_executors_is_refused(frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "version", lambda name: "9.9")
    assert re.search(r"^dpglm = \S+: is installed on the executors, and 9.9 on the driver", refused(frame))


# The other ways in


def test_check_counts_the_same(frame: Any) -> None:
    assert dpglm.check(frame, schema()) == dpglm.check(patients(), schema())


def command(table: object, output: Path, *options: str) -> list[str]:
    (output.parent / "t.toml").write_text(schema().to_toml())
    return [
        "release", str(table), "--schema", str(output.parent / "t.toml"), "--formula", CASES[0][0],
        "--family", "logistic", "--epsilon", "1", "--delta", "1e-6", "--no-ledger", "--output", str(output), *options,
    ]  # fmt: skip


def run(arguments: list[str]) -> object:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return stopped.value.code


@pytest.mark.usefixtures("frame")
def test_the_command_line_reads_a_path_with_spark(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpglm.custodian.build.OperatingSystemNoise", lambda: FixedNoise(5))
    output = tmp_path / "r.json"
    assert run(command(folder, output, "--engine", "spark", "--quiet")) == 0
    stages = dpglm.load_release(output).stages
    assert [block.integers for stage in stages for block in stage.blocks] == integers(patients(), LOOKS[0])[-15:]
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    ("table", "engine", "line"),
    [
        ("none", "spark", "none: cannot be read by Spark; check the path"),
        ("patients.csv", "spark", "must be Parquet or ORC for Spark, not CSV"),
        ("patients", "sparc", "engine = sparc: must be local or spark"),
    ],
)
def test_mistakes_at_the_command_line(
    table: str, engine: str, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(command(tmp_path / table, tmp_path / "r.json", "--engine", engine)) == 1
    error = capfd.readouterr().err
    assert line in error
    assert error.count("\n") == 1
    assert not (tmp_path / "r.json").exists()


def test_without_java_or_pyspark_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": "/nowhere"}
    asked = [sys.executable, "-m", "dpglm", *command(tmp_path / "t", tmp_path / "r.json", "--engine", "spark")]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("engine = spark: cannot be started; check with `java -version`")
    assert done.stderr.count("\n") == 1
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(InputError, match="needs pyspark, which is not installed"):
        spark.read_with_spark("t")


def test_pyspark_is_imported_only_for_spark(tmp_path: Path) -> None:
    pq.write_table(patients(), tmp_path / "t.parquet")
    code = f"from dpglm.cli import main; import sys; sys.argv[1:] = {command(tmp_path / 't.parquet', tmp_path / 'r')!r}"
    code += "\ntry: main()\nfinally: print([name for name in sys.modules if name.startswith('pyspark')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("\n[]\n"), done.stderr


@pytest.mark.usefixtures("session")
def test_the_documented_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows it as text, because Java is not everywhere."""
    from dpglm import demo

    (code,) = re.findall(r"```text\n(# Spark\n.*?)```", (ROOT / "docs/custodian.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.Table.from_pandas(demo.simulated_table()), "patients.parquet")
    Path("patients.toml").write_text(demo.SCHEMA)
    names: dict[str, Any] = {"dpglm": dpglm, "schema": Schema.load("patients.toml")}
    names["ledger"] = dpglm.Ledger.create("p.ledger", names["schema"].dataset, epsilon=3, delta=1e-6)
    code = code.replace('"patients.parquet"', repr(str(tmp_path / "patients.parquet")))  # Java stands in another folder
    exec(compile(code, "custodian.md", "exec"), names)
    assert names["release"].num_rows == 8000
