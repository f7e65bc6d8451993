"""Cuts of a segment: whatever its index says, each batch is in one of them, and all tasks agree which."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.cuts import Cut, IndexEntries, cuts_of
from kraftlib.analysis.files import find_files
from kraftlib.analysis.log_files import LogFile
from kraftlib.analysis.marks import walk_file
from kraftlib.errors import StorageError
from tests.analysis.logs import values_batch, write_log

SIZE = 3_000
BATCHES = 20
ENTRY = struct.Struct(">ii")


def a_file(directory: Path) -> LogFile:
    """Twenty batches of two records each; every second one is in the index."""
    batches = [values_batch([bytes(SIZE), b"v"], base_offset=10 + 2 * n, epoch=1 + n // 5) for n in range(BATCHES)]
    write_log(directory, batches, index=True)
    return find_files(directory)[0]


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return a_file(tmp_path)


def entries_in(file: LogFile) -> list[tuple[int, int]]:
    return list(ENTRY.iter_unpack(index_of(file).read_bytes()))


def index_of(file: LogFile) -> Path:
    return Path(file.path).with_suffix(".index")


def write_index(file: LogFile, entries: list[tuple[int, int]], *, reserved: int = 0) -> None:
    index_of(file).write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries) + bytes(ENTRY.size * reserved))


def ranges(file: LogFile, cuts: list[Cut]) -> list[tuple[int, int]]:
    """Return the bytes of every cut that there is."""
    found = [seams for cut in cuts if (seams := cut.seams(file)) is not None]
    return [(begin[0] if begin else 0, behind[0] if behind else file.size) for begin, behind in found]


def assert_whole(file: LogFile, cuts: list[Cut]) -> None:
    found = ranges(file, cuts)
    assert found[0][0] == 0
    assert found[-1][1] == file.size
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert {start for start, _ in found} <= set(walk_file(file, 0, file.size, contiguous=True).start.tolist())


@pytest.mark.parametrize("target", [SIZE // 8, SIZE, 3 * SIZE, 7 * SIZE, 100 * SIZE])
def test_cuts_of_any_size_hold_every_byte_once_and_begin_at_batches(file: LogFile, target: int) -> None:
    assert_whole(file, cuts_of(file, target))


def test_a_cut_knows_what_it_begins_with_and_what_follows(file: LogFile) -> None:
    walked = walk_file(file, 0, file.size, contiguous=True)
    number = {start: index for index, start in enumerate(walked.start.tolist())}
    seams = [seams for cut in cuts_of(file, 4 * SIZE) if (seams := cut.seams(file))]
    assert len(seams) > 4
    for (_, behind), (begin, _) in pairwise(seams):
        assert begin is not None
        assert behind == begin
        at = number[begin[0]]
        assert begin[1:] == (walked.base_offset[at], walked.epoch[at], walked.epoch[at - 1])


@settings(max_examples=60)
@given(
    wrong=st.dictionaries(st.integers(0, BATCHES // 2 - 1), st.tuples(st.integers(-9, 9), st.integers(-90, 90))),
    pieces=st.integers(1, 30),
    reserved=st.integers(0, 3),
)
def test_an_entry_that_is_wrong_makes_no_cut_and_loses_nothing(
    wrong: dict[int, tuple[int, int]], pieces: int, reserved: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = a_file(tmp_path_factory.mktemp("cuts"))
    entries = entries_in(file)
    for number, (offset, position) in wrong.items():
        if number < len(entries):
            entries[number] = (entries[number][0] + offset, entries[number][1] + position)
    write_index(file, entries, reserved=reserved)
    assert_whole(file, cuts_of(file, file.size // pieces))


def test_an_index_that_grows_after_the_plan_changes_no_cut(file: LogFile) -> None:
    entries = entries_in(file)
    write_index(file, entries[:5], reserved=100)
    cuts = cuts_of(file, 2 * SIZE)
    before = ranges(file, cuts)
    assert before[-1][0] == entries[4][1]
    write_index(file, entries, reserved=95)
    assert ranges(file, cuts) == before


@pytest.mark.parametrize("change", ["gone", "shorter", "another"])
def test_an_index_that_is_not_that_of_the_plan_is_an_error(file: LogFile, change: str) -> None:
    cuts = cuts_of(file, 2 * SIZE)
    entries = entries_in(file)
    match change:
        case "gone":
            index_of(file).unlink()
        case "shorter":
            write_index(file, entries[:-1])
        case _:
            write_index(file, [entries[0], *entries[2:], (entries[-1][0] + 1, entries[-1][1] + SIZE)])
    with pytest.raises(StorageError, match="is another one than when the work was planned"):
        cuts[1].seams(file)


def test_without_entries_there_are_no_cuts(file: LogFile) -> None:
    write_index(file, [], reserved=9)
    assert cuts_of(file, SIZE) == []
    index_of(file).unlink()
    assert cuts_of(file, SIZE) == []


def test_entries_that_name_nothing_leave_one_cut(file: LogFile) -> None:
    write_index(file, [(5, 3), (4, 2)])
    cuts = cuts_of(attrs.evolve(file), 2 * SIZE)
    assert len(cuts) > 5
    assert ranges(file, cuts) == [(0, file.size)]
    assert IndexEntries.of(file) == cuts[0].entries
