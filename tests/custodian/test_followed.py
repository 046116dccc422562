"""Shares of rows by a person's past: against one person at a time, bounded for every event, and unbiased."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.custodian.followed import shares_by_past


def slow(person: np.ndarray, period: np.ndarray, length: np.ndarray, expected: np.ndarray, bound: float) -> np.ndarray:
    """One person, one period at a time."""
    found = np.zeros(len(person))
    for each in set(person.tolist()):
        left = bound
        for when in sorted(set(period[person == each].tolist())):
            these = (person == each) & (period == when)
            found[these] = min(1.0, max(left, 0.0) / length[these].sum())
            left -= found[these][0] * expected[these].sum()
    return found


def some(seed: int, persons: int = 30, ties: bool = True) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 8, persons)
    person = np.repeat(np.arange(persons), rows)
    period = np.concatenate([rng.integers(0, 7, n) if ties else np.arange(n) for n in rows])
    chance, reach = rng.uniform(0.01, 0.6, len(person)), np.exp(rng.normal(0, 1, len(person)))
    return person, period, reach * np.maximum(chance, 1 - chance), reach * chance


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_those_of_one_row_after_the_other_in_any_order(seed: int) -> None:
    person, period, length, expected = some(seed)
    bound = (0.3, 1.0, 3.0, 10.0, 1e4)[seed]
    told = shares_by_past(person, period, length, expected, bound)
    np.testing.assert_allclose(told, slow(person, period, length, expected, bound), rtol=2e-4, atol=1e-4)
    order = np.random.default_rng(seed).permutation(len(person))
    mixed = shares_by_past(person[order], period[order], length[order], expected[order], bound)
    np.testing.assert_array_equal(mixed, told[order])  # to the last bit
    alone = person == 3
    one = shares_by_past(person[alone], period[alone], length[alone], expected[alone], bound)
    np.testing.assert_array_equal(one, told[alone])  # others do not matter


@pytest.mark.parametrize("bound", [0.1, 1.0, 5.0])
def test_a_person_is_within_the_bound_whenever_the_event_comes(bound: float) -> None:
    person, period, length, expected = some(9, ties=False)
    shares = shares_by_past(person, period, length, expected, bound)
    for each in range(30):
        own = np.flatnonzero(person == each)
        without = np.cumsum(shares[own] * expected[own])
        assert without[-1] <= bound * (1 + 1e-12)
        with_event = np.append(0.0, without[:-1]) + shares[own] * length[own]
        assert (with_event <= bound * (1 + 1e-12)).all()
    assert (shares < 1).any()


def test_odd_lengths_count_as_endless_or_nothing() -> None:
    person, period = np.array([0, 0, 1]), np.array([0, 1, 0])
    told = shares_by_past(person, period, np.array([np.inf, np.nan, 0.0]), np.array([np.nan, 1.0, 0.0]), 1.0)
    assert told[2] == 1
    assert 0 <= told[0] < 1e-5
    assert 0 <= told[1] < 1e-5
    assert len(shares_by_past(*(np.zeros(0, dtype=np.int64),) * 2, np.zeros(0), np.zeros(0), 1.0)) == 0


def test_scores_stay_unbiased_where_one_share_a_person_would_not() -> None:
    """Hazards are known; the mean score of 40,000 persons who are followed until the event, in standard errors."""
    rng, persons, periods = np.random.default_rng(2), 40_000, 8
    reach = np.exp(rng.normal(0, 0.7, persons))
    chance = np.broadcast_to(1 - np.exp(-0.15 * reach[:, None]), (persons, periods))
    event = rng.random((persons, periods)) < chance
    ends = np.where(event.any(axis=1), event.argmax(axis=1), periods - 1)
    inside = np.arange(periods) <= ends[:, None]
    person, period = np.nonzero(inside)
    z, p, y = reach[person], chance[inside], event[inside].astype(float)
    length, expected, residual = np.maximum(p, 1 - p) * z, p * z, y - p

    def lean(shares: np.ndarray) -> float:
        scores = np.bincount(person, shares * residual * z)
        return float(scores.mean() / (scores.std() / np.sqrt(persons)))

    told = shares_by_past(person, period, length, expected, 1.5)
    assert (told < 0.99).mean() > 0.1
    assert abs(lean(told)) < 4  # chance of a wrong alarm: 6e-5
    one_a_person = np.minimum(1.0, 1.5 / np.bincount(person, length))[person]
    assert abs(lean(one_a_person)) > 20
