"""CRC-32C (Castagnoli), the checksum of a record batch. The only importer of the crc32c package.

`crc32c(data, start=0)` returns that of `data`, unsigned; `start` is the checksum of the bytes before, to go on from. It
is the package's own function: one more call would double its cost for a small batch. `is_in_hardware` says whether the
processor computes it, which is many times as fast.
"""

from __future__ import annotations

from crc32c import crc32c as crc32c
from crc32c import hardware_based as is_in_hardware

__all__ = ["crc32c", "is_in_hardware"]
