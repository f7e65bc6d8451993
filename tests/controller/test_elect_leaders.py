from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.controller.partitions import NO_LEADER
from kraftlib.metadata import PartitionChangeRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlib.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.controller.test_alter_partition import alter
from tests.controller.world import World

PREFERRED, UNCLEAN = 0, 1


def elect(world: World, kind: int, *named: tuple[str, tuple[int, ...]]) -> Any:
    rows = tuple(ElectLeadersRequest.TopicPartitions(topic=name, partitions=numbers) for name, numbers in named)
    answer = world.ask(ElectLeadersRequest(election_type=kind, topic_partitions=rows or None))
    assert answer.error_code == 0
    return {
        (topic.topic, row.partition_id): row.error_code
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


def moved() -> World:
    """Broker 1 was away and is in sync again; 2 leads."""
    world = World(leader_imbalance_check_interval_ms=1_000, no_op_interval_ms=0).with_brokers(1, 2)
    world.create("a", assignments=[[1, 2]])
    world.create("b", assignments=[[2, 1]])
    world.beat(1, want_fence=True)
    world.beat(1)
    alter(world, [2, 1], broker_id=2)
    assert world.shape("a")[:2] == (2, (2, 1))
    return world


def test_preferred_replicas_lead_again_on_request() -> None:
    world = moved()
    assert elect(world, PREFERRED, ("a", (0, 5)), ("b", (0,)), ("nope", (0,))) == {
        ("a", 0): ErrorCode.NONE,
        ("a", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("b", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.partition("a").leader == 1
    assert elect(world, PREFERRED) == {}


@pytest.mark.parametrize(("partitions", "code"), [((), 0), (None, ErrorCode.INVALID_REQUEST)])
def test_a_request_for_no_partition_is_not_looked_at(partitions: tuple[()] | None, code: int) -> None:
    answer = moved().ask(ElectLeadersRequest(election_type=9, topic_partitions=partitions))
    assert (answer.error_code, answer.replica_election_results) == (code, ())


def test_all_of_them_lead_again_after_a_while() -> None:
    world = moved()
    world.now_ms += 999
    assert world.tick() == []
    world.now_ms += 1
    assert [type(record) for record in world.tick()] == [PartitionChangeRecord]
    assert world.partition("a").leader == 1


def test_an_election_without_candidates_says_so_and_an_unclean_one_is_asked_for() -> None:
    world = World().with_brokers(1, 2)
    world.create("a", assignments=[[1, 2]])
    world.beat(2, want_fence=True)
    world.beat(1, want_fence=True)
    assert elect(world, PREFERRED) == {("a", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(world, UNCLEAN) == {("a", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    world.beat(2)
    assert world.partition("a").leader == NO_LEADER
    assert elect(world, UNCLEAN) == {("a", 0): ErrorCode.NONE}
    assert world.shape("a")[:2] == (2, (2,))
    assert elect(world, UNCLEAN) == {}
    assert (
        world.ask(ElectLeadersRequest(election_type=2, topic_partitions=None)).error_code == ErrorCode.INVALID_REQUEST
    )


def test_partitions_that_kafka_has_begun_to_move_are_listed() -> None:
    world = World().with_brokers(1, 2)
    world.create("a", assignments=[[1]])
    one = world.partition("a")
    empty = world.ask(ListPartitionReassignmentsRequest())
    assert (empty.error_code, empty.topics) == (0, ())
    world.log.append(
        PartitionChangeRecord(topic_id=one.topic_id, partition_id=0, replicas=(1, 2), adding_replicas=(2,))
    )
    world.commit()
    (topic,) = world.ask(ListPartitionReassignmentsRequest()).topics
    assert (topic.name, topic.partitions[0].replicas, topic.partitions[0].adding_replicas) == ("a", (1, 2), (2,))
    row = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="a", partition_indexes=(1,))
    assert world.ask(attrs.evolve(ListPartitionReassignmentsRequest(), topics=(row,))).topics == ()
