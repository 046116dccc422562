"""What other tools are handed: the likelihood in JSON, and R's way with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpglm
from dpglm import demo
from dpglm.cli import main

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.FitWarning")


@pytest.fixture(scope="module")
def release() -> dpglm.Release:
    columns = {
        "age": {"type": "numeric", "lower": 0, "upper": 120},
        "diabetes": {"type": "binary", "levels": ["no", "yes"]},
    }
    schema = dpglm.Schema.from_dict(
        {"dataset": {"name": "p", "rows": 8000, "unit": "one patient"}, "columns": columns}
    )  # fmt: skip
    table = demo.simulated_table()
    return dpglm.release(table, "diabetes ~ age", schema=schema, family="logistic", epsilon=2, delta=1e-6, ledger=None)


def printed(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    with pytest.raises(SystemExit):
        main(["fit", str(path), "--output", str(path.with_suffix(".npz")), "--json"])
    return dict(json.loads(capsys.readouterr().out))


def test_json_holds_the_likelihood(release: dpglm.Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release.save(tmp_path / "r.json")
    told = printed(tmp_path / "r.json", capsys)["likelihood"]
    likelihood = dpglm.fit(release).likelihood
    assert told["names"] == ["Intercept", "age"]
    assert np.allclose(np.linalg.inv(told["precision"]), likelihood.covariance)
    assert np.allclose(np.linalg.solve(told["precision"], told["shift"]), likelihood.mean)


def test_r_reads_it(release: dpglm.Release, tmp_path: Path) -> None:
    """The program of the page, as it stands there."""
    program = shutil.which("Rscript")
    if program is None:
        pytest.skip("no R here: install r-base-core and r-cran-jsonlite")
    installed = subprocess.run([program, "-e", "library(jsonlite)"], capture_output=True, text=True)
    if installed.returncode != 0:
        pytest.skip("R has no jsonlite: install r-cran-jsonlite")
    page = (ROOT / "docs" / "other_tools.md").read_text()
    code = next(block for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) if "jsonlite" in block)
    release.save(tmp_path / "cohort.release.json")
    (tmp_path / "program.R").write_text(code)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [program, "program.R"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    estimate = dpglm.fit(release).likelihood.mean["age"]
    assert f"{estimate:.3f}".rstrip("0") in done.stdout
