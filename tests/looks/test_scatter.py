"""How far outcomes scatter: read with t away from the centre, and what a wrong guess does to clipped means."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.families import FAMILIES
from dpglm.looks.population import of_moments, seen
from dpglm.looks.reading import _leaning, _with_error
from dpglm.looks.viewpoint import Viewpoint

SIZE, ROWS = 3, 400_000
RANGES = {"logistic": (0.0, 1.0), "poisson": (0.0, 60.0), "linear": (-8.0, 8.0)}
CENTRE = np.array([0.4, 0.3, -0.2])


def outcomes(family: str, u: np.ndarray, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Negative binomial counts with a variance of ``spread`` means, or normal numbers with that variance."""
    if family == "poisson":
        return rng.poisson(rng.gamma(np.exp(u) / (spread - 1), spread - 1)).astype(float)
    return u + np.sqrt(spread) * rng.normal(size=len(u))


def looked(family: str, clip: float):
    """What a look sees; rows as long as they come, their residuals as it takes them of given outcomes."""
    rng, known = np.random.default_rng(1), FAMILIES[family]
    x = np.column_stack([np.ones(ROWS), rng.normal(size=(ROWS, SIZE - 1))])
    identity = tuple(map(tuple, np.eye(SIZE).tolist()))
    view = Viewpoint(tuple(CENTRE.tolist()), identity, 1e9, 1e9, 3.0 if family == "poisson" else 1.0, clip)
    population = of_moments(np.zeros(SIZE - 1), np.eye(SIZE - 1), True, False)
    table = view.residual_table(known, RANGES[family])
    u = population.predictor(CENTRE)
    information = population.moments(table.at(u, table.weight)[0])
    low, high, mean = table.at(x @ CENTRE, table.low, table.high, table.mean)
    found = seen(population, view, known, RANGES[family], information)

    def scores(y: np.ndarray) -> np.ndarray:
        residual = np.clip(known.values(y, view.spread), low, high) - mean
        return x * residual[:, None]

    return found, x, scores, rng


class Known:
    """What ``_leaning`` asks of what is known."""

    def __init__(self, family: str) -> None:
        self.family, self.num_rows = FAMILIES[family], ROWS


@pytest.mark.parametrize("clip", [1.5, 3.0])
def test_a_score_leans_where_counts_scatter_otherwise_than_was_assumed(clip: float) -> None:
    """Counts are clipped above alone. Of 400,000 rows, within five standard errors; it is fifteen of them or more."""
    found, x, scores, rng = looked("poisson", clip)
    taken = scores(outcomes("poisson", x @ CENTRE, 1.4, rng))
    error = np.sqrt(ROWS) * taken.std(axis=0)
    leaning = _leaning(Known("poisson"), found, 1.4, 0.3)
    assert (np.abs(taken.sum(axis=0) - leaning.score) < 5 * error + 0.03 * np.abs(leaning.score)).all()
    assert leaning.score[0] > 15 * error[0]
    # The error is half of what a factor of e^0.3 more and less would make.
    more, less = (_leaning(Known("poisson"), found, 1.4 * np.exp(sign * 0.3), 0.0).score for sign in (1, -1))
    np.testing.assert_allclose(leaning.error, (more - less) / 2, rtol=1e-9)
    np.testing.assert_allclose(_leaning(Known("poisson"), found, 3.0, 0.0).score, 0.0, atol=1e-5 * ROWS)


@pytest.mark.parametrize("family", ["logistic", "linear"])
def test_other_scores_lean_nowhere(family: str) -> None:
    found = looked(family, 2.0)[0]
    leaning = _leaning(Known(family), found, 0.4, 0.3)
    assert not leaning.score.any()
    assert not leaning.error.any()


@pytest.mark.parametrize("family", ["poisson", "linear"])
def test_squares_of_scores_grow_with_the_way_to_t(family: str) -> None:
    """Within a twentieth; without the way a third or more is missing."""
    found, x, scores, rng = looked(family, 6.0)
    move = np.array([0.2, 0.6, 0.5]) if family == "poisson" else np.array([0.3, 0.9, -0.7])
    y = outcomes(family, x @ (CENTRE + move), found.standing.view.spread, rng)
    exact = float(np.mean(np.sum(scores(y) ** 2, axis=1)))
    assert float(np.trace(found.square(move))) == pytest.approx(exact, rel=0.05)
    assert float(np.trace(found.square())) < 0.66 * exact
    np.testing.assert_allclose(found.square(np.zeros(SIZE)), found.square(), rtol=0.02, atol=0.01)


def test_an_error_more_adds_to_the_covariance() -> None:
    """Against dense inverses, and where nothing is said of one direction."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(SIZE, SIZE))
    precision, mean, error = root @ root.T, rng.normal(size=SIZE), np.array([0.5, 0.0, 2.0])
    wider, shift = _with_error(precision, precision @ mean, error)
    np.testing.assert_allclose(np.linalg.inv(wider), np.linalg.inv(precision) + np.diag(error**2), rtol=1e-9)
    np.testing.assert_allclose(np.linalg.solve(wider, shift), mean, rtol=1e-9)
    silent = np.diag([4.0, 0.0, 1.0])
    wider, shift = _with_error(silent, silent @ mean, error)
    np.testing.assert_allclose(wider, np.diag([1 / (1 / 4 + 0.25), 0.0, 1 / 5]), atol=1e-12)
    assert shift[1] == 0
