"""Batches whose records are alike: where each record begins is computed and then verified, instead of looked for.

Many logs hold batches of records that have no key, no headers, one timestamp and values of one size. All bytes of such
a batch but those of the values follow from the length of its first record: the only number that differs from record to
record is the offset delta, which takes one byte below 64 and two below 8,192. So the places of all records are computed
for all batches at once, and the bytes around each beginning are compared with those that must stand there. That proves
what a reader would find who follows the lengths one by one. A batch that is otherwise, or not sound, is not read here.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kraftlib.analysis.record_places import Blocks
from kraftlib.analysis.varints import Array, read_lengths

_SHORT: Final = 64
"""Zigzag numbers from zero to below this take one byte."""
_LONG: Final = 8_192
"""Those below this take at most two."""
_NO_KEY: Final = 0x01
_WINDOW: Final = 16
_RECORDS_AT_ONCE: Final = 16_384
"""So many windows and what is computed from them stay in the cache of a processor."""
_WORTH: Final = 0.75
"""With a smaller share of records in batches that look regular, all are read in another way."""

_U: Final = np.uint64
_ALL: Final = _U(2**64 - 1)
_ALL_BUT_FIRST_BYTE: Final = _U(2**64 - 1 - 0xFF)


@attrs.frozen(kw_only=True, eq=False)
class RegularRecords:
    """Fields of the records of all blocks, one numpy array each; of blocks that are not `read` they mean nothing."""

    end: Array
    offset_delta: Array
    value_start: Array
    value_size: Array
    read: Array
    """Per block."""


@attrs.frozen(kw_only=True, eq=False)
class _Runs:
    """Two runs of records a block, those with a short offset delta and the others; one numpy array each."""

    count: Array
    first_delta: Array
    start: Array
    span: Array
    """Bytes of each record."""
    size: Array
    """Bytes of each value."""
    length: Array
    """The number that each record begins with: its bytes behind that number."""
    delta_at: Array
    """Where the offset delta stands, from the byte before the record."""
    key_at: Array

    @property
    def value_at(self) -> Array:
        """Where the value stands, from the beginning of the record."""
        return self.key_at + _width(self.size)

    def are_alike(self) -> bool:
        """Whether all blocks have as many records, of the same sizes."""
        return all((both.reshape(-1, 2) == both[:2]).all() for both in (self.count, self.length))

    def of_first_block(self) -> _Runs:
        """Return the two runs of the first block."""
        return _Runs(**{field.name: getattr(self, field.name)[:2] for field in attrs.fields(_Runs)})

    def repeat(self, values: Array) -> Array:
        """Return a value per run as one per record, not to be written to."""
        if (values == values[0]).all():
            return np.broadcast_to(values[0], int(self.count.sum()))
        return np.repeat(values, self.count)


def read_regular(area: Array, blocks: Blocks, counts: Array) -> RegularRecords | None:
    """Read the blocks of `area` (uint8) whose records are alike; None, if they hold too few of the records.

    `counts` says how many records of each block are looked for: all, or none.
    """
    if len(area) < _WINDOW:
        return None
    runs, regular = _guess(area, blocks, counts)
    if int(counts[regular].sum()) < _WORTH * int(counts.sum()):
        return None
    if regular.all() and runs.are_alike():
        return _read_alike(area, blocks.start, runs)
    delta = np.arange(int(counts.sum())) - runs.repeat(np.cumsum(runs.count) - runs.count - runs.first_delta)
    start = runs.repeat(runs.start - runs.first_delta * runs.span) + delta * runs.repeat(runs.span)
    ends = np.cumsum(counts)
    differs = _differences(area, runs, start, delta, (ends - counts)[counts > 0])
    if differs.any():
        regular[np.searchsorted(ends, np.flatnonzero(differs), side="right")] = False
    return RegularRecords(
        end=start + runs.repeat(runs.span),
        offset_delta=delta,
        value_start=start + runs.repeat(runs.value_at),
        value_size=runs.repeat(runs.size),
        read=regular,
    )


def _read_alike(area: Array, starts: Array, runs: _Runs) -> RegularRecords:
    """Read blocks that begin at `starts` and are all regular, of one layout: it is computed for one of them."""
    one = runs.of_first_block()
    delta = np.arange(int(one.count.sum()))
    place = one.repeat(one.start - one.start[0] - one.first_delta * one.span) + delta * one.repeat(one.span)
    low, high, low_mask, high_mask = map(one.repeat, _expected(one))
    low = low | _DELTAS[delta] << one.repeat((8 * one.delta_at).astype(np.uint64))
    windows = np.ndarray((len(area) - _WINDOW + 1,), dtype="V16", buffer=area, strides=(1,))
    same = np.empty(len(starts), dtype=bool)
    at_once = max(_RECORDS_AT_ONCE // len(delta), 1)
    for begin in range(0, len(starts), at_once):
        some = slice(begin, begin + at_once)
        words = windows[starts[some, None] + (place - 1)].view("<u8")
        found = words[:, 0::2] ^ low
        found &= low_mask
        found[:, 0] &= _ALL_BUT_FIRST_BYTE
        other = words[:, 1::2] ^ high
        other &= high_mask
        found |= other
        same[some] = ~found.any(axis=1)
    size = runs.size[0]
    return RegularRecords(
        end=(starts[:, None] + (place + one.repeat(one.span))).ravel(),
        offset_delta=np.tile(delta, len(starts)),
        value_start=(starts[:, None] + (place + one.repeat(one.value_at))).ravel(),
        value_size=np.broadcast_to(size, len(starts) * len(delta)),
        read=same,
    )


def _guess(area: Array, blocks: Blocks, counts: Array) -> tuple[_Runs, Array]:
    """Return the runs of each block as its first record tells them, and which blocks they fill to the byte."""
    length, _, _ = read_lengths(area, blocks.start)
    # Attributes, timestamp delta, a short offset delta, no key; then the value's size and bytes, and no headers.
    rest = length - 5
    size = rest - np.where(rest <= _SHORT, 1, 2)
    few = np.minimum(counts, _SHORT)
    many = counts - few
    span, next_span = _width(length) + length, _width(length + 1) + length + 1
    behind = blocks.start + few * span
    last_start = blocks.end - np.where(many > 0, next_span, span)
    regular = (
        (counts > 0)
        & (counts <= _LONG)
        & (counts == blocks.last_delta + 1)
        & (size >= 0)
        & (size + _width(size) == rest)
        & (length + 1 < _LONG)
        & (behind + many * next_span == blocks.end)
        & (blocks.start > 0)
        & (last_start - 1 + _WINDOW <= len(area))
        & (area.take(blocks.end - 1, mode="clip") == 0)
    )
    # Blocks that are not regular are compared, too, with any bytes that are there.
    delta_at = np.stack([_width(length), _width(length + 1)], axis=1) + 3
    key_at = delta_at + np.array([1, 2])
    runs = _Runs(
        count=np.stack([few, many], axis=1).ravel(),
        first_delta=np.tile([0, _SHORT], len(counts)),
        start=np.where(regular[:, None], np.stack([blocks.start, behind], axis=1), 1).ravel(),
        span=np.where(regular[:, None], np.stack([span, next_span], axis=1), 0).ravel(),
        size=np.repeat(size, 2),
        length=np.stack([length, length + 1], axis=1).ravel(),
        delta_at=delta_at.ravel(),
        key_at=key_at.ravel(),
    )
    return runs, regular


def _differences(area: Array, runs: _Runs, start: Array, delta: Array, firsts: Array) -> Array:
    """Return for each record whether other bytes stand before its value than those that must. `firsts` are of blocks.

    Two words, sixteen bytes, are compared, of which the last bytes do not count: the header count of the record before,
    which is zero, the length, attributes and timestamp delta of zero, the offset delta, no key, and the size of the
    value.
    """
    low, high, low_mask, high_mask = _expected(runs)
    windows = np.ndarray((len(area) - _WINDOW + 1,), dtype="V16", buffer=area, strides=(1,))
    delta_shift = runs.repeat((8 * runs.delta_at).astype(np.uint8))
    low, high, low_mask, high_mask = map(runs.repeat, (low, high, low_mask, high_mask))
    differs = np.empty(len(start), dtype=np.uint64)
    for begin in range(0, len(start), _RECORDS_AT_ONCE):
        some = slice(begin, begin + _RECORDS_AT_ONCE)
        words = windows[start[some] - 1].view("<u8")
        found = _DELTAS.take(delta[some], mode="clip")  # a block that is not regular may be longer
        found <<= delta_shift[some]
        found |= low[some]
        found ^= words[0::2]
        found &= low_mask[some]
        other = high[some] ^ words[1::2]
        other &= high_mask[some]
        other <<= _U(8)  # two bytes at most: the first byte of the result is that before the record
        np.bitwise_or(found, other, out=differs[some])
    # Before the first record of a block stands the header of a batch, or whatever was inflated before.
    differs[firsts] &= _ALL_BUT_FIRST_BYTE
    return differs != 0


def _expected(runs: _Runs) -> tuple[Array, Array, Array, Array]:
    """Return the two words that must stand around the beginning of a record, without its offset delta, and two masks.

    The first byte of the first word is that before the record.
    """
    behind_key = (_varint(2 * np.maximum(runs.size, 0)) << _U(8)) | _U(_NO_KEY)
    key_shift = (8 * runs.key_at).astype(np.uint64)
    low = (_varint(2 * np.maximum(runs.length, 0)) << _U(8)) | behind_key << key_shift
    high = behind_key >> (_U(64) - key_shift)
    used = 8 * (runs.key_at + 1 + _width(runs.size))
    low_mask = _ALL >> (64 - np.minimum(used, 64)).astype(np.uint64)
    high_mask = ~(_ALL << np.maximum(used - 64, 0).astype(np.uint64))
    return low, high, low_mask, high_mask


def _width(number: Array) -> Array:
    """Return how many bytes a zigzag number from 0 to 8,191 takes."""
    return np.where(number < _SHORT, 1, 2)


def _varint(raw: Array) -> Array:
    """Return unsigned numbers below 16,384 as the one or two bytes of a varint, the first one lowest."""
    raw = raw.astype(np.uint64)
    return np.where(raw < _U(0x80), raw, raw & _U(0x7F) | _U(0x80) | raw >> _U(7) << _U(8))


_DELTAS: Final = _varint(2 * np.arange(_LONG))
"""Each offset delta as it is written."""
