"""What was written when a sync failed is written once more, elsewhere, before it counts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage import files, names
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log import chain as segments
from kraftlib.storage.log.unsynced import Unsynced, note_unsynced, read_unsynced
from kraftlib.storage.reserve import Reserve
from kraftlib.testing.log_contract import fill, read_all
from kraftlib.types import EpochStart, OffsetRange
from tests.storage.builders import a_batch
from tests.storage.test_file_log import SEGMENT, SMALL, names_in


def _failing(_: object) -> None:
    raise OSError(5, "Input/output error")


def _spoil(path: Path, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(b"????")


def test_what_a_failed_sync_left_in_memory_is_written_again_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel shows it to readers though it has given up writing it: a sync alone would vouch for what is lost."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    fill(log, 1, 1)
    log.flush()
    fill(log, 1, 2, 2)
    before = read_all(log)

    monkeypatch.setattr(files, "sync_data", _failing)
    with pytest.raises(StorageError):
        log.flush()
    monkeypatch.undo()
    again = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)

    assert names_in(tmp_path, "*.log") == [SEGMENT % 0, SEGMENT % 2]
    assert (tmp_path / (SEGMENT % 0)).stat().st_size == 2 * a_batch(0).size
    assert read_all(again) == before
    assert again.flushed_offset == 5
    assert names_in(tmp_path, "*unsynced*") == []


def test_a_full_disk_on_which_a_sync_fails_has_space_for_the_note_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where blocks are found late, it is the sync that fails for want of space. Without the note the next process
    takes what only the memory has for durable, and acknowledges it."""
    log = FileReplicatedLog.open(tmp_path, reserve=Reserve(tmp_path, size=1 << 20))
    fill(log, 1, 1)
    log.flush()
    fill(log, 1)
    create, before = files.create, read_all(log)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def syncing(_: int) -> None:
        raise full

    def creating(path: Path, *, mode: int) -> int:
        if (tmp_path / names.RESERVE).exists():
            raise StorageError(f"cannot create {path}", path=path) from full
        return create(path, mode=mode)

    monkeypatch.setattr(files, "sync_data", syncing)
    monkeypatch.setattr(files, "create", creating)
    with pytest.raises(StorageError):
        log.flush()
    monkeypatch.undo()

    assert read_unsynced(tmp_path) == Unsynced(flushed_offset=log.flushed_offset, was_cut=False)
    assert read_all(FileReplicatedLog.open(tmp_path)) == before


def test_a_file_whose_cut_could_not_be_synced_is_replaced_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later sync of the same file says nothing about the cut, and what was cut off could come back."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    fill(log, 1, 1, 1)
    log.flush()
    path = tmp_path / (SEGMENT % 0)
    inode, before = path.stat().st_ino, read_all(log)

    with monkeypatch.context() as patch:
        patch.setattr(segments.os, "fsync", _failing)
        with pytest.raises(StorageError):
            log.truncate(1)
    held = path.open("rb")  # or its number is the next file's
    again = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    fill(again, 2)
    again.close()
    held.close()

    assert path.stat().st_ino != inode
    assert names_in(tmp_path, "*unsynced*") == names_in(tmp_path, "*.tmp") == []
    once_more = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    assert read_all(once_more)[:1] == before[:1]
    assert (once_more.end_offset, once_more.flushed_offset) == (2, 2)
    assert once_more.epoch_starts() == (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=1))


def test_a_cut_that_could_not_be_synced_is_made_up_for_when_the_log_is_whole_again(tmp_path: Path) -> None:
    """Until then it does not grow, and its notes, which tell of the damage, know the file that there is."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    fill(log, 1, 1, 1, 1)
    whole = read_all(log)
    log.close()
    *_, last = sorted(tmp_path.glob("*.log"))
    _spoil(tmp_path / (SEGMENT % 0), a_batch(0).size + 70)
    (tmp_path / names.PREFIX).unlink()
    note_unsynced(tmp_path, Unsynced(flushed_offset=9, was_cut=True), file_mode=0o600)

    inode = last.stat().st_ino
    again = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL, keep_damage=True)
    assert again.holes() == (OffsetRange(1, 2),)
    assert names_in(tmp_path, "*unsynced*")
    with last.open("rb"):  # or its number is the next file's
        assert again.write_repair([whole[1]])
        assert last.stat().st_ino != inode
    assert names_in(tmp_path, "*unsynced*") == []
    fill(again, 2)
    again.close()

    assert read_all(FileReplicatedLog.open(tmp_path, segment_bytes=SMALL))[:4] == whole


def test_what_one_failure_left_in_doubt_stays_so_when_the_next_one_is_noted(tmp_path: Path) -> None:
    for offset, was_cut in ((7, False), (4, True), (9, False)):
        note_unsynced(tmp_path, Unsynced(flushed_offset=offset, was_cut=was_cut), file_mode=0o600)

    assert read_unsynced(tmp_path) == Unsynced(flushed_offset=4, was_cut=True)


@pytest.mark.parametrize(
    ("note", "found"),
    [
        (b'{"flushed_offset": 12}', Unsynced(flushed_offset=12, was_cut=False)),
        (b'{"cut": true, "flushed_offset": 12}', Unsynced(flushed_offset=12, was_cut=True)),
        (b"", Unsynced(flushed_offset=0, was_cut=True)),
        (b'{"cut": maybe, "flushed_offset": 12}', Unsynced(flushed_offset=0, was_cut=True)),
    ],
)
def test_a_note_is_read_as_it_was_meant_and_for_the_worst_otherwise(
    note: bytes, found: Unsynced, tmp_path: Path
) -> None:
    """The first one is what the first release wrote."""
    (tmp_path / "kraftlib-unsynced.json").write_bytes(note)

    assert read_unsynced(tmp_path) == found


def test_a_sync_that_failed_and_damage_below_it_stop_the_start(tmp_path: Path) -> None:
    """What is behind the damage may be in memory only, and a damaged log does not grow: nobody could write it again."""
    log = FileReplicatedLog.open(tmp_path)
    fill(log, 1, 1)
    log.append([a_batch(2)])
    _spoil(tmp_path / (SEGMENT % 0), a_batch(0).size + 70)
    note_unsynced(tmp_path, Unsynced(flushed_offset=2, was_cut=False), file_mode=0o600)

    with pytest.raises(
        StorageError, match="a sync failed in an earlier life, and records that were durable then are damaged"
    ):
        FileReplicatedLog.open(tmp_path, keep_damage=True)
    assert read_unsynced(tmp_path) == Unsynced(flushed_offset=2, was_cut=False)


def test_a_note_of_a_failed_sync_that_cannot_be_read_stands_for_the_whole_log(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path)
    fill(log, 1, 1)
    before = read_all(log)
    (tmp_path / "kraftlib-unsynced.json").write_bytes(b"?")

    assert read_all(FileReplicatedLog.open(tmp_path)) == before
    assert names_in(tmp_path, "*.json") == ["kraftlib-sync.json"]


def test_a_sync_failure_that_cannot_be_noted_is_still_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = FileReplicatedLog.open(tmp_path)
    fill(log, 1)

    def read_only(*_: object, **__: object) -> None:
        raise StorageError("Read-only file system")

    monkeypatch.setattr(files, "replace_file", read_only)
    monkeypatch.setattr(files, "sync_data", _failing)
    with pytest.raises(StorageError, match="Input/output error"):
        log.flush()
    assert "cannot even be noted: Read-only file system" in caplog.text
