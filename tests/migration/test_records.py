"""What Kafka has in ZooKeeper, as records. tests/interop/test_zookeeper_mode.py compares with Kafka's own migration."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import ALLOW, DENY, LITERAL, PREFIXED, Operation, ResourceType
from kraftlib.controller.cluster import MIGRATING
from kraftlib.controller.state import ClusterState
from kraftlib.controller.versions import encoded
from kraftlib.errors import ConfigError
from kraftlib.metadata.config_records import ClientQuotaRecord, ConfigRecord, FeatureLevelRecord, ProducerIdsRecord
from kraftlib.metadata.security_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from kraftlib.metadata.topic_records import PartitionRecord, TopicRecord
from kraftlib.migration.nodes import Nodes
from kraftlib.migration.records import Translation
from kraftlib.types import new_uuid, parse_uuid
from tests.migration.tree import CLICKS, CLUSTER, ORDERS, source


def translation(changes: Mapping[str, Any] | None = None, top: str = "") -> Translation:
    return Translation(Nodes(source(changes, top=top), top), new_uuid)


def of(kind: type[Message], changes: Mapping[str, Any] | None = None, top: str = "") -> list[Any]:
    """Return the records of a type."""
    return [one for one in translation(changes, top).records() if isinstance(one, kind)]


@pytest.mark.parametrize("top", ["", "/kafka", "/a/b"])
def test_topics_keep_ids_replicas_and_epochs_and_have_no_leader(top: str) -> None:
    assert [(one.name, one.topic_id) for one in of(TopicRecord, top=top)] == [
        ("clicks.x", parse_uuid(CLICKS)),
        ("orders", parse_uuid(ORDERS)),
    ]
    clicks, first, second = of(PartitionRecord, top=top)
    assert (first.topic_id, first.partition_id, first.replicas, first.isr) == (parse_uuid(ORDERS), 0, (1, 2), (2, 1))
    assert (first.leader_epoch, first.partition_epoch, first.leader_recovery_state) == (5, 4, 1)
    assert {one.leader for one in (clicks, first, second)} == {-1}
    assert (second.replicas, second.adding_replicas, second.removing_replicas) == ((2, 1, 3), (3,), (2,))
    assert (second.isr, second.leader_epoch, second.partition_epoch) == ((2, 1, 3), 0, 0), "no controller has seen it"
    assert second.directories == (MIGRATING,) * 3


def test_settings_of_topics_and_brokers_come_along_and_encrypted_ones_are_named() -> None:
    one = translation()
    configs = [record for record in one.records() if isinstance(record, ConfigRecord)]
    assert [(c.resource_type, c.resource_name, c.name, c.value) for c in configs] == [
        (2, "orders", "cleanup.policy", "compact"),
        (2, "orders", "retention.ms", "9"),
        (4, "", "log.cleaner.threads", "2"),
    ]
    assert one.left_out == ["/config/brokers/2: ssl.key.password is encrypted; set it again"]


def test_quotas_and_credentials_have_their_names_as_users_know_them() -> None:
    quotas = {
        tuple((part.entity_type, part.entity_name) for part in one.entity): (one.key, one.value)
        for one in of(ClientQuotaRecord)
    }
    assert quotas == {
        (("user", "ann b"),): ("producer_byte_rate", 7.5),
        (("user", "bob"), ("client-id", "c/1")): ("consumer_byte_rate", 5.0),
        (("user", None), ("client-id", None)): ("consumer_byte_rate", 6.0),
        (("client-id", "c2"),): ("controller_mutation_rate", 8.0),
        (("ip", "10.0.0.1"),): ("connection_creation_rate", 9.0),
    }
    (user,) = of(UserScramCredentialRecord)
    assert (user.name, user.mechanism, user.iterations) == ("ann b", 1, 4096)
    assert (user.salt, user.stored_key, user.server_key) == (b"salt", b"stored", b"server")


def test_rules_tokens_and_producer_ids_come_along() -> None:
    literal, prefixed = of(AccessControlEntryRecord)
    assert literal.id != prefixed.id
    assert (literal.resource_type, literal.resource_name, literal.pattern_type) == (
        ResourceType.TOPIC, "orders", LITERAL,
    )  # fmt: skip
    assert (literal.principal, literal.host, literal.operation, literal.permission_type) == (
        "User:ann", "*", Operation.DESCRIBE_CONFIGS, ALLOW,
    )  # fmt: skip
    assert (prefixed.resource_type, prefixed.pattern_type) == (ResourceType.TRANSACTIONAL_ID, PREFIXED)
    assert (prefixed.host, prefixed.operation, prefixed.permission_type) == ("10.0.0.9", Operation.ALL, DENY)
    (token,) = of(DelegationTokenRecord)
    assert (token.owner, token.requester, token.renewers, token.token_id) == (
        "User:ann", "User:bob", ("User:carl",), "abc",
    )  # fmt: skip
    assert (token.issue_timestamp, token.expiration_timestamp, token.max_timestamp) == (1, 2, 3)
    (block,) = of(ProducerIdsRecord)
    assert block.next_producer_id == 2_000, "the first id of the block that was never given out"


def test_every_cluster_begins_with_the_features_of_3_9_and_others_are_named() -> None:
    one = translation({"/feature": {"features": {"x": {"max_version_level": 1}}, "version": 2, "status": 1}})
    first, *_ = one.records()
    assert isinstance(first, FeatureLevelRecord)
    assert (first.name, first.feature_level) == ("metadata.version", 21)
    assert "feature x" in one.left_out


def test_a_topic_that_was_being_deleted_is_gone() -> None:
    one = translation({"/admin/delete_topics/orders": None})
    records = list(one.records())
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["clicks.x"]
    assert not any(isinstance(record, ConfigRecord) and record.resource_type == 2 for record in records)
    assert "topic orders: its deletion had begun" in one.left_out


def test_a_cluster_that_never_had_more_than_its_nodes_is_imported() -> None:
    """Kafka makes some nodes without data at its start: a cluster without producers has no block of ids."""
    empty = dict.fromkeys(("/latest_producer_id_block", "/feature", "/config/topics/orders", "/kafka-acl/Topic/orders"))
    assert of(ProducerIdsRecord, empty) == []
    assert len(of(TopicRecord, empty)) == 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/brokers/topics/clicks.x", {"partitions": {"0": [1 << 31]}, "topic_id": CLICKS}),
        ("/brokers/topics/orders/partitions/0/state", {"isr": [1], "leader_epoch": 1 << 31}),
        ("/brokers/topics/orders/partitions/0/state", {"isr": [1], "leader_epoch": 1, "leader_recovery_state": 128}),
        ("/latest_producer_id_block", {"broker": -(1 << 31) - 1, "block_end": "1999"}),
        ("/latest_producer_id_block", {"broker": 1, "block_end": (1 << 63) - 1}),
        ("/delegation_token/tokens/abc", CLUSTER["/delegation_token/tokens/abc"] | {"maxTimestamp": 1 << 63}),
    ],
)
def test_a_number_that_no_record_holds_is_told_with_its_path(path: str, value: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{path} is not as Kafka writes it: .*does not fit into"):
        [encoded(record, 21) for record in translation({path: value}).records()]


def test_brokers_that_have_sessions_are_named() -> None:
    nodes = source(top="/kafka")
    nodes.ephemeral_paths |= {"/kafka/brokers/ids/2", "/kafka/brokers/ids/1", "/kafka/controller", "/brokers/ids/7"}
    with pytest.raises(ConfigError, match="brokers 1, 2 still have sessions"):
        list(Translation(Nodes(nodes, "/kafka"), new_uuid).records())


def test_a_place_without_kafka_is_refused() -> None:
    assert translation(top="/kafka").cluster_id() == "dAeUCHuXTu2U-Y8PVOAJ2g"
    with pytest.raises(ConfigError, match="no /cluster/id there: name Kafka's chroot"):
        Translation(Nodes(source(top="/kafka"), ""), new_uuid).cluster_id()


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("/brokers/topics/orders", {"partitions": {"0": [1]}, "version": 2}, "no topic_id"),
        ("/brokers/topics/orders", {"partitions": {"1": [1]}, "topic_id": ORDERS}, "not numbered from 0"),
        ("/brokers/topics/orders", b"{", "JSONDecodeError"),
        ("/brokers/topics/orders", None, "JSONDecodeError"),
        ("/brokers/topics/orders", b"[1]", "it is no object"),
        ("/brokers/topics/orders/partitions/0/state", {"leader_epoch": 1, "isr": [3]}, "not among the replicas"),
        ("/brokers/topics/orders/partitions/0/state", {"leader_epoch": 1, "isr": []}, "not among the replicas"),
        ("/brokers/topics/orders/partitions/0/state", b'{"leader_epoch": 1e400, "isr": [1]}', "infinity"),
        ("/config/users/ann%20b", {"config": {"SCRAM-SHA-256": "salt=x"}}, "ann%20b"),
        ("/config/clients/c2", {"config": {"consumer_byte_rate": "many"}}, "many"),
        ("/kafka-acl/Topic/orders", {"acls": [{"principal": "User:a", "host": "*"}]}, "operation"),
        ("/kafka-acl/Planet/x", {"acls": []}, "no such type of resources"),
        ("/latest_producer_id_block", b"\xff", "UnicodeDecodeError"),
        ("/delegation_token/tokens/abc", {"owner": 3}, "tokens/abc"),
        ("/feature", b"[" * 100_000, "RecursionError"),
    ],
)
def test_a_node_that_is_not_as_kafka_writes_it_is_named(path: str, value: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        list(translation({path: value}).records())
    assert reason in str(refused.value)
    assert path.split("/")[1] in str(refused.value)


@given(st.sampled_from([path for path, value in CLUSTER.items() if value]), st.randoms(use_true_random=False))
def test_damage_is_refused_or_makes_a_cluster_that_is_one(path: str, chance: random.Random) -> None:
    """Whatever a node holds, either its path is named, or a controller can begin with the records."""
    value = dict(CLUSTER[path])
    key = chance.choice(list(value))
    value[key] = chance.choice([None, -1, "x", [], {}, [[]], {"0": None}, {"0": ["x"]}, {"x": 1}, 1 << 70, True])
    one = translation({path: value})
    state = ClusterState()
    reason = ""
    try:
        one.cluster_id()
        for record in one.records():
            encoded(record, 21)
            state.replay(record)
    except ConfigError as error:
        reason = str(error)
    assert path in reason if reason else state.features.metadata_version == 21
