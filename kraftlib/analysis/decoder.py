"""Records of many batches as numpy arrays: the fast reading of what `kraftlib.records.record` reads one by one.

Where a record begins is known only when the one before it has been measured. Two ways to find all beginnings:

* *lockstep*: record i of every batch at once, one gather a step. Costs as many steps as the longest batch has records,
  so it is for many small batches;
* a plain loop over all records: for few large ones.

All other fields are then read for all records together. The records must satisfy what the slow reader demands: each
ends where its length says and within its batch, offsets ascend within the batch, nothing is left over. A batch that
does not is reported by its index, and its records are left out; the slow reader says what is wrong with it.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kraftlib.analysis.varints import Array, read_lengths, read_longs

LOCKSTEP_RATIO: Final = 150
"""Lockstep pays when there are at least this many records for one of the longest batch."""

_NO_INDEXES: Final = np.empty(0, dtype=np.int64)


@attrs.frozen(kw_only=True, eq=False)
class Blocks:
    """Uncompressed blocks of records within one area of bytes, in ascending order."""

    area: bytes | memoryview
    start: Array
    end: Array
    count: Array
    last_delta: Array
    """Last offset of each batch, less its base offset."""


@attrs.frozen(kw_only=True, eq=False)
class Fields:
    """Fields of records, one numpy array each, in the order of the area; `batch` is the index of the record's block."""

    batch: Array
    timestamp_delta: Array
    offset_delta: Array
    key_start: Array
    key_size: Array
    """-1 where there is no key."""
    value_start: Array
    value_size: Array
    """-1 where there is no value."""
    headers_start: Array
    """Where the first header begins, behind the count."""
    header_count: Array
    end: Array
    """Where the record ends."""

    def __len__(self) -> int:
        return len(self.batch)

    def select(self, chosen: Array) -> Fields:
        """Return the records that `chosen`, a mask or indexes, names."""
        return Fields(**{name: getattr(self, name)[chosen] for name in _FIELDS})


_FIELDS: Final = tuple(field.name for field in attrs.fields(Fields))

RECORD_MIN_BYTES: Final = 7
"""A batch that claims more records than fit is not to be allocated for."""


def undecoded(counts: Array) -> Fields:
    """Return records of which nothing is known but their batch; no other field of them may be used."""
    return Fields(**dict.fromkeys(_FIELDS, np.repeat(np.arange(len(counts)), counts)))


def decode(blocks: Blocks) -> tuple[Fields, Array]:
    """Return the records of all blocks that are sound, and the indexes of the blocks that are not."""
    bad = np.zeros(len(blocks.start), dtype=bool)
    bad |= blocks.count * RECORD_MIN_BYTES > blocks.end - blocks.start
    bad |= (blocks.count == 0) & (blocks.end > blocks.start)
    area = np.frombuffer(blocks.area, dtype=np.uint8)
    counts = np.where(bad, 0, blocks.count)
    total = int(counts.sum())
    if total == 0:
        return _no_records(), np.flatnonzero(bad)
    if total > LOCKSTEP_RATIO * int(counts.max()):
        body, end = _locate_in_lockstep(area, blocks, counts, bad)
    else:
        body, end = _locate_one_by_one(blocks, counts, bad)
    batch = np.repeat(np.arange(len(counts)), counts)
    fields, wrong = _read_fields(area, batch, body, end)
    wrong |= _offsets_do_not_ascend(fields, blocks.last_delta)
    if wrong.any():
        bad[batch[wrong]] = True
    if bad.any():
        fields = fields.select(~bad[batch])
    return fields, np.flatnonzero(bad)


def _no_records() -> Fields:
    return Fields(**dict.fromkeys(_FIELDS, _NO_INDEXES))


def _locate_in_lockstep(area: Array, blocks: Blocks, counts: Array, bad: Array) -> tuple[Array, Array]:
    """Return where each record begins, behind its length, and where it ends. Marks blocks that do not add up as bad."""
    order = np.argsort(-counts, kind="stable")
    falling = counts[order]
    limit = blocks.end[order]
    place = (np.cumsum(counts) - counts)[order]
    position = blocks.start[order].copy()
    lost = np.zeros(len(order), dtype=bool)
    body = np.empty(int(counts.sum()), dtype=np.int64)
    ends = np.empty_like(body)
    # How many blocks have a record number i: falling counts make them a prefix.
    active = np.searchsorted(-falling, -np.arange(int(falling[0])), side="left")
    for step, many in enumerate(active.tolist()):
        size, behind, wrong = read_lengths(area, position[:many])
        end = behind + size
        astray = (size <= 0) | (end > limit[:many])
        if wrong.size or astray.any():
            astray[wrong] = True
            lost[:many] |= astray
            # It stays where it is, within the area, until the counting is over.
            end = np.where(astray, position[:many], end)
            behind = np.where(astray, end, behind)
        at = place[:many] + step
        body[at] = behind
        ends[at] = end
        position[:many] = end
    lost |= position != limit
    bad[order[lost & (falling > 0)]] = True
    return body, ends


def _locate_one_by_one(blocks: Blocks, counts: Array, bad: Array) -> tuple[Array, Array]:
    """As `_locate_in_lockstep`, by a loop over all records."""
    data = bytes(blocks.area) if isinstance(blocks.area, memoryview) else blocks.area
    body: list[int] = []
    ends: list[int] = []
    add_body, add_end = body.append, ends.append
    rows = zip(blocks.start.tolist(), blocks.end.tolist(), counts.tolist(), strict=True)
    for index, (position, limit, count) in enumerate(rows):
        done = 0
        if not bad[index]:
            for _ in range(count):
                if position >= limit:
                    break
                number = data[position]
                position += 1
                if number > 0x7F:
                    shift = 7
                    number &= 0x7F
                    while position < limit and shift < 35:
                        byte = data[position]
                        position += 1
                        number |= (byte & 0x7F) << shift
                        if byte <= 0x7F:
                            break
                        shift += 7
                    else:
                        break
                end = position + (number >> 1)
                if number & 1 or number == 0 or end > limit:
                    break
                add_body(position)
                add_end(end)
                position = end
                done += 1
            if done != count or position != limit:
                bad[index] = True
        body += [0] * (count - done)
        ends += [0] * (count - done)
    return np.array(body, dtype=np.int64), np.array(ends, dtype=np.int64)


def _read_fields(area: Array, batch: Array, body: Array, end: Array) -> tuple[Fields, Array]:
    """Return the fields of the records and which records do not fit their length."""
    wrong = np.zeros(len(body), dtype=bool)
    timestamp_delta, at, long = read_longs(area, body + 1)  # behind the attributes, of which none are defined
    wrong[long] = True
    offset_delta, at, long = read_lengths(area, at)
    wrong[long] = True
    key_size, key_start, long = read_lengths(area, at)
    wrong[long] = True
    # Sizes are below 2**31 and positions below 2**62, so nothing overflows; what leaves the record is wrong.
    at = key_start + np.maximum(key_size, 0)
    wrong |= (key_size < -1) | (at > end)
    value_size, value_start, long = read_lengths(area, at)
    wrong[long] = True
    at = value_start + np.maximum(value_size, 0)
    wrong |= (value_size < -1) | (at >= end)
    header_count, headers_start, long = read_lengths(area, at)
    wrong[long] = True
    wrong |= np.where(
        header_count == 0, headers_start != end, (header_count < 0) | (2 * header_count > end - headers_start)
    )
    fields = Fields(
        batch=batch,
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
        headers_start=headers_start,
        header_count=header_count,
        end=end,
    )
    for index in np.flatnonzero((header_count > 0) & ~wrong).tolist():
        start, count = int(headers_start[index]), int(header_count[index])
        wrong[index] = headers_of(area.data, start, count, int(end[index])) is None
    return fields, wrong


def _offsets_do_not_ascend(fields: Fields, last_delta: Array) -> Array:
    delta = fields.offset_delta
    wrong = (delta < 0) | (delta > last_delta[fields.batch])
    wrong[1:] |= (delta[1:] <= delta[:-1]) & (fields.batch[1:] == fields.batch[:-1])
    return wrong


def headers_of(data: bytes | memoryview, position: int, count: int, end: int) -> list[tuple[str, bytes | None]] | None:
    """Return the `count` headers that fill the bytes from `position` to `end`; None, if they do not fit."""
    headers = []
    try:
        for _ in range(count):
            size, position = _read_size(data, position, end)
            key = bytes(data[position : position + size]).decode()
            size_of_value, position = _read_size(data, position + size, end)
            value = None if size_of_value < 0 else bytes(data[position : position + size_of_value])
            position += max(size_of_value, 0)
            if size < 0 or position > end:
                return None
            headers.append((key, value))
    except ValueError:  # also what is no UTF-8
        return None
    return headers if position == end else None


def _read_size(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the zigzag int32 at `position`, and where it ends. Raises: ValueError, if it is none within the record."""
    number = shift = 0
    while position < end and shift < 35:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            size = (number >> 1) ^ -(number & 1)
            if number >> 32 or size < -1:
                break
            return size, position
        shift += 7
    raise ValueError("not a size")
