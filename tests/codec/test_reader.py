from __future__ import annotations

import struct
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.codec.reader import MAX_ELEMENTS, Reader
from kraftlib.errors import RemoteProtocolError

FIXED = [
    ("int8", ">b"),
    ("int16", ">h"),
    ("int32", ">i"),
    ("int64", ">q"),
    ("uint16", ">H"),
    ("uint32", ">I"),
    ("float64", ">d"),
]
HOLDERS: list[Callable[[bytes], bytes | bytearray | memoryview]] = [bytes, bytearray, memoryview]


@pytest.mark.parametrize("hold", HOLDERS)
@pytest.mark.parametrize(("name", "form"), FIXED)
@given(data=st.binary(min_size=8, max_size=8))
def test_numbers_are_big_endian_wherever_they_stand(hold, name: str, form: str, data: bytes) -> None:
    size = struct.calcsize(form)
    reader = Reader(hold(b"xyz" + data[:size] + b"after"), 3)

    value = getattr(reader, name)()

    assert struct.pack(form, value) == data[:size]
    assert (reader.position, reader.remaining) == (3 + size, 5)


@pytest.mark.parametrize(("name", "size"), [*((n, struct.calcsize(f)) for n, f in FIXED), ("boolean", 1), ("uuid", 16)])
def test_a_value_never_reaches_beyond_the_end(name: str, size: int) -> None:
    """Neither beyond the buffer, nor beyond an end inside of it."""
    whole = bytes(size)
    for reader in (Reader(whole[:-1]), Reader(whole + b"more", 0, size - 1), Reader(b"more" + whole, 5)):
        start = reader.position
        with pytest.raises(RemoteProtocolError, match=f"{name} at byte {start} needs {size} bytes, but {size - 1} are"):
            getattr(reader, name)()
        assert reader.position == start


def test_a_boolean_is_true_when_not_zero() -> None:
    reader = Reader(b"\x00\x01\xff")
    assert [reader.boolean(), reader.boolean(), reader.boolean()] == [False, True, True]


def test_an_id_is_its_sixteen_bytes() -> None:
    value = uuid.uuid4()
    assert Reader(memoryview(b"." + value.bytes), 1).uuid() == value


def test_a_field_is_taken_without_a_copy_or_read_with_one() -> None:
    data = bytearray(b"abcdef")
    reader = Reader(data)
    view, copy = reader.take(3), reader.read_bytes(3)

    data[:] = b"ABCDEF"

    assert (bytes(view), copy) == (b"ABC", b"def")
    reader.expect_end()


@pytest.mark.parametrize("read", [Reader.take, Reader.read_bytes, Reader.skip])
@pytest.mark.parametrize("size", [-1, 4, 2**31 - 1, 2**63])
def test_a_size_that_does_not_fit_is_refused(read, size: int) -> None:
    reader = Reader(b"abc")
    with pytest.raises(RemoteProtocolError, match=f"needs {size} bytes, but 3 are left"):
        read(reader, size)
    assert reader.position == 0


def test_what_is_left_over_is_told() -> None:
    reader = Reader(b"abcdef")
    reader.skip(4)
    with pytest.raises(RemoteProtocolError, match="2 bytes are left over at byte 4 of 6"):
        reader.expect_end()


def test_a_view_of_other_items_is_read_as_bytes() -> None:
    assert Reader(memoryview(struct.pack(">2i", 1, 2)).cast("i")).take(8) == struct.pack(">2i", 1, 2)


@pytest.mark.parametrize(("position", "end"), [(-1, None), (4, None), (2, 1), (0, -1), (0, 4)])
def test_a_reader_outside_of_its_data_is_a_mistake_of_ours(position: int, end: int | None) -> None:
    with pytest.raises(ValueError, match="do not lie within"):
        Reader(b"abc", position, end)


def test_a_string_is_utf_8() -> None:
    reader = Reader(memoryview("näher".encode() + b"\xff"))
    assert reader.string(6) == "näher"
    with pytest.raises(RemoteProtocolError, match="string at byte 6 is no UTF-8"):
        reader.string(1)
    with pytest.raises(RemoteProtocolError, match="needs 2 bytes, but 1 are left"):
        reader.string(2)
    assert reader.position == 6


def test_a_count_is_checked_against_what_is_left_and_what_was_read_before() -> None:
    reader = Reader(bytes(300_000))
    reader.expect_elements(100, 3_000)
    with pytest.raises(RemoteProtocolError, match="claims 101 elements of at least 3000 bytes, but 300000 are left"):
        reader.expect_elements(101, 3_000)
    reader.expect_elements(MAX_ELEMENTS - 100, 1)
    with pytest.raises(RemoteProtocolError, match="are 1 more than a message may hold"):
        reader.expect_elements(1, 1)
