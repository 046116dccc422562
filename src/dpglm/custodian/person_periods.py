"""One row a person -> one row a person and period: a table for a survival analysis, made while it is read.

Guarantee: the rows of a person depend on that person's row, the schema and the breaks alone; their columns' types on
nothing but the schema. How many rows a person has tells how long they were followed, which is private: so the table
carries the column that says which rows belong together, and a schema of it (``person_period_schema``) declares that
column as the unit of privacy.

Edge cases: a person of whom no period counts (time or event missing, or followed for less than half of the first
period) still has one row, whose outcome is missing, so that every person of the table is a unit of the result. Cells
that cannot be read as declared are missing there too. Rows stay in the order of the persons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpglm.custodian.cells import is_text, read_codes, read_numbers
from dpglm.custodian.tables import BATCH_ROWS, Source, libraries_of, open_table
from dpglm.errors import InputError
from dpglm.periods import PERIOD, Periods, checked_columns
from dpglm.schema import Column, Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class PersonPeriods:
    """A table of person-periods for ``dpglm.release``: called, it returns a new Arrow stream of all rows."""

    columns: tuple[Column, ...]  # those that every row of a person repeats
    unit: str
    time: Column
    event: Column
    period: str
    periods: Periods
    _source: Source = field(repr=False)
    _repeatable: bool = field(default=False, init=False, repr=False)

    def __call__(self) -> pa.RecordBatchReader:
        import pyarrow as pa

        if not self._repeatable:
            self._source, self._repeatable = self._source.repeatable(), True
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    @property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        levels = pa.dictionary(pa.int32(), pa.string())
        fields = [(column.name, levels if column.has_levels else pa.float64()) for column in self.columns]
        return pa.schema([(self.unit, pa.large_binary()), (self.period, levels), (self.event.name, levels), *fields])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        piece = max(1, BATCH_ROWS // len(self.periods.labels))
        for batch in self._source.batches():
            for start in range(0, batch.num_rows, piece):
                yield self._expanded(batch.slice(start, piece))

    def _expanded(self, persons: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of some persons; the source's columns are the unit, the time, the event and the rest."""
        import pyarrow as pa

        unit, time, event, *others = persons.columns
        number, happened = self.periods.at_risk(read_numbers(time), read_codes(event, self.event))
        rows = np.maximum(number, 1)
        person = np.repeat(np.arange(len(rows)), rows)
        place = np.arange(len(person)) - np.repeat(np.cumsum(rows) - rows, rows)
        outcome = (happened[person] & (place == number[person] - 1)).astype(np.int64)
        outcome[number[person] == 0] = -1
        repeated = [
            _coded(read_codes(cells, column)[person], column.levels) if column.has_levels
            else cells.take(pa.array(person)) if column.dates
            else _numbers(read_numbers(cells)[person])
            for column, cells in zip(self.columns, others, strict=True)
        ]  # fmt: skip
        arrays = [
            _names(unit).take(pa.array(person)),
            _coded(place, self.periods.labels),
            _coded(outcome, self.event.levels),
            *repeated,
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def person_periods(
    table: Any, *, schema: Schema, unit: str, time: str, event: str, breaks: Any, period: str = PERIOD
) -> PersonPeriods:
    """One row a person and period at risk, from one row a person: what ``dpglm.release`` takes as a table.

    Parameters
    ----------
    table
        One row a person: a path, a pandas DataFrame, anything that exports an Arrow stream, or a function that returns
        a new one at every call. It is read anew in every pass, and nothing is written.
    schema
        Of that table: ``time`` numeric, ``event`` binary (its second level is the event, the first a censored person),
        and the predictors. The schema of the result is ``dpglm.person_period_schema(schema, ...)``.
    unit
        The column that says which person a row is of. It need not be declared.
    time, event
        How long a person was followed, and whether the event ended that.
    breaks
        Ends of the periods, public: [0, 90, 180] are the periods (0, 90] and (90, 180]. Who was followed beyond the
        last is censored there. Who was censored within a period was at risk in it where they were followed for half of
        it or longer.
    period
        Name of the column of periods.

    Edge cases: a person of whom nothing counts has one row with a missing outcome.
    """
    if "pyspark" in libraries_of(table):
        rule = "is a table of Spark's"
        raise InputError("table", type(table).__name__, rule, "write it as Parquet, and pass the folder")
    time_column, event_column, others = checked_columns(schema, unit, time, event, period)
    periods = Periods.between(breaks)
    named = Column(unit, "numeric", 0.0)  # a name to be read; its cells are not numbers
    source = open_table(table, (named, time_column, event_column, *others))
    return PersonPeriods(others, unit, time_column, event_column, period, periods, source)


def _coded(codes: Any, levels: Any) -> pa.DictionaryArray:
    """Positions of levels as text; -1 is missing."""
    import pyarrow as pa

    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array([str(level) for level in levels], pa.string()))


def _numbers(values: Any) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, mask=np.isnan(values))


def _names(cells: pa.Array) -> pa.Array:
    """What persons are called, as text, whatever the column's type is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(cells.type):
        cells = pc.run_end_decode(cells)
    if pa.types.is_dictionary(cells.type):
        return _names(cells.dictionary).take(cells.indices)
    try:
        return (cells if is_text(cells.type) else cells.cast(pa.string())).cast(pa.large_binary())
    except pa.ArrowNotImplementedError:  # lists and the like name nobody
        return pa.nulls(len(cells), pa.large_binary())
