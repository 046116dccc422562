"""Fits with known draws, and a real browser, driven over its debugging pipe: no driver, no port, no further library."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpglm
from dpglm.analyst.priors import NormalPrior
from dpglm.analyst.result import Diagnostics, Fit
from dpglm.custodian.build import Request, build_release
from seeded_noise import SeededNoise

ROWS = 3000
COLUMNS: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 20, "upper": 80},
    "visits": {"type": "count", "upper": 6, "fill": 0},
    "group": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
    "treated": {"type": "binary", "levels": [0, 1], "fill": 0},
    "sick": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    "cost": {"type": "numeric", "lower": 100, "upper": 300},
}
FORMULAS = {
    "logistic": "sick ~ age + group + treated",
    "poisson": "visits ~ age + group",
    "linear": "cost ~ age * treated + visits",
}
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip


def table_of(columns: dict[str, Any], rows: int) -> pd.DataFrame:
    """Any rows that fit a schema."""
    generator = np.random.default_rng(4)
    cells = {}
    for name, column in columns.items():
        if "levels" in column:
            cells[name] = generator.choice(np.array(column["levels"], dtype=object), rows)
        else:
            cells[name] = generator.uniform(column.get("lower", 0), column["upper"], rows).round()
    return pd.DataFrame(cells)


def schema_of(
    columns: dict[str, Any], name: str = "people", unit: str = "one person", rows: int = ROWS
) -> dpglm.Schema:
    return dpglm.Schema.from_dict({"dataset": {"name": name, "rows": rows, "unit": unit}, "columns": columns})


def released(
    formula: str, family: str, columns: dict[str, Any], name: str = "people", unit: str = "one person",
    epsilon: float = 1.0, rows: int = ROWS, **options: Any,
) -> dpglm.Release:  # fmt: skip
    schema = schema_of(columns, name, unit, rows)
    return dpglm.release(
        table_of(columns, rows), formula, schema=schema, family=family, epsilon=epsilon, delta=1e-6,
        ledger=None, **options,
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_fit() -> Any:
    """A fit with draws that are known, so that nothing has to be sampled. The second slope is near zero."""

    def made(family: str = "logistic", formula: str | None = None, **changes: Any) -> Fit:
        given = {key: changes.pop(key) for key in ("columns", "name", "unit", "rows") if key in changes}
        release = changes.pop("release", None)
        if release is None:
            release = released(formula or FORMULAS[family], family, given.pop("columns", COLUMNS), **given,
                               method="moments", allocation="equal")  # fmt: skip
        count = len(release.design.coefficient_names)
        generator = np.random.default_rng(9)
        centers = 0.6 * (-1.0) ** np.arange(count)
        centers[min(2, count - 1)] = 0.02
        plenty = np.full(count, 2000.0)
        fields: dict[str, Any] = {
            "releases": (release,),
            "coefficients": centers + 0.1 * generator.normal(size=(4, 500, count)),
            "spread": None if family == "logistic" else np.exp(generator.normal(size=(4, 500))),
            "predictor_stddev": 0.8,
            "inflation": np.stack([np.linspace(1.1, 2.5, count), np.linspace(1.2, 2.0, count)]),
            "diagnostics": Diagnostics(plenty, 2 * plenty, np.full(count, 1.001), 0, 0.9, True, None),
            "prior": NormalPrior(),
            "method": "nuts",
            "options": {"link": changes.pop("link", None), "dispersion": None, "moments": "exact",
                        "noise_aware": True, "chains": 4, "seed": 1},
        }  # fmt: skip
        return Fit(**{**fields, **changes})

    return made


@pytest.fixture(scope="session")
def looks_fit() -> Any:
    """A fit of a release by looks, in closed form: it takes no time. Bounds are generous, noise is always the same.

    Counts are Poisson: of counts that are all as likely the looks rightly say that they miss each other.
    """
    made: dict[tuple[str, str | None], Fit] = {}

    def fitted(family: str = "logistic", formula: str | None = None) -> Fit:
        if (family, formula) not in made:
            wide = {name: {**COLUMNS[name], "lower": 1, "upper": 10_000} for name in ("age", "cost")}
            request = Request(formula or FORMULAS[family], schema_of(COLUMNS | wide), family, 5.0, 1e-6)
            table = table_of(COLUMNS, ROWS)
            if family == "poisson":
                table["visits"] = np.random.default_rng(4).poisson(1.5, ROWS)
            release = build_release(table, request, SeededNoise(1))
            made[family, formula] = dpglm.fit(replace(release, private=True), seed=1)
        return made[family, formula]

    return fitted


class Browser:
    """Headless Chromium: commands go in on file descriptor 3 and answers come out on 4, each ending in a zero byte."""

    def __init__(self, program: str, folder: str) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        # A small program takes the pipes' places (out of the way of 3 and 4 first) and becomes the browser: code that
        # runs between fork and exec is not safe beside the threads of other libraries.
        places = (to_browser, 60), (from_browser, 61), (60, 3), (61, 4)
        code = f"import os, sys; [os.dup2(*each) for each in {places}]; os.execv(sys.argv[1], sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, program, *SWITCHES, f"--user-data-dir={folder}"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that come between are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, method: str, session: str) -> None:
        """Until an event has come, also if it came before."""
        while not any(each.get("method") == method and each.get("sessionId") == session for each in self.events):
            self.events.append(self._next(60))

    def _next(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser does not answer")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(message))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.send("Browser.close")
        os.close(self._write)
        os.close(self._read)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Page:
    """One tab with one file, or one address."""

    def __init__(self, browser: Browser, path: Path | str, width: int = 1200, height: int = 900, **media: str) -> None:
        self.browser = browser
        browser.events.clear()
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        features = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in media.items()]
        self.send("Emulation.setEmulatedMedia", features=features)
        browser.events.clear()
        self.send("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        browser.wait_for("Page.loadEventFired", self.session)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def settle(self) -> None:
        """Until what was scrolled or changed has been drawn, and its events are through."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")

    def complaints(self) -> list[str]:
        """Console messages, exceptions and violations of the policy."""
        self.settle()
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(each["params"]) for each in self.browser.events if each.get("method") in kinds]

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        wanted = [each for each in self.browser.events if each.get("method") == "Network.requestWillBeSent"]
        return [each["params"]["request"]["url"] for each in wanted]

    def point(self, selector: str, across: float = 0.5) -> None:
        """Scroll to an element and put the pointer on it."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'});"
            " const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        self.settle()
        x, y = box[0] + across * box[2], box[1] + box[3] / 2
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        self.point(selector)
        box = self.evaluate(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def press(self, key: str) -> None:
        codes = {"Enter": 13, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "End": 35, "Home": 36, "Escape": 27}
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if (key, kind) == ("Enter", "keyDown") else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)
        self.settle()

    def screenshot(self, path: Path, whole: bool = True) -> None:
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole, format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self.target)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser here: install one of {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory(prefix="dpglm-browser-", ignore_cleanup_errors=True) as folder:
        started = Browser(program, folder)
        try:
            started.send("Browser.getVersion")
        except RuntimeError as error:
            pytest.skip(f"{program} does not start here: {error}")
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Any]:
    pages: list[Page] = []

    def opened(path: Path | str, **options: Any) -> Page:
        pages.append(Page(browser, path, **options))
        return pages[-1]

    yield opened
    for page in pages:
        page.close()
