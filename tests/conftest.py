"""Hypothesis draws the same examples on every run, keeps no files, and is not hurried on a busy machine.

JAX is in double precision also where a test uses it before the package does.
"""

from __future__ import annotations

import hypothesis

import dpglm.paper  # noqa: F401

hypothesis.settings.register_profile("dpglm", derandomize=True, database=None, deadline=None, max_examples=100)
hypothesis.settings.load_profile("dpglm")
