from __future__ import annotations

from typing import Any

import pytest

from kraftlib.controller.features import ELIGIBLE_LEADER_REPLICAS
from kraftlib.controller.update_features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from kraftlib.controller.versions import METADATA_VERSION
from kraftlib.metadata import RegisterControllerRecord
from kraftlib.metadata.config_records import ConfigRecord, FeatureLevelRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.controller.world import RANGES, World

BROKER = 4
OLD = {METADATA_VERSION: 21, "transaction.version": 1}


def update(
    world: World, levels: dict[str, int], kind: int = UPGRADE, *, version: int = 2, **how: Any
) -> UpdateFeaturesResponse:
    rows = tuple(
        UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level in levels.items()
    )
    answer = world.ask(UpdateFeaturesRequest(feature_updates=rows, **how), version=version)
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer


def test_features_are_raised_together_and_are_in_force_at_once() -> None:
    world = World(levels=OLD).with_brokers(1, 2)
    before = len(world.log)
    answer = update(world, {METADATA_VERSION: 30, "group.version": 1, "transaction.version": 2}, version=1)

    assert answer.error_code == 0
    assert [row.feature for row in answer.results] == [METADATA_VERSION, "group.version", "transaction.version"]
    assert dict(world.state.features.levels.items()) == {
        METADATA_VERSION: 30, "group.version": 1, "transaction.version": 2,
    }  # fmt: skip
    assert {type(record) for record in world.log[before:]} == {FeatureLevelRecord}


def test_one_level_that_cannot_be_leaves_all_as_they_are() -> None:
    world = World(levels=OLD).with_brokers(1)
    before = len(world.log)
    answer = update(world, {METADATA_VERSION: 30, "group.version": 7})

    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "group.version" in (answer.error_message or "")
    assert update(world, {METADATA_VERSION: 30}, validate_only=True).error_code == 0
    assert len(world.log) == before


@pytest.mark.parametrize(
    ("name", "level", "kind", "problem"),
    [
        (METADATA_VERSION, 31, UPGRADE, "Controller 1 does not support"),
        (METADATA_VERSION, 6, SAFE_DOWNGRADE, "Controller 1 does not support"),
        ("no.such.feature", 1, UPGRADE, "does not support"),
        ("no.such.feature", 0, UPGRADE, "does not support"),
        ("group.version", -1, UPGRADE, "less than 0"),
        ("group.version", 1, 4, "upgrade type"),
        ("group.version", 1, SAFE_DOWNGRADE, "to a newer version"),
        ("transaction.version", 0, UPGRADE, "Can't downgrade"),
        (METADATA_VERSION, 20, UPGRADE, "Can't downgrade"),
        (METADATA_VERSION, 16, SAFE_DOWNGRADE, "delete metadata"),
        (METADATA_VERSION, 16, UNSAFE_DOWNGRADE, "delete metadata"),
        (ELIGIBLE_LEADER_REPLICAS, 1, UPGRADE, "depends on metadata.version"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, level: int, kind: int, problem: str) -> None:
    world = World(levels=OLD).with_brokers(1)
    answer = update(world, {name: level}, kind)

    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert problem in (answer.error_message or "")
    assert dict(world.state.features.levels.items()) == OLD


def test_levels_go_down_where_no_record_has_changed() -> None:
    world = World(levels=OLD).with_brokers(1)
    assert update(world, {METADATA_VERSION: 18, "transaction.version": 0}, SAFE_DOWNGRADE).error_code == 0

    assert dict(world.state.features.levels.items()) == {METADATA_VERSION: 18}
    row = UpdateFeaturesRequest.FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=17, allow_downgrade=True)
    old = world.ask(UpdateFeaturesRequest(feature_updates=(row,)), version=0)
    assert old.error_code == ErrorCode.INVALID_UPDATE_VERSION, "Kafka's controller ignores allow_downgrade"


def test_every_broker_and_controller_must_support_a_level_also_those_that_are_fenced() -> None:
    world = World(levels=OLD)
    row = BrokerRegistrationRequest.Feature
    ranges = {**RANGES, METADATA_VERSION: (7, 25)}
    features = tuple(row(name=n, min_supported_version=a, max_supported_version=b) for n, (a, b) in ranges.items())
    world.register(5, features=features)
    assert "Broker 5" in (update(world, {METADATA_VERSION: 26}).error_message or "")
    assert update(world, {METADATA_VERSION: 25}).error_code == 0

    world = World(levels=OLD)
    other = RegisterControllerRecord(controller_id=2, features=())
    world.controller.appended([other], world.next_offset, world.now_ms)
    assert "Controller 2" in (update(world, {METADATA_VERSION: 25}).error_message or "")


def test_eligible_leader_replicas_begin_with_one_min_insync_replicas_of_all_brokers() -> None:
    world = World(levels={METADATA_VERSION: 30}).with_brokers(1, 2, 3)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    value = IncrementalAlterConfigsRequest.AlterableConfig(name="min.insync.replicas", value="2")
    for name in ("2",):
        request = IncrementalAlterConfigsRequest(
            resources=(resource(resource_type=BROKER, resource_name=name, configs=(value,)),)
        )
        assert world.ask(request).responses[0].error_code == 0
    before = len(world.log)
    assert update(world, {ELIGIBLE_LEADER_REPLICAS: 1}).error_code == 0

    configs = [record for record in world.log[before:] if isinstance(record, ConfigRecord)]
    assert {(record.resource_name, record.value) for record in configs} == {("", "1"), ("2", None)}
    assert world.state.features.has_eligible_leader_replicas
