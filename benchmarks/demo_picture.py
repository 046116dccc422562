"""The picture of the README: the demo's posterior beside the non-private fit.

python benchmarks/demo_picture.py      (writes docs/demo.png; the noise of a release is fresh each time)
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import dpglm
from dpglm import demo

DOCS = Path(__file__).parent.parent / "docs"
UNITS = {"age": 10, "bmi": 5, "smoker[former]": 1, "smoker[current]": 1}
BLUE, GREY = "#1f5fa8", "#999999"
LABELS = ["age, 10 years", "bmi, 5 units", "former smoker", "current smoker"]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        demo.run(Path(name))
        fit = dpglm.load_fit(Path(name) / "diabetes.fit.npz")
    estimate, error = demo.plain_fit(demo.simulated_table())
    figure, axis = plt.subplots(figsize=(7.2, 2.9), layout="constrained")
    for row, (term, unit) in enumerate(UNITS.items()):
        position = fit.names.index(term)
        private = fit.contrast({term: unit})
        plain = unit * (estimate[position] + np.array([-1.96, 0, 1.96]) * error[position])
        first = row == 0
        axis.plot([private["lower"], private["upper"]], [row + 0.13] * 2, color=BLUE, linewidth=3)
        axis.plot(private["mean"], row + 0.13, "o", color=BLUE, label="dpglm, from the release" if first else None)
        axis.plot(plain[[0, 2]], [row - 0.13] * 2, color=GREY, linewidth=3)
        axis.plot(plain[1], row - 0.13, "o", color=GREY, label="non-private fit, from the rows" if first else None)
        axis.plot(unit * demo.TRUTH[term], row, "|", color="black", markersize=16, label="truth" if first else None)
    axis.axvline(0, color="black", linewidth=0.6)
    axis.set(yticks=range(len(LABELS)), xlabel="log odds ratio, 95 % interval", title="8,000 rows, epsilon = 1")
    axis.set_yticklabels(LABELS)
    axis.invert_yaxis()
    axis.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0.06, 0.0))
    figure.savefig(DOCS / "demo.png", dpi=130)


if __name__ == "__main__":
    main()
