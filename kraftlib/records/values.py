"""The block of records that KRaft writes: bare values, no keys, no headers, no compression.

    varint   length of the rest
    int8     attributes          0
    varlong  timestamp delta     0
    varint   offset delta        0, 1, 2, ...
    varint   key length         -1
    varint   value length
             value
    varint   header count        0

All but the value follows from its place and its size, so there is exactly one encoding of a list of values, and it is
made of cached pieces joined in C. Reading turns that around: guess where the values are, encode them again, and if the
result is the very block that was read, the guess was right. What does not fit goes to the slow reader of
`kraftlib.records.record`, which says why.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_CACHED_SIZES: Final = 4_096
_CACHED_DELTAS: Final = 8_192
_UNIFORM_MAX: Final = 4_096

# An offset delta is zigzag, 7 bits a byte: where its width grows, and what the width is from there on.
_WIDTH_STARTS: Final = (0, 64, 8_192, 1_048_576, 134_217_728)


def _varint(value: int) -> bytes:
    """Encode a number >= 0 as zigzag varint."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_size(value: int) -> int:
    """Return how many bytes the zigzag varint of a number >= 0 has."""
    return max(1, ((value << 1).bit_length() + 6) // 7)


_DELTAS: Final = [_varint(delta) for delta in range(_CACHED_DELTAS)]


class _Tails(dict[int, bytes]):
    """Per value size: what stands between the offset delta and the value."""

    def __missing__(self, size: int) -> bytes:
        tail = b"\x01" + _varint(size)
        if len(self) >= _CACHED_SIZES:
            self.clear()
        self[size] = tail
        return tail


class _Leads(dict[int, bytes]):
    """Per value size: header count of the record before, then what stands before an offset delta of this width."""

    def __init__(self, delta_width: int) -> None:
        self.delta_width = delta_width

    def __missing__(self, size: int) -> bytes:
        lead = b"\x00" + _varint(4 + self.delta_width + _varint_size(size) + size) + b"\x00\x00"
        if len(self) >= _CACHED_SIZES:
            self.clear()
        self[size] = lead
        return lead


_TAILS: Final = _Tails()
_LEADS: Final = tuple(_Leads(width) for width in range(1, 1 + len(_WIDTH_STARTS)))


def record_size(*, offset_delta: int, value_size: int) -> int:
    """Return how many bytes a record of a bare value takes in its block."""
    length = 4 + _varint_size(offset_delta) + _varint_size(value_size) + value_size
    return _varint_size(length) + length


def block_parts(values: Sequence[bytes]) -> list[bytes]:
    """Return the block of records of `values` in pieces, to be joined."""
    count = len(values)
    sizes = list(map(len, values))
    if count == 1:
        size = sizes[0]
        return [_LEADS[0][size][1:], b"\x00", _TAILS[size], values[0], b"\x00"]
    if count == 0:
        return []
    size = sizes[0]
    if count <= _UNIFORM_MAX and sizes.count(size) == count:
        parts = [b""] * (2 * count)
        parts[0::2] = _uniform_heads(size, 1 << (count - 1).bit_length())[:count]
        parts[1::2] = values
    else:
        parts = [b""] * (4 * count)
        parts[0::4] = _leads(sizes)
        parts[1::4] = _DELTAS[:count] if count <= _CACHED_DELTAS else map(_varint, range(count))
        parts[2::4] = map(_TAILS.__getitem__, sizes)
        parts[3::4] = values
    # Each head begins with the header count of the record before it: the first has none, the last lacks one.
    parts[0] = parts[0][1:]
    parts.append(b"\x00")
    return parts


def _leads(sizes: list[int]) -> list[bytes]:
    leads: list[bytes] = []
    for width, start in enumerate(_WIDTH_STARTS):
        if start >= len(sizes):
            break
        end = _WIDTH_STARTS[width + 1] if width + 1 < len(_WIDTH_STARTS) else len(sizes)
        leads += map(_LEADS[width].__getitem__, sizes[start:end])
    return leads


@lru_cache(maxsize=16)
def _uniform_heads(size: int, count: int) -> list[bytes]:
    """Return what stands between the values of `count` records whose values have one size."""
    tail = _TAILS[size]
    return [lead + delta + tail for lead, delta in zip(_leads([size] * count), _DELTAS, strict=False)]


def split_block(block: bytes, count: int) -> list[bytes] | None:
    """Return the values of a block of `count` records; None, if it is not a block that `block_parts` makes."""
    values = _split_uniform(block, count) or _split_by_length(block, count)
    if values is None or b"".join(block_parts(values)) != block:
        return None
    return values


def _split_uniform(block: bytes, count: int) -> list[bytes] | None:
    """Cut the block into values of one size, that of the first; None, if its length tells that they differ."""
    value_size = _first_value_size(block)
    if value_size < 0 or count < 2:
        return None
    values: list[bytes] = []
    position = 0
    for width, start in enumerate(_WIDTH_STARTS):
        if start >= count:
            break
        end = min(count, _WIDTH_STARTS[width + 1]) if width + 1 < len(_WIDTH_STARTS) else count
        size = record_size(offset_delta=start, value_size=value_size)
        stop = position + size * (end - start)
        if stop > len(block):
            return None
        cut = struct.iter_unpack(f"{size - value_size - 1}x{value_size}sx", memoryview(block)[position:stop])
        values += [value for (value,) in cut]
        position = stop
    return values if position == len(block) else None


def _first_value_size(block: bytes) -> int:
    """Return the size of the first value, or -1 where that takes more than two bytes to say."""
    if len(block) < 7:
        return -1
    # 1 or 2 bytes of length, then attributes, timestamp delta, offset delta, key length: 4 bytes.
    at = 5 if block[0] < 0x80 else 6
    low = block[at]
    if low < 0x80:
        return low >> 1
    high = block[at + 1]
    return (high << 7 | low & 0x7F) >> 1 if high < 0x80 else -1


def _split_by_length(block: bytes, count: int) -> list[bytes] | None:
    """Cut the block at the lengths that its records claim."""
    values: list[bytes] = []
    add = values.append
    position = 0
    try:
        for width, start in enumerate(_WIDTH_STARTS):
            if start >= count:
                break
            end = min(count, _WIDTH_STARTS[width + 1]) if width + 1 < len(_WIDTH_STARTS) else count
            for _ in range(start, end):
                length = block[position]
                position += 1
                if length > 0x7F:
                    length &= 0x7F
                    shift = 7
                    while (byte := block[position]) > 0x7F:
                        length |= (byte & 0x7F) << shift
                        shift += 7
                        position += 1
                        if shift > 28:
                            return None
                    length |= byte << shift
                    position += 1
                # length = 4 + width of the delta + width of the value's size + the value's size
                rest = (length >> 1) - 5 - width
                position += length >> 1
                size = rest - 1 if rest <= 64 else rest - 2 if rest <= 8_193 else rest - _width_of_size(rest)
                add(block[position - 1 - size : position - 1])
    except IndexError:
        return None
    return values


def _width_of_size(rest: int) -> int:
    """Return how many bytes of `rest` are the varint of the size of the remaining ones."""
    width = 3
    while _varint_size(rest - width) > width:
        width += 1
    return width
