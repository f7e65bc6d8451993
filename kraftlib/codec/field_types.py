"""Reads and writes a value of each type.

    number, bool, uuid   fixed size, big-endian
    string               flexible: uvarint(size + 1); else int16 size.     Null: 0; else -1
    bytes, records       flexible: uvarint(size + 1); else int32 size.     Null: 0; else -1
    array                flexible: uvarint(count + 1); else int32 count.   Null: 0; else -1
    nullable struct      int8: 1, then the struct.                         Null: -1

A `FieldCodec` is a pair of plain functions; `kraftlib.codec.struct_codec` puts them together. Readers raise
RemoteProtocolError, writers LocalProtocolError; both say what is wrong, and the struct around them says where.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from kraftlib.codec.reader import BYTES_MAX, MAX_ELEMENTS, Reader
from kraftlib.codec.varint import write_uvarint
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.frozen import immutable

Read = Callable[[Reader], Any]
Write = Callable[[Any, bytearray], None]

STRING_MAX: Final = 0x7FFF
"""The longest string that Kafka reads and writes, flexible or not."""

# Tuples, since `bytes | bytearray` would make a union at each call.
_BYTES: Final = (bytes, bytearray, memoryview)
_SEQUENCES: Final = (tuple, list)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@immutable
class FieldCodec:
    """Reads and writes one value."""

    read: Read
    write: Write
    min_size: int
    """The smallest size of a value, which bounds the number of values that fit into the bytes at hand."""

    form: str = ""
    """Its letter in `struct`, if neighbouring fields may be read and written together with it."""


def number_codec(form: str, what: str) -> FieldCodec:
    """Return the codec of a number or boolean, given its letter in `struct`."""
    packer = struct.Struct(f">{form}")
    unpack_from, pack, size = packer.unpack_from, packer.pack, packer.size

    def read(reader: Reader) -> Any:
        try:
            value = unpack_from(reader.data, reader.position)[0]
        except struct.error:
            raise reader.short(size, what) from None
        reader.position += size
        return value

    def write(value: Any, out: bytearray) -> None:
        try:
            out += pack(value)
        except (struct.error, OverflowError):
            raise LocalProtocolError(f"{value!r} is no {what}") from None

    return FieldCodec(read, write, size, form)


def _write_uuid(value: Any, out: bytearray) -> None:
    if not isinstance(value, uuid.UUID):
        raise LocalProtocolError(f"{value!r} is no uuid")
    out += value.bytes


NUMBERS: Final = {
    "int8": number_codec("b", "int8"),
    "int16": number_codec("h", "int16"),
    "int32": number_codec("i", "int32"),
    "int64": number_codec("q", "int64"),
    "uint16": number_codec("H", "uint16"),
    "uint32": number_codec("I", "uint32"),
    "float64": number_codec("d", "float64"),
    "bool": number_codec("?", "bool"),
}
UUID: Final = FieldCodec(Reader.uuid, _write_uuid, 16)


# Sizes and counts ---------------------------------------------------------------------------------
#
# Each returns or takes -1 for null, and lets no other negative number through.


def _read_flexible_size(reader: Reader) -> int:
    data, position = reader.data, reader.position
    if position + 1 < reader.end:  # nearly always, and then one byte or two
        low, high = data[position], data[position + 1]
        if low < 0x80:
            reader.position = position + 1
            return low - 1
        if high < 0x80:
            reader.position = position + 2
            return (low & 0x7F | high << 7) - 1
    return reader.uvarint() - 1


def _write_flexible_size(size: int, out: bytearray) -> None:
    if size < 0x7F:
        out.append(size + 1)  # nearly always
    else:
        write_uvarint(out, size + 1)


def _read_int16_size(reader: Reader) -> int:
    return _not_below_null(reader.int16(), reader, 2)


def _write_int16_size(size: int, out: bytearray) -> None:
    out += _INT16.pack(size)


def _read_int32_size(reader: Reader) -> int:
    return _not_below_null(reader.int32(), reader, 4)


def _write_int32_size(size: int, out: bytearray) -> None:
    try:
        out += _INT32.pack(size)
    except struct.error:
        raise LocalProtocolError(f"{size} bytes or elements are more than a field can hold") from None


def _not_below_null(size: int, reader: Reader, width: int) -> int:
    if size < -1:
        raise RemoteProtocolError(f"size {size} at byte {reader.position - width} is negative and not null")
    return size


def _sizes(*, flexible: bool, short: bool = False) -> tuple[Callable[[Reader], int], Callable[[int, bytearray], None]]:
    if flexible:
        return _read_flexible_size, _write_flexible_size
    return (_read_int16_size, _write_int16_size) if short else (_read_int32_size, _write_int32_size)


def _expect_nullable(reader: Reader, *, nullable: bool) -> None:
    if not nullable:
        raise RemoteProtocolError(f"null before byte {reader.position}, where there is none in this version")


def _write_null(write_size: Callable[[int, bytearray], None], out: bytearray, *, nullable: bool) -> None:
    if not nullable:
        raise LocalProtocolError("None, where this version knows no null")
    write_size(-1, out)


# Values with a size -------------------------------------------------------------------------------


def string_codec(*, flexible: bool, nullable: bool) -> FieldCodec:
    """Return the codec of text."""
    read_size, write_size = _sizes(flexible=flexible, short=True)

    def read(reader: Reader) -> str | None:
        size = read_size(reader)
        if size < 0:
            _expect_nullable(reader, nullable=nullable)
            return None
        if size > STRING_MAX:
            raise RemoteProtocolError(f"string of {size} bytes at byte {reader.position} exceeds {STRING_MAX}")
        return reader.string(size)

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            _write_null(write_size, out, nullable=nullable)
            return
        if not isinstance(value, str):
            raise LocalProtocolError(f"{value!r} is no string")
        try:
            data = value.encode()
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"{value!r} has no UTF-8: {error.reason}") from None
        if len(data) > STRING_MAX:
            raise LocalProtocolError(f"string of {len(data)} bytes exceeds {STRING_MAX}")
        write_size(len(data), out)
        out += data

    return FieldCodec(read, write, 1 if flexible else 2)


def bytes_codec(*, flexible: bool, nullable: bool, view: bool, most: int = BYTES_MAX) -> FieldCodec:
    """Return the codec of up to `most` bytes, read as a copy, or as a `view` of the received bytes."""
    read_size, write_size = _sizes(flexible=flexible)
    take: Callable[[Reader, int], bytes | memoryview] = Reader.take if view else Reader.read_bytes

    def read(reader: Reader) -> bytes | memoryview | None:
        size = read_size(reader)
        if size < 0:
            _expect_nullable(reader, nullable=nullable)
            return None
        if size > most:
            raise RemoteProtocolError(f"{size} bytes before byte {reader.position}, where {most} are allowed")
        return take(reader, size)

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            _write_null(write_size, out, nullable=nullable)
            return
        if not isinstance(value, _BYTES):
            raise LocalProtocolError(f"{value!r} is no bytes")
        if len(value) > most:
            raise LocalProtocolError(f"{len(value)} bytes, where {most} are allowed")
        write_size(len(value), out)
        out += value

    return FieldCodec(read, write, 1 if flexible else 4)


def array_codec(element: FieldCodec, *, flexible: bool, nullable: bool, most: int = MAX_ELEMENTS) -> FieldCodec:
    """Return the codec of a tuple of values of one type. At most `most` of them are read."""
    read_size, write_size = _sizes(flexible=flexible)
    read_element, write_element, min_size, form = element.read, element.write, max(1, element.min_size), element.form

    def read(reader: Reader) -> tuple[Any, ...] | None:
        count = read_size(reader)
        if count < 0:
            _expect_nullable(reader, nullable=nullable)
            return None
        if count == 0:
            return ()
        if count > most:
            raise RemoteProtocolError(f"{count} elements before byte {reader.position}, where {most} are allowed")
        if form:
            reader.count_elements(count)
            return struct.unpack(f">{count}{form}", reader.take(count * min_size))
        reader.expect_elements(count, min_size)
        return tuple([read_element(reader) for _ in range(count)])

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            _write_null(write_size, out, nullable=nullable)
            return
        if not isinstance(value, _SEQUENCES):
            raise LocalProtocolError(f"{value!r} is no tuple or list")
        write_size(len(value), out)
        for item in value:
            write_element(item, out)

    return FieldCodec(read, write, 1 if flexible else 4)


def nullable_struct_codec(inner: FieldCodec) -> FieldCodec:
    """Return the codec of a struct that may be missing: one byte says whether it is there (KIP-893)."""

    def read(reader: Reader) -> Any:
        return None if reader.int8() < 0 else inner.read(reader)

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            inner.write(value, out)

    return FieldCodec(read, write, 1)
