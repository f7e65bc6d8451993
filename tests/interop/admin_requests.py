"""Requests to a controller, drawn from a seed: sensible ones, and each kind of nonsense.

What is drawn depends on chance and on the cluster as the records of a controller make it, so that two controllers that
have done the same so far are asked the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from kraftlib.controller.access_rules import LITERAL
from kraftlib.controller.topics import Topic
from kraftlib.metadata.topic_records import PartitionRecord
from kraftlib.types import ZERO_UUID
from kraftlib.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kraftlib.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlib.wire.messages.alter_configs import AlterConfigsRequest
from kraftlib.wire.messages.alter_partition import AlterPartitionRequest
from kraftlib.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlib.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlib.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftlib.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlib.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlib.wire.messages.controller_registration import ControllerRegistrationRequest
from kraftlib.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlib.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlib.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.unregister_broker import UnregisterBrokerRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.interop.asked import HOUR_MS, SUPER_USER, Asked, secret_of
from tests.interop.limits import Limits

BROKERS: Final = (1, 2, 3, 4, 5)
NOBODY: Final = 77
NAMES: Final = ("orders", "clicks", "a.b", "c", "d", "e")
BAD_NAMES: Final = ("", ".", "..", "a b", "x" * 250, "a_b", "\N{LATIN SMALL LETTER E WITH ACUTE}", "none")
ELSEWHERE: Final = UUID(int=0x7777)
RANGES: Final = {
    "metadata.version": (7, 30),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
    "kraft.version": (0, 1),
}
USERS: Final = ("ann", "bob")
"""Users who may do what rules of access let them."""
BAD: Final = 0.15
"""How often a part of a request is drawn wrong."""

OF_TOKENS: Final = (CreateDelegationTokenRequest, RenewDelegationTokenRequest, ExpireDelegationTokenRequest)

Request = tuple[Any, int]
"""A request and its version."""


@attrs.frozen
class Drawn:
    """A request, its version, and the user for whom a broker forwards it, perhaps one with a token; None: nobody."""

    request: Any
    version: int | None
    user: str | None = None
    by_token: bool = False

    @property
    def needs_news(self) -> bool:
        """Whether the answer depends on rules of access or tokens."""
        return self.user not in (None, SUPER_USER) or isinstance(self.request, OF_TOKENS)


def directories(broker_id: int) -> tuple[UUID, ...]:
    """Return the log directories of a broker: two on even ones, one on odd ones."""
    return tuple(UUID(int=(abs(broker_id) << 32) + 1_000 + number) for number in range(2 - broker_id % 2))


def registration(there: Asked, broker_id: int, **changes: Any) -> BrokerRegistrationRequest:
    """Return the request of a broker that starts."""
    features = tuple(
        BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in RANGES.items()
    )
    listener = BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="localhost", port=9_092)
    values: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": there.cluster_id,
        "incarnation_id": UUID(int=1_000 + broker_id),
        "listeners": (listener,),
        "features": features,
        "log_dirs": directories(broker_id),
        "rack": f"rack {broker_id % 2}",
    }
    return BrokerRegistrationRequest(**{**values, **changes})


def heartbeat(there: Asked, broker_id: int, **changes: Any) -> BrokerHeartbeatRequest:
    """Return the request of a broker that has read everything and wants to serve."""
    values: dict[str, Any] = {
        "broker_id": broker_id,
        "broker_epoch": epoch_of(there, broker_id),
        "current_metadata_offset": 1 << 40,
    }
    return BrokerHeartbeatRequest(**{**values, **changes})


def epoch_of(there: Asked, broker_id: int) -> int:
    """Return the epoch of a broker, -1 if it is not there."""
    broker = there.state.cluster.brokers.get(broker_id)
    return -1 if broker is None else broker.broker_epoch


class Draw:
    """Draws one request after the other."""

    def __init__(self, seed: int, there: Asked, limits: Limits) -> None:
        self.chance = random.Random(seed)
        self.there = there
        self.limits = limits
        self.configs, self.broker_configs, *others = (
            [one for one in settings if limits.not_drawn.isdisjoint(one)]
            for settings in (CONFIGS, BROKER_CONFIGS, *OTHER_CONFIGS.values())
        )
        self.own_configs = [one for one in self.broker_configs if one[0] != "listeners"]
        self.other_configs = dict(zip(OTHER_CONFIGS, others, strict=True))

    def request(self) -> Drawn:
        """Return the next one."""
        kinds: Sequence[tuple[int, Callable[[], Any]]] = (
            (4, self.create_topics),
            (2, self.delete_topics),
            (2, self.create_partitions),
            (2, self.elect_leaders),
            (4, self.alter_configs),
            (2, self.replace_configs),
            (2, self.describe_configs),
            (6, self.reassign),
            (2, self.list_reassignments),
            (8, self.alter_partition),
            (6, self.heartbeat),
            (2, self.register),
            (1, self.unregister),
            (1, self.allocate_producer_ids),
            (3, self.assign_directories),
            (3, self.create_acls),
            (2, self.describe_acls),
            (2, self.delete_acls),
            (4, self.alter_quotas),
            (4, self.alter_credentials),
            (1, self.update_features),
            (1, self.describe_cluster),
            (1, self.register_controller),
            (2, self.tokens),
            (1, self.voters),
        )
        kinds = [(weight, draw) for weight, draw in kinds if draw.__name__ not in self.limits.not_asked]
        weights, draws = zip(*kinds, strict=True)
        (draw,) = self.chance.choices(draws, weights)
        found = draw()
        request, version = found if isinstance(found, tuple) else (found, found.valid_versions.last)
        version = min(version, self.limits.versions.get(type(request), version))
        if isinstance(request, OF_TOKENS):
            user = self.chance.choice((None, SUPER_USER, *USERS * 2, "carl"))
            return Drawn(request, version, user, user is not None and self.chance.random() < BAD / 2)
        return Drawn(request, version, self.user(request))

    def user(self, request: Any) -> str | None:
        """Return for whom it is forwarded. Kafka would forward AllocateProducerIds, for which no client may ask.

        About voters rules of access do not count with ours.
        """
        if self.chance.random() >= 0.25 or isinstance(request, AllocateProducerIdsRequest):
            return None
        is_of_voters = isinstance(request, AddRaftVoterRequest | RemoveRaftVoterRequest)
        return SUPER_USER if is_of_voters else self.chance.choice((SUPER_USER, SUPER_USER, *USERS))

    def version(self, first: int, last: int) -> int:
        """Return a version up to `last`: from `first` on, or from 0, if the release has the old ones."""
        return self.chance.randint(0 if self.limits.has_old_versions else first, last)

    # --- parts -------------------------------------------------------------------------------------------------------

    def bad(self) -> bool:
        """Whether the next part is wrong."""
        return self.chance.random() < BAD

    def some(self, draw: Callable[[], Any], most: int = 3) -> tuple[Any, ...]:
        return tuple(draw() for _ in range(self.chance.randint(1, most)))

    def name(self) -> str:
        return self.chance.choice(BAD_NAMES if self.bad() else NAMES)

    def known_name(self) -> str:
        known = sorted(name for name in self.there.state.topics.ids)
        return self.name() if self.bad() or not known else self.chance.choice(known)

    def broker(self) -> int:
        return self.chance.choice((NOBODY, -1)) if self.chance.random() < BAD / 4 else self.chance.choice(BROKERS)

    def replicas(self, count: int | None = None) -> tuple[int, ...]:
        if self.chance.random() < BAD / 3:
            return self.chance.choice(((), (1, 1), (NOBODY,), (1, -1)))
        return tuple(self.chance.sample(BROKERS, count or self.chance.randint(1, 4)))

    def epoch(self, broker_id: int) -> int:
        return epoch_of(self.there, broker_id) + (self.chance.choice((-1, 1)) if self.chance.random() < BAD / 2 else 0)

    def partition(self) -> PartitionRecord | None:
        topics = self.there.state.topics
        partitions = [one for name in sorted(topics.ids) for one in topics.of(topics.topics[topics.ids[name]])]
        return self.chance.choice(partitions) if partitions else None

    # --- topics ------------------------------------------------------------------------------------------------------

    def create_topics(self) -> Request:
        version = self.version(2, 7)
        topics = self.some(self.new_topic)
        placed = all(topic.assignments for topic in topics)  # else chance decides, which is not the same on both sides
        version = version if placed else max(1, version)  # version 0 cannot say that nothing is to be created
        is_tried = not placed or (version > 0 and self.bad())
        return CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=is_tried), version

    def new_topic(self) -> CreateTopicsRequest.CreatableTopic:
        row = CreateTopicsRequest.CreatableReplicaAssignment
        placed = not self.bad()
        factor = self.chance.randint(1, 3)
        assignments = [
            row(partition_index=number, broker_ids=self.replicas(None if self.bad() else factor))
            for number in range(self.chance.randint(1, 3))
        ]
        if self.chance.random() < BAD / 3:
            self.chance.shuffle(assignments)
            assignments = assignments[1:]
        counts = self.chance.choice(((2, 2), (0, 1), (1, 0), (-1, -1), (1, 9), (-2, 1), (2, 1)))
        if placed and not self.bad():
            counts = (-1, -1)
        configs = tuple(
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
            for name, value in self.chance.choices(self.configs, k=self.chance.choice((0, 0, 0, 1, 1, 3)))
        )
        return CreateTopicsRequest.CreatableTopic(
            name=self.name(),
            num_partitions=counts[0],
            replication_factor=counts[1],
            assignments=tuple(assignments) if placed else (),
            configs=configs,
        )

    def delete_topics(self) -> Request:
        row = DeleteTopicsRequest.DeleteTopicState
        if self.chance.random() < 0.5:
            return DeleteTopicsRequest(topic_names=self.some(self.known_name, 2), timeout_ms=60_000), self.version(1, 5)
        topics = []
        for number in range(self.chance.randint(1, 2)):
            name = self.known_name()
            by_id = self.there.state.topics.ids.get(name) or (ELSEWHERE, ZERO_UUID)[number]
            both = self.chance.random() < BAD / 2
            is_by_id = self.chance.random() < 0.5
            topics.append(row(name=None if is_by_id and not both else name, topic_id=by_id if is_by_id else ZERO_UUID))
        return DeleteTopicsRequest(topics=tuple(topics), timeout_ms=60_000), 6

    def create_partitions(self) -> CreatePartitionsRequest:
        row = CreatePartitionsRequest.CreatePartitionsTopic
        topics = []
        for _ in range(self.chance.randint(1, 2)):
            name = self.known_name()
            topic = self.there.state.topics.named(name)
            if topic is not None and not self.is_even(topic):
                continue
            now = 0 if topic is None else topic.partition_count
            more = self.chance.choice((-1, 0)) if self.bad() else self.chance.randint(1, 2)
            factor = 1 if topic is None else len(self.there.state.topics.partitions[topic.topic_id, 0].replicas)
            placed = tuple(
                CreatePartitionsRequest.CreatePartitionsAssignment(
                    broker_ids=self.replicas(None if self.bad() else min(factor, 5))
                )
                for _ in range(max(0, more) + (self.chance.random() < BAD / 2))
            )
            topics.append(row(name=name, count=now + more, assignments=placed))
        return CreatePartitionsRequest(topics=tuple(topics), timeout_ms=60_000, validate_only=self.bad())

    def is_even(self, topic: Topic) -> bool:
        """Whether all partitions have one replication factor: else Kafka takes that of any, in a hash map's order."""
        partitions = self.there.state.topics.partitions
        return len({len(partitions[topic.topic_id, n].replicas) for n in range(topic.partition_count)}) == 1

    def elect_leaders(self) -> Request:
        version = self.chance.randint(0, 2)
        kind = 7 if self.chance.random() < BAD / 4 else self.chance.choice((0, 0, 1))
        kind = kind if version else 0
        if self.chance.random() < 0.3:
            rows = () if self.bad() else None
            return ElectLeadersRequest(election_type=kind, topic_partitions=rows), version
        row = ElectLeadersRequest.TopicPartitions
        named = {self.known_name(): tuple(self.chance.sample(range(4), 2)) for _ in range(2)}
        topics = tuple(row(topic=name, partitions=numbers) for name, numbers in named.items())
        return ElectLeadersRequest(election_type=kind, topic_partitions=topics), version

    # --- configurations ----------------------------------------------------------------------------------------------

    def resource(self) -> tuple[int, str, Settings]:
        """Return the type and name of what is configured, and the settings that it may be given."""
        kinds = (2, 2, 2, 2, 4, 4, 16, 32, *((0, 8, 99) if self.bad() else ()))
        kind = self.chance.choice([kind for kind in kinds if kind not in self.limits.not_configured])
        if kind == 4:
            name = self.chance.choice(("", "", "1", "2", "2", "77", "x", "+1", "02", "2147483648"))
            return kind, name, self.own_configs if name == OWN_NUMBER else self.broker_configs
        if kind in (16, 32):
            return kind, self.chance.choice(("g", "h", "")), self.other_configs[kind]
        return kind, self.known_name(), self.configs

    def alter_configs(self) -> Request:
        row = IncrementalAlterConfigsRequest.AlterConfigsResource
        resources = []
        for _ in range(self.chance.randint(1, 2)):
            kind, name, settings = self.resource()
            changes = tuple(
                IncrementalAlterConfigsRequest.AlterableConfig(
                    # At operations that it does not know, Kafka's controller resigns.
                    name=key,
                    config_operation=self.chance.choice((0, 1) if value is None else (0, 0, 0, 1, 2, 3)),
                    value=value,
                )
                for key, value in self.chance.choices(settings, k=self.chance.choice((1, 1, 2, 2, 3)))
            )
            resources.append(row(resource_type=kind, resource_name=name, configs=changes))
        request = IncrementalAlterConfigsRequest(resources=tuple(resources), validate_only=self.bad())
        return request, self.chance.randint(0, 1)

    def replace_configs(self) -> Request:
        row = AlterConfigsRequest.AlterConfigsResource
        resources = []
        for _ in range(self.chance.randint(1, 2)):
            kind, name, settings = self.resource()
            drawn = self.chance.choices(settings, k=self.chance.choice((0, 1, 1, 2, 2, 3)))
            values = tuple(AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in drawn)
            resources.append(row(resource_type=kind, resource_name=name, configs=values))
        return AlterConfigsRequest(resources=tuple(resources), validate_only=self.bad()), self.chance.randint(0, 2)

    def describe_configs(self) -> Request:
        """Of a node itself Kafka also names what stands in its files."""
        keys = ("retention.ms", "segment.ms", "log.retention.ms", "none", "metrics")

        def one() -> DescribeConfigsRequest.DescribeConfigsResource:
            kinds = (2, 2, 2, 2, 2, 2, 4, 4, 16, 32, 99)
            kind = self.chance.choice([kind for kind in kinds if kind not in self.limits.not_described])
            names = {4: ("", "2", "x"), 16: ("g", "h", ""), 32: ("g", "h", "")}
            return DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind,
                resource_name=self.chance.choice(names[kind]) if kind in names else self.known_name(),
                configuration_keys=keys if self.chance.random() < 0.3 else None,
            )

        version = self.version(1, 4)
        with_synonyms = version > 0 and self.chance.random() < 0.7
        return DescribeConfigsRequest(resources=self.some(one, 2), include_synonyms=with_synonyms), version

    # --- replicas ----------------------------------------------------------------------------------------------------

    def reassign(self) -> Request:
        version = self.chance.randint(0, 1)
        row = AlterPartitionReassignmentsRequest.ReassignablePartition
        topics: dict[str, list[Any]] = {}
        for _ in range(self.chance.randint(1, 3)):
            name, number = self.known_name(), self.chance.choice((0, 0, 1, 2, 9))
            replicas = None if self.chance.random() < 0.25 else self.replicas()
            topics.setdefault(name, []).append(row(partition_index=number, replicas=replicas))
        return AlterPartitionReassignmentsRequest(
            topics=tuple(
                AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=tuple(rows))
                for name, rows in topics.items()
            ),
            allow_replication_factor_change=version == 0 or self.chance.random() < 0.7,
        ), version

    def list_reassignments(self) -> ListPartitionReassignmentsRequest:
        row = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        topics = {self.known_name(): (0, 1, 5) for _ in range(2)}
        rows = tuple(row(name=name, partition_indexes=numbers) for name, numbers in topics.items())
        return ListPartitionReassignmentsRequest(topics=None if self.chance.random() < 0.5 else rows)

    def alter_partition(self) -> Request:
        """Ask as the leader, mostly for an ISR of replicas that are there."""
        version = self.version(2, 3)
        partition = self.partition()
        if partition is None:
            return AlterPartitionRequest(broker_id=1, broker_epoch=self.epoch(1)), version
        leader = self.broker() if self.bad() or partition.leader < 0 else partition.leader
        topics = [self.in_sync(partition, leader, version)]
        another = self.partition() if self.chance.random() < 0.3 else None
        if another is not None and another.topic_id != partition.topic_id:
            topics.append(self.in_sync(another, leader, version))
        return AlterPartitionRequest(broker_id=leader, broker_epoch=self.epoch(leader), topics=tuple(topics)), version

    def in_sync(self, partition: PartitionRecord, leader: int, version: int) -> AlterPartitionRequest.TopicData:
        """Return what a broker asks for one partition."""
        others = [number for number in partition.replicas if number != leader]
        isr = [leader, *self.chance.sample(others, self.chance.randint(0, len(others)))]
        if self.chance.random() < 0.4:
            isr = list(partition.replicas)
        if self.chance.random() < BAD / 3:
            isr = self.chance.choice(([], [NOBODY], isr[1:]))
        state = self.chance.choice((0, 0, 0, 0, 0, 1)) if version else 0
        by_epoch = tuple(
            AlterPartitionRequest.BrokerState(
                broker_id=number, broker_epoch=self.chance.choice((-1, self.epoch(number)))
            )
            for number in isr
        )
        row = AlterPartitionRequest.PartitionData(
            partition_index=9 if self.chance.random() < BAD / 4 else partition.partition_id,
            leader_epoch=partition.leader_epoch + self.slip(),
            partition_epoch=partition.partition_epoch + self.slip(),
            leader_recovery_state=state,
            **({"new_isr": tuple(isr)} if version < 3 else {"new_isr_with_epochs": by_epoch}),  # type: ignore[arg-type]
        )
        is_elsewhere = self.chance.random() < BAD / 4
        if version < 2:
            name = "none" if is_elsewhere else self.there.state.topics.topics[partition.topic_id].name
            return AlterPartitionRequest.TopicData(topic_name=name, partitions=(row,))
        topic_id = ELSEWHERE if is_elsewhere else partition.topic_id
        return AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=(row,))

    def slip(self) -> int:
        """Return what an epoch is off by."""
        return self.chance.choice((-1, 1)) if self.chance.random() < BAD / 3 else 0

    def assign_directories(self) -> AssignReplicasToDirsRequest:
        partition, broker_id = self.partition(), self.broker()
        if partition is None:
            return AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=self.epoch(broker_id))
        if not self.bad():
            broker_id = self.chance.choice(partition.replicas)
        row = AssignReplicasToDirsRequest
        places = (*directories(broker_id % 6), *directories(broker_id % 6), ELSEWHERE, UUID(int=2))
        rows = []
        for place in dict.fromkeys(self.some(lambda: self.chance.choice(places), 2)):
            number = 9 if self.chance.random() < BAD / 3 else partition.partition_id
            topic = row.TopicData(
                topic_id=ELSEWHERE if self.chance.random() < BAD / 3 else partition.topic_id,
                partitions=(row.PartitionData(partition_index=number),),
            )
            rows.append(row.DirectoryData(id=place, topics=(topic,)))
            partition = self.partition() or partition
        return row(broker_id=broker_id, broker_epoch=self.epoch(broker_id), directories=tuple(rows))

    # --- brokers -----------------------------------------------------------------------------------------------------

    def heartbeat(self) -> Request:
        number = self.broker()
        changes: dict[str, Any] = {}
        broker = self.there.state.cluster.brokers.get(number)
        if self.chance.random() < BAD:
            # Where a broker has none left, or a topic was deleted before, Kafka's controller resigns.
            left = broker.log_dirs[1:] if broker is not None and not self.there.has_deleted else ()
            changes["offline_log_dirs"] = self.chance.choice((left[:1], (ELSEWHERE,)))
        if self.chance.random() < BAD and BrokerHeartbeatRequest not in self.limits.versions:
            changes["cordoned_log_dirs"] = self.chance.choice(((), directories(number % 6)[:1], (ELSEWHERE,)))
        request = heartbeat(
            self.there,
            number,
            broker_epoch=self.epoch(number),
            # A fenced broker that tells of a failure is active at once in Kafka, and here with its next heartbeat.
            want_fence=self.chance.random() < 0.3
            or (broker is not None and broker.fenced and "offline_log_dirs" in changes),
            # The session of a broker that was active ends with its shutdown here; Kafka has its next process wait.
            want_shut_down=broker is not None and broker.fenced and self.chance.random() < 0.1,
            current_metadata_offset=self.chance.choice((1 << 40, 1 << 40, 1 << 40, 0)),
            **changes,
        )
        return request, 2 if "cordoned_log_dirs" in changes else self.chance.randint(1 if changes else 0, 2)

    def register(self) -> Request:
        number = abs(self.broker())  # below 0 there is a broker in Kafka alone
        changes: dict[str, Any] = {}
        features = registration(self.there, number).features
        broker = self.there.state.cluster.brokers.get(number)
        may_replace = self.limits.registers_alike or broker is None or not broker.fenced
        if self.chance.random() < 0.6:
            changes = self.chance.choice(
                (
                    {"cluster_id": "AAAAAAAAAAAAAAAAAAAAAA"},
                    {"incarnation_id": UUID(int=2_000 + number)} if may_replace else {},
                    {"incarnation_id": UUID(int=3_000 + number), "previous_broker_epoch": self.epoch(number)}
                    if may_replace
                    else {},
                    {"log_dirs": ()},
                    {"log_dirs": (UUID(int=5),)},
                    {"log_dirs": directories(2 if number != 2 else 4)},
                    {"log_dirs": directories(number) * 2},
                    {"features": ()} if self.limits.registers_alike else {},
                    {"features": (features[0], attrs.evolve(features[2], min_supported_version=1))},
                    {"features": (*features, attrs.evolve(features[0], name="no.such.feature"))},
                    {"is_migrating_zk_broker": True},
                    {"listeners": ()},
                    {"rack": None},
                )
            )
        if changes or not self.bad():
            is_new = changes.keys() & {"previous_broker_epoch", "is_migrating_zk_broker"}
            return registration(self.there, number, **changes), 4 if is_new else self.chance.choice((2, 3, 4, 4, 4))
        return registration(self.there, number, log_dirs=()), self.chance.randint(0, 1)

    def unregister(self) -> UnregisterBrokerRequest:
        """Where a topic was deleted before, Kafka's controller may resign at a broker that is there."""
        is_there = self.chance.random() < 0.3 and not self.there.has_deleted and self.limits.may_unregister
        return UnregisterBrokerRequest(broker_id=self.broker() if is_there else NOBODY)

    def allocate_producer_ids(self) -> AllocateProducerIdsRequest:
        number = self.broker()
        return AllocateProducerIdsRequest(broker_id=number, broker_epoch=self.epoch(number))

    def register_controller(self) -> ControllerRegistrationRequest:
        row = ControllerRegistrationRequest
        names = self.chance.choice(((), ("share.version",))) if self.bad() else RANGES
        lowest = int(self.bad())
        return row(
            controller_id=2,
            incarnation_id=UUID(int=4_000),
            listeners=(row.Listener(name="CONTROLLER", host="localhost", port=9_093, security_protocol=0),),
            features=tuple(
                row.Feature(
                    name=name,
                    min_supported_version=max(lowest, RANGES[name][0]),
                    max_supported_version=RANGES[name][1],
                )
                for name in names
            ),
        )

    def describe_cluster(self) -> Request:
        version = self.chance.randint(0, 2)
        # Kafka's names the controllers that have registered, ours the voters.
        is_other = len(self.there.state.cluster.controllers) > 1
        kind = self.chance.choice((1, 3) if is_other else (1, 2, 2, 3)) if version else 1
        return DescribeClusterRequest(endpoint_type=kind), version

    def update_features(self) -> Request:
        row = UpdateFeaturesRequest.FeatureUpdateKey
        features = {**RANGES, "no.such.feature": (0, 1)}
        del features["kraft.version"]
        # With a broker that was named otherwise Kafka's controller resigns: `test_update_features.py` has it.
        if any(kind == 4 and name and name != str(int(name)) for kind, name in self.there.state.configs.resources):
            del features["eligible.leader.replicas.version"]
        rows = {
            name: row(
                feature=name,
                max_version_level=self.chance.randint(0, features[name][1] + 1),
                upgrade_type=self.chance.choice((1, 2, 3)),
            )
            for name in self.some(lambda: self.chance.choice(list(features)), 2)
        }
        if self.bad():
            plain = (attrs.evolve(one, upgrade_type=1, allow_downgrade=self.bad()) for one in rows.values())
            return UpdateFeaturesRequest(feature_updates=tuple(plain)), 0
        request = UpdateFeaturesRequest(feature_updates=tuple(rows.values()), validate_only=self.bad())
        return request, self.chance.randint(1, 2)

    # --- access, quotas, credentials ---------------------------------------------------------------------------------

    def create_acls(self) -> Request:
        version = self.version(1, 3)

        def one() -> CreateAclsRequest.AclCreation:
            kind, pattern = self.code(2, 7), self.chance.randint(3, 4)
            pattern = self.chance.choice((1, 2, 5)) if self.chance.random() < BAD / 8 else pattern
            return CreateAclsRequest.AclCreation(
                resource_type=kind,
                resource_name="kafka-cluster" if kind == 4 and not self.bad() else self.chance.choice(RESOURCES),
                resource_pattern_type=pattern if version else LITERAL,
                principal=self.chance.choice(PRINCIPALS if self.bad() else PRINCIPALS[:3]),
                host=self.chance.choice(("*", "127.0.0.1", "" if self.bad() else "*")),
                operation=self.code(2, self.limits.last_operation),
                permission_type=self.code(2, 3),
            )

        return CreateAclsRequest(creations=self.some(one)), version

    def code(self, first: int, last: int) -> int:
        """Return a code of this range, seldom ANY or one of no meaning. At 0 Kafka's controller hangs up."""
        return self.chance.choice((1, 99, -1)) if self.chance.random() < BAD / 8 else self.chance.randint(first, last)

    def filter(self, version: int) -> dict[str, Any]:
        def or_any(draw: Callable[[], Any], anything: Any) -> Any:
            return anything if self.chance.random() < 0.6 else draw()

        return {
            "resource_type_filter": or_any(lambda: self.code(2, 7), 1),
            "resource_name_filter": or_any(lambda: self.chance.choice(RESOURCES), None),
            "pattern_type_filter": self.chance.choice((1, 2, 3, 4)) if version else LITERAL,
            "principal_filter": or_any(lambda: self.chance.choice(PRINCIPALS), None),
            "host_filter": or_any(lambda: self.chance.choice(("*", "127.0.0.1", "")), None),
            "operation": or_any(lambda: self.code(2, self.limits.last_operation), 1),
            "permission_type": or_any(lambda: self.code(2, 3), 1),
        }

    def describe_acls(self) -> Request:
        version = self.version(1, 3)
        return DescribeAclsRequest(**self.filter(version)), version

    def delete_acls(self) -> Request:
        version = self.version(1, 3)
        filters = self.some(lambda: DeleteAclsRequest.DeleteAclsFilter(**self.filter(version)), 2)
        return DeleteAclsRequest(filters=filters), version

    def alter_quotas(self) -> Request:
        row = AlterClientQuotasRequest
        entries = []
        for _ in range(self.chance.randint(1, 2)):
            kinds = self.chance.choice((("user",), ("client-id",), ("user", "client-id"), ("ip",)))
            if self.bad():
                kinds = self.chance.choice(((), ("user", "ip"), ("group",)))
            names = ("127.0.0.1", "::1", None, "300.1.1.1.1", "") if "ip" in kinds else ("ann", "bob", None, None, "")
            entity = tuple(
                row.EntityData(entity_type=kind, entity_name=self.chance.choice(names if self.bad() else names[:3]))
                for kind in kinds
            )
            keys = ("connection_creation_rate",) if "ip" in kinds and not self.bad() else QUOTAS
            ops = self.some(lambda keys=keys: self.quota(keys), 2)
            entries.append(row.EntryData(entity=entity, ops=ops))
        return row(entries=tuple(entries), validate_only=self.bad()), self.chance.randint(0, 1)

    def quota(self, keys: Sequence[str]) -> AlterClientQuotasRequest.OpData:
        key = self.chance.choice(keys)
        return AlterClientQuotasRequest.OpData(
            key=key,
            # What time gives back is left to `test_mutation_quotas.py`.
            value=self.chance.choice((1e4, -1.0, 0.0, 1e19) if key == MUTATIONS else RATES),
            remove=self.chance.random() < 0.3,
        )

    def alter_credentials(self) -> AlterUserScramCredentialsRequest:
        users = ("ann", "bob", "carl", "" if self.bad() else "dora")
        row = AlterUserScramCredentialsRequest

        def name_and_mechanism() -> dict[str, Any]:
            mechanism = self.chance.choice((0, 9)) if self.chance.random() < BAD / 4 else self.chance.randint(1, 2)
            return {"name": self.chance.choice(users), "mechanism": mechanism}

        def new() -> Any:
            iterations = self.chance.choice((4_096, 8_192, 16_384, 4_095 if self.bad() else 4_096, 16_385))
            return row.ScramCredentialUpsertion(
                **name_and_mechanism(), iterations=iterations, salt=b"salt", salted_password=b"p" * 32
            )

        gone = self.some(lambda: row.ScramCredentialDeletion(**name_and_mechanism()), 2)
        return row(deletions=gone if self.chance.random() < 0.5 else (), upsertions=self.some(new, 2))

    def tokens(self) -> Request:
        """Create a delegation token, have one live longer or shorter, or end it."""
        period = self.chance.choice((-1, 0, HOUR_MS, 2 * HOUR_MS, 10**12))
        if self.chance.random() < 0.4:
            version = self.version(1, 3)
            kind = "Group" if self.chance.random() < BAD / 3 else "User"
            renewer = CreateDelegationTokenRequest.CreatableRenewers
            owner = {"owner_principal_type": "User", "owner_principal_name": self.chance.choice(USERS)}
            return CreateDelegationTokenRequest(
                renewers=tuple(
                    renewer(principal_type=kind, principal_name=self.chance.choice(USERS))
                    for _ in range(self.chance.randint(0, 2))
                ),
                max_lifetime_ms=period,
                **(owner if version == 3 and self.chance.random() < 0.3 else {}),  # type: ignore[arg-type]
            ), version
        ids = self.there.tokens
        secret = self.chance.choice((b"", b"x" * 64)) if self.bad() or not ids else secret_of(self.chance.choice(ids))
        version = self.version(1, 2)
        if self.chance.random() < 0.5:
            return RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period), version
        return ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period), version

    # --- voters ------------------------------------------------------------------------------------------------------

    def voters(self) -> Request:
        """Add a voter that is there, or remove one that is not."""
        cluster_id = "AAAAAAAAAAAAAAAAAAAAAA" if self.bad() else self.chance.choice((None, self.there.cluster_id))
        number = self.chance.choice((1, 1, NOBODY, -1))
        if self.chance.random() < 0.5:
            return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=number, voter_directory_id=ELSEWHERE), 0
        listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="localhost", port=9_093)
        return AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=1_000,
            voter_id=1,
            voter_directory_id=ELSEWHERE,
            listeners=() if number != 1 else (listener,),
        ), 0


Settings = Sequence[tuple[str, str | None]]
RESOURCES: Final = ("orders", "ord", "*", "kafka-cluster", "")
MUTATIONS: Final = "controller_mutation_rate"
PRINCIPALS: Final = ("User:ann", "User:bob", "User:*", "ann", "", "Group:a", "User:", ":")
RATES: Final = (1.0, 5.0, 100.0, 1e3, 0.5, -1.0, 0.0, 1e19)
QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", MUTATIONS, "none")
CONFIGS: Final = (
    ("retention.ms", "1000"),
    ("retention.ms", "-2"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "nonsense"),
    ("min.insync.replicas", "2"),
    ("min.insync.replicas", "3"),
    ("min.insync.replicas", "0"),
    ("unclean.leader.election.enable", "true"),
    ("unclean.leader.election.enable", "yes"),
    ("no.such.key", "1"),
    ("max.message.bytes", "2147483648"),
    ("compression.type", "zstd"),
    ("compression.type", "rar"),
    ("segment.bytes", "1048576"),
    ("retention.ms", None),
    ("leader.replication.throttled.replicas", "0:1,0:2"),
    ("remote.log.copy.disable", "false"),
    ("remote.copy.disabled", "true"),
    ("internal.segment.bytes", "100000"),
    ("min.cleanable.dirty.ratio", "0.250"),
    ("segment.ms", "9"),
    ("retention.ms", "1" * 30_000),
    ("k" * 300, "1"),
    ("retention.ms", "1_0"),
    ("retention.ms", "\u00a05"),
    ("retention.ms", " +5 "),
    ("retention.bytes", "-9"),
    ("min.cleanable.dirty.ratio", "0x1p-1"),
    ("min.cleanable.dirty.ratio", "1e-7"),
    ("cleanup.policy", "compact,"),
    ("cleanup.policy", "delete , compact, delete"),
    ("leader.replication.throttled.replicas", "0:1, 0:1,0:2"),
    ("leader.replication.throttled.replicas", "*"),
    ("follower.replication.throttled.replicas", "0:1:2"),
    ("min.compaction.lag.ms", "9"),
    ("max.compaction.lag.ms", "8"),
    ("compression.gzip.level", "0"),
    ("remote.storage.enable", "true"),
    ("internal.segment.bytes", "-1"),
    ("", "1"),
)
BROKER_CONFIGS: Final = (
    ("log.retention.ms", "1000"),
    ("message.max.bytes", "1000000"),
    ("no.such.key", "1"),
    ("log.cleanup.policy", "compact"),
    ("min.insync.replicas", "2"),
    ("min.insync.replicas", "1"),
    ("log.roll.ms", "9000"),
    ("ssl.keystore.password", "secret"),
    ("log.retention.ms", None),
    ("ssl.enabled.protocols", "a, b"),
    ("cordoned.log.dirs", "a"),
    ("log.cleanup.policy", "compact, compact"),
    ("listener.name.a.max.connections", "5"),
    ("listener.name.a.ssl.client.auth", "none"),
    ("sasl.nobody", "x"),
    ("ssl.nobody", "x"),
    ("listeners", "A://:1"),  # not for its own number: Kafka's controller takes no other setting while it has that one
    ("compression.type", "zstd"),
    ("log.cleaner.min.cleanable.ratio", "1e-5"),
)
OWN_NUMBER: Final = "1"
"""Both controllers, and a broker."""

OTHER_CONFIGS: Final[Mapping[int, Settings]] = {
    16: (
        ("interval.ms", "1000"),
        ("interval.ms", "9"),
        ("metrics", "a.b"),
        ("metrics", "a.b, c,a.b"),
        ("match", "client_id=a.*"),
        ("push", "1"),
    ),
    32: (
        ("consumer.session.timeout.ms", "50000"),
        ("consumer.session.timeout.ms", "1"),
        ("share.delivery.count.limit", "4"),
        ("share.delivery.count.limit", None),
        ("no.such.key", "1"),
    ),
}
