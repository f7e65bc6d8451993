"""Batches of records that are alike are read by arithmetic, and only where a plain reader finds the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.analysis.record_places import Blocks
from kraftlib.analysis.regular_records import read_regular
from kraftlib.records.record import Header, Record, encode_block
from tests.analysis.blocks import Block, by_columns, one_by_one

COUNTS = st.sampled_from([1, 2, 63, 64, 65, 66, 130])
SIZES = st.sampled_from([0, 1, 7, 8, 52, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 100, 8_181, 8_182, 8_183, 8_184])
LEAD = b"\x01\x02"


def values(count: int, size: int) -> list[Record]:
    return [Record(delta, 0, None, bytes([delta % 256]) * size) for delta in range(count)]


def block_of(records: list[Record]) -> Block:
    return encode_block(records, base_offset=0, base_timestamp=0), len(records), records[-1].offset


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Records that are alike; now and then one is not."""
    records = values(draw(COUNTS), draw(SIZES))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        place = draw(st.integers(0, len(records) - 1))
        offset, size = records[place].offset, draw(SIZES)
        records[place] = draw(
            st.sampled_from(
                [Record(offset, 1, None, b"v"), Record(offset, 0, b"k", b"v"), Record(offset, 0, None, None),
                 Record(offset, 0, None, bytes(size)), Record(offset, 0, None, b"v", (Header("h", b""),))]
            )
        )  # fmt: skip
    return block_of(records)


@given(st.lists(blocks(), min_size=1, max_size=6))
def test_records_are_those_of_the_plain_reader(given: list[Block]) -> None:
    assert by_columns(given) == [one_by_one(block) for block in given]


@given(st.lists(blocks(), min_size=1, max_size=3), st.data())
def test_a_damaged_block_is_refused_only_if_the_plain_reader_refuses_it(
    given: list[Block], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(given) - 1))
    block, count, last_delta = given[index]
    damaged = bytearray(block)
    # Most bytes are of values, and damage there says nothing: the first ones of some record are hit on purpose.
    span = len(block) // count
    near = data.draw(st.integers(0, count - 1)) * span + data.draw(st.integers(-2, 12))
    damaged[min(max(near, 0), len(block) - 1)] ^= data.draw(st.sampled_from([1, 2, 0x80, 0xFF]))
    given[index] = (bytes(damaged), count, last_delta)
    assert by_columns(given) == [one_by_one(block) for block in given]


def read(records: list[Record], *, lead: bytes = LEAD, behind: bytes = bytes(16)) -> list[bool] | None:
    """Return which of two blocks are read, one with a hundred values and one with these records."""
    (usual, many, last), (other, count, other_last) = block_of(values(1_000, 20)), block_of(records)
    area = np.frombuffer(lead + other + usual + behind, dtype=np.uint8)
    start = np.array([len(lead), len(lead) + len(other)])
    sizes = np.array([len(other), len(usual)])
    blocks = Blocks(area=area.data, start=start, end=start + sizes, count=np.array([count, many]),
                    last_delta=np.array([other_last, last]))  # fmt: skip
    found = read_regular(area, blocks, blocks.count)
    return None if found is None else found.read.tolist()


@pytest.mark.parametrize("size", [0, 1, 57, 58, 59, 60, 61, 63, 64, 100, 8_000])
@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_values_of_one_size_are_read(count: int, size: int) -> None:
    regular = read(values(count, size))
    # With a length of 63, or a value of 57 bytes, the next record is two bytes longer, and it is computed, too.
    assert regular == [True, True]


OTHERS = {
    "a key": Record(1, 0, b"", b"v" * 20),
    "a header": Record(1, 0, None, b"v" * 20, (Header("h", None),)),
    "no value": Record(1, 0, None, None),
    "a timestamp": Record(1, 1, None, b"v" * 20),
    "another size": Record(1, 0, None, b"v" * 21),
    "an offset that is left out": Record(2, 0, None, b"v" * 20),
}


@pytest.mark.parametrize("record", OTHERS.values(), ids=OTHERS)
def test_what_is_otherwise_is_left_to_others(record: Record) -> None:
    assert read([values(1, 20)[0], record]) == [False, True]


@pytest.mark.parametrize("size", [64, 100, 8_000])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_each_byte_around_the_values_is_proven(count: int, size: int) -> None:
    block, many, last = block_of(values(count, size))
    for place in (*range(9), len(block) // count, len(block) // count + 8, len(block) - 1):
        damaged = bytearray(block)
        damaged[min(place, len(block) - 1)] ^= 1
        given = [(bytes(damaged), many, last), block_of(values(2_000, 20))]
        assert by_columns(given) == [one_by_one(each) for each in given], place


@pytest.mark.parametrize("size", [0, 7, 57, 100, 8_000])
@pytest.mark.parametrize("count", [1, 3, 64, 70, 300])
def test_of_blocks_with_one_layout_the_damaged_one_is_found(count: int, size: int) -> None:
    """The layout of all of them is computed once."""
    sound = block_of(values(count, size))
    block, many, last = sound
    span = len(block) // count
    for place in (*range(9), (count - 1) * span, (count - 1) * span + 4, count // 2 * span + 3, len(block) - 1):
        damaged = bytearray(block)
        damaged[min(place, len(block) - 1)] ^= 1
        given = [sound, sound, (bytes(damaged), many, last), sound]
        assert by_columns(given) == [one_by_one(each) for each in given], place


def test_blocks_with_one_layout_are_all_read() -> None:
    block, count, last = block_of(values(70, 100))
    area = np.frombuffer(LEAD + block * 400, dtype=np.uint8)
    start = len(LEAD) + len(block) * np.arange(400)
    blocks = Blocks(area=area.data, start=start, end=start + len(block), count=np.full(400, count),
                    last_delta=np.full(400, last))  # fmt: skip
    found = read_regular(area, blocks, blocks.count)
    assert found is not None
    assert found.read.all()
    places = zip(found.value_start.tolist(), found.value_size.tolist(), found.offset_delta.tolist(), strict=True)
    assert all(bytes(area[at : at + size]) == bytes([delta]) * 100 for at, size, delta in places)
    assert found.end[count - 1 :: count].tolist() == blocks.end.tolist()


def test_a_block_with_more_records_than_are_computed_is_left_to_others() -> None:
    many = block_of(values(8_200, 4))
    given = [*[block_of(values(8_192, 4))] * 4, many]
    assert by_columns(given) == [one_by_one(block) for block in given]


def test_a_block_at_the_beginning_of_the_area_is_left_to_others() -> None:
    assert read(values(3, 20), lead=b"") == [False, True]


def test_records_at_the_very_end_of_the_area_are_read() -> None:
    assert read(values(3, 20), behind=b"") == [True, True]


def test_where_few_blocks_are_regular_none_is_read() -> None:
    assert read([Record(delta, delta, None, b"v") for delta in range(400)]) is None


def test_attributes_are_none_of_the_readers_business_but_not_regular() -> None:
    data, count, last = block_of(values(2, 20))
    assert by_columns([(data[:1] + b"\x01" + data[2:], count, last)]) == [values(2, 20)]
