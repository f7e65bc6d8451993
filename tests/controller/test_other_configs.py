"""Settings of groups and client metrics; `tests/interop/test_other_configs.py` has Kafka's controller do the same."""

from __future__ import annotations

import pytest

from kraftlib.controller.configs import CLIENT_METRICS, GROUP
from kraftlib.metadata.config_records import ConfigRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.controller.world import World

BAD_VALUE, BAD_REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST


def altered(world: World, kind: int, name: str, key: str, value: str | None) -> int:
    row = IncrementalAlterConfigsRequest
    change = row.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
    resource = row.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(change,))
    return int(world.ask(row(resources=(resource,))).responses[0].error_code)


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "code"),
    [
        (GROUP, "g", "consumer.session.timeout.ms", "50000", 0),
        (GROUP, "g", "consumer.session.timeout.ms", "44999", BAD_VALUE),
        (GROUP, "g", "share.auto.offset.reset", "by_duration:P1DT2H", 0),
        (GROUP, "g", "share.auto.offset.reset", "by_duration:P", BAD_VALUE),
        (GROUP, "g", "share.isolation.level", "none", BAD_VALUE),
        (GROUP, "g", "retention.ms", "1", BAD_VALUE),
        (GROUP, "", "share.delivery.count.limit", "5", BAD_REQUEST),
        (CLIENT_METRICS, "c", "interval.ms", "100", 0),
        (CLIENT_METRICS, "c", "interval.ms", "99", BAD_REQUEST),
        (CLIENT_METRICS, "c", "interval.ms", "soon", BAD_VALUE),
        (CLIENT_METRICS, "c", "match", "client_id=a.*,client_source_port=9[0-9]+", 0),
        (CLIENT_METRICS, "c", "match", "client_id=(", BAD_VALUE),
        (CLIENT_METRICS, "c", "match", "user=ann", BAD_VALUE),
        (CLIENT_METRICS, "c", "push", "1", BAD_REQUEST),
        (CLIENT_METRICS, "", "interval.ms", "100", BAD_REQUEST),
    ],
)
def test_a_setting_is_kept_if_kafka_would_take_it(kind: int, name: str, key: str, value: str, code: int) -> None:
    world = World()
    before = len(world.log)
    assert altered(world, kind, name, key, value) == code
    records = [one for one in world.log[before:] if isinstance(one, ConfigRecord)]
    kept = [] if code else [(kind, name, key, value)]
    assert [(one.resource_type, one.resource_name, one.name, one.value) for one in records] == kept
    if not code:
        assert dict(world.state.configs.of(kind, name)) == {key: value}
        assert altered(world, kind, name, key, None) == 0
        assert dict(world.state.configs.of(kind, name)) == {}
