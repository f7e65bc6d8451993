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
result is the very block that was read, the guess was right. A block of another form goes to the slow reader of
`kraftlib.records.record`, which says why.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from kraftlib.codec.varint import encode_varint, varint_size

RECORD_OVERHEAD_MAX: Final = 19
"""Maximum size of a record without its value: three varints of 5 bytes and four single bytes."""

_CACHED_SIZES: Final = 4_096
_CACHED_DELTAS: Final = 32_768
"""A batch of a snapshot is 1 MiB: some 9,000 records of 100 bytes. All that is cached takes 3 MB at most."""
_UNIFORM_MAX: Final = 4_096

# Where a further byte is needed to say an offset delta: zigzag, 7 bits a byte.
_WIDTH_STARTS: Final = (0, 64, 8_192, 1_048_576, 134_217_728)


class _Tails(dict[int, bytes]):
    """Per value size: the bytes between the offset delta and the value."""

    def __missing__(self, size: int) -> bytes:
        tail = b"\x01" + encode_varint(size)
        if len(self) >= _CACHED_SIZES:
            self.clear()
        self[size] = tail
        return tail


class _Leads(dict[int, bytes]):
    """Per value size: header count of the record before, then what stands before an offset delta of this width."""

    def __init__(self, delta_width: int) -> None:
        self.delta_width = delta_width

    def __missing__(self, size: int) -> bytes:
        lead = b"\x00" + encode_varint(4 + self.delta_width + varint_size(size) + size) + b"\x00\x00"
        if len(self) >= _CACHED_SIZES:
            self.clear()
        self[size] = lead
        return lead


_TAILS: Final = _Tails()
_LEADS: Final = tuple(_Leads(width) for width in range(1, 1 + len(_WIDTH_STARTS)))


def record_size(*, offset_delta: int, value_size: int) -> int:
    """Return how many bytes a record of a bare value takes in its block."""
    length = 4 + varint_size(offset_delta) + varint_size(value_size) + value_size
    return varint_size(length) + length


def block_size(values: Sequence[bytes], *, first_delta: int = 0) -> int:
    """Return how many bytes the records of `values` take in a block, the first of them at `first_delta`."""
    total = 0
    for _, start, end in _runs(first_delta + len(values)):
        sizes = Counter(map(len, values[max(start - first_delta, 0) : max(end - first_delta, 0)]))
        total += sum(count * record_size(offset_delta=start, value_size=size) for size, count in sizes.items())
    return total


def block_parts(values: Sequence[bytes]) -> Sequence[bytes]:
    """Return the block of records of `values` in pieces, to be joined."""
    count = len(values)
    if count == 1:
        size = len(values[0])
        return _LEADS[0][size][1:], b"\x00", _TAILS[size], values[0], b"\x00"
    if count == 0:
        return ()
    sizes = list(map(len, values))
    size = sizes[0]
    if count <= _UNIFORM_MAX and sizes.count(size) == count:
        parts = [b""] * (2 * count)
        parts[0::2] = _uniform_heads(size, _rounded(count))[:count]
        parts[1::2] = values
    else:
        parts = [b""] * (4 * count)
        parts[0::4] = _leads(sizes)
        parts[1::4] = _deltas(_rounded(count))[:count] if count <= _CACHED_DELTAS else map(encode_varint, range(count))
        parts[2::4] = map(_TAILS.__getitem__, sizes)
        parts[3::4] = values
    # Each head begins with the header count of the record before it: the first has none, the last lacks one.
    parts[0] = parts[0][1:]
    parts.append(b"\x00")
    return parts


def _leads(sizes: list[int]) -> list[bytes]:
    leads: list[bytes] = []
    for width, start, end in _runs(len(sizes)):
        leads += map(_LEADS[width - 1].__getitem__, sizes[start:end])
    return leads


@lru_cache(maxsize=16)
def _uniform_heads(size: int, count: int) -> list[bytes]:
    """Return what stands between the values of `count` records whose values have one size."""
    tail = _TAILS[size]
    return [lead + delta + tail for lead, delta in zip(_leads([size] * count), _deltas(count), strict=True)]


@lru_cache(maxsize=16)
def _deltas(count: int) -> list[bytes]:
    """Return the first `count` offset deltas."""
    return [encode_varint(delta) for delta in range(count)]


def _rounded(count: int) -> int:
    """Return the power of two that is not below `count`: so a cache by count has few entries."""
    return 1 << (count - 1).bit_length()


def _runs(count: int) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of records whose offset deltas have one width: width, start, end."""
    for start, end in pairwise((*_WIDTH_STARTS, count)):
        if start >= count:
            return
        yield varint_size(start), start, min(end, count)


def split_block(block: bytes, count: int) -> list[bytes] | None:
    """Return the values of a block of `count` records; None, if it is not a block that `block_parts` makes."""
    for guess in (_split_uniform, _split_by_length):
        values = guess(block, count)
        if values is not None and b"".join(block_parts(values)) == block:
            return values
    return None


def _split_uniform(block: bytes, count: int) -> list[bytes] | None:
    """Cut the block into values of one size, that of the first; None, if its length tells that they differ."""
    value_size = _first_value_size(block)
    if value_size < 0:
        return None
    if count == 1:
        return [block[-1 - value_size : -1]]
    values: list[bytes] = []
    position = 0
    for _, start, end in _runs(count):
        size = record_size(offset_delta=start, value_size=value_size)
        stop = position + size * (end - start)
        if stop > len(block):
            return None
        cut = struct.iter_unpack(f"{size - value_size - 1}x{value_size}sx", memoryview(block)[position:stop])
        values += [value for (value,) in cut]
        position = stop
    return values if position == len(block) else None


def _first_value_size(block: bytes) -> int:
    """Return the size that the first record claims for its value; -1, if the block ends before."""
    try:
        at = 1
        if block[0] > 0x7F:
            _, at = _long_length(block[0], block, at)
        at += 4  # attributes, timestamp delta, offset delta and key length have a byte each
        size = block[at]
        if size > 0x7F:
            size, _ = _long_length(size, block, at + 1)
    except IndexError:
        return -1
    return size >> 1


def _split_by_length(block: bytes, count: int) -> list[bytes] | None:
    """Cut the block at the lengths that its records claim."""
    values: list[bytes] = []
    add = values.append
    position = 0
    try:
        for width, start, end in _runs(count):
            fixed = 4 + width
            for _ in range(start, end):
                length = block[position]
                position += 1
                if length > 0x7F:
                    length, position = _long_length(length, block, position)
                length >>= 1
                position += length
                # The part of the length beyond the fixed bytes: the value, and how many bytes say its size.
                rest = length - fixed
                size = rest - 1 if rest <= 64 else rest - 2 if rest <= 8_193 else rest - _size_width(rest)
                add(block[position - 1 - size : position - 1])
    except IndexError:
        return None
    return values


def _long_length(first: int, block: bytes, position: int) -> tuple[int, int]:
    """Return the varint whose `first` byte says that more follow, still in zigzag, and where it ends."""
    length = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = block[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return length, position
    raise IndexError


def _size_width(rest: int) -> int:
    """Return how many of `rest` bytes are the varint that says the size of the others."""
    width = 3
    while varint_size(rest - width) > width:
        width += 1
    return width
