"""docs/scale.md, from the results of scale_rows.py and scale_fits.py; each half may be missing.

python benchmarks/scale_page.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fit_speed_page import paragraph, table
from machine import RESULTS
from scale_fits_page import fits_section, said

DOCS = Path(__file__).parent.parent / "docs"
MEMORY_LIMIT = 1024  # MiB
THROUGHPUT_LIMIT = 1.5
PASSES = 7  # a survey, a profile and five looks: the page says so
MOST_OTHERS = 0.5  # load average with which a measurement of two cores still means something


def write_page() -> Path:
    lines = [
        "# Scale: many rows, predictors and fits",
        "",
        "Written by `benchmarks/scale_page.py` (`make bench-scale`).",
    ]
    for name, section in SECTIONS.items():
        kept = RESULTS / f"{name}.json"
        if kept.exists():
            content = json.loads(kept.read_text())
            lines += ["", *section(content["results"], content["machine"])]
    page = DOCS / "scale.md"
    page.write_text("\n".join(lines).rstrip() + "\n")
    return page


def rows_section(results: dict[str, Any], where: dict[str, Any]) -> list[str]:
    lines = [
        "## Rows",
        "",
        paragraph(f"""
            Logistic releases by looks with ten predictors (seed {results["seed"]}; versions in
            `benchmarks/results/scale_rows.json`; {where["processor"]}, {where["cores"]} cores, with other work on
            them). Each reads every row seven times: for the survey, the profile and five looks. Noise
            comes from a seed, so that releases of the same sums hold the same integers.
        """),
    ]
    for name, part in PARTS.items():
        if name in results:
            lines += ["", *part(results[name])]
    return lines


def spark(facts: dict[str, Any]) -> list[str]:
    killed = facts["killed"]
    versions = facts["versions"]
    rows = [
        ["one machine", f"{facts['rows']:,}", f"{facts['local_seconds']:.1f}", "", ""],
        ["Spark", f"{facts['rows']:,}", f"{facts['spark_seconds']:.1f}", "", said(facts["same_integers"])],
        [
            "Spark, an executor killed", f"{facts['rows']:,}", f"{killed['seconds']:.1f}",
            f"killed after {killed['tasks_done_before']} of {killed['tasks']} tasks;"
            f" {killed['failed_attempts']} attempt{'s' * (killed['failed_attempts'] != 1)} lost",
            said(killed["same_integers"]),
        ],
    ]  # fmt: skip
    return [
        "### Spark",
        "",
        paragraph(f"""
            A `local-cluster` of two executors, each a process with one core, reads a folder of {facts["files"]}
            Parquet files (pyspark {versions["pyspark"]}, Java {versions["java"]}). In the fourth of seven passes one
            executor is killed. The last column says whether every noisy integer of survey, profile and looks
            ({facts["compared_integers"]} of them) equals that of one machine without Spark. One
            other cell in the table changes them: {said(facts["one_changed_cell_is_seen"])}.
        """),
        *table(["release", "rows", "seconds", "what happened", "same integers"], rows),
        paragraph("""
            All had the same two cores, with much other work on them that came and went, so that seconds say little: a
            killed executor does not make a release faster. Spark hands every row from Java to Python. It pays where the
            rows already are on many machines.
        """),
    ]


def speculation(facts: dict[str, Any]) -> list[str]:
    return [
        paragraph(f"""
            *Speculative tasks.* Spark starts a second attempt at a slow task on another host only, so this was measured
            with two workers that have addresses of their own. The first attempt at one of {facts["partitions"]} tasks
            over {facts["rows"]:,} rows hung in the first pass, after its first batch; in the seven passes
            {facts["attempts"] - facts["partitions"]} of the tasks had a second attempt, and each counted once. Same
            integers: {said(facts["same_integers"])}.
        """)
    ]


def folder(facts: dict[str, Any]) -> list[str]:
    head = ["rows", "files", "one core, s", "two cores, s", "cores at work", "peak memory, MiB"]
    row = [
        f"{facts['rows']:,}", str(facts["files"]), f"{facts['seconds_one_core']:.2f}",
        f"{facts['seconds_two_cores']:.2f}", f"{facts['cores_at_work']:.2f}", str(facts["peak_mib"]),
    ]  # fmt: skip
    assert facts["passes"] == PASSES
    return [
        "### A folder of Parquet files on one machine",
        *table(head, [row]),
        paragraph(f"""
            The fastest of three, library loading aside; the integers are the same. {disturbed(facts["others"])} Batches
            are summed by threads: NumPy and Arrow let go of Python's lock while they work.
        """),
    ]


def disturbed(others: float) -> str:
    """What must be said where the cores were not free."""
    if others < MOST_OTHERS:
        return ""
    return (
        f"Other work kept both cores busy meanwhile (load average {others}), so these seconds say little;"
        " [Speed of looks](looks_speed.md) has others."
    )


def generated(facts: dict[str, Any]) -> list[str]:
    few, many = facts["few"], facts["many"]
    exact = many["totals_are_exact"] and int(many["largest_total"]) > 2**53
    rows = [
        [
            f"{few['rows']:,}", f"{few['seconds']:.2f}", f"{few['processor_seconds']:.2f}",
            f"{few['rows'] / few['seconds']:,.0f}", str(facts["few_peak_mib"]),
        ],
        [
            f"{many['rows']:,}", f"{many['seconds']:.1f}", f"{many['processor_seconds']:.1f}",
            f"{many['rows'] / many['seconds']:,.0f}", str(many["peak_mib"]),
        ],
    ]  # fmt: skip
    checks = [
        ["peak memory under 1 GiB", f"{many['peak_mib']} MiB", said(many["peak_mib"] < MEMORY_LIMIT)],
        [
            "throughput within 1.5 of that for a million rows", f"{facts['throughput_ratio']:.2f}",
            said(facts["throughput_ratio"] <= THROUGHPUT_LIMIT),
        ],
        [
            "the same in processor seconds a row", f"{facts['processor_ratio']:.2f}",
            said(facts["processor_ratio"] <= THROUGHPUT_LIMIT),
        ],
        ["totals beyond a double's 53 bits are exact", f"largest: {int(many['largest_total']):,}", said(exact)],
    ]  # fmt: skip
    head = ["rows", "seconds", "processor seconds", "rows per second", "peak memory, MiB"]
    return [
        "### Rows that are generated while they are read",
        "",
        paragraph(f"""
            A function returns a new stream of record batches for every pass; its rows never exist at once. Making them
            is part of the time. For a million rows: the median of {few["runs"]} runs, before and after the long one.
        """),
        *table(head, rows),
        *table(["must hold", "measured", "holds"], checks)[1:],
        paragraph("""
            Exact: without noise, the last look's sums of the score, the information and the score's square are those
            of Python integers, added up once more from the bounded vectors of every row.
        """),
    ]


PARTS = {"spark": spark, "speculation": speculation, "folder": folder, "generated": generated}

SECTIONS: dict[str, Callable[[dict[str, Any], dict[str, Any]], list[str]]] = {
    "scale_rows": rows_section,
    "scale_fits": fits_section,
}


if __name__ == "__main__":
    print("written to", write_page().name)
