"""Baselines see the very rows that a release sums."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dpglm.custodian.build import Request, build_release
from dpglm.errors import InputError
from dpglm.paper.baselines import scaled_rows

SCHEMA = {
    "dataset": {"name": "rows", "rows": 50},
    "columns": {
        "age": {"type": "numeric", "lower": 20, "upper": 90},
        "smoker": {"type": "categorical", "levels": ["never", "former", "current"], "fill": "never"},
        "visits": {"type": "count", "upper": 20, "fill": 0},
        "ill": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    },
}


class NoNoise:
    """For comparison only."""

    private = False

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        return [0] * size


def messy_table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    age = rng.normal(60, 30, 50)  # some outside the bounds
    age[3] = np.nan
    smoker = rng.choice(["never", "former", "current", "unheard of"], 50)
    return pd.DataFrame(
        {"age": age, "smoker": smoker, "visits": rng.poisson(9, 50), "ill": rng.choice(["no", "yes"], 50)}
    )


@pytest.mark.parametrize(
    ("formula", "family"), [("ill ~ age + smoker", "logistic"), ("visits ~ age", "poisson"), ("age ~ visits", "linear")]
)
@pytest.mark.parametrize("radius", [None, 0.6])
def test_sums_of_the_rows_are_those_of_a_release(formula, family, radius):
    rows = scaled_rows(messy_table(), formula, schema=SCHEMA, family=family, radius=radius)
    request = Request(formula, SCHEMA, family, 1.0, 1e-6, method="moments", radius=radius, allocation="equal")
    release = build_release(messy_table(), request, NoNoise())
    sums = {(block.y_power, block.degree): np.asarray(block.values) for block in release.blocks}
    rounding = 50 * 2.0**-release.grid.exponent * 40  # a release of counts has the coarser grid
    np.testing.assert_allclose(sums[1, 1], rows.x.T @ rows.y, atol=rounding)
    np.testing.assert_allclose(sums[0, 1], rows.x.sum(axis=0), atol=rounding)
    np.testing.assert_allclose(sums[1, 0], rows.y.sum(), atol=rounding)
    assert not np.allclose(sums[1, 1], 1.02 * rows.x.T @ rows.y, atol=rounding)
    if radius is not None:
        assert np.linalg.norm(rows.x, axis=1).max() <= radius


def test_an_intercept_is_a_column_of_ones():
    with_one = scaled_rows(messy_table(), "ill ~ age", schema=SCHEMA, family="logistic")
    without = scaled_rows(messy_table(), "ill ~ age - 1", schema=SCHEMA, family="logistic")
    assert with_one.matrix.shape == (50, 2)
    assert (with_one.matrix[:, 0] == 1).all()
    assert without.matrix.shape == (50, 1)


def test_an_offset_is_refused():
    with pytest.raises(InputError, match="offset"):
        scaled_rows(messy_table(), "visits ~ smoker + offset(age)", schema=SCHEMA, family="poisson")
