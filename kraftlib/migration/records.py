"""The nodes of Kafka in ZooKeeper as metadata records, as Kafka's migration writes them (ZkMigrationClient, 3.9).

    /brokers/topics/NAME, and partitions/N/state below it      TopicRecord, PartitionRecord
    /config/topics, brokers                                    ConfigRecord
    /config/users, clients, ips                                ClientQuotaRecord, UserScramCredentialRecord
    /latest_producer_id_block                                  ProducerIdsRecord
    /kafka-acl, /kafka-acl-extended/prefixed                   AccessControlEntryRecord
    /delegation_token/tokens                                   DelegationTokenRecord

One thing differs. No broker runs, so no partition has a leader; leader epochs stay. The first broker of the ISR that
comes back leads, in the next epoch.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import ALLOW, DENY, LITERAL, PREFIXED, Operation, ResourceType
from kraftlib.controller.cluster import MIGRATING
from kraftlib.controller.configs import BROKER, TOPIC
from kraftlib.errors import ConfigError
from kraftlib.metadata.config_records import ClientQuotaRecord, ConfigRecord, FeatureLevelRecord, ProducerIdsRecord
from kraftlib.metadata.security_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from kraftlib.metadata.topic_records import PartitionRecord, TopicRecord
from kraftlib.migration.nodes import Nodes
from kraftlib.types import parse_uuid

METADATA_VERSION: Final = 21
"""3.9-IV0: that of the last release that has a ZooKeeper mode."""

NO_LEADER: Final = -1
NO_TOPIC_ID: Final = "no topic_id, which brokers give with inter.broker.protocol.version 2.8 or later"
DEFAULT: Final = "<default>"
ENCRYPTED: Final = "encryptedPassword:"
"""The values of passwords of brokers have this in ZooKeeper; their key is in the brokers' own files."""
MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
EFFECTS: Final = {"Deny": DENY, "Allow": ALLOW}


def _written(name: str) -> str:
    """Return a name of ours as Kafka writes it: DescribeConfigs."""
    return "".join(word.title() for word in name.split("_"))


RESOURCES: Final = {_written(one.name): one for one in ResourceType}
OPERATIONS: Final = {_written(one.name): one for one in Operation}


@attrs.frozen
class Translation:
    """Turns nodes into records. `left_out` names what has no record, while they are read."""

    nodes: Nodes
    new_uuid: Callable[[], UUID]
    left_out: list[str] = attrs.Factory(list)

    def cluster_id(self) -> str:
        """Return the id of the cluster. Raises: ConfigError, if there is none."""
        if self.nodes.is_empty("/cluster/id"):
            raise ConfigError("ZooKeeper has no /cluster/id there: name Kafka's chroot, the path in zookeeper.connect")
        with self.nodes.reading("/cluster/id") as found:
            return _text(found["id"])

    def records(self) -> Iterator[Message]:
        """Yield all records. Raises: ConfigError, if brokers run, or for a node that is not as Kafka writes it."""
        running = self.nodes.sessions("/brokers/ids")
        if running:
            raise ConfigError(
                f"brokers {', '.join(running)} still have sessions with ZooKeeper: stop all brokers, and wait until"
                " their sessions have ended (zookeeper.session.timeout.ms)"
            )
        yield FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION)
        yield from self._topics()
        for name in self.nodes.children("/config/brokers"):
            yield from self._configs(BROKER, f"/config/brokers/{name}", "" if name == DEFAULT else name)
        yield from self._quotas()
        if not self.nodes.is_empty("/latest_producer_id_block"):
            with self.nodes.reading("/latest_producer_id_block") as block:
                yield ProducerIdsRecord(
                    broker_id=_whole(block["broker"]), next_producer_id=_whole(block["block_end"], 63) + 1
                )
        yield from self._rules("/kafka-acl", LITERAL)
        yield from self._rules("/kafka-acl-extended/prefixed", PREFIXED)
        yield from self._tokens()
        if not self.nodes.is_empty("/feature"):
            with self.nodes.reading("/feature") as found:
                self.left_out.extend(f"feature {name}" for name in found.get("features") or ())

    # --- topics and configurations -----------------------------------------------------------------------------------

    def _topics(self) -> Iterator[Message]:
        deleted = {*self.nodes.children("/admin/delete_topics")}
        for name in self.nodes.children("/brokers/topics"):
            if name in deleted:
                self.left_out.append(f"topic {name}: its deletion had begun")
                continue
            path = f"/brokers/topics/{name}"
            with self.nodes.reading(path) as found:
                topic_id = parse_uuid(found.get("topic_id", NO_TOPIC_ID))
                assigned, adding, removing = (
                    {int(number): tuple(map(_whole, replicas)) for number, replicas in (found.get(key) or {}).items()}
                    for key in ("partitions", "adding_replicas", "removing_replicas")
                )
                if sorted(assigned) != list(range(len(assigned))):
                    raise ValueError("its partitions are not numbered from 0 on")
            yield TopicRecord(name=name, topic_id=topic_id)
            for number in range(len(assigned)):
                yield self._partition(
                    f"{path}/partitions/{number}/state",
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=assigned[number],
                    adding_replicas=adding.get(number, ()),
                    removing_replicas=removing.get(number, ()),
                )
            if not self.nodes.is_empty(f"/config/topics/{name}"):
                yield from self._configs(TOPIC, f"/config/topics/{name}", name)

    def _partition(self, path: str, *, replicas: tuple[int, ...], **known: Any) -> PartitionRecord:
        directories = (MIGRATING,) * len(replicas)
        if self.nodes.is_empty(path):  # as Kafka's migration: the topic was created, and no controller has seen it yet
            return PartitionRecord(
                replicas=replicas, isr=replicas, leader_epoch=0, partition_epoch=0, directories=directories, **known
            )
        with self.nodes.reading(path) as state:
            isr = tuple(map(_whole, state["isr"]))
            if not isr or not {*isr} <= {*replicas}:
                raise ValueError(f"isr {isr} is not among the replicas {replicas}")
            return PartitionRecord(
                replicas=replicas,
                isr=isr,
                leader=NO_LEADER,
                leader_recovery_state=_whole(state.get("leader_recovery_state", 0), 8),
                leader_epoch=_whole(state["leader_epoch"]),
                partition_epoch=self.nodes.version(path),
                directories=directories,
                **known,
            )

    def _configs(self, kind: int, path: str, name: str) -> Iterator[Message]:
        with self.nodes.reading(path) as found:
            for key, value in sorted(found["config"].items()):
                if ENCRYPTED in value:
                    self.left_out.append(f"{path}: {key} is encrypted; set it again")
                else:
                    yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=_text(value))

    # --- clients -----------------------------------------------------------------------------------------------------

    def _quotas(self) -> Iterator[Message]:
        for user in self.nodes.children("/config/users"):
            yield from self._of_clients(f"/config/users/{user}", {"user": user})
            for client in self.nodes.children(f"/config/users/{user}/clients"):
                yield from self._of_clients(
                    f"/config/users/{user}/clients/{client}", {"user": user, "client-id": client}
                )
        for client in self.nodes.children("/config/clients"):
            yield from self._of_clients(f"/config/clients/{client}", {"client-id": client})
        for address in self.nodes.children("/config/ips"):
            yield from self._of_clients(f"/config/ips/{address}", {"ip": address})

    def _of_clients(self, path: str, entity: Mapping[str, str]) -> Iterator[Message]:
        parts = tuple(
            ClientQuotaRecord.EntityData(entity_type=kind, entity_name=None if name == DEFAULT else unquote(name))
            for kind, name in entity.items()
        )
        if self.nodes.is_empty(path):  # it stands above others only
            return
        with self.nodes.reading(path) as found:
            for key, value in sorted(found["config"].items()):
                if key in MECHANISMS:
                    yield _credential(unquote(entity["user"]), MECHANISMS[key], value)
                else:
                    yield ClientQuotaRecord(entity=parts, key=key, value=float(value))

    def _rules(self, top: str, pattern: int) -> Iterator[Message]:
        for kind in self.nodes.children(top):
            if kind not in RESOURCES:
                raise ConfigError(f"{top}/{kind}: there is no such type of resources")
            for name in self.nodes.children(f"{top}/{kind}"):
                if self.nodes.is_empty(f"{top}/{kind}/{name}"):
                    continue
                with self.nodes.reading(f"{top}/{kind}/{name}") as found:
                    for rule in found["acls"]:
                        yield AccessControlEntryRecord(
                            id=self.new_uuid(),
                            resource_type=RESOURCES[kind],
                            resource_name=name,
                            pattern_type=pattern,
                            principal=_text(rule["principal"]),
                            host=_text(rule["host"]),
                            operation=OPERATIONS[rule["operation"]],
                            permission_type=EFFECTS[rule["permissionType"]],
                        )

    def _tokens(self) -> Iterator[Message]:
        for token in self.nodes.children("/delegation_token/tokens"):
            with self.nodes.reading(f"/delegation_token/tokens/{token}") as found:
                owner = unquote(found["owner"])
                yield DelegationTokenRecord(
                    owner=owner,
                    requester=unquote(found.get("tokenRequester", owner)),
                    renewers=tuple(map(unquote, found["renewers"])),
                    issue_timestamp=_whole(found["issueTimestamp"], 64),
                    max_timestamp=_whole(found["maxTimestamp"], 64),
                    expiration_timestamp=_whole(found["expiryTimestamp"], 64),
                    token_id=_text(found["tokenId"]),
                )


def _whole(value: Any, bits: int = 32) -> int:
    """Return a number that a signed field of so many bits holds."""
    number = int(value)
    if number.bit_length() >= bits:
        raise OverflowError(f"{number} does not fit into {bits} bits")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _credential(user: str, mechanism: int, text: str) -> UserScramCredentialRecord:
    """Return the record of a credential that is written as `salt=…,stored_key=…,server_key=…,iterations=…`."""
    parts = dict(part.split("=", 1) for part in text.split(","))
    salt, stored_key, server_key = (base64.b64decode(parts[name]) for name in ("salt", "stored_key", "server_key"))
    return UserScramCredentialRecord(
        name=user, mechanism=mechanism, salt=salt, stored_key=stored_key, server_key=server_key,
        iterations=_whole(parts["iterations"]),
    )  # fmt: skip
