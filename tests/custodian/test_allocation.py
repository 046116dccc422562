"""The reduced information against a dense one, and what `auto` gains over `equal`."""

import itertools
import math

import numpy as np
import pytest

from dpglm.blocks import BlockShape
from dpglm.custodian import allocation
from dpglm.custodian.allocation import allocate, coefficient_stddevs
from dpglm.custodian.sensitivity import sensitivity
from dpglm.errors import InputError
from dpglm.families import FAMILIES
from dpglm.privacy import mu_of

RANGES = {"logistic": (-1.0, 1.0), "poisson": (0.0, 8.0), "linear": (-1.0, 1.0)}


def calibrated(ratios, family, dimension, mu):
    blocks, radius = family.full_blocks, math.sqrt(dimension)
    squared = sensitivity(blocks, ratios, radius, RANGES[family.name]).mu_squared
    return np.array(ratios) * math.sqrt(squared) / mu


def dense_stddevs(noise, family, num_rows, radius, response_range):
    """All statistics and all parameters at d = 3, by product quadrature and finite differences; no symmetry used."""
    blocks, d = family.full_blocks, 3
    nominal, moments = allocation._nominal_family(family, response_range)
    variance = radius**2 / (3 * d)
    line = np.linspace(-7.5, 7.5, 33)
    weight = np.exp(-(line**2) / 2)
    weight /= weight.sum()
    nodes = np.array(list(itertools.product(line, repeat=d)))
    weights = np.array([math.prod(w) for w in itertools.product(weight, repeat=d)])
    slope, mean = nominal.slope_effect / math.sqrt(variance), nominal.mean * math.sqrt(variance)
    # slopes, intercept, means, log variances as (first, common, difference), covariances 12, 13, 23, log spread
    at = np.zeros(14)
    at[0], at[3], at[4] = slope, nominal.intercept - slope * mean, mean

    def rows_and_spread(parameters):
        _, log1, common, difference, c12, c13, c23, log_spread = np.split(parameters, [7, 8, 9, 10, 11, 12, 13])
        sigma = variance * np.diag(np.exp([log1[0], common[0] + difference[0], common[0] - difference[0]]))
        for (i, j), value in {(0, 1): c12[0], (0, 2): c13[0], (1, 2): c23[0]}.items():
            sigma[i, j] = sigma[j, i] = value
        x = parameters[4:7] + nodes @ np.linalg.cholesky(sigma).T
        return x, nominal.spread * math.exp(log_spread[0])

    def table(parameters):
        x, spread = rows_and_spread(parameters)
        h = moments(parameters[3] + x @ parameters[:3], spread)
        ones = np.ones(len(x))
        return h, [BlockShape(0, b.degree).features(x, ones) if b.degree else ones[:, None] for b in blocks]

    def means(parameters):
        h, monomials = table(parameters)
        parts = [(weights * h[b.y_power]) @ m for b, m in zip(blocks, monomials, strict=True)]
        return np.concatenate(parts)

    h, monomials = table(at)
    average = means(at)
    second = np.block(
        [
            [
                (a_m * (weights * h[a.y_power + b.y_power])[:, None]).T @ b_m
                for b, b_m in zip(blocks, monomials, strict=True)
            ]
            for a, a_m in zip(blocks, monomials, strict=True)
        ]
    )
    stddev_of = np.concatenate([[s] * m.shape[1] for s, m in zip(noise, monomials, strict=True)])
    total = num_rows * (second - np.outer(average, average)) + np.diag(stddev_of**2)
    jacobian = num_rows * allocation._jacobian(means, at)
    prior = [1 / 2.5**2] * 3 + [1 / 25] + [1 / variance] * 3 + [1.0] * 3 + [4 / variance**2] * 3 + [1.0]
    information = jacobian.T @ np.linalg.solve(total, jacobian) + np.diag(prior)
    stddevs = np.sqrt(np.diag(np.linalg.inv(information)))
    return stddevs[3], stddevs[0], stddevs[1]


@pytest.mark.parametrize("name", list(RANGES))
@pytest.mark.parametrize("num_rows", [500, 50_000])
def test_two_small_problems_equal_the_dense_one(name, num_rows):
    family = FAMILIES[name]
    noise = 20.0 * np.exp(np.linspace(-0.5, 0.5, len(family.full_blocks)))
    radius = math.sqrt(3)
    reduced = coefficient_stddevs(noise, family, family.full_blocks, 3, num_rows, radius, RANGES[name])
    dense = dense_stddevs(noise, family, num_rows, radius, RANGES[name])
    np.testing.assert_allclose(reduced, dense, rtol=2e-5)
    other = coefficient_stddevs(2 * noise, family, family.full_blocks, 3, num_rows, radius, RANGES[name])
    assert not np.allclose(other, dense, rtol=2e-3)  # the comparison can fail


@pytest.mark.parametrize("name", list(RANGES))
@pytest.mark.parametrize("dimension", [1, 3, 7, 15])
@pytest.mark.parametrize(("num_rows", "epsilon"), [(1_000, 0.3), (10_000, 1.0), (100_000, 3.0)])
def test_auto_is_never_worse_than_equal_at_the_nominal_point(name, dimension, num_rows, epsilon):
    family, mu, radius = FAMILIES[name], mu_of(epsilon, 1e-6), math.sqrt(dimension)
    blocks, response = family.full_blocks, RANGES[name]
    auto = allocate("auto", family, blocks, dimension, num_rows, mu, radius, response)

    def mean_log(ratios):
        intercept, along, across = coefficient_stddevs(
            calibrated(ratios, family, dimension, mu), family, blocks, dimension, num_rows, radius, response
        )
        return (math.log(intercept) + math.log(along) + (dimension - 1) * math.log(across)) / (dimension + 1)

    gain = mean_log([1.0] * len(blocks)) - mean_log(auto)
    assert gain > -1e-3  # three digits of the ratios are kept
    if dimension >= 7 and num_rows <= 10_000:
        assert gain > 0.1  # where privacy noise matters: 10 % or more


def test_allocation_depends_on_public_facts_only_and_is_repeatable():
    family = FAMILIES["logistic"]
    arguments = ("auto", family, family.full_blocks, 5, 2_000, 0.2, math.sqrt(5), (-1.0, 1.0))
    first = allocate(*arguments)
    allocation._optimal.cache_clear()
    assert allocate(*arguments) == first


def test_high_degrees_are_balanced_and_unknown_names_refused():
    family = FAMILIES["logistic"]
    blocks = (BlockShape(0, 1), BlockShape(0, 4))
    assert allocate("auto", family, blocks, 3, 100, 0.2, 2.0, (-1.0, 1.0)) == (2.0, 16.0)
    with pytest.raises(InputError, match=r"^allocation = best: must be one of auto, equal"):
        allocate("best", family, blocks, 3, 100, 0.2, 2.0, (-1.0, 1.0))
