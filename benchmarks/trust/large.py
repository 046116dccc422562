"""Cases that are drawn too rarely to be found by chance: many rows, and later stages centred by real fits."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from dpglm.custodian.build import build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.custodian.rows import fixed_point_rows
from dpglm.formula import build_design
from dpglm.schema import Schema
from trust.audit import require
from trust.cases import Case

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
    release = build_release(
        chunked, formula, schema, family, 1.0, 1e-6, None, None, "equal", "full", FixedNoise()
    )  # fmt: skip
    design = build_design(formula, Schema.from_dict(schema), family)
    batch = table.select([column.name for column in design.table_columns]).combine_chunks().to_batches()[0]
    rows = fixed_point_rows(batch, design, release.grid, release.radius)
    x, y = rows.x.astype(np.int64), rows.y.astype(np.int64)
    for block in release.blocks:
        for indices, integer in zip(block.shape.monomials(design.dimension), block.integers, strict=True):
            product = y**block.y_power
            for index in indices:
                product = product * x[index]
            exact = sum(int(part.sum()) for part in np.array_split(product, 64))  # parts stay below 2^63
            require("sums", exact == integer, f"a sum of {ROWS} rows is off by {integer - exact}")
    return ROWS


def fitted_case(family: str, stages: int, tables: int, seed: int) -> Case:
    """A case whose later stages are centred by real fits; one size of problem, so that it compiles once."""
    chance = Random(seed)
    outcome, declared = OUTCOMES[family]
    rows = 40
    schema = {
        "dataset": {"name": "patients", "rows": rows, "unit": "one patient"},
        "columns": {outcome: declared, "age": PREDICTORS["age"], "dose": PREDICTORS["dose"]},
    }
    ends = {"logistic": ("no", "yes"), "poisson": (0, 7), "linear": (-3, 10)}[family]

    def row(strange: bool) -> tuple[object, ...]:
        if strange:
            return (
                chance.choice((None, "zx9secret", 1e308)),
                chance.choice((20, 90, -1e9)),
                chance.choice((None, 3, 1e99)),
            )
        return chance.choice(ends), chance.uniform(15, 95), chance.uniform(0, 3.5)

    return Case(
        family=family, formula=f"{outcome} ~ age + dose", schema=schema, epsilon=5.0, delta=1e-5, radius=None,
        allocation="equal", statistics="full", stages=stages, source="arrow binary", command_line=False,
        rows=tuple(row(False) for _ in range(rows - 1)), position=17,
        candidates=tuple(row(number % 2 == 1) for number in range(tables)), seed=seed,
    )  # fmt: skip


def temporary_folder() -> str | None:
    """Where the many small files of a long run go: memory, if there is some, since nothing must survive it."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None
