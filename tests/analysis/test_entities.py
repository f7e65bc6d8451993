"""Every metadata record is about something, or about the log itself."""

from __future__ import annotations

import pytest

from kraftlib.analysis.entities import (
    Entity,
    entity_of,
    is_about,
    option_text,
    parse_entity,
    types_about,
    wanted_entities,
)
from kraftlib.analysis.options import parse_options
from kraftlib.errors import ConfigError
from kraftlib.metadata import RECORDS, ConfigRecord, encode_record

OF_THE_LOG = {
    "NoOpRecord", "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord", "ZkMigrationStateRecord",
    "ClearElrRecord",
}  # fmt: skip


@pytest.mark.parametrize("cls", RECORDS.values(), ids=lambda cls: cls.__name__)
def test_every_record_is_about_one_thing_or_about_the_log(cls: type) -> None:
    entity = entity_of(cls())
    assert (entity is None) == (cls.__name__ in OF_THE_LOG)
    if entity is not None:
        assert str(parse_entity(f"{entity}x")) == f"{entity}x"


def test_a_topic_is_all_that_ever_had_its_name_and_its_configuration() -> None:
    topics = [("a", "id1"), ("b", "id2"), ("a", "id3")]
    assert wanted_entities(Entity("topic", "a"), topics) == {
        Entity("topic", "id1"), Entity("topic", "id3"), Entity("config", "TOPIC:a"),
    }  # fmt: skip
    assert wanted_entities(Entity("broker", "1"), topics) == {Entity("broker", "1")}


def test_a_value_is_about_what_it_says_and_foreign_bytes_are_about_nothing() -> None:
    value = encode_record(ConfigRecord(resource_type=2, resource_name="t", name="n", value="v"), 0)
    assert is_about(value, {Entity("config", "TOPIC:t")})
    assert not is_about(value, {Entity("topic", "t")})
    assert not is_about(b"text", {Entity("topic", "t")})


def test_the_types_about_a_kind_are_those_whose_records_are() -> None:
    assert types_about("topic") == {2, 3, 5, 9}
    assert types_about("config") == {4}


def test_the_option_about_names_what_is_meant_whatever_is_in_a_name() -> None:
    wanted = {Entity("topic", "b"), Entity("quota", "client-id=a,user=b"), Entity("user", " CN=é, O=x ")}
    assert parse_options({"path": "/x", "about": option_text(wanted)}).about == wanted
    assert parse_options({"path": "/x", "about": "broker:3, topic:b"}).about == {
        Entity("broker", "3"),
        Entity("topic", "b"),
    }
    with pytest.raises(ConfigError, match="or a JSON list of them"):
        parse_options({"path": "/x", "about": '["topic:b"'})


@pytest.mark.parametrize("text", ["topic", "topic:", "table:x", ""])
def test_what_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected KIND:NAME, as topic:events; kinds are topic, broker"):
        parse_entity(text)
