"""Histories of Kafka clusters, made up: every record fits to those before it."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from kraftlib.metadata import broker_records as brokers
from kraftlib.metadata import config_records as configs
from kraftlib.metadata import log_records as logs
from kraftlib.metadata import security_records as security
from kraftlib.metadata import topic_records as topics

NAMES = ("orders", "order", "events", "e")


class History:
    """What exists, so that the next record can be about it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.topics: dict[str, UUID] = {}
        self.partitions: set[tuple[UUID, int]] = set()
        self.brokers: set[int] = set()
        self.controllers: set[int] = set()
        self.rules: set[UUID] = set()

    def next(self) -> Any:
        """Return a record, None if nothing fits."""
        return self.chance.choice(
            [self.topic, self.topic, self.partition, self.partition, self.change, self.change, self.change,
             self.broker, self.change_of_broker, self.config, self.config, self.other, self.rule]
        )()  # fmt: skip

    def topic(self) -> Any:
        name = self.chance.choice(NAMES)
        if name not in self.topics:
            self.topics[name] = UUID(int=self.chance.getrandbits(128))
            return topics.TopicRecord(name=name, topic_id=self.topics[name])
        if self.chance.random() < 0.6:
            return None
        gone = self.topics.pop(name)
        self.partitions = {place for place in self.partitions if place[0] != gone}
        return topics.RemoveTopicRecord(topic_id=gone)

    def partition(self) -> Any:
        if not self.topics:
            return None
        place = self.chance.choice(sorted(self.topics.values())), self.chance.randrange(3)
        if place in self.partitions:
            return None
        self.partitions.add(place)
        replicas = tuple(self.chance.sample(range(5), 3))
        return topics.PartitionRecord(
            topic_id=place[0], partition_id=place[1], replicas=replicas, isr=replicas, leader=replicas[0],
            leader_epoch=0, partition_epoch=0, directories=tuple(UUID(int=n) for n in replicas),
        )  # fmt: skip

    def change(self) -> Any:
        if not self.partitions:
            return None
        topic_id, number = self.chance.choice(sorted(self.partitions))
        some = tuple(self.chance.sample(range(5), self.chance.randint(1, 3)))
        named = self.chance.choice(
            [{"isr": some}, {"leader": some[0], "isr": some}, {"replicas": some, "removing_replicas": ()},
             {"adding_replicas": some}, {"eligible_leader_replicas": some[:1], "last_known_elr": ()},
             {"leader": -1, "leader_recovery_state": 1}]
        )  # fmt: skip
        return topics.PartitionChangeRecord(topic_id=topic_id, partition_id=number, **named)

    def broker(self) -> Any:
        number = self.chance.randrange(3)
        if number in self.brokers and self.chance.random() < 0.3:
            self.brokers.discard(number)
            return brokers.UnregisterBrokerRecord(broker_id=number, broker_epoch=1)
        self.brokers.add(number)
        return brokers.RegisterBrokerRecord(broker_id=number, broker_epoch=self.chance.randrange(99), rack="r")

    def change_of_broker(self) -> Any:
        if not self.brokers:
            return None
        number = self.chance.choice(sorted(self.brokers))
        return self.chance.choice(
            [
                brokers.FenceBrokerRecord(id=number),
                brokers.UnfenceBrokerRecord(id=number),
                brokers.BrokerRegistrationChangeRecord(broker_id=number, fenced=self.chance.choice([-1, 0, 1])),
                brokers.BrokerRegistrationChangeRecord(broker_id=number, in_controlled_shutdown=1),
            ]
        )

    def config(self) -> Any:
        value = self.chance.choice([None, "1", "2"])
        name = self.chance.choice(sorted(self.topics) or ["x"])
        kind, name = self.chance.choice([(2, name), (4, ""), (4, "1")])
        return configs.ConfigRecord(resource_type=kind, resource_name=name, name=self.chance.choice("ab"), value=value)

    def controller(self, number: int) -> Any:
        if number in self.controllers:
            self.controllers.discard(number)
            return brokers.UnregisterControllerRecord(controller_id=number)
        self.controllers.add(number)
        return brokers.RegisterControllerRecord(controller_id=number)

    def other(self) -> Any:
        number = self.chance.randrange(3)
        if self.chance.random() < 0.2:
            return self.controller(number)
        part = configs.ClientQuotaRecord.EntityData(entity_type="user", entity_name=self.chance.choice([None, "u"]))
        return self.chance.choice(
            [
                logs.NoOpRecord(),
                configs.FeatureLevelRecord(name=self.chance.choice(["metadata.version", "f"]), feature_level=number),
                configs.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1_000 * number),
                configs.ClientQuotaRecord(entity=(part,), key="rate", value=1.5, remove=number == 0),
                security.UserScramCredentialRecord(name="u", mechanism=1, iterations=number),
            ]
        )

    def rule(self) -> Any:
        if self.rules and self.chance.random() < 0.5:
            return security.RemoveAccessControlEntryRecord(id=self.rules.pop())
        made = UUID(int=self.chance.getrandbits(128))
        self.rules.add(made)
        return security.AccessControlEntryRecord(id=made, principal="User:u")


def a_history(chance: random.Random, length: int) -> list[Any]:
    """Return so many records, one after the other."""
    history = History(chance)
    records: list[Any] = []
    while len(records) < length:
        record = history.next()
        if record is not None:
            records.append(record)
    return records
