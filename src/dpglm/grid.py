"""The fixed-point grid on which rows are rounded: a public fact of every release."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

ROUNDING_RULE = "each scaled row to the nearest grid point; rows projected to a smaller radius toward zero"


@dataclass(frozen=True)
class Grid:
    """Fixed point: x is a multiple of 2^-exponent, y of 2^(response_exponent - exponent).

    2^response_exponent bounds |y|, so both are integers of at most 2^exponent in magnitude.
    """

    exponent: int
    response_exponent: int

    def unit(self, y_power: int, degree: int) -> Fraction:
        """What one integer step of a block (y power, degree) is in data units."""
        return Fraction(2) ** (self.response_exponent * y_power - self.exponent * (y_power + degree))
