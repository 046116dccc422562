"""A release, read more simply than ``dpglm.fit`` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpglm.analyst.fit import fit
from dpglm.analyst.result import Fit
from dpglm.releases import Release


def naive(releases: Release | Sequence[Release], **options: Any) -> Fit:
    """The release treated as exact sums: its privacy noise is taken for data, so the intervals are too short."""
    return fit(releases, noise_aware=False, **options)


def taylor(releases: Release | Sequence[Release], **options: Any) -> Fit:
    """The paper's reading: the link as a short Taylor series about zero, which holds for small effects only."""
    return fit(releases, moments="taylor", **options)
