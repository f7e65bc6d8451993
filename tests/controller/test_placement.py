from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.controller.placement import place
from kraftlib.controller.results import RefusedError
from kraftlib.wire.apis import ErrorCode
from tests.controller.world import World


@given(st.integers(1, 7), st.integers(1, 3), st.integers(1, 4), st.integers(1, 40), st.integers(0, 99))
def test_replicas_are_spread_over_racks_and_brokers(
    brokers: int, racks: int, factor: int, partitions: int, seed: int
) -> None:
    world = World()
    for number in range(brokers):
        world.with_brokers(number, rack=f"r{number % racks}")
    if factor > brokers:
        with pytest.raises(RefusedError, match=f"only {brokers} broker"):
            place(world.state.cluster, partitions=1, replication_factor=factor, random=random.Random(seed))
        return
    placed = place(world.state.cluster, partitions=partitions, replication_factor=factor, random=random.Random(seed))

    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({number % racks for number in replicas}) == min(factor, racks, brokers)
    led = Counter(replicas[0] for replicas in placed)
    assert max(led.values()) - min(led.get(number, 0) for number in range(brokers)) <= 1


def test_fenced_brokers_come_last_and_those_that_leave_not_at_all() -> None:
    world = World().with_brokers(1, 2, 3)
    world.create("a", partitions=3, factor=1)
    world.beat(2, want_fence=True)
    world.beat(3, want_shut_down=True)
    cluster = world.state.cluster

    placed = place(cluster, partitions=8, replication_factor=2, random=random.Random(1))
    assert set(placed) == {(1, 2)}
    with pytest.raises(RefusedError) as refused:
        place(cluster, partitions=1, replication_factor=3, random=random.Random(1))
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    world.beat(1, want_fence=True)
    with pytest.raises(RefusedError, match="fenced"):
        place(cluster, partitions=1, replication_factor=1, random=random.Random(1))


def test_a_broker_whose_directories_are_all_cordoned_gets_nothing_that_nobody_has_placed() -> None:
    world = World().with_brokers(1, 2, 3)
    directories = {number: world.state.cluster.brokers[number].log_dirs for number in (1, 2, 3)}
    world.beat(2, cordoned_log_dirs=directories[2])

    def placed(factor: int) -> set[tuple[int, ...]]:
        return set(place(world.state.cluster, partitions=8, replication_factor=factor, random=random.Random(1)))

    assert placed(2) == {(1, 3), (3, 1)}
    with pytest.raises(RefusedError, match=r"only 2 broker.*cordoned") as refused:
        placed(3)
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert world.create("by-hand", assignments=[[2]]).error_code == 0
    world.beat(2, cordoned_log_dirs=())
    assert len(placed(3)) > 1
    for number in (1, 2, 3):
        world.beat(number, cordoned_log_dirs=directories[number])
    with pytest.raises(RefusedError, match="all their log directories cordoned"):
        placed(1)
