"""Honest regression coefficients from private tables.

A custodian turns a sensitive table into one noisy, self-describing release; an analyst who never sees a row turns
the release into a posterior for the coefficients::

    Schema -> Design -> FixedPointRows -> BlockSums -> Release           (custodian: sees rows)
                                                       Release -> Fit    (analyst: sees only the release)
                                                                  Fit -> report, plots

Heavy libraries load when they are used, so that importing this package is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpglm.analyst.fit import fit, fit_many
    from dpglm.analyst.fit_file import load_fit
    from dpglm.analyst.priors import NormalPrior, SphericalPrior
    from dpglm.analyst.result import Fit, FitWarning
    from dpglm.analyst.table import Table, compare
    from dpglm.custodian.build import release
    from dpglm.custodian.check import check
    from dpglm.custodian.ledger import Ledger
    from dpglm.custodian.person_periods import person_periods
    from dpglm.errors import BudgetError, DpglmError, FileError, InputError, SurveyError
    from dpglm.paper.prior_predictive import prior_predictive
    from dpglm.periods import person_period_schema
    from dpglm.release_file import load_release
    from dpglm.releases import Release
    from dpglm.report.html import report
    from dpglm.report.plots import plot_effect, plot_forest, plot_posterior, plot_privacy
    from dpglm.report.survival import plot_survival
    from dpglm.review.page import review_statement
    from dpglm.schema import Schema

__version__ = "0.1.0"

_HOME = {
    "Fit": "dpglm.analyst.result",
    "FitWarning": "dpglm.analyst.result",
    "NormalPrior": "dpglm.analyst.priors",
    "SphericalPrior": "dpglm.analyst.priors",
    "Table": "dpglm.analyst.table",
    "compare": "dpglm.analyst.table",
    "fit": "dpglm.analyst.fit",
    "fit_many": "dpglm.analyst.fit",
    "load_fit": "dpglm.analyst.fit_file",
    "plan": "dpglm.custodian.plan",
    "person_period_schema": "dpglm.periods",
    "person_periods": "dpglm.custodian.person_periods",
    "prior_predictive": "dpglm.paper.prior_predictive",
    "release": "dpglm.custodian.build",
    "check": "dpglm.custodian.check",
    "Ledger": "dpglm.custodian.ledger",
    "BudgetError": "dpglm.errors",
    "DpglmError": "dpglm.errors",
    "FileError": "dpglm.errors",
    "InputError": "dpglm.errors",
    "SurveyError": "dpglm.errors",
    "Release": "dpglm.releases",
    "load_release": "dpglm.release_file",
    "plot_effect": "dpglm.report.plots",
    "plot_forest": "dpglm.report.plots",
    "plot_posterior": "dpglm.report.plots",
    "plot_privacy": "dpglm.report.plots",
    "plot_survival": "dpglm.report.survival",
    "review_statement": "dpglm.review.page",
    "Schema": "dpglm.schema",
}

__all__ = [
    "BudgetError",
    "DpglmError",
    "FileError",
    "Fit",
    "FitWarning",
    "InputError",
    "Ledger",
    "NormalPrior",
    "Release",
    "Schema",
    "SphericalPrior",
    "SurveyError",
    "Table",
    "check",
    "compare",
    "fit",
    "fit_many",
    "load_fit",
    "load_release",
    "person_period_schema",
    "person_periods",
    "plan",
    "plot_effect",
    "plot_forest",
    "plot_posterior",
    "plot_privacy",
    "plot_survival",
    "prior_predictive",
    "release",
    "report",
    "review_statement",
]


def __getattr__(name: str) -> Any:
    if name == "report":
        return import_module("dpglm.report")  # a package that can be called
    if name not in _HOME:
        raise AttributeError(f"module 'dpglm' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
