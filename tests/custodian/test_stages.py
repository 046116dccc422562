"""How a budget is divided among stages, and that a later stage is centred at what the noisy ones show, nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpglm
from dpglm.centring import VECTOR_BITS
from dpglm.custodian.build import build_release
from dpglm.custodian.ledger import UNITS, Ledger
from dpglm.custodian.noise import LARGEST_GRID_NOISE, FixedNoise
from dpglm.custodian.sensitivity import centred_squared_mu
from dpglm.custodian.stages import centred_noise, information_share, plan_stages, stage_shares
from dpglm.errors import InputError
from dpglm.formula import Design, build_design
from dpglm.privacy import compose, delta_of, mu_of, staged_discreteness
from dpglm.release_file import Release, Stage
from dpglm.schema import Schema

BUDGETS = [(0.01, 1e-6), (0.3, 1e-9), (1.0, 1e-6), (3.0, 1e-12), (10.0, 1e-6), (30.0, 1e-5)]


def schema_of(rows: int) -> Schema:
    return Schema.from_dict(
        {
            "dataset": {"name": "t", "rows": rows, "unit": "one person"},
            "columns": {
                "a": {"type": "numeric", "lower": -1, "upper": 1},
                "b": {"type": "numeric", "lower": -1, "upper": 1},
                "sick": {"type": "binary", "levels": [0, 1], "fill": 0},
                "visits": {"type": "count", "upper": 20, "fill": 0},
                "score": {"type": "numeric", "lower": 0, "upper": 10},
            },
        }
    )


def design_of(family: str = "logistic", rows: int = 10_000) -> Design:
    outcome = {"logistic": "sick", "poisson": "visits", "linear": "score"}[family]
    return build_design(f"{outcome} ~ a + b", schema_of(rows), family)


def plan(design: Design, epsilon: object = 1.0, delta: object = 1e-6, stages: object = 3, statistics: object = "full"):
    return plan_stages(design, epsilon, delta, None, "equal", statistics, stages)


# The budget


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_shares_add_up_to_a_little_less_than_one(number: int, family: str) -> None:
    for signal in (1e-6, 0.1, 40.0, 360.0, 1e4, 1e12):
        shares = stage_shares(number, signal, family)
        assert len(shares) == number
        assert min(shares) > 0.03
        assert 1 - 1e-8 < sum(map(Fraction, shares)) < 1
    assert stage_shares(1, 5.0, family) == (1.0,)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_the_stages_together_cost_what_one_release_may(family: str, epsilon: float, delta: float, number: int) -> None:
    made = plan(design_of(family), epsilon, delta, number)
    whole = mu_of(epsilon, delta)
    assert len(made.mus) == number
    assert whole * (1 - 1e-6) < made.privacy.mu <= whole
    assert compose(made.mus) == made.privacy.mu
    coordinates = 3 + 3 * 4
    parts = [(made.first.mu, made.first.smallest_grid_noise, made.first.coordinates)]
    parts += [(noise.mu, min(noise.grid_stddevs), coordinates) for noise in made.later]
    assert delta_of(made.privacy.mu, epsilon) + staged_discreteness(made.privacy.mu, epsilon, parts) <= delta
    # In a ledger whose cap is this budget, each stage rounded up, they fit.
    assert sum(math.ceil(Fraction(mu * mu) * UNITS) for mu in made.mus) <= math.floor(Fraction(whole * whole) * UNITS)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2])
@pytest.mark.parametrize("dimension", [1, 3, 60])
@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 7.0])
def test_the_noise_of_a_stage_costs_what_it_may(mu: float, dimension: int, share: float) -> None:
    noise = centred_noise(mu, dimension, share)
    assert noise.information**-2 == pytest.approx(share * mu * mu, rel=1e-9)
    assert mu * (1 - 1e-9) < noise.mu <= mu
    assert Fraction(noise.mu) ** 2 >= Fraction(centred_squared_mu(noise.score, noise.information, dimension)) * (
        1 - Fraction(1, 10**15)
    )
    score, information, square = noise.grid_stddevs
    assert score == noise.score * 2**VECTOR_BITS
    assert information == noise.information * 4**VECTOR_BITS
    assert square == pytest.approx(math.sqrt(2) * noise.score * 4**VECTOR_BITS, rel=1e-15)
    assert score < min(information, square) / math.sqrt(2)  # the smallest noise, which discreteness is about


def test_the_information_gets_less_of_a_large_table() -> None:
    for last, most in ((True, 0.1), (False, 0.2)):
        shares = [information_share(rows, 8, last) for rows in (100, 2_000, 40_000, 10**6, 10**9)]
        assert shares[:2] == [most, most]
        assert shares == sorted(shares, reverse=True)
        assert shares[2] == pytest.approx(0.56 * most, rel=0.01)
        assert shares[-1] == 0.02


def test_auto_looks_at_public_facts_only() -> None:
    assert len(plan(design_of(rows=100_000), stages="auto").mus) == 3
    assert len(plan(design_of(rows=10), stages="auto").mus) == 1
    assert len(plan(design_of(rows=100_000), epsilon=0.01, stages="auto").mus) == 1
    assert len(plan(design_of(rows=100_000), stages="auto", statistics="paper").mus) == 1
    single = plan(design_of(), stages=1)
    assert single.privacy.mu == pytest.approx(single.first.mu, rel=1e-14)


@pytest.mark.parametrize("stages", [0, 4, -1, True, None, "two", 2.5, "3"])
def test_other_numbers_of_stages_are_refused(stages: object) -> None:
    with pytest.raises(InputError, match=r"stages = .*must be 1, 2, 3 or 'auto'"):
        plan(design_of(), stages=stages)


def test_later_stages_need_all_statistics() -> None:
    with pytest.raises(InputError, match="statistics='full'"):
        plan(design_of(), stages=2, statistics="paper")


def test_a_budget_too_small_for_the_sampler_is_refused_before_anything_is_spent(tmp_path) -> None:
    schema = schema_of(10)
    ledger = Ledger.create(tmp_path / "t.ledger", schema.dataset, epsilon=1.0, delta=1e-6)
    table = pd.DataFrame({"a": [0.0] * 10, "b": [0.0] * 10, "sick": [0] * 10})
    with pytest.raises(InputError, match="epsilon = 1e-05: is so small"):
        dpglm.release(
            table, "sick ~ a + b", schema=schema, family="logistic", epsilon=1e-5, delta=1e-6, ledger=ledger, stages=3
        )
    assert not ledger.entries()
    smallest = plan(design_of(), 3e-4, 1e-6)
    assert max(max(noise.grid_stddevs) for noise in smallest.later) <= LARGEST_GRID_NOISE


# The centre


@dataclass
class Compensating:
    """Noise that makes given stages come out as wished, whatever the table; zero after that."""

    queue: list[int] = field(default_factory=list)
    private: bool = False

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        drawn, self.queue = self.queue[:size], self.queue[size:]
        return drawn or [0] * size


def compensation(exact: Iterable[Stage], wished: Iterable[Stage]) -> list[int]:
    """What to add to the one to get the other, in the order in which noise is drawn: a block, a scale at a time."""
    queue = []
    for one, other in zip(exact, wished, strict=True):
        for a, b in zip(one.blocks, other.blocks, strict=True):
            for scale in dict.fromkeys(a.grid_stddevs):
                queue += [w - e for e, w, s in zip(a.integers, b.integers, a.grid_stddevs, strict=True) if s == scale]
    return queue


def table_of(rows: int, slope: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, (2, rows))
    return pd.DataFrame({"a": a, "b": b, "sick": (rng.random(rows) < 1 / (1 + np.exp(-slope * a))).astype(int)})


def made(table: pd.DataFrame, queue: list[int]) -> Release:
    return build_release(
        table, "sick ~ a + b", schema_of(len(table)), "logistic", 3.0, 1e-6, None, None, "auto", "full",
        Compensating(queue), 3,
    )  # fmt: skip


def without_values(release: Release) -> str:
    data = json.loads(release.to_json())
    for key in ("release_id", "publication_time", "checksum"):
        del data[key]
    for stage in data["stages"]:
        for block in stage["blocks"]:
            block["values"] = len(block["values"])
    return json.dumps(data)


def test_the_centre_is_a_function_of_the_noisy_stages() -> None:
    """Two tables that have nothing in common, and noise that hides it: the same centres, bit for bit.

    With the noise frozen instead, the centres differ: they do follow the noisy sums.
    """
    one, other = table_of(2_000, 3.0, 1), table_of(2_000, -2.0, 2)
    wished = made(one, [])
    plain = made(other, [])
    assert plain.stages[1].centring != wished.stages[1].centring
    first = compensation(plain.stages[:1], wished.stages[:1])
    again = made(other, first)
    assert again.stages[0] == wished.stages[0]
    assert again.stages[1].centring == wished.stages[1].centring
    assert again.stages[1].blocks != wished.stages[1].blocks  # the rows are others
    assert again.stages[2].centring != wished.stages[2].centring
    same = made(other, first + compensation(again.stages[1:2], wished.stages[1:2]))
    assert same.stages[:2] == wished.stages[:2]
    assert same.stages[2].centring == wished.stages[2].centring
    assert same.stages[2].blocks != wished.stages[2].blocks
    assert without_values(same) == without_values(wished)


def test_the_noise_of_the_release_is_that_of_the_plan() -> None:
    release = build_release(
        table_of(500, 1.0, 3), "sick ~ a + b", schema_of(500), "logistic", 3.0, 1e-6, None, None, "equal", "full",
        FixedNoise(), 2,
    )  # fmt: skip
    (noise,) = plan(design_of(rows=500), 3.0, 1e-6, 2).later
    for block, stddev in zip(release.stages[1].blocks, noise.grid_stddevs, strict=True):
        for scale, multiplicity in zip(block.grid_stddevs, block.multiplicities, strict=True):
            assert 0 <= Fraction(scale) ** 2 * multiplicity / Fraction(stddev) ** 2 - 1 < Fraction(1, 10**15)
    assert [stage.mu for stage in release.stages] == list(plan(design_of(rows=500), 3.0, 1e-6, 2).mus)


def test_auto_is_the_default_and_takes_one_stage_of_a_stream_that_passes_once() -> None:
    """Holding the rows of a stream could be more than memory; a table in memory and a function are read again."""
    table = pa.Table.from_pandas(table_of(2_000, 1.0, seed=3))
    budget = {"schema": schema_of(2_000), "family": "logistic", "epsilon": 1.0, "delta": 1e-6, "ledger": None}
    stages = [
        len(dpglm.release(source, "sick ~ a + b", **budget).stages)
        for source in (table, lambda: table.to_reader(500), table.to_pandas(), table.to_reader(500))
    ]
    assert stages == [3, 3, 3, 1]
    assert len(dpglm.release(table.to_reader(500), "sick ~ a + b", **budget, stages=3).stages) == 3
