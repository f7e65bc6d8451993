"""Moves of partitions between brokers; `tests/interop/test_admin_requests.py` has Kafka's controller do the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kraftlib.metadata import PartitionChangeRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest as Request
from kraftlib.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.controller.test_alter_partition import alter
from tests.controller.world import World, directory


def move(world: World, name: str, replicas: Sequence[int] | None, *, number: int = 0, resize: bool = True) -> Any:
    wanted = None if replicas is None else tuple(replicas)
    topic = Request.ReassignableTopic(
        name=name, partitions=(Request.ReassignablePartition(partition_index=number, replicas=wanted),)
    )
    answer = world.ask(Request(topics=(topic,), allow_replication_factor_change=resize))
    assert (answer.error_code, answer.allow_replication_factor_change) == (0, resize)
    return answer.responses[0].partitions[0].error_code


def moves(world: World) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    answer = world.ask(ListPartitionReassignmentsRequest(topics=None))
    return [
        (topic.name, row.partition_index, row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in answer.topics
        for row in topic.partitions
    ]


def test_a_partition_moves_once_all_its_new_replicas_are_in_sync() -> None:
    world = World().with_brokers(1, 2, 3, 4)
    world.create("a", assignments=[[1, 2]])
    assert move(world, "a", [3, 4]) == 0
    assert moves(world) == [("a", 0, (3, 4, 1, 2), (3, 4), (1, 2))]
    assert world.shape("a") == (1, (1, 2), 0, 1), "who leads goes on leading"

    alter(world, [1, 2, 3], broker_id=1)
    assert moves(world), "4 is not in sync yet"
    answer = alter(world, [1, 2, 3, 4], broker_id=1)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NEW_LEADER_ELECTED
    one = world.partition("a")
    assert (one.replicas, one.isr, one.leader, one.leader_epoch) == ((3, 4), (3, 4), 3, 1)
    assert len(one.directories) == 2
    assert moves(world) == []


def test_the_number_of_replicas_changes_and_the_last_ones_in_sync_stay() -> None:
    world = World().with_brokers(1, 2, 3)
    world.create("a", assignments=[[1]])
    assert move(world, "a", [1, 2], resize=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(world, "a", [1, 2]) == 0
    alter(world, [1, 2], broker_id=1)
    assert world.partition("a").replicas == (1, 2)
    assert move(world, "a", [2]) == 0, "2 is in sync, so that nothing has to be waited for"
    assert (world.partition("a").replicas, world.shape("a")[:3]) == ((2,), (2, (2,), 1))


def test_a_move_is_taken_back() -> None:
    world = World().with_brokers(1, 2, 3)
    world.create("a", assignments=[[1, 2]])
    before = world.partition("a")
    assert move(world, "a", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move(world, "a", [2, 3]) == 0
    alter(world, [1, 2], broker_id=1)
    assert move(world, "a", None) == 0
    after = world.partition("a")
    assert (set(after.replicas), after.isr, moves(world)) == (set(before.replicas), before.isr, [])


def test_what_cannot_be_moved_is_not() -> None:
    world = World().with_brokers(1, 2)
    world.create("a", assignments=[[1]])
    before = len(world.log)
    for name, replicas, number, code in (
        ("nope", [1], 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", [1], 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", [], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", [1, 1], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", [9], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ):
        assert move(world, name, replicas, number=number) == code
    assert move(world, "a", [1]) == 0
    assert len(world.log) == before, "nothing has changed"


@pytest.mark.parametrize("unclean", [False, True])
def test_a_move_is_taken_back_to_replicas_out_of_sync_only_where_the_topic_allows_it(unclean: bool) -> None:
    """The new replica alone is in sync, and the old one would lead without the newest records."""
    world = World().with_brokers(1, 2, 3)
    world.create("a", assignments=[[1, 3]], configs={"unclean.leader.election.enable": str(unclean).lower()})
    one = world.partition("a")
    world.log.append(
        PartitionChangeRecord(
            topic_id=one.topic_id,
            partition_id=0,
            isr=(2,),
            leader=2,
            replicas=(2, 1, 3),
            adding_replicas=(2,),
            directories=tuple(map(directory, (2, 1, 3))),
        )
    )
    world.commit()
    assert move(world, "a", None) == (0 if unclean else ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert world.shape("a")[:2] == ((1, (1,)) if unclean else (2, (2,)))
