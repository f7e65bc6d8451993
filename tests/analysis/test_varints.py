"""Numbers read many at once are those that are read one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.analysis.varints import read_lengths, read_longs, read_unsigned, spans
from kraftlib.codec.varint import write_uvarint, write_varint, write_varlong


def written(numbers: list[int], write: object) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return the bytes, where each number begins, and where each ends."""
    out, starts, ends = bytearray(), [], []
    for number in numbers:
        starts.append(len(out))
        write(out, number)  # type: ignore[operator]
        ends.append(len(out))
    return np.frombuffer(bytes(out), dtype=np.uint8), np.array(starts, dtype=np.int64), ends


SMALL_AND_LARGE = st.integers(-3, 3) | st.integers(-70, 70) | st.integers(-(2**31), 2**31 - 1)


@given(st.lists(SMALL_AND_LARGE, min_size=1))
def test_lengths_are_those_that_were_written(numbers: list[int]) -> None:
    area, starts, ends = written(numbers, write_varint)
    read, behind, wrong = read_lengths(area, starts)
    assert (read.tolist(), behind.tolist(), wrong.tolist()) == (numbers, ends, [])


@given(st.lists(st.integers(0, 70) | st.integers(8_180, 8_200) | st.integers(0, 2**31 - 1), min_size=1))
def test_a_span_is_a_length_and_what_it_measures(numbers: list[int]) -> None:
    area, starts, ends = written(numbers, write_varint)
    spanned = [end + number - start for start, end, number in zip(starts.tolist(), ends, numbers, strict=True)]
    assert spans(area, starts).tolist() == spanned


@given(st.lists(SMALL_AND_LARGE | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_longs_are_those_that_were_written(numbers: list[int]) -> None:
    area, starts, ends = written(numbers, write_varlong)
    read, behind, wrong = read_longs(area, starts)
    assert (read.tolist(), behind.tolist(), wrong.tolist()) == (numbers, ends, [])


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_unsigned_numbers_are_those_that_were_written(numbers: list[int]) -> None:
    area, starts, ends = written(numbers, write_uvarint)
    read, behind, wrong = read_unsigned(area, starts)
    assert (read.tolist(), behind.tolist(), wrong.tolist()) == (numbers, ends, [])


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_lengths, b"\xff\xff\xff\xff\x1f"),
        (read_lengths, b"\x80\x80\x80\x80\x80\x01"),
        (read_longs, b"\xff" * 9 + b"\x02"),
        (read_unsigned, b"\xff" * 8),
    ],
)
@pytest.mark.parametrize("beside", [b"", b"\x05"])
def test_a_number_with_too_many_bits_is_named(read: object, data: bytes, beside: bytes) -> None:
    starts = [0] if not beside else [0, 1]
    _, _, wrong = read(np.frombuffer(beside + data, dtype=np.uint8), np.array(starts))  # type: ignore[operator]
    assert wrong.tolist() == [len(beside)]


def test_a_position_beyond_the_bytes_reads_the_last_one() -> None:
    read, behind, _ = read_lengths(np.array([4, 6], dtype=np.uint8), np.array([1, 99]))
    assert (read.tolist(), behind.tolist()) == ([3, 3], [2, 100])
