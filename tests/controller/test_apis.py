"""What is advertised, against what real controllers were asked."""

from __future__ import annotations

import pytest

from kraftlib.codec.versions import Versions
from kraftlib.controller.apis import FORWARDABLE, ROLES, SERVED, VERSIONS
from kraftlib.runtime.net import api_versions
from kraftlib.security.access import Role
from kraftlib.wire.apis import APIS, ApiKey
from kraftlib.wire.frames import decode_response
from tests.captured import RELEASES, pairs

BY_NAME = Versions(0, 12)
"""The versions of Fetch that name the topic: controllers of Kafka advertise some, and refuse them."""
NOT_HANDLED = {7, 41, 50}
"""ControlledShutdown of brokers that have their metadata from ZooKeeper, describing of tokens and of SCRAM credentials:
advertised by Kafka's controllers, and UNKNOWN_SERVER_ERROR there."""
OF_SASL = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""Advertised where a login is configured."""
OLD = {
    **dict.fromkeys((ApiKey.CREATE_TOPICS, ApiKey.ALTER_PARTITION), Versions(0, 1)),
    **dict.fromkeys(
        (
            ApiKey.DELETE_TOPICS,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
        ),
        Versions(0, 0),
    ),
}
"""The versions that Kafka 4.0 took away (KIP-896)."""


def test_what_is_served_can_be_read_and_has_a_role() -> None:
    assert set(ROLES) == set(VERSIONS)
    for key, versions in VERSIONS.items():
        assert set(versions) <= set(APIS[key].versions)
    own_business = {
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
    assert {key for key, role in ROLES.items() if role is Role.CLIENT} == own_business, "all else changes the cluster"
    assert {key for key, one in SERVED.items() if one.forwardable} <= FORWARDABLE
    assert ApiKey.ENVELOPE not in FORWARDABLE, "an envelope holds no envelope"


@pytest.mark.parametrize("release", RELEASES)
def test_every_request_of_a_broker_in_the_captures_is_served(release: str) -> None:
    asked = {(pair["api_key"], pair["api_version"]) for pair in pairs(release, "wire")}
    of_brokers = {
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ENVELOPE,
        ApiKey.CREATE_TOPICS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
    found = {(key, version) for key, version in asked if key in of_brokers}
    assert {key for key, _ in found} >= {ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE}
    assert {(key, version) for key, version in found if version not in VERSIONS[key]} == set()


@pytest.mark.parametrize("release", RELEASES)
def test_all_is_served_that_a_controller_of_kafka_serves(release: str) -> None:
    """And nothing else, compared with 4.3.1, but the next version of ApiVersions and what 3.9 serves."""
    ours = {(key, one) for key, served in {**api_versions.SERVED, **VERSIONS}.items() for one in served}
    told = [pair for pair in pairs(release, "wire") if pair["api_key"] == ApiKey.API_VERSIONS]
    for pair in told:
        _, answer = decode_response(pair["response"], api_key=ApiKey.API_VERSIONS, version=pair["api_version"])
        ranges = {
            key: range_ for key, range_ in api_versions.ranges(answer).items() if key not in {*OF_SASL, *NOT_HANDLED}
        }
        theirs = {(key, one) for key, range_ in ranges.items() for one in range_}
        theirs -= {(ApiKey.FETCH, one) for one in BY_NAME}
        assert theirs - ours == set()
        if release == "kafka-4.3.1":
            older = {(key, one) for key, versions in OLD.items() for one in versions}
            assert ours - theirs == {(ApiKey.API_VERSIONS, 5), *older}
    assert told
