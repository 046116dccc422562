"""Pointwise arithmetic on numeric columns: bounds follow from the declared ones, no row is looked at.

An expression is a column name, or arithmetic (``+ - * /``, ``**`` with a small whole power) inside ``I(...)``, or
``log``, ``sqrt``, ``exp`` of an expression. It is parsed with Python's own parser and evaluated node by node; there
is no ``eval``.
"""

from __future__ import annotations

import ast
import keyword
import math
import unicodedata
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpglm.errors import InputError
from dpglm.schema import Schema

FUNCTIONS = ("I", "log", "sqrt", "exp")
LARGEST_POWER = 8
_LONGEST_EXPRESSION = 1_000  # characters; a formula may hold it in every term
_LARGEST_VALUE = 1e150
_SMALLEST_SPREAD = 1e-290  # far above where quotients lose digits
_DEEPEST = 40
_LEVEL_REMEDY = "declare the column with type = 'categorical' and its levels in the schema"
# Functions that people write in formulas and that look at the data, with what to do instead.
_DATA_DEPENDENT = {
    "C": _LEVEL_REMEDY,
    "cut": _LEVEL_REMEDY,
    "qcut": _LEVEL_REMEDY,
    "scale": "leave it out: columns are scaled by their declared bounds",
    "center": "leave it out: columns are centred by their declared bounds",
    "standardize": "leave it out: columns are scaled by their declared bounds",
    "poly": "write the powers, for example a + I(a**2)",
    "hashed": _LEVEL_REMEDY,
    "lag": "compute the column before the table is released",
}
_SPLINES = {"bs", "cr", "cs", "cc", "te", "ns", "s", "tp"}

Interval = tuple[float, float]


@dataclass(frozen=True)
class Expression:
    """A numeric column, or a pointwise transform of some.

    ``lower`` and ``upper`` bound its values on the declared ranges.
    """

    text: str
    columns: tuple[str, ...]
    lower: float
    upper: float
    _tree: ast.expr = field(compare=False, repr=False)
    _names: Mapping[str, str] = field(compare=False, repr=False)

    @property
    def is_column(self) -> bool:
        """Whether it is a column as it stands."""
        return isinstance(self._tree, ast.Name)

    def evaluate(self, values: Mapping[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """Values of the expression, row by row: a row's result does not depend on the rows beside it.

        Edge cases: none can overflow, because every intermediate result is bounded when parsed. A value that the last
        bit of a log or exp puts outside the bounds becomes the nearer one (inside another log, where it is NaN, the
        lower one).
        """
        if self.is_column:
            return np.ascontiguousarray(_evaluate(self._tree, self._names, values), dtype=np.float64)
        with np.errstate(all="ignore"):
            result = np.minimum(_evaluate(self._tree, self._names, values), self.upper)
            return np.ascontiguousarray(np.where(result >= self.lower, result, self.lower), dtype=np.float64)


def parse_expression(text: str, schema: Schema) -> Expression:
    """Parse one factor of a formula; every error is known before any row is read."""
    if len(text) > _LONGEST_EXPRESSION:
        rule = f"is longer than {_LONGEST_EXPRESSION:,} characters"
        raise InputError("formula", text, rule, "compute the column before the release")
    source, names = without_backticks(text)
    if unicodedata.normalize("NFKC", source) != source:  # Python would read other letters
        rule = "holds letters that are written in several ways"
        raise InputError("formula", text, rule, "put the column's name in backticks")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # "1or x": refused below, in our own words
            tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError("formula", text, "is not an expression", "write for example log(a) or I(a**2)") from None
    columns: list[str] = []
    lower, upper = _bounds(tree, text, names, schema, columns, depth=0)
    if not columns:
        raise InputError("formula", text, "holds no column", "leave constants out")
    if not lower < upper:
        raise InputError("formula", text, "is constant on the declared bounds", "leave it out or correct the bounds")
    # As for columns, and above the smallest doubles: half the range is what the values are divided by.
    if (upper - lower) / 2 <= max(1e-12 * max(abs(lower), abs(upper)), _SMALLEST_SPREAD):
        rule = f"hardly varies on the declared bounds, from {lower:g} to {upper:g}"
        raise InputError("formula", text, rule, "shift or rescale it")
    plain = columns[0] if isinstance(tree, ast.Name) else text
    return Expression(plain, tuple(dict.fromkeys(columns)), lower, upper, tree, names)


def without_backticks(text: str) -> tuple[str, dict[str, str]]:
    """`odd name` -> an identifier that the text does not hold, so that Python can parse it, and which name it is."""
    number = 0  # so that the prefix stays short, whatever the text holds
    while (prefix := f"quoted_{number}_column_") in text:
        number += 1
    names, source = {}, ""
    for position, part in enumerate(text.split("`")):
        if position % 2:
            plain = part.isidentifier() and not keyword.iskeyword(part) and unicodedata.is_normalized("NFKC", part)
            identifier = part if plain else f"{prefix}{position}"
            names[identifier] = part
            source += f" {identifier} "
        else:
            source += part
    return source, names


def _bounds(
    node: ast.expr, text: str, names: Mapping[str, str], schema: Schema, columns: list[str], depth: int
) -> Interval:
    """Interval arithmetic over the tree; refuses what is not on the list above."""
    if depth > _DEEPEST:
        raise InputError("formula", text, "is nested too deeply", "compute the column before the release")

    def inner(child: ast.expr) -> Interval:
        return _bounds(child, text, names, schema, columns, depth + 1)

    match node:
        case ast.Name(id=identifier):
            column = schema.column(names.get(identifier, identifier))
            if column.has_levels:
                raise InputError(
                    "formula", text, f"{column.name!r} has levels, not numbers", "use the column by itself"
                )
            columns.append(column.name)
            result = column.lower, column.upper
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            result = _as_float(number, text), _as_float(number, text)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            low, high = inner(operand)
            result = -high, -low
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            result = _power(inner(left), right, text)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as operator, right=right):
            result = _arithmetic(operator, inner(left), inner(right), text)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            result = _function(name, inner(argument), text)
        case ast.Call(func=func):
            raise _refused_call(ast.unparse(func), text)
        case _:
            raise InputError(
                "formula", text, "is not allowed in a formula", f"use {', '.join(FUNCTIONS)} and + - * / **"
            )
    if not all(abs(value) <= _LARGEST_VALUE for value in result):
        raise InputError("formula", text, "is too large on the declared bounds", "tighten the bounds or rescale")
    return result


def _arithmetic(operator: ast.operator, left: Interval, right: Interval, text: str) -> Interval:
    if isinstance(operator, ast.Add):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(operator, ast.Sub):
        return left[0] - right[1], left[1] - right[0]
    if isinstance(operator, ast.Div):
        if right[0] <= 0 <= right[1]:
            raise InputError("formula", text, "divides by a range that holds 0", "declare bounds that exclude 0")
        quotients = [a / b for a in left for b in right]
        return min(quotients), max(quotients)
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def _power(base: Interval, exponent: ast.expr, text: str) -> Interval:
    if not isinstance(exponent, ast.Constant) or type(exponent.value) is not int:
        raise InputError("formula", text, "powers must be whole numbers", f"use 2 to {LARGEST_POWER}, or sqrt and exp")
    power = exponent.value
    if not 1 <= power <= LARGEST_POWER:
        raise InputError("formula", text, f"powers must be 1 to {LARGEST_POWER}", "use a smaller power")
    if max(abs(base[0]), abs(base[1])) > _LARGEST_VALUE ** (1 / power):
        raise InputError("formula", text, "is too large on the declared bounds", "tighten the bounds or rescale")
    ends = sorted(math.prod([end] * power) for end in base)  # the products that evaluation takes: rounded alike
    if power % 2 == 0 and base[0] < 0 < base[1]:
        return 0.0, ends[1]
    return ends[0], ends[1]


def _function(name: str, argument: Interval, text: str) -> Interval:
    if name == "I":
        return argument
    if name == "log" and not argument[0] > 0:
        raise InputError(
            "formula", text, f"log needs a lower bound above 0, got {argument[0]:g}", "declare a lower bound"
        )
    if name == "sqrt" and not argument[0] >= 0:
        raise InputError("formula", text, f"sqrt needs a lower bound of 0 or more, got {argument[0]:g}", "declare it")
    if name == "exp" and argument[1] > math.log(_LARGEST_VALUE):
        raise InputError("formula", text, "exp is too large on the declared bounds", "tighten the bounds or rescale")
    function = getattr(math, name)
    return function(argument[0]), function(argument[1])


def _refused_call(name: str, text: str) -> InputError:
    if name in _SPLINES:
        return InputError("formula", text, f"{name} places its knots by the data", "write powers, or bins with levels")
    if name in _DATA_DEPENDENT:
        return InputError("formula", text, f"{name} would look at the data to decide", _DATA_DEPENDENT[name])
    rule = f"only {', '.join(FUNCTIONS)} of one argument are known"
    return InputError("formula", text, rule, "compute the column before the release and declare it")


def _evaluate(
    node: ast.expr, names: Mapping[str, str], values: Mapping[str, npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    def inner(child: ast.expr) -> npt.NDArray[np.float64]:
        return _evaluate(child, names, values)

    match node:
        case ast.Name(id=identifier):
            return values[names.get(identifier, identifier)]
        case ast.Constant(value=number):
            return np.asarray(float(number))  # type: ignore[arg-type]
        case ast.UnaryOp(operand=operand):
            return -inner(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)):
            base = inner(left)
            result = base
            for _ in range(power - 1):  # repeated products round the same on every machine
                result = result * base
            return result
        case ast.BinOp(left=left, op=operator, right=right):
            ufunc = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide}[type(operator)]
            return np.asarray(ufunc(inner(left), inner(right)))
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            value = np.ascontiguousarray(inner(argument))
            return value if name == "I" else np.asarray(getattr(np, name)(value))
    raise AssertionError("unreachable: the tree was checked when it was parsed")


def _as_float(number: int | float, text: str) -> float:
    try:
        return float(number)
    except OverflowError:
        raise InputError(
            "formula", text, "is too large on the declared bounds", "tighten the bounds or rescale"
        ) from None
