"""FetchSnapshot, both sides: rpcs.md section 8."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import (
    AdvanceHighWatermark,
    DeleteBefore,
    DropSnapshotDownload,
    FlushLog,
    InstallSnapshot,
    SendRequest,
    SendSnapshotChunk,
    WriteSnapshotChunk,
)
from kraftlib.consensus.events import (
    RetentionDue,
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotInstalled,
    SnapshotRefused,
    TimeoutReached,
)
from kraftlib.consensus.replica import Replica
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, LeaderAndEpoch, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tests.consensus.build import (
    ask,
    fetch_response,
    follower,
    leader,
    log_view,
    outstanding_to,
    partition_of,
    reply,
    requests,
    tell,
    voter_set,
)

SNAPSHOT = OffsetAndEpoch(offset=10, epoch=3)


def snapshot_request(
    snapshot_id: OffsetAndEpoch, *, epoch: int, position: int = 0, topic: str = METADATA_TOPIC
) -> FetchSnapshotRequest:
    """A FetchSnapshot of replica 2."""
    request = FetchSnapshotRequest
    partition = request.PartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=request.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
    )
    topics = (request.TopicSnapshot(name=topic, partitions=(partition,)),)
    return request(cluster_id="cluster", replica_id=2, max_bytes=1_000, topics=topics)


def chunk(
    data: bytes, *, position: int = 0, size: int = 8, snapshot_id: OffsetAndEpoch = SNAPSHOT, error: int = 0
) -> FetchSnapshotResponse:
    """A slice of a snapshot from leader 2 of epoch 5."""
    response = FetchSnapshotResponse
    partition = response.PartitionSnapshot(
        error_code=error,
        snapshot_id=response.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        current_leader=response.LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
        size=size,
        position=position,
        unaligned_records=data,
    )
    return response(topics=(response.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),))


def downloading() -> Replica:
    """A follower of 2 that was just told to fetch a snapshot."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    assert isinstance(outstanding_to(core, 2).request, FetchSnapshotRequest)
    return core


def kinds(actions: list[Any]) -> list[type]:
    """Classes of actions, requests by their message."""
    return [type(action.request) if isinstance(action, SendRequest) else type(action) for action in actions]


def test_a_leader_sends_a_slice_of_what_it_has() -> None:
    """The executor has the file; the core says which part of it."""
    log = log_view(3, 3, start=8, snapshots=(SNAPSHOT,), voters=voter_set(1, 2, 3))
    core = leader(log=log)
    actions = tell(core, snapshot_request(SNAPSHOT, epoch=core.epoch, position=100))
    sent = next(action for action in actions if isinstance(action, SendSnapshotChunk))

    assert (sent.request_id, sent.snapshot_id, sent.position, sent.max_bytes) == (77, SNAPSHOT, 100, 1_000)


@pytest.mark.parametrize(
    ("snapshot_id", "epoch_shift", "position", "topic", "error"),
    [
        (OffsetAndEpoch(offset=11, epoch=3), 0, 0, METADATA_TOPIC, ErrorCode.SNAPSHOT_NOT_FOUND),
        (BOOTSTRAP_SNAPSHOT, 0, 0, METADATA_TOPIC, ErrorCode.SNAPSHOT_NOT_FOUND),
        (SNAPSHOT, 0, -1, METADATA_TOPIC, ErrorCode.POSITION_OUT_OF_RANGE),
        (SNAPSHOT, -1, 0, METADATA_TOPIC, ErrorCode.FENCED_LEADER_EPOCH),
        (SNAPSHOT, 1, 0, METADATA_TOPIC, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (SNAPSHOT, 0, 0, "other", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_error_reaches_the_asker_with_empty_records(
    snapshot_id: OffsetAndEpoch, epoch_shift: int, position: int, topic: str, error: ErrorCode
) -> None:
    """Not null: Kafka's own errors fail on that and reach nobody."""
    log = log_view(3, 3, start=8, snapshots=(BOOTSTRAP_SNAPSHOT, SNAPSHOT), voters=voter_set(1, 2, 3))
    core = leader(log=log)
    request = snapshot_request(snapshot_id, epoch=core.epoch + epoch_shift, position=position, topic=topic)
    partition = partition_of(ask(core, request))

    assert (partition.error_code, partition.unaligned_records) == (error, b"")


def test_a_snapshot_that_was_just_frozen_may_be_fetched() -> None:
    """SnapshotCreated makes it known."""
    core = leader()
    core.handle(SnapshotCreated(OffsetAndEpoch(offset=1, epoch=1)), core.state.now_ms)

    assert core.state.log.latest_snapshot == OffsetAndEpoch(offset=1, epoch=1)


def test_a_download_goes_chunk_by_chunk_and_is_installed_as_a_whole() -> None:
    """The next request waits until the last bytes are written; the log begins anew behind the snapshot."""
    core = downloading()
    assert kinds(reply(core, 2, chunk(b"1234"))) == [WriteSnapshotChunk]
    actions = core.handle(SnapshotChunkWritten(SNAPSHOT, 4), core.state.now_ms)
    assert partition_of(actions[0].request).position == 4  # type: ignore[union-attr]
    assert kinds(reply(core, 2, chunk(b"5678", position=4))) == [WriteSnapshotChunk]
    assert kinds(core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms)) == [InstallSnapshot]
    controls = (KRaftVersionRecord(kraft_version=1), voter_set(1, 2, 3).to_record())
    actions = core.handle(SnapshotInstalled(SNAPSHOT, controls), core.state.now_ms)

    assert kinds(actions) == [AdvanceHighWatermark, FetchRequest]
    assert (core.high_watermark, core.state.log.end) == (10, SNAPSHOT)
    assert core.kraft_version == 1


@pytest.mark.parametrize(
    "response",
    [
        chunk(b"1234", position=4),
        chunk(b"1234", snapshot_id=OffsetAndEpoch(offset=10, epoch=4)),
        chunk(b"1234", size=3),
        chunk(b"1234", size=-1),
        chunk(b""),
    ],
    ids=["other position", "other snapshot", "more than the size", "negative size", "nothing"],
)
def test_a_chunk_that_does_not_fit_drops_the_download_and_stops_nobody(response: FetchSnapshotResponse) -> None:
    """Kafka stops; what a peer sends never stops a replica of ours (reliability N10)."""
    core = downloading()
    actions = reply(core, 2, response)

    assert DropSnapshotDownload in kinds(actions)
    assert core.state.refused == {"foreign snapshot chunk": 1}


def test_a_snapshot_that_is_gone_is_asked_for_anew_by_fetch() -> None:
    """SNAPSHOT_NOT_FOUND of ours, or the -1 that is all a Kafka leader can say."""
    for response in (chunk(b"", error=ErrorCode.SNAPSHOT_NOT_FOUND), FetchSnapshotResponse(error_code=-1)):
        core = downloading()
        assert DropSnapshotDownload in kinds(reply(core, 2, response))
        actions = core.handle(TimeoutReached(), core.state.now_ms + 50)
        asked = [action for action in actions if isinstance(action, SendRequest)]
        waiting = [request.request for request in core.state.connections._outstanding.values()]

        assert [type(request) for request in [*waiting] or asked] == [FetchRequest]


def test_a_damaged_snapshot_replaces_nothing() -> None:
    """It is refused as a whole; Fetch decides what to do next (reliability N4)."""
    core = downloading()
    reply(core, 2, chunk(b"12345678"))
    core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms)
    core.handle(SnapshotRefused(SNAPSHOT, "no footer"), core.state.now_ms)

    assert core.state.log.end == OffsetAndEpoch(offset=1, epoch=1)
    assert core.state.refused == {"damaged snapshot": 1}


def test_a_snapshot_behind_what_is_committed_is_refused() -> None:
    """It would take back what was acknowledged."""
    core = follower(1, 1, 1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=3))
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(2, 1)))

    assert core.state.refused == {"old snapshot": 1}


def test_an_observer_whose_leader_vanishes_in_a_download_asks_others_for_a_new_one() -> None:
    """It has no fetch timer to tell it, and would wait for ever (found by simulation)."""
    core = follower(1, epoch=5, leader_id=2, own_id=9, request_timeout_ms=600)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    asked: list[int] = []
    for _ in range(12):
        actions = core.handle(TimeoutReached(), core.deadline_ms() or 0)
        asked += [request.destination for request in requests(actions, FetchRequest)]
        if asked:
            break
    assert asked, "it asks nobody but its leader"
    number = asked[0]
    reply(core, number, fetch_response(epoch=6, leader_id=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))

    assert core.leader_and_epoch == LeaderAndEpoch(3, 6)


# Retention -----------------------------------------------------------------------------------------------------------


def test_what_a_committed_snapshot_replaces_goes_from_the_view_and_then_from_the_log() -> None:
    replica = leader(1, 1, 1, 1)
    state = replica.state
    state.committed_offset = 3
    for offset in (1, 3, 4):
        replica.handle(SnapshotCreated(OffsetAndEpoch(offset=offset, epoch=1)), state.now_ms)
    third = OffsetAndEpoch(offset=3, epoch=1)
    actions = replica.handle(RetentionDue(third), state.now_ms)

    assert actions[:2] == [DeleteBefore(third), FlushLog(state.log.log_version)]
    assert (state.log.start_offset, [kept.offset for kept in state.log.snapshots]) == (3, [3, 4])


@pytest.mark.parametrize("offset", [1, 2, 4], ids=["it is the first", "it is not there", "it is not committed"])
def test_nothing_is_deleted_where_nothing_may_go(offset: int) -> None:
    replica = leader(1, 1, 1, 1)
    replica.state.committed_offset = 3
    for stored in (1, 3, 4):
        replica.handle(SnapshotCreated(OffsetAndEpoch(offset=stored, epoch=1)), 0)
    actions = replica.handle(RetentionDue(OffsetAndEpoch(offset=offset, epoch=1)), 0)

    assert not [action for action in actions if isinstance(action, DeleteBefore)]
    assert replica.state.log.start_offset == 0
