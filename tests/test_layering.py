"""The folders are the trust boundary: analyst and report never import the custodian's code; importing is quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dpglm

PACKAGE = Path(dpglm.__file__).parent
FORBIDDEN = "dpglm.custodian"


def imported_modules(source: str, package: str) -> set[str]:
    """Absolute names of every module that a source imports, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] + "." if node.level else ""
            module = (base + (node.module or "")).rstrip(".")
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(FORBIDDEN):
            found.add(node.value)  # import_module("dpglm.custodian...")
    return found


def violations(source: str, package: str) -> set[str]:
    return {name for name in imported_modules(source, package) if (name + ".").startswith(FORBIDDEN + ".")}


@pytest.mark.parametrize("side", ["analyst", "report"])
def test_analyst_and_report_never_import_the_custodian(side):
    for file in (PACKAGE / side).rglob("*.py"):
        package = ".".join(["dpglm", *file.relative_to(PACKAGE).parent.parts])
        assert not violations(file.read_text(), package), file


def imports_baselines(source: str, package: str) -> bool:
    return any((name + ".").startswith("dpglm.baselines.") for name in imported_modules(source, package))


def test_nothing_else_imports_the_baselines():
    """They see rows and releases alike, for comparison: no product code may lean on them."""
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE)
        if place.parts[0] != "baselines":
            package = ".".join(["dpglm", *place.parent.parts])
            assert not imports_baselines(file.read_text(), package), file
    assert imports_baselines("from dpglm.baselines import naive", "dpglm.analyst")
    assert imports_baselines("from ..baselines import on_rows", "dpglm.analyst")


@pytest.mark.parametrize(
    "planted",
    [
        "import dpglm.custodian.rows",
        "from dpglm.custodian import noise",
        "from dpglm import custodian",
        "from ..custodian.sums import block_sums",
        "def late():\n    from dpglm.custodian.tables import open_table",
        "import_module('dpglm.custodian.build')",
    ],
)
def test_a_planted_import_is_found(planted):
    assert violations(planted, "dpglm.analyst")
    assert violations(planted, "dpglm.report")


def test_public_code_outside_the_custodian_imports_it_only_lazily():
    """Nothing that an analyst loads pulls the custodian in."""
    code = "import sys, dpglm; dpglm.load_release, dpglm.Schema; print([m for m in sys.modules if 'custodian' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_report_is_written_without_the_custodians_code():
    code = (
        "import sys, dpglm, dpglm.report.html, dpglm.report.plots; dpglm.load_fit, dpglm.plot_forest;"
        " print([m for m in sys.modules if 'custodian' in m], callable(dpglm.report))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[] True"


@pytest.mark.parametrize("first", ["", "import dpglm.report.plots;", "dpglm.plot_forest;", "from dpglm import report;"])
def test_the_report_can_be_called_whatever_was_imported_before(first):
    """``dpglm.report`` is a package and a function; Python would otherwise replace one by the other."""
    code = f"import dpglm; {first} print(callable(dpglm.report)); import dpglm.report.words as w; print(w.small(1e-6))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n1e-6\n"


def test_importing_is_quick():
    """Best of five fresh processes: under 0.3 s more than an empty interpreter."""
    code = "import time; start = time.perf_counter(); import dpglm; print(time.perf_counter() - start)"
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(times) < 0.3


def test_no_module_that_a_fit_imports_imports_jax():
    """Nor when the user asks for what needs none of it; programs from files run without (test_cli.py)."""
    code = "import sys, dpglm; dpglm.fit, dpglm.load_fit, dpglm.NormalPrior(2.0); print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_every_public_name_resolves():
    for name in dpglm.__all__:
        assert getattr(dpglm, name) is not None
    with pytest.raises(AttributeError):
        dpglm.no_such_name  # noqa: B018
