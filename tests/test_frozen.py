"""Small values: compared and hashed by their fields, in slots. That nobody assigns to a field is mypy's to see."""

from __future__ import annotations

import pytest

from kraftlib.consensus.events import Flushed
from kraftlib.frozen import frozen


@frozen
class Place:
    offset: int
    epoch: int = 0


@frozen(eq=False)
class Person:
    name: str


def test_values_of_equal_fields_are_equal_and_have_one_hash() -> None:
    assert Place(5) == Place(5, 0) != Place(5, 1)
    assert {Place(5), Place(5, 0), Place(5, 1)} == {Place(5), Place(5, 1)}
    assert Place(5) != Flushed(5, 0), "of another class"
    assert repr(Place(5)) == "Place(offset=5, epoch=0)"


def test_without_a_comparison_each_is_itself() -> None:
    one, other = Person("Ann"), Person("Ann")

    assert one != other
    assert len({one, other}) == 2


def test_a_value_has_its_fields_and_no_others() -> None:
    with pytest.raises(AttributeError):
        Place(5).time = 7  # type: ignore[attr-defined]
    assert not hasattr(Place(5), "__dict__")
