"""The page as text: it holds what it should, escapes what a stranger wrote, and is written whole or not at all."""

from __future__ import annotations

import html.parser
import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import dpglm
from dpglm import formats
from dpglm.analyst.labels import named_coefficients
from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior
from dpglm.errors import FileError, InputError
from dpglm.release_file import _checksum, read_release
from dpglm.report import charts, people, sections, svg
from dpglm.report.html import page, safe_json
from dpglm.report.summary import summarize

SHAPE = {
    "number": {"type": "numeric", "lower": 0, "upper": 9},
    "letters": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
    "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
}
HOSTILE = {
    "column": "<img src=x onerror=window.hacked=1>",
    "level": '"><script>window.hacked=2</script>',
    "quote": "' onfocus='window.hacked=3' autofocus='",
    "comment": "<!--",
    "name": "</script><script>window.hacked=4</script>",
    "unit": "one <b>person</b> & more",
}


def hostile_fit(make_fit: Any) -> dpglm.Fit:
    columns = {
        HOSTILE["column"]: SHAPE["number"],
        HOSTILE["quote"]: {"type": "categorical", "levels": [HOSTILE["level"], HOSTILE["comment"], "$style"],
                           "fill": "$style"},
        "sick": {"type": "binary", "levels": ["]]>", "</title>"], "fill": "]]>"},
    }  # fmt: skip
    formula = f"sick ~ `{HOSTILE['column']}` + `{HOSTILE['quote']}`"
    return make_fit(formula=formula, columns=columns, name=HOSTILE["name"], unit=HOSTILE["unit"])  # type: ignore[no-any-return]


class Elements(html.parser.HTMLParser):
    """Names of all elements, and of all attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_every_part_is_there(make_fit: Any, family: str) -> None:
    fit = make_fit(family)
    text = page(summarize(fit))
    release = fit.releases[0]
    for part in ("In short", "Coefficients", "What the model predicts", "How much of the width is privacy", "R-hat"):
        assert part in text
    for each in named_coefficients(release):
        assert text.count(svg.escape(each.name)) >= 2
        assert each.name == "Intercept" or text.count(svg.escape(each.label)) >= 4
    for fact in (release.id, json.loads(release.to_json())["checksum"], "--seed 1", "ε = <b>1, δ = 1e-6<", "dpglm fit"):
        assert fact in text
    assert svg.escape(release.statement) in text
    assert "NOT PRIVATE" not in text
    assert len(text.encode()) < 200_000


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_a_fit_by_looks_says_what_looks_say(looks_fit: Any, family: str) -> None:
    fit = looks_fit(family)
    text = page(summarize(fit))
    for part in (
        "Agreement of looks", "Who is in the table", "a survey and 5 looks", "this very table", "in closed form",
        f"Bayesian {fit.releases[0].design.family.regression} with {fit.link} link", "Columns are in standard units",
        "as far as two scales to each side of its centre",
    ):  # fmt: skip
        assert part in text
    for part in (
        "R-hat",
        "effective draws",
        "sampler",
        "numpyro",
        "jax",
        "--chains",
        "--method",
        "declared bounds, plus",
    ):
        assert part not in text.split("</style>")[1].replace("elliptical slice sampling", "")
    assert "dpglm fit" in text
    assert "--seed 1" in text
    assert len(text.encode()) < 200_000


def test_who_is_in_the_table_is_the_survey_with_its_noise(make_fit: Any, looks_fit: Any) -> None:
    fit = looks_fit()
    survey = fit.releases[0].survey
    section = page(summarize(fit)).split('id="people"')[1].split("</section>")[0]
    (share,) = survey.loc[(survey["column"] == "group") & (survey["level"] == "q"), "share"]
    (noise,) = survey.loc[(survey["column"] == "group") & (survey["level"] == "q"), "noise"]
    assert formats.noisy_share(share, noise) in section
    assert abs(share - 1 / 3) < 0.1
    for name in ("sick", "age", "group", "treated"):
        assert f'<th scope="row">{name}</th>' in section
    for level in ("yes", "q", "1"):
        assert f'<th scope="row" class="level-name">{level}</th>' in section
    assert "Who is in the table" not in page(summarize(make_fit()))


def test_a_share_is_never_outside_what_a_share_can_be() -> None:
    assert formats.noisy_share(-0.01, 0.02) == "0.0 % ± 3.9"
    assert formats.noisy_share(1.03, 0.02) == "100.0 % ± 3.9"
    assert formats.noisy_share(0.123, 0.06) == "12 % ± 12"
    assert people.rounded(51.63, 13.0) == "51.6"
    assert people.rounded(1234.06, 2.0) == "1,234.1"
    assert people.rounded(-4e-9, 13.0) == "0.0"


def test_another_prior_is_told_of_looks_too(looks_fit: Any) -> None:
    again = dpglm.fit(looks_fit().releases[0], prior=SphericalPrior(9.0), seed=1)
    text = page(summarize(again))
    assert "elliptical slice sampling" in text
    assert "dpglm.SphericalPrior(largest_squared_norm=9.0" in svg.html.unescape(text)


def test_a_release_that_is_not_private_cannot_be_overlooked(make_fit: Any) -> None:
    fit = make_fit()
    text = page(summarize(replace(fit, releases=(replace(fit.releases[0], private=False),))))
    assert text.count("NOT PRIVATE") == 3  # on top, in the promise, above the table to paste
    assert "which is NOT private" in text
    assert "Do not publish this page" in text


def test_nothing_is_loaded_and_only_the_pages_own_script_may_run(make_fit: Any) -> None:
    text = page(summarize(make_fit()))
    assert not re.search(r"""(?:src|href)=["'](?!#)""", text)
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    assert " style=" not in text.split("</style>")[1]  # the policy would block it


def test_hostile_names_add_no_element_and_no_attribute(make_fit: Any) -> None:
    fit = hostile_fit(make_fit)
    plain = make_fit(formula="sick ~ number + letters", columns=SHAPE)
    found, expected = Elements(page(summarize(fit))), Elements(page(summarize(plain)))
    assert sorted(found.tags) == sorted(expected.tags)
    assert found.attributes == expected.attributes


def test_the_comparison_above_notices_a_name_that_is_not_escaped(
    make_fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Elements(page(summarize(make_fit(formula="sick ~ number + letters", columns=SHAPE))))
    for module in (svg, sections, charts):
        monkeypatch.setattr(module, "escape", str)
    found = Elements(page(summarize(hostile_fit(make_fit))))
    assert "img" in found.tags
    assert "onerror" in found.attributes
    assert sorted(found.tags) != sorted(expected.tags)


@pytest.mark.parametrize("text", ["</script>", "<!--", "<script", "\u2028\u2029", "&lt;", "]]>", '"\\'])
def test_data_cannot_leave_its_element(text: str) -> None:
    written = safe_json({text: [text]})
    assert json.loads(written) == {text: [text]}
    assert written.isascii()
    assert not set("<>&") & set(written)


def test_data_of_the_page_is_what_was_drawn(make_fit: Any) -> None:
    fit = make_fit()
    summary = summarize(fit)
    text = page(summary)
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    age = data["density-1-original"]
    assert age["name"] == "age, per 10"
    assert age["low"] < age["high"]
    assert np.all(np.diff(age["below"]) >= 0)
    along = data["effect-0"]
    assert (along["low"], along["high"]) == (20, 80)
    expected = fit.predict({"age": [20, 80], "group": ["p", "p"], "treated": [0, 0]})
    np.testing.assert_allclose([along["mean"][0], along["mean"][-1]], expected["mean"], rtol=1e-4)


def test_two_releases_and_other_priors_are_shown(make_fit: Any) -> None:
    fit = make_fit()
    release = fit.releases[0]
    text = page(summarize(replace(fit, releases=(release, replace(release, id="another")))))
    assert "this very table" not in text
    own = page(summarize(replace(fit, table_coefficients=fit.coefficients + 0.1)))
    assert "this very table" in own
    assert Elements(own).tags.count("table") == 5
    assert "another" in text
    spherical = page(summarize(replace(fit, prior=SphericalPrior(9.0))))
    assert "spherical prior" in spherical
    assert "dpglm.SphericalPrior(largest_squared_norm=9.0" in svg.html.unescape(spherical)
    custom = page(summarize(replace(fit, prior=CustomPrior((("age", "<Laplace>"),)))))
    assert "&lt;Laplace&gt;" in custom
    truncated = page(summarize(replace(fit, prior=CustomPrior((("age", dist.TruncatedNormal(0, 1, low=0)),)))))
    assert "age: LeftTruncatedDistribution(Normal(loc=0, scale=1), low=0)" in truncated
    code = "numpyro.distributions.LeftTruncatedDistribution(numpyro.distributions.Normal(loc=0, scale=1), low=0)"
    assert code in truncated
    assert eval(code, {"numpyro": numpyro}).low == 0
    assert "The prior is not drawn" in custom


def test_odd_fits_still_give_a_page(make_fit: Any) -> None:
    fit = make_fit()
    constant = replace(fit, coefficients=np.ones_like(fit.coefficients))
    unknown = replace(fit, inflation=np.full_like(fit.inflation, np.nan))
    one_chain = replace(fit, diagnostics=replace(fit.diagnostics, r_hat=np.full(len(fit.names), np.nan)))
    laplace = replace(fit, method="laplace", diagnostics=replace(fit.diagnostics, pareto_k=0.9, mode_converged=False))
    ignoring = replace(fit, options={**fit.options, "noise_aware": False, "moments": "taylor"})
    for odd, part in (
        (constant, "1.00"), (unknown, "could not be worked out"), (one_chain, "run four"), (laplace, "use NUTS"),
        (ignoring, "noise_aware=False"),
    ):  # fmt: skip
        text = page(summarize(odd))
        assert part in text
        assert "nan" not in re.sub(r"<style>.*?</style>|<script.*?</script>", "", text, flags=re.S).lower()


def test_the_largest_model_stays_below_two_megabytes(make_fit: Any) -> None:
    columns: dict[str, Any] = {f"column_{i}": {"type": "numeric", "lower": -1, "upper": 1} for i in range(150)}
    columns["sick"] = {"type": "binary", "levels": ["no", "yes"], "fill": "no"}
    formula = "sick ~ " + " + ".join(list(columns)[:-1])
    fit = make_fit(formula=formula, columns=columns, rows=200)
    assert len(page(summarize(fit)).encode()) < 2_000_000


def test_writing(make_fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = make_fit()
    path = tmp_path / "report.html"
    assert dpglm.report(fit, path) == path
    first = path.read_bytes()
    with pytest.raises(FileError, match="exists already"):
        dpglm.report(fit, path)
    dpglm.report(fit, str(path), prob=0.5, overwrite=True)
    assert path.read_bytes() != first
    with pytest.raises(FileError, match="ordinary"):
        dpglm.report(fit, tmp_path, overwrite=True)
    with pytest.raises(FileError, match="cannot be written"):
        dpglm.report(fit, tmp_path / "absent" / "report.html")
    with pytest.raises(InputError, match="must be a Fit"):
        dpglm.report("fit", path)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must name a predictor"):
        dpglm.report(fit, tmp_path / "other.html", at={"agee": 1})
    with pytest.raises(InputError, match=r"must lie in \[20, 80\]"):
        dpglm.report(fit, tmp_path / "other.html", at={"age": 200})
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(FileError, match="No space left"):
        dpglm.report(fit, tmp_path / "other.html")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_saved_fit_gives_the_same_page(make_fit: Any, tmp_path: Path) -> None:
    fit = make_fit("linear")
    fit.save(tmp_path / "fit.npz")
    dpglm.report(fit, tmp_path / "one.html")
    dpglm.report(dpglm.load_fit(tmp_path / "fit.npz"), tmp_path / "two.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def contrast(one: str, two: str) -> float:
    """Ratio of relative luminances, as WCAG defines it."""

    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_enough_contrast(scheme: int) -> None:
    text = files("dpglm.report").joinpath("page.css").read_text()
    block = re.findall(r":root \{(.*?)\}", text, re.S)[scheme]
    color = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    pairs = [
        ("text", "page"), ("text", "card"), ("soft", "page"), ("soft", "card"), ("soft", "grid"), ("text", "chip"),
        ("posterior", "card"), ("posterior", "chip"), ("posterior", "grid"), ("good", "card"), ("bad", "card"),
        ("bad", "bad-fill"), ("text", "bad-fill"), ("page", "text"),
    ]  # fmt: skip
    assert {pair: round(contrast(color[pair[0]], color[pair[1]]), 2) for pair in pairs
            if contrast(color[pair[0]], color[pair[1]]) < 4.5} == {}  # fmt: skip
    assert contrast("#777777", "#ffffff") < 4.5  # a grey that just fails
    # What is drawn rather than read needs 3.
    assert contrast(color["prior"], color["card"]) > 3
    assert contrast(color["privacy"], color["card"]) > 3
    assert contrast(color["posterior"], color["privacy-fill"]) > 3


def test_levels_and_numbers_share_one_scale(looks_fit: Any) -> None:
    """Zero is at one place in all rows, of either units, and the widest interval spans most of it."""
    forest = page(summarize(looks_fit())).split('id="coefficients"')[1].split("</section>")[0]
    for part in forest.split('<div class="in-')[1:]:
        places = set(re.findall(r'class="zero" x1="([\d.]+%)"', part))
        assert len(places) == 1
        spans = [float(b) - float(a) for a, b in re.findall(r'class="outer" x1="([\d.]+)%" x2="([\d.]+)%"', part)]
        assert max(spans) > 40


def test_an_interval_that_leaves_the_scale_ends_in_an_arrow(make_fit: Any) -> None:
    fit = make_fit()
    generator = np.random.default_rng(3)
    spread = np.array([0.1, 0.1, 0.1, 0.1, 30.0])
    wild = replace(fit, coefficients=spread * generator.normal(size=(4, 500, 5)))
    forest = charts.forest(summarize(wild))
    assert "◂" in forest
    assert "▸" in forest
    assert "◂" not in charts.forest(summarize(fit))
    assert "&lt; 0.001 to &gt; 1,000<" in charts.forest(summarize(wild))


def test_labels_of_the_schema_are_what_the_page_says(make_fit: Any) -> None:
    columns = {
        "number": {**SHAPE["number"], "upper": 60_000, "label": "Income in $"},
        "letters": {"type": "binary", "levels": ["Male", "Female"], "fill": "Male", "label": "Sex"},
        "sick": {**SHAPE["sick"], "label": "Illness"},
    }
    fit = make_fit(formula="sick ~ number + letters", columns=columns)
    text = page(summarize(fit))
    assert "How does Illness (yes rather than no) depend on Income in $ and Sex?" in text
    assert "Income in $, per 10,000" in text
    section = text.split('id="findings"')[1].split("</section>")[0]
    assert "lower with" not in section
    assert re.search(r"where Sex is Female than where it is Male|For Sex: Female \(vs. Male\)", section)


def test_a_long_model_is_folded(make_fit: Any) -> None:
    """Half of it is not in sight, and all of it is there."""
    columns = {
        "letters": {"type": "categorical", "levels": [f"level {n}" for n in range(40)], "fill": "level 0"},
        "sick": SHAPE["sick"],
    }
    fit = make_fit(formula="sick ~ letters", columns=columns)
    text = page(summarize(fit))
    for words in ("Show 29 more coefficients", "Show 34 more coefficients", "Show 34 more levels", "Show 40 curves"):
        assert words in text
    assert text.count("level 39") >= 6


def test_checks_speak_of_what_the_warnings_speak_of(looks_fit: Any) -> None:
    """Missing values, rare levels, a prior that decides: one after the other, and no other."""
    fit = looks_fit()
    (release,) = fit.releases
    record, survey = release.survey_record, release.survey_record.survey
    lost = replace(survey, missing=(*survey.missing[:-1], 0.4 * release.num_rows))
    place = survey.places[2]
    rare = replace(survey, places=(*survey.places[:2], replace(place, shares=(0.6, 0.4, 0.0)), *survey.places[3:]))
    unseen = replace(survey, problems=("age: is constant",))

    def of(changed: Any) -> Any:
        return replace(fit, releases=(replace(release, survey_record=replace(record, survey=changed)),))

    for odd, label, part in (
        (of(lost), "Missing values", "40 % of its cells hold no value, and each was taken for 0"),
        (of(rare), "Rare levels, unseen scales", "cannot tell whether any row has r"),
        (of(unseen), "Rare levels, unseen scales", "age: is constant"),
        (replace(fit, predictor_stddev=9.0), "Spread of the linear predictor", "all but decided"),
        (replace(fit, prior=NormalPrior(slopes=1e-3)), "What the prior decides", "a compromise that few would share"),
    ):
        bad = [each for each in summarize(odd).health if not each.good]
        assert [each.label for each in bad] == [label]
        assert part in bad[0].words
        assert any(part in message for message in odd.warnings)
        text = page(summarize(odd))
        assert "1 of 7 checks asks for a second look" in text


def test_a_page_by_looks_escapes_labels_too(looks_fit: Any) -> None:
    """Labels, levels and the survey's table: nothing of them becomes an element or an attribute."""
    fit = looks_fit()
    (release,) = fit.releases
    text = json.loads(release.to_json())
    hostile = "\"><script>window.hacked=2</script><img src=x onerror='x'>"

    def named(columns: dict[str, Any], label: str) -> None:
        for column in columns.values():
            column["label"] = label

    pages = []
    for label in ("harmless", hostile):
        named(text["regression"]["declared_columns"], label)
        named(text["survey"]["declared_columns"], label)
        text["checksum"] = _checksum(text)
        pages.append(Elements(page(summarize(dpglm.fit(read_release(json.dumps(text), "a release"), seed=1)))))
    assert pages[0].tags == pages[1].tags
    assert pages[0].attributes == pages[1].attributes
