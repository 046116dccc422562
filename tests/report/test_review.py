"""The statement for a review board: true to the files, quiet in a browser, and whatever a schema calls its columns."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

import dpglm
from dpglm.cli import main
from dpglm.review import page as review_page
from dpglm.review.facts import facts_of
from dpglm.review.page import statement_page
from dpglm.review.registry import record
from dpglm.review.words import down, up

# The fields of the registry (its schema of July 2026) by part; every one that is written must be among them.
REGISTRY = {
    "basic": "name data_curators intended_use data_product_type data_product_region description publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details data_source_type"
    " data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources notes registry_authors",
}
SCHEMA = {
    "dataset": {"name": "patients-2024", "rows": 3000, "unit": "one patient"},
    "columns": {
        "age": {"type": "numeric", "lower": 0, "upper": 120},
        "group": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
        "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    },
}
EVIL = "</title><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
CONTRASTS = """(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const part = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(v => part(v / 255))
    .reduce((all, v, i) => all + v * [.2126, .7152, .0722][i], 0);
  const under = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c } return [255, 255, 255] };
  return Math.min(...[...document.querySelectorAll('body *')].filter(e => e.innerText && e.checkVisibility()).map(e => {
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(under(e))].sort((x, y) => y - x);
    return (a + .05) / (b + .05) }));
})()"""


def table_of(columns: dict[str, Any]) -> pd.DataFrame:
    """Any rows that fit."""
    generator = np.random.default_rng(4)
    cells = {}
    for name, column in columns.items():
        if "levels" in column:
            cells[name] = generator.choice(np.array(column["levels"], dtype=object), 3000)
        else:
            cells[name] = generator.uniform(20, 80, 3000)
    return pd.DataFrame(cells)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two finished releases, and one that was charged and never finished."""

    schema = dpglm.Schema.from_dict(SCHEMA)
    book = dpglm.Ledger.create(tmp_path_factory.mktemp("l") / "p.ledger", schema.dataset, epsilon=3, delta=1e-6)
    for formula, epsilon in (("sick ~ age + group", 1.0), ("sick ~ age", 0.5)):
        dpglm.release(
            table_of(SCHEMA["columns"]), formula, schema=schema, family="logistic", epsilon=epsilon, delta=1e-6,
            ledger=book,
        )  # fmt: skip
    book.spend(release_id="begun", mu_squared=0.01, description={"formula": "sick ~ group"})
    return book


@pytest.fixture(scope="module")
def release(ledger: Any) -> dpglm.Release:
    from dpglm.release_file import read_release

    return read_release(ledger.export())


@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_complaint_and_fits(
    ledger: Any, open_page: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    path, _ = dpglm.review_statement(ledger, tmp_path / "s.html")
    opened = open_page(path, width=width, height=900, color_scheme=scheme)
    assert opened.complaints() == []
    assert opened.requests() == [path.resolve().as_uri()]
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
    assert opened.evaluate(CONTRASTS) >= 4.5


def test_it_prints_and_is_spoken(release: dpglm.Release, open_page: Any, tmp_path: Path) -> None:
    opened = open_page(dpglm.review_statement(release, tmp_path / "s.html")[0], color_scheme="dark")
    assert opened.pdf().count(b"/Type /Page\n") in (2, 3)
    assert opened.evaluate("[...document.querySelectorAll('h1,h2')].map(h => h.localName)")[0] == "h1"
    nodes = opened.send("Accessibility.getFullAXTree")["nodes"]
    roles = [(each["role"]["value"], each.get("name", {}).get("value")) for each in nodes if not each["ignored"]]
    assert [pair for pair in roles if pair[0] in ("region", "table", "columnheader") and not pair[1]] == []


def test_names_from_a_stranger_stay_text(open_page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    columns = {EVIL: SCHEMA["columns"]["age"], "sick": {"type": "binary", "levels": [EVIL, "b"], "fill": "b"}}
    schema = dpglm.Schema.from_dict({"dataset": {"name": EVIL, "rows": 3000, "unit": EVIL}, "columns": columns})
    made = dpglm.release(
        table_of(columns), f"sick ~ `{EVIL}`", schema=schema, family="logistic", epsilon=1, delta=1e-6,
        ledger=None,
    )  # fmt: skip
    path, _ = dpglm.review_statement(made, tmp_path / "s.html", curator=EVIL, use=EVIL, region=EVIL)
    opened = open_page(path, width=390)
    assert opened.complaints() == []
    assert opened.evaluate("[document.images.length, document.scripts.length, window.hacked ?? 0]") == [0, 0, 0]
    assert EVIL in opened.evaluate("document.querySelector('h1').textContent")
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    monkeypatch.setattr(review_page, "escape", str)  # a planted bug
    facts = facts_of(made)
    (tmp_path / "broken.html").write_text(
        statement_page(facts, record(facts, curator=None, use=None, region=None))
    )  # fmt: skip
    broken = open_page(tmp_path / "broken.html")
    assert broken.evaluate("document.scripts.length + document.images.length") > 0
    assert broken.complaints() != []


def test_the_numbers_are_those_of_the_release_and_of_the_ledger(release: dpglm.Release, ledger: Any) -> None:
    for source, epsilon, delta, mu in (
        (release, release.privacy.epsilon, release.privacy.delta, release.privacy.mu),
        (ledger, ledger.summary().spent_epsilon, 1e-6, math.hypot(*(entry.mu for entry in ledger.entries()))),
    ):
        facts = facts_of(source)
        made = record(facts, curator=None, use=None, region=None)
        text = re.sub("<[^>]+>", " ", statement_page(facts, made))
        parameters = made["deployment"]["privacy_loss"]["privacy_parameters"]
        assert parameters["epsilon"] == epsilon
        assert parameters["delta"] == delta
        assert parameters["rho"] == pytest.approx(mu**2 / 2)
        assert f"e^{up(epsilon)} = {math.exp(epsilon):.3g} times" in text
        guess = float(re.search(r"right at most\s+([\d.]+) times in 100", text)[1]) / 100
        assert 0 <= guess - NormalDist().cdf(mu / 2) < 0.0011
        for before in (0.01, 0.1, 0.5, 0.9):
            odds = math.exp(epsilon) * before / (1 - before)
            after = float(re.search(rf"{100 * before:g} %\s+at most ([\d.]+) %", text)[1]) / 100
            assert 0 <= after - odds / (1 + odds) < 0.0011
        for each in facts.releases:
            assert each.formula in text
            assert json.loads(each.to_json())["checksum"] in text
    assert "not finished; charged all the same" in text
    assert f"left for one more release ε = {down(ledger.summary().remaining_epsilon)}" in re.sub(r"\s+", " ", text)


def test_the_record_has_the_registrys_fields(release: dpglm.Release, ledger: Any, tmp_path: Path) -> None:
    _, beside = dpglm.review_statement(
        ledger, tmp_path / "s.html", curator="St. Mary's", use="Care research", region="Wales"
    )  # fmt: skip
    made = json.loads(beside.read_text())
    assert (made["status"], made["tier"], made["url_slug"]) == ("Draft", 3, "patients-2024")
    for part, fields in made["deployment"].items():
        assert set(fields) <= set(REGISTRY[part].split())
    assert set(made["deployment"]) == set(REGISTRY)
    basic = made["deployment"]["basic"]
    assert set(basic) == set(REGISTRY["basic"].split())
    assert (basic["data_curators"], basic["data_product_region"]) == (["St. Mary's"], "Wales")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", basic["publication_date"])
    assert made["deployment"]["deployment_model"]["release_type"] == "Many releases"
    page, beside = dpglm.review_statement(release, tmp_path / "one.html")
    assert "deployment.basic.intended_use" in page.read_text()
    assert json.loads(beside.read_text())["deployment"]["deployment_model"]["release_type"] == "One release"


@hypothesis.given(st.floats(1e-9, 1e9))
def test_a_promise_is_never_rounded_to_a_better_one(number: float) -> None:
    assert float(down(number)) <= number <= float(up(number))
    assert float(up(number)) <= 1.001 * number


def test_what_a_board_must_see_first_is_said(release: dpglm.Release) -> None:
    def told(changed: dpglm.Release) -> str:
        facts = facts_of(changed)
        return statement_page(facts, record(facts, curator=None, use=None, region=None))

    assert "Read this first" not in told(release)
    fixed = told(replace(release, private=False))
    assert "NOT PRIVATE" in fixed
    assert "No row, and no exact number" not in fixed
    privacy = release.privacy
    assert "for some row altogether" in told(replace(release, privacy=replace(privacy, delta=0.001)))
    assert "promises little by itself" in told(replace(release, privacy=replace(privacy, epsilon=12.0)))
    assert "There was no ledger" in told(replace(release, ledger=None))


def test_a_private_number_of_rows_is_another_promise() -> None:
    declared = {**SCHEMA, "dataset": {"name": "p", "unit": "one patient", "neighbours": "added-or-removed"}}
    made = dpglm.release(
        table_of(SCHEMA["columns"]), "sick ~ age", schema=dpglm.Schema.from_dict(declared), family="logistic",
        epsilon=1, delta=1e-6, ledger=None,
    )  # fmt: skip
    facts = facts_of(made)
    text = statement_page(facts, record(facts, curator=None, use=None, region=None))
    assert "any one row added or left out" in text
    assert "it bounds that by e^2 only" in text
    assert "whether that one is there at all" in text
    assert "3,000" not in text
    assert "replaced by any other content" not in text


def test_an_empty_ledger_says_that_nothing_was_released(tmp_path: Path) -> None:
    book = dpglm.Ledger.create(
        tmp_path / "l.ledger", dpglm.Schema.from_dict(SCHEMA).dataset, epsilon=1, delta=1e-6
    )  # fmt: skip
    page, _ = dpglm.review_statement(book, tmp_path / "s.html")
    assert "Nothing of “patients-2024” has been released." in page.read_text()


def test_the_command_writes_both_and_replaces_nothing_else(
    ledger: Any, release: dpglm.Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(word) for word in ("statement", *words)])
        return int(stopped.value.code or 0), "".join(capsys.readouterr())

    release.save(tmp_path / "r.json")
    assert run(ledger.path, "--output", tmp_path / "l.html", "--json")[0] == 0
    assert run(tmp_path / "r.json", "--output", tmp_path / "a.html")[0] == 0
    assert (tmp_path / "a.json").exists()
    code, said = run(tmp_path / "r.json", "--output", tmp_path / "a.html")
    assert code == 1
    assert "exists already" in said
    assert run(tmp_path / "r.json", "--output", tmp_path / "a.html", "--force")[0] == 0
    code, said = run(tmp_path / "r.json", "--output", tmp_path / "r.html", "--force")  # its record would replace it
    assert code == 1
    assert dpglm.load_release(tmp_path / "r.json").id == release.id
    with pytest.raises(dpglm.FileError, match="is a release"):
        dpglm.review_statement(release, tmp_path / "r.html", overwrite=True)
    code, said = run(tmp_path / "a.html", "--output", tmp_path / "b.html")
    assert code == 1
    assert said.count("\n") == 1
    with pytest.raises(dpglm.InputError, match="must be a Release or a Ledger"):
        dpglm.review_statement("r.json", tmp_path / "c.html")
