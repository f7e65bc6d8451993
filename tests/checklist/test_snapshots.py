"""Checklist section 9: snapshots, as Kafka's KafkaRaftClientSnapshotTest pins them."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import (
    AdvanceHighWatermark,
    DropSnapshotDownload,
    InstallSnapshot,
    SendRecords,
    SendRequest,
    SendResponse,
    SendSnapshotChunk,
    WriteSnapshotChunk,
)
from kraftlib.consensus.events import (
    ResponseReceived,
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotInstalled,
    TimeoutReached,
)
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Role
from kraftlib.errors import ConfigError
from kraftlib.records.batch import encode_batch
from kraftlib.runtime.snapshots.sending import SnapshotSender
from kraftlib.runtime.snapshots.writing import plan_snapshot
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, LeaderAndEpoch, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tests.consensus.build import (
    ask,
    begin_request,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    log_view,
    outstanding_to,
    partition_of,
    place,
    reply,
    snapshot_chunk,
    tell,
    voter_set,
)
from tests.runtime.test_applier import Recorder, Rig


def snapshot(offset: int, epoch: int) -> OffsetAndEpoch:
    """The id of a snapshot."""
    return OffsetAndEpoch(offset=offset, epoch=epoch)


SNAPSHOT = snapshot(10, 1)


def log_behind_snapshot(*epochs: int, snapshots: tuple[OffsetAndEpoch, ...] = (SNAPSHOT,)) -> LogView:
    """A log that begins at the end of a snapshot."""
    return log_view(*epochs, start=10, snapshots=snapshots, voters=voter_set(1, 2, 3))


def judge(core: Replica, offset: int, last_epoch: int) -> tuple[str, Any]:
    """What a leader answers to a Fetch."""
    request = fetch_request(epoch=core.epoch, offset=offset, last_epoch=last_epoch)
    actions = tell(core, request, version=18)
    (answer,) = [action for action in actions if isinstance(action, SendResponse | SendRecords)]
    partition = partition_of(answer.response)
    if partition.error_code:
        return "error", partition.error_code
    if partition.snapshot_id.epoch >= 0:
        return "snapshot", (partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if partition.diverging_epoch.epoch >= 0:
        return "diverging", (partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch)
    return "records", offset


# --- what is reported ------------------------------------------------------------------------------------------------


def test_the_latest_snapshot_is_reported() -> None:
    """testLatestSnapshotId."""
    core = leader(log=log_behind_snapshot(1, 1))
    assert core.state.log.latest_snapshot == SNAPSHOT
    core.handle(SnapshotCreated(snapshot(12, 1)), core.state.now_ms)

    assert core.state.log.latest_snapshot == snapshot(12, 1)


def test_without_a_snapshot_there_is_none() -> None:
    """testLatestSnapshotIdMissing: the bootstrap checkpoint is none."""
    assert leader(1).state.log.latest_snapshot is None
    log = log_view(1, snapshots=(BOOTSTRAP_SNAPSHOT,), voters=voter_set(1, 2, 3))

    assert leader(log=log).state.log.latest_snapshot is None


# --- listeners -------------------------------------------------------------------------------------------------------


@pytest.fixture
def feeds() -> Rig:
    """An applier whose log begins with a snapshot at offset 10."""
    rig = Rig()
    rig.log.install_snapshot(rig.snapshot(10, 1, b"state"))
    return rig


def test_a_listener_behind_the_log_gets_the_snapshot_once_it_is_committed(feeds: Rig) -> None:
    """testLeaderListenerNotified, testFollowerListenerNotified."""
    feeds.append(b"a")
    listener = Recorder()
    feeds.applier.register(listener)
    feeds.run()
    assert listener.heard == [], "the high watermark is not known yet"
    feeds.applier.advance(11)
    feeds.run()

    assert listener.heard == [("snapshot", SNAPSHOT, [b"state"]), ("commit", 10, 10)]


def test_a_second_listener_gets_the_snapshot_too(feeds: Rig) -> None:
    """testSecondListenerNotified."""
    first, second = Recorder(), Recorder()
    feeds.applier.register(first)
    feeds.applier.advance(10)
    feeds.run()
    feeds.applier.register(second)
    feeds.run()

    assert first.heard == second.heard == [("snapshot", SNAPSHOT, [b"state"])]


def test_a_listener_that_falls_behind_again_gets_the_next_snapshot(feeds: Rig) -> None:
    """testListenerRenotified."""
    listener = Recorder()
    feeds.applier.register(listener)
    feeds.applier.advance(10)
    feeds.run()
    feeds.log.install_snapshot(feeds.snapshot(20, 2, b"newer"))
    feeds.applier.advance(20)
    feeds.run()

    assert listener.heard == [("snapshot", SNAPSHOT, [b"state"]), ("snapshot", snapshot(20, 2), [b"newer"])]


# --- Fetch is answered with a snapshot -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epochs", "snapshots", "offset", "last_epoch", "answer"),
    [
        ((1, 1, 1), (SNAPSHOT,), 0, 0, ("snapshot", (10, 1))),
        ((1, 1, 1), (SNAPSHOT, snapshot(12, 1)), 9, 1, ("snapshot", (12, 1))),
        ((1, 2, 2), (SNAPSHOT,), 11, 9, ("error", ErrorCode.INVALID_REQUEST)),
        ((3, 3, 4), (SNAPSHOT,), 13, 2, ("diverging", (10, 1))),
        ((1, 2, 2), (SNAPSHOT,), 10, 1, ("records", 10)),
        ((2, 3, 3), (snapshot(10, 2),), 10, 1, ("snapshot", (10, 2))),
        ((2, 3, 3), (snapshot(10, 2),), 11, 1, ("snapshot", (10, 2))),
    ],
    ids=[
        "testLeaderImmediatelySendsSnapshotId",
        "testFetchRequestOffsetLessThanLogStart",
        "testFetchRequestWithLargerLastFetchedEpoch",
        "testFetchRequestTruncateToLogStart",
        "testFetchRequestAtLogStartOffsetWithValidEpoch",
        "testFetchRequestAtLogStartOffsetWithInvalidEpoch",
        "testFetchRequestWithLastFetchedEpochLessThanOldestSnapshot",
    ],
)
def test_a_fetch_is_judged_at_once_where_a_snapshot_begins_the_log(
    epochs: tuple[int, ...],
    snapshots: tuple[OffsetAndEpoch, ...],
    offset: int,
    last_epoch: int,
    answer: tuple[str, Any],
) -> None:
    """testLeaderImmediatelySendsSnapshotId, testFetchRequestOffsetLessThanLogStart,
    testFetchRequestWithLargerLastFetchedEpoch, testFetchRequestTruncateToLogStart,
    testFetchRequestAtLogStartOffsetWithValidEpoch, testFetchRequestAtLogStartOffsetWithInvalidEpoch,
    testFetchRequestWithLastFetchedEpochLessThanOldestSnapshot.
    """
    core = leader(log=log_behind_snapshot(*epochs, snapshots=snapshots))

    assert judge(core, offset, last_epoch) == answer


def test_an_empty_replica_gets_the_snapshot_although_the_log_begins_at_zero() -> None:
    """testFetchRequestOffsetAtZero."""
    core = leader(log=log_view(1, 1, 1, snapshots=(snapshot(2, 1),), voters=voter_set(1, 2, 3)))

    assert judge(core, 0, 0) == ("snapshot", (2, 1))


# --- FetchSnapshot, the leader ---------------------------------------------------------------------------------------


def snapshot_request(
    *,
    epoch: int,
    snapshot_id: OffsetAndEpoch = SNAPSHOT,
    position: int = 0,
    max_bytes: int = 1_000,
    topic: str = METADATA_TOPIC,
    replica_id: int = 2,
) -> FetchSnapshotRequest:
    """A FetchSnapshot."""
    kind = FetchSnapshotRequest
    partition = kind.PartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=kind.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
    )
    topics = (kind.TopicSnapshot(name=topic, partitions=(partition,)),)
    return kind(cluster_id="cluster", replica_id=replica_id, max_bytes=max_bytes, topics=topics)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"snapshot_id": snapshot(11, 1)}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"snapshot_id": BOOTSTRAP_SNAPSHOT}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"topic": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"position": -1}, ErrorCode.POSITION_OUT_OF_RANGE),
        ({"epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
    ids=[
        "testFetchSnapshotRequestMissingSnapshot",
        "testFetchSnapshotRequestBootstrapSnapshot",
        "testFetchSnapshotRequestUnknownPartition",
        "testFetchSnapshotRequestWithInvalidPosition",
        "testFetchSnapshotRequestWithOlderEpoch",
        "testFetchSnapshotRequestWithNewerEpoch",
    ],
)
def test_a_snapshot_that_cannot_be_sent_is_said_so(changes: dict[str, Any], error: ErrorCode) -> None:
    """testFetchSnapshotRequestMissingSnapshot, testFetchSnapshotRequestBootstrapSnapshot,
    testFetchSnapshotRequestUnknownPartition, testFetchSnapshotRequestWithInvalidPosition,
    testFetchSnapshotRequestWithOlderEpoch, testFetchSnapshotRequestWithNewerEpoch: with empty records.
    """
    core = leader(log=log_behind_snapshot(1, snapshots=(BOOTSTRAP_SNAPSHOT, SNAPSHOT)))
    partition = partition_of(ask(core, snapshot_request(**({"epoch": core.epoch} | changes))))

    assert (partition.error_code, partition.unaligned_records) == (error, b"")
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, core.epoch)


def stored(data: bytes) -> SnapshotSender:
    """A log that holds one snapshot."""
    log = MemoryReplicatedLog()
    log.store_snapshot(SNAPSHOT, data)
    return SnapshotSender(log)


def slices(core: Replica, snapshots: SnapshotSender, *, max_bytes: int) -> list[Any]:
    """All that a leader sends of a snapshot."""
    sent: list[Any] = []
    while not sent or sent[-1].position + len(sent[-1].unaligned_records) < sent[-1].size:
        position = sum(len(partition.unaligned_records) for partition in sent)
        request = snapshot_request(epoch=core.epoch, position=position, max_bytes=max_bytes)
        (action,) = [a for a in tell(core, request) if isinstance(a, SendSnapshotChunk)]
        sent.append(partition_of(snapshots.chunk(action)))
    return sent


@pytest.mark.parametrize(
    ("max_bytes", "count"),
    [(1_000, 1), (50, 2)],
    ids=["testFetchSnapshotRequestAsLeader", "testPartialFetchSnapshotRequestAsLeader"],
)
def test_a_leader_sends_the_bytes_of_its_snapshot(max_bytes: int, count: int) -> None:
    """testFetchSnapshotRequestAsLeader, testPartialFetchSnapshotRequestAsLeader: position and bytes; halves add up."""
    data = bytes(range(100))
    sent = slices(leader(log=log_behind_snapshot(1)), stored(data), max_bytes=max_bytes)

    assert len(sent) == count
    assert [(partition.size, partition.error_code) for partition in sent] == [(100, 0)] * count
    assert b"".join(bytes(partition.unaligned_records) for partition in sent) == data


def test_a_position_at_the_end_of_the_snapshot_is_out_of_range() -> None:
    """testFetchSnapshotRequestWithInvalidPosition: the size itself."""
    core = leader(log=log_behind_snapshot(1))
    (action,) = [
        action
        for action in tell(core, snapshot_request(epoch=core.epoch, position=100))
        if isinstance(action, SendSnapshotChunk)
    ]

    assert partition_of(stored(bytes(100)).chunk(action)).error_code == ErrorCode.POSITION_OUT_OF_RANGE


def test_a_follower_sends_no_snapshot_and_names_the_leader() -> None:
    """testFetchSnapshotRequestAsFollower."""
    core = follower(epoch=5, leader_id=3, log=log_behind_snapshot(1))
    response = ask(core, snapshot_request(epoch=5))
    partition = partition_of(response)

    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 5)
    assert [(node.node_id, node.port) for node in response.node_endpoints] == [(3, place(3).port)]


@pytest.mark.parametrize(("replica_id", "role"), [(2, Role.LEADER), (9, Role.RESIGNED)])
def test_a_voter_that_downloads_is_a_sign_of_life(replica_id: int, role: Role) -> None:
    """testLeaderShouldResignLeadershipIfNotGetFetchSnapshotRequestFromMajorityVoters: an observer is none."""
    core = leader(log=log_behind_snapshot(1))
    flush(core)
    start = core.state.now_ms
    tell(core, snapshot_request(epoch=core.epoch, replica_id=replica_id), now_ms=start + 2_999)
    core.handle(TimeoutReached(), start + 3_000)

    assert core.role is role


# --- FetchSnapshot, the follower -------------------------------------------------------------------------------------


def chunk(data: bytes = b"", *, snapshot_id: OffsetAndEpoch = SNAPSHOT, **more: Any) -> FetchSnapshotResponse:
    """An answer to FetchSnapshot."""
    return snapshot_chunk(data, snapshot_id=snapshot_id, **more)


def downloading() -> Replica:
    """A follower of 2 in epoch 5 that was just told of a snapshot."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    request = outstanding_to(core, 2).request
    assert isinstance(request, FetchSnapshotRequest)
    assert partition_of(request).position == 0
    return core


def asked_next(core: Replica, *, after_ms: int = 60) -> Any:
    """What a core asks the leader, once it does."""
    core.handle(TimeoutReached(), core.state.now_ms + after_ms)
    return outstanding_to(core, 2).request


@pytest.mark.parametrize("named", [(10, -1), (-1, 1)])
def test_half_a_snapshot_id_is_none_and_no_sign_of_life(named: tuple[int, int]) -> None:
    """testFetchResponseWithInvalidSnapshotId: backed off, and the fetch timer runs on."""
    core = follower(1, epoch=5, leader_id=2)
    response = fetch_response(epoch=5, leader_id=2, snapshot=named)
    reply(core, 2, response, now_ms=1_000)
    role = core.state.role_state

    assert isinstance(role, Follower)
    assert (role.download, role.fetch_deadline_ms) == (None, 2_000)
    assert core.state.connections.is_backing_off(2, 1_000)
    assert isinstance(asked_next(core), FetchRequest)


def test_a_snapshot_is_downloaded_and_the_log_goes_on_behind_it() -> None:
    """testFetchResponseWithSnapshotId: then Fetch(end offset, epoch)."""
    core = downloading()
    actions = reply(core, 2, chunk(b"12345678"))
    assert [type(action) for action in actions] == [WriteSnapshotChunk]
    assert core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms) == [InstallSnapshot(SNAPSHOT)]
    actions = core.handle(SnapshotInstalled(SNAPSHOT, ()), core.state.now_ms)

    assert AdvanceHighWatermark(10) in actions
    (sent,) = [action for action in actions if isinstance(action, SendRequest)]
    assert (partition_of(sent.request).fetch_offset, partition_of(sent.request).last_fetched_epoch) == (10, 1)


def test_the_next_chunk_is_asked_for_at_the_bytes_so_far() -> None:
    """testFetchSnapshotResponsePartialData."""
    core = downloading()
    reply(core, 2, chunk(b"1234"))
    (sent,) = core.handle(SnapshotChunkWritten(SNAPSHOT, 4), core.state.now_ms)

    assert isinstance(sent, SendRequest)
    assert isinstance(sent.request, FetchSnapshotRequest)
    assert partition_of(sent.request).position == 4


@pytest.mark.parametrize(
    "response",
    [
        chunk(error=ErrorCode.SNAPSHOT_NOT_FOUND),
        chunk(b"12345678", snapshot_id=snapshot(-1, 1)),
        chunk(b"12345678", snapshot_id=snapshot(10, -1)),
    ],
    ids=[
        "testFetchSnapshotResponseMissingSnapshot",
        "testFetchSnapshotResponseWithInvalidId, offset",
        "testFetchSnapshotResponseWithInvalidId, epoch",
    ],
)
def test_a_snapshot_that_is_not_there_is_given_up_and_fetch_asked_again(response: FetchSnapshotResponse) -> None:
    """testFetchSnapshotResponseMissingSnapshot, testFetchSnapshotResponseWithInvalidId."""
    core = downloading()
    actions = reply(core, 2, response)

    assert DropSnapshotDownload() in actions
    assert isinstance(asked_next(core), FetchRequest)


@pytest.mark.parametrize(
    ("leader_id", "known"),
    [(-1, LeaderAndEpoch(None, 6)), (3, LeaderAndEpoch(3, 6))],
    ids=["testFetchSnapshotResponseFromNewerEpochNotLeader", "testFetchSnapshotResponseFromNewerEpochLeader"],
)
def test_a_newer_epoch_in_the_answer_ends_the_download(leader_id: int, known: LeaderAndEpoch) -> None:
    """testFetchSnapshotResponseFromNewerEpochNotLeader, testFetchSnapshotResponseFromNewerEpochLeader."""
    core = downloading()
    actions = reply(core, 2, chunk(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=6, leader_id=leader_id))

    assert core.leader_and_epoch == known
    assert DropSnapshotDownload() not in actions, "the same bytes may be had of the next leader"
    (sent,) = [action for action in actions if isinstance(action, SendRequest)]
    assert isinstance(sent.request, FetchRequest)


def test_a_leader_that_is_behind_is_asked_again() -> None:
    """testFetchSnapshotResponseFromOlderEpoch: UNKNOWN_LEADER_EPOCH; the download goes on where it was."""
    core = downloading()
    reply(core, 2, chunk(error=ErrorCode.UNKNOWN_LEADER_EPOCH, epoch=4, leader_id=3))
    request = asked_next(core)

    assert core.leader_and_epoch == LeaderAndEpoch(2, 5)
    assert isinstance(request, FetchSnapshotRequest)
    assert partition_of(request).position == 0


def test_a_late_chunk_is_written_nowhere() -> None:
    """testFetchSnapshotResponseToNotFollower."""
    core = downloading()
    number = outstanding_to(core, 2).correlation_id
    core.handle(TimeoutReached(), 2_000)
    assert core.role is Role.PROSPECTIVE

    assert core.handle(ResponseReceived(number, chunk(b"12345678")), core.state.now_ms) == []


def test_a_snapshot_of_the_former_leader_is_not_installed_under_the_next() -> None:
    """testFetchSnapshotResponseToNotFollower: the other way round, written and not needed any more."""
    core = downloading()
    reply(core, 2, chunk(b"12345678"))
    tell(core, begin_request(epoch=6, leader_id=3))

    assert not [
        action
        for action in core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms)
        if isinstance(action, InstallSnapshot)
    ]


# --- creating snapshots ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("high_watermark", [0, 4], ids=["unknown", "known"])
@pytest.mark.parametrize("offset", [0, 5, 6, 3])
def test_a_snapshot_ends_at_a_committed_batch_of_the_log(high_watermark: int, offset: int) -> None:
    """testCreateSnapshotAsLeaderWithInvalidSnapshotId, testCreateSnapshotAsFollowerWithInvalidSnapshotId: an argument
    error if nothing is known to be committed, beyond what is, or where no batch ends. The epoch is the log's own.
    """
    log = MemoryReplicatedLog()
    for base in (0, 2, 4):
        log.append([encode_batch([b"a", b"b"], timestamp_ms=0, base_offset=base, epoch=1 + base // 2)])
    view = log_view(1, 1, 2, 2, 3, 3)
    with pytest.raises(ConfigError, match="cannot end at offset"):
        plan_snapshot(log, offset=offset, high_watermark=high_watermark, view=view)

    assert plan_snapshot(log, offset=4, high_watermark=4, view=view).snapshot_id == snapshot(4, 2)
