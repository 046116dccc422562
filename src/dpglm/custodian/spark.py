"""The release pass on Spark: executors return exact integers, the driver merges them.

Guarantee: the integers are those of a single machine, bit for bit. Rows are read by the same code there
(``passes.batch_sums``), and integers add up in any order. Every partition counts once: tasks have no side effects, and
what ``collect`` returns holds one result for each partition, that of the attempt which Spark accepted; failed, repeated
and speculative attempts are dropped. Where a lost executor makes Spark compute a partition again, it holds the same
rows, because a plan that says of itself that it is random is refused (Spark Connect does not tell), and because Spark
gives up a job whose shuffled rows could come back in another order. The number of rows is checked in every stage.

Edge cases: a partition without rows contributes nothing. A cell that Spark itself cannot compute (a cast that fails, a
torn file) ends the job with one line that quotes nothing; Spark's own log is switched off meanwhile, on the driver, and
after a failure until the last task has ended, because Spark tells of it with the words of the failure. Where that
cannot be known, the log stays off. Executors keep logs of their own: they belong to the rows. Processors of different
makes may differ in the last bit of a later stage's table of residuals, which moves some integers by one step and no
bound.

pyspark is imported only where a Spark DataFrame is given or asked for. Executors need the same dpglm as the driver.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dpglm.custodian.files import TEXT_SUFFIXES
from dpglm.custodian.grouping import in_order, with_keys
from dpglm.custodian.sums import BlockSums, Sums
from dpglm.custodian.survey_counts import TableCounts
from dpglm.custodian.tables import Source, check_names, slices
from dpglm.errors import DpglmError, FileError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = "a Spark DataFrame"
_WAIT, _LONGEST_WAIT = 0.05, 20.0  # seconds between two looks at the tasks of a job that failed, and of all of them
_QUIET_LOOKS = 6  # in a row: the last line about a task may come a moment after its end


@dataclass
class SparkSource(Source):
    """A Spark DataFrame whose header has been checked."""

    frame: Any = None
    is_grouped: bool = False
    _needed: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        from pyspark.sql.functions import col, lit

        with _one_line("cannot be analysed", "check its columns with .printSchema()"):
            names, fields = list(self.frame.columns), list(self.frame.schema.fields)
        check_names(names, self.columns)
        needed = [names.index(column.name) for column in self.columns]
        # By position: Spark takes "Age" for "age", and "a.b" for a part of "a".
        with _one_line("cannot be analysed", "check that its session is running"):
            renamed = self.frame.toDF(*(f"column{position}" for position in range(len(names))))
            self._needed = renamed.select(
                *(
                    col(f"column{position}") if _known_to_arrow(fields[position].dataType) else lit(None).cast("string")
                    for position in needed
                )
            )
        self._refuse_random()

    def grouped(self) -> SparkSource:
        """The same rows, those of a unit in one partition: Spark's own shuffle, by the spelling of the last column."""
        from pyspark.sql.types import BinaryType, StructField, StructType

        names = [f"column{n}" for n in range(len(self.columns) - 1)]
        with _silent(self.frame), _one_line("cannot be analysed", "check its columns with .printSchema()"):
            fields = [StructField(name, kept.dataType) for name, kept in zip(names, self._needed.schema, strict=False)]
            shape = StructType([*fields, StructField("unit", BinaryType())])
            keyed = _mapped(self._needed, _keyed, shape)
            found = replace(self, is_grouped=True)
            found._needed = keyed.repartition("unit")
        return found

    def _refuse_random(self) -> None:
        if not hasattr(self._needed, "_jdf"):
            return
        with _silent(self.frame), _one_line("cannot be analysed", "check it with .explain()"):
            deterministic = self._needed._jdf.queryExecution().optimizedPlan().deterministic()
        if not deterministic:
            rule = "holds a random column (rand, uuid, ...): its rows would change when they are computed again"
            raise InputError("table", _NAME, rule, "write it to Parquet and release that")

    def sums(self, of_batch: Callable[[pa.RecordBatch], Sums]) -> Iterator[Any]:
        """The exact sums of every partition that holds rows, each once."""
        function = partial(_grouped_sums if self.is_grouped else _partition_sums, of_batch=of_batch)
        with _silent(self.frame), _one_line(*_UNFINISHED):
            rows = _mapped(self._needed, function, "sums string").collect()
        return iter([_decoded(row[0]) for row in rows])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Every batch, brought to the driver partition by partition: for ``dpglm.check``, not for a release."""
        import pyarrow as pa

        with _silent(self.frame), _one_line(*_UNFINISHED):
            for row in _mapped(self._needed, _as_messages, "batch binary").toLocalIterator():
                with pa.ipc.open_stream(row[0]) as reader:
                    yield from reader


def _known_to_arrow(kind: Any) -> bool:
    """Cells of a type that only Spark has are read as missing."""
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        to_arrow_type(kind)
    except Exception:
        return False
    return True


_UNFINISHED = ("its Spark job did not finish", "try its .count(), and whether every executor can import dpglm")


def read_with_spark(path: str) -> Any:
    """The DataFrame of a Parquet or ORC table that Spark can reach, in the session there is or in a new one.

    CSV is not read this way: Spark keeps half of an odd line, dpglm makes it a row of missing values.
    """
    name = path.rstrip("/").lower()
    if name.endswith(TEXT_SUFFIXES):
        raise FileError("table", path, "must be Parquet or ORC for Spark, not CSV", "leave --engine out, or convert it")
    kind = "orc" if name.endswith(".orc") else "parquet"
    session = _session()
    with _silent(session), _one_line("cannot be read by Spark", "check the path; it must hold Parquet or ORC", path):
        return session.read.format(kind).load(path)


def _session() -> Any:
    """The active session, or a new one of Spark's own configuration, which says nothing on standard error."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        remedy = "install it with `python -m pip install 'dpglm[spark]'`"
        raise InputError("engine", "spark", "needs pyspark, which is not installed", remedy) from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with _no_standard_error():  # Java inherits it, and would greet
            builder = SparkSession.builder.appName("dpglm").config("spark.ui.showConsoleProgress", "false")
            return builder.getOrCreate()
    except Exception:
        remedy = "check with `java -version` that Java 17 or newer is there"
        raise InputError("engine", "spark", "cannot be started", remedy) from None


# On the executors


def _partition_sums(batches: Iterable[pa.RecordBatch], of_batch: Callable[[Any], Any]) -> Iterator[Any]:
    """One line of JSON for a partition; none where it has no rows."""
    import pyarrow as pa

    total: Any = None
    try:
        for batch in batches:
            for piece in slices(batch):
                part = of_batch(piece)
                total = part if total is None else total + part
    except Exception:
        raise RuntimeError("dpglm could not process a partition") from None
    if total is not None:
        yield pa.record_batch({"sums": pa.array([_encoded(total)])})


def _keyed(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Rows that belong to a unit, with its key."""
    try:
        for batch in batches:
            for piece in slices(batch):
                yield with_keys(piece)
    except Exception:
        raise RuntimeError("dpglm could not process a partition") from None


def _grouped_sums(batches: Iterable[pa.RecordBatch], of_batch: Callable[[Any], Any]) -> Iterator[Any]:
    """One line of JSON for a partition that holds units whole."""
    import pyarrow as pa

    total: Any = None
    try:
        for batch in in_order(batches):
            part = of_batch(batch)
            total = part if total is None else total + part
    except Exception:
        raise RuntimeError("dpglm could not process a partition") from None
    if total is not None:
        yield pa.record_batch({"sums": pa.array([_encoded(total)])})


def _as_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Each batch as one cell."""
    import pyarrow as pa

    for batch in batches:
        for piece in slices(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(piece)
            yield pa.record_batch({"batch": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


# Between executors and the driver


_KINDS: dict[str, type[Sums]] = {kind.__name__: kind for kind in (BlockSums, TableCounts)}


def _encoded(sums: Sums) -> str:
    return json.dumps({"version": version("dpglm"), "kind": type(sums).__name__, "sums": sums.to_json()})


def _decoded(text: str) -> Sums:
    facts = json.loads(text)
    if facts["version"] != version("dpglm"):
        rule = f"is installed on the executors, and {version('dpglm')} on the driver"
        raise InputError("dpglm", facts["version"], rule, "install the same everywhere")
    return _KINDS[facts["kind"]].from_json(facts["sums"])


# Spark's own words


def _mapped(frame: Any, function: Callable[..., Iterator[Any]], schema: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # which pandas Spark likes: no pandas is used here
        return frame.mapInArrow(function, schema)


@contextmanager
def _one_line(rule: str, remedy: str, name: str = _NAME) -> Iterator[None]:
    """Any error of Spark, whose words may quote a cell, becomes one fixed line."""
    try:
        yield
    except DpglmError:
        raise
    except Exception:
        raise FileError("table", name, rule, remedy) from None


@contextmanager
def _silent(frame: Any) -> Iterator[None]:
    """Spark's log and pyspark's say nothing meanwhile: what they say of a failed task may quote a cell.

    After an error they are heard again once its tasks have ended; where these do not end, or cannot be asked, never.
    """
    with ExitStack() as restore:
        switched_off = None
        with suppress(Exception):  # Spark Connect: its log is on the server
            for logger in map(_python_logger, ("DataFrameQueryContextLogger", "SQLQueryContextLogger")):
                restore.callback(setattr, logger, "disabled", logger.disabled)
                logger.disabled = True
            context = getattr(frame, "sparkSession", frame).sparkContext
            log4j = context._jvm.org.apache.logging.log4j
            log = log4j.LogManager.getContext(False)
            restore.callback(log.updateLoggers)
            # Not setLogLevel: it cannot be undone in an interactive session.
            for logger in log.getConfiguration().getLoggers().values():
                restore.callback(logger.setLevel, logger.getLevel())
                logger.setLevel(log4j.Level.OFF)
            log.updateLoggers()
            switched_off = context
        try:
            yield
        except BaseException:
            heard_again = restore.pop_all()
            if switched_off is None or _tasks_ended(switched_off):
                heard_again.close()
            raise


def _tasks_ended(context: Any) -> bool:
    """Waits until no task of a failed stage is left, and says whether that came in time.

    Of the scheduler itself: the status tracker is some tenths of a second late. Other jobs of the session go on.
    """
    until, quiet_looks = time.monotonic() + _LONGEST_WAIT, 0
    try:
        while quiet_looks < _QUIET_LOOKS and time.monotonic() < until:
            quiet_looks = 0 if any(map(_is_leftover, _elements(context._jsc.sc().getAllPools()))) else quiet_looks + 1
            time.sleep(_WAIT)
    except Exception:
        return False
    return quiet_looks == _QUIET_LOOKS


def _is_leftover(scheduled: Any) -> bool:
    """A stage that has failed or is done, of which tasks still run; or a pool of a fair scheduler that holds one."""
    stages = scheduled.schedulableQueue()
    return scheduled.isZombie() if stages is None else any(map(_is_leftover, _elements(stages)))


def _elements(collection: Any) -> Iterator[Any]:
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _python_logger(name: str) -> Any:
    from pyspark.logger import PySparkLogger

    return PySparkLogger.getLogger(name)


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """What this process and those that it starts write there is lost."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
