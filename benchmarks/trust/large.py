"""Cases that are drawn too rarely to be found by chance: many rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from dpglm.custodian.bounded_rows import bounded_vectors, standard_rows
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.custodian.rows import fixed_point_rows
from dpglm.formula import build_design
from dpglm.releases import Block, Release
from dpglm.schema import Schema
from trust.audit import require

ROWS = 40_000
OUTCOMES = {
    "logistic": ("sick", {"type": "binary", "levels": ["no", "yes"], "fill": "no"}),
    "poisson": ("visits", {"type": "count", "upper": 7, "fill": 1}),
    "linear": ("score", {"type": "numeric", "lower": -3, "upper": 10}),
}
PREDICTORS = {
    "age": {"type": "numeric", "lower": 20, "upper": 90},
    "dose": {"type": "numeric", "lower": 0.1, "upper": 3},
    "site": {"type": "categorical", "levels": ["north", "south", "east"], "fill": "south"},
}


def check_large_table(chance: Random, family: str) -> int:
    """Sums of so many rows near the corners pass 2^53: they are exact all the same, in any chunks. Returns the rows."""
    outcome, declared = OUTCOMES[family]
    schema = {
        "dataset": {"name": "large", "rows": ROWS, "unit": "one patient"},
        "columns": {outcome: declared, **PREDICTORS},
    }
    formula = f"{outcome} ~ age + log(dose)"
    numbers = np.random.default_rng(chance.randrange(2**32))
    table = pa.table({
        "sick": numbers.choice(["no", "yes"], ROWS), "visits": numbers.integers(5, 9, ROWS),
        "score": numbers.uniform(9, 11, ROWS), "age": numbers.uniform(85, 91, ROWS),
        "dose": numbers.uniform(2.7, 3, ROWS),
    })  # fmt: skip
    size = chance.randint(100, ROWS)
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=size))
    design = build_design(formula, Schema.from_dict(schema), family)
    batch = table.select([column.name for column in design.table_columns]).combine_chunks().to_batches()[0]
    for method in ("moments", "looks"):
        request = Request(formula, schema, family, 1.0, 1e-6, method=method)
        release = build_release(chunked, request, FixedNoise())
        for stage_number, products in enumerate(_products(release, batch)):
            for block, of_rows in zip(release.stages[stage_number].blocks, products, strict=True):
                for product, integer in zip(of_rows, block.integers, strict=True):
                    exact = sum(int(part.sum()) for part in np.array_split(product, 64))  # parts stay below 2^63
                    require("sums", exact == integer, f"a sum of {ROWS} rows is off by {integer - exact}")
    return ROWS


def _products(release: Release, batch: pa.RecordBatch) -> Iterator[list[list[Any]]]:
    """Of every stage and block, what each row gives every monomial, as integers of 64 bits."""
    design = release.design
    if release.method == "moments":
        rows = fixed_point_rows(batch, design, release.grid, release.radius)
        vectors = [(rows.x, rows.y)] * len(release.blocks)
        yield [_of_block(block, *each) for block, each in zip(release.blocks, vectors, strict=True)]
    for stage in release.stages:
        if stage.viewpoint is not None:
            score, information = bounded_vectors(standard_rows(batch, design), design, stage.viewpoint)
            ones = np.ones(ROWS)
            yield [_of_block(block, each, ones) for block, each in
                   zip(stage.blocks, (score, information, score), strict=True)]  # fmt: skip


def _of_block(block: Block, x: Any, y: Any) -> list[Any]:
    x, y = x.astype(np.int64), y.astype(np.int64)
    found = []
    for indices in block.shape.monomials(len(x)):
        product = y**block.y_power
        for index in indices:
            product = product * x[index]
        found.append(product)
    return found


def temporary_folder() -> str | None:
    """Where the many small files of a long run go: memory, if there is some, since nothing must survive it."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None
