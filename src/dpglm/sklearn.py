"""Estimators that fit where scikit-learn's do: pipelines, scorers, searches. Needs the extra ``sklearn``.

Guarantee: ``fit`` makes one release, (epsilon, delta)-differentially private for one row, and keeps nothing of
the rows but what the release says. So everything an estimator holds afterwards, and its pickle, may be shown to whom
the release may be shown to. Predictions are functions of the release and of the rows that they are made for.

What scikit-learn reads from the rows is declared here: bounds, classes and the columns' names are arguments. Each call
of ``fit`` spends its (epsilon, delta), those of a cross-validation and of a search among them: count the fits, or let a
ledger do so. Cells that are missing or cannot be read are no error, because an error would tell of a row: such a row
does not count. This module holds rows and fits in one process: a custodian who wants two runs ``dpglm.release`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.protection import REPLACED
from dpglm.schema import Schema

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_array, column_or_1d, validate_data
except ImportError:  # pragma: no cover
    raise InputError("scikit-learn", None, "is not installed", 'install dpglm with its extra "sklearn"') from None

__all__ = ["DPLinearRegression", "DPLogisticRegression", "DPPoissonRegressor"]

Floats = npt.NDArray[np.float64]
Bounds = tuple[Any, Any] | Mapping[str, tuple[float, float]] | None


class _PrivateRegression(BaseEstimator):  # type: ignore[misc]
    """What the three estimators share: from rows to a release, from the release to coefficients, and predictions."""

    _family: str
    _outcome = "y"
    coef_: Floats
    coef_interval_: Floats

    def fit(self, X: Any, y: Any) -> Any:
        """Release the table (X, y) once, spending epsilon and delta, and fit the release.

        ``X`` is a two-dimensional array, a pandas or a Polars DataFrame; ``y`` has one outcome a row. Sets ``coef_``,
        ``intercept_`` and their intervals, ``release_`` (what may be published), ``fit_`` (the ``dpglm.Fit``),
        ``schema_`` and ``coef_names_``.
        """
        import dpglm

        table, names, outcomes = self._table(X, y)
        self.schema_ = self._declared(names, len(outcomes))
        outcome = self._outcome_of(self.schema_, names, y)
        self.outcome_name_ = outcome
        apart = (self.weights, self.schema_.dataset.unit_column)
        predictors = self.terms or " + ".join(f"`{name}`" for name in names if name not in apart)
        self.release_ = dpglm.release(
            _with_column(table, outcome, outcomes), f"`{outcome}` ~ {predictors}", schema=self.schema_,
            family=self._family, epsilon=self.epsilon, delta=self.delta, ledger=self.ledger,
            weights=self.weights,
        )  # fmt: skip
        self.fit_ = dpglm.fit(self.release_, prior=self.prior, seed=self.seed)
        self._keep_coefficients()
        return self

    def predict_interval(self, X: Any) -> Floats:
        """Lower and upper end of the ``prob`` interval of E[y | row], (rows, 2)."""
        return self._expected(X)[:, 1:]

    def _keep_coefficients(self) -> None:
        rows = self.fit_.summary_rows(self.prob)
        told = np.array([[row["mean"], row["lower"], row["upper"]] for row in rows], dtype=np.float64)
        has_intercept = self.release_.design.intercept
        slopes = told[1:] if has_intercept else told
        self.coef_names_ = np.array(self.fit_.names[1:] if has_intercept else self.fit_.names, dtype=object)
        self.coef_, self.coef_interval_ = slopes[:, 0], slopes[:, 1:]
        intercept = told[0] if has_intercept else np.zeros(3)
        self.intercept_: Any = float(intercept[0])
        self.intercept_interval_ = intercept[1:]

    def _expected(self, X: Any) -> Floats:
        """E[y | row] and its interval, (rows, 3)."""
        if not hasattr(self, "fit_"):
            raise NotFittedError(f"{type(self).__name__} is not fitted: call fit first")
        table, names = _columns(self, X, reset=False)
        rows = {name: _cells(table, name) for name in names}
        told = self.fit_.predict(rows, prob=self.prob)
        return np.asarray(told[["mean", "lower", "upper"]], dtype=np.float64)

    def _table(self, X: Any, y: Any) -> tuple[Any, list[str], npt.NDArray[Any]]:
        """The predictors as they came, their names, and the outcomes; nothing here looks at a cell."""
        if y is None:
            rule = "requires y to be passed, but the target y is None"
            raise ValueError(f"{type(self).__name__} {rule}")
        table, names = _columns(self, X, reset=True)
        outcomes = column_or_1d(np.asarray(y), warn=True)
        if len(outcomes) != len(table):
            raise InputError("y", f"{len(outcomes)} outcomes", f"must be one for each of {len(table)} rows", "align")
        return table, names, outcomes

    def _declared(self, names: list[str], rows: int) -> Schema:
        """The declared schema, or one of the declared bounds and the public number of rows."""
        from dpglm.custodian.build import as_schema

        if self.schema is not None:
            if self.bounds is not None:
                raise InputError("bounds", self.bounds, "are part of the schema", "leave one of them out")
            return as_schema(self.schema)
        if self._outcome in names:
            raise InputError("X", self._outcome, "is how the outcome is called", "rename the column, or pass a schema")
        columns = {name: {"type": "numeric", **each} for name, each in zip(names, self._bounds(names), strict=True)}
        number = {"rows": rows} if self.neighbours == REPLACED else {}
        dataset = {"name": self.dataset, "unit": self.unit, "neighbours": self.neighbours, **number}
        return Schema.from_dict({"dataset": dataset, "columns": {**columns, self._outcome: self._declared_outcome()}})

    def _bounds(self, names: list[str]) -> list[dict[str, float]]:
        """Declared bounds, a column at a time; none where nothing is declared."""
        if self.bounds is None:
            return [{} for _ in names]
        if isinstance(self.bounds, Mapping):
            unknown = [name for name in self.bounds if name not in names]
            if unknown:
                raise InputError("bounds", unknown[0], f"must name columns of X ({', '.join(names)})", "correct it")
            return [_pair(f"bounds[{name!r}]", self.bounds[name]) if name in self.bounds else {} for name in names]
        ends = _pair("bounds", self.bounds)
        wide = []
        for end, given in ends.items():
            try:
                wide.append(np.broadcast_to(np.asarray(given, dtype=np.float64), (len(names),)))
            except (TypeError, ValueError):
                rule = f"must be a number, or {len(names)} numbers, one for each column"
                raise InputError(f"bounds ({end})", given, rule, "correct it") from None
        return [{"lower": float(low), "upper": float(high)} for low, high in zip(*wide, strict=True)]

    def _declared_outcome(self) -> dict[str, Any]:
        raise NotImplementedError

    def _outcome_of(self, schema: Schema, names: list[str], y: Any) -> str:
        """The outcome's column: the name that y brings, or the only declared one that X has not."""
        if self.schema is None:
            return self._outcome
        missing = [name for name in schema.columns if name not in names]
        brought = getattr(y, "name", None)
        if isinstance(brought, str) and brought in missing:
            return brought
        if len(missing) != 1:
            rule = "must hold one column that X has not, the outcome"
            raise InputError("schema", missing, rule, "name y as the schema does, or correct the schema")
        return missing[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # the noise has no seed
        tags.input_tags.allow_nan = True
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


class DPLogisticRegression(ClassifierMixin, _PrivateRegression):  # type: ignore[misc]
    """Logistic regression of two classes from one noisy release.

    Parameters
    ----------
    epsilon, delta
        What each call of ``fit`` may cost, for one row.
    ledger
        Path of the dataset's ledger, or None, explicitly, to keep no account.
    classes
        The two values that y may have; the second is the one whose probability is modelled. Part of a schema.
    bounds
        Where numbers are clamped: ``(lower, upper)`` for all columns, each a number or one number a column, or
        ``{"age": (20, 90)}``; columns that are left out, or None, get a wide default. Never taken from the rows.
    schema
        In place of ``bounds`` and ``classes``: a ``dpglm.Schema``, its dict or its file, of columns of any type.
    terms
        The right-hand side of the formula, for example ``"age * smoker"``. Default: every column of X but the weights.
    weights
        The column of X that says what each row weighs; its declared lower bound is 0 or more.
    prior, seed
        As in ``dpglm.fit``. The seed is of the draws: the noise has none.
    prob
        Probability of the intervals.
    dataset, unit, neighbours
        Where no schema says it: how a ledger knows the table, what one row is, and whether one is "replaced" (their
        number is public) or "added-or-removed" (it is private).
    """

    _family = "logistic"

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        ledger: Any,
        classes: Sequence[Any] | None = None,
        bounds: Bounds = None,
        schema: Schema | Mapping[str, Any] | str | Path | None = None,
        terms: str | None = None,
        weights: str | None = None,
        prior: Any = None,
        prob: float = 0.95,
        seed: int = 0,
        dataset: str = "table",
        unit: str = "one row",
        neighbours: str = "replaced",
    ) -> None:
        self.epsilon, self.delta, self.ledger = epsilon, delta, ledger
        self.classes, self.bounds, self.schema, self.terms = classes, bounds, schema, terms
        self.prior, self.prob, self.seed, self.dataset, self.unit = prior, prob, seed, dataset, unit
        self.weights, self.neighbours = weights, neighbours

    def fit(self, X: Any, y: Any) -> DPLogisticRegression:
        """Release the table (X, y) once, spending epsilon and delta, and fit the release."""
        super().fit(X, y)
        self.classes_ = np.array(self.schema_.columns[self.outcome_name_].levels)
        self.coef_, self.coef_interval_ = self.coef_[None], self.coef_interval_[None]
        self.intercept_, self.intercept_interval_ = np.array([self.intercept_]), self.intercept_interval_[None]
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Posterior mean of the probability of each class, (rows, 2), in the order of ``classes_``."""
        second = self._expected(X)[:, 0]
        return np.stack([1 - second, second], axis=1)

    def decision_function(self, X: Any) -> Floats:
        """Log-odds of the posterior mean probability of the second class."""
        second = np.clip(self._expected(X)[:, 0], 1e-300, 1 - 1e-16)
        return np.asarray(np.log(second) - np.log1p(-second))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The more probable class."""
        likely = self.predict_proba(X)[:, 1] > 0.5
        return np.asarray(self.classes_[likely.astype(int)])

    def _declared_outcome(self) -> dict[str, Any]:
        classes = None if self.classes is None else [_plain(each) for each in self.classes]
        if classes is None or len(classes) != 2:
            rule = "must be the two values of y: they are declared, never read from the rows"
            raise InputError("classes", classes, rule, 'write for example classes=["no", "yes"]')
        return {"type": "binary", "levels": classes}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class DPLinearRegression(RegressorMixin, _PrivateRegression):  # type: ignore[misc]
    """Linear regression from one noisy release.

    Parameters are those of ``DPLogisticRegression``, with ``y_bounds``, the (lower, upper) between which outcomes are
    clamped (None: a wide default), in place of ``classes``.
    """

    _family = "linear"

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        ledger: Any,
        bounds: Bounds = None,
        y_bounds: tuple[float, float] | None = None,
        schema: Schema | Mapping[str, Any] | str | Path | None = None,
        terms: str | None = None,
        weights: str | None = None,
        prior: Any = None,
        prob: float = 0.95,
        seed: int = 0,
        dataset: str = "table",
        unit: str = "one row",
        neighbours: str = "replaced",
    ) -> None:
        self.epsilon, self.delta, self.ledger = epsilon, delta, ledger
        self.bounds, self.y_bounds, self.schema, self.terms = bounds, y_bounds, schema, terms
        self.prior, self.prob, self.seed, self.dataset, self.unit = prior, prob, seed, dataset, unit
        self.weights, self.neighbours = weights, neighbours

    def predict(self, X: Any) -> Floats:
        """Posterior mean of E[y | row]."""
        return self._expected(X)[:, 0]

    def _declared_outcome(self) -> dict[str, Any]:
        return {"type": "numeric", **({} if self.y_bounds is None else _pair("y_bounds", self.y_bounds))}


class DPPoissonRegressor(RegressorMixin, _PrivateRegression):  # type: ignore[misc]
    """Regression of counts, with a log link and a dispersion of its own, from one noisy release.

    Parameters are those of ``DPLogisticRegression``, with ``y_upper``, the largest count (None: a wide default), in
    place of ``classes``.
    """

    _family = "poisson"

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        ledger: Any,
        bounds: Bounds = None,
        y_upper: float | None = None,
        schema: Schema | Mapping[str, Any] | str | Path | None = None,
        terms: str | None = None,
        weights: str | None = None,
        prior: Any = None,
        prob: float = 0.95,
        seed: int = 0,
        dataset: str = "table",
        unit: str = "one row",
        neighbours: str = "replaced",
    ) -> None:
        self.epsilon, self.delta, self.ledger = epsilon, delta, ledger
        self.bounds, self.y_upper, self.schema, self.terms = bounds, y_upper, schema, terms
        self.prior, self.prob, self.seed, self.dataset, self.unit = prior, prob, seed, dataset, unit
        self.weights, self.neighbours = weights, neighbours

    def predict(self, X: Any) -> Floats:
        """Posterior mean of the expected count."""
        return self._expected(X)[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # of scikit-learn's outcomes, which are no counts
        return tags

    def _declared_outcome(self) -> dict[str, Any]:
        return {"type": "count", **({} if self.y_upper is None else {"upper": self.y_upper})}


def _columns(estimator: _PrivateRegression, X: Any, reset: bool) -> tuple[Any, list[str]]:
    """X as a frame, and the names of its columns; arrays get x0, x1 and so on.

    Types of cells are not looked at, numbers are not checked: what a release cannot read it treats as missing.
    """
    names = getattr(X, "columns", None)
    if names is not None and all(isinstance(name, str) for name in names):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if 0 in X.shape:
            raise InputError("X", f"{X.shape[0]} rows, {X.shape[1]} columns", "is empty", "give at least one of each")
        return X, list(names)
    import pandas as pd

    array = check_array(X, dtype=None, ensure_all_finite=False)
    validate_data(estimator, array, reset=reset, skip_check_array=True)
    names = [f"x{number}" for number in range(array.shape[1])]
    return pd.DataFrame(array, columns=names), names


def _with_column(table: Any, name: str, cells: npt.NDArray[Any]) -> Any:
    """The frame with one more column; the caller's stays as it is."""
    if hasattr(table, "with_columns"):
        import polars as pl

        if cells.dtype == object:  # of any kinds: a cell must not decide whether this works
            return table.with_columns(pl.Series(name, cells.tolist(), dtype=pl.Object))
        return table.with_columns(pl.Series(name, cells))
    table = table.copy(deep=False)
    table[name] = cells
    return table


def _cells(table: Any, name: str) -> npt.NDArray[Any]:
    column = table[name]
    return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def _pair(name: str, given: Any) -> dict[str, Any]:
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) != 2:
        raise InputError(name, given, "must be (lower, upper)", "write for example (0, 100)")
    return {"lower": given[0], "upper": given[1]}


def _plain(level: Any) -> Any:
    """NumPy's scalars as Python's."""
    return level.item() if isinstance(level, np.generic) else level
