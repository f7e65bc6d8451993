"""Every record of Kafka's metadata has an Arrow type, and comes through it unchanged."""

from __future__ import annotations

import pytest

from kraftlib.analysis.metadata_columns import decoded, json_record, struct_type
from kraftlib.metadata import RECORDS, RegisterBrokerRecord, encode_record
from tests.captured import log_records, logs


@pytest.mark.parametrize("cls", RECORDS.values(), ids=lambda cls: cls.__name__)
def test_the_defaults_of_every_record_come_through_in_every_version(cls: type) -> None:
    record = cls()
    for version in (cls.valid_versions.first, cls.valid_versions.last):
        try:
            value = encode_record(record, version)
        except Exception as error:  # noqa: BLE001 (a default that this version cannot hold)
            pytest.fail(f"{error}")
        structs, reasons = decoded([value], cls.__name__)
        assert reasons == {}
        assert structs.type == struct_type(cls.__name__)
        assert len(structs) == 1


def test_nested_structs_and_ids_come_as_kafkas_tools_print_them() -> None:
    record = RegisterBrokerRecord(
        broker_id=3,
        end_points=(RegisterBrokerRecord.BrokerEndpoint(name="A", host="h", port=60_000, security_protocol=1),),
    )
    structs, _ = decoded([encode_record(record, 4)], "RegisterBrokerRecord")
    (row,) = structs.to_pylist()
    assert row["endPoints"] == [{"name": "A", "host": "h", "port": 60_000, "securityProtocol": 1}]
    assert (row["brokerId"], row["incarnationId"], row["logDirs"]) == (3, "AAAAAAAAAAAAAAAAAAAAAA", [])


def test_what_is_no_such_record_is_null_with_the_reason() -> None:
    structs, reasons = decoded([b"\x01\x02\x00", b"\x05"], "TopicRecord")
    assert structs.null_count == 2
    assert "frame version 5" in reasons[1]
    assert json_record(b"nothing") is None


def test_every_captured_record_can_be_decoded() -> None:
    seen = set()
    for path in logs():
        for _, is_control, _, value in log_records(path):
            if not is_control:
                name = RECORDS[value[1]].__name__
                assert decoded([value], name)[1] == {}
                seen.add(name)
    assert len(seen) >= 12
