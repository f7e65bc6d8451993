from __future__ import annotations

from kraftlib.frozen import frozen


@frozen
class Plain:
    number: int
    text: str = ""


@frozen(eq=False, kw_only=True)
class Unequal:
    number: int


def test_values_are_compared_and_hashed_by_their_fields() -> None:
    assert Plain(1, "a") == Plain(1, "a") != Plain(1, "b")
    assert len({Plain(1, "a"), Plain(1, "a"), Plain(2, "a")}) == 2
    assert repr(Plain(1)) == "Plain(number=1, text='')"


def test_the_fields_are_slots() -> None:
    assert not hasattr(Plain(1), "__dict__")


def test_options_are_those_of_attrs() -> None:
    one = Unequal(number=1)
    assert one == one != Unequal(number=1)
    assert len({one, Unequal(number=1)}) == 2
