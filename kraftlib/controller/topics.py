"""Topics and their partitions: the fold, and the partitions of a broker without a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.controller.journal import Journal, Table
from kraftlib.controller.partitions import NO_LEADER, Key, replayed
from kraftlib.metadata.topic_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@attrs.frozen
class Topic:
    """One topic; its partitions are numbered from 0."""

    name: str
    topic_id: UUID
    partition_count: int = 0


def plain_name(name: str) -> str:
    """Return the name as metrics write it: names that are equal there collide."""
    return name.replace(".", "_")


def _move(of_brokers: dict[int, dict[Key, None]], key: Key, before: Sequence[int], after: Sequence[int]) -> None:
    """Have the partition `key` stand with the brokers `after`, and no longer with those `before`."""
    if before != after:
        for broker_id in before:
            if broker_id not in after:
                of_brokers[broker_id].pop(key, None)
        for broker_id in after:
            if broker_id not in before:
                of_brokers.setdefault(broker_id, {})[key] = None


def _mark(keys: dict[Key, None], key: Key, is_among: bool) -> None:
    """Have `keys` hold the partition `key`, or not."""
    if is_among:
        keys[key] = None
    elif keys:
        keys.pop(key, None)


class Topics:
    """All topics. A partition is kept as the record that would create it as it is now."""

    def __init__(self, journal: Journal) -> None:
        self.topics: Final[Table[UUID, Topic]] = Table(journal)
        self.ids: Final[Table[str, UUID]] = Table(journal)
        self.plain_names: Final[Table[str, tuple[str, ...]]] = Table(journal)
        """The names of topics by their plain name: those of one request may collide."""
        self.partitions: Final[Table[Key, PartitionRecord]] = Table(journal, watch=self._index)
        self._in_sync: dict[int, dict[Key, None]] = {}
        self._eligible: dict[int, dict[Key, None]] = {}
        self._leaderless: dict[Key, None] = {}
        self._moving: dict[Key, None] = {}
        self._unbalanced: dict[Key, None] = {}
        # Dictionaries stand for sets that keep their order: the records of a decision must not depend on hashes.

    def _index(self, key: Key, old: PartitionRecord | None, new: PartitionRecord | None) -> None:
        _move(self._in_sync, key, () if old is None else old.isr, () if new is None else new.isr)
        eligible_before = () if old is None else old.eligible_leader_replicas or ()
        _move(self._eligible, key, eligible_before, () if new is None else new.eligible_leader_replicas or ())
        _mark(self._leaderless, key, new is not None and new.leader == NO_LEADER)
        _mark(self._moving, key, new is not None and bool(new.adding_replicas or new.removing_replicas))
        _mark(self._unbalanced, key, new is not None and new.replicas[:1] not in ((), (new.leader,)))

    # --- the fold ----------------------------------------------------------------------------------------------------

    def replay_topic(self, record: TopicRecord) -> None:
        """A topic exists."""
        self.topics.put(record.topic_id, Topic(record.name, record.topic_id))
        self.ids.put(record.name, record.topic_id)
        plain = plain_name(record.name)
        self.plain_names.put(plain, (*(self.plain_names.get(plain) or ()), record.name))

    def replay_partition(self, record: PartitionRecord) -> None:
        """A partition exists."""
        topic, number = self.topics[record.topic_id], record.partition_id
        if number >= topic.partition_count:
            self.topics.put(topic.topic_id, Topic(topic.name, topic.topic_id, number + 1))
        self.partitions.put((topic.topic_id, number), record)  # all keys share one id

    def replay_change(self, record: PartitionChangeRecord) -> None:
        """A partition has changed."""
        key = (record.topic_id, record.partition_id)
        self.partitions.put(key, replayed(self.partitions[key], record))

    def replay_remove(self, record: RemoveTopicRecord) -> None:
        """A topic and its partitions are gone."""
        topic = self.topics[record.topic_id]
        for number in range(topic.partition_count):
            self.partitions.discard((record.topic_id, number))
        self.topics.remove(record.topic_id)
        self.ids.remove(topic.name)
        plain = plain_name(topic.name)
        left = tuple(name for name in self.plain_names.get(plain) or () if name != topic.name)
        if left:
            self.plain_names.put(plain, left)
        else:
            self.plain_names.discard(plain)

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Eligible leader replicas are void: of one topic, or of all."""
        void = PartitionChangeRecord(eligible_leader_replicas=(), last_known_elr=())
        meant = [self.topics[self.ids[record.topic_name]]] if record.topic_name else self.topics.values()
        for partition in (one for topic in meant for one in self.of(topic)):
            if partition.eligible_leader_replicas or partition.last_known_elr:
                self.partitions.put((partition.topic_id, partition.partition_id), replayed(partition, void))

    def snapshot(self, topics: Mapping[UUID, Topic], partitions: Mapping[Key, PartitionRecord]) -> Iterator[Message]:
        """Yield the records of all topics, each followed by its partitions."""
        for topic in topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for number in range(topic.partition_count):
                yield partitions[topic.topic_id, number]

    # --- what is asked -----------------------------------------------------------------------------------------------

    def named(self, name: str) -> Topic | None:
        """Return the topic of this name, or None."""
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def of(self, topic: Topic) -> Iterator[PartitionRecord]:
        """Yield the partitions of a topic in order."""
        for number in range(topic.partition_count):
            yield self.partitions[topic.topic_id, number]

    def in_sync_on(self, broker_id: int) -> list[PartitionRecord]:
        """Return the partitions of whose ISR the broker is a part."""
        return [self.partitions[key] for key in self._in_sync.get(broker_id, ())]

    def leads(self, broker_id: int) -> bool:
        """Whether the broker leads any partition."""
        return any(self.partitions[key].leader == broker_id for key in self._in_sync.get(broker_id, ()))

    def eligible_on(self, broker_id: int) -> list[PartitionRecord]:
        """Return the partitions that the broker may lead, although it is not in their ISR."""
        return [self.partitions[key] for key in self._eligible.get(broker_id, ())]

    def leaderless(self) -> list[PartitionRecord]:
        """Return the partitions without a leader."""
        return [self.partitions[key] for key in self._leaderless]

    def moving(self) -> list[PartitionRecord]:
        """Return the partitions that are being moved to other brokers."""
        return [self.partitions[key] for key in self._moving]

    def unbalanced(self) -> list[PartitionRecord]:
        """Return the partitions whose leader is not the first of their replicas."""
        return [self.partitions[key] for key in self._unbalanced]
