"""The record batch, version 2: the unit of replication, truncation, CRC, fsync and atomicity.

     at  size  field
      0     8  base offset             offset of the first record
      8     4  batch length            bytes after this field
     12     4  partition leader epoch  epoch of the leader that appended the batch
     16     1  magic                   2
     17     4  crc                     CRC-32C of everything from `attributes` on
     21     2  attributes              bits 0-2 codec, 3 append time, 4 transactional, 5 control
     23     4  last offset delta
     27     8  base timestamp          ms since 1970
     35     8  max timestamp
     43     8  producer id             -1
     51     2  producer epoch          -1
     53     4  base sequence           -1
     57     4  record count
     61    ..  records                 compressed as one block where a codec is set

Base offset, length, epoch and magic stand outside the CRC, so a leader stamps a batch without reading it again. A batch
is encoded once, and the very same bytes are stored, sent and stored again; it is decoded only to be applied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.records.checksum import crc32c
from kraftlib.records.compression import DECOMPRESSED_MAX_BYTES, Codec, compress, decompress
from kraftlib.records.record import Record, decode_block
from kraftlib.records.values import block_parts, split_block

HEADER_SIZE: Final = 61
LENGTH_PREFIX_SIZE: Final = 12
"""Bytes up to and with the length field: the part that must be read to know how long a batch is."""

CRC_START: Final = 21
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
_CODECS: Final = {int(codec): codec for codec in Codec}
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_LENGTH_MIN: Final = HEADER_SIZE - LENGTH_PREFIX_SIZE
_COVERED_START: Final = CRC_START - LENGTH_PREFIX_SIZE

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_OUTSIDE_CRC: Final = struct.Struct(">qiibI")
_INSIDE_CRC: Final = struct.Struct(">hiqqqhii")
_PREFIX: Final = struct.Struct(">qii")
_SHORT: Final = struct.Struct(">h")
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_UNSIGNED_INT: Final = struct.Struct(">I")
_MAX_OFFSET: Final = 2**63 - 1


class Batch:
    """One record batch. Never changed once made; its bytes are shared, not copied.

    Written by hand, since a frozen attrs class takes four times as long to make.
    """

    __slots__ = ("base_offset", "data", "epoch", "is_control", "last_offset", "max_timestamp")

    base_offset: int
    last_offset: int
    """Inclusive."""
    epoch: int
    """Epoch of the leader that appended it (partition leader epoch)."""
    is_control: bool
    max_timestamp: int
    """Ms since 1970."""
    data: bytes | memoryview
    """The whole batch."""

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        epoch: int,
        is_control: bool,
        max_timestamp: int,
        data: bytes | memoryview,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.epoch = epoch
        self.is_control = is_control
        self.max_timestamp = max_timestamp
        self.data = data

    @property
    def end_offset(self) -> int:
        """One past the last record."""
        return self.last_offset + 1

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return len(self.data)

    @property
    def record_count(self) -> int:
        """Number of records as the header says."""
        return int(_INT.unpack_from(self.data, 57)[0])

    @property
    def base_timestamp(self) -> int:
        """Ms since 1970."""
        return int(_LONG.unpack_from(self.data, 27)[0])

    @property
    def attributes(self) -> int:
        """The 16 attribute bits."""
        return int(_SHORT.unpack_from(self.data, CRC_START)[0])

    @property
    def codec(self) -> Codec:
        """The codec of the records. Raises: CorruptBatchError for a number of no codec."""
        return _codec(self.attributes)

    @property
    def crc(self) -> int:
        """The checksum that the header claims."""
        return int(_UNSIGNED_INT.unpack_from(self.data, 17)[0])

    def stamp(self, *, base_offset: int, epoch: int) -> Batch:
        """Return the batch as it stands in the log: at `base_offset`, appended by the leader of `epoch`.

        Changes 12 bytes outside the CRC, hence copies the data; returns itself where nothing changes.
        """
        if base_offset == self.base_offset and epoch == self.epoch:
            return self
        data = b"".join(
            (_PREFIX.pack(base_offset, len(self.data) - LENGTH_PREFIX_SIZE, epoch), memoryview(self.data)[16:])
        )
        last_offset = base_offset + self.last_offset - self.base_offset
        return Batch(base_offset, last_offset, epoch, self.is_control, self.max_timestamp, data)

    def records(self, *, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> Iterator[Record]:
        """Yield the records, decoded one by one, with keys, headers and timestamps as any producer may have written.

        `max_bytes` bounds what a compressed batch may grow to. Raises: CorruptBatchError.
        """
        attributes = self.attributes
        return decode_block(
            self._block(max_bytes),
            self.record_count,
            base_offset=self.base_offset,
            base_timestamp=self.base_timestamp,
            append_timestamp=self.max_timestamp if attributes & APPEND_TIME else None,
            last_offset=self.last_offset,
        )

    def values(self, *, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> list[bytes]:
        """Return the values of a data batch as KRaft writes them; of a control batch none.

        Raises: CorruptBatchError also for records that KRaft's reader rejects: keys, headers, timestamps of their own,
        values that are absent or empty. `records` reads those.
        """
        if self.is_control:
            return []
        block = self._block(max_bytes)
        values = split_block(block, self.record_count)
        if values is None or not all(values):
            return [value for _, value in _kraft_records(self, block)]
        return values

    def _block(self, max_bytes: int) -> bytes:
        """Return the records, decompressed."""
        attributes = self.attributes
        block = bytes(memoryview(self.data)[HEADER_SIZE:])
        return block if attributes & CODEC_MASK == 0 else decompress(_codec(attributes), block, max_bytes=max_bytes)

    def __eq__(self, other: object) -> bool:
        return self.data == other.data if isinstance(other, Batch) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.base_offset, self.last_offset, self.epoch))

    def __repr__(self) -> str:
        kind = "control" if self.is_control else "data"
        return f"<Batch [{self.base_offset}, {self.end_offset}) epoch {self.epoch} {kind} {self.size} bytes>"


class BatchHeader(NamedTuple):
    """The header of a batch, without a check of its CRC: enough to walk a file from batch to batch."""

    base_offset: int
    last_offset: int
    epoch: int
    attributes: int
    max_timestamp: int
    record_count: int
    size: int
    crc: int

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records."""
        return self.attributes & CONTROL != 0


def encode_batch(
    values: Sequence[bytes],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    epoch: int = 0,
    codec: Codec = Codec.NONE,
) -> Batch:
    """Return `values` as one data batch, as KRaft writes it: one timestamp, no keys, no headers.

    Raises: ConfigError, if there are none.
    """
    parts = block_parts(values)
    if codec is not Codec.NONE:
        parts = (compress(codec, b"".join(parts)),)
    return assemble(parts, len(values), codec, timestamp_ms, timestamp_ms, base_offset, epoch)


def assemble(
    parts: Sequence[bytes | memoryview],
    record_count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int,
    epoch: int,
) -> Batch:
    """Return the batch whose encoded (and perhaps compressed) records are `parts`, with header and CRC."""
    if record_count < 1:
        raise ConfigError("a batch holds at least one record")
    covered = b"".join(
        (
            _INSIDE_CRC.pack(attributes, record_count - 1, base_timestamp, max_timestamp, -1, -1, -1, record_count),
            *parts,
        )
    )
    outside = _OUTSIDE_CRC.pack(base_offset, _COVERED_START + len(covered), epoch, MAGIC, crc32c(covered))
    is_control = attributes & CONTROL != 0
    return Batch(base_offset, base_offset + record_count - 1, epoch, is_control, max_timestamp, outside + covered)


def parse_header(data: bytes | memoryview, position: int = 0, *, origin: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`; the rest of the batch need not be there. The CRC is not checked.

    `origin` is where `data` begins in its file: positions in errors count from there.
    Raises: CorruptBatchError, if it is cut short or cannot be the header of a batch.
    """
    base, length, epoch, magic, crc, attributes, last_delta, _, max_timestamp, _, _, _, count = _unpack(
        data, position, origin
    )
    if _is_impossible(base, length, magic, last_delta, count):
        raise _header_error(base, length, magic, last_delta, count, origin + position)
    return BatchHeader(
        base, base + last_delta, epoch, attributes, max_timestamp, count, length + LENGTH_PREFIX_SIZE, crc
    )


def read_batch(data: bytes | memoryview, position: int = 0, *, origin: int = 0) -> Batch:
    """Return the batch at `position`, sharing the bytes of `data`; header and CRC are checked, records are not decoded.

    `origin` is where `data` begins in its file: positions in errors count from there.
    Raises: CorruptBatchError, also if the batch is cut short.
    """
    base, length, epoch, magic, crc, attributes, last_delta, _, max_timestamp, _, _, _, count = _unpack(
        data, position, origin
    )
    if _is_impossible(base, length, magic, last_delta, count):
        raise _header_error(base, length, magic, last_delta, count, origin + position)
    end = position + length + LENGTH_PREFIX_SIZE
    if end > len(data):
        raise _error(f"claims {end - position} bytes, {len(data) - position} are there", origin + position)
    view = memoryview(data)
    actual = crc32c(view[position + CRC_START : end])
    if actual != crc:
        raise _error(f"has CRC {actual:#010x} and claims {crc:#010x}", origin + position)
    whole = data if end - position == len(data) else view[position:end]
    return Batch(base, base + last_delta, epoch, attributes & CONTROL != 0, max_timestamp, whole)


def read_batches(data: bytes | memoryview, *, drop_incomplete: bool = False, origin: int = 0) -> tuple[Batch, ...]:
    """Return the batches that stand back to back in `data`, sharing its bytes; base offsets must ascend.

    `drop_incomplete` ignores a batch at the end that is cut short, as Fetch answers may have one.
    Raises: CorruptBatchError with the position of the first bad batch.
    """
    batches: list[Batch] = []
    position, end, next_offset = 0, len(data), 0
    while position < end:
        if drop_incomplete and is_incomplete(data, position):
            break
        batch = read_batch(data, position, origin=origin)
        if batch.base_offset < next_offset:
            reason = f"has base offset {batch.base_offset}, below {next_offset}, the end of the batch before"
            raise _error(reason, origin + position)
        batches.append(batch)
        next_offset = batch.last_offset + 1
        position += len(batch.data)
    return tuple(batches)


def is_incomplete(data: bytes | memoryview, position: int = 0) -> bool:
    """Whether the bytes at `position` may be the beginning of an incomplete batch."""
    available = len(data) - position
    return available < LENGTH_PREFIX_SIZE or batch_size(data, position) > max(available, HEADER_SIZE - 1)


def batch_size(data: bytes | memoryview, position: int = 0) -> int:
    """Return the size that the batch at `position` claims, from its first 12 bytes; nothing is checked."""
    return int(_INT.unpack_from(data, position + 8)[0]) + LENGTH_PREFIX_SIZE


def _unpack(data: bytes | memoryview, position: int, origin: int) -> tuple[int, ...]:
    if len(data) - position < HEADER_SIZE:
        reason = f"has {len(data) - position} bytes, too few for its header of {HEADER_SIZE}"
        raise _error(reason, origin + position)
    return _HEADER.unpack_from(data, position)


def _is_impossible(base: int, length: int, magic: int, last_delta: int, count: int) -> bool:
    return (
        length < _LENGTH_MIN
        or magic != MAGIC
        or base < 0
        or last_delta < 0
        or base + last_delta >= _MAX_OFFSET
        or not 0 <= count <= last_delta + 1
    )


def _header_error(base: int, length: int, magic: int, last_delta: int, count: int, position: int) -> CorruptBatchError:
    if magic != MAGIC:
        return _error(f"has magic {magic}, only {MAGIC} is supported", position)
    if length < _LENGTH_MIN:
        return _error(f"claims a length of {length}, below {_LENGTH_MIN}", position)
    reason = f"has base offset {base}, last offset delta {last_delta} and record count {count}, which do not fit"
    return _error(reason, position)


def _error(reason: str, position: int) -> CorruptBatchError:
    return CorruptBatchError(f"the batch at byte {position} {reason}", position=position)


def check_kraft(batch: Batch, *, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> None:
    """Check that KRaft's reader accepts the batch: decodes every record. `read_batch` has checked header and CRC.

    Raises: CorruptBatchError for a compressed control batch, missing records, records with timestamps of their own,
    headers, an absent or empty value, a data record with a key, a control record without one.
    """
    check_kraft_header(batch)
    block = batch._block(max_bytes)
    if not batch.is_control and batch.codec is Codec.NONE:
        values = split_block(block, batch.record_count)
        if values is not None and all(values):
            return
    for _ in _kraft_records(batch, block):
        pass


def check_kraft_header(batch: Batch) -> None:
    """Check the header of a batch of a KRaft log; it costs little, so a follower does it for every batch."""
    attributes, last_delta, _, _, _, _, _, count = _INSIDE_CRC.unpack_from(batch.data, CRC_START)
    if attributes & ~(CODEC_MASK | CONTROL):
        raise CorruptBatchError(f"attributes {attributes:#06x} of {batch} are not those of a KRaft batch")
    if attributes & CODEC_MASK and _codec(attributes) and attributes & CONTROL:
        raise CorruptBatchError(f"{batch} is a control batch, and compressed")
    if count != last_delta + 1:
        raise CorruptBatchError(f"{batch} claims {count} records for {last_delta + 1} offsets")


def _kraft_records(batch: Batch, block: bytes) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield key and value of each record, as strict as KRaft's reader."""
    offset = batch.base_offset
    # Decoded relative to timestamp 0, so that a timestamp is a delta.
    for record in decode_block(
        block, batch.record_count, base_offset=offset, last_offset=batch.last_offset, base_timestamp=0
    ):
        reason = _kraft_objection(record, offset, is_control=batch.is_control)
        if reason:
            raise CorruptBatchError(f"record {offset} of {batch} {reason}: KRaft's readers reject it")
        yield record.key, record.value or b""
        offset += 1


def _kraft_objection(record: Record, offset: int, *, is_control: bool) -> str | None:
    if record.offset != offset:
        return f"has offset {record.offset}"
    if record.timestamp != 0:
        return f"has timestamp delta {record.timestamp}"
    if record.headers:
        return "has headers"
    if not record.value:
        return "has no value"
    if is_control and (record.key is None or len(record.key) != 4):
        return "has no control key"
    if not is_control and record.key is not None:
        return "has a key"
    return None


def _codec(attributes: int) -> Codec:
    codec = _CODECS.get(attributes & CODEC_MASK)
    if codec is None:
        raise CorruptBatchError(f"codec {attributes & CODEC_MASK} does not exist")
    return codec
