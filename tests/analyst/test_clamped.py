"""Values that pile up at a declared bound: seen where they are clamped, and not where bounds are honest."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.analyst.clamped import _told, heaps
from dpglm.expressions import parse_expression
from dpglm.looks.questions import COUNT_BITS, Question, Subject
from dpglm.report.html import page
from dpglm.report.summary import summarize

ROWS = 20_000


def skewed(table: pd.DataFrame) -> pd.DataFrame:
    """Of columns of one shape each, under any declared bounds."""
    rng = np.random.default_rng(round(1000 * table["a"].iloc[0]))
    rows = len(table)
    income = np.exp(rng.normal(10.4, 0.7, rows))
    late, even, score = np.maximum(income - 30_000, 0), rng.uniform(-1, 1, rows), rng.integers(1, 6, rows)
    return table.assign(
        income=income, debt=-income, late=late, even=even, score=score, share=np.minimum(income / 50_000, 1)
    )


def declared(**bounds: tuple[float, float]) -> dict[str, Any]:
    return {name: {"type": "numeric", "lower": low, "upper": high} for name, (low, high) in bounds.items()}


@pytest.fixture
def surveyed(released: Callable[..., dpglm.Release]) -> Callable[..., dpglm.Release]:
    def made(seed: int = 1, **bounds: tuple[float, float]) -> dpglm.Release:
        formula = f"sick ~ a + {' + '.join(bounds)}"
        return released(rows=ROWS, formula=formula, columns=declared(**bounds), change=skewed, seed=seed, noise=seed)

    return made


def test_a_fit_says_that_values_pile_up_at_a_bound(surveyed: Callable[..., dpglm.Release]) -> None:
    release = surveyed(income=(0, 50_000), debt=(-50_000, 1), even=(-1, 1))
    with pytest.warns(dpglm.FitWarning, match="far more than lead up to it"):
        fit = dpglm.fit(release)
    told = [message for message in fit.warnings if "far more" in message]
    assert told[0].startswith("income: about ")
    assert " at its upper bound, 50,000, " in told[0]
    assert " at its lower bound, -50,000, " in told[1]
    assert len(told) == 2
    assert "wider bounds" in told[0]
    shares = {heap.name: heap.share for heap in heaps(release.survey_record)}  # type: ignore[arg-type]
    assert 0.15 < shares["income"] < 0.45  # 27 % lie beyond
    shown = page(summarize(fit))
    assert "too tight?" in shown
    assert "income: about" in shown


def test_honest_bounds_are_not_accused(surveyed: Callable[..., dpglm.Release]) -> None:
    """Tight ones, too; generous ones, near which a column lives; 0 never, and of a share 1."""
    for seed in range(3):
        release = surveyed(seed, income=(0, 1_000_000), late=(0, 100_000), even=(-1, 1), score=(1, 5))
        assert heaps(release.survey_record) == []  # type: ignore[arg-type]
        mirrored = surveyed(seed, debt=(-1_000_000, -100), score=(0, 6))
        assert heaps(mirrored.survey_record) == []  # type: ignore[arg-type]
    for upper, number in ((1, 0), (0.99, 1)):
        assert len(heaps(surveyed(share=(0, upper)).survey_record)) == number  # type: ignore[arg-type]
    assert heaps(surveyed(debt=(-50_000, 50_000)).survey_record)  # type: ignore[arg-type]


def test_every_answer_of_one_threshold_is_read_as_the_rows_beyond_it(released: Callable[..., dpglm.Release]) -> None:
    schema = dpglm.Schema.from_dict({"dataset": {"name": "d", "rows": 9}, "columns": declared(x=(-2, 3))})
    subject = Subject("x", parse_expression("x", schema))
    values = np.clip(np.random.default_rng(4).normal(0.4, 1.0, 5000).round(2), -2, 3)
    cuts = subject.thresholds
    cells = np.searchsorted(cuts, values, side="left")
    record: Any = SimpleNamespace(stddev=1.0, survey=SimpleNamespace(rows=5000.0))
    last = subject.cells - 1
    asked = [
        (0, 4000),
        (3000, last),
        (last, last),
        (0, 0),
        (5000, -1),
        (last + 1, 700),
        (6000, 300),
        (40, 90),
        (0, last),
    ]
    kinds = 0
    for first, end in asked:
        inside = (cells >= first) & (cells <= end) if first <= end else (cells <= end) | (cells >= first)
        question = Question(1, ((first, end),), 1)
        for sign in (1.0, -1.0):
            told = _told(question, (int(inside.sum()) << COUNT_BITS,), subject, record, sign)
            if told is None:
                continue
            kinds += 1
            beyond = values > told.threshold if sign > 0 else -values >= told.threshold
            assert told.share == pytest.approx(beyond.mean())
            whole = np.arange(-2, 4) * sign
            assert told.whole == min(whole[whole > told.threshold if sign > 0 else whole >= told.threshold], default=4)
    assert kinds == 12  # six of them are of one threshold
