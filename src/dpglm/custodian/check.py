"""A look at the table for the custodian's eyes only: what the schema would clamp, fill or not recognise, and
how many rows would not count.

This is NOT private and spends no budget: its result must not be published. It is there so that a schema that says
``Yes`` where the table says ``yes`` is noticed before budget is spent.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpglm.custodian.build import as_schema
from dpglm.custodian.cells import is_text, read_codes, read_values
from dpglm.custodian.files import column_names
from dpglm.custodian.grouping import unit_keys
from dpglm.custodian.tables import libraries_of, open_table
from dpglm.schema import Column, Schema
from dpglm.values import level_number

WARNING = "FOR THE CUSTODIAN'S EYES ONLY: these counts are not private. Do not publish them."
_MOST_EXAMPLES = 5
_ID = re.compile(
    r"(.*[^a-z])?(id|pid|uid|person|patient|subject|individual|household|respondent)(_?(id|no|nr|number))?", re.I
)
_MOST_DISTINCT = 1000
_LARGE_SHARE = 0.2  # of a column's cells: a few are flaws of the table, so many are a mistake in the schema


@dataclass(frozen=True)
class ColumnCheck:
    """Counts of cells of one column. ``unknown`` holds the most frequent unrecognised texts."""

    name: str
    missing: int
    unreadable: int
    below: int
    above: int
    unknown: tuple[tuple[str, int], ...]
    empty_levels: tuple[str, ...]
    has_fill: bool = True
    has_levels: bool = True

    @property
    def changed(self) -> int:
        """Cells that would be clamped, filled or make their row not count."""
        return self.missing + self.unreadable + self.below + self.above

    @property
    def unread(self) -> int:
        """Cells that say nothing: each becomes the fill, or its row does not count."""
        return self.missing + self.unreadable

    @property
    def uncounted(self) -> int:
        """Rows that would not count in a regression on this column, because of it."""
        return 0 if self.has_fill else self.unread


@dataclass(frozen=True)
class Check:
    """What a release would do to the cells of a table. Not private, not to be published."""

    rows: int
    declared_rows: int | None
    columns: tuple[ColumnCheck, ...]
    counted: int = 0  # rows that would count in a regression on all of these columns
    units: tuple[str, int, int] | None = None  # a column of ids, how many there are, and the most rows that one has
    unit_column: str | None = None
    declared_units: int | None = None

    @property
    def ok(self) -> bool:
        if self.unit_column and self.units and self.declared_units not in (None, self.units[1]):
            return False
        return self.declared_rows in (None, self.rows) and not any(column.changed for column in self.columns)

    @property
    def shares(self) -> dict[str, float]:
        """By column, the share of its cells that would be clamped, filled or make their row not count."""
        return {column.name: column.changed / max(self.rows, 1) for column in self.columns}

    @property
    def matching_nothing(self) -> tuple[str, ...]:
        """Columns without a single cell that can be read: a release would spend its budget on their fill."""
        return tuple(column.name for column in self.columns if 0 < self.rows == column.unread)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for ``--json``."""
        from dataclasses import asdict

        return {
            "warning": WARNING,
            **asdict(self),
            "ok": self.ok,
            "shares": self.shares,
            "matching_nothing": self.matching_nothing,
        }

    @property
    def declared(self) -> str:
        """What the schema says of the number of rows."""
        return "their number is private" if self.declared_rows is None else f"declared: {self.declared_rows}"

    def __str__(self) -> str:
        width = max([len(column.name) for column in self.columns] + [6])
        header = f"{'column':<{width}}  {'missing':>9}  {'unreadable':>10}  {'below':>9}  {'above':>9}"
        lines = [WARNING, f"rows: {self.rows} ({self.declared})", header]
        for column in self.columns:
            counts = f"{column.missing:>9}  {column.unreadable:>10}  {column.below:>9}  {column.above:>9}"
            lines.append(f"{column.name:<{width}}  {counts}")
            if column.unknown:
                seen = ", ".join(f"{text!r} ({count})" for text, count in column.unknown)
                lines.append(f"{'':<{width}}  {'no such level' if column.has_levels else 'cannot be read'}: {seen}")
            if column.empty_levels:
                lines.append(f"{'':<{width}}  no rows of level: {', '.join(column.empty_levels)}")
        for name, share in self.shares.items():
            if name in self.matching_nothing:
                lines.append(f"LOOK AT {name}: no cell can be read as the schema declares it")
            elif share >= _LARGE_SHARE:
                lines.append(f"LOOK AT {name}: {100 * share:.0f} % of its cells would be {self._fate(name)}")
        if self.counted < self.rows:
            among = ", ".join(f"{column.name} {column.uncounted}" for column in self.columns if column.uncounted)
            lines.append(
                f"rows that count: {self.counted} of {self.rows} in a regression on all of these columns"
                f" (no value and no fill: {among})"
            )
        return "\n".join([*lines, *([self.of_units] if self.of_units else [])])

    def _repr_html_(self) -> str:
        """For a notebook, which keeps what it shows."""
        from dpglm.notebook import list_html, paragraph_html, table_html

        lines = str(self).split("\n")
        looks = [line for line in lines if line.startswith(("LOOK AT", "rows that count"))]
        rows = []
        for column in self.columns:
            counts = (f"{count:,}" for count in (column.missing, column.unreadable, column.below, column.above))
            seen = ", ".join(f"{text!r} ({count:,})" for text, count in column.unknown)
            rows.append((column.name, *counts, seen, ", ".join(column.empty_levels)))
        head = ("column", "missing", "unreadable", "below", "above", "not recognised", "no rows of level")
        caption = f"{self.rows:,} rows, {self.declared}"
        note = "A notebook keeps what it shows: clear this output before the notebook is shared."
        return paragraph_html(WARNING, alarm=True) + table_html(caption, head, rows, [note]) + list_html(looks)

    @property
    def of_units(self) -> str | None:
        """What ids say of who is protected: a question where one has several rows and nobody declared it."""
        if self.units is None:
            return None
        name, number, most = self.units
        if self.unit_column is not None:
            declared = "" if self.declared_units is None else f" (declared: {self.declared_units})"
            return f"units: {number}{declared}, by {name}; one has up to {most} rows"
        if number == self.rows:
            return None
        return (
            f"LOOK AT {name}: {self.rows} rows have {number} values of it, one up to {most} times. Is a row all that"
            f" the table holds of its unit? If not, declare unit_column = {name!r} and units"
        )

    def _fate(self, name: str) -> str:
        (column,) = (column for column in self.columns if column.name == name)
        return "clamped or filled" if column.has_fill else "clamped, or their rows would not count"


def check(table: Any, schema: Schema) -> Check:
    """Count, by declared column, cells that a release would clamp, fill or not count. Not private; spends nothing."""
    declared = as_schema(schema)
    columns = tuple(declared.columns.values())
    dataset = declared.dataset
    ids = dataset.unit_column if dataset.unit_column is not None else _likely_id(table, columns)
    counters = [_Counter(column) for column in columns]
    rows = counted = 0
    read = columns if ids is None else (*columns, Column(ids, "unit", None))
    held: Counter[bytes | None] = Counter()
    for batch in open_table(table, read).batches():
        if rows == 0 and not isinstance(table, str | Path):
            _warn_of_codes(table, batch, columns)
        rows += batch.num_rows
        counts = np.ones(batch.num_rows, dtype=bool)
        for position, counter in enumerate(counters):
            usable = counter.add(batch.column(position))
            counts &= usable | (counter.column.fill is not None)
        counted += int(counts.sum())
        if ids is not None:
            held.update(unit_keys(batch.column(len(columns))).to_pylist())
    held.pop(None, None)
    return Check(
        rows, None if dataset.unit_column else dataset.number, tuple(counter.result() for counter in counters), counted,
        None if ids is None else (ids, len(held), max(held.values(), default=0)), dataset.unit_column, dataset.units,
    )  # fmt: skip


def _likely_id(table: Any, columns: tuple[Column, ...]) -> str | None:
    """A column of the table that nobody declared and whose name is that of an id."""
    try:
        names = column_names(table) if isinstance(table, str | Path) else [str(name) for name in table.columns]
    except Exception:  # what has no columns by name
        names = list(getattr(table, "column_names", []))
    declared = {column.name for column in columns}
    return next((name for name in names if _ID.fullmatch(name) and name not in declared), None)


def _warn_of_codes(table: Any, batch: Any, columns: tuple[Column, ...]) -> None:
    """A frame that was read from text may hold codes as numbers. Types depend on cells, so a release is silent."""
    for column, kind in zip(columns, batch.schema.types, strict=False):
        codes = [level for level in column.levels if isinstance(level, str) and _is_code(level)]
        if codes and _holds_numbers(table, column.name, kind):
            held = f"the frame holds numbers, and levels are written as {codes[0]!r}: they are compared by value"
            remedy = "pass the path of the file that it was read from, and its text is what counts"
            warnings.warn(f"column = {column.name}: {held}; {remedy}", UserWarning, stacklevel=3)


def _holds_numbers(table: Any, name: str, kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind) and "pandas" in libraries_of(table):  # as text, whatever the categories were made of
        position = [str(label) for label in table.columns].index(name)
        return bool(table.dtypes.iloc[position].categories.dtype.kind in "iuf")
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(check(kind) for check in (types.is_integer, types.is_floating, types.is_decimal))


def _is_code(level: str) -> bool:
    """Text, or a number with zeros before it."""
    return level_number(level) is None or re.match(r"\s*[+-]?0[0-9]", level) is not None


class _Counter:
    """Running counts of one column."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.missing = self.unreadable = self.below = self.above = 0
        self.levels: Counter[int] = Counter()
        self.unknown: Counter[str] = Counter()

    def add(self, array: Any) -> Any:
        """Count cells, and tell which have a value."""
        array = _empty_text_as_null(array, self.column)
        column, missing = self.column, array.null_count
        if column.has_levels:
            codes = read_codes(array, column)
            usable = codes >= 0
            self.levels.update(codes[usable].tolist())
        else:
            values = read_values(array, column)
            usable = np.isfinite(values)
            self.below += int((values < column.lower)[usable].sum())
            self.above += int((values > column.upper)[usable].sum())
        unknown = array.filter(np.logical_and(~usable, array.is_valid().to_numpy(zero_copy_only=False)))
        if len(self.unknown) < _MOST_DISTINCT:
            self.unknown.update(_text(value) for value in unknown.to_pylist())
        self.missing += missing
        self.unreadable += int((~usable).sum()) - missing
        return usable

    def result(self) -> ColumnCheck:
        column = self.column
        own = column.own_levels
        empty = [str(level) for code, level in enumerate(own) if not self.levels[code]]
        unknown = tuple(self.unknown.most_common(_MOST_EXAMPLES))
        return ColumnCheck(
            column.name, self.missing, self.unreadable, self.below, self.above, unknown, tuple(empty),
            column.fill is not None, column.has_levels,
        )  # fmt: skip


def _empty_text_as_null(array: Any, column: Column) -> Any:
    """A CSV file has no other way to say that a cell is missing; where "" is a level, it is that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_text(array.type) or "" in column.levels:
        return array
    text = array.cast(pa.large_binary())
    return pc.if_else(pc.equal(pc.binary_length(text), 0), None, text)


def _text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:60]
