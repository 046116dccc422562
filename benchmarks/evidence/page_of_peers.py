"""The page's part on other methods: side by side, and those that could not be applied."""

from __future__ import annotations

from typing import Any

from evidence.words import decimal, percent, table

NOT_APPLIED = [
    "* **binagg, DPrivStats**: not on the package index, and no copy of them was at hand.",
    "* **OpenDP**: its one regression is a Theil–Sen line through a single predictor.",
    "* **dp_auditorium**: its searches for tables are left out: the two tables here are as far apart as the proof"
    " allows.",
    "* **simuk**: it simulates and samples a model of PyMC, Bambi or NumPyro; a posterior in closed form from a file is"
    " none. Its picture is drawn from ArviZ's bands, which are used above.",
    "* **DP-SGLD**: needs a tuned chain a table; it is measured in [the paper's experiments](experiments.md).",
    "* **Counts**: no package here has a private regression of counts with or without intervals.",
]
NAPSU_TO_RUN = (
    "* **NAPSU-MQ (twinify)**: its versions of 2022 are pinned in `make bench-evidence`, and `python -m evidence napsu`"
    " runs it beside looks; a fit of a table of 16 cells takes minutes of a core, most of them to compile, and no full"
    " run has been kept yet."
)
NAMES = {
    "looks": "dpglm, looks", "noisy gradient": "noisy gradient (ours)", "AdaSSP with bootstrap": "AdaSSP, bootstrap"
    " (ours)",
    "diffprivlib": "diffprivlib", "dp-statsmodels": "dp-statsmodels", "NAPSU-MQ": "NAPSU-MQ (twinify)",
}  # fmt: skip
ENOUGH = 0.9  # of 95 % intervals that cover: below it a width does not count


def head_to_head(own: dict[str, Any]) -> list[str]:
    """Same samples, budgets and neighbours."""
    cells, lines = own["cells"], []
    ahead, against = _ahead(cells)
    lines += [
        f"The same {cells[0]['repetitions']} samples of each table, the same ε, δ = {own['delta']:g}, one replaced"
        " row; true"
        " values are those of the full table.",
        f"**Of {against} comparisons with an interval that covers at least {percent(ENOUGH)}, dpglm's is the narrower"
        " one in"
        f" {ahead} (not where its own covers more rarely); its error is the smallest in"
        f" {sum(_least(cell) for cell in cells)} of {len(cells)} cells.**",
        "*Width* and *error* are over the standard error of the same rows without privacy, slopes only: width is a"
        " typical"
        " stated one, error the median absolute one over that of a normal (1 without privacy).",
        "*Signs* are those that agree with the full table's.",
        "Bounds are a careful custodian's.",
        "The two methods that no package has are written from their papers (`benchmarks/evidence/peers.py`) and are"
        " given"
        " more than a custodian knows: the population's means and spreads, and of linear outcomes the residuals'"
        " spread;"
        " their constants were chosen for them on three of these tables.",
        "The noisy gradient's loss of a linear outcome is Huber's, so that it estimates something else where outcomes"
        " are"
        " skewed.",
        "diffprivlib has no interval, and its guarantee is the stronger one without δ.", "",
    ]  # fmt: skip
    for family in dict.fromkeys(cell["family"] for cell in cells):
        rows = []
        for cell in (cell for cell in cells if cell["family"] == family):
            for method, each in cell["methods"].items():
                rows.append(
                    {family: cell["table"], "N": f"{cell['rows']:,}", "ε": f"{cell['epsilon']:g}"} | _line(method, each)
                )
        lines += [*table(rows), ""]
    return lines[:-1]


def statsmodels(own: dict[str, Any]) -> list[str]:
    """The peer of the other neighbouring relation."""
    cells, attack = own["cells"], own["attack"]
    linear = [cell for cell in cells if cell["family"] == "linear"]
    ahead, against = _ahead(linear)
    lines = [
        "The samples, budgets and bounds of above, with one row added or removed in both: dp-statsmodels' sensitivities"
        " are of that relation, and it takes the number of rows, which dpglm protects, for public.",
        f"**Linear: its intervals cover at least {percent(ENOUGH)} in {against} of {len(linear)} cells, and dpglm's"
        f" are the"
        f" narrower ones in {ahead} of them; dpglm's error is the smaller in {sum(map(_least, linear))} of"
        f" {len(linear)}.**",
        "**Logistic: its intervals are some fifty times as wide as without privacy, and it does not keep its"
        " promise (its README says \"planned\").**",
        "The noise on its objective has the scale of another mechanism, that of the estimate itself, and so is divided"
        " by"
        " the number of rows times the penalty; its standard errors are of the rows as they are, without noise, and"
        " lack"
        " the root of their number.",
        f"Of {2 * attack['fits']} fits of {attack['rows']:,} rows, half of them without one row, an attacker who knows"
        f" the"
        f" others tells {attack['right']} of {attack['fits']} with it and {attack['fits'] - attack['wrong']} without:"
        f" ε = {attack['epsilon']:g} is claimed, **{decimal(attack['proved'])} is proved** (confidence"
        f" {100 * (1 - own['alpha']):.1f} %).", "",
    ]  # fmt: skip
    for family in dict.fromkeys(cell["family"] for cell in cells):
        rows = [
            {family: cell["table"], "N": f"{cell['rows']:,}", "ε": f"{cell['epsilon']:g}"} | _line(method, each)
            for cell in cells
            for method, each in cell["methods"].items()
            if cell["family"] == family
        ]
        lines += [*table(rows), ""]
    return lines[:-1]


def napsu(own: dict[str, Any]) -> list[str]:
    """Synthetic tables."""
    cells = own["cells"]
    rows = [
        {"ε": f"{cell['epsilon']:g}"} | _line(method, each)
        for cell in cells
        for method, each in cell["methods"].items()
    ]
    return [
        f"Adult, {cells[0]['rows']:,} rows: income above 50,000 on age (two steps), race and gender, every column"
        f" discrete, {cells[0]['repetitions']} samples a budget, δ = {own['delta']:g}.",
        "NAPSU-MQ (Räisä, Jälkö, Kaski & Honkela 2023) notes the table of counts over all columns, and its 100"
        " synthetic"
        " tables are combined by Rubin's rules, with twinify's code throughout; its seconds are of the processor, most"
        " of them to compile.", "", *table(rows),
    ]  # fmt: skip


def failures(own: dict[str, Any]) -> list[str]:
    """Where another method is ahead, or looks cover too rarely."""
    found = []
    for part in ("head_to_head", "statsmodels", "napsu"):
        for cell in own.get(part, {}).get("cells", []):
            looks = cell["methods"]["looks"]
            other = " (one row added or removed)" if part == "statsmodels" else ""
            where = f"{cell.get('table', 'NAPSU-MQ’s table')}, N = {cell['rows']:,}, ε = {cell['epsilon']:g}{other}"
            if looks["cover"] < ENOUGH:
                found.append(f"* Head to head, {where}: looks cover {percent(looks['cover'])}.")
            for method, each in cell["methods"].items():
                if method == "looks":
                    continue
                if each["width"] and each["cover"] >= ENOUGH and each["width"] <= looks["width"]:
                    widths = f"{decimal(each['width'])} against {decimal(looks['width'])}"
                    found.append(f"* Head to head, {where}: {NAMES[method]} is narrower, {widths}.")
                if each["error"] < looks["error"]:
                    errors = f"{decimal(each['error'])} against {decimal(looks['error'])}"
                    found.append(f"* Head to head, {where}: {NAMES[method]} has the smaller error, {errors}.")
    return found


def _ahead(cells: list[dict[str, Any]]) -> tuple[int, int]:
    """How often dpglm's interval is narrower than one that covers, and of how many."""
    pairs = [
        (cell["methods"]["looks"], each)
        for cell in cells
        for method, each in cell["methods"].items()
        if method != "looks" and each["width"] and each["cover"] >= ENOUGH
    ]
    return sum(own["cover"] >= ENOUGH and own["width"] < other["width"] for own, other in pairs), len(pairs)


def _least(cell: dict[str, Any]) -> bool:
    return min(cell["methods"], key=lambda method: cell["methods"][method]["error"]) == "looks"


def _line(method: str, each: dict[str, Any]) -> dict[str, str]:
    return {
        "method": NAMES[method], "cover": "–" if each["cover"] is None else percent(each["cover"]),
        "worst slope": "–" if each["worst"] is None else percent(each["worst"]), "width": decimal(each["width"]),
        "error": decimal(each["error"]), "signs": percent(each["sign"]), "seconds": f"{each['seconds']:.2g}",
    }  # fmt: skip
