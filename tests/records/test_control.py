"""Control records: golden bytes, what Kafka's dump says of real ones, and types that nobody knows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kraftlib.codec.declarations import declared_fields, schema_name
from kraftlib.codec.declared import Message, Struct
from kraftlib.errors import ConfigError, CorruptBatchError, RemoteProtocolError
from kraftlib.records.batch import CONTROL, assemble, encode_batch, read_batches
from kraftlib.records.compression import Codec
from kraftlib.records.control import (
    ControlKey,
    ControlRecord,
    ControlType,
    control_key,
    decode_control,
    decode_control_batch,
    encode_control_batch,
)
from kraftlib.records.control_messages import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftlib.records.record import Record, encode_block
from kraftlib.types import uuid_text
from tests.records.captured import captured, dump_of, name

TIME = 1_700_000_000_000
DIRECTORY_ID = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
VOTERS = VotersRecord(
    voters=(
        VotersRecord.Voter(
            voter_id=1,
            voter_directory_id=DIRECTORY_ID,
            endpoints=(VotersRecord.Endpoint(name="CONTROLLER", host="localhost", port=9093),),
            kraft_version_feature=VotersRecord.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        ),
    )
)


def voters(*ids: int) -> tuple[LeaderChangeMessage.Voter, ...]:
    return tuple(LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in ids)


GOLDEN: dict[str, tuple[list[ControlRecord], int, int, str]] = {
    "leader change": (
        [LeaderChangeMessage(leader_id=1, voters=voters(1, 2, 3), granting_voters=voters(1, 2))],
        0,
        1,
        "0000000000000000 0000005e 00000001 02 1735ab2b 0020 00000000 0000018bcfe56800 0000018bcfe56800"
        "ffffffffffffffff ffff ffffffff 00000001"
        "58 00 00 00 08 00000002 44 0000 00000001 04 00000001 00 00000002 00 00000003 00"
        "03 00000001 00 00000002 00 00 00",
    ),
    "header of the bootstrap checkpoint": (
        [SnapshotHeaderRecord(last_contained_log_timestamp=TIME), KRaftVersionRecord(kraft_version=1), VOTERS],
        0,
        0,
        "0000000000000000 0000009a 00000000 02 224758fb 0020 00000002 0000018bcfe56800 0000018bcfe56800"
        "ffffffffffffffff ffff ffffffff 00000003"
        "2a 00 00 00 08 00000003 16 0000 0000018bcfe56800 00 00"
        "1e 00 00 02 08 00000005 0a 0000 0001 00 00"
        "8201 00 00 04 08 00000006 6e 0000 02 00000001 000102030405060708090a0b0c0d0e0f"
        "02 0b 434f4e54524f4c4c4552 0a 6c6f63616c686f7374 2385 00 0000 0001 00 00 00 00",
    ),
    "footer of the bootstrap checkpoint": (
        [SnapshotFooterRecord()],
        3,
        0,
        "0000000000000003 0000003f 00000000 02 8f6608e6 0020 00000000 0000018bcfe56800 0000018bcfe56800"
        "ffffffffffffffff ffff ffffffff 00000001"
        "1a 00 00 00 08 00000004 06 0000 00 00",
    ),
}


@pytest.mark.parametrize("what", GOLDEN)
def test_a_control_batch_has_the_golden_bytes(what: str) -> None:
    records, base_offset, epoch, expected = GOLDEN[what]
    batch = encode_control_batch(records, timestamp_ms=TIME, base_offset=base_offset, epoch=epoch)

    assert bytes(batch.data).hex() == expected.replace(" ", "")
    assert list(decode_control_batch(batch)) == list(enumerate(records, base_offset))
    assert batch.is_control
    assert batch.values() == []


def as_dumped(value: Any) -> Any:
    """Return a message as Kafka's dump tool shows it: names in camel case, ids as text."""
    if isinstance(value, Struct):
        pairs = (
            (schema_name(field, declared), getattr(value, field)) for field, declared, _ in declared_fields(type(value))
        )
        return {
            kafka[0].lower() + kafka[1:]: as_dumped(inner) for kafka, inner in pairs if not _is_left_out(kafka, inner)
        }
    if isinstance(value, tuple):
        return [as_dumped(inner) for inner in value]
    return uuid_text(value) if isinstance(value, UUID) else value


def _is_left_out(kafka: str, value: object) -> bool:
    """Version 0 of a leader change has no directory ids."""
    return kafka == "VoterDirectoryId" and value == UUID(int=0)


KAFKAS_WORDS: dict[type[Message], str] = {
    LeaderChangeMessage: "LeaderChange",
    KRaftVersionRecord: "KRaftVersion",
    VotersRecord: "KRaftVoters",
    SnapshotHeaderRecord: "SnapshotHeader",
    SnapshotFooterRecord: "SnapshotFooter",
}


@pytest.mark.parametrize("path", [*captured("*.log"), *captured("*.checkpoint")], ids=name)
def test_real_control_records_are_what_kafkas_dump_says_and_encode_again(path: Path) -> None:
    found = 0
    for batch, dumped in zip(read_batches(path.read_bytes()), dump_of(path), strict=True):
        if batch.is_control:
            records = [record for _, record in decode_control_batch(batch)]
            read = [(KAFKAS_WORDS[type(record)], as_dumped(record)) for record in records]
            said = [record.control for record in dumped.records]
            again = encode_control_batch(
                records, timestamp_ms=batch.max_timestamp, base_offset=batch.base_offset, epoch=batch.epoch
            )
            assert said in (read, [("LEADER_CHANGE", None)])
            assert again == batch
            found += 1
    assert found >= 1


def test_a_newer_leader_change_names_directories() -> None:
    """No release writes version 1 yet, but its schema is there since 3.9."""
    voter = LeaderChangeMessage.Voter(voter_id=1, voter_directory_id=DIRECTORY_ID)
    written = LeaderChangeMessage(version=1, leader_id=1, voters=(voter,), granting_voters=(voter,))
    batch = encode_control_batch([written], timestamp_ms=TIME)

    assert list(decode_control_batch(batch)) == [(0, written)]


def control(key: str, value: str) -> Record:
    return Record(7, TIME, bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize("number", [0, 1, 7, -1, 32_767])
def test_an_unknown_type_is_refused_and_its_key_can_be_read(number: int) -> None:
    """0 and 1 end transactions, which KRaft has none of."""
    record = control("0000" + (number & 0xFFFF).to_bytes(2, "big").hex(), "000000000000")

    with pytest.raises(RemoteProtocolError, match=f"offset 7 is of unknown type {number}$"):
        decode_control(record)
    assert control_key(record) == ControlKey(version=0, type=number)


def test_the_types_have_kafkas_numbers() -> None:
    assert [kind.name for kind in sorted(ControlType)] == [
        "ABORT",
        "COMMIT",
        "LEADER_CHANGE",
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
        "KRAFT_VERSION",
        "KRAFT_VOTERS",
    ]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("00000004", "", "has a value of 0 bytes"),
        ("00000004", "00", "has a value of 1 bytes"),
        ("00000004", "0000", "needs 1 bytes"),
        ("00000004", "000100", "has no version 1"),
        ("00000004", "0000 00 00", "1 bytes are left over"),
        ("00000002", "0000 00000001 7f", "claims 126 elements"),
        ("00000005", "0000 00", "needs 2 bytes"),
        ("000000", "000000", "has no key of 4 bytes"),
    ],
)
def test_a_control_record_that_does_not_fit_says_why(key: str, value: str, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=re.escape(reason)):
        decode_control(control(key, value))


def test_a_control_record_without_a_key_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="has no key"):
        decode_control(Record(7, TIME, None, b"\x00\x00\x00"))


def test_a_control_batch_that_kraft_would_not_read_is_refused() -> None:
    block = encode_block([Record(0, 0, b"\x00\x00\x00\x04", b"\x00\x00\x00")], base_offset=0, base_timestamp=0)

    with pytest.raises(CorruptBatchError, match="compressed"):
        list(decode_control_batch(assemble((block,), 1, CONTROL | Codec.LZ4, 0, 0, 0, 0)))


def test_a_control_batch_without_records_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one record"):
        encode_control_batch([], timestamp_ms=TIME)


def test_data_is_no_control_record() -> None:
    with pytest.raises(RemoteProtocolError, match="has no key"):
        list(decode_control_batch(encode_batch([b"data"], timestamp_ms=TIME)))
