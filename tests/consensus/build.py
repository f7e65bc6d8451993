"""Cores in a wanted situation, and messages with the fields that matter: vocabulary of the tests of the core."""

from __future__ import annotations

import random
from typing import Any

from kraftlib.config import RaftConfig
from kraftlib.consensus.actions import AdvanceHighWatermark, SendRecords, SendRequest, SendResponse
from kraftlib.consensus.events import (
    Flushed,
    RecordsSubmitted,
    RequestReceived,
    ResponseReceived,
    SnapshotChunkWritten,
    TimeoutReached,
)
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download, Follower, Leader, Role
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.types import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    ZERO_UUID,
    ElectionState,
    Endpoint,
    EpochStart,
    OffsetAndEpoch,
    ReplicaKey,
)
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse

CLUSTER = "cluster"
LISTENER = "CONTROLLER"
NOW_MS = 1_000
OTHER = OffsetAndEpoch(offset=10, epoch=2)
SNAPSHOT = OffsetAndEpoch(offset=10, epoch=3)
LONG, EQUAL, SHORT = (9, 1), (2, 1), (1, 1)
"""Ends of an asker's log, (offset, epoch), beside our own of two records of epoch 1."""


def place(replica_id: int) -> Endpoint:
    """Where a replica of the tests is reached."""
    return Endpoint("localhost", 9000 + replica_id)


def voter_set(*keys: int | ReplicaKey) -> VoterSet:
    """Voters by id or key."""
    known = [key if isinstance(key, ReplicaKey) else ReplicaKey(key) for key in keys]
    return VoterSet.of(Voter(key=key, endpoints={LISTENER: place(key.id)}) for key in known)


def log_view(
    *epochs: int, start: int = 0, snapshots: tuple[OffsetAndEpoch, ...] = (), voters: VoterSet | None = None
) -> LogView:
    """A log that *looks* like its argument: the epoch of each record, from offset `start` on."""
    starts: list[EpochStart] = []
    for offset, epoch in enumerate(epochs, start):
        if not starts or starts[-1].epoch != epoch:
            starts.append(EpochStart(epoch=epoch, start_offset=offset))
    return LogView.build(
        start_offset=start,
        end_offset=start + len(epochs),
        epoch_starts=starts,
        snapshots=snapshots,
        static_voters=voters,
    )


def replica(
    *epochs: int,
    own_id: int = 1,
    voters: VoterSet | None = None,
    election: ElectionState | None = None,
    log: LogView | None = None,
    directory_id: Any = None,
    now_ms: int = 0,
    cluster_id: str | None = CLUSTER,
    kept: Download | None = None,
    **settings: Any,
) -> Replica:
    """A started replica of a quorum of three, with a log of these epochs; what it does at start is thrown away."""
    members = voters if voters is not None else voter_set(1, 2, 3)
    core = Replica(
        RaftConfig(node_id=own_id, **settings),
        key=ReplicaKey(own_id, directory_id),
        cluster_id=cluster_id,
        log=log if log is not None else log_view(*epochs, voters=members),
        election=election,
        random=random.Random(7),
        endpoints={LISTENER: place(own_id)},
        kept=kept,
    )
    core.start(now_ms)
    return core


def follower(*epochs: int, epoch: int = 1, leader_id: int = 2, own_id: int = 1, **more: Any) -> Replica:
    """A replica that follows `leader_id`."""
    return replica(*epochs, own_id=own_id, election=ElectionState(epoch=epoch, leader_id=leader_id), **more)


def leader(*epochs: int, **more: Any) -> Replica:
    """A replica that was just elected by replica 2; nothing of its epoch is committed or flushed yet."""
    core = replica(*epochs, **more)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    for pre_vote in (True, False):
        answer_vote(core, 2, granted=True, pre_vote=pre_vote)
    assert core.role.value == "leader"
    return core


def as_leader(core: Replica) -> Leader:
    """What a core that leads knows as such."""
    role = core.state.role_state
    assert isinstance(role, Leader)
    return role


def as_follower(core: Replica) -> Follower:
    """What a core that follows knows as such."""
    role = core.state.role_state
    assert isinstance(role, Follower)
    return role


def answer_vote(core: Replica, voter_id: int, *, granted: bool, pre_vote: bool, now_ms: int | None = None) -> list[Any]:
    """Answer the Vote that is outstanding to a voter."""
    outstanding = outstanding_to(core, voter_id)
    response = told_of(VoteResponse, epoch=core.epoch, vote_granted=granted)
    assert outstanding.request.topics[0].partitions[0].pre_vote is pre_vote
    event = ResponseReceived(outstanding.correlation_id, response)
    return core.handle(event, core.state.now_ms if now_ms is None else now_ms)


def pending_requests(core: Replica) -> list[Any]:
    """The requests that a core waits for, in the order in which it sent them."""
    return list(core.state.connections.requests.values())


def outstanding_to(core: Replica, destination: int) -> Any:
    """The request that a core has outstanding to a destination."""
    return next(request for request in pending_requests(core) if request.destination == destination)


def vote_request(
    *, epoch: int, replica_id: int = 2, last: tuple[int, int] = (0, 0), pre_vote: bool = False, **more: Any
) -> VoteRequest:
    """A Vote of a replica whose log ends at `last` = (offset, epoch)."""
    partition = VoteRequest.PartitionData(
        replica_epoch=epoch,
        replica_id=replica_id,
        replica_directory_id=more.pop("replica_directory_id", ZERO_UUID),
        voter_directory_id=more.pop("voter_directory_id", ZERO_UUID),
        last_offset=last[0],
        last_offset_epoch=last[1],
        pre_vote=pre_vote,
    )
    topic = VoteRequest.TopicData(topic_name=more.pop("topic_name", METADATA_TOPIC), partitions=(partition,))
    return VoteRequest(cluster_id=more.pop("cluster_id", CLUSTER), voter_id=more.pop("voter_id", -1), topics=(topic,))


def begin_request(*, epoch: int, leader_id: int = 2, voter_id: int = -1, **more: Any) -> BeginQuorumEpochRequest:
    """A BeginQuorumEpoch."""
    partition = BeginQuorumEpochRequest.PartitionData(
        leader_id=leader_id, leader_epoch=epoch, voter_directory_id=more.pop("voter_directory_id", ZERO_UUID)
    )
    where = place(leader_id)
    return BeginQuorumEpochRequest(
        cluster_id=more.pop("cluster_id", CLUSTER),
        voter_id=voter_id,
        topics=(BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=more.pop(
            "leader_endpoints",
            (BeginQuorumEpochRequest.LeaderEndpoint(name=LISTENER, host=where.host, port=where.port),),
        ),
    )


def end_request(*, epoch: int, leader_id: int = 2, candidates: tuple[int, ...] = ()) -> EndQuorumEpochRequest:
    """An EndQuorumEpoch."""
    info = EndQuorumEpochRequest.ReplicaInfo
    partition = EndQuorumEpochRequest.PartitionData(
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_candidates=tuple(
            info(candidate_id=candidate, candidate_directory_id=ZERO_UUID) for candidate in candidates
        ),
    )
    topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return EndQuorumEpochRequest(cluster_id=CLUSTER, topics=(topic,))


def fetch_request(
    *,
    epoch: int,
    offset: int,
    last_epoch: int,
    replica_id: int = 2,
    max_wait_ms: int = 500,
    high_watermark: int = 2**63 - 1,
    **more: Any,
) -> FetchRequest:
    """A Fetch of a replica."""
    partition = FetchRequest.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=more.pop("replica_directory_id", ZERO_UUID),
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=more.pop("cluster_id", CLUSTER),
        replica_state=FetchRequest.ReplicaState(replica_id=replica_id),
        max_wait_ms=max_wait_ms,
        topics=(FetchRequest.FetchTopic(topic_id=more.pop("topic_id", METADATA_TOPIC_ID), partitions=(partition,)),),
    )


def fetch_response(
    *,
    epoch: int,
    leader_id: int,
    high_watermark: int = -1,
    records: bytes = b"",
    error: int = 0,
    diverging: tuple[int, int] | None = None,
    snapshot: tuple[int, int] | None = None,
) -> FetchResponse:
    """A Fetch answer; `diverging` and `snapshot` are (offset, epoch)."""
    response = FetchResponse
    partition = response.PartitionData(
        error_code=error,
        high_watermark=high_watermark,
        current_leader=response.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        diverging_epoch=response.EpochEndOffset()
        if diverging is None
        else response.EpochEndOffset(end_offset=diverging[0], epoch=diverging[1]),
        snapshot_id=response.SnapshotId()
        if snapshot is None
        else response.SnapshotId(end_offset=snapshot[0], epoch=snapshot[1]),
        aborted_transactions=(),
        records=records,
    )
    topic = response.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return response(responses=(topic,), node_endpoints=endpoints_of(response, leader_id))


def snapshot_chunk(
    data: bytes,
    *,
    position: int = 0,
    size: int = 8,
    snapshot_id: OffsetAndEpoch = SNAPSHOT,
    leader_id: int = 2,
    epoch: int = 5,
    error: int = 0,
) -> FetchSnapshotResponse:
    """A FetchSnapshot answer: a slice of a snapshot of this size in bytes."""
    response = FetchSnapshotResponse
    partition = response.PartitionSnapshot(
        error_code=error,
        snapshot_id=response.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        current_leader=response.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        size=size,
        position=position,
        unaligned_records=data,
    )
    topic = response.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    return response(topics=(topic,), node_endpoints=endpoints_of(response, leader_id))


def told_of(kind: Any, leader_id: int = -1, *, epoch: int, error: int = 0, **fields: Any) -> Any:
    """An answer to Vote, BeginQuorumEpoch or EndQuorumEpoch that names this leader, and where it is reached."""
    partition = kind.PartitionData(error_code=error, leader_id=leader_id, leader_epoch=epoch, **fields)
    topic = kind.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return kind(topics=(topic,), node_endpoints=endpoints_of(kind, leader_id))


def endpoints_of(response: Any, leader_id: int) -> tuple[Any, ...]:
    """Where a response says that the leader is reached, if it names one."""
    if leader_id < 0:
        return ()
    where = place(leader_id)
    return (response.NodeEndpoint(node_id=leader_id, host=where.host, port=where.port),)


def ask(core: Replica, request: Any, *, version: int = 1, now_ms: int | None = None, request_id: int = 77) -> Any:
    """Hand a request to a core; return the message that it answers with, None while it answers nothing."""
    actions = tell(core, request, version=version, now_ms=now_ms, request_id=request_id)
    answers = [
        action.response
        for action in actions
        if isinstance(action, SendResponse | SendRecords) and action.request_id == request_id
    ]
    return answers[0] if answers else None


def tell(
    core: Replica, request: Any, *, version: int = 1, now_ms: int | None = None, request_id: int = 77
) -> list[Any]:
    """Hand a request to a core; return all it does."""
    now_ms = core.state.now_ms if now_ms is None else now_ms
    return core.handle(RequestReceived(request_id, request, version), now_ms)


def reply(core: Replica, destination: int, response: Any, *, now_ms: int | None = None) -> list[Any]:
    """Answer what a core has outstanding to a destination."""
    now_ms = core.state.now_ms if now_ms is None else now_ms
    return core.handle(ResponseReceived(outstanding_to(core, destination).correlation_id, response), now_ms)


def submit(core: Replica, count: int = 1) -> list[Any]:
    """Records of the application reach a leader; its disk does not have them yet."""
    records = batch(core.state.log.end_offset, core.epoch, count)
    return core.handle(RecordsSubmitted((records,), core.epoch), core.state.now_ms)


def submit_controls(core: Replica, *records: Any) -> list[Any]:
    """A batch of control records reaches a leader."""
    end = core.state.log.end_offset
    controls = encode_control_batch(records, timestamp_ms=0, base_offset=end, epoch=core.epoch)
    return core.handle(RecordsSubmitted((controls,), core.epoch), core.state.now_ms)


def flush(core: Replica) -> list[Any]:
    """Let everything appended so far become durable."""
    state = core.state
    return core.handle(Flushed(state.log.end_offset, state.log.log_version), state.now_ms)


def partition_of(message: Any) -> Any:
    """The one partition of a message."""
    topics = getattr(message, "topics", None) or message.responses
    return topics[0].partitions[0]


def kinds(actions: list[Any]) -> list[type]:
    """Classes of actions, requests by their message."""
    return [type(action.request) if isinstance(action, SendRequest) else type(action) for action in actions]


def requests(actions: list[Any], kind: type) -> list[SendRequest]:
    """The requests of one kind among actions."""
    return [action for action in actions if isinstance(action, SendRequest) and isinstance(action.request, kind)]


def park(core: Replica, replica_id: int = 2, request_id: int = 77, **more: Any) -> list[Any]:
    """Fetch at the leader's end."""
    log = core.state.log
    request = fetch_request(
        epoch=core.epoch, offset=log.end_offset, last_epoch=log.last_epoch, replica_id=replica_id, **more
    )
    return tell(core, request, version=18, request_id=request_id)


def commits(actions: list[object]) -> list[int]:
    """The high watermarks that actions announce."""
    return [action.high_watermark for action in actions if isinstance(action, AdvanceHighWatermark)]


def batch(offset: int, epoch: int, count: int = 1) -> Batch:
    """A stamped batch."""
    return encode_batch([b"x"] * count, timestamp_ms=0, base_offset=offset, epoch=epoch)


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


def in_role(role: str) -> Replica:
    """A replica with a log of two records of epoch 1, in a role of epoch 5."""
    match role:
        case "unattached":
            return replica(1, 1, election=ElectionState(epoch=5))
        case "voted for 2":
            return replica(1, 1, election=ElectionState(epoch=5, voted_key=ReplicaKey(2)))
        case "voted for 3":
            return replica(1, 1, election=ElectionState(epoch=5, voted_key=ReplicaKey(3)))
        case "follower, not fetched":
            return follower(1, 1, epoch=5, leader_id=3)
        case "follower, fetched":
            core = follower(1, 1, epoch=5, leader_id=3)
            reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0))
            return core
        case "prospective":
            core = replica(1, 1, election=ElectionState(epoch=5))
            core.handle(TimeoutReached(), core.deadline_ms() or 0)
            assert core.role is Role.PROSPECTIVE
            return core
        case "candidate":
            return replica(1, 1, election=ElectionState(epoch=5, voted_key=ReplicaKey(1)))
        case "resigned":
            return replica(1, 1, election=ElectionState(epoch=5, leader_id=1))
        case "leader":
            return leader(1, 1, election=ElectionState(epoch=4))
    raise AssertionError(role)


def asked_for(core: Replica, leader_id: int) -> Any:
    return outstanding_to(core, leader_id).request


def interrupted() -> Replica:
    """A follower of 2 in epoch 5 that has 4 of 8 bytes of the snapshot, then finds itself in epoch 6."""
    core = downloading()
    reply(core, 2, snapshot_chunk(b"1234"))
    core.handle(SnapshotChunkWritten(SNAPSHOT, 4), core.state.now_ms)
    return core


def downloading() -> Replica:
    """A follower of 2 that was just told to fetch a snapshot."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    assert isinstance(outstanding_to(core, 2).request, FetchSnapshotRequest)
    return core


def following(*epochs: int, **more: Any) -> tuple[Replica, Follower]:
    """A follower of 2 in epoch 5, at 1,000 ms, that is asking for nothing."""
    core = follower(*(epochs or (1,)), epoch=5, leader_id=2, now_ms=NOW_MS, **more)
    core.state.connections.forget()
    role = core.state.role_state
    assert isinstance(role, Follower)
    return core, role


def half_downloaded(download: Download | None = None, **more: Any) -> tuple[Replica, Follower, Download]:
    """One that is fetching a snapshot, 4 of 8 bytes of which are here, and has asked for more."""
    core, role = following(**more)
    download = download or Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4, size=8)
    role.download = core.state.kept = download
    core.handle(SnapshotChunkWritten(OTHER, 0), NOW_MS)  # which is nothing to it, but lets it ask
    return core, role, download
