"""Pictures of the cluster and the routes in them."""

from __future__ import annotations

import attrs

from kraftlib.metadata import (
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)
from kraftlib.metadata.image import ClusterImage
from kraftlib.metadata.published import MetadataImage
from kraftlib.types import new_uuid

TOPIC_ID = new_uuid()
PARTITION = PartitionRecord(
    partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=0
)


def broker(number: int) -> RegisterBrokerRecord:
    place = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host=f"b{number}", port=9092)
    return RegisterBrokerRecord(broker_id=number, incarnation_id=new_uuid(), broker_epoch=number, end_points=(place,))


def test_a_route_names_the_leader_and_its_endpoints_and_a_picture_keeps_its_own() -> None:
    state = ClusterImage()

    def after(*records: object) -> MetadataImage:
        for record in records:
            state.apply(record)
        return state.publish(7)[0]

    first = after(
        broker(1),
        broker(2),
        UnfenceBrokerRecord(id=1, epoch=1),
        UnfenceBrokerRecord(id=2, epoch=2),
        TopicRecord(name="events", topic_id=TOPIC_ID),
        PARTITION,
        attrs.evolve(PARTITION, partition_id=1, leader=2),
    )
    moved = after(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
    alone = after(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    fenced = after(FenceBrokerRecord(id=2, epoch=2))

    shown = [
        [(route.leader, route.leader_epoch, dict(route.endpoints)) for route in image.routes("events")]
        for image in (first, moved, alone, fenced)
    ]
    one, two = {"PLAINTEXT": "b1:9092"}, {"PLAINTEXT": "b2:9092"}
    assert shown == [
        [(1, 4, one), (2, 4, two)],
        [(2, 5, two), (2, 4, two)],
        [(-1, 6, {}), (2, 4, two)],
        [(-1, 6, {}), (2, 4, {})],
    ]
    route = first.route("events", 1)
    assert route is not None
    assert (route.topic, route.topic_id, route.partition) == ("events", TOPIC_ID, 1)
    assert first.route("events", 2) is None
    assert first.route("others", 0) is None
    assert list(first.routes("others")) == []
    assert repr(first) == "<MetadataImage of 1 topics, 2 brokers at 7>"
