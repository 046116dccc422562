"""Draws that were made from rows, with what is needed to compare them with a Fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.formula import Design

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
UNITS = ("original", "scaled")


@dataclass(frozen=True)
class RowsPosterior:
    """Draws of the scaled coefficients, (chains, draws, coefficients), and how they were made.

    ``r_hat`` and ``ess`` are not numbers for a method that has one chain only.
    """

    design: Design
    coefficients: Floats
    r_hat: Floats
    ess: Floats
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return self.design.coefficient_names

    def draws(self, units: str = "original") -> Floats:
        """Draws of the coefficients, (chains, draws, coefficients), in the user's units or scaled."""
        if units not in UNITS:
            raise InputError("units", units, f"must be one of {', '.join(UNITS)}", "correct it")
        if units == "scaled":
            return self.coefficients
        matrix, shift = self.design.to_original_units()
        return np.asarray(self.coefficients @ matrix.T + shift)

    def summary(self, prob: float = 0.95, units: str = "original") -> pd.DataFrame:
        """One row a coefficient: mean, sd, equal-tailed interval, significance, ess, r_hat."""
        import pandas as pd

        if not 0 < prob < 1:
            raise InputError("prob", prob, "must lie between 0 and 1", "write for example prob=0.95")
        flat = self.draws(units).reshape(-1, len(self.names))
        lower, upper = np.quantile(flat, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
        columns = {
            "mean": flat.mean(axis=0),
            "sd": flat.std(axis=0, ddof=1),
            "lower": lower,
            "upper": upper,
            "significant": (lower > 0) | (upper < 0),
            "ess": self.ess,
            "r_hat": self.r_hat,
        }
        return pd.DataFrame(columns, index=pd.Index(self.names, name="coefficient"))
