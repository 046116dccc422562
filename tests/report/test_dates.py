"""Dates stay dates in the report: in the table of who is there, under the curves and at the pointer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm


@pytest.mark.filterwarnings("ignore::dpglm.FitWarning")
def test_a_day_is_shown_as_a_date(open_page: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    day = generator.integers(17897, 19722, 4000)
    table = pd.DataFrame({"day": day.astype("datetime64[D]"), "dose": generator.normal(50, 5, 4000)})
    table["cost"] = generator.normal(100, 10, 4000) + 0.01 * (day - 18800)
    columns = {
        "day": {"type": "numeric", "lower": "2019-01-01", "upper": "2023-12-31"},
        "dose": {"type": "numeric"},
        "cost": {"type": "numeric"},
    }
    schema = dpglm.Schema.from_dict(
        {"dataset": {"name": "visits", "rows": 4000, "unit": "one visit"}, "columns": columns}
    )  # fmt: skip
    made = dpglm.release(table, "cost ~ day + dose", schema=schema, family="linear", epsilon=9, delta=1e-6, ledger=None)
    opened = open_page(dpglm.report(dpglm.fit(made), tmp_path / "r.html"), width=390, height=800)
    assert opened.complaints() == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    opened.point("#effect-0", across=0.001)
    tip = opened.evaluate("document.getElementById('tip').textContent")
    assert re.match(r"day = 20(19|20)-\d\d-\d\d\n", tip)
    ticks = opened.evaluate("[...document.querySelectorAll('#effect-0 > text')].map(t => t.textContent)")
    assert sum(re.fullmatch(r"20\d\d-\d\d-\d\d", each) is not None for each in ticks) >= 1
    text = opened.evaluate("document.body.textContent")
    assert "day, per 365 days" in text
    assert dpglm.fit(made).table(per={"day": 1}).rows[1][0] == "day, per day"
    assert re.search(r"The other predictors stay at day = 20\d\d-\d\d-\d\d and dose = \d", text)
