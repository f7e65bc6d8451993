"""Pictures and notices on real replicas: of a controller, of an observer, and from a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from kraftlib import Endpoint, RaftClient, RaftConfig
from kraftlib.codec.declarations import Message
from kraftlib.controller import MetadataLoader
from kraftlib.metadata import BrokerRegistrationChangeRecord, MetadataSerde, TopicRecord, encode_record
from kraftlib.metadata.delta import MetadataDelta
from kraftlib.metadata.published import MetadataImage
from kraftlib.runtime.committed import BatchReader
from kraftlib.types import new_uuid
from kraftlib.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlib.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from tests.controller.test_service import ORDERS, Client, connected, formatted, until_active
from tests.controller.world import World
from tests.runtime.fakes import committed


async def join(client: Client, broker_id: int) -> None:
    """Register a broker that has a listener, and let it serve."""
    place = BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="b", port=9000 + broker_id)
    request = attrs.evolve(World().registration(broker_id), incarnation_id=new_uuid(), listeners=(place,))
    epoch = (await client.ask(request)).broker_epoch
    beat = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=1000)
    assert (await client.ask(beat)).is_fenced is False


class Followed:
    """A loader, and a way to wait for what its picture is to hold."""

    def __init__(self) -> None:
        self.told: list[MetadataDelta] = []
        self.loader = MetadataLoader(self.told.append, lambda delta: self.changed.set())
        self.changed = asyncio.Event()

    async def until(self, holds: Callable[[MetadataImage], bool]) -> MetadataImage:
        async with asyncio.timeout(20):
            while not holds(self.loader.image):
                self.changed.clear()
                await self.changed.wait()
        return self.loader.image


def observer(controller_at: Endpoint, loader: MetadataLoader) -> RaftClient[object]:
    config = RaftConfig(node_id=99, cluster_id="blue", bootstrap_servers=(controller_at,))
    return RaftClient(config, serde=MetadataSerde(), listener=loader)


def has_orders(image: MetadataImage) -> bool:
    return image.topic("orders") is not None


async def test_every_node_knows_the_routes_and_hears_what_changes(tmp_path: Path) -> None:
    (controller,) = formatted(tmp_path, 1)
    own, afar, late = Followed(), Followed(), Followed()
    controller.client.register(own.loader)
    async with controller, observer(controller.client.endpoint, afar.loader):
        await until_active([controller])
        async with connected(controller.client.endpoint) as client:
            await join(client, 10)
            assert (await client.ask(ORDERS)).topics[0].error_code == 0
            for each in (own, afar):
                image = await each.until(has_orders)
                shown = [(one.partition, one.leader, dict(one.endpoints)) for one in image.routes("orders")]
                assert shown == [(number, 10, {"PLAINTEXT": "b:9010"}) for number in range(2)]
            created = own.loader.image

            await controller.client.create_snapshot()
            controller.client.register(late.loader)
            from_snapshot = await late.until(has_orders)
            assert dict(from_snapshot.topics) == dict(created.topics) == dict(afar.loader.image.topics)

            await client.ask(DeleteTopicsRequest(topics=(DeleteTopicsRequest.DeleteTopicState(name="orders"),)))
            for each in (own, afar, late):
                await each.until(lambda image: not image.topics)
            assert has_orders(created), "a picture that somebody holds does not change"

    told = own.told
    assert [one.brokers_registered for one in told if one.brokers_registered] == [(10,)]
    assert [one.brokers_unfenced for one in told if one.brokers_unfenced] == [(10,)]
    assert [[topic.name for topic in one.topics_created] for one in told if one.topics_created] == [["orders"]]
    assert [[topic.name for topic in one.topics_deleted] for one in told if one.topics_deleted] == [["orders"]]
    assert all(one.before.end_offset < one.after.end_offset for one in told)
    assert own.loader.faults == afar.loader.faults == late.loader.faults == ()


def batch(*values: bytes | Message) -> BatchReader:
    """One committed batch, as an observer has it from its replica."""
    encoded = [value if isinstance(value, bytes) else encode_record(value, 0) for value in values]
    return BatchReader([committed(*encoded, serde=MetadataSerde())], on_close=lambda: None)


def test_what_is_not_known_or_does_not_fit_is_a_fault_and_the_rest_goes_on() -> None:
    loader = MetadataLoader()
    loader.handle_commit(
        batch(
            bytes([1, 99, 0]),
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, fenced=1),
            TopicRecord(name="a", topic_id=new_uuid()),
        )
    )
    assert ["type 99" in loader.faults[0], "BrokerRegistrationChangeRecord" in loader.faults[1]] == [True, True]
    assert list(loader.image.topic_ids) == ["a"]


def test_an_exception_of_a_listener_is_not_hidden() -> None:
    def bad(delta: MetadataDelta) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        MetadataLoader(bad).handle_commit(batch(TopicRecord(name="a", topic_id=new_uuid())))


def test_of_many_faults_the_last_ones_are_kept() -> None:
    """A newer Kafka may write a record that is not known with each change."""
    loader = MetadataLoader()
    for number in range(300):
        loader.handle_commit(batch(bytes([1, 99, number % 100])))
    assert len(loader.faults) == 100
    assert "version 99" in loader.faults[-1]
