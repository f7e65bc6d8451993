"""A picture of the cluster at one offset, and the routes in it. Nothing of it ever changes.

A holder may look at it for as long as it takes, in any thread and without a lock: the next picture is another object,
which shares what has not changed (`kraftlib.metadata.image` makes them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

import attrs

from kraftlib.metadata.shared_map import SharedMap
from kraftlib.types import Offset

NO_LEADER: Final = -1


@attrs.frozen(kw_only=True)
class Partition:
    """One partition of a topic."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """-1: none; the partition is offline."""
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    """Replicas outside of the ISR that have everything that is committed (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Topic:
    """One topic; its partitions by number."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, Partition] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Broker:
    """One registration of a broker."""

    epoch: int
    endpoints: Mapping[str, str]
    """`HOST:PORT` by the name of the listener."""
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool


@attrs.frozen(kw_only=True)
class Route:
    """The way to the leader of a partition."""

    topic: str
    topic_id: UUID
    partition: int
    leader: int
    """-1: there is no leader."""
    leader_epoch: int
    endpoints: Mapping[str, str]
    """`HOST:PORT` of the leader by the name of the listener; empty, if there is no leader or it is fenced."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MetadataImage:
    """The cluster as the records below `end_offset` have made it."""

    end_offset: Offset = 0
    features: Mapping[str, int] = attrs.field(factory=dict)
    brokers: Mapping[int, Broker] = attrs.field(factory=dict)
    controllers: Mapping[int, Mapping[str, str]] = attrs.field(factory=dict)
    """Endpoints of the registered controllers by listener."""
    topics: Mapping[UUID, Topic] = attrs.field(factory=SharedMap)
    topic_ids: Mapping[str, UUID] = attrs.field(factory=SharedMap)
    """The id of each topic by its name."""
    configs: Mapping[str, Mapping[str, str]] = attrs.field(factory=SharedMap)
    """Values by resource as Kafka's shell names it: `TOPIC:events`; `BROKER` alone stands for all of them."""

    def __repr__(self) -> str:
        return f"<MetadataImage of {len(self.topics)} topics, {len(self.brokers)} brokers at {self.end_offset}>"

    def topic(self, name: str) -> Topic | None:
        """Return the topic of this name, or None."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def route(self, topic: str, partition: int) -> Route | None:
        """Return the way to the leader of a partition; None, if there is no such partition."""
        found = self.topic(topic)
        return None if found is None or partition not in found.partitions else self._route(found, partition)

    def routes(self, topic: str) -> Iterator[Route]:
        """Yield the ways to the leaders of a topic, by number of the partition; none, if there is no such topic."""
        found = self.topic(topic)
        if found is not None:
            for partition in sorted(found.partitions):
                yield self._route(found, partition)

    def _route(self, topic: Topic, number: int) -> Route:
        partition = topic.partitions[number]
        broker = self.brokers.get(partition.leader)
        return Route(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=number,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            endpoints={} if broker is None or broker.fenced else broker.endpoints,
        )
