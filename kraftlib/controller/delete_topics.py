"""DeleteTopics: by name or by id (KIP-516)."""

from __future__ import annotations

from collections import Counter
from typing import Final
from uuid import UUID

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import Operation, ResourceType
from kraftlib.controller.context import Context
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.controller.topics import Topic
from kraftlib.metadata.topic_records import RemoveTopicRecord
from kraftlib.types import ZERO_UUID
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

STRICT_SINCE: Final = 5
"""From this version on a request beyond the quota of its client is refused (KIP-599)."""

Row = DeleteTopicsResponse.DeletableTopicResult
Named = tuple[str | None, UUID]


def delete_topics(context: Context, request: DeleteTopicsRequest, version: int) -> Decision:
    """Delete what there is; the answer has a line for each. A topic that is named twice, by name or id, stays."""
    given: list[Named] = [(name, ZERO_UUID) for name in request.topic_names]
    given += [(topic.name, topic.topic_id) for topic in request.topics]
    account = context.account(is_strict=version >= STRICT_SINCE)
    counts = Counter(one for one in given if not _is_unclear(*one))
    once = [one for one, count in counts.items() if count == 1]
    by_id = {topic_id for name, topic_id in once if name is None}
    topics = context.state.topics
    twice = by_id & {topics.ids.get(name) for name, _ in once if name is not None}
    records: list[Message] = []
    rows: list[Row] = []
    unclear = [one for one in given if _is_unclear(*one)]
    for name, topic_id in (*unclear, *counts):
        try:
            if _is_unclear(name, topic_id):
                text = "Neither topic name nor id was specified, or both were."
                raise RefusedError(ErrorCode.INVALID_REQUEST, text)
            if counts[name, topic_id] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic.")
            topic = _find(context, name, topic_id)
            if not _may(context, Operation.DELETE, topic.name):
                name = topic.name if name is None and _may(context, Operation.DESCRIBE, topic.name) else name
                raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if topic.topic_id in twice and name is None:
                continue  # the line of its name says it
            if topic.topic_id in twice:
                topic_id = topic.topic_id
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                )
            if len(records) == RECORDS_MAX:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, "Excessively large number of topics per request.")
            name, topic_id = topic.name, topic.topic_id
            account.take(topic.partition_count)
        except RefusedError as refused:
            rows.append(Row(name=name, topic_id=topic_id, error_code=refused.code, error_message=refused.message))
            continue
        records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        rows.append(Row(name=topic.name, topic_id=topic.topic_id))
    return Decision(records, DeleteTopicsResponse(throttle_time_ms=account.throttle_time_ms, responses=tuple(rows)))


def _may(context: Context, operation: Operation, topic: str) -> bool:
    of_all = context.allows(Operation.DELETE, ResourceType.CLUSTER)
    return of_all or context.allows(operation, ResourceType.TOPIC, topic)


def _is_unclear(name: str | None, topic_id: UUID) -> bool:
    """Whether it is not said which topic."""
    return (name is None) == (topic_id == ZERO_UUID)


def _find(context: Context, name: str | None, topic_id: UUID) -> Topic:
    """Return the topic. Raises: RefusedError, if there is none."""
    topics = context.state.topics
    if name is None:
        found, code, text = (
            topics.topics.get(topic_id),
            ErrorCode.UNKNOWN_TOPIC_ID,
            "This server does not host this topic ID.",
        )
    else:
        if not _may(context, Operation.DESCRIBE, name):  # else it would show whether the topic exists
            raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        found, code = topics.named(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = "This server does not host this topic-partition."
    if found is None:
        raise RefusedError(code, text)
    return found
