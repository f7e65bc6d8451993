"""The way of a record to the disk: an append waits for nothing, a flush vouches for what was there when it began."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage import files
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.testing.log_contract import fill, read_all
from tests.storage.builders import some_batches
from tests.storage.test_file_log import SEGMENT, SMALL, names_in, new_directory


def synced_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the files that are synced from now on."""
    synced: list[str] = []
    sync_data, fsync = files.sync_data, os.fsync

    def noting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def note(descriptor: int) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
            sync(descriptor)

        return note

    monkeypatch.setattr(files, "sync_data", noting(sync_data))
    monkeypatch.setattr(os, "fsync", noting(fsync))
    return synced


def test_an_append_waits_for_no_disk_and_a_flush_for_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FileReplicatedLog.open(tmp_path)
    fill(log, 1)
    log.flush()
    synced = synced_files(monkeypatch)

    fill(log, 1, 1)
    assert synced == []
    log.flush()
    assert synced == [SEGMENT % 0]
    log.flush()
    assert synced == [SEGMENT % 0]


def test_a_new_segment_is_left_to_the_next_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which syncs the old one first, then the new one, then the directory that names it."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    fill(log, *[1] * 4)
    log.flush()
    synced = synced_files(monkeypatch)

    for batch in some_batches(*[1] * 2, base_offset=4, size=600):
        log.append([batch])
    assert synced == []
    log.flush()
    assert synced[:4] == [SEGMENT % 0, SEGMENT % 4, SEGMENT % 5, tmp_path.name]


def test_a_new_epoch_is_written_with_the_next_flush(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path)
    fill(log, 1)
    log.begin_epoch(4, 1)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n0\n"
    log.flush()

    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n4 1\n"


def test_a_flush_vouches_for_what_was_there_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch, and a whole new segment, that come while the disk is busy are not in its answer."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    fill(log, 1, 1)
    sync_data = files.sync_data

    def slow_disk(descriptor: int) -> None:
        monkeypatch.setattr(files, "sync_data", sync_data)
        for batch in some_batches(*[1] * 5, base_offset=2, size=600):
            log.append([batch])
        sync_data(descriptor)

    monkeypatch.setattr(files, "sync_data", slow_disk)

    assert log.flush() == 2 == log.flushed_offset
    assert log.end_offset == 7
    assert log.flush() == 7


def test_appends_reads_and_flushes_go_on_side_by_side(tmp_path: Path) -> None:
    """One thread appends and reads, one flushes, as the engine does it; every few appends begin a segment."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL, tail_bytes=500)
    done, flushed, errors = threading.Event(), [0], []

    def flush() -> None:
        try:
            while not done.is_set():
                before = log.end_offset
                flushed.append(log.flush())
                assert before <= flushed[-1] <= log.end_offset
        except BaseException as error:  # noqa: BLE001 - shown below, on the thread of the test
            errors.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    for n in range(1_500):
        fill(log, 1 + n // 200)
        assert log.read(max(0, n - 20), 1)[0].base_offset == max(0, n - 20)
    done.set()
    thread.join(60)

    assert errors == []
    assert flushed == sorted(flushed)
    assert log.flush() == 1_500
    assert len(read_all(log)) == 1_500


@pytest.mark.parametrize("fault", ["sync_data", "sync_directory"])
def test_a_failed_flush_is_never_tried_again(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would say that all is well: it has dropped the pages."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    fill(log, *[1] * 20)

    def failing(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, fault, failing)
    with pytest.raises(StorageError, match="Input/output error"):
        log.flush()
    monkeypatch.undo()

    assert log.flushed_offset == 0
    for use in (log.flush, lambda: fill(log, 1), lambda: log.read(0, 1), lambda: log.truncate(0)):
        with pytest.raises(StorageError, match=r"cannot be used any more.*Input/output error"):
            use()
    log.close()
    assert names_in(tmp_path, "*.timeindex") == []


def test_what_is_found_at_start_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process leaves what it appended to the kernel, and a machine that stops later may still lose it."""
    log = FileReplicatedLog.open(new_directory(tmp_path / "log"), segment_bytes=SMALL)
    fill(log, *[1] * 20)
    synced = synced_files(monkeypatch)
    again = FileReplicatedLog.open(tmp_path / "log", segment_bytes=SMALL)

    assert again.flushed_offset == 20
    assert {path.name for path in (tmp_path / "log").glob("*.log")} | {"log"} <= set(synced)
