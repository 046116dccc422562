"""One call from a table to a release: Schema -> Design -> Mechanism -> rows -> sums -> ledger -> noise -> Release.

Guarantee: the returned release is (epsilon, delta)-differentially private for one replaced row, and its ledger
entry was durable before noise was drawn. Order of events: everything that can be wrong without rows is checked; the
rows are summed exactly, in memory; the entry is committed; noise is drawn and added; the finished release is kept
in the ledger.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpglm.custodian.ledger import Ledger
from dpglm.custodian.mechanism import Mechanism, calibrate
from dpglm.custodian.noise import NoiseSource, OperatingSystemNoise, add_noise
from dpglm.custodian.rows import fixed_point_rows
from dpglm.custodian.sums import BlockSums, block_sums, zero_sums
from dpglm.custodian.tables import Source, open_table
from dpglm.errors import DpglmError, FileError, InputError
from dpglm.formula import Design, build_design
from dpglm.release_file import Block, LedgerFact, Release, Stage
from dpglm.schema import Schema

_WORKERS = min(4, os.cpu_count() or 1)
_LIBRARIES = ("numpy", "pyarrow", "opendp", "dp-accounting")


def release(
    table: Any,
    formula: str,
    *,
    schema: Schema,
    family: str,
    epsilon: float,
    delta: float,
    ledger: str | Path | Ledger | None,
    radius: float | None = None,
    allocation: str = "auto",
    statistics: Any = "full",
) -> Release:
    """Turn a sensitive table into one noisy, self-describing release.

    Parameters
    ----------
    table
        A path (CSV, Parquet, a folder of them), a pandas DataFrame, or anything that exports an Arrow stream.
    formula
        ``"y ~ a + b + a:b"`` over columns declared in the schema.
    schema
        Bounds, levels, fill values, the public number of rows. Nothing is inferred from the rows.
    family
        "logistic", "poisson" or "linear".
    epsilon, delta
        What this release may cost, for one replaced row.
    ledger
        Path of the dataset's ledger (``dpglm.Ledger.create``), or None, explicitly, to keep no account.
    radius
        Hold rows in a smaller ball: less noise, but longer rows are shortened. Default: no row is changed.
    allocation
        "auto" (least posterior standard deviation at a public nominal point) or "equal" (the paper's).
    statistics
        "full", "paper" (the paper's lists: no intercept, predictors with mean zero) or (y power, degree) pairs.

    Edge cases: cells that are missing, unreadable, not finite or of an unknown level become the declared fill;
    numbers are clamped; rows are never dropped. A table with another number of rows than declared is refused before
    anything is spent.
    """
    return build_release(
        table, formula, schema, family, epsilon, delta, ledger, radius, allocation, statistics, OperatingSystemNoise()
    )


def build_release(
    table: Any,
    formula: object,
    schema: object,
    family: object,
    epsilon: object,
    delta: object,
    ledger: object,
    radius: object,
    allocation: object,
    statistics: object,
    noise: NoiseSource,
) -> Release:
    """``release`` with its noise as an argument, which only tests have a use for."""
    design = build_design(formula, as_schema(schema), family)
    mechanism = calibrate(design, epsilon, delta, radius, allocation, statistics)
    book = _open_ledger(ledger, design, mechanism)
    source = open_table(table, design.table_columns)
    _check_rows(source.num_rows, design)
    # From here on rows are read; only their number, which is public, may lead to an error.
    sums = exact_sums(source, design, mechanism)
    _check_rows(sums.num_rows, design)
    identity = uuid.uuid4().hex
    fact = _spend(book, identity, design, mechanism)
    stage = Stage("moments", mechanism.allocation, mechanism.privacy.mu, _noisy_blocks(sums, mechanism, noise))
    result = Release(
        id=identity,
        time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        versions={"dpglm": version("dpglm")} | {name: version(name) for name in _LIBRARIES},
        design=_public_design(design),
        radius=mechanism.radius,
        grid=mechanism.grid,
        stages=(stage,),
        privacy=mechanism.privacy,
        ledger=fact,
        private=noise.private,
    )
    if book is not None:
        book.keep(identity, result.to_json())
    return result


def exact_sums(source: Source, design: Design, mechanism: Mechanism) -> BlockSums:
    """The exact integers of all rows. Batches are summed by a few threads; integers add up in any order."""

    def one_batch(batch: Any) -> BlockSums:
        return block_sums(fixed_point_rows(batch, design, mechanism.grid, mechanism.radius), mechanism.blocks)

    total = zero_sums(mechanism.blocks, design.dimension)
    try:
        with ThreadPoolExecutor(_WORKERS) as pool:
            for sums in _in_flight(pool, one_batch, source.batches()):
                total += sums
    except DpglmError:
        raise
    except Exception:
        # No row can lead here by design; if one ever does, its content must not be in the message.
        raise FileError("table", "(its rows)", "could not be processed", "report this: it is a bug of dpglm") from None
    return total


def _in_flight(pool: ThreadPoolExecutor, function: Any, items: Iterable[Any]) -> Iterator[Any]:
    """Map over a stream with a bounded number of items in memory."""
    waiting: deque[Future[Any]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > 2 * _WORKERS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def as_schema(schema: object) -> Schema:
    """A Schema, a dict of its shape, or the path of its file."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, str | Path):
        return Schema.load(schema)
    if isinstance(schema, Mapping):
        return Schema.from_dict(schema)
    raise InputError("schema", type(schema).__name__, "must be a Schema, a dict or a path", "use dpglm.Schema.load")


def _open_ledger(ledger: object, design: Design, mechanism: Mechanism) -> Ledger | None:
    if ledger is None:
        return None
    if not isinstance(ledger, str | Path | Ledger):
        raise InputError("ledger", ledger, "must be a path, a Ledger or None", "pass the dataset's ledger file")
    book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    book.check_dataset(design.schema.dataset)
    book.check_affordable(mechanism.privacy.mu * mechanism.privacy.mu)
    return book


def _check_rows(found: int | None, design: Design) -> None:
    declared = design.schema.dataset.rows
    if found is not None and found != declared:
        raise InputError("dataset.rows", declared, f"the table has {found} rows", "declare the table's number of rows")


def _spend(book: Ledger | None, identity: str, design: Design, mechanism: Mechanism) -> LedgerFact | None:
    if book is None:
        return None
    privacy = mechanism.privacy
    entry = book.spend(
        release_id=identity,
        mu_squared=privacy.mu * privacy.mu,
        description={
            "formula": design.formula,
            "family": design.family.name,
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "stage": 1,
        },
    )
    summary = book.summary(through=entry.number)
    return LedgerFact(entry.number, summary.spent_mu, summary.spent_epsilon, book.cap_epsilon, book.cap_delta)


def _noisy_blocks(sums: BlockSums, mechanism: Mechanism, noise: NoiseSource) -> tuple[Block, ...]:
    return tuple(
        Block(
            y_power=block.y_power,
            degree=block.degree,
            integers=add_noise(values, grid_stddevs, noise),
            unit=float(mechanism.grid.unit(block.y_power, block.degree)),
            noise_stddev=stddev,
            grid_stddevs=grid_stddevs,
            multiplicities=multiplicities,
        )
        for block, values, grid_stddevs, stddev, multiplicities in zip(
            sums.blocks, sums.values, mechanism.grid_stddevs, mechanism.noise_stddevs, mechanism.multiplicities,
            strict=True,
        )
    )  # fmt: skip


def _public_design(design: Design) -> Design:
    """The design over the columns it uses: what the file states, so that a loaded release equals the made one."""
    columns = {column.name: column for column in design.table_columns}
    return build_design(design.formula, Schema(design.schema.dataset, columns), design.family.name)
