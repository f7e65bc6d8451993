"""Epochs of controllers; and random clusters, whose state is at all times what their log says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.controller.partitions import NO_LEADER
from kraftlib.controller.versions import METADATA_VERSION
from kraftlib.errors import InvariantError
from kraftlib.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterControllerRecord,
)
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_partition import AlterPartitionRequest
from tests.controller.world import World, picture, refolded


def test_an_empty_log_begins_with_its_feature_levels_as_one_transaction() -> None:
    types = [type(record) for record in World().log]
    assert types == [BeginTransactionRecord, *[FeatureLevelRecord] * 3, EndTransactionRecord, RegisterControllerRecord]
    assert World(levels={METADATA_VERSION: 7}).state.features.metadata_version == 7


def test_the_next_controller_ends_a_transaction_that_its_predecessor_left_open() -> None:
    world = World()
    world.log.append(BeginTransactionRecord())
    world.commit()
    world.activate()
    assert isinstance(world.log[-2], AbortTransactionRecord)
    assert not world.state.in_transaction


def test_a_transaction_whose_end_is_cut_off_is_open_again() -> None:
    """The controller of before may be elected again, and its records must not be held back on all others."""
    world = World()
    world.lose_the_epoch()
    world.log += [BeginTransactionRecord(), FeatureLevelRecord(name="share.version", feature_level=1)]
    world.commit()
    before = picture(world.state)
    world.carry_out(world.controller.activate(now_ms=world.now_ms, next_offset=world.next_offset), commit=False)
    assert picture(world.state) == before, "a snapshot has what is committed"
    world.lose_the_epoch()
    assert world.state.in_transaction
    assert picture(world.state) == before
    world.activate()
    assert isinstance(world.log[-2], AbortTransactionRecord)
    assert world.state.features.levels.get("share.version") is None


def test_a_controller_that_is_registered_says_so_no_second_time() -> None:
    world = World()
    world.lose_the_epoch()
    world.commit()
    world.activate()
    assert isinstance(world.log[-1], NoOpRecord)
    assert [type(record) for record in world.log].count(RegisterControllerRecord) == 1


def test_a_standby_decides_nothing_and_a_level_that_nobody_knows_is_not_served() -> None:
    world = World().with_brokers(1)
    world.lose_the_epoch()
    assert world.create("a").error_code == ErrorCode.NOT_CONTROLLER
    assert world.tick() == []

    world.log.append(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=2))
    world.commit()
    with pytest.raises(InvariantError, match=r"eligible\.leader\.replicas"):
        world.activate()


def test_what_was_not_committed_is_gone_with_the_epoch() -> None:
    world = World().with_brokers(1, 2)
    world.create("kept")
    before = picture(world.state)
    assert world.create("lost", commit=False).error_code == 0
    assert world.create("lost", commit=False).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    world.beat(1, want_fence=True, commit=False)
    assert world.partition("kept").leader in (2, NO_LEADER)
    assert picture(world.state) == before  # a snapshot holds what is committed

    world.lose_the_epoch()
    assert picture(world.state) == before
    world.activate()
    assert world.create("lost").error_code == 0


def test_a_quiet_controller_appends_something_now_and_then() -> None:
    world = World(no_op_interval_ms=500)
    world.now_ms += 499
    assert world.tick() == []
    world.now_ms += 1
    assert [type(record) for record in world.tick()] == [NoOpRecord]
    assert world.tick() == []


def test_no_broker_is_fenced_because_a_controller_was_lost() -> None:
    world = World(no_op_interval_ms=0, broker_session_timeout_ms=9_000).with_brokers(1)
    world.now_ms += 60_000
    world.lose_the_epoch()
    world.activate()
    world.now_ms += 9_000
    assert world.tick() == []
    world.now_ms += 1
    assert world.tick() != []
    assert world.state.cluster.brokers[1].fenced


@given(st.integers(0, 2**32 - 1))
def test_the_state_is_the_log_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    world = World(seed=seed, no_op_interval_ms=0)
    for _ in range(80):
        step(world, chance)
        check(world)
    world.commit()
    assert picture(world.state) == picture(refolded(world))


def step(world: World, chance: random.Random) -> None:
    """One thing that brokers, clients, time or an election may do."""
    broker_id, commit = chance.randint(1, 4), chance.random() < 0.7
    what = chance.choice(["register", "beat", "beat", "beat", "shut", "create", "isr", "time", "epoch", "commit"])
    if what == "register":
        world.register(broker_id, rack=chance.choice([None, "x", "y"]))
    elif what == "beat":
        world.beat(broker_id, commit=commit, want_fence=chance.random() < 0.2)
    elif what == "shut":
        world.beat(broker_id, commit=commit, want_shut_down=True)
    elif what == "create":
        name = f"topic-{chance.randint(1, 6)}"
        configs = {"unclean.leader.election.enable": "true"} if chance.random() < 0.3 else {}
        world.create(name, partitions=chance.randint(1, 4), factor=chance.randint(1, 4), configs=configs, commit=commit)
    elif what == "isr":
        change_isr(world, chance, commit)
    elif what == "time":
        world.now_ms += chance.choice([100, 5_000, 10_000, 10_000, 1 << 40, -30_000])  # clocks may jump
        world.tick()
    elif what == "epoch":
        world.lose_the_epoch()
        assert picture(world.state) == picture(refolded(world))
        world.activate()
    else:
        world.commit()


def change_isr(world: World, chance: random.Random, commit: bool) -> None:
    """Have the leader of some partition name other replicas in sync."""
    led = [one for one in world.state.topics.partitions.values() if one.leader != NO_LEADER]
    if not led:
        return
    one = chance.choice(led)
    others = [number for number in one.replicas if number != one.leader and chance.random() < 0.6]
    brokers = world.state.cluster.brokers
    data = AlterPartitionRequest.PartitionData(
        partition_index=one.partition_id,
        leader_epoch=one.leader_epoch,
        partition_epoch=one.partition_epoch,
        new_isr_with_epochs=tuple(
            AlterPartitionRequest.BrokerState(broker_id=number, broker_epoch=brokers[number].broker_epoch)
            for number in [one.leader, *others]
        ),
    )
    world.ask(
        AlterPartitionRequest(
            broker_id=one.leader,
            broker_epoch=brokers[one.leader].broker_epoch,
            topics=(AlterPartitionRequest.TopicData(topic_id=one.topic_id, partitions=(data,)),),
        ),
        commit=commit,
    )


def check(world: World) -> None:
    """What is true of every cluster."""
    cluster, topics = world.state.cluster, world.state.topics
    for one in topics.partitions.values():
        assert set(one.isr) <= set(one.replicas)
        assert len(set(one.replicas)) == len(one.replicas) == len(one.directories)
        assert one.isr != (), "the last replica in sync is not forgotten"
        if one.leader != NO_LEADER:
            assert one.leader in one.isr
            assert cluster.is_active(one.leader)
        else:
            assert not any(cluster.is_active(number) for number in one.isr)
    epochs = [broker.broker_epoch for broker in cluster.brokers.values()]
    assert len(set(epochs)) == len(epochs)
    for number in range(1, 5):
        found = {(one.topic_id, one.partition_id) for one in topics.in_sync_on(number)}
        assert found == {key for key, one in topics.partitions.items() if number in one.isr}
