"""Cells: the same value is read alike, whatever the type of the object or the column that holds it."""

from __future__ import annotations

import datetime
import enum
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpglm.custodian.cells import read_codes, read_numbers
from dpglm.custodian.objects import UNREADABLE, cell_text
from dpglm.custodian.tables import open_table
from dpglm.schema import Column, Schema


class Colour(enum.StrEnum):
    RED = "red"


class Loud(str):
    def __str__(self) -> str:
        return "loud"


class Grade(enum.IntEnum):
    ONE = 1


class Raises:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("secret")

    def __str__(self) -> str:
        raise RuntimeError("secret")

    __hash__ = object.__hash__


def column(levels: list[Any]) -> Column:
    declared = {"type": "categorical", "levels": levels, "fill": levels[0]}
    return Schema.from_dict({"dataset": {"name": "t", "rows": 1}, "columns": {"v": declared}}).columns["v"]


NUMERIC = column([0, "2", "0.29", "x", "loud", "red", "2024-05-01", "2024-05-01 09:30", "09:30:00.5",
                  "1879-12-31 23:06:32Z", "20240-01-01 00:00:00", "0000-12-31 22:00:00.000000Z"])  # fmt: skip
NEAR = 0.28999999165534973  # the nearest number to 0.29 of 32 bits
BERLIN = datetime.timezone(datetime.timedelta(hours=2))
LOCAL = datetime.timezone(datetime.timedelta(minutes=53, seconds=28))  # of Berlin, before 1893
CELLS: list[tuple[Any, Any, int]] = [
    # a cell, its number, and the position of its level; each as an object, and in the column that pandas makes of it
    (True, 1, -1), (np.False_, 0, 0), ("TRUE", 1, -1), ("false", 0, 0), (b"False", 0, 0), ("true ", None, -1),
    (2, 2, 1), (2.0, 2, 1), (np.int8(2), 2, 1), (np.uint64(2), 2, 1), (np.float16(2), 2, 1), (np.float32(2), 2, 1),
    (Decimal("2.00"), 2, 1), ("2", 2, 1), ("2.0", 2, 1), (" +2e0\t", 2, 1), ("02", 2, 1), (b"2", 2, 1), (-0.0, 0, 0),
    (0.29, 0.29, 2), ("0.290", 0.29, 2), (Decimal("0.29"), 0.29, 2), (np.float32(0.29), NEAR, -1),
    (np.longdouble("0.5"), 0.5, -1), (Grade.ONE, 1, -1), (2**70, 2.0**70, -1), (-(2**63), -(2.0**63), -1),
    (2**53 + 1, 2.0**53, -1), (10**5000, None, -1), (1e308, 1e308, -1), (Decimal("1E+400"), None, -1),
    ("x", None, 3), ("X", None, -1), (" x", None, -1), (b"x", None, 3), (np.str_("x"), None, 3), ("x\x00", None, -1),
    (np.bytes_(b"x"), None, 3), (Loud("x"), None, 3), (Colour.RED, None, 5), ("\ud800", None, -1), ("", None, -1),
    (bytearray(b"x"), None, 3),
    (datetime.date(2024, 5, 1), None, 6), (datetime.datetime(2024, 5, 1), None, 6),
    (pd.Timestamp("2024-05-01"), None, 6),
    (np.datetime64("2024-05-01"), None, 6), (np.datetime64("2024-05-01T09"), None, -1), ("2024-05-01", None, 6),
    (np.datetime64("2024-05"), None, 6), ("2024-05-01T00:00:00.000", None, 6), (b"2024-05-01 00:00", None, 6),
    (datetime.datetime(2024, 5, 1, 9, 30), None, 7), (pd.Timestamp("2024-05-01 09:30:00.000000001"), None, -1),
    ("2024-05-01T09:30:00", None, 7), (np.datetime64("2024-05-01T09:30", "ns"), None, 7),
    (datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC), None, -1), (datetime.time(9, 30, 0, 500000), None, 8),
    ("09:30:00.500", None, 8), (datetime.time(9, 30), None, -1), (np.datetime64("20240-01-01"), None, -1),
    (datetime.datetime(1880, 1, 1, tzinfo=LOCAL), None, 9), (pd.Timestamp("1880-01-01", tz="Europe/Berlin"), None, 9),
    ("1880-01-01T00:00:00+00:53:28", None, 9), ("1879-12-31 23:06:32.000 UTC", None, 9),
    ("20240-01-01 00:00:00", None, 10), (datetime.datetime(1, 1, 1, tzinfo=BERLIN), None, -1),
    (None, None, -1), (math.nan, None, -1), (math.inf, None, -1), (np.float32("nan"), None, -1), (pd.NA, None, -1),
    (pd.NaT, None, -1), (np.datetime64("NaT"), None, -1), (Decimal("NaN"), None, -1), (Decimal("sNaN"), None, -1),
    (Decimal("Infinity"), None, -1), (datetime.timedelta(2), None, -1), (np.timedelta64(2, "D"), None, -1),
    (pd.Timedelta(2, "D"), None, -1), (pd.Period("2024-05-01", "D"), None, -1), (pd.Interval(0, 2), None, -1),
    (2 + 1j, None, -1), (2 + 0j, 2, 1), (np.complex64(2), 2, 1),
    ([2], None, -1), ({"a": 2}, None, -1), ((2,), None, -1), (np.array(2), 2, 1),
    (np.array([2]), None, -1),
    (Raises(), None, -1), (object, None, -1),
]  # fmt: skip


def series(cell: Any, **options: Any) -> pd.Series:
    holder = np.empty(1, dtype=object)
    holder[0] = cell
    return pd.Series(holder, name="v", **options)


def read(table: Any) -> pa.Array:
    (batch,) = open_table(table, [NUMERIC]).batches()
    return batch.column(0)


def check(array: pa.Array, number: float | None, code: int) -> None:
    assert [None if math.isnan(value) else value for value in read_numbers(array)] == [number] * len(array)
    assert read_codes(array, NUMERIC).tolist() == [code] * len(array)


@pytest.mark.parametrize(("cell", "number", "code"), CELLS, ids=lambda value: type(value).__name__)
def test_a_cell_is_read_alike_in_every_column_that_can_hold_it(cell: Any, number: float | None, code: int) -> None:
    alone = series(cell, dtype=object)
    check(read(alone.to_frame()), number, code)
    ways = {
        "inferred": lambda: series(cell).infer_objects(),
        "from records": lambda: pd.DataFrame.from_records([{"v": cell}, {"v": cell}])["v"],
        "categories": lambda: alone.astype("category"),
        "converted": lambda: alone.convert_dtypes(),
        "typed": lambda: pd.Series([cell, cell]),
        "typed categories": lambda: pd.Series([cell, cell]).astype("category"),
        "array": lambda: pd.Series(pd.array([cell])),
        "typed array": lambda: pd.Series(np.array([cell, cell])),
        "sparse": lambda: pd.Series([cell]).astype("Sparse"),
        "in UTC": lambda: pd.Series([cell]).dt.tz_convert("Asia/Tokyo"),
    }
    for name, way in ways.items():
        if name == "typed array" and isinstance(cell, str):
            continue  # NumPy drops a last NUL, and takes str() of subclasses
        try:
            made = way()
        except Exception:
            continue
        check(read(made.rename("v").to_frame()), number, code)
    if isinstance(cell, pd.Timestamp):
        return  # Arrow would cut its nanoseconds off
    for arrow in (lambda: pa.array([cell]), lambda: pa.array([cell, cell]).dictionary_encode()):
        try:
            made = arrow()
        except Exception:
            continue
        check(read(pa.table({"v": made})), number, code)
        check(pa.RunEndEncodedArray.from_arrays([len(made)], made[:1]) if len(made) == 1 else made, number, code)


def test_most_cells_are_held_by_more_than_one_kind_of_column() -> None:
    """The loop above does not skip everything."""
    assert read(pd.DataFrame.from_records([{"v": 2}])).type == pa.int64()
    assert read(pd.DataFrame({"v": pd.Series([2.0], dtype=np.float16)})).type == pa.float16()
    assert pa.types.is_timestamp(read(pd.DataFrame({"v": [pd.Timestamp(0)]})).type)
    assert pa.types.is_dictionary(read(pd.DataFrame({"v": pd.Categorical([2])})).type)
    assert read(pd.DataFrame({"v": pd.Series([2, 0]).astype("Sparse[int64]")})).to_pylist() == [b"2", b"0"]


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal256(40, 3),
     pa.decimal32(5, 2), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.binary(1)],
    ids=str,
)  # fmt: skip
def test_two_is_two_in_every_type_of_arrow(kind: pa.DataType) -> None:
    if pa.types.is_decimal(kind):
        values = pa.array([Decimal(2)], kind)
    else:
        values = (
            pa.array([2], kind) if "int" in str(kind) or pa.types.is_floating(kind) else pa.array([b"2"]).cast(kind)
        )
    check(values, 2, 1)


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (pa.array([datetime.date(2024, 5, 1)], pa.date32()), 6),
        (pa.array([datetime.date(2024, 5, 1)], pa.date64()), 6),
        (pa.array([datetime.datetime(2024, 5, 1)], pa.timestamp("ns")), 6),
        (pa.array([datetime.datetime(2024, 5, 1, 9, 30)], pa.timestamp("s")), 7),
        (pa.array([datetime.datetime(2024, 5, 1, 9, 30)], pa.timestamp("s", "Europe/Berlin")), -1),
        (pa.array([datetime.time(9, 30, 0, 500000)], pa.time32("ms")), 8),
        (pa.array([datetime.time(9, 30, 0, 500000)], pa.time64("ns")), 8),
        (pa.array([10**15], pa.timestamp("s")), -1),
        (pa.array([2], pa.duration("s")), -1),
        (pa.array([[2]]), -1),
        (pa.array([{"a": 2}]), -1),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_dates_and_times_are_text_of_one_spelling(array: pa.Array, code: int) -> None:
    check(array, None, code)
    check(array.slice(0, 0), None, code)


def test_moments_with_a_zone_are_compared_in_utc() -> None:
    declared = column(["2024-05-01T11:30+02:00", "x"])
    there = datetime.datetime(2024, 5, 1, 11, 30, tzinfo=BERLIN)
    for array in (
        pa.array([there]),
        pa.array([there.astimezone(datetime.UTC)], pa.timestamp("ns", "Asia/Tokyo")),
        pa.array([cell_text(there)]),
        pa.array([cell_text(pd.Timestamp(there))]),
        pa.array(["2024-05-01 09:30:00.0Z"]),
    ):
        assert read_codes(array, declared).tolist() == [0]


def test_text_is_compared_exactly_where_no_level_is_a_moment() -> None:
    declared = column(["no", "yes"])
    assert read_codes(pa.array([datetime.date(2024, 5, 1)]), declared).tolist() == [-1]
    assert read_codes(pa.array(["yes", "no", "no ", None]), declared).tolist() == [1, 0, -1, -1]


def test_objects_in_polars_are_read_as_objects_not_as_addresses() -> None:
    frame = pl.DataFrame({"v": [2, [1], "x", None], "w": [1, 2, 3, 4]}, strict=False)
    assert str(frame.schema["v"]) == "Object"
    assert read(lambda: frame).equals(read(frame))
    array = read(frame)
    assert array.to_pylist() == [b"2", UNREADABLE, b"x", None]
    assert read_codes(array, NUMERIC).tolist() == [1, -1, 3, -1]


def test_whole_numbers_of_128_bits_in_polars_are_taken() -> None:
    """One such cell makes a column of a type that Arrow does not know."""
    frame = pl.DataFrame({"v": [2, 2**70, None]}, strict=False)
    assert str(frame.schema["v"]) == "Int128"
    assert read_numbers(read(frame)).tolist()[:2] == [2, 2.0**70]


def test_names_of_polars_columns_are_no_patterns() -> None:
    declared = Schema.from_dict(
        {"dataset": {"name": "t", "rows": 1}, "columns": {"^.*$": {"type": "numeric", "lower": 0, "upper": 9}}}
    )
    (batch,) = open_table(pl.DataFrame({"a": [1], "^.*$": [2]}), list(declared.columns.values())).batches()
    assert batch.to_pydict() == {"^.*$": [2]}
