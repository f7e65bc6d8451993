"""One record, and the general reader and writer of a block of them: keys, headers and timestamps, as any producer does.

Speed is elsewhere (`kraftlib.records.values`): this is for control records, dumps, archives, and for saying exactly
what is wrong with a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kraftlib.codec.varint import write_varint, write_varlong
from kraftlib.errors import CorruptBatchError

_NO_HEADERS: tuple[Header, ...] = ()
_new = tuple.__new__  # a named tuple's own constructor costs twice as much


class Header(NamedTuple):
    """A name and a value that travel with a record; KRaft uses none."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record: its place in the log, ms since 1970, and its bytes; `key` and `value` may be absent (None).

    A named tuple because there are many of them: it is made twice as fast as a frozen attrs class.
    """

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
        write_varlong(body, record.timestamp - base_timestamp)
        write_varint(body, record.offset - base_offset)
        _write_bytes(body, record.key)
        _write_bytes(body, record.value)
        write_varint(body, len(record.headers))
        for header in record.headers:
            _write_bytes(body, header.key.encode())
            _write_bytes(body, header.value)
        write_varint(out, len(body))
        out += body
    return bytes(out)


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    write_varint(out, -1 if data is None else len(data))
    out += data or b""


def decode_block(
    block: bytes,
    count: int,
    *,
    base_offset: int,
    last_offset: int,
    base_timestamp: int,
    append_timestamp: int | None = None,
) -> Iterator[Record]:
    """Yield the `count` records of an uncompressed block; their offsets ascend within [base_offset, last_offset].

    `append_timestamp`, where given, is the timestamp of every record (timestamp type "append time").
    Raises: CorruptBatchError with the position in the block, at the record that does not fit.
    """
    position, least = 0, base_offset
    for index in range(count):
        start = position
        try:
            record, position = _decode_record(block, start, base_offset, base_timestamp)
            if not least <= record.offset <= last_offset:
                raise ValueError(f"offset {record.offset} is not within [{least}, {last_offset}]")
        except (IndexError, ValueError) as error:
            reason = "it ends beyond the batch" if isinstance(error, IndexError) else str(error)
            raise CorruptBatchError(
                f"record {index} of {count}, at byte {start} of the records: {reason}", position=start
            ) from error
        least = record.offset + 1
        yield record if append_timestamp is None else record._replace(timestamp=append_timestamp)
    if position != len(block):
        raise CorruptBatchError(
            f"{len(block) - position} bytes are left over after the last of {count} records", position=position
        )


def _decode_record(block: bytes, position: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    """Return the record at `position` and where it ends.

    Raises: IndexError at the end of the block, ValueError for anything else that does not fit.
    """
    # Most numbers have one byte; those are read in place, since a call costs more than all the rest.
    number = block[position]
    if number > 0x7F:
        number, position = _long_number(block, position, 32)
    end = position + 1 + (number >> 1)
    if number & 1 or number == 0 or end > len(block):
        raise ValueError(f"its length is {_signed(number)}, with {len(block) - position - 1} bytes left")
    position += 2  # the attributes of a record: none are defined, Kafka does not look at them
    number = block[position]
    if number > 0x7F:
        number, position = _long_number(block, position, 64)
    timestamp = base_timestamp + _signed(number) if number else base_timestamp
    number = block[position + 1]
    position += 1
    if number > 0x7F:
        number, position = _long_number(block, position, 32)
    offset = base_offset + _signed(number)
    position += 1
    if block[position] == 1:
        key = None
        position += 1
    else:
        key, position = _bytes_or_none(block, position)
    value, position = _bytes_or_none(block, position)
    headers = _NO_HEADERS
    if block[position]:
        headers, position = _headers(block, position, end)
    else:
        position += 1
    if position != end:
        raise ValueError(f"its fields end at byte {position}, its length says {end}")
    return _new(Record, (offset, timestamp, key, value, headers)), position


def _headers(block: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    number, position = _long_number(block, position, 32)
    count = _signed(number)
    position += 1
    if count < 0 or 2 * count > end - position:
        raise ValueError(f"{count} headers do not fit into {end - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _bytes_or_none(block, position)
        if key is None:
            raise ValueError("a header has no key")
        value, position = _bytes_or_none(block, position)
        headers.append(Header(key.decode(), value))
    return tuple(headers), position


def _bytes_or_none(block: bytes, position: int) -> tuple[bytes | None, int]:
    """Return the bytes whose length stands at `position`, and where they end."""
    number = block[position]
    if number > 0x7F:
        number, position = _long_number(block, position, 32)
    position += 1
    if number & 1:
        if number == 1:
            return None, position
        raise ValueError(f"a length is {_signed(number)}")
    end = position + (number >> 1)
    if end > len(block):
        raise IndexError
    return block[position:end], end


def _signed(number: int) -> int:
    """Undo zigzag."""
    return (number >> 1) ^ -(number & 1)


def _long_number(block: bytes, position: int, bits: int) -> tuple[int, int]:
    """Return the varint at `position`, still in zigzag, and the place of its **last** byte."""
    number = shift = 0
    while shift < bits:
        byte = block[position]
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            if number >> bits:
                break
            return number, position
        shift += 7
        position += 1
    raise ValueError(f"a number has more than {bits} bits")
