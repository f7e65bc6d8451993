"""What is advertised, against what real controllers were asked."""

from __future__ import annotations

import pytest

from kraftlib.controller.apis import FORWARDABLE, ROLES, SERVED, VERSIONS
from kraftlib.security.access import Role
from kraftlib.wire.apis import APIS, ApiKey
from tests.captured import RELEASES, pairs


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
