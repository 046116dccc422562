"""A numeric column whose bounds are dates: cells are days, whatever holds them; what is no date is missing."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpglm
from dpglm.custodian.cells import read_days
from dpglm.custodian.tables import open_table

ROWS = 4000
SCHEMA = """
[dataset]
name = "visits"
rows = 4000
unit = "one patient"

[columns.day]
type = "numeric"
lower = 2019-01-01
upper = 2023-12-31
label = "Day of the visit"

[columns.sick]
type = "binary"
levels = ["no", "yes"]
"""
TEXTS = ["2020-02-29", "1969-12-31", "2021-06-01", None]
DAYS = [18321.0, -1.0, 18779.0, np.nan]
DATES = [None if text is None else datetime.date.fromisoformat(text) for text in TEXTS]

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.FitWarning")


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dpglm.Schema:
    path = tmp_path_factory.mktemp("s") / "visits.toml"
    path.write_text(SCHEMA)
    return dpglm.Schema.load(path)


def visits() -> pd.DataFrame:
    """Sickness grows with a tenth of a percent of log-odds a day."""
    generator = np.random.default_rng(3)
    day = generator.integers(17897, 19722, ROWS)
    sick = generator.random(ROWS) < 1 / (1 + np.exp(-0.001 * (day - 18800)))
    return pd.DataFrame({"day": day.astype("datetime64[D]").astype(str), "sick": np.where(sick, "yes", "no")})


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"day": TEXTS}),
        pa.table({"day": pa.array(TEXTS).dictionary_encode()}),
        pa.table({"day": pa.array(DATES, pa.date32())}),
        pa.table({"day": pa.array(DATES, pa.date32()).cast(pa.date64())}),
        pa.table({"day": pa.array(DATES, pa.date32()).cast(pa.timestamp("ns"))}),
        pa.table({"day": pa.array(DATES, pa.date32()).cast(pa.timestamp("ms", tz="UTC"))}),
        pd.DataFrame({"day": DATES}),
        pd.DataFrame({"day": pd.to_datetime(pd.Series(TEXTS))}),
        pd.DataFrame({"day": pd.Categorical(TEXTS)}),
        pd.DataFrame({"day": pd.Series([*DATES[:2], np.datetime64("2021-06-01"), None], dtype=object)}),
        pl.DataFrame({"day": DATES}),
        pl.DataFrame({"day": TEXTS}),
    ],
    ids=lambda table: type(table).__module__.partition(".")[0],
)
def test_one_date_is_one_number_whatever_holds_it(table: Any, schema: dpglm.Schema) -> None:
    (batch,) = open_table(table, [schema.columns["day"]]).batches()
    np.testing.assert_array_equal(read_days(batch.column(0)), DAYS)


def test_a_time_of_day_is_a_part_of_a_day_and_zones_count() -> None:
    texts = pa.array(["2020-01-01 12:00", "2020-01-01T18:00:00Z", "2020-01-02 01:00+07:00"])
    typed = pa.array([datetime.datetime(2020, 1, 1, 12), datetime.datetime(2020, 1, 1, 18)], pa.timestamp("us"))
    assert read_days(texts).tolist() == [18262.5, 18262.75, 18262.75]
    assert read_days(typed).tolist() == [18262.5, 18262.75]


@pytest.mark.parametrize("cell", ["18262", "2021-02-29", "12:00", "today", "", "2020-01-01 25:00", b"\xff", 18262, 1.5])
def test_what_is_no_date_is_missing(cell: Any) -> None:
    assert np.isnan(read_days(pa.array([cell]))).all()


def test_dates_are_declared_as_dates(schema: dpglm.Schema) -> None:
    column = schema.columns["day"]
    assert (column.dates, column.lower, column.upper) == (True, 17897.0, 19722.0)
    again = dpglm.Schema.from_dict(schema.to_dict())
    assert again.columns["day"] == column
    assert 'lower = "2019-01-01"' in schema.to_toml()
    for changes, said in (
        ({"upper": 20_000}, "must be a date, as the others are"),
        ({"upper": "soon"}, "must be a date, as the others are"),
        ({"fill": 5}, "must be a date, as the others are"),
        ({"lower": datetime.datetime(2019, 1, 1)}, "must be a date, as the others are"),
        ({"upper": "2018-01-01"}, "must be below upper"),
        ({"upper": None}, "dates need both bounds"),
    ):
        declared = {"type": "numeric", "lower": datetime.date(2019, 1, 1), "upper": "2023-12-31", **changes}
        declared = {key: value for key, value in declared.items() if value is not None}
        with pytest.raises(dpglm.InputError, match=said):
            dpglm.Schema.from_dict({"dataset": {"name": "d", "rows": 5}, "columns": {"day": declared}})


def test_a_release_of_dates_is_read_in_days(schema: dpglm.Schema, tmp_path: Path) -> None:
    table = visits()
    table.loc[3, "day"] = "unknown"
    found = dpglm.check(table, schema)
    assert (found.columns[0].unreadable, found.columns[0].below) == (1, 0)
    made = dpglm.release(
        table, "sick ~ day", schema=schema, family="logistic", epsilon=5, delta=1e-6, ledger=None,
        where="day >= '2019-02-01'",
    )  # fmt: skip
    made.save(tmp_path / "r.json")
    loaded = dpglm.load_release(tmp_path / "r.json")
    assert loaded.design == made.design
    assert 17_928 < made.survey.set_index("column").loc["day", "centre"] < 19_722
    fit = dpglm.fit(loaded)
    row = fit.summary().loc["day"]
    assert row["lower"] < 0.001 < row["upper"]
    assert row["significant"]
    days = [datetime.date(2020, 1, 1), "2020-01-01", np.datetime64("2020-01-01"), 18262]
    told = [fit.predict({"day": [day]})["mean"].iloc[0] for day in days]
    assert np.ptp(told) == 0
    with pytest.raises(dpglm.InputError, match="must be a date"):
        fit.predict({"day": ["soon"]})
    dpglm.report(fit, tmp_path / "r.html")
    assert " d)" in (tmp_path / "r.html").read_text()
    dpglm.review_statement(made, tmp_path / "s.html")
    assert "a date, clamped to 2019-01-01 to 2023-12-31" in (tmp_path / "s.html").read_text()
