from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.codec import field_types
from kraftlib.codec.field_types import FieldCodec
from kraftlib.codec.reader import Reader
from kraftlib.errors import LocalProtocolError, RemoteProtocolError


def written(codec: FieldCodec, value: object) -> bytes:
    out = bytearray()
    codec.write(value, out)
    reader = Reader(bytes(out))
    assert codec.read(reader) == (tuple(value) if isinstance(value, list) else value)
    reader.expect_end()
    assert len(out) >= codec.min_size
    return bytes(out)


@pytest.mark.parametrize("name", list(field_types.NUMBERS))
def test_numbers_are_what_struct_makes_of_them(name: str) -> None:
    codec = field_types.NUMBERS[name]
    for value in (0, 1, 100) if name != "bool" else (False, True):
        assert written(codec, value) == struct.pack(f">{codec.form}", value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int8", 128),
        ("int16", -(2**15) - 1),
        ("int32", 2**31),
        ("int64", 2**63),
        ("uint16", -1),
        ("uint32", 2**32),
        ("float64", 10**400),
        ("int32", 1.5),
        ("int32", None),
    ],
)
def test_a_number_that_does_not_fit_is_refused(name: str, value: object) -> None:
    with pytest.raises(LocalProtocolError, match=f"is no {name}"):
        field_types.NUMBERS[name].write(value, bytearray())


def test_an_id_is_sixteen_bytes_and_nothing_else_is_one() -> None:
    assert written(field_types.UUID, uuid.UUID(int=5)) == bytes(15) + b"\5"
    with pytest.raises(LocalProtocolError, match="'abc' is no uuid"):
        field_types.UUID.write("abc", bytearray())


SIZES = [
    ("string", "a" * 5, "06", "0005"),
    ("string", "", "01", "0000"),
    ("string", None, "00", "ffff"),
    ("string", "a" * 127, "8001", "007f"),
    ("bytes", b"a" * 5, "06", "00000005"),
    ("bytes", None, "00", "ffffffff"),
    ("array", (1, 2, 3), "04", "00000003"),
    ("array", [1, 2, 3], "04", "00000003"),
    ("array", None, "00", "ffffffff"),
]


@pytest.mark.parametrize(("kind", "value", "flexible_size", "plain_size"), SIZES)
def test_sizes_are_compact_in_flexible_versions_and_fixed_in_others(
    kind: str, value: object, flexible_size: str, plain_size: str
) -> None:
    for flexible, size in ((True, flexible_size), (False, plain_size)):
        assert written(codec_of(kind, flexible=flexible, nullable=True), value).startswith(bytes.fromhex(size))
        if value is None:
            with pytest.raises(LocalProtocolError, match="None, where this version knows no null"):
                codec_of(kind, flexible=flexible, nullable=False).write(None, bytearray())
            with pytest.raises(RemoteProtocolError, match="null before byte"):
                codec_of(kind, flexible=flexible, nullable=False).read(Reader(bytes.fromhex(size)))


def codec_of(kind: str, *, flexible: bool, nullable: bool) -> FieldCodec:
    if kind == "string":
        return field_types.string_codec(flexible=flexible, nullable=nullable)
    if kind == "bytes":
        return field_types.bytes_codec(flexible=flexible, nullable=nullable, view=False)
    return field_types.array_codec(field_types.NUMBERS["int8"], flexible=flexible, nullable=nullable)


@given(st.lists(st.text(max_size=5), max_size=5), st.booleans())
def test_an_array_is_its_elements_one_after_the_other(texts: list[str], flexible: bool) -> None:
    element = field_types.string_codec(flexible=flexible, nullable=False)
    array = field_types.array_codec(element, flexible=flexible, nullable=False)
    encoded = written(array, tuple(texts))
    assert encoded.endswith(b"".join(written(element, text) for text in texts))


def test_bytes_are_copied_and_records_are_viewed() -> None:
    data = bytearray(b"\x04abc")
    copy = field_types.bytes_codec(flexible=True, nullable=False, view=False).read(Reader(data))
    view = field_types.bytes_codec(flexible=True, nullable=False, view=True).read(Reader(data))
    data[1:] = b"xyz"
    assert (copy, bytes(view)) == (b"abc", b"xyz")


@pytest.mark.parametrize("value", ["text", 5, [1]])
def test_what_is_no_bytes_is_refused(value: object) -> None:
    with pytest.raises(LocalProtocolError, match="is no bytes"):
        field_types.bytes_codec(flexible=True, nullable=True, view=False).write(value, bytearray())
