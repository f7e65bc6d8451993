"""kraftlib.types: the values that every layer speaks in."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError
from kraftlib.types import (
    METADATA_TOPIC_ID,
    Endpoint,
    OffsetAndEpoch,
    ReplicaKey,
    new_uuid,
    parse_endpoint,
    parse_uuid,
    uuid_text,
)

uuids = st.uuids()


@given(uuids)
def test_the_text_of_an_id_reads_back(value: uuid.UUID) -> None:
    assert parse_uuid(uuid_text(value)) == value


def test_the_metadata_topic_has_the_id_that_kafka_gave_it() -> None:
    assert uuid_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text", ["", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ==", "AAAAAAAAAAAAAAAAAAAA+/", "é" * 22]
)
def test_what_is_no_id_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ConfigError, match="is no id"):
        parse_uuid(text)


def test_new_ids_differ_and_never_look_like_an_option() -> None:
    ids = {new_uuid() for _ in range(500)}
    assert len(ids) == 500
    assert not [value for value in ids if uuid_text(value).startswith("-")]


@given(st.integers(0, 9), uuids, uuids)
def test_a_voter_matches_its_directory_and_any_while_it_knows_none(id: int, one: uuid.UUID, other: uuid.UUID) -> None:
    assert ReplicaKey(id).matches(ReplicaKey(id, one))
    assert ReplicaKey(id, one).matches(ReplicaKey(id, one))
    assert ReplicaKey(id, one).matches(ReplicaKey(id, other)) == (one == other)
    assert not ReplicaKey(id, one).matches(ReplicaKey(id))
    assert not ReplicaKey(id).matches(ReplicaKey(id + 1))


@given(*[st.integers(0, 5)] * 4)
def test_the_log_with_the_later_epoch_is_ahead_and_then_the_longer_one(e1: int, o1: int, e2: int, o2: int) -> None:
    ahead = OffsetAndEpoch(epoch=e1, offset=o1) > OffsetAndEpoch(epoch=e2, offset=o2)
    assert ahead == (e1 > e2 or (e1 == e2 and o1 > o2))


@pytest.mark.parametrize("endpoint", [Endpoint("localhost", 9093), Endpoint("::1", 1), Endpoint("10.0.0.1", 65535)])
def test_the_text_of_an_endpoint_reads_back(endpoint: Endpoint) -> None:
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":9093", "host:0", "host:65536", "::1:9093", "a b:1", "[]:1", "h:1x"]
)
def test_what_is_no_endpoint_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ConfigError, match="is no endpoint"):
        parse_endpoint(text)
