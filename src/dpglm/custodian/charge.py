"""A release's account: what it may spend, what it has spent, and what is kept of it, whatever happens.

Guarantee: ``spend`` returns only after its entries are durable in the ledger, so noise drawn after it is paid for.
What was paid for is kept: an error after a charge says what was spent, and leaves what was released so far in the
ledger; so does Ctrl-C, without the words.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version

from dpglm.custodian.ledger import Ledger
from dpglm.errors import DpglmError, FileError, InputError
from dpglm.formula import Design
from dpglm.privacy import Privacy
from dpglm.releases import LedgerFact, Release

_LIBRARIES = ("numpy", "scipy", "pyarrow", "opendp", "dp-accounting")


class Account:
    """The account of one release, with its identity; ``book`` None keeps no account."""

    def __init__(self, book: Ledger | None, design: Design) -> None:
        self.identity = uuid.uuid4().hex
        self.fact: LedgerFact | None = None
        self.so_far: Release | None = None  # what was released already, for the ledger
        self._book, self._design = book, design

    def check_affordable(self, mus: Sequence[float]) -> None:
        """Refuse early what the ledger would refuse."""
        if self._book is not None:
            self._book.check_affordable(sum(Fraction(mu * mu) for mu in mus))

    def spend(self, mus: Sequence[float], privacy: Privacy, parts: Sequence[str]) -> None:
        """One entry a part, all committed at once, before any of their noise is drawn."""
        if self._book is None:
            return
        design = self._design
        described = {
            "formula": design.formula,
            "family": design.family.name,
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
        }
        charges = [(mu * mu, {**described, "part": part}) for mu, part in zip(mus, parts, strict=True)]
        entry = self._book.spend_stages(release_id=self.identity, stages=charges)[-1]
        book, summary = self._book, self._book.summary(through=entry.number)
        self.fact = LedgerFact(
            entry.number, summary.spent_mu, summary.spent_epsilon, book.cap_epsilon, book.cap_delta
        )  # fmt: skip

    def stamp(self) -> tuple[str, str, dict[str, str]]:
        """Identity, time and versions of the release."""
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        versions = {"dpglm": version("dpglm")} | {name: version(name) for name in _LIBRARIES}
        return self.identity, time, versions

    def keep(self, made: Release) -> None:
        """Leave the release in the ledger."""
        if self._book is None:
            return
        try:
            self._book.keep(self.identity, made.to_json())
        except FileError as error:  # it is paid for: better one copy than none
            warnings.warn(
                f"the ledger {error.rule}: it keeps no copy of this release, whose budget is spent; save it well",
                stacklevel=5,
            )

    @contextmanager
    def after_the_charge(self) -> Iterator[None]:
        """An error says that its budget is gone, and what it bought so far is kept.

        What it says of errors that are not dpglm's is one fixed line: their words may come from rows.
        """
        try:
            yield
        except DpglmError as error:
            if self.fact is None or not isinstance(error, InputError):
                raise
            raise type(error)(error.name, error.value, error.rule, f"{self._spent()}; {error.remedy}") from None
        except Exception as error:
            rule = f"stopped by an error that dpglm did not expect ({type(error).__name__})"
            remedy = "report this: it is a bug of dpglm" if self.fact is None else f"{self._spent()}; report this bug"
            raise FileError("release", self.identity, rule, remedy) from None
        except BaseException:  # Ctrl-C: what was paid for is kept as well
            if self.fact is not None and self.so_far is not None:
                self.keep(self.so_far)
            raise

    def _spent(self) -> str:
        assert self.fact is not None
        kept = ""
        if self.so_far is not None:
            self.keep(self.so_far)
            kept = f"; `dpglm ledger export` has what was bought, release {self.identity}"
        fact = self.fact
        spent = f"ledger entry {fact.entry}, epsilon {fact.spent_epsilon:.6g} of {fact.cap_epsilon:g} in all"
        return f"its budget is spent ({spent}), and another try spends it again{kept}"
