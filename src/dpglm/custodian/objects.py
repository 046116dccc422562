"""A Python object, the cell of a column of mixed kinds, as text that ``cells.py`` reads as it would a typed column.

Edge cases: None, NaN, NaT and NA are missing. What is infinite, or neither number, text, bytes, truth value, date nor
time, has no text, whatever its ``str``: a table with another row could hold it in a type that reads otherwise.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from dpglm.values import moment

UNREADABLE = b"\x1a"  # not printable, so in no declared level, and no number


def cell_text(value: Any) -> bytes | None:
    """A Python object as the text that is read as it would be in a column of its own type; None if it is missing."""
    try:
        return _speller(type(value))(value)  # type: ignore[arg-type]
    except Exception:
        return UNREADABLE


@lru_cache(256)
def _speller(kind: type) -> Callable[[Any], bytes | None]:
    """How objects of a type are spelled. Of subclasses, such as enumerations of text, the value counts."""
    if kind is type(None) or (kind.__module__.startswith("pandas.") and kind.__name__ in ("NAType", "NaTType")):
        return lambda value: None
    spellers: tuple[tuple[tuple[type, ...], Callable[[Any], bytes | None]], ...] = (
        ((str,), lambda value: str.encode(value, "utf-8", "surrogatepass")),
        ((bytes, bytearray, memoryview), bytes),
        ((bool, np.bool_), lambda value: b"true" if value else b"false"),
        ((np.timedelta64,), lambda value: UNREADABLE),  # to NumPy it is an integer
        ((int, np.integer), lambda value: str(int(value)).encode()),
        ((float, np.floating), lambda value: _spelled_float(float(value))),
        ((complex, np.complexfloating), lambda value: UNREADABLE if value.imag else _spelled_float(float(value.real))),
        ((Decimal,), _spelled_decimal),
        ((datetime.datetime,), _spelled_datetime),
        ((datetime.date,), lambda value: _spelled_moment(value.isoformat())),
        ((datetime.time,), lambda value: _spelled_moment(value.isoformat())),
        ((np.datetime64,), _spelled_datetime64),
        ((np.ndarray,), lambda value: cell_text(value[()]) if value.ndim == 0 else UNREADABLE),
    )
    return next((spell for kinds, spell in spellers if issubclass(kind, kinds)), lambda value: UNREADABLE)


def _spelled_float(value: float) -> bytes | None:
    return repr(value).encode() if math.isfinite(value) else None if math.isnan(value) else UNREADABLE


def _spelled_decimal(value: Decimal) -> bytes | None:
    return str(value).encode() if value.is_finite() else None if value.is_nan() else UNREADABLE


def _spelled_moment(text: str) -> bytes:
    return (moment(text) or "").encode() or UNREADABLE


def _spelled_datetime(value: datetime.datetime) -> bytes:
    """As a typed column holds it, in UTC: the offset of a zone may have seconds."""
    there = value if value.utcoffset() is None else value.astimezone(datetime.UTC)
    return _spelled_moment(there.isoformat(" "))


def _spelled_datetime64(value: np.datetime64) -> bytes | None:
    if np.isnat(value):
        return None
    coarse = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D", "h", "m")
    return _spelled_moment(str(value.astype("datetime64[s]") if coarse else value))
