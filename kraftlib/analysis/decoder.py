"""Records of many batches as numpy arrays: the fast twin of `kraftlib.records.record`, which reads one by one.

Batches whose records are all alike are read by arithmetic (`analysis.regular_records`). Of others, where records begin
is found first (`analysis.record_places`), and then all their fields are read together, those of short records in a
faster way (`analysis.short_records`). The records must satisfy what the slow reader demands: each
ends where its length says and within its batch, offsets ascend within the batch, nothing is left over. A batch that
does not is reported by its index, and its records are left out; the slow reader says what is wrong with it.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kraftlib.analysis.record_places import Blocks, locate
from kraftlib.analysis.regular_records import RegularRecords, read_regular
from kraftlib.analysis.short_records import read_short
from kraftlib.analysis.varints import Array, read_lengths, read_longs

_NO_INDEXES: Final = np.empty(0, dtype=np.int64)


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


def undecoded(batch: Array) -> Fields:
    """Return records of which nothing is known but their batch; no other field of them may be used."""
    return Fields(**dict.fromkeys(_FIELDS, batch))


def decode(blocks: Blocks) -> tuple[Fields, Array]:
    """Return the records of all blocks that are sound, and the indexes of the blocks that are not."""
    bad = np.zeros(len(blocks.start), dtype=bool)
    bad |= blocks.count * RECORD_MIN_BYTES > blocks.end - blocks.start
    bad |= (blocks.count == 0) & (blocks.end > blocks.start)
    counts = np.where(bad, 0, blocks.count)
    if not counts.any():
        return _no_records(), np.flatnonzero(bad)
    area = np.frombuffer(blocks.area, dtype=np.uint8)
    regular = read_regular(area, blocks, counts)
    if regular is None:
        fields, refused = _read_any_blocks(area, blocks, counts)
    else:
        fields, refused = _with_others(regular, area, blocks, counts)
    bad[refused] = True
    if bad.any():
        fields = fields.select(~bad[fields.batch])
    return fields, np.flatnonzero(bad)


def _with_others(regular: RegularRecords, area: Array, blocks: Blocks, counts: Array) -> tuple[Fields, Array]:
    """Return the records of all blocks, and the blocks that are refused: all that are not regular are read here."""
    batch = np.repeat(np.arange(len(counts)), counts)
    none = np.broadcast_to(0, len(batch))
    fields = Fields(
        batch=batch,
        timestamp_delta=none,
        offset_delta=regular.offset_delta,
        key_start=regular.value_start,
        key_size=np.broadcast_to(-1, len(batch)),
        value_start=regular.value_start,
        value_size=regular.value_size,
        headers_start=regular.end,
        header_count=none,
        end=regular.end,
    )
    others = np.flatnonzero(~regular.read)
    if not counts[others].any():
        return fields, _NO_INDEXES
    read, refused = _read_any_blocks(area, blocks.select(others), counts[others])
    places = np.flatnonzero(~regular.read[batch])
    joined = {"batch": batch}
    for name in _FIELDS[1:]:
        joined[name] = np.array(getattr(fields, name))
        joined[name][places] = getattr(read, name)
    return Fields(**joined), others[refused]


def _read_any_blocks(area: Array, blocks: Blocks, counts: Array) -> tuple[Fields, Array]:
    """Return the records of all blocks, and the indexes of those blocks in which some do not fit."""
    start, end = locate(area, blocks, counts)
    bad = np.zeros(len(counts), dtype=bool)
    has_any = counts > 0
    bad[has_any] = end[np.cumsum(counts)[has_any] - 1] != blocks.end[has_any]
    batch = np.repeat(np.arange(len(counts)), counts)
    fields, wrong = _read_fields(area, batch, start, end)
    wrong |= _offsets_do_not_ascend(fields, blocks.last_delta)
    bad[batch[wrong]] = True
    return fields, np.flatnonzero(bad)


def _no_records() -> Fields:
    return Fields(**dict.fromkeys(_FIELDS, _NO_INDEXES))


def _read_fields(area: Array, batch: Array, start: Array, end: Array) -> tuple[Fields, Array]:
    """Return the fields of the records and which records do not fit their place."""
    short = read_short(area, start, end)
    fields = Fields(
        batch=batch,
        timestamp_delta=short.timestamp_delta,
        offset_delta=short.offset_delta,
        key_start=short.key_start,
        key_size=short.key_size,
        value_start=short.value_start,
        value_size=short.value_size,
        headers_start=end.copy(),
        header_count=np.zeros(len(end), dtype=np.int64),
        end=end,
    )
    wrong = np.zeros(len(end), dtype=bool)
    others = np.flatnonzero(~short.read)
    if others.size:
        read, wrong[others] = _read_any(area, batch[others], start[others], end[others])
        for name in _FIELDS:
            getattr(fields, name)[others] = getattr(read, name)
    return fields, wrong


def _read_any(area: Array, batch: Array, start: Array, end: Array) -> tuple[Fields, Array]:
    """As `_read_fields`, for records of any kind: number by number."""
    wrong = np.zeros(len(start), dtype=bool)
    size, body, long = read_lengths(area, start)
    wrong[long] = True
    wrong |= (size <= 0) | (body + size != end)
    timestamp_delta, at, long = read_longs(area, body + 1)  # behind the attributes, of which none are defined
    wrong[long] = True
    offset_delta, at, long = read_lengths(area, at)
    wrong[long] = True
    key_size, key_start, long = read_lengths(area, at)
    wrong[long] = True
    # Sizes are below 2**31 and positions below 2**62, so nothing overflows; a length that leaves the record is wrong.
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
    except ValueError:  # also a name that is no UTF-8
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
