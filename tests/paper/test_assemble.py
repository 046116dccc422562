"""Releases into one model: what is combined, what is shared, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.errors import InputError
from dpglm.paper.assemble import NEGLIGIBLE_NOISE, assemble, stacked, starts
from dpglm.paper.model import table_coefficients
from dpglm.releases import Release

ROWS = 500
OPTIONS: dict[str, Any] = {"link": None, "dispersion": None, "prior": None, "moments": "exact", "noise_aware": True}


def numeric(lower: float, upper: float) -> dict[str, Any]:
    return {"type": "numeric", "lower": lower, "upper": upper}


COLUMNS: dict[str, Any] = {
    "a": numeric(0, 10),
    "b": numeric(-2, 2),
    "g": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
    "y": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    "n": {"type": "count", "upper": 6, "fill": 0},
    "z": numeric(-5, 15),
    "t": numeric(1, 9),
}


def table() -> pd.DataFrame:
    generator = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "a": generator.uniform(1, 9, ROWS),
            "b": generator.normal(0, 0.5, ROWS),
            "g": generator.choice(["p", "q", "r"], ROWS),
            "y": generator.choice(["no", "yes"], ROWS),
            "n": generator.poisson(1.5, ROWS),
            "z": generator.normal(5, 2, ROWS),
            "t": generator.uniform(2, 8, ROWS),
        }
    )


def made(
    formula: str = "y ~ a + b", family: str = "logistic", site: str = "one", noise: int = 0, *,
    epsilon: float = 2.0, rows: int = ROWS, statistics: Any = "full", radius: float | None = None, **columns: Any,
) -> Release:  # fmt: skip
    schema = {"dataset": {"name": site, "rows": rows, "unit": "one person"}, "columns": {**COLUMNS, **columns}}
    frame = pd.concat([table()] * 2).head(rows)
    request = Request(
        formula, schema, family, epsilon, 1e-6, method="moments", radius=radius, allocation="equal",
        statistics=statistics,
    )  # fmt: skip
    return build_release(frame, request, FixedNoise(noise))


def assembled(*releases: Release, **options: Any) -> Any:
    return assemble(releases, **{**OPTIONS, **options})


def test_one_release_is_laid_out_as_it_is() -> None:
    release = made()
    shape, (data,) = assembled(release)
    assert shape.names == ("Intercept", "a", "b")
    assert shape.tables[0].blocks == tuple(block.shape for block in release.blocks)
    assert float(data.num_rows) == ROWS
    np.testing.assert_allclose(data.noise_stddevs, [block.noise_stddev for block in release.blocks])
    np.testing.assert_allclose(data.observed[1], release.blocks[1].values)
    np.testing.assert_allclose(np.asarray(data.observed[3])[np.triu_indices(2)], release.blocks[3].values)
    np.testing.assert_allclose(data.matrix, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(data.shift, 0, atol=1e-15)
    assert (data.lower.tolist(), data.upper.tolist()) == ([-1, -1], [1, 1])


def test_two_releases_of_one_dataset_are_combined_by_precision() -> None:
    first, second = made(noise=2**30), made(noise=-(2**31), epsilon=1.0)
    shape, data = assembled(first, second)
    assert len(shape.tables) == len(data) == 1
    assert float(data[0].num_rows) == ROWS  # counted once
    for number, (one, two) in enumerate(zip(first.blocks, second.blocks, strict=True)):
        assert one.noise_stddev != two.noise_stddev
        precision = one.noise_stddev**-2 + two.noise_stddev**-2
        mean = (one.values * one.noise_stddev**-2 + two.values * two.noise_stddev**-2) / precision
        np.testing.assert_allclose(data[0].noise_stddevs[number], precision**-0.5, rtol=1e-12)
        observed = np.asarray(data[0].observed[number])
        plain = observed[np.triu_indices(2)] if observed.ndim == 2 else observed.reshape(-1)
        np.testing.assert_allclose(plain, mean, rtol=1e-12)


def test_block_lists_of_one_dataset_may_differ() -> None:
    full, paper = made(), made(statistics="paper")
    shape, (data,) = assembled(paper, full)
    pairs = [(block.y_power, block.degree) for block in shape.tables[0].blocks]
    assert sorted(pairs) == [(0, 1), (0, 2), (1, 0), (1, 1)]
    alone = {(block.y_power, block.degree): block.noise_stddev for block in full.blocks}
    for pair, stddev in zip(pairs, data.noise_stddevs, strict=True):
        assert (float(stddev) < alone[pair]) == (pair in {(1, 1), (0, 2)})
    assert not shape.tables[0].zero_mean
    assert assembled(paper)[0].tables[0].zero_mean


def test_different_datasets_are_tables_of_their_own() -> None:
    shape, data = assembled(made(site="one"), made(site="two"), made(site="one", noise=5))
    assert len(shape.tables) == len(data) == 2
    assert shape.size == 3 + 2 * 5


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (lambda: made("y ~ a", site="two"), "terms differ: b"),
        (lambda: made("y ~ b + a", site="two"), "terms differ: their order"),
        (lambda: made("y ~ a + b - 1", site="two"), "terms differ: Intercept"),
        (lambda: made("n ~ a + b", "poisson", site="two"), "fit one family at a time"),
        (lambda: made("y ~ a + b + offset(t)", site="two"), "offsets differ: offset(t) and none"),
        (lambda: made(site="two", y={"type": "binary", "levels": ["yes", "no"], "fill": "no"}), "outcomes differ"),
        (lambda: made(rows=ROWS + 1), "another coding, radius or number of rows"),
        (lambda: made(radius=0.5), "another coding, radius or number of rows"),
        (lambda: made(a=numeric(0, 12)), "another coding, radius or number of rows"),
    ],
)
def test_releases_that_do_not_belong_together_are_refused_in_one_line(other: Any, part: str) -> None:
    with pytest.raises(InputError) as caught:
        assembled(made(), other())
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_reference_level_is_refused() -> None:
    """The indicators have the same names, but their coefficients compare with another level."""
    other = {"type": "categorical", "levels": ["other", "q", "r"], "fill": "q"}
    with pytest.raises(InputError, match="levels differ"):
        assembled(made("y ~ a + g"), made("y ~ a + g", site="two", g=other))


def test_a_release_given_twice_is_refused() -> None:
    release = made()
    with pytest.raises(InputError, match="is given twice"):
        assembled(release, release)
    with pytest.raises(InputError, match="is given twice"):
        assembled(release, replace(made(site="two"), id=release.id))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"moments": "magic"}, "must be one of exact, taylor, numeric"),
        ({"link": "cauchit"}, "must be one of logit, probit"),
        ({"link": 3}, "must be a name"),
        ({"dispersion": 2.0}, "logistic has none to set"),
        ({"prior": {"c": None}}, "is not a coefficient"),
    ],
)
def test_options_are_checked(options: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError) as caught:
        assembled(made(), **options)
    assert part in str(caught.value)


def test_dispersion_of_counts() -> None:
    release = made("n ~ a + b", "poisson")
    assert assembled(release)[0].fixed_spread is None
    assert assembled(release, dispersion="infer")[0].has_spread
    shape, _ = assembled(release, dispersion=np.int64(1))
    assert shape.fixed_spread == 1.0
    assert not shape.has_spread
    pairs = [(block.y_power, block.degree) for block in shape.tables[0].blocks]
    assert (2, 0) not in pairs  # it would only bend the slopes
    assert len(pairs) == len(release.blocks) - 1
    for wrong in (0.5, True, "auto", float("nan")):
        with pytest.raises(InputError, match="dispersion"):
            assembled(release, dispersion=wrong)


def test_degrees_above_two_need_numeric_moments() -> None:
    release = made(statistics=[(1, 1), (0, 2), (1, 3)])
    with pytest.raises(InputError, match="use 'numeric'"):
        assembled(release)


def original_predictor(release: Release, own: np.ndarray, row: dict[str, float]) -> float:
    """u in the user's units, from this release's scaled intercept and slopes (offset's last)."""
    values = {name: np.array([number]) for name, number in row.items()}
    x = release.design.predictors(values, 1)[:, 0]
    outcome = release.design.outcome
    u = float(own[0] + x @ own[1:])
    return outcome.center + outcome.scale * u if release.design.family.coding == "scaled" else u


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("y ~ a + b", "logistic"),
        ("y ~ a * b", "logistic"),
        ("n ~ a + b + offset(t)", "poisson"),
        ("z ~ a + b", "linear"),
        ("z ~ a + b + offset(t)", "linear"),
    ],
)
def test_sites_with_other_bounds_share_coefficients_in_the_users_units(formula: str, family: str) -> None:
    """The linear predictor of a row is one number, whichever site's coding it goes through."""
    here = made(formula, family)
    there = made(formula, family, site="two", a=numeric(-3, 40), b=numeric(-1, 5), z=numeric(0, 8), t=numeric(0, 20))
    shape, data = assembled(here, there)
    shared = np.random.default_rng(2).normal(size=len(shape.names))
    row = {"a": 4.5, "b": 0.7, "t": 3.0}
    predictors = []
    for release, table_shape, arrays in zip((here, there), shape.tables, data, strict=True):
        own = np.concatenate([np.atleast_1d(part) for part in table_coefficients(table_shape, arrays, shared)])
        predictors.append(original_predictor(release, own, row))
    np.testing.assert_allclose(predictors[0], predictors[1], rtol=1e-9)
    if family == "linear":  # one residual variance in the user's units
        ratio = here.design.outcome.scale / there.design.outcome.scale
        np.testing.assert_allclose(data[1].spread_scale / data[0].spread_scale, ratio**2)


def test_an_offset_counts_with_coefficient_one() -> None:
    release = made("n ~ a + offset(t)", "poisson")
    shape, (data,) = assembled(release)
    assert shape.names == ("Intercept", "a")
    own = np.concatenate([np.atleast_1d(part) for part in table_coefficients(shape.tables[0], data, np.zeros(2))])
    low, high = (original_predictor(release, own, {"a": 5.0, "t": t}) for t in (2.0, 7.0))
    np.testing.assert_allclose(high - low, 5.0)


def test_ignoring_the_noise() -> None:
    release = made()
    _, (aware,) = assembled(release)
    _, (unaware,) = assembled(release, noise_aware=False)
    np.testing.assert_array_equal(unaware.noise_stddevs, NEGLIGIBLE_NOISE)
    for one, two in zip(aware.observed, unaware.observed, strict=True):
        np.testing.assert_array_equal(one, two)


def test_ranges_of_indicators_and_of_a_smaller_ball() -> None:
    _, (data,) = assembled(made("y ~ a + g"))
    assert (data.lower.tolist(), data.upper.tolist()) == ([-1, 0, 0], [1, 1, 1])
    _, (data,) = assembled(made(radius=0.5))
    assert (data.lower.tolist(), data.upper.tolist()) == ([-0.5, -0.5], [0.5, 0.5])


def test_a_release_read_from_its_file_gives_the_same_arrays(tmp_path: Any) -> None:
    release = made(noise=12345)
    release.save(tmp_path / "r.json")
    shape, data = assembled(release)
    again_shape, again = assembled(dpglm.load_release(tmp_path / "r.json"))
    assert again_shape == shape
    assert hash(again_shape) == hash(shape)
    both = stacked([data, again])
    for leaf in both[0].observed:
        np.testing.assert_array_equal(leaf[0], leaf[1])
    points = starts(shape, [data, again])
    np.testing.assert_array_equal(points[0], points[1])
