"""AlterPartitionReassignments and its listing: replicas move to other brokers, and change in number (KIP-455, KIP-860).

A move begins with the new replicas beside the old ones, and ends with the change of the ISR that has all new ones in it
(`kraftlib.controller.partitions.Target`). Without replicas in the request, a move is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlib.codec.declarations import Message
from kraftlib.controller.context import Context
from kraftlib.controller.create_topics import check_assignment
from kraftlib.controller.leadership import election_of
from kraftlib.controller.partitions import Election, change
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.metadata.topic_records import PartitionChangeRecord, PartitionRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftlib.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

Wanted = AlterPartitionReassignmentsRequest.ReassignablePartition
Row = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest, version: int
) -> Decision:
    """Begin and take back moves; the answer has a line for each partition."""
    records: list[Message] = []
    responses = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            code, text = 0, None
            try:
                if len(records) == RECORDS_MAX:
                    raise RefusedError(ErrorCode.POLICY_VIOLATION, "Excessively large number of moves per request.")
                partition = _find(context, topic.name, wanted.partition_index)
                may_resize = request.allow_replication_factor_change
                record = _moved(context, topic.name, partition, wanted.replicas, may_resize=may_resize)
                records += [] if record is None else [record]
            except RefusedError as refused:
                code, text = refused.code, refused.message
            rows.append(Row(partition_index=wanted.partition_index, error_code=code, error_message=text))
        responses.append(
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic.name, partitions=tuple(rows))
        )
    answer = AlterPartitionReassignmentsResponse(
        # Kafka answers a request without topics before it looks at this.
        allow_replication_factor_change=request.allow_replication_factor_change or not request.topics,
        error_message=None,
        responses=tuple(responses),
    )
    return Decision(records, answer)


def _find(context: Context, name: str, number: int) -> PartitionRecord:
    topic = context.state.topics.named(name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = context.state.topics.partitions.get((topic.topic_id, number))
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    return partition


def _moved(
    context: Context, name: str, partition: PartitionRecord, replicas: Sequence[int] | None, *, may_resize: bool
) -> PartitionChangeRecord | None:
    if replicas is None:
        return _taken_back(context, name, partition)
    check_assignment(context, replicas)
    left = set(partition.replicas) - set(partition.removing_replicas)
    if not may_resize and len(left) != len(replicas):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(left)} to {len(replicas)}",
        )
    removing = sorted(set(partition.replicas) - set(replicas))
    adding = sorted(set(replicas) - set(partition.replicas))
    return change(
        partition, context.rules(), replicas=[*replicas, *removing], adding=adding or None, removing=removing or None
    )


def _taken_back(context: Context, name: str, partition: PartitionRecord) -> PartitionChangeRecord | None:
    """Return the change to the replicas from before the move, as far as they are in sync."""
    adding = partition.adding_replicas
    if not adding and not partition.removing_replicas:
        raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    election = election_of(context, partition)
    replicas = [id_ for id_ in partition.replicas if id_ not in adding]
    isr = [id_ for id_ in partition.isr if id_ not in adding]
    if not isr and election is not Election.UNCLEAN:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name}:{partition.partition_id} because it would require an "
            "unclean leader election.",
        )
    return change(
        partition,
        context.rules(),
        replicas=replicas,
        isr=isr or replicas[:1],
        adding=(),
        removing=(),
        election=election,
    )


def list_partition_reassignments(
    context: Context, request: ListPartitionReassignmentsRequest, version: int
) -> Decision:
    """Name the partitions that are moving, all or those of these topics."""
    answer = ListPartitionReassignmentsResponse
    found: dict[str, list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]] = {}
    names = None if request.topics is None else {row.name: frozenset(row.partition_indexes) for row in request.topics}
    for partition in context.state.topics.moving():
        name = context.state.topics.topics[partition.topic_id].name
        if names is None or partition.partition_id in names.get(name, ()):
            row = answer.OngoingPartitionReassignment(
                partition_index=partition.partition_id,
                replicas=partition.replicas,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
            )
            found.setdefault(name, []).append(row)
    topics = (answer.OngoingTopicReassignment(name=name, partitions=tuple(rows)) for name, rows in found.items())
    return Decision(answer=answer(error_message=None, topics=tuple(topics)))
