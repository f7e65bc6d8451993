"""What listeners are told: by example, and against a comparison of everything for long random histories."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import attrs

from kraftlib.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from kraftlib.metadata.delta import MetadataDelta, difference
from kraftlib.metadata.image import ClusterImage
from kraftlib.metadata.published import MetadataImage


def partition(topic: int, number: int, **changes: Any) -> PartitionRecord:
    plain = PartitionRecord(
        partition_id=number, topic_id=UUID(int=topic), replicas=(1, 2), isr=(1,), leader=1, leader_epoch=0,
        partition_epoch=0,
    )  # fmt: skip
    return attrs.evolve(plain, **changes)


def named(delta: MetadataDelta) -> dict[str, Any]:
    """The parts of a delta that are not empty, without the pictures."""
    parts = attrs.asdict(delta, recurse=False)
    shown = {name: value for name, value in parts.items() if name not in ("before", "after") and value}
    for name in ("topics_created", "topics_deleted"):
        if name in shown:
            shown[name] = tuple(topic.name for topic in shown[name])
    if moved := shown.pop("leaders_changed", ()):
        shown["moved"] = [(one.topic.name, one.partition, one.previous_leader, one.leader) for one in moved]
    return shown


def test_each_kind_of_change_is_told_and_nothing_else() -> None:
    state, image = ClusterImage(), MetadataImage()

    def after(*records: object) -> dict[str, Any]:
        nonlocal image
        before = image
        for record in records:
            state.apply(record)
        image, touched = state.publish(image.end_offset + len(records))
        delta = difference(before, image, touched)
        assert (delta.before, delta.after) == (before, image)
        return named(delta)

    register = RegisterBrokerRecord(broker_id=1, incarnation_id=UUID(int=9), broker_epoch=5)
    config = ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="5")
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5)
    lead = PartitionChangeRecord(partition_id=0, topic_id=UUID(int=1), leader=2)
    topic = TopicRecord(name="a", topic_id=UUID(int=1))

    assert after(register) == {"brokers_registered": (1,)}
    assert after(attrs.evolve(change, fenced=-1)) == {"brokers_unfenced": (1,)}
    assert after(attrs.evolve(register, broker_epoch=6, fenced=False)) == {"brokers_registered": (1,)}
    assert after(attrs.evolve(change, fenced=1)) == {"brokers_fenced": (1,)}
    assert after(topic, partition(1, 0)) == {"topics_created": ("a",)}
    assert after(lead) == {"moved": [("a", 0, 1, 2)]}
    assert after(attrs.evolve(lead, leader=-2, isr=(1, 2))) == {}
    assert after(partition(1, 1)) == {"moved": [("a", 1, -1, 1)]}
    assert after(config) == {"configs_changed": ("TOPIC:a",)}
    assert after(config) == {}
    assert after(FeatureLevelRecord(name="group.version", feature_level=1)) == {"features_changed": ("group.version",)}
    assert after(RemoveTopicRecord(topic_id=UUID(int=1))) == {"topics_deleted": ("a",), "configs_changed": ("TOPIC:a",)}
    assert after(topic, partition(1, 0), RemoveTopicRecord(topic_id=UUID(int=1))) == {}
    assert after(UnregisterBrokerRecord(broker_id=1, broker_epoch=6)) == {"brokers_gone": (1,)}


def history(seed: int) -> Iterator[Any]:
    """Draw records; some do not fit."""
    chance = random.Random(seed)
    while True:
        topic, number, broker = chance.randrange(1, 9), chance.randrange(4), chance.randrange(1, 5)
        yield chance.choice(
            (
                TopicRecord(name=f"t{topic}", topic_id=UUID(int=topic)),
                partition(topic, number, eligible_leader_replicas=(2,)),
                partition(topic, number, leader=-1),
                PartitionChangeRecord(topic_id=UUID(int=topic), partition_id=number, leader=broker),
                PartitionChangeRecord(topic_id=UUID(int=topic), partition_id=number, isr=(broker,)),
                RemoveTopicRecord(topic_id=UUID(int=topic)),
                ClearElrRecord(topic_name=chance.choice(("", f"t{topic}"))),
                ConfigRecord(
                    resource_type=2, resource_name=f"t{topic}", name="a", value=chance.choice((None, str(number)))
                ),
                RegisterBrokerRecord(broker_id=broker, incarnation_id=UUID(int=1), broker_epoch=number),
                BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=0, fenced=chance.choice((-1, 1))),
                UnregisterBrokerRecord(broker_id=broker, broker_epoch=0),
                BeginTransactionRecord(),
                EndTransactionRecord(),
                AbortTransactionRecord(),
            )
        )


def plain(image: MetadataImage) -> dict[str, Any]:
    return {name: dict(value) for name, value in attrs.asdict(image, recurse=True).items() if name != "end_offset"}


def test_what_was_touched_is_all_that_differs_and_old_pictures_stay_as_they_were() -> None:
    for seed in range(20):
        chance, state, records = random.Random(seed), ClusterImage(), history(seed)
        image, pictures = MetadataImage(), []
        for end_offset in range(100):
            for _ in range(chance.randrange(12)):
                state.apply(next(records))
            before, (image, touched) = image, state.publish(end_offset)
            told, everything = (named(difference(before, image, one)) for one in (touched, None))
            assert {key: sorted(value) for key, value in told.items()} == {
                key: sorted(value) for key, value in everything.items()
            }, (seed, end_offset)
            assert dict(image.topic_ids) == {topic.name: topic.topic_id for topic in image.topics.values()}
            pictures.append((image, plain(image)))
        assert all(plain(picture) == then for picture, then in pictures), seed
