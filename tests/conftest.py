"""Hypothesis draws the same examples on every run, keeps no files, and is not hurried on a busy machine.

JAX is in double precision also where a test uses it before the package does. Which versions are installed is asked
once: it takes a fifth of a small release, and the tests make thousands.
"""

from __future__ import annotations

from functools import lru_cache

import hypothesis

import dpglm.paper  # noqa: F401
from dpglm.custodian import charge

charge.version = lru_cache(charge.version)  # type: ignore[attr-defined]

hypothesis.settings.register_profile("dpglm", derandomize=True, database=None, deadline=None, max_examples=100)
hypothesis.settings.load_profile("dpglm")
