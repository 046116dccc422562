"""The table of families: which outcome each takes, how it is coded, and which statistics describe it.

A new family is one entry of ``FAMILIES``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from dpglm.blocks import BlockShape, check_blocks
from dpglm.errors import InputError

LARGEST_COUNT = 5_000  # bound of a count outcome: the time of a fit grows with it


@dataclass(frozen=True)
class Family:
    """One regression family.

    ``outcome_types`` are the schema types its outcome may have. ``coding`` says how the outcome enters the blocks:
    "sign" (two levels as -1 and 1), "count" (as it is, from 0 to its bound) or "scaled" (bounds to [-1, 1]).
    """

    name: str
    outcome_types: tuple[str, ...]
    coding: str
    full_blocks: tuple[BlockShape, ...]
    paper_blocks: tuple[BlockShape, ...]

    def blocks(self, statistics: object) -> tuple[BlockShape, ...]:
        """'full' (default), 'paper' (the paper's list: no intercept, centred predictors), or a list of pairs."""
        if isinstance(statistics, str):
            if statistics not in ("full", "paper"):
                raise InputError("statistics", statistics, "must be 'full', 'paper' or a list of pairs", "correct it")
            return self.full_blocks if statistics == "full" else self.paper_blocks
        return check_blocks(statistics)


def _shapes(*pairs: tuple[int, int]) -> tuple[BlockShape, ...]:
    return tuple(BlockShape(*pair) for pair in pairs)


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="logistic",
            outcome_types=("binary",),
            coding="sign",
            full_blocks=_shapes((1, 0), (1, 1), (0, 1), (0, 2)),
            paper_blocks=_shapes((1, 1), (0, 2)),
        ),
        Family(
            name="poisson",
            outcome_types=("count",),
            coding="count",
            full_blocks=_shapes((1, 0), (2, 0), (0, 1), (0, 2), (1, 1), (1, 2)),
            paper_blocks=_shapes((0, 1), (0, 2), (1, 1), (1, 2)),
        ),
        Family(
            name="linear",
            outcome_types=("numeric", "count"),
            coding="scaled",
            full_blocks=_shapes((1, 0), (2, 0), (0, 1), (0, 2), (1, 1)),
            paper_blocks=_shapes((0, 2), (1, 1), (2, 0)),
        ),
    )
}


def family_named(name: object) -> Family:
    """The family, or an error that lists what there is."""
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    near = difflib.get_close_matches(str(name), list(FAMILIES), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "choose one of them"
    raise InputError("family", name, f"must be one of {', '.join(FAMILIES)}", hint)
