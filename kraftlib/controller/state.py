"""The state of the cluster: a fold of metadata records, with a memory of uncommitted ones.

    replay(record)               on a standby: the record is committed
    replay(record, at=offset)    on the active controller: it is not, so far
    committed(end_offset)        everything below is
    reset()                      what is not committed will never be

Records that do not fit are faults and raise: a controller that has misread its log must not decide on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kraftlib.codec.declarations import Message
from kraftlib.controller import keyed
from kraftlib.controller.cluster import Cluster
from kraftlib.controller.configs import TOPIC, Configs
from kraftlib.controller.features import Features
from kraftlib.controller.journal import Journal, Table
from kraftlib.controller.topics import Topics
from kraftlib.errors import ensure
from kraftlib.metadata import broker_records as brokers
from kraftlib.metadata import config_records as configs
from kraftlib.metadata import log_records as logs
from kraftlib.metadata import topic_records as topics
from kraftlib.types import Offset


class ClusterState:
    """All managers' state. Pure: a function of the records alone."""

    def __init__(self) -> None:
        self.journal: Final = Journal()
        self.features: Final = Features(self.journal)
        self.cluster: Final = Cluster(self.journal)
        self.topics: Final = Topics(self.journal)
        self.configs: Final = Configs(self.journal)
        self.keyed: Final = keyed.Keyed(self.journal)
        self._open: Final[Table[None, list[Message]]] = Table(self.journal)
        """The records of the open transaction, if there is one."""
        cluster, of_topics = self.cluster, self.topics
        self._replay: Final[Mapping[type, Callable[[Any], None]]] = {
            configs.FeatureLevelRecord: self.features.replay,
            configs.ConfigRecord: self.configs.replay,
            brokers.RegisterBrokerRecord: cluster.replay_register,
            brokers.UnregisterBrokerRecord: cluster.replay_unregister,
            brokers.BrokerRegistrationChangeRecord: cluster.replay_change,
            brokers.FenceBrokerRecord: cluster.replay_fence,
            brokers.UnfenceBrokerRecord: cluster.replay_unfence,
            brokers.RegisterControllerRecord: cluster.replay_controller,
            brokers.UnregisterControllerRecord: cluster.replay_unregister_controller,
            topics.TopicRecord: of_topics.replay_topic,
            topics.PartitionRecord: of_topics.replay_partition,
            topics.PartitionChangeRecord: of_topics.replay_change,
            topics.RemoveTopicRecord: self._remove_topic,
            topics.ClearElrRecord: of_topics.replay_clear_elr,
            logs.NoOpRecord: lambda record: None,
            configs.ZkMigrationStateRecord: lambda record: None,
            **dict.fromkeys((*keyed.SET, *keyed.REMOVED), self.keyed.replay),
        }

    @property
    def in_transaction(self) -> bool:
        """Whether records are held back until the end of their transaction (KIP-868)."""
        return None in self._open

    def replay(self, record: Message, *, at: Offset | None = None) -> None:
        """Take over a record: a committed one, or the one `at` this offset, which may be taken back."""
        if at is not None:
            self.journal.begin(at)
        try:
            self._take(record)
        finally:
            self.journal.end()

    def committed(self, end_offset: Offset) -> None:
        """Everything below `end_offset` is committed."""
        self.journal.committed(end_offset)

    def reset(self) -> None:
        """Take back what is not committed, the end of a transaction included."""
        self.journal.undo()

    def _take(self, record: Message) -> None:
        held = self._open.get(None)
        if isinstance(record, logs.BeginTransactionRecord):
            ensure(held is None, "a transaction began within another one")
            self._open.put(None, [])
        elif isinstance(record, logs.AbortTransactionRecord):
            self._open.discard(None)
        elif isinstance(record, logs.EndTransactionRecord):
            self._open.discard(None)
            for one in held or ():
                self._replay[type(one)](one)
        elif held is not None:
            held.append(record)
        else:
            self._replay[type(record)](record)

    def _remove_topic(self, record: topics.RemoveTopicRecord) -> None:
        self.configs.forget((TOPIC, self.topics.topics[record.topic_id].name))
        self.topics.replay_remove(record)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def freeze(self) -> Iterator[Message]:
        """Return the records that rebuild the committed state; it is copied now, and taken apart during iteration."""
        before = self.journal.before
        transactions = [list(held) for held in before(self._open).values()]
        parts = (
            self.features.snapshot(before(self.features.levels)),
            self.cluster.snapshot(before(self.cluster.brokers), before(self.cluster.controllers)),
            self.topics.snapshot(before(self.topics.topics), before(self.topics.partitions)),
            self.configs.snapshot(before(self.configs.resources)),
            self.keyed.snapshot(before(self.keyed.records)),
        )

        def records() -> Iterator[Message]:
            for part in parts:
                yield from part
            for held in transactions:  # its other records, and its end, stand behind the snapshot
                yield from (logs.BeginTransactionRecord(), *held)

        return records()
