"""Rules of access: Kafka's StandardAuthorizer decides as ours does, and controllers of both refuse the same."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kraftlib.controller.access_rules import ALLOW, DENY, LITERAL, PREFIXED, AccessRules, Operation, ResourceType
from kraftlib.types import ZERO_UUID
from kraftlib.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlib.wire.messages.alter_configs import AlterConfigsRequest
from kraftlib.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlib.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlib.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.delegation_tokens import CreateDelegationTokenRequest
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlib.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlib.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftlib.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.test_access_rules import drawn_question, drawn_rule
from tests.interop.admin_requests import heartbeat, registration
from tests.interop.asked import Asked
from tests.interop.kafka import Release
from tests.interop.lab import Lab
from tests.interop.peer import compiled
from tests.interop.processes import PATIENCE_S
from tests.interop.test_admin_requests import controllers
from tests.interop.test_delegation_tokens import as_user

SETS: Final = 150
QUESTIONS: Final = 40
SUPER: Final = "User:CN=ann,OU=ops"
TOPIC, GROUP, CLUSTER, USER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.USER


@pytest.mark.each_release
def test_kafkas_class_decides_as_ours_does(release: Release) -> None:
    chance, lines, ours = random.Random(11), [], []
    for number in range(SETS):
        rules, if_none = [drawn_rule(chance) for _ in range(chance.randrange(12))], number % 3 == 0
        index = AccessRules()
        lines.append(("begin", str(if_none).lower(), SUPER))
        for one in rules:
            index.change(None, one)
            pattern, entry = (one.resource_type, one.resource_name, one.pattern_type), (one.principal, one.host)
            lines.append(("rule", *pattern, *entry, one.operation, one.permission_type))
        for _ in range(QUESTIONS):
            operation, kind, name, who = drawn_question(chance)
            lines.append(("ask", kind, name, who["principal"], who["host"], operation))
            is_super = who["principal"] == SUPER
            ours.append(is_super or index.allow(operation, kind, name, **who, if_none=if_none))
    done = subprocess.run(
        release.java("Acls", classes=compiled(release)),
        input="".join("\t".join(str(int(word) if isinstance(word, int) else word) for word in line) + "\n"
                      for line in lines),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    asked = [line for line in lines if line[0] == "ask"]
    theirs = [line == "true" for line in done.stdout.splitlines()]
    assert len(theirs) == len(asked) == SETS * QUESTIONS
    assert 0.2 < sum(theirs) / len(theirs) < 0.8
    assert [(line, ours[n], theirs[n]) for n, line in enumerate(asked) if ours[n] != theirs[n]] == []


@pytest.fixture
def both(lab: Lab) -> Iterator[tuple[Asked, Asked]]:
    yield from controllers(lab, elr=1, judged=True)


def rules(*rows: tuple[Any, ...]) -> CreateAclsRequest:
    """Rules as (principal, operation, type, name), with `prefix` or `deny` behind it."""
    row = CreateAclsRequest.AclCreation
    return CreateAclsRequest(
        creations=tuple(
            row(
                resource_type=kind, resource_name=name, principal=f"User:{who}", host="*", operation=operation,
                resource_pattern_type=PREFIXED if "prefix" in how else LITERAL,
                permission_type=DENY if "deny" in how else ALLOW,
            )
            for who, operation, kind, name, *how in rows
        )
    )  # fmt: skip


RULES: Final = rules(
    ("maker", Operation.CREATE, CLUSTER, "kafka-cluster"),
    ("maker", Operation.DESCRIBE_CONFIGS, TOPIC, "m", "prefix"),
    ("owner", Operation.ALL, TOPIC, "m", "prefix"),
    ("owner", Operation.ALL, TOPIC, "mx", "deny"),
    ("reader", Operation.READ, TOPIC, "*"),
    ("reader", Operation.DESCRIBE, CLUSTER, "kafka-cluster"),
    ("reader", Operation.CREATE_TOKENS, USER, "User:maker"),
    ("boss", Operation.ALTER, CLUSTER, "kafka-cluster"),
    ("boss", Operation.DELETE, CLUSTER, "kafka-cluster"),
    ("tuner", Operation.ALTER_CONFIGS, CLUSTER, "kafka-cluster"),
    ("tuner", Operation.ALTER_CONFIGS, TOPIC, "ma"),
)
USERS: Final = ("maker", "owner", "reader", "boss", "tuner", "nobody", "ANONYMOUS")


def requests(there: Asked, user: str) -> Iterator[Any]:
    """Yield one request of each kind, and some about several resources."""
    made = CreateTopicsRequest.CreatableTopic
    for names in (("ma", "mx"), (f"m-{user}", "__cluster_metadata"), (f"n-{user}",)):
        wanted = tuple(made(name=one, num_partitions=1, replication_factor=1) for one in names)
        yield CreateTopicsRequest(topics=wanted, timeout_ms=60_000)
    loggers = ((8, "1"),) if user != "ANONYMOUS" else ()  # only Kafka's controller has any
    grown = CreatePartitionsRequest.CreatePartitionsTopic
    yield CreatePartitionsRequest(
        topics=tuple(grown(name=name, count=9, assignments=None) for name in ("ma", "none")), timeout_ms=60_000
    )
    for request in (IncrementalAlterConfigsRequest, AlterConfigsRequest):
        change = {"config_operation": 0} if request is IncrementalAlterConfigsRequest else {}
        config = request.AlterableConfig(name="segment.bytes", value="1048576", **change)
        yield request(
            resources=tuple(
                request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(config,))
                for kind, name in ((2, "ma"), (2, "none"), (4, "1"), (4, "10"), *loggers, (99, "x"))
            )
        )
    yield ElectLeadersRequest(election_type=0, topic_partitions=())
    yield AlterPartitionReassignmentsRequest(topics=())
    yield ListPartitionReassignmentsRequest(topics=None)
    quota = AlterClientQuotasRequest
    yield quota(entries=(quota.EntryData(entity=(quota.EntityData(entity_type="user", entity_name="u"),)),))
    scram = AlterUserScramCredentialsRequest
    yield scram(deletions=(scram.ScramCredentialDeletion(name="u", mechanism=1),))
    yield UnregisterBrokerRequest(broker_id=77)
    anything = {
        "resource_type_filter": 2, "resource_name_filter": "zz", "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    yield DeleteAclsRequest(filters=(DeleteAclsRequest.DeleteAclsFilter(**anything),))
    yield rules(("zoe", Operation.READ, TOPIC, f"z-{user}"))
    for owner in ("maker", "zoe"):
        yield CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=owner, max_lifetime_ms=3_600_000
        )
    gone = DeleteTopicsRequest.DeleteTopicState
    topic_id = there.state.topics.ids.get("mx") or ZERO_UUID
    yield DeleteTopicsRequest(
        topics=(gone(name="mx"), gone(name="none"), gone(name=None, topic_id=topic_id)), timeout_ms=60_000
    )
    yield DeleteTopicsRequest(topics=(gone(name=f"m-{user}"), gone(name="none")), timeout_ms=60_000)


def told(there: Asked) -> list[tuple[Any, ...]]:
    for request in (registration, heartbeat):
        assert there.ask(request(there, 1)).error_code == 0
        there.written()
    assert not any(row.error_code for row in there.ask(RULES).results)
    found: list[tuple[Any, ...]] = []
    for user in USERS:
        for request in requests(there, user):
            answer = as_user(there, user, request)
            if isinstance(request, CreateDelegationTokenRequest):
                records = [type(one).__name__ for one in there.written()]
                found.append((user, answer.error_code, records))
            else:
                found.append((user, there.plain(answer), there.plain(there.written())))
    return found


@pytest.mark.since("4.3")
def test_a_controller_of_kafka_and_ours_refuse_the_same(both: tuple[Asked, Asked]) -> None:
    theirs, ours = map(told, both)
    assert len(theirs) > 100
    for kafka, own in zip(theirs, ours, strict=True):
        assert own == kafka
