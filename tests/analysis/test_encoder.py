"""Columns of values become the batches of the slow writer, however they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.encoder import encoded
from kraftlib.errors import ConfigError, KraftError, RecordTooLargeError
from kraftlib.records.snapshot import SnapshotWriter

SIZES = (1, 2, 59, 60, 63, 64, 65, 127, 128, 200, 900)
"""Around those at which a length takes another byte."""


def columns(values: list[bytes], cuts: list[int]) -> Iterator[pa.BinaryArray]:
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    return (pa.array([b"before", *values[a:b]], pa.binary())[1:] for a, b in pairwise(edges))


def fast(values: list[bytes], cuts: list[int], batch_max_bytes: int) -> list[bytes]:
    made = encoded(columns(values, cuts), first_offset=1, epoch=7, timestamp_ms=5, batch_max_bytes=batch_max_bytes)
    return [bytes(batch.data) for batch in made]


def slow(values: list[bytes], batch_max_bytes: int) -> list[bytes]:
    parts: list[bytes | memoryview] = []
    writer = SnapshotWriter(parts.append, epoch=7, last_contained_log_timestamp=5, batch_max_bytes=batch_max_bytes)
    writer.append(values)
    writer.freeze()
    return [bytes(part) for part in parts[1:-1]]


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from(SIZES), max_size=120),
    cuts=st.lists(st.integers(0, 120), max_size=6),
    batch_max_bytes=st.sampled_from([1_024, 2_000, 20_000]),
)
def test_the_batches_are_those_of_the_slow_writer(sizes: list[int], cuts: list[int], batch_max_bytes: int) -> None:
    values = [bytes([number % 255 + 1]) * size for number, size in enumerate(sizes)]

    assert fast(values, cuts, batch_max_bytes) == slow(values, batch_max_bytes)


def test_offsets_that_take_three_bytes_are_written_as_the_slow_writer_does() -> None:
    values = [b"%d" % number for number in range(20_000)]

    assert fast(values, [10_000], 1 << 20) == slow(values, 1 << 20)


@pytest.mark.parametrize("size", [940, 950, 953, 954, 955, 960, 1_000])
def test_what_is_too_large_for_a_batch_is_refused_by_both(size: int) -> None:
    values = [b"a", b"x" * size, b"b"]
    outcomes = []
    for encode in (lambda: fast(values, [], 1_024), lambda: slow(values, 1_024)):
        try:
            outcomes.append(encode())
        except KraftError as error:
            outcomes.append([type(error).__name__.encode(), str(error).encode()])
    assert outcomes[0] == outcomes[1]


def test_a_value_that_no_batch_can_hold_and_one_that_is_empty_are_refused() -> None:
    with pytest.raises(RecordTooLargeError, match="a value of 1000 bytes makes a batch of 1070, the limit is 1024"):
        fast([b"x" * 1_000], [], 1_024)
    with pytest.raises(ConfigError, match="must not be empty"):
        fast([b"x", b""], [], 1_024)
