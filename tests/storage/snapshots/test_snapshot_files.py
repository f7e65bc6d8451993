from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from kraftlib.errors import InvariantError, StorageError
from kraftlib.storage import files
from kraftlib.storage.snapshots import snapshot_files
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink, FileSnapshotSource, list_snapshots
from kraftlib.types import OffsetAndEpoch

ID = OffsetAndEpoch(offset=42, epoch=3)
NAME = "00000000000000000042-0000000003.checkpoint"


def test_a_snapshot_has_its_name_once_frozen_and_is_read_only(tmp_path: Path) -> None:
    heard: list[OffsetAndEpoch] = []
    sink = FileSnapshotSink(tmp_path, ID, frozen=heard.append)
    sink.write(b"bytes")
    (part,) = os.listdir(tmp_path)
    assert re.fullmatch(r"00000000000000000042-0000000003-\d+\.checkpoint\.part", part)
    assert list_snapshots(tmp_path) == heard == []

    sink.freeze()

    assert os.listdir(tmp_path) == [NAME]
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o400
    assert list_snapshots(tmp_path) == heard == [ID]


def test_its_mode_is_that_of_the_directory_without_the_right_to_write(tmp_path: Path) -> None:
    FileSnapshotSink(tmp_path, ID, file_mode=0o660).freeze()

    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o440


def test_an_aborted_snapshot_leaves_nothing(tmp_path: Path) -> None:
    sink = FileSnapshotSink(tmp_path, ID)
    sink.write(b"bytes")
    sink.abort()
    sink.abort()

    assert os.listdir(tmp_path) == []
    for use in (sink.freeze, lambda: sink.write(b""), lambda: sink.read_at(0, 1)):
        with pytest.raises(StorageError, match="frozen or dropped"):
            use()


def test_a_snapshot_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    """A file never changes once it has its name: somebody may be reading it."""
    first, second = FileSnapshotSink(tmp_path, ID), FileSnapshotSink(tmp_path, ID)
    first.write(b"first")
    second.write(b"second")
    first.freeze()
    second.freeze()

    assert (tmp_path / NAME).read_bytes() == b"first"
    assert os.listdir(tmp_path) == [NAME]


def test_a_snapshot_is_read_to_the_end_though_it_is_deleted_meanwhile(tmp_path: Path) -> None:
    sink = FileSnapshotSink(tmp_path, ID)
    sink.write(b"0123")
    sink.write(memoryview(b"456789"))
    assert (sink.size, sink.read_at(2, 3), sink.read_at(9, 5)) == (10, b"234", b"9")
    sink.freeze()
    source = FileSnapshotSource(tmp_path / NAME)
    (tmp_path / NAME).unlink()

    assert source.size == 10
    assert source.read_at(0, 4) + source.read_at(4, 100) == b"0123456789"
    with pytest.raises(InvariantError):
        source.read_at(-1, 1)
    source.close()
    source.close()
    with pytest.raises(StorageError, match="closed"):
        source.read_at(0, 1)


def test_what_is_not_there_or_a_link_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open"):
        FileSnapshotSource(tmp_path / NAME)
    (tmp_path / "elsewhere").touch()
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="is a symbolic link"):
        FileSnapshotSource(tmp_path / NAME)


def test_snapshots_are_listed_by_epoch_and_then_offset(tmp_path: Path) -> None:
    for offset, epoch in [(9, 1), (5, 2), (3, 1)]:
        FileSnapshotSink(tmp_path, OffsetAndEpoch(offset=offset, epoch=epoch)).freeze()
    (tmp_path / "notes.checkpoint").touch()

    assert [(found.epoch, found.offset) for found in list_snapshots(tmp_path)] == [(1, 3), (1, 9), (2, 5)]


def test_the_disk_begins_to_write_long_before_the_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one sync of hundreds of MiB stands before the log's own."""
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(snapshot_files, "WRITE_OUT_BYTES", 4_000)
    monkeypatch.setattr(files, "begin_writing_out", lambda _, position, size: begun.append((position, size)))
    sink = FileSnapshotSink(tmp_path, ID)
    for _ in range(10):
        sink.write(bytes(1_000))
    sink.freeze()

    assert begun == [(0, 4_000), (4_000, 4_000)]
