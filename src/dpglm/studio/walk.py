"""How far the custodian has come: what was typed, as text, and what follows from it. Frozen; no row, no budget.

A step is a function from a walk and a form to a walk, or an ``InputError`` whose words the page shows. What was typed
is kept as it was typed, so that a page can show it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpglm.errors import FileError, InputError
from dpglm.formula import Design, build_design
from dpglm.privacy import check_epsilon_delta
from dpglm.protection import ADDED_OR_REMOVED
from dpglm.schema import COLUMN_TYPES, Schema
from dpglm.studio.surveys import chosen_survey
from dpglm.values import days

FAMILY_OF = {"binary": "logistic", "count": "poisson", "numeric": "linear"}
LINKS = {"probit": "probit", "cloglog": "complementary log-log: hazards, where a row is a person in a period"}
STEPS = ("columns", "details", "schema", "question", "budget", "review", "done")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)

Form = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Choice:
    """One column that is wanted, and what was typed about it."""

    name: str
    type: str
    lower: str = ""
    upper: str = ""
    levels: str = ""  # one a line
    fill: str = ""
    missing: str = ""  # "level": a missing value is a level of its own
    label: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As a schema takes it; what was left blank is left out."""
        where = f"columns.{self.name}"
        data: dict[str, Any] = {"type": self.type} | ({"label": self.label.strip()} if self.label.strip() else {})
        if self.type in ("binary", "categorical"):
            data["levels"] = [line.strip() for line in self.levels.splitlines() if line.strip()]
            data |= {"missing": "level"} if self.missing == "level" else {}
            return data | ({"fill": self.fill.strip()} if self.fill.strip() else {})
        typed = {"upper": self.upper} if self.type == "count" else {"lower": self.lower, "upper": self.upper}
        for key, text in (typed | {"fill": self.fill}).items():
            if text.strip():
                data[key] = text.strip() if days(text.strip()) is not None else number(f"{where}.{key}", text)
        return data


@dataclass(frozen=True)
class Walk:
    """A walk from the header of ``table`` to a release; files go to ``folder``."""

    table: str
    folder: Path
    ledger: Path
    names: tuple[str, ...]
    dataset: str = ""
    rows: str = ""
    unit: str = ""
    unit_column: str = ""
    private: bool = False  # how many there are
    choices: tuple[Choice, ...] = ()
    schema: Schema | None = None
    schema_file: Path | None = None  # where the schema lies, once it was saved
    outcome: str = ""
    predictors: tuple[str, ...] = ()
    formula: str = ""
    where: str = ""
    weights: str = ""
    link: str = ""
    survey: str = ""  # the id of an earlier release, whose survey is used again
    epsilon: str = "1"
    delta: str = "1e-6"
    cap_epsilon: str = "3"
    cap_delta: str = "1e-6"
    output: str = ""
    opened_ledger: bool = False  # whether this walk made the ledger
    design: Design | None = field(default=None, repr=False)
    reached: int = 0  # the furthest step that is open

    @property
    def family(self) -> str:
        return "" if self.design is None else self.design.family.name

    @property
    def release_file(self) -> Path:
        return self.folder / f"{self.output}.release.json"

    @property
    def survey_file(self) -> Path:
        """Where the commands would put the earlier release."""
        return self.folder / f"{self.output}.survey.json"

    @property
    def statement_file(self) -> Path:
        return self.folder / f"{self.output}.statement.html"

    @property
    def budget(self) -> tuple[float, float]:
        return check_epsilon_delta(number("epsilon", self.epsilon), number("delta", self.delta))

    @property
    def cap(self) -> tuple[float, float]:
        return check_epsilon_delta(number("cap of epsilon", self.cap_epsilon), number("cap of delta", self.cap_delta))


def number(name: str, text: str) -> float | int:
    """What was typed as a number."""
    try:
        return int(text) if re.fullmatch(r"\s*[+-]?\d{1,15}\s*", text, re.ASCII) else float(text)
    except ValueError:
        raise InputError(name, text, "must be a number", "correct it") from None


def one(form: Form, name: str) -> str:
    """The one value of a field; nothing where it is missing."""
    return (list(form.get(name, ())) or [""])[0].strip()


def to_step(walk: Walk, step: str) -> int:
    """Where a step stands, at least that far."""
    return max(walk.reached, STEPS.index(step))


def choose_columns(walk: Walk, form: Form) -> Walk:
    """Dataset, and which columns are wanted with which type."""
    walk = _columns(walk, form)
    if not walk.choices:
        raise InputError("columns", "none", "must be at least one", "say of which type each wanted column is")
    head = {"a": {"type": "numeric"}}  # any column: to hear of mistakes in the dataset here
    Schema.from_dict({"dataset": _head(walk), "columns": head})
    return replace(walk, reached=STEPS.index("details"))


def describe_columns(walk: Walk, form: Form) -> Walk:
    """Bounds, levels and fills of the wanted columns; then the whole schema is checked."""
    walk = _details(walk, form)
    columns = {choice.name: choice.to_dict() for choice in walk.choices}
    schema = Schema.from_dict({"dataset": _head(walk), "columns": columns})
    return replace(walk, schema=schema, schema_file=None, design=None, reached=STEPS.index("schema"))


def typed_anyway(walk: Walk, step: str, form: Form) -> Walk:
    """What was typed, kept for the page although it is not right yet."""
    kept = {"columns": _columns, "details": _details, "question": _question, "budget": _budget}
    return kept[step](walk, form) if step in kept else walk


def save_schema(walk: Walk) -> Walk:
    """Write the schema; an existing file is never replaced."""
    from dpglm.release_file import write_atomically

    assert walk.schema is not None
    file = walk.folder / f"{Path(walk.table).resolve().name.split('.')[0]}.toml"
    text = walk.schema.to_toml()
    if file.exists() and (not file.is_file() or file.read_bytes() != text.encode()):
        rule = "exists already, with another content"
        raise FileError("schema", str(file), rule, "start with --schema to use it, or with another --folder")
    write_atomically(file, text.encode())
    return replace(walk, schema_file=file, reached=to_step(walk, "question"))


def ask(walk: Walk, form: Form) -> Walk:
    """The outcome and its predictors, or a formula; its family follows from the outcome's type."""
    walk = _question(walk, form)
    assert walk.schema is not None
    if not walk.outcome and not walk.formula:
        raise InputError("outcome", "none", "must be chosen", "choose the column to be explained")
    if not walk.formula and not walk.predictors:
        raise InputError("predictors", "none", "must be at least one", "choose what explains the outcome")
    outcome = walk.formula.split("~")[0].strip().strip("`") if walk.formula else walk.outcome
    kind = walk.schema.column(outcome).type
    if kind not in FAMILY_OF:
        raise InputError("outcome", outcome, f"is {kind}: it has no family", "choose one with two levels, or a number")
    formula = walk.formula or formula_of(walk.outcome, walk.predictors)
    design = build_design(
        formula, walk.schema, FAMILY_OF[kind], walk.link or None, walk.where or None, walk.weights or None
    )
    name = walk.output or (outcome if _FILE_NAME.fullmatch(outcome) else "regression")
    return replace(walk, outcome=outcome, design=design, output=name, reached=to_step(walk, "budget"))


def formula_of(outcome: str, predictors: Sequence[str]) -> str:
    """The formula of plain terms.

    >>> formula_of("sick", ["age", "body mass"])
    'sick ~ age + `body mass`'
    """

    def quoted(name: str) -> str:
        return name if _IDENTIFIER.fullmatch(name) else f"`{name}`"

    return f"{quoted(outcome)} ~ {' + '.join(map(quoted, predictors))}"


def set_budget(walk: Walk, form: Form) -> Walk:
    """What this release, and all releases together, may cost, and how the files are called. Spends nothing."""
    walk = _budget(walk, form)
    walk.budget  # noqa: B018
    if not walk.ledger.exists():
        walk.cap  # noqa: B018
    if not _FILE_NAME.fullmatch(walk.output):
        rule = "must be letters, digits, dots, hyphens and underscores"
        raise InputError("name", walk.output, rule, "choose a plain name")
    for file in (walk.release_file, walk.statement_file, walk.statement_file.with_suffix(".json")):
        if file.exists():
            raise FileError("output", str(file), "exists already", "choose another name")
    assert walk.design is not None
    chosen_survey(walk.ledger, walk.design, walk.survey)
    return replace(walk, reached=to_step(walk, "review"))


def _columns(walk: Walk, form: Form) -> Walk:
    """Fields of columns are numbered as the header is."""
    kept = {choice.name: choice for choice in walk.choices}
    types = [(name, one(form, f"type-{position}")) for position, name in enumerate(walk.names)]
    return replace(
        walk, dataset=one(form, "dataset"), rows=one(form, "rows"), unit=one(form, "unit"),
        unit_column=one(form, "unit_column"), private=one(form, "private") == "yes", choices=tuple(
            replace(kept.get(name, Choice(name, kind)), type=kind) for name, kind in types if kind in COLUMN_TYPES
        ),
        schema=None, schema_file=None, design=None, reached=STEPS.index("columns"),
    )  # fmt: skip


def _details(walk: Walk, form: Form) -> Walk:
    keys = ("lower", "upper", "levels", "fill", "missing", "label")
    choices = tuple(
        replace(choice, **{key: "\n".join(form.get(f"{key}-{position}", ())) for key in keys})
        for position, choice in enumerate(walk.choices)
    )
    return replace(
        walk, choices=choices, schema=None, schema_file=None, design=None, reached=STEPS.index("details")
    )  # fmt: skip


def _question(walk: Walk, form: Form) -> Walk:
    chosen = tuple(name for name in form.get("predictor", ()) if walk.schema and name in walk.schema.columns)
    return replace(
        walk, outcome=one(form, "outcome"), predictors=chosen, formula=one(form, "formula"),
        where=one(form, "where"), weights=one(form, "weights"), link=one(form, "link"), survey="", design=None,
        reached=min(walk.reached, STEPS.index("question")),
    )  # fmt: skip


def _budget(walk: Walk, form: Form) -> Walk:
    typed: dict[str, Any] = {
        key: one(form, key)
        for key in ("epsilon", "delta", "cap_epsilon", "cap_delta", "output", "survey")
        if key in form
    }
    return replace(walk, **typed, reached=min(walk.reached, STEPS.index("budget")))


def _head(walk: Walk) -> dict[str, Any]:
    """The dataset as a schema takes it."""
    counted = "units" if walk.unit_column else "rows"
    data = {"name": walk.dataset, "unit": walk.unit}
    data |= {"unit_column": walk.unit_column} if walk.unit_column else {}
    if walk.private and not walk.rows:
        return {**data, "neighbours": ADDED_OR_REMOVED}
    if walk.private:
        raise InputError("how many there are", walk.rows, "must not be known, as you say", "leave it out, or untick")
    return {**data, counted: number(f"dataset.{counted}", walk.rows) if walk.rows else None}
