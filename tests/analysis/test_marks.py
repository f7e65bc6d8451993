"""Beginnings of batches: the index is believed only where the log agrees with it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kraftlib.analysis.files import find_files
from kraftlib.analysis.log_files import LogFile
from kraftlib.analysis.marks import IndexMarks, WalkMarks, walk_file
from kraftlib.analysis.options import Bounds, Range
from tests.analysis.test_cuts import a_file
from tests.captured import DATA

ENTRY = struct.Struct(">ii")


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    """Twenty batches of two records each; every second one is in the index."""
    return a_file(tmp_path)


def index_path(file: LogFile) -> Path:
    return Path(file.path).with_suffix(".index")


def test_an_entry_that_the_log_confirms_is_a_seam(file: LogFile) -> None:
    marks = IndexMarks.of(file)
    assert marks is not None
    walked = walk_file(file, 0, file.size, contiguous=True)
    known = dict(zip(walked.start.tolist(), zip(walked.base_offset, walked.epoch, strict=True), strict=True))
    assert len(marks.position) > 5
    for number, position in enumerate(marks.position.tolist()):
        seam = marks.seam(number)
        assert seam is not None
        assert seam[:3] == (position, *known[position])


def test_entries_that_point_elsewhere_are_not_believed(file: LogFile) -> None:
    entries = bytearray(index_path(file).read_bytes())
    position = int.from_bytes(entries[12:16])
    entries[12:16] = (position + 7).to_bytes(4)
    index_path(file).write_bytes(entries)
    marks = IndexMarks.of(file)
    assert marks is not None
    assert marks.seam(0) is not None
    assert marks.seam(1) is None, "no batch stands there"
    assert marks.seam(2) is None, "nothing leads there from the entry before"

    entries[12:16] = position.to_bytes(4)
    entries[8:12] = (int.from_bytes(entries[8:12]) - 1).to_bytes(4)
    index_path(file).write_bytes(entries)
    marks = IndexMarks.of(file)
    assert marks is not None
    assert marks.seam(1) is None, "another offset stands there"


@pytest.mark.parametrize("tail", [bytes(10 << 10), ENTRY.pack(1, 1), b"\x00\x00\x00", ENTRY.pack(999, 1 << 30)])
def test_what_follows_the_last_entry_that_ascends_is_ignored(file: LogFile, tail: bytes) -> None:
    before = IndexMarks.of(file)
    index_path(file).write_bytes(index_path(file).read_bytes() + tail)
    after = IndexMarks.of(file)
    assert before is not None
    assert after is not None
    assert after.position.tolist() == before.position.tolist()


def test_no_index_and_an_empty_one_are_none(file: LogFile) -> None:
    index_path(file).write_bytes(bytes(800))
    assert IndexMarks.of(file) is None
    index_path(file).unlink()
    assert IndexMarks.of(file) is None


def test_the_next_batch_behind_damage_is_one_that_stands_where_the_index_says(file: LogFile) -> None:
    marks = IndexMarks.of(file)
    assert marks is not None
    first, second = marks.position.tolist()[:2]
    data = bytearray(Path(file.path).read_bytes())
    data[first + 16] = 9
    Path(file.path).write_bytes(data)
    seam = marks.next_behind(0)
    assert seam is not None
    assert seam[0] == second
    assert marks.next_behind(file.size) is None


def test_a_range_of_offsets_lies_between_its_marks(file: LogFile) -> None:
    index, walk = IndexMarks.of(file), WalkMarks(file, contiguous=True)
    assert index is not None
    headers = walk.headers
    for start in range(8, 54, 3):
        for end in (start + 1, start + 9, None):
            wanted = Range(start=start, end=end)
            holding = [
                position
                for position, base in zip(headers.start.tolist(), headers.base_offset.tolist(), strict=True)
                if base + 1 >= start and (end is None or base < end)
            ]
            for marks, between in ((index, index.within(wanted)), (walk, walk.within(Bounds(offset=wanted)))):
                if between is None:
                    assert holding == []
                    continue
                first = marks.position[between[0]] if between[0] >= 0 else 0
                last = marks.position[between[1]] if between[1] < len(marks.position) else file.size
                assert all(first <= position < last for position in holding)


def test_a_walk_finds_what_epochs_and_timestamps_ask_for(file: LogFile) -> None:
    walk = WalkMarks(file, contiguous=True)
    assert walk.within(Bounds(epoch=Range(start=2, end=3))) == (5, 10)
    assert walk.within(Bounds(epoch=Range(start=9))) is None
    assert walk.within(Bounds(timestamp=Range(start=int(walk.headers.max_timestamp[4])))) == (4, 20)


def test_a_walk_that_breaks_off_leaves_the_rest_to_the_reader(file: LogFile) -> None:
    data = bytearray(Path(file.path).read_bytes())
    position = int(walk_file(file, 0, file.size, contiguous=True).start[3])
    data[position + 7] += 1
    Path(file.path).write_bytes(data)
    walk = WalkMarks(file, contiguous=True)
    assert len(walk.headers) == 3
    assert walk.within(Bounds(epoch=Range(start=9))) == (2, 3)
    assert len(WalkMarks(file, contiguous=False).headers) > 3


@pytest.mark.parametrize("window", [100, 4096, 1 << 20])
def test_a_walk_over_a_file_is_the_walk_over_its_bytes(window: int) -> None:
    from kraftlib.analysis.headers import walk

    for file in find_files(DATA / "kafka-4.3.1" / "n1"):
        data = Path(file.path).read_bytes()
        found = walk_file(file, 0, file.size, contiguous=True, window=window)
        assert found.start.tolist() == walk(data).headers.start.tolist()
        assert found.crc.tolist() == walk(data).headers.crc.tolist()
