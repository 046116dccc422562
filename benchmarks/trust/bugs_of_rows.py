"""Planted bugs of the way from cells to sums, of the sensitivity, and of what is said while rows are read."""

from __future__ import annotations

import logging
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from dpglm import conditions, formula
from dpglm.blocks import BlockShape
from dpglm.custodian import (
    bounded_rows,
    by_looks,
    by_moments,
    grouping,
    look_plan,
    mechanism,
    passes,
    profile_counts,
    rows,
    sums,
    survey_counts,
)
from dpglm.errors import InputError
from dpglm.protection import Protection
from trust.planting import Replacement, planted

CLEAN, ROWS, RESPONSE, SENSITIVITY = rows._clean, rows.fixed_point_rows, rows.coded_response, mechanism.sensitivity
STANDARD, MONOMIALS, COUNTS = bounded_rows.standard_rows, by_looks.monomial_stddevs, by_looks.table_counts
RELEASE, GRID_STDDEVS, MU_OF = by_looks.Release, mechanism._grid_stddevs, mechanism.mu_of
VECTORS, UNITS = bounded_rows.bounded_vectors, bounded_rows.bounded_units
CELL_COUNTS, SQUARED_MU = survey_counts.cell_counts, Protection.squared_mu
EXACT, ANSWERS = by_looks.exact_sums, survey_counts.TableCounts.answers
COUNT, HOLDS, CLEAN_ROWS = passes.Counter.add, conditions.Condition.holds, rows.clean_rows


def cleaned(change: Callable[[Any, Any, Any], Any]) -> list[Replacement]:
    """``rows._clean`` with its numbers changed; columns with levels as they are."""

    def wrong(read: Any, column: Any) -> Any:
        values = CLEAN(read, column)
        return values if column.has_levels else change(values, read, column)

    return [(rows, "_clean", wrong)]


@planted("bounds read from the data")
def _() -> list[Replacement]:
    def stretched(values: Any, _: Any, column: Any) -> Any:
        width = np.ptp(values)
        return values if width == 0 else column.lower + (values - values.min()) / width * (column.upper - column.lower)

    return cleaned(stretched)


@planted("missing values filled with the column's mean")
def _() -> list[Replacement]:
    return cleaned(lambda values, raw, _: np.where(np.isfinite(raw), values, values.mean()))


@planted("missing values filled with the row above")
def _() -> list[Replacement]:
    return cleaned(lambda values, raw, _: np.where(np.isfinite(raw), values, np.roll(values, 1)))


@planted("NaN passed through")
def _() -> list[Replacement]:
    # Two walls stand against it, so both are torn down: cells are filled, and the box is closed to NaN.
    open_to_nan = SimpleNamespace(**{**vars(np), "fmin": np.minimum, "fmax": np.maximum})
    through = cleaned(lambda values, raw, _: np.where(np.isnan(raw), np.nan, values))
    return [*through, (formula, "np", open_to_nan), (rows, "np", open_to_nan)]


@planted("rows of a person bounded one by one", where="people")
def _() -> list[Replacement]:
    def by_row(rows_: Any, design: Any, view: Any, units: Any) -> Any:
        score, information = VECTORS(rows_, design, view)
        return units.sum(score.astype(np.int64)).astype(float), information

    return [(bounded_rows, "bounded_units", by_row)]


@planted("the information of a person bounded row by row", where="people")
def _() -> list[Replacement]:
    def loose(rows_: Any, design: Any, view: Any, units: Any) -> Any:
        return UNITS(rows_, design, view, units)[0], VECTORS(rows_, design, view)[1]

    return [(bounded_rows, "bounded_units", loose)]


@planted("every row of a person counted", where="people")
def _() -> list[Replacement]:
    def whole(cells: Any, size: int, units: Any, counts: Any) -> Any:
        return CELL_COUNTS(cells, size, None, counts)

    return [(survey_counts, "cell_counts", whole), (profile_counts, "cell_counts", whole)]


@planted("ids told apart by how they are spelled", where="people")
def _() -> list[Replacement]:
    return [(grouping, "_key", lambda cell: None if cell is None else str(cell).encode())]


@planted("a look at people costed as one at rows", where="people")
def _() -> list[Replacement]:
    return [(Protection, "squared_mu", lambda self, y, x: SQUARED_MU(replace(self, several_rows=False), y, x) / 4)]


@planted("weights divided by their mean in the batch", where="weights")
def _() -> list[Replacement]:
    def divided(batch: Any, design: Any) -> Any:
        found = STANDARD(batch, design)
        return replace(found, weights=found.weights / max(float(found.weights.mean()), 1e-9))

    return [(bounded_rows, "standard_rows", divided)]


@planted("rows weighed after they were bounded", where="weights")
def _() -> list[Replacement]:
    def after(rows_: Any, design: Any, view: Any) -> Any:
        score, information = VECTORS(replace(rows_, weights=None), design, view)
        heavy = 1 + rows_.weights
        return np.rint(score * heavy), np.rint(information * np.sqrt(heavy))

    return [(bounded_rows, "bounded_vectors", after)]


@planted("the sum of weights counted as if the largest were not public", where="weights")
def _() -> list[Replacement]:
    def in_units(cleaned: Any, design: Any) -> int:
        return 0 if design.weights is None else int(np.floor(cleaned[design.weights] * 2**20).sum())

    return [(survey_counts, "_weight", in_units)]


@planted("a private number of rows that progress tells", where="added")
def _() -> list[Replacement]:
    def told(source: Any, design: Any, of_batch: Any, counter: Any = None) -> Any:
        found = EXACT(source, design, of_batch, counter)
        if counter is not None and counter.progress is not None:
            counter.progress(found.num_rows, found.num_rows)
        return found

    return [(by_looks, "exact_sums", told)]


@planted("a table without rows refused, their number private", where="added")
def _() -> list[Replacement]:
    def refused(found: Any, design: Any) -> None:
        if found == 0:
            raise InputError("table", found, "has no rows", "correct it")

    return [(passes, "check_rows", refused)]


@planted("looks at a row that is added, its square thought free", where="added")
def _() -> list[Replacement]:
    return [(Protection, "square_variance", property(lambda self: 2)), (
        Protection, "squared_mu", lambda self, y, x: y + x)]  # fmt: skip


@planted("what is private of a number of rows, rounded", where="added")
def _() -> list[Replacement]:
    def rounded(self: Any, question: Any) -> Any:
        found = ANSWERS(self, question)
        return tuple(-(-value // 2**22) * 2**22 for value in found) if question.subject is None else found

    return [(survey_counts.TableCounts, "answers", rounded)]


@planted("a condition that compares with the batch", where="looks")
def _() -> list[Replacement]:
    def among(self: Any, values: Any, rows: int) -> Any:
        held = HOLDS(self, values, rows)
        return held if held.sum() < 2 else held & (np.arange(rows) % 2 == 0)

    return [(conditions.Condition, "holds", among)]


@planted("a row that does not count takes the next one with it", where="looks")
def _() -> list[Replacement]:
    def dragging(batch: Any, design: Any) -> Any:
        found = CLEAN_ROWS(batch, design)
        return replace(found, counts=found.counts & np.append(True, found.counts[:-1]))

    return [(bounded_rows, "clean_rows", dragging)]


def kept_rows(which: Callable[[Any], Any]) -> list[Replacement]:
    """Some rows vanish, and nobody counts."""

    def fewer(real: Callable[..., Any]) -> Callable[..., Any]:
        def some(batch: Any, *arguments: Any) -> Any:
            fixed = real(batch, *arguments)
            keep = which(fixed)
            counts = None if fixed.counts is None else fixed.counts[keep]
            return replace(fixed, x=fixed.x[:, keep], y=fixed.y[keep], counts=counts)

        return some

    def looked(batch: Any, design: Any, view: Any) -> Any:
        score, information = bounded_rows.bounded_vectors(fewer(STANDARD)(batch, design), design, view)
        nothing = np.zeros(score.shape[1])
        return _summed(score, information, nothing)

    return [
        (passes, "fixed_point_rows", fewer(ROWS)), (passes, "check_rows", lambda *_: None),
        (by_looks, "check_rows", lambda *_: None), (by_looks, "look_sums", looked),
    ]  # fmt: skip


def _summed(score: Any, information: Any, nothing: Any) -> Any:
    """The sums of a look from its vectors."""
    grid = bounded_rows._VECTOR_GRID
    first = sums.block_sums(rows.FixedPointRows(score, nothing, grid), (BlockShape(0, 1), BlockShape(0, 2)))
    second = sums.block_sums(rows.FixedPointRows(information, nothing, grid), (BlockShape(0, 2),))
    return sums.BlockSums(bounded_rows.LOOK_BLOCKS, (first.values[0], second.values[0], first.values[1]), len(nothing))


@planted("rows with an extreme outcome dropped")
def _() -> list[Replacement]:
    return kept_rows(lambda fixed: fixed.y < fixed.y.max() if len(fixed.y) > 1 else fixed.y == fixed.y)


@planted("rows that appear twice counted once")
def _() -> list[Replacement]:
    return kept_rows(lambda fixed: np.unique(np.vstack([fixed.x, fixed.y]), axis=1, return_index=True)[1])


@planted("the number of rows read from the data")
def _() -> list[Replacement]:
    seen: list[int] = []

    def count(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(batch: Any, *arguments: Any, **named: Any) -> Any:
            seen[:] = [batch.num_rows + sum(column.null_count for column in batch.columns)]
            return real(batch, *arguments, **named)

        return counted

    def public(*facts: Any) -> Any:
        schema = facts[3].schema
        schema = replace(schema, dataset=replace(schema.dataset, rows=seen[0]))
        return RELEASE(*facts[:3], replace(facts[3], schema=schema), *facts[4:])

    return [
        (passes, "fixed_point_rows", count(ROWS)), (by_looks, "table_counts", count(COUNTS)),
        (by_moments, "Release", public), (by_looks, "Release", public),
    ]  # fmt: skip


@planted("the outcome not clamped", where="moments")
def _() -> list[Replacement]:
    def unclamped(design: Any, values: Any, grid: Any) -> Any:
        return RESPONSE(design, values, grid) * 3

    return [(rows, "coded_response", unclamped)]


@planted("rows not held in the radius", where="moments")
def _() -> list[Replacement]:
    return [(rows, "_project", lambda *_: None)]


@planted("one end of the outcome's range used twice", where="moments")
def _() -> list[Replacement]:
    def one_end(blocks: Any, noise: Any, radius: float, response: tuple[float, float]) -> Any:
        return SENSITIVITY(blocks, noise, radius, (response[1] * 0.999, response[1]))

    return [(mechanism, "sensitivity", one_end)]


@planted("the square root of the number of columns forgotten", where="moments")
def _() -> list[Replacement]:
    def unit_ball(blocks: Any, noise: Any, radius: float, response: tuple[float, float]) -> Any:
        return SENSITIVITY(blocks, noise, min(radius, 1.0), response)

    return [(mechanism, "sensitivity", unit_ball)]


@planted("a block left out of the sensitivity", where="moments")
def _() -> list[Replacement]:
    def fewer(blocks: Any, noise: Any, radius: float, response: tuple[float, float]) -> Any:
        return SENSITIVITY(blocks[:1], noise[:1], radius, response)

    return [(mechanism, "sensitivity", fewer)]


@planted("the wrong square root of two")
def _() -> list[Replacement]:
    def finer(block: Any, stddev: float, grid: Any, dimension: int) -> tuple[float, ...]:
        scales = GRID_STDDEVS(block, stddev, grid, dimension)
        return tuple(s / math.sqrt(c) for s, c in zip(scales, block.multiplicities(dimension).tolist(), strict=True))

    def finer_looks(block: Any, target: Any, dimension: int) -> tuple[float, ...]:
        scales = MONOMIALS(block, target, dimension)
        return tuple(s / math.sqrt(c) for s, c in zip(scales, block.multiplicities(dimension).tolist(), strict=True))

    return [(mechanism, "_grid_stddevs", finer), (by_looks, "monomial_stddevs", finer_looks)]


@planted("a larger mu than epsilon and delta allow")
def _() -> list[Replacement]:
    def larger(epsilon: float, delta: float) -> float:
        return MU_OF(epsilon, delta) * 1.01

    def unchecked(epsilon: float, delta: float, mu: float, _: Any) -> Any:
        return mechanism.Privacy(epsilon, delta, mu, mu * mu / 2 * (1 + 1e-15))

    return [
        (mechanism, "mu_of", larger), (look_plan, "mu_of", larger), (mechanism.Privacy, "certified", unchecked)
    ]  # fmt: skip


@planted("sums of floats of 32 bits")
def _() -> list[Replacement]:
    real = sums._chunk_sums
    return [(sums, "_chunk_sums", lambda x, y, block: real(x, y, block).astype(np.float32).astype(np.float64))]


@planted("products beyond 53 bits", where="large")
def _() -> list[Replacement]:
    return [(sums, "rows_at_once", lambda *_: 2**20)]


@planted("an error that quotes a cell")
def _() -> list[Replacement]:
    def quoting(read: Any, column: Any) -> Any:
        if column.has_levels and np.isnan(read).any():
            raise InputError(column.name, str(read), "is not a level", "correct it")
        return CLEAN(read, column)

    return [(rows, "_clean", quoting)]


@planted("a warning where numbers were clamped")
def _() -> list[Replacement]:
    def warning(values: Any, raw: Any, _: Any) -> Any:
        if (values != raw).any():
            warnings.warn("numbers were clamped", stacklevel=1)
        return values

    return cleaned(warning)


@planted("a log line that counts missing values")
def _() -> list[Replacement]:
    def logging_(values: Any, raw: Any, _: Any) -> Any:
        logging.getLogger("dpglm").debug("%s missing", int((~np.isfinite(raw)).sum()))
        return values

    return cleaned(logging_)


@planted("a progress bar that counts complete rows only")
def _() -> list[Replacement]:
    complete: list[int] = []

    def count(batch: Any, *arguments: Any) -> Any:
        complete.append(batch.num_rows - max((column.null_count for column in batch.columns), default=0))
        return ROWS(batch, *arguments)

    def counted(batch: Any, design: Any) -> Any:
        complete.append(batch.num_rows - max((column.null_count for column in batch.columns), default=0))
        return COUNTS(batch, design)

    return [
        (passes, "fixed_point_rows", count),
        (by_looks, "table_counts", counted),
        (passes.Counter, "add", lambda self, done: COUNT(self, complete.pop() if complete else done)),
    ]


@planted("a copy of the odd rows left in a temporary file")
def _() -> list[Replacement]:
    def leaving(values: Any, raw: Any, _: Any) -> Any:
        if not np.isfinite(raw).all():
            folders = [
                frame.f_locals["folder"] for frame in _frames() if isinstance(frame.f_locals.get("folder"), Path)
            ]
            for folder in folders[:1] or [Path(tempfile.gettempdir())]:
                (folder / "odd-rows.txt").write_text(str(raw))
        return values

    return cleaned(leaving)


def _frames() -> Iterator[Any]:
    for frame in sys._current_frames().values():
        while frame is not None:
            yield frame
            frame = frame.f_back
