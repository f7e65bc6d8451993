"""Records whose numbers are short, read sixteen bytes at a time instead of number by number.

Most records have no key and no headers, and every number in them takes one or two bytes. Then all that is to be
known of such a record stands in its first sixteen bytes, which are gathered once, and in its last one, a header
count of zero. Records that are otherwise, or that are not sound, are not read here but reported.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kraftlib.analysis.varints import Array

_WINDOW: Final = 16
_RECORDS_AT_ONCE: Final = 8_192
"""This many windows and the values computed from them stay in the cache of a processor."""


@attrs.frozen(kw_only=True, eq=False)
class ShortRecords:
    """Fields of records, one numpy array each; of those that are not `read` they mean nothing."""

    timestamp_delta: Array
    offset_delta: Array
    key_start: Array
    key_size: Array
    value_start: Array
    value_size: Array
    read: Array

    @classmethod
    def empty(cls, count: int) -> ShortRecords:
        """Return room for so many records."""
        numbers = {name: np.empty(count, dtype=np.int64) for name in _NUMBER_FIELDS}
        return cls(**numbers, read=np.zeros(count, dtype=bool))


_NUMBER_FIELDS: Final = tuple(field.name for field in attrs.fields(ShortRecords) if field.name != "read")


def read_short(area: Array, start: Array, end: Array) -> ShortRecords:
    """Read the records of `area` (uint8) that begin at `start`, with their length, and end at `end`."""
    found = ShortRecords.empty(len(start))
    if len(area) < _WINDOW:
        return found
    windows = np.ndarray((len(area) - _WINDOW + 1,), dtype="V16", buffer=area, strides=(1,))
    for first in range(0, len(start), _RECORDS_AT_ONCE):
        some = slice(first, first + _RECORDS_AT_ONCE)
        _read(area, windows, start[some], end[some], found, some)
    return found


def _read(area: Array, windows: Array, start: Array, end: Array, found: ShortRecords, some: slice) -> None:
    words = windows[np.minimum(start, len(windows) - 1)].view("<u8")
    length, bits = _number(words[0::2])
    at = start + (bits >> 3)
    read = (start < len(windows)) & (bits > 0) & (at + length == end)
    # Eight bytes that stand behind the length and the attributes, of which none are defined.
    word = words[0::2] >> (bits + 8) | words[1::2] << (56 - bits)
    found.timestamp_delta[some], bits = _number(word)
    read &= bits > 0
    at += (bits >> 3) + 1
    word >>= bits
    found.offset_delta[some], bits = _number(word)
    read &= bits > 0
    at += bits >> 3
    word >>= bits
    has_no_key = word & 1
    read &= word & 0xFE == 0  # no key, or an empty one
    at += 1
    found.key_start[some] = at
    found.key_size[some] = -has_no_key.view(np.int64)
    size, bits = _number(word >> 8)
    read &= (bits > 0) & (size >= -1)
    at += bits >> 3
    found.value_start[some] = at
    found.value_size[some] = size
    # The rest is one byte, the header count.
    read &= (at + np.maximum(size, 0) == end - 1) & (area.take(end - 1, mode="clip") == 0)
    found.read[some] = read


def _number(word: Array) -> tuple[Array, Array]:
    """Return the zigzag number of one or two bytes that each word begins with, and its bits: none, if it is longer."""
    place = word.astype(np.uint16)
    return _NUMBERS.take(place), _BITS.take(place)


def _numbers() -> tuple[Array, Array]:
    """Return number and bits for any two bytes."""
    place = np.arange(1 << 16)
    first, second = place & 0xFF, place >> 8
    raw = np.where(first < 0x80, first, first & 0x7F | second << 7)
    bits = np.where(first < 0x80, 8, np.where(second < 0x80, 16, 0))
    return ((raw >> 1) ^ -(raw & 1)).astype(np.int16), bits.astype(np.uint8)


_NUMBERS, _BITS = _numbers()
