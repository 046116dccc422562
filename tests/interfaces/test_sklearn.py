"""Estimators keep scikit-learn's contract as far as a private one can, and nothing of the rows."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import dpglm
from dpglm.sklearn import DPLinearRegression, DPLogisticRegression, DPPoissonRegressor

PAGE = Path(__file__).parents[2] / "docs" / "sklearn.md"
CHECKED = {"epsilon": 50.0, "delta": 1e-3, "ledger": None, "bounds": (-20, 20)}
SCHEMA = {
    "dataset": {"name": "people", "rows": 4000, "unit": "one person"},
    "columns": {
        "age": {"type": "numeric", "lower": 0, "upper": 120},
        "smoker": {"type": "categorical", "levels": ["never", "former", "now"]},
        "sick": {"type": "binary", "levels": ["no", "yes"]},
    },
}

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.FitWarning")


def exceptions() -> dict[str, str]:
    """The checks that the page says are not passed, with its reasons."""
    rows = re.findall(r"^\| `(check_\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    return dict(rows)


def simulated(rows: int = 6_000) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two standard normal predictors, and the linear predictor 0.5 + x0 - 0.5 x1."""
    x = np.random.default_rng(1).normal(size=(rows, 2))
    return x, 0.5 + x @ [1.0, -0.5]


def people() -> pd.DataFrame:
    generator = np.random.default_rng(2)
    frame = pd.DataFrame(
        {"age": generator.uniform(20, 80, 4000), "smoker": generator.choice(["never", "former", "now"], 4000)}
    )
    u = (frame.age - 50) / 10 + (frame.smoker == "now")
    frame["sick"] = np.where(generator.random(4000) < 1 / (1 + np.exp(-u)), "yes", "no")
    return frame


@pytest.mark.parametrize(
    ("estimator", "all_of_them"),
    [
        (DPLogisticRegression(classes=[0, 1], **CHECKED), True),
        (DPLinearRegression(**CHECKED), False),
        (DPPoissonRegressor(**CHECKED), False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_checks_pass_but_those_that_the_page_lists(estimator: Any, all_of_them: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(
            estimator, legacy=all_of_them, expected_failed_checks=exceptions(), on_fail=None, on_skip=None
        )
    failed = [(each["check_name"], str(each["exception"])[:200]) for each in found if each["status"] == "failed"]
    assert failed == []
    assert sum(each["status"] == "passed" for each in found) >= (35 if all_of_them else 12)


def test_every_exception_is_one() -> None:
    """A reason that is no longer true would stand in the page for ever."""
    known = {name.removeprefix("check_") for name in exceptions()}
    assert len(known) >= 8
    import sklearn.utils.estimator_checks as checks

    assert [name for name in known if not hasattr(checks, f"check_{name}")] == []


def test_coefficients_are_those_of_the_rows_within_their_intervals() -> None:
    x, u = simulated()
    generator = np.random.default_rng(3)
    private = {"epsilon": 5.0, "delta": 1e-6, "ledger": None, "bounds": (-10, 10)}
    for ours, theirs, y in (
        (DPLogisticRegression(classes=[0, 1], **private), LogisticRegression(C=np.inf),
         (generator.random(len(u)) < 1 / (1 + np.exp(-u))).astype(int)),
        (DPLinearRegression(y_bounds=(-50, 50), **private), LinearRegression(), u + generator.normal(size=len(u))),
        (DPPoissonRegressor(y_upper=200, **private), PoissonRegressor(alpha=0), generator.poisson(np.exp(u))),
    ):  # fmt: skip
        theirs.fit(x, y)
        ours.fit(x, y)
        assert ours.coef_.shape == np.shape(theirs.coef_)
        assert ours.coef_interval_.shape == (*ours.coef_.shape, 2)
        assert np.shape(ours.intercept_) == np.shape(theirs.intercept_)
        width = ours.coef_interval_[..., 1] - ours.coef_interval_[..., 0]
        assert (np.abs(ours.coef_ - theirs.coef_) < 1.5 * width).all()
        assert (width < 0.3).all()
        summary = ours.fit_.summary()
        assert np.allclose(np.ravel(ours.coef_), summary["mean"].iloc[1:])
        assert np.allclose(np.ravel(ours.intercept_), summary["mean"].iloc[0])
        assert ours.score(x, y) > theirs.score(x, y) - 0.05
        lower, upper = ours.predict_interval(x[:5]).T
        assert (lower < upper).all()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_schema_takes_columns_of_any_type(library: str) -> None:
    frame = people()
    x, y = frame[["age", "smoker"]], frame["sick"]
    if library == "polars":
        polars = pytest.importorskip("polars")
        x, y = polars.from_pandas(x), polars.Series("sick", y.to_list())
    model = DPLogisticRegression(epsilon=5.0, delta=1e-6, ledger=None, schema=SCHEMA, terms="age + smoker").fit(x, y)
    assert list(model.coef_names_) == ["age", "smoker[former]", "smoker[now]"]
    assert model.coef_.shape == (1, 3)
    assert list(model.classes_) == ["no", "yes"]
    assert list(model.feature_names_in_) == ["age", "smoker"]
    assert set(model.predict(x)) <= {"no", "yes"}
    assert model.score(x, y) > 0.7
    assert np.allclose(model.predict_proba(x[:3]).sum(axis=1), 1)
    assert model.release_.formula == "`sick` ~ age + smoker"
    with pytest.raises(ValueError, match="feature names"):
        model.predict(x.rename(columns={"age": "Age"}) if library == "pandas" else x.rename({"age": "Age"}))


def test_the_callers_frame_stays_as_it_is() -> None:
    frame = people()[["age"]]
    before = frame.copy()
    DPLinearRegression(epsilon=1.0, delta=1e-6, ledger=None, bounds={"age": (0, 120)}).fit(frame, frame["age"])
    pd.testing.assert_frame_equal(frame, before)


def marks(value: float) -> list[bytes]:
    """How a number may stand in a pickle."""
    return [np.float64(value).tobytes(), np.float64(value).byteswap().tobytes(), repr(value).encode()]


def test_a_pickle_holds_nothing_of_the_rows() -> None:
    x, u = simulated(2000)
    x[7, 0], told = 1.2345678901234567, people()
    told.loc[5, "smoker"] = "a cell that nobody may see"
    fitted = DPLinearRegression(epsilon=1.0, delta=1e-6, ledger=None, bounds=(-10, 10)).fit(x, u)
    of_levels = DPLogisticRegression(epsilon=1.0, delta=1e-6, ledger=None, schema=SCHEMA).fit(
        told[["age", "smoker"]], told["sick"]
    )
    secrets = [*marks(x[7, 0]), *marks(u[11]), b"a cell that nobody may see"]
    fitted.predict(x)
    of_levels.predict(people()[["age", "smoker"]])
    for estimator in (fitted, of_levels):
        held = pickle.dumps(estimator)
        assert not [secret for secret in secrets if secret in held]
        again = pickle.loads(held)
        assert (again.coef_ == estimator.coef_).all()
        assert again.release_.id == estimator.release_.id
    fitted.rows_ = x  # a planted bug
    assert [secret for secret in secrets if secret in pickle.dumps(fitted)]


def test_cells_that_say_nothing_are_no_error() -> None:
    """An error would tell of a row."""
    frame = people()
    frame["age"] = frame["age"].astype(object)
    frame.loc[:3, "age"] = [np.nan, None, "many", float("inf")]
    frame.loc[4, "sick"] = "perhaps"
    model = DPLogisticRegression(epsilon=5.0, delta=1e-6, ledger=None, schema=SCHEMA, terms="age")
    model.fit(frame[["age"]], frame["sick"])
    assert 0.05 < model.coef_[0, 0] < 0.2
    polars = pytest.importorskip("polars")
    told = polars.DataFrame({"age": frame["age"].astype(str)})
    model.fit(told, polars.Series("sick", frame["sick"].to_list()))


def test_every_fit_is_charged_and_a_search_cannot_overspend(tmp_path: Path) -> None:
    x, u = simulated(2000)
    account = {"dataset": "simulated", "unit": "one draw"}
    ledger = tmp_path / "l.ledger"
    model = DPLinearRegression(epsilon=1.0, delta=1e-6, ledger=ledger, bounds=(-10, 10), **account)
    described = dpglm.Schema.from_dict(
        {"dataset": {"name": "simulated", "rows": 2000, "unit": "one draw"}, "columns": SCHEMA["columns"]}
    )
    dpglm.Ledger.create(ledger, described.dataset, epsilon=1.8, delta=1e-6)
    model.fit(x, u)
    assert len({entry.release_id for entry in dpglm.Ledger.open(ledger).entries()}) == 1
    clone(model).fit(x, u)
    with pytest.raises(dpglm.BudgetError):
        model.fit(x, u)
    with pytest.raises(dpglm.BudgetError):  # a fold is another table than the ledger's
        cross_val_score(model, x, u, cv=2, error_score="raise")
    scores = cross_val_score(model.set_params(ledger=None, epsilon=5.0), x, u, cv=2)
    assert scores.mean() > 0.8


def test_the_number_of_rows_may_be_private() -> None:
    x, u = simulated(3000)
    given = {"epsilon": 5.0, "delta": 1e-6, "ledger": None, "bounds": (-10, 10)}
    model = DPLinearRegression(neighbours="added-or-removed", **given).fit(x, u)
    assert model.release_.design.schema.dataset.number is None
    assert "Adding or leaving out" in model.release_.statement
    assert np.allclose(model.coef_, [1, -0.5], atol=0.1)


def test_a_column_of_weights_is_no_predictor() -> None:
    x, u = simulated(3000)
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(weight=1.0)
    frame.loc[:1499, "weight"] = 0.0
    y = np.where(frame["weight"] == 0, -u, u)  # rows without weight say the opposite
    given = {"epsilon": 9.0, "delta": 1e-6, "ledger": None, "bounds": {"a": (-9, 9), "b": (-9, 9), "weight": (0, 2)}}
    model = DPLinearRegression(weights="weight", **given).fit(frame, y)
    assert list(model.coef_names_) == ["a", "b"]
    assert np.allclose(model.coef_, [1, -0.5], atol=0.3)
    assert model.predict(frame).shape == (3000,)


def test_rows_of_a_unit_are_protected_together() -> None:
    x, u = simulated(3000)
    frame = pd.DataFrame({"person": np.repeat(np.arange(1500), 2), "a": x[:, 0], "b": x[:, 1]})
    schema = {
        "dataset": {"name": "panel", "unit": "one person", "unit_column": "person", "units": 1500},
        "columns": {name: {"type": "numeric", "lower": -9, "upper": 9} for name in ("a", "b", "y")},
    }
    model = DPLinearRegression(epsilon=9.0, delta=1e-6, ledger=None, schema=schema).fit(frame, pd.Series(u, name="y"))
    assert list(model.coef_names_) == ["a", "b"]
    assert "unit" in model.release_.statement
    assert np.allclose(model.coef_, [1, -0.5], atol=0.4)


def test_it_works_in_a_pipeline() -> None:
    x, _ = simulated(2000)
    model = DPLinearRegression(epsilon=5.0, delta=1e-6, ledger=None, bounds=(-10, 10))
    line = make_pipeline(FunctionTransformer(np.abs), model).fit(x, np.abs(x).sum(axis=1))
    assert np.allclose(line[-1].coef_, 1, atol=0.2)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"classes": None}, "classes"),
        ({"classes": [1]}, "classes"),
        ({"bounds": {"z": (0, 1)}}, "bounds"),
        ({"bounds": (0, [1, 2, 3])}, "bounds"),
        ({"bounds": 7}, "bounds"),
        ({"bounds": (0, 1), "schema": SCHEMA}, "bounds"),
        ({"epsilon": -1}, "epsilon"),
        ({"terms": "nothing_such"}, "column"),
        ({"schema": {**SCHEMA, "columns": {"a": SCHEMA["columns"]["age"], "b": SCHEMA["columns"]["age"]}}}, "schema"),
    ],
)
def test_mistakes_are_told_in_one_line(changes: dict[str, Any], name: str) -> None:
    x, u = simulated(50)
    given = {"epsilon": 1.0, "delta": 1e-6, "ledger": None, "classes": [0, 1], **changes}
    with pytest.raises(dpglm.InputError, match=f"^{name}"):
        DPLogisticRegression(**given).fit(x, (u > 0).astype(int))


def test_the_budget_the_ledger_and_the_classes_have_no_default() -> None:
    for missing in ("epsilon", "delta", "ledger"):
        given = {"epsilon": 1.0, "delta": 1e-6, "ledger": None}
        del given[missing]
        with pytest.raises(TypeError, match=missing):
            DPLinearRegression(**given)
