"""A service that always knows which topics a Kafka cluster has, without asking for them.

Kafka's controllers keep the cluster's metadata in a replicated log, and brokers follow it as observers: they fetch,
apply, and never vote. So can a service of yours. `TopicCache` is a state machine like any other; its records are those
that the controllers write, and it hears of a new topic as soon as a majority of them has it on disk. Elections, lost
controllers and compacted logs are dealt with below it: the client finds the next leader, or begins with a snapshot.

With the address of a controller as argument it follows a real cluster until Ctrl-C. Without one it makes a stand-in for
a cluster, a log with a few records in it, and ends:

    python examples/kafka_topics.py 127.0.0.1:9093
    python examples/kafka_topics.py
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kraftlib import CommittedRecord, Endpoint, RaftClient, RaftConfig, StateMachine, format_directory
from kraftlib.metadata import MetadataSerde, PartitionRecord, RemoveTopicRecord, TopicRecord


class TopicCache(StateMachine):
    """Names of topics, each with its number of partitions."""

    def __init__(self) -> None:
        self.names: dict[uuid.UUID, str] = {}
        self.partitions: dict[str, int] = {}
        self.changed = asyncio.Event()

    def apply(self, record: CommittedRecord) -> None:
        """Take over one record; most of them are about brokers, configs and leaders of partitions."""
        self._take(record.value)
        self.changed.set()

    def _take(self, value: Any) -> None:
        match value:
            case TopicRecord(name=name, topic_id=topic_id):
                self.names[topic_id] = name
                self.partitions[name] = 0
            case PartitionRecord(topic_id=topic_id):
                self.partitions[self.names[topic_id]] += 1
            case RemoveTopicRecord(topic_id=topic_id):
                del self.partitions[self.names.pop(topic_id)]

    def restore(self, values: Iterable[Any]) -> None:
        """Begin anew: the controllers have replaced the records that we have missed by a snapshot."""
        self.names.clear()
        self.partitions.clear()
        for value in values:
            self._take(value)
        self.changed.set()

    def snapshot(self) -> Iterable[Any]:
        """Nobody asks for one: `follow` says so, and a new life reads everything from the controllers anew."""
        raise NotImplementedError


async def follow(controller: Endpoint, cache: TopicCache) -> RaftClient[Any]:
    """Return a client that feeds `cache` with what the controllers commit, from the beginning on."""
    config = RaftConfig(
        node_id=random.randrange(1_000_000_000, 2**31),  # any number that no controller or broker has
        bootstrap_servers=(controller,),  # one of them is enough: it names the leader
        engine="inline",
        snapshot_interval_bytes=0,
        snapshot_interval_ms=0,
    )
    client: RaftClient[Any] = RaftClient(config, state_machine=cache, serde=MetadataSerde())
    await client.start()
    await client.wait_for_leader(timeout_ms=10_000)
    return client


async def until_topics(cache: TopicCache, wanted: dict[str, int]) -> None:
    """Wait until the cache has just these."""
    async with asyncio.timeout(10):
        while cache.partitions != wanted:
            cache.changed.clear()
            await cache.changed.wait()


async def watch(controller: Endpoint) -> None:
    """Print the topics of a real cluster whenever they change."""
    cache = TopicCache()
    client = await follow(controller, cache)
    try:
        while True:
            print(dict(sorted(cache.partitions.items())), flush=True)
            before = dict(cache.partitions)
            while cache.partitions == before:
                cache.changed.clear()
                await cache.changed.wait()
    finally:
        await client.close()


async def stand_in() -> None:
    """Let a replica of ours write what a controller would, and follow it."""
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "controller"
        place = await free_place()
        format_directory(directory, node_id=1, cluster_id="stand-in", standalone=place)
        controller: RaftClient[Any] = RaftClient(
            RaftConfig(node_id=1, directory=directory, listen=place, bootstrap_servers=(place,)), serde=MetadataSerde()
        )
        cache = TopicCache()
        async with controller:
            await controller.wait_for_leader(timeout_ms=10_000)
            observer = await follow(place, cache)
            orders, payments = uuid.uuid4(), uuid.uuid4()
            await controller.append(
                [
                    TopicRecord(name="orders", topic_id=orders),
                    *[PartitionRecord(partition_id=number, topic_id=orders) for number in range(3)],
                    TopicRecord(name="payments", topic_id=payments),
                    PartitionRecord(partition_id=0, topic_id=payments),
                ]
            )
            await until_topics(cache, {"orders": 3, "payments": 1})
            print("the cluster has", cache.partitions)
            await controller.append([RemoveTopicRecord(topic_id=payments)])
            await until_topics(cache, {"orders": 3})
            print("and now it has ", cache.partitions)
            await observer.close()


async def free_place() -> Endpoint:
    """Return a place of loopback on which nobody listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    return Endpoint(host, port)


async def main() -> None:
    """Follow what is named on the command line, or a stand-in."""
    if len(sys.argv) > 1:
        host, _, port = sys.argv[1].rpartition(":")
        await watch(Endpoint(host, int(port)))
    else:
        await stand_in()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
