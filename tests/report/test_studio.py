"""The studio in a real browser, from the header to a release and its statement, and against strangers."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.cli import main
from dpglm.studio import app as studio_app
from dpglm.studio.guard import Guard
from dpglm.studio.serve import bound, first_walk, studio_server

ROWS = 2000
SECRET_CELL = "a text that stands in one row"
EVIL = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>'\""


@dataclass
class Running:
    """A studio that serves, for a test."""

    address: str
    port: int
    folder: Path

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
        """A raw request; headers are exactly those given, and a host."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": f"127.0.0.1:{self.port}"} | given).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders((body or "").encode())
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    @property
    def secret(self) -> str:
        return self.address.split("/")[3]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    servers = []

    def started(columns: dict[str, Any] | None = None, **options: Any) -> Running:
        generator = np.random.default_rng(5)
        table = pd.DataFrame(
            {
                "age": generator.uniform(20, 80, ROWS).round(2),
                "smoker": generator.choice(["never", "now"], ROWS),
                "sick": generator.choice(["no", "yes"], ROWS),
                "name": "nobody",
            }
            | (columns or {})
        )
        table["smoker"] = table["smoker"].astype(object)
        table.loc[7, "smoker"] = SECRET_CELL
        table.loc[8, "age"] = 777.123
        table.to_csv(tmp_path / "patients.csv", index=False)
        walk = first_walk(str(tmp_path / "patients.csv"), tmp_path, options.get("schema"), None)
        listening = bound(0)
        server, address = studio_server(walk, listening)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return Running(address, listening.getsockname()[1], tmp_path)

    yield started
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


def fill(page: Any, **fields: str) -> None:
    for name, value in fields.items():
        page.evaluate(
            f"(() => {{ const e = document.getElementsByName({json.dumps(name.replace('__', '-'))})[0];"
            f" e.value = {json.dumps(value)}; }})()"
        )


def submit(page: Any, selector: str = "main form button") -> None:
    """Click, and wait for the page that answers."""
    page.browser.events.clear()
    page.click(selector)
    page.browser.wait_for("Page.loadEventFired", page.session)


def go(page: Any, address: str) -> None:
    page.browser.events.clear()
    page.send("Page.navigate", url=address)
    page.browser.wait_for("Page.loadEventFired", page.session)


def heading(page: Any) -> str:
    return str(page.evaluate("document.querySelector('h1').textContent"))


def text(page: Any) -> str:
    return str(page.evaluate("document.body.textContent"))


def settled(page: Any, width: int) -> None:
    assert page.complaints() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def to_the_budget(page: Any, width: int = 1280) -> None:
    fill(page, rows=str(ROWS), unit="one patient", type__0="numeric", type__1="categorical", type__2="binary")
    submit(page)
    assert heading(page) == "Bounds and levels"
    fill(page, lower__0="0", upper__0="120", levels__1="never\nnow", levels__2="no\nyes")
    submit(page)
    assert heading(page) == "Schema"
    submit(page)
    assert heading(page) == "Question"
    for chosen in ("outcome-1", "outcome-2", "predictor-0", "predictor-1"):
        page.evaluate(f"document.getElementById({chosen!r})?.click()")
    page.evaluate("[...document.getElementsByName('outcome')].find(e => e.value == 'sick').click()")
    submit(page)
    assert heading(page) == "Budget"


def spent(running: Running) -> int:
    file = running.folder / "patients.ledger"
    return len({entry.release_id for entry in dpglm.Ledger.open(file).entries()}) if file.exists() else 0


def test_a_walk_from_the_header_to_the_statement(start: Any, open_page: Any) -> None:
    running, width = start(), 390
    page = open_page(running.address, width=width, height=900)
    seen = [text(page)]
    assert heading(page) == "Columns"
    settled(page, width)
    fill(page, rows=str(ROWS), unit="one patient", type__0="numeric", type__1="categorical", type__2="binary")
    submit(page)
    settled(page, width)
    fill(page, lower__0="200", upper__0="120", levels__1="never\nnow", levels__2="no\nyes")
    submit(page)
    settled(page, width)
    assert "columns.age.lower = 200.0: must be below upper" in text(page)  # and what was typed is still there
    assert page.evaluate("document.getElementsByName('levels-1')[0].value") == "never\nnow"
    fill(page, lower__0="0")
    submit(page)
    settled(page, width)
    assert 'levels = ["never", "now"]' in text(page)
    submit(page, "section.private button")
    seen.append(text(page))
    settled(page, width)
    assert "FOR THE CUSTODIAN'S EYES ONLY" in seen[-1]
    cells = "[...document.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    assert page.evaluate(cells) == [
        ["age", "0", "0", "0", "1", ""], ["smoker", "0", "1", "0", "0", ""], ["sick", "0", "0", "0", "0", ""],
    ]  # fmt: skip
    submit(page)
    assert (running.folder / "patients.toml").exists()
    settled(page, width)
    page.evaluate("[...document.getElementsByName('outcome')].find(e => e.value == 'sick').click()")
    for name in ("age", "smoker"):
        page.evaluate(f"[...document.getElementsByName('predictor')].find(e => e.value == {name!r}).click()")
    fill(page, where="age <= 100", weights="age")
    submit(page)
    assert "sick ~ age + smoker (logistic)" in re.sub(r"\s+", " ", text(page))
    fill(page, epsilon="1", cap_epsilon="2")
    submit(page, "button.second")
    assert "chance to find an effect" in text(page)
    settled(page, width)
    submit(page)
    seen.append(text(page))
    settled(page, width)
    assert heading(page) == "Review, and the last click"
    assert spent(running) == 0
    assert not (running.folder / "patients.ledger").exists()
    commands = page.evaluate("document.querySelector('.terminal pre').textContent")
    page.evaluate("document.getElementById('agreed').click()")
    submit(page)
    seen.append(text(page))
    settled(page, width)
    assert heading(page) == "Released"
    assert spent(running) == 1
    made = dpglm.load_release(running.folder / "sick.release.json")
    assert made.statement in seen[-1]
    assert made.private
    assert "statement for a review board" in (running.folder / "sick.statement.html").read_text()
    assert (running.folder / "sick.statement.json").exists()
    for each in seen:
        assert SECRET_CELL not in each
        assert "777" not in each
    submit(page, "main a")
    assert heading(page).startswith("How the people in “patients” are protected")
    assert page.complaints() == []
    follow(commands, running.folder)


def follow(commands: str, folder: Path) -> None:
    """The commands on the page do the same: they run, in another folder, and make a release of the same promise."""
    there = folder / "again"
    there.mkdir()
    kept = dpglm.load_release(folder / "sick.release.json")
    lines = [shlex.split(line) for line in commands.replace("\\\n", " ").split("\n")]
    assert [words[1] for words in lines] == ["check", "plan", "ledger", "release", "statement"]
    for words in lines:
        moved = [
            word.replace(str(folder), str(there)) if word.endswith((".ledger", ".json", ".html")) else word
            for word in words
        ]
        with pytest.raises(SystemExit) as stopped:
            main([*moved[1:], *(["--quiet"] if words[1] != "plan" else [])])
        assert stopped.value.code == 0, words
    again = dpglm.load_release(there / "sick.release.json")
    assert (again.formula, again.family, again.privacy) == (kept.formula, kept.family, kept.privacy)
    assert again.design.schema == kept.design.schema
    assert again.design.where == kept.design.where
    assert kept.design.where is not None
    assert again.design.weights == kept.design.weights == "age"


def test_a_second_click_a_reload_and_another_tab_spend_nothing(start: Any, open_page: Any) -> None:
    running = start()
    page = open_page(running.address)
    to_the_budget(page)
    fill(page, epsilon="0.5")
    submit(page)
    token = page.evaluate("document.getElementsByName('token')[0].value")
    ticket = page.evaluate("document.getElementsByName('ticket')[0].value")
    posts = [f"token={token}&ticket={ticket}&agreed=yes"] * 4
    headers = {"Origin": f"http://127.0.0.1:{running.port}", "Content_Type": "application/x-www-form-urlencoded"}
    path = f"/{running.secret}/release"
    without = running.ask("POST", path, f"token={token}&ticket={ticket}", **headers)
    assert "must be ticked" in without[1]
    assert spent(running) == 0
    go(page, f"{running.address}review")
    ticket = page.evaluate("document.getElementsByName('ticket')[0].value")
    posts = [f"token={token}&ticket={ticket}&agreed=yes"] * 4
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda body=body: answers.append(running.ask("POST", path, body, **headers)[0]))
        for body in posts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [303] * 4
    assert spent(running) == 1
    go(page, f"{running.address}review")
    assert heading(page) == "Released"
    assert running.ask("POST", path, posts[0], **headers)[0] == 303
    assert spent(running) == 1


def question(page: Any, width: int, link: str, *predictors: str) -> None:
    """On the page of the question: why are people sick?"""
    for name, value in (("outcome", "sick"), *(("predictor", each) for each in predictors)):
        page.evaluate(f"[...document.getElementsByName({name!r})].find(e => e.value == {value!r}).click()")
    fill(page, link=link)
    settled(page, width)
    submit(page)


def test_a_link_and_an_earlier_survey_can_be_chosen(start: Any, open_page: Any) -> None:
    running, width = start(), 390
    page = open_page(running.address, width=width, height=900)
    fill(page, rows=str(ROWS), unit="one patient", type__0="numeric", type__1="categorical", type__2="binary")
    submit(page)
    fill(page, lower__0="0", upper__0="120", levels__1="never\nnow", levels__2="no\nyes")
    submit(page)
    submit(page)
    question(page, width, "probit", "age", "smoker")
    assert page.evaluate("document.getElementById('survey')") is None  # there is none yet
    assert "probit link" in text(page)
    fill(page, epsilon="1", cap_epsilon="9")
    submit(page)
    assert "taken anew" in text(page)
    page.evaluate("document.getElementById('agreed').click()")
    submit(page)
    first = dpglm.load_release(running.folder / "sick.release.json")
    assert first.design.family.link == "probit"
    submit(page, "main form button")
    assert page.evaluate("document.getElementById('link').value") == ""  # another question begins anew
    question(page, width, "cloglog", "smoker")
    settled(page, width)
    token = page.evaluate("document.getElementsByName('token')[0].value")
    headers = {"Origin": f"http://127.0.0.1:{running.port}", "Content_Type": "application/x-www-form-urlencoded"}
    wrong = f"token={token}&epsilon=1&delta=1e-6&output=no&survey={'0' * 32}"
    assert "cannot be used" in running.ask("POST", f"/{running.secret}/budget", wrong, **headers)[1]
    fill(page, survey=first.id, output="again")
    submit(page, "button.second")
    assert page.evaluate("document.getElementById('survey').value") == first.id
    submit(page)
    settled(page, width)
    assert f"that of {first.formula}, used again" in text(page)
    commands = page.evaluate("document.querySelector('.terminal pre').textContent")
    page.evaluate("document.getElementById('agreed').click()")
    submit(page)
    made = dpglm.load_release(running.folder / "again.release.json")
    assert made.survey_record.release_id == first.id  # type: ignore[union-attr]
    assert (made.design.family.link, len(made.costs)) == ("cloglog", len(first.costs) - 1)
    assert spent(running) == 2
    assert page.complaints() == []
    lines = [shlex.split(line)[1:] for line in commands.replace("\\\n", " ").split("\n")]
    assert [" ".join(words[:2]) for words in lines][1] == "ledger export"
    (there := running.folder / "there").mkdir()
    for words in lines:
        moved = [each.replace(str(running.folder), str(there)) if each.endswith((".json", ".html")) else each
                 for each in words]  # fmt: skip
        with pytest.raises(SystemExit) as stopped:
            main(moved)
        assert stopped.value.code == 0, words
    again = dpglm.load_release(there / "again.release.json")
    assert again.survey_record.release_id == first.id  # type: ignore[union-attr]
    assert again.design.family.link == "cloglog"


def test_a_survey_is_offered_only_where_it_knows_the_columns(start: Any, tmp_path: Path) -> None:
    from dpglm.formula import build_design
    from dpglm.studio.surveys import chosen_survey, usable_surveys

    start()
    columns = {
        "age": {"type": "numeric", "lower": 0, "upper": 120},
        "sick": {"type": "binary", "levels": ["no", "yes"]},
        "smoker": {"type": "binary", "levels": ["never", "now"]},
    }
    schema = dpglm.Schema.from_dict({"dataset": {"name": "p", "rows": ROWS, "unit": "one"}, "columns": columns})
    ledger = tmp_path / "own.ledger"
    assert usable_surveys(ledger, build_design("sick ~ age", schema, "logistic")) == ()
    dpglm.Ledger.create(ledger, schema.dataset, epsilon=5, delta=1e-6)
    made = dpglm.release(
        tmp_path / "patients.csv", "sick ~ age", schema=schema, family="logistic", epsilon=1, delta=1e-6, ledger=ledger
    )
    for formula, more, known in (
        ("sick ~ age", {}, True), ("sick ~ smoker", {}, False), ("sick ~ age", {"where": "age > 30"}, False),
    ):  # fmt: skip
        found = usable_surveys(ledger, build_design(formula, schema, "logistic", **more))
        assert [each.id for each in found] == [made.id] * known
    assert chosen_survey(ledger, build_design("sick ~ age", schema, "logistic"), "") is None
    ledger.write_bytes(b"not a ledger")
    assert usable_surveys(ledger, build_design("sick ~ age", schema, "logistic")) == ()


def test_strangers_are_refused(start: Any) -> None:
    running = start()
    secret, port = running.secret, running.port
    own = f"http://127.0.0.1:{port}"
    page = running.ask("GET", f"/{secret}/columns")[1]
    token = re.search('name="token" value="([^"]+)"', page)[1]
    form = f"token={token}&dataset=d&rows=5&unit=u&type-0=numeric"
    typed = {"Content_Type": "application/x-www-form-urlencoded"}
    path = f"/{secret}/columns"
    assert running.ask("POST", path, form, Origin=own, **typed)[0] == 303
    refused = {
        "no secret": running.ask("GET", "/columns")[0],
        "a wrong secret": running.ask("GET", f"/{secret[:-1]}x/columns")[0],
        "the root": running.ask("GET", "/")[0],
        "another name of the host": running.ask("GET", path, Host=f"rebound.example:{port}")[0],
        "a name that begins alike": running.ask("GET", path, Host=f"127.0.0.1.example:{port}")[0],
        "another port in the name": running.ask("GET", path, Host="127.0.0.1:1")[0],
        "no name": running.ask("GET", path, Host="")[0],
        "no origin": running.ask("POST", path, form, **typed)[0],
        "an opaque origin": running.ask("POST", path, form, Origin="null", **typed)[0],
        "another origin": running.ask("POST", path, form, Origin="http://evil.example", **typed)[0],
        "another scheme": running.ask("POST", path, form, Origin=own.replace("http", "https"), **typed)[0],
        "another port": running.ask("POST", path, form, Origin="http://127.0.0.1:1", **typed)[0],
        "the other name": running.ask("POST", path, form, Origin=f"http://localhost:{port}", **typed)[0],
        "from another site": running.ask("POST", path, form, Origin=own, Sec_Fetch_Site="cross-site", **typed)[0],
        "loaded by another site": running.ask("GET", path, Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="iframe")[0],
        "no token": running.ask("POST", path, form.split("&", 1)[1], Origin=own, **typed)[0],
        "a wrong token": running.ask("POST", path, form.replace(token, token[1:] + "x"), Origin=own, **typed)[0],
        "json": running.ask("POST", path, form, Origin=own, Content_Type="application/json")[0],
        "plain text": running.ask("POST", path, form, Origin=own, Content_Type="text/plain")[0],
        "another method": running.ask("PUT", path, form, Origin=own, **typed)[0],
        "a huge form": running.ask("POST", path, form + "&x=" + "1" * 2**20, Origin=own, **typed)[0],
        "too many fields": running.ask("POST", path, form + "&a=" * 20_000, Origin=own, **typed)[0],
        "out of the folder": running.ask("GET", f"/{secret}/../{secret}/columns")[0],
        "a get that would release": running.ask("GET", f"/{secret}/release")[0],
    }
    assert {name: status for name, status in refused.items() if not 400 <= status < 500} == {}
    assert running.ask("GET", f"/{secret}/review")[0] == 303  # not open: back to the step that is
    assert spent(running) == 0


def test_without_its_guard_a_stranger_would_come_in(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test before can fail."""
    monkeypatch.setattr(Guard, "refusal", lambda *_: 0)
    running = start()
    path = f"/{running.secret}/columns"
    assert running.ask("GET", path, Host="rebound.example:80")[0] == 200
    token = re.search('name="token" value="([^"]+)"', running.ask("GET", path)[1])[1]
    form = f"token={token}&dataset=d&rows=5&unit=u&type-0=numeric"
    assert running.ask("POST", path, form, Origin="http://evil.example")[0] == 303


def test_the_command_says_what_is_wrong_before_it_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "s.toml").write_text('[dataset]\nname = "t"\nrows = 1\n[columns.z]\ntype = "numeric"\n')
    table = str(tmp_path / "t.csv")
    for words, said in (
        ([table, "--folder", str(tmp_path / "none")], "is not a folder"),
        ([str(tmp_path / "s.toml")], "is a schema, not a table"),
        ([table, "--folder", str(tmp_path), "--schema", str(tmp_path / "s.toml")], "is declared and not in the table"),
        ([table, "--folder", str(tmp_path), "--port", "99999"], "cannot be listened on"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["studio", *words, "--no-browser"])
        assert stopped.value.code == 1
        printed = capsys.readouterr().err
        assert said in printed
        assert printed.count("\n") == 1


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    words = [sys.executable, "-m", "dpglm", "studio", "t.csv", "--no-browser"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        address = [running.stdout.readline() for _ in range(2)][1].strip()
        for _ in range(200):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", int(address.split(":")[2].split("/")[0]))
                connection.request("GET", "/" + address.split("/", 3)[3] + "columns")
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        assert connection.getresponse().status == 200
        connection.close()
        running.send_signal(signal.SIGINT)
        said, complained = running.communicate(timeout=30)
    assert (running.returncode, said, complained) == (0, "the studio is closed\n", "")


def test_steps_cannot_be_skipped_and_a_release_needs_its_ticket(start: Any) -> None:
    running = start()
    page = running.ask("GET", f"/{running.secret}/columns")[1]
    token = re.search('name="token" value="([^"]+)"', page)[1]
    headers = {"Origin": f"http://127.0.0.1:{running.port}", "Content_Type": "application/x-www-form-urlencoded"}
    for name in ("details", "schema", "check", "question", "plan", "budget", "release"):
        status, said = running.ask("POST", f"/{running.secret}/{name}", f"token={token}&ticket=&agreed=yes", **headers)
        assert status == 409, name
        assert "is not open" in said
    assert list(running.folder.glob("*.toml")) == []
    assert spent(running) == 0


def test_what_a_stranger_sees_of_the_headers_and_what_a_page_may_do(start: Any) -> None:
    running = start()
    connection = http.client.HTTPConnection("127.0.0.1", running.port)
    for path, status in ((f"/{running.secret}/columns", 200), ("/", 404)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["server"] is None
    connection.close()


def test_names_from_a_stranger_stay_text(start: Any, open_page: Any) -> None:
    running = start({EVIL: 1.5})
    page = open_page(running.address, width=390)
    assert EVIL in text(page)
    fill(page, dataset=EVIL, rows=str(ROWS), unit=EVIL, type__0="numeric", type__2="binary", type__4="numeric")
    for _ in range(2):
        submit(page)
        fill(page, lower__0="0", upper__0="120", levels__1=f"{EVIL}\nyes", lower__2=EVIL)
    submit(page)
    assert "must be a number" in text(page)
    fill(page, lower__2="0", upper__2="3")
    submit(page)
    assert heading(page) == "Schema"
    submit(page)
    page.evaluate("[...document.getElementsByName('outcome')].find(e => e.value == 'sick').click()")
    page.evaluate("document.querySelectorAll('[name=predictor]').forEach(e => e.value == 'sick' || e.click())")
    submit(page)
    fill(page, output="../../etc/passwd")
    submit(page)
    assert "must be letters, digits" in text(page)
    fill(page, output="plain")
    submit(page)
    assert EVIL in text(page)
    assert page.evaluate("[document.images.length, document.scripts.length, window.hacked ?? 0]") == [0, 0, 0]
    assert page.complaints() == []


def test_an_error_of_the_studio_itself_quotes_nothing(
    start: Any, open_page: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET_CELL)

    monkeypatch.setattr(studio_app, "check", broken)
    running = start()
    page = open_page(running.address)
    fill(page, rows=str(ROWS), unit="one patient", type__0="numeric")
    submit(page)
    submit(page)
    submit(page, "section.private button")
    assert "a bug of dpglm (RuntimeError)" in text(page)
    assert SECRET_CELL not in text(page)
    monkeypatch.setattr(studio_app, "commands", broken)  # while a page is made
    assert running.ask("GET", f"/{running.secret}/schema") == (500, "Internal Server Error")
    printed = "".join(capfd.readouterr())
    assert SECRET_CELL not in printed
    assert running.secret not in printed


def test_a_release_that_stops_at_its_survey_says_so(start: Any, open_page: Any) -> None:
    running = start()
    page = open_page(running.address)
    fill(page, rows=str(ROWS), unit="one patient", type__0="numeric", type__2="binary")
    submit(page)
    fill(page, lower__0="0", upper__0="120", levels__1="No such\nlevels")
    submit(page)
    submit(page)
    for name, value in (("outcome", "sick"), ("predictor", "age")):
        page.evaluate(f"[...document.getElementsByName({name!r})].find(e => e.value == {value!r}).click()")
    submit(page)
    fill(page, epsilon="5", cap_epsilon="9")
    submit(page)
    page.evaluate("document.getElementById('agreed').click()")
    submit(page)
    assert heading(page) == "Released"
    assert "only the survey was spent" in text(page)
    assert spent(running) == 1
    submit(page, "main form button")
    assert heading(page) == "Question"


def test_a_number_of_rows_may_be_private(start: Any, open_page: Any) -> None:
    running = start()
    page = open_page(running.address)
    fill(page, rows="", unit="one patient", type__0="numeric", type__2="binary")
    submit(page)
    assert "dataset.rows = None: must be a whole number" in text(page)  # forgetting it is no other promise
    page.evaluate("document.getElementById('private').click()")
    submit(page)
    fill(page, lower__0="0", upper__0="120", levels__1="no\nyes")
    submit(page)
    assert 'neighbours = "added-or-removed"' in text(page)
    submit(page, "section.private button")
    assert "their number is private" in text(page)
    submit(page)
    for name, value in (("outcome", "sick"), ("predictor", "age")):
        page.evaluate(f"[...document.getElementsByName({name!r})].find(e => e.value == {value!r}).click()")
    submit(page)
    submit(page, "button.second")
    submit(page)
    assert "one is added or removed" in text(page)


def test_rows_of_a_person_are_kept_together(start: Any, open_page: Any) -> None:
    running = start({"person": np.repeat(np.arange(ROWS // 2), 2)})
    page = open_page(running.address)
    fill(page, rows=str(ROWS // 2), unit="one patient", unit_column="person", type__0="numeric", type__2="binary")
    submit(page)
    fill(page, lower__0="0", upper__0="120", levels__1="no\nyes")
    submit(page)
    assert f'unit_column = "person"\nunits = {ROWS // 2}' in text(page)
    submit(page, "section.private button")
    assert "one has up to 2 rows" in text(page)
    submit(page)
    for name, value in (("outcome", "sick"), ("predictor", "age")):
        page.evaluate(f"[...document.getElementsByName({name!r})].find(e => e.value == {value!r}).click()")
    submit(page)
    fill(page, epsilon="5", cap_epsilon="9")
    submit(page)
    assert "1,000 units, each one patient, by person" in re.sub(r"\s+", " ", text(page))
    page.evaluate("document.getElementById('agreed').click()")
    submit(page)
    assert heading(page) == "Released"
    statement = (running.folder / "sick.statement.html").read_text()
    assert "all rows of any one of them replaced by any other rows" in statement
    assert "1,000 units with their rows" in statement


def test_a_walk_may_begin_with_a_schema(start: Any, open_page: Any, tmp_path: Path) -> None:
    declared = {
        "dataset": {"name": "p", "rows": ROWS, "unit": "one patient"},
        "columns": {"age": {"type": "numeric"}, "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"}},
    }
    (tmp_path / "own.toml").write_text(dpglm.Schema.from_dict(declared).to_toml())
    page = open_page(start(schema=tmp_path / "own.toml").address)
    assert heading(page) == "Question"
    assert "own.toml" in page.evaluate("document.querySelector('.terminal pre').textContent")
    go(page, page.evaluate("location.href").replace("question", "columns"))
    assert heading(page) == "Question"
