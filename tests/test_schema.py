"""Declared columns: what comes back from a file, and every rule that a declaration must keep."""

from __future__ import annotations

import copy
import math
import pickle
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpglm.errors import FileError, InputError
from dpglm.schema import Column, Dataset, Schema, template

PLAIN: dict[str, Any] = {
    "dataset": {"name": "patients-2024", "rows": 758, "unit": "one patient"},
    "columns": {
        "age": {"type": "numeric", "lower": 20, "upper": 90, "fill": 45},
        "smoker": {"type": "categorical", "levels": ["never", "former", "current"], "fill": "never"},
        "diabetes": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
        "visits": {"type": "count", "upper": 20, "fill": 0},
    },
}

TOML = """
[dataset]
name = "patients-2024"
rows = 758
unit = "one patient"

[columns.age]
type = "numeric"
lower = 20
upper = 90
fill = 45

[columns.smoker]
type = "categorical"
levels = ["never", "former", "current"]
fill = "never"

[columns.diabetes]
type = "binary"
levels = ["no", "yes"]
fill = "no"

[columns.visits]
type = "count"
upper = 20
fill = 0
"""

printable = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
names = st.text(printable, min_size=1, max_size=20).filter(lambda name: name.strip() and name.isprintable())
numbers = st.floats(-1e150, 1e150) | st.integers(-(10**30), 10**30)
levels = st.one_of(st.text(printable, max_size=8).filter(str.isprintable), numbers, st.booleans())


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["numeric", "count", "binary", "categorical"]))
    if kind in ("numeric", "count"):
        ends = sorted(draw(st.tuples(numbers, numbers)))
        if kind == "count":
            bounds: dict[str, Any] = {"upper": draw(st.integers(1, 10**15))}
            fill = draw(st.integers(0, bounds["upper"]))
        else:
            bounds = {"lower": ends[0], "upper": ends[1]}
            fill = draw(st.sampled_from(ends))
        return {"type": kind, **bounds} | draw(st.sampled_from([{}, {"fill": fill}]))
    size = 2 if kind == "binary" else draw(st.integers(2, 6))
    found = draw(st.lists(levels, min_size=size, max_size=size))
    reference = draw(st.sampled_from([{}, {"reference": draw(st.sampled_from(found))}]))
    return {"type": kind, "levels": found, "fill": draw(st.sampled_from(found)), **reference}


@st.composite
def declarations(draw: st.DrawFn) -> dict[str, Any]:
    dataset = {"name": draw(names), "rows": draw(st.integers(1, 10**15)), "unit": draw(names)}
    dataset |= draw(st.sampled_from([{}, {"id": draw(names)}, {"rows_per_unit": 1}]))
    return {"dataset": dataset, "columns": draw(st.dictionaries(names, columns(), min_size=1, max_size=4))}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The plain declaration with one entry changed; ``...`` removes it."""
    data = copy.deepcopy(PLAIN)
    *parents, last = path.split(".")
    inner = data
    for parent in parents:
        inner = inner[parent]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return data


def refusal(data: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        Schema.from_dict(data)
    assert str(caught.value).splitlines() == [str(caught.value)]
    return caught.value


# Round trips


def test_a_file_and_a_dict_give_the_same_schema(tmp_path: Path) -> None:
    path = tmp_path / "patients.toml"
    path.write_text(TOML)
    schema = Schema.load(path)
    assert schema == Schema.from_dict(PLAIN) == Schema.load(str(path))
    assert schema.dataset == Dataset(id="patients-2024", name="patients-2024", rows=758, unit="one patient")
    assert schema.columns["age"] == Column("age", "numeric", fill=45.0, lower=20.0, upper=90.0)
    assert schema.columns["visits"] == Column("visits", "count", fill=0.0, lower=0.0, upper=20.0)
    assert schema.columns["smoker"].levels == ("never", "former", "current")
    assert list(schema.columns) == ["age", "smoker", "diabetes", "visits"]


@given(data=declarations())
def test_every_schema_survives_dict_toml_and_pickle(data: dict[str, Any]) -> None:
    try:
        schema = Schema.from_dict(data)
    except InputError:
        assume(False)  # bounds that coincide, levels that read alike
    assert Schema.from_dict(schema.to_dict()) == schema
    assert Schema.from_dict(tomllib.loads(schema.to_toml())) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert list(schema.columns) == list(data["columns"])


@pytest.mark.parametrize(
    "name",
    [
        "my column",
        'say "hi"',
        "back\\slash",
        "a.b",
        "naïve été",
        "漢字",
        "🙂",
        "[x]",
        "a=b",
        "#",
        "'",
        "1",
        "true",
        "\\n",
    ],
)
def test_odd_column_names_survive_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    schema = Schema.from_dict({**PLAIN, "columns": {name: PLAIN["columns"]["age"]}})
    path.write_text(schema.to_toml(), encoding="utf-8")
    assert Schema.load(path) == schema
    assert Schema.load(path).column(name).upper == 90.0


@pytest.mark.parametrize(
    "odd",
    [
        ["a\\b", 'c"d', "ä"],
        [1, 2, 3],
        [0.1, 1e-300, -1e100],
        [True, False],
        [True, 2, "3.0"],
        ["", "x"],
        ["01", "2", "3.0"],
        ["nan", "inf"],
        [10**30, -1, "π"],
        [np.float64(0.1), 2],
    ],
)
def test_odd_levels_survive_a_file_with_their_types(odd: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    schema = Schema.from_dict({**PLAIN, "columns": {"k": {"type": "categorical", "levels": odd, "fill": odd[-1]}}})
    path.write_text(schema.to_toml(), encoding="utf-8")
    again = Schema.load(path).columns["k"]
    assert again == schema.columns["k"]
    plain = [float if isinstance(level, float) else type(level) for level in odd]
    assert [type(level) for level in again.levels] == plain
    assert again.stand_in == len(odd) - 1


def test_a_number_and_a_truth_value_can_each_be_the_fill() -> None:
    for fill, position in ((2, 0), (True, 1)):
        data = changed("columns.diabetes", {"type": "binary", "levels": [2, True], "fill": fill})
        assert Schema.from_dict(data).columns["diabetes"].stand_in == position


# Defaults


def test_without_a_fill_there_is_none_and_what_stands_there_is_the_middle_or_the_reference() -> None:
    data = changed("columns.age.fill", ...)
    for name in ("visits", "smoker"):
        del data["columns"][name]["fill"]
    data["columns"]["visits"]["upper"] = 5
    schema = Schema.from_dict(data)
    assert [schema.columns[name].fill for name in ("age", "visits", "smoker")] == [None] * 3
    assert schema.columns["age"].stand_in == 55.0
    assert schema.columns["visits"].stand_in == 2.0  # a count's is whole
    assert schema.columns["smoker"].stand_in == 0
    assert "fill" not in schema.columns["age"].to_dict()
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema.columns["smoker"].levels[0] == "never"
    assert Schema.from_dict(changed("dataset.unit", ...)).dataset.unit == "one row"


def test_a_missing_value_can_be_a_level_of_its_own() -> None:
    declared = {"type": "binary", "levels": [False, True], "reference": True, "missing": "level"}
    schema = Schema.from_dict(changed("columns.diabetes", declared))
    column = schema.columns["diabetes"]
    assert (column.levels, column.fill, column.stand_in) == ((True, False, "missing"), "missing", 2)
    assert Schema.from_dict(schema.to_dict()) == schema


def test_the_reference_level_moves_to_the_front_and_the_others_keep_their_order() -> None:
    column = Schema.from_dict(changed("columns.smoker.reference", "current")).columns["smoker"]
    assert column.levels == ("current", "never", "former")
    assert column.stand_in == 1


def test_a_label_is_for_people_and_changes_nothing_else() -> None:
    plain = copy.deepcopy(PLAIN)
    for column in plain["columns"].values():
        column["label"] = 'Number of "visits" <per> year'
    schema = Schema.from_dict(plain)
    assert schema == Schema.from_dict(PLAIN)  # two releases of one column need not agree on what to call it
    again = Schema.from_dict(tomllib.loads(schema.to_toml()))
    assert {column.title for column in again.columns.values()} == {'Number of "visits" <per> year'}
    assert [column.title for column in Schema.from_dict(PLAIN).columns.values()] == list(PLAIN["columns"])
    for wrong in ("", " ", "two\nlines", "x" * 201, 7, None):
        plain["columns"]["age"]["label"] = wrong
        with pytest.raises(InputError, match=r"columns\.age\.label"):
            Schema.from_dict(plain)


def test_ordered_levels_are_said_to_be_and_change_nothing_else() -> None:
    schema = Schema.from_dict(changed("columns.smoker.ordered", True))
    assert schema == Schema.from_dict(PLAIN)
    assert schema.columns["smoker"].domain == "never (reference) < former < current"
    assert Schema.from_dict(tomllib.loads(schema.to_toml())).columns["smoker"].ordered
    assert not Schema.from_dict(PLAIN).columns["smoker"].ordered
    declared = {"type": "categorical", "levels": [3, 2, 1], "reference": 3, "missing": "level", "ordered": True}
    column = Schema.from_dict(changed("columns.smoker", declared)).columns["smoker"]
    assert (column.own_levels, column.domain) == ((3, 2, 1), "3 (reference) < 2 < 1, missing")


def test_the_identity_of_a_dataset_is_its_id_and_by_default_its_name() -> None:
    assert Schema.from_dict(PLAIN).dataset.id == "patients-2024"
    dataset = Schema.from_dict(changed("dataset.id", "p-1")).dataset
    assert (dataset.id, dataset.name) == ("p-1", "patients-2024")


# Rules

NAN, INF = math.nan, math.inf
RULES = [
    ("dataset", ..., "dataset", "is missing"),
    ("dataset", [], "dataset", "is missing"),
    ("dataset.name", ..., "dataset.name", "is missing"),
    ("dataset.name", "", "dataset.name", "printable text"),
    ("dataset.name", "a\nb", "dataset.name", "printable text"),
    ("dataset.name", "x" * 201, "dataset.name", "200"),
    ("dataset.name", 5, "dataset.name", "printable text"),
    ("dataset.id", None, "dataset.id", "printable text"),
    ("dataset.unit", " ", "dataset.unit", "printable text"),
    ("dataset.rows", ..., "dataset.rows", "whole number"),
    ("dataset.rows", 0, "dataset.rows", "whole number"),
    ("dataset.rows", -3, "dataset.rows", "whole number"),
    ("dataset.rows", 758.0, "dataset.rows", "whole number"),
    ("dataset.rows", 758.5, "dataset.rows", "whole number"),
    ("dataset.rows", "758", "dataset.rows", "whole number"),
    ("dataset.rows", True, "dataset.rows", "whole number"),
    ("dataset.rows", 10**16, "dataset.rows", "whole number"),
    ("dataset.rows_per_unit", 2, "dataset.rows_per_unit", "a row is a unit"),
    ("dataset.rows_per_unit", "1", "dataset.rows_per_unit", "a row is a unit"),
    ("dataset.row", 758, "dataset.row", "not a known key"),
    ("columns", ..., "columns", "at least one column"),
    ("columns", {}, "columns", "at least one column"),
    ("columns", ["age"], "columns", "at least one column"),
    ("column", {}, "schema.column", "not a known key"),
    ("columns.age", 5, "columns.age", "must be a table"),
    ("columns.", {"type": "count", "upper": 3}, "column name", "printable text"),
    ("columns.age.type", ..., "columns.age.type", "one of numeric, count, binary, categorical"),
    ("columns.age.type", "float", "columns.age.type", "one of numeric"),
    ("columns.age.type", ["numeric"], "columns.age.type", "one of numeric"),
    ("columns.age.lower", None, "columns.age.lower", "never read from the rows"),
    ("columns.age.upper", None, "columns.age.upper", "never read from the rows"),
    ("columns.age.lower", 90, "columns.age.lower", "below upper"),
    ("columns.age.lower", 91, "columns.age.lower", "below upper"),
    ("columns.age.lower", NAN, "columns.age.lower", "must be a number"),
    ("columns.age.upper", NAN, "columns.age.upper", "must be a number"),
    ("columns.age.lower", -INF, "columns.age.lower", "must be a number"),
    ("columns.age.upper", INF, "columns.age.upper", "must be a number"),
    ("columns.age.upper", 1e151, "columns.age.upper", "at most 1e150"),
    ("columns.age.upper", 10**400, "columns.age.upper", "at most 1e150"),
    ("columns.age.upper", "90", "columns.age.upper", "must be a number"),
    ("columns.age.upper", True, "columns.age.upper", "must be a number"),
    ("columns.age.upper", 20 + 1e-12, "columns.age.upper", "too close"),
    ("columns.age.fill", 19.9, "columns.age.fill", "must lie in [20, 90]"),
    ("columns.age.fill", 91, "columns.age.fill", "must lie in [20, 90]"),
    ("columns.age.fill", NAN, "columns.age.fill", "must be a number"),
    ("columns.age.fill", "45", "columns.age.fill", "must be a number"),
    ("columns.age.levels", ["a", "b"], "columns.age.levels", "not a known key"),
    ("columns.age.Lower", 20, "columns.age.Lower", "not a known key"),
    ("columns.visits.upper", None, "columns.visits.upper", "never read from the rows"),
    ("columns.visits.upper", 0, "columns.visits.lower", "below upper"),
    ("columns.visits.upper", -4, "columns.visits.lower", "below upper"),
    ("columns.visits.upper", 2.5, "columns.visits.upper", "whole number"),
    ("columns.visits.lower", 0, "columns.visits.lower", "not a known key"),
    ("columns.visits.fill", 1.5, "columns.visits.fill", "whole number"),
    ("columns.visits.fill", 21, "columns.visits.fill", "must lie in [0, 20]"),
    ("columns.smoker.levels", ..., "columns.smoker.levels", "two levels or more"),
    ("columns.smoker.levels", ["never"], "columns.smoker.levels", "two levels or more"),
    ("columns.smoker.levels", "never", "columns.smoker.levels", "two levels or more"),
    ("columns.smoker.levels", ["never", "never"], "columns.smoker.levels", "must differ"),
    ("columns.smoker.levels", [1, 1.0, "never"], "columns.smoker.levels", "must differ"),
    ("columns.smoker.levels", [1, "1", "never"], "columns.smoker.levels", "must differ"),
    ("columns.smoker.levels", [True, "true", "never"], "columns.smoker.levels", "must differ"),
    ("columns.smoker.levels", ["1", "01", "x"], "columns.smoker.levels", "must differ"),
    ("columns.smoker.levels", ["1E1", 10], "columns.smoker.levels", "must differ"),
    ("columns.smoker.levels", [1, True], "columns.smoker.levels", "must differ"),
    ("columns.smoker.levels", ["2024-01-01", "2024-01-01T00:00:00"], "columns.smoker.levels", "must differ"),
    ("columns.smoker.levels", ["never", None], "columns.smoker.levels", "text, a number or true/false"),
    ("columns.smoker.levels", ["never", NAN], "columns.smoker.levels", "text, a number or true/false"),
    ("columns.smoker.levels", ["never", INF], "columns.smoker.levels", "text, a number or true/false"),
    ("columns.smoker.levels", ["never", 10**400], "columns.smoker.levels", "text, a number or true/false"),
    ("columns.smoker.levels", ["never", ["x"]], "columns.smoker.levels", "text, a number or true/false"),
    ("columns.smoker.levels", ["never", "a\tb"], "columns.smoker.levels", "printable text"),
    ("columns.smoker.levels", list(range(1001)), "columns.smoker.levels", "two levels or more"),
    ("columns.smoker.missing", "level", "columns.smoker.missing", "beside a fill"),
    ("columns.smoker.ordered", 1, "columns.smoker.ordered", "true or false"),
    ("columns.diabetes.ordered", True, "columns.diabetes.ordered", "not a known key"),
    (
        "columns.smoker", {"type": "categorical", "levels": [0, 1, 2], "reference": 1, "ordered": True},
        "columns.smoker.reference", "first level where they are ordered",
    ),
    ("columns.smoker", {"type": "binary", "levels": [0, 1], "missing": "fill"}, "columns.smoker.missing", '"level"'),
    (
        "columns.smoker", {"type": "binary", "levels": [0, "missing"], "missing": "level"}, "columns.smoker.missing",
        "declared already",
    ),
    ("columns.age.missing", "level", "columns.age.missing", "not a known key"),
    ("columns.smoker.fill", "Never", "columns.smoker.fill", "one of the levels"),
    ("columns.smoker.fill", 1, "columns.smoker.fill", "one of the levels"),
    ("columns.smoker.fill", ["never"], "columns.smoker.fill", "one of the levels"),
    ("columns.smoker.reference", "none", "columns.smoker.reference", "one of the levels"),
    ("columns.smoker.lower", 0, "columns.smoker.lower", "not a known key"),
    ("columns.diabetes.levels", ["no", "maybe", "yes"], "columns.diabetes.levels", "two levels"),
    ("columns.diabetes.levels", ["no"], "columns.diabetes.levels", "two levels"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "name", "rule"), RULES)
def test_a_declaration_that_breaks_a_rule_is_refused(path: str, value: Any, name: str, rule: str) -> None:
    error = refusal(changed(path, value))
    assert error.name == name
    assert rule in error.rule
    assert error.remedy


@pytest.mark.parametrize(
    ("path", "lower", "upper", "stand_in"),
    [
        ("columns.age.lower", -1e12, 90, 0),
        ("columns.age.upper", 20, 1e12, 20),
        ("columns.visits.upper", 0, 2**20, 0),
    ],
)
def test_bounds_that_are_left_out_are_wide_whatever_the_rows_hold(
    path: str, lower: float, upper: float, stand_in: float
) -> None:
    """Looks find where such a column lives; moments refuse it."""
    data = changed(path, ...)
    data["columns"][path.split(".")[1]].pop("fill", None)
    column = Schema.from_dict(data).columns[path.split(".")[1]]
    assert column.is_wide
    assert (column.lower, column.upper, column.stand_in) == (lower, upper, stand_in)
    assert not Schema.from_dict(PLAIN).columns[path.split(".")[1]].is_wide


@pytest.mark.parametrize("data", [None, [], "patients.toml", 5])
def test_what_is_not_a_table_is_refused(data: object) -> None:
    assert refusal(data).name == "schema"


def test_the_plain_declaration_breaks_no_rule() -> None:
    # Without this, the table above could pass because of some other mistake.
    assert Schema.from_dict(PLAIN).to_dict()["columns"]["smoker"] == PLAIN["columns"]["smoker"]


def test_numbers_of_numpy_are_numbers() -> None:
    data = changed("columns.age.upper", np.float64(90.0))
    assert Schema.from_dict(data) == Schema.from_dict(PLAIN)


# Names


@pytest.mark.parametrize(
    ("written", "meant"), [("agee", "age"), ("Age", "age"), ("AGE", "age"), ("smokr", "smoker"), ("visit", "visits")]
)
def test_a_misspelled_column_gets_a_suggestion(written: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"did you mean '{meant}'") as caught:
        Schema.from_dict(PLAIN).column(written)
    assert caught.value.value == written


def test_a_column_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(InputError, match="add it to the schema"):
        Schema.from_dict(PLAIN).column("income")


# Files


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"[dataset\n", "not valid TOML"),
        (b"a = 1\na = 2\n", "not valid TOML"),
        (b"\xff\xfe\x00", "not valid TOML"),
        (b"PAR1\x00\x01", "not valid TOML"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "not valid TOML"),
        (b"", "at least one column"),
        (b"lower = nan\n", "not a known key"),
    ],
)
def test_a_file_that_is_no_schema_is_refused_in_one_line(content: bytes, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rule) as caught:
        Schema.load(path)
    assert str(caught.value).splitlines() == [str(caught.value)]


@pytest.mark.parametrize("path", ["missing.toml", ".", "missing/schema.toml", "null\0byte"])
def test_a_path_that_cannot_be_read_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read") as caught:
        Schema.load(f"{tmp_path}/{path}")
    assert caught.value.name == "schema"


def test_infinite_and_nan_bounds_of_a_file_are_refused(tmp_path: Path) -> None:
    # TOML, unlike JSON, can write them.
    path = tmp_path / "schema.toml"
    for bound in ("nan", "inf", "-inf"):
        path.write_text(TOML.replace("lower = 20", f"lower = {bound}"))
        with pytest.raises(InputError, match=r"columns\.age\.lower"):
            Schema.load(path)


def test_a_template_of_odd_column_names_is_toml() -> None:
    names = ["a\nb", 'say "so"', "back\\slash", "tab\t", "del\x7f", "Größe"]
    found = tomllib.loads(template("odd", names).replace("rows =", "rows = 5"))
    assert list(found["columns"]) == names
