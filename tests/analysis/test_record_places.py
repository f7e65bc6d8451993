"""Both ways find the same places, also where lengths are damaged, and neither leaves its block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.analysis import record_places
from kraftlib.analysis.record_places import Blocks, locate
from kraftlib.codec.varint import write_varint

LENGTHS = st.lists(st.integers(1, 5) | st.integers(62, 66) | st.integers(8_190, 8_194), max_size=6)


def blocks_of(lengths: list[list[int]], damage: dict[int, int]) -> Blocks:
    """Return blocks of records that are nothing but their lengths and zeros; `damage` is place -> byte."""
    area, starts, ends = bytearray(), [], []
    for block in lengths:
        starts.append(len(area))
        for length in block:
            write_varint(area, length)
            area += bytes(length)
        ends.append(len(area))
    for place, byte in damage.items():
        if area:
            area[place % len(area)] = byte
    start, end = np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)
    count = np.array([len(block) for block in lengths], dtype=np.int64)
    return Blocks(area=bytes(area), start=start, end=end, count=count, last_delta=np.maximum(count - 1, 0))


def located(blocks: Blocks, ratio: int) -> tuple[list[int], list[int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_places, "LOCKSTEP_RATIO", ratio)
        starts, ends = locate(np.frombuffer(blocks.area, dtype=np.uint8), blocks, blocks.count)
    return starts.tolist(), ends.tolist()


@given(st.lists(LENGTHS, min_size=1, max_size=5).filter(any))
def test_records_are_found_where_they_were_written(lengths: list[list[int]]) -> None:
    blocks = blocks_of(lengths, {})
    spans = [length + (1 if length < 64 else 2 if length < 8_192 else 3) for block in lengths for length in block]
    ends = np.cumsum(spans).tolist()
    for ratio in (0, 10**9):
        assert located(blocks, ratio) == ([0, *ends[:-1]], ends)


@given(
    st.lists(LENGTHS, min_size=1, max_size=5).filter(any),
    st.dictionaries(st.integers(0, 400), st.integers(0, 255), max_size=4),
)
def test_the_way_through_a_damaged_block_stays_in_it(lengths: list[list[int]], damage: dict[int, int]) -> None:
    blocks = blocks_of(lengths, damage)
    first = [int(start) for start, count in zip(blocks.start, blocks.count, strict=True) for _ in range(count)]
    last = [int(end) for end, count in zip(blocks.end, blocks.count, strict=True) for _ in range(count)]
    for ratio in (0, 10**9):
        for places in located(blocks, ratio):
            assert all(low <= place <= high for low, place, high in zip(first, places, last, strict=True))
