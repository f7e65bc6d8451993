"""Quotas of controller mutations: a controller of Kafka and ours refuse the same, and say the same waiting times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kraftlib.controller.access_rules import ALLOW, CLUSTER_NAME, LITERAL, Operation, ResourceType
from kraftlib.wire.messages.acls import CreateAclsRequest
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlib.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from tests.interop.admin_requests import heartbeat, registration
from tests.interop.asked import Asked
from tests.interop.lab import Lab
from tests.interop.test_admin_requests import IMAGE_S, controllers

RATE: Final = 0.01
"""So low that time gives nothing back while the test runs."""

USER, CLIENT = "user", "client-id"
ENTITIES: Final[tuple[dict[str, str | None], ...]] = (
    {USER: "ann"},
    {CLIENT: "lab"},
    {USER: None},
    {CLIENT: None},
    {USER: None, CLIENT: "lab"},
    {USER: "bob", CLIENT: None},
    {USER: "carl", CLIENT: "lab"},
    {CLIENT: "other"},
)
SECONDS: Final = 10
"""Waiting times may differ by so much of hundreds."""


@pytest.fixture
def both(lab: Lab) -> Iterator[tuple[Asked, Asked]]:
    yield from controllers(lab, elr=1, judged=True)


def limit(there: Asked, entity: dict[str, str | None], *, remove: bool = False) -> None:
    row = AlterClientQuotasRequest
    parts = tuple(row.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
    change = row.OpData(key="controller_mutation_rate", value=RATE, remove=remove)
    assert there.ask(row(entries=(row.EntryData(entity=parts, ops=(change,)),))).entries[0].error_code == 0


def allow_everything(there: Asked) -> None:
    row = CreateAclsRequest.AclCreation
    rules = tuple(
        row(
            resource_type=kind, resource_name=name, resource_pattern_type=LITERAL, principal="User:*", host="*",
            operation=Operation.ALL, permission_type=ALLOW,
        )
        for kind, name in ((ResourceType.CLUSTER, CLUSTER_NAME), (ResourceType.TOPIC, "*"))
    )  # fmt: skip
    assert [one.error_code for one in there.ask(CreateAclsRequest(creations=rules)).results] == [0, 0]


def requests(prefix: str) -> Iterator[tuple[Any, int]]:
    """Yield what creates and deletes, in versions that know of a refusal and in older ones."""
    for version, last in ((5, 3), (7, 2), (7, 1)):
        topics = tuple(
            CreateTopicsRequest.CreatableTopic(
                name=f"{prefix}-{version}-{number}",
                num_partitions=-1,
                replication_factor=-1,
                assignments=tuple(
                    CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=(1,))
                    for index in range(number + 1)
                ),
            )
            for number in range(last)
        )
        yield CreateTopicsRequest(topics=topics), version
    name = f"{prefix}-5-1"
    for version, more in ((2, 1), (3, 2)):
        row = CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=(1,))
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2 + more, assignments=(row,) * more)
        yield CreatePartitionsRequest(topics=(topic,), timeout_ms=60_000), version
    yield DeleteTopicsRequest(topic_names=(name, "nobody"), timeout_ms=60_000), 4
    yield DeleteTopicsRequest(topic_names=(f"{prefix}-5-0",), timeout_ms=60_000), 5


@pytest.mark.since("4.3")
def test_a_controller_of_kafka_and_ours_refuse_the_same_mutations(both: tuple[Asked, Asked]) -> None:
    for there in both:
        allow_everything(there)
        there.ask(registration(there, 1))
        there.written()
        there.ask(heartbeat(there, 1))
    for number, entity in enumerate(ENTITIES):
        for there in both:
            limit(there, entity)
        time.sleep(IMAGE_S)  # Kafka's controller knows of a quota when its image has followed the log
        for user in ("ann", "bob", "carl"):
            for request, version in requests(f"{user}{number}"):
                told = []
                for there in both:
                    answer = there.forwarded(request, version, user=user)
                    told.append((there.plain(answer), there.plain(there.written()), answer.throttle_time_ms / 1_000))
                (theirs, their_records, their_time), (ours, our_records, our_time) = told
                assert (theirs, their_records) == (ours, our_records), (entity, user, request)
                assert our_time == pytest.approx(their_time, abs=SECONDS), (entity, user, request)
        for there in both:
            limit(there, entity, remove=True)
