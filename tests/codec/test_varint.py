from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlib.codec import varint
from kraftlib.codec.reader import Reader
from kraftlib.errors import LocalProtocolError, RemoteProtocolError

UINT32 = st.integers(0, 2**32 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def slow_leb128(value: int) -> bytes:
    """The definition, one group of seven bits after the other."""
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def slow_zigzag(value: int) -> int:
    return 2 * value if value >= 0 else -2 * value - 1


@given(UINT32)
@example(0x7F)
@example(0x80)
def test_unsigned_numbers_agree_with_the_definition(value: int) -> None:
    out = bytearray(b"before")
    varint.write_uvarint(out, value)

    assert out == b"before" + slow_leb128(value)
    assert varint.encode_uvarint(value) == slow_leb128(value)
    assert varint.uvarint_size(value) == len(slow_leb128(value))
    assert Reader(slow_leb128(value)).uvarint() == value


@given(INT32)
@example(-64)
@example(64)
def test_signed_numbers_are_the_zigzag_of_unsigned_ones(value: int) -> None:
    expected = slow_leb128(slow_zigzag(value))
    out = bytearray()
    varint.write_varint(out, value)

    assert out == expected
    assert varint.encode_varint(value) == expected
    assert varint.varint_size(value) == len(expected)
    assert Reader(expected).varint() == value


@given(INT64)
@example(-(2**63))
@example(2**63 - 1)
def test_long_numbers_are_the_zigzag_of_unsigned_ones(value: int) -> None:
    expected = slow_leb128(slow_zigzag(value))
    out = bytearray()
    varint.write_varlong(out, value)

    assert out == expected
    assert varint.encode_varlong(value) == expected
    assert varint.varint_size(value) == len(expected)
    assert Reader(expected).varlong() == value


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (64, "8001")])
def test_the_examples_of_the_reference_hold(value: int, encoded: str) -> None:
    assert varint.encode_varint(value).hex() == encoded


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (varint.write_uvarint, -1),
        (varint.write_uvarint, 2**32),
        (varint.write_varint, 2**31),
        (varint.write_varint, -(2**31) - 1),
        (varint.write_varlong, 2**63),
        (varint.write_varlong, -(2**63) - 1),
        (lambda out, value: varint.encode_uvarint(value), -1),
        (lambda out, value: varint.encode_varint(value), 2**31),
        (lambda out, value: varint.encode_varlong(value), 2**63),
    ],
)
def test_a_number_that_is_too_wide_is_not_written(write, value) -> None:
    out = bytearray()
    with pytest.raises(LocalProtocolError, match=str(value)):
        write(out, value)
    assert not out


@pytest.mark.parametrize("encoded", ["ffffffff10", "808080808000", "ffffffffff", "ffffffff1f"])
def test_an_unsigned_number_of_more_than_32_bits_is_refused(encoded: str) -> None:
    reader = Reader(bytes.fromhex(encoded))
    with pytest.raises(RemoteProtocolError, match="exceeds 32 bits"):
        reader.uvarint()
    assert reader.position == 0


@pytest.mark.parametrize("encoded", ["ff" * 9 + "02", "80" * 10 + "00", "ff" * 10])
def test_a_long_number_of_more_than_64_bits_is_refused(encoded: str) -> None:
    reader = Reader(bytes.fromhex(encoded))
    with pytest.raises(RemoteProtocolError, match="exceeds 64 bits"):
        reader.varlong()
    assert reader.position == 0


@given(INT64)
def test_a_number_cut_short_is_refused_and_the_reader_stays(value: int) -> None:
    encoded = varint.encode_varlong(value)
    for size in range(len(encoded)):
        reader = Reader(encoded[:size])
        with pytest.raises(RemoteProtocolError, match=f"needs {size + 1} bytes, but {size} are left"):
            reader.varlong()
        assert reader.position == 0
        if size < 5:
            with pytest.raises(RemoteProtocolError, match=f"needs {size + 1} bytes, but {size} are left"):
                reader.uvarint()
