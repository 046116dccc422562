"""Noisy gradients: right without noise, wrong when hot, batches and clipping as the accounting assumes."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm

from dpglm import Schema
from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior
from dpglm.errors import InputError
from dpglm.paper.baselines import SgldSettings, dp_sgld, scaled_rows
from dpglm.paper.baselines.langevin import chains, poisson_batch
from dpglm.paper.baselines.langevin_accounting import chain_epsilon, noise_multiplier
from dpglm.paper.outcomes import outcome_of
from dpglm.privacy import delta_of

ROWS = 400
LOGIT = outcome_of("logistic", None, (-1, 1))


def table(seed):
    rng = np.random.default_rng(seed)
    x = 0.5 * rng.normal(size=(ROWS, 1))
    y = np.where(rng.random(ROWS) < 1 / (1 + np.exp(-x[:, 0])), 1.0, -1.0)
    return x, y


def exact_posterior(x, y, points, scale, largest):
    """Distribution function of one slope under a normal prior, held in an interval, by a sum over points."""
    log_density = -np.logaddexp(0, -y[:, None] * x * points).sum(axis=0) - 0.5 * (points / scale) ** 2
    log_density[np.abs(points) > largest] = -np.inf
    mass = np.exp(log_density - log_density.max())
    return np.cumsum(mass) / mass.sum()


def distance(draws, x, y, scale=2.5, largest=np.inf):
    points = np.linspace(-4, 5, 4001)
    exact = exact_posterior(x, y, points, scale, largest)
    return float(np.abs((draws[:, None] <= points).mean(axis=0) - exact).max())


WIDE = NormalPrior()


def run(x, y, noise, rate, clip, prior=WIDE):
    numbers = np.array([[noise, rate, clip, 0.0]] * 8)
    repeated = np.broadcast_to(x, (8, *x.shape)), np.broadcast_to(y, (8, *y.shape))
    return chains(LOGIT, ("x",), prior, *repeated, numbers, 4_000, 1_000, 7).reshape(-1)


def test_without_noise_the_chain_samples_the_posterior_and_with_noise_it_does_not():
    """Eight chains, about 600 effective draws: a right chain is nearer than 0.1 all but never."""
    x, y = table(1)
    assert distance(run(x, y, 1e-9, 0.003, 10.0), x, y) < 0.1
    assert distance(run(x, y, 200.0, 0.003, 1.0), x, y) > 0.3  # too hot
    assert distance(run(x, y, 1e-9, 0.003, 0.02), x, y) > 0.2  # clipped to almost nothing


def test_a_prior_in_a_ball_holds_the_chain_in_it():
    """The ball cuts this posterior in its middle: a chain that only knew the normal part would be far off."""
    x, y = table(1)
    free = run(x, y, 1e-9, 0.003, 10.0, NormalPrior(slopes=1.0))
    largest = float(np.median(free))
    held = run(x, y, 1e-9, 0.0003, 10.0, SphericalPrior(largest**2))
    assert np.abs(held).max() <= largest * (1 + 1e-12)
    assert distance(held, x, y, 1.0, largest) < 0.15  # steps have a size, and some end on the edge
    assert distance(free, x, y, 1.0, largest) > 0.4


def test_a_batch_holds_each_row_independently():
    """10,000 batches of 100 rows with probability 0.1: size is binomial, and every row as frequent as another."""
    keys = jax.random.split(jax.random.key(3), 10_000)
    positions, inside = jax.vmap(lambda key: poisson_batch(key, 100, 0.1, 60))(keys)
    positions, inside = np.asarray(positions), np.asarray(inside)
    sizes = inside.sum(axis=1)
    counts = np.bincount(positions[inside], minlength=100)
    assert np.abs(counts - 1_000).max() < 5 * np.sqrt(900)
    assert abs(sizes.var() / 9 - 1) < 0.1  # a batch of fixed size has no variance, one with replacement more
    for number in (5, 10, 15):
        assert abs(np.mean(sizes <= number) - binom.cdf(number, 100, 0.1)) < 0.025
    assert all(len(set(batch[real].tolist())) == real.sum() for batch, real in zip(positions[:200], inside[:200]))  # noqa: B905


def test_one_replaced_row_moves_a_step_by_at_most_two_clipping_norms():
    """All else equal, one step of a chain with the row replaced differs by eta/2 / q x 2 C at most, and by no less."""
    x, y = table(2)
    x = 50 * x  # long rows: every gradient is clipped
    other_x, other_y = x.copy(), y.copy()
    numbers = np.array([[5.0, 1e-4, 0.3, 0.0]])
    moves = []
    for row in range(0, ROWS, 4):
        other_x[row], other_y[row] = -x[row], y[row]
        pair = [chains(LOGIT, ("x",), NormalPrior(), a[None], b[None], numbers, 1, 0, 9)[0, 0, 0]
                for a, b in ((x, y), (other_x, other_y))]  # fmt: skip
        moves.append(abs(pair[0] - pair[1]))
        other_x[row] = x[row]
    bound = 1e-4 / 2 * np.sqrt(ROWS) * 2 * 0.3
    assert max(moves) <= bound * (1 + 1e-9)
    assert max(moves) > 0.99 * bound  # the bound is attained: it is not loose either
    assert np.mean(np.array(moves) == 0) > 0.5  # most rows are not in the batch


def test_full_batches_cost_what_a_gaussian_mechanism_costs():
    """q = 1: T steps of sensitivity 2 (a replaced row) are one mechanism with mu = 2 sqrt(T) / noise."""
    epsilon = chain_epsilon(40.0, 1.0, 100, 1e-5)
    mu = 2 * np.sqrt(100) / 40.0
    assert delta_of(mu, epsilon) == pytest.approx(1e-5, rel=0.02)
    assert delta_of(mu / 2, epsilon) < 1e-7  # adding or removing a row would look half as costly


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_noise_is_just_enough(epsilon):
    found = noise_multiplier(epsilon, 1e-5, 0.03, 10_000)
    assert chain_epsilon(found, 0.03, 10_000, 1e-5) <= epsilon
    assert chain_epsilon(found * 0.998, 0.03, 10_000, 1e-5) > epsilon
    # Much noise, small batches: about one Gaussian mechanism with mu = 2 q sqrt(T) / noise.
    limit = 2 * 0.03 * np.sqrt(10_000) / found
    assert norm.cdf(limit / 2 - epsilon / limit) - np.exp(epsilon) * norm.cdf(-limit / 2 - epsilon / limit) == (
        pytest.approx(1e-5, rel=0.6)
    )


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="learning_rate"):
        SgldSettings(0.0, 1.0)
    with pytest.raises(InputError, match="decay"):
        SgldSettings(0.1, 1.0, 2.0)
    with pytest.raises(InputError, match="prior"):
        dp_sgld(some_rows(), SgldSettings(1e-3, 1.0), epsilon=1.0, delta=1e-5, prior=CustomPrior(()))
    with pytest.raises(InputError, match="burn_in"):
        dp_sgld(some_rows(), SgldSettings(1e-3, 1.0), epsilon=1.0, delta=1e-5, iterations=10, burn_in=10)


def some_rows():
    x, y = table(3)
    columns = {"x": {"type": "numeric", "lower": -2, "upper": 2}, "y": {"type": "binary", "levels": [0, 1], "fill": 0}}
    schema = {"dataset": {"name": "simulated", "rows": ROWS, "unit": "one row"}, "columns": columns}
    frame = pd.DataFrame({"x": x[:, 0], "y": (y > 0).astype(int)})
    return scaled_rows(frame, "y ~ x", schema=Schema.from_dict(schema), family="logistic")


@pytest.mark.parametrize("prior", [None, SphericalPrior(0.0025)])
def test_a_chain_of_a_table(prior):
    """The public call: draws after burn-in, in the prior's ball where it has one, and the noise that was needed."""
    settings = SgldSettings(1e-4, 0.5)
    found = dp_sgld(some_rows(), settings, epsilon=1.0, delta=1e-5, prior=prior, iterations=300, burn_in=100, seed=4)
    assert found.coefficients.shape == (1, 200, 2)
    assert found.facts["noise_multiplier"] == noise_multiplier(1.0, 1e-5, ROWS**-0.5, 300)
    largest = np.abs(found.coefficients[..., 1]).max()
    assert (largest <= 0.05 * (1 + 1e-12)) == (prior is not None)
    again = dp_sgld(some_rows(), settings, epsilon=1.0, delta=1e-5, prior=prior, iterations=300, burn_in=100, seed=4)
    np.testing.assert_array_equal(found.coefficients, again.coefficients)
