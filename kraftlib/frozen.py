"""The decorators of classes that attrs makes, all but their comparison, hash and text: those, all of them share.

attrs writes and compiles these methods for each class. That takes as long as all else that a class needs, and a replica
that starts makes hundreds of classes, most of which are never compared. The shared methods are slower to call: a class
whose values are compared for every record, or are the keys of a dictionary that is, stays with attrs.

`frozen` is for small values that are made and dropped for every record: events, actions, some messages. For a type
checker it is that of attrs, so no code assigns to a field. At run time the fields are plain slots: the `__init__` of a
frozen class sets each field by a call, which takes four times as long, and a commit makes some thirty such objects of
up to fourteen fields. A value that is kept is `immutable`, or the key of a dictionary `attrs.frozen`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from attrs import define, frozen
    from attrs import frozen as immutable
else:

    def define(cls: type | None = None, **options: bool) -> object:
        """Return a class with slots that is compared by its fields and has no hash; `options` are those of attrs."""
        return _made(cls, attrs.define, None, **options)

    def frozen(cls: type | None = None, **options: bool) -> object:
        """Return a class with slots that is compared, and hashed, by its fields; `options` are those of attrs."""
        return _made(cls, attrs.define, _Shared.__hash__, **options)

    def immutable(cls: type | None = None, **options: bool) -> object:
        """Return such a class to whose fields nothing is assigned; `options` are those of attrs."""
        return _made(cls, attrs.frozen, _Shared.__hash__, **options)


__all__ = ["define", "frozen", "immutable"]


class _Shared:
    def __eq__(self, other: object) -> Any:
        """Whether it is of the same class, with equal fields."""
        if type(other) is not type(self):
            return NotImplemented
        cls: Any = type(self)
        values = _compared(cls)
        return values(self) == values(other)

    def __hash__(self) -> int:
        """Return the hash of the class and the fields."""
        cls: Any = type(self)
        return hash((cls.__qualname__, _hashed(cls)(self)))

    @recursive_repr("...")
    def __repr__(self) -> str:
        """Return the class and the fields."""
        cls: Any = type(self)
        names = [field.name for field in attrs.fields(cls) if field.repr]
        shown = ", ".join(f"{name}={getattr(self, name, attrs.NOTHING)!r}" for name in names)
        # Without the function that has the class, as attrs does it.
        return f"{cls.__qualname__.rsplit('>.', 1)[-1]}({shown})"


def _made(
    cls: Any, make: Callable[..., object], hashed: Any, *, eq: bool = True, repr: bool = True, **options: bool
) -> object:
    if cls is None:
        return lambda cls: _made(cls, make, hashed, eq=eq, repr=repr, **options)
    if repr and "__repr__" not in vars(cls):
        cls.__repr__ = _Shared.__repr__
    if eq and "__eq__" not in vars(cls):
        cls.__eq__ = _Shared.__eq__
        if "__hash__" not in vars(cls):
            cls.__hash__ = hashed
    return make(cls, eq=False, repr=False, **options)


@cache
def _compared(cls: Any) -> Callable[[Any], object]:
    return _values([field.name for field in attrs.fields(cls) if field.eq])


@cache
def _hashed(cls: Any) -> Callable[[Any], object]:
    return _values([field.name for field in attrs.fields(cls) if (field.eq if field.hash is None else field.hash)])


def _values(names: list[str]) -> Callable[[Any], object]:
    return attrgetter(*names) if names else lambda _: ()
