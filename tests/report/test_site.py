"""The pages from a disk, in a real browser: search finds, nothing is fetched, nothing is wider than a phone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (
    '# Birds\n\nThe albatross sleeps while it flies.\n\n```python\nname = "x"\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages with the theme, plugins and assets of the documentation: as much as search needs."""
    folder = tmp_path_factory.mktemp("pages")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    for key in ("nav", "hooks", "validation"):
        config.pop(key)
    config |= {"docs_dir": "docs", "site_dir": "site"}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config))
    shutil.copytree(ROOT / "docs" / "site", folder / "docs" / "site")
    (folder / "docs" / "index.md").write_text("# Home\n\nNothing here.\n")
    (folder / "docs" / "birds.md").write_text(PAGE)
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet"], cwd=folder, check=True, capture_output=True, timeout=120
    )
    return folder / "site"


def test_search_works_from_a_disk(site: Path, open_page: Any) -> None:
    opened = open_page(site / "index.html")
    opened.evaluate(
        "(() => { const i = document.querySelector('.md-search__input'); i.focus(); i.value = 'albatross';"
        " i.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })()"
    )
    found, deadline = "", time.monotonic() + 20
    while "Birds" not in found and time.monotonic() < deadline:
        time.sleep(0.05)
        found = opened.evaluate("document.querySelector('.md-search-result__list').innerText")
    assert "Birds" in found
    assert opened.complaints() == []
    assert [each for each in opened.requests() if not each.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_a_page_fits_and_is_silent(site: Path, open_page: Any, width: int) -> None:
    opened = open_page(site / "birds.html", width=width)
    assert opened.complaints() == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
