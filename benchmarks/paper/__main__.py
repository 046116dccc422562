"""The paper's experiments: prepare jobs, sample them, score them, write the page.

python -m paper                     everything (benchmarks/ on PYTHONPATH); goes on where it was stopped
python -m paper prepare             tables, releases and jobs, into a work folder
python -m paper sample --workers 2  the jobs that have no result; also python -m paper.sampling on another machine
python -m paper score               benchmarks/results/paper.jsonl from the results
python -m paper page                docs/experiments.md and its figures
python -m paper --quick             all of it on a few small simulated tables, in a minute; writes no page
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from machine import RESULTS, machine
from paper.cells import Cell, score, sketches, write_jobs
from paper.experiments import QUICK, Experiment, Size, experiments
from paper.sampling import run_folder
from paper.seed import SEED
from paper.significance import plain_lines
from paper.tuning import write_search

STEPS = ("prepare", "sample", "score", "page")
OUTPUT = RESULTS / "paper.jsonl"


def prepare(found: dict[str, Experiment], folder: Path, size: Size) -> None:
    """Jobs for every cell that has none."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, experiment in found.items():
        if experiment.search is not None:
            search, like, epsilons, reading = experiment.search
            write_search(search, like, epsilons, reading, folder, size.draws, size.length, coarse=size.coarse)
        for cell in experiment.cells:
            write_jobs(cell, folder, size.draws, size.length)
        print(f"prepared {name}", file=sys.stderr, flush=True)


def scored(found: dict[str, Experiment], folder: Path) -> list[dict[str, Any]]:
    """The lines of all experiments whose cells have been sampled."""
    lines: list[dict[str, Any]] = []
    for name, experiment in found.items():
        sampled = [cell for cell in experiment.cells if _is_sampled(cell, folder)]
        missing = [cell.name for cell in experiment.cells if cell not in sampled]
        if missing:
            print(f"not sampled yet: {', '.join(missing)}", file=sys.stderr)
        if name == "significance" and sampled:
            lines += plain_lines(Experiment(tuple(sampled)), folder)
        if name == "significance" or experiment.cells[0] not in sampled:
            continue
        first, *others = sampled
        reference = sketches(first, folder)
        itself = Cell(first.experiment, first.method, first.tables, first.conditions, first.reading,
                      list(range(len(first.tables))))  # fmt: skip
        for cell in (itself, *others):
            lines += score(cell, folder, reference)
        if experiment.search is not None and (folder / f"{experiment.search[0]}.npz").exists():
            lines.append(_search_line(experiment.search, folder))
    facts = {"seed": SEED, "processor": machine()["processor"]}
    return [line | facts for line in lines]


def chosen(found: dict[str, Experiment], names: list[str], methods: list[str]) -> dict[str, Experiment]:
    """The experiments of these names, with the cells of these methods and what they are compared with; [] is all."""
    found = {name: found[name] for name in names or found}
    if not methods:
        return found
    shown = {}
    for name, experiment in found.items():
        cells = tuple(cell for cell in experiment.cells if cell.method in methods)
        if cells:
            shown[name] = Experiment((*(cell for cell in experiment.cells[:1] if cell.method == "non_private"), *cells))
    return shown


def _kept(output: Path, found: dict[str, Experiment], methods: list[str]) -> list[dict[str, Any]]:
    """The lines in the file of experiments and methods that are not scored now."""
    if not output.exists():
        return []
    scored_now = {*found, *(f"tuning_{name}" for name in found)}
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    other = [bool(methods) and line["method"] not in ("non_private", *methods) for line in lines]
    return [line for line, stays in zip(lines, other, strict=True) if stays or line["experiment"] not in scored_now]


def _is_sampled(cell: Cell, folder: Path) -> bool:
    index = folder / f"{cell.name}.json"
    return index.exists() and all((folder / f"{p['job']}.npz").exists() for p in json.loads(index.read_text()))


def _search_line(search: tuple[Any, ...], folder: Path) -> dict[str, Any]:
    name, _, epsilons, _ = search
    result = np.load(folder / f"{name}.npz")
    return {
        "experiment": name,
        "method": "search",
        "epsilons": list(epsilons),
        "best_however_hot": result["scores"].min(axis=1).round(4).tolist(),
        "settings_tried": len(result["grid"]),
        "r_hat": round(float(np.max(result["r_hat"])), 4),
        "device": str(result["device"]),
        "seconds": round(float(result["seconds"]), 1),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", help=f"some of {', '.join(STEPS)}; all of them by default")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real tables")
    parser.add_argument("--fetch", action="store_true", help="get real tables that are not there from OpenML")
    parser.add_argument("--work", type=Path, default=Path("build/paper"), help="folder of jobs and their results")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--only", nargs="*", help="names of experiments; all of them by default")
    parser.add_argument("--methods", nargs="*", help="names of methods; all of them by default")
    parser.add_argument("--workers", type=int, default=1, help="jobs at a time; 0: in this process")
    parser.add_argument("--quick", action="store_true", help="a few small simulated tables")
    options = parser.parse_args(arguments)
    unknown = set(options.steps) - set(STEPS)
    if unknown:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    steps = options.steps or STEPS[: 3 if options.quick else 4]
    size = QUICK if options.quick else Size()
    if set(steps) & {"prepare", "score"}:
        found = experiments(options.data, size, options.quick, options.fetch)
        found = chosen(found, options.only or [], options.methods or [])
    if "prepare" in steps:
        prepare(found, options.work, size)
    if "sample" in steps:
        failed = run_folder(options.work, options.workers)
        if failed:
            sys.exit(f"failed: {', '.join(failed)}")
    if "score" in steps:
        lines = [*_kept(options.output, found, options.methods or []), *scored(found, options.work)]
        options.output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if "page" in steps:
        from paper.page import write_page

        write_page(options.output)


if __name__ == "__main__":
    main()
