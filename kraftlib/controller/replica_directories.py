"""AssignReplicasToDirs: a broker says in which of its log directories its replicas are (KIP-858)."""

from __future__ import annotations

from uuid import UUID

from kraftlib.codec.declarations import Message
from kraftlib.controller.cluster import MIGRATING
from kraftlib.controller.context import Context
from kraftlib.controller.leadership import without
from kraftlib.controller.partitions import change
from kraftlib.controller.results import Decision, RefusedError
from kraftlib.controller.versions import has_directories
from kraftlib.metadata.topic_records import PartitionRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

Row = AssignReplicasToDirsResponse.PartitionData


def assign_replicas_to_dirs(context: Context, request: AssignReplicasToDirsRequest, version: int) -> Decision:
    """Note the directories. A replica in one that has failed leaves the ISR; the answer has a line for each."""
    try:
        if not has_directories(context.features.metadata_version):
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
        context.state.cluster.current(request.broker_id, request.broker_epoch)
    except RefusedError as refused:
        return Decision(answer=AssignReplicasToDirsResponse(error_code=refused.code))
    records: list[Message] = []
    lost: list[PartitionRecord] = []
    answered = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            rows = []
            for wanted in topic.partitions:
                code = ErrorCode.NONE
                try:
                    partition = _find(context, topic.topic_id, wanted.partition_index, request.broker_id)
                    records += _assigned(context, partition, request.broker_id, directory.id)
                    if not context.state.cluster.is_online(request.broker_id, directory.id):
                        lost.append(partition)
                except RefusedError as refused:
                    code = ErrorCode(refused.code)
                rows.append(Row(partition_index=wanted.partition_index, error_code=code))
            topics.append(AssignReplicasToDirsResponse.TopicData(topic_id=topic.topic_id, partitions=tuple(rows)))
        answered.append(AssignReplicasToDirsResponse.DirectoryData(id=directory.id, topics=tuple(topics)))
    records += without(context, request.broker_id, dict.fromkeys(lost))
    return Decision(records, AssignReplicasToDirsResponse(directories=tuple(answered)), is_atomic=False)


def _find(context: Context, topic_id: UUID, number: int, broker_id: int) -> PartitionRecord:
    topics = context.state.topics
    if topic_id not in topics.topics:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topics.partitions.get((topic_id, number))
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return partition


def _assigned(context: Context, partition: PartitionRecord, broker_id: int, directory: UUID) -> list[Message]:
    present = partition.directories or (MIGRATING,) * len(partition.replicas)
    is_there = present[partition.replicas.index(broker_id)] == directory
    # As in Kafka a partition without a leader gets one here, if there is one by now.
    record = change(partition, context.rules(), place=None if is_there else (broker_id, directory))
    return [] if record is None else [record]
