from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.records.batch import Batch, read_batches
from kraftlib.storage.log.index import SegmentIndex, index_of
from tests.storage.builders import a_batch

DATA = Path(__file__).parent.parent.parent / "data"
NAME = "__cluster_metadata-0/00000000000000000%03d"


def entries(data: bytes, format: str) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(format, data))


def batches_of_sizes(sizes: list[int], base_offset: int = 0) -> list[Batch]:
    return [a_batch(base_offset + n, size=size, timestamp=1_000 + n) for n, size in enumerate(sizes)]


def test_a_segment_of_kafka_that_was_never_reopened_has_the_same_indexes() -> None:
    path = DATA / "kafka-4.3.1/n4" / (NAME % 159 + ".log")
    index = index_of(159, read_batches(path.read_bytes()))

    assert index.offset_entries() == path.with_suffix(".index").read_bytes()
    assert index.time_entries() == path.with_suffix(".timeindex").read_bytes()


@pytest.mark.parametrize("directory", ["kafka-4.3.1/n1", "kafka-3.9.2/n1"])
def test_where_kafka_had_been_reopened_its_first_entries_are_the_same(directory: str) -> None:
    """A restart begins the count of 4096 bytes anew, so later entries differ."""
    path = DATA / directory / (NAME % 0 + ".log")
    index = index_of(0, read_batches(path.read_bytes()))

    kafka = entries(path.with_suffix(".index").read_bytes(), ">ii")
    assert entries(index.offset_entries(), ">ii")[:1] == kafka[:1]
    assert entries(index.time_entries(), ">qi")[-1] == entries(path.with_suffix(".timeindex").read_bytes(), ">qi")[-1]


@given(st.lists(st.integers(1, 6_000), max_size=30), st.integers(0, 2**40))
def test_an_entry_is_made_when_more_than_4096_bytes_came_since_the_last(sizes: list[int], base_offset: int) -> None:
    """The slow twin: an entry at each batch whose distance from the last entry, or from the start, is above 4096."""
    expected, position, last = [], 0, 0
    batches = batches_of_sizes(sizes, base_offset)
    for batch in batches:
        if position - last > 4_096:
            expected.append((batch.last_offset - base_offset, position))
            last = position
        position += batch.size

    assert entries(index_of(base_offset, batches).offset_entries(), ">ii") == expected


def test_times_are_those_of_the_newest_batch_so_far() -> None:
    index = SegmentIndex(10)
    position = 0
    for offset, timestamp in [(10, 500), (11, 900), (12, 700), (13, 800), (14, 950)]:
        batch = a_batch(offset, size=5_000, timestamp=timestamp)
        index.add(batch, position)
        position += batch.size

    assert entries(index.time_entries(), ">qi") == [(900, 1), (950, 4)]


def test_a_time_that_is_not_in_an_entry_yet_is_the_last_entry_of_a_closed_segment() -> None:
    index = index_of(0, [a_batch(0, timestamp=500), a_batch(1, timestamp=600)])

    assert entries(index.time_entries(), ">qi") == [(600, 1)]
    assert index.offset_entries() == b""
    assert SegmentIndex(0).time_entries() == b""


@given(st.lists(st.integers(1, 6_000), min_size=1, max_size=30), st.integers(0, 40))
def test_a_look_up_never_goes_too_far(sizes: list[int], offset: int) -> None:
    batches = batches_of_sizes(sizes)
    positions = [sum(batch.size for batch in batches[:n]) for n in range(len(batches) + 1)]
    found = index_of(0, batches).position_before(offset)

    assert found in positions
    assert found <= positions[min(offset, len(batches))]


@given(st.lists(st.integers(1, 6_000), min_size=1, max_size=30), st.integers(0, 30))
def test_a_truncated_index_is_that_of_what_remains(sizes: list[int], keep: int) -> None:
    batches = batches_of_sizes(sizes)
    whole = index_of(0, batches)
    index = whole.up_to(sum(batch.size for batch in batches[:keep]))
    remaining = index_of(0, batches[:keep])

    assert index.offset_entries() == remaining.offset_entries()
    assert whole.offset_entries() == index_of(0, batches).offset_entries()
    # The newest time that was in no entry yet is forgotten, as in Kafka.
    assert remaining.time_entries().startswith(index.time_entries())


def test_a_written_index_is_loaded() -> None:
    batches = batches_of_sizes([3_000] * 20, 7)
    index = index_of(7, batches)
    loaded = SegmentIndex(7)

    assert loaded.load(index.offset_entries(), segment_size=100_000)
    assert [loaded.position_before(n) for n in range(7, 30)] == [index.position_before(n) for n in range(7, 30)]
    assert SegmentIndex(7).load(b"", segment_size=0)


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 0)],
        [(5, 4_200), (5, 9_000)],
        [(5, 4_200), (9, 4_200)],
        [(9, 4_200), (5, 9_000)],
        [(-5, 4_200)],
        [(5, -4_200)],
        [(5, 4_200), (9, 100_000)],
        [(5, 4_200), (0, 0), (0, 0)],
    ],
)
def test_an_index_that_makes_no_sense_is_not_loaded(pairs: list[tuple[int, int]]) -> None:
    data = b"".join(struct.pack(">ii", *pair) for pair in pairs)

    assert not SegmentIndex(0).load(data, segment_size=100_000)


def test_an_index_that_is_cut_short_is_not_loaded() -> None:
    assert not SegmentIndex(0).load(b"\0\0\0\5\0\0\x20", segment_size=100_000)
