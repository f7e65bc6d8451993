"""Kafka's variable-length numbers, many at once: one array of positions in, one array of numbers out.

Most numbers have one byte, many have two. So each function reads the first byte of all, then the second of those that
go on, and so forth; the cost follows the longest number, not the sum.

Positions may point beyond the bytes: they read the last one instead, and the caller, which knows the end of the record,
sees that it went too far. Nothing is raised here; a number that is too long is reported by its index.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = Any
"""A numpy array. Its element types are said in words: numpy's own types cannot express what matters here."""

INT_BYTES: Final = 5
LONG_BYTES: Final = 10
_LAST_OF_INT: Final = 0x0F
_LAST_OF_LONG: Final = 0x01


def read_lengths(area: Array, at: Array) -> tuple[Array, Array, Array]:
    """Read a zigzag int32 at each of the positions `at` (int64) of `area` (uint8).

    Returns the numbers (int64), the positions behind them, and the indexes of those that have too many bits.
    """
    raw, behind, wrong = _read(area, at, INT_BYTES, _LAST_OF_INT, np.int64)
    return (raw >> 1) ^ -(raw & 1), behind, wrong


def read_longs(area: Array, at: Array) -> tuple[Array, Array, Array]:
    """Read a zigzag int64 at each of the positions; as `read_lengths`."""
    raw, behind, wrong = _read(area, at, LONG_BYTES, _LAST_OF_LONG, np.uint64)
    return (raw >> np.uint64(1)).view(np.int64) ^ -((raw & np.uint64(1)).view(np.int64)), behind, wrong


def read_unsigned(area: Array, at: Array) -> tuple[Array, Array, Array]:
    """Read an unsigned 32-bit number at each of the positions; as `read_lengths`."""
    return _read(area, at, INT_BYTES, _LAST_OF_INT, np.int64)


def spans(area: Array, at: Array) -> Array:
    """Return how many bytes a length and the bytes behind it take, at each of the positions (int64).

    The lowest bit of a length, its sign, is not looked at; nor are the bits of one that has too many.
    """
    pair = area.take(at + 1, mode="clip").astype(np.int64)
    pair <<= 8
    pair |= area.take(at, mode="clip")
    span = _SPANS.take(pair)
    if not span.all():
        longer = np.flatnonzero(span == 0)
        raw, behind, _ = _read(area, at[longer], INT_BYTES, _LAST_OF_INT, np.int64)
        span[longer] = behind - at[longer] + (raw >> 1)
    return span


def _read(area: Array, at: Array, most: int, last_most: int, kind: type) -> tuple[Array, Array, Array]:
    byte = area.take(at, mode="clip")
    behind = at + 1
    goes_on = byte > 0x7F
    if not goes_on.any():
        return byte.astype(kind), behind, _NONE
    value = (byte & 0x7F).astype(kind)
    if goes_on.all():  # without an index there is nothing to gather and scatter
        byte = area.take(behind, mode="clip")
        value |= (byte & 0x7F).astype(kind) << kind(7)
        behind += 1
        goes_on = byte > 0x7F
        used = 2
    else:
        used = 1
    more = np.flatnonzero(goes_on)
    while more.size and used < most:
        byte = area.take(behind[more], mode="clip")
        value[more] |= (byte & 0x7F).astype(kind) << kind(7 * used)
        behind[more] += 1
        used += 1
        if used == most:
            return value, behind, more[byte > last_most]
        more = more[byte > 0x7F]
    return value, behind, more


_NONE: Final = np.empty(0, dtype=np.int64)


def _spans() -> Array:
    """Return the span of a length by its first byte and, 256 times, its second one; 0 if it has more than these."""
    pair = np.arange(1 << 16)
    first, second = pair & 0xFF, pair >> 8
    of_two = np.where(second < 0x80, 2 + ((first & 0x7F | second << 7) >> 1), 0)
    return np.where(first < 0x80, 1 + (first >> 1), of_two)


_SPANS: Final = _spans()
