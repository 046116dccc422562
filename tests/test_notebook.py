"""What a notebook shows: all that matters, nothing that a stranger's name could inject, warnings where they are due."""

from __future__ import annotations

import html.parser
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.custodian.build import Request, build_release
from seeded_noise import SeededNoise

ELEMENTS = {
    "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "small", "br", "p", "strong", "ul", "li",
    "details", "summary",
}  # fmt: skip
HOSTILE = "\"><script>alert(1)</script><img src=x onerror='x'>"


class Elements(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(name: str) -> dict[str, Any]:
    """Everything that a notebook can be asked to show, of a table whose names are as given."""
    columns = {
        name: {"type": "numeric", "lower": 0, "upper": 100, "label": f"label {name}"},
        "g": {"type": "categorical", "levels": ["p", f"q {name}", "r"], "fill": "p"},
        "sick": {"type": "binary", "levels": ["no", "yes"]},
    }
    dataset = {"name": f"people {name}", "rows": 4000, "unit": f"one {name}"}
    schema = dpglm.Schema.from_dict({"dataset": dataset, "columns": columns})
    rng = np.random.default_rng(1)
    table = pd.DataFrame({
        name: rng.normal(50, 10, 4000), "g": rng.choice(["p", f"q {name}", f"unknown {name}"], 4000),
        "sick": rng.choice(["no", "yes"], 4000),
    })  # fmt: skip
    formula = f"sick ~ `{name}` + g"
    release = build_release(table, Request(formula, schema, "logistic", 2.0, 1e-6), SeededNoise(1))
    return {
        "schema": schema, "release": release, "fit": dpglm.fit(release), "check": dpglm.check(table, schema),
        "plan": dpglm.plan(formula, schema=schema, family="logistic", epsilon=[1.0], rows=[4000], half_width=0.1),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::dpglm.FitWarning")
def test_hostile_names_stay_text_wherever_a_notebook_shows_them() -> None:
    for kind, each in shown(HOSTILE).items():
        found = Elements(each._repr_html_())
        assert found.tags <= ELEMENTS, kind
        assert HOSTILE in found.text, kind


@pytest.mark.filterwarnings("ignore::dpglm.FitWarning")
def test_a_notebook_shows_what_matters() -> None:
    everything = shown("age")
    texts = {kind: Elements(each._repr_html_()).text for kind, each in everything.items()}
    for kind, parts in {
        "schema": ("label age", "0 to 100", "p (reference), q age, r", "its row does not count", "is taken for p"),
        "release": ("sick ~ `age` + g", "NOT PRIVATE", "g = q age", "a survey and 5 looks"),
        "fit": ("label age, per 10", "NOT PRIVATE", "Read this first", "Odds ratio", "tell whether any row has r"),
        "check": ("FOR THE CUSTODIAN'S EYES ONLY", "4,000 declared", "'unknown age' (", "clear this output"),
        "plan": ("times as wide", "By coefficient", "4,000 rows", "no row was read"),
    }.items():
        for part in parts:
            assert part in texts[kind], (kind, part)
    assert f"{everything['check'].columns[1].unreadable:,}" in texts["check"]
