"""``python -m trust PART``, in ``benchmarks``: the long forms, and the page. Without a part: all of it, some hours."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from machine import RESULTS, save
from trust.cases import FAMILIES

Part = Callable[[argparse.Namespace], None]


def replay(given: argparse.Namespace) -> None:
    from trust.long_replay import run

    for family in given.only or FAMILIES:
        _save("trust_replay", {family: run(round(10_000 * given.share), family)})


def frames(given: argparse.Namespace) -> None:
    from trust.long_frames import run

    for family in given.only or FAMILIES:
        _save("trust_frames", {family: run(round(10_000 * given.share), family)})


def bugs(_: argparse.Namespace) -> None:
    from trust.long_bugs import run

    save("trust_bugs", run())


def distribution(given: argparse.Namespace) -> None:
    from trust.chain import run as run_chain
    from trust.distribution import run

    save("trust_chain", run_chain(round(1000 * given.share), round(500 * given.share)))
    save(
        "trust_distribution", run(round(100_000 * given.share), round(20_000 * given.share), round(1000 * given.share))
    )


def ledger(given: argparse.Namespace) -> None:
    from trust.long_ledger import TRIALS, run

    for trial in given.only or TRIALS:
        _save("trust_ledger", {trial: run(trial, given.share)})


def fuzz(given: argparse.Namespace) -> None:
    from trust.long_fuzz import RUNS, run

    for name in given.only or RUNS:
        _save("trust_fuzz", {name: run(name, given.share)})


def bombs(_: argparse.Namespace) -> None:
    from trust.long_bombs import run

    save("trust_bombs", run())


def dependencies(_: argparse.Namespace) -> None:
    from trust.dependencies import run

    save("trust_dependencies", run())


def page(_: argparse.Namespace) -> None:
    from trust.page import write

    write()


def _save(name: str, results: dict[str, Any]) -> None:
    """Beside what other runs of the same part found."""
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text())["results"] if path.exists() else {}
    save(name, before | results)


PARTS: dict[str, Part] = {
    part.__name__: part for part in (bombs, bugs, dependencies, distribution, frames, ledger, replay, fuzz, page)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=sorted(PARTS))
    parser.add_argument("--only", nargs="+", help="families of replay or frames, runs of fuzz, or trials of ledger")
    parser.add_argument("--share", type=float, default=1.0, help="of the published number of rounds")
    given = parser.parse_args()
    for name, part in PARTS.items():
        if given.part in (None, name):
            part(given)


if __name__ == "__main__":
    main()
