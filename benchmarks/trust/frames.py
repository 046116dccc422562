"""Neighbouring frames as a user makes them: a list of records, one of them replaced, and the frame built again.

What holds the records (pandas from records or from text, its categories and nullable types, Polars, DuckDB, Arrow,
Parquet) chooses the types of its columns by looking at all cells, so one replaced record may change how every other
record is held. The audit asks that the exact sums still move by at most mu.

Left out is what the frame's maker changes for good before dpglm sees it (docs/custodian.md), and frames that it
refuses to make at all. Polars and Arrow make dates of numbers beside dates, or the reverse; Arrow cuts the time off
where a date stands first; all three give a zone to moments beside others that have one, or take it away; Polars makes
nothing of numbers beside a struct or bytes, and addresses in memory of Python's objects in Arrow; DuckDB writes bytes
beside others in its own way; Polars abbreviates zones in text; Polars and DuckDB make text of numbers of 16 and 32
bits, NaN and infinity; DuckDB makes decimals beside a NaN numbers of 32 bits.
"""

from __future__ import annotations

import datetime
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa

from dpglm.custodian.bounded_rows import look_sums, on_grid
from dpglm.custodian.look_plan import LookNoise, look_noise
from dpglm.custodian.mechanism import Mechanism, calibrate
from dpglm.custodian.passes import moment_sums
from dpglm.custodian.sums import BlockSums
from dpglm.custodian.survey_counts import STEPS, TableCounts, table_counts
from dpglm.custodian.tables import open_table
from dpglm.errors import InputError
from dpglm.formula import Design, build_design
from dpglm.looks.coding import LARGEST
from dpglm.looks.viewpoint import Viewpoint
from dpglm.schema import Schema
from trust.audit import Violation
from trust.viewpoints import any_viewpoint

Record = dict[str, Any]

# Levels of every kind; the text beside others is what makes a column of objects.
LEVELS: tuple[tuple[Any, ...], ...] = (
    ("1", "2", "3", "x"), (1, 2, 3), (0, 1), ("0", "1"), (False, True, "unknown"), (False, True), ("no", "yes"),
    ("true", "false"), ("True", "maybe"), ("01", "02", "03", "2A"), ("a", "b", "c"), (0.5, 1.5, "more"),
    (-1, 0.25, 30), ("1e3", "2", "none"), (10, 20.5, "x", True), ("2024-01-01", "2024-06-30 12:00", "never"),
    ("09:30:00", "18:00:00.5", "x"), ("x", 7), ("1.0", 2, "two"), ("1879-12-31 23:06:32Z", "x"),
)  # fmt: skip
# What may stand in one record: each is what made a library choose another type for some column.
ODD: tuple[Any, ...] = (
    None, math.nan, pd.NA, pd.NaT, "x", "unknown", "", True, False, 1, 0, 2, 7, -1, 1.0, 1.5, 1e300, math.inf,
    2**53 + 1, 2**63, 2**70, -(2**63), "1", "1.0", "True", "false", b"1", b"\xff", Decimal("1.50"), Decimal("NaN"),
    np.True_, np.int8(1), np.uint64(2**64 - 1), np.float64(1), datetime.date(2024, 1, 1),
    datetime.datetime(2024, 1, 1, 12), datetime.time(9, 30), pd.Timestamp("2024-06-30 12:00"), datetime.timedelta(1),
    pd.Timedelta(1, "D"),
    pd.Period("2024", "Y"), pd.Interval(0, 1), [1], {"a": 1}, 1j, object(),
    datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), np.datetime64("2024-01-01"),
)  # fmt: skip
BERLIN = ZoneInfo("Europe/Berlin")  # before 1893, 53 minutes and 28 seconds ahead


_DATES = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, pd.Timestamp, pd.Timedelta)


def _as_frame(records: Sequence[Record]) -> pd.DataFrame:
    return pd.DataFrame.from_records(list(records))


def _objects(records: Sequence[Record]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([r[name] for r in records], dtype=object) for name in records[0]})


def _as_csv(records: Sequence[Record], **options: Any) -> pd.DataFrame:
    text = io.BytesIO()
    _objects([{name: _spelled(cell) for name, cell in record.items()} for record in records]).to_csv(text, index=False)
    return pd.read_csv(io.BytesIO(text.getvalue()), **options)


def _spelled(cell: Any) -> Any:
    if isinstance(cell, float | np.floating) and not math.isfinite(cell):
        return None
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell


def _plain(records: Sequence[Record]) -> list[Record]:
    """As Python's own objects: other libraries take a NumPy scalar for the type of its column, or make text of it."""

    def plain(cell: Any) -> Any:
        if isinstance(cell, float | np.floating | Decimal) and not math.isfinite(cell):
            return None
        return cell.item() if isinstance(cell, np.generic) else cell

    return [{name: plain(cell) for name, cell in record.items()} for record in records]


def _unchanged(records: Sequence[Record]) -> list[Record]:
    """Plain records whose columns Polars, DuckDB and Arrow hold without changing a cell for good."""
    plain = _plain(records)
    for name in plain[0]:
        kinds = {type(record[name]) for record in plain} - {type(None), type(pd.NA), type(pd.NaT)}
        dates = bool(kinds & set(_DATES)) and bool(kinds & {int, float, bool, Decimal})
        zones = _kinds_of_moments(plain, name)
        if dates or dict in kinds or (bytes in kinds and len(kinds) > 1) or ("zone" in zones and len(zones) > 1):
            raise TypeError("cells that would be changed")
    return plain


def _kinds_of_moments(records: Sequence[Record], name: str) -> set[str]:
    """Whether a column holds dates, moments with a zone and moments without one."""
    cells = [record[name] for record in records if record[name] is not pd.NaT]
    return {
        "date" if not isinstance(cell, datetime.datetime) else "zone" if cell.tzinfo else "none"
        for cell in cells
        if isinstance(cell, datetime.date)
    }


def _unchanged_by_arrow(records: Sequence[Record]) -> list[Record]:
    plain = _unchanged(records)
    if any(len(_kinds_of_moments(plain, name)) > 1 for name in plain[0]):
        raise TypeError("times that would be cut off")
    return plain


def _unchanged_by_polars(records: Sequence[Record]) -> list[Record]:
    plain = _unchanged(records)
    for name in plain[0]:
        cells = [record[name] for record in plain if record[name] is not pd.NaT]
        zones = {cell.tzname() for cell in cells if isinstance(cell, datetime.datetime)} - {None, "UTC"}
        if zones and any(isinstance(cell, str) for cell in cells):
            raise TypeError("zones that would be abbreviated")
    return plain


def _polars(records: Sequence[Record], objects: bool = True) -> Any:
    import polars as pl

    plain = _unchanged_by_polars(records)
    frame = pl.DataFrame({name: [record[name] for record in plain] for name in plain[0]}, strict=False)
    if not objects and pl.Object in frame.schema.values():
        raise TypeError("Python objects would become addresses")
    return frame


def _polars_rows(records: Sequence[Record]) -> Any:
    import polars as pl

    return pl.DataFrame(_unchanged_by_polars(records), strict=False, infer_schema_length=None)


def _polars_categories(records: Sequence[Record]) -> Any:
    import polars as pl

    frame = _polars(records)
    return frame.with_columns(pl.col(pl.String).cast(pl.Categorical))


def _arrow(records: Sequence[Record]) -> pa.Table:
    _unchanged_by_arrow(records)
    return pa.Table.from_pandas(_as_frame(records))


def _duckdb(frame: Any) -> Any:
    """Its rows, read: what it cannot read is refused here, whoever asks."""
    import duckdb

    connection = duckdb.connect()
    connection.register("frame", frame)
    found = connection.sql("select * from frame")
    return found.to_arrow_table() if hasattr(found, "to_arrow_table") else found.arrow()


def _parquet(table: pa.Table, folder: Path) -> Path:
    import pyarrow.parquet as pq

    path = folder / "frame.parquet"
    pq.write_table(table, path, row_group_size=7)
    return path


FRAMES: dict[str, Callable[[Sequence[Record], Path], Any]] = {
    "pandas from records": lambda records, _: _as_frame(records),
    "pandas columns": lambda records, _: pd.DataFrame({name: [r[name] for r in records] for name in records[0]}),
    "pandas objects": lambda records, _: _objects(records),
    "pandas inferred objects": lambda records, _: _objects(records).infer_objects(),
    "pandas converted": lambda records, _: _as_frame(records).convert_dtypes(),
    "pandas arrow": lambda records, _: _as_frame(records).convert_dtypes(dtype_backend="pyarrow"),
    "pandas categories": lambda records, _: _as_frame(records).astype("category"),
    "pandas converted categories": lambda records, _: _as_frame(records).convert_dtypes().astype("category"),
    "pandas two parts": lambda records, _: pd.concat([_as_frame(records[:2]), _as_frame(records[2:])]),
    "pandas read_csv": lambda records, _: _as_csv(records),
    "pandas read_csv nullable": lambda records, _: _as_csv(records, dtype_backend="numpy_nullable"),
    "pandas read_csv categories": lambda records, _: _as_csv(records).astype("category"),
    "polars": lambda records, _: _polars(records),
    "polars rows": lambda records, _: _polars_rows(records),
    "polars categories": lambda records, _: _polars_categories(records),
    "polars parquet": lambda records, folder: _parquet(_polars(records, objects=False).to_arrow(), folder),
    "duckdb": lambda records, _: _duckdb(_as_frame(_unchanged(records))),
    "duckdb of polars": lambda records, _: _duckdb(_polars(records, objects=False)),
    "arrow": lambda records, _: pa.Table.from_pylist(_unchanged_by_arrow(records)),
    "arrow dictionaries": lambda records, _: _encoded(_arrow(records)),
    "arrow of pandas": lambda records, _: _arrow(records),
    "parquet": lambda records, folder: _parquet(_arrow(records), folder),
}


def _encoded(table: pa.Table) -> pa.Table:
    return pa.table({name: table[name].dictionary_encode() for name in table.column_names})


@dataclass(frozen=True)
class FrameCase:
    """Records, and others that may take one's place; every two of the resulting lists are neighbours."""

    design: Design
    kind: str
    records: tuple[Record, ...]
    position: int
    candidates: tuple[Record, ...]

    def frame(self, candidate: Record, folder: Path) -> Any:
        kept = self.records
        return FRAMES[self.kind]([*kept[: self.position], candidate, *kept[self.position :]], folder)


def draw_case(chance: Random, family: str, candidates: int) -> FrameCase:
    """Every record's cells are of one type a column, except where one is missing; the candidates' are of any."""
    levels = chance.choice([levels for levels in LEVELS if len(levels) == 2 or family != "logistic"])
    outcome = {
        "logistic": {"type": "binary", "levels": list(levels), "fill": chance.choice(levels)},
        "poisson": {"type": "count", "upper": chance.choice((1, 7, 20)), "fill": 1},
        "linear": {"type": "numeric", "lower": chance.choice((-3, 0)), "upper": chance.choice((1, 10))},
    }[family]
    columns: dict[str, dict[str, Any]] = {"y": outcome}
    for name in ("u", "v")[: chance.randint(1, 2)]:
        levels = chance.choice(LEVELS)
        columns[name] = chance.choice(
            (
                {"type": "categorical", "levels": list(levels), "fill": chance.choice(levels)},
                {"type": "categorical", "levels": list(levels), "fill": chance.choice(levels)},
                {"type": "numeric", "lower": -2, "upper": 3},
                {"type": "count", "upper": 5, "fill": 0},
            )
        )
    rows = chance.choice((2, 5, 12, 40, 120))
    schema = Schema.from_dict({"dataset": {"name": "t", "rows": rows}, "columns": columns})
    held = {name: chance.choice(_HELD) for name in columns}
    missing = chance.choice((0.0, 0.0, 0.1))
    common = {name: _of_one_type(chance, held[name], column.levels) for name, column in schema.columns.items()}

    def record(odd: float) -> Record:
        found = {}
        for name, column in schema.columns.items():
            value = (
                chance.choice(column.levels if odd else common[name])
                if column.has_levels
                else chance.choice((round(chance.uniform(-3, 12)), chance.randint(-300, 1200) / 100, 0.1))
            )
            cell = held[name](value)
            found[name] = None if chance.random() < missing else cell
            if chance.random() < odd:
                found[name] = chance.choice((chance.choice(ODD), chance.choice(_HELD)(value), str(value)))
        return found

    design = build_design(f"y ~ {' + '.join(list(columns)[1:])}", schema, family)
    kept = tuple(record(0.0) for _ in range(rows - 1))
    others = tuple(record(chance.choice((0.0, 0.5, 1.0))) for _ in range(candidates))
    return FrameCase(design, chance.choice(list(FRAMES)), kept, chance.randrange(rows), others)


def _of_one_type(chance: Random, held: Callable[[Any], Any], levels: Sequence[Any]) -> list[Any]:
    """Often the levels that are no text alone: then a text in one record changes the type of the column."""
    others = [level for level in levels if not isinstance(held(level), str | bytes)]
    return others if others and chance.random() < 0.7 else list(levels)


def _by_own_type(value: Any) -> Any:
    """Dates and times as such; text that is a number or a truth value as that; other text as it is."""
    if not isinstance(value, str):
        return value
    for read in (datetime.date.fromisoformat, datetime.datetime.fromisoformat, datetime.time.fromisoformat, int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(value.lower(), value)


def _number(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def held(value: Any) -> Any:
        own = _by_own_type(value)
        if not isinstance(own, bool | int | float):
            return own
        return kind(round(own)) if kind in (int, np.int16, np.int64) and own == round(own) else _floating(kind)(own)

    return held


def _in_berlin(own: Any) -> Any:
    """A moment with a zone, in one whose offset has seconds."""
    return own.astimezone(BERLIN) if isinstance(own, datetime.datetime) and own.tzinfo else own


def _floating(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return float if kind in (int, np.int16, np.int64) else kind


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


_HELD: tuple[Callable[[Any], Any], ...] = (
    _by_own_type, _by_own_type, _text, _text, lambda value: _text(value).encode(), _number(int), _number(float),
    _number(np.int16), _number(np.int64), _number(np.float64), _number(np.float32), _number(np.float16),
    _number(lambda value: Decimal(repr(float(value)))),
    _number(lambda value: bool(value) if value in (0, 1) else value),
    lambda value: pd.Timestamp(found) if isinstance(found := _by_own_type(value), datetime.date) else found,
    lambda value: _in_berlin(_by_own_type(value)),
)  # fmt: skip


@dataclass(frozen=True)
class Held:
    """Everything that a release may take of a frame: moments, a survey's counts, and a look's sums."""

    moments: BlockSums
    counts: TableCounts
    look: BlockSums

    def __add__(self, other: Held) -> Held:
        return Held(self.moments + other.moments, self.counts + other.counts, self.look + other.look)


def audit_frames(case: FrameCase, folder: Path) -> tuple[int, Fraction, int]:
    """How many pairs, the largest share of mu^2 by which a record moved moments or a look, and frames not made.

    Every count of a survey must move by at most one; the look's viewpoint is any, drawn from the case.
    """
    mechanism = calibrate(case.design, 1.0, 1e-6, None, "equal", "full")
    # A look takes any coding; the one by bounds, with the room that standard units have, needs no survey.
    design = replace(case.design, limit=LARGEST)
    size = len(design.coefficient_names)
    view = on_grid(any_viewpoint(size, False, np.random.default_rng(len(case.records) + case.position)))
    noise = look_noise(1.0, size, 0.1)
    seen: list[Held] = []
    refused = 0
    for candidate in case.candidates:
        try:
            frame = case.frame(candidate, folder)
        except Exception:  # there is no such frame
            refused += 1
            continue
        seen.append(_sums(frame, case.design, mechanism, design, view))
    worst = Fraction(0)
    for one, other in combinations(seen, 2):
        worst = max(
            worst, _moved(one.moments, other.moments, mechanism), _moved_look(one.look, other.look, noise, size)
        )
        counts = ((*each.counts.cells, each.counts.missing) for each in (one, other))
        for mine, theirs in zip(*counts, strict=True):
            change = np.abs(mine - theirs)
            if change.max() > STEPS:
                said = f"one record of {case.kind} moves the sums by {change.max() / STEPS} rows in a count"
                raise Violation("sensitivity", said)
    if worst > 1:
        raise Violation("sensitivity", f"one record of {case.kind} moves the sums by {math.sqrt(worst):.6g} mu")
    return len(seen) * (len(seen) - 1) // 2, worst, refused


def _sums(frame: Any, design: Design, mechanism: Mechanism, wide: Design, view: Viewpoint) -> Held:
    def of_batch(batch: pa.RecordBatch) -> Held:
        return Held(
            moment_sums(batch, design, mechanism), table_counts(batch, design), look_sums(batch, wide, view)
        )  # fmt: skip

    try:
        parts = [of_batch(batch) for batch in open_table(frame, design.table_columns).batches() if batch.num_rows]
    except InputError as error:
        raise Violation("outcome", f"a table is refused that another record would have made: {error.rule}") from None
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _moved(one: BlockSums, other: BlockSums, mechanism: Mechanism) -> Fraction:
    moved = Fraction(0)
    for mine, theirs, stddevs in zip(one.values, other.values, mechanism.grid_stddevs, strict=True):
        for a, b, stddev in zip(mine, theirs, stddevs, strict=True):
            if a != b:
                moved += Fraction(a - b) ** 2 / Fraction(stddev) ** 2
    return moved / Fraction(mechanism.mu) ** 2


def _moved_look(one: BlockSums, other: BlockSums, noise: LookNoise, size: int) -> Fraction:
    moved = Fraction(0)
    for block, mine, theirs, stddev in zip(one.blocks, one.values, other.values, noise.grid_stddevs, strict=True):
        for count, a, b in zip(block.multiplicities(size).tolist(), mine, theirs, strict=True):
            if a != b:
                moved += Fraction(count * (a - b) ** 2) / Fraction(stddev) ** 2
    return moved / Fraction(noise.mu) ** 2
