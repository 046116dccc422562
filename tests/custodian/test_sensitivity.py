"""The claimed mu against a search over neighbouring rows that knows only the plain definition of the statistics."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpglm.blocks import BlockShape
from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.sensitivity import approximate_squared_mu, look_squared_mu, sensitivity
from dpglm.formula import build_design
from dpglm.schema import Schema

PAPER_POISSON = [(0, 1), (0, 2), (1, 1), (1, 2)]
FULL_LOGISTIC = [(1, 0), (1, 1), (0, 1), (0, 2)]


def shapes(pairs):
    return [BlockShape(*pair) for pair in pairs]


def moved(blocks, noise, first_x, first_y, second_x, second_y):
    """Squared distance, in noise standard deviations, between the statistics of pairs of rows."""
    total = 0.0
    for block, stddev in zip(blocks, noise, strict=True):
        difference = block.features(first_x, first_y) - block.features(second_x, second_y)
        total = total + np.sum(difference**2, axis=1) / stddev**2
    return total


def search(blocks, noise, radius, response_range, dimension, seed, pairs=4_000):
    """Largest squared distance found among random rows, corners, and rows climbed to from the best of them."""
    rng = np.random.default_rng(seed)
    low, high = response_range

    def rows(size):
        x = rng.normal(size=(size, dimension))
        lengths = radius * np.where(rng.random(size) < 0.8, 1.0, rng.random(size))
        return x / np.linalg.norm(x, axis=1, keepdims=True) * lengths[:, None]

    def outcomes(size):
        return np.where(rng.random(size) < 0.7, rng.choice([low, high], size), rng.uniform(low, high, size))

    first, second = rows(pairs), rows(pairs)
    collinear = rng.random(pairs) < 0.2  # adversarial: the same or the opposite direction
    second[collinear] = first[collinear] * rng.choice([-1.0, 1.0], collinear.sum())[:, None]
    y, other_y = outcomes(pairs), outcomes(pairs)
    found = moved(blocks, noise, first, y, second, other_y)
    best = found.max()

    def climb(parameters):
        x, z = parameters[:dimension], parameters[dimension : 2 * dimension]
        x, z = (radius * v / max(np.linalg.norm(v), 1e-9) for v in (x, z))
        a, b = np.clip(parameters[-2:], low, high)
        return -moved(blocks, noise, x[None], np.array([a]), z[None], np.array([b]))[0]

    for start in np.argsort(found)[-6:]:
        parameters = np.concatenate([first[start], second[start], [y[start], other_y[start]]])
        bounds = [(None, None)] * (2 * dimension) + [(low, high)] * 2
        best = max(best, -minimize(climb, parameters, method="L-BFGS-B", bounds=bounds).fun)
    return best


def design_for(family, intercept, dimension=3, largest_count=6):
    columns = {f"x{j}": {"type": "numeric", "lower": -1, "upper": 1} for j in range(dimension)}
    outcome = {
        "logistic": {"type": "binary", "levels": [0, 1], "fill": 0},
        "poisson": {"type": "count", "upper": largest_count, "fill": 0},
        "linear": {"type": "numeric", "lower": -1, "upper": 3},
    }[family]
    schema = Schema.from_dict({"dataset": {"name": "t", "rows": 5000}, "columns": columns | {"y": outcome}})
    right = " + ".join(f"x{j}" for j in range(dimension)) + ("" if intercept else " - 1")
    return build_design(f"y ~ {right}", schema, family)


@pytest.mark.parametrize("radius", [None, 1.0, 0.4])
@pytest.mark.parametrize("allocation", ["equal", "auto"])
@pytest.mark.parametrize("statistics", ["full", "paper"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_search_never_exceeds_the_claimed_mu_and_comes_close(family, intercept, statistics, allocation, radius):
    for dimension, largest_count in ((2, 1), (3, 20)):
        design = design_for(family, intercept, dimension, largest_count)
        mechanism = calibrate(design, 1.0, 1e-6, radius, allocation, statistics)
        found = search(
            mechanism.blocks,
            mechanism.noise_stddevs,
            mechanism.radius,
            design.response_range,
            dimension,
            seed=dimension,
        )
        claimed = mechanism.mu
        assert math.sqrt(found) <= claimed * (1 + 1e-12)
        assert math.sqrt(found) >= 0.999 * claimed


def test_search_would_notice_a_claim_that_is_too_small():
    blocks, noise = shapes(FULL_LOGISTIC), [1.0, 1.0, 1.0, 1.0]
    claimed = sensitivity(blocks, noise, 1.0, (-1, 1)).mu_squared
    found = search(blocks, noise, 1.0, (-1, 1), 3, seed=0)
    assert found > 0.999 * claimed  # so a claim of 0.99 of it would have been exceeded
    without_intercept = sensitivity(blocks[1:], noise[1:], 1.0, (-1, 1)).mu_squared
    assert found > without_intercept * 1.01  # the planted bug "forgot a block" is found


def test_the_papers_poisson_lemma_is_violated():
    c2, c3, c4 = 0.01, 0.01, 1.0
    lemma = (2 * (c2 + c4) + c3 + 1) ** 2 / (2 * (c2 + c4))
    noise = [1.0, c2**-0.5, c3**-0.5, c4**-0.5]
    found = search(shapes(PAPER_POISSON), noise, 1.0, (0, 1), 3, seed=1)
    assert lemma == pytest.approx(4.545, abs=1e-3)
    assert found == pytest.approx(5.01, abs=1e-6)
    assert found > lemma
    assert sensitivity(shapes(PAPER_POISSON), noise, 1.0, (0, 1)).mu_squared == pytest.approx(5.01, abs=1e-9)


def test_the_papers_logistic_lemma_is_loose_outside_its_range():
    c = 0.1
    printed = 1 / (2 * c) + 2 + 2 * c
    assert printed == pytest.approx(7.2)
    exact = sensitivity(shapes([(1, 1), (0, 2)]), [1.0, c**-0.5], 1.0, (-1, 1)).mu_squared
    assert exact == pytest.approx(4.0, abs=1e-9)


@pytest.mark.parametrize(
    ("pairs", "radius", "response_range", "expected"),
    [
        ([(1, 1), (0, 2)], 1.0, (-1, 1), 4.5),
        ([(0, k) for k in range(1, 7)], 1.0, (-1, 1), 12.729812212),
        (PAPER_POISSON, 1.0, (0, 5), 117.0),
        (FULL_LOGISTIC, 1.0, (-1, 1), 10.0),
        (FULL_LOGISTIC, 1.0, (0, 1), 8.0),
        ([*PAPER_POISSON, (1, 0)], 1.0, (0, 5), 117.0),  # the intercept's block costs nothing at R = 1
    ],
)
def test_known_values(pairs, radius, response_range, expected):
    result = sensitivity(shapes(pairs), [1.0] * len(pairs), radius, response_range)
    assert result.mu_squared == pytest.approx(expected, abs=1e-9)
    assert result.mu_squared >= result.witness_squared


def test_known_cosine_of_six_degrees():
    result = sensitivity(shapes([(0, k) for k in range(1, 7)]), [1.0] * 6, 1.0, (-1, 1))
    assert result.cosine == pytest.approx(-0.6703, abs=1e-4)


def test_an_interior_outcome_can_be_the_worst():
    """With the block (2, 0) the maximum need not sit at the ends of the response range."""
    result = sensitivity(shapes([(2, 0), (1, 1)]), [0.5, 2.0], 1.0, (0, 1))
    s = np.linspace(0, 1, 100_001)
    slice_values = 4 * (1 - s**2) ** 2 + (1 + s**2 + 2 * s) / 4
    assert result.mu_squared == pytest.approx(slice_values.max(), rel=1e-8)
    assert 0 < s[slice_values.argmax()] < 1
    assert slice_values.max() > max(slice_values[0], slice_values[-1])


def test_bound_is_above_a_fine_grid_for_random_block_lists():
    rng = np.random.default_rng(7)
    for _ in range(60):
        pairs = list({(int(rng.integers(0, 3)), int(rng.integers(0, 7))) for _ in range(5)} - {(0, 0)})
        if not pairs:
            continue
        noise = np.exp(1.5 * rng.normal(size=len(pairs)))
        low = rng.normal()
        high, radius = low + math.exp(rng.normal()), math.exp(rng.normal() / 2)
        claimed = sensitivity(shapes(pairs), noise, radius, (low, high))
        y, z, t = np.meshgrid(np.linspace(low, high, 25), np.linspace(low, high, 25), np.linspace(-1, 1, 121))
        grid = sum(
            radius ** (2 * k) * (y ** (2 * q) + z ** (2 * q) - 2 * (y * z) ** q * t**k) / stddev**2
            for (q, k), stddev in zip(pairs, noise, strict=True)
        )
        assert grid.max() <= claimed.mu_squared * (1 + 1e-12)
        assert claimed.witness_squared <= claimed.mu_squared <= 1.02 * grid.max()
        largest = max(abs(low), abs(high))
        weights = np.array([(radius**k * largest**q / s) ** 2 for (q, k), s in zip(pairs, noise, strict=True)])
        fast = approximate_squared_mu(shapes(pairs), weights, (low / largest, high / largest))
        assert 0.999 * claimed.mu_squared <= fast <= claimed.mu_squared


# Looks: the blocks s, q q' and s s' of parallel vectors, |s| <= 1 and |q| <= 1.

SCALES = [(1.0, 1.0), (1.0, 5.0), (1.0, 0.3), (0.4, 2.0), (3.0, 3.5), (10.0, 1.0), (0.2, 30.0), (2.3, 2.0)]


def look_distance(score, information, other_score, other_information, noise):
    """Squared distance, in noise standard deviations, of pairs of rows: the plain definition, matrices in full."""
    score_noise, information_noise, square_noise = noise

    def outer(vectors):
        return vectors[:, :, None] * vectors[:, None, :]

    return (
        ((score - other_score) ** 2).sum(axis=1) / score_noise**2
        + ((outer(information) - outer(other_information)) ** 2).sum(axis=(1, 2)) / information_noise**2
        + ((outer(score) - outer(other_score)) ** 2).sum(axis=(1, 2)) / square_noise**2
    )


def look_search(noise, dimension, seed, pairs=4_000):
    """Largest squared distance found over pairs of parallel bounded vectors: random ones, extreme ones, climbed ones.

    The variables are two directions and, for each, the signed lengths of score and information.
    """
    rng = np.random.default_rng(seed)

    def distance(variables):
        directions = variables[:, :-4].reshape(len(variables), 2, dimension)
        directions = directions / np.maximum(np.linalg.norm(directions, axis=2, keepdims=True), 1e-12)
        lengths = np.clip(variables[:, -4:], -1, 1)
        vectors = [directions[:, n % 2] * lengths[:, n, None] for n in range(4)]
        return look_distance(vectors[0], vectors[2], vectors[1], vectors[3], noise)

    variables = np.concatenate([rng.normal(size=(pairs, 2 * dimension)), rng.uniform(-1, 1, (pairs, 4))], axis=1)
    extreme = rng.random((pairs, 4)) < 0.7
    variables[:, -4:] = np.where(extreme, rng.integers(-1, 2, (pairs, 4)), variables[:, -4:])
    found = distance(variables)
    best = found.max()
    bounds = [(None, None)] * (2 * dimension) + [(-1, 1)] * 4
    for start in np.argsort(found)[-4:]:
        climbed = minimize(lambda v: -distance(v[None])[0], variables[start], method="L-BFGS-B", bounds=bounds)
        best = max(best, -climbed.fun)
    return best


def look_noise(score_noise, information_noise):
    return score_noise, information_noise, math.sqrt(2) * score_noise


@pytest.mark.parametrize("dimension", [1, 2, 5])
@pytest.mark.parametrize("scales", SCALES)
def test_no_pair_of_parallel_vectors_exceeds_the_look_and_some_pair_attains_it(scales, dimension):
    claimed = look_squared_mu(*scales, dimension)
    found = look_search(look_noise(*scales), dimension, seed=dimension)
    assert found <= claimed
    y, x = scales[0] ** -2, scales[1] ** -2
    # One coefficient has parallel rows only, where perpendicular ones may be worse.
    attainable = claimed if dimension > 1 else 4 * y + x
    assert found >= 0.999 * attainable


def test_the_formula_of_a_look_is_the_maximum_over_lengths_and_cosine():
    """Every corner of the lengths and a fine grid of cosines; and nothing inside is larger."""
    cosine = np.linspace(-1, 1, 40_001)
    rng = np.random.default_rng(3)
    for score_noise, information_noise in SCALES:
        y, x = score_noise**-2, information_noise**-2

        def moved(a, b, p, q, cosine, y=y, x=x):
            square = a**4 + b**4 - 2 * a * a * b * b * cosine**2
            information = p**4 + q**4 - 2 * p * p * q * q * cosine**2
            return y * (a * a + b * b - 2 * a * b * cosine) + y / 2 * square + x * information

        corners = max(moved(1, 1, 1, q, cosine).max() for q in (0, 1))
        claimed = look_squared_mu(score_noise, information_noise, 3)
        assert corners == pytest.approx(claimed, rel=1e-4)
        inside = moved(*rng.uniform(0, 1, (4, 200_000)), rng.uniform(-1, 1, 200_000))
        assert inside.max() < corners


def test_rounding_to_the_grid_costs_next_to_nothing():
    for dimension in (1, 4, 50, 200):
        for scales in SCALES:
            y, x = scales[0] ** -2, scales[1] ** -2
            exact = max(4 * y + x, 3 * y + 2 * x + y * y / (y + 2 * x))
            assert exact < look_squared_mu(*scales, dimension) < exact * (1 + 2e-4)


def forgotten_factor(y, x):
    return 2 * y + x


def forgotten_information(y, x):
    return 4 * y


def forgotten_perpendicular_rows(y, x):
    return 4 * y + x


@pytest.mark.parametrize("wrong", [forgotten_factor, forgotten_information, forgotten_perpendicular_rows])
def test_the_search_rejects_wrong_formulas_of_a_look(wrong):
    found = {scales: look_search(look_noise(*scales), 3, seed=9, pairs=1_000) for scales in SCALES}
    assert any(found[scales] > wrong(scales[0] ** -2, scales[1] ** -2) * 1.01 for scales in SCALES)


def test_the_search_rejects_a_square_with_less_noise():
    """The square is free at sqrt(2) times the score's noise; with the score's own it costs an eighth more."""
    claimed = look_squared_mu(1.0, 5.0, 3)
    assert look_search((1.0, 5.0, math.sqrt(2)), 3, seed=4, pairs=1_000) <= claimed
    assert look_search((1.0, 5.0, 1.0), 3, seed=4, pairs=1_000) > 1.1 * claimed


def test_the_search_rejects_vectors_that_are_not_parallel():
    """Opposite scores with perpendicular informations move further than the formula says: it needs parallel vectors."""
    east, north = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    moved = look_distance(east, east, -east, north, look_noise(1.0, 2.0))[0]
    assert moved == pytest.approx(4 + 2 / 4)
    assert moved > look_squared_mu(1.0, 2.0, 2) * 1.03
