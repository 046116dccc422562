"""dp-recorder's primitives around a release by looks: recorded on one table, replayed on a neighbour.

Cebere, Erb, Desfontaines, Bellet & Fitzimons (arXiv 2602.17454) found bugs in libraries with it. Their ``Auditor``
keeps what every mechanism was given and gave; on the neighbour it gives the same, so all that is not noise must be
equal, and inputs may move by the sensitivity that was declared.

Instrumented as they mean it: a mechanism is an answer of the survey, a histogram of the profile, or a look with all its
blocks; its input is exact sums, its distance that of sums in units of the noise that is asked for, its sensitivity mu.
Equal must be what mechanisms are told (scales, viewpoints), every charge, what is printed and warned, and the file or
the error. Noise is the operating system's. Releases of moments are not instrumented.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from dpglm.custodian import by_looks, charge
from dpglm.custodian.charge import Account
from dpglm.custodian.ledger import Ledger
from dpglm.custodian.look_plan import LookNoise
from dpglm.custodian.survey_counts import TableCounts
from dpglm.errors import SurveyError
from dpglm.formula import Design
from dpglm.looks.questions import COUNT_BITS, Question
from dpglm.releases import Release
from trust.viewpoints import hashed_viewpoints

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
IDENTITY = uuid.UUID(int=0x5EED)


def load(clone: Path) -> ModuleType:
    """The primitives of a clone. What draws, which its package loads too and which wants more packages, is left out."""
    package = ModuleType("dp_recorder")
    package.__path__ = [str(clone / "src" / "dp_recorder")]
    sys.modules["dp_recorder"] = package
    return importlib.import_module("dp_recorder.auditing.audit_primitives")


def moved(one: dict[str, Any], other: dict[str, Any]) -> float:
    """How far sums are apart in units of their noise: exact up to the root."""
    a, b, scales = one["sums"], other["sums"], one["stddevs"]
    if len(a) != len(b):
        return math.inf
    return math.sqrt(sum((Fraction(x - y) / Fraction(s)) ** 2 for x, y, s in zip(a, b, scales, strict=True) if x != y))


@dataclass(frozen=True)
class Verdict:
    """Why a pair of tables is convicted: what was found, in dp-recorder's words."""

    check: str
    said: str


@dataclass(frozen=True)
class Book:
    """Stands in for a ledger: whoever charges it is heard, whatever wrong a planted bug does on the way to it."""

    charge: Callable[[tuple[float, ...]], None]
    cap_epsilon: float = 1.0
    cap_delta: float = 1e-6

    def check_affordable(self, _: Any) -> None: ...

    def keep(self, *_: Any) -> None: ...

    def spend_stages(self, release_id: str, stages: Any) -> list[Any]:
        self.charge(tuple(math.sqrt(squared) for squared, _ in stages))
        return [SimpleNamespace(number=1)]

    def summary(self, through: int) -> Any:
        return SimpleNamespace(spent_mu=1.0, spent_epsilon=1.0)


@dataclass
class Recording:
    """A release, recorded on a table and replayed on neighbours of it.

    ``make`` is the release of a table; ``hashed`` takes looks from where a hash says; ``trusted`` are the kinds of
    mechanisms whose privacy loss dp-recorder takes from the accountant of Gaussian mechanisms, in steps of ``width``:
    others it samples.
    """

    tool: ModuleType
    make: Callable[[Any], Release]
    hashed: bool = False
    trusted: tuple[str, ...] = ()
    width: float = 1e-4
    made: Release | None = None
    charged: list[float] = field(default_factory=list)
    auditor: Any = None
    _found: Verdict | None = None

    def record(self, table: Any) -> None:
        self.auditor, self.charged = self.tool.Auditor(), []
        self._run(table)

    def replay(self, table: Any) -> Verdict | None:
        """None where nothing but noise is different, and sums moved no further than was declared."""
        charged, self._found = [*self.charged], None
        self.auditor.set_replay()
        with contextlib.suppress(AssertionError, RuntimeError):  # kept by ``_ask``
            self._run(table)
        self.charged = charged
        if self._found is None:
            try:
                self.auditor.validate_records()
            except AssertionError as error:
                self._found = Verdict("sensitivity", str(error).splitlines()[0])
        return self._found

    @property
    def mus(self) -> list[float]:
        """The sensitivities that mechanisms declared, in units of their noise."""
        return [entry.sensitivity_val for entry in self.auditor.log if entry.kind != "EQ"]

    def _run(self, table: Any) -> None:
        printed, error, text = io.StringIO(), "", None
        with (
            self.auditor, self._instrumented(), contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed), warnings.catch_warnings(record=True) as warned,
        ):  # fmt: skip
            warnings.simplefilter("always")
            try:
                made = self.make(table)
                text = made.to_json()
                self.made = made
            except SurveyError as raised:
                error, text = str(raised), raised.release.to_json()
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
        with self.auditor:
            self._equal("error", error)
            self._equal("printed", printed.getvalue())
            self._equal("warned", tuple(str(one.message) for one in warned))
            self._equal("file", text)

    def _equal(self, label: str, value: Any) -> None:
        self._ask(lambda: self.tool.ensure_equality(**{label: value}))

    def _charge(self, mus: tuple[float, ...]) -> None:
        self.charged += mus
        self._equal("charged", mus)

    def _ask(self, ask: Callable[[], Any]) -> Any:
        """What the auditor answers. dpglm may make its exception one of its own, so the first is kept."""
        try:
            return ask()
        except (AssertionError, RuntimeError) as error:
            said = " ".join(str(error).split())
            kinds = {"Divergence": "flow", "Replay overrun": "flow", "Params": "parameters", "Equality": "equality"}
            check = next((kind for start, kind in kinds.items() if said.startswith(start)), "error")
            self._found = self._found or Verdict(check, said[:160])
            raise

    @contextlib.contextmanager
    def _instrumented(self) -> Iterator[None]:
        """Mechanisms and charges, as they are now: a planted bug may have taken the place of one."""
        add, look, begin = by_looks.add_noise, by_looks._noisy_look, Account.__init__
        answers, plan = TableCounts.answers, by_looks.plan_looks
        noisy_counts, noisy_look = self._mechanisms(add, look)
        question: list[Question] = []
        state = {"looking": False, "histogram": math.nan}

        def adding(values: Any, stddevs: Any, source: Any) -> Any:
            if state["looking"]:
                return add(values, stddevs, source)
            change = math.sqrt(question.pop().squared_change) if question else state["histogram"]
            given = {"sums": tuple(values), "stddevs": tuple(stddevs)}
            return self._ask(lambda: noisy_counts(given, change * 2.0**COUNT_BITS / stddevs[0], source))

        def looking(sums: Any, view: Any, scales: LookNoise, source: Any) -> Any:
            stddevs = [
                stddev for block, each in zip(sums.blocks, scales.grid_stddevs, strict=True)
                for stddev in by_looks.monomial_stddevs(block, Fraction(each), view.dimension)
            ]  # fmt: skip
            given = {"sums": sum(sums.values, ()), "stddevs": tuple(stddevs), "blocks": sums}
            state["looking"] = True
            try:
                return self._ask(lambda: noisy_look(given, scales.mu, view, scales, source))
            finally:
                state["looking"] = False

        def beginning(account: Account, _: Any, design: Design) -> None:
            begin(account, cast(Ledger, Book(self._charge)), design)

        def answering(counts: Any, asked: Question) -> Any:
            question[:] = [asked]
            return answers(counts, asked)

        def planning(design: Design, *asked: Any, **more: Any) -> Any:
            state["histogram"] = math.sqrt(design.schema.dataset.protection.cells_changed)
            return plan(design, *asked, **more)

        with contextlib.ExitStack() as stack:
            for target, name, value in (
                (by_looks, "add_noise", adding), (by_looks, "_noisy_look", looking), (Account, "__init__", beginning),
                (TableCounts, "answers", answering), (by_looks, "plan_looks", planning),
                (charge, "uuid", SimpleNamespace(uuid4=lambda: IDENTITY)),
                (charge, "datetime", SimpleNamespace(now=lambda _: MOMENT)),
            ):  # fmt: skip
                stack.enter_context(patch.object(target, name, value))
            if self.hashed:
                stack.enter_context(hashed_viewpoints())
            yield

    def _mechanisms(self, add: Any, look: Any) -> tuple[Any, Any]:
        """As dp-recorder wants them: functions of which it is told what is input, and what sensitivity."""

        def audited(kind: str) -> Any:
            accountant = partial(gaussian, self.width) if kind in self.trusted else None
            return self.tool.audit_spec(kind, "given", "mu", moved, accountant)

        @audited("counts")
        def noisy_counts(given: Any, mu: float, source: Any) -> Any:
            return add(given["sums"], given["stddevs"], source)

        @audited("look")
        def noisy_look(given: Any, mu: float, view: Any, scales: Any, source: Any) -> Any:
            return look(given["blocks"], view, scales, source)

        return noisy_counts, noisy_look


def gaussian(width: float, mu: float, **_: Any) -> Any:
    """The privacy loss of a Gaussian mechanism, for dp-recorder to compose."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=width)
