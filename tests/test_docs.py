"""What is documented works: every block of the pages runs, links lead somewhere, and the wheel holds what it must.

Blocks of a page run in order, in one new folder. ``python`` blocks share their names; a ``toml`` block that begins with
``# NAME.toml`` is saved under that name; ``sh`` blocks hold commands of dpglm, which run as they are written, or make
targets, which must exist. ``text`` is shown only. Pages that are notebooks, too, run as such: cell by cell.
"""

from __future__ import annotations

import contextlib
import html.parser
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import types
import warnings
import zipfile
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

import dpglm
from dpglm.cli import main
from dpglm.families import FAMILIES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
RUN = {"python", "sh", "toml"}
KNOWN = RUN | {"text"}


def site_script(name: str) -> types.ModuleType:
    """A script of docs/site, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOTEBOOKS = site_script("notebooks")

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.FitWarning")  # noise is random, and may deserve a warning


def blocks(path: Path) -> list[tuple[str, str]]:
    return FENCE.findall(path.read_text(encoding="utf-8"))


def cells(page: str) -> list[tuple[str, str]]:
    """The cells of a notebook that run, in the languages of blocks."""
    found = []
    for cell in json.loads(NOTEBOOKS.notebook_text(page))["cells"]:
        first, _, rest = (source := "".join(cell["source"])).partition("\n")
        if cell["cell_type"] == "code" and first == "%%sh":
            found.append(("sh", rest))
        elif cell["cell_type"] == "code" and first.startswith("%%writefile "):
            assert rest.startswith(f"# {first.split()[1]}\n"), "a file of another name than its block says"
            found.append(("toml", rest))
        elif cell["cell_type"] == "code":
            found.append(("python", source))
    return found


def commands(block: str) -> list[list[str]]:
    """The command lines of a shell block, continued lines joined, comments taken off."""
    lines = block.replace("\\\n", " ").split("\n")
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_are_shared(tmp_path_factory):
    """Between this process and those that it starts, also where `make test` has not chosen a folder."""
    with pytest.MonkeyPatch.context() as patch:
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    families = dict(FAMILIES)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a notebook makes a folder of its own
    with mpl.rc_context({"backend": "Agg"}):
        yield
        plt.close("all")
    FAMILIES.clear()  # a page adds one
    FAMILIES.update(families)


def run_command(words: list[str]) -> None:
    """A command of dpglm, in this process: the same arguments, without the seconds that a new one takes to start."""
    with pytest.raises(SystemExit) as stopped:
        main(words[1:])
    assert stopped.value.code == 0, words


def run_block(language: str, code: str, names: dict, name: str, real_shell: bool = False) -> None:
    if language == "toml" and (found := re.match(r"# (\S+\.toml)\n", code)):
        Path(found[1]).write_text(code)
    elif language == "python":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpglm.FitWarning)
            exec(compile(code, name, "exec"), names)
    elif language == "sh":
        ours = [words for words in commands(code) if not is_checked_elsewhere(words)]
        assert all(words[0] == "dpglm" for words in ours), f"{name}: mark it as text, or teach the test: {ours}"
        if ours and real_shell:
            finished = subprocess.run(["bash", "-euc", code], capture_output=True, text=True, timeout=500)
            assert finished.returncode == 0, finished.stderr
        for words in [] if real_shell else ours:
            run_command(words)


def is_checked_elsewhere(words: list[str]) -> bool:
    """`make` targets and the installation of the wheel have tests of their own."""
    return (
        words[0] == "make" or words[:4] == ["python", "-m", "pip", "install"] or words[:2] == ["pre-commit", "install"]
    )


@pytest.mark.parametrize("page", [page for page in PAGES if RUN & {language for language, _ in blocks(page)}],
                         ids=lambda page: page.stem)  # fmt: skip
@pytest.mark.usefixtures("_in_folder")
def test_every_block_of_a_page_runs(page):
    """README's commands run in a shell, by the installed program; those of the other pages in this process."""
    names = {"__name__": page.stem}
    readme = page.name == "README.md"
    run = cells(page.stem) if page.parent == DOCS and page.stem in NOTEBOOKS.PAGES else blocks(page)
    for number, (language, code) in enumerate(run, 1):
        run_block(language, code, names, f"{page.name}, block {number}", real_shell=readme)
    if readme:
        assert Path("diabetes.html").read_text().lower().startswith("<!doctype html>")
        assert "differential privacy" in dpglm.load_release("diabetes.release.json").statement


@pytest.mark.parametrize("name", NOTEBOOKS.PAGES)
def test_a_notebook_holds_its_page(name):
    """All that runs, in order, behind a cell that makes a folder; all that is said; and links that lead."""
    page = DOCS / f"{name}.md"
    first, *found = cells(name)
    assert "os.chdir" in first[1]
    named = [(language, code.strip()) for language, code in blocks(page) if language in RUN]
    assert [(language, code.strip()) for language, code in found] == named
    notebook = json.loads(NOTEBOOKS.notebook_text(name))
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    told = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    words = FENCE.sub("", re.sub(r"\]\([^)]*\)", "]", page.read_text())).split()
    assert set(words) <= set(re.sub(r"\]\([^)]*\)", "]", told).split())
    for target in LINK.findall(FENCE.sub("", told)):
        if "://" not in target:
            assert target.startswith("../")
            assert (DOCS / target[3:].replace(".html", ".md")).exists(), target


def test_a_notebook_shows_what_does_not_run(tmp_path, monkeypatch):
    (tmp_path / "a.md").write_text("# A\n\n[b](b.md#c)\n\n```text\n[b](b.md)\n```\n\n```sh\nmake docs\n```\n")
    monkeypatch.setattr(NOTEBOOKS, "DOCS", tmp_path)
    assert [language for language, _ in cells("a")] == ["python"]
    text = "".join(json.loads(NOTEBOOKS.notebook_text("a"))["cells"][-1]["source"])
    assert text == "[b](../b.html#c)\n\n```text\n[b](b.md)\n```\n\n```sh\nmake docs\n```"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page):
    text = page.read_text(encoding="utf-8")
    assert {language for language, _ in blocks(page)} <= KNOWN
    assert text.count("```") == 2 * len(blocks(page)), "a block is not closed, or indented"


@pytest.mark.usefixtures("_in_folder")
def test_a_wrong_block_is_found():
    with pytest.raises(AssertionError):
        run_block("sh", "dpglm check nothing.csv --schema nothing.toml\n", {}, "planted")
    with pytest.raises(AssertionError):
        run_block("sh", "curl example\n", {}, "planted")
    with pytest.raises(NameError):
        run_block("python", "dpglm.no_such_thing", {}, "planted")


def test_make_targets_exist():
    documented = {
        words[1]
        for page in PAGES
        for language, code in blocks(page)
        if language == "sh"
        for words in commands(code)
        if words[0] == "make"
    }
    documented |= {target for page in PAGES for target in re.findall(r"`make ([\w-]+)`", page.read_text())}
    assert {"demo", "test", "docs"} <= documented
    for target in sorted(documented):
        plan = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
        assert plan.returncode == 0, plan.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built strictly. Not quietly: a quiet MkDocs does not count its warnings."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    return folder


class _Resources(html.parser.HTMLParser):
    """Addresses that a browser fetches without being asked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in ("script", "img", "iframe", "source") and attributes.get("src"):
            self.found.append(str(attributes["src"]))
        if tag == "link" and attributes.get("rel") != "canonical" and attributes.get("href"):
            self.found.append(str(attributes["href"]))


def test_the_site_needs_no_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(list(DOCS.rglob("*.md")))
    for page in pages:
        for address in _Resources(page.read_text()).found:
            assert "//" not in address, f"{page.name}: {address}"
    for style in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import )[\"']?([^)\"']+)", style.read_text()):
            assert address.startswith("data:") or "//" not in address, f"{style.name}: {address}"
    planted = _Resources('<script src="https://example.org/a.js"></script><a href="https://example.org">x</a>').found
    assert planted == ["https://example.org/a.js"]


def test_the_site_has_every_page_in_its_menu(site):
    menu = (site / "index.html").read_text()
    for page in DOCS.rglob("*.md"):
        address = page.relative_to(DOCS).with_suffix(".html")
        assert f'href="{address}"' in menu or page.stem == "index", page.name


def test_what_is_said_to_writers_is_not_said_to_readers(site):
    assert any("Do not edit" in page.read_text() for page in PAGES)
    assert [page.name for page in site.rglob("*.html") if "Do not edit" in page.read_text()] == []


def test_the_site_has_the_notebooks_and_says_so(site):
    for name in NOTEBOOKS.PAGES:
        assert (site / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8") == NOTEBOOKS.notebook_text(name)
        assert re.search(rf'href="notebooks/{name}\.ipynb"[^>]* download|download[^>]*"notebooks/{name}\.ipynb"',
                         (site / f"{name}.html").read_text()), name  # fmt: skip


def test_the_reference_names_everything_public(site):
    text = (site / "api.html").read_text()
    for name in dpglm.__all__:
        assert f"<code>dpglm.{name}</code>" in text, name
    assert "Fit.summary" in text
    assert "::: " not in text
    commands = (site / "cli.html").read_text()
    assert "::: " not in commands
    for option in ("--no-ledger", "--release-id", "--at"):
        assert option in commands


def test_docstrings_become_markdown():
    reference = site_script("reference")
    text = reference.text_of("Do ``it``.\n\nParameters\n----------\na, b\n    Two\n    numbers.\n\nEdge cases: none.")
    assert text == "Do `it`.\n\n**Parameters**\n\n* `a`, `b`: Two numbers.\n\nEdge cases: none."
    assert reference.text_of("Sum.\n\n>>> 1 + 1\n2") == "Sum.\n\n\n```pycon\n>>> 1 + 1\n2\n```"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of what goes into it, so that nothing appears in the tree."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(target), str(source)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    return next(target.glob("dpglm-*.whl"))


def test_the_wheel_holds_what_is_read_at_run_time(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    needed = {"release.schema.json", "py.typed", "report/page.html", "report/page.css", "report/page.js"}
    needed |= {"review/page.html", "review/page.css", "studio/pages/base.html", "studio/pages/style.css"}
    assert {f"dpglm/{name}" for name in needed} <= held
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "docs/"))]
    readme = (ROOT / "README.md").read_text()
    assert f"python -m pip install {wheel.name}" in readme, "the name of the wheel in README.md"


def test_the_wheel_installs_and_runs(wheel, tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    install = [*pip, "install", "--no-deps", "--no-index", "--target", str(tmp_path / "here"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "here")}
    script = tmp_path / "here" / "bin" / "dpglm"
    shown = subprocess.run(
        [sys.executable, str(script), "--help"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert "Honest regression coefficients" in shown.stdout
    code = "import dpglm.report.html, dpglm.release_file; print(dpglm.__file__); dpglm.release_file._validator()"
    where = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert where.stdout.startswith(str(tmp_path / "here")), where.stderr


def test_pages_name_no_place_but_their_own():
    """No absolute paths of a machine, and no package registry by its host name."""
    wrong = re.compile(r"(?<![\w.])/(?:home|work|tmp|Users)/|\bpypi\b|files\.pythonhosted", re.IGNORECASE)
    for page in PAGES:
        with contextlib.suppress(StopIteration):
            found = next(wrong.finditer(page.read_text(encoding="utf-8")))
            pytest.fail(f"{page.name}: {found[0]}")
