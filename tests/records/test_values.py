"""The fast block of bare values, against the slow and obvious one of `kraftlib.records.record`."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.records.record import Record, decode_block, encode_block
from kraftlib.records.values import RECORD_OVERHEAD_MAX, block_parts, block_size, record_size, split_block

LENGTHS = st.one_of(st.integers(0, 70), st.sampled_from([63, 64, 127, 128, 8_190, 8_191, 8_192, 8_193, 20_000]))
COUNTS = st.one_of(st.integers(0, 5), st.sampled_from([63, 64, 65, 130]))


@st.composite
def value_lists(draw: st.DrawFn) -> list[bytes]:
    """Values of one size, or of few, or of any: each is written and read by another path."""
    lengths = draw(st.lists(LENGTHS, min_size=1, max_size=6))
    count = draw(COUNTS)
    seed = draw(st.integers(0, 2**32))
    chance = random.Random(seed)
    return [chance.randbytes(lengths[index % len(lengths)]) for index in range(count)]


def slow_block(values: list[bytes]) -> bytes:
    return encode_block([Record(i, 0, None, value) for i, value in enumerate(values)], base_offset=0, base_timestamp=0)


@given(value_lists())
def test_a_block_equals_the_one_of_the_slow_writer(values: list[bytes]) -> None:
    assert b"".join(block_parts(values)) == slow_block(values)


@given(value_lists())
def test_a_block_splits_into_the_values_it_was_made_of(values: list[bytes]) -> None:
    assert split_block(slow_block(values), len(values)) == values


def test_a_block_as_long_as_one_of_equal_values_may_have_unequal_ones() -> None:
    """The first guess is made from the length alone, and is wrong here."""
    values = [b"22", b"1", b"333"]

    assert len(slow_block(values)) == len(slow_block([b"22"] * 3))
    assert split_block(slow_block(values), 3) == values


@given(value_lists())
def test_block_size_is_exact(values: list[bytes]) -> None:
    assert block_size(values) == len(slow_block(values))


@given(value_lists(), st.integers(0, 140))
def test_block_size_can_be_measured_in_two_steps(values: list[bytes], cut: int) -> None:
    assert block_size(values[:cut]) + block_size(values[cut:], first_delta=min(cut, len(values))) == block_size(values)


@pytest.mark.parametrize("size", [100, 1])
@pytest.mark.parametrize("count", [4_096, 4_097, 8_191, 8_192, 8_193, 9_000])
def test_long_blocks_of_one_size_are_as_the_slow_writer_makes_them(count: int, size: int) -> None:
    values = [index.to_bytes(4, "big") * 25 for index in range(count)]
    values = [value[:size] or b"x" for value in values]
    block = b"".join(block_parts(values))

    assert block == slow_block(values)
    assert split_block(block, count) == values


@given(
    st.integers(0, 2**31 - 1), st.one_of(st.integers(0, 20_000), st.sampled_from([1_048_575, 1_048_576, 134_217_728]))
)
def test_a_record_takes_at_most_the_overhead_more_than_its_value(offset_delta: int, value_size: int) -> None:
    assert 0 < record_size(offset_delta=offset_delta, value_size=value_size) - value_size <= RECORD_OVERHEAD_MAX


@given(value_lists(), st.data())
def test_a_damaged_block_never_splits_into_wrong_values(values: list[bytes], data: st.DataObject) -> None:
    """The fast reader guesses; whatever it returns must be what the slow reader reads."""
    block = bytearray(slow_block(values) or b"\x00")
    for _ in range(data.draw(st.integers(1, 3))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    count = data.draw(st.sampled_from([len(values), len(values) + 1, max(len(values) - 1, 0), 2**31 - 1]))

    split = split_block(bytes(block), count)

    if split is not None:
        records = list(decode_block(bytes(block), count, base_offset=0, last_offset=count, base_timestamp=0))
        assert [record.value for record in records] == split
        assert all(record.key is None and record.timestamp == 0 and not record.headers for record in records)


@given(st.binary(max_size=200), st.integers(1, 100))
def test_garbage_never_splits_into_wrong_values(block: bytes, count: int) -> None:
    split = split_block(block, count)

    assert split is None or slow_block(split) == block


def test_a_number_written_longer_than_needed_is_left_to_the_slow_reader() -> None:
    """Other producers may write so; there is no one encoding then, and the guess does not hold."""
    block = bytes.fromhex("9400 00 00 00 01 08 01140000 00")

    assert split_block(block, 1) is None
    assert [r.value for r in decode_block(block, 1, base_offset=0, last_offset=0, base_timestamp=0)] == [
        bytes.fromhex("01140000")
    ]
