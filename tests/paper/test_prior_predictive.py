"""What a prior implies, against closed forms; and that nothing measured enters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpglm
from dpglm.errors import InputError


def release_of(
    family: str, formula: str = "y ~ a + b", rows: int = 100, method: str = "moments", epsilon: float = 1.0
) -> dpglm.Release:
    generator = np.random.default_rng(0)
    bounds = {"type": "numeric", "lower": 10, "upper": 30}
    outcomes: dict[str, Any] = {
        "logistic": ({"type": "binary", "levels": ["no", "yes"], "fill": "no"}, "yes"),
        "poisson": ({"type": "count", "upper": 20, "fill": 0}, 3),
        "linear": ({"type": "numeric", "lower": 0, "upper": 100, "fill": 50}, generator.uniform(0, 100, rows)),
    }
    declared, value = outcomes[family]
    levels = {"type": "categorical", "levels": ["u", "v", "w"], "fill": "u"}
    schema = dpglm.Schema.from_dict(
        {"dataset": {"name": "t", "rows": rows}, "columns": {"a": bounds, "b": bounds, "c": levels, "y": declared}}
    )
    a, b = generator.uniform(10, 30, (2, rows))
    table = pd.DataFrame({"a": a, "b": b, "c": ["v"] * rows, "y": value})
    return dpglm.release(
        table, formula, schema=schema, family=family, epsilon=epsilon, delta=1e-6, ledger=None, method=method
    )


def test_an_intercept_alone_is_in_closed_form() -> None:
    """Hardly any slope: P = expit(N(0, 5^2)). 4,000 draws: five standard errors of a share are at most 0.04."""
    prior = dpglm.NormalPrior(slopes=1e-6, intercept=5.0)
    found = dpglm.prior_predictive(release_of("logistic"), prior=prior, draws=4000)
    assert found.expected.shape[0] == 4000
    beyond = 2 * stats.norm.cdf(-np.log(99) / 5)
    assert abs(found.share_extreme - beyond) < 0.04
    assert abs(found.average_quantiles((0.5,))[0] - 0.5) < 0.1
    narrow = dpglm.prior_predictive(release_of("logistic"), prior=dpglm.NormalPrior(1e-6, 1.0), draws=4000)
    assert narrow.share_extreme < 0.001 < beyond  # a narrower prior is seen to be narrower
    assert "probability" in str(found)
    wide = dpglm.prior_predictive(release_of("logistic"), prior=dpglm.NormalPrior(1.0, 50.0))
    assert "narrower prior" in str(wide)
    assert "narrower prior" not in str(narrow)


def test_slopes_see_the_declared_range() -> None:
    """u = beta_a a + beta_b b with a, b uniform on [-1, 1] and slopes of standard deviation 2."""
    prior = dpglm.NormalPrior(slopes=2.0, intercept=1e-6)
    release = release_of("linear")
    found = dpglm.prior_predictive(release, prior=prior, draws=4000)
    # scaled: variance 2 slopes x 4 x E[a^2] = 8 / 3, with 200 rows; times 50 in the user's units
    assert found.expected.std() / 50 == pytest.approx(np.sqrt(8 / 3), rel=0.1)
    assert found.limits == (0, 100)
    assert 0.4 < found.share_extreme < 0.6


def test_counts_links_and_priors() -> None:
    release = release_of("poisson", "y ~ a + c")
    found = dpglm.prior_predictive(release, prior=dpglm.NormalPrior(1e-6, 1.0), draws=4000)
    assert found.quantiles((0.5,))[0] == pytest.approx(1.0, rel=0.2)
    assert found.share_extreme == pytest.approx(stats.norm.sf(np.log(20)), abs=0.005)
    softplus = dpglm.prior_predictive(release, prior=dpglm.NormalPrior(1e-6, 1.0), link="softplus", draws=4000)
    assert softplus.quantiles((0.5,))[0] == pytest.approx(np.log(2), rel=0.2)
    spherical = dpglm.prior_predictive(release, prior=dpglm.SphericalPrior(1.0), draws=50)
    assert spherical.expected.shape[0] == 50
    assert "count" in str(found)


def test_nothing_measured_enters() -> None:
    release = release_of("logistic")
    block = release.blocks[0]
    other = replace(release, stages=(replace(release.stages[0], blocks=(replace(block, noise_stddev=1.0),)),))
    one, two = (dpglm.prior_predictive(each, draws=20) for each in (release, other))
    np.testing.assert_array_equal(one.expected, two.expected)


def test_mistakes_are_refused() -> None:
    with pytest.raises(InputError, match="must be a Release"):
        dpglm.prior_predictive("release.json")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="method='moments'"):
        dpglm.prior_predictive(release_of("linear", rows=2_000, method="looks", epsilon=20.0))
    with pytest.raises(InputError, match="draws"):
        dpglm.prior_predictive(release_of("logistic"), draws=0)
    with pytest.raises(InputError, match="not a coefficient"):
        dpglm.prior_predictive(release_of("logistic"), prior={"nobody": None})
