"""What a plan expects: from public numbers alone, and near what releases then give."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.cli import main
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.plan import plan
from dpglm.errors import InputError
from seeded_noise import SeededNoise

FORMULAS = {"logistic": "sick ~ a + b", "poisson": "visits ~ a + b", "linear": "y ~ a + b"}


LEVELS = {"type": "binary", "levels": [0, 1], "fill": 0}


def schema(rows: int = 20_000) -> dpglm.Schema:
    number = {"type": "numeric", "lower": -1, "upper": 1}
    columns = {
        "a": number, "b": number, "y": {"type": "numeric", "lower": 0, "upper": 5},
        "sick": {"type": "binary", "levels": [0, 1], "fill": 0}, "visits": {"type": "count", "upper": 20},
    }  # fmt: skip
    return dpglm.Schema.from_dict({"dataset": {"name": "patients", "rows": rows}, "columns": columns})


@pytest.mark.parametrize("method", ["looks", "moments"])
@pytest.mark.parametrize("family", list(FORMULAS))
def test_more_budget_is_narrower_and_more_rows_too(family: str, method: str) -> None:
    made = plan(
        FORMULAS[family], schema=schema(), family=family, epsilon=[0.1, 1, 10], rows=[2_000, 20_000, 200_000],
        method=method,
    )  # fmt: skip
    assert len(made.cases) == 9
    of = {(case.rows, case.epsilon): case for case in made.cases}
    for rows in (2_000, 20_000, 200_000):
        for less, more in pairwise((0.1, 1, 10)):
            assert of[rows, less].half_width > of[rows, more].half_width
            assert of[rows, less].power <= of[rows, more].power
    for epsilon in (0.1, 1, 10):
        for few, many in pairwise((2_000, 20_000, 200_000)):
            assert of[few, epsilon].half_width > of[many, epsilon].half_width
    assert all(case.inflation >= 1 and 0.05 <= case.power <= 1 for case in made.cases)


def test_rows_are_by_default_around_the_declared_number() -> None:
    made = plan("sick ~ a + b", schema=schema(8_000), family="logistic", epsilon=1.0)
    assert [case.rows for case in made.cases] == [2_000, 8_000, 32_000]


def table() -> pd.DataFrame:
    """Two columns that matter a little, and an outcome for each family; a third has two levels."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 0.3, (2, 20_000))
    group = rng.integers(0, 2, 20_000)
    u = 1.2 * a - 0.8 * b + 0.3 * group
    rate = np.exp(u - 0.2)
    return pd.DataFrame({
        "a": a, "b": b, "group": group, "y": 2 + 0.2 * u + 0.4 * rng.normal(size=20_000),
        "sick": (rng.random(20_000) < 1 / (1 + np.exp(1 - u))).astype(int),
        "visits": rng.poisson(rate * rng.gamma(rate / 2, 2 / rate)),
    })  # fmt: skip


@pytest.mark.parametrize("family", list(FORMULAS))
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_a_release_by_looks_is_about_as_wide_as_expected(family: str, epsilon: float) -> None:
    """Whatever the bounds: they are thirty times as wide as the values."""
    wide = {"type": "numeric", "lower": -30, "upper": 30}
    made = dpglm.Schema.from_dict({
        "dataset": {"name": "patients", "rows": 20_000},
        "columns": schema().to_dict()["columns"] | {"a": wide, "b": wide, "y": wide, "group": LEVELS},
    })  # fmt: skip
    formula = FORMULAS[family] + " + group"
    rows_of = table()
    request = Request(formula, made, family, epsilon, 1e-6)
    unit = rows_of["y"].std() if family == "linear" else 1.0
    units = rows_of[["a", "b", "group"]].std().to_numpy() / unit
    widths, inflations = [], []
    for seed in range(5):
        rows = dpglm.fit(build_release(rows_of, request, SeededNoise(seed))).summary().iloc[1:]
        widths.append(1.96 * np.sqrt(np.mean((rows["sd"].to_numpy() * units) ** 2)))
        inflations.append(rows["inflation"].mean())
    (case,) = plan(formula, schema=made, family=family, epsilon=epsilon, rows=20_000).cases
    assert np.median(widths) == pytest.approx(case.half_width, rel=0.25)
    assert np.median(inflations) == pytest.approx(case.inflation, rel=0.2)


def test_each_coefficient_is_told_in_standard_deviations_and_in_its_own_unit() -> None:
    """Of a release of the table that is assumed: two levels of unequal shares, a number of a stated spread."""
    rng = np.random.default_rng(4)
    rows = 20_000
    age = rng.normal(50, 15, rows)
    group = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    u = -0.85 + 0.3 * (age - 50) / 15 + 0.3 * (group == "b")
    frame = pd.DataFrame({"age": age, "group": group, "sick": (rng.random(rows) < 1 / (1 + np.exp(-u))).astype(int)})
    made = dpglm.Schema.from_dict({
        "dataset": {"name": "patients", "rows": rows},
        "columns": {
            "age": {"type": "numeric", "lower": 0, "upper": 120}, "sick": LEVELS,
            "group": {"type": "categorical", "levels": ["a", "b", "c"], "fill": "a"},
        },
    })  # fmt: skip
    options = {"schema": made, "family": "logistic", "epsilon": 1.0}
    release = build_release(frame, Request("sick ~ age + group", made, "logistic", 1.0, 1e-6), SeededNoise(2))
    realised = 1.96 * dpglm.fit(release).summary()["sd"].iloc[1:]
    shares = {"group": [0.5, 0.3, 0.2]}
    (case,) = plan("sick ~ age + group", rows=rows, spreads={"age": 15}, shares=shares, **options).cases
    (seen,) = plan("sick ~ age + group", rows=rows, survey=release, **options).cases
    for planned in (case, seen):
        assert [each.name for each in planned.coefficients] == list(realised.index)
        np.testing.assert_allclose([each.original for each in planned.coefficients], realised, rtol=0.2)
    (unsaid,) = plan("sick ~ age + group", rows=rows, **options).cases
    assert [each.original is None for each in unsaid.coefficients] == [True, False, False]
    assert unsaid.coefficients[0].half_width == pytest.approx(realised["age"] * 15, rel=0.2)


def test_wrong_signs_and_findings_are_those_of_two_estimates_side_by_side() -> None:
    """Drawn: an estimate without privacy, and the same with more noise."""
    (case,) = plan("sick ~ a + b", schema=schema(), family="logistic", epsilon=0.3, rows=4_000, effect=0.15).cases
    each = case.coefficients[0]
    stddev = each.half_width / 1.959964
    plain = stddev / each.inflation
    rng = np.random.default_rng(7)
    alone = rng.normal(0.0, plain, 400_000)
    private = alone + rng.normal(0.0, math.sqrt(stddev**2 - plain**2), len(alone))

    def significant(estimates: Any, error: float) -> Any:
        return np.abs(estimates) > 1.959964 * error

    lost = significant(alone + 0.15, plain) & ~significant(private + 0.15, stddev)
    false = significant(private, stddev) & ~significant(alone, plain)
    assert each.wrong_sign == pytest.approx(np.mean(private + 0.15 < 0), abs=0.005)
    assert each.lost == pytest.approx(lost.mean(), abs=0.005)
    assert each.false == pytest.approx(false.mean(), abs=0.005)
    assert each.lost > 0.1


def test_what_a_half_width_takes_is_just_enough() -> None:
    options: dict[str, Any] = {"schema": schema(), "family": "logistic", "rows": 8_000}
    budget, rows = plan("sick ~ a + b", epsilon=1.0, half_width=0.08, **options).needed
    assert (budget.is_epsilon, rows.is_epsilon) == (True, False)
    assert budget.epsilon is not None
    assert rows.rows is not None
    for epsilon, enough in ((budget.epsilon * 1.01, True), (budget.epsilon * 0.95, False)):
        assert (plan("sick ~ a + b", epsilon=epsilon, **options).cases[0].half_width <= 0.08) == enough
    for number, enough in ((rows.rows, True), (int(rows.rows * 0.9), False)):
        case = plan("sick ~ a + b", epsilon=1.0, **(options | {"rows": number})).cases[0]
        assert (case.half_width <= 0.08) == enough
    impossible, _ = plan("sick ~ a + b", epsilon=1.0, half_width=1e-3, **options).needed
    assert impossible.epsilon is None
    assert "none will do" in str(plan("sick ~ a + b", epsilon=1.0, half_width=1e-3, **options))


def test_the_verdict_follows_the_width() -> None:
    made = plan("sick ~ a + b", schema=schema(), family="logistic", rows=20_000, epsilon=[0.1, 1, 10])
    poor, fair, good = (case.verdict for case in made.cases)
    assert "more than the 1.25 times" in poor
    assert "half of the economists" in fair
    assert "strict quarter" in good


def test_columns_that_others_tell_of_are_wider_and_stronger_effects_leave_less_to_scatter() -> None:
    """R² of 0.75 doubles an interval, with privacy and without; a strength of 0.8 leaves 0.6 deviations to scatter."""

    def told(family: str, **assumed: Any) -> list[Any]:
        made = plan(FORMULAS[family], schema=schema(), family=family, epsilon=3, rows=20_000, **assumed)
        return list(made.cases[0].coefficients)

    apart, related = told("logistic"), told("logistic", overlap={"b": 0.75})
    assert related[0] == apart[0]
    assert related[1].half_width == pytest.approx(2 * apart[1].half_width)
    assert related[1].inflation == pytest.approx(apart[1].inflation)
    assert related[1].power < apart[1].power
    for strength in (0.1, 0.8):
        alone = [each.half_width / each.inflation for each in told("linear", strength=strength)]
        assert alone[0] == pytest.approx(1.96 * math.sqrt((1 - strength**2) / 20_000), rel=0.08)
    few, many = (told("poisson", dispersion=dispersion)[0].half_width for dispersion in (1.5, 6.0))
    assert many == pytest.approx(2 * few, rel=0.25)
    assert told("logistic", strength=3.0)[0].half_width > 1.5 * told("logistic", strength=0.1)[0].half_width


def test_bounds_do_not_matter_to_looks() -> None:
    wide = {"type": "numeric", "lower": -1000, "upper": 9000}
    columns = schema().to_dict()["columns"] | {"a": wide, "b": wide}
    other = dpglm.Schema.from_dict({"dataset": {"name": "patients", "rows": 20_000}, "columns": columns})
    narrow, broad = (plan("sick ~ a + b", schema=each, family="logistic").cases for each in (schema(), other))
    for one, two in zip(narrow, broad, strict=True):
        assert one.half_width == pytest.approx(two.half_width, rel=1e-9)
    moments = plan("sick ~ a + b", schema=other, family="logistic", method="moments")
    assert "a column's whole range" in str(moments)


def test_a_rarer_outcome_is_wider() -> None:
    def width(family: str, outcome: float) -> float:
        (case,) = plan(
            FORMULAS[family], schema=schema(), family=family, epsilon=1, rows=20_000, outcome=outcome
        ).cases  # fmt: skip
        return case.half_width

    assert width("logistic", 0.02) > 1.5 * width("logistic", 0.5)
    assert width("poisson", 0.1) > 1.5 * width("poisson", 4.0)
    assert width("logistic", 0.3) == plan(
        FORMULAS["logistic"], schema=schema(), family="logistic", epsilon=1, rows=20_000
    ).cases[0].half_width  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_release_of_moments_is_about_as_wide_as_expected(epsilon: float) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-1, 1, (2, 20_000))
    sick = rng.random(20_000) < 1 / (1 + np.exp(1 - 0.7 * a + 0.4 * b))
    table = pd.DataFrame({"a": a, "b": b, "sick": sick.astype(int)})
    request = Request("sick ~ a + b", schema(), "logistic", epsilon, 1e-6, method="moments")
    release = build_release(table, request, SeededNoise(1))
    rows = dpglm.fit(release, method="laplace", progress=False).summary(units="scaled").loc[["a", "b"]]
    (case,) = plan(
        "sick ~ a + b", schema=schema(), family="logistic", epsilon=epsilon, rows=20_000, method="moments"
    ).cases
    np.testing.assert_allclose(2 * 1.96 * rows["sd"], case.half_width, rtol=0.25)
    np.testing.assert_allclose(rows["inflation"], case.inflation, rtol=0.25)


def test_power_is_that_of_a_normal_estimate() -> None:
    (case,) = plan("sick ~ a + b", schema=schema(), family="logistic", epsilon=0.2, rows=5_000, effect=0.4).cases
    stddev = case.half_width / 1.959964
    excludes = np.abs(np.random.default_rng(1).normal(0.4, stddev, 400_000)) > case.half_width
    assert case.power == pytest.approx(excludes.mean(), abs=0.004)
    tiny = plan("sick ~ a + b", schema=schema(), family="logistic", epsilon=0.2, rows=5_000, effect=1e-9).cases[0]
    assert tiny.power == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"epsilon": -1}, "epsilon = -1: must be a number above 0"),
        ({"epsilon": []}, "must hold at least one number"),
        ({"rows": 1}, "rows = 1: must be a whole number of at least 2"),
        ({"rows": [100, 2.5]}, "rows = 2.5: must be a whole number"),
        ({"effect": 0}, "effect = 0: must be a number above 0"),
        ({"effect": math.nan}, "effect = nan"),
        ({"delta": 2}, "delta = 2"),
        ({"method": "stages"}, "method = stages: must be one of looks, moments"),
        ({"outcome": 1}, "outcome = 1: must lie between 0 and 1"),
        ({"outcome": 0.5, "method": "moments"}, "outcome = 0.5: belongs to two levels or counts, by looks"),
        ({"family": "probit"}, "family = probit"),
        ({"spreads": {"c": 1}}, "spreads = c: must be among a, b"),
        ({"spreads": {"a": 0}}, "spreads['a'] = 0: must be a number above 0"),
        ({"spreads": 3}, "spreads = 3: must be a dict by column"),
        ({"shares": {"sick": [0.5, 0.3, 0.2]}}, "must be 2 shares between 0 and 1"),
        ({"shares": {"sick": [0.5, 0.5]}, "method": "moments"}, "belongs to method='looks'"),
        ({"overlap": {"a": 1}}, "overlap['a'] = 1: must be at least 0 and below 1"),
        ({"overlap": {"sick": 0.5}}, "overlap = sick: must be among a, b"),
        ({"strength": 0}, "strength = 0: must be a number of at least 0.01"),
        ({"strength": 1, "method": "moments"}, "strength = 1: belongs to method='looks'"),
        ({"dispersion": 2}, "dispersion = 2: belongs to counts"),
        ({"dispersion": 0.5, "family": "poisson"}, "dispersion = 0.5: must be a number of at least 1"),
        ({"strength": 1.0, "family": "linear"}, "strength = 1.0: is in standard deviations of the outcome"),
        ({"half_width": -1}, "half_width = -1: must be a number above 0"),
        ({"survey": 3}, "survey = int: must be a release by looks"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, Any], rule: str) -> None:
    formula = FORMULAS.get(options.get("family", "logistic"), "sick ~ a + b")
    with pytest.raises(InputError) as caught:
        plan(formula, schema=schema(), **({"family": "logistic"} | options))
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--schema", "s.toml", "--formula", "sick ~ a + b", "--family", "logistic", *arguments])
    return int(stopped.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s.toml").write_text(schema().to_toml())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_prints_tables_and_draws(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--output", "plan.png") == 0
    text = capsys.readouterr().out
    assert "times as wide as without privacy" in text
    assert "no row was read" in text
    assert (folder / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert command("--epsilon", "1", "--rows", "5000", "--json") == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert (case["rows"], case["epsilon"]) == (5000, 1.0)
    assert command("--epsilon", "1", "--spread", "a=0.3", "--share", "sick=0.8,0.2", "--half-width", "0.1") == 0
    text = capsys.readouterr().out
    assert "smallest epsilon for ± 0.1" in text
    assert "in its unit" in text
    assert command("--method", "moments", "--epsilon", "1") == 0
    assert "a column's whole range" in capsys.readouterr().out


def test_the_command_writes_nothing_after_a_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.iterdir())
    for arguments in (
        ("--output", "plan.txt"),
        ("--output", "plan.png", "--effect", "-1"),
        ("--rows", "0"),
        ("--spread", "a"),
    ):
        assert command(*arguments) == 1
        assert capsys.readouterr().err.count("\n") == 1
    assert sorted(folder.iterdir()) == before
