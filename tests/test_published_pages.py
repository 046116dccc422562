"""Pages that a study writes say what its stored results say: nobody edited one and forgot the other."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"


def lines_of(name: str) -> list[Any]:
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def results_of(name: str) -> dict[str, Any]:
    content = json.loads((RESULTS / f"{name}.json").read_text())["results"]
    return {key: value for key, value in content.items() if key != "seed"}


def fit_speed(module: Any) -> None:
    content = json.loads((RESULTS / "fit_speed.json").read_text())
    module.write_page(content["results"], content["machine"])


def text_of(name: str, make: Callable[[Any], str]) -> Callable[[Any], None]:
    return lambda module: (module.DOCS / f"{name}.md").write_text(make(module), encoding="utf-8")


PAGES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "calibration": ("calibration_page", lambda module: module.write_page(lines_of("calibration"), module.DOCS)),
    # The page names results whose code changed since: `make evidence-page` brings it up to date.
    "evidence": ("evidence.page", text_of("evidence", lambda m: m.page(m.results()))),
    "experiments": ("paper.page", lambda module: module.write_page(RESULTS / "paper.jsonl")),
    "fit_speed": ("fit_speed_page", fit_speed),
    "joint_releases": ("joint_releases", text_of("joint_releases", lambda m: m.page(results_of("joint_releases")))),
    "no_noise_limit": ("no_noise_limit", text_of("no_noise_limit", lambda m: m.page(results_of("no_noise_limit")))),
    "overdispersion": ("overdispersion", text_of("overdispersion", lambda m: m.page(results_of("overdispersion")))),
    "people": ("people", text_of("people", lambda m: m.page())),
    "real": ("real_page", text_of("real", lambda m: m.page(m.read(RESULTS / "real.jsonl")))),
    "rule": ("rule", text_of("rule", lambda m: m.page(results_of("rule")))),
    "hard_cases": ("hard_cases", text_of("hard_cases", lambda m: m.page(results_of("hard_cases")))),
    "survival_measured": ("survival", text_of("survival_measured", lambda m: m.page(m.stored()))),
    "tight_bounds": ("tight_bounds", text_of("tight_bounds", lambda m: m.page(results_of("tight_bounds")))),
    "scale": ("scale_page", lambda module: module.write_page()),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_results_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module_name, write = PAGES[name]
    module = importlib.import_module(module_name)
    for each in (module, importlib.import_module("scale_fits_page")):
        monkeypatch.setattr(each, "DOCS", tmp_path)
    if name == "experiments":  # its figures take long, and their names are all that the text has of them
        figures = list(importlib.import_module("paper.figures").FIGURES)
        monkeypatch.setattr(module, "draw_all", lambda study, folder: figures)
    for picture in DOCS.glob("*.png"):  # a page may look whether its picture is there
        (tmp_path / picture.name).touch()
    write(module)
    assert (tmp_path / f"{name}.md").read_text(encoding="utf-8") == (DOCS / f"{name}.md").read_text(encoding="utf-8")
