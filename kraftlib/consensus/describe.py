"""DescribeQuorum: what the leader's tables say of everybody (rpcs.md section 9), for Kafka's tools and ours."""

from __future__ import annotations

from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.checks import only_partition
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.roles import Leader, Progress
from kraftlib.consensus.state import ReplicaState
from kraftlib.types import METADATA_TOPIC, ZERO_UUID
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this long is left out."""

NOT_LEADER_TEXT = "this replica does not lead the quorum"


def handle_describe_quorum(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Answer a DescribeQuorum. Only the leader knows; others say so, and the asker tries elsewhere."""
    request: DescribeQuorumRequest = event.request
    role = state.role_state
    topic_name = request.topics[0].topic_name if request.topics else METADATA_TOPIC
    partition = DescribeQuorumResponse.PartitionData
    nodes: tuple[DescribeQuorumResponse.Node, ...] = ()
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
            current_voters=tuple(_voters(state, role)),
            observers=tuple(_observers(state, role)),
        )
        nodes = tuple(
            DescribeQuorumResponse.Node(
                node_id=voter.key.id,
                listeners=tuple(
                    DescribeQuorumResponse.Listener(name=name, host=place.host, port=place.port)
                    for name, place in voter.endpoints.items()
                ),
            )
            for voter in state.voters
        )
    topic = DescribeQuorumResponse.TopicData(topic_name=topic_name, partitions=(data,))
    return [SendResponse(event.request_id, DescribeQuorumResponse(error_message="", topics=(topic,), nodes=nodes))]


def _voters(state: ReplicaState, role: Leader) -> list[DescribeQuorumResponse.ReplicaState]:
    rows = []
    for voter in state.voters:
        if voter.key.id == state.key.id:
            row = DescribeQuorumResponse.ReplicaState(
                replica_id=state.key.id,
                replica_directory_id=voter.key.directory_id or ZERO_UUID,
                log_end_offset=state.log.end_offset,
                last_fetch_timestamp=state.wall_clock_ms,
                last_caught_up_timestamp=state.wall_clock_ms,
            )
        else:
            row = _row(state, role.progress[voter.key.id])
        rows.append(row)
    return rows


def _observers(state: ReplicaState, role: Leader) -> list[DescribeQuorumResponse.ReplicaState]:
    oldest = state.now_ms - OBSERVER_SESSION_MS
    return [
        _row(state, progress)
        for progress in role.observers.values()
        if progress.last_fetch_ms is not None and progress.last_fetch_ms >= oldest
    ]


def _row(state: ReplicaState, progress: Progress) -> DescribeQuorumResponse.ReplicaState:
    def wall(time_ms: int | None) -> int:
        return -1 if time_ms is None else time_ms + state.wall_offset_ms

    return DescribeQuorumResponse.ReplicaState(
        replica_id=progress.key.id,
        replica_directory_id=progress.key.directory_id or ZERO_UUID,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=wall(progress.last_fetch_ms),
        last_caught_up_timestamp=wall(progress.last_caught_up_ms),
    )
