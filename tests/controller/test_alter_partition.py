from __future__ import annotations

from typing import Any

import pytest

from kraftlib.types import new_uuid
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_partition import AlterPartitionRequest
from tests.controller.world import World


def led_by_one() -> World:
    """Brokers 1 to 3, of which 1 leads a partition of 1 and 2, and 2 has left the ISR and come back."""
    world = World().with_brokers(1, 2, 3)
    world.create("a", assignments=[[1, 2]])
    world.beat(2, want_fence=True)
    world.beat(2)
    assert world.shape("a") == (1, (1,), 0, 1)
    return world


def alter(world: World, isr: list[int], *, version: int = 3, **changes: Any) -> Any:
    one, brokers = world.partition("a"), world.state.cluster.brokers
    sender = changes.pop("broker_id", 1)
    epoch = changes.pop("broker_epoch", brokers[sender].broker_epoch)
    topic = {"topic_id": changes.pop("topic_id", one.topic_id)} if version >= 2 else {"topic_name": "a"}
    topic |= {"topic_name": changes.pop("topic_name")} if "topic_name" in changes else {}
    epochs = {number: brokers[number].broker_epoch if number in brokers else -1 for number in isr}
    epochs.update(changes.pop("epochs", {}))
    fields: dict[str, Any] = {
        "partition_index": 0,
        "leader_epoch": one.leader_epoch,
        "partition_epoch": one.partition_epoch,
    }
    if version >= 3:
        state = AlterPartitionRequest.BrokerState
        fields["new_isr_with_epochs"] = tuple(state(broker_id=one, broker_epoch=epochs[one]) for one in isr)
    else:
        fields["new_isr"] = tuple(isr)
    data = AlterPartitionRequest.PartitionData(**{**fields, **changes})
    wanted = AlterPartitionRequest.TopicData(**topic, partitions=(data,))
    request = AlterPartitionRequest(broker_id=sender, broker_epoch=epoch, topics=(wanted,))
    return world.ask(request, version=version)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_leader_takes_a_replica_back(version: int) -> None:
    world = led_by_one()
    (topic,) = alter(world, [1, 2], version=version).topics
    assert topic.topic_name == ("a" if version < 2 else "")
    (row,) = topic.partitions
    assert (row.error_code, row.leader_id, row.isr, row.leader_epoch, row.partition_epoch) == (0, 1, (1, 2), 0, 2)
    assert world.shape("a") == (1, (1, 2), 0, 2)


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ([1, 2], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 2], {"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 3], {}, ErrorCode.INVALID_REQUEST),
        ([2], {}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 2}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": -1}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"epochs": {2: 5}}, ErrorCode.INELIGIBLE_REPLICA),
        ([1, 2], {"topic_id": new_uuid()}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1, 2], {"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_a_leader_may_not_say_changes_nothing(isr: list[int], changes: dict[str, Any], code: ErrorCode) -> None:
    world = led_by_one()
    before = len(world.log)
    (row,) = alter(world, isr, **changes).topics[0].partitions
    assert row.error_code == code
    assert len(world.log) == before


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ([1, 2], {}, ErrorCode.OPERATION_NOT_ATTEMPTED),
        ([1, 2], {"topic_name": "b"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"topic_name": ""}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([], {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_version_that_names_topics_has_the_errors_of_its_time(
    version: int, isr: list[int], changes: dict[str, Any], code: ErrorCode
) -> None:
    world = led_by_one()
    world.beat(2, want_fence=True)
    before = len(world.log)
    (row,) = alter(world, isr, version=version, **changes).topics[0].partitions
    assert row.error_code == code
    assert len(world.log) == before


def test_a_fenced_replica_is_not_in_sync_and_an_old_process_is_not_heard() -> None:
    world = led_by_one()
    world.beat(2, want_fence=True)
    (row,) = alter(world, [1, 2]).topics[0].partitions
    assert row.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert alter(world, [1], broker_epoch=0).error_code == ErrorCode.STALE_BROKER_EPOCH
