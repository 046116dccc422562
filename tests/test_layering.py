"""The folders are the trust boundary, and JAX stays in one of them; importing is quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dpglm

PACKAGE = Path(dpglm.__file__).parent
# What each folder may never import, wherever in a file. The baselines of the paper see rows, for comparison.
ROWS, JAX = ("dpglm.custodian", "dpglm.studio"), ("jax", "jaxlib", "numpyro")
FORBIDDEN = {
    "custodian": ("dpglm.analyst", "dpglm.paper", "dpglm.report", *JAX),
    "analyst": (*ROWS, "jax", "jaxlib"),  # a prior may hold NumPyro's distributions
    "report": (*ROWS, *JAX),
    "studio": ("dpglm.analyst", "dpglm.paper", "dpglm.report", *JAX),  # the custodian's: it holds the table's path
    "review": (*ROWS, "dpglm.analyst", "dpglm.report", *JAX),  # the custodian writes one, too
    "paper": (*ROWS, "dpglm.report", "dpglm.analyst.fit"),
    "paper/baselines": ("dpglm.report",),
}


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
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("dpglm."):
            found.add(node.value)  # import_module("dpglm.custodian...")
    return found


def violations(source: str, package: str, forbidden: tuple[str, ...]) -> set[str]:
    names = imported_modules(source, package)
    return {name for name in names if any((name + ".").startswith(each + ".") for each in forbidden)}


def without_type_checking(source: str) -> str:
    """The source without what a type checker alone imports."""
    tree = ast.parse(source)
    tree.body = [
        node for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]  # fmt: skip
    return ast.unparse(tree)


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_a_folder_imports_nothing_of_the_other_side(folder):
    files = [*(PACKAGE / folder).rglob("*.py")]
    assert files
    for file in files:
        place = file.relative_to(PACKAGE).parent
        if place.as_posix() == folder or place.as_posix() not in FORBIDDEN:
            source = without_type_checking(file.read_text())
            assert not violations(source, ".".join(["dpglm", *place.parts]), FORBIDDEN[folder]), file


def test_shared_modules_import_no_jax():
    for file in PACKAGE.glob("*.py"):
        assert not violations(file.read_text(), "dpglm", JAX), file


def test_nothing_imports_the_estimators_or_the_studio_but_its_command():
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE)
        package = ".".join(["dpglm", *place.parent.parts])
        assert not violations(file.read_text(), package, ("dpglm.sklearn",)), file
        if place.parts[0] != "studio" and place.name != "cli_studio.py":
            assert not violations(file.read_text(), package, ("dpglm.studio",)), file


def test_nothing_else_imports_the_baselines():
    """They see rows and releases alike, for comparison: no product code may lean on them."""
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE)
        if place.parts[:2] != ("paper", "baselines"):
            package = ".".join(["dpglm", *place.parent.parts])
            assert not violations(file.read_text(), package, ("dpglm.paper.baselines",)), file


@pytest.mark.parametrize(
    "planted",
    [
        "import dpglm.custodian.rows",
        "from dpglm.custodian import noise",
        "from dpglm import custodian",
        "from ..custodian.sums import block_sums",
        "def late():\n    from dpglm.custodian.tables import open_table",
        "import_module('dpglm.custodian.build')",
        "def late():\n    import jax.numpy as jnp",
    ],
)
def test_a_planted_import_is_found(planted):
    for folder in ("analyst", "report"):
        assert violations(without_type_checking(planted), f"dpglm.{folder}", FORBIDDEN[folder])


def test_a_release_of_moments_imports_neither_jax_nor_what_analysts_use(tmp_path):
    """In the process that holds the rows."""
    code = f"""
import sys, dpglm
schema = dpglm.Schema.from_dict({{"dataset": {{"name": "t", "rows": 4, "unit": "one person"}}, "columns": {{
    "x": {{"type": "numeric", "lower": 0, "upper": 1}}, "y": {{"type": "binary", "levels": [0, 1], "fill": 0}}}}}})
table = {str(tmp_path / "t.csv")!r}
open(table, "w").write("x,y\\n" + "0.5,1\\n" * 4)
made = dpglm.release(table, "y ~ x", schema=schema, family="logistic", epsilon=1, delta=1e-6, ledger=None)
made.save({str(tmp_path / "r.json")!r})
unwanted = ("jax", "jaxlib", "numpyro", "dpglm.analyst", "dpglm.paper", "dpglm.report")
print(sorted(name for name in sys.modules if (name + ".").startswith(tuple(each + "." for each in unwanted))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


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
    """Nor when the user asks for what needs none of it."""
    code = "import sys, dpglm; dpglm.fit, dpglm.load_fit, dpglm.NormalPrior(2.0); print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_every_public_name_resolves():
    for name in dpglm.__all__:
        assert getattr(dpglm, name) is not None
    with pytest.raises(AttributeError):
        dpglm.no_such_name  # noqa: B018
