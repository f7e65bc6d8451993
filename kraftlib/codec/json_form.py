"""Messages as Kafka's own tools print them: JSON with camel-case names.

Tagged fields that have their default are left out; ids are in Kafka's text form; bytes are base64. Records are printed
as their size, or not at all: Kafka does both.
"""

from __future__ import annotations

import base64
from typing import Any

from kraftlib.codec.declarations import Message, Struct, declared_fields, schema_name
from kraftlib.errors import LocalProtocolError
from kraftlib.types import uuid_text


def to_json(message: Message, version: int, *, record_sizes: bool = False) -> dict[str, Any]:
    """Return the JSON form of one version of a message, ready for `json.dumps`.

    With `record_sizes`, records appear as `recordsSizeInBytes`, else as an empty text.

    Raises: LocalProtocolError, if the version does not exist or lacks a field that is set and may not be dropped.
    """
    if version not in message.valid_versions:
        raise LocalProtocolError(f"{type(message).__name__} has no version {version}, only {message.valid_versions}")
    return _struct_to_json(message, version, record_sizes)


def _struct_to_json(value: Struct, version: int, record_sizes: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for attribute, declaration, default in declared_fields(type(value)):
        field = getattr(value, attribute)
        if version not in declaration.versions:
            if field != default and not declaration.ignorable:
                raise LocalProtocolError(f"{type(value).__name__}.{attribute}: not in version {version}")
            continue
        if version in declaration.tagged and field == default:
            continue
        name = schema_name(attribute, declaration)
        name = name[0].lower() + name[1:]
        if declaration.type == "records" and record_sizes:
            result[f"{name}SizeInBytes"] = None if field is None else len(field)
        elif declaration.type == "records":
            result[name] = None if field is None else ""
        else:
            result[name] = _value_to_json(field, declaration.type, version, record_sizes)
    return result


def _value_to_json(value: Any, type_name: str, version: int, record_sizes: bool) -> Any:
    if value is None:
        return None
    if type_name.startswith("[]"):
        return [_value_to_json(item, type_name[2:], version, record_sizes) for item in value]
    if isinstance(value, Struct):
        return _struct_to_json(value, version, record_sizes)
    match type_name:
        case "uuid":
            return uuid_text(value)
        case "bytes":
            return base64.b64encode(value).decode("ascii")
        case "string" | "bool" | "float64":
            return value
    return int(value)
