"""A download counts only as a whole, is verified as it comes, and outlives the process."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import InvariantError, StorageError
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.runtime.snapshots.sending import SnapshotSender
from kraftlib.runtime.snapshots.transfer import LogSnapshots
from kraftlib.storage import files, names
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.storage.snapshots.download_files import DownloadFiles
from kraftlib.types import OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from tests.runtime.fakes import snapshot_bytes
from tests.runtime.snapshots.test_writing import SNAPSHOT, VOTERS, filled_log


@pytest.fixture
def log() -> MemoryReplicatedLog:
    return filled_log()


def put(snapshots: LogSnapshots, position: int, data: bytes, *, size: int = 1_000) -> Any:
    return snapshots.write(act.WriteSnapshotChunk(SNAPSHOT, position, data, size=size))


def download(snapshots: LogSnapshots, data: bytes, *, step: int = 50, start: int = 0) -> Any:
    """Write `data` from `start` on, in steps; return what the last one has come to."""
    outcome: Any = None
    for position in range(start, len(data), step):
        outcome = put(snapshots, position, data[position : position + step], size=len(data))
        if outcome != ev.SnapshotChunkWritten(SNAPSHOT, min(position + step, len(data))):
            break
    return outcome


def test_a_whole_download_replaces_the_log(log: MemoryReplicatedLog) -> None:
    snapshots = LogSnapshots(log)
    download(snapshots, snapshot_bytes(b"x", b"y"))
    assert log.snapshots() == []
    installed = snapshots.install(SNAPSHOT)

    assert installed == ev.SnapshotInstalled(SNAPSHOT, ())
    assert (log.start_offset, log.end_offset, list(log.snapshots())) == (10, 10, [SNAPSHOT])


def test_voters_and_version_of_the_header_are_told(log: MemoryReplicatedLog) -> None:
    snapshots = LogSnapshots(log)
    voters = VOTERS.to_record()
    download(snapshots, snapshot_bytes(b"x", kraft_version=1, voters=voters))
    installed = snapshots.install(SNAPSHOT)

    assert isinstance(installed, ev.SnapshotInstalled)
    version, told = installed.controls
    assert isinstance(version, KRaftVersionRecord)
    assert version.kraft_version == 1
    assert isinstance(told, VotersRecord)
    assert VoterSet.from_record(told) == VOTERS


@pytest.mark.parametrize("damage", ["flipped", "cut", "other epoch", "trailing"])
def test_a_damaged_download_is_refused_and_nothing_is_replaced(log: MemoryReplicatedLog, damage: str) -> None:
    data = bytearray(snapshot_bytes(b"x" * 100, epoch=3 if damage == "other epoch" else 2))
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    elif damage == "cut":
        del data[-5:]
    elif damage == "trailing":
        data += b"more"
    snapshots = LogSnapshots(log)
    refused = download(snapshots, bytes(data))
    if not isinstance(refused, ev.SnapshotRefused):
        refused = snapshots.install(SNAPSHOT)

    assert isinstance(refused, ev.SnapshotRefused)
    assert (log.start_offset, log.end_offset, list(log.snapshots())) == (0, 12, [])
    download(snapshots, snapshot_bytes(b"x"))
    assert isinstance(snapshots.install(SNAPSHOT), ev.SnapshotInstalled), "and it can be tried again"


def test_a_full_disk_drops_the_download_and_stops_nobody(
    log: MemoryReplicatedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has come gives its space back, and the leader is asked again later."""
    snapshots = LogSnapshots(log, downloads=DownloadFiles(tmp_path, frozen=lambda snapshot_id: None))
    put(snapshots, 0, snapshot_bytes(b"x")[:50])

    def full(descriptor: int, data: bytes, position: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_at", full)
        refused = put(snapshots, 50, b"more")
    assert isinstance(refused, ev.SnapshotRefused)
    assert "No space left" in refused.reason
    assert list(tmp_path.iterdir()) == []
    download(snapshots, snapshot_bytes(b"x"))


@pytest.mark.parametrize("call", ["create", "write_at", "rename"])
def test_a_download_that_finds_no_space_for_its_note_or_its_file_stops_nobody(
    call: str, log: MemoryReplicatedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = LogSnapshots(log, downloads=DownloadFiles(tmp_path, frozen=lambda snapshot_id: None))

    def full(*_: object, **__: object) -> None:
        raise StorageError("cannot write") from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, call, full)
        refused = put(snapshots, 0, snapshot_bytes(b"x"))
    assert isinstance(refused, ev.SnapshotRefused)
    assert refused.lacks_space
    assert list(tmp_path.iterdir()) == []
    download(snapshots, snapshot_bytes(b"x"))


def test_a_download_begins_anew_at_position_0(log: MemoryReplicatedLog) -> None:
    snapshots = LogSnapshots(log)
    put(snapshots, 0, b"garbage")
    download(snapshots, snapshot_bytes(b"x"))
    assert isinstance(snapshots.install(SNAPSHOT), ev.SnapshotInstalled)


def test_chunks_that_do_not_continue_are_our_own_bug(log: MemoryReplicatedLog) -> None:
    snapshots = LogSnapshots(log)
    put(snapshots, 0, b"12345")
    with pytest.raises(InvariantError):
        put(snapshots, 7, b"8")
    snapshots.drop()
    with pytest.raises(InvariantError):
        put(snapshots, 5, b"6")
    snapshots.drop()


def test_damage_is_noticed_with_the_chunk_that_has_it(log: MemoryReplicatedLog) -> None:
    data = bytearray(snapshot_bytes(*(b"x" * 100 for _ in range(50)), epoch=2))
    data[60] ^= 1
    snapshots = LogSnapshots(log)
    assert isinstance(put(snapshots, 0, bytes(data[:200]), size=len(data)), ev.SnapshotRefused)
    with pytest.raises(InvariantError):
        put(snapshots, 200, bytes(data[200:]), size=len(data))


# Over lives -----------------------------------------------------------------------------------------------------------


class Life:
    """A log in files, and the downloads beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = FileReplicatedLog.open(directory)
        self.snapshots = LogSnapshots(self.log, downloads=DownloadFiles(directory, frozen=self.log.adopt_snapshot))
        self.kept = self.snapshots.kept()

    def again(self) -> Life:
        """End as a killed process does, and begin anew."""
        return Life(self.directory)

    @property
    def files(self) -> set[str]:
        found = {path.name for path in self.directory.iterdir()}
        return {name for name in found if ".checkpoint" in name or name == names.DOWNLOAD}


DATA = snapshot_bytes(*(b"%d" % number for number in range(20_000)), batch_bytes=2_000)


def test_a_download_takes_the_place_of_a_snapshot_of_our_own_that_was_frozen_meanwhile(tmp_path: Path) -> None:
    """Ours may be of a wrong state, which the download is to heal; and replicas take snapshots at the same offsets."""
    life, good = Life(tmp_path), snapshot_bytes(b"good")
    for batch in filled_log().read(0, 1_000_000):
        life.log.append([batch])
    life.log.flush()
    put(life.snapshots, 0, good[:50], size=len(good))
    own = life.log.create_snapshot(SNAPSHOT)
    own.write(snapshot_bytes(b"wrong"))
    own.freeze()
    put(life.snapshots, 50, good[50:], size=len(good))
    adopted = life.snapshots.adopt(SNAPSHOT)

    assert isinstance(adopted, ev.SnapshotAdopted)
    assert (tmp_path / names.checkpoint_name(SNAPSHOT)).read_bytes() == good
    assert (list(life.log.snapshots()), life.log.start_offset, life.log.end_offset) == ([SNAPSHOT], 10, 12)


def test_a_download_that_finds_the_disk_full_leaves_our_own_snapshot_of_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core is told of no loss, and would go on to name it to others."""
    life, good, wrong = Life(tmp_path), snapshot_bytes(b"good"), snapshot_bytes(b"wrong")
    path = tmp_path / names.checkpoint_name(SNAPSHOT)
    own = life.log.create_snapshot(SNAPSHOT)
    own.write(wrong)
    own.freeze()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    put(life.snapshots, 0, good)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused = life.snapshots.install(SNAPSHOT)
    assert isinstance(refused, ev.SnapshotRefused)
    assert refused.lacks_space
    assert (list(life.log.snapshots()), path.read_bytes()) == ([SNAPSHOT], wrong)

    put(life.snapshots, 0, good)
    assert isinstance(life.snapshots.install(SNAPSHOT), ev.SnapshotInstalled)
    assert (list(life.log.snapshots()), path.read_bytes()) == ([SNAPSHOT], good)


def test_our_own_snapshot_that_is_frozen_amid_the_last_sync_of_a_download_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, good, fsync = Life(tmp_path), snapshot_bytes(b"good"), os.fsync
    own = life.log.create_snapshot(SNAPSHOT)
    own.write(snapshot_bytes(b"wrong"))

    def overtaken(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        own.freeze()
        fsync(descriptor)

    put(life.snapshots, 0, good)
    monkeypatch.setattr(os, "fsync", overtaken)
    assert isinstance(life.snapshots.install(SNAPSHOT), ev.SnapshotInstalled)
    assert (tmp_path / names.checkpoint_name(SNAPSHOT)).read_bytes() == good


@pytest.mark.parametrize("cut", [0, 1, 90, 5_000, 5_001, len(DATA) - 1])
def test_a_later_life_goes_on_behind_the_last_whole_batch(tmp_path: Path, cut: int) -> None:
    first = Life(tmp_path)
    assert first.kept is None
    download(first.snapshots, DATA[:cut], step=700)
    second = first.again()
    if cut < 90:
        assert second.kept is None, "not even its header has come"
        position = 0
    else:
        assert second.kept is not None
        position = second.kept.position
        assert 0 <= cut - position < 2_200
        assert (second.kept.source_epoch, second.kept.snapshot_id) == (None, SNAPSHOT)
    download(second.snapshots, DATA, step=700, start=position)
    assert isinstance(second.snapshots.install(SNAPSHOT), ev.SnapshotInstalled)
    assert (second.log.start_offset, list(second.log.snapshots())) == (10, [SNAPSHOT])
    assert (tmp_path / names.checkpoint_name(SNAPSHOT)).read_bytes() == DATA
    assert second.files == {names.checkpoint_name(SNAPSHOT)}


def test_a_kept_download_that_was_damaged_meanwhile_begins_anew(tmp_path: Path) -> None:
    first = Life(tmp_path)
    download(first.snapshots, DATA[:5_000])
    part = tmp_path / names.download_name(SNAPSHOT)
    data = bytearray(part.read_bytes())
    data[1_000] ^= 1
    part.write_bytes(data)
    second = first.again()
    assert (second.kept, second.files) == (None, set())


def test_a_kept_download_that_the_disk_has_lost_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Life(tmp_path)
    download(first.snapshots, DATA[:5_000])
    lost, pread = (tmp_path / names.download_name(SNAPSHOT)).stat().st_ino, os.pread

    def failing(descriptor: int, size: int, position: int) -> bytes:
        if os.fstat(descriptor).st_ino == lost:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", failing)
    second = first.again()
    assert (second.kept, second.files) == (None, set())


def broken_note(directory: Path) -> None:
    (directory / names.DOWNLOAD).write_text("{")


def newer_note(directory: Path) -> None:
    note = json.loads((directory / names.DOWNLOAD).read_text())
    (directory / names.DOWNLOAD).write_text(json.dumps({**note, "version": 2}))


def other_note(directory: Path) -> None:
    note = json.loads((directory / names.DOWNLOAD).read_text())
    (directory / names.DOWNLOAD).write_text(json.dumps({**note, "offset": 11}))


@pytest.mark.parametrize(
    "harm",
    [
        lambda directory: (directory / names.DOWNLOAD).unlink(),
        lambda directory: (directory / names.download_name(SNAPSHOT)).unlink(),
        lambda directory: (directory / names.checkpoint_name(SNAPSHOT)).write_bytes(DATA),
        broken_note,
        newer_note,
        other_note,
    ],
    ids=["no note", "no part", "it exists", "broken note", "newer note", "another's note"],
)
def test_what_cannot_be_gone_on_with_is_removed(tmp_path: Path, harm: Callable[[Path], Any]) -> None:
    first = Life(tmp_path)
    download(first.snapshots, DATA[:5_000])
    harm(tmp_path)
    second = first.again()
    assert second.kept is None
    assert second.files <= {names.checkpoint_name(SNAPSHOT)}


def test_another_download_takes_the_place_of_the_first(tmp_path: Path) -> None:
    life = Life(tmp_path)
    download(life.snapshots, DATA[:5_000])
    other = OffsetAndEpoch(offset=12, epoch=2)
    life.snapshots.write(act.WriteSnapshotChunk(other, 0, DATA[:100], size=len(DATA)))
    assert life.files == {names.DOWNLOAD, names.download_name(other)}
    life.snapshots.drop()
    assert life.files == set()


# Hashes ---------------------------------------------------------------------------------------------------------------


def test_both_sides_hash_the_same_bytes(log: MemoryReplicatedLog) -> None:
    log.store_snapshot(SNAPSHOT, DATA)
    answers: list[Any] = []
    here, there = LogSnapshots(MemoryReplicatedLog()), SnapshotSender(log)
    download(here, DATA[:5_000])
    here.hash_download(act.HashDownload(SNAPSHOT, 5_000), answers.append)
    there.hash(act.SendSnapshotHash(1, SNAPSHOT, 5_000), answers.append)
    expected = hashlib.sha256(DATA[:5_000]).digest()

    assert answers[0] == ev.DownloadHashed(SNAPSHOT, 5_000, expected)
    assert (answers[1].error_code, answers[1].size, answers[1].digest) == (0, len(DATA), expected)


def test_what_cannot_be_hashed_is_said_so(log: MemoryReplicatedLog) -> None:
    answers: list[Any] = []
    LogSnapshots(log).hash_download(act.HashDownload(SNAPSHOT, 5), answers.append)
    SnapshotSender(log).hash(act.SendSnapshotHash(1, SNAPSHOT, 5), answers.append)
    log.store_snapshot(SNAPSHOT, b"12345")
    SnapshotSender(log).hash(act.SendSnapshotHash(1, SNAPSHOT, 6), answers.append)

    assert answers[0] == ev.DownloadHashed(SNAPSHOT, 5, b"")
    assert [answer.error_code for answer in answers[1:]] == [
        ErrorCode.SNAPSHOT_NOT_FOUND,
        ErrorCode.POSITION_OUT_OF_RANGE,
    ]
