"""Hypothesis draws the same examples on every run, keeps no files, and is not hurried on a busy machine."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("dpglm", derandomize=True, database=None, deadline=None, max_examples=100)
hypothesis.settings.load_profile("dpglm")
