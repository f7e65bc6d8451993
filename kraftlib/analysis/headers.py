"""The headers of a chunk of batches as columns.

Only the length of a batch says where the next one begins, so the walk is a loop, one step a batch; everything else is
then gathered at once. The walk stops at bytes that cannot be a batch and says so; it never searches for the next one.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, Final

import attrs
import numpy as np

from kraftlib.analysis.varints import Array
from kraftlib.records.batch import CODEC_MASK, CONTROL, CRC_START, HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC
from kraftlib.records.checksum import crc32c

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
"""The layout of `kraftlib.records.batch`, as numpy reads it."""

BATCH_MAX_BYTES: Final = 128 << 20
"""A batch that claims more is damaged: no request is that large."""

_LENGTH_MIN: Final = HEADER_SIZE - LENGTH_PREFIX_SIZE
_LENGTH_AT: Final = 8
_LENGTH_AND_MAGIC: Final = struct.Struct(">i4xB")


class Stop(enum.Enum):
    """Why a walk over batches ended."""

    END = "end"
    """The last batch ends with the data."""
    CUT = "cut"
    """The batch there is longer than the data: more must be read, or the file ends within it."""
    BROKEN = "broken"
    """The bytes cannot be a batch."""


@attrs.frozen(kw_only=True, eq=False)
class Headers:
    """Headers of consecutive batches; one numpy array a field, in the order of the file."""

    start: Array
    """Position of each batch in the data (int64)."""
    size: Array
    """Bytes of each, header included (int64)."""
    base_offset: Array
    last_offset: Array
    """Inclusive."""
    epoch: Array
    crc: Array
    attributes: Array
    base_timestamp: Array
    max_timestamp: Array
    count: Array

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Array:
        """Position behind each batch."""
        return self.start + self.size

    @property
    def is_control(self) -> Array:
        """Whether each holds control records."""
        return self.attributes & CONTROL != 0

    @property
    def codec(self) -> Array:
        """Number of each one's codec."""
        return self.attributes & CODEC_MASK

    def select(self, chosen: Array) -> Headers:
        """Return those that `chosen` (a slice, a mask or indexes) names."""
        return Headers(**{name: getattr(self, name)[chosen] for name in _FIELDS})


_FIELDS: Final = tuple(field.name for field in attrs.fields(Headers))


@attrs.frozen(kw_only=True, eq=False)
class Walk:
    """The result of a walk: the whole batches, and the position and reason of its end."""

    headers: Headers
    crcs: Array
    """The CRC-32C that the bytes of each batch have (int64), if it was asked for."""
    end: int
    stop: Stop
    wanted: int
    """Bytes that the batch at `end` claims, 0 where its length cannot be read or believed."""
    reason: str
    """Why it is BROKEN."""


def walk(data: bytes | memoryview, *, with_crcs: bool = False) -> Walk:
    """Walk over the batches in `data`, and sum each, if `with_crcs`."""
    view = memoryview(data)
    starts: list[int] = []
    crcs: list[int] = []
    position, end = 0, len(data)
    length_and_magic = _LENGTH_AND_MAGIC.unpack_from
    stop, reason, wanted = Stop.END, "", 0
    while position < end:
        if position + HEADER_SIZE > end:
            stop = Stop.CUT
            break
        length, magic = length_and_magic(data, position + _LENGTH_AT)
        if magic != MAGIC or not _LENGTH_MIN <= length <= BATCH_MAX_BYTES:
            stop, reason = Stop.BROKEN, _why_broken(magic, length)
            break
        behind = position + length + LENGTH_PREFIX_SIZE
        if behind > end:
            stop, wanted = Stop.CUT, behind - position
            break
        starts.append(position)
        if with_crcs:
            crcs.append(crc32c(view[position + CRC_START : behind]))
        position = behind
    return Walk(headers=headers_at(data, np.array(starts, dtype=np.int64)), crcs=np.array(crcs, dtype=np.int64),
                end=position, stop=stop, wanted=wanted, reason=reason)  # fmt: skip


def _why_broken(magic: int, length: int) -> str:
    if magic != MAGIC:
        return f"has magic {magic}, only {MAGIC} is supported"
    return f"claims a length of {length}, which is not within [{_LENGTH_MIN}, {BATCH_MAX_BYTES}]"


def headers_at(data: bytes | memoryview, starts: Array) -> Headers:
    """Return the headers at the positions `starts` (int64), each of which has 61 bytes in `data`."""
    rows = np.empty(0, dtype=HEADER)
    if len(starts):
        rows = np.ndarray((len(data) - HEADER_SIZE + 1,), dtype=HEADER, buffer=data, strides=(1,))[starts]

    def field(name: str, kind: Any = np.int64) -> Array:
        return rows[name].astype(kind)

    base_offset = field("base_offset")
    return Headers(
        start=starts,
        size=field("length") + LENGTH_PREFIX_SIZE,
        base_offset=base_offset,
        last_offset=base_offset + field("last_delta"),
        epoch=field("epoch"),
        crc=field("crc"),
        attributes=field("attributes"),
        base_timestamp=field("base_timestamp"),
        max_timestamp=field("max_timestamp"),
        count=field("count"),
    )


def actual_crc(data: bytes | memoryview, headers: Headers, index: int) -> int:
    """Return the CRC-32C that the bytes of one batch have."""
    return crc32c(memoryview(data)[int(headers.start[index]) + CRC_START : int(headers.end[index])])


def impossible(headers: Headers) -> Array:
    """Return which batches have offsets and a record count that no batch can have."""
    last_delta = headers.last_offset - headers.base_offset
    return (
        (headers.base_offset < 0)
        | (last_delta < 0)
        | (headers.last_offset < headers.base_offset)  # beyond int64
        | (headers.count < 0)
        | (headers.count > last_delta + 1)
    )
