"""The state that a Kafka cluster's metadata records build: brokers, topics, partitions, configs, features.

Records are replayed strictly in order, as Kafka's own brokers do it (KIP-631, Record Schemas). Records that are not
shown as a table (credentials, tokens, quotas, access rules) are counted. Records between Begin and EndTransaction take
effect together; those before an AbortTransaction never do (KIP-868). `publish` makes pictures of it that never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import attrs

from kraftlib.metadata import broker_records as brokers
from kraftlib.metadata import config_records as configs
from kraftlib.metadata import log_records as logs
from kraftlib.metadata import security_records as security
from kraftlib.metadata import topic_records as topics
from kraftlib.metadata.delta import Touched
from kraftlib.metadata.published import Broker, MetadataImage, Partition, Topic
from kraftlib.metadata.shared_map import MapBuilder
from kraftlib.types import Offset, uuid_text

LEADER_UNCHANGED: Final = -2
FAULTS_MAX: Final = 100
CHANGEABLE: Final = (
    "replicas",
    "isr",
    "removing_replicas",
    "adding_replicas",
    "eligible_leader_replicas",
    "last_known_elr",
)
"""The fields that a PartitionChangeRecord sets where it names them."""
RESOURCE_TYPES: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}


class ClusterImage:
    """The state after some prefix of the log. `apply` takes the records one by one."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.controllers: dict[int, dict[str, str]] = {}
        """Endpoints of the registered controllers by listener."""
        self.features: dict[str, int] = {}
        self.topics: Final[MapBuilder[UUID, Topic]] = MapBuilder()
        self.configs: Final[MapBuilder[str, Mapping[str, str]]] = MapBuilder()
        """By resource as Kafka's shell names it: `TOPIC:events`; `BROKER` alone stands for all of them."""
        self.next_producer_id: int | None = None
        self.faults: list[str] = []
        """The last of the records that did not fit, most likely from a newer Kafka."""
        self._counted: dict[str, set[Any]] = {"acls": set(), "credentials": set(), "tokens": set(), "quotas": set()}
        self._topic_ids: Final[MapBuilder[str, UUID]] = MapBuilder()
        self._touched = Touched()
        self._own_partitions: dict[UUID, dict[int, Partition]] = {}
        """Of the topics that have changed since the last picture: no picture shares these."""
        self._transaction: list[Any] | None = None
        self._replay: Final[dict[type, Callable[[Any], object]]] = {
            brokers.RegisterBrokerRecord: self._register_broker,
            brokers.UnregisterBrokerRecord: self._unregister_broker,
            brokers.BrokerRegistrationChangeRecord: self._change_broker,
            brokers.FenceBrokerRecord: lambda record: self._fence(record.id, True),
            brokers.UnfenceBrokerRecord: lambda record: self._fence(record.id, False),
            brokers.RegisterControllerRecord: self._register_controller,
            brokers.UnregisterControllerRecord: lambda record: self.controllers.pop(record.controller_id),
            topics.TopicRecord: self._add_topic,
            topics.PartitionRecord: self._add_partition,
            topics.PartitionChangeRecord: self._change_partition,
            topics.RemoveTopicRecord: self._remove_topic,
            topics.ClearElrRecord: self._clear_elr,
            configs.ConfigRecord: self._set_config,
            configs.FeatureLevelRecord: self._set_feature,
            configs.ProducerIdsRecord: self._set_producer_id,
            configs.ClientQuotaRecord: self._set_quota,
            security.AccessControlEntryRecord: lambda record: self._counted["acls"].add(record.id),
            security.RemoveAccessControlEntryRecord: lambda record: self._counted["acls"].discard(record.id),
            security.UserScramCredentialRecord: lambda record: self._counted["credentials"].add(_credential(record)),
            security.RemoveUserScramCredentialRecord: lambda record: self._counted["credentials"].discard(
                _credential(record)
            ),
            security.DelegationTokenRecord: lambda record: self._counted["tokens"].add(record.token_id),
            security.RemoveDelegationTokenRecord: lambda record: self._counted["tokens"].discard(record.token_id),
        }

    def apply(self, record: Any) -> None:
        """Replay one record. A record that does not fit is kept in `faults`, and the rest goes on."""
        if isinstance(record, logs.BeginTransactionRecord):
            self._transaction = []
        elif isinstance(record, logs.AbortTransactionRecord):
            self._transaction = None
        elif isinstance(record, logs.EndTransactionRecord):
            held, self._transaction = self._transaction or [], None
            for one in held:
                self._apply_now(one)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._apply_now(record)

    def publish(self, end_offset: Offset) -> tuple[MetadataImage, Touched]:
        """Return a picture that never changes, and what may differ in it from the one before."""
        touched, self._touched = self._touched, Touched()
        self._own_partitions = {}
        image = MetadataImage(
            end_offset=end_offset,
            features=dict(self.features),
            brokers=dict(self.brokers),
            controllers=dict(self.controllers),
            topics=self.topics.freeze(),
            topic_ids=self._topic_ids.freeze(),
            configs=self.configs.freeze(),
        )
        return image, touched

    def _apply_now(self, record: Any) -> None:
        replay = self._replay.get(type(record))
        try:
            if replay is not None:
                replay(record)
        except KeyError as error:
            self.add_fault(f"{type(record).__name__} of something that does not exist: {error}")

    def add_fault(self, text: str) -> None:
        """Keep what did not fit, and of many the last ones: a log of other records has nothing else."""
        self.faults = [*self.faults[1 - FAULTS_MAX :], text]

    # --- brokers and controllers -------------------------------------------------------------------------------------

    def _register_broker(self, record: brokers.RegisterBrokerRecord) -> None:
        broker = Broker(
            epoch=record.broker_epoch,
            endpoints={place.name: f"{place.host}:{place.port}" for place in record.end_points},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
        )
        self._put_broker(record.broker_id, broker)

    def _unregister_broker(self, record: brokers.UnregisterBrokerRecord) -> None:
        del self.brokers[record.broker_id]
        self._touched.brokers[record.broker_id] = None

    def _change_broker(self, record: brokers.BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        if record.fenced:
            broker = attrs.evolve(broker, fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = attrs.evolve(broker, in_controlled_shutdown=record.in_controlled_shutdown > 0)
        self._put_broker(record.broker_id, broker)

    def _fence(self, broker_id: int, fenced: bool) -> None:
        self._put_broker(broker_id, attrs.evolve(self.brokers[broker_id], fenced=fenced))

    def _put_broker(self, broker_id: int, broker: Broker) -> None:
        self.brokers[broker_id] = broker
        self._touched.brokers[broker_id] = None

    def _register_controller(self, record: brokers.RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = {
            place.name: f"{place.host}:{place.port}" for place in record.end_points
        }

    # --- topics ------------------------------------------------------------------------------------------------------

    def _add_topic(self, record: topics.TopicRecord) -> None:
        self._own_partitions.pop(record.topic_id, None)
        self.topics[record.topic_id] = Topic(name=record.name, topic_id=record.topic_id)
        self._topic_ids[record.name] = record.topic_id
        self._touched.topics[record.topic_id] = None

    def _partitions_of(self, topic_id: UUID) -> dict[int, Partition]:
        """Return the partitions of a topic as a dictionary that no picture shares."""
        own = self._own_partitions.get(topic_id)
        if own is None:
            topic = self.topics[topic_id]
            own = self._own_partitions[topic_id] = dict(topic.partitions)
            self.topics[topic_id] = attrs.evolve(topic, partitions=own)
            self._touched.topics[topic_id] = None
        return own

    def _add_partition(self, record: topics.PartitionRecord) -> None:
        self._partitions_of(record.topic_id)[record.partition_id] = Partition(
            replicas=record.replicas,
            isr=record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing_replicas=record.removing_replicas,
            adding_replicas=record.adding_replicas,
            eligible_leader_replicas=record.eligible_leader_replicas or (),
            last_known_elr=record.last_known_elr or (),
        )

    def _change_partition(self, record: topics.PartitionChangeRecord) -> None:
        """Take over what is named. A named leader begins a leader epoch; every change begins a partition epoch."""
        partitions = self._partitions_of(record.topic_id)
        old = partitions[record.partition_id]
        changes = {name: value for name in CHANGEABLE if (value := getattr(record, name)) is not None}
        if record.leader != LEADER_UNCHANGED:
            changes |= {"leader": record.leader, "leader_epoch": old.leader_epoch + 1}
        partitions[record.partition_id] = attrs.evolve(old, partition_epoch=old.partition_epoch + 1, **changes)

    def _clear_elr(self, record: topics.ClearElrRecord) -> None:
        """Void the eligible leader replicas of one topic, or of all, as a change of these partitions (KIP-966)."""
        named = [self._topic_ids[record.topic_name]] if record.topic_name else list(self.topics)
        for topic_id in named:
            for number, old in list(self.topics[topic_id].partitions.items()):
                if old.eligible_leader_replicas or old.last_known_elr:
                    empty = topics.PartitionChangeRecord(
                        topic_id=topic_id, partition_id=number, eligible_leader_replicas=(), last_known_elr=()
                    )
                    self._change_partition(empty)

    def _remove_topic(self, record: topics.RemoveTopicRecord) -> None:
        topic = self.topics.pop(record.topic_id)
        self._own_partitions.pop(record.topic_id, None)
        self._touched.topics[record.topic_id] = None
        del self._topic_ids[topic.name]
        self._put_config(f"TOPIC:{topic.name}", {})

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _set_config(self, record: configs.ConfigRecord) -> None:
        kind = RESOURCE_TYPES.get(record.resource_type, str(record.resource_type))
        resource = f"{kind}:{record.resource_name}" if record.resource_name else kind
        entries = dict(self.configs.get(resource, {}))
        if record.value is None:
            entries.pop(record.name, None)
        else:
            entries[record.name] = record.value
        self._put_config(resource, entries)

    def _put_config(self, resource: str, entries: Mapping[str, str]) -> None:
        if entries:
            self.configs[resource] = entries
        else:
            self.configs.pop(resource, None)
        self._touched.configs[resource] = None

    def _set_feature(self, record: configs.FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _set_producer_id(self, record: configs.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _set_quota(self, record: configs.ClientQuotaRecord) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name or "") for part in record.entity))
        quotas = self._counted["quotas"]
        (quotas.discard if record.remove else quotas.add)((entity, record.key))

    # --- showing it --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, fit for JSON."""
        return {
            "features": dict(sorted(self.features.items())),
            "brokers": {str(number): attrs.asdict(broker) for number, broker in sorted(self.brokers.items())},
            "controllers": {str(number): places for number, places in sorted(self.controllers.items())},
            "topics": {topic.name: _topic(topic) for topic in sorted(self.topics.values(), key=lambda one: one.name)},
            "configs": {resource: dict(sorted(entries.items())) for resource, entries in sorted(self.configs.items())},
            "next_producer_id": self.next_producer_id,
            **{name: len(things) for name, things in self._counted.items()},
            "faults": list(self.faults),
        }


def _topic(topic: Topic) -> dict[str, Any]:
    partitions = {str(number): attrs.asdict(partition) for number, partition in sorted(topic.partitions.items())}
    return {"id": uuid_text(topic.topic_id), "partitions": partitions}


def _credential(record: Any) -> tuple[str, int]:
    return record.name, record.mechanism
