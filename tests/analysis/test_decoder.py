"""Records decoded in columns are those that the plain reader yields one by one, or both refuse the block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.analysis import record_places
from kraftlib.analysis.decoder import headers_of
from kraftlib.records.record import Header, Record, encode_block
from tests.analysis.blocks import Block, by_columns, one_by_one

HEADERS = st.builds(Header, st.text(max_size=3), st.none() | st.binary(max_size=3))
SIZES = st.none() | st.binary(max_size=4) | st.integers(60, 70).map(bytes) | st.integers(8_180, 8_200).map(bytes)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Records with keys, headers, gaps between offsets, and timestamps before and after the base."""
    delta, records = -1, []
    for _ in range(draw(st.integers(0, 6))):
        delta += draw(st.integers(1, 3) | st.integers(1, 300))
        timestamp = draw(st.integers(-2, 2) | st.integers(-(2**40), 2**40))
        headers = tuple(draw(st.lists(HEADERS, max_size=2)))
        records.append(Record(delta, timestamp, draw(SIZES), draw(SIZES), headers))
    return encode_block(records, base_offset=0, base_timestamp=0), len(records), max(delta, 0)


@pytest.fixture(params=["lockstep", "one by one"], autouse=True, scope="module")
def way(request: pytest.FixtureRequest) -> object:
    """Both ways to find where records begin."""
    patch = pytest.MonkeyPatch()
    patch.setattr(record_places, "LOCKSTEP_RATIO", 0 if request.param == "lockstep" else 10**9)
    yield
    patch.undo()


@given(st.lists(blocks(), max_size=5))
def test_all_records_of_all_blocks_are_those_of_the_plain_reader(given: list[Block]) -> None:
    assert by_columns(given) == [one_by_one(block) for block in given]


@given(st.lists(blocks(), min_size=1, max_size=4), st.data())
def test_a_damaged_block_is_refused_alone_and_only_if_the_plain_reader_refuses_it(
    given: list[Block], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(given) - 1))
    block, count, last_delta = given[index]
    damaged = bytearray(block)
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    count += data.draw(st.sampled_from([0, 0, 0, 1, -1, 2**31 - 1 - count]))
    given[index] = (bytes(damaged[:cut]), max(count, 0), max(last_delta - data.draw(st.integers(0, 1)), 0))

    assert by_columns(given) == [one_by_one(block) for block in given]


def test_a_count_that_cannot_be_is_not_allocated_for() -> None:
    block = encode_block([Record(0, 0, None, b"v")], base_offset=0, base_timestamp=0)
    assert by_columns([(block, 2**31 - 1, 2**31 - 1)]) == [None]


@pytest.mark.parametrize("cut", range(1, 7))
def test_headers_that_do_not_fill_their_bytes_are_refused(cut: int) -> None:
    data = b"\x04ab\x02c\x02d\x01"
    assert headers_of(data, 0, 2, len(data)) == [("ab", b"c"), ("d", None)]
    assert headers_of(data, 0, 2, len(data) - cut) is None
    assert headers_of(data + b"\x00" * cut, 0, 2, len(data) + cut) is None


@pytest.mark.parametrize("data", [b"\x02\xff\x00", b"\x01\x00", b"\x03\x00", b"\x02a\x03", b"\xff\xff\xff\xff\xff\x01"])
def test_headers_without_a_name_or_with_a_negative_size_are_refused(data: bytes) -> None:
    assert headers_of(data, 0, 1, len(data)) is None
