from __future__ import annotations

import pytest

from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.create_partitions import CreatePartitionsRequest
from tests.controller.world import World


def wanted(name: str, count: int, *assignments: tuple[int, ...]) -> CreatePartitionsRequest.CreatePartitionsTopic:
    rows = tuple(CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments)
    return CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=rows or None)


def test_a_topic_grows_with_the_replication_factor_that_it_has() -> None:
    world = World().with_brokers(1, 2, 3)
    world.create("a", partitions=2, factor=2)
    before = len(world.log)
    assert world.ask(CreatePartitionsRequest(topics=(wanted("a", 3),), validate_only=True)).results[0].error_code == 0
    assert len(world.log) == before
    assert world.ask(CreatePartitionsRequest(topics=(wanted("a", 4),))).results[0].error_code == 0
    assert [len(world.partition("a", number).replicas) for number in range(4)] == [2] * 4
    assert world.ask(CreatePartitionsRequest(topics=(wanted("a", 5, (3, 1)),))).results[0].error_code == 0
    assert world.partition("a", 4).replicas == (3, 1)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (wanted("a", 2), ErrorCode.INVALID_PARTITIONS),
        (wanted("a", 1), ErrorCode.INVALID_PARTITIONS),
        (wanted("a", -1), ErrorCode.INVALID_PARTITIONS),
        (wanted("a", 2_000_000_000), ErrorCode.POLICY_VIOLATION),
        (wanted("a", 4, (1, 2)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("a", 3, (1,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("a", 3, (1, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_is_no_growth_is_refused(topic: CreatePartitionsRequest.CreatePartitionsTopic, code: ErrorCode) -> None:
    world = World().with_brokers(1, 2)
    world.create("a", partitions=2, factor=2)
    before = len(world.log)
    (row,) = world.ask(CreatePartitionsRequest(topics=(topic,))).results
    assert row.error_code == code
    twice = world.ask(CreatePartitionsRequest(topics=(wanted("a", 3), wanted("a", 4))))
    assert {row.error_code for row in twice.results} == {ErrorCode.INVALID_REQUEST}
    assert len(world.log) == before
