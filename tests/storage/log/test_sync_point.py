from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.storage import names
from kraftlib.storage.log.sync_point import (
    FILE_SIZE,
    NOTHING,
    SLOT_PLACES,
    SLOT_SIZE,
    Mark,
    SyncPoint,
    SyncPointFile,
    read_sync_point,
)

numbers = st.integers(0, 2**63 - 1)


def a_mark(end_offset: int = 12, *, position: int = 4_096) -> Mark:
    return Mark(segment=0, inode=77, position=position, end_offset=end_offset, end_epoch=3, crc=0xFFFFFFFF)


def a_file(directory: Path) -> SyncPointFile:
    return SyncPointFile(directory, file_mode=0o600)


def noted(directory: Path) -> SyncPoint:
    found = read_sync_point(directory)
    assert found is not None
    return found


def without_each_slot(directory: Path) -> list[SyncPoint]:
    """Return what is noted while one slot cannot be read, and while the other one cannot."""
    path, found = directory / names.SYNC_POINT, []
    whole = path.read_bytes()
    for place in SLOT_PLACES:
        path.write_bytes(whole[:place] + b"?" + whole[place + 1 :])
        found.append(noted(directory))
    path.write_bytes(whole)
    return found


@given(position=numbers, segment=numbers, more=st.integers(0, 2**31), inode=numbers, epoch=st.integers(-1, 2**31 - 1))
def test_what_was_written_is_read(
    position: int, segment: int, more: int, inode: int, epoch: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("sync")
    mark = Mark(segment, inode, position, segment + more, epoch, -1)
    file = a_file(directory)
    file.write(mark, mtime_ns=2**63 - 1)
    found = noted(directory)

    assert (found.mark, found.mtime_ns) == (mark, 2**63 - 1)
    file.close()


def test_there_is_none_before_the_first(tmp_path: Path) -> None:
    assert read_sync_point(tmp_path) is None
    a_file(tmp_path)
    assert read_sync_point(tmp_path) is None


def test_the_newest_one_counts_also_in_the_next_life(tmp_path: Path) -> None:
    for end in range(1, 8):
        file = a_file(tmp_path)
        file.write(a_mark(end))
        file.close()
        found = noted(tmp_path)
        assert (found.mark.end_offset, found.generation) == (end, end)
    assert (tmp_path / "kraftlib-sync.json").stat().st_size == FILE_SIZE


def test_every_flipped_bit_of_a_slot_leaves_the_other_one(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.write(a_mark(1))
    file.write(a_mark(2))
    path = tmp_path / "kraftlib-sync.json"
    whole = path.read_bytes()
    for place, other in zip(SLOT_PLACES, (1, 2), strict=True):
        length = len(whole[place : place + SLOT_SIZE].rstrip())
        for bit in range(length * 8):
            data = bytearray(whole)
            data[place + bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            assert noted(tmp_path).mark.end_offset == other, bit


@pytest.mark.parametrize("size", [0, 1, 100, SLOT_SIZE - 1])
def test_a_short_file_is_as_good_as_none(size: int, tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.write(a_mark())
    file.write(a_mark())
    os.truncate(tmp_path / "kraftlib-sync.json", size)

    assert read_sync_point(tmp_path) is None


def test_what_is_replaced_is_in_neither_slot_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a slot that cannot be read would bring a higher one back after a truncation."""
    file = a_file(tmp_path)
    for end in (5, 6, 7):
        file.write(a_mark(end))
    synced: list[int] = []
    monkeypatch.setattr("kraftlib.storage.files.sync_data", synced.append)
    file.replace(a_mark(2))

    assert len(synced) == 2, "one after the other: a disk that tears what it writes leaves one of them"
    assert [found.mark.end_offset for found in without_each_slot(tmp_path)] == [2, 2]


def test_a_note_of_nothing_claims_nothing(tmp_path: Path) -> None:
    a_file(tmp_path).replace(NOTHING)
    assert noted(tmp_path).claims_nothing


def test_a_file_that_has_become_far_too_long_is_written_over(tmp_path: Path) -> None:
    (tmp_path / names.SYNC_POINT).write_bytes(bytes(1 << 20))
    file = SyncPointFile(tmp_path, file_mode=0o600)
    file.replace(NOTHING)
    file.close()
    assert (tmp_path / names.SYNC_POINT).stat().st_size == FILE_SIZE


def in_the_old_places(directory: Path) -> None:
    """Lay the slots one behind the other, as releases did that knew no exact notes."""
    path = directory / names.SYNC_POINT
    data = path.read_bytes()
    path.write_bytes(b"".join(data[place : place + SLOT_SIZE] for place in SLOT_PLACES))


@pytest.mark.parametrize("count", [2, 3])
def test_slots_in_their_old_places_are_read_and_do_not_outlive_the_next_opening(count: int, tmp_path: Path) -> None:
    file = a_file(tmp_path)
    for end in range(1, count + 1):
        file.write(a_mark(end))
    file.close()
    in_the_old_places(tmp_path)
    found = noted(tmp_path)
    assert (found.mark.end_offset, found.generation, found.is_exact) == (count, count, False)

    file = a_file(tmp_path)
    file.replace(a_mark(1))
    data = bytearray((tmp_path / names.SYNC_POINT).read_bytes())
    for place in SLOT_PLACES:
        data[place] ^= 1
    (tmp_path / names.SYNC_POINT).write_bytes(data)
    assert read_sync_point(tmp_path) is None, "nor would it come back if both new ones were lost"


def test_an_exact_note_is_durable_on_return_and_another_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SyncPointFile(tmp_path, file_mode=0o600, exact=True)
    synced: list[int] = []
    monkeypatch.setattr("kraftlib.storage.files.sync_data", synced.append)
    file.note(a_mark(1), durable=False)
    assert (noted(tmp_path).is_exact, len(synced)) == (True, 1)

    file.exact = False
    file.note(a_mark(2), durable=False)  # before it is not waited for, nothing may say any more that it would be
    assert len(synced) == 3
    assert [(found.mark.end_offset, found.is_exact) for found in without_each_slot(tmp_path)] == [(2, False)] * 2

    for end in (3, 4):
        file.note(a_mark(end), durable=False)
    assert len(synced) == 3
    file.note(a_mark(5), durable=True)
    assert len(synced) == 4


def test_an_exact_note_of_another_life_is_replaced_before_one_that_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SyncPointFile(tmp_path, file_mode=0o600, exact=True).note(a_mark(1), durable=False)
    file = a_file(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr("kraftlib.storage.files.sync_data", synced.append)
    file.note(a_mark(2), durable=False)
    file.note(a_mark(3), durable=False)

    assert len(synced) == 2


def test_an_exact_note_of_the_beginning_says_that_nothing_was_acknowledged(tmp_path: Path) -> None:
    file = SyncPointFile(tmp_path, file_mode=0o600, exact=True)
    file.replace(a_mark(0, position=0))
    assert not noted(tmp_path).claims_nothing
