from __future__ import annotations

from typing import Any

import pytest

from kraftlib.controller.config_values import Source
from kraftlib.metadata import ConfigRecord, PartitionRecord, TopicRecord
from kraftlib.types import ZERO_UUID
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.controller.world import World, directory


def test_a_topic_is_one_batch_of_topic_configs_and_partitions() -> None:
    world = World().with_brokers(1, 2)
    before = len(world.log)
    answer = world.create("a", partitions=2, factor=2, configs={"retention.ms": "5"})

    records = world.log[before:]
    assert [type(record) for record in records] == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 2, 2)
    told = {one.name: (one.value, one.config_source) for one in answer.configs or ()}
    assert (told["retention.ms"], told["cleanup.policy"]) == (("5", Source.TOPIC), ("delete", Source.DEFAULT))
    one = world.partition("a", 1)
    assert (one.leader, one.isr, one.leader_epoch, one.partition_epoch) == (one.replicas[0], one.replicas, 0, 0)
    assert one.directories == tuple(map(directory, one.replicas))
    assert answer.topic_id == one.topic_id


@pytest.mark.parametrize(
    ("name", "how", "code"),
    [
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("ä", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 249, {}, ErrorCode.NONE),
        ("a.topic", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),  # metrics could not tell it from a_topic
        ("a_topic", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("b", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ("b", {"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ("b", {"factor": 0, "partitions": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("b", {"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("b", {"factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("b", {"partitions": 10_000}, ErrorCode.POLICY_VIOLATION),
        ("b", {"partitions": 2_000_000_000}, ErrorCode.POLICY_VIOLATION),
        ("b", {"partitions": 9_999}, ErrorCode.NONE),
        ("b", {"assignments": [[1]], "partitions": 1}, ErrorCode.INVALID_REQUEST),
        ("b", {"assignments": [[1]], "factor": 1}, ErrorCode.INVALID_REQUEST),
        ("b", {"assignments": [[]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("b", {"assignments": [[1, 1]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("b", {"assignments": [[1, 7]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("b", {"assignments": [[1], [1, 2]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("b", {"assignments": [[3]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # fenced
        ("b", {"configs": {"retention": "5"}}, ErrorCode.INVALID_CONFIG),
        ("b", {"configs": {"retention.ms": "five"}}, ErrorCode.INVALID_CONFIG),
        ("b", {"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(name: str, how: dict[str, Any], code: ErrorCode) -> None:
    world = World().with_brokers(1, 2)
    world.create("a_topic")
    if how.get("assignments") == [[3]]:
        world.register(3)
    before = len(world.log)
    answer = world.create(name, **how)
    assert answer.error_code == code
    assert (len(world.log) == before) is (code != ErrorCode.NONE)
    assert (answer.topic_id == ZERO_UUID) is (code != ErrorCode.NONE)


def test_topics_of_one_request_stand_and_fall_alone_except_twins() -> None:
    world = World().with_brokers(1)
    row = CreateTopicsRequest.CreatableTopic
    names = ("good", "twin", "twin", "a.b", "a b")
    answer = world.ask(
        CreateTopicsRequest(topics=tuple(row(name=name, num_partitions=1, replication_factor=1) for name in names))
    )
    assert [topic.error_code for topic in answer.topics] == [0, 42, 0, 17]
    assert set(world.state.topics.ids) == {"good", "a.b"}


def test_new_topics_may_collide_with_each_other_and_not_with_those_that_are_there() -> None:
    world = World().with_brokers(1)
    row = CreateTopicsRequest.CreatableTopic

    def create(*names: str) -> list[int]:
        rows = tuple(row(name=name, num_partitions=1, replication_factor=1) for name in names)
        return [topic.error_code for topic in world.ask(CreateTopicsRequest(topics=rows)).topics]

    def delete(name: str) -> None:
        (row,) = world.ask(DeleteTopicsRequest(topic_names=(name,)), version=5).responses
        assert row.error_code == 0

    assert create("a.b", "a_b") == [0, 0]
    delete("a.b")
    assert create("a.b") == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    delete("a_b")
    assert create("a.b") == [0]


@pytest.mark.parametrize(("counts", "code"), [((5_000, 5_000), 44), ((5_000, 4_998), 0), ((9_999, 1, -5), 44)])
def test_a_request_for_too_many_partitions_is_refused_as_a_whole(counts: tuple[int, ...], code: int) -> None:
    world = World().with_brokers(1)
    row = CreateTopicsRequest.CreatableTopic
    rows = tuple(
        row(name=f"t{count}-{n}", num_partitions=count, replication_factor=1) for n, count in enumerate(counts)
    )
    before = len(world.log)
    assert {topic.error_code for topic in world.ask(CreateTopicsRequest(topics=rows)).topics} == {code}
    assert (len(world.log) == before) is bool(code)


@pytest.mark.parametrize(
    ("values", "code", "stored"),
    [(("x", "2"), 0, ["2"]), ((None, "2"), ErrorCode.INVALID_CONFIG, []), (("2", None), ErrorCode.INVALID_CONFIG, [])],
)
def test_of_two_values_of_a_key_the_last_one_counts_unless_one_is_null(
    values: tuple[str | None, ...], code: int, stored: list[str]
) -> None:
    world = World().with_brokers(1)
    row = CreateTopicsRequest.CreatableTopicConfig
    twins = tuple(row(name="retention.ms", value=value) for value in values)
    topic = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1, replication_factor=1, configs=twins)
    (answer,) = world.ask(CreateTopicsRequest(topics=(topic,))).topics
    assert answer.error_code == code
    assert [one.value for one in world.log if isinstance(one, ConfigRecord) and one.name == "retention.ms"] == stored


def test_values_that_cannot_be_together_are_refused() -> None:
    world = World().with_brokers(1)
    lags = {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}
    assert world.create("a", configs=lags).error_code == ErrorCode.INVALID_CONFIG
    assert world.create("a", configs={**lags, "max.compaction.lag.ms": "5"}).error_code == 0
    assert world.create("b", configs={"remote.storage.enable": "True"}).error_code == ErrorCode.INVALID_CONFIG
    tiered = World(remote_log_storage_system_enable=True).with_brokers(1)
    assert tiered.create("b", configs={"remote.storage.enable": "True"}).error_code == 0


def test_validation_alone_writes_nothing() -> None:
    world = World(num_partitions=3).with_brokers(1)
    before = len(world.log)
    assert world.create("a", validate_only=True).num_partitions == 3
    assert world.create("a", validate_only=True, factor=9).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert len(world.log) == before


def test_settings_of_the_topic_are_told_as_they_were_given_hidden_ones_too() -> None:
    world = World().with_brokers(1)
    given = {"min.cleanable.dirty.ratio": "0.250", "internal.segment.bytes": "100000"}
    answer = world.create("a", partitions=1, factor=1, configs=given)
    told = {one.name: (one.value, one.config_source) for one in answer.configs or ()}
    assert {name: told[name] for name in given} == {name: (value, 1) for name, value in given.items()}
    plain = world.create("b", partitions=1, factor=1)
    assert "internal.segment.bytes" not in {one.name for one in plain.configs or ()}


def test_values_of_brokers_are_told_as_they_were_given() -> None:
    world = World().with_brokers(1)
    row = IncrementalAlterConfigsRequest
    values = {"log.cleaner.min.cleanable.ratio": " 1e-5 ", "log.roll.hours": "+2"}
    changes = tuple(row.AlterableConfig(name=key, config_operation=0, value=value) for key, value in values.items())
    resource = row.AlterConfigsResource(resource_type=4, resource_name="", configs=changes)
    assert world.ask(row(resources=(resource,))).responses[0].error_code == 0
    told = {one.name: (one.value, one.config_source) for one in world.create("a").configs or ()}
    assert told["min.cleanable.dirty.ratio"] == (" 1e-5 ", Source.DYNAMIC_DEFAULT_BROKER)
    assert told["segment.ms"] == ("7200000", Source.DYNAMIC_DEFAULT_BROKER)
