"""The release: the only thing that crosses from custodian to analyst, as frozen dataclasses.

Nothing in it depends on the rows except the noisy integers. ``release_file`` reads and writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape
from dpglm.formula import Design
from dpglm.grid import Grid
from dpglm.looks.profile import LOOKS_BEFORE, Profile
from dpglm.looks.questions import Rows
from dpglm.looks.reading import Look
from dpglm.looks.survey import SurveyRecord, survey_rows
from dpglm.looks.viewpoint import Viewpoint, symmetric
from dpglm.privacy import Privacy
from dpglm.statement import plain_statement

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


@dataclass(frozen=True)
class Block:
    """One released block: y^y_power times the monomials of this degree, in ``BlockShape.monomials`` order.

    ``integers`` are what was released. ``values`` are the same in data units, plain monomials. ``noise_stddev`` is the
    noise in isometric coordinates and data units; a monomial of multinomial coefficient c has noise_stddev / sqrt(c).
    """

    y_power: int
    degree: int
    integers: tuple[int, ...]
    unit: float
    noise_stddev: float
    grid_stddevs: tuple[float, ...]
    multiplicities: tuple[int, ...]

    @property
    def shape(self) -> BlockShape:
        return BlockShape(self.y_power, self.degree)

    @property
    def values(self) -> npt.NDArray[np.float64]:
        return np.array([float(integer) for integer in self.integers]) * self.unit

    @property
    def isometric_values(self) -> npt.NDArray[np.float64]:
        """The values times the square roots of their multinomial coefficients: isotropic noise ``noise_stddev``."""
        return self.values * np.sqrt(np.array(self.multiplicities, dtype=np.float64))


@dataclass(frozen=True)
class Stage:
    """One pass over the table; ``mu`` is what it cost.

    The paper's "moments", alone; or a "look", whose blocks are the sums of the score, of the information and of the
    score's square (y_power is the power of the residual), and whose ``viewpoint`` says from where.
    """

    kind: str
    allocation: str
    mu: float
    blocks: tuple[Block, ...]
    viewpoint: Viewpoint | None = None

    def as_look(self) -> Look:
        """The numbers of a look, as they are read."""
        assert self.viewpoint is not None
        score, information, square = self.blocks
        size = self.viewpoint.dimension
        return Look(
            self.viewpoint, score.values, symmetric(information.values, size), symmetric(square.values, size),
            score.noise_stddev, information.noise_stddev, square.noise_stddev, self.mu,
        )  # fmt: skip


@dataclass(frozen=True)
class LedgerFact:
    """What the ledger said when this release was entered: its number, and what the dataset had spent in all."""

    entry: int
    spent_mu: float
    spent_epsilon: float
    cap_epsilon: float
    cap_delta: float


@dataclass(frozen=True)
class Release:
    """A table as an analyst may see it.

    ``design`` codes the columns as the stages saw them: in standard units for looks, by declared bounds for moments.
    """

    id: str
    time: str
    versions: dict[str, str]
    design: Design
    radius: float
    grid: Grid
    stages: tuple[Stage, ...]
    privacy: Privacy
    ledger: LedgerFact | None
    private: bool
    survey_record: SurveyRecord | None = None
    profile: Profile | None = None

    @property
    def method(self) -> str:
        """ "looks", or "moments" for the paper's."""
        return "moments" if self.survey_record is None else "looks"

    @property
    def survey(self) -> pd.DataFrame | None:
        """What the survey saw: one row a column and level, with the noise of a share; None for moments."""
        import pandas as pd

        return None if self.survey_record is None else pd.DataFrame(survey_rows(self.survey_record))

    @property
    def costs(self) -> tuple[float, ...]:
        """mu of everything that this release paid for, in order."""
        own = self.survey_record is not None and self.survey_record.release_id == self.id
        surveyed = (self.survey_record.mu,) if own and self.survey_record is not None else ()
        profiled = () if self.profile is None else (self.profile.mu,)
        looked = [stage.mu for stage in self.stages]
        return (*surveyed, *looked[:LOOKS_BEFORE], *profiled, *looked[LOOKS_BEFORE:])

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.stages[0].blocks

    @property
    def counted(self) -> Rows:
        """How many rows count, and the noise of that number; all of them, exactly, where none can fail to."""
        record = self.survey_record
        return Rows(float(self.num_rows), 0.0) if record is None else record.counted(self.design)

    @property
    def num_rows(self) -> int:
        """The public number of rows; where it is private, the survey's noisy one."""
        number, record = self.design.schema.dataset.number, self.survey_record
        if number is None:
            assert record is not None  # looks alone keep it private
            return round(record.survey.total)
        return number

    @property
    def response_range(self) -> tuple[float, float]:
        return self.design.response_range

    @property
    def formula(self) -> str:
        return self.design.formula

    @property
    def family(self) -> str:
        return self.design.family.name

    @property
    def dataset_id(self) -> str:
        return self.design.schema.dataset.id

    @property
    def statement(self) -> str:
        """The guarantee in plain words, for the custodian and the reader of results."""
        fact = self.ledger
        ledger = None if fact is None else (fact.entry, fact.spent_epsilon, fact.cap_epsilon, fact.cap_delta)
        return plain_statement(
            self.design.schema.dataset, self.privacy.epsilon, self.privacy.delta, ledger, self.private,
            len(self.stages) if self.method == "looks" else None,
            counted=None if self.design.counted_is_public else self.counted,
            where=None if self.design.where is None else self.design.where.text, charges=len(self.costs),
            noisy_rows=self.num_rows,
        )  # fmt: skip

    def to_json(self) -> str:
        """The file's text."""
        from dpglm.release_file import release_text

        return release_text(self)

    def save(self, path: str | Path) -> None:
        """Write the file: all of it or nothing, durably."""
        from dpglm.release_file import as_path, write_atomically

        write_atomically(as_path("output", path), self.to_json().encode())

    def _repr_html_(self) -> str:
        """For a notebook: what it is, what it promises, and who the survey saw."""
        from dpglm.formats import noisy_share, plain_number
        from dpglm.notebook import folded_html, paragraph_html, table_html

        privacy, dataset = self.privacy, self.design.schema.dataset
        budget = f"epsilon = {privacy.epsilon:g}, delta = {privacy.delta:g}"
        what = "moments" if self.method == "moments" else f"a survey and {len(self.stages)} looks"
        facts = [
            ("formula", self.formula), ("family", self.family), ("dataset", dataset.name),
            ("rows", f"{self.num_rows:,}"), ("privacy", budget if self.private else "NOT PRIVATE"), ("holds", what),
            ("id", self.id),
        ]  # fmt: skip
        text = table_html("A private release", ("", ""), facts)
        text = text if self.private else paragraph_html(self.statement, alarm=True) + text
        text += folded_html("What it promises", paragraph_html(self.statement))
        if self.survey_record is None:
            return text
        rows = [
            (
                row["column"] if row["level"] is None else f"{row['column']} = {row['level']}",
                noisy_share(row["share"], row["noise"]) if row["centre"] is None
                else f"{plain_number(row['centre'])} ({plain_number(row['scale'], 2)})",
            )
            for row in survey_rows(self.survey_record)
        ]  # fmt: skip
        survey = table_html("Who the survey saw, with noise", ("column", "share, or centre (scale)"), rows)
        return text + folded_html("Who is in the table", survey)

    def __repr__(self) -> str:
        return (
            f"Release({self.formula!r}, family={self.family!r}, rows={self.num_rows}, "
            f"epsilon={self.privacy.epsilon:g}, delta={self.privacy.delta:g}, id={self.id!r})"
        )
