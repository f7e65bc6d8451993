"""CRC-32C against its published check values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlib.records.checksum import crc32c


def test_it_is_castagnoli() -> None:
    """RFC 3720, appendix B.4, and the check value of the CRC catalogue."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E


@given(st.binary(), st.binary())
def test_it_goes_on_from_the_bytes_before(head: bytes, tail: bytes) -> None:
    assert crc32c(tail, crc32c(head)) == crc32c(memoryview(head + tail))
