"""Renders the values of records as Kafka's tools do: control records and metadata records in JSON.

The JSON is Kafka's to the letter, so that two dumps can be compared as text: no blanks, nothing but quotes, backslashes
and control characters escaped (`\\u001F` in capitals), and floating point numbers as Java writes them.
"""

from __future__ import annotations

import enum
import json
import math
import re
from decimal import Decimal
from typing import Any, Final

from kraftlib.codec.json_form import to_json
from kraftlib.errors import ProtocolError
from kraftlib.metadata import RecordType, decode_record
from kraftlib.records.control import ControlType, control_key, decode_control
from kraftlib.records.record import Record

_HEX: Final = re.compile(r"\\u00[0-9a-f]{2}")

_CONTROL_WORDS: Final = {
    # The one that is followed by a colon: so in Kafka 4.3, which prints it as text of 3.9's form only up to there.
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


class Decoder(enum.Enum):
    """The interpretation of the values of data records."""

    METADATA = "metadata"
    """Kafka's metadata records, in their frame."""
    TEXT = "text"
    """Any bytes, shown as UTF-8."""


def control_type(record: Record) -> str:
    """Return the name of a control record's type; `UNKNOWN` for an unknown one."""
    try:
        return ControlType(control_key(record).type).name
    except (ValueError, ProtocolError):
        return "UNKNOWN"


def control_text(record: Record) -> tuple[str, str]:
    """Return how Kafka's tool shows a control record, and why it cannot be decoded, or an empty text."""
    data, trouble = _control_data(record)
    if data is None:
        number = control_key(record).type if record.key and len(record.key) >= 4 else -1
        return f"controlType: {control_type(record)}({number})", trouble
    return f"{_CONTROL_WORDS[ControlType[control_type(record)]]} {kafka_json(data)}", trouble


def payload_text(record: Record, decoder: Decoder) -> str:
    """Return how Kafka's tool shows the value of a data record."""
    if decoder is Decoder.TEXT:
        return (record.value or b"").decode(errors="replace")
    payload, trouble = _metadata(record)
    return kafka_json(payload) if payload is not None else f"Error at {record.offset}, skipping. {trouble}"


def describe(record: Record, decoder: Decoder, *, is_control: bool) -> tuple[dict[str, Any], str]:
    """Return what a record holds, for the JSON form, and why it cannot be decoded where that is damage."""
    if is_control:
        data, trouble = _control_data(record)
        return {"type": control_type(record), "data": data}, trouble
    if decoder is Decoder.TEXT:
        value = None if record.value is None else record.value.decode(errors="replace")
        key = {} if record.key is None else {"key": record.key.decode(errors="replace")}
        return {**key, "payload": value}, ""
    payload, trouble = _metadata(record)
    # Not damage: an application's own values are no metadata records.
    return {"payload": payload, **({"payload_error": trouble} if trouble else {})}, ""


def _control_data(record: Record) -> tuple[dict[str, Any] | None, str]:
    try:
        message = decode_control(record)
        return to_json(message, message.version), ""
    except ProtocolError as error:
        return None, str(error)


def _metadata(record: Record) -> tuple[dict[str, Any] | None, str]:
    try:
        message, version = decode_record(record.value or b"")
        return {
            "type": RecordType(message.api_key).name,
            "version": version,
            "data": to_json(message, version),
        }, ""
    except ProtocolError as error:
        return None, str(error)


def kafka_json(value: Any) -> str:
    """Return `value` (dict, list, text, number, boolean or None) as Kafka's tools print it."""
    match value:
        case dict():
            return "{" + ",".join(f"{_text(key)}:{kafka_json(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(kafka_json, value)) + "]"
        case str():
            return _text(value)
        case float():
            return java_double(value)
        case _:
            return json.dumps(value)


def _text(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # The hexadecimal digits of characters that JSON must escape: Java writes them in capitals.
    return _HEX.sub(lambda match: f"\\u{match[0][2:].upper()}", text) if "\\u" in text else text


def java_double(value: float) -> str:
    """Return `value` as Java writes a double: 1024.0, 1.048576E7, 5.0E-4, and in quotes what is no number."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{first}.{rest}E{int(exponent) + len(digits) - 1}"
