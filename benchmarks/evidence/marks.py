"""Marks of the code under results that were measured before results were stamped: ``python -m evidence marks``.

Needs the history. Reads each file at the commit that the results name, or else at the one that stored them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from evidence.stamp import LOOKS, ROOT, mark_of_text, sha_of
from machine import RESULTS, save

CUSTODIAN = ("src/dpglm/custodian", "src/dpglm/looks/viewpoint.py", "src/dpglm/privacy.py")
PAPER = ("src/dpglm/paper", "src/dpglm/custodian/by_moments.py", "src/dpglm/custodian/sensitivity.py")
UNDER = {
    "real": LOOKS, "rule": LOOKS, "misfit": LOOKS, "hard_cases": LOOKS, "joint_releases": LOOKS,
    "likelihood_agreement": LOOKS, "looks_speed": (*LOOKS, *CUSTODIAN), "release_speed": CUSTODIAN,
    "scale_rows": CUSTODIAN, "trust": CUSTODIAN, "paper": PAPER, "calibration": PAPER, "fit_speed": PAPER,
    "scale_fits": (*LOOKS, *PAPER), "overdispersion": PAPER, "no_noise_limit": PAPER, "allocation_gain": CUSTODIAN,
}  # fmt: skip


def sources_of(name: str) -> tuple[str, ...]:
    """Of results by their file's name; of parts of a study, by its first word."""
    return UNDER.get(name) or UNDER.get(name.split("_")[0], LOOKS)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def commit_of(path: Path) -> tuple[str, str]:
    """The oldest commit of this history that the results name, or the one that stored them; and which it is."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    contents = [json.loads(line) for line in lines if line.strip()]
    named = {c.get("commit", "") for c in contents if isinstance(c, dict)}
    named |= {c["results"]["facts"]["commit"] for c in contents if _has_facts(c)}
    known = [name.rstrip("+") for name in named if name and name != "unknown" and _in_history(name.rstrip("+"))]
    if known and len(known) == len(named - {""}):
        return max(known, key=lambda name: int(_git("rev-list", "--count", f"{name}..HEAD"))), "measured"
    return _git("log", "-1", "--format=%h", "--", str(path)).strip(), "stored"


def _has_facts(content: Any) -> bool:
    own = content.get("results") if isinstance(content, dict) else None
    return isinstance(own, dict) and isinstance(own.get("facts"), dict) and "commit" in own["facts"]


def _in_history(name: str) -> bool:
    asked = ["git", "merge-base", "--is-ancestor", name, "HEAD"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode == 0


def marks_at(commit: str, sources: tuple[str, ...]) -> dict[str, str]:
    """Of the files as they were."""
    listed = _git("ls-tree", "-r", "--name-only", commit, *sources).splitlines()
    return {name: mark_of_text(_git("show", f"{commit}:{name}")) for name in listed if name.endswith(".py")}


def run(_: argparse.Namespace) -> None:
    found = {}
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in (".json", ".jsonl") and not path.stem.startswith("evidence_"):
            commit, of = commit_of(path)
            if commit and path.stem != "real_former":  # of a former version, on purpose
                found[path.name] = {
                    "commit": commit, "of": of, "sha": sha_of(path), "code": list(sources_of(path.stem)),
                    "marks": marks_at(commit, sources_of(path.stem)),
                }  # fmt: skip
    save("evidence_marks", found)
