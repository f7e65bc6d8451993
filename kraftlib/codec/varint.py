"""Integers that take as many bytes as they need.

    uvarint   7 bits a byte, low bits first, high bit = more follow; 32 bits, at most 5 bytes
    varint    zigzag (0, -1, 1, -2 -> 0, 1, 2, 3), then uvarint; 32 bits
    varlong   the same for 64 bits, at most 10 bytes

Nearly all of them are lengths and counts below 128, so one byte, which comes from a table. Reading is in
`kraftlib.codec.reader`.
"""

from __future__ import annotations

from typing import Final

from kraftlib.errors import LocalProtocolError

UINT32_MAX: Final = (1 << 32) - 1
INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

_SMALL: Final = tuple(bytes((value,)) for value in range(0x80))


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned 32-bit number.

    Raises: LocalProtocolError, if it is negative or wider.
    """
    if 0 <= value < 0x80:
        out.append(value)
    elif 0 <= value <= UINT32_MAX:
        _write(out, value)
    else:
        raise LocalProtocolError(f"{value} is no unsigned 32-bit number")


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed 32-bit number.

    Raises: LocalProtocolError, if it is wider.
    """
    if not INT32_MIN <= value <= INT32_MAX:
        raise LocalProtocolError(f"{value} is no 32-bit number")
    _write(out, value << 1 if value >= 0 else ~(value << 1))


def write_varlong(out: bytearray, value: int) -> None:
    """Append a signed 64-bit number.

    Raises: LocalProtocolError, if it is wider.
    """
    if not INT64_MIN <= value <= INT64_MAX:
        raise LocalProtocolError(f"{value} is no 64-bit number")
    _write(out, value << 1 if value >= 0 else ~(value << 1))


def _write(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def encode_uvarint(value: int) -> bytes:
    """Return the bytes of an unsigned 32-bit number; LocalProtocolError as for `write_uvarint`."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    if 0 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Return the bytes of a signed 32-bit number; LocalProtocolError as for `write_varint`."""
    if -0x40 <= value < 0x40:
        return _SMALL[value << 1 if value >= 0 else ~(value << 1)]
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def encode_varlong(value: int) -> bytes:
    """Return the bytes of a signed 64-bit number; LocalProtocolError as for `write_varlong`."""
    out = bytearray()
    write_varlong(out, value)
    return bytes(out)


def uvarint_size(value: int) -> int:
    """Return how many bytes an unsigned number takes."""
    return 1 if value < 0x80 else (value.bit_length() + 6) // 7


def varint_size(value: int) -> int:
    """Return how many bytes a signed number takes, as varint or varlong."""
    return uvarint_size(value << 1 if value >= 0 else ~(value << 1))
