"""How far bounding is from averaging out, rho, on whole tables: what ``LookRule.misfit`` and its spread rest on.

At a whole table's own estimate, every row's influence on every coefficient is taken as it is, and as a look bounds it;
the mean of what bounding takes, over its root mean square, is rho. Measured on N rows it has a floor of 1/sqrt(N),
which is taken off: rho^2 = mean^2 / square - 1/N. A family's constant is near the geometric mean of rho over the tables
that constants may be chosen on (``CHOSEN_ON``), and tables scatter around it as far as they do; the others only report.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dpglm.families import family_named
from machine import RESULTS, commit, machine
from other_tables import OTHERS
from real_tables import CHOSEN_ON, LOADERS, frame_of, maximum_likelihood, rows_of

BOUNDS = (1.25, 1.75, 2.5, 3.5)  # in the root mean square of a row's score
CLIPS = (2.0, 3.0, 4.0)
MOST_ROWS = 200_000
SEEN = 0.03  # of a score, in root mean square: what bounding must take for its mean to say something


def misfits(family: str, x: np.ndarray, y: np.ndarray, upper: float) -> np.ndarray:
    """rho^2 by bound and clip, and coefficient; NaN where bounding takes next to nothing."""
    told, rows = family_named(family), len(y)
    estimate = maximum_likelihood(family, x, y)[0]
    centre, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-12)
    z = np.column_stack([np.ones(rows), (x - centre) / scale])
    if told.coding == "scaled":  # as a look sees it: in standard units
        place, unit = y.mean(), y.std()
        y, estimate = (y - place) / unit, np.append(estimate[0] - place, estimate[1:]) / unit
        upper = float(np.abs(y).max())
    theta = np.concatenate([[estimate[0] + centre @ estimate[1:]], estimate[1:] * scale])
    u = z @ theta
    plain = told.inverse_link(u)
    residual = y - plain
    weight = {"sign": plain * (1 - plain), "count": plain}.get(told.coding, np.ones(rows))
    spread = float(np.mean(residual**2 / np.maximum(weight, 1e-9))) if told.has_spread else 1.0
    information = (z * weight[:, None]).T @ z / rows
    influence = z @ np.linalg.inv(information)
    length = np.sqrt(np.einsum("ij,jk,ik->i", z, np.linalg.inv(information), z))
    free = influence * residual[:, None]
    error = np.sqrt(np.mean(free**2, axis=0))
    low = 0.0 if told.coding == "count" else -upper
    found = []
    for clip in CLIPS if told.has_spread else CLIPS[-1:]:
        table = told.residual_table(spread, clip, (low, upper))
        mean, least, most, largest = table.at(u, table.mean, table.low, table.high, table.largest)
        held = np.clip(told.values(y, spread), least, most) - mean
        typical = np.sqrt(z.shape[1] * told.dispersion(spread))
        for bound in BOUNDS:
            kappa = np.minimum(1.0, bound * typical / (largest * length))
            kept = kappa * held * (spread if told.coding == "scaled" else 1.0)
            taken = free - influence * kept[:, None]
            square = np.mean(taken**2, axis=0)
            rho = np.maximum(0.0, np.mean(taken, axis=0) ** 2 / np.maximum(square, 1e-300) - 1 / rows)
            found.append(np.where(np.sqrt(square) > SEEN * error, rho, np.nan))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of public tables")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name, loader in (LOADERS | OTHERS).items():
        loaded = frame_of(loader, options.data)
        if loaded is None:
            continue
        frame, columns, formula, family = loaded
        x, y = rows_of(frame.iloc[:MOST_ROWS], columns, formula)
        outcome = columns[formula.split("~")[0].strip()]
        squares = misfits(family, x, y, float(outcome.get("upper", 1)))
        rho = float(np.sqrt(np.nanmean(squares)))
        results.append({"table": name, "family": family, "rows": len(y), "chosen_on": name in CHOSEN_ON, "rho": rho})
        print(f"{name:20s} {family:9s} {len(y):>7,} rows  rho {rho:.4f}  {'chosen on' if name in CHOSEN_ON else ''}")
    families = []
    for family in ("logistic", "poisson", "linear"):
        for chosen in (True, False):
            each = [r["rho"] for r in results if (r["family"], r["chosen_on"]) == (family, chosen)]
            if each:
                told = "chosen on" if chosen else "reported"
                logs = np.log(each)
                found = {
                    "family": family,
                    "tables": told,
                    "rho": float(np.exp(logs.mean())),
                    "spread": float(logs.std()),
                }
                families.append(found)
                print(f"{family:9s} {told:9s} {len(each)} tables: {found['rho']:.4f}, times e^{found['spread']:.2f}")
    facts = {"machine": machine()["processor"], "commit": commit(), "bounds": BOUNDS, "clips": CLIPS}
    (RESULTS / "misfit.json").write_text(
        json.dumps({**facts, "tables": results, "families": families}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
