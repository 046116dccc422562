"""What an error looks like: one printable line of name, value, rule and remedy, whatever the user wrote."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm.errors import BudgetError, DpglmError, FileError, InputError


@pytest.mark.parametrize("kind", [InputError, BudgetError, FileError])
def test_an_error_says_name_value_rule_and_remedy(kind: type[InputError]) -> None:
    error = kind("delta", 2.5, "must be below 1", "write delta=1e-6")
    assert str(error) == "delta = 2.5: must be below 1; write delta=1e-6"
    assert (error.name, error.value, error.rule, error.remedy) == ("delta", 2.5, "must be below 1", "write delta=1e-6")


@pytest.mark.parametrize("kind", [InputError, BudgetError, FileError])
def test_an_error_is_caught_by_its_bases(kind: type[InputError]) -> None:
    assert issubclass(kind, InputError)
    assert issubclass(kind, DpglmError)
    assert issubclass(kind, ValueError)


@given(
    value=st.one_of(
        st.text(max_size=400), st.binary(max_size=400), st.lists(st.text()), st.integers(), st.floats(), st.none()
    )
)
def test_whatever_the_value_the_message_is_one_short_printable_line(value: object) -> None:
    message = str(InputError("name", value, "is wrong", "correct it"))
    assert message.isprintable()
    assert message.splitlines() == [message]
    assert len(message) <= 300


@pytest.mark.parametrize("odd", ["\n", "\r", "\x1b[31m", "\u2028", "\x85", "\x00", "\u202e"])
def test_no_character_can_break_or_recolour_the_line(odd: str) -> None:
    message = str(InputError(f"col{odd}umn", f"a{odd}b", f"is{odd}wrong", f"correct{odd}it"))
    assert message.splitlines() == [message]
    assert not set(odd) & set(message) - set("[31m")


def test_a_long_value_is_cut_and_shows_that_it_was() -> None:
    message = str(InputError("formula", "x" * 50 + "y" * 5000, "is too long", "shorten it"))
    assert len(message) <= 300
    assert message.startswith(f"formula = {'x' * 50}y")
    assert message.endswith("y…: is too long; shorten it")


@pytest.mark.parametrize("kind", [InputError, BudgetError, FileError])
def test_an_error_survives_a_process_border(kind: type[InputError]) -> None:
    error = kind("epsilon", -1, "must be above 0", "write epsilon=1")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.remedy == "write epsilon=1"
