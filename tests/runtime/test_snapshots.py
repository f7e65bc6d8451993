"""A download counts only as a whole; a snapshot is planned before the loop goes on and written beside it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.errors import ConfigError, InvariantError, RecordTooLargeError
from kraftlib.records.batch import encode_batch
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.runtime.snapshots import LogSnapshots, plan_snapshot
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse

SNAPSHOT = OffsetAndEpoch(epoch=2, offset=10)
VOTERS = VoterSet.of([Voter(key=ReplicaKey(1, UUID(int=500)), endpoints={"CONTROLLER": Endpoint("host", 9)})])


def snapshot_bytes(*values: bytes, epoch: int = 2, **header: Any) -> bytes:
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=epoch, last_contained_log_timestamp=55, **header)
    writer.append(values)
    writer.freeze()
    return bytes(out)


@pytest.fixture
def log() -> MemoryReplicatedLog:
    log = MemoryReplicatedLog()
    for base in range(0, 12, 2):
        log.append([encode_batch([b"a", b"b"], timestamp_ms=100 + base, base_offset=base, epoch=1 + base // 6)])
    return log


def response() -> FetchSnapshotResponse:
    partition = FetchSnapshotResponse.PartitionSnapshot(
        index=0,
        snapshot_id=FetchSnapshotResponse.SnapshotId(end_offset=10, epoch=2),
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
        position=4,
    )
    return FetchSnapshotResponse(topics=(FetchSnapshotResponse.TopicSnapshot(name="t", partitions=(partition,)),))


def chunk(log: MemoryReplicatedLog, position: int, max_bytes: int) -> FetchSnapshotResponse.PartitionSnapshot:
    action = act.SendSnapshotChunk(1, response(), SNAPSHOT, position, max_bytes)
    return LogSnapshots(log).chunk(action).topics[0].partitions[0]


# To others ------------------------------------------------------------------------------------------------------------


def test_a_chunk_brings_size_and_bytes_and_keeps_the_rest(log: MemoryReplicatedLog) -> None:
    log.store_snapshot(SNAPSHOT, b"0123456789")
    partition = chunk(log, 4, 3)

    assert (partition.size, bytes(partition.unaligned_records), partition.error_code) == (10, b"456", 0)
    assert (partition.position, partition.current_leader.leader_epoch) == (4, 3)


def test_a_position_outside_the_file_and_a_snapshot_that_is_gone_are_errors(log: MemoryReplicatedLog) -> None:
    assert chunk(log, 0, 3).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    log.store_snapshot(SNAPSHOT, b"0123456789")
    assert chunk(log, 10, 3).error_code == ErrorCode.POSITION_OUT_OF_RANGE


# From the leader ------------------------------------------------------------------------------------------------------


def download(snapshots: LogSnapshots, data: bytes, *, step: int = 50) -> None:
    for position in range(0, len(data), step):
        piece = data[position : position + step]
        assert snapshots.write(SNAPSHOT, position, piece) == position + len(piece)


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
    download(snapshots, bytes(data))
    refused = snapshots.install(SNAPSHOT)

    assert isinstance(refused, ev.SnapshotRefused)
    assert (log.start_offset, log.end_offset, list(log.snapshots())) == (0, 12, [])
    download(snapshots, snapshot_bytes(b"x"))
    assert isinstance(snapshots.install(SNAPSHOT), ev.SnapshotInstalled), "and it can be tried again"


def test_a_download_begins_anew_at_position_0(log: MemoryReplicatedLog) -> None:
    snapshots = LogSnapshots(log)
    snapshots.write(SNAPSHOT, 0, b"garbage")
    download(snapshots, snapshot_bytes(b"x"))
    assert isinstance(snapshots.install(SNAPSHOT), ev.SnapshotInstalled)


def test_chunks_that_do_not_continue_are_our_own_bug(log: MemoryReplicatedLog) -> None:
    snapshots = LogSnapshots(log)
    snapshots.write(SNAPSHOT, 0, b"12345")
    with pytest.raises(InvariantError):
        snapshots.write(SNAPSHOT, 7, b"8")
    snapshots.drop()
    with pytest.raises(InvariantError):
        snapshots.write(SNAPSHOT, 5, b"6")
    snapshots.drop()


# Of our own -----------------------------------------------------------------------------------------------------------


def view(log: MemoryReplicatedLog) -> LogView:
    return LogView.build(end_offset=log.end_offset, epoch_starts=log.epoch_starts())


def test_a_planned_snapshot_is_written_with_place_and_time_of_its_last_record(log: MemoryReplicatedLog) -> None:
    plan = plan_snapshot(log, offset=8, high_watermark=12, view=view(log))
    plan.write(log, [b"x", b"y"])

    assert plan.snapshot_id == OffsetAndEpoch(epoch=2, offset=8)
    assert list(log.snapshots()) == [plan.snapshot_id]
    with SnapshotReader(log.open_snapshot(plan.snapshot_id), epoch=2) as reader:
        assert reader.header.last_contained_log_timestamp == 106
        assert [value for batch in reader.batches() for value in batch.values()] == [b"x", b"y"]


def test_a_dynamic_quorum_names_its_voters_as_they_were(log: MemoryReplicatedLog) -> None:
    seen = view(log)
    seen.kraft_version.add(1, 1)
    seen.voters.add(2, VOTERS)
    seen.voters.add(9, VoterSet())
    plan = plan_snapshot(log, offset=8, high_watermark=12, view=seen)

    assert plan.kraft_version == 1
    assert plan.voters is not None
    assert VoterSet.from_record(plan.voters) == VOTERS


@pytest.mark.parametrize(("offset", "message"), [(0, "from 1 to 10"), (12, "from 1 to 10"), (7, "in the midst of")])
def test_a_snapshot_ends_at_the_end_of_a_committed_batch(log: MemoryReplicatedLog, offset: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_snapshot(log, offset=offset, high_watermark=10, view=view(log))


def test_a_snapshot_that_cannot_be_written_leaves_nothing(log: MemoryReplicatedLog) -> None:
    plan = plan_snapshot(log, offset=8, high_watermark=12, view=view(log))
    with pytest.raises(RecordTooLargeError):
        plan.write(log, [b"x" * (9 << 20)])
    assert list(log.snapshots()) == []
