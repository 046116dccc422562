"""What a level is compared as: a number, or a text in one spelling.

A table may hold one and the same value as a truth value, as numbers of several types or as text; what holds the table
decides, and it may decide by looking at other rows. So values are compared, not how they are held: true is 1, "01",
"1.0" and 1 are 1, and a date or time has one spelling. ``custodian/cells.py`` reads cells by this rule.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

Level = str | int | float | bool
# Text that is read as a number. Limits on its length keep every reader's answer the same.
NUMBER = r"^[ \t]*[+-]?([0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?[ \t\r]*$"
TRUTH = {"false": 0.0, "true": 1.0}  # in any case

_DATE = r"(?P<date>\d{4}-\d\d-\d\d)"
_CLOCK = r"(?P<clock>\d\d:\d\d(:\d\d(\.\d+)?)?)"
_FIRST_DAY = datetime(1970, 1, 1)
_MOMENT = re.compile(rf"{_DATE}([ T]{_CLOCK}(?P<zone>Z| UTC|[+-]\d\d(:?\d\d(:?\d\d)?)?)?)?", re.ASCII)
_TIME = re.compile(_CLOCK, re.ASCII)


def level_value(level: Level) -> float | str:
    """What a level, or a cell as text, is compared as. No two levels of a column have the same value."""
    if not isinstance(level, str):
        return float(level)
    if level.lower() in TRUTH:
        return TRUTH[level.lower()]
    number = float(level) if re.fullmatch(NUMBER, level) else math.inf
    return number if math.isfinite(number) else moment(level) or level


def level_number(level: Level) -> float | None:
    """The number that a level is compared as; None where it is text."""
    value = level_value(level)
    return value if isinstance(value, float) else None


def moment(text: str) -> str | None:
    """One spelling of a date, a time of day or both, in UTC where the text has a zone; None where it is none.

    >>> [moment(text) for text in ("2024-05-01T00:00:00.000", "2024-05-01 09:30", "2024-05-01 01:00:00.50+01:00")]
    ['2024-05-01', '2024-05-01 09:30:00', '2024-05-01 00:00:00.5Z']
    """
    time = _TIME.fullmatch(text)
    if time:
        return _clock(time["clock"])
    found = _MOMENT.fullmatch(text)
    if not found or not found["clock"]:
        return found and found["date"]
    date, clock, zone = found["date"], _clock(found["clock"]), found["zone"]
    if zone:
        try:
            there = datetime.fromisoformat(f"{date} {clock[:8]}{zone.replace(' UTC', 'Z')}").astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        return f"{there.date()} {there.time()}{clock[8:]}Z"
    return date if clock == "00:00:00" else f"{date} {clock}"


def days(text: str) -> float | None:
    """Days since 1970-01-01 of a date, also with a time of day; None where the text is no date that there is.

    >>> [days(text) for text in ("1970-01-02", "2020-02-29 12:00", "2021-02-29", "12:00", "18262")]
    [1.0, 18321.5, None, None, None]
    """
    found = moment(text)
    if found is None or "-" not in found:
        return None
    try:
        there = datetime.fromisoformat(found.removesuffix("Z"))
    except ValueError:  # the 30th of February, a 25th hour
        return None
    return (there - _FIRST_DAY) / timedelta(days=1)


def date_of(day: float) -> str:
    """The date of a number of days since 1970-01-01, or the nearest that there is.

    >>> date_of(18321.5), date_of(1e12)
    ('2020-02-29', '9999-12-31')
    """
    least, most = (datetime.min - _FIRST_DAY).days, (datetime.max - _FIRST_DAY).days
    return str((_FIRST_DAY + timedelta(days=math.floor(min(max(day, least), most)))).date())


def _clock(text: str) -> str:
    """Hours, minutes and seconds, and as many digits of a fraction as say something."""
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text if text.count(":") == 2 else f"{text}:00"
