"""The one function that changes a partition, case by case as Kafka's PartitionChangeBuilder."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.controller.partitions import NO_LEADER, RECOVERING, Election, Rules, change, replayed
from kraftlib.metadata import PartitionRecord
from kraftlib.types import new_uuid

DIRECTORIES = {number: new_uuid() for number in range(1, 6)}
PARTITION = PartitionRecord(
    partition_id=0,
    topic_id=new_uuid(),
    replicas=(1, 2, 3),
    isr=(1, 2, 3),
    leader=1,
    leader_epoch=4,
    partition_epoch=9,
    directories=(DIRECTORIES[1], DIRECTORIES[2], DIRECTORIES[3]),
)

EVERYBODY = frozenset({1, 2, 3, 4})


def after(
    partition: PartitionRecord = PARTITION,
    *,
    active: frozenset[int] | set[int] = EVERYBODY,
    level: int = 30,
    **how: Any,
) -> PartitionRecord:
    """The partition after the change."""
    rules = Rules(
        is_acceptable=active.__contains__,
        metadata_version=level,
        directory_of=DIRECTORIES.__getitem__,
        is_online=lambda broker_id, directory: True,
    )
    record = change(partition, rules, **how)
    return partition if record is None else replayed(partition, record)


def shape(partition: PartitionRecord) -> tuple[int, tuple[int, ...], int, int]:
    return partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch


def test_nothing_changes_where_nothing_must() -> None:
    assert after() is PARTITION
    assert after(active={1}) is PARTITION


def test_the_next_replica_in_order_leads_when_the_leader_goes() -> None:
    assert shape(after(active={2, 3}, isr=[2, 3])) == (2, (2, 3), 5, 10)
    assert shape(after(active={3}, isr=[2, 3])) == (3, (2, 3), 5, 10)


def test_a_smaller_isr_keeps_the_leader_epoch_except_before_3_6() -> None:
    assert shape(after(isr=[1, 2])) == (1, (1, 2), 4, 10)
    assert shape(after(isr=[1, 2], level=11)) == (1, (1, 2), 5, 10)


def test_the_last_replica_in_sync_stays_and_the_partition_waits_for_it() -> None:
    alone = attrs.evolve(PARTITION, isr=(1,))
    offline = after(alone, active={2, 3}, isr=[])
    assert shape(offline) == (NO_LEADER, (1,), 5, 10)
    assert shape(after(offline, active={1, 2, 3})) == (1, (1,), 6, 11)


def test_an_unclean_election_makes_the_leader_the_only_one_in_sync() -> None:
    alone = attrs.evolve(PARTITION, isr=(1,))
    unclean = after(alone, active={2, 3}, isr=[], election=Election.UNCLEAN)
    assert shape(unclean) == (2, (2,), 5, 10)
    assert unclean.leader_recovery_state == RECOVERING
    assert after(unclean, recovery_state=0).leader_recovery_state == 0
    assert shape(after(active={2, 3}, isr=[2, 3], election=Election.UNCLEAN)) == (2, (2, 3), 5, 10)


def test_the_preferred_replica_leads_if_it_is_in_sync_and_active() -> None:
    moved = attrs.evolve(PARTITION, leader=2)
    assert shape(after(moved, election=Election.PREFERRED)) == (1, (1, 2, 3), 5, 10)
    assert after(moved, active={2, 3}, election=Election.PREFERRED) is moved
    assert after(attrs.evolve(moved, isr=(2, 3)), election=Election.PREFERRED).leader == 2


def test_replicas_that_come_get_a_directory_and_those_that_go_a_new_leader_epoch() -> None:
    grown = after(replicas=[1, 2, 3, 4])
    assert grown.directories == (*PARTITION.directories, DIRECTORIES[4])
    assert (grown.leader_epoch, grown.partition_epoch) == (4, 10)
    shrunk = after(replicas=[1, 2], isr=[1, 2])
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.directories) == (1, 5, PARTITION.directories[:2])


@pytest.mark.parametrize("level", [16, 17])
def test_directories_are_written_from_3_7_on(level: int) -> None:
    assert (after(replicas=[1, 2, 3, 4], level=level).directories != PARTITION.directories) is (level == 17)


def test_a_partition_without_a_leader_remembers_the_last_one_though_its_isr_is_not_empty() -> None:
    """Its last in-sync replica is there, and has lost the directory; as Kafka 4.3 with eligible leader replicas."""
    lost: set[int] = {2}
    rules = Rules(
        is_acceptable=EVERYBODY.__contains__,
        metadata_version=30,
        directory_of=DIRECTORIES.__getitem__,
        is_online=lambda broker_id, directory: broker_id not in lost,
        min_in_sync=lambda partition: 1,
    )
    places = (DIRECTORIES[1], DIRECTORIES[2])
    partition = attrs.evolve(PARTITION, replicas=(1, 2), isr=(1, 2), directories=places)
    gone = change(partition, rules, isr=(2,))
    assert gone is not None
    assert (gone.leader, gone.isr, gone.last_known_elr) == (NO_LEADER, (2,), (1,))
    alone = replayed(partition, gone)
    assert change(alone, rules) is None
    lost.clear()
    back = change(alone, rules)
    assert back is not None
    assert (back.leader, back.last_known_elr) == (2, ())
