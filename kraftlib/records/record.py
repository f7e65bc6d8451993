"""One record, and the general reader and writer of a block of them: keys, headers and timestamps, as any producer does.

Speed is elsewhere (`kraftlib.records.values`): this is for control records, dumps, archives, and for saying exactly
what is wrong with a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from kraftlib.errors import CorruptBatchError

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64


@attrs.frozen
class Header:
    """A name and a value that travel with a record; KRaft uses none."""

    key: str
    value: bytes | None


@attrs.frozen
class Record:
    """One record: its place in the log, ms since 1970, and its bytes; `key` and `value` may be absent (None)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def encode_block(records: Sequence[Record], *, base_offset: int, base_timestamp: int) -> bytes:
    """Return the block of `records`, uncompressed; offsets and timestamps are written relative to the bases."""
    out = bytearray()
    for record in records:
        body = bytearray(1)
        _put(body, record.timestamp - base_timestamp, _VARLONG_BITS)
        _put(body, record.offset - base_offset, _VARINT_BITS)
        _put_bytes(body, record.key)
        _put_bytes(body, record.value)
        _put(body, len(record.headers), _VARINT_BITS)
        for header in record.headers:
            _put_bytes(body, header.key.encode())
            _put_bytes(body, header.value)
        _put(out, len(body), _VARINT_BITS)
        out += body
    return bytes(out)


def decode_block(
    block: bytes,
    count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None = None,
    last_offset: int | None = None,
) -> Iterator[Record]:
    """Yield the `count` records of an uncompressed block.

    `append_timestamp`, where given, is the timestamp of every record (timestamp type "append time").
    Raises: CorruptBatchError with the position in the block, at the record that does not fit.
    """
    reader = _BlockReader(block)
    least, most = base_offset, 2**63 - 1 if last_offset is None else last_offset
    for index in range(count):
        start = reader.position
        try:
            record = reader.record(base_offset, base_timestamp, append_timestamp)
        except (IndexError, ValueError) as error:
            reason = "it ends beyond the batch" if isinstance(error, IndexError) else str(error)
            raise CorruptBatchError(
                f"record {index} of {count} at byte {start} of the records: {reason}", position=start
            ) from error
        if not least <= record.offset <= most:
            raise CorruptBatchError(
                f"record {index} of {count} at byte {start} of the records: offset {record.offset} is not within "
                f"[{least}, {most}]",
                position=start,
            )
        least = record.offset + 1
        yield record
    if reader.position != len(block):
        raise CorruptBatchError(
            f"{len(block) - reader.position} bytes are left over after the last of {count} records",
            position=reader.position,
        )


class _BlockReader:
    """Reads records; IndexError is the end of the block, ValueError anything else that does not fit."""

    __slots__ = ("block", "position")

    def __init__(self, block: bytes) -> None:
        self.block = block
        self.position = 0

    def record(self, base_offset: int, base_timestamp: int, append_timestamp: int | None) -> Record:
        length = self.number(_VARINT_BITS)
        end = self.position + length
        if length <= 0:
            raise ValueError(f"its length is {length}")
        if end > len(self.block):
            raise IndexError
        self.position += 1  # attributes: none are defined, Kafka does not look at them
        timestamp = base_timestamp + self.number(_VARLONG_BITS)
        offset = base_offset + self.number(_VARINT_BITS)
        key = self.bytes_or_none()
        value = self.bytes_or_none()
        headers = self.headers(end)
        if self.position != end:
            raise ValueError(f"its fields end at byte {self.position}, its length says {end}")
        return Record(offset, timestamp if append_timestamp is None else append_timestamp, key, value, headers)

    def headers(self, end: int) -> tuple[Header, ...]:
        count = self.number(_VARINT_BITS)
        if count == 0:
            return ()
        if count < 0 or 2 * count > end - self.position:
            raise ValueError(f"{count} headers do not fit into {end - self.position} bytes")
        headers = []
        for _ in range(count):
            key = self.bytes_or_none()
            if key is None:
                raise ValueError("a header has no key")
            headers.append(Header(key.decode(), self.bytes_or_none()))
        return tuple(headers)

    def bytes_or_none(self) -> bytes | None:
        size = self.number(_VARINT_BITS)
        if size < 0:
            if size == -1:
                return None
            raise ValueError(f"a length is {size}")
        end = self.position + size
        if end > len(self.block):
            raise IndexError
        data = self.block[self.position : end]
        self.position = end
        return data

    def number(self, bits: int) -> int:
        """Read a zigzag varint (32 bits) or varlong (64 bits)."""
        byte = self.block[self.position]
        self.position += 1
        if byte <= 0x7F:
            return (byte >> 1) ^ -(byte & 1)
        value, shift = byte & 0x7F, 7
        while byte > 0x7F:
            byte = self.block[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >> bits or (shift >= bits and byte > 0x7F):
                raise ValueError(f"a varint has more than {bits} bits")
        return (value >> 1) ^ -(value & 1)


def _put(out: bytearray, value: int, bits: int) -> None:
    value = (value << 1) ^ (value >> (bits - 1))
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        _put(out, -1, _VARINT_BITS)
    else:
        _put(out, len(data), _VARINT_BITS)
        out += data
