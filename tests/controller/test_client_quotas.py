"""Quotas; `tests/interop/test_admin_requests.py` has Kafka's controller do the same."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.metadata import ClientQuotaRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest as Request
from tests.controller.world import World, picture, refolded

Entity = dict[str, str | None]


ADDRESSES = ("1.2.3.4", "01.2.3.4", "1.2.3", "1", "4294967295", "::1", "[::1]", "fe80::1%eth0", "::ffff:1.2.3.4")
"""As Java reads them: the last of fewer than four numbers stands for all bytes that are left."""

NO_ADDRESSES = (
    "no address",
    "1.2.3.256",
    "1.2.65536",
    "4294967296",
    "9" * 30,
    "1.2.3.4.5",
    "1.2.3.",
    "[1.2.3.4]",
    "0x7f.1",
)


def entry(entity: Entity, **quotas: float | None) -> Any:
    return Request.EntryData(
        entity=tuple(Request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()),
        ops=tuple(Request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()),
    )


def alter(world: World, *entries: Any, validate_only: bool = False) -> list[int]:
    return [row.error_code for row in world.ask(Request(entries=entries, validate_only=validate_only)).entries]


def in_force(world: World) -> dict[tuple[Any, ...], float]:
    found = (one for one in world.state.keyed.records.values() if isinstance(one, ClientQuotaRecord))
    return {(*((part.entity_type, part.entity_name) for part in one.entity), one.key): one.value for one in found}


def test_quotas_are_set_changed_and_removed_by_entity() -> None:
    world = World()
    ann: Entity = {"user": "ann"}
    assert alter(world, entry(ann, producer_byte_rate=5.0, request_percentage=0.5), entry({"user": None})) == [0, 0]
    both = {"client-id": None, "user": "ann"}
    assert alter(world, entry(both, producer_byte_rate=7.0), entry({"ip": "::1"}, connection_creation_rate=3)) == [0, 0]
    before = len(world.log)
    twisted = dict(reversed(both.items()))
    assert alter(world, entry(twisted, producer_byte_rate=7.0), entry({"user": "x"}, producer_byte_rate=None)) == [0, 0]
    assert alter(world, entry(ann, producer_byte_rate=6.0), validate_only=True) == [0]
    assert len(world.log) == before, "nothing has changed"
    assert alter(world, entry(ann, producer_byte_rate=None, request_percentage=2.0)) == [0]
    assert in_force(world) == {
        (("user", "ann"), "request_percentage"): 2.0,
        (("client-id", None), ("user", "ann"), "producer_byte_rate"): 7.0,
        (("ip", "::1"), "connection_creation_rate"): 3.0,
    }
    assert picture(refolded(world)) == picture(world.state)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_what_java_takes_for_one(address: str) -> None:
    world = World()
    assert alter(world, entry({"ip": address}, connection_creation_rate=1.0)) == [0]
    assert in_force(world) == {(("ip", address), "connection_creation_rate"): 1.0}


def test_a_rate_may_be_no_number_as_in_kafka_and_limits_nothing() -> None:
    world = World().with_brokers(1)
    nan = float("nan")
    assert alter(world, entry({"user": "ANONYMOUS"}, controller_mutation_rate=nan, producer_byte_rate=nan)) == [0]
    for name in "abc":
        assert world.create(name, partitions=100, factor=1).error_code == 0


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "a"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "a", "ip": "::1"}, {"producer_byte_rate": 1.0}),
        *(({"ip": text}, {"connection_creation_rate": 1.0}) for text in NO_ADDRESSES),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}),
        ({"user": "a"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": 0.0}),
        ({"user": "a"}, {"producer_byte_rate": 1.5}),
        ({"user": "a"}, {"producer_byte_rate": 1e30}),
        ({"ip": None}, {"connection_creation_rate": 2.0**31}),
    ],
)
def test_a_quota_that_cannot_be_is_refused_and_the_others_are_set(entity: Entity, quotas: dict[str, float]) -> None:
    world = World()
    good = entry({"user": "good"}, consumer_byte_rate=1.0)
    assert alter(world, entry(entity, **quotas), good) == [ErrorCode.INVALID_REQUEST, 0]
    assert list(in_force(world)) == [(("user", "good"), "consumer_byte_rate")]
