"""Clients that are not Kafka's own, on controllers of ours: kafka-python, and confluent-kafka, which is librdkafka.

Each creates and alters a topic, produces in transactions while the active controller is killed, and reads in a group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final, Protocol

import pytest

from tests.interop.clusters import Cluster
from tests.interop.lab import Lab
from tests.interop.processes import wait_for

TOPIC: Final = "orders"
PARTITIONS: Final = 3
TRANSACTIONS: Final = 10
RECORDS: Final = 20
"""A transaction."""
ABORTED: Final = 3
"""Every third transaction is aborted."""
PATIENCE_S: Final = 60.0


class Client(Protocol):
    """What a client library is asked for."""

    def __init__(self, bootstrap: str) -> None: ...

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        """Create a topic."""

    def alter(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        """Give it more partitions, and settings."""

    def described(self, topic: str, setting: str) -> tuple[int, str]:
        """Return its number of partitions, and one setting."""

    def delete(self, topic: str) -> None:
        """Delete it."""

    def topics(self) -> set[str]:
        """Return the names of all topics."""

    def send(self, topic: str, transactions: Iterable[tuple[list[str], bool]]) -> None:
        """Produce values, transaction by transaction, each of which is committed (True) or aborted."""

    def read(self, topic: str, group: str, count: int) -> list[str]:
        """Return committed values, read in a group from the beginning on; the group has what it has read."""

    def close(self) -> None:
        """Close its connections."""


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        from kafka import KafkaAdminClient

        self._bootstrap: Final = bootstrap
        self._admin: Final = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        from kafka.admin import NewTopic

        self._admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])

    def alter(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        from kafka.admin import ConfigResource, NewPartitions

        self._admin.create_partitions({topic: NewPartitions(partitions)})
        self._admin.alter_configs([ConfigResource("TOPIC", topic, configs=settings)])

    def described(self, topic: str, setting: str) -> tuple[int, str]:
        from kafka.admin import ConfigResource

        found = self._admin.describe_configs([ConfigResource("TOPIC", topic)])
        (about,) = self._admin.describe_topics([topic])
        return len(about["partitions"]), str(found["topic"][topic][setting]["value"])

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def send(self, topic: str, transactions: Iterable[tuple[list[str], bool]]) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id="kafka-python")
        producer.init_transactions()
        for values, is_committed in transactions:
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value.encode(), key=value.encode())
            if is_committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.close()

    def read(self, topic: str, group: str, count: int) -> list[str]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic, bootstrap_servers=self._bootstrap, group_id=group, auto_offset_reset="earliest",
            isolation_level="read_committed", enable_auto_commit=False,
        )  # fmt: skip
        with closing(consumer):
            found = until(count, lambda: [each.value.decode() for rows in consumer.poll(500).values() for each in rows])
            consumer.commit()
        return found

    def close(self) -> None:
        self._admin.close()


class ConfluentKafka:
    """confluent-kafka, which is librdkafka."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._given: Final = {"bootstrap.servers": bootstrap}
        self._admin: Final = AdminClient(self._given)
        wait_for("a controller", self._knows_a_controller)

    def _knows_a_controller(self) -> bool:
        """Its requests wait for a controller. A broker that has just started may name none, and no broker either.

        It calls itself started with the answer to its heartbeat, and may read later in the log that it is unfenced.
        """
        from confluent_kafka import KafkaError, KafkaException

        try:
            return bool(self._admin.list_topics(timeout=PATIENCE_S).controller_id >= 0)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._PARTIAL:
                raise
            return False

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        from confluent_kafka.admin import NewTopic

        done(self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]))

    def alter(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

        done(self._admin.create_partitions([NewPartitions(topic, partitions)]))
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        done(self._admin.incremental_alter_configs([resource]))

    def described(self, topic: str, setting: str) -> tuple[int, str]:
        from confluent_kafka.admin import ConfigResource

        (found,) = done(self._admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]))
        return len(self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions), found[setting].value

    def delete(self, topic: str) -> None:
        done(self._admin.delete_topics([topic]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=PATIENCE_S).topics)

    def send(self, topic: str, transactions: Iterable[tuple[list[str], bool]]) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self._given, "transactional.id": "confluent-kafka"})
        producer.init_transactions()
        for values, is_committed in transactions:
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value, key=value)
            if is_committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    def read(self, topic: str, group: str, count: int) -> list[str]:
        from confluent_kafka import Consumer

        words = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({**self._given, **words, "enable.auto.commit": False})
        consumer.subscribe([topic])
        with closing(consumer):
            found = until(count, lambda: [each.value().decode() for each in consumer.consume(count, timeout=0.5)])
            consumer.commit(asynchronous=False)
        return found

    def close(self) -> None:
        """There is nothing to close: its threads end with the object."""


def until(count: int, poll: Callable[[], list[str]]) -> list[str]:
    """Return so many values, and all that come for a moment after them."""
    found: list[str] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < end:
        found += poll()
    return found + poll()


def done(futures: Mapping[Any, Any]) -> list[Any]:
    """Return the results of confluent-kafka's futures; raise what failed."""
    return [future.result(timeout=PATIENCE_S) for future in futures.values()]


def transactions(cluster: Cluster, sent: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Yield values and whether they are committed, those that are in `sent`, too; kill the active controller twice."""
    for number in range(TRANSACTIONS):
        values = [f"{number}-{each}" for each in range(RECORDS)]
        is_committed = number % ABORTED != 0
        if is_committed:
            sent += values
        if number in (2, 7):
            active = cluster.active()
            cluster.controllers[active].kill()
            cluster.active(but=active)
            cluster.controllers[active].start()
        yield values, is_committed


# kafka-python reads its own files in an old way.
@pytest.mark.filterwarnings("ignore:.*is deprecated. Use files:DeprecationWarning")
@pytest.mark.each_release
@pytest.mark.parametrize("client", [KafkaPython, ConfluentKafka], ids=["kafka-python", "confluent-kafka"])
def test_a_client_of_another_maker_lives_on_controllers_of_ours(lab: Lab, client: type[Client]) -> None:
    """Topics, settings, transactions through kills of the controller, a group: what was committed is read once."""
    cluster = Cluster(lab, controllers=3)
    cluster.start_brokers()
    with closing(client(cluster.bootstrap)) as one:
        one.create(TOPIC, PARTITIONS - 1, {"retention.ms": "100000"})
        one.create("gone", 1, {})
        one.alter(TOPIC, PARTITIONS, {"retention.ms": "200000"})
        wait_for("the new partition", lambda: one.described(TOPIC, "retention.ms") == (PARTITIONS, "200000"))
        sent: list[str] = []
        one.send(TOPIC, transactions(cluster, sent))
        assert sorted(one.read(TOPIC, "readers", len(sent))) == sorted(sent)
        one.send(TOPIC, [(["last"], True)])
        assert one.read(TOPIC, "readers", 1) == ["last"]
        one.delete("gone")
        wait_for("the end of a topic", lambda: "gone" not in one.topics())
    assert cluster.broker.stop() == 143
    assert cluster.broker.complaints() == []
