"""The pages of the studio: each step shows a form, takes it, and goes to the next. Only ``_release`` spends.

A release is asked for with a ticket that the page of the last step was given, and that works once: a second click, a
reload or another tab find the ticket used and are shown what was made.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from dpglm.custodian.check import WARNING, Check, check
from dpglm.errors import DpglmError, InputError, SurveyError
from dpglm.studio import walk as steps
from dpglm.studio.commands import commands
from dpglm.studio.guard import LARGEST_FORM
from dpglm.studio.surveys import chosen_survey, usable_surveys
from dpglm.studio.walk import FAMILY_OF, LINKS, STEPS, Form, Walk

TITLES = {
    "columns": "Columns", "details": "Bounds and levels", "schema": "Schema", "question": "Question",
    "budget": "Budget", "review": "Review", "done": "Released",
}  # fmt: skip
_PLANNED = (0.3, 1.0, 3.0)
_STATEMENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MOST_FIELDS = 10_000


class Studio:
    """One custodian's walk, in memory, and what its pages show."""

    def __init__(self, walk: Walk, secret: str) -> None:
        self.walk = walk
        self._prefix = f"/{secret}"
        self._form_token = secrets.token_urlsafe(32)
        self._ticket = ""
        self._lock = threading.Lock()  # one change at a time: a second click waits for the first
        self._check: Check | None = None
        self._plan: Any = None
        self._made: Any = None
        self._statement = ""
        self._stopped = ""
        self._templates = Environment(
            loader=PackageLoader("dpglm.studio", "pages"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._takers: dict[str, Callable[[Form], str]] = {
            "columns": self._take(steps.choose_columns, "columns", "details"),
            "details": self._take(steps.describe_columns, "details", "schema"),
            "schema": self._save_schema,
            "check": self._checked,
            "question": self._take(steps.ask, "question", "budget"),
            "plan": self._planned,
            "budget": self._take(steps.set_budget, "budget", "review"),
            "release": self._release,
            "again": self._again,
        }

    def app(self) -> Starlette:
        """The pages, to be put behind a ``Guard``."""
        routes = [
            Route("/", self._start), Route("/style.css", self._style), Route("/statement", self._show_statement),
            *(Route(f"/{step}", self._page, methods=["GET"]) for step in STEPS),
            *(Route(f"/{name}", self._taken, methods=["POST"]) for name in self._takers),
        ]  # fmt: skip
        return Starlette(routes=routes, debug=False)

    async def _start(self, request: Request) -> Response:
        return self._to(STEPS[self.walk.reached])

    async def _style(self, request: Request) -> Response:
        text = files("dpglm.studio").joinpath("pages/style.css").read_text(encoding="utf-8")
        return PlainTextResponse(text, media_type="text/css")

    async def _show_statement(self, request: Request) -> Response:
        if not self._statement:
            return self._to(STEPS[self.walk.reached])
        return HTMLResponse(self._statement, headers={"content-security-policy": _STATEMENT_POLICY})

    async def _page(self, request: Request) -> Response:
        step = request.url.path.strip("/").split("/")[-1]
        if not self._is_open(step):
            return self._to(STEPS[self.walk.reached])
        return HTMLResponse(self._shown(step))

    def _is_open(self, step: str) -> bool:
        """Steps up to where the walk is; with a release only its end; no columns where a schema was given."""
        if self._made is not None:
            return step == "done"
        given = step in ("columns", "details") and self.walk.schema is not None and not self.walk.choices
        return STEPS.index(step) <= self.walk.reached and not given

    async def _taken(self, request: Request) -> Response:
        """A form: taken, and on to the next page; or the same page with what is wrong."""
        name = request.url.path.strip("/").split("/")[-1]
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_FORM:
                return PlainTextResponse("", status_code=413)
        try:
            form = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            return PlainTextResponse("", status_code=400)
        if not hmac.compare_digest(steps.one(form, "token").encode(), self._form_token.encode()):
            return PlainTextResponse("", status_code=403)
        return await run_in_threadpool(self._answer, name, form)

    def _answer(self, name: str, form: Form) -> Response:
        with self._lock:
            try:
                return self._to(self._takers[name](form))
            except DpglmError as error:
                step = {"check": "schema", "plan": "budget", "release": "review", "again": "done"}.get(name, name)
                if not self._is_open(step):
                    return HTMLResponse(self._shown(STEPS[self.walk.reached], str(error)), status_code=409)
                self.walk = steps.typed_anyway(self.walk, step, form)
                return HTMLResponse(self._shown(step, str(error)))  # a browser would complain of another status
            except Exception as error:  # its words may quote a cell
                said = f"a bug of dpglm ({type(error).__name__}): please report it"
                return HTMLResponse(self._shown(STEPS[self.walk.reached], said), status_code=500)

    def _take(self, take: Callable[[Walk, Form], Walk], step: str, after: str) -> Callable[[Form], str]:
        def taken(form: Form) -> str:
            self._open(step)
            before = self.walk.schema
            self.walk = take(self.walk, form)
            if self.walk.schema is not before:
                self._check = None
            if step != "budget":
                self._plan = None
            return after

        return taken

    def _open(self, step: str) -> None:
        if not self._is_open(step):
            raise InputError("step", step, "is not open", "follow the steps in their order")

    def _save_schema(self, form: Form) -> str:
        self._open("schema")
        self.walk = steps.save_schema(self.walk)
        return "question"

    def _checked(self, form: Form) -> str:
        """Reads the rows, and shows counts to the custodian; spends nothing."""
        self._open("schema")
        assert self.walk.schema is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._check = check(self.walk.table, self.walk.schema)
        return "schema"

    def _planned(self, form: Form) -> str:
        """Expected widths of this budget and of others, from public numbers alone."""
        from dpglm.custodian.plan import plan

        self._open("budget")
        self.walk = steps.typed_anyway(self.walk, "budget", form)
        design, (epsilon, delta) = self.walk.design, self.walk.budget
        assert design is not None
        rows = design.schema.dataset.planned
        wanted = sorted({*_PLANNED, epsilon})
        earlier = chosen_survey(self.walk.ledger, design, self.walk.survey)
        self._plan = plan(
            design.formula, schema=design.schema, family=self.walk.family, link=self.walk.link or None, survey=earlier,
            epsilon=wanted, delta=delta, rows=rows, where=self.walk.where or None, weights=self.walk.weights or None,
        )  # fmt: skip
        return "budget"

    def _release(self, form: Form) -> str:
        """The last click: a ledger where there is none yet, the release, and the statement of the ledger."""
        import dpglm
        from dpglm.custodian.ledger import Ledger
        from dpglm.review.facts import facts_of
        from dpglm.review.page import review_statement, statement_page
        from dpglm.review.registry import record

        if self._made is not None:
            return "done"
        self._open("review")
        ticket, self._ticket = self._ticket, ""
        if not ticket or not hmac.compare_digest(steps.one(form, "ticket").encode(), ticket.encode()):
            raise InputError("ticket", "(used)", "works once", "look at this page again, and release from it")
        if steps.one(form, "agreed") != "yes":
            raise InputError("agreed", "no", "must be ticked", "read what will be spent, and agree to it")
        walk = self.walk
        assert walk.design is not None
        assert walk.schema is not None
        epsilon, delta = walk.budget
        earlier = chosen_survey(walk.ledger, walk.design, walk.survey)
        if not walk.ledger.exists():
            Ledger.create(walk.ledger, walk.schema.dataset, epsilon=walk.cap[0], delta=walk.cap[1])
            self.walk = replace(walk, opened_ledger=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._made = dpglm.release(
                    walk.table, walk.design.formula, schema=walk.schema, family=walk.family, epsilon=epsilon,
                    delta=delta, ledger=walk.ledger, where=walk.where or None, weights=walk.weights or None,
                    link=walk.link or None, survey=earlier,
                )  # fmt: skip
        except SurveyError as error:  # the survey is spent, kept in the ledger, and worth looking at
            self._made, self._stopped = error.release, str(error)
        self.walk = replace(self.walk, reached=STEPS.index("done"))
        book = Ledger.open(walk.ledger)
        facts = facts_of(book)
        self._statement = statement_page(facts, record(facts, curator=None, use=None, region=None))
        self._made.save(walk.release_file)
        review_statement(book, walk.statement_file)
        return "done"

    def _again(self, form: Form) -> str:
        """Another question to the same table."""
        self._made, self._statement, self._stopped, self._plan = None, "", "", None
        self.walk = replace(
            self.walk,
            outcome="",
            predictors=(),
            formula="",
            where="",
            weights="",
            link="",
            survey="",
            output="",
            design=None,
            reached=STEPS.index("question"),
        )
        return "question"

    def _to(self, step: str) -> Response:
        return RedirectResponse(f"{self._prefix}/{step}", status_code=303)

    def _shown(self, step: str, problem: str = "") -> str:
        if step == "review" and self._made is None:
            self._ticket = secrets.token_urlsafe(32)
        walk = self.walk
        schema_text = "" if walk.schema is None else walk.schema.to_toml()
        return self._templates.get_template(f"{step}.html").render(
            walk=walk, step=step, steps=STEPS, titles=TITLES, is_open=self._is_open, problem=problem,
            prefix=self._prefix, token=self._form_token, ticket=self._ticket, commands=commands(walk),
            families=FAMILY_OF, links=LINKS, surveys=self._surveys(step), check=self._check, check_warning=WARNING,
            plan=self._plan, made=self._made,
            stopped=self._stopped, account=self._account(step), schema_text=schema_text,
        )  # fmt: skip

    def _surveys(self, step: str) -> tuple[Any, ...]:
        """Earlier releases whose survey can be used again, where a page asks or says so."""
        walk = self.walk
        return usable_surveys(walk.ledger, walk.design) if step in ("budget", "review") and walk.design else ()

    def _account(self, step: str) -> Any:
        """What the ledger says, where a page asks; None where there is none yet."""
        from dpglm.custodian.ledger import Ledger

        if step not in ("budget", "review", "done") or not self.walk.ledger.exists():
            return None
        try:
            return Ledger.open(self.walk.ledger).summary()
        except DpglmError:
            return None
