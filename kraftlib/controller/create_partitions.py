"""CreatePartitions: a topic grows (KIP-195). Its configured replication factor is that of its first partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import Operation, ResourceType
from kraftlib.controller.context import Context
from kraftlib.controller.create_topics import check_assignments, new_partition
from kraftlib.controller.mutation_quotas import Account
from kraftlib.controller.placement import place
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

STRICT_SINCE: Final = 3
"""From this version on a request beyond the quota of its client is refused (KIP-599)."""

Wanted = CreatePartitionsRequest.CreatePartitionsTopic
Row = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(context: Context, request: CreatePartitionsRequest, version: int) -> Decision:
    """Extend what can be extended; the answer has a line for each topic."""
    account = context.account(is_strict=version >= STRICT_SINCE)
    names = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    rows: list[Row] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if names[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            context.require(Operation.ALTER, ResourceType.TOPIC, topic.name)
            made = _extend(context, topic, account, room=RECORDS_MAX - len(records))
        except RefusedError as refused:
            rows.append(Row(name=topic.name, error_code=refused.code, error_message=refused.message))
            continue
        records += made
        rows.append(Row(name=topic.name))
    answer = CreatePartitionsResponse(throttle_time_ms=account.throttle_time_ms, results=tuple(rows))
    return Decision(() if request.validate_only else records, answer)


def _extend(context: Context, wanted: Wanted, account: Account, *, room: int) -> list[Message]:
    topic = context.state.topics.named(wanted.name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    now = topic.partition_count
    more = wanted.count - now
    if more == 0:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if more < 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {now} partition(s); {wanted.count} would not be an increase.",
        )
    if more > room:
        raise RefusedError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    if wanted.assignments is not None and len(wanted.assignments) != more:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only {len(wanted.assignments)} assignment(s) were "
            "specified.",
        )
    account.take(more)
    factor = len(context.state.topics.partitions[topic.topic_id, 0].replicas)
    placed = _placed(context, wanted, more, factor)
    return [
        new_partition(context, topic.topic_id, number, replicas) for number, replicas in enumerate(placed, start=now)
    ]


def _placed(context: Context, wanted: Wanted, more: int, factor: int) -> Sequence[tuple[int, ...]]:
    if wanted.assignments is None:
        return place(context.state.cluster, partitions=more, replication_factor=factor, random=context.random)
    given = [row.broker_ids for row in wanted.assignments]
    check_assignments(context, given)
    if len(given[0]) != factor:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment has replication factor {len(given[0])}, and the topic {factor}.",
        )
    return given
