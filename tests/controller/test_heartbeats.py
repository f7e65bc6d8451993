"""The life of a broker, row by row of Kafka's table; and its leaderships."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.controller.partitions import NO_LEADER
from kraftlib.controller.results import RECORDS_MAX
from kraftlib.metadata import BrokerRegistrationChangeRecord
from kraftlib.types import new_uuid
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.controller.world import World, directory

FENCED, UNFENCED, SHUT, GONE = "fenced", "unfenced", "in shutdown", "gone"


def state(world: World, broker_id: int, **asked: Any) -> str:
    """Send a heartbeat; return what the answer says."""
    answer = world.beat(broker_id, **asked)
    assert answer.error_code == 0
    if answer.should_shut_down:
        assert answer.is_fenced
        return GONE
    if answer.is_fenced:
        return FENCED
    return SHUT if world.state.cluster.brokers[broker_id].in_controlled_shutdown else UNFENCED


@pytest.mark.parametrize(
    ("active", "leads", "asked", "result"),
    [
        (False, False, {"want_shut_down": True}, GONE),
        (False, False, {}, UNFENCED),
        (False, False, {"want_fence": True}, FENCED),
        (False, False, {"current_metadata_offset": 0}, FENCED),
        (True, False, {}, UNFENCED),
        (True, True, {"want_fence": True, "want_shut_down": True}, GONE),
        (True, True, {"want_fence": True}, FENCED),
        (True, True, {"want_shut_down": True}, SHUT),
        (True, False, {"want_shut_down": True}, GONE),
    ],
)
def test_a_heartbeat_moves_a_broker_as_kafka_does(
    active: bool, leads: bool, asked: dict[str, object], result: str
) -> None:
    world = World()
    world.register(1)
    if active:
        world.beat(1)
    if leads:
        world.create("a", assignments=[[1]])
    assert state(world, 1, **asked) == result
    if leads:
        assert world.partition("a").leader == NO_LEADER


def test_a_controlled_shutdown_ends_when_the_others_know_of_the_new_leaders() -> None:
    world = World().with_brokers(1, 2)
    world.create("a", assignments=[[1, 2]])
    assert state(world, 1, want_shut_down=True) == SHUT
    moved = world.next_offset - 1
    assert world.shape("a") == (2, (2,), 1, 1)
    world.beat(2, current_metadata_offset=moved - 1)
    assert state(world, 1, want_shut_down=True) == SHUT
    world.beat(2, current_metadata_offset=moved)
    assert state(world, 1, want_shut_down=True) == GONE
    assert state(world, 1) == GONE, "only a registration brings it back"
    assert world.register(1).error_code == 0, "and need not wait for the end of the session"
    assert state(world, 1) == UNFENCED


def test_a_partition_without_leader_gets_one_when_its_replica_is_back() -> None:
    world = World().with_brokers(1, 2)
    world.create("a", assignments=[[1, 2]])
    world.beat(1, want_fence=True)
    world.beat(2, want_fence=True)
    assert world.shape("a")[:2] == (NO_LEADER, (2,))
    world.beat(1)
    assert world.shape("a")[:2] == (NO_LEADER, (2,)), "it may lack records"
    world.beat(2)
    assert world.shape("a")[:2] == (2, (2,))


def test_an_unclean_election_happens_only_where_it_is_configured() -> None:
    world = World().with_brokers(1, 2)
    world.create("a", assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    world.beat(1, want_fence=True)
    world.beat(2, want_fence=True)
    world.beat(1)
    assert world.shape("a")[:2] == (1, (1,))


def test_a_silent_broker_is_fenced_and_a_wrong_epoch_is_no_sign_of_life() -> None:
    world = World(no_op_interval_ms=0).with_brokers(1, 2)
    world.create("a", assignments=[[1, 2]])
    world.now_ms += 9_001
    world.beat(2)
    assert world.beat(1, broker_epoch=0).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert world.tick() != []
    assert world.shape("a")[:2] == (2, (2,))
    assert world.tick() == []


def test_failed_and_cordoned_directories_are_written_once() -> None:
    world = World().with_brokers(1, 2)
    world.with_brokers(3, log_dirs=(directory(3), directory(3, 1)))
    world.create("a", assignments=[[3, 1]])
    world.create("b", assignments=[[1, 2]])
    world.beat(1, offline_log_dirs=(new_uuid(),))
    assert world.shape("b")[:2] == (1, (1, 2))
    world.beat(1, offline_log_dirs=(directory(1),))
    assert world.shape("b")[:2] == (2, (2,))
    assert world.shape("a")[:2] == (3, (3,))

    before = len(world.log)
    for _ in range(2):
        world.beat(2, cordoned_log_dirs=())
    (record,) = world.log[before:]
    assert isinstance(record, BrokerRegistrationChangeRecord)
    assert record.cordoned_log_dirs == ()


def test_a_broker_whose_fence_could_not_be_written_is_fenced_at_the_next_look() -> None:
    """The log may be full when a broker leaves: it must not lead for ever."""
    world = World().with_brokers(1, 2)
    world.create("a", partitions=4, factor=2)
    leaving = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=world.state.cluster.brokers[1].broker_epoch, want_fence=True, want_shut_down=True
    )
    lost = world.controller.handle(leaving, 1, now_ms=world.now_ms, next_offset=world.next_offset)
    assert lost.records
    assert world.controller.tick(now_ms=world.now_ms, next_offset=world.next_offset).records, "nothing was written"

    world.tick()
    assert world.state.cluster.brokers[1].fenced
    assert {world.shape("a", number)[0] for number in range(4)} == {2}


def test_what_is_left_of_a_fence_that_was_written_in_part_is_done_by_the_next_controller() -> None:
    """So many partitions take several batches, and the epoch may be lost between two of them."""
    world = World().with_brokers(1, 2)
    for name in "abc":
        world.create(name, partitions=4_000, factor=2)
    world.now_ms += 8_000
    world.beat(1)
    world.now_ms += 1_500
    decision = world.controller.tick(now_ms=world.now_ms, next_offset=world.next_offset)
    assert not decision.is_atomic
    assert len(decision.records) > RECORDS_MAX
    world.carry_out(attrs.evolve(decision, records=decision.records[:RECORDS_MAX]))
    world.lose_the_epoch()
    world.activate()
    for _ in range(2):
        world.now_ms += 5_000
        world.beat(1)
        world.tick()

    assert world.state.cluster.brokers[2].fenced
    assert {partition.leader for partition in world.state.topics.partitions.values()} == {1}
