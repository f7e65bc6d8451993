"""Any message of any version, made from its declarations and a number.

A number and not a hypothesis strategy of each field, because there are 200 versions of messages with up to 40 fields.
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable
from typing import Any

from kraftlib.codec.declarations import Declaration, Message, Struct, declared_fields

TEXTS = ("", "a", "näher", "日本", "\x00", "x" * 126, "x" * 127, "x" * 128, "y" * 300)
ERROR_CODES = (-1, 0, 6, 42, 74, 104, 127)  # other libraries refuse numbers that have no name
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def _number(bits: int) -> Callable[[random.Random], int]:
    edges = (0, -1, 1, -(1 << bits - 1), (1 << bits - 1) - 1)
    return lambda chance: chance.choice(edges) if chance.random() < 0.5 else chance.getrandbits(bits) - (1 << bits - 1)


VALUES: dict[str, Callable[[random.Random], Any]] = {
    **{name: _number(bits) for name, bits in WIDTHS.items()},
    "uint16": lambda chance: chance.choice((0, 1, 9093, 65535)),
    "float64": lambda chance: chance.choice((0.0, -1.5, math.inf, chance.random())),
    "bool": lambda chance: chance.random() < 0.5,
    "uuid": lambda chance: uuid.UUID(int=chance.choice((0, 1, chance.getrandbits(128)))),
    "string": lambda chance: chance.choice(TEXTS),
    "bytes": lambda chance: chance.randbytes(chance.choice((0, 1, 126, 127, 300))),
    "records": lambda chance: chance.randbytes(chance.choice((0, 1, 126, 127, 300))),
}


def any_message(cls: type[Message], version: int, seed: int) -> Any:
    """Return a message that this version can hold: a field that it lacks has its default."""
    return _struct(cls, cls, version, random.Random(seed))


def _struct(cls: type[Struct], owner: type[Message], version: int, chance: random.Random) -> Struct:
    fields = {
        name: chance.choice(ERROR_CODES) if name == "error_code" else _value(declaration, owner, version, chance)
        for name, declaration, default in declared_fields(cls)
        if version in declaration.versions
        and (chance.random() < 0.7 or (default is None and version not in declaration.nullable))
    }
    return cls(**fields)


def _value(declaration: Declaration, owner: type[Message], version: int, chance: random.Random) -> Any:
    if version in declaration.nullable and chance.random() < 0.3:
        return None
    name = declaration.type.removeprefix("[]")
    if declaration.type.startswith("[]"):
        return tuple([_one(name, owner, version, chance) for _ in range(chance.choice((0, 1, 1, 2, 3)))])
    return _one(name, owner, version, chance)


def _one(name: str, owner: type[Message], version: int, chance: random.Random) -> Any:
    if name in VALUES:
        return VALUES[name](chance)
    return _struct(getattr(owner, name), owner, version, chance)
