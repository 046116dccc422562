"""Writes docs/evidence.md from the finished parts: ``python -m evidence page``, in ``benchmarks``; a second."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from evidence import page_of_audits, page_of_peers, page_of_sources
from evidence.stamp import changed, stored
from evidence.words import decimal, percent, table

DOCS = Path(__file__).parents[2] / "docs"
PARTS = (
    "accounting", "audit", "recorder", "planted", "attacked", "published", "feasibility", "head_to_head", "statsmodels",
    "napsu", "calibrated",
)  # fmt: skip
CLONES = {  # whose tools are run from a clone of their repository: in the part's first lines is which
    "recorder": "recorder --recorder CLONE", "planted": "recorder --recorder CLONE",
    "attacked": "attacked --auditorium CLONE --sniper CLONE", "statsmodels": "statsmodels --statsmodels CLONE",
}  # fmt: skip
# What economists told a survey of the American Economic Association's members they would accept.
SIGNS, SIGNIFICANCES, RELATIVE, WIDTH, STRICT = 0.05, 0.10, 0.10, 1.25, 1.1
HONEST = 0.85  # of 95 % intervals for the table's estimate that hold it: below, a width is none
HEADER = """# Outside evidence

Written by `python -m evidence page` from the parts of `make bench-evidence`. Do not edit.
Each part runs alone, in `benchmarks`: `python -m evidence PART`.

A claim counts when somebody else's yardstick confirms it.
Here are other people's accountants, auditor, tables, methods and tools, on releases by looks with default settings.
What fails is said first.
"""


def results() -> dict[str, dict[str, Any]]:
    """All finished parts."""
    found = {part: stored(f"evidence_{part}") for part in PARTS}
    return {part: content for part, content in found.items() if content is not None}


def page(parts: dict[str, dict[str, Any]]) -> str:
    """The page's text, of the parts that there are."""
    own = {name: part["results"] for name, part in parts.items()}
    lines = [HEADER, *_section("What fails", failures(own))]
    for part, title, write in (
        ("accounting", "Accounting by others", accounting), ("audit", "An audit by others", audit),
        ("recorder", "Recorded and replayed: dp-recorder", page_of_audits.recorder),
        ("planted", "Planted bugs: dp-recorder", page_of_audits.planted),
        ("attacked", "Learned attacks: dp_auditorium and DP-Sniper", page_of_audits.attacked),
        ("published", "Published regressions", published), ("feasibility", "A feasibility study's table", feasibility),
        ("head_to_head", "Head to head", page_of_peers.head_to_head),
        ("statsmodels", "Head to head, one row added or removed: dp-statsmodels", page_of_peers.statsmodels),
        ("napsu", "Synthetic tables: NAPSU-MQ", page_of_peers.napsu), ("calibrated", "Calibration", calibrated),
    ):  # fmt: skip
        if part in parts:
            lines += _section(title, [*write(own[part]), "", _of(part, parts[part])])
    waiting = [] if "napsu" in parts else [page_of_peers.NAPSU_TO_RUN]
    lines += _section("What could not be applied here", [*waiting, *page_of_peers.NOT_APPLIED])
    lines += _section("What each number is of", page_of_sources.lines())
    return "\n".join(lines)


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "", *lines, ""]


def _of(part: str, content: dict[str, Any]) -> str:
    """Where a part's numbers are from."""
    own = content["results"]
    of = f" Packages: {', '.join(f'{n} {v}' for n, v in own['packages'].items())}." if own.get("packages") else ""
    name = {"audit": "accounting", **CLONES}.get(part, part)
    since = changed(own["marks"], own["code"])
    told = f" **Code changed since: {', '.join(Path(each).name for each in since)}.**" if since else ""
    return (
        f"*`python -m evidence {name}`: {max(own['seconds'], 1):,} s while others ran,"
        f" {content['machine']['processor']};"
        f" commit {content['commit']}.{of}{told}*"
    )


def failures(own: dict[str, Any]) -> list[str]:
    """Of every part, where it falls short."""
    found = []
    if "published" in own:
        for epsilon, cells in _by_epsilon(own["published"]["cells"]):
            off = [c for c in cells if np.mean(c["cover"]) < 0.9 or _z(c) > 1.25]
            for cell in off:
                found.append(
                    f"* Published, ε = {epsilon:g}, {cell['table']} ({cell['rows']:,} rows):"
                    f" {percent(np.mean(cell['cover']))}"
                    f" of intervals for the table's own estimate hold it (z {decimal(_z(cell))});"
                    f" {percent(cell['warned'])} of fits carry a warning."
                )
    if "feasibility" in own:
        for cell in own["feasibility"]["cells"]:
            if np.mean(cell["cover"]) < 0.9:
                found.append(
                    f"* Feasibility, ε = {cell['epsilon']:g}, {cell['what']}: {percent(np.mean(cell['cover']))} of"
                    " intervals"
                    f" hold the table's estimate; {percent(cell['warned'])} of fits carry a warning."
                )
    if "calibrated" in own:
        judged, names = own["calibrated"]["judged"], own["calibrated"]["names"]
        for family, each in judged.items():
            bad = [name for name, share in zip(names, each["outside"], strict=True) if share > 0]
            if bad and "narrower" not in family:
                far = decimal(max(each["farthest"]))
                found.append(f"* Calibration, {family}: ranks of {', '.join(bad)} leave ArviZ's band, {far} from even.")
    return [*page_of_audits.failures(own), *found, *page_of_peers.failures(own)] or ["Nothing that was tried."]


def accounting(own: dict[str, Any]) -> list[str]:
    """Stated budgets beside those of other accountants."""
    budgets, rows = own["budgets"], []
    for epsilon in dict.fromkeys(each["epsilon"] for each in budgets):
        cells = [each for each in budgets if each["epsilon"] == epsilon]
        fourier = [each["fourier"][0] for each in cells if _precise(each)]
        rows.append(
            {
                "ε": f"{epsilon:g}", "budgets": str(len(cells)),
                "δ by privacy loss distributions": f"{max(each['pld'] for each in cells):.5f}",
                "ε by autodp": f"{max(each['autodp'] for each in cells):.5f}",
                "δ by autodp's Fourier accountant": f"{max(fourier):.5f} ({len(fourier)})" if fourier else "–",
            }
        )  # fmt: skip
    largest = max(max(each["pld"], each["autodp"]) for each in budgets)
    coarse = sum(not _precise(each) for each in budgets)
    return [
        "Survey, profile and looks of a release are handed to other accountants as Gaussian mechanisms: noise over"
        " sensitivity, that of a look searched for over pairs of rows.",
        "They compose them; shown is the largest of what they find, as a share of what the release states.",
        f"**It is at most {largest:.5f}: a stated budget is never below theirs, and less than 0.1 % above.**",
        "The first column is dp-accounting's upper bound by connected dots.",
        f"The Fourier accountant inverts an integral: of {coarse} of the {len(budgets)} budgets its answer for a single"
        " Gaussian mechanism is off by more than 0.1 %, and is left out.",
        "Three designs of 2 to 7 coefficients; one row replaced, of 1,000 and 1,000,000, and one added or removed; δ of"
        " 1e-3, 1e-6 and 1e-9.", "",
        *table(rows),
    ]  # fmt: skip


def _precise(each: dict[str, Any]) -> bool:
    """Where one Gaussian mechanism, whose delta is known, comes out right."""
    return abs(each["fourier"][1] / each["pld"] - 1) < 1e-3


def audit(own: dict[str, Any]) -> list[str]:
    """What privacy-estimates proves."""
    rows = [
        {
            "releases": each["what"], "number": str(each["releases"]), "claimed ε": f"{each['claimed']:g}",
            "proved, Clopper–Pearson": decimal(each["proved"]["beta"]),
            "proved, joint": decimal(each["proved"]["joint-beta"]),
        }
        for each in own["attacks"]
    ]  # fmt: skip
    return [
        f"Lower bounds on ε at δ = {own['delta']:g} by privacy-estimates, at confidence {100 * own['confidence']:.1f}"
        " %, of"
        " an attacker who knows both tables and guesses from the whole file by the exact likelihood ratio.",
        "Noise is real; thresholds were fixed in advance and share the error.",
        "The last line is a planted mistake, which must be convicted.", "", *table(rows),
    ]  # fmt: skip


def published(own: dict[str, Any]) -> list[str]:
    """Textbook tables."""
    cells, sources = own["cells"], {each["table"]: each for each in own["sources"]}
    in_print = sum(each["printed"] for each in sources.values())
    right = sum(each["right"] for each in sources.values())
    lines = [
        f"Releases of the very rows of {len(sources)} regressions in print, {cells[0]['repetitions']} a budget at"
        f" δ = {own['delta']:g}: only the noise is new.",
        f"Without privacy the packages' rows give {right} of {in_print} coefficients as they are printed.",
        "*Published* is that estimate, significant where its robust standard error says so (some sources print smaller"
        " ones for counts).", "",
    ]  # fmt: skip
    for epsilon, own_cells in _by_epsilon(cells):
        verdicts = [_accepted(cell) for cell in own_cells]
        all_signs = _pooled(own_cells, "sign")
        clear = _pooled(own_cells, "sign", only_published=True)
        lines.append(
            f"* **ε = {epsilon:g}**: {percent(all_signs)} of published signs kept ({percent(clear)} of those that are"
            f" significant in print), {percent(_pooled(own_cells, 'significance'))} of significances;"
            f" {percent(_pooled(own_cells, 'wrong_finding'))} of coefficients significant with the wrong sign;"
            f" {percent(_pooled(own_cells, 'inside', slopes=False))} of default intervals hold what is published, and"
            f" {percent(_pooled(own_cells, 'cover', slopes=False))} of those for the table's own estimate."
            f" Economists' thresholds, of {len(own_cells)} tables: signs {_kept(verdicts, 'signs')}, significances"
            f" {_kept(verdicts, 'significances')}, relative error {_kept(verdicts, 'relative')}, width at most"
            f" {WIDTH:g} {_kept(verdicts, 'width')}, at most {STRICT:g} {_kept(verdicts, 'strict')}."
        )
    lines += [
        "",
        "The thresholds are what members of the American Economic Association said they would accept: signs that differ"
        f" in at most {percent(SIGNS)}, significances in at most {percent(SIGNIFICANCES)}, a relative error of"
        f" {percent(RELATIVE)}, intervals {WIDTH:g} times as wide (the median) or {STRICT:g} (the strict quarter).",
        "Relative error and width are medians over slopes; *inside* is of the published values in default intervals,"
        " which allow for sampling too; *held* is of those in intervals for the table's own estimate"
        ' (`target="table"`), *z* its root mean square error over its stated deviation.',
        "Thresholds that are met: s(igns), σ (significances), e(rror), w(idth), W (strict width); of width only where"
        f" at least {percent(HONEST)} are held.", "",
    ]  # fmt: skip
    for family in dict.fromkeys(cell["family"] for cell in cells):
        rows = []
        for cell in (cell for cell in cells if cell["family"] == family):
            met = _accepted(cell)
            letters = {"signs": "s", "significances": "σ", "relative": "e", "width": "w", "strict": "W"}
            rows.append(
                {
                    family: cell["table"], "rows": f"{cell['rows']:,}", "slopes": str(len(cell["names"]) - 1),
                    "ε": f"{cell['epsilon']:g}", "signs": percent(_pooled([cell], "sign")),
                    "significances": percent(_pooled([cell], "significance")),
                    "error": percent(np.median(cell["relative_error"][1:])),
                    "width": decimal(np.median(cell["width"][1:])), "inside": percent(np.mean(cell["inside"])),
                    "held": percent(np.mean(cell["cover"])),
                    "z": decimal(_z(cell)), "warned": percent(cell["warned"]),
                    "met": " ".join(letters[name] for name in letters if met[name]) or "none",
                }
            )  # fmt: skip
        lines += [*table(rows), ""]
    return [*lines, "Sources:", "", *(f"* {name}: {each['source']}." for name, each in sources.items())]


def _accepted(cell: dict[str, Any]) -> dict[str, bool]:
    """Which thresholds are met; those of width only by intervals that are honest."""
    width = float(np.median(cell["width"][1:])) if np.mean(cell["cover"]) >= HONEST else np.inf
    return {
        "signs": 1 - _pooled([cell], "sign") <= SIGNS,
        "significances": 1 - _pooled([cell], "significance") <= SIGNIFICANCES,
        "relative": float(np.median(cell["relative_error"][1:])) <= RELATIVE, "width": width <= WIDTH,
        "strict": width <= STRICT,
    }  # fmt: skip


def _kept(verdicts: list[dict[str, bool]], name: str) -> str:
    return str(sum(verdict[name] for verdict in verdicts))


def _pooled(cells: list[dict[str, Any]], name: str, only_published: bool = False, slopes: bool = True) -> float:
    """Over coefficients of all tables; without intercepts, unless they are asked for."""
    values = [
        value
        for cell in cells
        for n, (value, significant) in enumerate(zip(cell[name], cell["published"], strict=True))
        if (n or not slopes) and (significant or not only_published)
    ]
    return float(np.mean(values))


def _z(cell: dict[str, Any]) -> float:
    return float(np.sqrt(np.mean(np.square(cell["z"]))))


def _by_epsilon(cells: list[dict[str, Any]]) -> list[tuple[float, list[dict[str, Any]]]]:
    return [
        (epsilon, [c for c in cells if c["epsilon"] == epsilon]) for epsilon in sorted({c["epsilon"] for c in cells})
    ]


def feasibility(own: dict[str, Any]) -> list[str]:
    """The table of the study."""
    cells = own["cells"]
    rows = [
        {
            "formula": cell["what"], "ε": f"{cell['epsilon']:g}", "ratio": _range(cell["ratio"][1:]),
            "overlap": _range(cell["overlap"][1:]), "signs": percent(np.mean(cell["sign"][1:])),
            "significances": percent(np.mean(cell["significance"][1:])), "held": percent(np.mean(cell["cover"])),
            "warned": percent(cell["warned"]),
        }
        for cell in cells
    ]  # fmt: skip
    return [
        "Barrientos, Williams, Snoke & Bowen (arXiv 2110.12055) tried private regressions on tax data and found that"
        " methods"
        " struggle to give accurate estimates and intervals.",
        "The same regression, log wage on education, experience to the cube and race, on wages of the Current"
        " Population"
        f" Survey of 1988 ({cells[0]['rows']:,} rows; theirs are other years and are in no package),"
        f" {cells[0]['repetitions']} releases a budget, δ = 1e-6.",
        "*Ratio* is the interval's width over that without privacy, *overlap* how far the two lie on each other (1 is"
        " all,"
        " below 0 apart; independent tables of one population have 0.7 on average): medians over releases, smallest to"
        " largest slope.",
        "*Signs* and *significances* are shares that agree; *held* is of intervals for the table's own estimate.", "",
        *table(rows),
    ]  # fmt: skip


def _range(values: list[float]) -> str:
    return f"{min(values):.2f}–{max(values):.2f}"


def calibrated(own: dict[str, Any]) -> list[str]:
    """Ranks and joint coverage."""
    rows = []
    for name, each in own["judged"].items():
        family, narrower = name.removesuffix("_narrower"), name.endswith("_narrower")
        rows.append(
            {
                "family": family, "draws": "a third narrower" if narrower else "as stated",
                "ranks outside the band, by coefficient": ", ".join(percent(share) for share in each["outside"]),
                "farthest from even": ", ".join(decimal(far) for far in each["farthest"]),
                "joint": decimal(each["joint"]),
            }
        )  # fmt: skip
    return [
        f"{own['tables']} times a family: coefficients from a prior, a table of {own['rows']:,} rows, a release at"
        f" ε = {own['epsilon']:g} and δ = {own['delta']:g}, a fit under that prior.",
        "Ranks of the true values among draws are judged by ArviZ's simultaneous band at 99 % (Säilynoja, Bürkner &"
        " Vehtari"
        f" 2022), for {', '.join(own['names'])}; *joint* is tarp's largest difference between expected coverage and"
        " credibility (Lemos et al. 2023), over all coefficients together.",
        f"By chance a difference of {decimal(own['chance'])} is reached in one of a hundred such studies.",
        "Draws that are made a third narrower must be convicted; joint coverage by distances from random points sees"
        " narrowness less than ranks do.",
        "", *table(rows),
    ]  # fmt: skip


def run(_: argparse.Namespace) -> None:
    (DOCS / "evidence.md").write_text(page(results()), encoding="utf-8")
