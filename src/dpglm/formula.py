"""Formula + schema -> Design: the columns of the regression and their public scaling. Never looks at data.

Coding. A numeric factor maps its bounds to [-1, 1]; a two-level factor becomes -1 or 1; a factor of K levels
becomes K - 1 indicators (all K where the model does not hold the term without the factor). A product is *centred*,
as just described, where the model also holds every product with some of its centred factors left out, so that a
model in scaled columns is the same model in the user's columns; otherwise its numeric factors are only divided by
their largest magnitude. Each term then contributes at most 1 to the squared norm of a row.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.conditions import Condition, parse_condition
from dpglm.errors import InputError
from dpglm.expressions import FUNCTIONS, Expression, parse_expression, without_backticks
from dpglm.families import Family, family_named
from dpglm.schema import Column, Schema

_LONGEST_FORMULA = 10_000
_MOST_STEPS = 200_000  # factors written while multiplying out; a formula of 250 columns needs some 60,000
_MOST_FACTORS = 4
MOST_COLUMNS = 250

_FACTOR = r"[A-Za-z_]\w*(?:\([A-Za-z_]\w*\))?"  # "a" or "log(a)"
_SUM = re.compile(rf"\s*(0\s*\+)?\s*({_FACTOR}(?:\s*\+\s*{_FACTOR})*)\s*(-\s*1\s*)?", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w*")  # that needs no backticks
_CALL_OF_A_VALUE = re.compile(r"[])}'\"]\s*\(")  # "f(x)(y)"

_Size = tuple[int, int]  # how many terms, and how many factors they have together
Key = tuple[str, int]  # (expression text, 0) or (column name, level position + 1)


@dataclass(frozen=True)
class Factor:
    """One coded factor, (raw - center) / scale.

    Raw is an expression's value, or the 0/1 indicator of a column's level.
    """

    source: Expression | Column
    level: int
    center: float
    scale: float

    @property
    def key(self) -> Key:
        if isinstance(self.source, Expression):
            return self.source.text, 0
        return self.source.name, self.level + 1

    @property
    def name(self) -> str:
        if isinstance(self.source, Expression):
            return self.source.text
        return f"{self.source.name}[{self.source.levels[self.level]}]"

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the table that it needs."""
        return self.source.columns if isinstance(self.source, Expression) else (self.source.name,)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest coded value."""
        low, high = (self.source.lower, self.source.upper) if isinstance(self.source, Expression) else (0.0, 1.0)
        if (self.center, self.scale) == ((low + high) / 2, (high - low) / 2):
            return -1.0, 1.0  # rounding would make it a bit more or less
        return (low - self.center) / self.scale, (high - self.center) / self.scale

    def evaluate(self, values: Mapping[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """(raw - center) / scale, row by row; ``values`` holds declared numbers, and positions of levels."""
        if isinstance(self.source, Expression):
            raw = self.source.evaluate(values)
        else:
            raw = (values[self.source.name] == self.level).astype(np.float64)
        return (raw - self.center) / self.scale


@dataclass(frozen=True)
class DesignColumn:
    """One predictor: a product of coded factors, inside [-1, 1]."""

    name: str
    factors: tuple[Factor, ...]

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(factor.key for factor in self.factors)


@dataclass(frozen=True)
class Term:
    """What the user wrote between two plus signs: one or several columns, together at most 1 in squared norm."""

    name: str
    columns: tuple[DesignColumn, ...]


@dataclass(frozen=True)
class Design:
    """The regression as public knowledge: everything about a row's statistics except the row.

    Rows outside of ``where`` do not count, nor do rows whose cell of a needed column has no value and no fill.
    """

    formula: str
    family: Family
    schema: Schema
    outcome: Factor
    intercept: bool
    terms: tuple[Term, ...]
    offset: DesignColumn | None
    limit: float = 1.0  # of a coded factor, and of a product of some
    where: Condition | None = None
    weights: str | None = None  # a column's name
    weight_scale: float = 1.0  # what weights are divided by

    @property
    def columns(self) -> tuple[DesignColumn, ...]:
        """The columns of x: the terms' in formula order, then the offset's."""
        columns = tuple(chain.from_iterable(term.columns for term in self.terms))
        return columns if self.offset is None else (*columns, self.offset)

    def of_size(self, rows: int) -> Design:
        """The same regression of a table of this many rows, or units."""
        dataset = self.schema.dataset
        several = dataset.protection.several_rows
        sized = replace(dataset, units=rows) if several else replace(dataset, rows=rows)
        return replace(self, schema=replace(self.schema, dataset=sized))

    @property
    def dimension(self) -> int:
        return len(self.columns)

    @property
    def largest_squared_norm(self) -> int:
        """Bound on a row's squared norm: one a term."""
        return len(self.terms) + (self.offset is not None)

    @property
    def response_range(self) -> tuple[float, float]:
        """Range of the outcome in the coding used for the blocks."""
        low, high = self.outcome.range
        return (max(low, -self.limit), min(high, self.limit)) if self.family.coding == "scaled" else (low, high)

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Inferred coefficients: the intercept first, then the terms' columns; an offset has none."""
        names = tuple(column.name for term in self.terms for column in term.columns)
        return ("Intercept", *names) if self.intercept else names

    @property
    def table_columns(self) -> tuple[Column, ...]:
        """The columns of the table that are read, the outcome first, and last what only condition and weights need."""
        factors = chain([self.outcome], *(column.factors for column in self.columns))
        names = dict.fromkeys(chain.from_iterable(factor.column_names for factor in factors))
        names |= dict.fromkeys(() if self.where is None else self.where.columns)
        names |= dict.fromkeys(() if self.weights is None else (self.weights,))
        order = self.schema.dataset.unit_order
        names |= dict.fromkeys(() if order is None else (order,))
        return tuple(self.schema.columns[name] for name in names)

    @property
    def source_columns(self) -> tuple[Column, ...]:
        """What is read of a table: its columns, and last the one that says which unit a row is of, if any."""
        unit = self.schema.dataset.unit_column
        return self.table_columns if unit is None else (*self.table_columns, Column(unit, "unit", None))

    @property
    def every_row_counts(self) -> bool:
        """Whether no row can fail to count: how many do is then as public as how many there are."""
        return self.where is None and all(column.fill is not None for column in self.table_columns)

    @property
    def spread_unit(self) -> float:
        """What a residual variance in the coding is in the user's units."""
        return self.outcome.scale**2 if self.family.coding == "scaled" else 1.0

    @property
    def counted_is_public(self) -> bool:
        """Whether the number of rows that count is."""
        return self.every_row_counts and self.schema.dataset.number is not None

    def predictors(self, values: Mapping[str, npt.NDArray[np.float64]], num_rows: int) -> npt.NDArray[np.float64]:
        """The columns of x, (dimension, rows), inside the limit, from declared numbers and positions of levels."""
        x = np.empty((self.dimension, num_rows))
        coded: dict[Factor, npt.NDArray[np.float64]] = {}
        for position, column in enumerate(self.columns):
            for factor in column.factors:
                if factor not in coded:
                    # Not np.clip: whatever a value is, what leaves here lies in the box, and nothing is NaN.
                    coded[factor] = np.fmin(np.fmax(factor.evaluate(values), -self.limit), self.limit)
            x[position] = coded[column.factors[0]]
            for factor in column.factors[1:]:
                x[position] *= coded[factor]
                if self.limit > 1:
                    np.clip(x[position], -self.limit, self.limit, out=x[position])
        return x

    def to_original_units(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(matrix, shift): original coefficients = matrix @ scaled ones + shift, in ``coefficient_names`` order.

        Expands each product of (raw - center) / scale; the coding rule makes every part a column of the model.
        """
        columns = [(column, column.keys) for term in self.terms for column in term.columns]
        position = {keys: index + self.intercept for index, (_, keys) in enumerate(columns)}
        if self.intercept:
            position[frozenset()] = 0
        size = len(columns) + self.intercept
        matrix, shift = np.zeros((size, size)), np.zeros(size)
        if self.intercept:
            matrix[0, 0] = 1.0
        for column, keys in columns:
            scale = math.prod(factor.scale for factor in column.factors)
            for left_out in _subsets(column.factors):
                constant = math.prod(-factor.center for factor in left_out)
                if constant:
                    target = keys - {factor.key for factor in left_out}
                    matrix[position[target], position[keys]] += constant / scale
        if self.family.coding == "scaled":
            matrix *= self.outcome.scale
            if self.intercept:
                shift[0] += self.outcome.center
        if self.offset is not None and self.intercept:
            shift[0] -= self.offset.factors[0].center
        return matrix, shift


def build_design(
    formula: object,
    schema: Schema,
    family: object,
    link: object = None,
    where: object = None,
    weights: object = None,
) -> Design:
    """Parse a formula against a schema. Raises InputError for every mistake; reads no rows.

    ``where`` is the text of a condition, or one that is parsed already; ``weights`` the name of a column.
    """
    chosen = family_named(family, link)
    if not isinstance(formula, str) or not formula.strip() or len(formula) > _LONGEST_FORMULA:
        raise InputError("formula", formula, "must be text of the form 'y ~ a + b'", "write a formula")
    try:
        outcome_text, terms_factors = _parse(formula)
    except InputError as error:
        odd = _unquoted(formula, schema)
        raise InputError(error.name, error.value, error.rule, f"write `{odd}` in backticks") if odd else error from None
    intercept = any(not factors for factors in terms_factors)
    offsets = [factors for factors in terms_factors if any(_is_offset(text) for text in factors)]
    raw_terms = [factors for factors in terms_factors if factors and factors not in offsets]
    outcome = _outcome(outcome_text, schema, chosen, intercept)
    offset = _offset(offsets, formula, schema, intercept)
    if not raw_terms:
        raise InputError("formula", formula, "needs at least one predictor", "write for example y ~ a")
    _refuse_many_columns(formula, len(raw_terms))  # every term adds one at least
    coded = _coded_terms(raw_terms, schema, intercept)
    condition = None if where is None else parse_condition(getattr(where, "text", where), schema)
    weighting = None if weights is None else _weights(weights, schema)
    design = Design(formula, chosen, schema, outcome, intercept, coded, offset, where=condition, weights=weighting)
    _check_design(design)
    return design


def _unquoted(formula: str, schema: Schema) -> str | None:
    """A declared name that stands in a formula and needs backticks there."""
    bare = re.sub(r"`[^`]*`", " ", formula)
    return next((name for name in schema.columns if not _NAME.fullmatch(name) and name in bare), None)


def _weights(name: object, schema: Schema) -> str:
    """The name of a column that can be weights: numbers between declared bounds that are not negative."""
    if not isinstance(name, str):
        raise InputError("weights", name, "must be the name of a declared column", "correct it")
    column = schema.column(name)
    if column.has_levels:
        raise InputError("weights", name, "has levels, not numbers", "use a numeric column")
    if column.lower < 0 or column.is_wide:
        rule = "needs declared bounds, the lower one at least 0: the upper one says how much one row may weigh"
        raise InputError("weights", name, rule, "declare lower = 0 and an upper bound")
    return name


def _parse(formula: str) -> tuple[str, list[tuple[str, ...]]]:
    """Outcome and terms as factor texts, in formula order, main effects first; the intercept is the empty term."""
    if formula.count("`") % 2:
        raise InputError("formula", formula, "has a backtick that is not closed", "write `odd name`")
    source, names = without_backticks(formula)
    # Each side by itself: to split them, formulaic would evaluate parts of the left side as Python code.
    left, tilde, right = source.partition("~")
    if "~" in right:
        raise InputError("formula", formula, "cannot be parsed (it has more than one ~)", "write y ~ a + b")
    outcome = _factors(formula, left, names, intercept=False) if tilde else []
    if len(outcome) != 1 or len(outcome[0]) != 1:
        raise InputError("formula", formula, "must have one outcome on the left of ~", "write y ~ a + b")
    return outcome[0][0], sorted(_factors(formula, right, names, intercept=True), key=len)


def _factors(formula: str, side: str, names: Mapping[str, str], intercept: bool) -> list[tuple[str, ...]]:
    """The terms of one side, each as the texts of its factors."""
    if plain := _SUM.fullmatch(side.strip()):  # as nearly all are: to import formulaic takes half a second
        zero, summands, minus_one = plain.groups()
        texts = dict.fromkeys(_with_backticks(text.strip(), names) for text in summands.split("+"))
        return [*([()] if intercept and not (zero or minus_one) else []), *((text,) for text in texts)]
    from formulaic.parser import DefaultFormulaParser

    if _CALL_OF_A_VALUE.search(side):
        raise InputError("formula", formula, "calls what is no function", f"use {', '.join(FUNCTIONS)} and + - * / **")
    parser = DefaultFormulaParser(include_intercept=intercept, feature_flags=set())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # "1or x": refused later, in our own words
            _refuse_many_products(formula, parser.get_ast(side))
            terms = list(parser.get_terms(side))
    except RecursionError:
        raise InputError("formula", formula, "is nested too deeply", "simplify it") from None
    except InputError:
        raise
    except Exception as error:  # formulaic raises many kinds; whatever it is, the formula is at fault
        reason = _with_backticks(str(error).split("\n")[0].split(". ")[0].rstrip(".")[:100], names)
        raise InputError("formula", formula, f"cannot be parsed ({reason})", "write y ~ a + b") from None
    return [
        tuple(_with_backticks(factor.expr, names) for factor in term.factors if not _is_one(factor)) for term in terms
    ]


def _refuse_many_products(formula: str, tree: Any) -> None:
    """Stop before formulaic multiplies out what nobody can want: (a + b + c)**20 has billions of products.

    Every step writes all terms of its result, so a long chain of short steps is too much as well.
    """
    nodes = [tree]
    for node in nodes:  # grows: parents before their arguments
        nodes.extend(getattr(node, "args", ()))
    sizes: dict[int, _Size] = {}
    steps = 0
    for node in reversed(nodes):
        symbol, arguments = getattr(getattr(node, "operator", None), "symbol", ""), list(getattr(node, "args", ()))
        given = [sizes[id(argument)] for argument in arguments]
        if symbol == ".":
            raise InputError("formula", formula, "'.' would look at the table to decide", "name the columns")
        if symbol in ("**", "^"):
            power = str(arguments[1])
            if power not in map(str, range(1, _MOST_FACTORS + 1)):
                rule = f"powers of terms must be 1 to {_MOST_FACTORS}"
                raise InputError("formula", formula, rule, "write I(a**2) for the square of a column")
            size = reduce(_product_size, [given[0]] * int(power))
        elif symbol in ("*", ":", "/", "in") and len(given) == 2:
            left, right = given
            parents, nested = (right, left) if symbol == "in" else (left, right)
            # a / b is a and, with all factors of a in one product, b.
            multiplied = _product_size((1, parents[1]) if symbol in ("/", "in") else parents, nested)
            added = {"*": [parents, nested], ":": []}.get(symbol, [parents])
            size = _sum_size([*added, multiplied])
        else:
            size = _sum_size(given) if given else (1, 1)
        sizes[id(node)] = size
        steps += sum(size)
        if steps > _MOST_STEPS:
            raise InputError("formula", formula, "multiplies out to too many terms", "use fewer interactions")


def _product_size(left: _Size, right: _Size) -> _Size:
    return left[0] * right[0], left[1] * right[0] + right[1] * left[0]


def _sum_size(parts: list[_Size]) -> _Size:
    return sum(terms for terms, _ in parts), sum(factors for _, factors in parts)


def _with_backticks(text: str, names: Mapping[str, str]) -> str:
    """Put back the names that ``without_backticks`` took out."""
    return re.sub(
        r"\w+", lambda word: f"`{names[word[0]]}`" if names.get(word[0], word[0]) != word[0] else word[0], text
    )


def _is_one(factor: Any) -> bool:
    """Whether this is the constant, and not a column that is called 1."""
    return factor.eval_method is not None and factor.eval_method.value == "literal" and factor.expr == "1"


def _outcome(text: str, schema: Schema, family: Family, intercept: bool) -> Factor:
    """The coded outcome: two levels as -1 and 1, counts as they are, numbers scaled by their bounds."""
    column = _named(text, schema)
    if column is None and _is_name(text):
        schema.column(text.strip("`"))  # raises, with a suggestion
    kind = "numeric" if column is None else column.type
    if column is not None and column.missing_is_level:
        rule = 'declares missing = "level", and an outcome that is missing is none'
        raise InputError("outcome", text, rule, "leave it out: such rows do not count")
    if kind not in family.outcome_types:
        allowed = " or ".join(family.outcome_types)
        raise InputError("outcome", text, f"{family.name} needs a {allowed} column, this one is {kind}", "redeclare it")
    if column is not None and column.has_levels:
        return Factor(column, 1, 0.5, 0.5)
    expression = _expression(text, schema)
    if family.coding == "count":
        return Factor(expression, 0, 0.0, 1.0)
    return _numeric_factor(expression, centred=intercept)


def _coded_terms(raw_terms: list[tuple[str, ...]], schema: Schema, intercept: bool) -> tuple[Term, ...]:
    """Terms with as many columns as they add to those before them: no column follows from the others.

    Of one term's columns a row has at most one that is not zero: the bound on its norm is one a term.
    """
    covered: set[frozenset[str]] = {frozenset()} if intercept else set()
    uncoded: list[tuple[str, list[tuple[Factor, ...]]]] = []
    for factors in raw_terms:
        if len(factors) > _MOST_FACTORS:
            raise InputError("formula", ":".join(factors), f"has more than {_MOST_FACTORS} factors", "use fewer")
        if frozenset(factors) in covered:
            raise InputError("formula", ":".join(factors), "appears twice", "remove one of them")
        uncoded += _added(factors, schema, covered)
        _refuse_many_columns(":".join(factors), sum(len(columns) for _, columns in uncoded))
    held = {frozenset(factor.key for factor in column) for _, columns in uncoded for column in columns}
    if intercept:
        held.add(frozenset())
    return tuple(Term(name, tuple(_design_column(column, held) for column in columns)) for name, columns in uncoded)


def _added(factors: tuple[str, ...], schema: Schema, covered: set[frozenset[str]]) -> list[tuple[str, list[Any]]]:
    """What a term adds to what is covered, as named lists of columns; ``covered`` is brought up to date.

    All levels of a factor are the constant and all levels but the first. So a term is a sum of products with the first
    levels left out, one for each choice of its factors with levels; those that earlier terms have are dropped, and two
    that differ in one factor become one with all its levels. Where only the constant is dropped, what is left is all
    cells but the first.
    """
    with_levels = [text for text in factors if (column := _named(text, schema)) is not None and column.has_levels]
    rest = [text for text in factors if text not in with_levels]
    choices = [(*rest, *chosen) for size in range(len(with_levels) + 1) for chosen in combinations(with_levels, size)]
    new = [choice for choice in choices if frozenset(choice) not in covered]
    covered.update(map(frozenset, choices))

    def columns(all_levels: dict[str, bool]) -> tuple[str, list[Any]]:
        chosen = [text for text in factors if text in all_levels]
        number = math.prod(_number_of_columns(text, schema, all_levels[text]) for text in chosen)
        _refuse_many_columns(":".join(factors), number - 1)  # the first may be dropped
        return ":".join(chosen), list(product(*(_alternatives(text, schema, all_levels[text]) for text in chosen)))

    if new == choices[1:] and new:
        name, cells = columns(dict.fromkeys(factors, True))
        return [(name, cells[1:])]
    parts = [dict.fromkeys(choice, False) for choice in new]
    while pairs := [(short, long) for short, long in product(parts, parts) if _is_one_factor_more(short, long)]:
        short, long = pairs[0]
        (factor,) = long.keys() - short.keys()
        parts = [part for part in parts if part is not short and part is not long] + [long | {factor: True}]
    return [columns(part) for part in sorted(parts, key=len)]


def _is_one_factor_more(short: dict[str, bool], long: dict[str, bool]) -> bool:
    return short.items() < long.items() and len(long) == len(short) + 1


def _alternatives(text: str, schema: Schema, full: bool) -> list[Factor]:
    """The columns that one factor stands for, not yet centred."""
    column = _named(text, schema)
    if column is None or not column.has_levels:
        return [_numeric_factor(_expression(text, schema), centred=False)]
    return [Factor(column, level, 0.0, 1.0) for level in range(0 if full else 1, len(column.levels))]


def _number_of_columns(text: str, schema: Schema, full: bool) -> int:
    """How many ``_alternatives`` there are."""
    column = _named(text, schema)
    return 1 if column is None or not column.has_levels else len(column.levels) - (not full)


def _refuse_many_columns(term: str, number: int) -> None:
    """Before they are built: four factors of a thousand levels each would fill any memory."""
    if number > MOST_COLUMNS:
        raise InputError("formula", term, f"gives more than {MOST_COLUMNS} columns", "use fewer terms, or fewer levels")


def _design_column(factors: tuple[Factor, ...], held: set[frozenset[Key]]) -> DesignColumn:
    keys = frozenset(factor.key for factor in factors)
    centrable = [f for f in factors if isinstance(f.source, Expression) or len(f.source.levels) == 2]
    centred = all(keys - {factor.key for factor in subset} in held for subset in _subsets(centrable))
    coded = tuple(_centred(factor) if centred and factor in centrable else factor for factor in factors)
    return DesignColumn(":".join(factor.name for factor in factors), coded)


def _centred(factor: Factor) -> Factor:
    if isinstance(factor.source, Expression):
        return _numeric_factor(factor.source, centred=True)
    return Factor(factor.source, factor.level, 0.5, 0.5)


def _numeric_factor(expression: Expression, centred: bool) -> Factor:
    low, high = expression.lower, expression.upper
    if centred:
        return Factor(expression, 0, (low + high) / 2, (high - low) / 2)
    return Factor(expression, 0, 0.0, max(abs(low), abs(high)))


def _offset(offsets: list[tuple[str, ...]], formula: str, schema: Schema, intercept: bool) -> DesignColumn | None:
    if not offsets:
        return None
    if len(offsets) > 1 or len(offsets[0]) > 1:
        raise InputError("formula", formula, "may hold one offset(column), by itself", "add the columns up first")
    text = offsets[0][0]
    inside = text.strip()[len("offset(") : -1]
    column = _named(inside, schema)
    if column is not None and column.has_levels:
        raise InputError("offset", inside, "must be numeric", "declare numbers, or use it as a predictor")
    return DesignColumn(text, (_numeric_factor(_expression(inside, schema), centred=intercept),))


def _is_offset(text: str) -> bool:
    return text.replace(" ", "").startswith("offset(") and text.rstrip().endswith(")")


def _is_name(text: str) -> bool:
    """Whether a factor is one name, quoted or not, and not a function of some."""
    return (text.startswith("`") and text.find("`", 1) == len(text) - 1) or not set("(`") & set(text)


def _named(text: str, schema: Schema) -> Column | None:
    """The declared column that a factor is, if it is one by itself."""
    return schema.columns.get(text.strip("`")) if _is_name(text) else None


def _expression(text: str, schema: Schema) -> Expression:
    """The factor as an expression; a column's name is quoted, because Python may not take it for a name."""
    column = _named(text, schema)
    return parse_expression(text if column is None else f"`{column.name}`", schema)


def _check_design(design: Design) -> None:
    if design.offset is None and "offset(" in without_backticks(design.formula)[0]:
        raise InputError("formula", design.formula, "takes an offset away", "write + offset(I(-a)), or leave it out")
    if design.schema.dataset.unit_order is not None and design.family.coding != "sign":
        rule = f"is of rows that end with an event, and a {design.family.name} outcome is none"
        raise InputError("unit_order", design.schema.dataset.unit_order, rule, "leave it out of the dataset")
    unit = design.schema.dataset.unit_column
    if unit is not None and unit in [column.name for column in design.table_columns]:
        raise InputError("unit_column", unit, "is also used in the regression", "copy that column under another name")
    used = {name for column in design.columns for factor in column.factors for name in factor.column_names}
    for name in sorted(used.intersection(design.outcome.column_names)):
        raise InputError("outcome", name, "is also among the predictors", "remove it from one side")
    _refuse_many_columns(design.formula, design.dimension)
    keys: set[frozenset[Key]] = set()
    for column in design.columns:
        if column.keys in keys:
            raise InputError("formula", column.name, "appears twice", "remove one of them")
        keys.add(column.keys)
    names: set[str] = set()
    for name in design.coefficient_names:
        if name in names:
            raise InputError(
                "formula", name, "would be the name of two coefficients", "rename the column in the schema"
            )
        names.add(name)


def _subsets(factors: tuple[Factor, ...] | list[Factor]) -> Iterator[tuple[Factor, ...]]:
    return chain.from_iterable(combinations(factors, size) for size in range(len(factors) + 1))
