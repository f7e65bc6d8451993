"""Bounded reading: every length that a peer sends is checked against the available bytes before it is used.

A `Reader` walks over bytes from a position to an end. Each read either returns a value and moves on, or raises
RemoteProtocolError with the position and the value that does not fit, and does not move.
"""

from __future__ import annotations

import struct
import uuid
from functools import lru_cache
from typing import Final, NoReturn

from kraftlib.errors import RemoteProtocolError
from kraftlib.types import METADATA_TOPIC_ID, ZERO_UUID

Buffer = bytes | bytearray | memoryview

_INT8: Final = struct.Struct(">b").unpack_from
_INT16: Final = struct.Struct(">h").unpack_from
_INT32: Final = struct.Struct(">i").unpack_from
_INT64: Final = struct.Struct(">q").unpack_from
_UINT16: Final = struct.Struct(">H").unpack_from
_UINT32: Final = struct.Struct(">I").unpack_from
_FLOAT64: Final = struct.Struct(">d").unpack_from

BYTES_MAX: Final = 2**31 - 1
MAX_ELEMENTS: Final = 100_000
"""Elements of arrays and tagged fields that one message may hold: bounds the time and memory that a frame costs."""


@lru_cache(maxsize=8_192)
def uuid_of(raw: bytes) -> uuid.UUID:
    """Return the UUID of these 16 bytes.

    To make one costs more than all the rest of a Fetch's partition. It is nearly always one of a few, or of a session
    that calls again and again. A comparison with a constant of ours finds the very same object.
    """
    return next((known for known in (METADATA_TOPIC_ID, ZERO_UUID) if known.bytes == raw), None) or uuid.UUID(bytes=raw)


class Reader:
    """Reads big-endian values from `data`, from `position` up to `end`, which is exclusive.

    `take` returns views of `data`, not copies: they keep it alive, and are invalid if its owner changes it.
    """

    __slots__ = ("data", "elements_left", "end", "position")

    def __init__(self, data: Buffer, position: int = 0, end: int | None = None) -> None:
        if isinstance(data, memoryview) and data.format != "B":
            data = data.cast("B")
        if end is None:
            end = len(data)
        elif end < len(data):
            # From here on the end of the buffer is the end of reading, and struct and indexing check it for us.
            data = memoryview(data)[:end]
        if not 0 <= position <= end <= len(data):
            raise ValueError(f"position {position} and end {end} do not lie within {len(data)} bytes")
        self.data: Buffer = data
        self.position = position
        self.end = end
        self.elements_left = MAX_ELEMENTS
        """Elements of arrays and tagged fields that may still be read; its owner may lower it."""

    @property
    def remaining(self) -> int:
        """The number of bytes that are left."""
        return self.end - self.position

    def short(self, wanted: int, what: str) -> RemoteProtocolError:
        """Return the error that names the bytes that `what` needs and the bytes that are there."""
        return RemoteProtocolError(
            f"{what} at byte {self.position} needs {wanted} bytes, but {self.end - self.position} are left"
        )

    def int8(self) -> int:
        """Read a signed 8-bit number."""
        try:
            value: int = _INT8(self.data, self.position)[0]
        except struct.error:
            raise self.short(1, "int8") from None
        self.position += 1
        return value

    def int16(self) -> int:
        """Read a signed 16-bit number."""
        try:
            value: int = _INT16(self.data, self.position)[0]
        except struct.error:
            raise self.short(2, "int16") from None
        self.position += 2
        return value

    def int32(self) -> int:
        """Read a signed 32-bit number."""
        try:
            value: int = _INT32(self.data, self.position)[0]
        except struct.error:
            raise self.short(4, "int32") from None
        self.position += 4
        return value

    def int64(self) -> int:
        """Read a signed 64-bit number."""
        try:
            value: int = _INT64(self.data, self.position)[0]
        except struct.error:
            raise self.short(8, "int64") from None
        self.position += 8
        return value

    def uint16(self) -> int:
        """Read an unsigned 16-bit number."""
        try:
            value: int = _UINT16(self.data, self.position)[0]
        except struct.error:
            raise self.short(2, "uint16") from None
        self.position += 2
        return value

    def uint32(self) -> int:
        """Read an unsigned 32-bit number."""
        try:
            value: int = _UINT32(self.data, self.position)[0]
        except struct.error:
            raise self.short(4, "uint32") from None
        self.position += 4
        return value

    def float64(self) -> float:
        """Read an IEEE 754 double."""
        try:
            value: float = _FLOAT64(self.data, self.position)[0]
        except struct.error:
            raise self.short(8, "float64") from None
        self.position += 8
        return value

    def boolean(self) -> bool:
        """Read one byte; as in Kafka, every byte but 0 is true."""
        position = self.position
        if position >= self.end:
            raise self.short(1, "boolean")
        self.position = position + 1
        return self.data[position] != 0

    def uuid(self) -> uuid.UUID:
        """Read 16 bytes."""
        position = self.position
        if position + 16 > self.end:
            raise self.short(16, "uuid")
        self.position = position + 16
        return uuid_of(bytes(self.data[position : position + 16]))

    def uvarint(self) -> int:
        """Read an unsigned 32-bit number of 1 to 5 bytes."""
        data, position = self.data, self.position
        try:
            byte = data[position]
            if byte < 0x80:
                self.position = position + 1
                return byte
            value = byte & 0x7F
            for shift in (7, 14, 21, 28):
                position += 1
                byte = data[position]
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
        except IndexError:
            raise self.short(position + 1 - self.position, "varint") from None
        if byte >= 0x80 or value > 0xFFFFFFFF:
            self._too_wide(32)
        self.position = position + 1
        return value

    def varint(self) -> int:
        """Read a signed 32-bit number, zigzag."""
        value = self.uvarint()
        return value >> 1 if not value & 1 else ~(value >> 1)

    def varlong(self) -> int:
        """Read a signed 64-bit number of 1 to 10 bytes, zigzag."""
        data, position = self.data, self.position
        value = 0
        try:
            for shift in range(0, 70, 7):
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
        except IndexError:
            raise self.short(position + 1 - self.position, "varlong") from None
        if byte >= 0x80 or value >> 64:
            self._too_wide(64)
        self.position = position
        return value >> 1 if not value & 1 else ~(value >> 1)

    def _too_wide(self, bits: int) -> NoReturn:
        size = 5 if bits == 32 else 10
        raw = bytes(self.data[self.position : self.position + size])
        raise RemoteProtocolError(f"variable-length number {raw.hex()} at byte {self.position} exceeds {bits} bits")

    def take(self, size: int) -> memoryview:
        """Return a view of the next `size` bytes, without copying them."""
        position = self.position
        if not 0 <= size <= self.end - position:
            raise self.short(size, "a field")
        self.position = position + size
        return memoryview(self.data)[position : position + size]

    def read_bytes(self, size: int) -> bytes:
        """Return a copy of the next `size` bytes."""
        position = self.position
        if not 0 <= size <= self.end - position:
            raise self.short(size, "a field")
        self.position = position + size
        return bytes(self.data[position : position + size])

    def string(self, size: int) -> str:
        """Read `size` bytes of UTF-8."""
        position = self.position
        if not 0 <= size <= self.end - position:
            raise self.short(size, "a string")
        try:
            value = str(self.data[position : position + size], "utf-8")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"string at byte {position} is no UTF-8: {error.reason}") from None
        self.position = position + size
        return value

    def expect_elements(self, count: int, min_size: int) -> None:
        """Check the count of an array against the bytes that are left, before anything is allocated for it.

        `min_size` is the least number of bytes that an element can take.
        """
        if not 0 <= count * min_size <= self.end - self.position:
            raise RemoteProtocolError(
                f"an array before byte {self.position} claims {count} elements of at least {min_size} bytes, "
                f"but {self.end - self.position} are left"
            )
        self.count_elements(count)

    def count_elements(self, count: int) -> None:
        """Take `count` from the elements that this message may hold, before anything is allocated for them."""
        self.elements_left -= count
        if self.elements_left < 0:
            raise RemoteProtocolError(
                f"{count} elements or tagged fields before byte {self.position} are {-self.elements_left} more than a "
                "message may hold"
            )

    def skip(self, size: int) -> None:
        """Pass over `size` bytes."""
        if not 0 <= size <= self.end - self.position:
            raise self.short(size, "a field")
        self.position += size

    def expect_end(self) -> None:
        """Raise RemoteProtocolError, if anything is left."""
        if self.position != self.end:
            raise RemoteProtocolError(
                f"{self.end - self.position} bytes are left over at byte {self.position} of {self.end}"
            )
