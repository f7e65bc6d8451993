"""What is read sixteen bytes at a time is what was written, and whatever is not so short is left to others."""

from __future__ import annotations

import numpy as np
import pytest

from kraftlib.analysis.short_records import read_short
from kraftlib.records.record import Header, Record, encode_block

SHORT = {
    "a value": Record(0, 0, None, b"value"),
    "no value": Record(0, 0, None, None),
    "an empty key": Record(0, 0, b"", b"value"),
    "numbers of two bytes": Record(8_191, -8_192, None, b"v" * 8_000),
}
OTHERS = {
    "a key": Record(0, 0, b"k", b"value"),
    "headers": Record(0, 0, None, b"value", (Header("a", None),)),
    "an offset of three bytes": Record(8_192, 0, None, b"value"),
    "a timestamp of three bytes": Record(0, -8_193, None, b"value"),
    "a size of three bytes": Record(0, 0, None, b"v" * 9_000),
}
BEHIND = bytes(16)


def block(record: Record) -> bytes:
    return encode_block([record], base_offset=0, base_timestamp=0)


@pytest.mark.parametrize("record", SHORT.values(), ids=SHORT)
def test_short_records_are_read(record: Record) -> None:
    data = block(record)
    area = np.frombuffer(data + BEHIND, dtype=np.uint8)
    found = read_short(area, np.array([0]), np.array([len(data)]))
    key, value = (
        None if size[0] < 0 else data[start[0] : start[0] + size[0]]
        for start, size in ((found.key_start, found.key_size), (found.value_start, found.value_size))
    )
    assert found.read.tolist() == [True]
    assert Record(int(found.offset_delta[0]), int(found.timestamp_delta[0]), key, value) == record


@pytest.mark.parametrize("record", OTHERS.values(), ids=OTHERS)
def test_other_records_are_left_to_others(record: Record) -> None:
    data = block(record)
    area = np.frombuffer(data + BEHIND, dtype=np.uint8)
    assert read_short(area, np.array([0]), np.array([len(data)])).read.tolist() == [False]


@pytest.mark.parametrize("behind", [b"", bytes(3)])
def test_a_record_whose_sixteen_bytes_are_not_all_there_is_left_to_others(behind: bytes) -> None:
    data = block(SHORT["a value"])
    area = np.frombuffer(data + behind, dtype=np.uint8)
    assert read_short(area, np.array([0]), np.array([len(data)])).read.tolist() == [False]


def test_a_record_is_read_only_if_it_ends_where_it_should() -> None:
    data = block(SHORT["a value"])
    area = np.frombuffer(data + BEHIND, dtype=np.uint8)
    for end in (len(data) - 1, len(data) + 1):
        assert read_short(area, np.array([0]), np.array([end])).read.tolist() == [False]
