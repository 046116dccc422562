"""One call from a table to a release: Schema -> Design -> Plan -> rows -> sums -> ledger -> noise -> Release.

Guarantee: the returned release is (epsilon, delta)-differentially private for one replaced row, and its ledger
entries were durable before any noise was drawn. Order of events: everything that can be wrong without rows is checked;
the rows are summed exactly, in memory; one entry a stage is committed; noise is drawn and added. Later stages look
again, from where the noisy earlier ones point to. At the end the finished release is kept in the ledger.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpglm.centring import Centring
from dpglm.custodian.centred_rows import centred_sums, exact_multipliers
from dpglm.custodian.ledger import Ledger
from dpglm.custodian.mechanism import Mechanism, monomial_stddevs
from dpglm.custodian.noise import NoiseSource, OperatingSystemNoise, add_noise
from dpglm.custodian.passes import Counter, Progress, check_rows, exact_sums
from dpglm.custodian.rows import FixedPointRows
from dpglm.custodian.stages import CentredNoise, Plan, plan_stages
from dpglm.custodian.sums import BlockSums, block_sums
from dpglm.custodian.tables import open_table
from dpglm.errors import FileError, InputError
from dpglm.formula import Design, build_design
from dpglm.grid import Grid
from dpglm.release_file import Block, LedgerFact, Release, Stage
from dpglm.schema import Schema

if TYPE_CHECKING:
    from dpglm.analyst.looks import FirstLook

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
    stages: int | str = "auto",
    progress: Progress | None = None,
) -> Release:
    """Turn a sensitive table into one noisy, self-describing release.

    Parameters
    ----------
    table
        A path (CSV, Parquet, a folder of them), a pandas or Spark DataFrame, anything that exports an Arrow stream, or
        a function that returns a new such stream at every call. Only a stream by itself, with several stages, is held.
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
    stages
        How many looks at the table share the budget: 1, 2, 3, or "auto" (default), three where the table is large for
        its budget. Later looks start from what earlier ones showed; they are sharper, and right also where predictors
        are far from Gaussian. Each reads the table once more. "auto" takes one of a stream that passes once.
    progress
        Called with the rows done and the rows of all stages, at points that depend on the number of rows alone.

    Edge cases: cells that are missing, unreadable, not finite or of an unknown level become the declared fill;
    numbers are clamped; rows are never dropped. A table with another number of rows than declared is refused before
    anything is spent. One that changes between stages is refused too, and then its budget is spent: the error says so.
    """
    return build_release(
        table, formula, schema, family, epsilon, delta, ledger, radius, allocation, statistics,
        OperatingSystemNoise(), stages, progress,
    )  # fmt: skip


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
    stages: object = 1,
    progress: Progress | None = None,
) -> Release:
    """``release`` with its noise as an argument, which only tests have a use for."""
    design = build_design(formula, as_schema(schema), family)
    plan = plan_stages(design, epsilon, delta, radius, allocation, statistics, stages)
    book = _open_ledger(ledger, design)
    _check_affordable(book, plan)
    source = open_table(table, design.table_columns)
    if stages == "auto" and source.passes_once:
        plan = plan_stages(design, epsilon, delta, radius, allocation, statistics, 1)
        _check_affordable(book, plan)
    check_rows(source.num_rows, design)
    # From here on rows are read; only their number, which is public, may lead to an error.
    if plan.later:
        source = source.repeatable()
    first = plan.first
    counter = Counter(progress, design.schema.dataset.rows * len(plan.mus))
    sums = exact_sums(source, design, first, partial(block_sums, blocks=first.blocks), counter)
    identity = uuid.uuid4().hex
    fact = _spend(book, identity, design, plan)
    with _after_the_charge(fact):
        result = Release(
            id=identity,
            time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            versions={"dpglm": version("dpglm")} | {name: version(name) for name in _LIBRARIES},
            design=_public_design(design),
            radius=first.radius,
            grid=first.grid,
            stages=(Stage("moments", first.allocation, first.mu, noisy_moments(sums, first, noise)),),
            privacy=plan.privacy,
            ledger=fact,
            private=noise.private,
        )
        if plan.later:
            from dpglm.analyst.looks import first_looks

            def look(sums_of: Callable[[FixedPointRows], BlockSums]) -> BlockSums:
                return exact_sums(source, design, first, sums_of, counter)

            result = add_stages(result, first_looks([result])[0], plan, look, noise)
    if book is not None:
        try:
            book.keep(identity, result.to_json())
        except FileError as error:  # it is paid for: better one copy than none
            warnings.warn(
                f"the ledger {error.rule}: it keeps no copy of this release, whose budget is spent; save it well",
                stacklevel=3,
            )
    return result


@contextmanager
def _after_the_charge(fact: LedgerFact | None) -> Iterator[None]:
    """An error says that its budget is gone: what to do next depends on it."""
    try:
        yield
    except InputError as error:
        if fact is None:
            raise
        remedy = f"its budget is spent (ledger entry {fact.entry}), and another try spends it again; {error.remedy}"
        raise type(error)(error.name, error.value, error.rule, remedy) from None


def add_stages(
    release: Release,
    first: FirstLook,
    plan: Plan,
    look: Callable[[Callable[[FixedPointRows], BlockSums]], BlockSums],
    noise: NoiseSource,
) -> Release:
    """The release with its later stages; ``look`` sums what it is given over all rows.

    Each is centred at what the noisy stages before it show: nothing but those and public facts decides where.
    """
    from dpglm.analyst.looks import add_look, knowledge_of_first, next_centring

    known = knowledge_of_first(release, first)
    for scales in plan.later:
        if len(release.stages) > 1:
            known = add_look(release, known, release.stages[-1])
        centring = _on_grid(next_centring(release, known, scales.mu), release.grid)
        sums = look(partial(centred_sums, design=release.design, centring=centring))
        stage = Stage("centred", "fixed", scales.mu, _noisy_looks(sums, centring, scales, noise), centring)
        release = replace(release, stages=(*release.stages, stage))
    return release


def _on_grid(centring: Centring, grid: Grid) -> Centring:
    """The centring with multipliers whose products with grid rows are exact."""
    centre = exact_multipliers(np.array([centring.centre]), grid.exponent)[0]
    whitening = exact_multipliers(centring.whitening_matrix, grid.exponent)
    return replace(centring, centre=tuple(centre.tolist()), whitening=tuple(map(tuple, whitening.tolist())))


def as_schema(schema: object) -> Schema:
    """A Schema, a dict of its shape, or the path of its file."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, str | Path):
        return Schema.load(schema)
    if isinstance(schema, Mapping):
        return Schema.from_dict(schema)
    raise InputError("schema", type(schema).__name__, "must be a Schema, a dict or a path", "use dpglm.Schema.load")


def _open_ledger(ledger: object, design: Design) -> Ledger | None:
    if ledger is None:
        return None
    if not isinstance(ledger, str | Path | Ledger):
        raise InputError("ledger", ledger, "must be a path, a Ledger or None", "pass the dataset's ledger file")
    book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    book.check_dataset(design.schema.dataset)
    return book


def _check_affordable(book: Ledger | None, plan: Plan) -> None:
    if book is not None:
        book.check_affordable(sum(Fraction(mu * mu) for mu in plan.mus))


def _spend(book: Ledger | None, identity: str, design: Design, plan: Plan) -> LedgerFact | None:
    """One entry a stage, all committed at once, before any noise is drawn."""
    if book is None:
        return None
    privacy = plan.privacy
    described = {
        "formula": design.formula,
        "family": design.family.name,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
    }
    charges = [(mu * mu, {**described, "stage": number}) for number, mu in enumerate(plan.mus, 1)]
    entry = book.spend_stages(release_id=identity, stages=charges)[-1]
    summary = book.summary(through=entry.number)
    return LedgerFact(entry.number, summary.spent_mu, summary.spent_epsilon, book.cap_epsilon, book.cap_delta)


def noisy_moments(sums: BlockSums, mechanism: Mechanism, noise: NoiseSource) -> tuple[Block, ...]:
    """The blocks of the first stage."""
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


def _noisy_looks(sums: BlockSums, centring: Centring, scales: CentredNoise, noise: NoiseSource) -> tuple[Block, ...]:
    """The blocks of a later stage; its noise is the same number of grid steps whatever the bounds are."""
    blocks = []
    for block, values, stddev, unit in zip(sums.blocks, sums.values, scales.grid_stddevs, centring.units, strict=True):
        grid_stddevs = monomial_stddevs(block, Fraction(stddev), centring.dimension)
        blocks.append(
            Block(
                y_power=block.y_power,
                degree=block.degree,
                integers=add_noise(values, grid_stddevs, noise),
                unit=unit,
                noise_stddev=stddev * unit,
                grid_stddevs=grid_stddevs,
                multiplicities=tuple(block.multiplicities(centring.dimension).tolist()),
            )
        )
    return tuple(blocks)


def _public_design(design: Design) -> Design:
    """The design over the columns it uses: what the file states, so that a loaded release equals the made one."""
    columns = {column.name: column for column in design.table_columns}
    return build_design(design.formula, Schema(design.schema.dataset, columns), design.family.name)
