"""Messages in which something is another value than any replica would send: an empty list, a number at a border.

The code here does not know the meaning of a message, so it also finds cases that no author has thought of. Only twins
hear these messages (`suppositions`).
"""

from __future__ import annotations

import random as chance
import uuid
from typing import Any, Final

import attrs

from kraftlib.codec.declared import Struct
from kraftlib.types import ZERO_UUID
from tools.core_fuzz.forged_requests import STRANGE_DISK

TAGS: Final = (10_001, 10_002, 10_003)
"""The tagged fields that replicas of ours send each other, but for the list of voters: with that any request is refused
(`forged_requests`)."""

TAG_FIELD: Final = "unknown_tagged_fields"


BELOW: Final = 6
"""A value with parts is so many times as likely to be changed, or gone down into, as any other."""


def garbled(random: chance.Random, message: Any) -> Any:
    """Return the message with one or two of its values replaced."""
    for _ in range(random.choice((1, 1, 2))):
        message = _replaced(random, message)
    return message


def _replaced(random: chance.Random, message: Any) -> Any:
    """Replace one value; it stands in a list most often, where most of them are."""
    names = [field.name for field in attrs.fields(type(message)) if field.init]
    name = random.choices(names, [BELOW if _has_parts(getattr(message, name)) else 1 for name in names])[0]
    value = getattr(message, name)
    if name == TAG_FIELD:
        new: Any = _tags(random)
    elif isinstance(value, Struct):
        new = _replaced(random, value)
    elif isinstance(value, tuple) and value and random.random() < 0.7:
        place = random.randrange(len(value))
        other = _replaced(random, value[place]) if isinstance(value[place], Struct) else _other(random, value[place])
        kept = (value[place],) if random.random() < 0.25 else ()  # beside the one that it is made of
        new = (*value[:place], *kept, other, *value[place + 1 :])
    else:
        new = _other(random, value)
    return attrs.evolve(message, **{name: new})


def _has_parts(value: Any) -> bool:
    return isinstance(value, Struct) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], Struct))


def _other(random: chance.Random, value: Any) -> Any:
    """Return another value of its type, or this one where there is none."""
    match value:
        case bool():
            return not value
        case int():
            return random.choice((value + 1, value - 1, value + 1, value - 1, 0, -1, 1, 100))
        case str():
            return random.choice(("", "another", value.swapcase()))
        case uuid.UUID():
            return random.choice((ZERO_UUID, STRANGE_DISK))
        case tuple():
            return random.choice(((), (), value * 2, value[::-1], value[1:]))
        case bytes() | bytearray() | memoryview():
            return random.choice((b"", bytes(value[:-1]), bytes(value[1:]), bytes(value) * 2))
        case _:
            return value


def _tags(random: chance.Random) -> tuple[tuple[int, bytes], ...]:
    tags = random.sample(TAGS, random.choice((0, 1, 1, 2)))
    return tuple((tag, random.randbytes(random.choice((0, 0, 1, 4, 4, 8)))) for tag in sorted(tags))
