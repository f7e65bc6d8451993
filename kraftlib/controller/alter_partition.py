"""AlterPartition: the leader of a partition changes its in-sync replicas (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.context import Context
from kraftlib.controller.leadership import election_of
from kraftlib.controller.partitions import RECOVERED, RECOVERING, change, replayed
from kraftlib.controller.results import Decision, RefusedError
from kraftlib.metadata.topic_records import PartitionRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

BY_ID_SINCE: Final = 2
BEFORE_IDS: Final[dict[int, int]] = {
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NEW_LEADER_ELECTED: ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INELIGIBLE_REPLICA: ErrorCode.OPERATION_NOT_ATTEMPTED,
}
"""The first version that names topics by id (KIP-841), and what is said before it in place of its new errors."""

NO_BROKER_EPOCH: Final = -1
Wanted = AlterPartitionRequest.PartitionData
Altered = AlterPartitionResponse.PartitionData
Topic = AlterPartitionResponse.TopicData


def alter_partition(context: Context, request: AlterPartitionRequest, version: int) -> Decision:
    """Change what can be changed; the answer has each partition as it then is."""
    if not request.topics:
        return Decision(answer=AlterPartitionResponse())
    try:
        context.state.cluster.current(request.broker_id, request.broker_epoch)
    except RefusedError as refused:
        return Decision(answer=AlterPartitionResponse(error_code=refused.code))
    records: list[Message] = []
    topics = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            try:
                rows.append(_alter(context, request, topic, wanted, records))
            except RefusedError as refused:
                code = refused.code if version >= BY_ID_SINCE else BEFORE_IDS.get(refused.code, refused.code)
                rows.append(Altered(partition_index=wanted.partition_index, error_code=code))
        topics.append(Topic(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=tuple(rows)))
    return Decision(records, AlterPartitionResponse(topics=tuple(topics)))


def _alter(
    context: Context,
    request: AlterPartitionRequest,
    topic: AlterPartitionRequest.TopicData,
    wanted: Wanted,
    records: list[Message],
) -> Altered:
    topics = context.state.topics
    topic_id = topics.ids.get(topic.topic_name) or topic.topic_id  # a version has one of them
    if topic_id not in topics.topics:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topics.partitions.get((topic_id, wanted.partition_index))
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    by_epoch = {row.broker_id: row.broker_epoch for row in wanted.new_isr_with_epochs}
    isr = by_epoch or dict.fromkeys(wanted.new_isr, NO_BROKER_EPOCH)
    _check_epochs(request.broker_id, partition, wanted)
    _check_isr(context, partition, wanted, isr)
    record = change(
        partition,
        context.rules(),
        isr=list(isr),
        election=election_of(context, partition),
        recovery_state=wanted.leader_recovery_state,
    )
    after = partition if record is None else replayed(partition, record)
    if record is not None:
        records.append(record)
    if after.leader != request.broker_id:
        raise RefusedError(ErrorCode.NEW_LEADER_ELECTED)
    return Altered(
        partition_index=wanted.partition_index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )


def _check_epochs(broker_id: int, partition: PartitionRecord, wanted: Wanted) -> None:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise RefusedError(ErrorCode.NOT_CONTROLLER)  # the broker knows more than we do
    if wanted.leader_epoch < partition.leader_epoch:
        raise RefusedError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise RefusedError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_isr(context: Context, partition: PartitionRecord, wanted: Wanted, isr: dict[int, int]) -> None:
    recovery = wanted.leader_recovery_state  # of any other number a broker would stop that reads it in the log
    if (
        not set(isr) <= set(partition.replicas)
        or partition.leader not in isr
        or recovery not in (RECOVERED, RECOVERING)
    ):
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    if recovery == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    cluster = context.state.cluster
    for broker_id, epoch in isr.items():
        broker = cluster.brokers.get(broker_id)
        is_current = broker is not None and epoch in (NO_BROKER_EPOCH, broker.broker_epoch)
        if not is_current or not cluster.is_active(broker_id):
            raise RefusedError(ErrorCode.INELIGIBLE_REPLICA)
