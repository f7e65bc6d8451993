"""Rules of access; `tests/interop/test_admin_requests.py` has Kafka's controller do the same."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.controller.access_rules import ALLOW, DENY, LITERAL, PREFIXED, ResourceType
from kraftlib.controller.acls import ANY, MATCH
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.controller.world import World, picture, refolded

TOPIC, GROUP, READ, WRITE = 2, 3, 3, 4


def rule(name: str, *, pattern: int = LITERAL, kind: int = TOPIC, principal: str = "User:ann", **changes: Any) -> Any:
    fields = {"host": "*", "operation": READ, "permission_type": ALLOW, **changes}
    return CreateAclsRequest.AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=principal, **fields
    )


def create(world: World, *rules: Any) -> list[int]:
    return [row.error_code for row in world.ask(CreateAclsRequest(creations=rules)).results]


def criteria(**changes: Any) -> dict[str, Any]:
    anything = {"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY}
    of_entries = {"principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY}
    return {**anything, **of_entries, **changes}


def named(world: World, **changes: Any) -> set[str]:
    answer = world.ask(DescribeAclsRequest(**criteria(**changes)))
    assert answer.error_code == 0
    return {one.resource_name for one in answer.resources}


def some_rules() -> World:
    world = World()
    rules = (
        rule("orders"),
        rule("ord", pattern=PREFIXED, principal="User:bob"),
        rule("*", permission_type=DENY),
        rule("readers", kind=GROUP, host="10.0.0.1"),
        rule("kafka-cluster", kind=ResourceType.CLUSTER, operation=WRITE),
    )
    assert create(world, *rules) == [0] * 5
    return world


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, {"orders", "ord", "*", "readers", "kafka-cluster"}),
        ({"resource_type_filter": TOPIC}, {"orders", "ord", "*"}),
        ({"resource_name_filter": "orders"}, {"orders"}),
        ({"resource_name_filter": "ord", "pattern_type_filter": LITERAL}, set()),
        ({"resource_name_filter": "ord", "pattern_type_filter": PREFIXED}, {"ord"}),
        ({"resource_name_filter": "orders", "pattern_type_filter": MATCH}, {"orders", "ord", "*"}),
        ({"resource_name_filter": "clicks", "pattern_type_filter": MATCH}, {"*"}),
        ({"principal_filter": "User:bob"}, {"ord"}),
        ({"host_filter": "10.0.0.1"}, {"readers"}),
        ({"operation": WRITE}, {"kafka-cluster"}),
        ({"permission_type": DENY}, {"*"}),
    ],
)
def test_rules_are_found_and_deleted_by_the_same_filter(wanted: dict[str, Any], names: set[str]) -> None:
    world = some_rules()
    everything = named(world)
    assert named(world, **wanted) == names
    filters = (DeleteAclsRequest.DeleteAclsFilter(**criteria(**wanted)),) * 2
    answer = world.ask(DeleteAclsRequest(filters=filters))
    assert {one.resource_name for one in answer.filter_results[0].matching_acls} == names
    assert named(world) == everything - names
    assert picture(refolded(world)) == picture(world.state)


def test_a_rule_stands_once() -> None:
    world = World()
    assert create(world, rule("a"), rule("a"), rule("b")) == [0, 0, 0]
    before = len(world.log)
    assert create(world, rule("a")) == [0]
    assert len(world.log) == before
    assert len(list(world.state.keyed.access_rules())) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        rule(""),
        rule("a", kind=ResourceType.CLUSTER),
        rule("a", kind=9),
        rule("a", operation=99),
        rule("a", principal="ann"),
    ],
)
def test_a_rule_that_says_nothing_is_refused_alone(wrong: Any) -> None:
    world = World()
    assert create(world, wrong, rule("good")) == [ErrorCode.INVALID_REQUEST, 0]
    assert named(world) == {"good"}


@pytest.mark.parametrize(
    "wrong", [rule("a", kind=ANY), rule("a", pattern=MATCH), rule("a", operation=ANY), rule("a", permission_type=ANY)]
)
def test_what_only_filters_have_ends_the_request(wrong: Any) -> None:
    world = World()
    assert create(world, rule("good"), wrong) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert named(world) == set()


def test_what_is_not_known_is_never_taken_for_anything() -> None:
    world = some_rules()
    before = len(world.log)
    assert create(world, rule("a", operation=0), rule("b")) == [ErrorCode.INVALID_REQUEST] * 2
    row = DeleteAclsRequest.DeleteAclsFilter
    for unknown in (0, 99):
        answer = world.ask(DeleteAclsRequest(filters=(row(**criteria(operation=unknown)),)))
        assert answer.filter_results[0].error_code == ErrorCode.INVALID_REQUEST
    assert world.ask(DescribeAclsRequest(**criteria(permission_type=0))).error_code == ErrorCode.INVALID_REQUEST
    answer = world.ask(DescribeAclsRequest(**criteria(permission_type=7)))
    assert (answer.error_code, answer.resources) == (0, ())
    assert len(world.log) == before
