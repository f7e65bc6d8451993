"""CreateTopics: a topic is created whole or not at all, and each of a request on its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import Operation, ResourceType
from kraftlib.controller.config_values import Source
from kraftlib.controller.configs import TOPIC
from kraftlib.controller.context import Context
from kraftlib.controller.mutation_quotas import Account
from kraftlib.controller.partitions import NO_LEADER
from kraftlib.controller.placement import place
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.controller.topic_configs import HIDDEN, MIN_IN_SYNC, SETTINGS, as_given, check_topic_config
from kraftlib.controller.topics import plain_name
from kraftlib.controller.versions import has_directories
from kraftlib.metadata.config_records import ConfigRecord
from kraftlib.metadata.topic_records import ClearElrRecord, PartitionRecord, TopicRecord
from kraftlib.types import METADATA_TOPIC, ZERO_UUID
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

NAME_MAX: Final = 249
STRICT_SINCE: Final = 6
"""From this version on a request beyond the quota of its client is refused (KIP-599)."""

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_DEFAULT: Final = -1
Wanted = CreateTopicsRequest.CreatableTopic
Created = CreateTopicsResponse.CreatableTopicResult
Config = CreateTopicsResponse.CreatableTopicConfigs


def create_topics(context: Context, request: CreateTopicsRequest, version: int) -> Decision:
    """Create what can be created; the answer has a line for each. A request for too much is refused as a whole."""
    records: list[Message] = []
    answers: list[Created] = []
    names = Counter(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if names[topic.name] == 1 and topic.name != METADATA_TOPIC]
    if sum(_count(context, topic) for topic in wanted) > RECORDS_MAX:
        return _too_many(request)
    account = context.account(is_strict=version >= STRICT_SINCE)
    in_general = {key: _config(context, key) for key in SETTINGS if key not in HIDDEN}
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if names[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_access(context, topic.name)
            _check_name(context, topic.name)
            made = _create(context, topic, account)
        except RefusedError as refused:
            answers.append(
                Created(name=topic.name, topic_id=ZERO_UUID, error_code=refused.code, error_message=refused.message)
            )
            continue
        records += made
        if len(records) > RECORDS_MAX:
            return _too_many(request)
        answers.append(_answer(context, topic, made, in_general))
    answer = CreateTopicsResponse(throttle_time_ms=account.throttle_time_ms, topics=tuple(answers))
    return Decision(() if request.validate_only else records, answer)


def _count(context: Context, topic: Wanted) -> int:
    """Return the number of partitions that a topic is to have."""
    if topic.assignments:
        return len(topic.assignments)
    return context.config.num_partitions if topic.num_partitions == _DEFAULT else max(0, topic.num_partitions)


def _too_many(request: CreateTopicsRequest) -> Decision:
    code, text = ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
    rows = (Created(name=topic.name, error_code=code, error_message=text) for topic in request.topics)
    return Decision(answer=CreateTopicsResponse(topics=tuple(rows)))


def check_topic_name(name: str) -> None:
    """Raises: RefusedError with INVALID_TOPIC_EXCEPTION, if no topic may have this name."""
    what = ""
    if not name:
        what = "the empty string is not allowed"
    elif name in (".", ".."):
        what = f"'{name}' is not allowed"
    elif len(name) > NAME_MAX:
        what = f"the length of '{name[:NAME_MAX]}...' is longer than the max allowed length {NAME_MAX}"
    elif not _NAME.fullmatch(name):
        what = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if what:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {what}")


def _check_access(context: Context, name: str) -> None:
    if name == METADATA_TOPIC:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if not context.allows(Operation.CREATE, ResourceType.CLUSTER):
        context.require(Operation.CREATE, ResourceType.TOPIC, name)


def _check_name(context: Context, name: str) -> None:
    check_topic_name(name)
    topics = context.state.topics
    if topics.named(name) is not None:
        raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    others = topics.plain_names.get(plain_name(name))
    if others:
        text = f"Topic '{name}' collides with existing topic: {others[0]}"
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def _create(context: Context, topic: Wanted, account: Account) -> list[Message]:
    given: dict[str, str] = {}
    for config in topic.configs:  # of two values of one key the last one counts, and one that is null is refused
        if config.value is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}")
        given[config.name] = config.value
    for key, value in given.items():
        check_topic_config(key, value)
    context.check_topic(given)
    replicas = _manual(context, topic) if topic.assignments else _automatic(context, topic)
    account.take(len(replicas))
    topic_id = context.new_uuid()
    configs = [
        ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=key, value=value)
        for key, value in given.items()
    ]
    return [
        TopicRecord(name=topic.name, topic_id=topic_id),
        *configs,
        *clearing(context, configs),
        *(new_partition(context, topic_id, number, placed) for number, placed in enumerate(replicas)),
    ]


def _automatic(context: Context, topic: Wanted) -> list[tuple[int, ...]]:
    if topic.replication_factor < _DEFAULT or topic.replication_factor == 0:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < _DEFAULT or topic.num_partitions == 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    partitions = context.config.num_partitions if topic.num_partitions == _DEFAULT else topic.num_partitions
    factor = topic.replication_factor
    return place(
        context.state.cluster,
        partitions=partitions,
        replication_factor=context.config.default_replication_factor if factor == _DEFAULT else factor,
        random=context.random,
    )


def _manual(context: Context, topic: Wanted) -> list[tuple[int, ...]]:
    if topic.num_partitions != _DEFAULT:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    if topic.replication_factor != _DEFAULT:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replicationFactor was not set to -1.",
        )
    placed = {row.partition_index: row.broker_ids for row in topic.assignments}
    if sorted(placed) != list(range(len(topic.assignments))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    replicas = [placed[number] for number in range(len(placed))]
    check_assignments(context, replicas)
    return replicas


def check_assignments(context: Context, assignments: Sequence[Sequence[int]]) -> None:
    """Raises: RefusedError with INVALID_REPLICA_ASSIGNMENT, if new partitions cannot be placed on these brokers."""
    for brokers in assignments:
        check_assignment(context, brokers)
        if len(brokers) != len(assignments[0]):
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes a partition with another replication factor than the first.",
            )
        if not any(context.state.cluster.is_active(broker_id) for broker_id in brokers):
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment are fenced.",
            )


def check_assignment(context: Context, brokers: Sequence[int]) -> None:
    """Raises: RefusedError with INVALID_REPLICA_ASSIGNMENT, if a partition cannot be placed on these brokers."""
    if not brokers:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    if len(set(brokers)) != len(brokers):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes the same broker twice: {list(brokers)}",
        )
    for broker_id in brokers:
        if broker_id not in context.state.cluster.brokers:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.",
            )


def new_partition(context: Context, topic_id: UUID, number: int, replicas: Sequence[int]) -> PartitionRecord:
    """Return the record of a new partition: its active replicas are in sync, and the first of them leads."""
    cluster = context.state.cluster
    isr = tuple(broker_id for broker_id in replicas if cluster.is_active(broker_id))
    directories: tuple[UUID, ...] = ()
    if has_directories(context.features.metadata_version):
        directories = tuple(cluster.default_directory(broker_id) for broker_id in replicas)
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=tuple(replicas),
        isr=isr,
        leader=isr[0] if isr else NO_LEADER,
        leader_epoch=0,
        partition_epoch=0,
        directories=directories,
    )


def clearing(context: Context, changes: Iterable[Message]) -> list[ClearElrRecord]:
    """Return what voids the eligible leader replicas that another min.insync.replicas was the base of (KIP-966)."""
    if not context.features.has_eligible_leader_replicas:
        return []
    changed = [one for one in changes if isinstance(one, ConfigRecord) and one.name == MIN_IN_SYNC]
    return [ClearElrRecord(topic_name=one.resource_name if one.resource_type == TOPIC else "") for one in changed]


def _answer(context: Context, topic: Wanted, made: Sequence[Message], in_general: Mapping[str, Config]) -> Created:
    own = {one.name: Config(name=one.name, value=one.value, config_source=Source.TOPIC) for one in topic.configs}
    topic_id = made[0].topic_id if isinstance(made[0], TopicRecord) else ZERO_UUID
    answer = Created(name=topic.name, topic_id=topic_id, error_message=None)
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        return attrs.evolve(answer, topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    partitions = [record for record in made if isinstance(record, PartitionRecord)]
    return attrs.evolve(
        answer,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=tuple({**in_general, **own}.values()),
    )


def _config(context: Context, key: str) -> Config:
    """Return the value of a key for a topic that does not set it."""
    value, source = as_given(context.state.configs, key, node_id=context.node_id)
    return Config(name=key, value=value, config_source=source)
