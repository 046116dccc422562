"""Conditions: what is refused before rows are read, and which rows they hold for, each by itself."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from dpglm.conditions import parse_condition
from dpglm.errors import InputError
from dpglm.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "dataset": {"name": "t", "rows": 5},
        "columns": {
            "age": {"type": "numeric", "lower": 20, "upper": 90},
            "visits": {"type": "count", "upper": 9},
            "the kind": {"type": "categorical", "levels": ["a", "b", 3], "missing": "level"},
            "arm": {"type": "binary", "levels": [False, True]},
        },
    }
)
VALUES = {
    "age": np.array([10.0, 20.0, 40.0, 65.0, 200.0]),
    "visits": np.array([0.0, 5.0, 40.0, 2.0, 65.0]),
    "the kind": np.array([0.0, 1.0, 2.0, 3.0, 0.0]),
    "arm": np.array([0.0, 1.0, 0.0, 1.0, 1.0]),
}
HOLDS = [
    ("age >= 20", [0, 1, 1, 1, 1]),
    ("20 < age <= 65", [0, 0, 1, 1, 0]),
    ("65 <= age", [0, 0, 0, 1, 1]),
    ("age == visits", [0, 0, 1, 0, 0]),
    ("not (age > 30 or arm == True)", [1, 0, 0, 0, 0]),
    ("`the kind` == 'a' and age < 100", [1, 0, 0, 0, 0]),
    ("`the kind` in ('b', 3.0)", [0, 1, 1, 0, 0]),
    ("`the kind` not in ['b', '03']", [1, 0, 0, 1, 1]),
    ("`the kind` != 'missing'", [1, 1, 1, 0, 1]),
    ("visits in (0, 2, 5)", [1, 1, 0, 1, 0]),
    ("arm == 0", [1, 0, 1, 0, 0]),
    ("age > -5.5", [1, 1, 1, 1, 1]),
]


@pytest.mark.parametrize(("text", "expected"), HOLDS)
def test_a_condition_holds_row_by_row_for_numbers_as_they_are_and_levels_by_value(text: str, expected: Any) -> None:
    condition = parse_condition(text, SCHEMA)
    assert condition.holds(VALUES, 5).tolist() == [bool(each) for each in expected]
    alone = [condition.holds({name: cells[n : n + 1] for name, cells in VALUES.items()}, 1)[0] for n in range(5)]
    assert alone == [bool(each) for each in expected]
    again = pickle.loads(pickle.dumps(condition))  # as it travels to executors
    assert again == condition
    assert again.holds(VALUES, 5).tolist() == condition.holds(VALUES, 5).tolist()


REFUSED = [
    (None, "must be text"), ("", "must be text"), ("age >", "is not a condition"), ("height > 2", "is not declared"),
    ("age", "no comparison"), ("1 < 2", "no column"), ("True", "no comparison"), ("age > 'x'", "no number"),
    ("age > nan", "is not declared"), ("`the kind` > 'a'", "orders"), ("`the kind` == 'c'", "none of its levels"),
    ("`the kind` == arm", "not both numbers"), ("age in 3", "needs a list"), ("age is 3", "not known"),
    ("age.mean() > 3", "no column"), ("abs(age) > 3", "no column"), ("age > 1e999", "no number"),
    ("(lambda: age > 3)()", "no comparison"), ("age > 3 if arm == 1 else age > 4", "no comparison"),
    ("age > " + "9" * 400, "no number"), ("arm == 10**9", "none of its levels"), ("not " * 60 + "age > 3", "deeply"),
    ("3 in (age,)", "no column"), ("age == True", "no number"), ("__import__('os').system('x') == age", "no number"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rule"), REFUSED)
def test_what_is_no_condition_on_declared_columns_is_refused_in_one_line(text: object, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition(text, SCHEMA)
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)
