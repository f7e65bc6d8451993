"""Bytes that are nearly right: a sample, changed in a few places as mistakes and attackers change bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

SIZE_MAX: Final = 1 << 17
"""Larger samples are cut: it is the structure that is tried, not the size."""

NUMBERS: Final = tuple(
    number.to_bytes(size, "big", signed=True)
    for size in (1, 2, 4, 8)
    for number in (-1, 0, 1, 127, (1 << 8 * size - 1) - 1, -(1 << 8 * size - 1))
)
"""Ends of the ranges of numbers, and the length that stands for "none"."""

VARINTS: Final = (b"\x00", b"\x01", b"\x7f", b"\x80\x01", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 11)


def mutated(sample: bytes, samples: Sequence[bytes], chance: random.Random) -> bytes:
    """Return `sample` with one to four changes; `samples` are those to take pieces from."""
    data = bytearray(sample[:SIZE_MAX])
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        chance.choice(CHANGES)(data, samples, chance)
    return bytes(data)


def _flip(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _byte(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _number(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    number = chance.choice(NUMBERS)
    at = chance.randrange(len(data) + 1)
    data[at : at + len(number)] = number


def _varint(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at : at + chance.randint(0, 2)] = chance.choice(VARINTS)


def _cut(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _remove(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    del data[at : at + chance.randint(1, 16)]


def _repeat(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    piece = data[at : at + chance.randint(1, 64)]
    data[at:at] = piece * chance.choice((1, 2, 16))


def _splice(data: bytearray, samples: Sequence[bytes], chance: random.Random) -> None:
    other = chance.choice(samples)
    start = chance.randrange(len(other) + 1)
    at = chance.randrange(len(data) + 1)
    data[at : at + chance.randint(0, 64)] = other[start : start + chance.randint(1, 64)]


CHANGES: Final[Sequence[Callable[[bytearray, Sequence[bytes], random.Random], None]]] = (
    _flip, _flip, _byte, _byte, _number, _number, _varint, _cut, _remove, _repeat, _splice,
)  # fmt: skip
"""The kinds of changes; those that stand here twice are likelier."""
