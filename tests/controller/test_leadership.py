"""Leaders and in-sync replicas with eligible leader replicas (KIP-966); without them, see test_heartbeats."""

from __future__ import annotations

import pytest

from kraftlib.controller.configs import BROKER, TOPIC
from kraftlib.controller.features import ELIGIBLE_LEADER_REPLICAS
from kraftlib.controller.partitions import NO_LEADER, RECOVERING
from kraftlib.metadata.config_records import ConfigRecord
from kraftlib.metadata.topic_records import ClearElrRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.test_alter_configs import DELETE, SET, alter
from tests.controller.world import LEVELS, World, picture, refolded


def eligible_world(**config: int) -> World:
    """Three brokers, and a topic on all of them in which two in-sync replicas commit."""
    world = World(levels={**LEVELS, ELIGIBLE_LEADER_REPLICAS: 1}, **config).with_brokers(1, 2, 3)
    world.create("a", assignments=[[1, 2, 3]], configs={"min.insync.replicas": "2"})
    return world


def places(world: World) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Leader, ISR, eligible leader replicas, and the last leader."""
    one = world.partition("a")
    return one.leader, one.isr, one.eligible_leader_replicas or (), one.last_known_elr or ()


def fence(world: World, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        world.beat(broker_id, want_fence=True)


def start_anew(world: World, broker_id: int, *, cleanly: bool) -> None:
    """A broker comes back as another process."""
    epoch = world.state.cluster.brokers[broker_id].broker_epoch
    world.now_ms += 60_000
    assert world.register(broker_id, previous_broker_epoch=epoch if cleanly else -1).error_code == 0
    assert world.beat(broker_id).is_fenced is False


def test_the_feature_begins_with_a_size_that_all_controllers_know() -> None:
    world = eligible_world()
    assert world.state.configs.of(BROKER, "") == {"min.insync.replicas": "1"}


def test_replicas_that_leave_an_isr_in_which_nothing_is_committed_may_lead() -> None:
    world = eligible_world()
    fence(world, 3)
    assert places(world) == (1, (1, 2), (), ())
    fence(world, 2)
    assert places(world) == (1, (1,), (2,), ())
    fence(world, 1)
    assert places(world) == (NO_LEADER, (), (1, 2), (1,))
    world.beat(3)
    assert places(world)[0] == NO_LEADER, "it lacks records"
    world.beat(2)
    assert places(world) == (2, (2,), (1,), ())
    assert world.partition("a").leader_recovery_state != RECOVERING
    assert picture(refolded(world)) == picture(world.state)


def test_a_broker_that_has_not_ended_cleanly_is_not_eligible() -> None:
    world = eligible_world()
    fence(world, 3, 2, 1)
    start_anew(world, 2, cleanly=False)
    assert places(world) == (NO_LEADER, (), (1,), (1,))
    start_anew(world, 1, cleanly=True)
    assert places(world) == (1, (1,), (), ())


def test_the_last_leader_leads_again_where_nobody_is_eligible_and_records_may_be_lost() -> None:
    world = eligible_world()
    fence(world, 3, 2, 1)
    start_anew(world, 2, cleanly=False)
    start_anew(world, 1, cleanly=False)
    assert places(world) == (1, (1,), (), ())
    assert world.partition("a").leader_recovery_state == RECOVERING


def test_a_broker_that_was_unregistered_is_not_eligible_when_it_registers_anew() -> None:
    world = eligible_world()
    fence(world, 3, 2)
    world.ask(UnregisterBrokerRequest(broker_id=2))
    assert places(world) == (1, (1,), (2,), ())  # as in Kafka
    world.with_brokers(2)
    assert places(world) == (1, (1,), (), ())


def test_another_size_of_the_isr_voids_who_is_eligible() -> None:
    world = eligible_world()
    fence(world, 3, 2)
    epoch = world.partition("a").partition_epoch
    assert alter(world, TOPIC, "a", ("min.insync.replicas", SET, "3")) == 0
    assert [type(record) for record in world.log[-2:]] == [ConfigRecord, ClearElrRecord]
    assert places(world) == (1, (1,), (), ())
    assert world.partition("a").partition_epoch == epoch + 1
    assert alter(world, BROKER, "", ("min.insync.replicas", SET, "2")) == 0
    assert world.partition("a").partition_epoch == epoch + 1, "nobody was eligible any more"
    for name, change in (("", ("min.insync.replicas", DELETE, None)), ("1", ("min.insync.replicas", SET, "2"))):
        assert alter(world, BROKER, name, change) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("allowed", [False, True])
def test_unclean_elections_are_held_from_time_to_time_where_they_are_allowed(allowed: bool) -> None:
    world = eligible_world(unclean_leader_election_interval_ms=1_000, broker_session_timeout_ms=60_000)
    fence(world, 3, 2, 1)
    world.beat(3)
    assert alter(world, TOPIC, "a", ("unclean.leader.election.enable", SET, str(allowed).lower())) == 0
    assert places(world)[0] == NO_LEADER
    world.now_ms += 1_000
    world.tick()
    assert places(world) == ((3, (3,), (), ()) if allowed else (NO_LEADER, (), (1, 2), (1,)))
    assert (world.partition("a").leader_recovery_state == RECOVERING) is allowed
