"""CRC-32C (Castagnoli), the checksum of a record batch. The only importer of the crc32c package."""

from __future__ import annotations

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview, start: int = 0) -> int:
    """Return the CRC-32C of `data`, unsigned; `start` is that of the bytes before it, to go on from."""
    return _crc32c(data, start)
