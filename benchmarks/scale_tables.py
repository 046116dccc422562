"""The tables of scale_rows.py and scale_spark.py, and their releases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from seeded_noise import SeededNoise

SEED = 20240701
PREDICTORS = 10
FILES = 20


def names() -> list[str]:
    return [f"x{j}" for j in range(PREDICTORS)]


def schema_of(rows: int) -> dict[str, Any]:
    columns: dict[str, Any] = {name: {"type": "numeric", "lower": -1, "upper": 1} for name in names()}
    columns["y"] = {"type": "binary", "levels": [0, 1], "fill": 0}
    return {"dataset": {"name": "scale", "rows": rows}, "columns": columns}


def columns_of(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Uniform predictors and a logistic outcome."""
    rng = np.random.default_rng([SEED, seed])
    x = 2 * rng.random((PREDICTORS, rows)) - 1
    y = rng.random(rows) < 1 / (1 + np.exp(-x[0] - x[1]))
    return {**dict(zip(names(), x, strict=True)), "y": y.astype(np.int64)}


def write_folder(folder: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for number in range(FILES):
        pq.write_table(pa.table(columns_of(rows // FILES, number)), folder / f"part-{number:02}.parquet")


def released(table: Any, rows: int, noise: Any = None) -> Any:
    """A release by looks: the table is read once for the survey, once for the profile, once for every look."""
    import dpglm
    from dpglm.custodian.build import Request, build_release

    schema = dpglm.Schema.from_dict(schema_of(rows))
    request = Request("y ~ " + " + ".join(names()), schema, "logistic", 1.0, 1e-6)
    return build_release(table, request, noise or SeededNoise(SEED))


def integers_of(release: Any) -> list[tuple[int, ...]]:
    """Every noisy integer: the survey's answers, the looks, and the profile."""
    answers = [integers for _, integers in release.survey_record.asked]
    looks = [block.integers for stage in release.stages for block in stage.blocks]
    return [*answers, *looks, *release.profile.counts]


def passes_of(release: Any) -> int:
    return len(release.stages) + 2


def made(table: Any, rows: int, noise: Any = None) -> list[tuple[int, ...]]:
    return integers_of(released(table, rows, noise))


def timed(function: Any, *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result
