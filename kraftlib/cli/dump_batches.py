"""Walks a segment or checkpoint from batch to batch, even if it is damaged, in the memory of one batch.

The readers of the library refuse a damaged batch; a dump is what one reaches for when something *is* damaged. So the
header is taken as it stands, the CRC is a fact to report, and records are decoded as far as they can be. The walk ends
where the length field cannot be believed any more: the batches behind it cannot be told apart.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import attrs

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    TRANSACTIONAL,
    Batch,
)
from kraftlib.records.checksum import crc32c
from kraftlib.records.compression import Codec
from kraftlib.records.record import Record
from kraftlib.storage import files

READ_SIZE: Final = 1024 * 1024
DECODED_MAX_BYTES: Final = 128 * 1024 * 1024
"""Larger batches are checked, but their records are not decoded: such a length is a lie, or not Kafka's."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


@attrs.frozen(kw_only=True)
class FoundBatch:
    """A batch as its header describes it; nothing is known to be true but `position`, `size` and `is_valid`."""

    position: int
    """Where in the file it begins."""
    size: int
    base_offset: int
    last_offset: int
    """Inclusive."""
    count: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_valid: bool
    """Whether the CRC fits."""
    data: bytes
    """The whole batch; empty, if it is too large to be decoded."""

    @property
    def is_control(self) -> bool:
        """Whether it holds control records."""
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction of Kafka's topics; never in KRaft."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def timestamp_type(self) -> str:
        """Kafka's word for whose clock the timestamps are of."""
        return "LogAppendTime" if self.attributes & APPEND_TIME else "CreateTime"

    @property
    def delete_horizon_ms(self) -> int | None:
        """Until when a compacted topic keeps its tombstones; never in KRaft."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def codec_name(self) -> str:
        """Kafka's word for the compression, or the number of one that does not exist."""
        number = self.attributes & CODEC_MASK
        return {codec.value: codec.name.lower() for codec in Codec}.get(number, str(number))

    def sequence(self, delta: int) -> int:
        """Return the producer's sequence number of the record `delta` after the first; -1 where there is none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + delta) % 2**31

    def records(self) -> Iterator[Record]:
        """Yield the records one by one. Raises: CorruptBatchError at the first that cannot be decoded."""
        if not self.data:
            raise CorruptBatchError(f"a batch of {self.size} bytes is too large to be decoded")
        batch = Batch(self.base_offset, self.last_offset, self.epoch, self.is_control, self.max_timestamp, self.data)
        yield from batch.records(max_bytes=DECODED_MAX_BYTES)


@attrs.frozen(kw_only=True)
class InvalidTail:
    """The bytes at the end of a file that are no batches."""

    position: int
    size: int
    reason: str


def walk(path: Path) -> Iterator[FoundBatch | InvalidTail]:
    """Yield the batches of the file, and at last what cannot be one, if there is such a thing.

    Raises: StorageError, if the file cannot be read.
    """
    descriptor = files.open_existing(path, files.READ_NAMED)
    try:
        with os.fdopen(descriptor, "rb") as file:
            # Records that a running replica appends meanwhile are left for the next dump.
            yield from _walk(file, file.seek(0, 2))
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}", path=path) from error


def _walk(file: BinaryIO, end: int) -> Iterator[FoundBatch | InvalidTail]:
    position = 0
    while position < end:
        file.seek(position)
        header = file.read(HEADER_SIZE)
        reason = _why_no_batch(header, end - position)
        if reason:
            yield InvalidTail(position=position, size=end - position, reason=reason)
            return
        size = int.from_bytes(header[8:12], "big") + LENGTH_PREFIX_SIZE
        decodable = size <= DECODED_MAX_BYTES
        data = header + file.read(size - HEADER_SIZE) if decodable else b""
        crc = crc32c(memoryview(data)[CRC_START:]) if decodable else _crc_of_the_rest(file, header, size)
        yield _found(header, position=position, size=size, data=data, actual_crc=crc)
        position += size


def _why_no_batch(header: bytes, available: int) -> str:
    """Return why `header`, with `available` bytes up to the end, cannot begin a batch; empty if it can."""
    if len(header) < HEADER_SIZE:
        return f"{available} bytes are too few for a batch"
    size = int.from_bytes(header[8:12], "big", signed=True) + LENGTH_PREFIX_SIZE
    if size < HEADER_SIZE:
        return f"batch length {size - LENGTH_PREFIX_SIZE} is below {HEADER_SIZE - LENGTH_PREFIX_SIZE}"
    if size > available:
        return f"a batch of {size} bytes is cut short after {available}"
    return ""


def _crc_of_the_rest(file: BinaryIO, header: bytes, size: int) -> int:
    """Return the CRC of a batch whose header has just been read, without holding all of it."""
    crc, left = crc32c(header[CRC_START:]), size - HEADER_SIZE
    while left > 0 and (chunk := file.read(min(left, READ_SIZE))):
        crc, left = crc32c(chunk, crc), left - len(chunk)
    return crc


def _found(header: bytes, *, position: int, size: int, data: bytes, actual_crc: int) -> FoundBatch:
    (
        base_offset, _, epoch, magic, crc, attributes, last_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = _HEADER.unpack(header)  # fmt: skip
    return FoundBatch(
        position=position,
        size=size,
        base_offset=base_offset,
        last_offset=base_offset + last_delta,
        count=count,
        epoch=epoch,
        magic=magic,
        crc=crc,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_valid=crc == actual_crc,
        data=data,
    )
