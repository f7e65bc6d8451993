"""The versions that Kafka 4.0 took away (KIP-896): a controller of Kafka 3.9 and one of ours are asked the same."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kraftlib.controller.apis import VERSIONS
from kraftlib.wire.apis import ApiKey
from kraftlib.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kraftlib.wire.messages.alter_partition import AlterPartitionRequest
from kraftlib.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest
from tests.interop.admin_requests import BROKERS, Drawn, epoch_of, heartbeat, registration
from tests.interop.asked import HOUR_MS, PATIENCE_S, SUPER_USER, Asked, secret_of
from tests.interop.lab import Lab
from tests.interop.limits import LIMITS
from tests.interop.test_admin_requests import NEWS_S, as_drawn, controllers
from tests.interop.wire import frames

CONTROLLED_SHUTDOWN: Final = 7
UNKNOWN_SERVER_ERROR: Final = -1
OLD: Final = {
    ApiKey.CREATE_TOPICS: (0, 1),
    ApiKey.ALTER_PARTITION: (0, 1),
    **dict.fromkeys(
        (
            ApiKey.DELETE_TOPICS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
        ),
        (0,),
    ),
}
WRONG_EPOCH, NO_TOPIC, RECOVERING = {"leader_epoch": 7}, {"topic_name": "none"}, {"leader_recovery_state": 1}


def of_topics(version: int) -> Iterator[Any]:
    """Topics that can be created, and others that cannot."""
    row = CreateTopicsRequest

    def topic(name: str, counts: tuple[int, int] = (-1, -1), *, brokers: tuple[int, ...] = (), **configs: str) -> Any:
        placed = (row.CreatableReplicaAssignment(partition_index=0, broker_ids=brokers),) if brokers else ()
        given = tuple(row.CreatableTopicConfig(name=key.replace("_", "."), value=configs[key]) for key in configs)
        return row.CreatableTopic(
            name=name, num_partitions=counts[0], replication_factor=counts[1], assignments=placed, configs=given
        )

    yield row()
    yield row(topics=(topic(f"a{version}", brokers=(1, 2, 3), retention_ms="1000"), topic("b c", brokers=(1,))))
    yield row(topics=(topic(f"a{version}", brokers=(1,)), topic("d", brokers=(1,)), topic("d", brokers=(1,))))
    yield row(topics=(topic("e", (0, 1)), topic("f", (1, 9)), topic("g", (1, 1), brokers=(1,))))
    yield row(topics=(topic("h", brokers=(77,)), topic("i", brokers=(1,), retention_ms="x")))
    yield row(topics=(topic("j", (10_001, 1)), topic("k", brokers=(1,))))
    if version:
        yield row(topics=(topic("l", (3, 2)), topic("m", (3, 9))), validate_only=True)


def of_configs() -> Iterator[Any]:
    """Values of a topic, and of what there is not."""
    row = DescribeConfigsRequest.DescribeConfigsResource
    for kind, name in ((2, "a0"), (2, "none"), (2, "b c"), (4, "x"), (8, ""), (99, "")):
        for keys in (None, ("retention.ms", "none")):
            yield DescribeConfigsRequest(
                resources=(row(resource_type=kind, resource_name=name, configuration_keys=keys),)
            )


def of_replicas(there: Asked, version: int) -> Iterator[Any]:
    """In-sync replicas as the leader may name them, and as it may not."""
    name = f"a{version}"

    def alter(isr: tuple[int, ...], *, broker_id: int = 1, topic_name: str = name, **changes: Any) -> Any:
        topics = there.state.topics
        one = topics.partitions[topics.ids[name], 0]
        fields = {
            "partition_index": 0, "leader_epoch": one.leader_epoch, "partition_epoch": one.partition_epoch,
            "new_isr": isr, **changes,
        }  # fmt: skip
        data = AlterPartitionRequest.PartitionData(**fields)  # type: ignore[arg-type]
        topic = AlterPartitionRequest.TopicData(topic_name=topic_name, partitions=(data,))
        return AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch_of(there, broker_id), topics=(topic,))

    yield AlterPartitionRequest(broker_id=1, broker_epoch=epoch_of(there, 1))
    yield AlterPartitionRequest(broker_id=77, broker_epoch=5)
    yield alter((1, 3))
    yield heartbeat(there, 2, want_fence=True)
    yield alter((1, 2, 3))
    yield heartbeat(there, 2)
    yield alter((1, 2, 3))
    for isr, changes in (
        ((1,), WRONG_EPOCH), ((1,), NO_TOPIC), ((1,), {"partition_index": 9}), ((1, 5), {}), ((2,), {}), ((), {}),
        ((1,), {"broker_id": 2}), ((1,), {"leader_epoch": -1}), ((1,), {"partition_epoch": 0}),
        *([((1,), RECOVERING)] if version else []),
    ):  # fmt: skip
        yield alter(isr, **changes)  # type: ignore[arg-type]
    move = AlterPartitionReassignmentsRequest
    partition = move.ReassignablePartition(partition_index=0, replicas=(4, 5))
    yield move(topics=(move.ReassignableTopic(name=name, partitions=(partition,)),))
    yield alter((1, 2, 3, 4, 5))  # the reassignment ends, and another broker leads


def of_access() -> Iterator[Any]:
    """Rules of access by literal names: no pattern can be said."""
    rule = {"resource_type": 2, "resource_name": "a", "principal": "User:ann", "host": "*"}
    codes = {"operation": 3, "permission_type": 3}
    rows = [
        {**rule, **codes}, {**rule, **codes, "resource_name": "*"}, {**rule, **codes, "principal": "ann"},
        {**rule, **codes, "resource_type": 4}, {**rule, **codes, "resource_name": ""},
    ]  # fmt: skip
    create = CreateAclsRequest
    yield create()
    for row in (rows[:2], rows[:1], rows[2:], [{**rule, **codes, "operation": 1}], [{**rule, **codes, "host": ""}]):
        yield create(creations=tuple(create.AclCreation(**one) for one in row))
    anything = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
    filters = (
        anything, {**anything, "resource_name_filter": "a"}, {**anything, "principal_filter": "User:bob"},
        {**anything, "host_filter": "*", "operation": 3}, {**anything, "operation": 99},
    )  # fmt: skip
    nobody = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    for one in filters:
        yield DescribeAclsRequest(**{**nobody, **one})
    for one in reversed(filters):
        yield DeleteAclsRequest(filters=(DeleteAclsRequest.DeleteAclsFilter(**{**nobody, **one}),))


def of_tokens(there: Asked) -> Iterator[Any]:
    """A token that is created, lives longer and ends, and what is none."""
    renewer = CreateDelegationTokenRequest.CreatableRenewers
    for kind, period in (("Group", -1), ("User", -1), ("User", HOUR_MS)):
        renewers = (renewer(principal_type=kind, principal_name="bob"),)
        yield CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=period)
    for secret in (b"x", *map(secret_of, there.tokens)):
        yield RenewDelegationTokenRequest(hmac=secret, renew_period_ms=HOUR_MS)
        yield ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=HOUR_MS)
        yield ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1)


def of_deletions() -> Iterator[Any]:
    """Topics that go, that are named twice, and that are not there."""
    for names in ((), ("a0", "none"), ("a0",), ("a1", "a1"), ("b c", "")):
        yield DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)


def asked_of(there: Asked) -> Iterator[Drawn]:
    """Yield every request in its version, some for a user whom a broker names. Others make it possible."""
    for version in (0, 1):
        yield from (Drawn(request, version) for request in of_topics(version))
    for request in (*of_configs(), *of_access()):
        yield Drawn(request, 0)
        yield Drawn(request, 0, SUPER_USER if ApiKey(request.api_key) != ApiKey.DESCRIBE_CONFIGS else None)
    for version in (0, 1):
        for request in of_replicas(there, version):
            yield Drawn(request, version if isinstance(request, AlterPartitionRequest) else 0)
    yield Drawn(CreateDelegationTokenRequest(), 0)
    for request in of_tokens(there):
        yield Drawn(request, 0, "ann")
    for request in of_deletions():
        yield Drawn(request, 0, SUPER_USER)


@pytest.mark.until("3.9")
def test_the_versions_that_kafka_4_took_away_are_answered_as_by_kafka_3(lab: Lab) -> None:
    """Topics by name, errors of old and fields that there were not: the same answers and records."""
    pair: tuple[Asked, Asked]
    for pair in controllers(lab, elr=0, judged=True):
        for there in pair:
            there.not_compared = LIMITS[lab.release.minor].not_compared
            for number in BROKERS:
                there.ask(registration(there, number))
                there.written()
                there.ask(heartbeat(there, number), 1)
                there.written()
        differing, versions = [], set()
        for drawn in zip(*map(asked_of, pair), strict=True):
            if pair[0].has_news and drawn[0].needs_news:
                time.sleep(NEWS_S)  # Kafka's controller reads tokens in an image that follows its log
                pair[0].has_news = False
            versions.add((drawn[0].request.api_key, drawn[0].version))
            theirs, ours = map(as_drawn, pair, drawn)
            if theirs != ours:
                differing.append((drawn[0], theirs, ours))
        assert differing == []
        assert {(key, version) for key, old in OLD.items() for version in old} <= versions


@pytest.mark.until("3.9")
def test_a_controller_of_kafka_advertises_controlled_shutdown_and_does_not_serve_it(lab: Lab) -> None:
    """It is of brokers that have their metadata from ZooKeeper. Ours does not advertise it, and hangs up."""
    pair: tuple[Asked, Asked]
    for pair in controllers(lab, elr=0):
        for there in pair:
            there.ask(registration(there, 1))
        answers = [[controlled_shutdown(there, version) for version in (1, 2, 3)] for there in pair]
        code = struct.pack(">h", UNKNOWN_SERVER_ERROR)
        assert answers[0] == [code + bytes(4), code + bytes(4), b"\0" + code + b"\1\0"]
        assert answers[1] == [None] * 3
    assert CONTROLLED_SHUTDOWN not in VERSIONS


def controlled_shutdown(there: Asked, version: int) -> bytes | None:
    """Return the body of the answer, with the tags before it; None: the controller hangs up."""
    tags = b"\0" if version >= 3 else b""
    epoch = struct.pack(">q", epoch_of(there, 1)) if version >= 2 else b""
    frame = (
        struct.pack(">hhi", CONTROLLED_SHUTDOWN, version, 5) + b"\0\3lab" + tags + struct.pack(">i", 1) + epoch + tags
    )
    with socket.create_connection((there.endpoint.host, there.endpoint.port), timeout=PATIENCE_S) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = next(frames(connection), None)
    return answer and answer[4:]
