from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.codec.json_form import to_json
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.metadata import RECORDS, UnknownRecordError, decode_record, encode_record, record_type_name
from kraftlib.metadata.broker_records import RegisterBrokerRecord
from kraftlib.metadata.log_records import NoOpRecord
from kraftlib.wire.messages.vote import VoteRequest
from tests.captured import dumped_records, log_records, logs
from tests.declared_messages import any_message


@pytest.mark.parametrize("path", logs(), ids=lambda path: "/".join(path.parts[-4:]))
def test_every_record_that_kafka_wrote_reads_as_its_dump_says_and_is_written_alike(path: Path) -> None:
    dump = dict(dumped_records(path))
    values = {offset: value for offset, is_control, _, value in log_records(path) if not is_control}
    assert values or path.name.endswith("-0000000000.checkpoint")  # the bootstrap checkpoint has control records only

    for offset, value in values.items():
        record, version = decode_record(value)
        payload = {"type": record_type_name(type(record)), "version": version, "data": to_json(record, version)}
        assert f"payload: {json.dumps(payload, separators=(',', ':'))}" == dump[offset]
        assert encode_record(record, version) == value


def test_the_smallest_record_is_four_bytes() -> None:
    assert encode_record(NoOpRecord(), 0).hex() == "01140000"
    assert decode_record(bytes.fromhex("01140000")) == (NoOpRecord(), 0)


@pytest.mark.parametrize("api_key", list(RECORDS))
@given(seed=st.integers(0, 2**32 - 1))
def test_every_record_of_every_version_comes_back_with_its_version(api_key: int, seed: int) -> None:
    cls = RECORDS[api_key]
    version = seed % (cls.valid_versions.last + 1)
    record = any_message(cls, version, seed)

    assert decode_record(encode_record(record, version)) == (record, version)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("", "varint at byte 0 needs 1 bytes"),
        ("00140000", "frame version 0, known is 1"),
        ("02140000", "frame version 2, known is 1"),
        ("0114000000", "1 bytes are left over at byte 4 of 5"),
        ("011400", "at byte 3 needs 1 bytes"),
        ("ffffffffff", "exceeds 32 bits"),
    ],
)
def test_what_is_no_frame_is_refused(value: str, error: str) -> None:
    with pytest.raises(RemoteProtocolError, match=error):
        decode_record(bytes.fromhex(value))


@pytest.mark.parametrize(
    ("value", "api_key", "version"), [("01060000", 6, 0), ("011e0000", 30, 0), ("01140100", 20, 1), ("01000500", 0, 5)]
)
def test_a_record_of_a_newer_kafka_is_named_and_never_skipped(value: str, api_key: int, version: int) -> None:
    with pytest.raises(UnknownRecordError, match=r"unknown type|known are") as caught:
        decode_record(bytes.fromhex(value))
    assert (caught.value.api_key, caught.value.version) == (api_key, version)


def test_a_field_that_the_version_lacks_is_not_lost_silently() -> None:
    record = RegisterBrokerRecord(broker_id=1, in_controlled_shutdown=True)
    assert decode_record(encode_record(record, 1)) == (record, 1)
    with pytest.raises(LocalProtocolError, match="in_controlled_shutdown: version 0 has no such field to hold True"):
        encode_record(record, 0)


def test_only_metadata_records_of_known_versions_are_framed() -> None:
    with pytest.raises(LocalProtocolError, match="no metadata record"):
        encode_record(VoteRequest(), 0)
    for version in (-1, 1):
        with pytest.raises(LocalProtocolError, match=f"has no version {version}, only 0"):
            encode_record(NoOpRecord(), version)


def test_tags_of_a_newer_kafka_are_kept() -> None:
    value = bytes.fromhex("011400" + "01" + "07" + "02" + "abcd")
    record, version = decode_record(value)
    assert record == NoOpRecord()
    assert record.unknown_tagged_fields == ((7, b"\xab\xcd"),)
    assert encode_record(record, version) == value
    assert encode_record(attrs.evolve(record, unknown_tagged_fields=()), 0).hex() == "01140000"
