"""The table that people paste: its words, its numbers, and that a stranger's names stay text in every format."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from markdown_it import MarkdownIt

import dpglm
from dpglm.analyst.labels import named_coefficients, step_text
from dpglm.analyst.table import Table, interval_text, ratio_text
from dpglm.errors import InputError

LABELS = {
    "a": {"type": "numeric", "lower": -4000, "upper": 6000, "label": "Age in years"},
    "g": {"type": "binary", "levels": ["no", "yes"], "fill": "no", "label": "Treated"},
    "sick": {"type": "binary", "levels": [0, 1], "fill": 0, "label": "Illness"},
}
HOSTILE = (
    "<img src=x onerror=alert(1)>", "</td></tr></table><script>alert(2)</script>", "=1+cmd|' /C calc'!A0", "@SUM(1)",
    "a | b", "**bold** _em_ `code` ~~gone~~", "[link](http://x.y) www.x.y", "&lt; &#60; &amp;", "\\input{/etc/passwd}",
    "$\\alpha$ 100% #1 {x}", "[2ex]", "*", "--- '' \"", "- item", "1. item", "]]>", "x^2~y",
)  # fmt: skip


def texts_of_html(text: str) -> tuple[list[list[str]], set[str]]:
    """Cells by row, and the names of all elements."""
    rows: list[list[str]] = []
    tags: set[str] = set()

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            tags.add(tag)
            if tag == "tr":
                rows.append([])
            if tag in ("td", "th"):
                rows[-1].append("")

        def handle_data(self, data: str) -> None:
            if rows and rows[-1]:
                rows[-1][-1] += data.strip("\n")

    Parser().feed(text)
    return rows, tags


def hostile_table() -> Table:
    rows = tuple((name, "1.00 (0.50 to 2.00)", "> 99.9 %") for name in HOSTILE)
    records = tuple({"coefficient": name, "estimate": -1.0} for name in HOSTILE)
    return Table(HOSTILE[1], ("", HOSTILE[4], "P(sign)"), rows, HOSTILE[:3], records)


def test_labels_levels_and_steps_are_what_people_say(released: Callable[..., dpglm.Release]) -> None:
    """The scale of ``a`` is 5, whatever its bounds."""
    release = released(columns=LABELS, formula="sick ~ a * g + log(b + 1)")
    named = {each.name: each for each in named_coefficients(release)}
    assert [each.label for each in named.values()] == [
        "Intercept", "Age in years, per 5", "Treated: yes (vs. no)", "log(b + 1)",
        "Age in years, per 5 × Treated: yes (vs. no)",
    ]  # fmt: skip
    assert named["a:g[yes]"].step == named["a"].step == 5
    assert named_coefficients(release, 1)[1].label == "Age in years"
    assert named_coefficients(release, {"a": 2.5})[1].label == "Age in years, per 2.5"
    for wrong, part in (({"c": 1}, "must name a numeric term"), (0, "above 0"), ({"a": float("nan")}, "above 0")):
        with pytest.raises(InputError, match=part):
            named_coefficients(release, wrong)
    assert [step_text(step) for step in (1e6, 1, 0.05)] == ["1,000,000", "1", "0.05"]


def test_where_every_level_has_a_coefficient_none_is_compared(released: Callable[..., dpglm.Release]) -> None:
    columns = {"g": {"type": "categorical", "levels": ["no", "yes"], "reference": "yes", "fill": "no"}}
    without = named_coefficients(released("linear", columns=columns, formula="cost ~ g - 1"))
    assert [each.label for each in without] == ["g: yes", "g: no"]
    with_ = named_coefficients(released("linear", columns=columns, formula="cost ~ g + a"))
    assert [each.label for each in with_][1] == "g: no (vs. yes)"


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_numbers_are_those_of_the_likelihood_and_the_prior(released: Callable[..., dpglm.Release], family: str) -> None:
    """Recomputed from the file's statements, without the summary; the same whatever the seed."""
    release = released(family)
    fit = dpglm.fit(release, seed=1)
    closed = fit.closed
    assert closed is not None
    precision = closed.likelihood.precision + closed.prior.precision
    covariance = np.linalg.inv(precision)
    mean = covariance @ (closed.likelihood.shift + closed.prior.shift)
    matrix, shift = release.design.to_original_units()
    mean, stddev = matrix @ mean + shift, np.sqrt(np.diag(matrix @ covariance @ matrix.T))
    reach = NormalDist().inv_cdf(0.95)
    table = fit.table(prob=0.9)
    ratio = {"logistic": "odds_ratio", "poisson": "rate_ratio", "linear": None}[family]
    for record, m, s, row in zip(table.records, mean, stddev, table.rows, strict=True):
        step = record["per"]
        expected = step * np.array([m, s, m - reach * s, m + reach * s])
        np.testing.assert_allclose([record[k] for k in ("estimate", "sd", "lower", "upper")], expected, rtol=1e-6)
        assert row[1] == interval_text(record["estimate"], record["lower"], record["upper"])
        if ratio and record["coefficient"] != "Intercept":
            np.testing.assert_allclose(record[ratio], np.exp(step * m), rtol=1e-6)
            assert row[2] == ratio_text(record[ratio], record[f"{ratio}_lower"], record[f"{ratio}_upper"])
    assert table == dpglm.fit(release, seed=99).table(prob=0.9)
    frame = fit.summary(prob=0.9)
    np.testing.assert_allclose([r["lower"] / r["per"] for r in table.records], frame["lower"], rtol=1e-12)
    assert [r["clear"] for r in table.records] == frame["significant"].tolist()


def test_digits_are_those_that_the_interval_supports() -> None:
    assert interval_text(0.451, 0.337, 0.5651) == "0.45 (0.34 to 0.57)"
    assert interval_text(-1234.5, -2345.6, -100.0) == "−1,234 (−2,346 to −100)"
    assert interval_text(0.0, 0.0, 0.0) == "0.00 (0.00 to 0.00)"
    assert interval_text(-0.001, -1.0, 1.0) == "0.0 (−1.0 to 1.0)"
    assert interval_text(float("nan"), 0, 1) == "n/a"
    assert ratio_text(1.000031, 1.000022, 1.00004) != "1.00 (1.00 to 1.00)"
    assert ratio_text(float("inf"), 0.0, float("inf")) == "> 1,000 (< 0.001 to > 1,000)"


def test_several_models_stand_side_by_side(released: Callable[..., dpglm.Release]) -> None:
    fits = [dpglm.fit(released(columns=LABELS, formula=f"sick ~ {right}")) for right in ("a + g", "a + b")]
    table = dpglm.compare(*fits, names=["crude", "full"], per={"b": 1})
    cells = {row[0]: row[1:] for row in table.rows}
    assert table.head == ("", "crude: odds ratio", "full: odds ratio")
    assert list(cells) == ["Age in years, per 5", "Treated: yes (vs. no)", "b", "Rows", "Privacy"]
    assert cells["Treated: yes (vs. no)"][1] == cells["b"][0] == ""
    assert cells["Rows"] == ("8,000", "8,000")
    (own,) = (row[2] for row in fits[1].table(per={"b": 1}).rows if row[0] == "b")
    assert cells["b"][1] == own
    assert {record["model"] for record in table.records} == {"crude", "full"}
    for call, part in (
        (lambda: dpglm.compare(fits[0]), "two fits"), (lambda: dpglm.compare(*fits, names=["one"]), "all 2 fits"),
        (lambda: dpglm.compare(fits[0], "fit"), "must be fits"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=part):
            call()


def test_a_release_that_is_not_private_says_so_in_the_table(released: Callable[..., dpglm.Release]) -> None:
    fit = dpglm.fit(released())
    for private, wanted in ((True, "ε = 1, δ = 1e-6"), (False, "NOT PRIVATE")):
        assert wanted in replace(fit, releases=(replace(fit.releases[0], private=private),)).table().caption


def test_hostile_names_stay_text_in_html() -> None:
    rows, tags = texts_of_html(hostile_table().to_html())
    assert tags == {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "small", "br"}
    assert [row[0] for row in rows[1:-1]] == list(HOSTILE)


def test_hostile_names_stay_text_in_markdown() -> None:
    shown = MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"])
    rows, tags = texts_of_html(shown.render(hostile_table().to_markdown()))
    assert tags == {"table", "thead", "tbody", "tr", "th", "td", "p", "br"}
    assert [row[0] for row in rows[1:]][:-1] == list(HOSTILE)[:-1]
    assert rows[-1][0].startswith(HOSTILE[-1])
    assert not re.search(r"https?://|www\.", hostile_table().to_markdown())


def test_hostile_names_stay_text_in_latex() -> None:
    """Read back: what is left after every escape is undone holds no character that TeX would act on."""
    text = hostile_table().to_latex()
    body = text.split(r"\hline")[2].strip().split(" \\\\\n")
    undone = {
        r"\textbackslash{}": "\\", r"\textasciicircum{}": "^", r"\textasciitilde{}": "~", r"\textless{}": "<",
        r"\textgreater{}": ">", r"\textbar{}": "|", r"\textquotedbl{}": '"', r"\$": "$", r"\&": "&", r"\#": "#",
        r"\%": "%", r"\_": "_", r"\{": "{", r"\}": "}", "{[}": "[", "{]}": "]", "{*}": "*", "{-}": "-", "{`}": "`",
        "{'}": "'",
    }  # fmt: skip
    pattern = re.compile("|".join(map(re.escape, sorted(undone, key=len, reverse=True))))
    for line, name in zip(body, HOSTILE, strict=True):
        cell = re.split(r"(?<!\\) & ", line)[0].removesuffix(r" \\")
        assert pattern.sub(lambda found: undone[found[0]], cell) == name
        assert not set(pattern.sub("", cell)) & set("\\{}$&#%_^~[]*\"'")


def test_hostile_names_stay_text_in_a_spreadsheet_and_a_program() -> None:
    table = hostile_table()
    head, *rows = csv.reader(io.StringIO(table.to_csv()))
    assert head == ["coefficient", "estimate"]
    assert [row[0].removeprefix("'") if name[0] in "=@-'" else row[0]
            for row, name in zip(rows, HOSTILE, strict=True)] == list(HOSTILE)  # fmt: skip
    assert not [row[0] for row in rows if row[0][0] in "=+-@"]
    assert rows[0][1] == "-1.0"  # numbers are numbers
    assert [row["coefficient"] for row in json.loads(table.to_json())["rows"]] == list(HOSTILE)


def test_hostile_names_stay_text_in_a_word_document(tmp_path: Path) -> None:
    path = hostile_table().to_docx(tmp_path / "table.docx")
    word = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
    with zipfile.ZipFile(path) as archive:
        parts = {name: ElementTree.fromstring(archive.read(name)) for name in archive.namelist()}
    rows = list(parts["word/document.xml"].iter(f"{word}tr"))
    assert [next("".join(cell.itertext()) for cell in row.iter(f"{word}tc")) for row in rows][1:] == list(HOSTILE)
    types = {part.get("PartName") for part in parts["[Content_Types].xml"]}
    assert "/word/document.xml" in types
    (relation,) = parts["_rels/.rels"]
    assert relation.get("Target") == "word/document.xml"


def test_a_cell_that_is_not_escaped_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpglm.notebook.html.escape", str)
    assert "script" in texts_of_html(hostile_table().to_html())[1]


def test_every_format_by_its_name_and_in_a_notebook(released: Callable[..., dpglm.Release]) -> None:
    table = dpglm.fit(released()).table()
    begins = {"table": "Logistic", "markdown": "Logistic", "latex": r"\begin{table}", "html": "<table>", "json": "{"}
    for kind, text in {**begins, "csv": "coefficient,"}.items():
        assert table.formatted(kind).startswith(text)
    assert table._repr_html_() == table.to_html()
    assert str(table) == table.to_text()
    assert list(table.to_frame()["coefficient"]) == ["Intercept", "a", "b", "g[yes]"]
