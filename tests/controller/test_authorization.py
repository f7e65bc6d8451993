"""Requests that rules of access judge: each API asks for its operation, and a part that is refused writes nothing.

`tests/interop/test_authorizer.py` asks a controller of Kafka the same.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.controller import ControllerConfig
from kraftlib.controller.access_rules import ALLOW, DENY, LITERAL, Operation, ResourceType
from kraftlib.controller.apis import JUDGED, SERVED
from kraftlib.controller.context import Caller
from kraftlib.errors import ConfigError
from kraftlib.wire.apis import APIS, ApiKey, ErrorCode
from kraftlib.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlib.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlib.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.controller.world import World

ANN = Caller(principal="User:ann", host="10.0.0.1")
ROOT = Caller(principal="User:root", host="10.0.0.9", is_admin=True)
CLUSTER_DENIED, TOPIC_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


class Judging(World):
    """A controller that judges by rules; `root` is an administrator."""

    def allow(self, operation: Operation, kind: ResourceType, name: str = "kafka-cluster", **changes: Any) -> None:
        fields = {"principal": "User:ann", "host": "*", "permission_type": ALLOW, **changes}
        row = CreateAclsRequest.AclCreation(
            resource_type=kind, resource_name=name, resource_pattern_type=LITERAL, operation=operation, **fields
        )
        assert self.ask(CreateAclsRequest(creations=(row,)), caller=ROOT).results[0].error_code == 0

    def writes(self, request: Any) -> tuple[Any, int]:
        """What ann is told, and how many records that made."""
        before = len(self.log)
        answer = self.ask(request, caller=ANN)
        return answer, len(self.log) - before


@pytest.fixture
def world() -> Judging:
    world = Judging(standard_authorizer=True)
    world.with_brokers(1, 2)
    assert [row.error_code for row in world.ask(creation("orders", "bills"), caller=ROOT).topics] == [0, 0]
    return world


def creation(*names: str) -> CreateTopicsRequest:
    row = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(topics=tuple(row(name=name, num_partitions=1, replication_factor=1) for name in names))


def resources(*named: tuple[int, str]) -> IncrementalAlterConfigsRequest:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="segment.bytes", config_operation=0, value="1048576")
    row = IncrementalAlterConfigsRequest.AlterConfigsResource
    return IncrementalAlterConfigsRequest(
        resources=tuple(row(resource_type=kind, resource_name=name, configs=(change,)) for kind, name in named)
    )


def codes(answer: Any) -> list[int]:
    rows = next(getattr(answer, name) for name in ("topics", "responses", "results") if hasattr(answer, name))
    return [row.error_code for row in rows]


@pytest.mark.parametrize("key", sorted(key for key in JUDGED if SERVED[key].needs is not None))
def test_a_request_about_the_cluster_needs_its_operation_there(world: Judging, key: int) -> None:
    name = ApiKey(key).name
    requests: dict[int, Any] = {
        ApiKey.DELETE_ACLS: DeleteAclsRequest(filters=(DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter="User:zoe",
            host_filter=None, operation=1, permission_type=1),)),
        ApiKey.CREATE_ACLS: CreateAclsRequest(creations=(CreateAclsRequest.AclCreation(
            resource_type=TOPIC, resource_name="t", resource_pattern_type=LITERAL, principal="User:zoe", host="*",
            operation=Operation.READ, permission_type=ALLOW),)),
        ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest(entries=(AlterClientQuotasRequest.EntryData(
            entity=(AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="zoe"),)),)),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest(deletions=(
            AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="zoe", mechanism=1),)),
    }  # fmt: skip
    request = requests.get(key) or APIS[key].request()
    needed = SERVED[key].needs
    assert needed is not None
    for operation in set(Operation) - {needed, Operation.ALL} - IMPLY.get(needed, set()):
        world.allow(operation, CLUSTER)
    answer, written = world.writes(request)
    assert (written, is_refused(answer)) == (0, True), name
    world.allow(needed, CLUSTER)
    assert not is_refused(world.writes(request)[0]), name


IMPLY = {Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}}


def is_refused(answer: Any) -> bool:
    """Whether it says so at the top or in one of its rows."""
    rows = [row for name in ("results", "filter_results", "entries") for row in getattr(answer, name, ())]
    return any(getattr(row, "error_code", 0) == CLUSTER_DENIED for row in (answer, *rows))


def test_topics_are_created_where_a_rule_allows_it_and_described_where_another_does(world: Judging) -> None:
    world.allow(Operation.CREATE, TOPIC, "mine")
    answer, written = world.writes(creation("mine", "yours", "__cluster_metadata"))
    assert (codes(answer), written) == ([0, TOPIC_DENIED, ErrorCode.INVALID_REQUEST], 2)
    mine = answer.topics[0]
    assert (mine.topic_config_error_code, mine.num_partitions, mine.configs) == (TOPIC_DENIED, -1, ())

    world.allow(Operation.CREATE, CLUSTER)
    world.allow(Operation.DESCRIBE_CONFIGS, TOPIC, "*")
    answer, _ = world.writes(creation("yours", "__cluster_metadata"))
    assert codes(answer) == [0, ErrorCode.INVALID_REQUEST], "the topic of the log is nobody's to create"
    assert (answer.topics[0].num_partitions, len(answer.topics[0].configs) > 10) == (1, True)


def test_a_topic_that_may_not_be_described_is_not_shown_to_exist(world: Judging) -> None:
    row = DeleteTopicsRequest.DeleteTopicState
    orders = world.state.topics.ids["orders"]
    request = DeleteTopicsRequest(topics=(row(name="orders"), row(name="none"), row(name=None, topic_id=orders)))

    def told() -> list[tuple[str | None, int]]:
        answer, written = world.writes(request)
        assert written == 0
        return [(one.name, one.error_code) for one in answer.responses]

    assert told() == [("orders", TOPIC_DENIED), ("none", TOPIC_DENIED), (None, TOPIC_DENIED)]
    world.allow(Operation.READ, TOPIC, "*")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told() == [("orders", TOPIC_DENIED), ("none", unknown), ("orders", TOPIC_DENIED)]
    world.allow(Operation.DELETE, TOPIC, "orders")
    answer, written = world.writes(DeleteTopicsRequest(topics=(row(name=None, topic_id=orders), row(name="bills"))))
    assert ([one.error_code for one in answer.responses], written) == ([0, TOPIC_DENIED], 1)
    world.allow(Operation.DELETE, CLUSTER)
    assert codes(world.writes(DeleteTopicsRequest(topics=(row(name="bills"),)))[0]) == [0]


def test_configurations_and_partitions_are_changed_where_a_rule_of_their_kind_allows_it(world: Judging) -> None:
    both = resources((TOPIC, "orders"), (4, "1"))
    read = DescribeConfigsRequest.DescribeConfigsResource
    described = DescribeConfigsRequest(
        resources=(read(resource_type=TOPIC, resource_name="orders"), read(resource_type=4, resource_name=""))
    )
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=2, assignments=None)
    grown = CreatePartitionsRequest(topics=(more,))
    assert world.writes(both)[1] == 0
    for request in (both, described):
        assert codes(world.writes(request)[0]) == [TOPIC_DENIED, CLUSTER_DENIED]
    assert codes(world.writes(grown)[0]) == [TOPIC_DENIED]
    world.allow(Operation.ALTER_CONFIGS, TOPIC, "orders")
    for request in (both, described):
        assert codes(world.writes(request)[0]) == [0, CLUSTER_DENIED]
    world.allow(Operation.ALTER_CONFIGS, CLUSTER)
    world.allow(Operation.ALTER, TOPIC, "orders")
    for request in (both, described, grown):
        assert not any(codes(world.writes(request)[0]))


def test_administrators_are_super_users_and_the_rest_depends_on_the_option() -> None:
    for option, expected in ((False, TOPIC_DENIED), (True, 0)):
        world = Judging(standard_authorizer=True, allow_everyone_if_no_acl_found=option).with_brokers(1)
        world.allow(Operation.ALL, TOPIC, "secret", principal="User:*", permission_type=DENY)
        assert codes(world.writes(creation("a", "secret"))[0]) == [0 if option else expected] * 2
        world = Judging(standard_authorizer=True, allow_everyone_if_no_acl_found=option).with_brokers(1)
        world.allow(Operation.CREATE, CLUSTER, principal="User:bob")  # concerns the cluster from now on
        world.allow(Operation.ALL, TOPIC, "secret", principal="User:*", permission_type=DENY)
        assert codes(world.writes(creation("a", "secret"))[0]) == [expected, TOPIC_DENIED]
        assert codes(world.ask(creation("b", "secret"), caller=ROOT)) == [0, 0]
    with pytest.raises(ConfigError, match="standard_authorizer"):
        ControllerConfig(allow_everyone_if_no_acl_found=True)


def test_rules_that_were_never_committed_do_not_count(world: Judging) -> None:
    row = CreateAclsRequest.AclCreation(
        resource_type=CLUSTER, resource_name="kafka-cluster", resource_pattern_type=LITERAL, principal="User:ann",
        host="10.0.0.1", operation=Operation.CREATE, permission_type=ALLOW,
    )  # fmt: skip
    world.ask(CreateAclsRequest(creations=(row,)), caller=ROOT, commit=False)
    validate = attrs.evolve(creation("a"), validate_only=True)
    assert codes(world.writes(validate)[0]) == [0]
    world.lose_the_epoch()
    world.activate()
    assert codes(world.writes(validate)[0]) == [TOPIC_DENIED]
