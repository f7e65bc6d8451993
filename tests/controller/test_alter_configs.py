from __future__ import annotations

from typing import Any

import pytest

from kraftlib.controller.configs import BROKER, TOPIC
from kraftlib.controller.context import Caller
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_configs import AlterConfigsRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest as Request
from tests.controller.world import World

SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def alter(world: World, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Any:
    rows = tuple(Request.AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes)
    resource = Request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    (row,) = world.ask(Request(resources=(resource,), validate_only=validate_only)).responses
    return row.error_code


def test_values_are_set_removed_and_extended() -> None:
    world = World().with_brokers(1)
    world.create("a")
    of = world.state.configs.of
    assert alter(world, TOPIC, "a", ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")) == 0
    assert of(TOPIC, "a") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    before = len(world.log)
    assert alter(world, TOPIC, "a", ("retention.ms", SET, "5"), ("segment.ms", DELETE, None)) == 0
    assert alter(world, TOPIC, "a", ("retention.ms", SET, "6"), validate_only=True) == 0
    assert len(world.log) == before, "nothing has changed"
    assert alter(world, TOPIC, "a", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert of(TOPIC, "a") == {"cleanup.policy": "compact"}
    assert alter(world, BROKER, "1", ("log.cleaner.threads", SET, "2")) == 0
    assert alter(world, BROKER, "", ("log.retention.ms", SET, "9")) == 0
    assert (of(BROKER, "1"), of(BROKER, "")) == ({"log.cleaner.threads": "2"}, {"log.retention.ms": "9"})


@pytest.mark.parametrize(
    ("old", "operation", "given", "new"),
    [
        ("a,b", APPEND, "b,c", "a,b,c"),
        ("a, b", APPEND, "b", "a, b,b"),  # blanks count
        ("a,,b", APPEND, "c", "a,b,c"),
        ("a", APPEND, "", "a,"),
        ("a", APPEND, ",,", "a"),
        (None, APPEND, "x", "GSSAPI,x"),
        ("a,b,a", SUBTRACT, "a", "b,a"),
        ("a,b", SUBTRACT, "a,b,c", ""),
        ("a, b", SUBTRACT, "b", "a, b"),
    ],
)
def test_lists_grow_and_shrink_as_in_kafka(old: str | None, operation: int, given: str, new: str) -> None:
    world, key = World().with_brokers(1), "sasl.enabled.mechanisms"
    if old is not None:
        assert alter(world, BROKER, "", (key, SET, old)) == 0
    assert alter(world, BROKER, "", (key, operation, given)) == 0
    assert world.state.configs.of(BROKER, "")[key] == new


def test_only_brokers_say_which_directories_are_cordoned() -> None:
    world, key = World().with_brokers(1), "cordoned.log.dirs"

    def cordon(value: str | None, *, is_forwarded: bool = False) -> int:
        change = Request.AlterableConfig(name=key, config_operation=SET if value is not None else DELETE, value=value)
        resource = Request.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=(change,))
        caller = Caller(is_forwarded=is_forwarded)
        return int(world.ask(Request(resources=(resource,)), caller=caller).responses[0].error_code)

    assert cordon("/a") == ErrorCode.INVALID_CONFIG
    assert cordon("/a,/b", is_forwarded=True) == 0
    assert cordon(" /b ") == 0
    assert cordon("/a") == ErrorCode.INVALID_CONFIG
    assert cordon("") == cordon(None) == 0


def test_all_values_are_replaced_at_once() -> None:
    world = World().with_brokers(1)
    world.create("a", configs={"retention.ms": "5", "segment.ms": "6"})

    def replace(kind: int, name: str, *, validate_only: bool = False, **values: str) -> int:
        row = AlterConfigsRequest.AlterableConfig
        rows = tuple(row(name=key.replace("_", "."), value=value) for key, value in values.items())
        resource = AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
        (answer,) = world.ask(AlterConfigsRequest(resources=(resource,), validate_only=validate_only)).responses
        return int(answer.error_code)

    assert replace(TOPIC, "a", segment_ms="7", validate_only=True) == 0
    assert replace(TOPIC, "a", segment_ms="7", no_such_key="1") == ErrorCode.INVALID_CONFIG
    assert world.state.configs.of(TOPIC, "a") == {"retention.ms": "5", "segment.ms": "6"}
    assert replace(TOPIC, "a", segment_ms="7") == 0
    assert world.state.configs.of(TOPIC, "a") == {"segment.ms": "7"}
    assert replace(TOPIC, "nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(BROKER, "", log_retention_ms="9") == 0
    assert replace(BROKER, "") == 0
    assert world.state.configs.of(BROKER, "") == {}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "nope", [("retention.ms", SET, "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", [("retention.ms", SET, "5")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", [("retention.ms", SET, "5")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a", [("retention.ms", SET, "5"), ("nope", SET, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", [("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", [("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", [("retention.ms", 4, "5")], ErrorCode.INVALID_REQUEST),
        (BROKER, "7", [("log.cleaner.threads", SET, "2")], ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, str(1 << 31), [("log.cleaner.threads", SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "-1", [("log.cleaner.threads", SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "+1", [("log.cleaner.threads", SET, "2"), ("x" * 257, SET, "2")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", [("cleanup.policy", APPEND, "")], ErrorCode.INVALID_CONFIG),
        (BROKER, "one", [("log.cleaner.threads", SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("x" * 257, SET, "2")], ErrorCode.INVALID_CONFIG),
        (BROKER, "1", [("x", SET, "2" * 40_000)], ErrorCode.INVALID_CONFIG),
        (99, "a", [("retention.ms", SET, "5")], ErrorCode.UNSUPPORTED_VERSION),
        (16, "metrics", [("interval.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_is_changed_wholly_or_not_at_all(
    kind: int, name: str, changes: list[Change], code: ErrorCode
) -> None:
    world = World().with_brokers(1)
    world.create("a")
    before = len(world.log)
    assert alter(world, kind, name, *changes) == code
    assert len(world.log) == before


def test_each_resource_stands_alone_except_twins() -> None:
    world = World().with_brokers(1)
    for name in ("a", "b"):
        world.create(name)
    row = Request.AlterableConfig(name="retention.ms", value="5")
    resources = tuple(
        Request.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=(row,))
        for name in ("a", "nope", "b", "b")
    )
    answer = world.ask(Request(resources=resources))
    assert [row.error_code for row in answer.responses] == [0, 3, 42]


@pytest.mark.parametrize(("first", "second"), [("x" * 32_000, "y" * 767), ("\xe9" * 16_000, "\xfc" * 16_000)])
def test_a_list_that_has_grown_beyond_what_a_record_holds_is_refused(first: str, second: str) -> None:
    """A string in the log has 32,767 bytes at most."""
    world = World().with_brokers(1)
    assert alter(world, BROKER, "", ("log.dirs", APPEND, first)) == 0
    assert alter(world, BROKER, "", ("log.dirs", APPEND, second)) == ErrorCode.INVALID_CONFIG
    assert world.state.configs.of(BROKER, "") == {"log.dirs": first}
