"""Directories of replicas; `tests/interop/test_admin_requests.py` has Kafka's controller do the same."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftlib.controller.cluster import LOST, UNASSIGNED
from kraftlib.controller.partitions import NO_LEADER
from kraftlib.controller.versions import METADATA_VERSION
from kraftlib.metadata.topic_records import PartitionChangeRecord
from kraftlib.types import new_uuid
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest as Request
from tests.controller.world import World, directory


def assign(world: World, broker_id: int, place: UUID, *, topic_id: UUID | None = None, number: int = 0) -> int:
    """Return the error code of the only partition."""
    topic = Request.TopicData(
        topic_id=topic_id or world.partition("a").topic_id, partitions=(Request.PartitionData(partition_index=number),)
    )
    epoch = world.state.cluster.brokers[broker_id].broker_epoch
    rows = (Request.DirectoryData(id=place, topics=(topic,)),)
    answer = world.ask(Request(broker_id=broker_id, broker_epoch=epoch, directories=rows))
    assert answer.error_code == 0
    code: int = answer.directories[0].topics[0].partitions[0].error_code
    return code


def with_two_directories() -> World:
    """Broker 1 has two directories, 2 has one."""
    world = World().with_brokers(1, log_dirs=(directory(1), directory(1, 1))).with_brokers(2)
    world.create("a", assignments=[[1, 2]])
    return world


def test_a_broker_with_several_directories_says_where_its_replica_is() -> None:
    world = with_two_directories()
    assert world.partition("a").directories == (UNASSIGNED, directory(2))
    assert assign(world, 1, directory(1, 1)) == 0
    assert world.partition("a").directories == (directory(1, 1), directory(2))
    before = len(world.log)
    assert assign(world, 1, directory(1, 1)) == 0
    assert len(world.log) == before, "nothing has changed"


@pytest.mark.parametrize("place", [LOST, new_uuid()])
def test_a_replica_in_a_directory_that_is_gone_does_not_lead(place: UUID) -> None:
    world = with_two_directories()
    assert assign(world, 1, place) == 0
    assert world.shape("a")[:2] == (2, (2,))
    world.beat(2, want_fence=True)
    assert world.partition("a").leader == -1


def test_a_replica_that_is_named_in_two_lost_directories_leaves_the_isr_once() -> None:
    world = with_two_directories()
    before = len(world.log)
    rows = (Request.PartitionData(partition_index=0),)
    topic = Request.TopicData(topic_id=world.partition("a").topic_id, partitions=rows)
    places = tuple(Request.DirectoryData(id=place, topics=(topic,)) for place in (new_uuid(), new_uuid()))
    epoch = world.state.cluster.brokers[1].broker_epoch
    assert world.ask(Request(broker_id=1, broker_epoch=epoch, directories=places)).error_code == 0
    changes = [one for one in world.log[before:] if isinstance(one, PartitionChangeRecord)]
    assert [one.isr for one in changes] == [None, None, (2,)]


def test_what_is_not_there_has_no_directory() -> None:
    world = with_two_directories()
    world.register(3)
    before = len(world.log)
    assert assign(world, 1, directory(1), number=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(world, 1, directory(1), topic_id=new_uuid()) == ErrorCode.UNKNOWN_TOPIC_ID
    assert assign(world, 3, directory(3)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.ask(Request(broker_id=1, broker_epoch=0)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert len(world.log) == before
    old = World(levels={METADATA_VERSION: 16}).with_brokers(1)
    assert old.ask(Request(broker_id=1)).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_partition_without_a_leader_gets_one_when_its_directory_is_back_and_named_again() -> None:
    places = (directory(1), directory(1, 1))
    world = World().with_brokers(1, log_dirs=places)
    world.create("a", assignments=[[1]])
    assert assign(world, 1, places[1]) == 0
    world.beat(1, offline_log_dirs=(places[1],))
    assert world.shape("a")[0] == -1
    incarnation = world.state.cluster.brokers[1].incarnation_id
    world.register(1, incarnation_id=incarnation, log_dirs=places)
    assert assign(world, 1, places[1]) == 0
    assert world.shape("a")[0] == 1


def test_a_partition_whose_directory_is_back_gets_a_leader_when_any_broker_comes_back() -> None:
    places = (directory(1), directory(1, 1))
    world = World().with_brokers(1, log_dirs=places).with_brokers(2)
    world.create("a", assignments=[[1]])
    assert assign(world, 1, places[1]) == 0
    world.beat(1, offline_log_dirs=(places[1],))
    world.register(1, incarnation_id=world.state.cluster.brokers[1].incarnation_id, log_dirs=places)
    assert world.shape("a")[0] == -1
    world.beat(2, want_fence=True)
    assert world.shape("a")[0] == -1
    world.beat(2)
    assert world.shape("a")[0] == 1


def test_a_broker_that_comes_back_without_a_directory_leads_nothing_in_it() -> None:
    """One heartbeat may ask for service and tell of the failure: an election must know of it."""
    world = World()
    world.register(1, log_dirs=(directory(1), directory(1, 1)))
    world.beat(1)
    world.create("a", assignments=[[1]])
    assert assign(world, 1, directory(1)) == 0
    world.beat(1, want_fence=True)
    assert world.beat(1, offline_log_dirs=(directory(1),)).is_fenced
    assert not world.beat(1, offline_log_dirs=(directory(1),)).is_fenced
    assert world.partition("a").leader == NO_LEADER
    assert world.state.cluster.brokers[1].log_dirs == (directory(1, 1),)
