"""A cell: one method on many tables and epsilons, from tables to jobs, and from sketches to scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpglm.paper.assemble import assemble, stacked, starts
from dpglm.paper.baselines.langevin_accounting import noise_multiplier
from dpglm.paper.baselines.on_rows import stacked_rows
from dpglm.paper.outcomes import outcome_of
from dpglm.releases import Release
from paper.jobs import ChainJob, PosteriorJob, save_job
from paper.releases import DELTA, Reading, released
from paper.sketches import distances
from paper.tables import Table
from paper.tuning import hottest

Condition = dict[str, Any]
# Of these experiments and methods a figure draws the first repetition.
SHOWN = ("non_private", "dpglm", "staged", "taylor", "dp_sgld")
DRAWN = ("diabetes", "adult", "synthetic", "counts", "limit")


@dataclass(frozen=True)
class Cell:
    """Posteriors of one method. ``conditions`` say what each is about; ``reference_of`` its table without privacy."""

    experiment: str
    method: str
    tables: Sequence[Table]
    conditions: Sequence[Condition]
    reading: Reading = field(default_factory=Reading)
    reference_of: Sequence[int] = ()
    tuning: tuple[str, tuple[float, ...]] | None = None  # the search of noisy gradients, and its epsilons
    seed: int = 0
    sampler: str = "nuts"

    @property
    def name(self) -> str:
        return f"{self.experiment}_{self.method}"

    @property
    def epsilons(self) -> list[float]:
        return [condition["epsilon"] for condition in self.conditions]


def write_jobs(cell: Cell, folder: Path, draws: int, length: tuple[int, int]) -> None:
    """The jobs of a cell, unless they are there; an index says which posterior is where."""
    index = folder / f"{cell.name}.json"
    if index.exists():
        return
    if cell.method == "dp_sgld":
        save_job(folder, cell.name, _chain_job(cell, length))
        parts = [{"job": cell.name, "members": list(range(len(cell.tables)))}]
    elif cell.method == "non_private":
        rows = [table.rows for table in cell.tables]
        model, data = stacked_rows(rows, cell.reading.link, cell.reading.dispersion, cell.reading.prior)
        start = np.zeros((len(rows), model.size))
        save_job(folder, cell.name, PosteriorJob(model, data, start, draws, cell.sampler))
        parts = [{"job": cell.name, "members": list(range(len(rows)))}]
    else:
        made = released(cell.tables, cell.epsilons, cell.reading, cell.seed)
        save_job(folder, cell.name, _release_job(made, cell, draws))
        parts = [{"job": cell.name, "members": list(range(len(made)))}]
    index.write_text(json.dumps(parts))


def _release_job(releases: list[Release], cell: Cell, draws: int) -> PosteriorJob:
    assembled = [assemble((release,), prior=cell.reading.prior, **cell.reading.options()) for release in releases]
    shape, data = assembled[0][0], [each for _, each in assembled]
    if any(other != shape for other, _ in assembled):
        raise ValueError("the releases of a cell must have one shape")
    return PosteriorJob(shape, stacked(data), starts(shape, data), draws, cell.sampler)


def _chain_job(cell: Cell, length: tuple[int, int]) -> ChainJob:
    assert cell.tuning is not None
    search, searched = cell.tuning
    design = cell.tables[0].design
    distinct = list({id(table): table for table in cell.tables}.values())
    position = {id(table): number for number, table in enumerate(distinct)}
    rows = len(distinct[0].rows.y)
    noise = {epsilon: noise_multiplier(epsilon, DELTA, rows**-0.5, length[0]) for epsilon in set(cell.epsilons)}
    return ChainJob(
        outcome=outcome_of(design.family.name, cell.reading.link, design.response_range),
        names=design.coefficient_names,
        prior=cell.reading.prior,
        matrices=np.stack([table.rows.matrix for table in distinct]),
        outcomes=np.stack([table.rows.y for table in distinct]),
        table_of=np.array([position[id(table)] for table in cell.tables]),
        noise=np.array([noise[epsilon] for epsilon in cell.epsilons]),
        tuning=search,
        searched=np.array([searched.index(epsilon) for epsilon in cell.epsilons]),
        hottest=hottest(cell.tables[0], cell.reading),
        iterations=length[0],
        burn_in=length[1],
    )


def sketches(cell: Cell, folder: Path) -> dict[int, dict[str, np.ndarray]]:
    """What was sampled of each posterior, by its position in the cell."""
    found = {}
    for part in json.loads((folder / f"{cell.name}.json").read_text()):
        result = dict(np.load(folder / f"{part['job']}.npz"))
        facts = {name: result.pop(name) for name in ("seconds", "device", "draws", "settings") if name in result}
        for place, member in enumerate(part["members"]):
            own = {name: values[place] for name, values in result.items()}
            found[member] = own | {name: facts[name] for name in ("seconds", "device")}
            if "settings" in facts:
                found[member]["settings"] = facts["settings"][place]
    return found


def score(cell: Cell, folder: Path, reference: dict[int, dict[str, np.ndarray]]) -> list[dict[str, Any]]:
    """One line a condition: distances to the non-private posteriors, coverage, widths, agreement of chains."""
    found = sketches(cell, folder)
    groups: dict[str, list[int]] = {}
    for number in found:
        groups.setdefault(json.dumps(cell.conditions[number]), []).append(number)
    lines = []
    drawn = cell.experiment in DRAWN and cell.method in SHOWN
    for condition, members in groups.items():
        rows = [_last(reference[cell.reference_of[n]], len(found[n]["mean"])) for n in members]
        ours = [found[n] for n in members]
        each = list(zip(ours, rows, strict=True))
        line = {
            "experiment": cell.experiment,
            "method": cell.method,
            **json.loads(condition),
            "names": list(cell.tables[members[0]].design.coefficient_names),
            "repetitions": len(members),
            "sampler": cell.sampler,
            "ks": [distances(one["quantiles"], other["quantiles"]).round(4).tolist() for one, other in each],
            "error": _rounded([(one["mean"] - other["mean"]) / other["stddev"] for one, other in each]),
            "width": _rounded([one["stddev"] / other["stddev"] for one, other in each]),
            "r_hat": round(float(np.max([one["r_hat"].max() for one in ours])), 4),
            "shown": np.round(ours[0]["quantiles"][::8], 3).tolist() if drawn else [],
            "device": str(ours[0]["device"]),
            "seconds": round(float(ours[0]["seconds"]), 1),
        }
        truths = [cell.tables[n].truth for n in members]
        if all(truth is not None for truth in truths):
            count = len(ours[0]["mean"])
            pairs = [(_interval(one["quantiles"]), truth[-count:]) for one, truth in zip(ours, truths, strict=True)]
            line["cover"] = [((low <= t) & (t <= high)).astype(int).tolist() for (low, high), t in pairs]
        if "settings" in ours[0]:
            names = ("noise_multiplier", "learning_rate", "clipping_norm", "decay")
            line["settings"] = {name: round(float(v), 8) for name, v in zip(names, ours[0]["settings"], strict=True)}
        lines.append(line)
    return lines


def _last(sketch: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """The last coefficients: a model without an intercept is compared on its slopes."""
    return {name: sketch[name][..., -count:] for name in ("quantiles", "mean", "stddev")}


def _interval(quantiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return quantiles[10], quantiles[390]  # of 401 levels: 2.5 % and 97.5 %


def _rounded(values: list[np.ndarray]) -> list[list[float]]:
    return np.nan_to_num(np.array(values), nan=1e9, posinf=1e9, neginf=-1e9).clip(-1e9, 1e9).round(3).tolist()
