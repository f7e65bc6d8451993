"""The general reader and writer of records: whatever another producer may have written, and why a block is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import CorruptBatchError
from kraftlib.records.record import Header, Record, decode_block, encode_block

HEADERS = st.builds(Header, st.text(max_size=5), st.none() | st.binary(max_size=5))


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Records with keys, headers, gaps between offsets, and timestamps before and after the base."""
    offset = draw(st.integers(0, 2**40))
    out = []
    for _ in range(draw(st.integers(0, 5))):
        out.append(
            Record(
                offset,
                draw(st.integers(0, 2**41)),
                draw(st.none() | st.binary(max_size=80)),
                draw(st.none() | st.binary(max_size=80)),
                tuple(draw(st.lists(HEADERS, max_size=3))),
            )
        )
        offset += draw(st.integers(1, 300))
    return out


def decode(block: bytes, count: int, *, base_offset: int = 0, last_offset: int = 2**62) -> list[Record]:
    return list(decode_block(block, count, base_offset=base_offset, last_offset=last_offset, base_timestamp=1_000))


@given(records())
def test_records_come_back_as_they_were_written(written: list[Record]) -> None:
    base_offset = written[0].offset if written else 0
    block = encode_block(written, base_offset=base_offset, base_timestamp=1_000)

    assert decode(block, len(written), base_offset=base_offset) == written


def test_a_record_has_the_bytes_of_the_reference() -> None:
    record = Record(5, 1_000, b"\x00\x00\x00\x04", bytes.fromhex("00000000"))

    assert encode_block([record], base_offset=5, base_timestamp=1_000).hex() == "1c0000000800000004080000000000"


def test_append_time_is_the_timestamp_of_every_record() -> None:
    block = encode_block([Record(0, 7, None, b"a"), Record(1, 9, None, b"b")], base_offset=0, base_timestamp=0)
    read = decode_block(block, 2, base_offset=0, last_offset=1, base_timestamp=0, append_timestamp=55)

    assert [record.timestamp for record in read] == [55, 55]


@given(records(), st.data())
def test_a_block_cut_anywhere_is_refused(written: list[Record], data: st.DataObject) -> None:
    base_offset = written[0].offset if written else 0
    block = encode_block(written, base_offset=base_offset, base_timestamp=0)
    cut = data.draw(st.integers(0, max(len(block) - 1, 0)))

    if block:
        with pytest.raises(CorruptBatchError, match=r"record \d of \d, at byte \d+"):
            decode(block[:cut], len(written), base_offset=base_offset)


@given(st.binary(max_size=100), st.integers(0, 10))
def test_garbage_is_read_or_refused_and_nothing_else(block: bytes, count: int) -> None:
    try:
        read = decode(block, count)
    except CorruptBatchError:
        return
    assert len(read) == count


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("00", "its length is 0"),
        ("01", "its length is -1"),
        ("7e 00 00 00 01 02 61 00", "its length is 63, with 7 bytes left"),
        ("10 00 00 00 01 02 61 00 00", "its fields end at byte 8, its length says 9"),
        ("0c 00 00 00 01 02 61 00", "its fields end at byte 8, its length says 7"),
        ("0e 00 00 00 03 02 61 00", "a length is -2"),
        ("0e 00 00 00 01 02 61 01", "-1 headers do not fit into 0 bytes"),
        ("0e 00 00 00 01 02 61 7e", "63 headers do not fit into 0 bytes"),
        ("12 00 00 00 01 02 61 02 01 01", "a header has no key"),
        ("0e 00 00 01 01 02 61 00", "offset 9 is not within"),
        ("ff ff ff ff 7f 00", "a number has more than 32 bits"),
        ("80 80 80 80 80 80", "a number has more than 32 bits"),
        ("22 00 ff ff ff ff ff ff ff ff ff 7f 00 01 02 61 00 00", "a number has more than 64 bits"),
        ("0e 00 00 00 01 7e 61 00", "it ends beyond the batch"),
        ("0e 00 00 00 01 02 61 00 00", "1 bytes are left over"),
    ],
)
def test_a_block_that_does_not_fit_says_why(block: str, reason: str) -> None:
    with pytest.raises(CorruptBatchError, match=reason):
        decode(bytes.fromhex(block), 1, base_offset=10)


def test_a_header_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="utf-8"):
        decode(bytes.fromhex("14 00 00 00 01 02 61 02 02 ff 01"), 1)


def test_offsets_that_do_not_ascend_are_refused_at_the_record() -> None:
    block = encode_block([Record(1, 0, None, b"a"), Record(1, 0, None, b"b")], base_offset=0, base_timestamp=0)

    with pytest.raises(
        CorruptBatchError, match=r"record 1 of 2, at byte 8 .*offset 1 is not within \[2, 9\]"
    ) as caught:
        decode(block, 2, last_offset=9)
    assert caught.value.position == 8


def test_a_number_of_a_gigabyte_of_bytes_costs_nothing() -> None:
    """A length is believed only once it is known to fit."""
    with pytest.raises(CorruptBatchError, match="its length is 1073741823"):
        decode(bytes.fromhex("feffffff07") + b"\x00" * 50, 1)
