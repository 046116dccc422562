"""What a plan expects where rows do not count, weigh more than others, or belong to people who have several."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.cli import main
from dpglm.custodian.build import Request, build_release
from dpglm.errors import InputError
from seeded_noise import SeededNoise

NUMBER = {"type": "numeric", "lower": -20, "upper": 20}
COLUMNS: dict[str, Any] = {
    "x": NUMBER,
    "z": NUMBER,
    "weight": {"type": "numeric", "lower": 1, "upper": 4},
    "sick": {"type": "binary", "levels": [0, 1]},
    "wage": {"type": "numeric", "lower": -50, "upper": 50},
    "filled": {"type": "numeric", "lower": -20, "upper": 20, "fill": 0},
    "also": {"type": "binary", "levels": [0, 1], "fill": 0},
    "month": {"type": "categorical", "levels": ["1", "2", "3"]},
}
PANEL: dict[str, Any] = {"unit_column": "person", "units": 2_000}
SLOPES = np.array([0.5, -0.4])


def schema(**dataset: Any) -> dpglm.Schema:
    return dpglm.Schema.from_dict({"dataset": {"name": "t", **(dataset or {"rows": 8_000})}, "columns": COLUMNS})


def wage_panel(rng: np.random.Generator) -> pd.DataFrame:
    """Two thousand people with one to nine rows, who differ by half of what predictors leave."""
    who = np.repeat(np.arange(2_000), rng.integers(1, 10, 2_000))
    x, z = rng.normal(size=len(who)), rng.normal(size=2_000)[who]
    wage = x * SLOPES[0] + z * SLOPES[1] + rng.normal(size=2_000)[who] + rng.normal(size=len(who))
    return pd.DataFrame({"person": who, "wage": wage, "x": x, "z": z})


def sick(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    x, z = rng.normal(size=(2, rows))
    chance = 1 / (1 + np.exp(0.7 - SLOPES[0] * x - SLOPES[1] * z))
    return pd.DataFrame({"sick": (rng.random(rows) < chance).astype(int), "x": x, "z": z})


def with_gaps(rng: np.random.Generator) -> pd.DataFrame:
    table = sick(rng, 8_000)
    return table.assign(z=table["z"].where(rng.random(8_000) < 0.5))


def weighted(rng: np.random.Generator) -> pd.DataFrame:
    return sick(rng, 8_000).assign(weight=np.where(rng.random(8_000) < 0.8, 1.0, 4.0))


STRONG = math.hypot(*SLOPES)
TABLES: dict[str, tuple[Any, str, str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gaps": (with_gaps, "sick", "logistic", {}, {"complete": 0.5, "outcome": 0.35}, {"complete": 1.0}),
    "weights": (
        weighted, "sick", "logistic", {"weights": "weight"}, {"design_effect": 1.5625, "outcome": 0.35},
        {"design_effect": 1.0},
    ),
    "panel": (
        wage_panel, "wage", "linear", {}, {"likeness": {"wage": 0.5, "x": 0.0}, "spreads": {"wage": 1.55}},
        {"likeness": {"wage": 0.0}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TABLES))
def test_releases_are_about_as_wide_as_planned_and_not_as_planned_by_who_ignores_it(name: str) -> None:
    draw, outcome, family, options, assumed, ignored = TABLES[name]
    made = schema(**(PANEL if name == "panel" else {}))
    formula, widths = f"{outcome} ~ x + z", []
    for seed in range(3):
        table = draw(np.random.default_rng([7, seed]))
        request = Request(formula, made, family, 3.0, 1e-6, **options)
        with pytest.warns() if name == "gaps" else pytest.MonkeyPatch.context():
            fit = dpglm.fit(build_release(table, request, SeededNoise(seed)), seed=1)
        widths.append(1.96 * fit.summary()["sd"][["x", "z"]])

    def planned(more: dict[str, Any]) -> np.ndarray:
        said = {"strength": STRONG, "spreads": {}} | assumed | more
        if family == "linear":
            said["strength"] = STRONG / said["spreads"]["wage"]
        said["spreads"] = {"x": 1.0, "z": 1.0} | said["spreads"]
        (case,) = dpglm.plan(
            formula, schema=made, family=family, epsilon=3.0, rows=2_000 if name == "panel" else 8_000,
            **options, **said,
        ).cases  # fmt: skip
        return np.array([each.original for each in case.coefficients], dtype=float)

    realised = np.median(widths, axis=0)
    np.testing.assert_allclose(planned({}) / realised, 1.0, atol=0.25)
    assert planned(ignored)[1] < 0.9 * planned({})[1]


def plain(formula: str, made: dpglm.Schema, family: str, rows: int, **said: Any) -> list[float]:
    """Half-widths without privacy."""
    (case,) = dpglm.plan(formula, schema=made, family=family, epsilon=3, rows=rows, **said).cases
    return [each.half_width / each.inflation for each in case.coefficients]


def test_without_privacy_widths_are_the_cluster_robust_ones() -> None:
    """Design effect 1 + (m - 1) times the outcome's likeness times the predictor's; m of a typical row's person."""
    said = {"likeness": {"wage": 0.6, "x": 0.25}, "rows_per_unit": 4, "strength": 0.5}
    of_x, of_z = plain("wage ~ x + z", schema(**PANEL), "linear", 2_000, **said)
    for found, likeness in ((of_x, 0.25), (of_z, 1.0)):
        effect = 1 + ((4 * 4 - 1) / 3 - 1) * 0.6 * likeness
        assert found == pytest.approx(1.96 * math.sqrt(0.75 * effect / 8_000), rel=0.03)
    alone = plain("wage ~ x + z", schema(**PANEL), "linear", 8_000, rows_per_unit=1, strength=0.5)
    assert alone == pytest.approx([1.96 * math.sqrt(0.75 / 8_000)] * 2, rel=0.03)


def test_half_the_rows_are_as_half_a_table_and_weights_widen_by_the_root_of_their_design_effect() -> None:
    whole, half = (plain("sick ~ x + z", schema(), "logistic", 8_000, complete=share) for share in (1.0, 0.5))
    assert half == pytest.approx([width * math.sqrt(2) for width in whole], rel=0.01)
    by_weight = [
        plain("sick ~ x + z", schema(), "logistic", 8_000, weights="weight", design_effect=effect)[0]
        for effect in (1.0, 1.5)
    ]
    assert by_weight[0] == pytest.approx(whole[0], rel=0.03)
    assert by_weight[1] == pytest.approx(by_weight[0] * math.sqrt(1.5), rel=0.01)
    evenly = plain("sick ~ x + z", schema(), "logistic", 8_000, weights="weight")[0]  # by default, between 1 and 4
    assert evenly == pytest.approx(by_weight[0] * math.sqrt(1 + (3 / 5) ** 2 / 3), rel=0.01)


def test_no_plan_is_narrower_than_without_privacy_where_bounds_would_tame_heavy_rows() -> None:
    wide = {"weight": {"type": "numeric", "lower": 0, "upper": 8}}
    made = dpglm.Schema.from_dict({"dataset": {"name": "t", **PANEL}, "columns": COLUMNS | wide})
    said: dict[str, Any] = {"weights": "weight", "design_effect": 10, "rows_per_unit": 200, "rows": 3_000}
    (case,) = dpglm.plan("sick ~ x + z", schema=made, family="logistic", epsilon=3, **said).cases
    assert case.inflation >= 1
    assert all(each.inflation >= 1 for each in case.coefficients)


def test_what_is_assumed_of_rows_is_said() -> None:
    made = dpglm.plan("filled ~ also", schema=schema(), family="linear", epsilon=1)
    assert "Assumed, too" not in str(made)
    text = str(dpglm.plan("sick ~ x", schema=schema(), family="logistic", epsilon=1, complete=0.8, weights="weight"))
    assert "Assumed, too: 80 % of rows count; the design effect of weights is 1.12." in text
    text = str(dpglm.plan("wage ~ x + z", schema=schema(**PANEL), family="linear", epsilon=1, likeness={"x": 0.3}))
    assert "a unit has 5 rows on average; two rows of a unit correlate by 0.5 in what predictors leave of wage" in text
    assert "by 0.3 in x, by 1 in other predictors." in text
    assert "2,000 units" in text
    followed = schema(**PANEL, unit_order="month")
    (case,) = dpglm.plan("sick ~ month + x", schema=followed, family="logistic", epsilon=1, rows=2_000).cases
    assert case.inflation > 1
    assert "a unit's rows end with its event" in str(
        dpglm.plan("sick ~ month + x", schema=followed, family="logistic", epsilon=1)
    )


def test_a_survey_tells_how_many_rows_count_and_how_many_a_person_has() -> None:
    table = wage_panel(np.random.default_rng(3))
    table["x"] = table["x"].where(np.random.default_rng(4).random(len(table)) < 0.5)
    made = schema(**PANEL)
    release = build_release(table, Request("wage ~ x + z", made, "linear", 3.0, 1e-6), SeededNoise(1))
    options: dict[str, Any] = {"schema": made, "family": "linear", "epsilon": 3.0, "rows": 2_000}
    (seen,) = dpglm.plan("wage ~ x + z", survey=release, **options).cases
    (half,) = dpglm.plan("wage ~ x + z", complete=0.5, **options).cases
    (whole,) = dpglm.plan("wage ~ x + z", **options).cases
    assert seen.half_width == pytest.approx(half.half_width, rel=0.1)
    assert whole.half_width < 0.92 * half.half_width
    for said in ({"complete": 0.5}, {"rows_per_unit": 3}):
        with pytest.raises(InputError, match="is what a survey tells"):
            dpglm.plan("wage ~ x + z", survey=release, **options, **said)


@pytest.mark.parametrize(
    ("formula", "options", "rule"),
    [
        ("sick ~ x", {"complete": 0}, "complete = 0: must be above 0 and at most 1"),
        ("sick ~ x", {"complete": 1.2}, "complete = 1.2: must be above 0 and at most 1"),
        ("also ~ filled", {"complete": 0.8}, "is 1 where all columns that are used have a fill"),
        ("sick ~ x", {"complete": 0.5, "method": "moments"}, "complete = 0.5: belongs to method='looks'"),
        ("also ~ filled", {"where": "x > 0", "method": "moments"}, "where = x > 0: belongs to method='looks'"),
        ("sick ~ x", {"weights": "weight", "method": "moments"}, "weights = weight: belongs to method='looks'"),
        ("sick ~ x", {"design_effect": 1.2}, "design_effect = 1.2: belongs to weights"),
        ("sick ~ x", {"weights": "weight", "design_effect": 0.9}, "must be a number of at least 1"),
        (
            "sick ~ x",
            {"weights": "weight", "design_effect": 1.6},
            "is more than weights between 1 and 4 can have, 1.56",
        ),
        ("sick ~ x", {"rows_per_unit": 4}, "rows_per_unit = 4: belongs to a schema with a unit_column"),
        ("sick ~ x", {"likeness": {"x": 0.4}}, "belongs to a schema with a unit_column"),
        ("sick ~ x", {"likeness": {"z": 0.4}, **PANEL}, "likeness = z: must be among sick, x"),
        ("sick ~ x", {"likeness": {"x": 1.1}, **PANEL}, "likeness['x'] = 1.1: must lie between 0 and 1"),
        ("sick ~ x", {"likeness": 0.5, **PANEL}, "likeness = 0.5: must be a dict by column"),
        ("sick ~ x", {"rows_per_unit": 0.5, **PANEL}, "rows_per_unit = 0.5: must be a number of at least 1"),
        ("sick ~ x + month", {"likeness": {"sick": 0.5}, "unit_order": "month", **PANEL}, "must be among x, month"),
    ],
)
def test_mistakes_are_one_line(formula: str, options: dict[str, Any], rule: str) -> None:
    dataset = {key: options[key] for key in ("unit_column", "units", "unit_order") if key in options}
    rest = {key: value for key, value in options.items() if key not in dataset}
    with pytest.raises(InputError) as caught:
        dpglm.plan(formula, schema=schema(**dataset), family="logistic", epsilon=1, **rest)
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_takes_what_is_said(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.toml").write_text(schema(**PANEL).to_toml())
    words = ["plan", "--schema", str(tmp_path / "s.toml"), "--formula", "wage ~ x", "--family", "linear", "--json"]
    more = ["--complete", "0.8", "--weights", "weight", "--design-effect", "1.3", "--rows-per-unit", "3"]
    more += ["--likeness", "wage=0.7", "--likeness", "x=0.2", "--where", "x > 0", "--epsilon", "1", "--rows", "900"]
    with pytest.raises(SystemExit) as stopped:
        main([*words, *more])
    assert not stopped.value.code
    found = json.loads(capsys.readouterr().out)
    said = {"complete": 0.8, "weights": "weight", "design_effect": 1.3, "rows_per_unit": 3, "where": "x > 0"}
    same = dpglm.plan(
        "wage ~ x", schema=schema(**PANEL), family="linear", epsilon=1, rows=900, likeness={"wage": 0.7, "x": 0.2},
        **said,
    )  # fmt: skip
    assert found == json.loads(json.dumps(same.to_dict()))
    assert found["counted"] == "units"
