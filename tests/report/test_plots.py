"""Plots: they draw what the fit says, take and return axes, and say what is wrong in one line."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpglm
from dpglm.errors import InputError
from dpglm.report import plots

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def test_forest(make_fit: Any) -> None:
    fit = make_fit()
    ax = dpglm.plot_forest(fit, prob=0.9, units="scaled", textsize=7)
    table = fit.summary(prob=0.9, units="scaled")
    assert [label.get_text() for label in ax.get_yticklabels()] == list(reversed(fit.names))
    ends = {tuple(line.get_xdata()) for line in ax.lines}
    for _, row in table.iterrows():
        assert (row["lower"], row["upper"]) in ends
    assert ax.title.get_fontsize() == 7
    moved = dpglm.plot_forest(replace(fit, table_coefficients=fit.coefficients + 9), target="table")
    assert min(line.get_xdata()[0] for line in moved.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0]) > 5
    with pytest.raises(InputError, match="target = table"):
        dpglm.plot_forest(fit, target="table")
    ax.figure.draw_without_rendering()


def test_posterior(make_fit: Any) -> None:
    fit = make_fit()
    axes = dpglm.plot_posterior(fit)
    assert [ax.get_title() for ax in axes] == list(fit.names)
    one = dpglm.plot_posterior(fit, var_names="age", units="scaled")
    assert one.get_title() == "age"
    assert len(one.lines) == 3  # posterior, prior and zero
    again = dpglm.plot_posterior(fit, var_names=["age"], ax=one)
    assert again is one
    with pytest.raises(InputError, match="must hold 5 axes"):
        dpglm.plot_posterior(fit, ax=one)
    axes[0].figure.draw_without_rendering()


def test_effect(make_fit: Any) -> None:
    fit = make_fit()
    ax = dpglm.plot_effect(fit, "age", at={"group": "r"})
    expected = fit.predict({"age": [20], "group": ["r"], "treated": [0]})["mean"][0]
    np.testing.assert_allclose(ax.lines[0].get_ydata()[0], expected)
    assert ax.get_title() == "at group = r and treated = 0"
    assert ax.get_ylabel() == "probability that sick is yes"
    levels = dpglm.plot_effect(fit, "group", ax=ax.figure.add_subplot())
    assert [label.get_text() for label in levels.get_xticklabels()] == ["p", "q", "r"]
    with pytest.raises(InputError, match="predictor = agee: must be one of age, group, treated"):
        dpglm.plot_effect(fit, "agee")


def test_privacy(make_fit: Any) -> None:
    fit = make_fit()
    ax = dpglm.plot_privacy(fit)
    without = [bar.get_width() for bar in ax.containers[0]]
    np.testing.assert_allclose(without, 100 / fit.inflation[0])
    added = [bar.get_width() for bar in ax.containers[1]]
    np.testing.assert_allclose(np.add(without, added), 100)


def test_long_names_leave_room_for_the_picture() -> None:
    name = "household_income_in_thousands_a_year[between 10 and 20]"
    assert plots._short(name) == "household_income…tween 10 and 20]"
    assert plots._short("age") == "age"


def test_dollar_signs_in_a_name_are_no_mathematics(make_fit: Any) -> None:
    columns = {
        "a$b_{$": {"type": "numeric", "lower": 0, "upper": 9},
        "sick": {"type": "binary", "levels": ["no", "$x^{$"], "fill": "no"},
    }
    fit = make_fit(formula="sick ~ `a$b_{$`", columns=columns)
    for ax in (dpglm.plot_forest(fit), dpglm.plot_effect(fit, "a$b_{$"), dpglm.plot_privacy(fit)):
        ax.figure.draw_without_rendering()


def test_mistakes(make_fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = make_fit()
    with pytest.raises(InputError, match="must be among Intercept"):
        dpglm.plot_forest(fit, var_names=["agee"])
    with pytest.raises(InputError, match="at least one"):
        dpglm.plot_privacy(fit, var_names=[])
    with pytest.raises(InputError, match="must be a Fit"):
        dpglm.plot_forest("fit")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="prob"):
        dpglm.plot_forest(fit, prob=95)
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"matplotlib = not installed: is needed for plots; run: .* install"):
        dpglm.plot_forest(fit)
