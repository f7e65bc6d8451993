"""Metadata records as values: read as Kafka wrote them, and what is unknown is kept whole."""

from __future__ import annotations

import pytest

import kraftlib.metadata
from kraftlib.errors import ConfigError, RemoteProtocolError
from kraftlib.metadata import RECORDS, MetadataSerde, UnknownRecord, decode_record
from kraftlib.metadata.topic_records import TopicRecord
from kraftlib.types import new_uuid
from tests.captured import log_records, logs

SERDE = MetadataSerde()


def test_every_record_of_real_logs_is_read_and_means_the_same_when_written_again() -> None:
    seen = set()
    for path in logs():
        for _, is_control, _, value in log_records(path):
            if not is_control:
                record = SERDE.from_bytes(value)
                seen.add(type(record).__name__)
                assert not isinstance(record, UnknownRecord)
                assert decode_record(SERDE.to_bytes(record))[0] == record
    assert {"TopicRecord", "PartitionChangeRecord", "RegisterBrokerRecord"} <= seen


@pytest.mark.parametrize(("data", "api_key"), [(b"\x01\x63\x00", 99), (b"\x01\x02\x07", 2)])
def test_what_a_newer_kafka_wrote_is_kept_whole(data: bytes, api_key: int) -> None:
    record = SERDE.from_bytes(data)

    assert isinstance(record, UnknownRecord)
    assert record.api_key == api_key
    assert SERDE.to_bytes(record) == data


@pytest.mark.parametrize("data", [b"", b"\x07\x02\x00", b"\x01\x02\x00\x05abc"])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        SERDE.from_bytes(data)


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(ConfigError, match="no metadata record"):
        SERDE.to_bytes("topic")  # type: ignore[arg-type]


def test_every_record_class_is_a_name_of_the_package() -> None:
    for cls in RECORDS.values():
        assert getattr(kraftlib.metadata, cls.__name__) is cls
        assert cls.__name__ in kraftlib.metadata.__all__
    record = kraftlib.metadata.TopicRecord(name="events", topic_id=new_uuid())
    assert isinstance(record, TopicRecord)
    with pytest.raises(AttributeError, match="NoRecord"):
        _ = kraftlib.metadata.NoRecord
