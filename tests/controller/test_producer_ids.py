from __future__ import annotations

from kraftlib.metadata import ProducerIdsRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tests.controller.world import World


def test_no_producer_id_is_given_out_twice_also_by_the_next_controller() -> None:
    world = World().with_brokers(1, 2)
    starts = []
    for broker_id in (1, 2, 1):
        epoch = world.state.cluster.brokers[broker_id].broker_epoch
        answer = world.ask(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))
        assert (answer.error_code, answer.producer_id_len) == (0, 1_000)
        starts.append(answer.producer_id_start)
        world.lose_the_epoch()
        world.activate()
    assert starts == [0, 1_000, 2_000]


def test_they_are_for_brokers_of_the_present_and_end_with_64_bits() -> None:
    world = World().with_brokers(1)
    assert world.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)).error_code == ErrorCode.STALE_BROKER_EPOCH
    world.log.append(ProducerIdsRecord(broker_id=1, next_producer_id=(1 << 63) - 1_000))
    world.commit()
    epoch = world.state.cluster.brokers[1].broker_epoch
    answer = world.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_snapshot_says_which_id_is_next_and_not_who_has_the_last_block() -> None:
    """As that of Kafka's controllers; else replicas that began with a snapshot of theirs would differ from others."""
    world = World().with_brokers(1)
    epoch = world.state.cluster.brokers[1].broker_epoch
    world.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
    (kept,) = [record for record in world.state.freeze() if isinstance(record, ProducerIdsRecord)]
    assert (kept.broker_id, kept.broker_epoch, kept.next_producer_id) == (-1, -1, 1_000)
