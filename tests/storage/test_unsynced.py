"""What was written when a sync failed is written once more, elsewhere, before it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage import files
from kraftlib.storage.log import FileReplicatedLog
from kraftlib.testing.log_contract import fill, read_all
from tests.storage.builders import a_batch
from tests.storage.test_log import SEGMENT, SMALL, names_in


def test_what_a_failed_sync_left_in_memory_is_written_again_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel shows it to readers though it has given up writing it: a sync alone would vouch for what is lost."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    fill(log, 1, 1)
    log.flush()
    fill(log, 1, 2, 2)
    before = read_all(log)

    def failing(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "sync_data", failing)
    with pytest.raises(StorageError):
        log.flush()
    monkeypatch.undo()
    again = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)

    assert names_in(tmp_path, "*.log") == [SEGMENT % 0, SEGMENT % 2]
    assert (tmp_path / (SEGMENT % 0)).stat().st_size == 2 * a_batch(0).size
    assert read_all(again) == before
    assert again.flushed_offset == 5
    assert names_in(tmp_path, "*unsynced*") == []


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

    def failing(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "replace_file", read_only)
    monkeypatch.setattr(files, "sync_data", failing)
    with pytest.raises(StorageError, match="Input/output error"):
        log.flush()
    assert "cannot even be noted: Read-only file system" in caplog.text
