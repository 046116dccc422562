"""The page in a real browser: it opens in silence, answers pointer and keyboard, fits a phone, runs nothing foreign."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dpglm
from dpglm.report import charts, sections, svg
from dpglm.report.html import page
from dpglm.report.summary import summarize

LONG = "a_name_without_any_place_where_a_line_could_be_broken_" * 3
SHAPE = {
    "number": {"type": "numeric", "lower": 0, "upper": 9},
    "letters": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
    "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
}
HOSTILE = {
    "<img src=x onerror=window.hacked=1>": SHAPE["number"],
    "' onfocus='window.hacked=3' autofocus='": {
        "type": "categorical",
        "levels": ["\"></svg><iframe srcdoc='x'></iframe>", "<!--", "</script><script>window.hacked=2</script>"],
        "fill": "<!--",
    },
    "sick": {"type": "binary", "levels": ["</title><h1>", "]]>"], "fill": "]]>"},
}
COUNTS = (
    "[...document.querySelectorAll('*')].reduce((all, e) => ({...all, [e.localName]: (all[e.localName] ?? 0) + 1}), {})"
)


@pytest.fixture(scope="module")
def path(make_fit: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dpglm.report(make_fit(), tmp_path_factory.mktemp("page") / "report.html")


def visible(page: Any, selector: str) -> bool:
    return bool(page.evaluate(f"document.querySelector({selector!r}).checkVisibility()"))


def unfold(page: Any) -> None:
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")


def tip(page: Any) -> str:
    """What the tooltip says; empty where it is hidden."""
    return str(
        page.evaluate("(() => { const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent })()")
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_complaint_and_asks_for_nothing(path: Path, open_page: Any, scheme: str) -> None:
    opened = open_page(path, color_scheme=scheme)
    assert opened.complaints() == []
    assert opened.requests() == [path.resolve().as_uri()]
    assert opened.evaluate("document.title") == "sick ~ age + group + treated · dpglm"
    dark = opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    assert dark == (scheme == "dark")


def test_what_the_policy_forbids_is_blocked_and_noticed(path: Path, open_page: Any, tmp_path: Path) -> None:
    planted = "<script>window.hacked = 1</script><img src=missing.png><p style='color: red'></p></main>"
    (tmp_path / "planted.html").write_text(path.read_text().replace("</main>", planted))
    opened = open_page(tmp_path / "planted.html")
    assert len(opened.complaints()) >= 3
    assert opened.evaluate("window.hacked") is None


def test_units_are_switched_by_pointer_and_by_keyboard(path: Path, open_page: Any) -> None:
    opened = open_page(path)
    original, scaled = "#coefficients .in-original", "#coefficients .in-scaled"
    assert visible(opened, original)
    assert not visible(opened, scaled)
    opened.click("#units-scaled")
    assert not visible(opened, original)
    assert visible(opened, scaled)
    opened.evaluate("document.getElementById('units-scaled').focus()")
    opened.press("ArrowLeft")
    assert visible(opened, original)
    unfold(opened)
    for part in ("#densities", "#privacy", "#numbers", "#findings"):
        assert visible(opened, f"{part} .in-original")
        assert not visible(opened, f"{part} .in-scaled")


def test_the_pointer_reads_values(path: Path, open_page: Any) -> None:
    opened = open_page(path)
    assert tip(opened) == ""
    opened.point("#effect-0", across=0.999)
    assert tip(opened).startswith("age = 80\nprobability that sick is yes: 0.")
    opened.point("#effect-0", across=0.001)
    assert tip(opened).startswith("age = 20\n")
    unfold(opened)
    opened.point("#density-1-original")
    assert "% of the posterior lies below" in tip(opened)
    opened.point("#coefficients .row.clear")
    assert tip(opened).startswith("age, per 10\nmean")
    box = opened.evaluate("(() => { const b = document.getElementById('tip').getBoundingClientRect();"
                          " return b.left >= 0 && b.right <= innerWidth && b.top >= 0 })()")  # fmt: skip
    assert box


def test_the_keyboard_reads_values(path: Path, open_page: Any) -> None:
    opened = open_page(path)
    opened.press("Tab")
    opened.evaluate("document.getElementById('effect-0').focus()")
    opened.press("Home")
    assert tip(opened).startswith("age = 20\n")
    opened.press("ArrowRight")
    assert tip(opened).startswith("age = 21.5\n")
    opened.press("End")
    assert tip(opened).startswith("age = 80\n")
    opened.press("Escape")
    assert tip(opened) == ""
    opened.evaluate("document.querySelector('#privacy .row.bar').focus()")
    opened.press("Tab")
    assert "of the width is sampling" in tip(opened)


def test_everything_has_a_name_that_can_be_spoken(path: Path, open_page: Any) -> None:
    opened = open_page(path)
    nodes = opened.send("Accessibility.getFullAXTree")["nodes"]
    wanted = {"image", "img", "radio", "button", "link", "region", "table", "columnheader", "rowheader"}
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    spoken = [(role, name) for role, name in named if role in wanted]
    assert [pair for pair in spoken if not pair[1].strip()] == []
    assert {"radio", "button", "link", "columnheader", "rowheader"} <= {role for role, _ in spoken}
    assert sum("with probability" in name for _, name in spoken) >= 4  # without the intercept
    levels = opened.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => Number(h.localName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("width", [375, 320])
def test_a_phone_never_scrolls_sideways(make_fit: Any, open_page: Any, tmp_path: Path, width: int) -> None:
    columns = {LONG: SHAPE["number"], "letters": {"type": "categorical", "levels": [LONG, "q", "r"], "fill": "q"},
               "sick": SHAPE["sick"]}  # fmt: skip
    for number, fit in enumerate(
        (make_fit("linear"), make_fit(formula=f"sick ~ {LONG} + letters", columns=columns, name=LONG))
    ):
        opened = open_page(dpglm.report(fit, tmp_path / f"{number}.html"), width=width, height=700)
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        opened.click("#units-scaled")
        assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_names_from_a_stranger_stay_text(make_fit: Any, open_page: Any, tmp_path: Path) -> None:
    def formula(columns: dict[str, Any]) -> str:
        return "sick ~ " + " + ".join(f"`{name}`" for name in list(columns)[:2])

    hostile = make_fit(formula=formula(HOSTILE), columns=HOSTILE, name="</script><h1>", unit="<b>one</b>")
    harmless = make_fit(formula=formula(SHAPE), columns=SHAPE)
    expected = open_page(dpglm.report(harmless, tmp_path / "harmless.html")).evaluate(COUNTS)
    opened = open_page(dpglm.report(hostile, tmp_path / "hostile.html"))
    assert opened.evaluate(COUNTS) == expected
    assert opened.complaints() == []
    assert opened.evaluate("window.hacked") is None
    for name in list(HOSTILE)[:1]:
        assert name in opened.evaluate("document.body.textContent")
    opened.point("#effect-0")
    assert tip(opened).startswith("<img src=x onerror=window.hacked=1> = ")
    assert opened.evaluate(COUNTS) == expected


def test_a_name_that_is_not_escaped_would_be_noticed(
    make_fit: Any, open_page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (svg, sections, charts):
        monkeypatch.setattr(module, "escape", str)
    name = next(iter(HOSTILE))
    fit = make_fit(formula=f"sick ~ `{name}`", columns=HOSTILE)
    (tmp_path / "broken.html").write_text(page(summarize(fit)))
    opened = open_page(tmp_path / "broken.html")
    assert opened.evaluate("document.querySelectorAll('img').length") > 0
    assert opened.complaints() != []


def test_a_fit_by_looks_opens_without_complaint(looks_fit: Any, open_page: Any, tmp_path: Path) -> None:
    opened = open_page(dpglm.report(looks_fit(), tmp_path / "looks.html"), width=375, height=700)
    assert opened.complaints() == []
    assert visible(opened, "#people")
    assert opened.evaluate("document.documentElement.scrollWidth") <= 375
    assert "Every check found nothing to worry about." in opened.evaluate("document.body.textContent")
    unfold(opened)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 375
    opened.point("#effect-0", across=0.001)
    age = float(tip(opened).split("\n")[0].removeprefix("age = "))
    assert 5 < age < 30  # not the declared bound, which is 1


def test_it_prints(path: Path, open_page: Any) -> None:
    opened = open_page(path, color_scheme="dark")
    printed = opened.pdf()
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") in range(3, 12)
    opened.send("Emulation.setEmulatedMedia", media="print")
    assert not visible(opened, ".units")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


OUTSIDE = (
    "[...document.querySelectorAll('body *')].filter(e => { const b = e.getBoundingClientRect();"
    " return b.width > 1 && b.height > 1 && !e.closest('.skip, thead, .units input')"
    " && (b.right > innerWidth + 1 || b.left < -1) })"
    ".map(e => e.outerHTML.slice(0, 90))"
)
CUT = (
    "[...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1"
    " && getComputedStyle(e).overflowX !== 'visible' && e.localName !== 'legend').map(e => e.outerHTML.slice(0, 90))"
)
# Every text that can be seen, its colour against what is behind it, as WCAG defines the ratio.
FAINT = """(() => {
  const parts = (text) => {
    const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 && n[3] === 0 ? null : n; };
  const light = (n) => n.slice(0, 3).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) {
    const found = parts(getComputedStyle(e).backgroundColor); if (found) return found; } return [255, 255, 255]; };
  const faint = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility()) continue;
    if (['SCRIPT', 'STYLE'].includes(e.tagName)) continue;
    const own = getComputedStyle(e), color = parts(e.closest('svg') ? own.fill : own.color);
    const [a, b] = [light(color), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faint.push(e.outerHTML.slice(0, 90) + ' ' + ratio.toFixed(2));
  }
  return faint;
})()"""


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_cut_off_at_any_width(
    make_fit: Any, looks_fit: Any, open_page: Any, tmp_path: Path, width: int
) -> None:
    """Folded and unfolded, in either units; tables too: none has to be scrolled."""
    levels = [f"a level with a rather long name, number {n}" for n in range(12)]
    columns = {
        LONG: {**SHAPE["number"], "label": "A label that goes on for longer than one would wish " * 3},
        "letters": {"type": "categorical", "levels": levels, "fill": levels[0], "label": "Letters"},
        "sick": SHAPE["sick"],
    }
    long = make_fit(formula=f"sick ~ {LONG} * letters", columns=columns)
    for number, fit in enumerate((looks_fit(), looks_fit("poisson"), long)):
        opened = open_page(dpglm.report(fit, tmp_path / f"{number}.html"), width=width, height=800)
        for _ in range(2):
            assert opened.evaluate(OUTSIDE) == []
            assert opened.evaluate(CUT) == []
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
            unfold(opened)
            opened.click("#units-scaled")
        assert opened.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(looks_fit: Any, open_page: Any, tmp_path: Path, scheme: str) -> None:
    opened = open_page(dpglm.report(looks_fit(), tmp_path / "looks.html"), color_scheme=scheme)
    unfold(opened)
    assert opened.evaluate(FAINT) == []
    opened.evaluate(
        "document.querySelector('h2').setAttribute('class', 'faint');"
        "document.styleSheets[0].insertRule('.faint { color: #777 !important; background: #888 }')"
    )
    assert len(opened.evaluate(FAINT)) == 1


def test_what_is_folded_opens_by_keyboard_and_is_printed(looks_fit: Any, open_page: Any, tmp_path: Path) -> None:
    opened = open_page(dpglm.report(looks_fit(), tmp_path / "looks.html"), width=390, height=800)
    assert not visible(opened, "#density-1-original")
    opened.evaluate("document.querySelector('#densities summary').focus()")
    opened.press("Enter")
    assert visible(opened, "#density-1-original")
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.evaluate("[...document.querySelectorAll('details')].every(each => each.open)")


def test_the_table_to_paste_is_copied_as_a_table(looks_fit: Any, open_page: Any, tmp_path: Path) -> None:
    opened = open_page(dpglm.report(looks_fit(), tmp_path / "looks.html"))
    opened.click("button[data-copy=paste]")
    opened.settle()
    assert opened.evaluate("document.querySelector('button[data-copy=paste]').textContent") in (
        "Copied", "Selected: press Ctrl+C",
    )  # fmt: skip
    assert "age, per 10" in opened.evaluate("getSelection().toString()")


def test_in_print_nothing_is_cut_off(looks_fit: Any, open_page: Any, tmp_path: Path) -> None:
    """At the width of a sheet, less its margins."""
    opened = open_page(dpglm.report(looks_fit(), tmp_path / "looks.html"), width=718, height=1000)
    opened.send("Emulation.setEmulatedMedia", media="print")
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.evaluate(OUTSIDE) == []
    wide = "e => e.getBoundingClientRect().right > e.parentElement.getBoundingClientRect().right + 1"
    assert opened.evaluate(f"[...document.querySelectorAll('.row .sign')].filter({wide}).length") == 0
