"""What the six protocols leave out: formatting, locks, holds, downloads, reserved space, damaged votes, torn tails.

Each is a function of a directory; with the protocols they reach every line from which storage changes a file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kraftlib.config import RaftConfig
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.holds_file import StoredHold, read_holds, write_holds
from kraftlib.storage.log.unsynced import Unsynced, note_unsynced
from kraftlib.storage.names import QUORUM_STATE
from kraftlib.storage.skips_file import Skip, read_skips, write_skips
from kraftlib.storage.snapshots.download_files import DownloadFiles, DownloadNote
from kraftlib.types import ElectionState, Endpoint, OffsetAndEpoch, OffsetRange
from tests.storage.builders import a_batch, snapshot_bytes, some_batches, store_whole_snapshot


def format_and_open(directory: Path) -> None:
    """A directory is formatted, once more after that was cut off, and opened."""
    home = directory / "new" / "home"
    format_directory(home, node_id=1, cluster_id="lives", standalone=Endpoint("127.0.0.1", 9_093))
    (home / "meta.properties").unlink()
    format_directory(home, node_id=1, cluster_id="lives", standalone=Endpoint("127.0.0.1", 9_093))
    config = RaftConfig(node_id=1, cluster_id="lives", directory=home)
    for _ in range(2):
        opened = open_directory(config)
        opened.elections.read()
        opened.log.append([a_batch(opened.log.end_offset)])
        opened.close()


def damaged_vote(directory: Path) -> None:
    """The election file is damaged where it lies, and the mirror stands in."""
    store = FileQuorumStateStore(directory)
    store.write(ElectionState(epoch=3, leader_id=2), kraft_version=1)
    whole = (directory / QUORUM_STATE).read_bytes()
    with open(directory / QUORUM_STATE, "r+b") as file:
        file.write(b"\0" * 20)
    assert FileQuorumStateStore(directory).read() == ElectionState(epoch=3, leader_id=2)
    assert (directory / QUORUM_STATE).read_bytes() == whole


def torn_tail_and_left_overs(directory: Path) -> None:
    """A process went down in the midst of an append and of a snapshot."""
    log = FileReplicatedLog.open(directory)
    log.append(some_batches(1, 1, 2))
    log.close()
    with open(directory / f"{0:020d}.log", "ab") as file:
        file.write(bytes(a_batch(3, 2, size=400).data[:200]))
    (directory / f"{5:020d}-{1:010d}-77.checkpoint.part").write_bytes(b"half")
    log = FileReplicatedLog.open(directory)
    assert log.end_offset == 3
    log.close()


def lost_sync_point(directory: Path) -> None:
    """The sync point is gone, and the tail is torn: only one of zeros may be cut."""
    log = FileReplicatedLog.open(directory)
    log.append(some_batches(1, 1, base_offset=log.end_offset))
    end_offset = log.end_offset
    log.close()
    FileQuorumStateStore(directory).write(ElectionState(epoch=1), kraft_version=1)
    (directory / "kraftlib-sync.json").unlink()
    with open(directory / f"{0:020d}.log", "ab") as file:
        file.write(bytes(100))
    log = FileReplicatedLog.open(directory)
    assert log.end_offset == end_offset
    log.close()


def sync_that_failed(directory: Path) -> None:
    """A sync failed in an earlier life: what it was for is written again."""
    log = FileReplicatedLog.open(directory)
    log.append(some_batches(1, 1, base_offset=log.end_offset))
    log.close()
    (directory / "kraftlib-unsynced.json").write_bytes(b'{"flushed_offset": 0}')
    FileReplicatedLog.open(directory).close()
    assert not (directory / "kraftlib-unsynced.json").exists()


def cut_that_failed(directory: Path) -> None:
    """A log was cut in an earlier life, which may not have reached the disk: a copy takes the place of the file."""
    log = FileReplicatedLog.open(directory)
    log.append(some_batches(1, 1, base_offset=log.end_offset))
    log.close()
    note_unsynced(directory, Unsynced(flushed_offset=log.end_offset, was_cut=True), file_mode=0o600)
    log = FileReplicatedLog.open(directory)
    assert not (directory / "kraftlib-unsynced.json").exists()
    log.append([a_batch(log.end_offset)])
    log.close()


def repaired_damage(directory: Path) -> None:
    """A damaged batch is fetched again and put back; a repair before it was given up."""
    log = FileReplicatedLog.open(directory, segment_bytes=1_000)
    if log.end_offset == 0:
        log.append(some_batches(1, 1, 1, size=200))
        log.flush()
        log.append([a_batch(3, size=900)])
    log.close()
    lost = a_batch(1, size=200)
    with open(directory / f"{0:020d}.log", "r+b") as file:
        file.seek(len(a_batch(0, size=200).data) + 100)
        file.write(b"\0" * 50)
    log = FileReplicatedLog.open(directory, keep_damage=True)
    assert log.find_damage(1) == (OffsetRange(1, 2),)
    log.close()
    log = FileReplicatedLog.open(directory, keep_damage=True)
    assert log.find_damage(1) == (OffsetRange(1, 2),)
    assert log.write_repair([lost])
    assert [batch.base_offset for batch in log.scan()] == [0, 1, 2, 3]
    log.close()
    log = FileReplicatedLog.open(directory)
    log.append([a_batch(4)])
    log.close()
    with open(directory / f"{3:020d}.log", "r+b") as file:
        file.seek(100)
        file.write(b"\0" * 50)
    log = FileReplicatedLog.open(directory, keep_damage=True)
    assert log.find_damage(3) == (OffsetRange(3, 4),)
    log.write_repair([a_batch(3, size=900)])
    log.close()


def reserved_space(directory: Path) -> None:
    """Space is reserved ahead of the end, and given back where a segment ends; several batches are one write."""
    log = FileReplicatedLog.open(directory, segment_bytes=2_000, reserve_bytes=1 << 16)
    for _ in range(4):
        log.append(some_batches(1, 1, 1, base_offset=log.end_offset, size=300))
        log.flush()
    log.append([a_batch(log.end_offset, size=3_000)])
    log.append([a_batch(log.end_offset, size=3_000)])
    log.close()


def given_up(directory: Path) -> None:
    """A log is closed with a full segment that was never flushed, for its disk failed."""
    log = FileReplicatedLog.open(directory, segment_bytes=1_000)
    log.append([a_batch(0, size=900)])
    log.append([a_batch(1, size=900)])
    log.install_snapshot(store_whole_snapshot(log, 9, 2))
    log.close()


def read_snapshots(directory: Path) -> None:
    """A snapshot is frozen twice, and read."""
    log = FileReplicatedLog.open(directory)
    log.append(some_batches(1, 1, 1))
    log.flush()
    snapshot_id = OffsetAndEpoch(offset=2, epoch=1)
    first, second = log.create_snapshot(snapshot_id), log.create_snapshot(snapshot_id)
    for sink in (first, second):
        sink.write(snapshot_bytes(snapshot_id))
        sink.freeze()
    source = log.open_snapshot(snapshot_id)
    assert source.read_at(0, 1 << 20) == snapshot_bytes(snapshot_id)
    source.close()
    log.close()


def download(directory: Path) -> None:
    """A snapshot is downloaded in two lives."""
    frozen: list[OffsetAndEpoch] = []
    files = DownloadFiles(directory, frozen=frozen.append)
    snapshot_id = OffsetAndEpoch(offset=12, epoch=3)
    data = snapshot_bytes(snapshot_id)
    sink = files.create(DownloadNote(snapshot_id=snapshot_id, size=len(data)))
    sink.write(data[:100])
    found = files.reopen()
    assert found is not None
    sink = found[1]
    sink.cut(50)
    sink.write(data[50:])
    sink.freeze()
    assert frozen == [snapshot_id]
    (directory / "kraftlib-download.json").write_bytes(b"{")
    assert files.reopen() is None
    sink = files.create(DownloadNote(snapshot_id=OffsetAndEpoch(offset=20, epoch=3), size=9))
    files.drop()
    sink.abort()


def holds(directory: Path) -> None:
    """A reader holds the log."""
    write_holds(directory, [StoredHold(name="feed", offset=7, max_bytes=100)])
    assert [hold.offset for hold in read_holds(directory)] == [7]


def skips(directory: Path) -> None:
    """An operator has skipped a record."""
    skip = Skip(offset=7, epoch=1, reason="why", at_ms=1)
    write_skips(directory, [skip])
    assert read_skips(directory) == [skip]


Life = Callable[[Path], None]

LIVES: dict[str, Life] = {
    life.__name__: life
    for life in (
        format_and_open,
        damaged_vote,
        torn_tail_and_left_overs,
        lost_sync_point,
        sync_that_failed,
        cut_that_failed,
        repaired_damage,
        reserved_space,
        given_up,
        read_snapshots,
        download,
        holds,
        skips,
    )
}
