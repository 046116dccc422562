"""What a person declares about a table: columns, bounds, levels, fill values, the number of rows, the unit of privacy.

Everything here is public and written by a person; nothing is ever read from the rows. A schema is a TOML file::

    [dataset]
    name = "patients-2024"
    rows = 758
    unit = "one patient"

    [columns.age]
    type = "numeric"
    lower = 20
    upper = 90

A row in which a cell is missing, of a column without a declared ``fill``, does not count.

A row is a unit of privacy, or, with ``unit_column``, all rows of a person together are (docs/repeated_rows.md).
"""

from __future__ import annotations

import difflib
import json
import math
import numbers
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from dpglm.errors import FileError, InputError
from dpglm.privacy import finite_number
from dpglm.protection import NEIGHBOURS, ONE_ROW_REPLACED, REPLACED, Protection
from dpglm.values import Level, date_of, days, level_value

COLUMN_TYPES = ("numeric", "count", "binary", "categorical")

_DATASET_KEYS = {"name", "id", "rows", "unit", "rows_per_unit", "neighbours", "unit_column", "units", "unit_order"}
_USUAL_ROWS = 10_000  # what a release is planned for where their number is private
_COLUMN_KEYS = {
    "numeric": {"type", "lower", "upper", "fill", "label"},
    "count": {"type", "upper", "fill", "label"},
    "binary": {"type", "levels", "reference", "fill", "missing", "label"},
    "categorical": {"type", "levels", "reference", "fill", "missing", "label", "ordered"},
}
MISSING = "missing"  # the level that a missing cell is where a column declares missing = "level"
_LONGEST_NAME = 200
_LARGEST_BOUND = 1e150  # so that squares and differences of bounds stay finite
_MOST_LEVELS = 1000
WIDE, WIDE_COUNT = (-1e12, 1e12), (0.0, 2.0**20)  # bounds of a column that declares none: looks find where it lives
_MOST_ROWS = 10**15
_LARGEST_FILE = 2**20
_MOST_DOTS = 20  # of a key; one is enough
# A string or a comment of TOML, or the rest of the text where it has no end.
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*(?:"|\n|\Z)|\'[^\'\n]*(?:\'|\n|\Z)|#[^\n]*',
    re.DOTALL,
)
_LONGEST_HINT = 40  # to compare two names takes time with the cube of their length
_MOST_COMPARED = 1_000


@dataclass(frozen=True)
class Dataset:
    """The table as the public knows it. Releases with the same ``id`` describe the same rows.

    A unit is a row, or all rows with the same value in ``unit_column``. ``rows`` is None where their number is private:
    where units may have several, and where neighbouring tables differ by one that is added or removed. ``units`` is how
    many units there are, where they may have several rows and that is public. ``unit_order`` is the column by which a
    unit's rows follow each other, where whether there is a next one may depend on the outcome of the one before.
    """

    id: str
    name: str
    rows: int | None
    unit: str
    protection: Protection = ONE_ROW_REPLACED
    unit_column: str | None = None
    units: int | None = None
    unit_order: str | None = None

    @property
    def number(self) -> int | None:
        """The public number of units of privacy, or None."""
        if not self.protection.replaced:
            return None
        return self.size

    @property
    def size(self) -> int | None:
        """The number of units as it is declared, or assumed by a plan."""
        return self.units if self.protection.several_rows else self.rows

    @property
    def counted(self) -> str:
        """What is counted, in a word."""
        return "units" if self.protection.several_rows else "rows"

    @property
    def planned(self) -> int:
        """What noise is divided for: the public number of units, or a usual one."""
        return _USUAL_ROWS if self.number is None else self.number

    def to_dict(self) -> dict[str, Any]:
        """The TOML's shape."""
        found: dict[str, Any] = {"name": self.name, "id": self.id, "unit": self.unit}
        found |= {} if self.unit_column is None else {"unit_column": self.unit_column}
        found |= {} if self.unit_order is None else {"unit_order": self.unit_order}
        if not self.protection.replaced:
            return found | {"neighbours": self.protection.neighbours}
        return found | {self.counted: self.number}


@dataclass(frozen=True)
class Column:
    """One declared column.

    ``numeric`` and ``count`` have bounds and a numeric fill; ``binary`` and ``categorical`` have levels, the reference
    level first, and a fill that is one of them. Without a fill (None) a row whose cell cannot be read does not count.
    ``missing_is_level``: the last level stands for such cells, and is the fill. ``label`` is what people call it in
    reports and tables, nothing else. ``dates``: a numeric column whose cells are dates; its bounds and its fill are
    declared as dates, and are days since 1970-01-01. ``ordered``: its levels are, from the reference up; a fit then
    tells each step from one to the next, and a release does not depend on it.
    """

    name: str
    type: str
    fill: Level | None
    lower: float = 0.0
    upper: float = 1.0
    levels: tuple[Level, ...] = ()
    missing_is_level: bool = False
    label: str | None = field(default=None, compare=False)
    dates: bool = False
    ordered: bool = field(default=False, compare=False)

    @property
    def title(self) -> str:
        """What people call it: its label, or else its name."""
        return self.name if self.label is None else self.label

    @property
    def domain(self) -> str:
        """Its declared bounds or levels, in words."""
        if self.has_levels:
            first, *others = map(str, self.own_levels)
            between = " < " if self.ordered else ", "
            return between.join([f"{first} (reference)", *others]) + f", {MISSING}" * self.missing_is_level
        low, high = (f"{bound:,.12g}" for bound in (self.lower, self.upper))
        return "any, its place is found by the survey" if self.is_wide else f"{low} to {high}"

    @property
    def fate_of_missing(self) -> str:
        """What becomes of a row or cell without a value, in words."""
        if self.missing_is_level:
            return "is a level of its own"
        return "its row does not count" if self.fill is None else f"is taken for {self.fill}"

    @property
    def is_wide(self) -> bool:
        """Whether a bound was left out."""
        wide = WIDE_COUNT if self.type == "count" else WIDE
        return not self.has_levels and (self.upper == wide[1] or self.lower == WIDE[0])

    @property
    def own_levels(self) -> tuple[Level, ...]:
        """The levels without the one that stands for missing cells."""
        return self.levels[:-1] if self.missing_is_level else self.levels

    @property
    def has_levels(self) -> bool:
        return self.type in ("binary", "categorical")

    @property
    def stand_in(self) -> float:
        """What a cell that cannot be read is taken for: the fill, or the position of that level.

        Without a fill it stands where nothing is counted; a number's is the middle of its bounds, or 0 if they are
        wide, a level's the reference.
        """
        if self.has_levels:
            kinds = [_same_kind(level) for level in self.levels]
            return 0.0 if self.fill is None else float(kinds.index(_same_kind(self.fill)))
        if self.fill is not None:
            return float(self.fill)
        if self.is_wide:
            return min(max(0.0, self.lower), self.upper)
        middle = (self.lower + self.upper) / 2
        return float(int(middle)) if self.type == "count" else middle

    def to_dict(self) -> dict[str, Any]:
        """The TOML shape of this column."""
        more: dict[str, Any] = {} if self.fill is None else {"fill": self.fill}
        more |= {} if self.label is None else {"label": self.label}
        more |= {"ordered": True} if self.ordered else {}
        if self.missing_is_level:
            more = {"missing": "level"} | {key: value for key, value in more.items() if key != "fill"}
            return {"type": self.type, "levels": list(self.own_levels), **more}
        if self.has_levels:
            return {"type": self.type, "levels": list(self.levels), **more}
        bounds = {"upper": self.upper} if self.type == "count" else {"lower": self.lower, "upper": self.upper}
        found: dict[str, Any] = {"type": self.type, **bounds, **more}
        if self.dates:
            found |= {key: date_of(found[key]) for key in ("lower", "upper", "fill") if key in found}
        return found


@dataclass(frozen=True)
class Schema:
    """A dataset and its declared columns.

    >>> schema = Schema.from_dict({
    ...     "dataset": {"name": "patients", "rows": 758, "unit": "one patient"},
    ...     "columns": {"age": {"type": "numeric", "lower": 20, "upper": 90}},
    ... })
    >>> schema.columns["age"].upper
    90.0
    """

    dataset: Dataset
    columns: Mapping[str, Column]

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a TOML schema file."""
        try:
            with open(path, "rb") as stream:
                content = stream.read(_LARGEST_FILE + 1)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            reason = getattr(error, "strerror", None) or str(error)
            raise FileError("schema", str(path), f"cannot be read ({reason})", "check the path") from None
        if len(content) > _LARGEST_FILE:
            raise FileError("schema", str(path), "is larger than a schema can be", "check the path")
        try:
            text = content.decode("utf-8")
            if _most_dots(text) > _MOST_DOTS:  # the parser takes time and memory with their square
                raise FileError("schema", str(path), "is not valid TOML (a key of many dots)", "correct the file")
            data = tomllib.loads(text)
        except FileError:
            raise
        except (ValueError, RecursionError) as error:  # ValueError: not TOML, not UTF-8, or a number of too many digits
            reason = str(error) or type(error).__name__
            raise FileError("schema", str(path), f"is not valid TOML ({reason})", "correct the file") from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """Build a schema from a dict of the TOML's shape, checking every rule."""
        if not isinstance(data, Mapping):
            raise InputError("schema", data, "must be a table", "give a dict with 'dataset' and 'columns'")
        _only_known_keys("schema", data, {"dataset", "columns"})
        columns = data.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            raise InputError("columns", columns, "must declare at least one column", "add [columns.NAME] tables")
        schema = cls(
            _dataset(data.get("dataset")),
            {_name("column name", name): _column(name, declared) for name, declared in columns.items()},
        )
        order = schema.dataset.unit_order
        if order is not None and order not in schema.columns:
            raise InputError("dataset.unit_order", order, "is not a declared column", f"add [columns.{order}]")
        return schema

    def to_dict(self) -> dict[str, Any]:
        """The TOML's shape; ``Schema.from_dict`` takes it back."""
        return {
            "dataset": self.dataset.to_dict(),
            "columns": {name: column.to_dict() for name, column in self.columns.items()},
        }

    def to_toml(self) -> str:
        """The schema as TOML text; ``Schema.load`` takes it back."""
        data = self.to_dict()
        tables = {"dataset": data["dataset"]}
        tables |= {f"columns.{_toml(name)}": column for name, column in data["columns"].items()}
        return "\n".join(
            "\n".join([f"[{header}]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""])
            for header, table in tables.items()
        )

    def _repr_html_(self) -> str:
        """For a notebook."""
        from dpglm.notebook import table_html

        dataset = self.dataset
        rows = [(c.name, c.label or "", c.type, c.domain, c.fate_of_missing) for c in self.columns.values()]
        caption = f"{dataset.name}: {dataset.rows:,} rows, each {dataset.unit}"
        return table_html(caption, ("column", "label", "type", "values", "a missing value"), rows)

    def column(self, name: str) -> Column:
        """The declared column, or an error that suggests a name."""
        if name in self.columns:
            return self.columns[name]
        short = (declared for declared in self.columns if len(declared) <= _LONGEST_HINT)
        by_lower_case = {declared.lower(): declared for declared in islice(short, _MOST_COMPARED)}
        near = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
        hint = f"did you mean {by_lower_case[near[0]]!r}?" if near else "add it to the schema"
        raise InputError("column", name, "is not declared in the schema", hint)


_TEMPLATE = """[dataset]
name = {name}
rows =            # the public number of rows
unit = ""         # what one row is, for example "one patient"
# neighbours = "added-or-removed"  # in place of rows, where their number is private
# unit_column = "id"               # where a person has several rows; then units = their number, in place of rows

# type                   and what it needs, known without a look at the rows:
#   numeric              lower = 0, upper = 100: bounds where values are clamped; generous, or left out
#                        (of dates both: lower = 2020-01-31)
#   count                upper = 100, or left out
#   binary, categorical  levels = ["low", "high"]: the first is the reference; ordered = true if they have an order
# A row without a value does not count, unless the column says what then: fill = "low", or missing = "level".
# What people call a column, in reports and tables: label = "Age in years"
# Take out the columns that no formula needs.
"""


def template(name: str, column_names: Sequence[str]) -> str:
    """A schema file to be filled in by a person: nothing but names is known here."""
    tables = [f'\n[columns.{_toml(column)}]\ntype = ""\n' for column in column_names]
    return _TEMPLATE.replace("{name}", _toml(name)) + "".join(tables)


def _dataset(declared: object) -> Dataset:
    if not isinstance(declared, Mapping):
        raise InputError("dataset", declared, "is missing", "add a [dataset] table with name, rows and unit")
    _only_known_keys("dataset", declared, _DATASET_KEYS)
    if "name" not in declared:
        raise InputError("dataset.name", None, "is missing", 'add name = "..." to [dataset]')
    name = _name("dataset.name", declared["name"])
    neighbours = declared.get("neighbours", REPLACED)
    if not isinstance(neighbours, str) or neighbours not in NEIGHBOURS:
        rule = f"must be {' or '.join(map(repr, NEIGHBOURS))}"
        raise InputError("dataset.neighbours", neighbours, rule, "leave it out for the first")
    of = declared.get("unit_column")
    unit_column = None if of is None else _name("dataset.unit_column", of)
    order = declared.get("unit_order")
    unit_order = None if order is None else _name("dataset.unit_order", order)
    if unit_order is not None and unit_column is None:
        rule = "belongs to a dataset with a unit_column"
        raise InputError("dataset.unit_order", unit_order, rule, "declare unit_column and units")
    counted, other = ("rows", "units") if unit_column is None else ("units", "rows")
    if other in declared:
        rule = (
            "belongs to a dataset with a unit_column" if unit_column is None else "is private where units have several"
        )
        raise InputError(f"dataset.{other}", declared[other], rule, f"declare {counted}")
    number = declared.get(counted)
    if neighbours != REPLACED and number is not None:
        rule = f"is private where neighbours = {neighbours!r}"
        raise InputError(f"dataset.{counted}", number, rule, "leave it out")
    if neighbours == REPLACED and (
        not isinstance(number, numbers.Integral) or isinstance(number, bool) or not 1 <= int(number) <= _MOST_ROWS
    ):
        remedy = f"declare the public number of {counted}"
        raise InputError(f"dataset.{counted}", number, f"must be a whole number of {counted}", remedy)
    if declared.get("rows_per_unit", 1) != 1:
        raise InputError(
            "dataset.rows_per_unit",
            declared["rows_per_unit"],
            "must be 1: a row is a unit, or rows belong to those of a column",
            "declare unit_column and units",
        )
    unit = _name("dataset.unit", declared.get("unit", "one row"))
    public = None if number is None else int(number)
    rows, units = (public, None) if unit_column is None else (None, public)
    identity, protection = (
        _name("dataset.id", declared.get("id", name)),
        Protection(neighbours, unit_column is not None),
    )
    return Dataset(identity, name, rows, unit, protection, unit_column, units, unit_order)


def _column(name: str, declared: object) -> Column:
    where = f"columns.{name}"
    if not isinstance(declared, Mapping):
        raise InputError(where, declared, "must be a table", f"write [{where}] with a type")
    kind = declared.get("type")
    if not isinstance(kind, str) or kind not in COLUMN_TYPES:
        raise InputError(f"{where}.type", kind, f"must be one of {', '.join(COLUMN_TYPES)}", "set the type")
    _only_known_keys(where, declared, _COLUMN_KEYS[kind])
    column = _levels_column(name, kind, declared) if "levels" in _COLUMN_KEYS[kind] else _bounded(name, kind, declared)
    return replace(column, label=_name(f"{where}.label", declared["label"])) if "label" in declared else column


def _bounded(name: str, kind: str, declared: Mapping[str, Any]) -> Column:
    where = f"columns.{name}"
    if kind == "numeric" and (found := _in_days(where, declared)):
        return replace(_bounded(name, kind, {**declared, **found}), dates=True)
    wide_lower, wide_upper = WIDE_COUNT if kind == "count" else WIDE
    lower = wide_lower if kind == "count" or "lower" not in declared else _number(where, "lower", declared)
    upper = _number(where, "upper", declared) if "upper" in declared else wide_upper
    if kind == "count" and upper != int(upper):
        raise InputError(f"{where}.upper", upper, "a count's bound must be a whole number", "round it up")
    if not lower < upper:
        raise InputError(f"{where}.lower", lower, f"must be below upper = {upper:g}", "correct the bounds")
    if (upper - lower) / 2 <= 1e-12 * max(abs(lower), abs(upper)):
        raise InputError(f"{where}.upper", upper, "is too close to lower for double precision", "shift the column")
    if "fill" not in declared:
        return Column(name, kind, None, lower, upper)
    fill = _number(where, "fill", declared)
    if not lower <= fill <= upper:
        raise InputError(f"{where}.fill", fill, f"must lie in [{lower:g}, {upper:g}]", "choose a value inside")
    if kind == "count" and fill != int(fill):
        raise InputError(f"{where}.fill", fill, "must be a whole number", "round it")
    return Column(name, kind, fill, lower, upper)


def _in_days(where: str, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds and fill as days, where they are dates, or dates as text; nothing where none is."""
    given = {key: declared[key] for key in ("lower", "upper", "fill") if key in declared}
    read = {
        key: days(str(value)) if isinstance(value, str | date) and not isinstance(value, datetime) else None
        for key, value in given.items()
    }
    if all(day is None for day in read.values()):
        return {}
    for key, day in read.items():
        if day is None or day != int(day):
            raise InputError(f"{where}.{key}", given[key], "must be a date, as the others are", "write 2020-01-31")
    if not {"lower", "upper"} <= set(read):
        raise InputError(where, ", ".join(read), "dates need both bounds, lower and upper", "add the other")
    return read


def _levels_column(name: str, kind: str, declared: Mapping[str, Any]) -> Column:
    where = f"columns.{name}"
    levels = declared.get("levels")
    if not isinstance(levels, list | tuple) or not 2 <= len(levels) <= _MOST_LEVELS:
        rule = "must be a list of two levels or more" if kind == "categorical" else "must be a list of two levels"
        raise InputError(f"{where}.levels", levels, rule, 'write levels = ["no", "yes"]')
    if kind == "binary" and len(levels) != 2:
        raise InputError(f"{where}.levels", levels, "a binary column has two levels", "or use type = 'categorical'")
    for level in levels:
        if not isinstance(level, Level) or (not isinstance(level, str) and not abs(level) <= _LARGEST_BOUND):
            raise InputError(f"{where}.levels", level, "must be text, a number or true/false", "correct the level")
        if isinstance(level, str) and (len(level) > _LONGEST_NAME or not level.isprintable()):
            raise InputError(f"{where}.levels", level, "must be printable text of at most 200 characters", "correct it")
    if len(set(map(level_value, levels))) != len(levels):
        rule = "must differ from each other by value: 1, '01', '1.0' and true are the same"
        raise InputError(f"{where}.levels", levels, rule, "put a letter before each, in the table too")
    for key in ("reference", "fill"):
        value = declared.get(key, levels[0])
        if not isinstance(value, Level) or _same_kind(value) not in {_same_kind(level) for level in levels}:
            raise InputError(f"{where}.{key}", value, "must be one of the levels", f"choose from {list(levels)}")
    reference = _same_kind(declared.get("reference", levels[0]))
    from_reference = sorted(levels, key=lambda level: _same_kind(level) != reference)
    ordered = declared.get("ordered", False)
    if not isinstance(ordered, bool):
        raise InputError(f"{where}.ordered", ordered, "must be true or false", "write ordered = true")
    if ordered and from_reference != list(levels):
        rule = "must be the first level where they are ordered"
        raise InputError(f"{where}.reference", declared["reference"], rule, "leave it out: a fit compares any two")
    if "missing" not in declared:
        return Column(name, kind, declared.get("fill"), levels=tuple(from_reference), ordered=ordered)
    if declared["missing"] != "level":
        raise InputError(f"{where}.missing", declared["missing"], 'must be "level"', "or leave it out")
    if "fill" in declared:
        raise InputError(f"{where}.missing", "level", "stands beside a fill", "declare one of them")
    if MISSING in levels:
        raise InputError(f"{where}.missing", "level", "would be a level that is declared already", "rename that level")
    levels_of_cells = (*from_reference, MISSING)
    return Column(name, kind, MISSING, levels=levels_of_cells, missing_is_level=True, ordered=ordered)


def _number(where: str, key: str, declared: Mapping[str, Any]) -> float:
    value = declared.get(key)
    if value is None:
        raise InputError(
            f"{where}.{key}", None, "is missing: bounds are declared, never read from the rows", f"add {key}"
        )
    number = finite_number(value)
    if number is None or abs(number) > _LARGEST_BOUND:
        raise InputError(f"{where}.{key}", value, "must be a number of at most 1e150", "correct the value")
    return number


def _name(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_NAME or not value.isprintable():
        raise InputError(where, value, "must be printable text of 1 to 200 characters", "rename it")
    return value


def _only_known_keys(where: str, declared: Mapping[str, Any], known: set[str]) -> None:
    for key in declared:
        if key not in known:
            raise InputError(f"{where}.{key}", declared[key], "is not a known key", f"use one of {sorted(known)}")


def _same_kind(level: Level) -> tuple[str, Level]:
    """Levels compare as what they are: 1 and 1.0 are one number, 1 and true are not one level."""
    if isinstance(level, bool):
        return "bool", level
    if isinstance(level, int | float):
        return "number", float(level) if abs(level) <= _LARGEST_BOUND else math.inf
    return "text", level


def _most_dots(text: str) -> int:
    """The most dots between two marks that no key and no number holds, outside of strings."""
    return max(part.count(".") for part in re.split(r"[=,\[\]{}\n]", _STRING.sub("", text)))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML escapes as JSON does, and DEL
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(float(value) if isinstance(value, float) else value)  # numpy's numbers have another repr
