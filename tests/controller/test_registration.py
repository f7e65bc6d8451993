from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.metadata import RegisterBrokerRecord, UnregisterBrokerRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlib.wire.messages.controller_registration import ControllerRegistrationRequest
from kraftlib.wire.messages.unregister_broker import UnregisterBrokerRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.controller.world import World, directory

FEATURE = BrokerRegistrationRequest.Feature
LISTENER = BrokerRegistrationRequest.Listener
NO_HOST = ErrorCode.INVALID_REGISTRATION


def test_a_broker_is_registered_fenced_and_its_epoch_is_the_offset_of_its_record() -> None:
    world = World()
    offset = world.next_offset
    listener = BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
    answer = world.register(5, listeners=(listener,), rack="r")

    assert (answer.error_code, answer.broker_epoch) == (0, offset)
    record = world.log[-1]
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_epoch, record.fenced, record.rack, record.log_dirs) == (offset, True, "r", (directory(5),))
    assert [(place.name, place.host, place.port) for place in record.end_points] == [("PLAINTEXT", "h", 9092)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "red"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory(5), directory(5))}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (UUID(int=2),)}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory(1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION),
        ({"features": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"listeners": (LISTENER(name="P", host="h", port=9, security_protocol=4),)}, ErrorCode.INVALID_REGISTRATION),
        ({"listeners": (LISTENER(name="P", host="h", port=9, security_protocol=-1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"listeners": (LISTENER(name="P", host="evil.example\nforged", port=9, security_protocol=0),)}, NO_HOST),
        ({"listeners": (LISTENER(name="P", host="unix:/run/1.sock", port=9, security_protocol=0),)}, NO_HOST),
        (
            {"features": (FEATURE(name="metadata.version", min_supported_version=7, max_supported_version=29),)},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        ({"broker_id": 1}, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ],
)
def test_what_kafka_refuses_is_refused_and_writes_nothing(changes: dict[str, Any], code: ErrorCode) -> None:
    world = World().with_brokers(1)
    before = len(world.log)
    answer = world.ask(attrs.evolve(world.registration(5), **changes))
    assert (answer.error_code, answer.broker_epoch) == (code, -1)
    assert len(world.log) == before


def test_a_second_process_waits_for_the_end_of_the_session_of_the_first() -> None:
    world = World(no_op_interval_ms=0).with_brokers(1, 2)
    world.create("a", assignments=[[1, 2]])
    world.now_ms += 9_000
    assert world.register(1).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.now_ms += 1
    assert world.register(1).error_code == 0
    assert world.shape("a")[:2] == (2, (2,))  # its earlier process is out of every ISR
    assert world.state.cluster.brokers[1].fenced


def test_the_same_process_may_register_again_and_keeps_its_epoch_and_state() -> None:
    world = World()
    request = world.registration(1)
    epoch = world.ask(request).broker_epoch
    world.beat(1)
    assert world.ask(request).broker_epoch == epoch
    assert not world.state.cluster.brokers[1].fenced


def test_a_broker_that_is_unregistered_leads_nothing_and_is_gone() -> None:
    world = World().with_brokers(1, 2)
    world.create("a", assignments=[[1, 2]])
    assert world.ask(UnregisterBrokerRequest(broker_id=1)).error_code == 0
    assert isinstance(world.log[-1], UnregisterBrokerRecord)
    assert world.shape("a")[:2] == (2, (2,))
    assert world.ask(UnregisterBrokerRequest(broker_id=1)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert world.beat(1, broker_epoch=9).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_whose_range_leaves_out_a_level_is_not_registered() -> None:
    """A feature that is not in force is at level 0."""
    world = World()
    features = world.registration(2).features
    low = tuple(attrs.evolve(one, min_supported_version=1) for one in features if one.name == "share.version")
    assert world.register(2, features=(*features, *low)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert world.register(2, features=features[:1]).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert world.register(2).error_code == 0


def test_controllers_stand_in_the_log_from_3_7_on_whatever_they_support() -> None:
    """As in Kafka: what they support counts when a level is to change."""
    world = World(levels={"metadata.version": 14})
    assert dict(world.state.cluster.controllers.items()) == {}
    answer = world.ask(ControllerRegistrationRequest(controller_id=3))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    row = UpdateFeaturesRequest.FeatureUpdateKey(feature="metadata.version", max_version_level=15)
    assert world.ask(UpdateFeaturesRequest(feature_updates=(row,))).error_code == 0
    world.tick()
    answer = world.ask(ControllerRegistrationRequest(controller_id=3))
    assert (answer.error_code, answer.error_message) == (0, "")
    wrong = ControllerRegistrationRequest.Listener(name="P", host="h", port=9, security_protocol=99)
    answer = world.ask(ControllerRegistrationRequest(controller_id=4, listeners=(wrong,)))
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION
    assert sorted(world.state.cluster.controllers) == [1, 3]


def test_a_broker_that_registers_again_says_anew_which_directories_are_cordoned() -> None:
    world = World().with_brokers(1)
    world.beat(1, cordoned_log_dirs=(directory(1),))
    incarnation = world.state.cluster.brokers[1].incarnation_id
    world.register(1, incarnation_id=incarnation)
    assert world.state.cluster.brokers[1].cordoned_log_dirs is None
