"""The posterior of the rows: likelihoods against SciPy, and draws against the Gaussian at a mode found otherwise."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpglm.errors import InputError
from dpglm.paper.baselines import non_private_many, scaled_rows
from dpglm.paper.baselines.row_likelihood import row_likelihood

ROWS = 2_000
SLOPES = np.array([0.4, -1.2, 0.8])
SCHEMA = {
    "dataset": {"name": "rows", "rows": ROWS},
    "columns": {
        "a": {"type": "numeric", "lower": -1, "upper": 1},
        "b": {"type": "numeric", "lower": -1, "upper": 1},
        "y": {"type": "binary", "levels": [0, 1], "fill": 0},
    },
}


def simulated(seed):
    rng = np.random.default_rng(seed)
    x = np.clip(0.4 * rng.normal(size=(ROWS, 2)), -1, 1)
    u = SLOPES[0] + x @ SLOPES[1:]
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": (rng.random(ROWS) < 1 / (1 + np.exp(-u))).astype(int)})
    return scaled_rows(frame, "y ~ a + b", schema=SCHEMA, family="logistic")


def up_to_a_constant(family, link, u, y, spread):
    """The density less its value at the first point: constants of y drop out."""
    density = row_likelihood(family, link)
    found = np.array([float(density(jnp.asarray(one), jnp.asarray(y), jnp.asarray(spread))) for one in u])
    return found - found[0]


@pytest.mark.parametrize(
    ("family", "link", "y", "spread", "exact"),
    [
        ("logistic", "logit", 1.0, 1.0, lambda u: stats.bernoulli.logpmf(1, 1 / (1 + np.exp(-u)))),
        ("logistic", "probit", -1.0, 1.0, lambda u: stats.norm.logcdf(-u)),
        ("poisson", "log", 3.0, 1.0, lambda u: stats.poisson.logpmf(3, np.exp(u))),
        ("poisson", "softplus", 3.0, 1.0, lambda u: stats.poisson.logpmf(3, np.log1p(np.exp(u)))),
        ("poisson", "log", 3.0, 2.5, lambda u: stats.nbinom.logpmf(3, np.exp(u) / 1.5, 1 / 2.5)),
        ("linear", "identity", 0.3, 0.2, lambda u: stats.norm.logpdf(0.3, u, np.sqrt(0.2))),
    ],
)
def test_likelihoods_are_those_of_scipy(family, link, y, spread, exact):
    u = np.array([-3.0, -1.0, 0.0, 0.5, 2.0])
    found, wanted = up_to_a_constant(family, link, u, y, spread), exact(u) - exact(u)[0]
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    assert not np.allclose(up_to_a_constant(family, link, u + 0.1, y, spread), wanted, atol=1e-3)


def test_an_unknown_link_is_refused():
    with pytest.raises(InputError, match="link"):
        row_likelihood("logistic", "cauchit")


def newton(rows, prior_sd):
    """Mode and standard deviations of a logistic posterior, written out."""
    matrix, ones, theta = rows.matrix, (rows.y + 1) / 2, np.zeros(3)
    for _ in range(30):
        mean = 1 / (1 + np.exp(-matrix @ theta))
        curvature = (matrix * (mean * (1 - mean))[:, None]).T @ matrix + np.diag(prior_sd**-2.0)
        theta = theta + np.linalg.solve(curvature, matrix.T @ (ones - mean) - theta / prior_sd**2)
    return theta, np.sqrt(np.diag(np.linalg.inv(curvature)))


def test_posteriors_of_two_tables_in_one_batch():
    """2,000 rows: Gaussian up to a few per cent. Means within 0.15 sd (Monte Carlo: 0.03), widths within 8 %."""
    tables = [simulated(1), simulated(2)]
    found = non_private_many(tables, draws=500, seed=3)
    for table, posterior in zip(tables, found, strict=True):
        mode, stddev = newton(table, np.array([5.0, 2.5, 2.5]))
        flat = posterior.draws("scaled").reshape(-1, 3)
        assert np.abs((flat.mean(axis=0) - mode) / stddev).max() < 0.15
        assert np.abs(flat.std(axis=0) / stddev - 1).max() < 0.08
        assert posterior.r_hat.max() < 1.02
        tight, _ = newton(table, np.array([5.0, 0.1, 0.1]))  # another prior is told apart
        assert np.abs((flat.mean(axis=0) - tight) / stddev).max() > 1
        summary = posterior.summary()
        assert list(summary.index) == ["Intercept", "a", "b"]
        assert summary.loc["a", "significant"]
    assert not np.allclose(found[0].coefficients, found[1].coefficients)


def test_tables_of_different_length_are_refused():
    schema = SCHEMA | {"dataset": {"name": "rows", "rows": 10}}
    short = pd.DataFrame({"a": np.zeros(10), "b": np.ones(10), "y": [0, 1] * 5})
    with pytest.raises(InputError, match="shape"):
        non_private_many([simulated(1), scaled_rows(short, "y ~ a + b", schema=schema, family="logistic")])
