"""A release on Spark beside one on a single machine: the same integers, although an executor is killed half-way.

Spark is a ``local-cluster`` of two executors, each a process of its own; for a speculative attempt, which Spark starts
on another host only, two workers with addresses of their own. Called by scale_rows.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scale_tables import FILES, made, timed

FEW_FILES = 2  # of the same folder: what a smaller table is made of
KILLED_IN = 4  # the pass in which an executor is killed: survey and two looks before it are done
HANGS = 60  # seconds, of a task that is overtaken


@contextlib.contextmanager
def session_at(master: str, **settings: str) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.files.maxPartitionBytes": str(2**24),
    }
    session = SparkSession.builder.master(master).appName("scale").config(map=common | settings).getOrCreate()
    try:
        yield session
    finally:
        application = session.sparkContext.applicationId
        session.stop()
        shutil.rmtree(home() / "work" / application, ignore_errors=True)  # what the executors wrote


def home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """A master, and workers on two addresses of this machine: a second attempt at a task must run on another host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    master = f"spark://127.0.0.1:{port}"
    commands = {
        "127.0.0.1": ("master.Master", "--host", "127.0.0.1", "--port", port),
        "127.0.0.2": ("worker.Worker", "--host", "127.0.0.2", "--cores", "1", "--memory", "1g", master),
        "127.0.0.3": ("worker.Worker", "--host", "127.0.0.3", "--cores", "1", "--memory", "1g", master),
    }
    started = []
    try:
        for host, (name, *options) in commands.items():
            command = [
                str(home() / "bin/spark-class"),
                f"org.apache.spark.deploy.{name}",
                "--webui-port",
                "0",
                *options,
            ]
            environment = os.environ | {"SPARK_LOCAL_IP": host, "SPARK_WORKER_DIR": str(folder / host)}
            with (folder / f"{host}.log").open("w") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        wait_for(int(port))
        yield master
    finally:
        for process in started:
            process.terminate()
            process.wait()


def wait_for(port: int) -> None:
    """Until somebody listens, for ten minutes at most."""
    for _ in range(6000):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise TimeoutError("the master did not start")


def executors() -> list[int]:
    """Process ids of the executors that this process's Java started."""
    parents, words = {}, {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(process.name)] = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
                words[int(process.name)] = (process / "cmdline").read_bytes()
    found = []
    for identity in parents:
        ancestor = identity
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid() and b"CoarseGrainedExecutorBackend" in words.get(identity, b""):
            found.append(identity)
    return sorted(found)


def kill_half_way(session: Any, seen: dict[str, Any]) -> None:
    """Wait until some tasks of a pass in the middle are done, and end one executor's process."""
    tracker = session.sparkContext.statusTracker()
    passes: set[int] = set()
    while not seen.get("over"):
        time.sleep(0.05)
        for stage in tracker.getActiveStageIds():
            facts = tracker.getStageInfo(stage)
            if facts is None or facts.numTasks == 1:
                continue
            passes.add(stage)
            if len(passes) == KILLED_IN and facts.numCompletedTasks * 4 >= facts.numTasks:
                victim = executors()[0]
                os.kill(victim, signal.SIGKILL)
                seen |= {"tasks": facts.numTasks, "done_before": facts.numCompletedTasks, "stage": stage}
                while not seen.get("over"):  # how many attempts that cost
                    facts = tracker.getStageInfo(stage)
                    seen["failed"] = max(seen.get("failed", 0), 0 if facts is None else facts.numFailedTasks)
                    time.sleep(0.05)


def with_a_killed_executor(session: Any, frame: Any, rows: int) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    killer = threading.Thread(target=kill_half_way, args=(session, seen))
    killer.start()
    try:
        seconds, integers = timed(made, frame, rows)
    finally:
        seen["over"] = True
        killer.join()
    assert "tasks" in seen, "the pass was over before an executor could be killed"
    return {
        "seconds": round(seconds, 1), "tasks": seen["tasks"], "tasks_done_before": seen["done_before"],
        "failed_attempts": seen["failed"], "integers": integers,
    }  # fmt: skip


def with_a_slow_task(table: Path, rows: int, folder: Path) -> dict[str, Any]:
    """The first attempt at the first partition hangs, once: a speculative one overtakes it."""
    attempts = folder / "attempts"
    attempts.mkdir()
    folder_of_attempts = str(attempts)

    def slow(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        mark = Path(folder_of_attempts, f"{context.partitionId()}-{context.attemptNumber()}")
        hangs = context.partitionId() == context.attemptNumber() == 0 and not mark.exists()
        mark.touch()
        for number, batch in enumerate(batches):
            yield batch
            if hangs and number == 0:
                time.sleep(HANGS)

    speculation = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
    }
    with two_hosts(folder) as master, session_at(master, **speculation) as session:
        frame = session.read.parquet(str(table)).repartition(8)  # so that every task has rows
        seconds, integers = timed(made, frame.mapInArrow(slow, frame.schema), rows)
    started = [tuple(map(int, path.name.split("-"))) for path in attempts.iterdir()]
    assert (0, 1) in started, "there was no second attempt"
    return {
        "seconds": round(seconds, 1),
        "partitions": len({partition for partition, _ in started}),
        "attempts": len(started),
        "integers": integers,
    }


def small_table(table: Path) -> Path:
    """A folder of some files of the large one."""
    part = table.parent / "part"
    if not part.exists():
        part.mkdir()
        for number in range(FEW_FILES):
            os.link(table / f"part-{number:02}.parquet", part / f"part-{number:02}.parquet")
    return part


def speculation_part(table: Path, rows: int) -> dict[str, Any]:
    part, few_rows = small_table(table), rows // FILES * FEW_FILES
    slow = with_a_slow_task(part, few_rows, table.parent)
    return {"rows": few_rows, "same_integers": slow.pop("integers") == made(str(part), few_rows), **slow}


def spark_part(table: Path, rows: int) -> dict[str, Any]:
    import pyspark

    part, few_rows = small_table(table), rows // FILES * FEW_FILES
    changed = table.parent / "changed"
    shutil.copytree(part, changed)
    change_one_cell(changed / "part-00.parquet")
    with session_at("local-cluster[2,1,1024]") as session:
        whole = session.read.parquet(str(table))
        unchanged = made(str(part), few_rows)
        result = {
            "versions": {"pyspark": pyspark.__version__, "java": java_version()},
            "rows": rows,
            "files": FILES,
            "one_changed_cell_is_seen": made(session.read.parquet(str(changed)), few_rows) != unchanged,
        }  # executors and their Python have started by now
        local_seconds, expected = timed(made, str(table), rows)
        spark_seconds, integers = timed(made, whole, rows)
        killed = with_a_killed_executor(session, whole, rows)
    result |= {
        "compared_integers": sum(map(len, expected)),
        "local_seconds": round(local_seconds, 2),
        "spark_seconds": round(spark_seconds, 2),
        "same_integers": integers == expected,
        "killed": {"same_integers": killed.pop("integers") == expected, **killed},
    }
    return result


def change_one_cell(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    values = table["x0"].to_numpy().copy()
    values[1] = values[1] / 2 + 0.25
    pq.write_table(table.set_column(table.schema.get_field_index("x0"), "x0", pa.array(values)), file)


def java_version() -> str:
    line = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return line.split('"')[1]
