"""Are several coefficients all zero? The joint Wald test of them, with a p value.

It uses the likelihood, without the prior: sampling error, privacy noise and what bounding may shift are in its
covariance, so that the p value is that of an ordinary test of the table, only less sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.contrasts import vector_of
from dpglm.analyst.describe import flat
from dpglm.errors import InputError
from dpglm.formats import plain_number

if TYPE_CHECKING:
    from dpglm.analyst.result import Fit

Floats = npt.NDArray[np.float64]

_UNKNOWN = 1e-6  # precision, in standard units, of a direction that the looks say nothing of
_LEAST_P = 1e-16


@dataclass(frozen=True)
class JointTest:
    """Whether all of ``names`` are zero: a chi-square ``statistic`` on ``degrees`` of freedom, and its p value."""

    names: tuple[str, ...]
    statistic: float
    degrees: int
    p_value: float

    def __str__(self) -> str:
        p_value = f"= {self.p_value:.2g}" if self.p_value >= _LEAST_P else f"< {_LEAST_P:g}"
        degrees = f"{self.degrees} degree{'s' * (self.degrees > 1)} of freedom"
        statistic = plain_number(self.statistic)
        return f"{', '.join(self.names)}: all zero? chi-square {statistic} on {degrees}, p {p_value}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = {"statistic": self.statistic, "degrees": self.degrees, "p_value": self.p_value}
        return {"names": list(self.names), **facts}


def joint_test(fit: Fit, terms: object) -> JointTest:
    """``Fit.test``."""
    from scipy.special import gammaincc

    asked = terms if isinstance(terms, list | tuple) else [terms]
    named = [found for each in asked for found in _contrasts(fit, each)]
    if not named:
        raise InputError("terms", terms, "must name a coefficient at least", 'write for example ["age", "smoker"]')
    names, contrasts = tuple(name for name, _ in named), np.array([vector for _, vector in named])
    estimate, covariance = _estimated(fit, contrasts)
    scales = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scales, scales)
    if np.linalg.matrix_rank(correlation, tol=1e-9, hermitian=True) < len(names):
        raise InputError("terms", ", ".join(names), "say the same in part", "leave out what follows from the others")
    statistic = float(estimate / scales @ np.linalg.solve(correlation, estimate / scales))
    return JointTest(names, statistic, len(names), float(gammaincc(len(names) / 2, statistic / 2)))


def _contrasts(fit: Fit, asked: object) -> list[tuple[str, Floats]]:
    """One for a coefficient or a dict of weights; for a term one for each of its coefficients."""
    if isinstance(asked, Mapping):
        text = " + ".join(f"{weight:g} {name}" if weight != 1 else str(name) for name, weight in asked.items())
        return [(text.replace("+ -", "- "), vector_of(fit, asked))]
    members = {term.name: [column.name for column in term.columns] for term in fit.releases[0].design.terms}
    if isinstance(asked, str) and asked not in fit.names and asked in members:
        return [(name, vector_of(fit, {name: 1.0})) for name in members[asked]]
    if isinstance(asked, str) and asked in fit.names:
        return [(asked, vector_of(fit, {asked: 1.0}))]
    known = ", ".join(dict.fromkeys([*members, *fit.names]))
    raise InputError("terms", asked, f"must be among {known}", "correct the name")


def _estimated(fit: Fit, contrasts: Floats) -> tuple[Floats, Floats]:
    """Estimates and covariance of contrasts in the user's units: of moments those of the posterior's draws."""
    if fit.closed is None:
        values = flat(fit.draws()) @ contrasts.T
        return values.mean(axis=0), np.atleast_2d(np.cov(values.T))
    matrix, shift = fit.releases[0].design.to_original_units()
    told = fit.closed.likelihood
    covariance = np.linalg.inv(told.precision + _UNKNOWN * np.eye(len(told.shift)))
    turned = contrasts @ matrix
    return turned @ (covariance @ told.shift) + contrasts @ shift, turned @ covariance @ turned.T
