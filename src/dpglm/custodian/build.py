"""One call from a table to a release: Schema -> Design -> plan -> rows -> sums -> ledger -> noise -> Release.

Guarantee: the returned release is (epsilon, delta)-differentially private for the schema's neighbouring relation (by
default one replaced row), and its ledger entries were durable before the noise that they pay for was drawn. Order of
events: everything that can be wrong without rows is checked; the rows are summed exactly, in memory; the charge is
committed; noise is drawn and added. At the end the finished release is kept in the ledger. ``by_looks`` and
``by_moments`` are the two mechanisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpglm.custodian.by_looks import release_by_looks
from dpglm.custodian.by_moments import release_by_moments
from dpglm.custodian.charge import Account
from dpglm.custodian.ledger import Ledger
from dpglm.custodian.noise import NoiseSource, OperatingSystemNoise
from dpglm.custodian.passes import Progress
from dpglm.custodian.tables import open_table
from dpglm.errors import InputError
from dpglm.formula import Design, build_design
from dpglm.releases import Release
from dpglm.schema import Column, Schema

METHODS = ("looks", "moments")
_OF_MOMENTS = {"radius": None, "allocation": "auto", "statistics": "full"}


@dataclass(frozen=True)
class Request:
    """What a release is asked for; every mistake in it is found before rows are read."""

    formula: object
    schema: object
    family: object
    epsilon: object
    delta: object
    ledger: object = None
    method: object = "looks"
    survey: object = None
    radius: object = None
    allocation: object = "auto"
    statistics: object = "full"
    link: object = None
    where: object = None
    weights: object = None

    def check_method(self) -> None:
        """Options belong to a method."""
        if self.method not in METHODS:
            raise InputError("method", self.method, f"must be one of {', '.join(METHODS)}", "correct it")
        if self.method == "moments" and self.link is not None:
            raise InputError("link", self.link, "belongs to the fit of a release of moments", "give it to dpglm.fit")
        for name, shown in {"survey": "(a release)", "where": self.where, "weights": self.weights}.items():
            if self.method == "moments" and getattr(self, name) is not None:
                raise InputError(name, shown, "belongs to method='looks'", "leave it out")
        for name, default in _OF_MOMENTS.items():
            if self.method == "looks" and getattr(self, name) != default:
                raise InputError(name, getattr(self, name), "belongs to method='moments'", "leave it out, or add that")


def release(
    table: Any,
    formula: str,
    *,
    schema: Schema,
    family: str,
    epsilon: float,
    delta: float,
    ledger: str | Path | Ledger | None,
    method: str = "looks",
    link: str | None = None,
    survey: Release | None = None,
    radius: float | None = None,
    allocation: str = "auto",
    statistics: Any = "full",
    where: str | None = None,
    weights: str | None = None,
    progress: Progress | None = None,
) -> Release:
    """Turn a sensitive table into one noisy, self-describing release.

    Parameters
    ----------
    table
        A path (CSV, Parquet, a folder of them), a pandas or Spark DataFrame, a LazyFrame of Polars (whose needed
        columns are collected into memory), anything that exports an Arrow stream, or a function that returns a new such
        stream at every call. Only a stream by itself is held, for several passes.
    formula
        ``"y ~ a + b + a:b"`` over columns declared in the schema.
    schema
        Bounds, levels, fill values, the public number of rows, or ``neighbours = "added-or-removed"``, so that their
        number is private. Nothing is inferred from the rows.
    family
        "logistic", "poisson" or "linear" (or "binomial", "count", "gaussian").
    epsilon, delta
        What this release may cost, for one replaced row, or for what else the schema's ``neighbours`` declares.
    ledger
        Path of the dataset's ledger (``dpglm.Ledger.create``), or None, explicitly, to keep no account.
    method
        "looks" (default): a survey of where the columns live, then looks, each from where the ones before it point;
        bounds may be generous. "moments": the paper's single release of moments.
    link
        Of two levels by looks: "logit" (default), "probit" or "cloglog" (complementary log-log, of which a coefficient
        is a log hazard ratio where a row is a person in a period). A release by looks fixes its link.
    survey
        An earlier release of the same dataset, whose survey is used again: nothing is spent on a new one. It is also
        taken at its word: a column that it found useless does not stop this release.
    radius
        Of moments: hold rows in a smaller ball: less noise, but longer rows are shortened. Default: no row is changed.
    allocation
        Of moments: "auto" (least posterior standard deviation at a public nominal point) or "equal" (the paper's).
    statistics
        Of moments: "full", "paper" (the paper's lists: no intercept, predictors with mean zero) or (y power, degree)
        pairs.
    where
        A public condition on declared columns, ``"age >= 20 and smoker == 'never'"``: rows outside of it do not count.
    weights
        A declared numeric column, with a lower bound of at least 0: what each row weighs, as in a survey with sampling
        weights. Its upper bound says how much one row may weigh; standard errors are robust.
    progress
        Called with the rows done and the rows of all passes, at points that depend on the number of rows alone; where
        that is private, with passes done and all passes.

    Edge cases: cells that are missing, unreadable, not finite or of an unknown level become the declared fill; a row
    with such a cell in a needed column without a fill does not count, and how many count is told through noise. (With
    moments every row counts: there a number's fill is the middle of its bounds where none is declared, and levels need
    one.) Numbers are clamped. A table with another number of rows than declared is refused before
    anything is spent. One that changes between looks is refused too, and then what was spent is said. Where the survey
    says that a column cannot be used, ``SurveyError`` says so, and only the survey is spent.
    """
    request = Request(
        formula, schema, family, epsilon, delta, ledger, method, survey, radius, allocation, statistics, link, where,
        weights,
    )  # fmt: skip
    return build_release(table, request, OperatingSystemNoise(), progress)


def build_release(
    table: Any, request: Request, noise: NoiseSource | None = None, progress: Progress | None = None
) -> Release:
    """``release`` with its noise as an argument, which only tests have a use for."""
    source_of_noise = OperatingSystemNoise() if noise is None else noise
    request.check_method()
    design = build_design(
        request.formula, as_schema(request.schema), request.family, request.link, request.where, request.weights
    )
    design = _public_design(design, every_row_counts=request.method == "moments")
    account = Account(_open_ledger(request.ledger, design), design)
    if request.method == "looks":
        return release_by_looks(
            lambda: open_table(table, design.source_columns), design, request.epsilon, request.delta, request.survey,
            account, source_of_noise, progress,
        )  # fmt: skip
    return release_by_moments(
        lambda: open_table(table, design.table_columns), design, request.epsilon, request.delta,
        (request.radius, request.allocation, request.statistics), account, source_of_noise, progress,
    )  # fmt: skip


def as_schema(schema: object) -> Schema:
    """A Schema, a dict of its shape, or the path of its file."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, str | Path):
        return Schema.load(schema)
    if isinstance(schema, Mapping):
        return Schema.from_dict(schema)
    raise InputError("schema", type(schema).__name__, "must be a Schema, a dict or a path", "use dpglm.Schema.load")


def _open_ledger(ledger: object, design: Design) -> Ledger | None:
    if ledger is None:
        return None
    if not isinstance(ledger, str | Path | Ledger):
        raise InputError("ledger", ledger, "must be a path, a Ledger or None", "pass the dataset's ledger file")
    book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    book.check_dataset(design.schema.dataset)
    return book


def _public_design(design: Design, every_row_counts: bool) -> Design:
    """The design over the columns it uses: what the file states, so that a loaded release equals the made one."""
    columns = {column.name: _filled(column) if every_row_counts else column for column in design.table_columns}
    return build_design(
        design.formula,
        Schema(design.schema.dataset, columns),
        design.family,
        where=design.where,
        weights=design.weights,
    )


def _filled(column: Column) -> Column:
    """A column of moments, which has a fill."""
    if column.fill is not None:
        return column
    if column.has_levels:
        rule = "is missing: with moments every row counts, and levels have no neutral value"
        raise InputError(f"columns.{column.name}.fill", None, rule, "add fill = a level, or use method='looks'")
    return replace(column, fill=column.stand_in)
