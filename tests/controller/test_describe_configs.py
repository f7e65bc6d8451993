from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlib.controller.config_values import ConfigType, Source
from kraftlib.controller.configs import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.controller.test_alter_configs import SET, alter
from tests.controller.world import World


def describe(world: World, kind: int, name: str, keys: Sequence[str] | None = None) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else tuple(keys)
    )
    (row,) = world.ask(DescribeConfigsRequest(resources=(resource,), include_synonyms=True)).results
    return row


def told(row: Any) -> dict[str, tuple[str | None, int, list[tuple[str, str | None, int]]]]:
    return {
        one.name: (one.value, one.config_source, [(s.name, s.value, s.source) for s in one.synonyms])
        for one in row.configs
    }


def test_a_value_comes_from_the_topic_the_node_all_brokers_or_the_default() -> None:
    world = World().with_brokers(1)
    world.create("a", configs={"segment.ms": " 7 "})
    hours = ("log.retention.hours", "168", Source.DEFAULT)
    keys = ("retention.ms", "segment.ms", "remote.storage.enable", "nope")

    assert told(describe(world, TOPIC, "a", keys)) == {
        "retention.ms": (str(168 * 3_600_000), Source.DEFAULT, []),
        "segment.ms": ("7", Source.TOPIC, [("segment.ms", "7", Source.TOPIC)]),
        "remote.storage.enable": ("false", Source.DEFAULT, []),
    }
    alter(world, BROKER, "", ("log.retention.ms", SET, "5"))
    every = ("log.retention.ms", "5", Source.DYNAMIC_DEFAULT_BROKER)
    found = told(describe(world, TOPIC, "a"))
    assert found["retention.ms"] == ("5", Source.DYNAMIC_DEFAULT_BROKER, [every, hours])
    assert len(found) == 33
    alter(world, BROKER, "1", ("log.retention.ms", SET, "6"))
    own = ("log.retention.ms", "6", Source.DYNAMIC_BROKER)
    assert told(describe(world, TOPIC, "a"))["retention.ms"] == ("6", Source.DYNAMIC_BROKER, [own, every, hours])
    alter(world, BROKER, "1", ("log.retention.ms", SET, "nonsense"))
    assert told(describe(world, TOPIC, "a"))["retention.ms"][0] == "5", "no broker takes nonsense"


def test_a_value_of_brokers_is_told_as_it_is_read_and_beside_it_as_it_was_given() -> None:
    world = World().with_brokers(1)
    world.create("a")
    key = "log.cleaner.min.cleanable.ratio"
    alter(world, BROKER, "", (key, SET, "1e-5"))
    value, source, synonyms = told(describe(world, TOPIC, "a"))["min.cleanable.dirty.ratio"]
    assert (value, source) == ("1.0E-5", Source.DYNAMIC_DEFAULT_BROKER)
    assert synonyms == [(key, "1e-5", Source.DYNAMIC_DEFAULT_BROKER), (key, "0.5", Source.DEFAULT)]


def test_of_brokers_what_was_changed_is_told_but_no_secret() -> None:
    world = World().with_brokers(1, 2)
    alter(world, BROKER, "", ("log.retention.ms", SET, "5"), ("ssl.key.password", SET, "x"), ("nonsense", SET, "y"))
    alter(world, BROKER, "1", ("listener.name.external.ssl.keystore.password", SET, "x"))
    alter(world, BROKER, "2", ("log.retention.ms", SET, "7"))

    rows = {one.name: one for one in describe(world, BROKER, "").configs}
    assert {name: (one.value, one.is_sensitive) for name, one in rows.items()} == {
        "log.retention.ms": ("5", False),
        "nonsense": (None, True),
    }, "a setting of TLS counts for a listener only"
    assert rows["log.retention.ms"].config_type == ConfigType.LONG
    assert told(describe(world, BROKER, "1"))["listener.name.external.ssl.keystore.password"][0] is None
    assert set(told(describe(world, BROKER, "1"))) == {*rows, "listener.name.external.ssl.keystore.password"}


def test_of_all_brokers_what_only_single_ones_may_have_is_not_told() -> None:
    world = World().with_brokers(1)
    for name in ("", "1"):
        for key in ("ssl.enabled.protocols", "cordoned.log.dirs", "listener.name.a.ssl.client.auth"):
            alter(world, BROKER, name, (key, SET, "x"))
    assert told(describe(world, BROKER, "")) == {}
    assert {source for _, source, _ in told(describe(world, BROKER, "1")).values()} == {Source.DYNAMIC_BROKER}


def test_the_setting_of_a_listener_has_that_without_it_beside_it() -> None:
    world = World().with_brokers(1)
    alter(world, BROKER, "", ("listener.name.a.max.connections", SET, "5"), ("max.connections", SET, "6"))
    rows = {one.name: one for one in describe(world, BROKER, "").configs}
    assert [(one.name, one.value) for one in rows["listener.name.a.max.connections"].synonyms] == [
        ("listener.name.a.max.connections", "5"),
        ("max.connections", "6"),
    ]
    assert (rows["listener.name.a.max.connections"].read_only, rows["max.connections"].read_only) == (True, False)


def test_what_a_controller_does_not_know_is_refused() -> None:
    world = World().with_brokers(1, 2)
    refused = {
        (TOPIC, "nope"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC, "a b"): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (BROKER, "2"): ErrorCode.INVALID_REQUEST,
        (BROKER, "x"): ErrorCode.INVALID_REQUEST,
        (99, "x"): ErrorCode.INVALID_REQUEST,
        (GROUP, ""): ErrorCode.INVALID_REQUEST,
        (CLIENT_METRICS, ""): ErrorCode.INVALID_REQUEST,
    }
    assert {what: describe(world, *what).error_code for what in refused} == refused


def test_a_type_that_there_is_not_ends_the_request() -> None:
    world = World().with_brokers(1)
    world.create("a")
    row = DescribeConfigsRequest.DescribeConfigsResource
    rows = tuple(row(resource_type=kind, resource_name="a", configuration_keys=None) for kind in (TOPIC, 99))
    results = world.ask(DescribeConfigsRequest(resources=rows)).results
    assert [(one.resource_type, one.error_code) for one in results] == [(TOPIC, 42), (99, 42)]


def test_groups_and_client_metrics_have_their_own_values_and_defaults() -> None:
    world = World()
    row = IncrementalAlterConfigsRequest
    for kind, name, key, value in (
        (GROUP, "g", "share.delivery.count.limit", " 4 "),
        (CLIENT_METRICS, "m", "metrics", "a.b, *"),
    ):
        change = row.AlterableConfig(name=key, value=value)
        resource = row.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(change,))
        assert world.ask(row(resources=(resource,))).responses[0].error_code == 0
    group = {one.name: one for one in describe(world, GROUP, "g").configs}
    limit, lock = group["share.delivery.count.limit"], group["share.record.lock.duration.ms"]
    assert (limit.value, limit.config_source, limit.config_type) == ("4", Source.GROUP, ConfigType.INT)
    assert [(one.name, one.value) for one in limit.synonyms] == [
        ("share.delivery.count.limit", "4"),
        ("group.share.delivery.count.limit", "5"),
    ]
    assert (lock.value, lock.config_source) == ("30000", Source.DEFAULT)
    metrics = {one.name: (one.value, one.config_source) for one in describe(world, CLIENT_METRICS, "m").configs}
    assert metrics == {
        "interval.ms": ("300000", Source.DEFAULT),
        "match": ("", Source.DEFAULT),
        "metrics": ("a.b,*", Source.CLIENT_METRICS),
    }


def test_a_hidden_setting_is_told_where_a_topic_has_it() -> None:
    world = World().with_brokers(1)
    world.create("a", configs={"internal.segment.bytes": "100000"})
    world.create("b")
    assert told(describe(world, TOPIC, "a"))["internal.segment.bytes"][0] == "100000"
    assert "internal.segment.bytes" not in told(describe(world, TOPIC, "b"))
