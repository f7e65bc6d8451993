"""The responses that this replica gives: the checks that all requests share, and how each response is built.

The checks are Kafka's, in Kafka's order (KIP-595, Vote; KIP-853, Vote). A response about the one partition always names
the current epoch and leader and, from the versions that have it, where the leader is reached: a peer that asks the
wrong replica learns which one to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.codec.declared import Message
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.extensions.misconfiguration import MISDIRECTED, refusal_detail
from kraftlib.consensus.extensions.upstreams import age_field
from kraftlib.consensus.log_view import Diverging, NeedsSnapshot, Valid
from kraftlib.consensus.roles import ChangeRequest, Leader
from kraftlib.consensus.state import ReplicaState
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, Epoch, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.apis import APIS, ErrorCode, error_answer
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterResponse,
)
from kraftlib.wire.messages.update_features import UpdateFeaturesResponse
from kraftlib.wire.messages.vote import VoteRequest

ElectionRequest = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest

STRICT_REQUESTS = (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest)
"""The requests that only replicas send to each other."""

FETCH_ENDPOINTS_FROM = 17
"""Version of Fetch from which a raft leader names endpoints, though the schema has them from 16 on (probed)."""

NO_DIVERGENCE, NO_SNAPSHOT = FetchResponse.EpochEndOffset(), FetchResponse.SnapshotId()


# --- checking a request -----------------------------------------------------------------------------------------------


def cluster_error(state: ReplicaState, cluster_id: str | None) -> ErrorCode:
    """A request that names another cluster is refused; one that names none is served, as Kafka does."""
    if cluster_id in (None, state.cluster_id) or state.cluster_id is None:
        return ErrorCode.NONE
    return ErrorCode.INCONSISTENT_CLUSTER_ID


def only_partition(
    topics: Sequence[Any], topic: str = "topic_name", index: str = "partition_index", *, wanted: Any = METADATA_TOPIC
) -> Any:
    """Return the one partition of a message; None unless it is exactly the metadata partition.

    `topic` and `index` are the fields in which this message has the topic and the number of the partition.
    """
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    named = getattr(topics[0], topic)
    if named is not wanted and named != wanted:
        return None
    partition = topics[0].partitions[0]
    return partition if getattr(partition, index) == 0 else None


def partition_error(state: ReplicaState, cluster_id: str | None, partition: object) -> ErrorCode:
    """Return why a request about the one partition, None if it is about another, is refused as a whole."""
    error = cluster_error(state, cluster_id)
    return ErrorCode.INVALID_REQUEST if error is ErrorCode.NONE and partition is None else error


def voter_only_error(state: ReplicaState, epoch: Epoch, replica_id: ReplicaId) -> ErrorCode:
    """A request that only voters send must carry a current epoch and a valid replica id."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if replica_id < 0 else ErrorCode.NONE


def leader_only_error(state: ReplicaState, epoch: Epoch) -> ErrorCode:
    """Only the leader of this epoch answers. A newer epoch is **not** adopted: the request sender may be wrong about
    it."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(state.role_state, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE if state.shutdown_deadline_ms is None else ErrorCode.BROKER_NOT_AVAILABLE


def leader_error(state: ReplicaState, cluster_id: str | None, epoch: Epoch) -> ErrorCode:
    """Return why a request that only a leader of this cluster answers is refused."""
    error = cluster_error(state, cluster_id)
    return leader_only_error(state, epoch) if error is ErrorCode.NONE else error


def voter_key_error(state: ReplicaState, voter_id: ReplicaId, directory_id: Any) -> ErrorCode:
    """A request meant for one replica must have reached it: addresses are re-used, disks are replaced (KIP-853)."""
    if voter_id < 0:
        return ErrorCode.NONE
    meant = ReplicaKey.of(voter_id, directory_id)
    return ErrorCode.NONE if meant.matches(state.key) else ErrorCode.INVALID_VOTER_KEY


def refuse_request(state: ReplicaState, event: RequestReceived[Message], error: ErrorCode) -> list[Action]:
    """Answer with a top-level error: no state was changed."""
    detail = refusal_detail(state, event.request, error)
    return [SendResponse(event.request_id, top_level(event.request, error, detail))]


def is_refused_strictly(state: ReplicaState, request: Any) -> bool:
    """Whether strict mode refuses a raft request before anything of it is believed (scenario M11, E16).

    By closing the connection: some error codes stop a Kafka peer.
    """
    if not isinstance(request, STRICT_REQUESTS):
        return False
    if request.cluster_id is None:
        state.refuse("no cluster id", type(request).__name__)
        return True
    if isinstance(request, VoteRequest | BeginQuorumEpochRequest):
        partition = only_partition(request.topics)
        meant = None if partition is None else partition.voter_directory_id
        if meant is not None and voter_key_error(state, request.voter_id, meant) is not ErrorCode.NONE:
            state.refuse(MISDIRECTED, f"{type(request).__name__} to {request.voter_id}")
            return True
    return False


# --- building a response ----------------------------------------------------------------------------------------------


def _leader_number(state: ReplicaState) -> int:
    leader_id = state.leader_id
    return -1 if leader_id is None else leader_id


def _leader_node(state: ReplicaState, node: Any, leader: int, *, is_named: bool) -> tuple[Any, ...]:
    """Say where the leader is reached, if that is known, and if the version has a place for it (`is_named`)."""
    place = state.leader_endpoint if is_named else None
    return () if place is None else (node(node_id=leader, host=place.host, port=place.port),)


def election(
    state: ReplicaState, event: RequestReceived[ElectionRequest], error: ErrorCode, **granted: bool
) -> SendResponse:
    """Answer a Vote, BeginQuorumEpoch or EndQuorumEpoch, whose answers have one shape."""
    kind: Any = APIS[event.request.api_key].response
    leader = _leader_number(state)
    partition = kind.PartitionData(error_code=error, leader_id=leader, leader_epoch=state.epoch, **granted)
    topic = kind.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    endpoints = _leader_node(state, kind.NodeEndpoint, leader, is_named=event.version >= 1)
    return SendResponse(event.request_id, kind(topics=(topic,), node_endpoints=endpoints))


def fetch(
    state: ReplicaState,
    *,
    error: ErrorCode = ErrorCode.NONE,
    judgement: Valid | Diverging | NeedsSnapshot | None = None,
    version: int,
) -> FetchResponse:
    """Answer a Fetch; the caller that has the bytes puts the records in. An error answer has no high watermark.

    One without an error, of a replica that does not lead, says how old its news is (`extensions.upstreams`).
    """
    diverging, snapshot_id = NO_DIVERGENCE, NO_SNAPSHOT
    if isinstance(judgement, Diverging):
        diverging = FetchResponse.EpochEndOffset(epoch=judgement.end.epoch, end_offset=judgement.end.offset)
    elif isinstance(judgement, NeedsSnapshot):
        wanted = judgement.snapshot_id
        snapshot_id = FetchResponse.SnapshotId(epoch=wanted.epoch, end_offset=wanted.offset)
    high_watermark: Offset = -1
    if error is ErrorCode.NONE and state.high_watermark is not None:
        high_watermark = state.high_watermark
    is_named = version >= FETCH_ENDPOINTS_FROM
    role = state.role_state
    presented = role.presented.get(is_named) if isinstance(role, Leader) else None
    if presented is None:
        leader = _leader_number(state)
        current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=state.epoch)
        presented = current_leader, _leader_node(state, FetchResponse.NodeEndpoint, leader, is_named=is_named)
        if isinstance(role, Leader):
            role.presented[is_named] = presented
    partition = FetchResponse.PartitionData(
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=-1,
        log_start_offset=state.log.start_offset,
        diverging_epoch=diverging,
        current_leader=presented[0],
        snapshot_id=snapshot_id,
        aborted_transactions=(),
        records=b"",
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    is_upstream = error is ErrorCode.NONE and not isinstance(role, Leader)
    age = age_field(state) if is_upstream else ()
    return FetchResponse(responses=(topic,), node_endpoints=presented[1], unknown_tagged_fields=age)


def fetch_snapshot(
    state: ReplicaState,
    *,
    error: ErrorCode = ErrorCode.NONE,
    snapshot_id: OffsetAndEpoch,
    position: int = 0,
    topic_name: str = METADATA_TOPIC,
    version: int,
) -> FetchSnapshotResponse:
    """Answer a FetchSnapshot; the caller that has the file puts size and bytes in.

    Errors carry *empty*, not null, records: Kafka's own error responses fail on the null and never arrive (KIP-630,
    FetchSnapshot).
    """
    leader = _leader_number(state)
    partition = FetchSnapshotResponse.PartitionSnapshot(
        error_code=error,
        snapshot_id=FetchSnapshotResponse.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=state.epoch),
        position=position,
        unaligned_records=b"",
    )
    topic = FetchSnapshotResponse.TopicSnapshot(name=topic_name, partitions=(partition,))
    endpoints = _leader_node(state, FetchSnapshotResponse.NodeEndpoint, leader, is_named=version >= 1)
    return FetchSnapshotResponse(topics=(topic,), node_endpoints=endpoints)


def update_voter(state: ReplicaState, *, error: ErrorCode) -> UpdateRaftVoterResponse:
    """Answer an UpdateRaftVoter, which has no partition and carries the leader beside its one error."""
    place = state.leader_endpoint
    return UpdateRaftVoterResponse(
        error_code=error,
        current_leader=UpdateRaftVoterResponse.CurrentLeader(
            leader_id=_leader_number(state),
            leader_epoch=state.epoch,
            host="" if place is None else place.host,
            port=0 if place is None else place.port,
        ),
    )


def voter_change(
    request: ChangeRequest, error: ErrorCode, message: str | None = None
) -> AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateFeaturesResponse:
    """Answer what changes the voter set."""
    if isinstance(request, AddRaftVoterRequest):
        return AddRaftVoterResponse(error_code=error, error_message=message)
    if isinstance(request, RemoveRaftVoterRequest):
        return RemoveRaftVoterResponse(error_code=error, error_message=message)
    # Admin clients look for another controller at one of these two errors, and not at the other.
    error = ErrorCode.NOT_CONTROLLER if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else error
    row = UpdateFeaturesResponse.UpdatableFeatureResult
    results = tuple(
        row(feature=update.feature, error_code=error, error_message=message) for update in request.feature_updates
    )
    return UpdateFeaturesResponse(error_code=error, error_message=message, results=results)


def top_level(request: Message, error: ErrorCode, tagged_fields: tuple[tuple[int, bytes], ...] = ()) -> Message:
    """Answer any request with a top-level error: no topics, no endpoints."""
    answer = error_answer(request, error)
    if isinstance(answer, UpdateFeaturesResponse):
        answer = attrs.evolve(answer, error_message=None)
    return attrs.evolve(answer, unknown_tagged_fields=tagged_fields) if tagged_fields else answer
