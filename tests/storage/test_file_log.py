from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.errors import ConfigError, CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import files
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.log.prefix import tells_of_voters
from kraftlib.storage.reserve import Reserve, is_full
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


def when_full(directory: Path, monkeypatch: pytest.MonkeyPatch, *, of: Callable[[str], bool]) -> None:
    """Let the disk have no space for these files until the reserve is given back."""
    create, write_at = files.create, files.write_at

    def refuse(path: str) -> None:
        if of(path) and (directory / "kraftlib-reserve.bin").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def creating(path: Path, *, mode: int) -> int:
        with files.storage_errors("create", path):
            refuse(path.name)
        return create(path, mode=mode)

    def writing(descriptor: int, data: bytes, position: int) -> None:
        refuse(os.readlink(f"/proc/self/fd/{descriptor}"))
        write_at(descriptor, data, position)

    monkeypatch.setattr(files, "create", creating)
    monkeypatch.setattr(files, "write_at", writing)


def test_the_end_of_a_segment_on_a_full_disk_costs_its_caches_and_no_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of the segments are reserved ahead: only new small files find no space."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL, reserve=Reserve(tmp_path, size=1 << 20))
    when_full(tmp_path, monkeypatch, of=lambda path: path.endswith((".index.tmp", ".timeindex.tmp", ".snapshot.tmp")))
    for batch in some_batches(*[1] * 8, size=200):
        log.append([batch])
        log.flush()

    assert log.flushed_offset == 8
    assert (tmp_path / "kraftlib-reserve.bin").exists()
    monkeypatch.undo()
    log.close()
    assert [batch.base_offset for batch in FileReplicatedLog.open(tmp_path).scan()] == list(range(8))


def test_the_next_segment_is_made_from_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL, reserve=Reserve(tmp_path, size=1 << 20))
    when_full(tmp_path, monkeypatch, of=lambda path: path.endswith(".log"))
    log.append(some_batches(*[1] * 3, size=200))
    log.append(some_batches(1, base_offset=3, size=200))

    assert not (tmp_path / "kraftlib-reserve.bin").exists()
    assert log.flush() == 4
    assert names_in(tmp_path, "*.log") == [SEGMENT % 0, SEGMENT % 3]


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


def test_an_append_goes_on_with_space_that_a_flush_has_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk thread found the disk full at the same moment, and was the first to give the reserve back."""
    reserve = Reserve(tmp_path, size=1 << 20)
    log = FileReplicatedLog.open(tmp_path, reserve=reserve)
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, position: int) -> int:
        if reserve.release():
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", full)
    fill(log, 1, 1)
    monkeypatch.undo()
    log.close()

    again = FileReplicatedLog.open(tmp_path)
    assert again.end_offset == log.end_offset > 0


def test_a_snapshot_does_not_take_the_space_that_the_reserve_has_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append found the disk full that the snapshot was filling; the next one would find no reserve any more."""
    reserve = Reserve(tmp_path, size=1 << 20)
    log = FileReplicatedLog.open(tmp_path, reserve=reserve)
    fill(log, 1, 1)
    sink = log.create_snapshot(OffsetAndEpoch(offset=1, epoch=1))
    sink.write(b"some")
    reserve.release()
    monkeypatch.setattr("kraftlib.storage.reserve.free_bytes", lambda directory: (1 << 20) + 1)

    with pytest.raises(StorageError, match="No space left on device apart from the reserve") as raised:
        sink.write(b"more")
    assert is_full(raised.value)
    sink.abort()
    assert names_in(tmp_path, "*.part") == []

    monkeypatch.undo()
    store_snapshot(log, 1, 1)
    assert len(log.snapshots()) == 1


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
    monkeypatch.setattr("kraftlib.storage.log.space.free_bytes", lambda directory: 0)
    fill(log, 1, 1)
    log.flush()

    assert log.is_full
    monkeypatch.undo()
    log.look_at_space()
    assert not log.is_full
    assert (tmp_path / "kraftlib-reserve.bin").stat().st_size == 1 << 20
    log.close()
    assert FileReplicatedLog.open(tmp_path).end_offset == 2
