"""The headers of many batches are those that are read one by one, and a walk stops where it must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.analysis.headers import BATCH_MAX_BYTES, Stop, actual_crc, headers_at, impossible, walk
from kraftlib.records.batch import encode_batch, parse_header, read_batches
from tests.captured import logs


def some_batches(counts: list[int]) -> bytes:
    out, offset = b"", 0
    for count in counts:
        values = [b"v%d" % number for number in range(count)]
        out += bytes(encode_batch(values, timestamp_ms=offset, base_offset=offset, epoch=count).data)
        offset += count
    return out


@pytest.mark.parametrize("path", logs(), ids=lambda path: f"{path.parts[-4]}-{path.name}")
def test_the_headers_of_captured_files_are_those_of_the_plain_reader(path: object) -> None:
    data = path.read_bytes()  # type: ignore[attr-defined]
    found = walk(data, with_crcs=True)
    expected = [parse_header(data, start) for start in found.headers.start.tolist()]
    headers = found.headers

    assert (found.stop, found.end, len(headers)) == (Stop.END, len(data), len(read_batches(data)))
    assert headers.base_offset.tolist() == [h.base_offset for h in expected]
    assert headers.last_offset.tolist() == [h.last_offset for h in expected]
    assert headers.epoch.tolist() == [h.epoch for h in expected]
    assert headers.attributes.tolist() == [h.attributes for h in expected]
    assert headers.max_timestamp.tolist() == [h.max_timestamp for h in expected]
    assert headers.count.tolist() == [h.record_count for h in expected]
    assert headers.size.tolist() == [h.size for h in expected]
    assert headers.is_control.tolist() == [h.is_control for h in expected]
    assert found.crcs.tolist() == headers.crc.tolist() == [h.crc for h in expected]
    assert [actual_crc(data, headers, index) for index in range(len(headers))] == found.crcs.tolist()
    assert not impossible(headers).any()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_a_walk_over_bytes_cut_anywhere_finds_the_whole_batches(counts: list[int], data: st.DataObject) -> None:
    whole = some_batches(counts)
    ends = [0, *walk(whole).headers.end.tolist()]
    size = data.draw(st.integers(0, len(whole)))

    found = walk(whole[:size])

    assert found.end == max(end for end in ends if end <= size)
    assert found.stop is (Stop.END if size in ends else Stop.CUT)
    if found.stop is Stop.CUT and size - found.end >= 61:
        assert found.end + found.wanted in ends


def test_a_walk_stops_at_what_is_no_batch_and_says_why() -> None:
    data = bytearray(some_batches([2, 3]))
    second = walk(bytes(data)).headers.start.tolist()[1]
    data[second + 16] = 1
    found = walk(bytes(data))
    assert (found.end, found.stop, found.reason) == (second, Stop.BROKEN, "has magic 1, only 2 is supported")

    data[second + 16] = 2
    data[second + 8 : second + 12] = (48).to_bytes(4)
    assert "claims a length of 48" in walk(bytes(data)).reason
    data[second + 8 : second + 12] = (BATCH_MAX_BYTES + 1).to_bytes(4)
    assert walk(bytes(data)).stop is Stop.BROKEN


def test_headers_can_be_selected() -> None:
    headers = walk(some_batches([1, 2, 3])).headers
    assert headers.select(np.array([True, False, True])).count.tolist() == [1, 3]
    assert headers.select(slice(0, 1)).codec.tolist() == [0]
    assert len(headers_at(b"", np.empty(0, dtype=np.int64))) == 0


@pytest.mark.parametrize(("at", "patch"), [(0, b"\xff"), (23, b"\xff"), (57, b"\xff"), (57, b"\x00\x00\x00\x09")])
def test_a_batch_whose_numbers_do_not_fit_is_impossible(at: int, patch: bytes) -> None:
    data = bytearray(some_batches([2]))
    data[at : at + len(patch)] = patch
    assert impossible(walk(bytes(data)).headers).tolist() == [True]
