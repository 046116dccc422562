"""Which rows count, by a public condition on declared columns: ``age >= 20 and smoker in ('never', 'former')``.

Comparisons of columns with constants or with each other, ``in`` a list of constants, ``and``, ``or``, ``not``. Python's
own parser parses it, node by node it is evaluated; there is no ``eval``. Columns with levels are compared with their
levels by ``==``, ``!=`` and ``in``; numbers as they stand in the table, before they are clamped.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.expressions import without_backticks
from dpglm.privacy import finite_number
from dpglm.schema import Column, Schema
from dpglm.values import days, level_value

Truth = npt.NDArray[np.bool_]
Values = Mapping[str, npt.NDArray[np.float64]]

_LONGEST, _DEEPEST, _MOST_VALUES = 10_000, 40, 1_000
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ALLOWED = "use column names, numbers, levels, < <= > >= == != in, and, or, not"


@dataclass(frozen=True)
class Condition:
    """A parsed condition; ``columns`` are those that it names, in order."""

    text: str
    columns: tuple[str, ...]
    _schema: Schema = field(compare=False, repr=False)
    _holds: Callable[[Values], Any] = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_condition, (self.text, self._schema)

    def holds(self, values: Values, rows: int) -> Truth:
        """Row by row, from numbers as they stand in the table and from positions of levels.

        A row's result does not depend on the rows beside it.
        """
        return np.broadcast_to(np.asarray(self._holds(values), dtype=bool), (rows,))


def parse_condition(text: object, schema: Schema) -> Condition:
    """Parse a condition; every error is known before any row is read."""
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise InputError("where", text, "must be text of the form 'age >= 20'", "write a condition")
    source, names = without_backticks(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError("where", text, "is not a condition", _ALLOWED) from None
    parser = _Parser(text, names, schema, [])
    holds = parser.condition(tree, 0)
    if not parser.columns:
        raise InputError("where", text, "names no column", "leave it out")
    return Condition(text, tuple(dict.fromkeys(parser.columns)), schema, holds)


@dataclass(frozen=True)
class _Parser:
    text: str
    names: Mapping[str, str]
    schema: Schema
    columns: list[str]

    def condition(self, node: ast.expr, depth: int) -> Callable[[Values], Any]:
        """What says of every row whether the condition holds."""
        if depth > _DEEPEST:
            raise self._wrong("is nested too deeply")
        match node:
            case ast.BoolOp(op=op, values=parts):
                held = [self.condition(part, depth + 1) for part in parts]
                together: Any = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return lambda values: together.reduce([each(values) for each in held])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.condition(operand, depth + 1)
                return lambda values: np.logical_not(inner(values))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                pairs = zip([left, *rights[:-1]], ops, rights, strict=True)
                compared = [self._comparison(one, op, other) for one, op, other in pairs]
                return lambda values: np.logical_and.reduce([each(values) for each in compared])
        raise self._wrong("holds what is no comparison")

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Callable[[Values], Any]:
        column = self._column(left)
        if column is None:
            mirrored = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
            if self._column(right) is None or isinstance(op, ast.In | ast.NotIn):
                raise self._wrong("compares what is no column")
            return self._comparison(right, mirrored.get(type(op), type(op))(), left)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not 1 <= len(right.elts) <= _MOST_VALUES:
                raise self._wrong("needs a list after in, for example ('never', 'former')")
            listed = np.array([self._constant(column, each) for each in right.elts])
            wanted = isinstance(op, ast.In)
            return lambda values: np.isin(values[column.name], listed) == wanted
        compare = _COMPARISONS.get(type(op))
        if compare is None:
            raise self._wrong("holds a comparison that is not known")
        if column.has_levels and not isinstance(op, ast.Eq | ast.NotEq):
            raise self._wrong(f"orders {column.name!r}, which has levels")
        other = self._column(right)
        if other is None:
            constant = self._constant(column, right)
            return lambda values: compare(values[column.name], constant)
        if column.has_levels or other.has_levels:
            raise self._wrong("compares two columns that are not both numbers")
        return lambda values: compare(values[column.name], values[other.name])

    def _column(self, node: ast.expr) -> Column | None:
        if not isinstance(node, ast.Name):
            return None
        column = self.schema.column(self.names.get(node.id, node.id))
        self.columns.append(column.name)
        return column

    def _constant(self, column: Column, node: ast.expr) -> float:
        """A number, or the position of a level."""
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
        value = inner.value if isinstance(inner, ast.Constant) else None
        if negative:
            value = -value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if column.dates and isinstance(value, str) and (day := days(value)) is not None:
            return day
        if not column.has_levels:
            number = finite_number(value)
            if number is None:
                raise self._wrong(f"compares {column.name!r} with what is no number")
            return number
        positions = {level_value(level): float(code) for code, level in enumerate(column.levels)}
        readable = isinstance(value, str | bool) or finite_number(value) is not None
        if not readable or level_value(value) not in positions:  # type: ignore[arg-type]
            shown = ", ".join(map(repr, column.levels[:5]))
            raise self._wrong(f"compares {column.name!r} with what is none of its levels ({shown})")
        return positions[level_value(value)]  # type: ignore[arg-type]

    def _wrong(self, rule: str) -> InputError:
        return InputError("where", self.text, rule, _ALLOWED)
