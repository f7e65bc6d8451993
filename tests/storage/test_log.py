from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.errors import ConfigError, CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import files
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.log import FileReplicatedLog
from kraftlib.storage.prefix import tells_of_voters
from kraftlib.storage.reserve import Reserve
from kraftlib.testing.log_contract import LOG_CHECKS, fill, it_agrees_with_the_memory_log, read_all, store_snapshot
from kraftlib.types import OffsetAndEpoch
from tests.storage.builders import TIMESTAMP, a_batch, offsets, some_batches

SMALL = 1_000
SEGMENT = "%020d.log"


def names_in(directory: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def copy_of(directory: Path, place: Path) -> Path:
    """Return a copy as a crash of the process would leave the directory: all that was written, nothing closed."""
    shutil.copytree(directory, place)
    return place


def new_directory(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize("segment_bytes", [SMALL, 1 << 30])
@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
@pytest.mark.parametrize("check", LOG_CHECKS)
def test_it_keeps_the_contract(
    check: Callable[[Callable[[], ReplicatedLog]], None], tail_bytes: int, segment_bytes: int, tmp_path: Path
) -> None:
    """With many segments and with one, from memory and from the file."""
    check(lambda: FileReplicatedLog.open(tmp_path, segment_bytes=segment_bytes, tail_bytes=tail_bytes))


@pytest.mark.parametrize("seed", range(1, 6))
def test_it_agrees_with_the_memory_log_on_many_lives(seed: int, tmp_path: Path) -> None:
    def open_log() -> ReplicatedLog:
        return FileReplicatedLog.open(tmp_path, segment_bytes=4_000, tail_bytes=2_000, reserve_bytes=10_000)

    it_agrees_with_the_memory_log(open_log, seed=seed, steps=100)


def test_a_new_log_is_an_empty_segment(tmp_path: Path) -> None:
    FileReplicatedLog.open(tmp_path)

    assert names_in(tmp_path) == [SEGMENT % 0, "kraftlib-sync.json", "leader-epoch-checkpoint"]
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n0\n"


def test_the_file_holds_the_very_bytes_that_were_appended(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path)
    batches = some_batches(1, 1, 2)
    log.append(batches[:1])
    log.append([Batch(b.base_offset, b.last_offset, b.epoch, False, 0, memoryview(b.data)) for b in batches[1:]])

    assert (tmp_path / (SEGMENT % 0)).read_bytes() == b"".join(bytes(batch.data) for batch in batches)
    assert offsets(log.scan()) == [(0, 1), (1, 1), (2, 2)]


def test_reads_of_the_tail_return_the_batches_themselves(tmp_path: Path) -> None:
    """A Fetch of a follower that keeps up costs neither a read nor a copy."""
    log = FileReplicatedLog.open(tmp_path)
    batches = some_batches(1, 1)
    log.append(batches)

    assert log.read(1, 1)[0] is batches[1]


# Segments -----------------------------------------------------------------------------------------


def test_a_segment_that_would_grow_too_large_is_closed_first(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    for batch in some_batches(*[1] * 12, size=200):
        log.append([batch])
    log.flush()

    assert names_in(tmp_path, "*.log") == [SEGMENT % n for n in (0, 3, 6, 9)]
    assert names_in(tmp_path, "*.snapshot") == [f"{n:020d}.snapshot" for n in (3, 6, 9)]
    assert names_in(tmp_path, "*.index") == [f"{n:020d}.index" for n in (0, 3, 6)]
    assert {p.stat().st_size for p in tmp_path.glob("*.log")} == {3 * a_batch(0, size=200).size}


def test_a_batch_larger_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    log.append([a_batch(0, size=5_000)])
    log.append([a_batch(1)])
    log.append([a_batch(2, size=5_000)])

    assert names_in(tmp_path, "*.log") == [SEGMENT % n for n in (0, 1, 2)]
    assert offsets(read_all(log)) == [(0, 1), (1, 1), (2, 1)]


def test_an_old_segment_is_closed_by_the_timestamps_of_its_batches(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_ms=1_000)
    for offset, age in enumerate((0, 1_000, 1_001, 1_002, 2_001)):
        log.append([a_batch(offset, timestamp=TIMESTAMP + age)])

    assert names_in(tmp_path, "*.log") == [SEGMENT % 0, SEGMENT % 2]


def test_a_closed_segment_is_left_as_kafka_leaves_it(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=20_000, reserve_bytes=1 << 20)
    for batch in some_batches(*[1] * 300, size=200):
        log.append([batch])
        if batch.base_offset % 40 == 0:
            log.flush()
    log.close()

    first = tmp_path / (SEGMENT % 0)
    assert first.with_suffix(".index").stat().st_size == 8 * (first.stat().st_size // 4_400)
    assert first.with_suffix(".timeindex").stat().st_size == 12  # all batches have one timestamp
    assert (tmp_path / f"{300:020d}.snapshot").read_bytes().hex() == "000148674bc700000000"
    assert max(path.stat().st_blocks for path in tmp_path.glob("*.log")) * 512 < 1 << 16


def test_new_files_have_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL, file_mode=0o640)
    fill(log, *[1] * 30)
    store_snapshot(log, 1, 1)
    log.close()

    modes = {path.suffix: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes.pop(".checkpoint") == 0o440
    assert set(modes.values()) == {0o640}


def test_a_segment_larger_than_a_position_can_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="segment_bytes=2147483648"):
        FileReplicatedLog.open(tmp_path, segment_bytes=1 << 31)


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")

    with pytest.raises(StorageError, match="symbolic link"):
        FileReplicatedLog.open(tmp_path / "link")


def test_many_segments_need_few_descriptors(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL, tail_bytes=0)
    before = len(os.listdir("/proc/self/fd"))
    fill(log, *[1] * 400)
    log.flush()
    read_all(log, 1)

    assert len(list(tmp_path.glob("*.log"))) > 30
    assert len(os.listdir("/proc/self/fd")) <= before


# Flushing -----------------------------------------------------------------------------------------


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


def test_what_is_found_at_start_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process leaves what it appended to the kernel, and a machine that stops later may still lose it."""
    log = FileReplicatedLog.open(new_directory(tmp_path / "log"), segment_bytes=SMALL)
    fill(log, *[1] * 20)
    synced = synced_files(monkeypatch)
    again = FileReplicatedLog.open(tmp_path / "log", segment_bytes=SMALL)

    assert again.flushed_offset == 20
    assert {path.name for path in (tmp_path / "log").glob("*.log")} | {"log"} <= set(synced)


def test_a_full_disk_ends_the_use_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FileReplicatedLog.open(tmp_path)
    fill(log, 1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match=r"cannot append to .*00\.log: No space left on device"):
        fill(log, 1)
    monkeypatch.undo()
    with pytest.raises(StorageError, match="cannot be used any more"):
        fill(log, 1)
    log.close()
    assert FileReplicatedLog.open(tmp_path).end_offset == 1


# Seldom -------------------------------------------------------------------------------------------


def test_deleted_segments_and_snapshots_are_gone_after_the_next_flush(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    for batch in some_batches(*[1] * 12, size=200):
        log.append([batch])
    log.flush()
    store_snapshot(log, 2, 1)
    log.delete_before(store_snapshot(log, 7, 1))

    assert log.start_offset == 7
    assert log.epoch_starts()[0].start_offset == 7
    assert names_in(tmp_path, "*.log") == [SEGMENT % n for n in (0, 3, 6, 9)]
    log.flush()
    assert names_in(tmp_path, "*.log") == [SEGMENT % n for n in (6, 9)]
    assert names_in(tmp_path, "*.index") == [f"{6:020d}.index"]
    assert names_in(tmp_path, "*.checkpoint") == [f"{7:020d}-0000000001.checkpoint"]
    with pytest.raises(StorageError, match="below the start of the log, 7"):
        log.read(6, 1)
    log.close()
    assert FileReplicatedLog.open(tmp_path).start_offset == 7


def test_a_truncation_removes_what_stood_behind(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    for batch in some_batches(*[1] * 12, size=200):
        log.append([batch])

    assert log.truncate(4) == 4
    assert names_in(tmp_path, "*.log") == [SEGMENT % n for n in (0, 3)]
    assert names_in(tmp_path, "*.snapshot") == [f"{3:020d}.snapshot"]
    assert names_in(tmp_path, "*.index") == [f"{0:020d}.index"]
    fill(log, 2)
    log.close()
    assert offsets(read_all(FileReplicatedLog.open(tmp_path))) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2)]


def test_an_installed_snapshot_leaves_one_empty_segment(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    for batch in some_batches(*[1] * 12, size=200):
        log.append([batch])
    log.install_snapshot(store_snapshot(log, 500, 3))

    assert names_in(tmp_path) == [
        f"{500:020d}-0000000003.checkpoint",
        SEGMENT % 500,
        "kraftlib-sync.json",
        "leader-epoch-checkpoint",
    ]
    assert (tmp_path / (SEGMENT % 500)).stat().st_size == 0


def test_a_read_of_damaged_bytes_says_where_they_are(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, tail_bytes=0)
    fill(log, 1, 1, 1)
    position = a_batch(0).size
    with (tmp_path / (SEGMENT % 0)).open("r+b") as file:
        file.seek(position + 70)
        file.write(b"?")

    assert offsets(log.read(0, 10_000)) == [(0, 1)]
    with pytest.raises(CorruptBatchError) as caught:
        log.read(1, 10_000)
    assert caught.value.position == position


def test_control_batches_that_tell_of_voters_are_kept_from_the_scan(tmp_path: Path) -> None:
    source = Path(__file__).parent.parent / "data" / "kafka-4.3.1" / "n4" / "__cluster_metadata-0"
    log = FileReplicatedLog.open(copy_of(source, tmp_path / "copy"))

    telling = [b.base_offset for b in log.scan() if b.is_control and tells_of_voters(b)]
    assert telling
    assert [b.base_offset for b in log.control_batches()] == telling


@pytest.mark.parametrize("crash_at", range(12))
def test_a_stop_without_close_loses_nothing_that_was_written(crash_at: int, tmp_path: Path) -> None:
    """A killed process, at any point of a life: the kernel has the bytes."""
    log = FileReplicatedLog.open(
        tmp_path / "log" if (tmp_path / "log").mkdir() is None else tmp_path, segment_bytes=SMALL
    )
    life: list[Callable[[], object]] = [
        lambda: fill(log, 1, 1),
        lambda: log.append(some_batches(*[1] * 2, base_offset=2, size=600)),
        log.flush,
        lambda: log.append(some_batches(*[2] * 2, base_offset=4, size=600)),
        lambda: log.truncate(5),
        lambda: log.begin_epoch(3, 5),
        lambda: log.append(some_batches(*[3] * 3, base_offset=5, size=600)),
        lambda: store_snapshot(log, 6, 3),
        lambda: log.delete_before(OffsetAndEpoch(offset=6, epoch=3)),
        log.flush,
        lambda: log.install_snapshot(store_snapshot(log, 100, 4)),
        lambda: fill(log, 5),
    ]
    for step in life[: crash_at + 1]:
        step()

    again = FileReplicatedLog.open(copy_of(tmp_path / "log", tmp_path / "copy"), segment_bytes=SMALL)
    assert again.end_offset == log.end_offset
    assert again.start_offset <= log.start_offset
    assert [b for b in read_all(again) if b.base_offset >= log.start_offset] == read_all(log)
    assert again.snapshots() == log.snapshots()


def test_what_was_accepted_is_written_with_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(tmp_path, size=1 << 20)
    log = FileReplicatedLog.open(tmp_path, reserve=reserve)
    assert not log.is_full
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, position: int) -> int:
        if (tmp_path / "kraftlib-reserve.bin").exists():
            pwrite(descriptor, data[:7], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr("kraftlib.storage.log.free_bytes", lambda directory: 0)
    fill(log, 1, 1)
    log.flush()

    assert log.is_full
    monkeypatch.undo()
    log.look_at_space()
    assert not log.is_full
    assert (tmp_path / "kraftlib-reserve.bin").stat().st_size == 1 << 20
    log.close()
    assert FileReplicatedLog.open(tmp_path).end_offset == 2
