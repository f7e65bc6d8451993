"""Values as Kafka's tools write them, to the letter."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.cli.dump_values import Decoder, control_text, describe, java_double, kafka_json, payload_text
from kraftlib.metadata import encode_record
from kraftlib.metadata.config_records import ClientQuotaRecord
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.records.record import Record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_what_is_written_reads_back(value: object) -> None:
    assert json.loads(kafka_json(value)) == value


def test_nothing_but_what_must_be_is_escaped_and_that_in_capitals() -> None:
    assert kafka_json({'grün "\\ \n\x1f\x7f': [1, True, None]}) == '{"grün \\"\\\\ \\n\\u001F\x7f":[1,true,null]}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1024.0, "1024.0"), (9999999.0, "9999999.0"), (1e7, "1.0E7"),
        (10485760.0, "1.048576E7"), (-12345678.5, "-1.23456785E7"), (0.001, "0.001"), (0.0005, "5.0E-4"),
        (0.1, "0.1"), (1e21, "1.0E21"), (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, '"NaN"'), (math.inf, '"Infinity"'), (-math.inf, '"-Infinity"'),
    ],
)  # fmt: skip
def test_numbers_look_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_digit_is_lost(value: float) -> None:
    assert float(java_double(value)) == value


def test_a_quota_is_shown_as_kafka_shows_it() -> None:
    record = ClientQuotaRecord(
        entity=(ClientQuotaRecord.EntityData(entity_type="user", entity_name=None),), key="rate", value=10485760.0
    )
    value = encode_record(record, 0)

    assert payload_text(Record(0, 0, None, value), Decoder.METADATA) == (
        '{"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"user","entityName":null}],'
        '"key":"rate","value":1.048576E7,"remove":false}}'
    )


# Control records that nobody can decode -----------------------------------------------------------


def test_a_control_record_of_an_unknown_type_is_shown_by_its_number_and_is_damage() -> None:
    record = Record(3, 0, b"\0\0\0\x63", b"\0\0")

    assert control_text(record)[0] == "controlType: UNKNOWN(99)"
    assert "unknown type 99" in control_text(record)[1]
    assert describe(record, Decoder.METADATA, is_control=True)[0] == {"type": "UNKNOWN", "data": None}


def test_a_control_record_without_a_key_is_damage() -> None:
    text, trouble = control_text(Record(3, 0, None, b"\0\0"))

    assert text == "controlType: UNKNOWN(-1)"
    assert "no key" in trouble


def test_a_control_record_with_a_broken_value_keeps_its_name() -> None:
    (record,) = encode_control_batch([KRaftVersionRecord(kraft_version=1)], timestamp_ms=0).records()
    text, trouble = control_text(record._replace(value=(record.value or b"")[:3]))

    assert text == "controlType: KRAFT_VERSION(5)"
    assert trouble != ""


@given(st.binary(max_size=60), st.binary(max_size=8), st.sampled_from(Decoder))
def test_no_bytes_break_a_dump(value: bytes, key: bytes, decoder: Decoder) -> None:
    record = Record(0, 0, key, value)

    assert isinstance(control_text(record)[0], str)
    assert isinstance(payload_text(record, decoder), str)
    for is_control in (True, False):
        json.dumps(describe(record, decoder, is_control=is_control)[0])
