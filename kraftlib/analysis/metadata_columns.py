"""Kafka's metadata records as Arrow structs: a type's fields under the names of Kafka's tools, nested as declared.

Ids are text in Kafka's form, unsigned numbers take the next larger type, and a field that a record's version lacks has
the default of Kafka's schema.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from kraftlib.codec.declarations import Message, Struct, declared_fields, nested_structs, schema_name
from kraftlib.codec.json_form import to_json
from kraftlib.errors import KraftError, ProtocolError
from kraftlib.metadata import RECORDS, decode_record
from kraftlib.types import uuid_text

_SCALARS: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "uuid": pa.string(),
    "bytes": pa.binary(),
}


@lru_cache(maxsize=64)
def record_class_named(name: str) -> type[Message]:
    """Return the class of a metadata record, as TopicRecord. Raises: KeyError, if there is none."""
    return {cls.__name__: cls for cls in RECORDS.values()}[name]


@lru_cache(maxsize=64)
def struct_type(name: str) -> Any:
    """Return the Arrow type that holds every version of a metadata record."""
    cls = record_class_named(name)
    return _struct_type(cls, {nested.__name__: nested for nested in nested_structs(cls)})


def _struct_type(cls: type[Struct], nested: dict[str, type[Struct]]) -> Any:
    return pa.struct(
        [
            pa.field(_name(attribute, declaration), _type(declaration.type, nested))
            for attribute, declaration, _ in declared_fields(cls)
        ]
    )


def _type(type_name: str, nested: dict[str, type[Struct]]) -> Any:
    if type_name.startswith("[]"):
        return pa.list_(_type(type_name[2:], nested))
    return _SCALARS[type_name] if type_name in _SCALARS else _struct_type(nested[type_name], nested)


def _name(attribute: str, declaration: Any) -> str:
    name = schema_name(attribute, declaration)
    return name[0].lower() + name[1:]


def decoded(values: Sequence[bytes], name: str) -> tuple[Any, dict[int, str]]:
    """Return framed values as structs of one type, and which of them cannot be read, and why; those are null."""
    structs: list[dict[str, Any] | None] = []
    reasons: dict[int, str] = {}
    for index, value in enumerate(values):
        try:
            structs.append(_plain(decode_record(value)[0]))
        except ProtocolError as error:
            reasons[index] = str(error)
            structs.append(None)
    return pa.array(structs, type=struct_type(name)), reasons


def _plain(value: Any) -> Any:
    if not isinstance(value, Struct):
        return value
    fields = declared_fields(type(value))
    return {_name(attribute, said): _field(getattr(value, attribute), said.type) for attribute, said, _ in fields}


def _field(value: Any, type_name: str) -> Any:
    if value is None:
        return None
    if type_name.startswith("[]"):
        return [_field(item, type_name[2:]) for item in value]
    return uuid_text(value) if type_name == "uuid" else _plain(value)


def json_record(value: bytes) -> str | None:
    """Return one framed value as `{"type":"TopicRecord","version":0,"data":{…}}`; None, if it is no record we know."""
    try:
        record, version = decode_record(value)
        data = to_json(record, version)
    except KraftError:
        return None
    return json.dumps({"type": type(record).__name__, "version": version, "data": data}, separators=(",", ":"))
