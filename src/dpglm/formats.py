"""How numbers are written: with the digits that matter, as people read them or as programs do."""

from __future__ import annotations

import math
from collections.abc import Sequence

_COARSE = 9.95  # percent, beyond which a tenth of one says nothing
TABLE_FORMATS = ("table", "markdown", "latex", "html", "csv", "json")


def number(value: float, digits: int = 3) -> str:
    """A number as people write it: three digits that matter, no exponent where none is needed, a true minus sign."""
    return plain_number(value, digits).replace("-", "−")


def plain_number(value: float, digits: int = 3) -> str:
    """The same with an ordinary hyphen, as programs read it.

    >>> plain_number(0.0451234), plain_number(-6.474), plain_number(123456.0), plain_number(1e-9)
    ('0.0451', '-6.47', '123456', '1.00e-09')
    """
    if not math.isfinite(value):
        return "n/a"
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    decimals = 0 if value == 0 else max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def times(factor: float) -> str:
    """How many times as wide; never less than once."""
    return f"{max(factor, 1.0):.2f} ×" if math.isfinite(factor) else "n/a"


def count(number_of: float) -> str:
    """A number of things, with separators."""
    return f"{number_of:,.0f}" if math.isfinite(number_of) else "n/a"


def small(value: float) -> str:
    """A tiny probability without the padding of its exponent.

    >>> small(1e-06)
    '1e-6'
    """
    return f"{value:g}".replace("e-0", "e-")


def percent(share: float, draws: int | None = None) -> str:
    """A probability, exact or estimated by draws: never 0 or 100 %."""
    finest = 0.001 if draws is None else max(0.001, 1 / draws)
    if share > 1 - finest:
        return f"> {100 * (1 - finest):.1f} %"
    if share < finest:
        return f"< {100 * finest:.1f} %"
    return f"{100 * share:.1f} %"


def noisy_share(share: float, noise: float) -> str:
    """A noisy share of rows, never outside what a share can be, with the digits that its noise leaves."""
    decimals = 1 if 196 * noise < _COARSE else 0
    return f"{100 * min(max(share, 0.0), 1.0):.{decimals}f} % ± {196 * noise:.{decimals}f}"


def listed(items: Sequence[str]) -> str:
    """``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def some(items: Sequence[str], most: int = 8, word: str = "and") -> str:
    """The same of at most so many, and how many more.

    >>> some(["a", "b", "c", "d"], most=3), some(["a", "b"], word="or")
    ('a, b and 2 more', 'a or b')
    """
    shown = list(items) if len(items) <= most else [*items[: most - 1], f"{len(items) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}" if shown else ""
