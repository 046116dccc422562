"""Record and replay in short: releases of neighbouring tables show nothing but what the noise covers.

The long form (`make bench-trust`, docs/security.md) audits ten thousand pairs a family from the same generator.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpglm.custodian.rows import read_codes
from dpglm.custodian.tables import open_table
from dpglm.schema import Schema
from trust.audit import CHECKS, Violation, audit
from trust.bugs import BUGS, catch
from trust.cases import FAMILIES, draw_case, stopped_case
from trust.large import check_large_table
from trust.planting import Bug
from trust.replay import remembered
from trust.sampler import check_sampler


@pytest.fixture(autouse=True)
def _public_facts_are_remembered() -> Iterator[None]:
    """As in the long form; of one test only, so that nothing outlives a planted bug."""
    with remembered():
        yield


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_neighbouring_tables_cannot_be_told_apart(
    chance: random.Random, family: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = draw_case(chance, family, tables=3)
    pairs, worst = audit(case, tmp_path_factory.mktemp("audit"))
    assert pairs == (2 if case.added else 3)  # two tables that lack one row each differ by two
    assert all(share <= 1 for share in worst.values())


def test_the_generator_reaches_the_bound(tmp_path: Path) -> None:
    """The audit is not idle: among a few cases there are rows that use (nearly) all of the sensitivity. Seed 2."""
    chance = random.Random(2)
    worst: dict[str, Fraction] = {}
    for number in range(9):
        for name, share in audit(draw_case(chance, FAMILIES[number % 3], tables=3), tmp_path)[1].items():
            worst[name] = max(share, worst.get(name, share))
    assert min(worst["looks"], worst["moments"]) > Fraction(9, 10)
    assert worst["survey"] > Fraction(1, 10)  # test_looks_privacy.py reaches all of it


def test_a_release_that_its_survey_stops_shows_nothing_else(tmp_path: Path) -> None:
    """It stops for every neighbour, given the same noisy answers, and spends the survey alone."""
    case = stopped_case(random.Random(1))
    pairs, worst = audit(case, tmp_path)
    assert pairs == 3
    assert set(worst) == {"survey", "whole"}
    assert worst["whole"] < worst["survey"] / 2


@pytest.mark.parametrize("family", FAMILIES)
def test_sums_of_many_rows_are_exact(family: str) -> None:
    assert check_large_table(random.Random(4), family) == 40_000


def test_the_sampler_has_no_seed_and_the_right_spread() -> None:
    check_sampler()


def test_there_are_enough_planted_bugs() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 60
    assert {bug.name for bug in BUGS} >= set(SEEDS)
    kinds = {"added", "any", "large", "looks", "moments", "people", "sampler", "survey", "weights"}
    assert {bug.where for bug in BUGS} == kinds


# A case that shows these comes late by the seed of all others, by which the long form catches them too.
SEEDS = {
    "a progress bar that counts complete rows only": 4,
    "a warning where numbers were clamped": 2,
    "bounds read from the data": 2,
    "levels counted as if a replaced row changed one of them": 3,
    "missing values filled with the row above": 2,
    "rows that appear twice counted once": 2,
    "score and information on different lines": 2,
    "the number of rows read from the data": 2,
    "the score's noise too fine": 11,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path) -> None:
    found = catch(bug, SEEDS.get(bug.name, 1), tmp_path)
    assert found is not None
    assert found.check in (*CHECKS, "sampler")


def test_without_a_bug_the_same_search_finds_nothing(tmp_path: Path) -> None:
    """Otherwise the catches above would mean nothing."""
    chance = random.Random("1 no bug")
    for number in range(5):
        try:
            audit(draw_case(chance, FAMILIES[number % 3], tables=3), tmp_path)
        except Violation as violation:
            pytest.fail(str(violation))


def test_one_odd_category_does_not_change_how_other_rows_are_read() -> None:
    """The audit found this: Arrow read categories of mixed kinds as numbers, so that True matched no level any more."""
    schema = Schema.from_dict(
        {
            "dataset": {"name": "t", "rows": 3},
            "columns": {"arm": {"type": "binary", "levels": [False, True], "fill": False}},
        }
    )
    column = schema.columns["arm"]
    for odd in (True, 5e-324, "text", None, 7):
        frame = pd.DataFrame({"arm": pd.Series([True, False, odd], dtype=object).astype("category")})
        (batch,) = open_table(frame, [column]).batches()
        assert read_codes(batch.column(0), column).tolist()[:2] == [1, 0]
