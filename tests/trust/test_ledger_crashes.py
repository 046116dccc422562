"""Kills, failing disks, power cuts and sixteen racing processes, in short. The long form is in docs/security.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from trust.shim import compiler, run_with_shim

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler on Linux to stand before libc")


@pytest.mark.parametrize(("module", "rounds"), [("crashes", 48), ("powercut", 160), ("races", 4)])
def test_the_ledger_is_in_order_whatever_happens(module: str, rounds: int, tmp_path: Path) -> None:
    found = run_with_shim(f"trust.{module}", ["11", str(rounds), "right"], tmp_path, 300)
    assert found["number_of_problems"] == 0, found["problems"]
    assert found["rounds"] == rounds
    if module == "crashes":
        assert found["ends"]["died"] > rounds / 4  # the kills landed
        assert found["ends"]["one-line error"] > rounds / 4
        assert found["calls_of_a_release"] > 40


@pytest.mark.parametrize(
    ("module", "rounds", "variant"),
    [("crashes", 12, "noise first"), ("powercut", 60, "no sync"), ("races", 2, "check outside")],
)
def test_wrong_ledgers_are_convicted(module: str, rounds: int, variant: str, tmp_path: Path) -> None:
    found = run_with_shim(f"trust.{module}", ["5", str(rounds), variant], tmp_path, 300)
    assert found["number_of_problems"] > 0
