"""The corners of the declarations, where no released message goes. The rest is in tests/wire/test_messages.py."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.codec.declared import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    read,
    string,
    struct,
    write,
)
from kraftlib.errors import LocalProtocolError, RemoteProtocolError


@message(kind="data", versions="0-2", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Corners(Message):
    """A message of the tests."""

    number: int = int32("0+")
    flag: bool = boolean("0+")
    dropped: int = int16("2+", ignorable=True)
    refused: int = int16("2+", default=3)
    text: str | None = string("0+", nullable="1+")
    maybe: Inner | None = struct("Inner", "1+", nullable="1+")
    late_tag: int = int8("0+", tag=2, tagged="1+", default=5)
    first_tag: str | None = string("1+", nullable="1+", tag=0)
    inners: tuple[Inner, ...] = array("Inner", "2+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Inner(Struct):
        """A struct of one."""

        number: int = int8("0+")


INNER = Corners.Inner(number=9)


def hexadecimal(value: Corners, version: int) -> str:
    encoded = write(value, version)
    again = read(Corners, encoded, version, expect_end=True)
    assert write(again, version) == encoded
    return encoded.hex(" ")


def test_a_field_may_be_inline_in_one_version_and_tagged_in_the_next() -> None:
    assert hexadecimal(Corners(number=1, flag=True, text="a", late_tag=6), 0) == "00 00 00 01 01 00 01 61 06"
    assert (
        hexadecimal(Corners(number=1, flag=True, text="a", late_tag=6), 1)
        == "00 00 00 01 01 02 61 01 00 00 01 02 01 06"
    )
    assert hexadecimal(Corners(text="a", maybe=None), 1) == "00 00 00 00 00 02 61 ff 00"


def test_tagged_fields_are_written_in_the_order_of_their_tags_with_unknown_ones_between() -> None:
    value = Corners(text="", maybe=None, late_tag=6, first_tag=None, unknown_tagged_fields=((1, b"\xaa"), (200, b"")))
    assert hexadecimal(value, 1) == "00 00 00 00 00 01 ff 04 00 01 00 01 01 aa 02 01 06 c8 01 00"


def test_a_nullable_struct_has_a_byte_that_says_whether_it_is_there() -> None:
    assert hexadecimal(Corners(maybe=INNER), 1) == "00 00 00 00 00 01 01 09 00 00"
    assert read(Corners, bytes.fromhex("00 00 00 00 00 01 01 09 00 00"), 1).maybe == INNER
    assert read(Corners, bytes.fromhex("00 00 00 00 00 01 80 00"), 1).maybe is None


def test_a_value_that_the_version_lacks_is_dropped_only_where_the_schema_says_so() -> None:
    assert read(Corners, write(Corners(dropped=8), 1), 1).dropped == 0
    with pytest.raises(LocalProtocolError, match=r"Corners\.refused: version 1 has no such field to hold 8"):
        write(Corners(refused=8), 1)
    with pytest.raises(LocalProtocolError, match=r"Corners\.inners: version 1 has no such field"):
        write(Corners(inners=(INNER,)), 1)
    assert read(Corners, write(Corners(refused=8, dropped=8), 2), 2).refused == 8


def test_unknown_tags_need_a_version_that_has_tags() -> None:
    with pytest.raises(LocalProtocolError, match="version 0 has no tagged fields"):
        write(Corners(unknown_tagged_fields=((1, b""),)), 0)


def test_a_tag_cannot_stand_twice() -> None:
    with pytest.raises(LocalProtocolError, match="a tag stands twice"):
        write(Corners(late_tag=6, unknown_tagged_fields=((2, b"\x07"),)), 1)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (Corners(number=2**31), r"Corners\.number: 2147483648 is no int32"),
        (Corners(number="1"), r"Corners\.number: '1' is no int32"),  # type: ignore[arg-type]
        (Corners(dropped=None), r"Corners\.dropped: None is no int16"),  # type: ignore[arg-type]
        (Corners(text=b"a"), r"Corners\.text: b'a' is no string"),  # type: ignore[arg-type]
        (Corners(text="\ud800"), r"Corners\.text: '\\ud800' has no UTF-8"),
        (Corners(text="x" * 32_768), r"Corners\.text: string of 32768 bytes exceeds 32767"),
        (Corners(inners=(INNER, Corners.Inner(number=128))), r"Corners\.inners: Inner\.number: 128 is no int8"),
        (Corners(inners=(None,)), r"Corners\.inners: None is no Corners.Inner"),  # type: ignore[arg-type]
        (Corners(inners=None), r"Corners\.inners: None, where this version knows no null"),  # type: ignore[arg-type]
        (Corners(inners="ab"), r"Corners\.inners: 'ab' is no tuple or list"),  # type: ignore[arg-type]
        (Corners(late_tag=200), r"Corners\.tagged fields: 200 is no int8"),
    ],
)
def test_a_value_that_does_not_fit_is_named(value: Corners, error: str) -> None:
    with pytest.raises(LocalProtocolError, match=error):
        write(value, 2)


def test_null_is_written_only_where_the_version_knows_it() -> None:
    assert read(Corners, write(Corners(text=None), 1), 1).text is None
    with pytest.raises(LocalProtocolError, match=r"Corners\.text: None, where this version knows no null"):
        write(Corners(text=None), 0)
    with pytest.raises(RemoteProtocolError, match=r"Corners\.text: null before byte 7, where there is none"):
        read(Corners, bytes.fromhex("00000000 00 ffff"), 0)


@pytest.mark.parametrize(
    ("size", "error"),
    [
        (3, r"Corners\.number: int32 at byte 0 needs 4 bytes, but 3 are left"),
        (4, r"Corners\.flag: bool at byte 4 needs 1 bytes, but 0 are left"),
        (5, r"Corners\.text: int16 at byte 5 needs 2 bytes, but 0 are left"),
    ],
)
def test_what_is_cut_short_is_named(size: int, error: str) -> None:
    with pytest.raises(RemoteProtocolError, match=error):
        read(Corners, bytes(size), 0)
