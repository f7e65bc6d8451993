"""Classes that share their comparison, hash and text. That nobody assigns to a field of `frozen` is mypy's to see."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.consensus.events import Flushed
from kraftlib.frozen import define, frozen, immutable


@frozen
class Place:
    offset: int
    epoch: int = 0


@frozen(eq=False)
class Person:
    name: str


@define
class Counter:
    name: str
    count: int = 0
    next: Counter | None = None


@immutable(kw_only=True)
class Account:
    name: str
    password: str = attrs.field(default="", repr=False)
    seen_ms: int = attrs.field(default=0, eq=False)
    rights: list[str] = attrs.field(factory=list, hash=False)


@immutable
class Own:
    """Has methods of its own."""

    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "mine"


@immutable
class More(Own):
    """Has those of its base no more."""

    other: int = 0


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


def test_what_changes_is_compared_and_has_no_hash() -> None:
    counter = Counter("reads")
    counter.count += 1

    assert counter == Counter("reads", 1) != Counter("reads")
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_what_is_immutable_takes_no_other_value() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Account(name="ann").name = "bob"  # type: ignore[misc]


def test_the_options_of_a_field_are_kept() -> None:
    ann = Account(name="ann", password="secret")

    assert repr(ann) == "Account(name='ann', seen_ms=0, rights=[])"
    assert ann != Account(name="ann", password="other")
    assert ann == Account(name="ann", password="secret", seen_ms=5)
    assert hash(ann) == hash(Account(name="ann", password="secret", rights=["read"]))


def test_methods_that_a_class_has_of_its_own_stay() -> None:
    assert (Own(1) == Own(2), hash(Own(1)), repr(Own(1))) == (True, 7, "mine")
    assert More(1) != More(2)
    assert repr(More(1)) == "More(value=1, other=0)"


def test_a_value_that_holds_itself_has_a_text() -> None:
    counter = Counter("reads")
    counter.next = counter

    assert repr(counter) == "Counter(name='reads', count=0, next=...)"


def test_the_text_of_a_class_within_a_function_does_not_name_the_function() -> None:
    @frozen
    class Local:
        offset: int

    assert repr(Local(3)) == "Local(offset=3)"


def test_they_are_what_attrs_makes_but_for_the_sharing() -> None:
    @attrs.frozen
    class Twin:
        offset: int
        epoch: int = attrs.field(default=0, eq=False)

    @immutable
    class Shared:
        offset: int
        epoch: int = attrs.field(default=0, eq=False)

    assert Shared.__match_args__ == Twin.__match_args__
    assert attrs.asdict(attrs.evolve(Shared(1), offset=2)) == {"offset": 2, "epoch": 0}
    assert repr(Shared(1)) == repr(Twin(1)).replace("Twin", "Shared")
    assert (Shared(1) == Shared(1, 2)) is (Twin(1) == Twin(1, 2)) is True
    assert (Shared(1) == 1) is (Twin(1) == 1) is False
