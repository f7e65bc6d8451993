"""The requests of tools: DescribeQuorum, which tells the leader's tables (KIP-595, DescribeQuorum), and
DescribeCluster.

An admin client that was given controllers asks any of them for all, and which of them is the active one: here the
voters, and the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.responses import only_partition
from kraftlib.consensus.roles import Leader, Progress
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import Voter, listeners_of
from kraftlib.types import METADATA_TOPIC, ZERO_UUID
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

BROKERS, CONTROLLERS = 1, 2
"""Kinds of nodes that DescribeCluster may ask for."""

DISKS_SINCE = 2
"""The version of DescribeQuorum from which on it names directories and endpoints."""

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this long is left out."""

NOT_LEADER_TEXT = "this replica does not lead the quorum"


def handle_describe_quorum(state: ReplicaState, event: RequestReceived[DescribeQuorumRequest]) -> list[Action]:
    """Answer a DescribeQuorum. Only the leader knows; others say so, and the asker tries elsewhere."""
    request = event.request
    role = state.role_state
    topic_name = request.topics[0].topic_name if request.topics else METADATA_TOPIC
    partition = DescribeQuorumResponse.PartitionData
    nodes: tuple[DescribeQuorumResponse.Node, ...] = ()
    names_disks = event.version >= DISKS_SINCE
    if only_partition(request.topics) is None:
        data = partition(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif not isinstance(role, Leader):
        data = partition(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message=NOT_LEADER_TEXT)
    else:
        data = partition(
            error_message="",
            leader_id=state.key.id,
            leader_epoch=state.epoch,
            high_watermark=-1 if state.high_watermark is None else state.high_watermark,
            current_voters=_rows(state, _voters(state, role), names_disks=names_disks),
            observers=_rows(state, _observers(state, role), names_disks=names_disks),
        )
        nodes = tuple(_node(voter) for voter in state.voters) if names_disks else ()
    topic = DescribeQuorumResponse.TopicData(topic_name=topic_name, partitions=(data,))
    return [SendResponse(event.request_id, DescribeQuorumResponse(error_message="", topics=(topic,), nodes=nodes))]


def _node(voter: Voter) -> DescribeQuorumResponse.Node:
    listeners = listeners_of(voter.endpoints, DescribeQuorumResponse.Listener)
    return DescribeQuorumResponse.Node(node_id=voter.key.id, listeners=listeners)


def _voters(state: ReplicaState, role: Leader) -> Iterator[Progress]:
    """Yield the progress of each voter; ours is that of now."""
    now_ms = state.now_ms
    for voter in state.voters:
        if voter.key.id != state.key.id:
            yield role.progress[voter.key.id]
        else:
            end_offset = state.log.end_offset
            yield Progress(key=voter.key, end_offset=end_offset, last_fetch_ms=now_ms, last_caught_up_ms=now_ms)


def _observers(state: ReplicaState, role: Leader) -> Iterator[Progress]:
    oldest_ms = state.now_ms - OBSERVER_SESSION_MS
    for progress in role.observers.values():
        if progress.last_fetch_ms is not None and progress.last_fetch_ms >= oldest_ms:
            yield progress


def _rows(
    state: ReplicaState, known: Iterable[Progress], *, names_disks: bool
) -> tuple[DescribeQuorumResponse.ReplicaState, ...]:
    def wall(time_ms: int | None) -> int:
        return -1 if time_ms is None else time_ms + state.wall_offset_ms

    return tuple(
        DescribeQuorumResponse.ReplicaState(
            replica_id=progress.key.id,
            replica_directory_id=(progress.key.directory_id or ZERO_UUID) if names_disks else ZERO_UUID,
            log_end_offset=progress.end_offset,
            last_fetch_timestamp=wall(progress.heard_ms),
            last_caught_up_timestamp=wall(progress.last_caught_up_ms),
        )
        for progress in known
    )


def handle_describe_cluster(state: ReplicaState, event: RequestReceived[DescribeClusterRequest]) -> list[Action]:
    """Answer a DescribeCluster: any replica may, as far as it knows."""
    request = event.request
    if request.endpoint_type != CONTROLLERS:
        known = request.endpoint_type == BROKERS
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        error = error if event.version else ErrorCode.INVALID_REQUEST  # version 0 knows of one type only
        text = f"this is a controller; endpoint type {request.endpoint_type} is asked of others"
        return [SendResponse(event.request_id, DescribeClusterResponse(error_code=error, error_message=text))]
    name = state.config.listener_name.upper()
    places = {voter.key.id: voter.endpoints.get(name) for voter in state.voters}
    nodes = tuple(
        DescribeClusterResponse.DescribeClusterBroker(broker_id=voter_id, host=place.host, port=place.port)
        for voter_id, place in places.items()
        if place is not None
    )
    leader_id = state.leader_and_epoch.leader_id
    response = DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=state.cluster_id or "",
        controller_id=leader_id if leader_id is not None and places.get(leader_id) is not None else -1,
        brokers=nodes,
    )
    return [SendResponse(event.request_id, response)]
