"""The audit of frames, for seconds: one replaced record, whatever it does to the types of columns, moves sums by mu."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.schema import Schema
from trust.audit import Violation
from trust.cases import FAMILIES
from trust.former_cells import FORMER, planted
from trust.frames import FRAMES, audit_frames, draw_case

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that make frames of odd records


@pytest.mark.parametrize("family", FAMILIES)
def test_a_replaced_record_moves_frames_of_every_kind_by_at_most_mu(family: str, tmp_path: Path) -> None:
    chance = random.Random(f"frames {family}")
    kinds: Counter[str] = Counter()
    worst = 0.0
    for _ in range(60):
        case = draw_case(chance, family, candidates=4)
        pairs, share, _ = audit_frames(case, tmp_path)
        kinds[case.kind] += pairs
        worst = max(worst, float(share))
    assert kinds.total() > 200
    assert len(+kinds) > len(FRAMES) * 2 / 3
    assert worst > 0.9  # the bound is reached, so it is not merely loose


@pytest.mark.parametrize("name", FORMER)
def test_the_former_readings_of_cells_are_convicted(name: str, tmp_path: Path) -> None:
    chance = random.Random(f"1 {name}")
    cases = (draw_case(chance, FAMILIES[number % 3], candidates=6) for number in range(400))
    with planted(name), pytest.raises(Violation, match=r"moves the sums by|is refused"):
        list(map(partial(audit_frames, folder=tmp_path), cases))


# The tables by which the guarantee was first seen to be broken


ROWS = 300


FOUND: dict[str, tuple[list[Any], list[Any], Any]] = {  # levels, cells, and the one that was put in place of a cell
    "floats and a text": (["1", "2", "3", "x"], [1.0, 2.0, 3.0], "x"),
    "truth values and a text": ([False, True, "unknown"], [True, False], "unknown"),
    "truth values and none": ([False, True, "unknown"], [True, False], None),
    "whole numbers and a half": (["1", "2", "x"], [1, 2], 1.5),
    "numbers of 16 bits and a text": ([0.5, 0.0999755859375, "x"], [np.float16(0.1), np.float16(0.5)], "x"),
    "moments and a text": (["2024-05-01", "none"], [pd.Timestamp("2024-05-01")], "none"),
    "codes as text": (["01", "02", "2A"], ["01", "02"], "2A"),
}
MAKERS = {
    "records": lambda cells: pd.DataFrame.from_records([{"y": n % 2, "u": cell} for n, cell in enumerate(cells)]),
    "categories": lambda cells: MAKERS["records"](cells).astype("category"),
    "polars": lambda cells: pl.DataFrame({"y": [n % 2 for n in range(ROWS)], "u": cells}, strict=False),
}


def moments_of(declared: dict[str, Any]) -> Request:
    return Request(
        "y ~ u", Schema.from_dict(declared), "logistic", 1.0, 1e-6, method="moments", allocation="equal"
    )  # fmt: skip


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", FOUND)
def test_the_tables_that_broke_the_guarantee_keep_it(name: str, maker: str) -> None:
    levels, common, other = FOUND[name]
    declared = {
        "dataset": {"name": "t", "rows": ROWS},
        "columns": {
            "y": {"type": "binary", "levels": [0, 1], "fill": 0},
            "u": {"type": "categorical", "levels": levels, "fill": levels[-1]},
        },
    }
    cells = [common[n % len(common)] for n in range(ROWS)]
    releases = []
    for odd in (cells[0], other):
        if maker != "records" and isinstance(cells[1], np.float16 | pd.Timestamp):
            pytest.skip("refused, or made text of, by what makes the frame")
        frame = MAKERS[maker]([odd, *cells[1:]])
        releases.append(build_release(frame, moments_of(declared), FixedNoise()))
    moved = sum(
        ((a - b) / stddev) ** 2
        for one, other in zip(releases[0].blocks, releases[1].blocks, strict=True)
        for a, b, stddev in zip(one.integers, other.integers, one.grid_stddevs, strict=True)
    )
    assert moved <= releases[0].privacy.mu ** 2


def test_codes_that_pandas_reads_as_numbers_are_read_as_in_their_file(tmp_path: Path) -> None:
    """Whatever types pandas infers: the frame and the path give the same integers."""
    declared = {
        "dataset": {"name": "t", "rows": 6},
        "columns": {
            "y": {"type": "binary", "levels": [False, True], "fill": False},
            "u": {"type": "categorical", "levels": ["01", "02", "2A", "1E2"], "fill": "2A"},
        },
    }
    for last in ("01", "2A", "", "1E2", "x"):
        cells = ["01", "02", "02", "01", "1E2", last]
        text = "y,u\n" + "".join(f"{n % 2 == 0},{cell}\n" for n, cell in enumerate(cells))
        (tmp_path / "t.csv").write_text(text)
        seen = {
            tuple(block.integers for block in build_release(table, moments_of(declared), FixedNoise()).blocks)
            for table in (tmp_path / "t.csv", pd.read_csv(tmp_path / "t.csv"), pl.read_csv(tmp_path / "t.csv"))
        }
        assert len(seen) == 1
